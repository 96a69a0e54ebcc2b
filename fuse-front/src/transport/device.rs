//! Reading requests and writing answers, one whole message at a time.

use super::{Notify, Space};
use crate::limits::MESSAGE_BYTES_MAX;
use crate::wire::{Listing, Notification, Plus};
use engine::Look;
use engine::types::NodeId;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, read, writev};
use std::io::IoSlice;
use std::os::fd::OwnedFd;

/// The device of a mount.
#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

/// What came from the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// A message, which is in the buffer.
    Message,
    /// The mount is gone.
    End,
}

impl Device {
    pub(crate) fn new(device: OwnedFd) -> Device {
        Device(device)
    }

    /// Reads the next message into `buffer`, and waits for one.
    ///
    /// # Errors
    /// What the system says, but for a request that was interrupted before it was read, and a signal.
    pub(crate) fn receive(&self, buffer: &mut Buffer) -> Result<Received, Errno> {
        loop {
            buffer.0.clear();
            // Into memory that nothing has been written to: it need not be.
            match read(&self.0, spare_capacity(&mut buffer.0)) {
                Ok(0) | Err(Errno::NODEV) => return Ok(Received::End),
                Ok(_) => return Ok(Received::Message),
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes one message.
    pub(crate) fn send(&self, runs: &[IoSlice<'_>]) -> Result<(), Errno> {
        loop {
            match writev(&self.0, runs) {
                Err(Errno::INTR) => {}
                // The kernel takes a message as a whole or not at all.
                done => return done.map(drop),
            }
        }
    }

    /// Has the kernel send again what it has sent to who did not answer it.
    pub(crate) fn resend(&self) -> Result<(), Errno> {
        self.notify(Notification::resend())
    }

    /// Has the kernel drop all names.
    pub(crate) fn drop_names(&self) -> Result<(), Errno> {
        self.notify(Notification::all_entries())
    }

    /// Whether the kernel holds an inode; its attributes are dropped, and with [`Look::Drop`] its pages.
    pub(crate) fn holds(&self, node: NodeId, look: Look) -> bool {
        let from = match look {
            // Before the file's beginning: no page.
            Look::Held => -1,
            Look::Drop => 0,
        };
        let mut note = Notification::inode(node, from, 0);
        self.send(&note.runs().map(IoSlice::new)) != Err(Errno::NOENT)
    }

    /// Another descriptor of the same device.
    ///
    /// # Errors
    /// There are too many descriptors.
    pub(crate) fn duplicate(&self) -> std::io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// Tells the kernel something. What it does not know is no error: it has dropped that by itself.
    fn notify(&self, mut note: Notification<'_>) -> Result<(), Errno> {
        let runs = note.runs();
        match self.send(&runs.map(IoSlice::new)) {
            Err(Errno::NOENT) => Ok(()),
            done => done,
        }
    }
}

impl Notify for Device {
    fn inval_inode(&self, node: NodeId, offset: i64, len: i64) -> Result<(), Errno> {
        self.notify(Notification::inode(node, offset, len))
    }

    fn inval_entry(&self, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        self.notify(Notification::entry(parent, name))
    }

    fn inval_all_entries(&self) -> Result<(), Errno> {
        self.drop_names()
    }
}

/// Memory for a message from the device.
#[derive(Debug)]
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    /// An empty one, whose memory is there. If the kernel had to provide it while it copies a request, and the process
    /// was killed meanwhile, the request would fail with EIO instead of being sent again.
    pub(crate) fn new() -> Buffer {
        // Not 0, which would provide it later.
        let mut memory = vec![1; MESSAGE_BYTES_MAX];
        memory.clear();
        Buffer(memory)
    }

    /// The message that was read last.
    pub(crate) fn message(&self) -> &[u8] {
        &self.0
    }

    /// The message, to be kept beyond the next one.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.0.clone()
    }
}

/// Memory for the data of an answer, used again for the next one.
#[derive(Debug, Default)]
pub(crate) struct Room(Vec<u8>);

impl Room {
    /// The first `len` bytes, with whatever is in them.
    pub(crate) fn first(&mut self, len: usize) -> &mut [u8] {
        if self.0.len() < len {
            self.0.resize(len, 0);
        }
        &mut self.0[..len]
    }
}

impl Space for Room {
    type List<'a> = Listing<'a>;

    fn first(&mut self, len: usize) -> &mut [u8] {
        Room::first(self, len)
    }

    fn list(&mut self, size: usize, plus: Plus) -> Listing<'_> {
        Listing::new(Room::first(self, size), plus)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::time::Duration;

    /// A device whose other end is not the kernel's but the test's.
    pub(crate) fn pair() -> (Device, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let limit = Some(Duration::from_secs(60));
        rustix::net::sockopt::set_socket_timeout(
            &theirs,
            rustix::net::sockopt::Timeout::Recv,
            limit,
        )
        .unwrap();
        (Device::new(ours), theirs)
    }

    /// The next message at the other end.
    pub(crate) fn next(theirs: &OwnedFd) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 << 16);
        read(theirs, spare_capacity(&mut bytes)).unwrap();
        bytes
    }

    #[test]
    fn messages_are_kept_beyond_the_next() {
        let (device, theirs) = pair();
        let mut buffer = Buffer::new();
        let long = vec![7; 64 << 10];
        for message in [&b"one"[..], &long, b"three"] {
            rustix::io::write(&theirs, message).unwrap();
            assert_eq!(device.receive(&mut buffer), Ok(Received::Message));
            assert_eq!(buffer.message(), message);
            let kept = buffer.to_vec();
            rustix::io::write(&theirs, b"next").unwrap();
            device.receive(&mut buffer).unwrap();
            assert_eq!((kept.as_slice(), buffer.message()), (message, &b"next"[..]));
        }
        drop(theirs);
        assert_eq!(device.receive(&mut buffer), Ok(Received::End));
    }

    #[test]
    fn room_is_used_again() {
        let mut room = Room::default();
        room.first(3).copy_from_slice(b"abc");
        assert_eq!(room.first(2), b"ab");
        assert_eq!(room.first(5), b"abc\0\0");
    }
}
