//! [`ObjectStore`]: put and get by content, durability on request.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::behind::Behind;
use crate::cache::Cache;
use crate::compress;
use crate::content::FileContent;
use crate::elsewhere::Elsewhere;
use crate::error::{AtPath, Error, Result};
use crate::gc::marks::Marks;
use crate::gc::pins::Pins;
use crate::id::{ChunkId, ID_BYTES, Kind, ManifestId, ObjectId};
use crate::io::Storage;
use crate::limits;
use crate::object::Object;
use crate::object::manifest::{Form, Node, OpenManifest, Part};
use crate::pack::Key;
use crate::pack::record::{Codec, RecordHeader, bytes_max};
use crate::pack::set::PackSet;

/// Newest version of the store as a whole.
const STORE_VERSION: u32 = 1;

const FORMAT_FILE: &str = "format";
const FORMAT_NAME: &str = "agentvfs store ";

/// Settings of a store; [`Default`] is what programs use, tests choose smaller packs.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Size at which a pack is closed and the next begun.
    pub pack_bytes_max: u64,
    /// What holes must give back of a pack at least to be punched.
    pub punch_bytes_min: u64,
    /// Decoded chunks kept in memory.
    pub chunk_cache_bytes: usize,
    /// Decoded manifest nodes kept in memory.
    pub manifest_cache_bytes: usize,
    /// Read all packs at open in place of their indexes, and write the indexes anew.
    pub rebuild_index: bool,
}

impl Default for StoreConfig {
    fn default() -> StoreConfig {
        StoreConfig {
            pack_bytes_max: limits::PACK_BYTES_MAX,
            punch_bytes_min: limits::PUNCH_BYTES_MIN,
            chunk_cache_bytes: limits::CHUNK_CACHE_BYTES,
            manifest_cache_bytes: limits::MANIFEST_CACHE_BYTES,
            rebuild_index: false,
        }
    }
}

/// How much a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Number of packs.
    pub packs: usize,
    /// Bytes that they take on the disk.
    pub bytes: u64,
    /// Objects in them.
    pub objects: usize,
}

/// The store of chunks and objects. All methods may be called from several threads.
#[derive(Debug)]
pub struct ObjectStore {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) packs: PackSet,
    pub(crate) behind: Behind,
    /// Marks of the run of gc that goes on. Held while an object is put.
    pub(crate) gc: RwLock<Option<Arc<Marks>>>,
    pub(crate) pins: Pins,
    pub(crate) punch_bytes_min: u64,
    /// Who brings what is not here.
    pub(crate) elsewhere: RwLock<Option<Arc<dyn Elsewhere>>>,
    chunks: Cache<ChunkId, Vec<u8>>,
    nodes: Cache<ManifestId, OpenManifest>,
}

impl ObjectStore {
    /// Opens the store in `storage`, or makes one. The caller holds its [`crate::lock::StoreLock`].
    pub fn open(storage: Arc<dyn Storage>, cfg: StoreConfig) -> Result<ObjectStore> {
        check_format(&*storage)?;
        let packs = PackSet::open(storage.clone(), cfg.pack_bytes_max, cfg.rebuild_index)?;
        Ok(ObjectStore {
            storage,
            packs,
            behind: Behind::default(),
            gc: RwLock::default(),
            pins: Pins::default(),
            punch_bytes_min: cfg.punch_bytes_min,
            elsewhere: RwLock::default(),
            chunks: Cache::new(cfg.chunk_cache_bytes),
            nodes: Cache::new(cfg.manifest_cache_bytes),
        })
    }

    /// Stores a chunk unless it is there already. Durable after the next [`ObjectStore::sync`].
    pub fn put_chunk(&self, bytes: &[u8]) -> Result<ChunkId> {
        let hash = *blake3::hash(bytes).as_bytes();
        self.put(Kind::Chunk, hash, bytes)?;
        Ok(ChunkId::from_bytes(hash))
    }

    /// The bytes of a chunk, verified.
    pub fn get_chunk(&self, id: &ChunkId) -> Result<Arc<Vec<u8>>> {
        if let Some(bytes) = self.chunks.get(id) {
            return Ok(bytes);
        }
        let bytes = self.get(Kind::Chunk, id.as_bytes())?;
        Ok(self.keep_chunk(*id, bytes))
    }

    /// As [`ObjectStore::get_chunk`], but `None` where the disk would have to be waited for.
    pub fn try_get_chunk(&self, id: &ChunkId) -> Result<Option<Arc<Vec<u8>>>> {
        if let Some(bytes) = self.chunks.get(id) {
            return Ok(Some(bytes));
        }
        let bytes = self.read(&(Kind::Chunk, *id.as_bytes()), false)?;
        Ok(bytes.map(|bytes| self.keep_chunk(*id, bytes)))
    }

    fn keep_chunk(&self, id: ChunkId, bytes: Arc<Vec<u8>>) -> Arc<Vec<u8>> {
        self.chunks.put(id, bytes.clone(), bytes.len());
        bytes
    }

