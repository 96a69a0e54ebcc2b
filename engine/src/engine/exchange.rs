//! Workspaces that begin with a commit that was put together elsewhere, and what of a base there is.
//!
//! A workspace that is made of a commit has no base. In place of one it has the directory `empty` of the
//! home, of which nothing is ever read: all of its tree is known. Invariant: it exists once its record is
//! written; until then the ref `unfinished/NAME` says that its directory is to be removed.

use crate::base::Base;
use crate::branch::create;
use crate::branch::create::Origin;
use crate::clock;
use crate::engine::gc::tombs;
use crate::engine::{Engine, running_at};
use crate::error::{Error, Result};
use crate::names::{MAIN, check_workspace_name};
use crate::verbs::Calls;
use crate::verbs::exchange;
use crate::workspace::branch_refs;
use crate::workspace::branches::Views;
use crate::workspace::lazy;
use crate::workspace::remotes::RemoteConfig;
use crate::workspace::{Workspace, WorkspaceConfig};
use objstore::{CommitId, ObjectStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directory in the home that stands for the base of workspaces without one.
const NO_BASE: &str = "empty";
/// Where the refs are that name workspaces which are being made of a commit.
const UNFINISHED: &str = "unfinished";

/// How the message of the first commit of a workspace begins that has no base.
pub const IMPORTED: &str = "imported from ";

/// What stands for a base in the home `root`.
pub(crate) fn no_base(root: &Path) -> PathBuf {
    root.join(NO_BASE)
}

impl Engine {
    /// The store of objects, from which commits are read and in which they are put together.
    pub fn objects(&self) -> &Arc<ObjectStore> {
        &self.store
    }

    /// The remotes that lazy workspaces need, with the workspaces' names.
    pub fn needed_remotes(&self) -> Result<Vec<(String, RemoteConfig)>> {
        lazy::needed_remotes(&self.refs)
    }

    /// Workspaces whose clones were cut off before they had the remote that they need, with its name.
    pub fn cut_off_clones(&self) -> Result<Vec<(String, String)>> {
        lazy::cut_off(&self.refs)
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
    /// whose timeline begins with `calls`. If `lazy` names a remote, what is not in the store is there.
    /// Durable after `Ok`; on error there is none.
    pub fn create_from_commit(
        &self,
        name: &str,
        commit: CommitId,
        lazy: Option<&str>,
        calls: Calls<'_>,
    ) -> Result<WorkspaceConfig> {
        check_workspace_name(name)?;
        self.check_is_new(name)?;
        tombs::clear_deleted(self, name)?;
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
            .make_main(name, &base, (commit, lazy), calls)
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
    fn make_main(
        &self,
        name: &str,
        base: &Path,
        (commit, lazy): (CommitId, Option<&str>),
        calls: Calls<'_>,
    ) -> Result<()> {
        self.clear_unfinished(name)?;
        if let Some(remote) = lazy {
            lazy::mark(&self.refs, name, remote)?;
        }
        // What the branch refers to must not be younger than the branch, where it is here.
        self.store.sync()?;
        let shared = self.shared_parts(Base::open(base)?);
        let origin = Origin::of_commit(&shared, commit)?;
        let views = Views::new(name.to_owned(), self.author().to_owned(), shared)?;
        let main = create::make(views.open_parts(MAIN, 0), origin)?;
        exchange::take_over(&main, calls)?;
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
}
