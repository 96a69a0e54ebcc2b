//! Packs of one push, and the generations in which they become present.

use super::{Context, PushRequest, too_busy};
use crate::bucket::{Bucket, Condition};
use crate::error::{Error, Result};
use crate::layout::catalog::{Catalog, INDEXES_MAX, IndexEntry, Pending};
use crate::layout::index::{self, Index, PackEntry, Place};
use crate::layout::reference::RemoteRef;
use crate::layout::{Hash, index_name, pack_name};
use crate::limits::{GRACE_SEC, INDEXES_KEPT_MAX, REGISTER_OBJECTS};
use crate::remote::{Generation, Remote};
use crate::walk::Walk;
use objstore::exchange::PackBuilder;
use objstore::{CommitId, FileContent, Key, ObjectStore};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A push under way.
pub(super) struct Sending<'a> {
    remote: &'a Remote,
    store: &'a ObjectStore,
    context: &'a Context<'a>,
    roots: Vec<(Key, bool)>,
    /// The ref's commit when the push began.
    before: Option<CommitId>,
    /// Packs that are put and that no generation names yet, and the objects in them.
    packs: Vec<PackEntry>,
    objects: HashMap<Key, Place>,
    /// When the first of these packs was put.
    since: i64,
    sent_objects: u64,
    sent_bytes: u64,
}