    /// Stores an object unless it is there already. Durable after the next [`ObjectStore::sync`].
    pub fn put_object<T: Object>(&self, object: &T) -> Result<T::Id> {
        let bytes = object.to_bytes();
        let hash = *blake3::hash(&bytes).as_bytes();
        let id = T::Id::from_bytes(hash);
        object
            .check()
            .map_err(|what| bad_object(T::KIND, &id, what))?;
        self.put(T::KIND, hash, &bytes)?;
        Ok(id)
    }

    /// Reads an object back.
    pub fn get_object<T: Object>(&self, id: &T::Id) -> Result<T> {
        let bytes = self.get(T::KIND, id.as_bytes())?;
        decode_checked(id, &bytes)
    }

    /// A manifest node, from memory where it was used lately; with `may_wait` false `None` where the
    /// disk would have to be waited for.
    pub(crate) fn manifest_node(
        &self,
        id: &ManifestId,
        may_wait: bool,
    ) -> Result<Option<Arc<OpenManifest>>> {
        if let Some(node) = self.nodes.get(id) {
            return Ok(Some(node));
        }
        let bytes = match may_wait {
            true => self.get(Kind::Manifest, id.as_bytes())?,
            false => match self.read(&(Kind::Manifest, *id.as_bytes()), false)? {
                Some(bytes) => bytes,
                None => return Ok(None),
            },
        };
        let node = Arc::new(OpenManifest::new(decode_checked(id, &bytes)?));
        self.nodes.put(*id, node.clone(), node.memory_bytes());
        Ok(Some(node))
    }

    /// The form of a content that has a manifest.
    pub(crate) fn form_of(&self, content: &FileContent) -> Result<Option<Form>> {
        let FileContent::Manifest { id, .. } = content else {
            return Ok(None);
        };
        let root = self.manifest_node(id, true)?;
        Ok(root.map(|root| root.manifest.form))
    }

    /// True where an object of this kind with this hash is stored. A run of gc keeps it then.
    pub fn contains(&self, kind: Kind, hash: &[u8; ID_BYTES]) -> bool {
        let gc = self.gc.read();
        self.finds(gc.as_deref(), &(kind, *hash))
    }

    /// True where an object is stored now. Nobody may rely on that: gc does not keep it therefore.
    pub fn holds(&self, key: &Key) -> bool {
        self.behind.contains(key) || self.packs.contains(key)
    }

    /// Looks for an object that somebody relies on; `marks` are those of the run of gc, which keeps
    /// it then.
    fn finds(&self, marks: Option<&Marks>, key: &Key) -> bool {
        match marks {
            // Nothing waits while gc runs.
            Some(marks) => marks.find(&self.packs, key),
            None => self.behind.contains(key) || self.packs.contains(key),
        }
    }

