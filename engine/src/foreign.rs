//! Commits of other branches: made states of a branch that somebody refers to them from.

use crate::branch::Branch;
use crate::branch_refs::{deleted_dir, deleted_record};
use crate::control::Target;
use crate::error::{Error, Result};
use crate::record::{Event, OpKind, StateInfo};
use crate::types::Time;
use crate::workspace::Workspace;
use objstore::{Commit, CommitId, HexPrefix};
use std::collections::BTreeSet;

impl Workspace {
    /// Makes what a reference of another branch (`BRANCH:LABEL`), or the id of a commit that this branch
    /// does not know, names a state of `branch`; returns what names it there.
    pub(crate) fn import_ref(&self, branch: &Branch, target: &Target) -> Result<Target> {
        let Target::Ref(text) = target else {
            return Ok(target.clone());
        };
        // What the other has may expire before this one has it, and gc may look in between.
        let _pin = branch.places.store.pin();
        let other = match text.split_once(':') {
            Some((name, _)) if name != branch.name() => Some(self.branch(name)?),
            _ => None,
        };
        let id = match other {
            Some(other) => {
                let state = other.lock().history.resolve(&other.name(), text)?;
                other.wait_for_id(state, &|_, _| {})?
            }
            None => match branch.resolve(target) {
                Err(Error::NoSuchRef(_)) => match self.stored_commit(text)? {
                    Some(id) => id,
                    None => return Ok(target.clone()),
                },
                _ => return Ok(target.clone()),
            },
        };
        branch.know(id)?;
        Ok(Target::Ref(id.to_string()))
    }

    /// The last commit of a branch that was deleted, by its id or a unique prefix.
    fn stored_commit(&self, text: &str) -> Result<Option<CommitId>> {
        let Ok(prefix) = HexPrefix::parse(text) else {
            return Ok(None);
        };
        let refs = self.views.refs();
        let mut found = BTreeSet::new();
        for name in refs.list(&deleted_dir(self.name()))? {
            let Some(bytes) = refs.get(&name)? else {
                continue;
            };
            let Some(record) = deleted_record(&name, &bytes)? else {
                continue;
            };
            if prefix.matches(record.last.as_bytes()) {
                found.insert(record.last);
            }
        }
        if found.len() > 1 {
            return Err(Error::AmbiguousRef {
                prefix: text.to_owned(),
                count: found.len(),
            });
        }
        Ok(found.pop_first())
    }
}

impl Branch {
    /// Makes a commit that is in the store a state of this branch; returns its number.
    pub(crate) fn know(&self, id: CommitId) -> Result<u64> {
        let commit: Commit = self.places.store.get_object(&id)?;
        let mut inner = self.lock_synced()?;
        let known = |id: &CommitId| {
            let mut all = inner.history.states.values();
            all.find(|s| s.info.id == Some(*id)).map(|s| s.info.number)
        };
        if let Some(number) = known(&id) {
            return Ok(number);
        }
        let info = StateInfo {
            number: inner.counters.state,
            kind: OpKind::Foreign,
            asked: false,
            time: Time {
                sec: commit.time_sec,
                nsec: commit.time_nsec,
            },
            author: commit.author,
            message: commit.message,
            meta: commit.meta,
            parents: commit.parents.iter().filter_map(known).collect(),
            id: Some(id),
        };
        self.record(Event::Known { info: info.clone() }, &[])?;
        inner.counters.state += 1;
        let number = info.number;
        inner.history.know(info);
        Ok(number)
    }
}
