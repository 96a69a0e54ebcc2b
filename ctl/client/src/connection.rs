//! The client's side of a connection to the daemon.
//!
//! Invariant: the first message is `hello`, and no request is sent before it was answered, so a
//! connection that ends earlier has done nothing and may be made again.

use crate::protocol::{
    Call, Fault, FromDaemon, Hello, HelloAnswer, PROTOCOL_VERSION, RequestId, SandboxOf, code,
    encode_cancel, encode_watched, parse_from_daemon, shown,
};
use crate::sys;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Uid;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a daemon may take to answer the first message.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes that are read at once: what follows events is sent in messages of this size.
const READ_BYTES: usize = 64 << 10;

/// How long a daemon that is ending may take.
const END_TIMEOUT: Duration = Duration::from_secs(25);

/// Why a connection cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("no daemon is running")]
    NotRunning,
    /// The daemon is ending, or ended before it did anything.
    #[error("the daemon is shutting down")]
    Ending,
    /// The socket belongs to somebody else's process.
    #[error("the daemon's socket belongs to user {0}")]
    Foreign(u32),
    /// Another version of the protocol.
    #[error("the daemon has another version: {0}")]
    Version(String),
    /// The daemon does not answer.
    #[error("the daemon does not respond ({})", .0.kind())]
    Silent(io::Error),
    /// The connection broke while a request was being worked on.
    #[error("the daemon ended during the request: {0}")]
    Broken(String),
    /// The request was refused or failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// What a daemon tells before it answers.
#[derive(Debug)]
pub enum Heard {
    /// How far the work is: done, total.
    Progress(u64, u64),
    /// The next part of a long result.
    Data(Vec<u8>),
    /// It was to be cancelled, and is past its point of no return.
    TooLate,
}

/// Cancels the next request of a connection.
#[derive(Debug)]
pub struct Canceller {
    stream: UnixStream,
    id: i64,
}

impl Canceller {
    /// Asks for the request to be cancelled; the answer to that says whether it was.
    pub fn cancel(&self) -> io::Result<()> {
        (&self.stream).write_all(&encode_cancel(self.id))
    }
}

/// A connection to the daemon.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    last_id: i64,
    daemon: HelloAnswer,
}

impl Client {
    /// Connects and says hello.
    pub fn connect(socket: &Path) -> Result<Client, ClientError> {
        let stream = open(socket)?;
        check_peer(&stream)?;
        Client::greeted(stream, None)
    }

    /// A connection that may do no more than a command in a sandbox may, as which process the daemon hears.
    pub fn connect_for(socket: &Path, sandbox: SandboxOf) -> Result<UnixStream, ClientError> {
        let client = Client::connect_in(socket, sandbox)?;
        match client.stream.buffer().is_empty() {
            true => Ok(client.stream.into_inner()),
            false => Err(ClientError::Broken("it said more than hello".into())),
        }
    }

    /// The same, to ask for something oneself.
    pub fn connect_in(socket: &Path, sandbox: SandboxOf) -> Result<Client, ClientError> {
        let stream = open(socket)?;
        check_peer(&stream)?;
        Client::greeted(stream, Some(sandbox))
    }

    fn greeted(stream: UnixStream, sandbox: Option<SandboxOf>) -> Result<Client, ClientError> {
        stream
            .set_read_timeout(Some(HELLO_TIMEOUT))
            .map_err(ClientError::Silent)?;
        let mut client = Client {
            stream: BufReader::with_capacity(READ_BYTES, stream),
            last_id: 0,
            daemon: HelloAnswer {
                protocol: PROTOCOL_VERSION,
                version: String::new(),
                build: String::new(),
                pid: 0,
                in_flight: 1,
            },
        };
        client.greet(sandbox)?;
        client
            .stream
            .get_ref()
            .set_read_timeout(None)
            .map_err(ClientError::Silent)?;
        Ok(client)
    }

    fn greet(&mut self, sandbox: Option<SandboxOf>) -> Result<(), ClientError> {
        let version = concat!("agentvfs ", env!("CARGO_PKG_VERSION"));
        let hello = Hello {
            protocol: PROTOCOL_VERSION,
            client: version.to_owned(),
            sandbox,
            in_flight: None,
        };
        // Before the answer nothing has been done, so an end of the connection is harmless.
        self.daemon = self.call(&Call::Hello(hello)).map_err(|e| match e {
            ClientError::Broken(_) => ClientError::Ending,
            ClientError::Fault(fault) if fault.code == code::VERSION => {
                ClientError::Version(fault.message)
            }
            other => other,
        })?;
        Ok(())
    }

