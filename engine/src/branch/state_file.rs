//! The state file: a branch's whole live tree, and from which journal record on to replay over it.
//!
//! The tree is a [tree file](super::tree_file) with what differs from it. First comes a
//! [`StateHead`] and what it has [more](StateMore), then the inodes that differ, in [blocks](super::blocks). The file `state` names the one that counts, by number;
//! it is replaced atomically once that one is on stable storage.

mod damaged;
#[cfg(test)]
mod late_tests;
#[cfg(test)]
pub(crate) mod tests;

pub use damaged::Left;

use super::blocks::{Blocks, Patched, read_blocks, write_blocks};
use super::frames::{Bytes, Header, Reader, Writer, frames_from};
use super::notable::{Known, Notable, why_notable};
use super::outcomes::OutcomesRecord;
use super::tree_file::Trees;
use crate::book::history::HistoryRecord;
use crate::book::later::Later;
use crate::book::timeline::Timeline;
use crate::book::timeline::running::TimelineBefore;
use crate::error::{Error, Result};
use crate::kv::stored;
use crate::record::Counters;
use crate::tree::Tree;
use crate::tree::patch::{self, BaseDirs};
use crate::types::Nid;
use objstore::content::FileContent;
use objstore::io::Storage;
use objstore::{ObjectStore, TreeId};
use std::sync::Arc;

const HEADER: Header = Header {
    magic: b"AVFSTAT\0",
    version: 10,
    oldest: 2,
    what: "state file",
};
/// First version that has a frame with the key-value state after the head.
const VERSION_KV: u32 = 3;
/// First version that has a frame with the timeline after that.
const VERSION_TIMELINE: u32 = 4;
/// First version that has a frame with what was asked for after steps of undo after that.
const VERSION_LATER: u32 = 5;
/// First version whose timeline tells whose the calls are that run.
const VERSION_OWNERS: u32 = 6;
/// First version that has a frame with the outcomes of requests after what was asked for.
const VERSION_OUTCOMES: u32 = 7;
// 8 has files without a name that may get one, and journals with records 9 and 10 of mutations.
/// First version that has a frame with the state that was shown last after the outcomes.
const VERSION_SHOWN: u32 = 9;
/// First version whose inodes are in blocks.
const VERSION_BLOCKS: u32 = 10;
const POINTER_MAGIC: &[u8; 8] = b"AVFSPTR\0";
const POINTER_VERSION: u32 = 1;
/// Differences up to which a state is written as such, whatever the size of the tree.
const PATCH_INODES_MIN: usize = 1024;
/// Part of a tree's inodes (one in so many) up to which a state is written as differences.
const PATCH_PART: usize = 8;

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
    /// Tree file that the differences are from; 0 for an empty tree.
    pub tree_file: u32,
    /// Inodes that differ.
    pub patched: u64,
}

/// What came to the head with later versions, each in a frame of its own after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateMore {
    /// The key-value state in the store; `None` for an empty one.
    pub kv: Option<FileContent>,
    /// The timeline.
    pub timeline: Timeline,
    /// What was asked for after steps of undo.
    pub later: Vec<Later>,
    /// What became of requests that may not be answered yet.
    pub outcomes: OutcomesRecord,
    /// State that the live tree was last made into or set to, where that is known.
    pub shown: Option<u64>,
}

/// A state as it was read.
#[derive(Debug)]
pub struct LoadedState {
    /// What is not in the tree.
    pub head: StateHead,
    /// More of that.
    pub more: StateMore,
    /// The live tree, without its key-value state.
    pub tree: Tree,
    /// The tree of the tree file.
    pub shared: Tree,
    /// What is notable in the live tree.
    pub(super) notable: Notable,
}

impl LoadedState {
    /// Loads the key-value state into the tree.
    pub fn with_kv(mut self, store: &ObjectStore) -> Result<LoadedState> {
        *self.tree.kv_mut() = stored::load(store, self.more.kv.as_ref())?;
        Ok(self)
    }
}

/// The state files of one branch.
#[derive(Clone, Copy, Debug)]
pub struct StateFile<'a> {
    /// Storage of the branch.
    pub storage: &'a dyn Storage,
    /// Directory of the branch.
    pub dir: &'a str,
    /// Tree files of the workspace.
    pub trees: &'a Trees,
    /// Number of the branch's journal.
    pub branch: u32,
}

