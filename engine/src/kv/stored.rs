//! Key-value state in the store: one encoded list, as the content of a file is stored.
//!
//! A header and the entries in the order of their keys, so equal states give equal content, and what did
//! not change is found again in its chunks.

use super::{KvEntry, KvMap, check_key};
use crate::error::{Error, Result};
use crate::limits::KV_BYTES_MAX;
use objstore::codec::{decode, encode_into};
use objstore::content::FileContent;
use objstore::{Commit, CommitId, ObjectStore, read_content, store_content};
use std::sync::Arc;

/// What errors about it call it.
pub const WHAT: &str = "key-value state";
const MAGIC: &[u8; 8] = b"AVFSKEYS";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 12;

/// The encoded state.
pub fn encode(map: &KvMap) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    encode_into(&(map.len() as u64), &mut bytes);
    map.scan("", &mut |key, entry| {
        encode_into(&key, &mut bytes);
        encode_into(&**entry, &mut bytes);
        true
    });
    bytes
}

/// The state of what [`encode`] made.
pub fn decode_map(bytes: &[u8]) -> Result<KvMap, String> {
    let (header, rest) = bytes
        .split_at_checked(HEADER_BYTES)
        .ok_or("it is too short")?;
    let (magic, version) = header.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err("it is not one".into());
    }
    if version != VERSION.to_le_bytes() {
        return Err("it has another version".into());
    }
    let entries: Vec<(String, KvEntry)> = decode(rest).map_err(|e| e.to_string())?;
    if !entries.is_sorted_by(|a, b| a.0 < b.0) {
        return Err("its keys are not sorted".into());
    }
    let mut map = KvMap::default();
    for (key, entry) in entries {
        check_key(&key).map_err(|e| e.to_string())?;
        map.insert(&key, Arc::new(entry));
    }
    Ok(map)
}

/// Stores a state; `None` for an empty one. Nothing is synced.
pub fn store(store: &ObjectStore, map: &KvMap) -> Result<Option<FileContent>> {
    if map.is_empty() {
        return Ok(None);
    }
    put(store, encode(map)).map(Some)
}

/// Stores bytes as content.
pub fn put(store: &ObjectStore, bytes: Vec<u8>) -> Result<FileContent> {
    let len = bytes.len() as u64;
    let all: Vec<_> = std::iter::once(0..len).collect();
    Ok(store_content(store, None, &[], &all, len, &bytes)?)
}

/// Loads a stored state.
pub fn load(store: &ObjectStore, content: Option<&FileContent>) -> Result<KvMap> {
    let Some(content) = content else {
        return Ok(KvMap::default());
    };
    let damaged = |why: String| Error::Damaged {
        what: WHAT.into(),
        why,
    };
    if content.len() > KV_BYTES_MAX + HEADER_BYTES as u64 {
        return Err(damaged("it is too long".into()));
    }
    let mut bytes = vec![0; content.len() as usize];
    read_content(store, content, 0, &mut bytes).map_err(|e| damaged(e.to_string()))?;
    decode_map(&bytes).map_err(damaged)
}

/// The state of a commit.
pub fn of_commit(from: &ObjectStore, id: &CommitId) -> Result<KvMap> {
    let commit: Commit = from.get_object(id)?;
    load(from, commit.kv.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Time;

    fn map(n: u64) -> KvMap {
        let mut map = KvMap::default();
        for i in 0..n {
            let entry = KvEntry {
                value: format!("{{\"n\":{i}}}"),
                created: Time { sec: 1, nsec: 2 },
                updated: Time {
                    sec: i as i64,
                    nsec: 3,
                },
            };
            map.insert(&format!("key/{i}"), Arc::new(entry));
        }
        map
    }

    #[test]
    fn what_was_encoded_comes_back_and_counts_no_more_than_it_takes() {
        for n in [0, 1, 1000] {
            let map = map(n);
            let bytes = encode(&map);
            assert!(bytes.len() as u64 <= map.bytes() + 20);
            let back = decode_map(&bytes).unwrap();
            assert!(back.equals(&map));
            assert_eq!(encode(&back), bytes);
        }
    }

    #[test]
    fn damaged_bytes_are_refused_or_give_a_sorted_state() {
        let good = encode(&map(3));
        for i in 0..good.len() {
            assert!(decode_map(&good[..i]).is_err());
            let mut bad = good.clone();
            bad[i] ^= 1;
            let _ = decode_map(&bad);
        }
        let mut twice = good[..HEADER_BYTES].to_vec();
        let entry = (
            "a".to_owned(),
            KvEntry {
                value: "1".into(),
                created: Time::default(),
                updated: Time::default(),
            },
        );
        encode_into(&vec![entry.clone(), entry], &mut twice);
        assert!(decode_map(&twice).is_err());
    }
}
