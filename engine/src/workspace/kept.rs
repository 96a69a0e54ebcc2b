//! A workspace whose mount outlived its daemon: requests that come again, and what the kernel still holds.

use super::Workspace;
use crate::branch::Branch;
use crate::branch::outcomes::RequestId;
use crate::error::Result;
use crate::ops;
use crate::record::Outcome;
use crate::types::{Attr, Nid, NodeId};

/// What the kernel is asked about an inode that it may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Whether it holds it.
    Held,
    /// The same, and it is to drop what it has cached of it.
    Drop,
}

impl Workspace {
    /// What became of a request of the kernel about `node` that a daemon before carried out; `None` where it
    /// did not.
    pub fn outcome(&self, node: NodeId, request: RequestId) -> Option<Outcome> {
        let (branch, _) = self.route(node).ok()?;
        let inner = branch.lock();
        inner.outcomes.of(request)
    }

    /// Attributes of the inode `nid` of the branch of `node`, which is handed to the kernel under a name that a
    /// request gave it: counts a lookup.
    ///
    /// # Errors
    /// `Stale` where it is gone.
    pub fn handed_again(&self, node: NodeId, nid: u64) -> Result<Attr> {
        let (branch, _) = self.route(node)?;
        ops::names::handed_again(&branch, Nid(nid))
    }

    /// The same for an inode that the request made: in `parent` under this name, or without any.
    ///
    /// # Errors
    /// `Stale` where it is gone.
    pub fn made_again(&self, parent: NodeId, name: Option<&[u8]>, nid: u64) -> Result<Attr> {
        let (branch, dir) = self.route(parent)?;
        ops::names::made_again(&branch, dir, name, Nid(nid))
    }

    /// No request comes any more that a daemon before got.
    pub fn requests_settled(&self) {
        for branch in self.views.branches() {
            branch.lock().outcomes.forget_before();
        }
    }

    /// True where a switch may not have ended when the daemon before died: the kernel may show names of before it.
    pub fn may_show_before(&self) -> bool {
        let branches = self.views.branches();
        branches.iter().any(|b| !b.lock().cut_off.is_empty())
    }

    /// The kernel may have other sizes of files than the workspace: requests failed though they were carried out.
    pub fn doubt_kernel(&self) {
        for branch in self.views.branches() {
            branch.lock().doubt_sizes();
        }
    }

    /// Finds out what the kernel holds of what a daemon before handed to it: `ask` is asked about each inode that it
    /// may hold. What it does not hold and has no name goes.
    pub fn settle_held(&self, ask: &mut dyn FnMut(NodeId, Look) -> bool) {
        let free = self.views.free_slots().into_iter();
        let root = |slot| NodeId::new(slot, Nid::ROOT);
        self.views
            .lose_slots(free.filter(|slot| ask(root(*slot), Look::Held)));
        for branch in self.views.branches() {
            settle_branch(&branch, ask);
        }
    }
}

fn settle_branch(branch: &Branch, ask: &mut dyn FnMut(NodeId, Look) -> bool) {
    let cut_off = branch.lock().cut_off.clone();
    let look = match cut_off.is_empty() {
        true => Look::Held,
        false => Look::Drop,
    };
    settle_inodes(branch, look, ask);
    branch.lock().lookups.settle();
    if !cut_off.is_empty() {
        branch.lock().cut_off.clear();
        branch.signal();
    }
}

fn settle_inodes(branch: &Branch, look: Look, ask: &mut dyn FnMut(NodeId, Look) -> bool) {
    // Who holds anything below a directory holds the directory.
    if !ask(branch.node(Nid::ROOT), look) {
        return branch.lock().held_nothing();
    }
    let mut from = 0;
    loop {
        let next = branch.lock().lookups.maybe_held(from);
        let Some((found, end)) = next else {
            return;
        };
        from = end;
        // Not under the lock: the kernel may ask something meanwhile.
        let gone: Vec<Nid> = found
            .into_iter()
            .filter(|nid| !ask(branch.node(*nid), look))
            .collect();
        let mut inner = branch.lock();
        for nid in gone {
            if inner.lookups.was_not_held(nid) {
                inner.reap(nid);
            }
        }
    }
}
