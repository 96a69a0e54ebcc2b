//! Log and status.

use super::{ImportState, ImportStatus, LogEntry, Status};
use crate::branch::Branch;
use crate::error::Result;
use crate::record::OpKind;
use crate::stored::import::is_imported;
use crate::workspace::Workspace;
use objstore::{Commit, CommitId};
use std::sync::atomic::Ordering::Relaxed;

impl Branch {
    /// Commits of the branch, the newest first, its head among them; with `all` the automatic ones too.
    pub fn log(&self, all: bool) -> Vec<LogEntry> {
        let (mut entries, unknown) = self.entries(all);
        // A commit says itself which parents it has, also where not all of them are states here.
        for (at, id) in unknown {
            if let Ok(commit) = self.places.store.get_object::<Commit>(&id) {
                entries[at].parents = commit.parents;
            }
        }
        entries
    }

    /// The entries, and which of them have parents that are not known here.
    fn entries(&self, all: bool) -> (Vec<LogEntry>, Vec<(usize, CommitId)>) {
        let inner = self.lock();
        let history = &inner.book.history;
        let mut labels = history.labels_by_state();
        let mut unknown = Vec::new();
        let mut entries = Vec::new();
        for s in history.newest_first() {
            let is_head = history.head == s.info.number;
            let automatic = s.info.kind.is_automatic() && !s.info.asked;
            if automatic && !all && !is_head {
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
                labels: labels.remove(&s.info.number).unwrap_or_default(),
                message: s.info.message.clone(),
                meta: s.info.meta.clone(),
                automatic,
                is_head,
                parents,
                kind: s.info.kind.word(),
            });
        }
        (entries, unknown)
    }

    /// Paths of the live tree that commits are made without, as they cannot be read in the base.
    pub fn left_out(&self) -> Vec<Vec<u8>> {
        let tree = {
            let inner = self.lock();
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
    fn not_imported(&self) -> Vec<Vec<u8>> {
        if self.places.base.missing().is_none() {
            return Vec::new();
        }
        let tree = self.lock().live.clone();
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
    pub fn status(&self) -> Status {
        let paused = self.paused.lock().clone();
        let unreadable = self.left_out();
        let not_imported = self.not_imported();
        let inner = self.lock();
        let imported = inner.reference.is_some();
        let state = match (&paused, inner.scan_done, imported) {
            (_, true, true) => ImportState::Done,
            (Some(_), ..) => ImportState::Paused,
            (None, false, _) => ImportState::Scanning,
            (None, true, false) => ImportState::Running,
        };
        let i = &self.importer;
        Status {
            branch: self.name(),
            head: inner.book.history.id_of(inner.book.history.head),
            import: ImportStatus {
                state,
                wants_space: paused.as_ref().is_some_and(|p| p.wants_space),
                why: paused.map(|p| p.why),
                files_done: i.files_done.load(Relaxed),
                files_total: i.files_total.load(Relaxed),
                bytes_done: i.bytes_done.load(Relaxed),
                bytes_total: i.bytes_total.load(Relaxed),
            },
            base_changed: inner.book.base_changed.iter().cloned().collect(),
            unreadable,
            base_missing: self.places.base.missing().map(str::to_owned),
            not_imported,
            journal_bytes: self.places.journal.bytes(),
            poisoned: self.places.journal.poisoned(),
            recovered: self.recovered.clone(),
            entries: inner.live.len() as u64,
        }
    }
}

impl Workspace {
    /// Commits, the newest first; with `all` the automatic ones too.
    pub fn log(&self, branch: &str, all: bool) -> Result<Vec<LogEntry>> {
        Ok(self.branch(branch)?.log(all))
    }

    /// How a branch is.
    pub fn status(&self, branch: &str) -> Result<Status> {
        Ok(self.branch(branch)?.status())
    }
}
