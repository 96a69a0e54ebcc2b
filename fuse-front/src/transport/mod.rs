//! The way to the kernel: the device from which requests are read and to which answers are written.
//!
//! [`Device`] moves bytes, [`Reply`] sees to it that each request is answered once, [`session`] begins and
//! serves a mount. Invariant: nothing here knows what a request is for, but INIT and what ends a mount.
//! The tests use a socket that keeps messages apart in place of the device.

pub(crate) mod device;
pub(crate) mod reply;
pub(crate) mod session;

pub(crate) use device::{Device, Room};
pub(crate) use reply::Reply;
