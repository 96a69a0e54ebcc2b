//! Bringing objects of a remote into the local store (docs/remote.md, 4).
//!
//! Invariant: no object is appended to the local packs before what it refers to is there, so whatever kills a
//! fetch leaves no object that only seems whole. Manifests, trees and commits wait in a file without a name until the
//! last chunk is here.

mod hints;
pub(crate) mod ranges;
pub mod refs;
mod spare;
mod staged;

use crate::error::{Error, Result};
use crate::layout::pack_name;
use crate::limits::READS_MAX;
use crate::remote::{Found, Generation, Remote};
use hints::Hints;
use objstore::exchange::{Record, references};
use objstore::{CommitId, Key, Kind, ObjectStore};
use spare::Spare;
use std::collections::HashSet;
use std::path::Path;

/// What surrounds a fetch.
pub struct Context<'a> {
    /// Hears of bytes that came, of how many.
    pub progress: &'a dyn Fn(u64, u64),
    /// May end the fetch, before each request.
    pub check: &'a dyn Fn() -> Result<()>,
    /// Whether so many more bytes may be stored here.
    pub room: &'a dyn Fn(u64) -> Result<()>,
    /// Whether a commit is here as a whole, with its ancestors: something here keeps it.
    pub complete: &'a dyn Fn(&CommitId) -> bool,
    /// Directory for a file that waits.
    pub directory: &'a Path,
    /// How much of a commit comes.
    pub depth: Depth,
}

/// How much of a commit a fetch brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// All that it refers to.
    Whole,
    /// The commit, its ancestors and its keys; no directories and files, which come when they are read.
    Commits,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Context")
    }
}

/// What a fetch brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Objects that were not here.
    pub objects: u64,
    /// Bytes of their records.
    pub bytes: u64,
}

/// Something that is wanted.
#[derive(Clone, Copy, Debug)]
struct Want {
    key: Key,
    /// It may be missing in the remote.
    lenient: bool,
}

struct Fetch<'a> {
    remote: &'a Remote,
    store: &'a ObjectStore,
    context: &'a Context<'a>,
    generation: Generation,
    seen: HashSet<Key>,
    hints: Hints,
    staged: staged::Staged,
    spare: Spare,
    chunks: Vec<Key>,
    done: Fetched,
    bytes_total: u64,
}

/// Brings everything below these roots; one that is lenient may be missing in the remote. Durable after `Ok`. The
/// caller holds a pin of the store until something refers to what came.
pub fn fetch(
    remote: &Remote,
    store: &ObjectStore,
    roots: &[(Key, bool)],
    context: &Context<'_>,
) -> Result<Fetched> {
    let wants = roots.iter().map(|(key, lenient)| Want {
        key: *key,
        lenient: *lenient,
    });
    let wants: Vec<Want> = wants.collect();
    let is_there =
        |w: &Want| w.key.0 == Kind::Commit && (context.complete)(&CommitId::from_bytes(w.key.1));
    if wants.iter().all(is_there) {
        return Ok(Fetched::default());
    }
    let mut fetch = Fetch {
        remote,
        store,
        context,
        generation: remote.generation()?,
        seen: HashSet::new(),
        hints: Hints::default(),
        staged: staged::Staged::new(context.directory)?,
        spare: Spare::default(),
        chunks: Vec::new(),
        done: Fetched::default(),
        bytes_total: 0,
    };
    fetch.objects(wants)?;
    fetch.count_chunks()?;
    (context.room)(fetch.bytes_total)?;
    fetch.bring_chunks()?;
    fetch.staged.put_all(store)?;
    store.sync()?;
    Ok(fetch.done)
}

