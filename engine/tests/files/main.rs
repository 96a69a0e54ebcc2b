//! What requests by path, by handle and by the kernel find in a workspace, without a mount.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod handles;
mod held;
#[path = "../holding/mod.rs"]
mod holding;
mod paths;
mod restore;
mod smoke;
mod taken_over;
