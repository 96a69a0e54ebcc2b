//! Answers to the announcing thread's own calls: from the tree as it is, changing nothing.

use crate::announce::Own;
use crate::probe;
use crate::serve::{Front, Outcome};
use crate::wire::{Answer, Header, blank};
use engine::Error;
use engine::types::{Attr, Kind, NodeId, Wait};
use rustix::io::Errno;
use std::time::Duration;

impl Front {
    /// LOOKUP of a name that is announced: of one that is about to be made, that it is missing; of one
    /// that is about to be removed and is gone, that it is there. `None` where the tree is to be asked.
    pub(crate) fn lookup_own(
        &self,
        own: Own,
        parent: NodeId,
        name: &[u8],
    ) -> Outcome<Option<Answer>> {
        match own {
            Own::Makes => Err(Errno::NOENT.into()),
            Own::Removes(kind) if self.is_gone(parent, name, kind) => {
                let node = probe::made_up(self.0.announcer.next_made_up());
                let attr = made_up(node, kind);
                Ok(Some(Answer::Entry(attr, Duration::ZERO)))
            }
            _ => Ok(None),
        }
    }

    /// MKNOD, MKDIR or SYMLINK of a name that is there already.
    pub(crate) fn make_own(
        &self,
        parent: NodeId,
        name: &[u8],
        bits: u32,
        wait: Wait,
    ) -> Outcome<Attr> {
        let ws = &self.0.ws.0;
        let attr = ws.lookup(parent, name, wait)?;
        if Kind::of_mode(bits) == Some(attr.kind) {
            return Ok(attr);
        }
        ws.forget(attr.node, 1);
        Err(Error::Exists.into())
    }

    /// UNLINK or RMDIR of a name that is gone already.
    pub(crate) fn remove_own(&self, own: Own, parent: NodeId, name: &[u8]) -> Outcome<()> {
        match own {
            Own::Removes(kind) if self.is_gone(parent, name, kind) => Ok(()),
            _ => Err(Errno::NOENT.into()),
        }
    }

    /// What the announcing thread is about, if it is that which asks.
    pub(crate) fn own(&self, from: &Header) -> Option<Own> {
        self.0.announcer.own(from.pid)
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
}

/// What a name that is gone shows until it is removed: the daemon's own, so that it may be.
fn made_up(node: NodeId, kind: Kind) -> Attr {
    Attr {
        node,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..blank(node.0, kind)
    }
}
