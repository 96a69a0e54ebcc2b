//! What a person on a terminal looks at: graphs of commits, tables, times ago, progress bars.
//!
//! Invariant: nothing here asks the daemon or reads arguments or the environment, and only [`Bar`] prints; scripts
//! never get any of it. Names and messages are escaped before they are drawn.

#![forbid(unsafe_code)]

mod ago;
mod bar;
mod columns;
mod graph;
mod histogram;
mod line;
mod lines_from;
mod spans;
mod table;
mod tree;
mod words;

pub use ago::{ago, when};
pub use bar::{Bar, BarEnding, BarStyle, human_bytes, human_count};
pub use columns::{Cell, Columns, Side, cell, columns, id_cell, leave_out, text_width, width};
pub use graph::{Graph, Row};
pub use histogram::histogram;
pub use line::{Paint, Style, Times, fit};
pub use lines_from::LinesFrom;
pub use spans::{Ended, Span, spans};
pub use table::{facts, share, table};
pub use tree::{Twig, tree};
pub use words::{Pieces, words};
