//! Stopping, deleting, and what happens when a mount goes away by itself.

use super::{Mounts, Slot};
use crate::{faults, mountpoint};
use agentvfs_client::protocol::{Bytes, Fault, Named, Stop, StopAnswer};
use engine::{CloseMode, Closed, WorkspaceConfig};
use fuse_front::{Holder, MountError, Mounted};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a forced stop flushes dirty pages.
const FLUSH_WAIT: Duration = Duration::from_secs(5);

/// How long a stop waits for users of the mount that cannot be seen.
const UNSEEN_WAIT: Duration = Duration::from_secs(10);

/// Pause between two tries meanwhile.
const UNSEEN_PAUSE: Duration = Duration::from_millis(20);

/// Most workspaces that an ending daemon stops at the same time.
const STOPS_AT_ONCE_MAX: usize = 16;

/// Hears how far the work is: done, total.
pub type Progress<'a> = &'a dyn Fn(u64, u64);

impl Mounts {
    /// Stops a workspace: unmounts it, keeps its last state, closes it.
    pub fn stop(&self, ask: &Stop, progress: Progress<'_>) -> Result<StopAnswer, Fault> {
        let name = &ask.workspace;
        self.jobs.cancel_imports(name);
        let config = self.config(name)?;
        let slot = self.slot(name);
        let _lifecycle = slot.lifecycle.lock();
        self.reap(name, &slot);
        match ask.force && self.keeping.is_refused(name) {
            // Whatever made its daemons end, this gets rid of it.
            true => self.keeping.let_go(name),
            false => self.take_refused(name, &slot),
        }
        let mount = self.get(name)?.mount;
        let unmounted = slot.live().is_some();
        if unmounted {
            self.unmount(name, &slot, ask.force)?;
        } else {
            self.open_stale(&config)?;
        }
        let mode = if ask.checkpoint {
            CloseMode::Checkpoint
        } else {
            CloseMode::NoCheckpoint
        };
        let closed = self.close(&config, &slot, mode, progress);
        let commit = closed.map_err(|fault| match unmounted {
            true => gone_all_the_same(fault, name),
            false => fault,
        })?;
        Ok(StopAnswer {
            name: name.clone(),
            mount,
            commit: commit.filter(|_| ask.checkpoint),
        })
    }

    /// Opens a workspace whose daemon died without mounting it, so that it can be closed in order. Its dead
    /// mount stays until then, so that nobody writes where it was.
    fn open_stale(&self, config: &WorkspaceConfig) -> Result<(), Fault> {
        if self.config(&config.name)?.running.is_none() {
            return Err(faults::not_running(&config.name));
        }
        if let Some(record) = self.records.running(&config.name) {
            mountpoint::clear_base(record.place(), &config.base)?;
        }
        self.engine
            .open_workspace(&config.name)
            .map(drop)
            .map_err(|e| faults::of_engine(&e, &config.name))
    }

    /// Takes the mount away; where that fails it stays as it was.
    pub(super) fn unmount(&self, name: &str, slot: &Slot, force: bool) -> Result<(), Fault> {
        let (place, mounted) = {
            let mut running = slot.running.lock();
            let running = running.as_mut().ok_or_else(|| faults::not_running(name))?;
            // What it has not read yet holds files of the mount.
            let hearing = (running.hearing.take(), running.asked.take());
            drop((hearing, running.ebpf.take()));
            (running.place.clone(), running.mounted.take())
        };
        let Some(mounted) = mounted else {
            return Ok(());
        };
        let result = if force {
            abort(&place, mounted)
        } else {
            take_away(name, &place, mounted)
        };
        result.map_err(|(mounted, fault)| {
            if let Some(running) = slot.running.lock().as_mut() {
                running.mounted = mounted.map(|mounted| *mounted);
                if running.mounted.is_some() {
                    self.hear(running);
                }
            }
            fault
        })
    }

    /// Closes an unmounted workspace and notes that it is stopped. Gives the commit that holds its
    /// last state. Where closing fails the workspace is stale, so nothing is lost.
    fn close(
        &self,
        config: &WorkspaceConfig,
        slot: &Slot,
        mode: CloseMode,
        progress: Progress<'_>,
    ) -> Result<Option<String>, Fault> {
        let closed = self.close_engine(&config.name, mode, progress);
        let noted = closed.and_then(|closed| self.note_stopped(config).map(|()| closed));
        // Ending a mount may take a while; nobody who asks for the state waits for that.
        let ended = slot.running.lock().take();
        drop(ended);
        let closed = noted?;
        tracing::info!(workspace = config.name, "stopped");
        Ok(closed.commit.map(|id| id.to_string()))
    }

