//! An open remote: its marker was checked, its objects are read with their checks, and generations follow each
//! other.
//!
//! What was damaged on the way is read again; what is damaged in the remote is an error that names the object.

use crate::bucket::retry::{RetryBucket, Traffic};
use crate::bucket::{Bucket, Condition, Etag, Put};
use crate::chance::Chance;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::layout::catalog::{self, BranchName, Catalog, Head, IndexEntry};
use crate::layout::index::{self, Index, PackEntry, Place};
use crate::layout::reference::{self, RemoteRef};
use crate::layout::{HEAD, Hash, catalog_name, index_name, marker, pack_name, ref_name};
use crate::limits::{INDEX_BYTES_TOTAL_MAX, PACK_BYTES, READS_MAX, REGISTER_BYTES};
use objstore::exchange::Record;
use objstore::{Key, Kind};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// How large what a push puts becomes; [`Default`] is what programs use, tests choose less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Length at which a pack is full.
    pub pack_bytes: u64,
    /// Bytes of packs after which a push makes them present.
    pub register_bytes: u64,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            pack_bytes: PACK_BYTES,
            register_bytes: REGISTER_BYTES,
        }
    }
}

/// A remote. All methods may be called from several threads.
#[derive(Debug)]
pub struct Remote {
    bucket: RetryBucket,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sizes: Sizes,
    chance: Mutex<Chance>,
    /// Indexes that were read. They never change.
    indexes: Mutex<HashMap<Hash, Arc<Index>>>,
}

/// One generation of a remote: which objects are present.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Version of the head that names it.
    pub etag: Etag,
    /// Its catalog.
    pub catalog: Catalog,
    /// The catalog's indexes, in its order.
    pub indexes: Vec<Arc<Index>>,
}

/// Where an object is in a remote.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Pack that has it.
    pub pack: PackEntry,
    /// Where in that.
    pub place: Place,
}

impl Generation {
    /// Where an object is, if it is present.
    pub fn find(&self, key: &Key) -> Option<Found> {
        let hits = self.indexes.iter().filter_map(|index| {
            let place = index.find(key)?;
            let pack = *index.packs().get(place.pack as usize)?;
            Some(Found { pack, place })
        });
        hits.take(1).next()
    }

    /// The commits whose records lie in a range of a pack, the range's end included.
    pub(crate) fn commits_within(&self, pack: &Hash, range: &Range<u64>) -> Vec<(Key, Place)> {
        let of = |index: &Arc<Index>| {
            let number = index.packs().iter().position(|p| p.hash == *pack)?;
            let is_inside = |place: &Place| {
                let at = place.range();
                place.pack as usize == number && range.start <= at.start && at.end <= range.end
            };
            let commits = index.objects_of(Kind::Commit);
            Some(
                commits
                    .filter(|(_, place)| is_inside(place))
                    .collect::<Vec<_>>(),
            )
        };
        self.indexes.iter().find_map(of).unwrap_or_default()
    }

    /// Whether an object is present, and so all that it refers to.
    pub fn has(&self, key: &Key) -> bool {
        self.indexes.iter().any(|index| index.find(key).is_some())
    }
}

impl Remote {
    /// Opens a remote that is there.
    pub fn open(bucket: Arc<dyn Bucket>, clock: Arc<dyn Clock>) -> Result<Remote> {
        let remote = Remote::on(bucket, clock);
        match remote.read(marker::NAME, marker::BYTES_MAX, marker::check)? {
            Some(_) => Ok(remote),
            None => Err(Error::NoRemote),
        }
    }

    /// Opens a remote, or makes one where there is none; `made` is the time, as RFC 3339. Refuses a bucket whose puts
    /// do not keep their conditions.
    pub fn create(bucket: Arc<dyn Bucket>, clock: Arc<dyn Clock>, made: &str) -> Result<Remote> {
        let remote = Remote::on(bucket, clock);
        remote.probe()?;
        if remote
            .read(marker::NAME, marker::BYTES_MAX, marker::check)?
            .is_some()
        {
            return Ok(remote);
        }
        // The marker comes last: who finds it finds all.
        if remote
            .read(HEAD, catalog::HEAD_BYTES_MAX, Head::decode)?
            .is_none()
        {
            let first = Catalog {
                random: remote.random(),
                ..Catalog::default()
            };
            let head = remote.put_catalog(&first)?;
            remote.bucket.put(HEAD, &head.encode(), Condition::Absent)?;
        }
        let marker = marker::encode(made);
        remote
            .bucket
            .put(marker::NAME, &marker, Condition::Absent)?;
        Ok(remote)
    }

