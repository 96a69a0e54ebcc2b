//! Whether what differs between a call's beginning and its end is what it changed, and nothing else.
//!
//! It is, where nobody else changed the branch meanwhile. What a call that is part of it changed is its own, and
//! what it is part of is taken to wait for it. Of one that ran at the same time otherwise it is not known whose a
//! change of that time was. So the two are told apart only where the branch was the same when the later of them
//! began as when the first of them ended: each one's change is then that of the time that it had for itself.
//!
//! Invariant: a doubt is never passed over; whoever takes a call back asks here first.

use super::blame::different;
use super::read::TimelineItem;
use crate::branch::Branch;
use crate::error::{Error, Result};
use crate::record::call::{EndedBy, OVERLAPS_MAX, StateRef};
use crate::workspace::Workspace;
use objstore::{Body, Commit, TreeEntry};
use std::collections::{BTreeMap, BTreeSet};

/// Why it is not known what a call changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Why.
    pub why: String,
    /// Calls that have not ended and that it is for.
    pub pending: Vec<u64>,
}

impl Workspace {
    /// Why it is not known what a call changed, where that is so. Waits until what there was before and after
    /// it is stored. [`Error::NoSuchCall`].
    pub fn call_doubt(&self, branch: &str, id: u64) -> Result<Option<Doubt>> {
        let b = self.branch(branch)?;
        let _pin = b.places.store.pin();
        let item = b.call(id)?;
        b.doubt_of(id, &item)
    }
}

impl Branch {
    pub(crate) fn doubt_of(&self, id: u64, item: &TimelineItem) -> Result<Option<Doubt>> {
        let doubt = |why: &str| {
            let (why, pending) = (why.to_owned(), Vec::new());
            Ok(Some(Doubt { why, pending }))
        };
        if let Some(together) = self.together(item)? {
            return Ok(Some(together));
        }
        if !item.switches.is_empty() {
            return doubt("the branch was rolled back, merged or restored while it ran");
        }
        if item.ended_by == Some(EndedBy::Nobody) {
            return doubt("its end was not reported, so the time of its end is not known");
        }
        match (item.before, item.after) {
            (Some(_), Some(_)) => Ok(None),
            (Some(_), None) => Ok(Some(Doubt {
                why: "it has not ended".to_owned(),
                pending: vec![id],
            })),
            _ => doubt("it was imported without its files"),
        }
    }

    /// The calls that ran at the same time, where what changed meanwhile may be theirs.
    fn together(&self, item: &TimelineItem) -> Result<Option<Doubt>> {
        if item.overlaps.is_empty() {
            return Ok(None);
        }
        let others = self.calls_of(&item.overlaps)?;
        let mut doubtful = Vec::new();
        for id in &item.overlaps {
            // Of more than are remembered it is not known which are missing.
            let idle = item.overlaps.len() < OVERLAPS_MAX
                && match others.get(id) {
                    Some(other) => self.idle_together(item, other)?,
                    None => false,
                };
            if !idle {
                doubtful.push(*id);
            }
        }
        if doubtful.is_empty() {
            return Ok(None);
        }
        let runs = |id: &&u64| others.get(*id).is_some_and(|o| o.completed.is_none());
        let pending: Vec<u64> = doubtful.iter().filter(runs).copied().collect();
        let named: Vec<String> = doubtful.iter().map(u64::to_string).collect();
        let mut why = format!("it ran at the same time as {}", named.join(", "));
        if !pending.is_empty() {
            let named: Vec<String> = pending.iter().map(u64::to_string).collect();
            let have = if pending.len() == 1 { "has" } else { "have" };
            why.push_str(&format!(", of which {} {have} not ended", named.join(", ")));
        }
        Ok(Some(Doubt { why, pending }))
    }

    /// Calls by their ids, without texts.
    fn calls_of(&self, ids: &[u64]) -> Result<BTreeMap<u64, TimelineItem>> {
        let mut missing: BTreeSet<u64> = ids.iter().copied().collect();
        let mut found = BTreeMap::new();
        self.timeline_each(&mut |mut item| {
            let call = item.call.filter(|_| item.switch.is_none());
            if let Some(id) = call.filter(|id| missing.remove(id)) {
                (item.parameters, item.result, item.error) = (None, None, None);
                found.insert(id, item);
            }
            Ok(!missing.is_empty())
        })?;
        Ok(found)
    }

    /// True where nothing changed while both ran.
    fn idle_together(&self, one: &TimelineItem, other: &TimelineItem) -> Result<bool> {
        let later = if one.entry > other.entry { one } else { other };
        let first_to_end = match (one.ended, other.ended) {
            (Some(a), Some(b)) if b < a => other,
            (Some(_), Some(_)) => one,
            (Some(_), None) if other.completed.is_none() => one,
            // One was told of when it was over: where it began is not known.
            _ => return Ok(false),
        };
        match (later.before, first_to_end.after) {
            (Some(began), Some(ended)) => self.same_state(began, ended),
            _ => Ok(false),
        }
    }

    fn same_state(&self, a: StateRef, b: StateRef) -> Result<bool> {
        if a.state == b.state {
            return Ok(true);
        }
        let (Some(a), Some(b)) = (self.commit_if_kept(a)?, self.commit_if_kept(b)?) else {
            return Ok(false);
        };
        let entry = |commit: &Commit| TreeEntry {
            name: Vec::new(),
            meta: commit.root_meta.clone(),
            body: Body::Dir(commit.root),
        };
        let differ = different(&self.places.store, Some(&entry(&a)), Some(&entry(&b)), true)?;
        Ok(!differ && a.kv == b.kv)
    }

    fn commit_if_kept(&self, state: StateRef) -> Result<Option<Commit>> {
        match self.kept_commit(0, state) {
            Ok(id) => Ok(Some(self.places.store.get_object(&id)?)),
            // Such a state has gone with its age.
            Err(Error::CallUnknown { .. } | Error::NoSuchRef(_)) => Ok(None),
            Err(e) => Err(e),
        }
    }
}