    /// Closes what the engine has open, which nothing has mounted any more.
    pub(super) fn close_engine(
        &self,
        name: &str,
        mode: CloseMode,
        progress: Progress<'_>,
    ) -> Result<Closed, Fault> {
        self.engine
            .close_workspace(name, mode, progress)
            .map_err(|e| faults::of_engine(&e, name))
    }

    fn note_stopped(&self, config: &WorkspaceConfig) -> Result<(), Fault> {
        let record = self.records.running(&config.name);
        self.note(config, None)?;
        self.forget_access(&config.name);
        if let Some(record) = record {
            self.points
                .release(&config.name, record.place(), &record.made);
        }
        Ok(())
    }

    /// Deletes a workspace that is not running.
    pub fn delete(&self, ask: &Named) -> Result<(), Fault> {
        let name = &ask.workspace;
        self.config(name)?;
        let slot = self.slot(name);
        let _lifecycle = slot.lifecycle.lock();
        self.reap(name, &slot);
        if slot.live().is_some() {
            return Err(faults::of_engine(
                &engine::Error::WorkspaceBusy(name.clone()),
                name,
            ));
        }
        self.close_read(name, &slot);
        self.clear_remains(name)?;
        self.engine
            .delete(name)
            .map_err(|e| faults::of_engine(&e, name))?;
        self.needs_no_remote(name);
        self.records.remove(name);
        self.sessions.forget_workspace(name)?;
        self.slots.lock().remove(name);
        Ok(())
    }

    /// Looks after all mounts: notices those that somebody else has taken away.
    pub fn look_after(&self) {
        let slots: Vec<_> = self
            .slots
            .lock()
            .iter()
            .map(|(n, s)| (n.clone(), s.clone()))
            .collect();
        for (name, slot) in slots {
            // A workspace that is being started or stopped is looked after already.
            if let Some(_lifecycle) = slot.lifecycle.try_lock() {
                self.reap(&name, &slot);
                self.close_unread(&name, &slot);
            }
        }
    }

    /// Closes the workspace if its mount is gone. The lifecycle lock must be held.
    ///
    /// One that was unmounted is stopped then. One whose connection was cut is stale: its mount is
    /// still there and answers nothing, and the next command brings it back.
    pub(super) fn reap(&self, name: &str, slot: &Slot) {
        let Some(place) = lost(slot) else {
            return;
        };
        tracing::warn!(workspace = name, "another process has unmounted it");
        let cut = fuse_front::is_dead_mount(&place);
        let closed = if cut {
            self.close_cut(name, slot)
        } else {
            self.close_lost(name, slot)
        };
        if let Err(fault) = closed {
            tracing::error!(workspace = name, "cannot close it: {}", fault.message);
        }
    }

    fn close_lost(&self, name: &str, slot: &Slot) -> Result<(), Fault> {
        let config = self.config(name)?;
        self.close(&config, slot, CloseMode::Checkpoint, &|_, _| {})
            .map(drop)
    }

    /// Closes a workspace whose connection was cut, leaving it marked as running.
    fn close_cut(&self, name: &str, slot: &Slot) -> Result<(), Fault> {
        let closed = self.close_engine(name, CloseMode::NoCheckpoint, &|_, _| {});
        let ended = slot.running.lock().take();
        drop(ended);
        closed.map(drop)
    }

    /// Stops everything, because the daemon ends; whoever still uses a mount loses it.
    pub fn stop_all(&self) {
        let names: Vec<String> = self.slots.lock().keys().cloned().collect();
        beside_each_other(names, STOPS_AT_ONCE_MAX, &|name: String| self.end(&name));
    }

    /// Stops a workspace, by force where that is needed.
    fn end(&self, name: &str) {
        let ask = |force| Stop {
            workspace: name.to_owned(),
            force,
            checkpoint: true,
            progress: false,
        };
        let slot = self.slot(name);
        if slot.running.lock().is_none() {
            let _lifecycle = slot.lifecycle.lock();
            return self.close_read(name, &slot);
        }
        let stopped = self
            .stop(&ask(false), &|_, _| {})
            .or_else(|_| self.stop(&ask(true), &|_, _| {}));
        if let Err(fault) = stopped {
            tracing::error!(workspace = name, "cannot stop it: {}", fault.message);
        }
    }
}

/// Does `work` with each item, with up to `most` at the same time.
fn beside_each_other<T: Send>(items: Vec<T>, most: usize, work: &(impl Fn(T) + Sync)) {
    let threads = items.len().min(most);
    let items = Mutex::new(items.into_iter());
    let take = || {
        loop {
            // The lock is not held while the work is done.
            let next = items.lock().next();
            match next {
                Some(item) => work(item),
                None => return,
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let spawned = std::thread::Builder::new()
                .name("stop".into())
                .spawn_scoped(scope, take);
            if let Err(error) = spawned {
                tracing::warn!(%error, "workspaces are stopped one after the other");
            }
        }
        take();
    });
}