    /// Who answers.
    pub fn daemon(&self) -> &HelloAnswer {
        &self.daemon
    }

    /// The daemon's process; none if it is outside this PID namespace.
    pub fn process(&self) -> Option<u32> {
        let peer = sys::peer(self.stream.get_ref()).ok()?.process;
        peer.filter(|process| *process == self.daemon.pid)
    }

    /// Whether the daemon still holds the connection, as far as can be told without asking it: while
    /// nothing is asked it sends nothing, so whatever can be read is an end.
    pub fn is_open(&self) -> bool {
        let mut fds = [PollFd::new(self.stream.get_ref(), PollFlags::IN)];
        let now = rustix::event::Timespec::default();
        self.stream.buffer().is_empty() && matches!(poll(&mut fds, Some(&now)), Ok(0))
    }

    /// Waits until the daemon has given the connection up, or for a while.
    pub fn wait_for_end(self) {
        // Without a limit one that hangs would hang us; the limit itself cannot be refused, as it is not zero.
        let _ = self.stream.get_ref().set_read_timeout(Some(END_TIMEOUT));
        // It says nothing more.
        let _ = io::copy(&mut self.stream.into_inner(), &mut io::sink());
    }

    /// What cancels the request that is made next.
    pub fn canceller(&self) -> io::Result<Canceller> {
        Ok(Canceller {
            stream: self.stream.get_ref().try_clone()?,
            id: self.last_id + 1,
        })
    }

    /// Asks and waits for the answer.
    pub fn call<R: DeserializeOwned>(&mut self, call: &Call) -> Result<R, ClientError> {
        self.send_and_hear(call, false, &mut |_| {})
    }

    /// The same; `progress` hears how far the work is (done, total).
    pub fn call_with<R: DeserializeOwned>(
        &mut self,
        call: &Call,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<R, ClientError> {
        self.call_hearing(call, &mut |heard| {
            if let Heard::Progress(done, total) = heard {
                progress(done, total);
            }
        })
    }

    /// The same; `hear` gets everything that is told before the answer.
    pub fn call_hearing<R: DeserializeOwned>(
        &mut self,
        call: &Call,
        hear: &mut dyn FnMut(Heard),
    ) -> Result<R, ClientError> {
        self.send_and_hear(call, true, hear)
    }

    fn send_and_hear<R: DeserializeOwned>(
        &mut self,
        call: &Call,
        progress: bool,
        hear: &mut dyn FnMut(Heard),
    ) -> Result<R, ClientError> {
        self.last_id += 1;
        let since = Instant::now();
        let sent = self
            .stream
            .get_mut()
            .write_all(&encode_watched(self.last_id, call, progress));
        // A daemon that refuses the connection answers before it closes it, so the answer counts
        // more than the failed write.
        let answer = self.answer(hear);
        tracing::debug!(took = ?since.elapsed(), failed = answer.is_err(), "asked {}", shown(call));
        let value = match (answer, sent) {
            (Err(ClientError::Broken(_)), Err(e)) => {
                return Err(ClientError::Broken(e.to_string()));
            }
            (answer, _) => answer?,
        };
        serde_json::from_value(value)
            .map_err(|e| ClientError::Broken(format!("invalid answer: {e}")))
    }

    fn answer(&mut self, hear: &mut dyn FnMut(Heard)) -> Result<serde_json::Value, ClientError> {
        loop {
            match parse_from_daemon(&self.line()?) {
                Some(FromDaemon::Progress(p)) if p.id == self.last_id => {
                    hear(Heard::Progress(p.done, p.total));
                }
                Some(FromDaemon::Data(id, bytes)) if id == self.last_id => {
                    hear(Heard::Data(bytes));
                }
                Some(FromDaemon::Cancel(heard)) if self.is_mine(&heard.id) => {
                    if !heard.cancelled {
                        hear(Heard::TooLate);
                    }
                }
                Some(FromDaemon::Answer(id, answer)) if self.is_mine(&id) => {
                    return answer.map_err(told);
                }
                Some(_) => {}
                None => {
                    return Err(ClientError::Broken("it sent an invalid message".into()));
                }
            }
        }
    }

    /// A refused connection is answered without an id.
    fn is_mine(&self, id: &RequestId) -> bool {
        matches!(id, RequestId::Null) || *id == RequestId::Number(self.last_id)
    }

    fn line(&mut self) -> Result<Vec<u8>, ClientError> {
        let mut line = Vec::new();
        match self.stream.read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\n") => Ok(line),
            Ok(_) => Err(ClientError::Broken("the connection was closed".into())),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                Err(ClientError::Silent(io::ErrorKind::TimedOut.into()))
            }
            Err(e) => Err(ClientError::Broken(e.to_string())),
        }
    }
}

