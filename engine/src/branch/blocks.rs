//! What differs between two trees, in blocks: frames of tree files and state files that are decoded when an inode of them
//! is first needed.
//!
//! A block has the inodes of [`BLOCK`] neighbouring numbers that differ, in one frame: its [`BlockHead`], then the entries.
//! All checksums and heads are checked when a file is read, and the bytes are kept until the block is needed, so nothing
//! depends on the file afterwards. What is then found not to be as the head says is [`Damage`]. Blocks with inodes that
//! opening a branch looks for ([`notable`](super::notable)) are decoded at once.

use super::frames::{Bytes, Frames, Writer};
use super::notable::{Known, NEEDED_AT_ONCE, why_notable};
use crate::record::{InodeRecord, decode, encode};
use crate::tree::Tree;
use crate::tree::damage::Damage;
use crate::tree::inode::Inode;
use crate::tree::patch::{self, BaseDirs, record_of};
use crate::tree::radix::later::{BLOCK, Block, on_cores};
use crate::types::{Nid, SLOT_SHIFT};
use objstore::codec::decode_prefix;
use std::sync::Arc;

/// Frames that a thread reads before it looks for others.
const FRAMES_TOGETHER: usize = 16;

/// An inode that differs, or is gone.
///
/// Boxed, as what is gone takes nine bytes: see [`TreePatch`](crate::record::TreePatch).
pub type Patched = (u64, Option<Box<InodeRecord>>);

/// What a block begins with.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
struct BlockHead {
    /// Numbers of its inodes, divided by [`BLOCK`].
    number: u64,
    /// Inodes with such a number that the tree has.
    count: u32,
    /// Entries that follow.
    entries: u32,
    /// Those among them that are notable: the rest of the division, and why.
    notable: Vec<(u8, u8)>,
}

/// A block that was not decoded.
struct Undecoded {
    head: BlockHead,
    frame: Vec<u8>,
    /// Where the entries begin.
    at: usize,
}

/// Blocks of a file, ascending.
pub struct Blocks {
    blocks: Vec<Undecoded>,
}

/// Writes what makes `tree` of `before`.
pub fn write_blocks(writer: &Writer<'_>, before: &Tree, tree: &Tree) -> std::io::Result<()> {
    let mut batch = Batch {
        writer,
        tree,
        number: 0,
        entries: Vec::new(),
        notable: Vec::new(),
        failed: None,
    };
    Tree::diff(before, tree, &mut |nid, _, now| batch.push(nid, now));
    batch.flush();
    batch.failed.map_or(Ok(()), Err)
}

/// Entries of one block on their way to a file.
struct Batch<'a> {
    writer: &'a Writer<'a>,
    tree: &'a Tree,
    number: u64,
    entries: Vec<Patched>,
    notable: Vec<(u8, u8)>,
    failed: Option<std::io::Error>,
}

impl Batch<'_> {
    fn push(&mut self, nid: Nid, now: Option<&Arc<Inode>>) {
        if nid.0 / BLOCK != self.number {
            self.flush();
            self.number = nid.0 / BLOCK;
        }
        let why = now.map_or(0, |inode| why_notable(inode));
        if why != 0 {
            self.notable.push(((nid.0 % BLOCK) as u8, why));
        }
        self.entries
            .push((nid.0, now.map(|inode| Box::new(record_of(inode)))));
    }

    fn flush(&mut self) {
        if self.entries.is_empty() || self.failed.is_some() {
            return;
        }
        let head = BlockHead {
            number: self.number,
            count: self.tree.count_of_block(self.number) as u32,
            entries: self.entries.len() as u32,
            notable: std::mem::take(&mut self.notable),
        };
        let mut body = encode(&head);
        body.extend(encode(&self.entries));
        self.failed = self.writer.frame(&body).err();
        self.entries.clear();
    }
}

/// The blocks of these frames, which have this many entries together; they are read by several threads.
pub fn read_blocks<B: Bytes + Sync>(frames: &Frames<B>, entries: u64) -> Result<Blocks, String> {
    let parts = on_cores(frames.len().div_ceil(FRAMES_TOGETHER), &|part| {
        let from = part * FRAMES_TOGETHER;
        let numbers = from..frames.len().min(from + FRAMES_TOGETHER);
        numbers
            .map(|n| Undecoded::of_frame(frames.body(n)?))
            .collect::<Result<Vec<_>, String>>()
    });
    let mut blocks: Vec<Undecoded> = Vec::with_capacity(frames.len());
    for part in parts {
        blocks.extend(part?);
    }
    let ascending = |pair: &[Undecoded]| pair[0].head.number < pair[1].head.number;
    if !blocks.windows(2).all(ascending) {
        return Err("its blocks are not in order".into());
    }
    let found = blocks.iter().map(|block| u64::from(block.head.entries));
    if found.sum::<u64>() != entries {
        return Err("it has other entries than it says".into());
    }
    Ok(Blocks { blocks })
}