    fn on(bucket: Arc<dyn Bucket>, clock: Arc<dyn Clock>) -> Remote {
        Remote {
            bucket: RetryBucket::new(bucket, clock.clone()),
            clock,
            sizes: Sizes::default(),
            chance: Mutex::new(Chance::fresh()),
            indexes: Mutex::default(),
        }
    }

    /// The same remote with other sizes.
    pub fn sized(self, sizes: Sizes) -> Remote {
        Remote { sizes, ..self }
    }

    /// Whether conditions of puts are kept.
    fn probe(&self) -> Result<()> {
        let name = format!("probe/{:016x}", self.random());
        let put = |bytes: &[u8], condition: Condition<'_>| self.bucket.put(&name, bytes, condition);
        let kept = keeps_conditions(&put);
        let deleted = self.bucket.delete(&name);
        match kept? {
            true => deleted,
            false => Err(Error::Unsupported {
                name: "the remote".into(),
                why: "it does not keep the conditions of puts (If-None-Match, If-Match)".into(),
            }),
        }
    }

    /// Requests and bytes since it was opened.
    pub fn traffic(&self) -> Traffic {
        self.bucket.traffic()
    }

    pub(crate) fn bucket(&self) -> &RetryBucket {
        &self.bucket
    }

    pub(crate) fn random(&self) -> u64 {
        self.chance.lock().word()
    }

    /// An object, decoded; `None` where there is none.
    fn read<T>(
        &self,
        name: &str,
        max: u64,
        decode: impl Fn(&[u8]) -> Result<T>,
    ) -> Result<Option<(T, Etag)>> {
        let mut reads = 0;
        loop {
            let got = self.bucket.get(name, max);
            let value = match got {
                Ok(None) => return Ok(None),
                Ok(Some(got)) => decode(&got.bytes).map(|value| (value, got.etag)),
                Err(e) => Err(e),
            };
            reads += 1;
            match value {
                Err(e) if e.may_be_the_way() && reads < READS_MAX => {
                    tracing::debug!("read again: {e}");
                }
                value => return value.map(Some),
            }
        }
    }

    /// The ref of a branch.
    pub fn reference(&self, of: &BranchName) -> Result<Option<(RemoteRef, Etag)>> {
        let name = ref_name(&of.project, &of.branch);
        self.read(&name, reference::BYTES_MAX, |bytes| {
            RemoteRef::decode(&name, bytes)
        })
    }

    /// Puts the ref of a branch in place of the version that was read. False where it is another by now.
    pub(crate) fn put_reference(
        &self,
        of: &BranchName,
        value: &RemoteRef,
        before: Option<&Etag>,
    ) -> Result<bool> {
        let name = ref_name(&of.project, &of.branch);
        let condition = before.map_or(Condition::Absent, Condition::Matches);
        if self.bucket.put(&name, &value.encode(), condition)? != Put::Refused {
            return Ok(true);
        }
        // It may be ours all the same: an answer was lost, and the bytes that were read then were not what is there.
        let now = self.reference(of)?;
        Ok(now.is_some_and(|(now, _)| now.random == value.random))
    }

    /// The valid generation, whole.
    pub fn generation(&self) -> Result<Generation> {
        let mut reads = 0;
        loop {
            reads += 1;
            match self.try_generation() {
                // It was valid when the head was read, and gc has removed it since.
                Err(Error::Missing { .. }) if reads < READS_MAX => {}
                generation => return generation,
            }
        }
    }

    fn try_generation(&self) -> Result<Generation> {
        let head = self.read(HEAD, catalog::HEAD_BYTES_MAX, Head::decode)?;
        let (head, etag) = head.ok_or(Error::Missing { name: HEAD.into() })?;
        let name = catalog_name(&head.catalog);
        let catalog = self.named(&name, &head.catalog, catalog::CATALOG_BYTES_MAX, |bytes| {
            Catalog::decode(&name, bytes)
        })?;
        if catalog.generation != head.generation {
            return Err(Error::Damaged {
                name,
                what: "it is of another generation",
            });
        }
        let total = catalog.indexes.iter().map(|i| i.bytes);
        let total = total.fold(0u64, u64::saturating_add);
        if total > INDEX_BYTES_TOTAL_MAX {
            return Err(Error::TooLarge {
                name: "indexes".into(),
                bytes: total,
                max: INDEX_BYTES_TOTAL_MAX,
            });
        }
        let indexes = catalog.indexes.iter().map(|entry| self.index(entry));
        let indexes = indexes.collect::<Result<Vec<_>>>()?;
        self.forget_others(&catalog);
        Ok(Generation {
            etag,
            catalog,
            indexes,
        })
    }

