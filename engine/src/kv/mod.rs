//! Key-value state: what programs keep beside the files of a branch, key by key.
//!
//! It is part of the branch's tree ([`crate::tree::Tree`]), so states, rollback, undo and branches take
//! it along, and it is in the journal like files are. A commit names it as the content of one encoded
//! list ([`stored`]). It never shows in directories, differences or patches.
//!
//! Invariants: values are JSON without white space between its parts; a branch's state counts at most
//! [`KV_BYTES_MAX`], so a commit's can always be read again.

mod map;
pub(crate) mod stored;

pub use map::{Differing, KvMap};
pub use stored::{decode_map, encode as encode_map};

use crate::branch::{Branch, Inner};
use crate::clock;
use crate::control::{DiffSide, RolledBack, Target, View};
use crate::error::{Error, Result};
use crate::limits::KV_BYTES_MAX;
pub use crate::limits::{KV_KEY_BYTES_MAX as KEY_BYTES_MAX, KV_VALUE_BYTES_MAX as VALUE_BYTES_MAX};
use crate::record::Mutation;
use crate::types::{Time, Wait};
use crate::workspace::Workspace;
use std::sync::Arc;

/// Where conflicts of keys stand among those of files: `.agentvfs/kv/KEY`.
pub const KV_CONFLICTS: &[u8] = b".agentvfs/kv/";

/// What a key has.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct KvEntry {
    /// JSON.
    pub value: String,
    /// When the key was set first.
    pub created: Time,
    /// When it was set last.
    pub updated: Time,
}

/// Checks a key: 1 to 1024 bytes of UTF-8 without control characters.
pub fn check_key(key: &str) -> Result<()> {
    let bad = |rule| {
        let name = key.chars().take(64).collect();
        let kind = "key";
        Err(Error::BadName { kind, name, rule })
    };
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return bad("1 to 1024 bytes");
    }
    if key.chars().any(char::is_control) {
        return bad("no control characters");
    }
    Ok(())
}

/// A value as it is kept: without white space between its parts, else as it was written. It must be JSON
/// that any reader can take: numbers in the range of doubles, at most 128 levels deep, of at most 512 KiB.
pub fn checked_value(json: &str) -> Result<String> {
    if let Err(e) = serde_json::from_str::<serde_json::Value>(json) {
        return Err(Error::NotJson { why: e.to_string() });
    }
    let (mut out, mut in_text, mut escaped) = (String::with_capacity(json.len()), false, false);
    for c in json.chars() {
        let space = matches!(c, ' ' | '\t' | '\n' | '\r');
        if in_text || !space {
            out.push(c);
        }
        if c == '"' && !escaped {
            in_text = !in_text;
        }
        escaped = in_text && c == '\\' && !escaped;
    }
    if out.len() > VALUE_BYTES_MAX {
        return Err(Error::ValueTooLong { bytes: out.len() });
    }
    Ok(out)
}

fn checked(entry: KvEntry) -> Result<KvEntry> {
    let value = checked_value(&entry.value)?;
    Ok(KvEntry { value, ..entry })
}

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
            Some(id) => stored::of_commit(&self.places.store, &id),
        }
    }
}

fn check_total(inner: &Inner, key: &str, new: &KvEntry) -> Result<()> {
    let mut after = inner.live.kv().clone();
    after.insert(key, Arc::new(new.clone()));
    check_bytes(&after)
}

/// Checks that a state is not larger than it may be.
pub(crate) fn check_bytes(map: &KvMap) -> Result<()> {
    match map.bytes() > KV_BYTES_MAX {
        true => Err(Error::TooManyValues),
        false => Ok(()),
    }
}

impl Workspace {
    /// The entry of a key of a branch.
    pub fn kv_get(&self, branch: &str, key: &str) -> Result<Option<Arc<KvEntry>>> {
        Ok(self.branch(branch)?.lock().live.kv().get(key).cloned())
    }

    /// Sets a key to a value, which must be JSON. Durable after `Ok`.
    pub fn kv_set(&self, branch: &str, key: &str, json: &str) -> Result<Arc<KvEntry>> {
        check_key(key)?;
        let (value, now) = (checked_value(json)?, clock::now());
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
            check_key(&key)?;
            let entry = checked(entry)?;
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

impl Workspace {
    /// As [`Workspace::rollback`], but the key-value state stays as it is.
    pub fn rollback_keeping_kv(&self, branch: &str, target: &Target) -> Result<RolledBack> {
        let b = self.branch(branch)?;
        let _one = b.control.lock();
        let here = self.import_ref(&b, target)?;
        let back = b.rollback(self.author(), &here, true)?;
        self.take_over_target(&b, target, back.commit);
        Ok(back)
    }

    /// How many keys a rollback would change.
    pub fn rollback_keys(&self, branch: &str, target: &Target) -> Result<u64> {
        let (live, then) = (self.kv(branch)?, self.kv_at(branch, target)?);
        let mut differing = 0;
        KvMap::diff(&live, &then, &mut |_| differing += 1);
        Ok(differing)
    }
}

impl View {
    /// All keys of the state.
    pub fn kv(&self) -> Result<KvMap> {
        Ok(self.tree()?.kv().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_as_written_but_for_white_space_between_parts() {
        for (json, kept) in [
            ("1", "1"),
            (" \"a b\\\" c \\\\\" ", "\"a b\\\" c \\\\\""),
            (
                "{ \"a\" : [ 1 , 2.50e3 ] ,\n\t\"b\": \" x \" }",
                "{\"a\":[1,2.50e3],\"b\":\" x \"}",
            ),
            ("[\"\\\\\", \" \"]", "[\"\\\\\",\" \"]"),
            ("12345678901234567890123", "12345678901234567890123"),
            ("null", "null"),
        ] {
            assert_eq!(checked_value(json).unwrap(), kept);
        }
    }

    #[test]
    fn what_is_no_json_or_too_long_is_refused() {
        for bad in [
            "",
            " ",
            "hello",
            "{a:1}",
            "[1,]",
            "1 2",
            "\"\\ud800\"",
            "\"a\nb\"",
            "1e999",
        ] {
            assert!(
                matches!(checked_value(bad), Err(Error::NotJson { .. })),
                "{bad}"
            );
        }
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert!(matches!(checked_value(&deep), Err(Error::NotJson { .. })));
        let long = |n: usize| format!("\"{}\"", "x".repeat(n - 2));
        assert!(checked_value(&(long(VALUE_BYTES_MAX) + "\n")).is_ok());
        let refused = checked_value(&long(VALUE_BYTES_MAX + 1));
        assert!(matches!(refused, Err(Error::ValueTooLong { .. })));
    }

    #[test]
    fn keys_are_1_to_1024_bytes_without_control_characters() {
        for good in ["a", "a b/c:d", "schlüssel", &"k".repeat(1024)] {
            assert!(check_key(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "a\nb",
            "a\tb",
            "\u{7f}",
            "a\u{85}",
            "\0",
            &"k".repeat(1025),
        ] {
            assert!(
                matches!(check_key(bad), Err(Error::BadName { .. })),
                "{bad}"
            );
        }
    }
}
