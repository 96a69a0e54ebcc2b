//! Which present objects are needed.

use super::{Collected, Context};
use crate::bucket::Bucket;
use crate::error::{Error, Result};
use crate::fetch::ranges;
use crate::layout::catalog::Catalog;
use crate::layout::pack_name;
use crate::layout::reference::{Timeline, mentioned};
use crate::limits::{GRACE_SEC, MENTIONED_BYTES_MAX};
use crate::remote::{Found, Generation, Remote};
use objstore::exchange::{Record, commit_key, content_key, references};
use objstore::{FileContent, Key, Kind};
use std::collections::HashSet;

/// Objects that are needed, or too young to tell.
pub(super) type Marks = HashSet<Key>;

struct Marking<'a> {
    remote: &'a Remote,
    generation: &'a Generation,
    context: &'a Context<'a>,
    marks: Marks,
    next: Vec<Key>,
    missing: u64,
}

/// Marks what refs, announced refs and young packs need.
pub(super) fn mark(
    remote: &Remote,
    generation: &Generation,
    now: i64,
    context: &Context<'_>,
    done: &mut Collected,
) -> Result<Marks> {
    let mut marking = Marking {
        remote,
        generation,
        context,
        marks: Marks::new(),
        next: Vec::new(),
        missing: 0,
    };
    let catalog = &generation.catalog;
    for name in &catalog.refs {
        (context.check)()?;
        if let Some((found, _)) = remote.reference(name)? {
            marking.meet(commit_key(&found.commit), true);
            for (_, label) in &found.labels {
                marking.meet(commit_key(label), false);
            }
            for timeline in &found.timelines {
                marking.timeline(timeline)?;
            }
        }
    }
    marking.pending(catalog, now)?;
    marking.young_packs(now);
    marking.run()?;
    done.kept = marking.marks.len() as u64;
    done.missing = marking.missing;
    let present = generation.indexes.iter().map(|index| index.len() as u64);
    // Of an object that two indexes have, both entries count; it is dropped with neither.
    done.dropped = present.sum::<u64>().saturating_sub(done.kept);
    Ok(marking.marks)
}

