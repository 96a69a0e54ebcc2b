//! Directory listings: the engine's entries into the kernel's buffer.
//!
//! A listing is cut where the buffer is full; the kernel comes again with the last entry's cookie.

use crate::attr::{blank_attr, file_attr, file_type, node, nodeid};
use crate::limits::FOREVER;
use crate::serve::{Front, GENERATION, Ticket};
use crate::stats::Op;
use engine::types::{DirEntry, NodeId, Wait};
use engine::{Error, Workspace};
use fuser::{Errno, FileAttr, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A reply that takes entries.
pub(crate) trait Listing: Send + 'static {
    /// Whether entries carry attributes (and count as looked up).
    const PLUS: bool;
    /// Adds an entry; true when it did not fit.
    fn add(&mut self, entry: &DirEntry<'_>) -> bool;
    /// Sends what was added.
    fn send(self);
    /// Sends an error.
    fn fail(self, errno: Errno);
}

impl Listing for ReplyDirectory {
    const PLUS: bool = false;

    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        let name = OsStr::from_bytes(entry.name);
        ReplyDirectory::add(
            self,
            INodeNo(entry.ino),
            entry.cookie,
            file_type(entry.kind),
            name,
        )
    }

    fn send(self) {
        self.ok();
    }

    fn fail(self, errno: Errno) {
        self.error(errno);
    }
}

impl Listing for ReplyDirectoryPlus {
    const PLUS: bool = true;

    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        let name = OsStr::from_bytes(entry.name);
        let (node, attr) = match &entry.attr {
            Some(attr) => (nodeid(attr.node), file_attr(attr)),
            None => (INodeNo(0), name_only(entry)),
        };
        ReplyDirectoryPlus::add(self, node, entry.cookie, name, &FOREVER, &attr, GENERATION)
    }

    fn send(self) {
        self.ok();
    }

    fn fail(self, errno: Errno) {
        self.error(errno);
    }
}

/// Attributes of an entry that has none: with node id 0 the kernel reads number and type alone.
fn name_only(entry: &DirEntry<'_>) -> FileAttr {
    blank_attr(INodeNo(entry.ino), file_type(entry.kind))
}

/// A listing under way.
struct Stream<L> {
    reply: L,
    dir: NodeId,
    cookie: u64,
    added: usize,
}

impl<L: Listing> Stream<L> {
    /// Adds entries until the buffer is full.
    fn fill(&mut self, ws: &Workspace, wait: Wait) -> Result<(), Error> {
        let Stream {
            reply,
            dir,
            cookie,
            added,
        } = self;
        ws.readdir(*dir, *cookie, L::PLUS, wait, &mut |entry| {
            let fits = !reply.add(entry);
            *added += usize::from(fits);
            fits
        })
    }
}

impl Front {
    /// Answers READDIR or READDIRPLUS.
    pub(crate) fn list<L: Listing>(&self, op: Op, dir: INodeNo, cookie: u64, reply: L) {
        let ticket = self.0.begin(op);
        let mut stream = Stream {
            reply,
            dir: node(dir),
            cookie,
            added: 0,
        };
        let filled = self.0.guarded(|ws| Ok(stream.fill(ws, Wait::Never)?));
        match filled {
            Err(failure) if failure.would_block() && stream.added == 0 => {
                self.list_later(ticket, op, stream);
            }
            filled => self.end_listing(ticket, op, stream, filled),
        }
    }

    /// Goes on with a listing that has to wait for the disk.
    fn list_later<L: Listing>(&self, ticket: Ticket, op: Op, mut stream: Stream<L>) {
        let front = self.clone();
        self.0.pool.run(move || {
            let filled = front.0.guarded(|ws| Ok(stream.fill(ws, Wait::Allowed)?));
            front.end_listing(ticket, op, stream, filled);
        });
    }

    /// Sends a listing. What was added counts as looked up, so it is sent whatever came after; the
    /// kernel then asks for the rest and gets the error, if it lasts.
    fn end_listing<L: Listing>(
        &self,
        ticket: Ticket,
        op: Op,
        stream: Stream<L>,
        filled: crate::serve::Outcome<()>,
    ) {
        match filled {
            Err(failure) if stream.added == 0 => stream.reply.fail(failure.errno(op)),
            _ => stream.reply.send(),
        }
        self.0.end(ticket);
    }
}