impl Blocks {
    /// The notable inodes among their entries.
    pub fn known(&self) -> Known {
        let mut known = Known::default();
        for block in &self.blocks {
            for (rest, why) in &block.head.notable {
                known.note(Nid(block.head.number * BLOCK + u64::from(*rest)), *why);
            }
        }
        known
    }

    /// Makes of `tree` what they are the difference to. What is decoded later and is not as it should be is noted as damage
    /// of the file `path`.
    pub fn lay_over(self, tree: &mut Tree, path: &str, damage: &Arc<Damage>) {
        tree.set_damage(damage.clone());
        let path: Arc<str> = path.into();
        for block in self.blocks {
            let (number, count) = (block.head.number, block.head.count as usize);
            let is_needed = block.is_needed_at_once() || is_below_needed(tree, number);
            let (path, damage) = (path.clone(), damage.clone());
            let opening = move |into: &mut Block<Inode>| {
                if let Err(why) = block.decode_into(into) {
                    into.clear();
                    damage.note(&path, format!("block {number}: {why}"));
                }
            };
            tree.set_block(number, count, Box::new(opening), is_needed);
        }
    }

    /// Decodes the entries of these frames, which are this many, and gives them to `each`.
    pub fn each_of<B: Bytes>(
        frames: &Frames<B>,
        entries: u64,
        each: &mut dyn FnMut(Patched) -> Result<(), String>,
    ) -> Result<(), String> {
        let (mut found, mut next) = (0, 0);
        for number in 0..frames.len() {
            let block = Undecoded::of_frame(frames.body(number)?)?;
            if block.head.number < next {
                return Err("its blocks are not in order".into());
            }
            next = block.head.number + 1;
            found += u64::from(block.head.entries);
            block.entries()?.into_iter().try_for_each(&mut *each)?;
        }
        match found == entries {
            true => Ok(()),
            false => Err("it has other entries than it says".into()),
        }
    }
}

/// Whether what a block of a tree lies over had to be decoded at once: then it may hold what was notable there, too.
fn is_below_needed(tree: &Tree, number: u64) -> bool {
    tree.count_of_block(number) > 0 && tree.is_block_open(number)
}

impl Undecoded {
    fn of_frame(frame: Vec<u8>) -> Result<Undecoded, String> {
        let (head, at): (BlockHead, usize) = decode_prefix(&frame).map_err(|e| e.to_string())?;
        let ascending = |pair: &[(u8, u8)]| pair[0].0 < pair[1].0;
        let is_sane = head.number < (1 << SLOT_SHIFT) / BLOCK
            && u64::from(head.count) <= BLOCK
            && (1..=BLOCK).contains(&u64::from(head.entries))
            && head.notable.windows(2).all(ascending);
        match is_sane {
            true => Ok(Undecoded { head, frame, at }),
            false => Err("a block's head is wrong".into()),
        }
    }

    fn is_needed_at_once(&self) -> bool {
        let mut notable = self.head.notable.iter();
        notable.any(|(_, why)| why & NEEDED_AT_ONCE != 0)
    }

    /// The entries, which are those that the head tells of.
    fn entries(&self) -> Result<Vec<Patched>, String> {
        let entries: Vec<Patched> = decode(&self.frame[self.at..])?;
        let is_within = |nid: u64| nid / BLOCK == self.head.number;
        let ascending = entries.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if entries.len() != self.head.entries as usize
            || !ascending
            || !entries.iter().all(|(nid, _)| is_within(*nid))
        {
            return Err("its entries are not those of its head".into());
        }
        Ok(entries)
    }

    fn decode_into(&self, block: &mut Block<Inode>) -> Result<(), String> {
        let (mut dirs, mut notable) = (BaseDirs::default(), Vec::new());
        for (nid, record) in self.entries()? {
            let inode = match record {
                Some(record) => Some(Arc::new(
                    patch::inode_of(&record, &mut dirs).map_err(|e| e.to_string())?,
                )),
                None => None,
            };
            let why = inode.as_ref().map_or(0, |inode| why_notable(inode));
            if why != 0 {
                notable.push(((nid % BLOCK) as u8, why));
            }
            block.set(nid, inode);
        }
        if notable != self.head.notable || block.count() != self.head.count as usize {
            return Err("its inodes are not those of its head".into());
        }
        Ok(())
    }
}
