//! Reading requests and writing answers, one whole message at a time.

use super::{Notify, Space};
use crate::apart::Apart;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::sys::write_kept;
use crate::wire::{Listing, Notification, Plus};
use engine::Look;
use engine::types::NodeId;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, read, writev};
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// The device of a mount.
#[derive(Debug)]
pub(crate) struct Device {
    file: OwnedFd,
    /// Who tells the kernel what it may have to wait for.
    tellers: Apart,
}

/// What came from the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// A message, which is in the buffer.
    Message,
    /// The mount is gone.
    End,
}

impl Device {
    pub(crate) fn new(file: OwnedFd) -> Device {
        let tellers = Apart::with(file.as_raw_fd());
        Device { file, tellers }
    }

    /// Reads the next message into `buffer`, and waits for one.
    ///
    /// # Errors
    /// What the system says, but for a request that was interrupted before it was read, and a signal.
    pub(crate) fn receive(&self, buffer: &mut Buffer) -> Result<Received, Errno> {
        loop {
            buffer.0.clear();
            // Into memory that nothing has been written to: it need not be.
            match read(&self.file, spare_capacity(&mut buffer.0)) {
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
            match writev(&self.file, runs) {
                Err(Errno::INTR) => {}
                // The kernel takes a message as a whole or not at all.
                done => return done.map(drop),
            }
        }
    }

    /// Has the kernel send again what it has sent to who did not answer it.
    pub(crate) fn resend(&self) -> Result<(), Errno> {
        self.send(&Notification::resend().runs().map(IoSlice::new))
    }

    /// Has the kernel drop all names. It waits for nobody there.
    pub(crate) fn drop_names(&self) -> Result<(), Errno> {
        self.send(&Notification::all_entries().runs().map(IoSlice::new))
    }

    /// Whether the kernel holds an inode; its attributes are dropped, and with [`Look::Drop`] its pages.
    pub(crate) fn holds(&self, node: NodeId, look: Look) -> bool {
        let told = match look {
            // Before the file's beginning: no page, so nobody is waited for.
            Look::Held => self.send(&Notification::inode(node, -1, 0).runs().map(IoSlice::new)),
            Look::Drop => {
                let told = self.tell(vec![Notification::inode(node, 0, 0).to_bytes()]);
                told.last().copied().unwrap_or(Ok(()))
            }
        };
        told != Err(Errno::NOENT)
    }

    /// Another descriptor of the same device.
    ///
    /// # Errors
    /// There are too many descriptors.
    pub(crate) fn duplicate(&self) -> std::io::Result<OwnedFd> {
        self.file.try_clone()
    }

    /// Tells the kernel what it may have to wait for. Gives the first error, after all was told; that the kernel does
    /// not know something is none: it has dropped that by itself.
    fn tell_all<'a>(&self, notes: impl Iterator<Item = Notification<'a>>) -> Result<(), Errno> {
        let told = self.tell(notes.map(Notification::to_bytes).collect());
        let wrong = |told: &Result<(), Errno>| !matches!(told, Ok(()) | Err(Errno::NOENT));
        told.into_iter().find(wrong).unwrap_or(Ok(()))
    }

    /// What the kernel said to each of these messages. Where no thread can be had it is told from here: what it keeps
    /// would be wrong otherwise.
    fn tell(&self, notes: Vec<Vec<u8>>) -> Vec<Result<(), Errno>> {
        let (fd, notes) = (self.file.as_raw_fd(), Arc::new(notes));
        let theirs = notes.clone();
        let tell = move || theirs.iter().map(|note| write_kept(fd, note)).collect();
        self.tellers.run(tell).unwrap_or_else(|error| {
            tracing::warn!(%error, "no thread apart tells the kernel what to drop");
            let told = notes.iter().map(|note| self.send(&[IoSlice::new(note)]));
            told.collect()
        })
    }
}

impl Notify for Device {
    fn inval_inodes(&self, nodes: &[NodeId]) -> Result<(), Errno> {
        let nodes = nodes.iter();
        self.tell_all(nodes.map(|node| Notification::inode(*node, 0, 0)))
    }

    fn inval_range(&self, node: NodeId, offset: i64, len: i64) -> Result<(), Errno> {
        self.tell_all([Notification::inode(node, offset, len)].into_iter())
    }

    fn inval_entries(&self, names: &[(NodeId, &[u8])]) -> Result<(), Errno> {
        let names = names.iter();
        self.tell_all(names.map(|(dir, name)| Notification::entry(*dir, name)))
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
    fn all_is_told_in_order_and_what_is_wrong_is_said() {
        let (device, theirs) = pair();
        let (nodes, names) = ([NodeId(2), NodeId(3)], [(NodeId(1), &b"a"[..])]);
        assert_eq!(device.inval_inodes(&nodes), Ok(()));
        assert_eq!(device.inval_entries(&names), Ok(()));
        for node in nodes {
            assert_eq!(next(&theirs), Notification::inode(node, 0, 0).to_bytes());
        }
        assert_eq!(
            next(&theirs),
            Notification::entry(NodeId(1), b"a").to_bytes()
        );
        drop(theirs);
        assert_eq!(device.inval_inodes(&nodes), Err(Errno::PIPE));
    }

    #[test]
    fn room_is_used_again() {
        let mut room = Room::default();
        room.first(3).copy_from_slice(b"abc");
        assert_eq!(room.first(2), b"ab");
        assert_eq!(room.first(5), b"abc\0\0");
    }
}
