//! How a request is carried out: on the thread that read it, or, where the disk must be waited for,
//! on the pool; counted, timed and guarded against panics either way.
//!
//! Invariant: every request that [`Front`] begins ends exactly once, and its reply is used exactly
//! once. Nothing here waits, but jobs on the pool.

use crate::announce::Announcer;
use crate::attr::{blank_attr, file_attr, nodeid};
use crate::drain::{Drain, Parity};
use crate::errno::Failure;
use crate::latency::WakeUp;
use crate::limits::FOREVER;
use crate::pool::Pool;
use crate::probe::Probe;
use crate::stats::{Op, Stats};
use engine::types::{Attr, StatFs, Wait};
use engine::{Error, Workspace};
use fuser::{FileHandle, FopenFlags, Generation, ReplyAttr, ReplyCreate, ReplyData, ReplyEmpty};
use fuser::{FileType, INodeNo, ReplyEntry, ReplyLseek, ReplyStatfs, ReplyWrite, ReplyXattr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a handler's call gives.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// A node is not used again before the kernel forgot it, so there is but one generation.
pub(crate) const GENERATION: Generation = Generation(0);

/// What all handlers of a mount share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) ws: WorkspaceRef,
    pub(crate) stats: Arc<Stats>,
    pub(crate) drain: Arc<Drain>,
    pub(crate) probe: Arc<Probe>,
    pub(crate) wake_up: Arc<WakeUp>,
    pub(crate) pool: Pool,
    pub(crate) announcer: Arc<Announcer>,
    /// Whether the kernel checks permissions.
    pub(crate) permissions: bool,
}

/// The workspace, in a form that needs no `Debug` of the engine.
#[derive(Clone)]
pub(crate) struct WorkspaceRef(pub(crate) Arc<Workspace>);

impl std::fmt::Debug for WorkspaceRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Workspace")
    }
}

/// A request in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    op: Op,
    since: Instant,
    parity: Parity,
}

/// The handlers of one mount.
#[derive(Clone, Debug)]
pub(crate) struct Front(pub(crate) Arc<Shared>);

impl Shared {
    /// Begins a request.
    pub(crate) fn begin(&self, op: Op) -> Ticket {
        let since = Instant::now();
        self.wake_up.request(since);
        Ticket {
            op,
            since,
            parity: self.drain.enter(),
        }
    }

    /// Ends a request.
    pub(crate) fn end(&self, ticket: Ticket) {
        self.drain.leave(ticket.parity);
        self.stats.add(ticket.op, ticket.since.elapsed());
    }

    /// Calls the engine. A panic there costs this request alone, not the mount.
    pub(crate) fn guarded<T>(&self, call: impl FnOnce(&Workspace) -> Outcome<T>) -> Outcome<T> {
        catch_unwind(AssertUnwindSafe(|| call(&self.ws.0))).unwrap_or_else(|_| {
            tracing::error!("a request's handler panicked");
            Err(Failure::Panicked)
        })
    }

    /// Answers and ends a request.
    pub(crate) fn finish<T>(&self, ticket: Ticket, reply: impl Answer<T>, outcome: Outcome<T>) {
        match outcome {
            Ok(value) => reply.answer(value),
            Err(failure) => reply.fail(failure.errno(ticket.op)),
        }
        self.end(ticket);
    }
}

impl Front {
    /// Carries out a request: `call` is tried without waiting, then, if it has to, on the pool.
    pub(crate) fn serve<T, R, F>(&self, op: Op, reply: R, call: F)
    where
        R: Answer<T>,
        F: Fn(&Workspace, Wait) -> Result<T, Error> + Send + 'static,
    {
        let ticket = self.0.begin(op);
        let outcome = self.0.guarded(|ws| Ok(call(ws, Wait::Never)?));
        match outcome {
            Err(failure) if failure.would_block() => {
                self.later(ticket, reply, move |ws| Ok(call(ws, Wait::Allowed)?));
            }
            outcome => self.0.finish(ticket, reply, outcome),
        }
    }

    /// Carries out a request that waits for the disk in any case.
    pub(crate) fn serve_waiting<T, R, F>(&self, op: Op, reply: R, call: F)
    where
        R: Answer<T>,
        F: FnOnce(&Workspace) -> Result<T, Error> + Send + 'static,
    {
        let ticket = self.0.begin(op);
        self.later(ticket, reply, |ws| Ok(call(ws)?));
    }

