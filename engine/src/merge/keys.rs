//! Three-way merge of key-value state, key by key.
//!
//! A key that one side changed becomes what that side made of it; where both changed it, and not to the
//! same value, that is a conflict at the path `.agentvfs/kv/KEY`. Values count, times do not.
//!
//! The common ancestor is looked for without the commits of the base: `apply` and `update` leave
//! key-value state alone, so these have none, and nothing of it passes through them.

use super::base::{History, merge_bases, merge_bases_of};
use super::limits::DEPTH_MAX;
use super::{Conflict, ConflictKind, ConflictSide};
use crate::error::Result;
use crate::kv::{KV_CONFLICTS, KvEntry, KvMap, check_bytes, stored};
use crate::types::mode;
use objstore::content::FileContent;
use objstore::{Body, Commit, CommitId, Meta, ObjectStore, TreeEntry};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Metadata that marks the commits of the base.
pub const BASE_LINE: &str = "agentvfs.base";
/// What a key has in an ancestor made of several that do not agree on it: no value equals it.
const UNSETTLED: &str = "";
/// Name of the entry that holds a value in a conflict.
const VALUE_NAME: &[u8] = b"value";

/// Merged key-value state.
#[derive(Clone, Debug, Default)]
pub struct KeysMerged {
    /// All keys; those in conflict as ours has them.
    pub map: KvMap,
    /// The same in the store, not synced.
    pub kv: Option<FileContent>,
    /// What could not be settled, by key.
    pub conflicts: Vec<Conflict>,
}

/// Merges the key-value state of two commits; `our_map` is that of the first. The values of what is in
/// conflict are stored only with `keep`.
pub fn merge_keys(
    store: &ObjectStore,
    history: &dyn History,
    (ours, our_map): (&CommitId, &KvMap),
    theirs: &CommitId,
    keep: bool,
) -> Result<KeysMerged> {
    let (our_commit, their_commit) = (history.commit(ours)?, history.commit(theirs)?);
    let unchanged = KeysMerged {
        map: our_map.clone(),
        kv: our_commit.kv,
        conflicts: Vec::new(),
    };
    if our_commit.kv == their_commit.kv {
        return Ok(unchanged);
    }
    let own = OwnLine(history);
    let bases = merge_bases(&own, ours, theirs)?;
    if bases.contains(theirs) {
        return Ok(unchanged);
    }
    let base = ancestor(store, &own, &bases, 0)?;
    let their_map = stored::load(store, their_commit.kv.as_ref())?;
    let (map, unsettled) = three_way(&base, our_map, &their_map);
    check_bytes(&map)?;
    let kv = match map.same(our_map) {
        true => our_commit.kv,
        false => stored::store(store, &map)?,
    };
    let mut conflicts = Vec::new();
    for key in unsettled {
        let path = [KV_CONFLICTS, key.as_bytes()].concat();
        let side = |map: &KvMap| match map.get(&key).filter(|e| keep && e.value != UNSETTLED) {
            Some(entry) => conflict_side(store, &path, entry).map(Some),
            None => Ok(None),
        };
        let (base, ours, theirs) = (side(&base)?, side(our_map)?, side(&their_map)?);
        conflicts.push(Conflict {
            path,
            kind: ConflictKind::Content,
            base,
            ours,
            theirs,
        });
    }
    Ok(KeysMerged { map, kv, conflicts })
}

/// `ours` with what makes `theirs` of `base`, and the keys of which that does not fit, as conflicts.
pub fn merge_maps(base: &KvMap, ours: &KvMap, theirs: &KvMap) -> Result<(KvMap, Vec<Conflict>)> {
    let (map, unsettled) = three_way(base, ours, theirs);
    check_bytes(&map)?;
    let conflict = |key: String| Conflict {
        path: [KV_CONFLICTS, key.as_bytes()].concat(),
        kind: ConflictKind::Content,
        base: None,
        ours: None,
        theirs: None,
    };
    Ok((map, unsettled.into_iter().map(conflict).collect()))
}

/// History without the commits of the base.
struct OwnLine<'a>(&'a dyn History);

impl History for OwnLine<'_> {
    fn commit(&self, id: &CommitId) -> Result<Arc<Commit>> {
        let mut commit = (*self.0.commit(id)?).clone();
        if is_of_base(&commit) {
            commit.parents.clear();
        }
        let mut parents = Vec::with_capacity(commit.parents.len());
        for parent in commit.parents {
            if !is_of_base(&*self.0.commit(&parent)?) {
                parents.push(parent);
            }
        }
        commit.parents = parents;
        Ok(Arc::new(commit))
    }
}

fn is_of_base(commit: &Commit) -> bool {
    commit.meta.iter().any(|(key, _)| key == BASE_LINE)
}

