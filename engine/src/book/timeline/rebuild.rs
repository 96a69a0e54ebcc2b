//! A timeline made anew of the logs that are left, for a branch that has lost its own.
//!
//! Each entry's hash covers all before it, and each commit holds the hash of its moment. So what a commit
//! of the branch agrees with is the branch's, from whichever log it was read; nothing else is taken.

use crate::book::timeline::Timeline;
use crate::book::timeline::log::Log;
use crate::book::timeline::log::oldest_first;
use crate::record::call::{FRAME_EXTRA_BYTES, TimelineEntry, chained};
use crate::record::decode;
use objstore::content::FileContent;
use objstore::{ChunkId, Kind, Manifest, ManifestId, Node, ObjectStore, Part, TimelineHead};
use std::collections::{BTreeMap, HashSet};

/// What the commits of a branch say: hashes by the number of the entry.
pub(crate) type Heads = BTreeMap<u64, [u8; 32]>;

/// The timeline up to the last entry that one of `heads` knows, from one of `logs` or, where these have
/// less, from any log in the store. Entries that are nowhere are counted; those that come later go on
/// behind them, so that it is told that they are missing.
pub(crate) fn rebuilt(store: &ObjectStore, logs: &[Timeline], heads: &Heads) -> (Timeline, u64) {
    let Some((&entries, &hash)) = heads.last_key_value() else {
        return (Timeline::default(), 0);
    };
    let best = |logs: &[Timeline]| {
        let all = logs.iter().map(|log| agreed(store, log, heads));
        all.max_by_key(|t| t.entries).unwrap_or_default()
    };
    let mut found = best(logs);
    if found.entries < entries {
        let more = best(&logs_in(store));
        if more.entries > found.entries {
            found = more;
        }
    }
    let lost = entries - found.entries;
    (found.entries, found.hash) = (entries, hash);
    (found, lost)
}

/// What the commits of a branch say of its timeline.
pub(crate) fn heads(of: impl Iterator<Item = TimelineHead>) -> Heads {
    of.map(|head| (head.entries, head.hash)).collect()
}

/// The beginning of a log, up to the last entry that is as a commit says.
fn agreed(store: &ObjectStore, log: &Timeline, heads: &Heads) -> Timeline {
    let (mut found, mut at) = (Timeline::default(), Timeline::default());
    let last = heads.last_key_value().map_or(0, |(n, _)| *n);
    // As far as it can be read.
    let _ = oldest_first(&Log::of(log, store, store.pin()), &mut |frame| {
        let entry = frame.entry()?;
        let number = entry.number;
        at.push(entry.time, entry.what);
        let goes_on = at.hash == frame.hash && at.entries == number;
        if goes_on && heads.get(&number) == Some(&at.hash) {
            found = at.clone();
        }
        Ok(goes_on && number < last)
    });
    found
}

/// Everything in the store that begins like a log.
fn logs_in(store: &ObjectStore) -> Vec<Timeline> {
    let mut begins = HashSet::new();
    let mut found = Vec::new();
    for id in store.ids(Kind::Chunk).into_iter().map(ChunkId::from_bytes) {
        let chunk = store.get_chunk(&id);
        if let Some(bytes) = chunk.ok().filter(|bytes| is_begin(bytes)) {
            begins.insert(id);
            let len = bytes.len() as u32;
            found.push(FileContent::Chunk { id, len });
        }
    }
    for id in store.ids(Kind::Manifest).into_iter() {
        let id = ManifestId::from_bytes(id);
        let first = (!begins.is_empty()).then(|| first_chunk(store, &id));
        if let Some((first, len)) = first.flatten()
            && begins.contains(&first)
        {
            found.push(FileContent::Manifest { id, len });
        }
    }
    found.into_iter().map(Timeline::of_log).collect()
}

/// First chunk and length of what a manifest tells.
fn first_chunk(store: &ObjectStore, root: &ManifestId) -> Option<(ChunkId, u64)> {
    let mut len = None;
    let mut id = *root;
    loop {
        match store.get_object::<Manifest>(&id).ok()?.node {
            Node::Inner { children, .. } => {
                len = len.or_else(|| Some(children.iter().map(|c| c.len).sum()));
                id = children.first()?.id;
            }
            Node::Leaf(parts) => {
                let Part::Data { id, .. } = parts.first()? else {
                    return None;
                };
                let whole = parts.iter().map(Part::len).sum();
                return Some((*id, len.unwrap_or(whole)));
            }
        }
    }
}

/// True where the first entry of a timeline stands here, or a piece of a first entry that is longer.
fn is_begin(bytes: &[u8]) -> bool {
    let Some((len, rest)) = bytes.split_first_chunk::<4>() else {
        return false;
    };
    let len = u32::from_le_bytes(*len) as usize;
    if rest.len() < len.saturating_add(FRAME_EXTRA_BYTES - 4) {
        // Its number is 1.
        return rest.first_chunk() == Some(&1u64.to_le_bytes());
    }
    let (body, after) = rest.split_at(len);
    after.starts_with(&chained(&[0; 32], body)) && decode::<TimelineEntry>(body).is_ok()
}
