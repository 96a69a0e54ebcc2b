//! FUSE front of agentvfs: the kernel's requests become engine calls, and the kernel's caches are
//! kept exact.
//!
//! [`mount`] shows an [`engine::Workspace`] at a directory; [`Mounted`] is the handle to it. The
//! kernel may cache names, attributes and pages for ever (the daemon is the only writer), so most
//! reads never come here; what changes behind the kernel's back (a rollback) is invalidated through
//! [`engine::types::KernelCache`].
//!
//! Requests come and go in this order: `transport` reads them, `serve.rs` has them decoded by [`wire`],
//! carried out by `ops.rs`, and answered.
//!
//! Invariant: this crate takes no decision about file semantics. It decodes, calls, encodes; which
//! errno a failure has is decided in `errno.rs` alone. Notifications to the kernel are sent by
//! control threads only, never by a thread that handles requests.

#![deny(unsafe_code)]

mod again;
mod announce;
mod apart;
mod beneath;
mod cover;
mod device;
mod drain;
mod end;
mod errno;
mod holders;
mod invalidate;
mod latency;
mod limits;
mod mount;
mod ops;
mod own;
mod pool;
mod probe;
mod resume;
mod serve;
mod stale;
mod stats;
#[allow(unsafe_code)]
mod sys;
mod table;
mod transport;
mod watchers;
pub mod wire;

pub use beneath::open_beneath_dead;
pub use cover::{behind_covers, cover, is_covered, uncover};
pub use holders::{Holder, holders};
pub use latency::Latency;
pub use mount::{MountError, MountOptions, Mounted, mount};
pub use resume::{Agreed, Kept, answers, resume};
pub use stale::{detach_dead, is_dead_mount, is_refused_mount};
pub use stats::Stats;
pub use sys::leave_files;
pub use table::unescape;
pub use transport::Transport;
