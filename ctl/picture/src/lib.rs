//! What a person on a terminal looks at: graphs of commits, tables, times ago, progress bars.
//!
//! Invariant: nothing here asks the daemon or reads arguments or the environment, and only [`Bar`] prints; scripts
//! never get any of it. Names and messages are escaped before they are drawn.

#![forbid(unsafe_code)]

mod ago;
mod bar;
mod graph;
mod line;
mod table;

pub use ago::ago;
pub use bar::{Bar, human_bytes, human_count};
pub use graph::{Graph, Row};
pub use line::{Paint, Style, fit};
pub use table::{facts, share, table};
