//! Tree files: whole live trees on disk, shared by the branches of a workspace.
//!
//! A branch's state file names one and adds what differs from it, so that neither making a branch nor
//! sealing a few changes writes the whole tree. A tree file is never changed; it is removed once no
//! branch's state names it. Branches that name the same one share its inodes in memory too. They are decoded when they are
//! needed ([`blocks`](super::blocks)); those of files of version 1 at once.

use super::blocks::{Blocks, read_blocks, write_blocks};
use super::frames::{Bytes, Frames, Header, Reader, Writer, frames_are_whole};
use super::notable::{Known, why_notable};
use crate::error::{Error, Result};
use crate::record::{InodeRecord, decode};
use crate::tree::Tree;
use crate::tree::damage::Damage;
use crate::tree::inode::Inode;
use crate::tree::patch::{self, BaseDirs};
use crate::tree::radix::later::on_cores;
use crate::types::Nid;
use objstore::io::Storage;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const HEADER: Header = Header {
    magic: b"AVFSTREE",
    version: 2,
    oldest: 1,
    what: "tree file",
};
/// First version whose inodes are in blocks.
const VERSION_BLOCKS: u32 = 2;

/// Frames of version 1 that a thread decodes before it looks for others.
const FRAMES_TOGETHER: usize = 4;

/// An inode with its number, an entry of version 1.
type Numbered = (u64, InodeRecord);

/// The tree files of one workspace.
#[derive(Debug)]
pub struct Trees {
    storage: Arc<dyn Storage>,
    dir: String,
    table: Mutex<Table>,
    /// What was found when blocks were decoded late.
    damage: Arc<Damage>,
    /// Whether what can be decoded later is.
    is_late: bool,
}

#[derive(Debug, Default)]
struct Table {
    files: BTreeMap<u32, File>,
    next: u32,
}

#[derive(Debug)]
struct File {
    tree: Tree,
    /// Those of its inodes, until all branches are open.
    notable: Option<Arc<Known>>,
    /// Branches whose state names it, by the number of their journals.
    users: BTreeSet<u32>,
}

impl Trees {
    /// The tree files below `dir`, which is made where it is missing; nothing is read yet.
    pub fn open(storage: Arc<dyn Storage>, dir: String) -> Result<Trees> {
        storage.create_dir_all(&dir).map_err(Error::io(&dir))?;
        let names = storage.list(&dir).map_err(Error::io(&dir))?;
        let last = names.iter().filter_map(|n| n.parse::<u32>().ok()).max();
        let table = Table {
            files: BTreeMap::new(),
            next: last.unwrap_or(0) + 1,
        };
        Ok(Trees {
            storage,
            dir,
            table: Mutex::new(table),
            damage: Arc::default(),
            is_late: true,
        })
    }

    /// The tree files below `dir`, for reading alone: nothing on disk is changed. All is decoded at once, so that any damage
    /// is an error of reading.
    pub fn look(storage: Arc<dyn Storage>, dir: String) -> Trees {
        Trees {
            storage,
            dir,
            table: Mutex::default(),
            damage: Arc::default(),
            is_late: false,
        }
    }

    /// As [`Trees::look`] about damage.
    pub fn at_once(self) -> Trees {
        Trees {
            is_late: false,
            ..self
        }
    }

    /// # Errors
    /// `Damaged` where something that was decoded late was not as it should be: nothing may be written any more.
    pub fn check_whole(&self) -> Result<()> {
        self.damage.check()
    }

    /// Where what is found late in a file that is being read is noted: nobody writes any more then, whichever branch of the
    /// workspace the file is of. What is decoded at once is the concern of its reader.
    pub(super) fn damage(&self) -> Arc<Damage> {
        match self.is_late {
            true => self.damage.clone(),
            false => Arc::default(),
        }
    }

    /// A tree of this file as it is to be shown: decoded, where nothing is to be decoded later.
    pub(super) fn shown(&self, tree: &Tree) -> Result<()> {
        if self.is_late {
            return Ok(());
        }
        tree.open();
        tree.check_whole()
    }

    /// Path of a tree file.
    pub fn path(&self, number: u32) -> String {
        format!("{}/{number:08}", self.dir)
    }

    /// The tree of a file, for a branch whose state names it; 0 is no file, an empty tree.
    pub fn read(&self, number: u32, branch: u32) -> Result<Tree> {
        if number == 0 {
            return Ok(Tree::default());
        }
        let mut table = self.table.lock();
        if let Some(file) = table.files.get_mut(&number) {
            file.users.insert(branch);
            return Ok(file.tree.clone());
        }
        let path = self.path(number);
        let file = self.storage.open(&path).map_err(Error::io(&path))?;
        let read = read_tree(file, &path, &self.damage());
        let (tree, notable) = read.map_err(|why| Error::Damaged { what: path, why })?;
        self.shown(&tree)?;
        let users = BTreeSet::from([branch]);
        table.files.insert(
            number,
            File {
                tree: tree.clone(),
                notable: Some(Arc::new(notable)),
                users,
            },
        );
        Ok(tree)
    }

