//! What goes out of a store as a whole, and what comes in: commits to export, and workspaces and branches
//! that begin with a commit that was put together elsewhere.
//!
//! A workspace that is made of a commit has no base. In place of one it has the directory `empty` of the
//! home, of which nothing is ever read: all of its tree is known. Invariant: it exists once its record is
//! written; until then the ref `unfinished/NAME` says that its directory is to be removed.

use crate::base::Base;
use crate::branch::Branch;
use crate::branch::create::Origin;
use crate::branch_refs::{self, deleted_dir, deleted_record};
use crate::branches::Views;
use crate::cancel::Cancel;
use crate::clock;
use crate::control::Created;
use crate::control::{Progress, Target};
use crate::engine::{Engine, running_at};
use crate::error::{Error, Result};
use crate::names::MAIN;
use crate::names::{check_branch_name, check_workspace_name};
use crate::record::OpKind;
use crate::timeline::ImportedCall;
use crate::types::SLOT_SHIFT;
use crate::workspace::{Workspace, WorkspaceConfig};
use objstore::{CommitId, HexPrefix, ObjectStore};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directory in the home that stands for the base of workspaces without one.
const NO_BASE: &str = "empty";
/// Where the refs are that name workspaces which are being made of a commit.
const UNFINISHED: &str = "unfinished";

/// How the message of the first commit of a workspace begins that has no base.
pub const IMPORTED: &str = "imported from ";

/// Gives calls to take over, some at a time and none at the end.
pub type Calls<'a> = &'a mut dyn FnMut() -> Result<Vec<ImportedCall>>;

/// What stands for a base in the home `root`.
pub(crate) fn no_base(root: &Path) -> PathBuf {
    root.join(NO_BASE)
}

impl Engine {
    /// The store of objects, from which commits are read and in which they are put together.
    pub fn objects(&self) -> &Arc<ObjectStore> {
        &self.store
    }

    /// Refuses what would take the home beyond its quota.
    pub fn check_room(&self, bytes: u64) -> Result<()> {
        let Some(quota) = self.settings().quota else {
            return Ok(());
        };
        let used = self.storage.used_bytes();
        let used = used.map_err(Error::io(self.root()))?;
        match used.saturating_add(bytes) > quota {
            true => Err(Error::Quota { quota }),
            false => Ok(()),
        }
    }

    /// Makes a workspace whose branch `main` begins with a commit that is in the store as a whole, and
    /// whose timeline begins with `calls`.
    /// Durable after `Ok`; on error there is none.
    pub fn create_from_commit(
        &self,
        name: &str,
        commit: CommitId,
        calls: Calls<'_>,
    ) -> Result<WorkspaceConfig> {
        check_workspace_name(name)?;
        self.check_is_new(name)?;
        self.clear_deleted(name)?;
        let base = self.make_no_base()?;
        let mark = format!("{UNFINISHED}/{name}");
        self.refs.set(&mark, b"")?;
        let config = WorkspaceConfig {
            name: name.to_owned(),
            base: base.clone(),
            mount: None,
            created: clock::now(),
            running: None,
        };
        let made = self
            .make_main(name, &base, commit, calls)
            .and_then(|()| self.put(&config));
        if made.is_err() {
            self.clear_unfinished(name)?;
        }
        self.refs.delete(&mark)?;
        made.map(|()| config)
    }

    /// The directory that stands for the base where there is none.
    pub(crate) fn make_no_base(&self) -> Result<PathBuf> {
        let path = no_base(self.root());
        std::fs::create_dir_all(&path).map_err(Error::io(&path))?;
        Ok(path)
    }

    /// The branch `main` of a workspace that is not there yet.
    fn make_main(&self, name: &str, base: &Path, commit: CommitId, calls: Calls<'_>) -> Result<()> {
        self.clear_unfinished(name)?;
        // What the branch refers to must not be younger than the branch.
        self.store.sync()?;
        let shared = self.shared_parts(Base::open(base)?);
        let origin = Origin::of_commit(&shared, commit)?;
        let views = Views::new(name.to_owned(), self.author().to_owned(), shared)?;
        let main = Branch::make(views.open_parts(MAIN, 0), origin)?;
        main.take_over(calls)?;
        main.begin_closing();
        Ok(main.places.journal.mark_clean()?)
    }

    fn clear_unfinished(&self, name: &str) -> Result<()> {
        branch_refs::forget_refs(&self.refs, name)?;
        let dir = format!("workspaces/{name}");
        self.storage.remove_dir_all(&dir).map_err(Error::io(dir))
    }

    /// Removes what was left of workspaces whose making was cut off.
    pub(crate) fn sweep_unfinished(&self) -> Result<()> {
        for mark in self.refs.list(UNFINISHED)? {
            let name = mark.trim_start_matches(UNFINISHED).trim_matches('/');
            if !self.names()?.iter().any(|n| n == name) {
                self.clear_unfinished(name)?;
            }
            self.refs.delete(&mark)?;
        }
        Ok(())
    }
}

impl Workspace {
    /// False for a workspace that was made of a commit.
    pub fn has_base(&self) -> bool {
        self.base() != no_base(self.root())
    }

    /// An error where there is no base to write to or to read from.
    pub(crate) fn check_has_base(&self) -> Result<()> {
        match self.has_base() {
            true => Ok(()),
            false => Err(Error::NoBase(self.name().to_owned())),
        }
    }

    /// An error where the path of the base does not lead to the directory that is open. Nothing is wrong
    /// where there is none.
    pub fn check_base_place(&self) -> Result<()> {
        if !self.has_base() {
            return Ok(());
        }
        let refs = &self.views.shared().refs;
        let covers = running_at(refs, self.name())?.is_some_and(|at| at == self.base());
        self.main.places.base.check_place(covers)
    }

