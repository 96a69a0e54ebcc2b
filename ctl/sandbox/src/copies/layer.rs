//! Where what a session changed of its copies is kept: in layers, of which a run has one for itself.
//!
//! ```text
//! SESSION/lock              held while layers are chosen and put together
//!         N/lock            held by the run that has the layer, until it ends however it ends
//!         N/begun           since when the layer is in use; gone once all is written back
//!         N/agent/PATH/     an agent's directory: upper/, work/, list (files that are written back in any case)
//!         N/cache/PATH/     a directory of which nothing else is written back
//!         N/names/PATH/     a directory in which only new names can be made, and the files of list
//!         conflicts/RUN/    what could not be written back
//! ```
//! PATH is the path on the machine, with `%` and `/` as `%25` and `%2F`.

use super::files::{Stamp, remove_tree};
use super::fold::fold;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Layers of a session: runs of it at once.
const LAYERS_MAX: u32 = 1024;
/// Pause between two looks at the clock.
const TICK_PAUSE: Duration = Duration::from_micros(200);
/// Longest name of a file.
const NAME_BYTES_MAX: usize = 255;

/// What kind of copy it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An agent's directory: what is only state is written back.
    Agent,
    /// Nothing but listed files is written back.
    Cache,
    /// New names, and listed files.
    Names,
}

const KINDS: [(Kind, &str); 3] = [
    (Kind::Agent, "agent"),
    (Kind::Cache, "cache"),
    (Kind::Names, "names"),
];

/// A copy of a directory, or of files in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// What kind.
    pub kind: Kind,
    /// The directory on the machine.
    pub at: PathBuf,
    /// Where the copy is kept.
    pub dir: PathBuf,
    /// Files in it that are written back in any case.
    pub list: Vec<PathBuf>,
}

impl Item {
    /// What holds the changes.
    pub fn upper(&self) -> PathBuf {
        self.dir.join("upper")
    }

    /// What overlayfs needs beside it.
    pub fn work(&self) -> PathBuf {
        self.dir.join("work")
    }
}

/// A layer that this process has for itself.
#[derive(Debug)]
pub struct Layer {
    /// Its directory.
    pub dir: PathBuf,
    _locked: File,
}

/// Takes a layer of a session, the one that the last run had where nobody has it now. What other runs left is put
/// together in it, once `finish` has dealt with those that were killed.
pub fn take(session: &Path, finish: &mut dyn FnMut(&Layer) -> io::Result<()>) -> io::Result<Layer> {
    make(session)?;
    let _held = wait_for(&session.join("lock"))?;
    let mut first = None;
    for n in 0..LAYERS_MAX {
        let dir = session.join(n.to_string());
        if first.is_some() && !dir.exists() {
            break;
        }
        let Some(layer) = try_layer(dir)? else {
            continue;
        };
        finish(&layer)?;
        match &first {
            None => first = Some(layer),
            Some(into) => join(layer, into)?,
        }
    }
    first.ok_or_else(|| io::Error::other("the session has too many runs"))
}

/// Puts a layer that is done with into the one of the session's runs after each other, if that is free.
pub fn give_back(session: &Path, layer: Layer) -> io::Result<()> {
    let _held = wait_for(&session.join("lock"))?;
    let first = session.join("0");
    if layer.dir == first {
        return Ok(());
    }
    match try_layer(first)? {
        Some(into) => join(layer, &into),
        None => Ok(()),
    }
}

/// Whether a run has a layer of the session.
pub fn is_used(session: &Path) -> io::Result<bool> {
    let entries = match session.read_dir() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries?,
    };
    for entry in entries {
        let lock = entry?.path().join("lock");
        if lock.exists() && try_lock(&lock)?.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn join(layer: Layer, into: &Layer) -> io::Result<()> {
    // One that was killed and could not be finished is looked at again.
    if layer.begun()?.is_some() || into.begun()?.is_some() {
        return Ok(());
    }
    for item in layer.items()? {
        let to = into.item(item.kind, &item.at, &item.list)?;
        fold(&item.upper(), &to.upper())?;
    }
    remove_tree(&layer.dir)
}

fn try_layer(dir: PathBuf) -> io::Result<Option<Layer>> {
    make(&dir)?;
    let locked = try_lock(&dir.join("lock"))?;
    Ok(locked.map(|locked| Layer {
        dir,
        _locked: locked,
    }))
}

fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.open(path)
}

fn wait_for(path: &Path) -> io::Result<File> {
    let file = open_lock(path)?;
    loop {
        match flock(&file, FlockOperation::LockExclusive) {
            Err(Errno::INTR) => {}
            done => {
                done?;
                return Ok(file);
            }
        }
    }
}

fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let file = open_lock(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(None),
        done => done.map(|()| Some(file)).map_err(io::Error::from),
    }
}

impl Layer {
    /// Since when it is in use, if it is.
    pub fn begun(&self) -> io::Result<Option<Stamp>> {
        match rustix::fs::stat(self.dir.join("begun")) {
            Err(Errno::NOENT) => Ok(None),
            stat => Ok(Some(Stamp::of(&stat?))),
        }
    }

    /// It is about to be in use: what has changed until now has this time or an earlier one.
    pub fn begin(&self) -> io::Result<()> {
        self.done()?;
        std::fs::write(self.dir.join("begun"), b"")
    }

