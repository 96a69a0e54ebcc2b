//! Requests that the kernel sends again because who got them first is gone: each is carried out once.
//!
//! The engine keeps what each request that changed something gave, as long as it may not be answered. One that it does not
//! know changed nothing, and is carried out like a new one.

use crate::limits::FOREVER;
use crate::serve::{Front, Outcome};
use crate::transport::Space;
use crate::wire::{Answer, Header, Request};
use engine::record;
use engine::types::Wait;
use engine::{Error, Process, RequestId, within_request};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The process that served the mount before, as long as it has threads. Some of them make calls on their own mount
/// that change nothing if that process answers them (`announce.rs`); here they would.
#[derive(Debug, Default)]
pub(crate) struct Before {
    process: Option<Process>,
    is_gone: AtomicBool,
}

impl Before {
    /// That of a process that is still there.
    pub(crate) fn new(process: Process) -> Before {
        Before {
            process: Some(process),
            is_gone: AtomicBool::new(false),
        }
    }

    /// The process, until it is gone.
    pub(crate) fn process(&self) -> Option<Process> {
        self.process.filter(|_| !self.is_gone.load(Relaxed))
    }

    /// It is gone.
    pub(crate) fn is_gone(&self) {
        self.is_gone.store(true, Relaxed);
    }

    /// Whether a thread is one of that process.
    fn is_of(&self, thread: u32) -> bool {
        let Some(process) = self.process() else {
            return false;
        };
        let status = std::fs::read_to_string(format!("/proc/{thread}/status"));
        let of = |status: String| {
            let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
            line.and_then(|id| id.trim().parse().ok())
        };
        status.ok().and_then(of) == Some(process.pid)
    }
}

/// Whether a request changes something when it is carried out.
fn changes(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Setattr { .. }
            | Request::Symlink { .. }
            | Request::Mknod { .. }
            | Request::Mkdir { .. }
            | Request::Unlink { .. }
            | Request::Rmdir { .. }
            | Request::Rename { .. }
            | Request::Link { .. }
            | Request::Create { .. }
            | Request::Tmpfile { .. }
    )
}

/// The name under which a request makes something.
fn name_of<'a>(request: &Request<'a>) -> Option<&'a [u8]> {
    match *request {
        Request::Create { name, .. }
        | Request::Mknod { name, .. }
        | Request::Mkdir { name, .. }
        | Request::Symlink { name, .. } => Some(name),
        _ => None,
    }
}

impl Front {
    /// Carries out a request, unless a process before did already.
    pub(crate) fn answer_once(
        &self,
        from: &Header,
        request: &Request<'_>,
        room: &mut impl Space,
        wait: Wait,
    ) -> Outcome<Answer> {
        let Some(connection) = self.0.connection else {
            return self.answer(from, request, room, wait);
        };
        if changes(request) && self.0.before.is_of(from.pid) {
            return Err(Errno::IO.into());
        }
        let unique = from.number();
        let id = RequestId { connection, unique };
        if from.is_resent()
            && let Some(answer) = self.answer_again(from, request, id, wait)?
        {
            return Ok(answer);
        }
        within_request(id, || self.answer(from, request, room, wait))
    }

    /// The answer to a request that was carried out already; `None` where it was not.
    fn answer_again(
        &self,
        from: &Header,
        request: &Request<'_>,
        id: RequestId,
        wait: Wait,
    ) -> Outcome<Option<Answer>> {
        let (ws, node) = (&*self.0.ws.0, from.node);
        let Some(outcome) = ws.outcome(node, id) else {
            return Ok(None);
        };
        let answer = match (*request, outcome) {
            (Request::Create { .. } | Request::Tmpfile { .. }, record::Outcome::Inode(nid)) => {
                Answer::Created(ws.made_again(node, name_of(request), nid)?, FOREVER)
            }
            (
                Request::Mknod { .. } | Request::Mkdir { .. } | Request::Symlink { .. },
                record::Outcome::Inode(nid),
            ) => Answer::Entry(ws.made_again(node, name_of(request), nid)?, FOREVER),
            // It emptied a file that was there, which others may have written to since.
            (Request::Create { name, .. }, record::Outcome::Done) => {
                match ws.lookup(node, name, wait) {
                    // A switch took it away meanwhile.
                    Err(Error::NotFound) => return Ok(None),
                    found => Answer::Created(found?, FOREVER),
                }
            }
            (Request::Link { .. }, record::Outcome::Inode(nid)) => {
                Answer::Entry(ws.handed_again(node, nid)?, FOREVER)
            }
            (Request::Setattr { .. }, _) => Answer::Attributes(ws.getattr(node)?, FOREVER),
            // Pages of which only a part was written yet are written again.
            (Request::Write { data, flags, .. }, record::Outcome::Bytes(len))
                if flags.from_cache && len != data.len() as u64 =>
            {
                return Ok(None);
            }
            (Request::Write { .. }, record::Outcome::Bytes(len)) => Answer::Written(len as u32),
            (Request::CopyFileRange { wide: true, .. }, record::Outcome::Bytes(len)) => {
                Answer::Copied(len)
            }
            (Request::CopyFileRange { .. }, record::Outcome::Bytes(len)) => {
                Answer::Written(len as u32)
            }
            _ => Answer::Done,
        };
        tracing::debug!(number = id.unique, opcode = from.opcode, "answered again");
        Ok(Some(answer))
    }
}
