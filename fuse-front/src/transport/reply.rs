//! The answer to one request.

use super::{Device, Duty, Room};
use crate::wire::{Answer, Head};
use rustix::io::Errno;
use std::io::IoSlice;
use std::sync::Arc;

/// The duty to answer a request, once. Dropped without that, it says EIO, and the log says so: whoever
/// waits for the answer would wait for ever.
#[derive(Debug)]
pub(crate) struct Reply {
    device: Arc<Device>,
    unique: u64,
    sent: bool,
}

impl Reply {
    pub(crate) fn new(device: Arc<Device>, unique: u64) -> Reply {
        Reply {
            device,
            unique,
            sent: false,
        }
    }

    /// Answers with fixed fields.
    pub(crate) fn head(self, head: Head) {
        self.send(head, 0, &[]);
    }

    fn send(mut self, head: Head, code: i32, data: &[u8]) {
        self.sent = true;
        self.write(head, code, data);
    }

    fn write(&self, mut head: Head, code: i32, data: &[u8]) {
        let first = IoSlice::new(head.finish(self.unique, code, data.len()));
        let sent = match data.is_empty() {
            true => self.device.send(&[first]),
            false => self.device.send(&[first, IoSlice::new(data)]),
        };
        match sent {
            Ok(()) => {}
            // Nobody waits any more: the request was interrupted, or the mount has gone.
            Err(Errno::NOENT | Errno::NODEV | Errno::PIPE) => {
                tracing::debug!(unique = self.unique, "an answer came too late");
            }
            Err(error) => {
                tracing::error!(%error, unique = self.unique, "the kernel refused an answer");
            }
        }
    }
}

impl Duty for Reply {
    fn answer(self, answer: Answer, room: &mut Room) {
        let data = match &answer {
            Answer::Data(data) => data,
            Answer::Room(len) => &*room.first(*len),
            _ => &[],
        };
        self.send(answer.head(), 0, data);
    }

    fn fail(self, errno: Errno) {
        self.send(Head::default(), -errno.raw_os_error(), &[]);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.sent {
            tracing::error!(
                unique = self.unique,
                "a request was dropped, it fails with EIO"
            );
            self.write(Head::default(), -Errno::IO.raw_os_error(), &[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::device::tests::{next, pair};

    fn header(len: u32, code: i32) -> Vec<u8> {
        let words = [len.to_ne_bytes(), code.to_ne_bytes()].concat();
        [words, 9u64.to_ne_bytes().to_vec()].concat()
    }

    #[test]
    fn every_request_is_answered_once() {
        let (device, theirs) = pair();
        let device = Arc::new(device);
        let reply = || Reply::new(device.clone(), 9);
        let mut room = Room::default();
        room.first(9)[..3].copy_from_slice(b"abc");
        reply().head(Head::default());
        reply().answer(Answer::Room(3), &mut room);
        reply().answer(Answer::Data(Vec::new()), &mut room);
        reply().fail(Errno::NOENT);
        drop(reply());
        let data = [header(19, 0), b"abc".to_vec()].concat();
        let empty = header(16, 0);
        for wanted in [&empty, &data, &empty, &header(16, -2), &header(16, -5)] {
            assert_eq!(next(&theirs), *wanted);
        }
        drop((theirs, device));
    }

    #[test]
    fn an_answer_that_nobody_waits_for_is_no_fault() {
        let (device, theirs) = pair();
        drop(theirs);
        let answer = Answer::Data(b"abc".to_vec());
        Reply::new(Arc::new(device), 9).answer(answer, &mut Room::default());
    }
}
