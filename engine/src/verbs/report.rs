//! Log and status.

use super::{ImportState, ImportStatus, LogCursor, LogEntry, LogPage, Status};
use crate::book::history::History;
use crate::book::states::State;
use crate::branch::Branch;
use crate::error::Result;
use crate::record::OpKind;
use crate::stored::import::is_imported;
use crate::types::StatFs;
use crate::workspace::Workspace;
use objstore::{Commit, CommitId};
use std::sync::atomic::Ordering::Relaxed;

/// Commits of the branch, the newest first, its head among them; with `all` the automatic ones too.
/// No more than the page holds.
pub(crate) fn log_of(branch: &Branch, all: bool, page: LogPage) -> Vec<LogEntry> {
    let (mut entries, unknown) = entries(branch, all, page);
    // A commit says itself which parents it has, also where not all of them are states here.
    for (at, id) in unknown {
        if let Ok(commit) = branch.places.store.get_object::<Commit>(&id) {
            entries[at].parents = commit.parents;
        }
    }
    entries
}

/// The entries, and which of them have parents that are not known here.
fn entries(branch: &Branch, all: bool, page: LogPage) -> (Vec<LogEntry>, Vec<(usize, CommitId)>) {
    let inner = branch.lock();
    let history = &inner.book.history;
    let mut unknown = Vec::new();
    let mut entries = Vec::new();
    let limit = page
        .limit
        .map_or(usize::MAX, |n| n.try_into().unwrap_or(usize::MAX));
    for s in older(history, page.after) {
        if entries.len() == limit {
            break;
        }
        if !is_shown(history, s, all) {
            continue;
        }
        let parents = s.info.parents.iter();
        let parents: Vec<CommitId> = parents.filter_map(|p| history.id_of(*p)).collect();
        let is_foreign = s.info.kind == OpKind::Foreign;
        if let Some(id) = s.info.id
            && (is_foreign || parents.len() < s.info.parents.len())
        {
            unknown.push((entries.len(), id));
        }
        entries.push(LogEntry {
            number: s.info.number,
            commit: s.info.id,
            time: s.info.time,
            labels: Vec::new(),
            message: s.info.message.clone(),
            meta: s.info.meta.clone(),
            automatic: is_automatic(s),
            is_head: history.head == s.info.number,
            parents,
            kind: s.info.kind.word(),
        });
    }
    let shown = entries.iter().map(|entry| entry.number).collect();
    let mut labels = history.labels_of_states(&shown);
    for entry in &mut entries {
        entry.labels = labels.remove(&entry.number).unwrap_or_default();
    }
    (entries, unknown)
}

/// Whether a state is in the log: what somebody asked for and the head, or all.
fn is_shown(history: &History, state: &State, all: bool) -> bool {
    all || !is_automatic(state) || history.head == state.info.number
}

fn is_automatic(state: &State) -> bool {
    state.info.kind.is_automatic() && !state.info.asked
}

/// The states after an entry; where it has expired meanwhile, those that are older.
fn older(history: &History, after: Option<LogCursor>) -> impl Iterator<Item = &State> {
    let is_there = after.is_some_and(|after| history.states.contains_key(&after.number));
    let mut is_passed = after.is_none();
    history.newest_first().filter(move |state| {
        let Some(after) = after.filter(|_| !is_passed) else {
            return true;
        };
        match is_there {
            true => {
                is_passed = state.info.number == after.number;
                false
            }
            false => state.info.time < after.time,
        }
    })
}

/// Paths of the live tree that commits are made without, as they cannot be read in the base.
pub(crate) fn left_out(branch: &Branch) -> Vec<Vec<u8>> {
    let tree = {
        let inner = branch.lock();
        if inner.book.unreadable.is_empty() {
            return Vec::new();
        }
        inner.live.clone()
    };
    let mut paths = Vec::new();
    tree.for_each(&mut |nid, inode| {
        if inode.is_unreadable() {
            let names = inode.names().into_iter();
            paths.extend(names.filter_map(|name| tree.path_of_name(nid, name)));
        }
    });
    paths.sort_unstable();
    paths
}

