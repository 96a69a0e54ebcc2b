//! Objects as they leave a store and come into one: records, the packs that carry them elsewhere, and what an
//! object refers to.
//!
//! A record moves as it is stored, compressed or not. Invariant: a [`Record`] that was read from foreign bytes
//! ([`Record::parse`]) has the content that its id says, so that what is put with it can be trusted as what
//! was made here.

use crate::compress;
use crate::content::FileContent;
use crate::error::{Error, Result};
use crate::id::{CommitId, ID_BYTES, Kind, ManifestId, TreeId};
use crate::object::Object;
use crate::object::commit::Commit;
use crate::object::manifest::{Manifest, Node, Part};
use crate::object::tree::{Body, TreeNode};
use crate::pack::record::{
    Codec, PACK_HEADER_BYTES, PACK_VERSION, PackHeader, RECORD_HEADER_BYTES, RecordHeader,
    bytes_max,
};
use crate::pack::{Key, unpack_data};
use crate::store::ObjectStore;

/// Bytes before the first record of a pack.
pub const PACK_START: u64 = PACK_HEADER_BYTES as u64;
/// Bytes before the data of a record.
pub const RECORD_START: u64 = RECORD_HEADER_BYTES as u64;

/// An object as it is stored.
#[derive(Clone, Debug)]
pub struct Record {
    header: RecordHeader,
    data: Vec<u8>,
}

impl Record {
    /// The record at the start of `bytes`, which end with it, if it is the one of `key` and whole.
    pub fn parse(key: &Key, mut bytes: Vec<u8>) -> Result<Record, &'static str> {
        let header = RecordHeader::decode(&bytes).ok_or("record header")?;
        if (header.kind, header.id) != *key {
            return Err("record is another one");
        }
        if bytes.len() - RECORD_HEADER_BYTES != header.stored_len as usize {
            return Err("length of a record");
        }
        unpack_data(&header, bytes.clone(), RECORD_HEADER_BYTES)?;
        bytes.drain(..RECORD_HEADER_BYTES);
        Ok(Record {
            header,
            data: bytes,
        })
    }

    /// Of which object.
    pub fn key(&self) -> Key {
        (self.header.kind, self.header.id)
    }

    /// Length of its data as stored.
    pub fn stored_len(&self) -> u64 {
        self.data.len() as u64
    }

    /// The record as bytes, which [`Record::parse`] reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.header.encode().to_vec();
        bytes.extend_from_slice(&self.data);
        bytes
    }

    /// The object's content.
    pub fn content(&self) -> Result<Vec<u8>, &'static str> {
        unpack_data(&self.header, self.data.clone(), 0)
    }
}

/// The largest data that a record of this kind may have.
pub fn stored_bytes_max(kind: Kind) -> u64 {
    bytes_max(kind) as u64
}

/// A pack that is put together in memory, to be kept elsewhere.
#[derive(Debug)]
pub struct PackBuilder {
    bytes: Vec<u8>,
    salt: u32,
}

impl PackBuilder {
    /// A pack without records. Packs with different salts never have the same bytes.
    pub fn new(salt: u32) -> PackBuilder {
        let header = PackHeader {
            version: PACK_VERSION,
            number: 0,
            salt,
        };
        PackBuilder {
            bytes: header.encode().to_vec(),
            salt,
        }
    }

    /// Adds a record; gives the offset at which it stands.
    pub fn push(&mut self, record: &Record) -> u32 {
        let at = self.bytes.len();
        let header = RecordHeader {
            salt: self.salt,
            ..record.header
        };
        self.bytes.extend_from_slice(&header.encode());
        self.bytes.extend_from_slice(&record.data);
        assert!(u32::try_from(self.bytes.len()).is_ok(), "a pack of 4 GiB");
        at as u32
    }

    /// Bytes so far.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// True where it has no record.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == PACK_HEADER_BYTES
    }

    /// The pack.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

impl ObjectStore {
    /// An object as it is stored, verified.
    pub fn get_record(&self, key: &Key) -> Result<Record> {
        if let Some((header, data)) = self.packs.read_stored(key)? {
            return Ok(Record { header, data });
        }
        // It waits for its pack, or is damaged or missing, which this says.
        let raw = self.get(key.0, &key.1)?;
        let stored = compress::compress(&raw);
        let (codec, data) = match stored {
            Some(stored) => (Codec::Zstd, stored),
            None => (Codec::Raw, raw.to_vec()),
        };
        Ok(Record {
            header: RecordHeader {
                salt: 0,
                kind: key.0,
                codec,
                stored_len: data.len() as u32,
                raw_len: raw.len() as u32,
                id: key.1,
            },
            data,
        })
    }

    /// Stores an object that came as a record, unless it is there already. Durable after the next
    /// [`ObjectStore::sync`]. What it refers to must be there before it.
    pub fn put_record(&self, record: &Record) -> Result<()> {
        self.put_stored(record.key(), &record.header, &record.data)
    }

    /// Keys of what an object refers to, the object being there.
    pub fn references(&self, key: &Key) -> Result<References> {
        let content = self.get(key.0, &key.1)?;
        references(key.0, &content).map_err(|what| Error::BadObject {
            kind: key.0,
            id: crate::id::hex(&key.1),
            what,
        })
    }
}

/// What an object refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// What must be there for the object to be whole.
    pub needed: Vec<Key>,
    /// Parents of a commit, which may be missing.
    pub parents: Vec<CommitId>,
}