    /// What is notable in the tree of a file that was read; `None` once all branches are open, and for a file that was
    /// written since.
    pub(super) fn known(&self, number: u32) -> Option<Arc<Known>> {
        self.table.lock().files.get(&number)?.notable.clone()
    }

    /// Gives no number up to this one: a state may name it, though the file is gone.
    pub fn reserve(&self, number: u32) {
        let mut table = self.table.lock();
        table.next = table.next.max(number.saturating_add(1));
    }

    /// Numbers of all tree files.
    pub fn numbers(&self) -> Result<Vec<u32>> {
        let names = self.storage.list(&self.dir).map_err(Error::io(&self.dir))?;
        Ok(names.iter().filter_map(|n| n.parse().ok()).collect())
    }

    /// A tree file with a whole header, whatever its header is; `None` where more is damaged.
    pub fn mended(&self, number: u32) -> Option<Vec<u8>> {
        let mut bytes = self.storage.read(&self.path(number)).ok()??;
        let mut versions = (HEADER.oldest..=HEADER.version).rev();
        let fits = versions.any(|version| {
            HEADER.put_over(&mut bytes, version) && each_inode(&bytes[..], &mut |_, _| ()).is_ok()
        });
        fits.then_some(bytes)
    }

    /// True where a file is of a version that is not known yet.
    pub fn is_newer(&self, number: u32) -> bool {
        let bytes = self.storage.read(&self.path(number));
        let bytes = bytes.ok().flatten().unwrap_or_default();
        HEADER.is_newer(&bytes) && frames_are_whole(&bytes) && self.mended(number).is_none()
    }

    /// Writes a tree, durably; returns the file's number. It stays while `branch` does not take
    /// another with [`Trees::settle`].
    pub fn write(&self, tree: &Tree, branch: u32) -> Result<u32> {
        let number = {
            let mut table = self.table.lock();
            table.next += 1;
            table.next - 1
        };
        let path = self.path(number);
        self.storage.remove(&path).map_err(Error::io(&path))?;
        let file = self.storage.create(&path).map_err(Error::io(&path))?;
        let written = write_tree(&*file, tree).and_then(|()| file.sync());
        if let Err(source) = written {
            // A part of it is nothing, and the disk may be full.
            let _ = self.storage.remove(&path);
            return Err(Error::io(&path)(source));
        }
        self.storage
            .sync_dir(&self.dir)
            .map_err(Error::io(&self.dir))?;
        let users = BTreeSet::from([branch]);
        self.table.lock().files.insert(
            number,
            File {
                tree: tree.clone(),
                notable: None,
                users,
            },
        );
        Ok(number)
    }

    /// The state of `branch` names file `number` now, durably (0: none): others that nobody names go.
    pub fn settle(&self, branch: u32, number: u32) -> Result<()> {
        let mut gone = Vec::new();
        {
            let mut table = self.table.lock();
            for (n, file) in &mut table.files {
                if *n == number {
                    file.users.insert(branch);
                } else if file.users.remove(&branch) && file.users.is_empty() {
                    gone.push(*n);
                }
            }
            gone.iter().for_each(|n| drop(table.files.remove(n)));
        }
        gone.iter().try_for_each(|n| self.remove(*n))
    }

    /// Removes files that no branch names; to be called once all branches are open.
    pub fn sweep(&self) -> Result<()> {
        let names = self.storage.list(&self.dir).map_err(Error::io(&self.dir))?;
        let known: BTreeSet<u32> = {
            let files = &mut self.table.lock().files;
            files.values_mut().for_each(|file| file.notable = None);
            files.keys().copied().collect()
        };
        let numbers = names.iter().filter_map(|n| n.parse::<u32>().ok());
        let unused: Vec<u32> = numbers.filter(|n| !known.contains(n)).collect();
        unused.into_iter().try_for_each(|n| self.remove(n))
    }

    fn remove(&self, number: u32) -> Result<()> {
        let path = self.path(number);
        self.storage.remove(&path).map_err(Error::io(path))
    }
}

fn write_tree(file: &dyn objstore::io::Segment, tree: &Tree) -> std::io::Result<()> {
    let writer = Writer::begin(file, &HEADER)?;
    writer.value(&(tree.len() as u64))?;
    write_blocks(&writer, &Tree::default(), tree)
}

/// The tree of the file `path`, and which of its inodes are notable.
fn read_tree<B: Bytes + Sync>(
    file: B,
    path: &str,
    damage: &Arc<Damage>,
) -> Result<(Tree, Known), String> {
    let mut reader = Reader::begin(file, &HEADER)?;
    let is_in_blocks = reader.version() >= VERSION_BLOCKS;
    let count: u64 = reader.value()?;
    let frames = reader.rest()?;
    let (tree, known) = match is_in_blocks {
        true => {
            let blocks = read_blocks(&frames, count)?;
            let (mut tree, known) = (Tree::default(), blocks.known());
            blocks.lay_over(&mut tree, path, damage);
            (tree, known)
        }
        false => tree_of_entries(&frames)?,
    };
    match tree.len() as u64 == count {
        true => Ok((tree, known)),
        false => Err("it has other entries than it says".into()),
    }
}

