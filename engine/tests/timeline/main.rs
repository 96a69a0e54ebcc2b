//! The timeline of tool calls, and whom `blame` names, without a mount.
#![allow(clippy::unwrap_used)]

mod beside;
mod beside_model;
mod blame;
mod blame_model;
#[path = "../calls/mod.rs"]
mod calls;
mod exact;
mod histories;
mod inherited;
mod kept;
mod keyed;
mod nested;
mod of_deleted;
// Other programs use what this one does not.
#[allow(dead_code)]
#[path = "../common/rng.rs"]
mod rng;
