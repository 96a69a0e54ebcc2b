//! Indexes without what nobody needs, and new packs in place of those that have much of it.

use super::marks::Marks;
use super::{Collected, Context, GcRequest};
use crate::bucket::{Bucket, Condition};
use crate::error::Result;
use crate::layout::catalog::Catalog;
use crate::layout::index::{self, Index, PackEntry, Place};
use crate::layout::pack_name;
use crate::remote::{Found, Generation, Remote};
use objstore::Key;
use objstore::exchange::{PACK_START, PackBuilder, RECORD_START};
use std::collections::{BTreeMap, HashSet};

/// A pack, and what of it is needed.
struct Needed {
    pack: PackEntry,
    listed: u64,
    bytes: u64,
    objects: Vec<(Key, Place)>,
}

/// Gives the catalog indexes of what is marked, where they differ from those that it has.
pub(super) fn rebuild(
    remote: &Remote,
    generation: &Generation,
    catalog: &mut Catalog,
    marks: &Marks,
    (request, context): (&GcRequest, &Context<'_>),
    done: &mut Collected,
) -> Result<()> {
    let packs = needed(generation, marks);
    let is_sparse = |n: &Needed| {
        let dead = n.pack.bytes.saturating_sub(PACK_START + n.bytes);
        dead > 0 && dead * 100 >= n.pack.bytes * request.dead_percent
    };
    let is_whole = |n: &Needed| n.objects.len() as u64 == n.listed && !is_sparse(n);
    if packs.iter().all(is_whole) {
        return Ok(());
    }
    if packs.iter().any(|n| n.objects.len() as u64 != n.listed) {
        catalog.collections += 1;
    }
    let (sparse, dense): (Vec<Needed>, Vec<Needed>) = packs
        .into_iter()
        .filter(|n| !n.objects.is_empty())
        .partition(is_sparse);
    let mut kept: Vec<Needed> = dense;
    kept.extend(copy(remote, generation, sparse, context, done)?);
    catalog.indexes.clear();
    let mut rest = kept.into_iter().peekable();
    while rest.peek().is_some() {
        let (mut packs, mut objects) = (Vec::new(), Vec::new());
        while let Some(next) = rest.next_if(|next| {
            let (packs, objects) = (packs.len() + 1, objects.len() + next.objects.len());
            packs == 1 || Index::bytes_for(packs, objects) <= index::BYTES_MAX
        }) {
            let pack = packs.len() as u32;
            packs.push(next.pack);
            objects.extend(
                next.objects
                    .into_iter()
                    .map(|(key, place)| (key, Place { pack, ..place })),
            );
        }
        let index = Index::build(packs, objects);
        let entry = remote.put_index(index, generation.catalog.generation + 1)?;
        catalog.indexes.push(entry);
    }
    Ok(())
}

/// All packs with what is marked in them; of an object that is there twice, once.
fn needed(generation: &Generation, marks: &Marks) -> Vec<Needed> {
    let mut taken: HashSet<Key> = HashSet::new();
    let mut all = Vec::new();
    for (entry, index) in generation.catalog.indexes.iter().zip(&generation.indexes) {
        let mut packs: Vec<Needed> = index
            .packs()
            .iter()
            .map(|pack| Needed {
                pack: PackEntry {
                    generation: if pack.generation == 0 {
                        entry.generation
                    } else {
                        pack.generation
                    },
                    ..*pack
                },
                listed: 0,
                bytes: 0,
                objects: Vec::new(),
            })
            .collect();
        for (key, place) in index.objects() {
            let pack = &mut packs[place.pack as usize];
            pack.listed += 1;
            if marks.contains(&key) && taken.insert(key) {
                pack.bytes += RECORD_START + u64::from(place.stored_len);
                pack.objects.push((key, place));
            }
        }
        all.extend(packs);
    }
    all
}

/// Puts what is needed of some packs as new ones. They are as old as the youngest of those.
fn copy(
    remote: &Remote,
    generation: &Generation,
    sparse: Vec<Needed>,
    context: &Context<'_>,
    done: &mut Collected,
) -> Result<Vec<Needed>> {
    let Some(since) = sparse.iter().map(|n| n.pack.generation).max() else {
        return Ok(Vec::new());
    };
    // In the order of a push: by kind, each after what it refers to.
    let mut order: BTreeMap<(u8, usize, u32), (Key, PackEntry, Place)> = BTreeMap::new();
    for (number, pack) in sparse.iter().enumerate() {
        for (key, place) in &pack.objects {
            let at = (key.0 as u8, number, place.offset);
            order.insert(at, (*key, pack.pack, *place));
        }
    }
    let mut copied = Vec::new();
    let mut builder = PackBuilder::new(remote.random() as u32);
    let mut objects = Vec::new();
    for (key, pack, place) in order.into_values() {
        (context.check)()?;
        let record = remote.record(&key, &Found { pack, place })?;
        if !builder.is_empty() && builder.len() + record.stored_len() > remote.sizes.pack_bytes {
            let full = std::mem::replace(&mut builder, PackBuilder::new(remote.random() as u32));
            copied.push(put(
                remote,
                full,
                std::mem::take(&mut objects),
                since,
                done,
            )?);
        }
        let place = Place {
            pack: 0,
            offset: builder.push(&record),
            stored_len: place.stored_len,
        };
        objects.push((key, place));
    }
    if !builder.is_empty() {
        copied.push(put(remote, builder, objects, since, done)?);
    }
    debug_assert!(since <= generation.catalog.generation);
    Ok(copied)
}

fn put(
    remote: &Remote,
    builder: PackBuilder,
    objects: Vec<(Key, Place)>,
    generation: u64,
    done: &mut Collected,
) -> Result<Needed> {
    let bytes = builder.finish();
    let hash = *blake3::hash(&bytes).as_bytes();
    remote
        .bucket()
        .put(&pack_name(&hash), &bytes, Condition::Always)?;
    done.copied_bytes += bytes.len() as u64;
    Ok(Needed {
        pack: PackEntry {
            hash,
            bytes: bytes.len() as u64,
            generation,
        },
        listed: objects.len() as u64,
        bytes: bytes.len() as u64 - PACK_START,
        objects,
    })
}
