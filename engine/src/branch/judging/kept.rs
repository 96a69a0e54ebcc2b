//! Keeping what a branch showed when a rule began to count: as a pinned tree meanwhile, and as an automatic commit once the
//! rule denies something.
//!
//! Invariant: when somebody is told of a rule's first denial, by the error or by an event, that commit survives a power cut.
//! Only where it cannot be made now, because a file's pages are fenced or the disk fails, is the change denied without it, and
//! the commit made in the background as soon as it can be.
//!
//! Tests: `engine/tests/judging/cut.rs`.

use super::super::{Branch, Inner, states};
use super::Judging;
use crate::error::Result;
use crate::judge::Ruling;
use crate::record::OpKind;
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::time::Instant;

/// A tree that was shown when a rule began to count.
#[derive(Debug)]
pub(super) struct Before {
    /// Number of its pin.
    pub pin: u64,
    /// When it is not needed any more.
    pub until: Instant,
}

/// A pinned tree that is to become an automatic commit.
#[derive(Debug)]
pub(super) struct Due {
    /// Number of its pin.
    pin: u64,
    /// The rule because of which it is kept.
    rule: Arc<str>,
    /// Version of the rules.
    version: u64,
    /// It could not be made: nobody waits for it any more.
    has_failed: bool,
}

/// Makes commits of the trees because of which rules denied something, and lets go of those that are not needed.
pub(crate) fn keep_due(branch: &Branch) {
    let is_due = {
        let mut inner = branch.lock();
        inner.drop_old_trees();
        !inner.judging.due.is_empty() && inner.fence.is_none()
    };
    if is_due && let Err(e) = keep_all_due(branch) {
        tracing::warn!("{}: no automatic commit for a rule yet: {e}", branch.name());
    }
}

/// Makes them before anybody is told of a denial, and brings them to stable storage; the lock is let go of.
pub(in crate::branch) fn keep_first(branch: &Branch, inner: MutexGuard<'_, Inner>) {
    drop(inner);
    if let Err(e) = keep_all_due(branch).and_then(|()| branch.sync()) {
        tracing::warn!("{}: no automatic commit for a rule: {e}", branch.name());
        let mut inner = branch.lock();
        inner
            .judging
            .due
            .iter_mut()
            .for_each(|due| due.has_failed = true);
    }
}

fn keep_all_due(branch: &Branch) -> Result<()> {
    let mut inner = branch.lock_synced()?;
    while inner.fence.is_none()
        && let Some(due) = inner.judging.due.pop()
    {
        let Some(tree) = inner.pins.release(due.pin) else {
            continue;
        };
        let message = format!("before rule {} denied something", due.rule);
        let version = due.version.to_string();
        let meta = [("policy-rule", &*due.rule), ("policy-version", &*version)];
        let meta = meta.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let author = &branch.auto.author;
        let info = states::new_state(&inner, OpKind::Auto, author, message, meta.into());
        if let Err(error) = branch.keep_tree(&mut inner, info, tree.clone()) {
            let pin = inner.pins.hold(tree);
            inner.judging.due.push(Due { pin, ..due });
            return Err(error);
        }
    }
    drop(inner);
    branch.signal();
    Ok(())
}

impl Inner {
    /// A rule denies a change: if that is its first one, what was shown when it began to count is to be a commit. True where
    /// that must be waited for.
    pub(super) fn keeps_before(&mut self, ruling: &Ruling) -> bool {
        let Some((number, rule)) = &ruling.rule else {
            return false;
        };
        let Judging {
            before,
            due,
            version,
            ..
        } = &mut self.judging;
        if ruling.is_first
            && let Some(before) = before.remove(number)
        {
            due.push(Due {
                pin: before.pin,
                rule: rule.clone(),
                version: *version,
                has_failed: false,
            });
        }
        let is_awaited = |due: &Due| due.rule == *rule && !due.has_failed;
        self.fence.is_none() && due.iter().any(is_awaited)
    }

    /// Lets go of trees of rules whose time is over.
    fn drop_old_trees(&mut self) {
        let now = Instant::now();
        let is_old = |before: &&Before| before.until <= now;
        let all = self.judging.before.values();
        let old: Vec<u64> = all.filter(is_old).map(|b| b.pin).collect();
        self.judging.before.retain(|_, before| before.until > now);
        old.into_iter().for_each(|pin| drop(self.pins.release(pin)));
    }
}
