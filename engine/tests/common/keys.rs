//! Key-value state, carried out on both sides.

use super::model::Tree;
use super::runner::Runner;
use super::world::MAIN;
use crate::ensure;
use engine::verbs;
use engine::{DiffSide, KvEntry, KvMap, Time, Workspace};
use std::collections::BTreeMap;

/// Keys of a model.
pub type Keys = BTreeMap<String, KvEntry>;

/// Lengths of values: most are short, some are long.
const LENGTHS: [usize; 8] = [1, 3, 3, 10, 10, 100, 5000, 200_000];

fn key(pick: u8) -> String {
    format!("key/{}", pick % 7)
}

/// All keys of a map.
pub fn all(map: &KvMap) -> Keys {
    let mut out = Keys::new();
    map.scan("", &mut |key, entry| {
        out.insert(key.to_owned(), (**entry).clone());
        true
    });
    out
}

/// Compares the keys of the live tree.
pub fn compare(tree: &Tree, w: &Workspace) -> Result<(), String> {
    let have = all(&verbs::kv(w, MAIN).map_err(|e| format!("keys: {e}"))?);
    same(&have, &tree.kv)
}

fn same(have: &Keys, want: &Keys) -> Result<(), String> {
    for key in have.keys().chain(want.keys()) {
        let (a, b) = (have.get(key), want.get(key));
        ensure!(a == b, "{key} is {:.60?}, not {:.60?}", a, b);
    }
    Ok(())
}

impl Runner {
    /// Sets a key, as a command or as an import does.
    pub fn kv_set(&mut self, pick: u8, value: u32, import: bool) -> Result<(), String> {
        let (key, w) = (key(pick), self.world.w());
        let length = LENGTHS[value as usize % LENGTHS.len()];
        let text = format!("[ {value},\"{}\" ]", "x".repeat(length));
        let kept = text.replace(' ', "");
        if import {
            let entry = KvEntry {
                value: text,
                created: Time {
                    sec: i64::from(value),
                    nsec: 5,
                },
                updated: Time {
                    sec: i64::from(value) + 1,
                    nsec: 6,
                },
            };
            let done = verbs::kv_set_at(w, MAIN, &key, entry.clone());
            done.map_err(|e| format!("kv_set_at: {e}"))?;
            let entry = KvEntry {
                value: kept,
                ..entry
            };
            self.live.kv.insert(key, entry);
            return Ok(());
        }
        let entry = verbs::kv_set(w, MAIN, &key, &text);
        let entry = entry.map_err(|e| format!("kv_set: {e}"))?;
        let before = self.live.kv.get(&key);
        let created = before.map_or(entry.updated, |b| b.created);
        ensure!(
            entry.value == kept && entry.created == created,
            "{key} became {entry:.60?}"
        );
        ensure!(entry.updated >= self.now, "{key} was set before");
        self.live.kv.insert(key, (*entry).clone());
        Ok(())
    }

    /// Removes a key.
    pub fn kv_delete(&mut self, pick: u8) -> Result<(), String> {
        let key = key(pick);
        let had = verbs::kv_delete(self.world.w(), MAIN, &key);
        let had = had.map_err(|e| format!("kv_delete: {e}"))?;
        let want = self.live.kv.remove(&key).is_some();
        ensure!(had == want, "{key} was there: {had}");
        Ok(())
    }

    /// Compares the keys of every commit whose id is known.
    pub fn kv_of_commits(&self) -> Result<(), String> {
        for commit in &self.history.commits {
            let Some(id) = commit.id else { continue };
            let side = DiffSide::Ref(id.to_string());
            let have = verbs::kv_of(self.world.w(), MAIN, &side);
            let have = have.map_err(|e| format!("keys of {id}: {e}"))?;
            same(&all(&have), &commit.tree.kv).map_err(|e| format!("in {id}: {e}"))?;
        }
        Ok(())
    }
}
