//! What programs do with files that changes nothing: opens and reads, for those who follow the feed.
//!
//! The front tells of opens where it is asked for them, and sources beside it of what they hear from the kernel. Invariant:
//! nothing here changes a tree, waits for the disk or, while nobody follows, takes a lock.

use super::Workspace;
use crate::error::Result;
use crate::feed::FeedOp;
use crate::types::{NodeId, Opening};
use std::borrow::Cow;

impl Workspace {
    /// A program opens a file. Called for whom this thread acts ([`crate::acting_for`]).
    ///
    /// # Errors
    /// None yet: an open that is not to be would be refused here.
    pub fn opened(&self, node: NodeId, how: Opening) -> Result<()> {
        self.tell_use(FeedOp::Open, node, &|| words(how));
        Ok(())
    }

    /// A program has read a file, from the kernel's cache or not.
    pub fn was_read(&self, node: NodeId) {
        self.tell_use(FeedOp::Read, node, &|| Cow::default());
    }

    fn tell_use(&self, op: FeedOp, node: NodeId, detail: &dyn Fn() -> Cow<'static, str>) {
        if self.views.shared().feed.is_on()
            && let Ok((branch, nid)) = self.route(node)
        {
            branch.tell_use(op, nid, detail);
        }
    }
}

/// How a file is opened, in words.
fn words(how: Opening) -> Cow<'static, str> {
    let all = [
        ("read", how.read),
        ("write", how.write),
        ("append", how.append),
        ("exec", how.exec),
    ];
    let said: Vec<_> = all.iter().filter(|(_, is)| *is).map(|(w, _)| *w).collect();
    said.join(" ").into()
}