/// The tree of frames of version 1, decoded by several threads.
fn tree_of_entries<B: Bytes + Sync>(frames: &Frames<B>) -> Result<(Tree, Known), String> {
    let parts = on_cores(frames.len().div_ceil(FRAMES_TOGETHER), &|part| {
        let from = part * FRAMES_TOGETHER;
        let numbers = from..frames.len().min(from + FRAMES_TOGETHER);
        let (mut inodes, mut dirs) = (Vec::new(), BaseDirs::default());
        for number in numbers {
            inodes_of_frame(&frames.body(number)?, &mut dirs, &mut inodes)?;
        }
        Ok::<_, String>(inodes)
    });
    let (mut all, mut known) = (Vec::new(), Known::default());
    for part in parts {
        all.push(part?);
    }
    for (nid, inode) in all.iter().flatten() {
        known.note(*nid, why_notable(inode));
    }
    Ok((all.into_iter().flatten().collect(), known))
}

fn inodes_of_frame(
    frame: &[u8],
    dirs: &mut BaseDirs,
    inodes: &mut Vec<(Nid, Arc<Inode>)>,
) -> Result<(), String> {
    let records: Vec<Numbered> = decode(frame)?;
    if records.is_empty() {
        return Err("it has a frame without entries".into());
    }
    for (nid, record) in records {
        let inode = patch::inode_of(&record, dirs).map_err(|e| e.to_string())?;
        inodes.push((Nid(nid), Arc::new(inode)));
    }
    Ok(())
}

/// Decodes all inodes of a file.
fn each_inode<B: Bytes>(file: B, each: &mut dyn FnMut(u64, &InodeRecord)) -> Result<(), String> {
    let mut reader = Reader::begin(file, &HEADER)?;
    let count: u64 = reader.value()?;
    if reader.version() < VERSION_BLOCKS {
        return reader.entries(count, &mut |(nid, record): Numbered| {
            each(nid, &record);
            Ok(())
        });
    }
    Blocks::each_of(&reader.rest()?, count, &mut |(nid, record)| {
        let record = record.ok_or("an inode is missing")?;
        each(nid, &record);
        Ok(())
    })
}

/// Decodes arbitrary bytes as a tree file (for fuzzing): never panics, never allocates more than they
/// justify. True where they are one.
pub fn check_tree_bytes(bytes: &[u8]) -> bool {
    let _ = each_inode(bytes, &mut |_, _| ());
    read_tree(bytes, "bytes", &Arc::default()).is_ok_and(|(tree, _)| {
        tree.open();
        tree.check_whole().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::branch::state_file::tests::one_file_tree;
    use objstore::crash_storage::CrashStorage;

    fn files(storage: &CrashStorage) -> Vec<String> {
        storage.list("t").unwrap()
    }

    #[test]
    fn a_file_stays_while_a_branch_names_it() {
        let storage = Arc::new(CrashStorage::without_log());
        let trees = Trees::open(storage.clone(), "t".into()).unwrap();
        let tree = one_file_tree();
        let first = trees.write(&tree, 0).unwrap();
        trees.settle(0, first).unwrap();
        trees.settle(7, first).unwrap();
        let second = trees.write(&tree, 0).unwrap();
        trees.settle(0, second).unwrap();
        assert_eq!(files(&storage).len(), 2, "branch 7 names the first");
        trees.settle(7, 0).unwrap();
        assert_eq!(files(&storage), [format!("{second:08}")]);
        let again = Trees::open(storage.clone(), "t".into()).unwrap();
        let read = again.read(second, 0).unwrap();
        assert_eq!(read.len(), tree.len());
        again.sweep().unwrap();
        assert_eq!(files(&storage).len(), 1);
        again.settle(0, 0).unwrap();
        assert!(files(&storage).is_empty());
    }

    #[test]
    fn a_flipped_bit_or_a_missing_end_is_noticed() {
        let storage = Arc::new(CrashStorage::without_log());
        let trees = Trees::open(storage.clone(), "t".into()).unwrap();
        let number = trees.write(&one_file_tree(), 0).unwrap();
        let bytes = storage.read(&format!("t/{number:08}")).unwrap().unwrap();
        let whole = |b: &[u8]| read_tree(b, "t", &Arc::default()).is_ok();
        assert!(whole(&bytes));
        for i in 0..bytes.len() {
            assert!(!whole(&bytes[..i]));
            let mut bad = bytes.clone();
            bad[i] ^= 4;
            assert!(!whole(&bad), "byte {i}");
        }
    }
}
