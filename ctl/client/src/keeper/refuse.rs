//! Requests of a mount that nobody serves: each fails with EIO.
//!
//! Invariant: nothing here knows what a request is for, but whether it is answered. While requests are refused nobody else
//! reads the device, which does not wait then (O_NONBLOCK); whoever serves it next expects that it does.

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, read, write};
use std::os::fd::BorrowedFd;

/// Room for a request: the kernel sends none where the longest would not fit, which is a WRITE of 1 MiB.
const MESSAGE_BYTES: usize = (1 << 20) + 4096;

/// Length of what every request begins with, and of an answer without data.
const HEADER_BYTES: (usize, usize) = (40, 16);

/// FORGET, INTERRUPT, NOTIFY_REPLY and BATCH_FORGET: nobody waits for an answer.
const UNANSWERED: [u32; 4] = [2, 36, 41, 42];

/// Code of the notification that has the kernel send again what was not answered (FUSE_NOTIFY_RESEND).
const RESEND: i32 = 7;

/// The mount is gone, or its device cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gone(pub Errno);

/// Refuses requests, one device at a time.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    buffer: Vec<u8>,
}

impl Refusal {
    /// Begins with a device whose daemon has died: what that has read and not answered comes again.
    ///
    /// # Errors
    /// The mount is gone.
    pub fn begin(device: BorrowedFd<'_>) -> Result<(), Gone> {
        set_waiting(device, false).map_err(Gone)?;
        write(device, &answer(0, RESEND)).map_err(Gone).map(drop)
    }

    /// Ends, so that somebody else can read the device.
    ///
    /// # Errors
    /// The device cannot be used.
    pub fn end(device: BorrowedFd<'_>) -> Result<(), Gone> {
        set_waiting(device, true).map_err(Gone)
    }

    /// Refuses the next request, if there is one.
    ///
    /// # Errors
    /// The mount is gone.
    pub fn refuse_one(&mut self, device: BorrowedFd<'_>) -> Result<(), Gone> {
        self.buffer.resize(MESSAGE_BYTES, 0);
        let len = match read(device, &mut self.buffer) {
            Ok(0) => return Err(Gone(Errno::NODEV)),
            Ok(len) => len,
            // None came, or whoever asked waits no longer.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => return Ok(()),
            Err(error) => return Err(Gone(error)),
        };
        let Some(unique) = awaited(&self.buffer[..len]) else {
            return Ok(());
        };
        match write(device, &answer(unique, -Errno::IO.raw_os_error())) {
            // Whoever asked waits no longer.
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(Gone(error)),
        }
    }
}

/// The number of a request that waits for an answer.
fn awaited(message: &[u8]) -> Option<u64> {
    let header = message.get(..HEADER_BYTES.0)?;
    let opcode = u32::from_ne_bytes(header.get(4..8)?.try_into().ok()?);
    let unique = u64::from_ne_bytes(header.get(8..16)?.try_into().ok()?);
    (!UNANSWERED.contains(&opcode)).then_some(unique)
}

/// An answer without data, or a notification.
fn answer(unique: u64, code: i32) -> [u8; HEADER_BYTES.1] {
    let mut bytes = [0; HEADER_BYTES.1];
    bytes[..4].copy_from_slice(&(HEADER_BYTES.1 as u32).to_ne_bytes());
    bytes[4..8].copy_from_slice(&code.to_ne_bytes());
    bytes[8..].copy_from_slice(&unique.to_ne_bytes());
    bytes
}

fn set_waiting(device: BorrowedFd<'_>, waits: bool) -> Result<(), Errno> {
    let mut flags = fcntl_getfl(device)?;
    flags.set(OFlags::NONBLOCK, !waits);
    fcntl_setfl(device, flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::{AsFd, OwnedFd};

    /// A device, whose other end is not the kernel's but the test's.
    fn pair() -> (OwnedFd, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn request(opcode: u32, unique: u64, body: &[u8]) -> Vec<u8> {
        let len = (HEADER_BYTES.0 + body.len()) as u32;
        let mut bytes = [len.to_ne_bytes(), opcode.to_ne_bytes()].concat();
        bytes.extend(unique.to_ne_bytes());
        bytes.resize(HEADER_BYTES.0, 0);
        bytes.extend(body);
        bytes
    }

    fn next(kernel: &OwnedFd) -> Vec<u8> {
        let mut bytes = [0; 64];
        let len = read(kernel, &mut bytes[..]).unwrap();
        bytes[..len].to_vec()
    }

    #[test]
    fn each_request_fails_with_eio_and_what_nobody_waits_for_is_not_answered() {
        let (device, kernel) = pair();
        let device = device.as_fd();
        Refusal::begin(device).unwrap();
        assert_eq!(next(&kernel), answer(0, RESEND), "what was not answered");
        let mut refusal = Refusal::default();
        assert_eq!(refusal.refuse_one(device), Ok(()), "none has come");
        let again = 1 << 63;
        let long = vec![7; 16 << 10];
        let all = [
            (1, 2, &b""[..]),
            (16, again | 4, &long),
            (3, 6, b"body"),
            (777, 8, b""),
        ];
        for (opcode, unique, body) in all {
            for nobody_waits in UNANSWERED {
                write(&kernel, &request(nobody_waits, 1, &[0; 24])).unwrap();
                assert_eq!(refusal.refuse_one(device), Ok(()));
            }
            // No request at all.
            write(&kernel, &request(opcode, unique, body)[..39]).unwrap();
            assert_eq!(refusal.refuse_one(device), Ok(()));
            write(&kernel, &request(opcode, unique, body)).unwrap();
            assert_eq!(refusal.refuse_one(device), Ok(()));
            assert_eq!(next(&kernel), answer(unique, -5));
        }
        Refusal::end(device).unwrap();
        assert!(!fcntl_getfl(device).unwrap().contains(OFlags::NONBLOCK));
        drop(kernel);
        assert!(refusal.refuse_one(device).is_err(), "it is gone");
    }
}
