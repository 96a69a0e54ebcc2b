//! The mounts that a keeper holds: each for the daemon that serves it, or, where daemons cannot be kept running, to refuse
//! its requests.
//!
//! Invariant: a mount is handed to a daemon only while its requests are not refused, so one process reads a device at a
//! time.

use super::refuse::{Gone, Refusal};
use super::wire::{self, Told};
use std::collections::BTreeMap;
use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A mount that is held.
struct Held {
    note: String,
    /// The device first.
    descriptors: Vec<OwnedFd>,
    is_refused: bool,
    /// Now or before.
    was_refused: bool,
}

impl Held {
    fn device(&self) -> Option<BorrowedFd<'_>> {
        self.descriptors.first().map(AsFd::as_fd)
    }

    fn hand_over(&self, workspace: &str, to: BorrowedFd<'_>) -> Result<()> {
        let with: Vec<_> = self.descriptors.iter().map(OwnedFd::as_fd).collect();
        let told = Told::Kept {
            workspace: workspace.to_owned(),
            note: self.note.clone(),
            was_refused: self.was_refused,
        };
        wire::send(to, &told, &with)
    }
}

/// All mounts that are held.
#[derive(Default)]
pub(super) struct Mounts {
    all: BTreeMap<String, Held>,
    refusal: Refusal,
}

impl Mounts {
    /// Holds one, which a daemon serves.
    pub fn keep(&mut self, workspace: String, note: String, descriptors: Vec<OwnedFd>) {
        let before = self.all.get(&workspace);
        let held = Held {
            note,
            descriptors,
            is_refused: false,
            was_refused: before.is_some_and(|before| before.was_refused),
        };
        self.all.insert(workspace, held);
    }

    /// Holds one no longer.
    pub fn release(&mut self, workspace: &str) {
        self.all.remove(workspace);
    }

    /// Holds those no longer that are not refused.
    pub fn release_served(&mut self) {
        self.all.retain(|_, held| held.is_refused);
    }

    pub fn are_none(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether some are there to be served.
    pub fn wait_for_a_daemon(&self) -> bool {
        self.all.values().any(|held| !held.is_refused)
    }

    /// Whether requests of some are refused.
    pub fn are_refused(&self) -> bool {
        self.all.values().any(|held| held.is_refused)
    }

    /// Tells a daemon that joins of all, and hands those over that are not refused.
    pub fn tell(&self, socket: BorrowedFd<'_>) -> Result<()> {
        for (name, held) in &self.all {
            let workspace = name.clone();
            match held.is_refused {
                true => wire::send(socket, &Told::Refused { workspace }, &[])?,
                false => held.hand_over(name, socket)?,
            }
        }
        Ok(())
    }

    /// Refuses the requests of all from now on.
    pub fn refuse_all(&mut self) {
        self.all.retain(|workspace, held| {
            let Some(device) = held.device() else {
                return false;
            };
            let begun = Refusal::begin(device);
            (held.is_refused, held.was_refused) = (true, true);
            is_there(workspace, begun)
        });
    }

    /// Hands one over whose requests are refused, and refuses none of them any more.
    pub fn hand_over_refused(&mut self, workspace: &str, to: &OwnedFd) -> Result<()> {
        let Some(held) = self.all.get_mut(workspace).filter(|held| held.is_refused) else {
            return Ok(());
        };
        let ended = held.device().map(Refusal::end);
        if !ended.is_some_and(|ended| is_there(workspace, ended)) {
            self.all.remove(workspace);
            return Ok(());
        }
        held.is_refused = false;
        held.hand_over(workspace, to.as_fd())
    }

    /// The devices of those that are refused.
    pub fn refused(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let refused = self.all.values().filter(|held| held.is_refused);
        refused.filter_map(Held::device)
    }

    /// Refuses the next request of each, where there is one.
    pub fn refuse(&mut self) {
        let refusal = &mut self.refusal;
        self.all.retain(|workspace, held| match held.device() {
            Some(device) if held.is_refused => is_there(workspace, refusal.refuse_one(device)),
            _ => true,
        });
        if !self.are_refused() {
            self.refusal = Refusal::default();
        }
    }
}

/// Whether the mount is still there.
fn is_there(workspace: &str, done: std::result::Result<(), Gone>) -> bool {
    match done {
        Ok(()) => true,
        Err(Gone(error)) => {
            tracing::info!(workspace, %error, "a mount that was refused has ended");
            false
        }
    }
}
