//! The client's end of a connection: lines in, with limits of size and time; messages out, never mixed.

use agentvfs_client::protocol::{REQUEST_BYTES_MAX, RequestId, parse_cancel};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a client may take for its first message, and for each message once it began.
pub const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// The client's end of a connection, to be written to from more than one thread.
pub struct Peer<'a> {
    stream: &'a UnixStream,
    /// Held while a message is sent: messages never mix.
    sending: Mutex<()>,
}

impl<'a> Peer<'a> {
    /// The other end of a connection.
    pub fn new(stream: &'a UnixStream) -> Peer<'a> {
        Peer {
            stream,
            sending: Mutex::new(()),
        }
    }

    /// The connection.
    pub fn stream(&self) -> &UnixStream {
        self.stream
    }

    /// Sends a message.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        let _one = self.sending.lock();
        let mut stream = self.stream;
        stream.write_all(message)
    }
}

/// Reads lines with limits of size and time.
pub struct Lines<'a> {
    stream: &'a UnixStream,
    buffer: Vec<u8>,
}

/// Why no further line comes.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The client left, took too long within a message, or the connection broke.
    Gone,
    /// It was silent for too long.
    Silent,
    /// The line is longer than a request may be.
    TooLong,
}

impl<'a> Lines<'a> {
    /// Nothing was read yet.
    pub fn new(stream: &'a UnixStream) -> Lines<'a> {
        Lines {
            stream,
            buffer: Vec::new(),
        }
    }

    /// The next line, without its newline; `silence` limits the wait for its first byte.
    pub fn next(&mut self, silence: Duration) -> Result<Vec<u8>, End> {
        let mut searched = 0;
        let mut deadline = Instant::now() + silence;
        if !self.buffer.is_empty() {
            deadline = Instant::now() + MESSAGE_TIMEOUT;
        }
        loop {
            if let Some(at) = self.buffer[searched..].iter().position(|b| *b == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=searched + at).collect();
                line.pop();
                return Ok(line);
            }
            searched = self.buffer.len();
            if searched >= REQUEST_BYTES_MAX {
                return Err(End::TooLong);
            }
            self.fill(deadline).map_err(|end| match end {
                End::Silent if searched > 0 => End::Gone,
                end => end,
            })?;
            if searched == 0 {
                deadline = Instant::now() + MESSAGE_TIMEOUT;
            }
        }
    }

    /// Bytes that were read and not taken yet.
    pub fn held(&self) -> usize {
        self.buffer.len()
    }

    /// Takes notifications that cancel a request out of what was read; true where one is about `id`.
    pub fn take_cancel(&mut self, id: &RequestId) -> bool {
        let mut found = false;
        let mut kept = Vec::new();
        for line in self.buffer.split_inclusive(|byte| *byte == b'\n') {
            match line.ends_with(b"\n").then(|| parse_cancel(line)).flatten() {
                Some(meant) => found |= meant == *id,
                None => kept.extend_from_slice(line),
            }
        }
        self.buffer = kept;
        found
    }

    /// Reads what is there without waiting for more; false at the end.
    pub fn take_more(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 16 << 10];
        match recv(self.stream, &mut chunk, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Ok(false),
            Ok((_, n)) => {
                self.buffer.extend_from_slice(&chunk[..n]);
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(true),
            Err(e) => Err(e.into()),
        }
    }

    /// What was read and not taken.
    #[cfg(test)]
    pub fn rest(self) -> Vec<u8> {
        self.buffer
    }

    fn fill(&mut self, deadline: Instant) -> Result<(), End> {
        let mut chunk = [0; 16 << 10];
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(End::Silent);
        }
        if self.stream.set_read_timeout(Some(left)).is_err() {
            return Err(End::Gone);
        }
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(End::Gone),
            Ok(n) => {
                self.buffer.extend_from_slice(&chunk[..n]);
                Ok(())
            }
            Err(e) => match e.kind() {
                io::ErrorKind::Interrupted => Ok(()),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Err(End::Silent),
                _ => Err(End::Gone),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(sent: &[u8], n: usize) -> Vec<Result<Vec<u8>, End>> {
        let (here, mut there) = UnixStream::pair().unwrap();
        let sent = sent.to_vec();
        let writer = std::thread::spawn(move || {
            // The reader may have had enough before all is written.
            let _ = there.write_all(&sent);
        });
        let mut lines = Lines::new(&here);
        let found = (0..n).map(|_| lines.next(MESSAGE_TIMEOUT)).collect();
        drop(here);
        writer.join().unwrap();
        found
    }

    #[test]
    fn lines_come_one_by_one() {
        let found = lines_of(b"a\nbc\n\nrest", 4);
        let wanted = [
            Ok(b"a".to_vec()),
            Ok(b"bc".to_vec()),
            Ok(Vec::new()),
            Err(End::Gone),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn endless_line_is_cut_off() {
        assert_eq!(
            lines_of(&vec![b'x'; REQUEST_BYTES_MAX + (1 << 16)], 1),
            [Err(End::TooLong)]
        );
    }

    #[test]
    fn silent_client_is_given_up() {
        let (here, _there) = UnixStream::pair().unwrap();
        assert_eq!(
            Lines::new(&here).next(Duration::from_millis(20)),
            Err(End::Silent)
        );
    }
}