/// What a stop says that failed after the mount was taken away.
fn gone_all_the_same(fault: Fault, name: &str) -> Fault {
    let message = format!(
        "{}; it is no longer mounted, and its data is unchanged",
        fault.message
    );
    let again = format!("agentvfs start {name} mounts it again");
    let hint = match &fault.hint {
        Some(hint) => format!("{hint}; {again}"),
        None => again,
    };
    Fault { message, ..fault }.hint(hint)
}

/// Where the workspace was mounted, if its mount is gone; it is marked then, so that nobody begins
/// anything with it.
fn lost(slot: &Slot) -> Option<PathBuf> {
    let mut running = slot.running.lock();
    let running = running.as_mut().filter(|running| !running.works())?;
    running.gone = true;
    Some(running.place.clone())
}

/// A failure, with the mount where it still works.
type Kept = (Option<Box<Mounted>>, Fault);

/// Unmounts unless somebody uses the mount.
///
/// Whoever uses it and cannot be seen is waited for: threads of a daemon that was killed, for one, end when they have got
/// an answer, and are no longer listed with their process.
fn take_away(name: &str, place: &Path, mut mounted: Mounted) -> Result<(), Kept> {
    let since = Instant::now();
    let mut told = false;
    loop {
        let holders = fuse_front::holders(place);
        if !holders.is_empty() {
            return Err((Some(Box::new(mounted)), in_use(name, &holders)));
        }
        // Where another namespace has a copy of the mount, unmounting writes nothing back.
        flush(place);
        let error = match mounted.unmount() {
            Ok(()) => return Ok(()),
            Err(MountError::Busy(busy)) if since.elapsed() < UNSEEN_WAIT => {
                mounted = *busy;
                if !told {
                    tracing::info!(
                        workspace = name,
                        "waiting for somebody who uses the mount and cannot be seen"
                    );
                    told = true;
                }
                std::thread::sleep(UNSEEN_PAUSE);
                continue;
            }
            Err(error) => error,
        };
        let fault = faults::of_mount(&error, name);
        return Err(match error {
            MountError::Busy(mounted) | MountError::Unmount { mounted, .. } => {
                (Some(mounted), fault)
            }
            _ => (None, fault),
        });
    }
}

pub(super) fn in_use(name: &str, holders: &[Holder]) -> Fault {
    let users: Vec<String> = holders
        .iter()
        .map(|holder| format!("{} ({})", holder.pid, holder.command))
        .collect();
    let message = format!("processes use it: {}", users.join(", "));
    Fault::failed("in-use", message).hint(format!("end them, or agentvfs stop {name} --force"))
}

/// Writes dirty pages back, as far as that goes in time, then takes the mount away from whoever
/// uses it.
fn abort(place: &Path, mounted: Mounted) -> Result<(), Kept> {
    flush(place);
    mounted.abort();
    Ok(())
}

/// `syncfs` in a thread of its own: it may hang where a program holds a page for ever.
fn flush(place: &Path) {
    let (done, wait) = mpsc::channel();
    let place = Bytes::from(place);
    let spawned = std::thread::Builder::new()
        .name("flush".into())
        .spawn(move || {
            // Where the kernel cannot do that a kill at this moment is a risk.
            let _ = fuse_front::leave_files(None);
            let flushed =
                std::fs::File::open(place.path()).and_then(|dir| Ok(rustix::fs::syncfs(&dir)?));
            // Nobody waits any more if it took too long.
            let _ = done.send(flushed);
        });
    let flushed = spawned.map_err(|e| e.to_string()).and_then(|_| {
        wait.recv_timeout(FLUSH_WAIT)
            .map_err(|e| e.to_string())?
            .map_err(|e| e.to_string())
    });
    if let Err(error) = flushed {
        tracing::warn!(error, "not all dirty pages could be written back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn work_is_done_beside_each_other_and_all_of_it() {
        let (met, done) = (Barrier::new(4), AtomicUsize::new(0));
        // Nobody passes the barrier before four have come to it.
        beside_each_other(vec![1; 8], 4, &|n| {
            met.wait();
            done.fetch_add(n, Ordering::AcqRel);
        });
        assert_eq!(done.load(Ordering::Acquire), 8);
        beside_each_other(Vec::<usize>::new(), 4, &|_| {});
    }

    #[test]
    fn a_stop_that_failed_late_says_that_nothing_is_mounted() {
        let fault = gone_all_the_same(Fault::failed("no-space", "full").hint("make room"), "w");
        assert!(fault.message.contains("no longer mounted"));
        assert!(
            fault
                .hint
                .unwrap()
                .ends_with("agentvfs start w mounts it again")
        );
    }
}