    /// True where all of a file's content is stored: every node of its manifest and every chunk.
    pub fn contains_content(&self, content: &FileContent) -> Result<bool> {
        let (mut nodes, len) = match *content {
            FileContent::Empty => return Ok(true),
            FileContent::Chunk { id, .. } => return Ok(self.contains(Kind::Chunk, id.as_bytes())),
            FileContent::Manifest { id, len } => (vec![id], len),
        };
        let most = len / limits::CHUNK_BYTES_MIN as u64 + 2;
        let mut seen = 0;
        while let Some(id) = nodes.pop() {
            seen += 1;
            if seen > most || !self.contains(Kind::Manifest, id.as_bytes()) {
                return Ok(false);
            }
            let Some(node) = self.manifest_node(&id, true)? else {
                return Ok(false);
            };
            match &node.manifest.node {
                Node::Inner { children, .. } => nodes.extend(children.iter().map(|c| c.id)),
                Node::Leaf(parts) => {
                    let there = parts.iter().all(|part| match part {
                        Part::Data { id, .. } => self.contains(Kind::Chunk, id.as_bytes()),
                        Part::Hole { .. } => true,
                    });
                    if !there {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Brings everything put before the call to stable storage: it survives a power cut after `Ok`.
    ///
    /// After an error the store takes no more puts until it is opened again; reads go on.
    pub fn sync(&self) -> Result<()> {
        self.flush()?;
        self.packs.sync()
    }

    /// Hands everything put before the call to the kernel: it survives the death of the process after
    /// `Ok`. After an error it waits on.
    pub fn flush(&self) -> Result<()> {
        let _gc = self.gc.read();
        self.flush_in_order()
    }

    /// As [`ObjectStore::flush`], for whoever holds the lock of gc.
    pub(crate) fn flush_in_order(&self) -> Result<()> {
        self.behind.flush(|key, bytes| {
            self.append(key, bytes, true)?;
            if key.0 == Kind::Chunk {
                self.keep_chunk(ChunkId::from_bytes(key.1), bytes.clone());
            }
            Ok(())
        })
    }

    /// True once a sync failed.
    pub fn is_poisoned(&self) -> bool {
        self.packs.is_poisoned()
    }

    /// Syncs and writes the indexes, so that the next open is fast. Without it nothing is lost.
    pub fn close(&self) -> Result<()> {
        self.flush()?;
        self.packs.close()
    }

    /// Ids of all stored objects of a kind, sorted.
    pub fn ids(&self, kind: Kind) -> Vec<[u8; ID_BYTES]> {
        let mut keys = self.behind.keys();
        for pack in self.packs.packs() {
            let records = pack.records.read();
            keys.extend(records.index.entries().map(|(key, _)| key));
            keys.extend(records.tail.keys().copied());
        }
        let of = keys.into_iter().filter(|(of, _)| *of == kind);
        let mut ids: Vec<_> = of.map(|(_, id)| id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// How much is stored.
    pub fn stats(&self) -> StoreStats {
        let packs = self.packs.packs();
        StoreStats {
            packs: packs.len(),
            bytes: packs.iter().map(|pack| pack.disk_bytes()).sum(),
            objects: packs.iter().map(|pack| pack.records.read().len()).sum(),
        }
    }

    fn put(&self, kind: Kind, hash: [u8; ID_BYTES], bytes: &[u8]) -> Result<()> {
        let max = bytes_max(kind);
        if bytes.len() > max {
            return Err(Error::TooLarge {
                kind,
                len: bytes.len() as u64,
                max: max as u64,
            });
        }
        let key = (kind, hash);
        if self.packs.is_poisoned() {
            return Err(Error::Poisoned);
        }
        // Held to the end: gc must not take away what this found, nor pass over what it adds.
        let gc = self.gc.read();
        if self.finds(gc.as_deref(), &key) {
            return Ok(());
        }
        let has_space = || self.packs.has_space_for(limits::WAITING_BYTES_MAX as u64);
        if gc.is_none() && self.behind.push(key, bytes, has_space) {
            return Ok(());
        }
        self.flush_in_order()?;
        self.append(key, bytes, false)
    }

    /// Stores an object as another store had it.
    pub(crate) fn put_stored(&self, key: Key, header: &RecordHeader, data: &[u8]) -> Result<()> {
        if self.packs.is_poisoned() {
            return Err(Error::Poisoned);
        }
        let gc = self.gc.read();
        if self.finds(gc.as_deref(), &key) {
            return Ok(());
        }
        self.flush_in_order()?;
        let record = (header.codec, header.raw_len as usize, data);
        self.packs.append(key, record, false)
    }

    /// Appends an object to the packs; one that was `accepted` waited for it.
    fn append(&self, key: Key, bytes: &[u8], accepted: bool) -> Result<()> {
        let stored = compress::compress(bytes);
        let record = match &stored {
            Some(stored) => (Codec::Zstd, bytes.len(), &stored[..]),
            None => (Codec::Raw, bytes.len(), bytes),
        };
        self.packs.append(key, record, accepted)
    }

    /// The bytes of an object; with `may_wait` false `None` where the disk would be waited for.
    fn read(&self, key: &Key, may_wait: bool) -> Result<Option<Arc<Vec<u8>>>> {
        // What waits is found in the packs before it is no longer found here.
        if let Some(bytes) = self.behind.get(key) {
            return Ok(Some(bytes));
        }
        match self.packs.read(key, may_wait) {
            // It may be elsewhere, which has to be waited for.
            Err(e) if e.is_damage() && !may_wait && self.has_elsewhere() => Ok(None),
            read => Ok(read?.map(Arc::new)),
        }
    }

    pub(crate) fn get(&self, kind: Kind, hash: &[u8; ID_BYTES]) -> Result<Arc<Vec<u8>>> {
        let key = (kind, *hash);
        let read = match self.read(&key, true) {
            // What is damaged here may be whole elsewhere.
            Err(e) if e.is_damage() && self.bring(&key)? => self.read(&key, true),
            read => read,
        };
        read?.ok_or_else(|| Error::ObjectMissing {
            kind,
            id: crate::id::hex(hash),
        })
    }
}

fn bad_object<I: ObjectId>(kind: Kind, id: &I, what: &'static str) -> Error {
    Error::BadObject {
        kind,
        id: id.to_string(),
        what,
    }
}

fn decode_checked<T: Object>(id: &T::Id, bytes: &[u8]) -> Result<T> {
    let object = T::from_bytes(bytes).map_err(|error| bad_object(T::KIND, id, error.0))?;
    object
        .check()
        .map_err(|what| bad_object(T::KIND, id, what))?;
    Ok(object)
}

/// Checks the file that says what this is, or writes it in a new store.
fn check_format(storage: &dyn Storage) -> Result<()> {
    let Some(bytes) = storage.read(FORMAT_FILE).at(FORMAT_FILE)? else {
        let text = format!("{FORMAT_NAME}{STORE_VERSION}\n");
        return storage
            .replace(FORMAT_FILE, text.as_bytes())
            .at(FORMAT_FILE);
    };
    let text = std::str::from_utf8(&bytes).ok();
    let number = text.and_then(|text| text.strip_prefix(FORMAT_NAME)?.trim_end().parse().ok());
    match number {
        Some(STORE_VERSION) => Ok(()),
        Some(found) if found > STORE_VERSION => Err(Error::NewerVersion {
            found,
            supported: STORE_VERSION,
        }),
        _ => Err(Error::Corrupt {
            what: "format file",
            path: FORMAT_FILE.into(),
            offset: 0,
        }),
    }
}
