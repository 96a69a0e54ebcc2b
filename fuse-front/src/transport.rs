//! The ways to the kernel: our own, and with the feature `fuser` a second one through that crate, for tests.
//!
//! [`Device`] moves bytes, [`Reply`] sees to it that each request is answered once, [`connection`] begins and
//! serves a mount; `fuser.rs` does all three by that crate. What both are to the rest of the front is said here.
//! Invariant: nothing here knows what a request is for, but INIT and what ends a mount.
//! The tests use a socket that keeps messages apart in place of the device.

pub(crate) mod connection;
pub(crate) mod device;
#[cfg(feature = "fuser")]
mod fuser;
pub(crate) mod reply;

pub(crate) use device::{Device, Room};
pub(crate) use reply::Reply;

use crate::wire::{Answer, Layout, Listing, Plus};
#[cfg(feature = "fuser")]
use crate::wire::{Header, Request};
use device::Buffer;
use engine::types::{DirEntry, NodeId};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

/// Which way requests come and answers go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Transport {
    /// The front reads and writes the kernel's messages itself.
    #[default]
    Own,
    /// The crate `fuser` does (docs/transport.md).
    #[cfg(feature = "fuser")]
    Fuser,
}

impl Transport {
    /// The one of this name; `None` where this build has none of that name.
    pub fn named(name: &str) -> Option<Transport> {
        match name {
            "own" => Some(Transport::Own),
            #[cfg(feature = "fuser")]
            "fuser" => Some(Transport::Fuser),
            _ => None,
        }
    }
}

/// Who carries out requests.
pub(crate) trait Serve: Clone + Send + Sync + 'static {
    /// Carries out the request in `buffer`, and answers it, now or later.
    fn serve(&self, device: &Arc<Device>, layout: Layout, buffer: &mut Buffer, room: &mut Room);

    /// Carries out a request that was decoded elsewhere, and answers it, now or later: `build` makes it of
    /// its names or data, which are copied where it is carried out later.
    #[cfg(feature = "fuser")]
    fn carry_out(
        &self,
        header: &Header,
        texts: [&[u8]; 2],
        build: impl Build,
        reply: impl Lists,
        room: &mut Room,
    );

    /// An inode that the kernel forgets, and how often it had looked it up.
    #[cfg(feature = "fuser")]
    fn forget(&self, node: NodeId, lookups: u64);
}

/// Makes a request of its names or data.
#[cfg(feature = "fuser")]
pub(crate) trait Build:
    for<'a> Fn([&'a [u8]; 2]) -> Result<Request<'a>, Errno> + Send + 'static
{
}

#[cfg(feature = "fuser")]
impl<B> Build for B where B: for<'a> Fn([&'a [u8]; 2]) -> Result<Request<'a>, Errno> + Send + 'static
{}

/// The duty to answer a request, once.
pub(crate) trait Duty: Send + 'static {
    /// Answers. Data in memory is in `room`.
    fn answer(self, answer: Answer, room: &mut Room);

    /// Answers with an error.
    fn fail(self, errno: Errno);
}

/// A duty that collects a listing itself.
#[cfg(feature = "fuser")]
pub(crate) trait Lists: Duty {
    /// Where the answer's data goes: to memory, but for a listing.
    fn space<'a>(&'a mut self, room: &'a mut Room) -> impl Space;
}

/// Where the data of an answer goes.
pub(crate) trait Space {
    /// What a listing is collected in.
    type List<'a>: List
    where
        Self: 'a;

    /// Memory of `len` bytes, with whatever is in it.
    fn first(&mut self, len: usize) -> &mut [u8];

    /// An empty listing that takes `size` bytes.
    fn list(&mut self, size: usize, plus: Plus) -> Self::List<'_>;
}

/// A listing as far as it is collected.
pub(crate) trait List {
    /// Adds an entry; false where it does not fit, and nothing is added.
    fn add(&mut self, item: &DirEntry<'_>) -> bool;

    /// Bytes or entries so far.
    fn len(&self) -> usize;
}

impl List for Listing<'_> {
    fn add(&mut self, item: &DirEntry<'_>) -> bool {
        Listing::add(self, item)
    }

    fn len(&self) -> usize {
        Listing::len(self)
    }
}

/// By which the kernel is told what it did not ask for. What it does not know is no error.
pub(crate) trait Notify: std::fmt::Debug + Send + Sync {
    /// Attributes and pages of inodes are others now.
    fn inval_inodes(&self, nodes: &[NodeId]) -> Result<(), Errno>;

    /// Attributes of an inode, and its pages from `offset` on for `len` bytes (0: to the end), are others now.
    fn inval_range(&self, node: NodeId, offset: i64, len: i64) -> Result<(), Errno>;

    /// Names in directories, or their absence, are no longer to be kept.
    fn inval_entries(&self, names: &[(NodeId, &[u8])]) -> Result<(), Errno>;

    /// No name of the mount is to be kept.
    fn inval_all_entries(&self) -> Result<(), Errno>;
}

/// A mount that the kernel has agreed to, and who carries out its requests.
pub(crate) enum Connection<S: Serve> {
    Own(connection::Connection, S, usize),
    #[cfg(feature = "fuser")]
    Fuser(fuser::Connection<S>),
}

impl<S: Serve> Connection<S> {
    /// Answers the kernel's first request on a device that is mounted. `permissions`: the kernel checks mode
    /// bits and ACLs. `threads` will read requests.
    ///
    /// # Errors
    /// What the system says; the mount is gone; the kernel is too old.
    pub(crate) fn open(
        transport: Transport,
        device: OwnedFd,
        server: S,
        (permissions, threads): (bool, usize),
    ) -> std::io::Result<Connection<S>> {
        Ok(match transport {
            Transport::Own => {
                let connection = connection::Connection::open(device, permissions)?;
                Connection::Own(connection, server, threads)
            }
            #[cfg(feature = "fuser")]
            Transport::Fuser => {
                Connection::Fuser(fuser::open(device, server, permissions, threads)?)
            }
        })
    }

    /// By which the kernel is told.
    pub(crate) fn kernel(&self) -> Arc<dyn Notify> {
        match self {
            Connection::Own(connection, ..) => connection.device(),
            #[cfg(feature = "fuser")]
            Connection::Fuser(connection) => fuser::kernel(connection),
        }
    }

    /// Goes on with a connection that was agreed on by a process that is gone.
    pub(crate) fn resume(
        device: OwnedFd,
        layout: Layout,
        server: S,
        threads: usize,
    ) -> Connection<S> {
        Connection::Own(
            connection::Connection::resume(device, layout),
            server,
            threads,
        )
    }

    /// The device and what was agreed on, where another process can go on with it.
    pub(crate) fn keepable(&self) -> Option<(Weak<Device>, Layout)> {
        match self {
            Connection::Own(connection, ..) => {
                let layout = connection.keepable()?;
                Some((Arc::downgrade(&connection.device()), layout))
            }
            #[cfg(feature = "fuser")]
            Connection::Fuser(_) => None,
        }
    }

    /// Serves requests until the mount is gone.
    ///
    /// # Errors
    /// The first that a thread which reads requests met; all have ended then.
    pub(crate) fn run(self) -> std::io::Result<()> {
        match self {
            Connection::Own(connection, server, threads) => connection.run(server, threads),
            #[cfg(feature = "fuser")]
            Connection::Fuser(connection) => connection.run(),
        }
    }
}
