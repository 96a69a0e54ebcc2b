//! What programs do that changes nothing: opens and reads, what they execute and connect to, for those who follow the feed.
//!
//! The front tells of opens where it is asked for them, and sources beside it of what they hear from the kernel. Invariant:
//! nothing here changes a tree, waits for the disk or, while nobody follows and no rule is about opens, takes a lock.

use super::Workspace;
use crate::branch::Branch;
pub use crate::branch::opens::Terms;
use crate::error::Result;
use crate::feed::FeedOp;
use crate::types::{NodeId, Opening};
use std::borrow::Cow;
use std::sync::{Arc, Weak};

/// The branch in which a program is at work, whatever it is called. It does not keep the branch.
#[derive(Clone, Debug)]
pub struct Scene(Weak<Branch>);

impl Scene {
    /// Whether both are the same branch.
    pub fn is(&self, other: &Scene) -> bool {
        self.0.ptr_eq(&other.0)
    }

    /// Whether the branch is there no more.
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// What a program did, as it was heard of beside the mount.
#[derive(Clone, Copy, Debug)]
pub struct Deed<'a> {
    /// What.
    pub op: FeedOp,
    /// The file that it is about, if that is in the mount.
    pub node: Option<NodeId>,
    /// Its path as the program sees it; for what is not in the mount.
    pub path: &'a [u8],
    /// What else there is to say.
    pub detail: &'a str,
}

impl Workspace {
    /// A program opens a file, and whoever tells of it here can refuse that. Called for whom this thread acts
    /// ([`crate::acting_for`]).
    ///
    /// # Errors
    /// [`crate::Error::Denied`] if a rule denies it.
    pub fn opens(&self, node: NodeId, how: Opening) -> Result<()> {
        let is_watched = self.judge_open(node, None)?;
        self.tell_use(FeedOp::Open, node, is_watched, &|| words(how));
        Ok(())
    }

    /// Whether a program may open a file, which nobody is told of but by a verdict.
    ///
    /// # Errors
    /// As [`Workspace::opens`], and [`crate::Error::WouldBlock`] if it takes longer than the terms say.
    pub fn may_open(&self, node: NodeId, terms: Terms) -> Result<()> {
        self.judge_open(node, Some(terms)).map(drop)
    }

    fn judge_open(&self, node: NodeId, terms: Option<Terms>) -> Result<bool> {
        match self.route(node) {
            Ok((branch, nid)) if self.judges().want_opens() => branch.may_open(nid, terms),
            _ => Ok(false),
        }
    }

    /// A program has opened a file.
    pub fn was_opened(&self, node: NodeId, how: Opening) {
        self.tell_use(FeedOp::Open, node, false, &|| words(how));
    }

    /// A program has read a file, from the kernel's cache or not.
    pub fn was_read(&self, node: NodeId) {
        self.tell_use(FeedOp::Read, node, false, &|| Cow::default());
    }

    /// A branch as the scene of what programs do.
    pub fn scene(&self, branch: &str) -> Result<Scene> {
        Ok(Scene(Arc::downgrade(&self.branch(branch)?)))
    }

    /// A program at work in a branch has done something. Called for whom this thread acts. What is done with a file of
    /// a branch is told of that, otherwise of the scene; of a scene that is gone nothing is told.
    pub fn did(&self, scene: &Scene, deed: Deed<'_>) {
        if !self.views.shared().feed.is_on() {
            return;
        }
        let detail = || deed.detail.to_owned().into();
        let found = deed.node.and_then(|node| self.route(node).ok());
        match (found, scene.0.upgrade()) {
            (Some((branch, nid)), _) if !branch.read_only => {
                branch.tell_use(deed.op, nid, false, &detail);
            }
            (_, Some(branch)) => branch.tell_deed(deed.op, deed.path, &detail),
            _ => {}
        }
    }

    fn tell_use(
        &self,
        op: FeedOp,
        node: NodeId,
        is_watched: bool,
        detail: &dyn Fn() -> Cow<'static, str>,
    ) {
        if self.views.shared().feed.is_on()
            && let Ok((branch, nid)) = self.route(node)
        {
            branch.tell_use(op, nid, is_watched, detail);
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
