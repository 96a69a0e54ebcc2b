//! The files of branches: state files, journals, the data in them.

use super::names::Namer;
use super::{Affected, Check, RepairStep};
use crate::branch::Inner;
use crate::branch::inspect::inspect;
use crate::engine::gc;
use crate::error::{Error, Result};
use crate::journal::{JournalError, JournalResult, PayloadRef, journal_of};
use crate::kv::stored::WHAT;
use crate::tree::Tree;
use crate::tree::file::{Body, FileData, Src};
use crate::types::Nid;
use std::collections::HashSet;

/// Bytes of a payload that are checked at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Fills a buffer from a byte of a payload on.
type ReadJournal<'a> = dyn Fn(PayloadRef, u32, &mut [u8]) -> JournalResult<()> + 'a;

impl Check<'_> {
    /// Looks at all branches of a workspace, open or not.
    pub(super) fn workspace(&mut self, name: &str, namer: &mut Namer<'_>) -> Result<()> {
        if let Some(w) = self.engine.opened(name) {
            for branch in w.views.branches() {
                let inner = branch.lock().snapshot();
                let journals = &branch.places.journals;
                let read = |p: PayloadRef, from, buf: &mut [u8]| {
                    let journal = journals.get(journal_of(p.segment), p.segment)?;
                    journal.read(p, from, buf)
                };
                self.branch(name, &branch.name(), &inner, &read, namer);
            }
            return Ok(());
        }
        let dirs = match gc::branch_dirs(self.engine, name) {
            Ok(dirs) => dirs,
            // Which ref that is was found already; the other branches cannot be told from it.
            Err(Error::Damaged { .. } | Error::Store(_)) => return Ok(()),
            Err(e) => return Err(e),
        };
        self.closed(name, &dirs, namer);
        Ok(())
    }

    /// Looks at the branches of a workspace that is not open. What one shows may be in another's journal.
    fn closed(&mut self, name: &str, dirs: &[(String, String)], namer: &mut Namer<'_>) {
        let trees = gc::look_at_trees(self.engine, name);
        let mut found = Vec::new();
        for (branch, dir) in dirs {
            self.report.branches += 1;
            match inspect(
                &*self.engine.storage,
                &self.engine.store,
                &trees,
                dir,
                self.engine.boot,
            ) {
                Ok(None) => {}
                Ok(Some(one)) => {
                    if one.journal.is_mark_cut {
                        self.mark_is_cut(name, branch, dir);
                    }
                    found.push((branch, one));
                }
                Err(e) => self.unreadable(name, branch, dir, &e),
            }
        }
        for (branch, one) in &found {
            let read = |p: PayloadRef, from, buf: &mut [u8]| {
                let other = found.iter().map(|(_, f)| &f.journal).find(|j| j.has(p));
                other.unwrap_or(&one.journal).read(p, from, buf)
            };
            self.branch(name, branch, &one.inner, &read, namer);
        }
    }

    fn mark_is_cut(&mut self, workspace: &str, branch: &str, dir: &str) {
        let what = "it was cut off; the rest is valid";
        let who = affected(workspace, branch);
        self.find(format!("{dir}/journal/mark"), what, vec![who]);
        let dir = dir.to_owned();
        self.step(RepairStep::MarkAnew { dir });
    }

    fn unreadable(&mut self, workspace: &str, branch: &str, dir: &str, error: &Error) {
        let who = affected(workspace, branch);
        let in_journal = matches!(error, Error::Journal(_));
        let place = if in_journal {
            format!("{dir}/journal")
        } else {
            dir.to_owned()
        };
        self.find(
            place,
            format!("{error}; the branch cannot be opened"),
            vec![who],
        );
        if matches!(error, Error::Damaged { what, .. } if what == WHAT) {
            self.step(RepairStep::OlderKeys {
                dir: dir.to_owned(),
            });
        }
        if in_journal {
            let (dir, before) = (dir.to_owned(), lacks_data(error));
            // What is whole and yet cannot be carried out may be of a later version.
            let whole = matches!(error, Error::Journal(JournalError::Replay { .. }));
            if before.is_some() || !whole {
                self.step(RepairStep::CutJournal { dir, before });
            }
        } else if let Err(e) = self.plan_state(workspace, branch, dir) {
            tracing::warn!("nothing can be planned for {dir}: {e}");
        }
    }

    fn branch(
        &mut self,
        workspace: &str,
        branch: &str,
        inner: &Inner,
        read: &ReadJournal<'_>,
        namer: &mut Namer<'_>,
    ) {
        let who = affected(workspace, branch);
        let mut labels = inner.book.history.labels_by_state();
        let states = &inner.book.history.states;
        for state in states.stored() {
            let Some(id) = state.info.id else {
                continue;
            };
            self.report.commits += 1;
            let of = Affected {
                commit: Some(id),
                labels: labels.remove(&state.info.number).unwrap_or_default(),
                ..who.clone()
            };
            namer.commit(&id, &of);
        }
        // Recovery begins from what the branch's files refer to.
        if let Some(root) = inner.book.anchors.root {
            namer.tree(root, &who);
        }
        if let Some(kv) = inner.book.anchors.kv {
            namer.content(&kv, b".agentvfs/kv", &who);
        }
        for log in [&inner.book.timeline.stored, &inner.book.anchors.timeline] {
            namer.content(log, b".agentvfs/timeline", &who);
        }
        for conflict in &inner.book.history.conflicts {
            let sides = [&conflict.base, &conflict.ours, &conflict.theirs];
            for side in sides.into_iter().flatten() {
                match &side.entry.body {
                    objstore::Body::File(content) => {
                        namer.content(content, &side.path, &who);
                    }
                    objstore::Body::Dir(Some(id)) => namer.tree(*id, &who),
                    _ => {}
                }
            }
        }
        let mut seen = HashSet::new();
        self.live(&inner.live, &who, read, namer, &mut seen);
        for tree in states.pending().filter_map(|n| states.tree(n)) {
            self.live(tree, &who, read, namer, &mut seen);
        }
    }

    /// Looks at all data of a tree that is not a commit.
    fn live(
        &mut self,
        tree: &Tree,
        who: &Affected,
        read: &ReadJournal<'_>,
        namer: &mut Namer<'_>,
        seen: &mut HashSet<PayloadRef>,
    ) {
        let mut files: Vec<(Nid, FileData)> = Vec::new();
        tree.for_each(&mut |nid, inode| {
            if let Some(file) = inode.file() {
                files.push((nid, file.clone()));
            }
        });
        for (nid, file) in files {
            if namer.is_cancelled() {
                return;
            }
            let path = || tree.path(nid).unwrap_or_else(|| b"(unlinked)".to_vec());
            let stored = |body: &Body| match body {
                Body::Stored(c) => Some(*c),
                Body::Base(f) => f.stored(),
                _ => None,
            };
            let mut contents: Vec<_> = stored(file.body().0).into_iter().collect();
            for piece in file.extents() {
                match piece.src {
                    Src::Shared { body, .. } => contents.extend(stored(&body)),
                    Src::Journal { payload, .. } if seen.insert(payload) => {
                        if let Err(e) = check_payload(payload, read) {
                            let of = Affected {
                                path: path(),
                                ..who.clone()
                            };
                            self.find("journal", e.to_string(), vec![of]);
                        }
                    }
                    _ => {}
                }
            }
            for content in contents {
                namer.content(&content, &path(), who);
            }
        }
    }
}

/// The record that cannot be carried out since its data are damaged or gone.
fn lacks_data(error: &Error) -> Option<u64> {
    let Error::Journal(JournalError::Replay { seq, source }) = error else {
        return None;
    };
    let cause = source.downcast_ref::<JournalError>()?;
    let damaged = !matches!(cause, JournalError::Io { .. });
    damaged.then_some(*seq)
}

fn affected(workspace: &str, branch: &str) -> Affected {
    Affected {
        workspace: workspace.to_owned(),
        branch: branch.to_owned(),
        commit: None,
        labels: vec![],
        path: vec![],
    }
}

fn check_payload(p: PayloadRef, read: &ReadJournal<'_>) -> JournalResult<()> {
    let mut buf = vec![0; PIECE_BYTES.min(p.len as usize)];
    let mut at = 0;
    while at < p.len {
        let piece = buf.len().min((p.len - at) as usize);
        read(p, at, &mut buf[..piece])?;
        at += piece as u32;
    }
    Ok(())
}