/// What the object with this content refers to; checks it as reading it does.
pub fn references(kind: Kind, content: &[u8]) -> Result<References, &'static str> {
    let mut found = References::default();
    match kind {
        Kind::Chunk => {}
        Kind::Manifest => match checked::<Manifest>(content)?.node {
            Node::Leaf(parts) => found
                .needed
                .extend(parts.iter().filter_map(|part| match part {
                    Part::Data { id, .. } => Some((Kind::Chunk, *id.as_bytes())),
                    Part::Hole { .. } => None,
                })),
            Node::Inner { children, .. } => {
                let children = children.iter().map(|c| manifest(&c.id));
                found.needed.extend(children);
            }
        },
        Kind::Tree => match checked::<TreeNode>(content)? {
            TreeNode::Leaf(entries) => {
                found
                    .needed
                    .extend(entries.iter().filter_map(|e| match &e.body {
                        Body::File(content) => content_key(content),
                        Body::Dir(Some(id)) => Some(tree(id)),
                        _ => None,
                    }));
            }
            TreeNode::Inner(children) => found.needed.extend(children.iter().map(|c| tree(&c.id))),
        },
        Kind::Commit => {
            let commit = checked::<Commit>(content)?;
            found.needed.extend(commit.root.as_ref().map(tree));
            found
                .needed
                .extend(commit.kv.as_ref().and_then(content_key));
            found.parents = commit.parents;
        }
    }
    Ok(found)
}

fn checked<T: Object>(content: &[u8]) -> Result<T, &'static str> {
    let object = T::from_bytes(content).map_err(|e| e.0)?;
    object.check().map(|()| object)
}

/// The object that content begins with, where it is stored as any.
pub fn content_key(content: &FileContent) -> Option<Key> {
    match content {
        FileContent::Empty => None,
        FileContent::Chunk { id, .. } => Some((Kind::Chunk, *id.as_bytes())),
        FileContent::Manifest { id, .. } => Some(manifest(id)),
    }
}

/// The key of a commit.
pub fn commit_key(id: &CommitId) -> Key {
    (Kind::Commit, *id.as_bytes())
}

fn manifest(id: &ManifestId) -> Key {
    (Kind::Manifest, *id.as_bytes())
}

fn tree(id: &TreeId) -> Key {
    (Kind::Tree, *id.as_bytes())
}

/// The 64 hex digits of a key's hash.
pub fn key_hex(hash: &[u8; ID_BYTES]) -> String {
    crate::id::hex(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash_storage::CrashStorage;
    use crate::object::commit::CommitKind;
    use crate::object::tree::Meta;
    use crate::store::StoreConfig;
    use std::sync::Arc;

    fn store() -> ObjectStore {
        ObjectStore::open(Arc::new(CrashStorage::new()), StoreConfig::default()).unwrap()
    }

    fn commit() -> Commit {
        Commit {
            root_meta: Meta::default(),
            root: None,
            parents: Vec::new(),
            time_sec: 0,
            time_nsec: 0,
            author: String::new(),
            message: "x".repeat(2000),
            meta: Vec::new(),
            kind: CommitKind::Asked,
            kv: None,
            timeline: None,
        }
    }

    #[test]
    fn records_pass_from_store_to_store_by_a_pack() {
        let (from, to) = (store(), store());
        let chunk = from.put_chunk(&[7; 100_000]).unwrap();
        let commit = from.put_object(&commit()).unwrap();
        let keys = [(Kind::Chunk, *chunk.as_bytes()), commit_key(&commit)];
        let mut pack = PackBuilder::new(5);
        let records = keys.map(|key| from.get_record(&key).unwrap());
        let at = records.each_ref().map(|r| pack.push(r) as usize);
        let bytes = pack.finish();
        for (key, (record, at)) in keys.iter().zip(records.iter().zip(at)) {
            let end = at + (RECORD_START + record.stored_len()) as usize;
            let came = Record::parse(key, bytes[at..end].to_vec()).unwrap();
            to.put_record(&came).unwrap();
            to.put_record(&came).unwrap();
        }
        assert_eq!(*to.get_chunk(&chunk).unwrap(), [7; 100_000]);
        assert_eq!(
            to.get_object::<Commit>(&commit).unwrap().message.len(),
            2000
        );
        assert_eq!(to.stats().objects, 2);
    }

    #[test]
    fn an_object_that_waits_for_its_pack_leaves_too() {
        let from = store();
        let _behind = from.put_behind();
        let chunk = from.put_chunk(&[7; 100_000]).unwrap();
        let record = from.get_record(&(Kind::Chunk, *chunk.as_bytes())).unwrap();
        assert_eq!(record.content().unwrap(), [7; 100_000]);
        let missing = from.get_record(&(Kind::Chunk, [1; ID_BYTES]));
        assert!(matches!(missing, Err(Error::ObjectMissing { .. })));
    }

    #[test]
    fn no_foreign_content_passes() {
        let from = store();
        let chunk = from.put_chunk(&[7; 3000]).unwrap();
        let key = (Kind::Chunk, *chunk.as_bytes());
        let mut pack = PackBuilder::new(5);
        let at = pack.push(&from.get_record(&key).unwrap()) as usize;
        let record = pack.finish()[at..].to_vec();
        assert!(Record::parse(&key, record.clone()).is_ok());
        for bit in 0..record.len() * 8 {
            let mut bad = record.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // The salt, and bits that zstd does not look at.
            if let Ok(record) = Record::parse(&key, bad) {
                assert_eq!(record.content().unwrap(), [7; 3000], "bit {bit}");
            }
        }
        for len in 0..record.len() {
            assert!(Record::parse(&key, record[..len].to_vec()).is_err());
        }
        assert!(Record::parse(&(Kind::Manifest, key.1), record).is_err());
    }
}
