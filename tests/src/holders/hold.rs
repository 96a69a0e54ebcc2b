//! Who holds on: a descriptor with a mapping, an appending descriptor, a directory.

use super::tree::{Number, Tree};
use crate::sys::{Mapping, PAGE};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::OnceLock;

/// Pages that a holder maps, whatever the file's length.
pub const MAPPED: usize = 8;

/// What is held.
pub enum What {
    /// A file, with a shared mapping of its beginning.
    File(Mapping),
    /// A file whose writes go to its end.
    Appending,
    /// A directory, as who stands in it holds it.
    Dir,
}

/// A holder.
pub struct Holder {
    /// Its number, for the report.
    pub name: u64,
    /// The descriptor.
    pub file: File,
    /// What it is of.
    pub what: What,
    /// The inode.
    pub node: Number,
}

/// Memory of this process as a file: what a mapping cannot give is an error there, no signal.
fn memory() -> &'static File {
    static MEMORY: OnceLock<File> = OnceLock::new();
    MEMORY.get_or_init(|| {
        let mut open = OpenOptions::new();
        open.read(true).write(true).open("/proc/self/mem").unwrap()
    })
}

fn address(mapping: &Mapping) -> u64 {
    std::ptr::from_ref(mapping.word(0)) as u64
}

impl Holder {
    /// Opens a path and holds it.
    pub fn new(name: u64, path: &Path, node: Number, kind: u64) -> Result<Holder, String> {
        let said = |e: std::io::Error| format!("opening {path:?}: {e}");
        let mut open = OpenOptions::new();
        open.read(true).write(kind < 2).append(kind == 1);
        let file = open.open(path).map_err(said)?;
        let what = match kind {
            0 => What::File(Mapping::new(&file, MAPPED).map_err(said)?),
            1 => What::Appending,
            _ => What::Dir,
        };
        Ok(Holder {
            name,
            file,
            what,
            node,
        })
    }

    /// Inode number and whether it has a name.
    pub fn identity(&self) -> Result<(u64, bool), String> {
        let m = self.file.metadata();
        let m = m.map_err(|e| format!("fstat by holder {}: {e}", self.name))?;
        Ok((m.ino(), m.nlink() > 0))
    }

    /// Sees that everything it can see is as in the model.
    pub fn check(&self, tree: &Tree) -> Result<(), String> {
        let done = match (&self.what, tree.file(self.node)) {
            (What::Dir, _) => self.check_dir(tree),
            (_, Some(bytes)) => self.check_file(bytes),
            (_, None) => Err("holds nothing of the model".to_owned()),
        };
        done.map_err(|e| format!("holder {} (inode {}): {e}", self.name, self.node))
    }

    fn check_file(&self, want: &[u8]) -> Result<(), String> {
        let m = self.file.metadata().map_err(|e| format!("fstat: {e}"))?;
        if m.len() != want.len() as u64 {
            return Err(format!("has {} bytes, not {}", m.len(), want.len()));
        }
        let mut have = vec![0; want.len() + PAGE];
        let got = self.file.read_at(&mut have, 0);
        have.truncate(got.map_err(|e| format!("read: {e}"))?);
        same("read", &have, want)?;
        if let What::File(mapping) = &self.what {
            let mut have = vec![0; want.len().min(MAPPED * PAGE)];
            let got = memory().read_exact_at(&mut have, address(mapping));
            got.map_err(|e| format!("the mapping: {e}"))?;
            same("the mapping", &have, &want[..have.len()])?;
        }
        Ok(())
    }

    fn check_dir(&self, tree: &Tree) -> Result<(), String> {
        let listed = rustix::fs::Dir::read_from(&self.file).map_err(|e| format!("listing: {e}"))?;
        let mut have = Vec::new();
        for entry in listed {
            match entry {
                Ok(e) => have.push(e.file_name().to_string_lossy().into_owned()),
                // A removed directory says so on some kernels, and is empty on others.
                Err(Errno::NOENT) => break,
                Err(e) => return Err(format!("listing: {e}")),
            }
        }
        have.retain(|n| ![".", "..", ".agentvfs"].contains(&n.as_str()));
        have.sort();
        let want: Vec<String> = tree
            .dir(self.node)
            .into_iter()
            .flatten()
            .map(|e| e.0.clone())
            .collect();
        match have == want {
            true => Ok(()),
            false => Err(format!("lists {have:?}, not {want:?}")),
        }
    }

    /// Stores through the mapping, inside of the file.
    pub fn store(&self, at: usize, bytes: &[u8]) -> Result<(), String> {
        let What::File(mapping) = &self.what else {
            return Ok(());
        };
        let done = memory().write_all_at(bytes, address(mapping) + at as u64);
        done.map_err(|e| format!("a store by holder {} at {at}: {e}", self.name))
    }

    /// Makes a file in the directory that it holds.
    pub fn make(&self, name: &str) -> Result<(), Errno> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.file, name, flags, Mode::from_raw_mode(0o644)).map(drop)
    }

    /// Removes a file from the directory that it holds.
    pub fn unmake(&self, name: &str) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.file, name, AtFlags::empty())
    }
}

/// Where two contents differ first.
pub fn same(what: &str, have: &[u8], want: &[u8]) -> Result<(), String> {
    if have == want {
        return Ok(());
    }
    let at = have.iter().zip(want).take_while(|(a, b)| a == b).count();
    let (a, b) = (have.len(), want.len());
    let at_a = have.get(at);
    Err(format!(
        "{what} differs at {at}: {at_a:?}, not {:?}; {a} bytes, not {b}",
        want.get(at)
    ))
}
