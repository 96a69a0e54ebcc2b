//! The way to the kernel through the crate `fuser`, unchanged: a reader that we did not write, for tests.
//!
//! Each callback becomes a [`Request`], which [`Serve`] carries out as it does those of our own way; `words.rs`
//! has what the crate says in other words, `answers.rs` its replies. What the crate cannot carry is listed in
//! docs/transport.md. Invariant: nothing here decides what a request means.

mod answers;
mod callbacks;
mod words;

use super::{Notify, Room, Serve, connection};
use crate::wire::Offer;
use crate::wire::abi::{MAJOR, init};
use ::fuser::{Config, INodeNo, InitFlags, KernelConfig, Notifier, SessionACL};
use callbacks::Callbacks;
use engine::types::NodeId;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::Error;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// A mount that the kernel has agreed to.
pub(super) type Connection<S> = ::fuser::Session<Callbacks<S>>;

/// Answers the kernel's first request on a device that is mounted.
///
/// # Errors
/// What the crate says.
pub(super) fn open<S: Serve>(
    device: OwnedFd,
    server: S,
    permissions: bool,
    threads: usize,
) -> std::io::Result<Connection<S>> {
    let mut config = Config::default();
    config.n_threads = Some(threads);
    // Who may use the mount is the kernel's business: everybody who asks is answered.
    config.acl = SessionACL::All;
    let callbacks = Callbacks::new(server, permissions);
    Connection::from_fd(callbacks, device, SessionACL::All, config)
}

/// By which the kernel is told.
pub(super) fn kernel<S: Serve>(connection: &Connection<S>) -> Arc<dyn Notify> {
    Arc::new(Kernel(connection.notifier()))
}

/// Agrees with the kernel on what our own way does, but for the longer SETXATTR, which the crate cannot read.
fn agree(config: &mut KernelConfig, permissions: bool) -> Result<(), Error> {
    let offered = config.capabilities();
    let version = config.kernel_abi();
    let offer = Offer {
        major: MAJOR,
        minor: version.1,
        max_readahead: 0,
        flags: offered.bits(),
    };
    let settled = connection::settle(&offer, permissions);
    let flags = settled.flags & !init::SETXATTR_EXT;
    let refused = |what: &str| Error::other(format!("the crate fuser refuses {what}"));
    config
        .add_capabilities(InitFlags::from_bits_retain(flags))
        .map_err(|_| refused("flags"))?;
    config
        .set_max_write(settled.max_write)
        .map_err(|_| refused("the length of a write"))?;
    config
        .set_max_background(settled.max_background)
        .map_err(|_| refused("the number of requests"))?;
    config
        .set_congestion_threshold(settled.congestion_threshold)
        .map_err(|_| refused("the threshold"))?;
    Ok(())
}

/// The crate's notifier.
#[derive(Debug)]
struct Kernel(Notifier);

impl Notify for Kernel {
    fn inval_inodes(&self, nodes: &[NodeId]) -> Result<(), Errno> {
        let told = nodes.iter().map(|node| self.inval_range(*node, 0, 0));
        told.fold(Ok(()), Result::and)
    }

    fn inval_range(&self, node: NodeId, offset: i64, len: i64) -> Result<(), Errno> {
        told(self.0.inval_inode(INodeNo(node.0), offset, len))
    }

    fn inval_entries(&self, names: &[(NodeId, &[u8])]) -> Result<(), Errno> {
        let drop = |dir: NodeId, name| self.0.inval_entry(INodeNo(dir.0), OsStr::from_bytes(name));
        let told = names.iter().map(|(dir, name)| told(drop(*dir, name)));
        told.fold(Ok(()), Result::and)
    }

    /// The crate has no such notification: names are dropped one by one.
    fn inval_all_entries(&self) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }
}

fn told(outcome: std::io::Result<()>) -> Result<(), Errno> {
    outcome.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