/// What a base that cannot be used has and the store does not: paths of files, and of directories (with
/// a slash at the end) that nobody looked into.
fn not_imported(branch: &Branch) -> Vec<Vec<u8>> {
    if branch.places.base.missing().is_none() {
        return Vec::new();
    }
    let tree = branch.lock().live.clone();
    let mut found = Vec::new();
    tree.for_each(&mut |nid, inode| {
        let is_file = inode.file().is_some_and(|file| !is_imported(file));
        let is_dir = inode.dir().is_some_and(|dir| dir.lazy.is_some());
        if !is_file && !is_dir {
            return;
        }
        for name in inode.names() {
            let path = tree.path_of_name(nid, name);
            found.extend(path.map(|mut path| {
                if is_dir {
                    path.push(b'/');
                }
                path
            }));
        }
    });
    found.sort();
    found
}

/// How the branch is.
pub(crate) fn status_of(b: &Branch) -> Status {
    let paused = b.paused.lock().clone();
    let unreadable = left_out(b);
    let not_imported = not_imported(b);
    let inner = b.lock();
    let imported = inner.reference.is_some();
    let state = match (&paused, inner.scan_done, imported) {
        (_, true, true) => ImportState::Done,
        (Some(_), ..) => ImportState::Paused,
        (None, false, _) => ImportState::Scanning,
        (None, true, false) => ImportState::Running,
    };
    let i = &b.importer;
    Status {
        branch: b.name(),
        number: b.slot,
        head: inner.book.history.id_of(inner.book.history.head),
        import: ImportStatus {
            state,
            wants_space: paused.as_ref().is_some_and(|p| p.wants_space),
            why: paused.map(|p| p.why),
            files_done: i.files_done.load(Relaxed),
            files_total: i.files_total.load(Relaxed),
            bytes_done: i.bytes_done.load(Relaxed),
            bytes_total: i.bytes_total.load(Relaxed),
            since: i.began.elapsed(),
        },
        base_changed: inner.book.base_changed.iter().cloned().collect(),
        unreadable,
        base_missing: b.places.base.missing().map(str::to_owned),
        not_imported,
        journal_bytes: b.places.journal.bytes(),
        poisoned: b.places.journal.poisoned(),
        recovered: b.recovered.clone(),
        entries: inner.live.len() as u64,
    }
}

/// Commits, the newest first; with `all` the automatic ones too.
pub fn log(ws: &Workspace, branch: &str, all: bool) -> Result<Vec<LogEntry>> {
    page_of_log(ws, branch, all, LogPage::default())
}

/// The same, of which a page is given.
pub fn page_of_log(
    ws: &Workspace,
    branch: &str,
    all: bool,
    page: LogPage,
) -> Result<Vec<LogEntry>> {
    Ok(log_of(ws.branch(branch)?.as_ref(), all, page))
}

/// How many commits there are in all pages.
pub fn count_of_log(ws: &Workspace, branch: &str, all: bool) -> Result<u64> {
    let branch = ws.branch(branch)?;
    let inner = branch.lock();
    let history = &inner.book.history;
    let states = history.states.values();
    Ok(states.filter(|s| is_shown(history, s, all)).count() as u64)
}

/// How a branch is.
pub fn status(ws: &Workspace, branch: &str) -> Result<Status> {
    Ok(status_of(ws.branch(branch)?.as_ref()))
}

/// What a branch takes, and what the disk below the store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Figures of the file system that holds the store.
    pub disk: StatFs,
    /// Inodes of the live tree.
    pub inodes: u64,
    /// Length of its files, together.
    pub file_bytes: u64,
}

/// What a branch takes, as far as the project's directories were read, and what the disk has.
pub fn space(ws: &Workspace, branch: &str) -> Result<Space> {
    let live = ws.branch(branch)?.lock().live.clone();
    let (mut inodes, mut file_bytes) = (0, 0u64);
    live.for_each(&mut |_, inode| {
        inodes += 1;
        if inode.file().is_some() {
            file_bytes = file_bytes.saturating_add(inode.size);
        }
    });
    Ok(Space {
        disk: ws.statfs()?,
        inodes,
        file_bytes,
    })
}

/// Brings everything answered so far on a branch to stable storage.
pub fn sync(ws: &Workspace, branch: &str) -> Result<()> {
    let branch = ws.branch(branch)?;
    branch.cache().flush_dirty();
    branch.sync()
}
