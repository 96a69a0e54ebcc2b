//! Reading directories of the base, on demand and by the background scan; taking files anew.

use super::notable::Notable;
use super::{Branch, Inner, away};
use crate::base::{Base, BaseEntry, BaseFile};
use crate::error::{Error, Result};
use crate::limits::{FIRST_NEW_INO, RESERVED_NAME};
use crate::record::{Event, Loaded, OpKind};
use crate::tree::NewVersion;
use crate::types::{Kind, Nid};
use objstore::content::FileContent;
use objstore::{Body as StoredBody, Commit};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Entries of a directory in one journal record (bounded by the record's metadata: extended
/// attributes can make an entry large).
const LOAD_DIR_PART: usize = 32;
/// Times that a file which keeps changing is read before that read fails.
const ANEW_TRIES: usize = 200;
/// Time between them.
const ANEW_PAUSE: Duration = Duration::from_millis(5);

/// The directories that somebody needs, one after the other, who tries again each time.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// Those of which nothing was left to be read, since the last one that was read.
    idle: HashSet<Nid>,
}

impl Rounds {
    /// Reads a directory, as [`load_dir`].
    ///
    /// # Errors
    /// `Damaged` where it was asked for before and neither time anything was left to be read: it would go on for ever. Once
    /// is no fault: somebody else may have read it meanwhile.
    pub fn load_dir(&mut self, branch: &Branch, nid: Nid) -> Result<()> {
        if load_dir(branch, nid)? {
            self.idle.clear();
        } else if !self.idle.insert(nid) {
            return Err(still_unknown(branch, nid));
        }
        Ok(())
    }
}

/// The entries of a directory were read, and whoever needs them does not find them.
pub(crate) fn still_unknown(branch: &Branch, nid: Nid) -> Error {
    let path = branch.lock().live.path(nid).unwrap_or_default();
    let error = Error::Damaged {
        what: format!("directory {nid} ({:?})", String::from_utf8_lossy(&path)),
        why: "its entries were read, and no tree that lacks them could take them".into(),
    };
    tracing::error!("{}: {error}", branch.name());
    error
}

/// Reads a lazy directory from the base, or from where it is away; false where nothing was left to be read. Harmless where that
/// was done meanwhile.
fn load_dir(branch: &Branch, nid: Nid) -> Result<bool> {
    if away::bring_dir(branch, nid)? {
        return Ok(true);
    }
    let _one = branch.loading.lock();
    let lazy = |inner: &Inner| {
        inner
            .live
            .get(nid)
            .and_then(|i| i.dir())
            .and_then(|d| d.lazy.clone())
    };
    let Some(dir) = lazy(&branch.lock()) else {
        return load_frozen(branch, nid);
    };
    load_base_dir(branch, nid, &dir).map(|()| true)
}

/// A directory that only a frozen state still has.
fn load_frozen(branch: &Branch, nid: Nid) -> Result<bool> {
    let dir = {
        let mut inner = branch.lock();
        let mut trees = inner.trees_mut().into_iter();
        trees.find_map(|t| {
            t.get(nid)
                .and_then(|i| i.dir())
                .and_then(|d| d.lazy.clone())
        })
    };
    match dir {
        Some(dir) => load_base_dir(branch, nid, &dir).map(|()| true),
        None => Ok(false),
    }
}

fn load_base_dir(branch: &Branch, nid: Nid, dir: &Arc<crate::base::BaseDir>) -> Result<()> {
    let (entries, unreadable) = match branch.places.base.read_dir(dir) {
        Ok(entries) => (entries, false),
        Err(Error::Access) => (Vec::new(), true),
        // It may be there again some day.
        Err(e @ Error::BaseMissing { .. }) => return Err(e),
        Err(e) => {
            tracing::warn!("a base directory is gone: {e}");
            branch.lock().book.base_changed.insert(dir.path());
            (Vec::new(), false)
        }
    };
    let relinked = {
        let mut inner = branch.lock();
        if unreadable {
            inner.book.unreadable.insert(dir.path());
        }
        let entries = number(&mut inner, &branch.places.base, nid, entries);
        count(branch, &entries);
        match record_dir(branch, nid, &entries, unreadable) {
            // No record can follow that would need these numbers, and reading is to go on.
            Err(_) if branch.places.journal.poisoned().is_some() => {}
            recorded => recorded?,
        }
        inner.load_dir(nid, &entries, unreadable)
    };
    if !relinked.is_empty() {
        branch.stale.lock().extend(relinked);
        branch.wake.changed();
    }
    Ok(())
}

/// Journals the entries of a directory, in parts where they are many.
fn record_dir(branch: &Branch, nid: Nid, entries: &[Loaded], unreadable: bool) -> Result<()> {
    let mut rest = entries;
    loop {
        let (part, after) = rest.split_at(rest.len().min(LOAD_DIR_PART));
        let more = !after.is_empty();
        branch.record(
            Event::LoadDir {
                dir: nid.0,
                entries: part.to_vec(),
                unreadable,
                more,
            },
            &[],
        )?;
        if !more {
            return Ok(());
        }
        rest = after;
    }
}

