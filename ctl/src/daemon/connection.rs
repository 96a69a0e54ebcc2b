//! One client's connection: messages in, answers out.
//!
//! Invariant: whatever a client sends or leaves unsent costs at most its own connection: messages
//! are bounded in size and time, and answers that nobody reads time out.

use super::dispatch::{Watch, dispatch, wants_progress};
use super::server::Daemon;
use super::watch::listening;
use agentvfs_client::protocol::{
    Call, Fault, PROTOCOL_VERSION, Progress, REQUEST_BYTES_MAX, Request, RequestId, code,
    encode_answer, encode_data, encode_progress, parse_cancel, parse_request, shown,
};
use engine::Cancel;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, recv};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a client may take for its first message, and for each message once it began.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a client may be silent between requests.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(600);

/// How long a client may not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Least time between two progress notifications.
const PROGRESS_PAUSE: Duration = Duration::from_millis(100);

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
enum End {
    /// The client left, was silent for too long, or the connection broke.
    Gone,
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
    fn next(&mut self, silence: Duration) -> Result<Vec<u8>, End> {
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
            self.fill(deadline)?;
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
        if left.is_zero() || self.stream.set_read_timeout(Some(left)).is_err() {
            return Err(End::Gone);
        }
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(End::Gone),
            Ok(n) => {
                self.buffer.extend_from_slice(&chunk[..n]);
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(_) => Err(End::Gone),
        }
    }
}

/// Serves a connection until it ends.
pub fn serve(daemon: &Daemon, stream: &UnixStream) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let mut lines = Lines::new(stream);
    let peer = Peer::new(stream);
    let mut greeted = false;
    loop {
        let silence = if greeted {
            SILENCE_TIMEOUT
        } else {
            MESSAGE_TIMEOUT
        };
        let request = match lines.next(silence) {
            // What it is about was answered meanwhile.
            Ok(line) if parse_cancel(&line).is_some() => continue,
            Ok(line) => parse_request(&line),
            Err(End::TooLong) => return refuse(stream, too_long()),
            Err(End::Gone) => return Ok(()),
        };
        match request {
            Ok(request) if greeted => work(daemon, &mut lines, &peer, &request)?,
            Ok(request) => {
                let welcome = check_hello(&request.call);
                if let Err(fault) = welcome {
                    return send(&peer, &request.id, &Err(fault));
                }
                greeted = true;
                work(daemon, &mut lines, &peer, &request)?;
            }
            Err(refusal) => send(&peer, &refusal.id, &Err(refusal.fault))?,
        }
    }
}

fn too_long() -> Fault {
    let why = format!("the request is longer than {REQUEST_BYTES_MAX} bytes");
    Fault::protocol(code::INVALID_REQUEST, why)
}

fn check_hello(call: &Call) -> Result<(), Fault> {
    match call {
        Call::Hello(hello) if hello.protocol == PROTOCOL_VERSION => Ok(()),
        Call::Hello(hello) => Err(Fault::protocol(
            code::VERSION,
            format!(
                "the daemon ({}) speaks protocol {PROTOCOL_VERSION}, the client {}",
                env!("CARGO_PKG_VERSION"),
                hello.protocol
            ),
        )),
        _ => Err(Fault::protocol(
            code::VERSION,
            "the first message must be hello",
        )),
    }
}

/// Carries out a request and answers it, unless the daemon is ending.
fn work(
    daemon: &Daemon,
    lines: &mut Lines<'_>,
    peer: &Peer<'_>,
    request: &Request,
) -> io::Result<()> {
    let Some(_pass) = daemon.gate.enter() else {
        return send(peer, &request.id, &Err(ending()));
    };
    let since = Instant::now();
    let told = Cell::new(Instant::now());
    let progress = |done, total| tell_progress(peer, request, &told, done, total);
    let data = |bytes: &[u8]| send_data(peer, request, bytes);
    let cancel = Cancel::new();
    let watch = Watch {
        progress: &progress,
        data: &data,
        cancel: &cancel,
        caller: caller_of(peer, &request.call),
    };
    let work = || dispatch(&daemon.mounts, &request.call, &watch);
    let answer = match request.call.can_be_cancelled() {
        true => {
            let _listed = daemon.mounts.jobs().add(&request.call, &cancel);
            listening(lines, peer, &request.id, &cancel, work)?
        }
        false => work(),
    };
    if let Err(fault) = &answer {
        tracing::info!(kind = fault.kind, "request failed: {}", fault.message);
    }
    tracing::debug!(took = ?since.elapsed(), call = shown(&request.call), "answered");
    send(peer, &request.id, &answer)
}

/// The process at the other end, for calls that may be its own.
fn caller_of(peer: &Peer<'_>, call: &Call) -> Option<u32> {
    if !matches!(call, Call::ToolStart(_)) {
        return None;
    }
    let found = socket_peercred(peer.stream()).ok()?;
    // One that this process cannot see has no id here.
    u32::try_from(found.pid.as_raw_nonzero().get()).ok()
}

/// What a client is told that comes too late, or when there are too many: it will try again.
pub fn ending() -> Fault {
    Fault::protocol(code::ENDING, "the daemon is ending or busy; try again")
}

fn tell_progress(peer: &Peer<'_>, request: &Request, told: &Cell<Instant>, done: u64, total: u64) {
    let RequestId::Number(id) = request.id else {
        return;
    };
    if !wants_progress(&request.call) || told.get().elapsed() < PROGRESS_PAUSE {
        return;
    }
    told.set(Instant::now());
    // A client that has gone does not stop the work that it asked for, unless that can be cancelled: who
    // listens to it sees that.
    let _ = peer.send(&encode_progress(&Progress { id, done, total }));
}

/// Sends a part of a long result; false where the client has gone or does not read.
fn send_data(peer: &Peer<'_>, request: &Request, bytes: &[u8]) -> bool {
    let RequestId::Number(id) = request.id else {
        return false;
    };
    peer.send(&encode_data(id, bytes)).is_ok()
}

/// Answers a connection that is not served.
pub fn refuse(stream: &UnixStream, fault: Fault) -> io::Result<()> {
    send(&Peer::new(stream), &RequestId::Null, &Err(fault))
}

fn send(
    peer: &Peer<'_>,
    id: &RequestId,
    answer: &Result<serde_json::Value, Fault>,
) -> io::Result<()> {
    peer.send(&encode_answer(id, answer))
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
            Err(End::Gone)
        );
    }

    #[test]
    fn only_the_right_hello_opens_a_connection() {
        let hello = |protocol| {
            Call::Hello(agentvfs_client::protocol::Hello {
                protocol,
                client: "t".into(),
            })
        };
        assert!(check_hello(&hello(PROTOCOL_VERSION)).is_ok());
        assert_eq!(check_hello(&hello(99)).unwrap_err().code, code::VERSION);
        let other = Call::List(agentvfs_client::protocol::Nothing {});
        assert_eq!(check_hello(&other).unwrap_err().code, code::VERSION);
    }
}
