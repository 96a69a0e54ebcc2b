//! A random model of a mount and of those who hold on to it: descriptors, shared mappings, appending
//! descriptors and directories stay open while checkpoints, rollbacks, undo, redo, restores, merges and updates
//! from the project change the tree under them. Everything is compared with a model in memory after each step.
//!
//! Whether a file that comes back under its name is the one that somebody still holds, unlinked, is not
//! promised: the descriptor's link count says which, and either way its content is exact.

mod beside;
mod hold;
mod killer;
mod run;
mod switch;
pub mod tree;
mod update;

pub use run::run;
