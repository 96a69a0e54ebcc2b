//! Giving all mounts up to a daemon of another build.
//!
//! Where the keeper holds them all, they stay, and the other daemon goes on with them: programs in them notice nothing.
//! Else it makes them again. Either every mount is free and all are given up, or none is: those that were given up already when
//! one turns out to be in use are made again at once.

use super::Mounts;
use super::stopping::in_use;
use agentvfs_client::protocol::{Fault, HandOverAnswer};
use engine::CloseMode;

impl Mounts {
    /// Has whoever comes next go on with all mounts, if the keeper holds them. Otherwise unmounts and closes everything
    /// without a commit, leaving it marked as running, so that whoever comes next brings it back as it was. Then asks
    /// this daemon to end.
    pub fn hand_over(&self) -> Result<HandOverAnswer, Fault> {
        let (unmounted, names): (Vec<String>, Vec<String>) = self
            .running_names()
            .into_iter()
            .partition(|name| self.is_unmounted(name));
        // The next request opens them again.
        for name in &unmounted {
            self.give_up(name)?;
        }
        if self.keeping.holds_all(&names) && self.keeping.hand_over() {
            self.gate.ask_hand_over();
            return Ok(HandOverAnswer { workspaces: names });
        }
        for name in &names {
            self.check_free(name)?;
        }
        let mut given: Vec<String> = Vec::new();
        for name in &names {
            if let Err(fault) = self.give_up(name) {
                self.take_back(&given);
                return Err(fault);
            }
            given.push(name.clone());
        }
        self.gate.ask_end();
        Ok(HandOverAnswer { workspaces: given })
    }

    fn running_names(&self) -> Vec<String> {
        let slots = self.slots.lock();
        let runs = slots
            .iter()
            .filter(|(_, slot)| slot.running.lock().is_some());
        let mut names: Vec<String> = runs.map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }

    fn check_free(&self, name: &str) -> Result<(), Fault> {
        let Some(place) = self.mounted_at(name) else {
            return Ok(());
        };
        let holders = fuse_front::holders(&place);
        if holders.is_empty() {
            Ok(())
        } else {
            Err(in_use(name, &holders))
        }
    }

    fn give_up(&self, name: &str) -> Result<(), Fault> {
        let slot = self.slot(name);
        let _lifecycle = slot.lifecycle.lock();
        if slot.live().is_none() {
            return Ok(());
        }
        self.unmount(name, &slot, false)?;
        let closed = self.close_engine(name, CloseMode::NoCheckpoint, &|_, _| {});
        let ended = slot.running.lock().take();
        drop(ended);
        tracing::info!(workspace = name, "handed over");
        closed.map(drop)
    }

    fn take_back(&self, names: &[String]) {
        for name in names {
            if let Err(fault) = self.workspace(name) {
                tracing::error!(workspace = name, "cannot mount it again: {}", fault.message);
            }
        }
    }
}
