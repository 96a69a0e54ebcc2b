//! Files of others: read as text, replaced as a whole, never through a dangling link.
//!
//! [`Files`] are those on the disk, or in a dry run those as they would be: what is written is then only remembered, and
//! read again, so that a dry run finds what it would have written before.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Longest file that is read; settings are far shorter.
const BYTES_MAX: u64 = 8 << 20;

/// Files that are read and written.
#[derive(Debug)]
pub struct Files {
    /// In a dry run: what was written, or `None` where a file was removed.
    in_mind: Option<RefCell<BTreeMap<PathBuf, Option<String>>>>,
}

impl Files {
    /// Those on the disk.
    pub fn on_disk() -> Files {
        Files { in_mind: None }
    }

    /// Those on the disk as long as nothing is written; what is written stays in memory.
    pub fn in_mind() -> Files {
        Files {
            in_mind: Some(RefCell::default()),
        }
    }

    fn remembered(&self, path: &Path) -> Option<Option<String>> {
        self.in_mind.as_ref()?.borrow().get(&place(path)).cloned()
    }

    /// The text of a file; `None` where there is none.
    pub fn read(&self, path: &Path) -> Result<Option<String>, String> {
        self.remembered(path).map_or_else(|| read(path), Ok)
    }

    /// Whether a file may be written.
    pub fn check(&self, path: &Path) -> Result<(), String> {
        check(path)
    }

    /// Writes a file: at once as a whole, through symbolic links, with the owner and the mode that it has.
    pub fn write(&self, path: &Path, text: &str) -> Result<(), String> {
        match &self.in_mind {
            None => write(path, text),
            Some(all) => {
                all.borrow_mut().insert(place(path), Some(text.to_owned()));
                Ok(())
            }
        }
    }

    /// Removes a file.
    pub fn remove(&self, path: &Path) -> Result<(), String> {
        match &self.in_mind {
            None => std::fs::remove_file(path).map_err(|e| e.to_string()),
            Some(all) => {
                all.borrow_mut().insert(place(path), None);
                Ok(())
            }
        }
    }

    /// Removes those directories that are empty.
    pub fn remove_dirs(&self, dirs: &[PathBuf]) {
        if self.in_mind.is_some() {
            return;
        }
        for dir in dirs {
            // Something else may be in it by now.
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Where a path leads through symbolic links.
fn place(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// The text of a file; `None` where there is none.
pub fn read(path: &Path) -> Result<Option<String>, String> {
    let meta = match std::fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        meta => meta.map_err(|e| e.to_string())?,
    };
    if !meta.is_file() {
        return Err("it is no regular file".to_owned());
    }
    if meta.len() > BYTES_MAX {
        return Err(format!("it is longer than {BYTES_MAX} bytes"));
    }
    let bytes = std::fs::read(path).map_err(|e| e.to_string())?;
    let text = String::from_utf8(bytes);
    text.map(Some).map_err(|_| "it is not UTF-8".to_owned())
}

fn check(path: &Path) -> Result<(), String> {
    if path.to_str().is_none() {
        return Err("its path is not UTF-8".to_owned());
    }
    match std::fs::metadata(path) {
        Ok(meta) if meta.mode() & 0o222 == 0 => Err("it is read-only".to_owned()),
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => match path.is_symlink() {
            true => Err("it is a symbolic link to nothing".to_owned()),
            false => Ok(()),
        },
        Err(e) => Err(e.to_string()),
    }
}

/// Directories above a file that are not there, the outermost first.
pub fn missing_dirs(path: &Path) -> Vec<PathBuf> {
    let above = path.ancestors().skip(1);
    let mut missing: Vec<PathBuf> = above
        .take_while(|dir| !dir.exists())
        .map(Path::to_owned)
        .collect();
    missing.reverse();
    missing
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let place = place(path);
    if let Some(dir) = place.parent() {
        std::fs::create_dir_all(dir).map_err(|e| e.to_string())?;
    }
    replace(&place, text.as_bytes(), 0o644).map_err(|e| e.to_string())
}

/// Replaces a file, or makes one with this mode.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
    let before = std::fs::metadata(path).ok();
    let written = (|| {
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&beside)?;
        if let Some(before) = &before {
            file.set_permissions(Permissions::from_mode(before.mode() & 0o7777))?;
            let own = file.metadata()?;
            if (own.uid(), own.gid()) != (before.uid(), before.gid()) {
                fchown(&file, Some(before.uid()), Some(before.gid()))?;
            }
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    })();
    if written.is_err() {
        // It may not be there; the error is the first one.
        let _ = std::fs::remove_file(&beside);
    }
    written
}
