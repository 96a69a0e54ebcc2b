//! Branches of remotes in the mount: `.agentvfs/remotes/REMOTE/BRANCH` shows the commit that was fetched or pushed last,
//! and `.agentvfs/snapshots/REMOTE` leads there.
//!
//! They are in the mount's root alone, and outside of `snapshots`: of the root a sandbox sees `snapshots`, so no command in
//! one can look into other branches this way. A label wins over a remote of the same name, a remote over the prefix of a
//! commit's id. What is read here lies on disk, so all of it may have to wait. Invariant: looking changes nothing; no
//! branch knows a commit of a remote because somebody looked at it.
//!
//! Tests: `tests/tests/remotes_view.rs`.

use super::Workspace;
use super::branches::Shown;
use super::remotes::{remotes, tracked_branches, tracking};
use super::views::{RemoteNumber, Virtual};
use crate::branch::Branch;
use crate::error::{Error, Result};
use crate::names::{check_branch_name, check_remote_name};
use crate::types::{NodeId, Wait};
use std::sync::Arc;

impl Workspace {
    /// The remote that a name in `snapshots` leads to; `None` where it is a label, or no remote.
    pub(super) fn remote_in_snapshots(
        &self,
        slot: u16,
        name: &str,
        wait: Wait,
    ) -> Result<Option<RemoteNumber>> {
        if slot != NodeId::ROOT.slot() || self.is_label(name) {
            return Ok(None);
        }
        self.remote_number(name, wait)
    }

    /// The number of the remote of a name, if there is one.
    pub(super) fn remote_number(&self, name: &str, wait: Wait) -> Result<Option<RemoteNumber>> {
        if check_remote_name(name).is_err() {
            return Ok(None);
        }
        may_read(wait)?;
        let number = RemoteNumber::of(name);
        // Of two with one number only the first is shown.
        let found = self.remote_name(number).is_ok_and(|found| found == name);
        Ok(found.then_some(number))
    }

    /// The name of the remote of a number.
    pub(super) fn remote_name(&self, number: RemoteNumber) -> Result<String> {
        let mut names = remotes(self)?.into_iter().map(|remote| remote.name);
        let found = names.find(|name| RemoteNumber::of(name) == number);
        found.ok_or(Error::NotFound)
    }

    /// The remotes, as directories.
    pub(super) fn remote_dirs(&self, wait: Wait) -> Result<Vec<(String, Virtual)>> {
        may_read(wait)?;
        let remotes = remotes(self)?.into_iter();
        let dir = |name: String| {
            let number = RemoteNumber::of(&name);
            (name, Virtual::Remote(number))
        };
        Ok(remotes.map(|remote| dir(remote.name)).collect())
    }

    /// The links to remotes in `snapshots`.
    pub(super) fn remotes_in_snapshots(
        &self,
        slot: u16,
        wait: Wait,
    ) -> Result<Vec<(String, Virtual)>> {
        if slot != NodeId::ROOT.slot() {
            return Ok(Vec::new());
        }
        let mut links = self.remote_dirs(wait)?;
        links.retain(|(name, _)| !self.is_label(name));
        for (name, what) in &mut links {
            *what = Virtual::RemoteLink(RemoteNumber::of(name));
        }
        Ok(links)
    }

    /// The branches of a remote that are known.
    pub(super) fn branches_of_remote(
        &self,
        remote: RemoteNumber,
        wait: Wait,
    ) -> Result<Vec<String>> {
        may_read(wait)?;
        let refs = &self.views.shared().refs;
        tracked_branches(refs, self.name(), &self.remote_name(remote)?)
    }

    /// The snapshot of a remote's branch, as it was fetched or pushed last.
    pub(super) fn remote_snapshot(
        &self,
        remote: RemoteNumber,
        branch: &str,
        wait: Wait,
    ) -> Result<Arc<Branch>> {
        check_branch_name(branch).map_err(|_| Error::NotFound)?;
        may_read(wait)?;
        // The next fetch may replace the commit, and gc may look before it is shown.
        let _pin = self.main.places.store.pin();
        let name = format!("{}/{branch}", self.remote_name(remote)?);
        let found = tracking(self, &name)?.ok_or(Error::NotFound)?;
        self.views.snapshot(&self.main, Shown::Commit(found.commit))
    }

    fn is_label(&self, name: &str) -> bool {
        self.main.lock().book.history.labelled(name).is_some()
    }
}

fn may_read(wait: Wait) -> Result<()> {
    match wait {
        Wait::Never => Err(Error::WouldBlock),
        Wait::Allowed => Ok(()),
    }
}
