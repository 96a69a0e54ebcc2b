//! What the remotes of lazy workspaces say that they have: whether an object that is not here is only there, or lost.
//!
//! An object that is missing is *only remote* if a lazy workspace needs it and an index of a lazy workspace's remote has
//! it, as the remote said when it was asked for the run: a get would bring it. It is *lost* if all these remotes answered
//! and none has it. If one did not answer, that of what no other has cannot be told.
//!
//! Tests: `engine/tests/base/cache.rs`, `tests/tests/lazy.rs`.

use super::Engine;
use crate::error::Result;
use crate::workspace::lazy::needed_remotes;
use crate::workspace::remotes::tracked_branches;
use objstore::Key;
use objstore::elsewhere::{Backing, Branches};

/// What was found out of the remotes of lazy workspaces.
#[derive(Debug, Default)]
pub(crate) struct Remotes {
    sides: Vec<Side>,
    /// Why the first that did not answer did not.
    pub why: Option<String>,
}

/// What the remote of a lazy workspace said.
#[derive(Debug)]
struct Side {
    workspace: String,
    backing: Option<Box<dyn Backing>>,
}

/// What lazy workspaces lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnlyRemote {
    /// Objects that are in their remotes.
    pub objects: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Objects of which that is not known.
    pub unknown: u64,
}

impl Remotes {
    /// Asks the remotes of all lazy workspaces. May wait for the network.
    pub fn ask(engine: &Engine) -> Result<Remotes> {
        let mut remotes = Remotes::default();
        let mut needed = needed_remotes(&engine.refs)?;
        needed.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (workspace, remote) in needed {
            let of = Branches {
                names: tracked_branches(&engine.refs, &workspace, &remote.name)?,
                project: remote.project,
            };
            let looked = engine.store.look_elsewhere(&workspace, &of);
            let backing = looked.map_err(|why| {
                let why = format!("remote {} of workspace {workspace}: {why}", remote.name);
                tracing::info!("it did not say what it has: {why}");
                remotes.why.get_or_insert(why);
            });
            remotes.sides.push(Side {
                workspace,
                backing: backing.ok(),
            });
        }
        Ok(remotes)
    }

    /// Names of the workspaces whose remotes were asked.
    pub fn workspaces(&self) -> impl Iterator<Item = &String> {
        self.sides.iter().map(|side| &side.workspace)
    }

    /// What the remote of a workspace has, if it answered.
    pub fn of(&self, workspace: &str) -> Option<&dyn Backing> {
        let side = self.sides.iter().find(|s| s.workspace == workspace)?;
        side.backing.as_deref()
    }

    /// Whether one of them answered.
    pub fn is_any_known(&self) -> bool {
        self.sides.iter().any(|side| side.backing.is_some())
    }

    /// Counts objects that lazy workspaces lack; gives those that are lost too. What nobody has is asked for once more: it may
    /// have been fetched since from a remote that somebody pushed to.
    pub fn judge(
        &self,
        engine: &Engine,
        lacking: impl IntoIterator<Item = Key>,
    ) -> Result<(OnlyRemote, Vec<Key>)> {
        let mut found = OnlyRemote::default();
        let mut lost: Vec<Key> = lacking.into_iter().collect();
        lost.retain(|key| self.is_nowhere(key, &mut found));
        if lost.is_empty() {
            return Ok((found, lost));
        }
        let now = Remotes::ask(engine)?;
        if now.workspaces().eq(self.workspaces()) {
            lost.retain(|key| now.is_nowhere(key, &mut found));
        } else {
            // Somebody who lacked them may be gone, or needs no remote any more.
            found.unknown += lost.len() as u64;
            lost.clear();
        }
        Ok((found, lost))
    }

    /// Looks for an object that is not here; true where it is lost.
    fn is_nowhere(&self, key: &Key, to: &mut OnlyRemote) -> bool {
        let mut is_unknown = self.sides.is_empty();
        for side in &self.sides {
            match side.backing.as_ref().map(|backing| backing.find(key)) {
                Some(Some(bytes)) => {
                    to.objects += 1;
                    to.bytes += bytes;
                    return false;
                }
                Some(None) => {}
                None => is_unknown = true,
            }
        }
        to.unknown += u64::from(is_unknown);
        !is_unknown
    }
}
