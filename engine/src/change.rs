//! Making one tree into another: what changes, and under which numbers.

pub(crate) mod graft;
pub(crate) mod transition;
