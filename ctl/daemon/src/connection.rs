//! One client's connection: messages in, answers out.
//!
//! Invariant: whatever a client sends or leaves unsent costs at most its own connection: messages
//! are bounded in size and time, and answers that nobody reads time out.

use super::dispatch::{dispatch, wants_progress};
use super::gate::Gate;
use super::mounts::Mounts;
use super::peer::{End, Lines, MESSAGE_TIMEOUT, Peer};
use super::request::Watch;
use super::sandboxed::dispatch_in;
use super::watch::listening;
use agentvfs_client::protocol::{
    Call, Fault, PROTOCOL_VERSION, Progress, REQUEST_BYTES_MAX, Request, RequestId, SandboxOf,
    code, encode_answer, encode_data, encode_progress, parse_cancel, parse_request, shown,
};
use engine::Cancel;
use rustix::net::sockopt::socket_peercred;
use std::cell::Cell;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a client may be silent between requests.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(600);

/// How long a client may not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Least time between two progress notifications.
const PROGRESS_PAUSE: Duration = Duration::from_millis(100);

/// What a connection works with.
#[derive(Clone)]
pub struct Daemon {
    /// The workspaces.
    pub mounts: Arc<Mounts>,
    /// Who may still come in.
    pub gate: Arc<Gate>,
}

/// Serves a connection until it ends.
pub fn serve(daemon: &Daemon, stream: &UnixStream) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let mut lines = Lines::new(stream);
    let peer = Peer::new(stream);
    let mut greeted = None;
    loop {
        let silence = if greeted.is_some() {
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
        match (request, &greeted) {
            (Ok(request), Some(may)) => work(daemon, &mut lines, &peer, (&request, may))?,
            (Ok(request), None) => {
                let may = match check_hello(&request.call) {
                    Ok(may) => greeted.insert(may),
                    Err(fault) => return send(&peer, &request.id, &Err(fault)),
                };
                work(daemon, &mut lines, &peer, (&request, may))?;
            }
            (Err(refusal), _) => send(&peer, &refusal.id, &Err(refusal.fault))?,
        }
    }
}

fn too_long() -> Fault {
    let why = format!("the request is longer than {REQUEST_BYTES_MAX} bytes");
    Fault::protocol(code::INVALID_REQUEST, why)
}

/// What a connection may ask for, said once, by the first message.
#[derive(Debug)]
enum May {
    /// Everything.
    All,
    /// What a command in this sandbox may.
    In(SandboxOf),
}

fn check_hello(call: &Call) -> Result<May, Fault> {
    match call {
        Call::Hello(hello) if hello.protocol == PROTOCOL_VERSION => {
            Ok(hello.sandbox.clone().map_or(May::All, May::In))
        }
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
    (request, may): (&Request, &May),
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
        caller: match may {
            May::All => caller_of(peer),
            May::In(sandbox) => sandbox.process,
        },
    };
    let work = || {
        let dispatch = || match may {
            May::All => dispatch(&daemon.mounts, &request.call, &watch),
            May::In(sandbox) => dispatch_in(sandbox, &daemon.mounts, &request.call, &watch),
        };
        engine::acting_for(watch.caller.unwrap_or(0), dispatch)
    };
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

/// The process at the other end: calls and changes may be its own.
fn caller_of(peer: &Peer<'_>) -> Option<u32> {
    let found = socket_peercred(peer.stream()).ok()?;
    // One that this process cannot see has no id here.
    u32::try_from(found.pid.as_raw_nonzero().get()).ok()
}

/// What a client is told that comes too late, or when there are too many: it will try again.
pub fn ending() -> Fault {
    Fault::protocol(
        code::ENDING,
        "the daemon is shutting down or busy; try again",
    )
}

fn tell_progress(peer: &Peer<'_>, request: &Request, told: &Cell<Instant>, done: u64, total: u64) {
    let RequestId::Number(id) = request.id else {
        return;
    };
    if !(request.progress || wants_progress(&request.call)) || told.get().elapsed() < PROGRESS_PAUSE
    {
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

    #[test]
    fn only_the_right_hello_opens_a_connection() {
        let hello = |protocol| {
            Call::Hello(agentvfs_client::protocol::Hello {
                protocol,
                client: "t".into(),
                sandbox: None,
            })
        };
        assert!(check_hello(&hello(PROTOCOL_VERSION)).is_ok());
        assert_eq!(check_hello(&hello(99)).unwrap_err().code, code::VERSION);
        let other = Call::List(agentvfs_client::protocol::Nothing {});
        assert_eq!(check_hello(&other).unwrap_err().code, code::VERSION);
    }
}
