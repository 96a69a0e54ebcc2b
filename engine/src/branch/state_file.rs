//! The state file: a branch's whole live tree, and from which journal record on to replay over it.
//!
//! It is written in frames, so that neither writing nor reading needs memory for all of it: first a
//! [`StateHead`], then the inodes, [`FRAME_INODES`] at a time. Each frame is its length and checksum
//! (CRC-32), little-endian, then the encoded value. The file `state` names the one that counts, by
//! number; it is replaced atomically once that one is on stable storage.

use crate::error::{Error, Result};
use crate::history::HistoryRecord;
use crate::record::{Counters, InodeRecord, decode, encode};
use crate::tree::Tree;
use crate::tree::patch::record_of;
use objstore::TreeId;
use objstore::io::{Segment, Storage};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"AVFSTAT\0";
const POINTER_MAGIC: &[u8; 8] = b"AVFSPTR\0";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 12;
const FRAME_HEADER_BYTES: usize = 8;
/// Longest frame that is read, in bytes.
const FRAME_BYTES_MAX: u32 = 256 << 20;
/// Inodes in one frame; large directories make frames longer.
const FRAME_INODES: usize = 512;

/// An inode with its number.
pub type Numbered = (u64, InodeRecord);

/// First frame of a state file.
#[derive(Clone, Debug, bincode::Encode, bincode::Decode)]
pub struct StateHead {
    /// First journal record that is not in it.
    pub next_seq: u64,
    /// Numbers to be given next.
    pub counters: Counters,
    /// States, labels, head, undo, redo.
    pub history: HistoryRecord,
    /// Object of the root directory, where the tree is stored as a whole; the outer `None` before the
    /// first time.
    pub root: Option<Option<TreeId>>,
    /// Base paths that were not what had been shown.
    pub base_changed: Vec<Vec<u8>>,
    /// Base paths that could not be read.
    pub unreadable: Vec<Vec<u8>>,
    /// Inodes that follow.
    pub inodes: u64,
}

/// The state files of one branch.
#[derive(Clone, Copy, Debug)]
pub struct StateFile<'a> {
    /// Storage of the branch.
    pub storage: &'a dyn Storage,
    /// Directory of the branch.
    pub dir: &'a str,
}

impl StateFile<'_> {
    fn pointer(&self) -> String {
        format!("{}/state", self.dir)
    }

    fn path(&self, number: u32) -> String {
        format!("{}/state-{number:08}", self.dir)
    }

    /// Number of the file that counts; `None` for a branch that was never made whole.
    fn current(&self) -> Result<Option<u32>> {
        let path = self.pointer();
        let Some(bytes) = self.storage.read(&path).map_err(Error::io(&path))? else {
            return Ok(None);
        };
        parse_pointer(&bytes)
            .map(Some)
            .map_err(|why| Error::Damaged {
                what: path,
                why: why.into(),
            })
    }

    /// Reads the state: the head, and every inode in ascending order. `None` for a branch that was
    /// never made whole.
    pub fn read(
        &self,
        each: &mut dyn FnMut(Numbered) -> Result<(), String>,
    ) -> Result<Option<StateHead>> {
        let Some(number) = self.current()? else {
            return Ok(None);
        };
        let path = self.path(number);
        let file = self.storage.open(&path).map_err(Error::io(&path))?;
        let damaged = |why: String| Error::Damaged {
            what: path.clone(),
            why,
        };
        let mut frames = Frames {
            file: FileBytes(file),
            at: 0,
        };
        frames.read_state(each).map(Some).map_err(damaged)
    }

    /// Writes the state of `tree`, durably, and removes the one before.
    pub fn write(&self, mut head: StateHead, tree: &Tree) -> Result<()> {
        let before = self.current()?;
        self.remove_others(before)?;
        let number = before.map_or(1, |n| n + 1);
        let path = self.path(number);
        let file = self.storage.create(&path).map_err(Error::io(&path))?;
        head.inodes = tree.len() as u64;
        let written = write_frames(&*file, &head, tree).and_then(|()| file.sync());
        written.map_err(Error::io(&path))?;
        self.storage
            .sync_dir(self.dir)
            .map_err(Error::io(self.dir))?;
        let pointer = self.pointer();
        let replaced = self.storage.replace(&pointer, &pointer_bytes(number));
        replaced.map_err(Error::io(&pointer))?;
        self.remove_others(Some(number))
    }

    fn remove_others(&self, keep: Option<u32>) -> Result<()> {
        let keep = keep.map(|n| format!("state-{n:08}"));
        for name in self.storage.list(self.dir).map_err(Error::io(self.dir))? {
            if name.starts_with("state-") && Some(&name) != keep.as_ref() {
                let path = format!("{}/{name}", self.dir);
                self.storage.remove(&path).map_err(Error::io(&path))?;
            }
        }
        Ok(())
    }
}

fn pointer_bytes(number: u32) -> Vec<u8> {
    let mut out = POINTER_MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
    out
}

fn parse_pointer(bytes: &[u8]) -> Result<u32, &'static str> {
    let b: &[u8; 20] = bytes.try_into().map_err(|_| "its length is wrong")?;
    let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
    if &b[..8] != POINTER_MAGIC || crc32fast::hash(&b[..16]) != word(16) {
        return Err("its checksum does not match");
    }
    if word(8) == VERSION {
        Ok(word(12))
    } else {
        Err("it is of another version")
    }
}