impl StateFile<'_> {
    /// Path of what says which state file counts.
    pub fn pointer(&self) -> String {
        format!("{}/state", self.dir)
    }

    /// Path of a state file.
    pub fn path(&self, number: u32) -> String {
        format!("{}/state-{number:08}", self.dir)
    }

    /// Number of the file that counts; `None` for a branch that was never made whole.
    pub fn current(&self) -> Result<Option<u32>> {
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

    /// First journal record that the state does not have; 1 for a branch that was never made whole.
    pub fn first_needed_record(&self) -> Result<u64> {
        let Some(number) = self.current()? else {
            return Ok(1);
        };
        let path = self.path(number);
        let file = self.storage.open(&path).map_err(Error::io(&path))?;
        let head = read_state(file, &mut |_| Ok(()));
        let (head, _) = head.map_err(|why| Error::Damaged { what: path, why })?;
        Ok(head.next_seq)
    }

    /// Reads the state. `None` for a branch that was never made whole.
    pub fn read(&self, dirs: &mut BaseDirs) -> Result<Option<LoadedState>> {
        let Some(number) = self.current()? else {
            return Ok(None);
        };
        let path = self.path(number);
        let file = self.storage.open(&path).map_err(Error::io(&path))?;
        let damaged = |why: String| Error::Damaged {
            what: path.clone(),
            why,
        };
        let (head, more, differing) = read_to_show(file).map_err(damaged)?;
        let shared = self.trees.read(head.tree_file, self.branch)?;
        let mut tree = shared.clone();
        let mut known = Known::default();
        match differing {
            Differing::Blocks(blocks) => {
                known = blocks.known();
                blocks.lay_over(&mut tree, &path, &self.trees.damage());
            }
            Differing::Entries(entries) => {
                for (nid, record) in entries {
                    let Some(record) = record else {
                        tree.remove(Nid(nid));
                        continue;
                    };
                    let inode = patch::inode_of(&record, dirs);
                    let inode = inode.map_err(|e| damaged(e.to_string()))?;
                    known.note(Nid(nid), why_notable(&inode));
                    tree.set(Nid(nid), Arc::new(inode));
                }
            }
        }
        self.trees.shown(&tree)?;
        let notable = match self.trees.known(head.tree_file) {
            Some(of_file) => Notable::new(tree.clone(), vec![of_file, Arc::new(known)]),
            None if head.tree_file == 0 => Notable::new(tree.clone(), vec![Arc::new(known)]),
            None => Notable::default(),
        };
        Ok(Some(LoadedState {
            head,
            more,
            tree,
            shared,
            notable,
        }))
    }

    /// Writes the state of `tree`, durably, and removes the one before. `shared` is a tree file and its
    /// tree; returns the one that the state names now.
    pub fn write(
        &self,
        head: StateHead,
        more: &StateMore,
        tree: &Tree,
        shared: &(u32, Tree),
    ) -> Result<(u32, Tree)> {
        let before = self.current()?;
        self.remove_others(before)?;
        let number = before.map_or(1, |n| n + 1);
        self.put(number, head, more, tree, shared)
    }

    /// As [`StateFile::write`], in the place of a state that cannot be read.
    pub fn write_over(&self, head: StateHead, more: &StateMore, tree: &Tree) -> Result<()> {
        let last = self.numbers()?.into_iter().max();
        let before = last.max(self.current().ok().flatten());
        let number = before.unwrap_or(0).saturating_add(1);
        self.put(number, head, more, tree, &(0, Tree::default()))
            .map(|_| ())
    }

    /// Writes a state under a number that no file has, and lets it count.
    fn put(
        &self,
        number: u32,
        mut head: StateHead,
        more: &StateMore,
        tree: &Tree,
        shared: &(u32, Tree),
    ) -> Result<(u32, Tree)> {
        let differing = count_differing(&shared.1, tree);
        tree.check_whole()?;
        let whole = differing > PATCH_INODES_MIN.max(tree.len() / PATCH_PART);
        let shared = if whole {
            (self.trees.write(tree, self.branch)?, tree.clone())
        } else {
            shared.clone()
        };
        let path = self.path(number);
        let file = self.storage.create(&path).map_err(Error::io(&path))?;
        head.tree_file = shared.0;
        head.patched = if whole { 0 } else { differing as u64 };
        let written =
            write_state(&*file, (&head, more), &shared.1, tree).and_then(|()| file.sync());
        if let Err(source) = written {
            // A part of it is nothing, and the disk may be full.
            let _ = self.storage.remove(&path);
            return Err(Error::io(&path)(source));
        }
        self.settle(number)?;
        self.trees.settle(self.branch, shared.0)?;
        self.remove_others(Some(number))?;
        Ok(shared)
    }

    /// Lets a file count that is on stable storage, durably.
    pub fn settle(&self, number: u32) -> Result<()> {
        self.storage
            .sync_dir(self.dir)
            .map_err(Error::io(self.dir))?;
        let pointer = self.pointer();
        let replaced = self.storage.replace(&pointer, &pointer_bytes(number));
        replaced.map_err(Error::io(&pointer))
    }

    /// Path of the file that counts.
    pub fn current_path(&self) -> Result<Option<String>> {
        Ok(self.current()?.map(|number| self.path(number)))
    }

    /// Replaces the key-value state by what `choose` takes for it, durably; nothing else changes, and the
    /// file before stays. For where that state cannot be read.
    pub fn replace_kv(&self, choose: &dyn Fn(&StateHead) -> Option<FileContent>) -> Result<()> {
        let Some(number) = self.current()? else {
            return Ok(());
        };
        let path = self.path(number);
        let bytes = self.storage.read(&path).map_err(Error::io(&path))?;
        let bytes = bytes.unwrap_or_default();
        let damaged = |why: String| Error::Damaged {
            what: path.clone(),
            why,
        };
        let (head, _) = read_state(&bytes[..], &mut |_| Ok(())).map_err(damaged)?;
        let rest = frames_from(&bytes, 2).ok_or_else(|| damaged("it has no keys".into()))?;
        // The rest is copied, so it is a file of the same version.
        let header = Header {
            version: Reader::begin(&bytes[..], &HEADER)
                .map_err(damaged)?
                .version(),
            ..HEADER
        };
        let to = self.path(number + 1);
        let file = self.storage.create(&to).map_err(Error::io(&to))?;
        let written = Writer::begin(&*file, &header).and_then(|writer| {
            writer.value(&head)?;
            writer.value(&choose(&head))?;
            file.append(&[rest])?;
            file.sync()
        });
        written.map_err(Error::io(&to))?;
        self.settle(number + 1)
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
    out.extend_from_slice(&POINTER_VERSION.to_le_bytes());
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
    if word(8) == POINTER_VERSION {
        Ok(word(12))
    } else {
        Err("it has another version")
    }
}

fn count_differing(a: &Tree, b: &Tree) -> usize {
    let mut n = 0;
    Tree::diff(a, b, &mut |_, _, _| n += 1);
    n
}

fn write_state(
    file: &dyn objstore::io::Segment,
    (head, more): (&StateHead, &StateMore),
    shared: &Tree,
    tree: &Tree,
) -> std::io::Result<()> {
    let writer = Writer::begin(file, &HEADER)?;
    writer.value(head)?;
    writer.value(&more.kv)?;
    writer.value(&more.timeline)?;
    writer.value(&more.later)?;
    writer.value(&more.outcomes)?;
    writer.value(&more.shown)?;
    write_blocks(&writer, shared, tree)
}

/// Inodes that differ from those of the tree file.
enum Differing {
    Blocks(Blocks),
    /// Those of versions before there were blocks.
    Entries(Vec<Patched>),
}

/// A state, of which nothing is decoded that can be decoded later.
fn read_to_show<B: Bytes + Sync>(file: B) -> Result<(StateHead, StateMore, Differing), String> {
    let mut reader = Reader::begin(file, &HEADER)?;
    let (head, more) = read_heads(&mut reader)?;
    if reader.version() >= VERSION_BLOCKS {
        let blocks = read_blocks(&reader.rest()?, head.patched)?;
        return Ok((head, more, Differing::Blocks(blocks)));
    }
    let mut entries = Vec::new();
    reader.entries(head.patched, &mut |entry| {
        entries.push(entry);
        Ok(())
    })?;
    Ok((head, more, Differing::Entries(entries)))
}

/// A state, all of which is decoded.
fn read_state<B: Bytes>(
    file: B,
    each: &mut dyn FnMut(Patched) -> Result<(), String>,
) -> Result<(StateHead, StateMore), String> {
    let mut reader = Reader::begin(file, &HEADER)?;
    let (head, more) = read_heads(&mut reader)?;
    match reader.version() < VERSION_BLOCKS {
        true => reader.entries(head.patched, each)?,
        false => Blocks::each_of(&reader.rest()?, head.patched, each)?,
    }
    Ok((head, more))
}

/// What comes before the inodes.
fn read_heads<B: Bytes>(reader: &mut Reader<B>) -> Result<(StateHead, StateMore), String> {
    let head: StateHead = reader.value()?;
    let mut more = StateMore::default();
    if reader.version() >= VERSION_KV {
        more.kv = reader.value()?;
    }
    if reader.version() >= VERSION_TIMELINE {
        more.timeline = timeline_of(reader)?;
    }
    if reader.version() >= VERSION_LATER {
        more.later = reader.value()?;
    }
    if reader.version() >= VERSION_OUTCOMES {
        more.outcomes = reader.value()?;
    }
    if reader.version() >= VERSION_SHOWN {
        more.shown = reader.value()?;
    }
    Ok((head, more))
}

/// The frame with the timeline.
fn timeline_of<B: Bytes>(reader: &mut Reader<B>) -> Result<Timeline, String> {
    match reader.version() < VERSION_OWNERS {
        true => reader.value::<TimelineBefore>().map(Timeline::from),
        false => reader.value(),
    }
}

/// Decodes arbitrary bytes as a state file and as its pointer (for fuzzing): never panics, never
/// allocates more than they justify. True where they are a state file, of which the tree file is empty.
pub fn check_state_bytes(bytes: &[u8]) -> bool {
    let _ = parse_pointer(bytes);
    let _ = read_state(bytes, &mut |_| Ok(()));
    let mut tree = Tree::default();
    match read_to_show(bytes) {
        Ok((_, _, Differing::Blocks(blocks))) => {
            blocks.lay_over(&mut tree, "bytes", &Arc::default());
            tree.open();
            tree.check_whole().is_ok()
        }
        read => read.is_ok(),
    }
}
