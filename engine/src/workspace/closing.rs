//! Closing a workspace: what every branch shows becomes a commit, or stays in its journal.
//!
//! Invariant: nothing is lost by closing. What cannot be stored now, because the base is not imported yet or
//! is gone, is in the journal and is stored after the next start.

use super::Workspace;
use crate::branch::judging;
use crate::branch::seal;
use crate::branch::states;
use crate::branch::{Branch, drop_orphans};
use crate::error::{Result, errno};
use crate::record::OpKind;
use crate::types::Progress;
use objstore::CommitId;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How long closing waits for an import of the base.
const IMPORT_WAIT: Duration = Duration::from_secs(10);

/// How a workspace is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseMode {
    /// With an automatic commit of what differs from the head.
    Checkpoint,
    /// Without; the journal keeps what is not in a commit.
    NoCheckpoint,
}

/// What closing did.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Closed {
    /// The automatic commit, or the head where nothing had changed; `None` without a checkpoint, and where the
    /// base is not imported yet: then the state is kept in the journal, and stored after the next start.
    pub commit: Option<CommitId>,
    /// An automatic commit was made.
    pub new_commit: bool,
}

impl Workspace {
    /// Closes the workspace, after it was unmounted. On error it stays open, nothing is lost.
    pub(crate) fn close(&self, mode: CloseMode, progress: Progress<'_>) -> Result<Closed> {
        let branches = self.views.branches();
        let _one: Vec<_> = branches.iter().map(|b| b.control.lock()).collect();
        branches.iter().for_each(|b| judging::keep_due(b));
        let mut closed = Closed::default();
        if mode == CloseMode::Checkpoint {
            closed = self.commit_all(&branches, progress)?;
        }
        branches.iter().try_for_each(|b| b.sync())?;
        branches.iter().for_each(|b| b.begin_closing());
        self.keeper.stop();
        if let Err(error) = self.untrusted.close() {
            tracing::warn!("branches in which commands wrote nothing stay marked: {error}");
        }
        for b in &branches {
            b.places.journal.mark_clean()?;
        }
        self.feed().close();
        Ok(closed)
    }

    /// Commits what differs from each branch's head; says what that made of `main`. An import of the base is
    /// waited for a while only, then it is cancelled.
    fn commit_all(&self, branches: &[Arc<Branch>], progress: Progress<'_>) -> Result<Closed> {
        let (done, ended) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                if ended.recv_timeout(IMPORT_WAIT) == Err(RecvTimeoutError::Timeout) {
                    let importing = branches.iter().filter(|b| b.is_importing());
                    importing.for_each(|b| b.begin_closing());
                }
            });
            // Ends the thread, however this ends.
            let _done = done;
            let mut closed = Closed::default();
            for b in branches {
                let one = b.close_with_commit(&self.author, progress)?;
                if Arc::ptr_eq(b, &self.main) {
                    closed = one;
                }
            }
            Ok(closed)
        })
    }
}

impl Branch {
    /// Whether the base is not in the store as a whole.
    fn is_importing(&self) -> bool {
        self.lock().reference.is_none()
    }

    /// Makes an automatic commit of what differs from the head, and seals everything.
    fn close_with_commit(&self, author: &str, progress: Progress<'_>) -> Result<Closed> {
        let head = self.lock().book.history.head;
        let before = states::tree_of(self, head)?;
        let state = {
            let mut inner = self.lock();
            drop_orphans(&mut inner.live);
            states::freeze_if_differs(self, &mut inner, &before, OpKind::Stop, author)?
        };
        let commit = match states::wait_for_id(self, state, progress) {
            Ok(commit) => commit,
            Err(e) if self.is_importing() => {
                tracing::warn!("{}: the last state has no commit yet: {e}", self.name());
                return Ok(Closed {
                    commit: None,
                    new_commit: state != head,
                });
            }
            Err(e) => return Err(e),
        };
        match seal::seal(self) {
            // The journal has all of it, and is opened again at the next start.
            Err(e) if e.errno() == errno::ENOSPC => {
                tracing::warn!("{}: it is closed without sealing: {e}", self.name());
            }
            sealed => sealed?,
        }
        Ok(Closed {
            commit: Some(commit),
            new_commit: state != head,
        })
    }
}