fn write_frames(file: &dyn Segment, head: &StateHead, tree: &Tree) -> std::io::Result<()> {
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&VERSION.to_le_bytes());
    file.append(&[&header])?;
    write_frame(file, &encode(head))?;
    let mut batch: Vec<Numbered> = Vec::with_capacity(FRAME_INODES);
    let mut failed = None;
    tree.for_each(&mut |nid, inode| {
        if failed.is_some() {
            return;
        }
        batch.push((nid.0, record_of(inode)));
        if batch.len() == FRAME_INODES {
            failed = write_frame(file, &encode(&batch)).err();
            batch.clear();
        }
    });
    match failed {
        Some(e) => Err(e),
        None if batch.is_empty() => Ok(()),
        None => write_frame(file, &encode(&batch)),
    }
}

fn write_frame(file: &dyn Segment, body: &[u8]) -> std::io::Result<()> {
    let len = u32::try_from(body.len())
        .ok()
        .filter(|n| *n <= FRAME_BYTES_MAX);
    let len = len.ok_or_else(|| std::io::Error::other("a frame of the state file is too long"))?;
    let crc = crc32fast::hash(body);
    file.append(&[&len.to_le_bytes(), &crc.to_le_bytes(), body])?;
    Ok(())
}

/// Bytes that frames are read from.
trait Bytes {
    fn len(&self) -> u64;
    fn read_at(&self, at: u64, buf: &mut [u8]) -> Result<(), String>;
}

struct FileBytes(Arc<dyn Segment>);

impl Bytes for FileBytes {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> Result<(), String> {
        self.0.read_at(at, buf).map_err(|e| e.to_string())
    }
}

impl Bytes for &[u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> Result<(), String> {
        let from = at as usize;
        let part = self.get(from..from + buf.len()).ok_or("it is too short")?;
        buf.copy_from_slice(part);
        Ok(())
    }
}

struct Frames<B> {
    file: B,
    at: u64,
}

impl<B: Bytes> Frames<B> {
    fn read_state(
        &mut self,
        each: &mut dyn FnMut(Numbered) -> Result<(), String>,
    ) -> Result<StateHead, String> {
        let mut header = [0; HEADER_BYTES];
        self.take(&mut header)?;
        let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if &header[..8] != MAGIC {
            return Err("it is not a state file".into());
        }
        if version != VERSION {
            return Err(format!("its version is {version}, not {VERSION}"));
        }
        let head: StateHead = decode(&self.frame()?)?;
        let mut left = head.inodes;
        while left > 0 {
            let batch: Vec<Numbered> = decode(&self.frame()?)?;
            let n = batch.len() as u64;
            left = left
                .checked_sub(n)
                .filter(|_| n > 0)
                .ok_or("it has other inodes than it says")?;
            batch.into_iter().try_for_each(&mut *each)?;
        }
        if self.at == self.file.len() {
            Ok(head)
        } else {
            Err("it has trailing bytes".into())
        }
    }

    fn take(&mut self, buf: &mut [u8]) -> Result<(), String> {
        if self.file.len().saturating_sub(self.at) < buf.len() as u64 {
            return Err("it is too short".into());
        }
        self.file.read_at(self.at, buf)?;
        self.at += buf.len() as u64;
        Ok(())
    }

    fn frame(&mut self) -> Result<Vec<u8>, String> {
        let mut h = [0; FRAME_HEADER_BYTES];
        self.take(&mut h)?;
        let len = u32::from_le_bytes([h[0], h[1], h[2], h[3]]);
        let crc = u32::from_le_bytes([h[4], h[5], h[6], h[7]]);
        if len > FRAME_BYTES_MAX || u64::from(len) > self.file.len() - self.at {
            return Err("a frame is longer than the file".into());
        }
        let mut body = vec![0; len as usize];
        self.take(&mut body)?;
        if crc32fast::hash(&body) == crc {
            Ok(body)
        } else {
            Err("a frame's checksum does not match".into())
        }
    }
}

/// Decodes arbitrary bytes as a state file and as its pointer (for fuzzing): never panics, never
/// allocates more than they justify.
pub fn check_state_bytes(bytes: &[u8]) {
    let _ = parse_pointer(bytes);
    let mut frames = Frames { file: bytes, at: 0 };
    let _ = frames.read_state(&mut |_| Ok(()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_or_a_missing_end_is_noticed() {
        let head = StateHead {
            next_seq: 7,
            counters: Counters {
                nid: 2,
                ino: 3,
                state: 4,
            },
            history: HistoryRecord {
                states: vec![],
                labels: vec![("a".into(), 1)],
                head: 1,
                undo: vec![],
                redo: vec![],
            },
            root: Some(None),
            base_changed: vec![b"x".to_vec()],
            unreadable: vec![],
            inodes: 0,
        };
        let storage = objstore::crash_storage::CrashStorage::without_log();
        storage.create_dir_all("b").unwrap();
        let file = StateFile {
            storage: &storage,
            dir: "b",
        };
        assert!(file.read(&mut |_| Ok(())).unwrap().is_none());
        file.write(head.clone(), &Tree::default()).unwrap();
        file.write(head, &Tree::default()).unwrap();
        assert_eq!(storage.list("b").unwrap(), ["state", "state-00000002"]);
        assert_eq!(file.read(&mut |_| Ok(())).unwrap().unwrap().next_seq, 7);
        let bytes = storage.read("b/state-00000002").unwrap().unwrap();
        let whole = |b: &[u8]| {
            Frames { file: b, at: 0 }
                .read_state(&mut |_| Ok(()))
                .is_ok()
        };
        assert!(whole(&bytes));
        for i in 0..bytes.len() {
            assert!(!whole(&bytes[..i]));
            let mut bad = bytes.clone();
            bad[i] ^= 4;
            assert!(!whole(&bad), "byte {i}");
        }
    }
}