/// The key-value state that several merge bases make together, merged two by two over their own.
fn ancestor(
    store: &ObjectStore,
    history: &dyn History,
    bases: &[CommitId],
    depth: u32,
) -> Result<KvMap> {
    let Some((first, rest)) = bases.split_first() else {
        return Ok(KvMap::default());
    };
    let mut map = stored::of_commit(store, first)?;
    let mut made_of = vec![*first];
    for next in rest.iter().filter(|_| depth < DEPTH_MAX) {
        let theirs = stored::of_commit(store, next)?;
        let below = merge_bases_of(history, &made_of, next)?;
        let base = ancestor(store, history, &below, depth + 1)?;
        let (merged, unsettled) = three_way(&base, &map, &theirs);
        map = merged;
        for key in unsettled {
            let nothing = KvEntry {
                value: UNSETTLED.to_owned(),
                created: Default::default(),
                updated: Default::default(),
            };
            map.insert(&key, Arc::new(nothing));
        }
        made_of.push(*next);
    }
    Ok(map)
}

type Known<'a> = Option<&'a Arc<KvEntry>>;

fn alike(a: Known<'_>, b: Known<'_>) -> bool {
    a.map(|e| &e.value) == b.map(|e| &e.value)
}

/// `ours` with what was done to `base` in `theirs`, and the keys of which both made something else.
fn three_way(base: &KvMap, ours: &KvMap, theirs: &KvMap) -> (KvMap, Vec<String>) {
    let (mut merged, mut unsettled) = (ours.clone(), Vec::new());
    let mut take: BTreeMap<String, Option<Arc<KvEntry>>> = BTreeMap::new();
    KvMap::diff(base, theirs, &mut |(key, was, now)| {
        let here = ours.get(key);
        if here == was {
            take.insert(key.to_owned(), now.cloned());
        } else if alike(was, now) {
            // Set again to what it was: ours stands.
        } else if alike(here, was) {
            take.insert(key.to_owned(), now.cloned());
        } else if !alike(here, now) {
            unsettled.push(key.to_owned());
        } else if let (Some(a), Some(b)) = (here, now)
            && a != b
        {
            let both = KvEntry {
                value: a.value.clone(),
                created: a.created.min(b.created),
                updated: a.updated.max(b.updated),
            };
            take.insert(key.to_owned(), Some(Arc::new(both)));
        }
    });
    for (key, entry) in take {
        merged.set(&key, entry);
    }
    (merged, unsettled)
}

/// A value as a side of a conflict.
fn conflict_side(store: &ObjectStore, path: &[u8], entry: &KvEntry) -> Result<ConflictSide> {
    Ok(ConflictSide {
        path: path.to_vec(),
        entry: TreeEntry {
            name: VALUE_NAME.to_vec(),
            meta: Meta {
                mode: mode::REG | 0o600,
                mtime_sec: entry.updated.sec,
                mtime_nsec: entry.updated.nsec,
                ..Meta::default()
            },
            body: Body::File(stored::put(store, entry.value.clone().into_bytes())?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Time;

    fn map(pairs: &[(&str, &str, i64)]) -> KvMap {
        let mut map = KvMap::default();
        for (key, value, sec) in pairs {
            let time = Time { sec: *sec, nsec: 0 };
            let entry = KvEntry {
                value: (*value).to_owned(),
                created: time,
                updated: time,
            };
            map.insert(key, Arc::new(entry));
        }
        map
    }

    fn merged(base: &KvMap, ours: &KvMap, theirs: &KvMap) -> (Vec<(String, String)>, Vec<String>) {
        let (map, unsettled) = three_way(base, ours, theirs);
        let mut out = Vec::new();
        map.scan("", &mut |key, e| {
            out.push((key.to_owned(), e.value.clone()));
            true
        });
        (out, unsettled)
    }

    /// What becomes of one key with these values (0: none), by trying all.
    #[test]
    fn every_key_becomes_what_the_side_that_changed_it_made_of_it() {
        let one = |value: u8| match value {
            0 => KvMap::default(),
            n => map(&[("k", &n.to_string(), 1)]),
        };
        for base in 0..3 {
            for ours in 0..4 {
                for theirs in 0..4 {
                    let wanted = match (ours == base, theirs == base, ours == theirs) {
                        (_, true, _) | (_, _, true) => Some(ours),
                        (true, false, _) => Some(theirs),
                        _ => None,
                    };
                    let (found, unsettled) = merged(&one(base), &one(ours), &one(theirs));
                    let value = found.first().map_or(0, |(_, v)| v.parse().unwrap());
                    match wanted {
                        Some(wanted) => assert_eq!((value, unsettled.len()), (wanted, 0)),
                        None => assert_eq!((value, unsettled.len()), (ours, 1)),
                    }
                }
            }
        }
    }

    #[test]
    fn the_same_value_on_both_sides_has_the_times_of_both() {
        let base = KvMap::default();
        let (ours, theirs) = (map(&[("k", "1", 5)]), map(&[("k", "1", 3)]));
        let (there, back) = (
            three_way(&base, &ours, &theirs),
            three_way(&base, &theirs, &ours),
        );
        assert!(there.0.equals(&back.0) && there.1.is_empty());
        let entry = there.0.get("k").unwrap();
        assert_eq!((entry.created.sec, entry.updated.sec), (3, 5));
        // Setting the value again that was there is no change: a deletion stands.
        let again = map(&[("k", "1", 9)]);
        let gone = three_way(&ours, &KvMap::default(), &again);
        assert!(gone.0.is_empty() && gone.1.is_empty());
    }
}
