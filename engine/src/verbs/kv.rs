//! Keys and values by name: reading, setting and removing them, now and in states.

use super::{DiffSide, StateReader};
use crate::branch::states;
use crate::branch::states::Target;
use crate::branch::{Branch, Inner};
use crate::clock;
use crate::error::{Error, Result};
use crate::kv::{self, KvEntry, KvMap};
use crate::record::Mutation;
use crate::types::Wait;
use crate::verbs::branches;
use crate::workspace::Workspace;
use std::sync::Arc;

/// Sets a key, or removes it; `make` makes its entry of the one that is there. Not synced.
fn kv_change(
    branch: &Branch,
    key: &str,
    make: &dyn Fn(Option<&KvEntry>) -> Option<KvEntry>,
) -> Result<Option<Arc<KvEntry>>> {
    branch.request(Wait::Allowed, |inner| {
        let before = inner.live.kv().get(key);
        let entry = make(before.map(|e| &**e)).map(Box::new);
        if entry.is_none() && before.is_none() {
            return Ok(None);
        }
        if let Some(new) = &entry {
            branch.check_space(new.value.len() as u64)?;
            check_total(inner, key, new)?;
        }
        let key = key.to_owned();
        branch.change(
            inner,
            Mutation::Kv {
                key: key.clone(),
                entry,
            },
            &[],
        )?;
        Ok(inner.live.kv().get(&key).cloned())
    })
}

fn kv_of_state(branch: &Branch, state: u64) -> Result<KvMap> {
    // Until it is read, gc must not take what it is in.
    let _pin = branch.places.store.pin();
    let id = {
        let inner = branch.lock();
        if let Some(tree) = inner.book.history.tree(state) {
            return Ok(tree.kv().clone());
        }
        inner.book.history.state(state)?.info.id
    };
    match id {
        None => Ok(states::tree_of(branch, state)?.kv().clone()),
        Some(id) => kv::stored::of_commit(&branch.places.store, &id),
    }
}

fn check_total(inner: &Inner, key: &str, new: &KvEntry) -> Result<()> {
    let mut after = inner.live.kv().clone();
    after.insert(key, Arc::new(new.clone()));
    kv::check_bytes(&after)
}

/// The entry of a key of a branch.
pub fn kv_get(ws: &Workspace, branch: &str, key: &str) -> Result<Option<Arc<KvEntry>>> {
    Ok(ws.branch(branch)?.lock().live.kv().get(key).cloned())
}

/// Sets a key to a value, which must be JSON. Durable after `Ok`.
pub fn kv_set(ws: &Workspace, branch: &str, key: &str, json: &str) -> Result<Arc<KvEntry>> {
    let branch = ws.branch(branch)?;
    let entry = set_in(&branch, key, json)?;
    branch.sync()?;
    Ok(entry)
}

/// The same, durable together with whatever is made durable next.
pub fn kv_set_unsynced(
    ws: &Workspace,
    branch: &str,
    key: &str,
    json: &str,
) -> Result<Arc<KvEntry>> {
    set_in(ws.branch(branch)?.as_ref(), key, json)
}

fn set_in(branch: &Branch, key: &str, json: &str) -> Result<Arc<KvEntry>> {
    kv::check_key(key)?;
    let (value, now) = (kv::checked_value(json)?, clock::now());
    let entry = kv_change(branch, key, &|before| {
        Some(KvEntry {
            value: value.clone(),
            created: before.map_or(now, |b| b.created),
            updated: now,
        })
    })?;
    entry.ok_or(Error::Stale)
}

/// Sets keys to entries with their times, as an import has them: one by one, durable as a whole after
/// `Ok`; on error those before the one that is refused are set.
pub fn kv_set_all(
    ws: &Workspace,
    branch: &str,
    entries: impl IntoIterator<Item = (String, KvEntry)>,
) -> Result<()> {
    let branch = ws.branch(branch)?;
    for (key, entry) in entries {
        kv::check_key(&key)?;
        let entry = kv::checked(entry)?;
        kv_change(&branch, &key, &|_| Some(entry.clone()))?;
    }
    branch.sync()
}

/// Sets a key to an entry with its times. Durable after `Ok`.
pub fn kv_set_at(ws: &Workspace, branch: &str, key: &str, entry: KvEntry) -> Result<()> {
    kv_set_all(ws, branch, [(key.to_owned(), entry)])
}

/// Removes a key; false where it was not there. Durable after `Ok`.
pub fn kv_delete(ws: &Workspace, branch: &str, key: &str) -> Result<bool> {
    let branch = ws.branch(branch)?;
    let there = delete_in(&branch, key)?;
    branch.sync()?;
    Ok(there)
}

/// The same, durable together with whatever is made durable next.
pub fn kv_delete_unsynced(ws: &Workspace, branch: &str, key: &str) -> Result<bool> {
    delete_in(ws.branch(branch)?.as_ref(), key)
}

fn delete_in(branch: &Branch, key: &str) -> Result<bool> {
    let there = std::cell::Cell::new(false);
    kv_change(branch, key, &|before| {
        there.set(before.is_some());
        None
    })?;
    Ok(there.get())
}

/// Keys of a branch that begin with `prefix`, with their entries, sorted by their bytes.
pub fn kv_list(ws: &Workspace, branch: &str, prefix: &str) -> Result<Vec<(String, Arc<KvEntry>)>> {
    let map = kv(ws, branch)?;
    let mut out = Vec::new();
    map.scan(prefix, &mut |key, entry| {
        let wanted = key.starts_with(prefix);
        if wanted {
            out.push((key.to_owned(), entry.clone()));
        }
        wanted
    });
    Ok(out)
}

/// All keys of a branch as they are now.
pub fn kv(ws: &Workspace, branch: &str) -> Result<KvMap> {
    Ok(ws.branch(branch)?.lock().live.kv().clone())
}

/// All keys of a side: of the live tree, of a commit, or none of the base.
pub fn kv_of(ws: &Workspace, branch: &str, side: &DiffSide) -> Result<KvMap> {
    match side {
        DiffSide::Live => kv(ws, branch),
        DiffSide::Ref(text) => kv_at(ws, branch, &Target::Ref(text.clone())),
        DiffSide::Base => Ok(KvMap::default()),
    }
}

/// All keys of a commit.
pub fn kv_at(ws: &Workspace, branch: &str, target: &Target) -> Result<KvMap> {
    let b = ws.branch(branch)?;
    let is_own = match target {
        Target::Ref(text) => text.split_once(':').is_none_or(|(of, _)| of == b.name()),
        _ => true,
    };
    // Where nothing is taken in, a checkpoint that waits for an import is not waited for.
    if let (true, Ok(state)) = (is_own, states::resolve(&b, target)) {
        return kv_of_state(&b, state);
    }
    let _one = b.control.lock();
    let target = branches::import_ref(ws, &b, target)?;
    kv_of_state(&b, states::resolve(&b, &target)?)
}

impl StateReader {
    /// All keys of the state.
    pub fn kv(&self) -> Result<KvMap> {
        Ok(self.tree()?.kv().clone())
    }
}
