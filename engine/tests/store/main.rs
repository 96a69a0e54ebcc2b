//! What is stored: gc, checks and repairs, a full disk, and one form of the same bytes.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod fsck;
mod fsck_start;
mod fsck_state;
mod full_disk;
mod gc;
mod gc_branches;
mod one_form;
