//! What a remote has and keeps of what is here, for who wants to drop it (docs/remote.md, 9).
//!
//! The refs are read first, then the generation: what that has now, and a ref reaches, stays as long as nobody replaces
//! that ref by what is no descendant of it. A ref may be ahead of what is here. Its commits are read then, in memory, until
//! those are met that are here.
//!
//! Tests: `remote/tests/near.rs`.

use super::Near;
use crate::bucket::Bucket;
use crate::error::{Error, Result};
use crate::layout::catalog::BranchName;
use crate::layout::pack_name;
use crate::limits::{AHEAD_MAX, NEAR_BYTES};
use crate::remote::Generation;
use objstore::elsewhere::{Backing, Branches};
use objstore::exchange::{Record, commit_key, references};
use objstore::{CommitId, Key, Kind, ObjectStore};
use std::collections::{HashMap, HashSet};

/// A generation of a remote, and the commits of it that are here and that its refs reach.
#[derive(Debug)]
struct Held {
    generation: Generation,
    commits: Vec<CommitId>,
}

impl Backing for Held {
    fn commits(&self) -> &[CommitId] {
        &self.commits
    }

    fn find(&self, key: &Key) -> Option<u64> {
        let range = self.generation.find(key)?.place.range();
        Some(range.end - range.start)
    }
}

impl Near {
    /// Looks anew at what the remote has, and which commits that are here these branches reach.
    ///
    /// # Errors
    ///
    /// The remote cannot be read, or is damaged.
    pub fn held(&self, store: &ObjectStore, of: &Branches) -> Result<Box<dyn Backing>> {
        let mut next = Vec::new();
        for branch in &of.names {
            let name = BranchName {
                project: of.project.clone(),
                branch: branch.clone(),
            };
            let found = self.remote.reference(&name)?.map(|(found, _)| found);
            let labels = |found: &crate::layout::reference::RemoteRef| {
                let labels = found.labels.iter().map(|(_, id)| *id);
                labels.chain([found.commit]).collect::<Vec<_>>()
            };
            next.extend(found.iter().flat_map(labels));
        }
        let generation = self.remote.generation()?;
        let commits = self.reached(store, &generation, next)?;
        Ok(Box::new(Held {
            generation,
            commits,
        }))
    }

    /// The commits that are here of those that are reached, without their ancestors.
    fn reached(
        &self,
        store: &ObjectStore,
        generation: &Generation,
        mut next: Vec<CommitId>,
    ) -> Result<Vec<CommitId>> {
        let (mut seen, mut here) = (HashSet::new(), Vec::new());
        let mut near = HashMap::new();
        let mut read = 0;
        while let Some(id) = next.pop() {
            if !seen.insert(id) {
                continue;
            }
            if store.contains(Kind::Commit, id.as_bytes()) {
                here.push(id);
                continue;
            }
            read += 1;
            // What lies behind is taken for what the remote does not keep.
            if read > AHEAD_MAX {
                break;
            }
            if let Some(parents) = self.parents(generation, &id, &mut near)? {
                next.extend(parents);
            }
        }
        Ok(here)
    }

    /// The parents of a commit, read with those that lie near it; `None` where the remote does not have it.
    fn parents(
        &self,
        generation: &Generation,
        id: &CommitId,
        near: &mut HashMap<CommitId, Vec<CommitId>>,
    ) -> Result<Option<Vec<CommitId>>> {
        if let Some(parents) = near.remove(id) {
            return Ok(Some(parents));
        }
        let key = commit_key(id);
        let Some(found) = generation.find(&key) else {
            return Ok(None);
        };
        let name = pack_name(&found.pack.hash);
        let own = found.place.range();
        let range = own.start.saturating_sub(NEAR_BYTES)..own.end;
        let beside = generation.commits_within(&found.pack.hash, &range);
        let from = beside.iter().map(|(_, place)| place.range().start).min();
        let start = from.unwrap_or(own.start);
        let bytes = self.remote.bucket().get_range(&name, start..own.end)?;
        let bytes = bytes.ok_or_else(|| Error::Missing { name: name.clone() })?;
        for (key, place) in beside {
            let range = place.range();
            let part = bytes.get((range.start - start) as usize..(range.end - start) as usize);
            // One that came damaged is read alone when it is wanted.
            if let Some(Ok(record)) = part.map(|part| Record::parse(&key, part.to_vec())) {
                near.insert(CommitId::from_bytes(key.1), parents_in(&record)?);
            }
        }
        match near.remove(id) {
            Some(parents) => Ok(Some(parents)),
            None => parents_in(&self.remote.record(&key, &found)?).map(Some),
        }
    }
}

fn parents_in(record: &Record) -> Result<Vec<CommitId>> {
    let damaged = |what| Error::Damaged {
        name: format!("commit {}", objstore::exchange::key_hex(&record.key().1)),
        what,
    };
    let content = record.content().map_err(damaged)?;
    Ok(references(Kind::Commit, &content).map_err(damaged)?.parents)
}
