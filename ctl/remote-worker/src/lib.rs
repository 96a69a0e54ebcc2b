//! `agentvfs remote-worker`: the process that has the network. The daemon starts it for a command that needs a remote, and
//! asks it over a socket pair ([`remote::bucket::wire`]); it ends with that.
//!
//! Owns the service's protocol and the credentials, which are nowhere else. Knows nothing of objects' contents: what it brings is
//! checked by whoever asked. Nothing of it runs in any other command.
//!
//! Invariants: before anything is read from the socket, the process is confined ([`confine`]). No credential and no body of an
//! answer is ever in an error: errors say the status and the service's code.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod confine;
mod failure;
mod s3;
mod serve;

pub use serve::serve;