    /// An object that is named by its hash.
    fn named<T>(
        &self,
        name: &str,
        hash: &Hash,
        max: u64,
        decode: impl Fn(&[u8]) -> Result<T>,
    ) -> Result<T> {
        let value = self.read(name, max, |bytes| match blake3::hash(bytes) == *hash {
            true => decode(bytes),
            false => Err(Error::Damaged {
                name: name.to_owned(),
                what: "it does not match its name",
            }),
        })?;
        let missing = || Error::Missing {
            name: name.to_owned(),
        };
        value.map(|(value, _)| value).ok_or_else(missing)
    }

    pub(crate) fn index(&self, entry: &IndexEntry) -> Result<Arc<Index>> {
        if let Some(known) = self.indexes.lock().get(&entry.hash) {
            return Ok(known.clone());
        }
        let name = index_name(&entry.hash);
        let max = entry.bytes.min(index::BYTES_MAX);
        let index = self.named(&name, &entry.hash, max, |bytes| Index::decode(&name, bytes))?;
        let index = Arc::new(index);
        self.indexes.lock().insert(entry.hash, index.clone());
        Ok(index)
    }

    fn forget_others(&self, catalog: &Catalog) {
        let mut known = self.indexes.lock();
        known.retain(|hash, _| catalog.indexes.iter().any(|entry| entry.hash == *hash));
    }

    /// Puts an index; gives its entry in a catalog of this generation.
    pub(crate) fn put_index(&self, index: Index, generation: u64) -> Result<IndexEntry> {
        let bytes = index.encode(self.random());
        let hash = *blake3::hash(&bytes).as_bytes();
        self.bucket
            .put(&index_name(&hash), &bytes, Condition::Always)?;
        let entry = IndexEntry {
            hash,
            bytes: bytes.len() as u64,
            objects: index.len() as u64,
            generation,
        };
        self.indexes.lock().insert(hash, Arc::new(index));
        Ok(entry)
    }

    fn put_catalog(&self, catalog: &Catalog) -> Result<Head> {
        let bytes = catalog.encode();
        let hash = *blake3::hash(&bytes).as_bytes();
        self.bucket
            .put(&catalog_name(&hash), &bytes, Condition::Always)?;
        Ok(Head {
            generation: catalog.generation,
            catalog: hash,
            random: self.random(),
        })
    }

    /// Makes a catalog the generation that follows `before`; `None` where another one does.
    pub(crate) fn advance(
        &self,
        before: &Generation,
        mut catalog: Catalog,
    ) -> Result<Option<Generation>> {
        catalog.generation = before.catalog.generation + 1;
        catalog.random = self.random();
        let head = self.put_catalog(&catalog)?;
        let condition = Condition::Matches(&before.etag);
        let etag = match self.bucket.put(HEAD, &head.encode(), condition)? {
            Put::Done(etag) => etag,
            Put::Refused => {
                let now = self.read(HEAD, catalog::HEAD_BYTES_MAX, Head::decode)?;
                match now.filter(|(now, _)| *now == head) {
                    Some((_, etag)) => etag,
                    None => return Ok(None),
                }
            }
        };
        let indexes = catalog.indexes.iter().map(|entry| self.index(entry));
        Ok(Some(Generation {
            etag,
            indexes: indexes.collect::<Result<_>>()?,
            catalog,
        }))
    }

    /// The record of an object that is present.
    pub(crate) fn record(&self, key: &Key, found: &Found) -> Result<Record> {
        let name = pack_name(&found.pack.hash);
        let mut reads = 0;
        loop {
            reads += 1;
            let bytes = self.bucket.get_range(&name, found.place.range());
            let bytes = bytes?.ok_or_else(|| Error::Missing { name: name.clone() })?;
            match Record::parse(key, bytes) {
                Ok(record) => return Ok(record),
                Err(what) if reads >= READS_MAX => return Err(Error::Damaged { name, what }),
                Err(what) => tracing::debug!(what, "read again: {name}"),
            }
        }
    }
}

/// Whether puts of one object that is not there are carried out and refused as they must be.
fn keeps_conditions(put: &dyn Fn(&[u8], Condition<'_>) -> Result<Put>) -> Result<bool> {
    let Put::Done(first) = put(b"1", Condition::Absent)? else {
        return Ok(false);
    };
    if put(b"2", Condition::Absent)? != Put::Refused {
        return Ok(false);
    }
    let Put::Done(second) = put(b"3", Condition::Matches(&first))? else {
        return Ok(false);
    };
    Ok(second != first && put(b"4", Condition::Matches(&first))? == Put::Refused)
}