fn count(branch: &Branch, entries: &[Loaded]) {
    for l in entries
        .iter()
        .filter(|l| Kind::of_mode(l.entry.mode) == Some(Kind::File))
    {
        branch.importer.found(&l.entry.stamp);
    }
}

/// Reads all directories of the base that nobody looked at yet.
pub(crate) fn scan(branch: &Branch) -> Result<()> {
    if branch.lock().scan_done {
        branch.signal();
        return Ok(());
    }
    loop {
        let mut work: Vec<Nid> = {
            let mut inner = branch.lock();
            let mut all: Vec<Nid> = inner
                .trees_mut()
                .iter()
                .flat_map(|t| t.lazy_dirs())
                .collect();
            all.sort_unstable();
            all.dedup();
            if all.is_empty() {
                inner.scan_done = true;
                branch.signal();
                return Ok(());
            }
            all
        };
        work.reverse();
        while let Some(nid) = work.pop() {
            if branch.closing.load(Ordering::Relaxed) {
                return Err(Error::Closing);
            }
            load_dir(branch, nid)?;
            let inner = branch.lock();
            if let Some(dir) = inner.live.get(nid).and_then(|i| i.dir()) {
                let below = dir
                    .map
                    .entries()
                    .into_iter()
                    .filter(|e| e.entry.kind == Kind::Dir);
                work.extend(below.map(|e| e.entry.nid));
            }
            drop(inner);
            drop_stale(branch);
        }
    }
}

/// Has all trees read from the store what was imported, for a base that cannot be read.
pub(super) fn recall_imported(branch: &Branch, notable: &Notable) {
    notable.each_of_all(branch.lock().trees_mut(), &mut |_, inode| {
        if let Some(file) = inode.file() {
            branch.importer.recall(&branch.places, file);
        }
    });
}

/// Lets the kernel forget attributes that changed behind it. From background threads only.
pub(crate) fn drop_stale(branch: &Branch) {
    let stale = std::mem::take(&mut *branch.stale.lock());
    if stale.is_empty() {
        return;
    }
    let cache = branch.cache();
    for nid in stale {
        if branch.lock().lookups.may_know(nid) {
            cache.inval_inode(branch.node(nid));
        }
    }
}

/// Takes the present version of a base file that is not what was shown, as a whole.
pub(crate) fn take_anew(branch: &Branch, old: &BaseFile) -> Result<()> {
    let awaited = old.stored().is_none();
    take_version(branch, old)?;
    if awaited {
        // What was shown is not to be imported any more.
        branch.importer.done(old.stamp());
    }
    Ok(())
}

fn take_version(branch: &Branch, old: &BaseFile) -> Result<()> {
    let _one = branch.loading.lock();
    let _pin = branch.places.store.pin();
    let path = old.path();
    if let Some(content) = stored_before(branch, old) {
        let version = NewVersion {
            size: old.stamp().size,
            alloc: old.alloc(),
            mtime: old.stamp().mtime,
            ctime: old.stamp().ctime,
        };
        return put_version(branch, old, Some(content), version).map(|_| ());
    }
    for _ in 0..ANEW_TRIES {
        let now = branch.places.base.current(old)?;
        let Some(e) = now else {
            return replace_version(branch, old, None);
        };
        let file = BaseFile::new(old.dir().clone(), old.name(), e.stamp, e.alloc);
        match branch.importer.import(&branch.places, &file) {
            Ok(_) => {
                branch.places.store.sync()?;
                return replace_version(branch, old, Some((&file, &e)));
            }
            Err(Error::BaseChanged(_)) => std::thread::sleep(ANEW_PAUSE),
            Err(Error::BaseUnreadable { file, why }) => {
                note_unreadable(branch, &file, &why);
                return replace_version(branch, old, None);
            }
            Err(e) => return Err(e),
        }
    }
    let why = "it changes faster than it can be read".to_owned();
    Err(Error::Damaged {
        what: format!("base file {}", String::from_utf8_lossy(&path)),
        why,
    })
}

/// Takes what a base file had to be another version of, or to be left out, out of the way of whoever
/// stores a tree; any other error is given back.
pub(crate) fn settle_base(branch: &Branch, error: Error) -> Result<()> {
    match error {
        Error::BaseChanged(file) => take_anew(branch, &file),
        Error::BaseUnreadable { file, why } => leave_out(branch, &file, &why),
        other => Err(other),
    }
}

/// Marks a base file that cannot be read in all trees: commits are made without its content.
fn leave_out(branch: &Branch, file: &BaseFile, why: &str) -> Result<()> {
    let _one = branch.loading.lock();
    note_unreadable(branch, file, why);
    let version = NewVersion {
        size: file.stamp().size,
        alloc: file.alloc(),
        mtime: file.stamp().mtime,
        ctime: file.stamp().ctime,
    };
    put_version(branch, file, None, version)?;
    branch.importer.done(file.stamp());
    Ok(())
}