impl Marking<'_> {
    /// Marks an object that is needed, where it is present; one that must be and is not is counted.
    fn meet(&mut self, key: Key, must: bool) {
        if self.marks.contains(&key) {
            return;
        }
        if self.generation.has(&key) {
            self.marks.insert(key);
            self.next.push(key);
        } else if must {
            tracing::warn!(
                "{} {} is missing in the remote",
                key.0,
                objstore::exchange::key_hex(&key.1)
            );
            self.missing += 1;
        }
    }

    fn pending(&mut self, catalog: &Catalog, now: i64) -> Result<()> {
        for pending in &catalog.pending {
            if !catalog.is_young(pending.generation, now, GRACE_SEC) {
                continue;
            }
            for commit in &pending.commits {
                self.meet(commit_key(commit), false);
            }
            for content in &pending.contents {
                content_key(content)
                    .into_iter()
                    .for_each(|key| self.meet(key, false));
            }
            for list in pending.contents.iter().skip(1).step_by(2) {
                self.mentioned(list)?;
            }
        }
        Ok(())
    }

    fn timeline(&mut self, timeline: &Timeline) -> Result<()> {
        for content in [&timeline.log, &timeline.commits] {
            content_key(content)
                .into_iter()
                .for_each(|key| self.meet(key, true));
        }
        self.mentioned(&timeline.commits)
    }

    /// Commits of a timeline's list.
    fn mentioned(&mut self, list: &FileContent) -> Result<()> {
        if list.len() > MENTIONED_BYTES_MAX {
            return Err(Error::TooLarge {
                name: "the list of a timeline".into(),
                bytes: list.len(),
                max: MENTIONED_BYTES_MAX,
            });
        }
        let Some(root) = content_key(list).filter(|key| self.generation.has(key)) else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        let mut keys = vec![root];
        while let Some(key) = keys.pop() {
            let content = self.content(&key)?;
            match key.0 {
                Kind::Chunk => bytes.extend(content),
                _ => keys.extend(parts_last_first(&key, &content)?),
            }
            if bytes.len() as u64 > list.len() {
                break;
            }
        }
        for id in mentioned(&bytes)? {
            self.meet(commit_key(&id), false);
        }
        Ok(())
    }

    /// Everything in packs that became present lately: pushes rely on it.
    fn young_packs(&mut self, now: i64) {
        let catalog = &self.generation.catalog;
        for (entry, index) in catalog.indexes.iter().zip(&self.generation.indexes) {
            let young = index.packs().iter().map(|pack| {
                let since = if pack.generation == 0 {
                    entry.generation
                } else {
                    pack.generation
                };
                catalog.is_young(since, now, GRACE_SEC)
            });
            let young: Vec<bool> = young.collect();
            if !young.contains(&true) {
                continue;
            }
            for (key, place) in index.objects() {
                if young[place.pack as usize] && self.marks.insert(key) {
                    self.next.push(key);
                }
            }
        }
    }

    /// Follows references, level by level.
    fn run(&mut self) -> Result<()> {
        while !self.next.is_empty() {
            let level = std::mem::take(&mut self.next);
            let mut remote = Vec::new();
            for key in level.into_iter().filter(|key| key.0 != Kind::Chunk) {
                match self.local(&key) {
                    Some(content) => self.follow(&key, &content)?,
                    None => remote.push(key),
                }
            }
            self.follow_remote(remote)?;
            (self.context.progress)(self.marks.len() as u64, 0);
        }
        Ok(())
    }

    fn local(&self, key: &Key) -> Option<Vec<u8>> {
        let store = self.context.local?;
        let record = store.contains(key.0, &key.1).then(|| store.get_record(key));
        record?.ok()?.content().ok()
    }

    fn follow_remote(&mut self, keys: Vec<Key>) -> Result<()> {
        let located = keys
            .into_iter()
            .filter_map(|key| Some((key, self.generation.find(&key)?)));
        for batch in ranges::batches(located.collect()) {
            (self.context.check)()?;
            let name = pack_name(&batch.pack);
            let start = batch.range().start;
            let bytes = self.remote.bucket().get_range(&name, batch.range())?;
            for (key, found) in &batch.records {
                let range = found.place.range();
                let part = bytes.as_ref().and_then(|bytes| {
                    bytes.get((range.start - start) as usize..(range.end - start) as usize)
                });
                let record = part.and_then(|part| Record::parse(key, part.to_vec()).ok());
                let content = match record {
                    Some(record) => content_of(&record)?,
                    None => content_of(&self.remote.record(key, found)?)?,
                };
                self.follow(key, &content)?;
            }
        }
        Ok(())
    }

    fn follow(&mut self, key: &Key, content: &[u8]) -> Result<()> {
        let found = references(key.0, content).map_err(|what| damaged(key, what))?;
        found
            .needed
            .into_iter()
            .for_each(|key| self.meet(key, true));
        for parent in found.parents {
            self.meet(commit_key(&parent), false);
        }
        Ok(())
    }

    fn content(&self, key: &Key) -> Result<Vec<u8>> {
        if let Some(content) = self.local(key) {
            return Ok(content);
        }
        let found: Found = self
            .generation
            .find(key)
            .ok_or_else(|| damaged(key, "it is missing"))?;
        content_of(&self.remote.record(key, &found)?)
    }
}

fn content_of(record: &Record) -> Result<Vec<u8>> {
    record
        .content()
        .map_err(|what| damaged(&record.key(), what))
}

fn damaged(key: &Key, what: &'static str) -> Error {
    Error::Damaged {
        name: format!("{} {}", key.0, objstore::exchange::key_hex(&key.1)),
        what,
    }
}

/// Parts of a manifest's content, to be taken from the end.
fn parts_last_first(key: &Key, content: &[u8]) -> Result<Vec<Key>> {
    let mut keys = objstore::exchange::references(Kind::Manifest, content)
        .map_err(|what| damaged(key, what))?
        .needed;
    keys.reverse();
    Ok(keys)
}
