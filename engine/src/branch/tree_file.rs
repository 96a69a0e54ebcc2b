//! Tree files: whole live trees on disk, shared by the branches of a workspace.
//!
//! A branch's state file names one and adds what differs from it, so that neither making a branch nor
//! sealing a few changes writes the whole tree. A tree file is never changed; it is removed once no
//! branch's state names it. Branches that name the same one share its inodes in memory too.

use super::frames::{Bytes, Frames, Header, Reader, Writer, frames_are_whole};
use super::notable::{Notable, is_notable};
use crate::error::{Error, Result};
use crate::record::InodeRecord;
use crate::tree::Tree;
use crate::tree::inode::Inode;
use crate::tree::patch::{self, BaseDirs, record_of};
use crate::types::Nid;
use objstore::io::Storage;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const HEADER: Header = Header {
    magic: b"AVFSTREE",
    version: 1,
    oldest: 1,
    what: "tree file",
};

/// Frames that a thread reads before it looks for others.
const FRAMES_TOGETHER: usize = 4;
/// Threads that read a tree file, at most.
const THREADS_MAX: usize = 8;

/// An inode with its number.
type Numbered = (u64, InodeRecord);

/// The tree files of one workspace.
#[derive(Debug)]
pub struct Trees {
    storage: Arc<dyn Storage>,
    dir: String,
    table: Mutex<Table>,
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
    notable: Option<Arc<Vec<Nid>>>,
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
        })
    }

    /// The tree files below `dir`, for reading alone: nothing on disk is changed.
    pub fn look(storage: Arc<dyn Storage>, dir: String) -> Trees {
        Trees {
            storage,
            dir,
            table: Mutex::default(),
        }
    }

    /// Path of a tree file.
    pub fn path(&self, number: u32) -> String {
        format!("{}/{number:08}", self.dir)
    }

    /// The tree of a file, for a branch whose state names it; 0 is no file, an empty tree.
    pub fn read(&self, number: u32, branch: u32, dirs: &mut BaseDirs) -> Result<Tree> {
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
        let read = read_tree(file, dirs);
        let (tree, notable) = read.map_err(|why| Error::Damaged { what: path, why })?;
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

    /// What is notable in the tree of a file that was just read, and so in what comes from it.
    pub fn notable(&self, number: u32) -> Notable {
        let table = self.table.lock();
        let known = table.files.get(&number).and_then(|file| {
            let nids = file.notable.clone()?;
            Some(Notable::new(file.tree.clone(), nids))
        });
        known.unwrap_or_default()
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
        let mended = HEADER.put_over(&mut bytes, HEADER.version);
        (mended && read_tree(&bytes[..], &mut BaseDirs::default()).is_ok()).then_some(bytes)
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
    let mut batch = writer.entries::<Numbered>();
    tree.for_each(&mut |nid, inode| batch.push((nid.0, record_of(inode))));
    batch.end()
}

/// The tree of a file, and which of its inodes are notable.
fn read_tree<B: Bytes + Sync>(file: B, dirs: &mut BaseDirs) -> Result<(Tree, Vec<Nid>), String> {
    let mut reader = Reader::begin(file, &HEADER)?;
    let count: u64 = reader.value()?;
    let parts = read_parts(&reader.rest()?, dirs)?;
    let found: usize = parts.iter().map(|part| part.inodes.len()).sum();
    if found as u64 != count {
        return Err("it has other entries than it says".into());
    }
    let notable = parts.iter().flat_map(|part| part.notable.iter().copied());
    let notable = notable.collect();
    let inodes = parts.into_iter().flat_map(|part| part.inodes);
    Ok((inodes.collect(), notable))
}

/// Inodes of some frames that follow each other.
struct Part {
    first: usize,
    inodes: Vec<(Nid, Arc<Inode>)>,
    notable: Vec<Nid>,
}

/// All frames, in order, read by several threads.
fn read_parts<B: Bytes + Sync>(
    frames: &Frames<B>,
    dirs: &mut BaseDirs,
) -> Result<Vec<Part>, String> {
    let next = AtomicUsize::new(0);
    let work = |dirs: &mut BaseDirs| -> Result<Vec<Part>, String> {
        let (mut parts, mut buffer) = (Vec::new(), Vec::new());
        loop {
            let first = next.fetch_add(FRAMES_TOGETHER, Ordering::Relaxed);
            if first >= frames.len() {
                return Ok(parts);
            }
            parts.push(read_part(frames, first, &mut buffer, dirs)?);
        }
    };
    let more = || {
        let mut dirs = BaseDirs::default();
        work(&mut dirs).map(|parts| (parts, dirs))
    };
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    let threads = frames.len().div_ceil(FRAMES_TOGETHER).min(cores);
    thread::scope(|scope| {
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, more).ok();
        // Without a thread more, the others read more.
        let others: Vec<_> = (1..threads.min(THREADS_MAX)).filter_map(spawn).collect();
        let mut all = work(dirs)?;
        for other in others {
            let (parts, known) = other.join().map_err(|_| "a thread had panicked")??;
            all.extend(parts);
            dirs.take_in(known);
        }
        all.sort_unstable_by_key(|part| part.first);
        Ok(all)
    })
}

fn read_part<B: Bytes>(
    frames: &Frames<B>,
    first: usize,
    buffer: &mut Vec<u8>,
    dirs: &mut BaseDirs,
) -> Result<Part, String> {
    let (mut inodes, mut notable) = (Vec::new(), Vec::new());
    for frame in first..frames.len().min(first + FRAMES_TOGETHER) {
        let records: Vec<Numbered> = frames.entries(frame, buffer)?;
        if records.is_empty() {
            return Err("it has a frame without entries".into());
        }
        for (nid, record) in records {
            let inode = patch::inode_of(&record, dirs).map_err(|e| e.to_string())?;
            if is_notable(&inode) {
                notable.push(Nid(nid));
            }
            inodes.push((Nid(nid), Arc::new(inode)));
        }
    }
    Ok(Part {
        first,
        inodes,
        notable,
    })
}

fn each_inode<B: Bytes>(
    file: B,
    each: &mut dyn FnMut(Numbered) -> Result<(), String>,
) -> Result<(), String> {
    let mut reader = Reader::begin(file, &HEADER)?;
    let count: u64 = reader.value()?;
    reader.entries(count, each)
}

/// Decodes arbitrary bytes as a tree file (for fuzzing): never panics, never allocates more than they
/// justify.
pub fn check_tree_bytes(bytes: &[u8]) {
    let _ = each_inode(bytes, &mut |_| Ok(()));
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
        let read = again.read(second, 0, &mut BaseDirs::default()).unwrap();
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
        let whole = |b: &[u8]| read_tree(b, &mut BaseDirs::default()).is_ok();
        assert!(whole(&bytes));
        for i in 0..bytes.len() {
            assert!(!whole(&bytes[..i]));
            let mut bad = bytes.clone();
            bad[i] ^= 4;
            assert!(!whole(&bad), "byte {i}");
        }
    }
}