fn told(fault: Fault) -> ClientError {
    if fault.code == code::ENDING {
        ClientError::Ending
    } else {
        ClientError::Fault(fault)
    }
}

/// Refuses a socket of another user: it could make us believe anything. Root's is as good as ours.
fn check_peer(stream: &UnixStream) -> Result<(), ClientError> {
    check_user(sys::peer(stream).map_err(ClientError::Silent)?.user)
}

fn check_user(user: Uid) -> Result<(), ClientError> {
    let mine = rustix::process::geteuid();
    if user == mine || user.is_root() || mine.is_root() {
        return Ok(());
    }
    Err(ClientError::Foreign(user.as_raw()))
}

fn open(socket: &Path) -> Result<UnixStream, ClientError> {
    UnixStream::connect(socket).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::ConnectionRefused => ClientError::NotRunning,
        _ => ClientError::Silent(e),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    /// A daemon that reads a line per answer and sends the answers.
    fn daemon(answers: Vec<&'static str>) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            for answer in answers {
                reader.read_until(b'\n', &mut Vec::new()).unwrap();
                reader.get_mut().write_all(answer.as_bytes()).unwrap();
            }
        });
        (dir, path)
    }

    const GREETING: &str =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocol\":1,\"version\":\"x\",\"pid\":7}}\n";

    #[test]
    fn no_socket_means_no_daemon() {
        let error = Client::connect(Path::new("/nonexistent/socket")).unwrap_err();
        assert!(matches!(error, ClientError::NotRunning));
    }

    #[test]
    fn end_before_the_greeting_may_be_tried_again() {
        let (_dir, path) = daemon(vec![]);
        assert!(matches!(
            Client::connect(&path).unwrap_err(),
            ClientError::Ending
        ));
    }

    #[test]
    fn progress_comes_before_the_answer() {
        let (_dir, path) = daemon(vec![
            GREETING,
            "{\"method\":\"progress\",\"params\":{\"id\":2,\"done\":1,\"total\":3}}\n{\"id\":2,\"result\":{\"exists\":true}}\n",
        ]);
        let mut client = Client::connect(&path).unwrap();
        let mut seen = Vec::new();
        let call = Call::List(crate::protocol::Nothing {});
        let answer: crate::protocol::HasRefAnswer = client
            .call_with(&call, &mut |done, total| seen.push((done, total)))
            .unwrap();
        assert!(answer.exists);
        assert_eq!(seen, [(1, 3)]);
    }

    #[test]
    fn a_cancel_names_the_request_and_too_late_is_heard() {
        let (_dir, path) = daemon(vec![
            GREETING,
            "",
            "{\"method\":\"cancel\",\"params\":{\"id\":2,\"cancelled\":false}}\n{\"id\":2,\"result\":{\"exists\":true}}\n",
        ]);
        let mut client = Client::connect(&path).unwrap();
        client.canceller().unwrap().cancel().unwrap();
        let call = Call::List(crate::protocol::Nothing {});
        let mut late = 0;
        let answer: crate::protocol::HasRefAnswer = client
            .call_hearing(&call, &mut |heard| {
                late += i32::from(matches!(heard, Heard::TooLate))
            })
            .unwrap();
        assert!(answer.exists && late == 1);
    }

    #[test]
    fn end_during_a_request_is_an_error() {
        let (_dir, path) = daemon(vec![GREETING, ""]);
        let mut client = Client::connect(&path).unwrap();
        let error = client
            .call::<serde_json::Value>(&Call::List(crate::protocol::Nothing {}))
            .unwrap_err();
        assert!(matches!(error, ClientError::Broken(_)));
    }
}
