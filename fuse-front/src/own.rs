//! Answers to the announcing thread's own calls: from the tree as it is, changing nothing.

use crate::announce::Own;
use crate::attr::{blank_attr, file_type};
use crate::probe;
use crate::serve::{Answer, Front, GENERATION};
use crate::stats::Op;
use engine::Error;
use engine::types::{Attr, Kind, NodeId, Wait};
use fuser::{Errno, FileAttr, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, Request};
use std::time::Duration;

impl Front {
    /// LOOKUP of a name that is announced: of one that is about to be made, that it is missing; of one
    /// that is about to be removed and is gone, that it is there. Gives the reply back where the tree
    /// is to be asked.
    pub(crate) fn lookup_own(
        &self,
        own: Option<Own>,
        parent: NodeId,
        name: &[u8],
        reply: ReplyEntry,
    ) -> Option<ReplyEntry> {
        match own {
            Some(Own::Makes) => reply.error(Errno::ENOENT),
            Some(Own::Removes(kind)) if self.is_gone(parent, name, kind) => {
                let node = probe::made_up(self.0.announcer.next_made_up());
                let attr = made_up(node, kind);
                reply.entry_with_nodeid(node, &Duration::ZERO, &attr, GENERATION);
            }
            _ => return Some(reply),
        }
        None
    }

    /// MKNOD, MKDIR or SYMLINK of a name that is there already.
    pub(crate) fn make_own(
        &self,
        op: Op,
        parent: NodeId,
        name: Vec<u8>,
        bits: u32,
        reply: ReplyEntry,
    ) {
        self.serve(op, reply, move |ws, wait| -> Result<Attr, Error> {
            let attr = ws.lookup(parent, &name, wait)?;
            if Kind::of_mode(bits) == Some(attr.kind) {
                return Ok(attr);
            }
            ws.forget(attr.node, 1);
            Err(Error::Exists)
        });
    }

    /// UNLINK or RMDIR of a name that is gone already.
    pub(crate) fn remove_own(
        &self,
        own: Own,
        op: Op,
        parent: NodeId,
        name: &[u8],
        reply: ReplyEmpty,
    ) {
        let gone = matches!(own, Own::Removes(kind) if self.is_gone(parent, name, kind));
        match gone {
            true => self.done(op, reply),
            false => self.refuse(op, reply, Errno::ENOENT),
        }
    }

    /// SETATTR of what is so already.
    pub(crate) fn touch_own(&self, node: NodeId, reply: ReplyAttr) {
        self.serve(Op::Setattr, reply, move |ws, _| ws.getattr(node));
    }

    /// What the announcing thread is about, if it is that which asks.
    pub(crate) fn own(&self, req: &Request) -> Option<Own> {
        self.0.announcer.own(req.pid())
    }

    /// Whether the name is missing, or was a directory's and is none's now, or the other way round:
    /// then the kernel's own checks see to it that it is not taken for what has come in its place.
    fn is_gone(&self, parent: NodeId, name: &[u8], was: Kind) -> bool {
        let ws = &self.0.ws.0;
        match ws.lookup(parent, name, Wait::Never) {
            Ok(attr) => {
                ws.forget(attr.node, 1);
                (attr.kind == Kind::Dir) != (was == Kind::Dir)
            }
            Err(error) => matches!(error, Error::NotFound),
        }
    }

    /// Answers a request that needs nothing done.
    pub(crate) fn done<R: Answer<()>>(&self, op: Op, reply: R) {
        let ticket = self.0.begin(op);
        self.0.finish(ticket, reply, Ok(()));
    }
}

/// What a name that is gone shows until it is removed: the daemon's own, so that it may be.
fn made_up(node: INodeNo, kind: Kind) -> FileAttr {
    FileAttr {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..blank_attr(node, file_type(kind))
    }
}