impl Fetch<'_> {
    /// Brings all but chunks into the file, level by level, and notes the chunks that are missing.
    fn objects(&mut self, mut wants: Vec<Want>) -> Result<()> {
        while !wants.is_empty() {
            let missing = self.look(wants)?;
            wants = self.get(missing)?;
        }
        Ok(())
    }

    /// Follows what is here, until all that is left is missing here.
    fn look(&mut self, mut wants: Vec<Want>) -> Result<Vec<Want>> {
        let mut missing = Vec::new();
        while let Some(want) = wants.pop() {
            if !self.seen.insert(want.key) {
                continue;
            }
            let (kind, id) = want.key;
            if kind == Kind::Commit && (self.context.complete)(&CommitId::from_bytes(id)) {
                continue;
            }
            match (kind, self.store.contains(kind, &id)) {
                (Kind::Chunk, true) => {}
                (Kind::Chunk, false) => self.chunks.push(want.key),
                (_, false) => missing.push(want),
                (_, true) => {
                    let content = self.store.get_record(&want.key)?.content();
                    let content = content.map_err(|what| self.malformed(&want.key, what))?;
                    wants.extend(self.below(&want.key, &content)?);
                }
            }
        }
        Ok(missing)
    }

    /// What an object refers to, but for what is known to be here.
    fn below(&mut self, key: &Key, content: &[u8]) -> Result<Vec<Want>> {
        let found = references(key.0, content).map_err(|what| self.malformed(key, what))?;
        let known = self
            .hints
            .known_below(self.store, key, content, self.context.complete);
        let comes = |wanted: &&Key| match self.context.depth {
            Depth::Whole => true,
            Depth::Commits => key.0 != Kind::Commit || wanted.0 != Kind::Tree,
        };
        let needed = found.needed.iter().filter(|key| !known.contains(*key));
        let needed = needed.filter(comes);
        let needed = needed.map(|key| Want {
            key: *key,
            lenient: false,
        });
        let parents = found.parents.iter().map(|id| Want {
            key: objstore::exchange::commit_key(id),
            lenient: true,
        });
        Ok(needed.chain(parents).collect())
    }

    /// Gets objects from the remote; what they refer to is wanted next.
    fn get(&mut self, wants: Vec<Want>) -> Result<Vec<Want>> {
        let mut next = Vec::new();
        let mut keys = Vec::new();
        for want in &wants {
            match self.spare.take(&want.key) {
                Some(record) => self.keep(&record, &mut next)?,
                None if want.lenient && !self.generation.has(&want.key) => {}
                None => keys.push(want.key),
            }
        }
        let wanted: HashSet<Key> = keys.iter().copied().collect();
        if self.context.depth == Depth::Commits {
            keys.extend(self.spare.beside(&self.generation, &keys, self.store));
        }
        self.records(
            keys,
            &mut |fetch, record| match wanted.contains(&record.key()) {
                true => fetch.keep(&record, &mut next),
                false => {
                    fetch.spare.put(record);
                    Ok(())
                }
            },
        )?;
        Ok(next)
    }

    /// Has an object that came wait for what it refers to, which is wanted next.
    fn keep(&mut self, record: &Record, next: &mut Vec<Want>) -> Result<()> {
        let key = record.key();
        let content = record
            .content()
            .map_err(|what| self.malformed(&key, what))?;
        let below = self.below(&key, &content)?;
        self.bytes_total += record.stored_len();
        self.done.bytes += record.stored_len();
        self.done.objects += 1;
        self.staged.add(record, below.iter().map(|want| want.key))?;
        next.extend(below);
        Ok(())
    }

    fn count_chunks(&mut self) -> Result<()> {
        for key in &self.chunks {
            let found = self.generation.find(key).ok_or_else(|| missing(key))?;
            self.bytes_total += u64::from(found.place.stored_len);
        }
        Ok(())
    }

    fn bring_chunks(&mut self) -> Result<()> {
        let keys = std::mem::take(&mut self.chunks);
        self.records(keys, &mut |fetch, record| {
            fetch.store.put_record(&record)?;
            fetch.done.objects += 1;
            fetch.done.bytes += record.stored_len();
            (fetch.context.progress)(fetch.done.bytes, fetch.bytes_total);
            Ok(())
        })
    }

    /// Gets records, neighbours in one request, and hands each to `each`. Where gc moved some meanwhile, they are
    /// looked for again.
    fn records(
        &mut self,
        mut keys: Vec<Key>,
        each: &mut dyn FnMut(&mut Self, Record) -> Result<()>,
    ) -> Result<()> {
        let mut reads = 0;
        while !keys.is_empty() {
            let located = keys.iter().map(|key| {
                let found = self.generation.find(key).ok_or_else(|| missing(key))?;
                Ok((*key, found))
            });
            let located = located.collect::<Result<Vec<(Key, Found)>>>()?;
            let mut gone = Vec::new();
            for batch in ranges::batches(located) {
                (self.context.check)()?;
                let name = pack_name(&batch.pack);
                match crate::bucket::Bucket::get_range(self.remote.bucket(), &name, batch.range()) {
                    Ok(Some(bytes)) => self.split(&batch, bytes, each)?,
                    Ok(None) => gone.extend(batch.records.iter().map(|(key, _)| *key)),
                    Err(e) => return Err(e),
                }
            }
            reads += 1;
            if !gone.is_empty() {
                if reads >= READS_MAX {
                    return Err(missing(&gone[0]));
                }
                self.generation = self.remote.generation()?;
            }
            keys = gone;
        }
        Ok(())
    }

    /// Takes the records out of bytes that came in one answer. One that is not what it must be is requested alone.
    fn split(
        &mut self,
        batch: &ranges::Batch,
        bytes: Vec<u8>,
        each: &mut dyn FnMut(&mut Self, Record) -> Result<()>,
    ) -> Result<()> {
        let start = batch.range().start;
        for (key, found) in &batch.records {
            let range = found.place.range();
            let part = bytes.get((range.start - start) as usize..(range.end - start) as usize);
            let parsed = part.map(|part| Record::parse(key, part.to_vec()));
            let record = match parsed {
                Some(Ok(record)) => record,
                _ => self.remote.record(key, found)?,
            };
            each(self, record)?;
        }
        Ok(())
    }

    fn malformed(&self, key: &Key, what: &'static str) -> Error {
        Error::Damaged {
            name: format!("{} {}", key.0, objstore::exchange::key_hex(&key.1)),
            what,
        }
    }
}

fn missing(key: &Key) -> Error {
    Error::Missing {
        name: format!("{} {}", key.0, objstore::exchange::key_hex(&key.1)),
    }
}
