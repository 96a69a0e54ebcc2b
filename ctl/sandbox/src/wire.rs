//! What the caller and process 1 tell each other, over two pipes.
//!
//! A message of process 1 is a tag, a number and a text; it is written at once and is shorter than a pipe's
//! guarantee for that. The caller sends single bytes. An end of the other's pipe is an end of the other. The
//! command may be able to write into neither: process 1 closes them to its children and cannot be traced.

use crate::error::{Doing, Error, Result};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};

/// Longest text of a message.
const TEXT_BYTES_MAX: usize = 1024;

/// What process 1 tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// A directory is not shown as a copy, for this reason.
    NotCopied(String),
    /// The kernel lacks a layer, for this reason.
    Lacking(String),
    /// The sandbox stands and the command can be found.
    Stands,
    /// A step failed.
    Failed(String, i32),
    /// There is no such command.
    NotFound,
    /// The command cannot be executed.
    NotExecutable(i32),
    /// The command was stopped, by this signal.
    Stopped(i32),
    /// The command ended, with this status of wait(2).
    Ended(i32),
}

/// The caller has written the maps of ids.
pub const MAPPED: u8 = b'm';
/// The command may run.
pub const GO: u8 = b'g';

impl Told {
    fn parts(&self) -> (u8, i32, &str) {
        match self {
            Told::Stands => (0, 0, ""),
            Told::Failed(what, errno) => (1, *errno, what),
            Told::NotFound => (2, 0, ""),
            Told::NotExecutable(errno) => (3, *errno, ""),
            Told::Stopped(signal) => (4, *signal, ""),
            Told::Ended(status) => (5, *status, ""),
            Told::NotCopied(why) => (6, 0, why),
            Told::Lacking(what) => (7, 0, what),
        }
    }

    fn of(tag: u8, number: i32, text: String) -> Option<Told> {
        match tag {
            0 => Some(Told::Stands),
            1 => Some(Told::Failed(text, number)),
            2 => Some(Told::NotFound),
            3 => Some(Told::NotExecutable(number)),
            4 => Some(Told::Stopped(number)),
            5 => Some(Told::Ended(number)),
            6 => Some(Told::NotCopied(text)),
            7 => Some(Told::Lacking(text)),
            _ => None,
        }
    }

    /// The message for a failure.
    pub fn of_error(error: &Error) -> Told {
        match error {
            Error::Step { what, errno } => Told::Failed(what.clone(), errno.raw_os_error()),
            Error::NotFound => Told::NotFound,
            Error::Lacking(what) => Told::Lacking(what.clone()),
            Error::NotExecutable(errno) => Told::NotExecutable(errno.raw_os_error()),
            Error::Missing(path) => Told::Failed(path.display().to_string(), libc::ENOENT),
            other => Told::Failed(other.to_string(), 0),
        }
    }

    /// Sends it.
    pub fn send(&self, to: &mut File) -> std::io::Result<()> {
        let (tag, number, text) = self.parts();
        let mut cut = text.len().min(TEXT_BYTES_MAX);
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        let text = &text.as_bytes()[..cut];
        let mut bytes = vec![tag];
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text);
        to.write_all(&bytes)
    }

    /// Receives one; an end, or what is no message, is [`Error::Lost`].
    pub fn receive(from: &mut File) -> Result<Told> {
        let mut head = [0; 7];
        from.read_exact(&mut head).map_err(|_| Error::Lost)?;
        let [tag, n @ .., low, high] = head;
        let mut text = vec![0; usize::from(u16::from_le_bytes([low, high])).min(TEXT_BYTES_MAX)];
        from.read_exact(&mut text).map_err(|_| Error::Lost)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        Told::of(tag, i32::from_le_bytes(n), text).ok_or(Error::Lost)
    }

    /// The failure that it tells of.
    pub fn into_error(self) -> Error {
        match self {
            Told::Failed(what, errno) => Error::Step {
                what,
                errno: Errno::from_raw_os_error(errno),
            },
            Told::NotFound => Error::NotFound,
            Told::Lacking(what) => Error::Lacking(what),
            Told::NotExecutable(errno) => Error::NotExecutable(Errno::from_raw_os_error(errno)),
            Told::Stands | Told::NotCopied(_) | Told::Stopped(_) | Told::Ended(_) => Error::Lost,
        }
    }
}

/// Waits for the caller's byte.
pub fn expect(from: &mut File, wanted: u8) -> Result<()> {
    let mut byte = [0];
    from.read_exact(&mut byte)
        .doing(|| "waiting for the caller".to_owned())?;
    match byte[0] == wanted {
        true => Ok(()),
        false => Err(Error::Lost),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Seek;

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let all = [
            Told::Stands,
            Told::Failed("placing /ä".to_owned(), 30),
            Told::NotFound,
            Told::NotExecutable(13),
            Told::Stopped(20),
            Told::Ended(-1),
            Told::NotCopied("/a: no".to_owned()),
            Told::Lacking("seccomp: no".to_owned()),
        ];
        let mut file = tempfile::tempfile().unwrap();
        all.iter().for_each(|told| told.send(&mut file).unwrap());
        file.rewind().unwrap();
        for told in all {
            assert_eq!(Told::receive(&mut file).unwrap(), told);
        }
        assert!(matches!(Told::receive(&mut file), Err(Error::Lost)));
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let mut file = tempfile::tempfile().unwrap();
        Told::Failed("ä".repeat(TEXT_BYTES_MAX), 1)
            .send(&mut file)
            .unwrap();
        file.rewind().unwrap();
        let Told::Failed(text, 1) = Told::receive(&mut file).unwrap() else {
            panic!("another message");
        };
        assert_eq!(text, "ä".repeat(TEXT_BYTES_MAX / 2));
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for bytes in [
            &[9u8, 0, 0, 0, 0, 0, 0][..],
            &[0, 0],
            &[1, 0, 0, 0, 0, 9, 0, 1],
        ] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            file.rewind().unwrap();
            assert!(Told::receive(&mut file).is_err());
        }
    }
}
