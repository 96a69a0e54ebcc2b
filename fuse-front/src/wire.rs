//! The kernel's FUSE messages: bytes to requests, answers and notifications to bytes.
//!
//! Pure: no I/O, no state, no decision about files. Decoding is total: any bytes give a request, or the
//! errno to answer, or, where there is no header, nothing that could be answered. What a request means
//! is said in the engine's types where these serve.
//!
//! Layouts, numbers and their versions are those of the kernel's `include/uapi/linux/fuse.h` (protocol
//! 7.45); all numbers are of the machine's byte order. Tested with bytes written by hand after that
//! file, on random bytes, and by the fuzz target `wire`.

pub mod abi;
pub mod answer;
pub mod decode;
pub mod encode;
pub(crate) mod flags;
pub mod notify;
mod reader;
pub mod request;

pub use answer::Answer;
pub use decode::decode;
pub use encode::{Head, Listing, Plus, Settled, blank};
pub use notify::Notification;
pub use request::{Forgets, Header, Incoming, Layout, Offer, Request};