impl<'a> Sending<'a> {
    pub fn new(
        remote: &'a Remote,
        store: &'a ObjectStore,
        context: &'a Context<'a>,
        roots: Vec<(Key, bool)>,
        before: Option<CommitId>,
    ) -> Sending<'a> {
        Sending {
            before,
            remote,
            store,
            context,
            roots,
            packs: Vec::new(),
            objects: HashMap::new(),
            since: 0,
            sent_objects: 0,
            sent_bytes: 0,
        }
    }

    /// Objects and bytes of packs so far.
    pub fn sent(&self) -> (u64, u64) {
        (self.sent_objects, self.sent_bytes)
    }

    /// Sends all that the remote lacks; gives when a generation announced the ref.
    pub fn send(&mut self, request: &PushRequest, new: &RemoteRef) -> Result<i64> {
        let mut tries = 0;
        loop {
            let generation = self.remote.generation()?;
            if let Some(announced) = self.send_from(generation, request, new)? {
                return Ok(announced);
            }
            // What was put may refer to what is gone. It must not become present before that is there again.
            self.drop_packs();
            tries += 1;
            too_busy(tries)?;
        }
    }

    /// Sends what a generation lacks; `None` where something that this relies on may be gone, so that it has to be
    /// looked at again.
    fn send_from(
        &mut self,
        mut generation: Generation,
        request: &PushRequest,
        new: &RemoteRef,
    ) -> Result<Option<i64>> {
        let missing = self.missing(&generation)?;
        let mut rest = missing.as_slice();
        while !rest.is_empty() {
            let taken = self.put_some(rest, missing.len())?;
            rest = &rest[taken..];
            if !rest.is_empty() {
                match self.register(generation, None)? {
                    Some(next) => generation = next,
                    None => return Ok(None),
                }
            }
        }
        let now = self.remote.clock.now();
        let announced = self.register(generation, Some((request, new)))?;
        Ok(announced.map(|_| now))
    }

    /// Announces the ref again where that was long ago: a generation keeps what is announced for the grace period.
    pub fn keep_alive(&mut self, since: i64, request: &PushRequest, new: &RemoteRef) -> Result<()> {
        match self.remote.clock.now().saturating_sub(since) < GRACE_SEC / 2 {
            true => Ok(()),
            false => self.send(request, new).map(drop),
        }
    }

    fn missing(&self, generation: &Generation) -> Result<Vec<Key>> {
        let whole = |key: &Key| generation.has(key);
        let mut walk = Walk::new(self.store, &whole, self.context.check);
        for (root, lenient) in &self.roots {
            walk.root(*root, *lenient)?;
        }
        Ok(walk.finish())
    }

    fn drop_packs(&mut self) {
        self.packs.clear();
        self.objects.clear();
    }

    /// Puts packs with the first of these objects, as many as one generation is to add; how many these are.
    fn put_some(&mut self, keys: &[Key], total: usize) -> Result<usize> {
        let (mut bytes, mut taken) = (0, 0);
        while taken < keys.len()
            && bytes < self.remote.sizes.register_bytes
            && self.objects.len() < REGISTER_OBJECTS
        {
            let mut pack = PackBuilder::new(self.remote.random() as u32);
            let mut places = Vec::new();
            while let Some(key) = keys.get(taken) {
                (self.context.check)()?;
                let record = self.store.get_record(key)?;
                if !pack.is_empty()
                    && pack.len() + record.stored_len() > self.remote.sizes.pack_bytes
                {
                    break;
                }
                let place = Place {
                    pack: self.packs.len() as u32,
                    offset: pack.push(&record),
                    stored_len: record.stored_len() as u32,
                };
                places.push((*key, place));
                taken += 1;
            }
            bytes += pack.len();
            self.put_pack(pack.finish(), places)?;
            let done = total - keys.len() + taken;
            (self.context.progress)(done as u64, total as u64);
        }
        Ok(taken)
    }

    fn put_pack(&mut self, bytes: Vec<u8>, places: Vec<(Key, Place)>) -> Result<()> {
        let hash = *blake3::hash(&bytes).as_bytes();
        if self.packs.is_empty() {
            self.since = self.remote.clock.now();
        }
        let name = pack_name(&hash);
        self.remote.bucket().put(&name, &bytes, Condition::Always)?;
        self.packs.push(PackEntry {
            hash,
            bytes: bytes.len() as u64,
            generation: 0,
        });
        self.sent_objects += places.len() as u64;
        self.sent_bytes += bytes.len() as u64;
        self.objects.extend(places);
        Ok(())
    }

    /// Packs that were put long ago and are in no generation may be collected.
    fn has_old_packs(&self) -> bool {
        let age = self.remote.clock.now().saturating_sub(self.since);
        !self.packs.is_empty() && age >= GRACE_SEC / 2
    }

    /// Makes what was put present, in a generation that follows `generation`, perhaps with others between them.
    /// `None` where one of these has less than the one before, or the packs were put long ago.
    fn register(
        &mut self,
        mut generation: Generation,
        announce: Option<(&PushRequest, &RemoteRef)>,
    ) -> Result<Option<Generation>> {
        let collections = generation.catalog.collections;
        let mut index = None;
        let mut tries = 0;
        while generation.catalog.collections == collections && !self.has_old_packs() {
            (self.context.check)()?;
            let mut catalog = generation.catalog.clone();
            if !self.packs.is_empty() {
                let entry: IndexEntry = match index {
                    Some(entry) => entry,
                    None => self.put_index()?,
                };
                index = Some(entry);
                self.claim(&mut catalog, &entry.hash)?;
                catalog.indexes.push(IndexEntry {
                    generation: catalog.generation + 1,
                    ..entry
                });
            }
            if let Some((request, new)) = announce {
                self.announce(&mut catalog, request, new);
            }
            self.merge_indexes(&generation, &mut catalog)?;
            if let Some(next) = self.remote.advance(&generation, catalog)? {
                self.drop_packs();
                return Ok(Some(next));
            }
            tries += 1;
            too_busy(tries)?;
            generation = self.remote.generation()?;
        }
        Ok(None)
    }

    fn put_index(&self) -> Result<IndexEntry> {
        let objects = self.objects.iter().map(|(key, place)| (*key, *place));
        let index = Index::build(self.packs.clone(), objects.collect());
        self.remote.put_index(index, 0)
    }

    /// The catalog names these objects from now on: they are condemned no longer. One that is being removed can be
    /// named no more.
    fn claim(&self, catalog: &mut Catalog, index: &Hash) -> Result<()> {
        let packs = self.packs.iter().map(|pack| pack_name(&pack.hash));
        for name in packs.chain([index_name(index)]) {
            catalog.condemned.remove(&name);
            if catalog.removing.contains_key(&name) {
                return Err(Error::Transient {
                    name,
                    why: "gc is removing it, though it was put a moment ago".into(),
                });
            }
        }
        Ok(())
    }

    fn announce(&self, catalog: &mut Catalog, request: &PushRequest, new: &RemoteRef) {
        if let Err(at) = catalog.refs.binary_search(&request.to) {
            catalog.refs.insert(at, request.to.clone());
        }
        // Others that push to this branch have announced theirs, which stay. One that is done is needed no more.
        let labels = new.labels.iter().map(|(_, id)| *id);
        let labels: BTreeSet<CommitId> = labels.filter(|id| *id != new.commit).collect();
        let commits = [new.commit].into_iter().chain(labels).collect();
        let timelines = new.timelines.iter();
        let contents: Vec<FileContent> = timelines.flat_map(|t| [t.log, t.commits]).collect();
        let is_done = |p: &Pending| p.of == request.to && p.commits.first() == self.before.as_ref();
        catalog
            .pending
            .retain(|p| self.before.is_none() || !is_done(p));
        catalog.pending.push(Pending {
            of: request.to.clone(),
            commits,
            contents,
            generation: catalog.generation + 1,
        });
    }

    /// Keeps the number of indexes small: where there are too many, the smallest become one.
    fn merge_indexes(&self, generation: &Generation, catalog: &mut Catalog) -> Result<()> {
        if catalog.indexes.len() <= INDEXES_KEPT_MAX {
            return Ok(());
        }
        let known: HashMap<Hash, &Arc<Index>> = {
            let entries = generation.catalog.indexes.iter();
            entries.map(|e| e.hash).zip(&generation.indexes).collect()
        };
        let mut by_size: Vec<_> = catalog.indexes.to_vec();
        by_size.retain(|entry| known.contains_key(&entry.hash));
        by_size.sort_by_key(|entry| entry.bytes);
        let (mut bytes, mut some) = (0, Vec::new());
        for entry in by_size {
            bytes += entry.bytes;
            if bytes > index::BYTES_MAX || some.len() >= INDEXES_KEPT_MAX {
                break;
            }
            some.push(entry);
        }
        if some.len() < 2 {
            return match catalog.indexes.len() < INDEXES_MAX {
                true => Ok(()),
                false => Err(Error::TooLarge {
                    name: "indexes".into(),
                    bytes: catalog.indexes.len() as u64,
                    max: INDEXES_MAX as u64,
                }),
            };
        }
        let parts = some
            .iter()
            .map(|entry| (entry.generation, known[&entry.hash].as_ref()));
        let merged = merge(parts);
        let entry = self.remote.put_index(merged, catalog.generation + 1)?;
        catalog
            .indexes
            .retain(|e| !some.iter().any(|s| s.hash == e.hash));
        catalog.indexes.push(entry);
        Ok(())
    }
}

/// One index of several, each with the generation of its entry: packs keep theirs.
pub(crate) fn merge<'a>(parts: impl Iterator<Item = (u64, &'a Index)>) -> Index {
    let (mut packs, mut objects) = (Vec::new(), Vec::new());
    for (generation, index) in parts {
        let first = packs.len() as u32;
        packs.extend(index.packs().iter().map(|pack| PackEntry {
            generation: if pack.generation == 0 {
                generation
            } else {
                pack.generation
            },
            ..*pack
        }));
        objects.extend(index.objects().map(|(key, place)| {
            let pack = first + place.pack;
            (key, Place { pack, ..place })
        }));
    }
    Index::build(packs, objects)
}
