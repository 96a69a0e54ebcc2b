//! Names of the base: its directories, and versions of its files.

use super::Stamp;
use objstore::content::FileContent;
use std::sync::{Arc, OnceLock};

/// A directory of the base.
#[derive(Debug)]
pub struct BaseDir {
    parent: Option<Arc<BaseDir>>,
    name: Box<[u8]>,
}

impl BaseDir {
    /// The base itself.
    pub fn root() -> Arc<BaseDir> {
        Arc::new(BaseDir {
            parent: None,
            name: Box::default(),
        })
    }

    /// The directory `name` in `parent`.
    pub fn child(parent: &Arc<BaseDir>, name: &[u8]) -> Arc<BaseDir> {
        Arc::new(BaseDir {
            parent: Some(parent.clone()),
            name: name.into(),
        })
    }

    /// Path below the base; empty for the base itself.
    pub fn path(&self) -> Vec<u8> {
        let mut parts: Vec<&[u8]> = Vec::new();
        let mut dir = self;
        while let Some(parent) = &dir.parent {
            parts.push(&dir.name);
            dir = parent;
        }
        parts.reverse();
        parts.join(&b'/')
    }
}

impl Drop for BaseDir {
    /// Frees a long chain of parents without recursion.
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(dir) = next {
            next = Arc::into_inner(dir).and_then(|mut d| d.parent.take());
        }
    }
}

/// One version of a regular file of the base.
///
/// Files that were found together lie in one allocation: they go as they are imported while inodes and
/// names of the same age stay, and single ones would leave the allocator's slabs nearly empty (115 MB of a
/// million files).
#[derive(Clone, Debug)]
pub struct BaseFile {
    group: Arc<Group>,
    at: usize,
}

/// Files of one directory.
#[derive(Debug)]
struct Group {
    dir: Arc<BaseDir>,
    /// Their names, one after the other.
    names: Box<[u8]>,
    files: Box<[Version]>,
}

#[derive(Debug)]
struct Version {
    /// Where its name ends; it begins where that of the file before ends.
    name_end: usize,
    stamp: Stamp,
    alloc: u64,
    stored: OnceLock<Box<FileContent>>,
}

impl BaseFile {
    /// The version `stamp` of `name` in `dir`; `alloc`: bytes allocated for it.
    pub fn new(dir: Arc<BaseDir>, name: &[u8], stamp: Stamp, alloc: u64) -> BaseFile {
        let group = Group::of(dir, [(name, stamp, alloc)].into_iter());
        BaseFile {
            group: Arc::new(group),
            at: 0,
        }
    }

    /// As [`BaseFile::new`] for several files of a directory, in their order.
    pub fn all<'a>(
        dir: &Arc<BaseDir>,
        files: impl Iterator<Item = (&'a [u8], Stamp, u64)>,
    ) -> Vec<BaseFile> {
        let group = Arc::new(Group::of(dir.clone(), files));
        let file = |at| BaseFile {
            group: group.clone(),
            at,
        };
        (0..group.files.len()).map(file).collect()
    }

    fn version(&self) -> &Version {
        &self.group.files[self.at]
    }

    /// The same for all clones of one, and for nothing else while one of them lives.
    pub fn identity(&self) -> (usize, usize) {
        (Arc::as_ptr(&self.group) as usize, self.at)
    }

    /// Which version.
    pub fn stamp(&self) -> &Stamp {
        &self.version().stamp
    }

    /// Allocated bytes.
    pub fn alloc(&self) -> u64 {
        self.version().alloc
    }

    /// Path below the base.
    pub fn path(&self) -> Vec<u8> {
        let mut path = self.dir().path();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(self.name());
        path
    }

    /// Directory of the base that holds it.
    pub fn dir(&self) -> &Arc<BaseDir> {
        &self.group.dir
    }

    /// Name in that directory.
    pub fn name(&self) -> &[u8] {
        let before = self.at.checked_sub(1);
        let start = before.map_or(0, |b| self.group.files[b].name_end);
        &self.group.names[start..self.version().name_end]
    }

    /// Its content in the store, once imported.
    pub fn stored(&self) -> Option<FileContent> {
        self.version().stored.get().map(|c| **c)
    }

    /// Records that the content was imported.
    pub fn set_stored(&self, content: FileContent) {
        // A second import of the same version found the same bytes.
        let _ = self.version().stored.set(Box::new(content));
    }

    /// True where both are the same version of the same file.
    pub fn same_version(&self, other: &BaseFile) -> bool {
        let same = Arc::ptr_eq(&self.group, &other.group) && self.at == other.at;
        same || (self.stamp() == other.stamp()
            && self.name() == other.name()
            && self.dir().path() == other.dir().path())
    }
}

impl Group {
    fn of<'a>(dir: Arc<BaseDir>, files: impl Iterator<Item = (&'a [u8], Stamp, u64)>) -> Group {
        let mut names = Vec::new();
        let versions = files.map(|(name, stamp, alloc)| {
            names.extend_from_slice(name);
            Version {
                name_end: names.len(),
                stamp,
                alloc,
                stored: OnceLock::new(),
            }
        });
        let files = versions.collect();
        Group {
            dir,
            names: names.into(),
            files,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Time;

    #[test]
    fn files_of_a_group_keep_their_names_and_content_apart() {
        let stamp = |ino| Stamp {
            dev: 1,
            ino,
            size: ino,
            mtime: Time::default(),
            ctime: Time::default(),
        };
        let dir = BaseDir::child(&BaseDir::root(), b"d");
        let names: [&[u8]; 3] = [b"one", b"two", b"three"];
        let each = names.iter().zip(1..).map(|(name, n)| (*name, stamp(n), n));
        let files = BaseFile::all(&dir, each);
        for ((file, name), n) in files.iter().zip(names).zip(1..) {
            assert_eq!(
                (file.name(), file.stamp(), file.alloc()),
                (name, &stamp(n), n)
            );
            assert_eq!(file.path(), [b"d/", name].concat());
            let single = BaseFile::new(dir.clone(), name, stamp(n), n);
            assert!(file.same_version(&single));
        }
        files[1].set_stored(FileContent::Empty);
        let stored: Vec<bool> = files.iter().map(|f| f.stored().is_some()).collect();
        assert_eq!(stored, [false, true, false]);
        assert!(!files[0].same_version(&files[1]));
    }
}