    /// Waits until what changes has a later time: for a tick of the clock that files have, if none has passed since.
    pub fn wait(&self) -> io::Result<()> {
        let begun = self.begun()?.map(|begun| begun.changed);
        let path = self.dir.join("tick");
        loop {
            std::fs::write(&path, b"")?;
            if Some(Stamp::of(&rustix::fs::stat(&path)?).changed) > begun {
                return Ok(());
            }
            std::thread::sleep(TICK_PAUSE);
        }
    }

    /// All that is to be written back was.
    pub fn done(&self) -> io::Result<()> {
        match std::fs::remove_file(self.dir.join("begun")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The copy of `at`, made where it is missing.
    pub fn item(&self, kind: Kind, at: &Path, list: &[PathBuf]) -> io::Result<Item> {
        let word = KINDS.iter().find(|(other, _)| *other == kind);
        let word = word.map_or("", |(_, word)| word);
        let name = encoded(at.as_os_str());
        if name.len() > NAME_BYTES_MAX {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        let dir = self.dir.join(word).join(name);
        make(&dir.join("upper"))?;
        let item = Item {
            kind,
            at: at.to_owned(),
            dir,
            list: list.to_vec(),
        };
        let lines: Vec<&[u8]> = list
            .iter()
            .map(|path| path.as_os_str().as_bytes())
            .collect();
        std::fs::write(item.dir.join("list"), lines.join(&0))?;
        Ok(item)
    }

    /// All copies in it.
    pub fn items(&self) -> io::Result<Vec<Item>> {
        let mut items = Vec::new();
        for (kind, word) in KINDS {
            let entries = match self.dir.join(word).read_dir() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                let list = std::fs::read(entry.path().join("list")).unwrap_or_default();
                let paths = list
                    .split(|byte| *byte == 0)
                    .filter(|path| !path.is_empty());
                items.push(Item {
                    kind,
                    at: decoded(&entry.file_name()).into(),
                    dir: entry.path(),
                    list: paths.map(|path| OsStr::from_bytes(path).into()).collect(),
                });
            }
        }
        Ok(items)
    }
}

fn encoded(path: &OsStr) -> OsString {
    let mut name = Vec::new();
    for byte in path.as_bytes() {
        match byte {
            b'%' => name.extend_from_slice(b"%25"),
            b'/' => name.extend_from_slice(b"%2F"),
            byte => name.push(*byte),
        }
    }
    OsString::from_vec(name)
}

fn decoded(name: &OsStr) -> OsString {
    let (mut path, mut rest) = (Vec::new(), name.as_bytes());
    while let Some((first, more)) = rest.split_first() {
        (path, rest) = match (rest.strip_prefix(b"%2F"), rest.strip_prefix(b"%25")) {
            (Some(more), _) => (with(path, b'/'), more),
            (_, Some(more)) => (with(path, b'%'), more),
            _ => (with(path, *first), more),
        };
    }
    OsString::from_vec(path)
}

fn with(mut path: Vec<u8>, byte: u8) -> Vec<u8> {
    path.push(byte);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> impl FnMut(&Layer) -> io::Result<()> {
        |_: &Layer| Ok(())
    }

    #[test]
    fn paths_are_names_and_back() {
        let path = OsStr::from_bytes(b"/h/100%/%2F\xff");
        assert_eq!(decoded(&encoded(path)), path);
        assert!(!encoded(path).as_bytes().contains(&b'/'));
    }

    #[test]
    fn runs_beside_each_other_have_layers_of_their_own_which_end_up_in_one() {
        let dir = tempfile::tempdir().unwrap();
        let session = dir.path().join("s");
        let one = take(&session, &mut nothing()).unwrap();
        let two = take(&session, &mut nothing()).unwrap();
        assert_ne!(one.dir, two.dir);
        assert!(is_used(&session).unwrap());
        let at = Path::new("/h/.cache");
        for (layer, name) in [(&one, "one"), (&two, "two")] {
            let item = layer.item(Kind::Cache, at, &["f".into()]).unwrap();
            std::fs::write(item.upper().join(name), name).unwrap();
        }
        let (first, second) = (one.dir.clone(), two.dir.clone());
        give_back(&session, two).unwrap();
        assert!(second.exists(), "the first is in use");
        drop(one);
        let again = take(&session, &mut nothing()).unwrap();
        assert_eq!(again.dir, first);
        assert!(!second.exists());
        let items = again.items().unwrap();
        assert_eq!((items.len(), items[0].at.as_path()), (1, at));
        assert_eq!(items[0].list, [PathBuf::from("f")]);
        assert!(items[0].upper().join("one").exists() && items[0].upper().join("two").exists());
    }

    #[test]
    fn what_was_killed_is_finished_before_it_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let layer = take(dir.path(), &mut nothing()).unwrap();
        layer.begin().unwrap();
        drop(layer);
        let mut seen = 0;
        let finish = &mut |layer: &Layer| {
            seen += usize::from(layer.begun()?.is_some());
            layer.done()
        };
        let layer = take(dir.path(), finish).unwrap();
        assert_eq!((seen, layer.begun().unwrap()), (1, None));
    }
}
