//! Log and status.

use super::{ImportState, ImportStatus, LogEntry, Status};
use crate::branch::Branch;
use std::sync::atomic::Ordering::Relaxed;

impl Branch {
    /// Commits of the branch, the newest first; with `all` the automatic ones too.
    pub fn log(&self, all: bool) -> Vec<LogEntry> {
        let inner = self.lock();
        let history = &inner.history;
        let mut labels = history.labels_by_state();
        let shown = |s: &&crate::history::State| all || s.info.asked || !s.info.kind.is_automatic();
        let mut entry = |s: &crate::history::State| LogEntry {
            commit: s.info.id,
            time: s.info.time,
            labels: labels.remove(&s.info.number).unwrap_or_default(),
            message: s.info.message.clone(),
            meta: s.info.meta.clone(),
            automatic: s.info.kind.is_automatic(),
            is_head: history.head == s.info.number,
            parents: s
                .info
                .parents
                .iter()
                .filter_map(|p| history.id_of(*p))
                .collect(),
            kind: s.info.kind.word(),
        };
        history
            .states
            .values()
            .rev()
            .filter(shown)
            .map(&mut entry)
            .collect()
    }

    /// How the branch is.
    pub fn status(&self) -> Status {
        let why = self.paused.lock().clone();
        let inner = self.lock();
        let imported = inner.reference.is_some();
        let state = match (&why, inner.scan_done, imported) {
            (_, true, true) => ImportState::Done,
            (Some(_), ..) => ImportState::Paused,
            (None, false, _) => ImportState::Scanning,
            (None, true, false) => ImportState::Running,
        };
        let i = &self.importer;
        Status {
            branch: self.name(),
            head: inner.history.id_of(inner.history.head),
            import: ImportStatus {
                state,
                why,
                files_done: i.files_done.load(Relaxed),
                files_total: i.files_total.load(Relaxed),
                bytes_done: i.bytes_done.load(Relaxed),
                bytes_total: i.bytes_total.load(Relaxed),
            },
            base_changed: inner.base_changed.iter().cloned().collect(),
            unreadable: inner.unreadable.iter().cloned().collect(),
            journal_bytes: self.places.journal.bytes(),
            poisoned: self.places.journal.poisoned(),
            recovered: self.recovered.clone(),
            entries: inner.live.len() as u64,
        }
    }
}