    /// Carries out a request on the pool.
    pub(crate) fn later<T, R, F>(&self, ticket: Ticket, reply: R, call: F)
    where
        R: Answer<T>,
        F: FnOnce(&Workspace) -> Outcome<T> + Send + 'static,
    {
        let shared = self.0.clone();
        self.0.pool.run(move || {
            let outcome = shared.guarded(call);
            shared.finish(ticket, reply, outcome);
        });
    }

    /// Answers a request that is never carried out.
    pub(crate) fn refuse<T>(&self, op: Op, reply: impl Answer<T>, errno: fuser::Errno) {
        let ticket = self.0.begin(op);
        self.0.finish(ticket, reply, Err(Failure::Request(errno)));
    }
}

/// A reply that can carry a `T`.
pub(crate) trait Answer<T>: Send + 'static {
    /// Sends the value.
    fn answer(self, value: T);
    /// Sends an error.
    fn fail(self, errno: fuser::Errno);
}

/// Implements [`Answer`] for a reply of fuser's: how a value is sent.
macro_rules! answer {
    ($reply:ty, $value:ty, $send:expr) => {
        impl Answer<$value> for $reply {
            fn answer(self, value: $value) {
                let send: fn($reply, $value) = $send;
                send(self, value);
            }

            fn fail(self, errno: fuser::Errno) {
                self.error(errno);
            }
        }
    };
}

answer!(ReplyEmpty, (), |reply, ()| reply.ok());
answer!(ReplyData, Vec<u8>, |reply, data| reply.data(&data));
answer!(ReplyWrite, u32, |reply, size| reply.written(size));
answer!(ReplyLseek, i64, |reply, offset| reply.offset(offset));
answer!(ReplyAttr, Attr, |reply, attr| reply
    .attr(&FOREVER, &file_attr(&attr)));
answer!(ReplyEntry, Attr, |reply, attr| {
    reply.entry_with_nodeid(nodeid(attr.node), &FOREVER, &file_attr(&attr), GENERATION);
});
answer!(ReplyCreate, Attr, |reply, attr| {
    let node = nodeid(attr.node);
    let flags = FopenFlags::FOPEN_KEEP_CACHE;
    reply.created_with_nodeid(
        node,
        &FOREVER,
        &file_attr(&attr),
        GENERATION,
        FileHandle(0),
        flags,
    );
});
answer!(ReplyStatfs, StatFs, |reply, s| {
    reply.statfs(
        s.blocks, s.bfree, s.bavail, s.files, s.ffree, s.bsize, s.namelen, s.bsize,
    );
});

/// Reply to LOOKUP: a missing name is an answer too, which the kernel may keep.
pub(crate) struct LookupReply(pub(crate) ReplyEntry);

impl Answer<Attr> for LookupReply {
    fn answer(self, attr: Attr) {
        Answer::<Attr>::answer(self.0, attr);
    }

    fn fail(self, errno: fuser::Errno) {
        match errno {
            fuser::Errno::ENOENT => absent(self.0),
            errno => self.0.error(errno),
        }
    }
}

/// Reply to LOOKUP of a name that may mean something else the next time: the kernel keeps neither it nor
/// its absence.
pub(crate) struct PassingReply(pub(crate) ReplyEntry);

impl Answer<Attr> for PassingReply {
    fn answer(self, attr: Attr) {
        let node = nodeid(attr.node);
        let attr = file_attr(&attr);
        self.0
            .entry_with_nodeid(node, &Duration::ZERO, &attr, GENERATION);
    }

    fn fail(self, errno: fuser::Errno) {
        self.0.error(errno);
    }
}

/// Says "no such name, and you may remember it": node id 0, whatever the attributes.
fn absent(reply: ReplyEntry) {
    let none = blank_attr(INodeNo(0), FileType::RegularFile);
    reply.entry_with_nodeid(INodeNo(0), &FOREVER, &none, GENERATION);
}

/// Reply to GETXATTR and LISTXATTR: a size of 0 asks for the length.
pub(crate) struct XattrReply {
    pub(crate) reply: ReplyXattr,
    pub(crate) size: u32,
}

impl Answer<Vec<u8>> for XattrReply {
    fn answer(self, value: Vec<u8>) {
        match (self.size as usize, value.len()) {
            (0, len) => self.reply.size(len as u32),
            (size, len) if len > size => self.reply.error(fuser::Errno::ERANGE),
            _ => self.reply.data(&value),
        }
    }

    fn fail(self, errno: fuser::Errno) {
        self.reply.error(errno);
    }
}
