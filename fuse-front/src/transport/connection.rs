//! What is agreed with the kernel when a mount begins, and the threads that read requests.
//!
//! The settings were measured; several combinations deadlock or lose data (never ATOMIC_O_TRUNC while
//! OPEN is refused: the truncation is lost; never the write-back cache: the kernel would own sizes).

use super::device::{Buffer, Received};
use super::{Device, Duty, Reply, Room, Serve};
use crate::limits::{MAX_BACKGROUND, MAX_WRITE_BYTES};
use crate::wire::abi::{self, init};
use crate::wire::{Head, Incoming, Layout, Offer, Request, Settled, decode};
use rustix::io::Errno;
use std::io::{Error, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What is asked of the kernel, each where it knows it.
const WANTED: [(&str, u64); 9] = [
    ("ASYNC_READ", init::ASYNC_READ),
    ("BIG_WRITES", init::BIG_WRITES),
    ("MAX_PAGES", init::MAX_PAGES),
    // Listings bring attributes, so that a walk needs no further requests.
    ("DO_READDIRPLUS", init::DO_READDIRPLUS),
    ("PARALLEL_DIROPS", init::PARALLEL_DIROPS),
    // Pages are dropped when we say so, not when a size or time looks different.
    ("EXPLICIT_INVAL_DATA", init::EXPLICIT_INVAL_DATA),
    // Set-id bits and capabilities are cleared by the engine; saves a GETXATTR before each write.
    ("HANDLE_KILLPRIV_V2", init::HANDLE_KILLPRIV_V2),
    // The kernel says when an access control list takes the set-group-id bit away.
    ("SETXATTR_EXT", init::SETXATTR_EXT),
    // Modes come unmasked: with a default ACL the umask does not count.
    ("DONT_MASK", init::DONT_MASK),
];

/// A mount that the kernel has agreed to.
#[derive(Debug)]
pub(crate) struct Connection {
    device: Arc<Device>,
    layout: Layout,
    /// Somebody else can go on with it.
    can_be_kept: bool,
}

/// First minor version whose kernel drops all names at once, which a successor may need.
const KEPT_MINOR_MIN: u32 = 44;

/// The answer to what the kernel offers. What it does not know is left out. `permissions`: the kernel
/// checks mode bits and ACLs (the flag for ACLs alone would make it check both).
pub(super) fn settle(offer: &Offer, permissions: bool) -> Settled {
    let acl = permissions.then_some(("POSIX_ACL", init::POSIX_ACL));
    let mut flags = init::INIT_EXT & offer.flags;
    for (name, flag) in WANTED.into_iter().chain(acl) {
        match offer.flags & flag {
            0 => tracing::info!(name, "not offered by this kernel"),
            _ => flags |= flag,
        }
    }
    let longest = MAX_WRITE_BYTES.max(offer.max_readahead) as usize;
    let pages = longest.div_ceil(crate::sys::page_bytes());
    Settled {
        flags,
        max_readahead: offer.max_readahead,
        max_background: MAX_BACKGROUND,
        congestion_threshold: (u32::from(MAX_BACKGROUND) * 3 / 4) as u16,
        max_write: MAX_WRITE_BYTES,
        max_pages: u16::try_from(pages).unwrap_or(u16::MAX),
    }
}

impl Connection {
    /// Answers the kernel's first request on a device that is mounted.
    ///
    /// Who may use the mount is the kernel's business (`allow_other`): everybody who asks is answered.
    ///
    /// # Errors
    /// What the system says; the mount is gone; the kernel is too old.
    pub(crate) fn open(device: OwnedFd, permissions: bool) -> std::io::Result<Connection> {
        let device = Arc::new(Device::new(device));
        let mut buffer = Buffer::new();
        while device.receive(&mut buffer)? == Received::Message {
            let Some(Incoming { header, request }) = decode(buffer.message(), Layout::default())
            else {
                return Err(Error::new(ErrorKind::InvalidData, "not a FUSE request"));
            };
            let reply = Reply::new(device.clone(), header.unique);
            let Ok(Request::Init(offer)) = request else {
                reply.fail(Errno::IO);
                let what = format!("request {} came before the first", header.opcode);
                return Err(Error::new(ErrorKind::InvalidData, what));
            };
            if offer.major > abi::MAJOR {
                // It comes again, with the version that is said here.
                reply.head(Head::version());
                continue;
            }
            if offer.major < abi::MAJOR || offer.minor < abi::MINOR_MIN {
                reply.fail(Errno::PROTO);
                let what = format!("version {}.{} of FUSE is too old", offer.major, offer.minor);
                return Err(Error::new(ErrorKind::Unsupported, what));
            }
            let settled = settle(&offer, permissions);
            tracing::debug!(?offer, ?settled, "the mount begins");
            reply.head(Head::settled(&settled));
            let layout = Layout {
                long_setxattr: settled.flags & init::SETXATTR_EXT != 0,
            };
            let can_be_kept = offer.flags & init::HAS_RESEND != 0 && offer.minor >= KEPT_MINOR_MIN;
            return Ok(Connection {
                device,
                layout,
                can_be_kept,
            });
        }
        let what = "the mount ended before it began";
        Err(Error::new(ErrorKind::NotConnected, what))
    }

    /// Goes on with a connection that was agreed on by a process that is gone.
    pub(crate) fn resume(device: OwnedFd, layout: Layout) -> Connection {
        Connection {
            device: Arc::new(Device::new(device)),
            layout,
            can_be_kept: true,
        }
    }

    /// What was agreed on, where somebody else can go on with it.
    pub(crate) fn keepable(&self) -> Option<Layout> {
        self.can_be_kept.then_some(self.layout)
    }

    /// The device, for notifications.
    pub(crate) fn device(&self) -> Arc<Device> {
        self.device.clone()
    }

    /// Serves requests, on this thread and `threads - 1` others, until the mount is gone.
    ///
    /// # Errors
    /// The first that any of them met; they all have ended then.
    pub(crate) fn run(self, server: impl Serve, threads: usize) -> std::io::Result<()> {
        let connection = Arc::new(self);
        let mut others = Vec::new();
        let mut outcome = Ok(());
        for number in 1..threads {
            let (connection, server) = (connection.clone(), server.clone());
            let thread = std::thread::Builder::new()
                .name(format!("fuse-{number}"))
                .spawn(move || connection.read_on(&server));
            match thread {
                Ok(thread) => others.push(thread),
                // The others do its work.
                Err(error) => tracing::warn!(%error, "a thread that reads requests is missing"),
            }
        }
        outcome = connection.read_on(&server).and(outcome);
        for thread in others {
            let ended = thread
                .join()
                .unwrap_or_else(|_| Err(Error::other("a thread that reads requests has panicked")));
            outcome = outcome.and(ended);
        }
        outcome
    }

    /// Reads and serves until the mount is gone.
    fn read_on(&self, server: &impl Serve) -> std::io::Result<()> {
        let (mut buffer, mut room) = (Buffer::new(), Room::default());
        while self.device.receive(&mut buffer)? == Received::Message {
            server.serve(&self.device, self.layout, &mut buffer, &mut room);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::device::tests::next;

    /// What Linux 6.18 offers.
    const ALL: Offer = Offer {
        major: 7,
        minor: 45,
        max_readahead: 131_072,
        flags: 0x7ff_ffff_ffff,
    };

    #[test]
    fn what_is_settled_is_what_was_measured() {
        let settled = settle(&ALL, true);
        let flags = (1 << 0) | (1 << 5) | (1 << 6) | (1 << 13) | (1 << 18) | (1 << 20) | (1 << 22);
        assert_eq!(
            settled.flags,
            flags | (1 << 25) | (1 << 28) | (1 << 29) | (1 << 30)
        );
        assert_eq!(settled.max_readahead, 131_072);
        assert_eq!(
            (settled.max_background, settled.congestion_threshold),
            (65535, 49151)
        );
        assert_eq!(settled.max_write, 1 << 20);
        let pages = (1 << 20) / crate::sys::page_bytes();
        assert_eq!(usize::from(settled.max_pages), pages);
        assert_eq!(settle(&ALL, false).flags & init::POSIX_ACL, 0);
    }

    #[test]
    fn nothing_is_used_that_is_not_offered() {
        let old = Offer {
            minor: 23,
            flags: init::ASYNC_READ | init::DO_READDIRPLUS | 1 << 16,
            ..ALL
        };
        let flags = settle(&old, true).flags;
        assert_eq!(flags, init::ASYNC_READ | init::DO_READDIRPLUS);
    }

    /// A request of 16 bytes of fields.
    fn message(opcode: u32, fields: [u32; 4]) -> Vec<u8> {
        let header = [56, opcode, 3, 0, 0, 0, 0, 0, 0, 0];
        let words = header.into_iter().chain(fields);
        words.flat_map(u32::to_ne_bytes).collect()
    }

    /// Opens a connection against messages, and gives what it was told and what it answered.
    fn opened(messages: &[Vec<u8>]) -> (std::io::Result<Connection>, Vec<Vec<u8>>) {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        for message in messages {
            rustix::io::write(&theirs, message).unwrap();
        }
        rustix::net::shutdown(&theirs, rustix::net::Shutdown::Write).unwrap();
        let connection = Connection::open(ours, true);
        let answers = messages.iter().map(|_| next(&theirs)).collect();
        (connection, answers)
    }

    fn error_of(answer: &[u8]) -> i32 {
        i32::from_ne_bytes(answer[4..8].try_into().unwrap())
    }

    #[test]
    fn a_session_begins_with_the_first_request() {
        let (connection, answers) = opened(&[message(26, [7, 31, 4096, 1])]);
        assert_eq!(connection.unwrap().layout, Layout::default());
        assert_eq!((answers[0].len(), error_of(&answers[0])), (80, 0));
    }

    #[test]
    fn a_newer_kernel_is_told_the_version() {
        let (connection, answers) =
            opened(&[message(26, [8, 0, 4096, 1]), message(26, [7, 45, 4096, 1])]);
        assert!(connection.is_ok());
        let version = [7u32.to_ne_bytes(), 45u32.to_ne_bytes()].concat();
        assert_eq!(answers[0][16..24], version);
        assert_eq!(answers[1].len(), 80);
    }

    #[test]
    fn what_is_too_old_is_refused() {
        let (connection, answers) = opened(&[message(26, [7, 22, 4096, 1])]);
        assert_eq!(connection.unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(error_of(&answers[0]), -Errno::PROTO.raw_os_error());
        let (connection, answers) = opened(&[message(3, [0; 4])]);
        assert_eq!(connection.unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(error_of(&answers[0]), -5);
    }

    #[test]
    fn a_mount_may_end_before_it_begins() {
        let (connection, _) = opened(&[]);
        assert_eq!(connection.unwrap_err().kind(), ErrorKind::NotConnected);
    }
}