fn note_unreadable(branch: &Branch, file: &BaseFile, why: &str) {
    let path = file.path();
    tracing::warn!(
        path = %String::from_utf8_lossy(&path),
        "a base file cannot be read and is left out of commits: {why}"
    );
    branch.lock().book.unreadable.insert(path);
}

fn replace_version(
    branch: &Branch,
    old: &BaseFile,
    new: Option<(&BaseFile, &BaseEntry)>,
) -> Result<()> {
    let content = new.and_then(|(f, _)| f.stored());
    let (mtime, ctime) = new.map_or((old.stamp().mtime, old.stamp().ctime), |(_, e)| {
        (e.stamp.mtime, e.stamp.ctime)
    });
    let size = new.map_or(old.stamp().size, |(_, e)| e.stamp.size);
    let alloc = new.map_or(0, |(_, e)| e.alloc);
    let version = NewVersion {
        size,
        alloc,
        mtime,
        ctime,
    };
    branch.lock().book.base_changed.insert(old.path());
    let changed = put_version(branch, old, content, version)?;
    // Pages of the old version go; from a background thread, which the readers do not wait for.
    branch.stale.lock().extend(changed);
    branch.wake.changed();
    Ok(())
}

/// Puts stored content (`None`: nothing that can be read) in the place of a version of a base file,
/// in all trees; returns the inodes.
fn put_version(
    branch: &Branch,
    old: &BaseFile,
    content: Option<FileContent>,
    new: NewVersion,
) -> Result<Vec<Nid>> {
    let mut inner = branch.lock();
    let nids = holders(&mut inner, old);
    for nid in &nids {
        let event = Event::TakeAnew {
            nid: nid.0,
            old: *old.stamp(),
            content,
            size: new.size,
            alloc: new.alloc,
            mtime: new.mtime,
            ctime: new.ctime,
        };
        inner.doubt_whose(*nid);
        branch.carry_out(&mut inner, event, &[])?;
    }
    Ok(nids)
}

/// What the start commit has of this version: it was stored before a restart, whose replay knows
/// only that the file was the base's.
fn stored_before(branch: &Branch, file: &BaseFile) -> Option<FileContent> {
    let id = {
        let inner = branch.lock();
        let first = inner.book.history.states.values().next()?;
        (first.info.kind == OpKind::Start).then_some(first.info.id)??
    };
    let store = &branch.places.store;
    let commit: Commit = store.get_object(&id).ok()?;
    let path = file.path();
    let mut dir = commit.root;
    let mut parts = path.split(|b| *b == b'/').peekable();
    while let Some(name) = parts.next() {
        let entry = objstore::tree_entry(store, dir?, name).ok()??;
        match (entry.body, parts.peek()) {
            (StoredBody::Dir(below), Some(_)) => dir = below,
            (StoredBody::File(c), None) => {
                let mtime = (entry.meta.mtime_sec, entry.meta.mtime_nsec);
                let stamp = file.stamp();
                let same = c.len() == stamp.size && mtime == (stamp.mtime.sec, stamp.mtime.nsec);
                return same.then_some(c);
            }
            _ => return None,
        }
    }
    None
}

/// Inodes that have content of this version of a base file, in any tree.
fn holders(inner: &mut Inner, file: &BaseFile) -> Vec<Nid> {
    let mut out = Vec::new();
    for tree in inner.trees_mut() {
        tree.for_each_open(&mut |nid, i| {
            if i.file().is_some_and(|f| f.is_of(file.stamp())) {
                out.push(nid);
            }
        });
    }
    out.sort_unstable();
    out.dedup();
    out
}

/// Gives numbers to the entries of a base directory; further links of one file get the first's.
fn number(inner: &mut Inner, base: &Base, dir: Nid, entries: Vec<BaseEntry>) -> Vec<Loaded> {
    let hidden = |e: &BaseEntry| dir == Nid::ROOT && e.name == RESERVED_NAME;
    let mut out = Vec::with_capacity(entries.len());
    for entry in entries
        .into_iter()
        .filter(|e| !hidden(e) && e.name.len() <= 255)
    {
        let s = entry.stamp;
        let linked = entry.nlink > 1 && Kind::of_mode(entry.mode) != Some(Kind::Dir);
        let known = if linked {
            inner.base_inodes.get(&(s.dev, s.ino)).copied()
        } else {
            None
        };
        let nid = known.unwrap_or(Nid(inner.book.counters.nid));
        if known.is_none() {
            inner.book.counters.nid += 1;
        }
        if linked {
            inner.base_inodes.insert((s.dev, s.ino), nid);
        }
        let ino = if s.dev == base.dev() && s.ino < FIRST_NEW_INO && s.ino > 1 {
            s.ino
        } else {
            inner.book.counters.ino += 1;
            inner.book.counters.ino - 1
        };
        out.push(Loaded {
            nid: nid.0,
            ino,
            entry,
        });
    }
    out
}
