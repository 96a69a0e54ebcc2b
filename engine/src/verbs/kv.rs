//! Keys and values by name: reading, setting and removing them, now and in states.

use super::{DiffSide, Target, View};
use crate::branch::{Branch, Inner};
use crate::clock;
use crate::error::{Error, Result};
use crate::kv::{self, KvEntry, KvMap};
use crate::record::Mutation;
use crate::types::Wait;
use crate::workspace::Workspace;
use std::sync::Arc;

impl Branch {
    /// Sets a key, or removes it; `make` makes its entry of the one that is there. Not synced.
    fn kv_change(
        &self,
        key: &str,
        make: &dyn Fn(Option<&KvEntry>) -> Option<KvEntry>,
    ) -> Result<Option<Arc<KvEntry>>> {
        self.request(Wait::Allowed, |inner| {
            let before = inner.live.kv().get(key);
            let entry = make(before.map(|e| &**e)).map(Box::new);
            if entry.is_none() && before.is_none() {
                return Ok(None);
            }
            if let Some(new) = &entry {
                self.check_space(new.value.len() as u64)?;
                check_total(inner, key, new)?;
            }
            let key = key.to_owned();
            self.change(
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

    fn kv_of_state(&self, state: u64) -> Result<KvMap> {
        // Until it is read, gc must not take what it is in.
        let _pin = self.places.store.pin();
        let id = {
            let inner = self.lock();
            if let Some(tree) = inner.book.history.tree(state) {
                return Ok(tree.kv().clone());
            }
            inner.book.history.state(state)?.info.id
        };
        match id {
            None => Ok(self.tree_of(state)?.kv().clone()),
            Some(id) => kv::stored::of_commit(&self.places.store, &id),
        }
    }
}

fn check_total(inner: &Inner, key: &str, new: &KvEntry) -> Result<()> {
    let mut after = inner.live.kv().clone();
    after.insert(key, Arc::new(new.clone()));
    kv::check_bytes(&after)
}

impl Workspace {
    /// The entry of a key of a branch.
    pub fn kv_get(&self, branch: &str, key: &str) -> Result<Option<Arc<KvEntry>>> {
        Ok(self.branch(branch)?.lock().live.kv().get(key).cloned())
    }

    /// Sets a key to a value, which must be JSON. Durable after `Ok`.
    pub fn kv_set(&self, branch: &str, key: &str, json: &str) -> Result<Arc<KvEntry>> {
        kv::check_key(key)?;
        let (value, now) = (kv::checked_value(json)?, clock::now());
        let branch = self.branch(branch)?;
        let entry = branch.kv_change(key, &|before| {
            Some(KvEntry {
                value: value.clone(),
                created: before.map_or(now, |b| b.created),
                updated: now,
            })
        })?;
        branch.sync()?;
        entry.ok_or(Error::Stale)
    }

    /// Sets keys to entries with their times, as an import has them: one by one, durable as a whole after
    /// `Ok`; on error those before the one that is refused are set.
    pub fn kv_set_all(
        &self,
        branch: &str,
        entries: impl IntoIterator<Item = (String, KvEntry)>,
    ) -> Result<()> {
        let branch = self.branch(branch)?;
        for (key, entry) in entries {
            kv::check_key(&key)?;
            let entry = kv::checked(entry)?;
            branch.kv_change(&key, &|_| Some(entry.clone()))?;
        }
        branch.sync()
    }

    /// Sets a key to an entry with its times. Durable after `Ok`.
    pub fn kv_set_at(&self, branch: &str, key: &str, entry: KvEntry) -> Result<()> {
        self.kv_set_all(branch, [(key.to_owned(), entry)])
    }

    /// Removes a key; false where it was not there. Durable after `Ok`.
    pub fn kv_delete(&self, branch: &str, key: &str) -> Result<bool> {
        let branch = self.branch(branch)?;
        let there = std::cell::Cell::new(false);
        branch.kv_change(key, &|before| {
            there.set(before.is_some());
            None
        })?;
        branch.sync()?;
        Ok(there.get())
    }

    /// Keys of a branch that begin with `prefix`, with their entries, sorted by their bytes.
    pub fn kv_list(&self, branch: &str, prefix: &str) -> Result<Vec<(String, Arc<KvEntry>)>> {
        let map = self.kv(branch)?;
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
    pub fn kv(&self, branch: &str) -> Result<KvMap> {
        Ok(self.branch(branch)?.lock().live.kv().clone())
    }

    /// All keys of a side: of the live tree, of a commit, or none of the base.
    pub fn kv_of(&self, branch: &str, side: &DiffSide) -> Result<KvMap> {
        match side {
            DiffSide::Live => self.kv(branch),
            DiffSide::Ref(text) => self.kv_at(branch, &Target::Ref(text.clone())),
            DiffSide::Base => Ok(KvMap::default()),
        }
    }

    /// All keys of a commit.
    pub fn kv_at(&self, branch: &str, target: &Target) -> Result<KvMap> {
        let b = self.branch(branch)?;
        let is_own = match target {
            Target::Ref(text) => text.split_once(':').is_none_or(|(of, _)| of == b.name()),
            _ => true,
        };
        // Where nothing is taken in, a checkpoint that waits for an import is not waited for.
        if let (true, Ok(state)) = (is_own, b.resolve(target)) {
            return b.kv_of_state(state);
        }
        let _one = b.control.lock();
        let target = self.import_ref(&b, target)?;
        b.kv_of_state(b.resolve(&target)?)
    }
}

impl View {
    /// All keys of the state.
    pub fn kv(&self) -> Result<KvMap> {
        Ok(self.tree()?.kv().clone())
    }
}