    /// Why the base cannot be used, where it cannot: what was not imported of it cannot be read.
    pub fn base_missing(&self) -> Option<&str> {
        self.main.places.base.missing()
    }

    /// The commit of what a reference names, or of what a branch shows now (frozen as an automatic commit
    /// where it differs from the head).
    pub fn commit_of(
        &self,
        branch: &str,
        reference: Option<&str>,
        progress: Progress<'_>,
        cancel: &Cancel,
    ) -> Result<CommitId> {
        let b = self.branch(branch)?;
        let state = {
            let _one = b.control.lock();
            match reference {
                None => b.freeze_now(self.author())?,
                Some(text) => {
                    let target = self.import_ref(&b, &Target::Ref(text.to_owned()))?;
                    b.resolve(&target)?
                }
            }
        };
        b.wait_for_id_unless(state, progress, cancel)
    }

    /// Makes a branch that begins with a commit that is in the store as a whole; `calls` are added to the
    /// timeline that it has of `main`. Durable after `Ok`.
    pub fn create_branch_from(
        &self,
        name: &str,
        commit: CommitId,
        calls: Calls<'_>,
    ) -> Result<Created> {
        check_branch_name(name)?;
        let _one = self.views.changing();
        if self.branch(name).is_ok() {
            return Err(Error::BranchExists(name.to_owned()));
        }
        let parent = self.main.clone();
        let _control = parent.control.lock();
        let _pin = parent.places.store.pin();
        parent.places.store.sync()?;
        let state = parent.know(commit)?;
        let mut origin = parent.origin_at(state)?;
        origin.begin_as_asked_for();
        parent.sync()?;
        self.add_branch(name, origin, calls)
    }
}

impl Workspace {
    /// Removes a branch that nothing names yet.
    pub(crate) fn discard(&self, branch: &Branch) -> Result<()> {
        let dir = &branch.dir;
        let removed = branch.storage.remove_dir_all(dir);
        removed.map_err(Error::io(dir))
    }

    /// The last commit of a branch that was deleted, by its id or a unique prefix.
    pub(crate) fn stored_commit(&self, text: &str) -> Result<Option<CommitId>> {
        let Ok(prefix) = HexPrefix::parse(text) else {
            return Ok(None);
        };
        let shared = self.views.shared();
        let mut found = BTreeSet::new();
        for name in shared.refs.list(&deleted_dir(self.name()))? {
            let Some(bytes) = shared.refs.get(&name)? else {
                continue;
            };
            let Some(record) = deleted_record(&name, &bytes)? else {
                continue;
            };
            if prefix.matches(record.last.as_bytes()) {
                found.insert(record.last);
            }
        }
        if found.len() > 1 {
            return Err(Error::AmbiguousRef {
                prefix: text.to_owned(),
                count: found.len(),
            });
        }
        Ok(found.pop_first())
    }
}

impl Branch {
    /// Takes calls over from elsewhere.
    pub(crate) fn take_over(&self, calls: Calls<'_>) -> Result<()> {
        loop {
            let some = calls()?;
            if some.is_empty() {
                return Ok(());
            }
            self.call_import(some)?;
        }
    }

    /// State of what the live tree is now, made where it differs from the head.
    fn freeze_now(&self, author: &str) -> Result<u64> {
        self.cache().flush_dirty();
        let head = self.lock().book.history.head;
        let before = self.tree_of(head)?;
        let state = self.freeze_if_differs(&mut self.lock(), &before, OpKind::Auto, author)?;
        self.signal();
        Ok(state)
    }
}

impl Origin {
    /// The commit that it begins with counts as asked for.
    fn begin_as_asked_for(&mut self) {
        let inner = self.inner_mut();
        let head = inner.book.history.head;
        if let Some(state) = inner.book.history.states.get_mut(&head) {
            state.info.asked = true;
        }
        self.keep_off_groups();
    }

    /// Numbers that are given later differ from those of hard-link groups.
    pub(crate) fn keep_off_groups(&mut self) {
        let inner = self.inner_mut();
        let mut groups = Vec::new();
        inner.live.for_each(&mut |_, i| {
            if i.group() != 0 {
                groups.push(i.group());
            }
        });
        inner.book.counters.ino = widest_gap(groups, inner.book.counters.ino);
    }
}

/// The first number of the widest range, of those that counting from `from` on can give, that holds none
/// of `groups`. Merges and bases may have groups beyond what counting ever reaches.
fn widest_gap(mut groups: Vec<u64>, from: u64) -> u64 {
    const END: u64 = 1 << SLOT_SHIFT;
    groups.retain(|group| (from..END).contains(group));
    groups.sort_unstable();
    let starts = std::iter::once(from).chain(groups.iter().map(|group| group + 1));
    let ends = groups.iter().copied().chain(std::iter::once(END));
    let gaps = starts.zip(ends);
    // Of ranges of one width the last.
    let widest = gaps.max_by_key(|(start, end)| end.saturating_sub(*start));
    widest.map_or(from, |(start, _)| start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_where_groups_leave_most_room() {
        const END: u64 = 1 << SLOT_SHIFT;
        assert_eq!(widest_gap(vec![], 7), 7);
        assert_eq!(widest_gap(vec![3, 9, 9], 7), 10);
        assert_eq!(widest_gap(vec![1 << 62 | 5, u64::MAX, END], 7), 7);
        assert_eq!(widest_gap(vec![END - 1, 8], 7), 9);
    }
}
