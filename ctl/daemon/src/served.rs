//! A connection that said hello: carrying a request out, and answering it.
//!
//! Invariant: a request is answered once, and by one whole message; what is told of it before comes before that.

use super::dispatch::{dispatch, wants_progress};
use super::gate::Gate;
use super::handles::Handles;
use super::mounts::Mounts;
use super::peer::Peer;
use super::request::Watch;
use super::sandboxed::{dispatch_in, narrowed};
use agentvfs_client::protocol::{
    Call, Fault, Progress, REQUEST_BYTES_MAX, Refusal, Request, RequestId, SandboxOf, code,
    encode_answer, encode_data_to, encode_progress, shown,
};
use agentvfs_client::sys;
use engine::feed::FeedBackend;
use engine::{Asking, Cancel};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a client may be silent between requests.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(600);

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

/// What a connection may ask for, said by the first message; a later one can make it less.
#[derive(Debug)]
pub enum May {
    /// Everything.
    All,
    /// What a command in this sandbox may.
    In(SandboxOf),
}

/// A connection that said hello.
pub struct Served<'a> {
    /// What it works with.
    pub daemon: &'a Daemon,
    /// Whoever asks.
    pub peer: &'a Peer<'a>,
    /// What it may ask for.
    pub may: May,
    /// How many requests there may be at once.
    pub in_flight: u32,
    /// Files that it has open.
    pub handles: Handles,
}

impl Served<'_> {
    /// Carries out a request and answers it, unless the daemon is ending.
    pub fn carry_out(&self, request: &Request, cancel: &Cancel) -> io::Result<()> {
        let Some(_pass) = self.daemon.gate.enter() else {
            return send(self.peer, &request.id, &Err(ending()));
        };
        let since = Instant::now();
        let answer = {
            let jobs = self.daemon.mounts.jobs();
            let can_be_cancelled = request.call.can_be_cancelled();
            let _listed = can_be_cancelled.then(|| jobs.add(&request.call, cancel));
            self.answer(request, cancel)
        };
        if let Err(fault) = &answer {
            // The client is told; whoever asks again and again must not fill the log.
            tracing::debug!(kind = fault.kind, "request failed: {}", fault.message);
        }
        tracing::debug!(took = ?since.elapsed(), call = shown(&request.call), "answered");
        send(self.peer, &request.id, &answer)
    }

    fn answer(&self, request: &Request, cancel: &Cancel) -> Result<Value, Fault> {
        let told = Cell::new(Instant::now());
        let progress = |done, total| tell_progress(self.peer, request, &told, done, total);
        let frame = RefCell::default();
        let data = |bytes: &[u8]| send_data(self.peer, request, bytes, &mut frame.borrow_mut());
        let mut asking = asking_of(self.peer);
        if let May::In(sandbox) = &self.may {
            // The peer is who passes it on.
            asking.thread = sandbox.process.unwrap_or(0);
        }
        let watch = Watch {
            progress: &progress,
            data: &data,
            cancel,
            caller: (asking.thread > 0).then_some(asking.thread),
            is_inside: matches!(self.may, May::In(_)),
            handles: &self.handles,
            in_flight: self.in_flight,
        };
        let mounts = &self.daemon.mounts;
        let dispatch = || match &self.may {
            May::All => dispatch(mounts, &request.call, &watch),
            May::In(sandbox) => dispatch_in(sandbox, mounts, &request.call, &watch),
        };
        engine::acting_for(asking, dispatch)
    }

    /// A connection from a sandbox may do less from now on if it says that it is for one inside.
    pub fn narrow(&mut self, call: &Call) -> Result<(), Fault> {
        let (May::In(sandbox), Call::Hello(hello)) = (&self.may, call) else {
            return Ok(());
        };
        let Some(inner) = &hello.sandbox else {
            return Ok(());
        };
        let Some(_pass) = self.daemon.gate.enter() else {
            return Err(ending());
        };
        self.may = May::In(narrowed(sandbox, &self.daemon.mounts, inner)?);
        // It opened them as another one.
        self.handles = Handles::default();
        Ok(())
    }

    /// Answers what is no request.
    pub fn refuse(&self, refusal: Refusal) -> io::Result<()> {
        send(self.peer, &refusal.id, &Err(refusal.fault))
    }
}

/// The answer to a line that is longer than a request may be.
pub fn too_long() -> Fault {
    let why = format!("the request is longer than {REQUEST_BYTES_MAX} bytes");
    Fault::protocol(code::INVALID_REQUEST, why)
}

/// The process at the other end: calls and changes may be its own.
fn asking_of(peer: &Peer<'_>) -> Asking {
    let found = sys::peer(peer.stream()).ok();
    Asking {
        thread: found.and_then(|peer| peer.process).unwrap_or(0),
        uid: found.map_or(0, |peer| peer.user.as_raw()),
        gid: found.map_or(0, |peer| peer.group.as_raw()),
        since: Some(Instant::now()),
        backend: FeedBackend::Control,
        waits: false,
        comm: [0; 16],
    }
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
fn send_data(peer: &Peer<'_>, request: &Request, bytes: &[u8], frame: &mut Vec<u8>) -> bool {
    let RequestId::Number(id) = request.id else {
        return false;
    };
    encode_data_to(id, bytes, frame);
    peer.send(frame).is_ok()
}

/// Answers a connection that is not served.
pub fn refuse(stream: &UnixStream, fault: Fault) -> io::Result<()> {
    send(&Peer::new(stream), &RequestId::Null, &Err(fault))
}

/// Answers a request.
pub fn send(peer: &Peer<'_>, id: &RequestId, answer: &Result<Value, Fault>) -> io::Result<()> {
    peer.send(&encode_answer(id, answer))
}
