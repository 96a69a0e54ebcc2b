//! The daemon's side of the keeper: which mounts it holds, and that there is one.
//!
//! A keeper is started with the first mount that can be kept, and again where it has died. Where there can be none, or
//! the environment says so, everything is as without: a mount ends with its daemon. Invariant: what the keeper is
//! told is told under one lock, and a mount is held for as long as its [`Held`] lives.

use agentvfs_client::home::{Home, process_env};
use agentvfs_client::keeper::{Joined, Keeper, KeptMount, VARIABLE};
use agentvfs_client::launch::own_program;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How long a mount may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// Pause before a keeper that has died is started again.
const PAUSE: Duration = Duration::from_millis(200);

/// The keeper of this daemon's home.
#[derive(Debug)]
pub struct Keeping {
    home: Home,
    is_wanted: bool,
    /// Why what is asked of the mounts fails, or did until this daemon took them.
    given_up: Option<String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    keeper: Option<Keeper>,
    /// What it is to hold.
    mounts: BTreeMap<String, Mount>,
    /// Workspaces whose mounts it refuses.
    refused: BTreeSet<String>,
}

#[derive(Debug)]
struct Mount {
    /// Where it is.
    place: PathBuf,
    note: String,
    descriptors: Vec<OwnedFd>,
}

/// A mount that the keeper holds until this is dropped.
#[derive(Debug)]
pub struct Held {
    keeping: Arc<Keeping>,
    workspace: String,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.keeping.release(&self.workspace);
    }
}

impl Keeping {
    /// Joins the keeper of the home, if one runs, and gives the mounts that it holds.
    pub fn begin(home: &Home) -> (Arc<Keeping>, Vec<KeptMount>) {
        // Whatever the environment says: nobody else goes on with what a keeper holds.
        let joined = Keeper::join(home, &own_program()).unwrap_or_else(|error| {
            tracing::error!(%error, "the keeper does not respond: its mounts are lost");
            None
        });
        let is_off = process_env(VARIABLE).is_some_and(|value| value == "off");
        let is_wanted = joined.is_some() || !is_off;
        let given_up = std::fs::read_to_string(home.given_up()).ok();
        let keeping = Arc::new(Keeping {
            home: home.clone(),
            is_wanted,
            given_up,
            state: Mutex::default(),
        });
        let Some(joined) = joined else {
            return (keeping, Vec::new());
        };
        let Joined {
            keeper,
            mounts,
            refused,
        } = joined;
        keeping.watch(&keeper, || {});
        let mut state = keeping.state.lock();
        state.keeper = Some(keeper);
        state.refused = refused.into_iter().collect();
        drop(state);
        (keeping, mounts)
    }

    /// Whether mounts are to outlive the daemon.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Why what is asked of mounts fails, or did until this daemon took them.
    pub fn given_up(&self) -> Option<&str> {
        self.given_up.as_deref()
    }

    /// Whether what is asked of a workspace's mount fails.
    pub fn is_refused(&self, workspace: &str) -> bool {
        self.state.lock().refused.contains(workspace)
    }

    /// Takes a mount whose requests are refused; they wait from now on. `None` where there is none, or it has ended.
    pub fn take(&self, workspace: &str) -> Option<KeptMount> {
        let keeper = {
            let mut state = self.state.lock();
            let is_refused = state.refused.remove(workspace);
            // Not under the lock: the keeper is waited for.
            state.keeper.as_ref().filter(|_| is_refused)?.duplicate()
        };
        keeper
            .and_then(|keeper| keeper.take(workspace))
            .unwrap_or_else(|error| {
                tracing::warn!(workspace, %error, "the keeper does not hand the mount over");
                None
            })
    }

    /// Has a mount end that is refused, or that was taken and cannot be gone on with.
    pub fn let_go(&self, workspace: &str) {
        let keeper = {
            let mut state = self.state.lock();
            state.refused.remove(workspace);
            state.keeper.as_ref().map(Keeper::duplicate)
        };
        let gone = keeper.map(|keeper| keeper.and_then(|keeper| keeper.let_go(workspace)));
        if let Some(Err(error)) = gone {
            tracing::warn!(workspace, %error, "the keeper does not let the mount go");
        }
    }

    /// Has a mount held.
    pub fn hold(
        self: &Arc<Keeping>,
        workspace: &str,
        place: &Path,
        note: String,
        descriptors: Vec<OwnedFd>,
    ) -> Held {
        let mount = Mount {
            place: place.to_owned(),
            note,
            descriptors,
        };
        let mut state = self.state.lock();
        if let Err(error) = self.give(&mut state, workspace, &mount) {
            tracing::warn!(workspace, %error, "no keeper: the mount ends with this daemon");
        }
        state.mounts.insert(workspace.to_owned(), mount);
        Held {
            keeping: self.clone(),
            workspace: workspace.to_owned(),
        }
    }

    /// Gives a mount to the keeper, which is started where there is none.
    fn give(self: &Arc<Keeping>, state: &mut State, name: &str, mount: &Mount) -> io::Result<()> {
        if state.keeper.is_none() {
            state.keeper = Some(self.start()?);
        }
        let with: Vec<_> = mount.descriptors.iter().map(OwnedFd::as_fd).collect();
        let keeper = state.keeper.as_ref();
        keeper.map_or(Ok(()), |keeper| keeper.keep(name, &mount.note, &with))
    }

    fn start(self: &Arc<Keeping>) -> io::Result<Keeper> {
        let (keeper, mut process) = Keeper::start(&self.home)?;
        self.watch(&keeper, move || {
            // Its end is all that is wanted of it.
            let _ = process.wait();
        });
        Ok(keeper)
    }

    /// Waits in a thread of its own for the keeper's end.
    fn watch(self: &Arc<Keeping>, keeper: &Keeper, reap: impl FnOnce() + Send + 'static) {
        let keeping = Arc::downgrade(self);
        let watched = keeper.duplicate().and_then(|keeper| {
            thread::Builder::new().name("keeper".into()).spawn(move || {
                let all_answer = || keeping.upgrade().is_some_and(|k| k.all_answer());
                keeper.listen(all_answer);
                reap();
                if let Some(keeping) = keeping.upgrade() {
                    keeping.is_lost();
                }
            })
        });
        if let Err(error) = watched {
            tracing::error!(%error, "nobody will notice if the keeper dies");
        }
    }

    /// Whether every mount answers in time.
    fn all_answer(&self) -> bool {
        let places: Vec<PathBuf> = {
            let state = self.state.lock();
            state.mounts.values().map(|m| m.place.clone()).collect()
        };
        let answers = |place: &PathBuf| fuse_front::answers(place, ANSWER_WAIT);
        places.iter().all(answers)
    }

    /// Whether the keeper holds all of these mounts, so that another daemon can go on with them.
    pub fn holds_all(&self, workspaces: &[String]) -> bool {
        let state = self.state.lock();
        let is_held = |name| state.mounts.contains_key(name);
        state.keeper.is_some() && workspaces.iter().all(is_held)
    }

    /// Tells the keeper that this daemon ends now so that another one goes on, which somebody else starts; false where
    /// it cannot be told.
    pub fn hand_over(&self) -> bool {
        let state = self.state.lock();
        state.keeper.as_ref().is_some_and(|k| k.hand_over().is_ok())
    }

    /// The keeper has died: another one holds what it held.
    fn is_lost(self: &Arc<Keeping>) {
        let mut state = self.state.lock();
        state.keeper = None;
        state.refused.clear();
        if state.mounts.is_empty() {
            return;
        }
        tracing::warn!("the keeper has died; starting another one");
        thread::sleep(PAUSE);
        let mounts = std::mem::take(&mut state.mounts);
        for (name, mount) in &mounts {
            if let Err(error) = self.give(&mut state, name, mount) {
                tracing::error!(workspace = name, %error, "no keeper: the mount ends with this daemon");
            }
        }
        state.mounts = mounts;
    }

    /// Has a mount held no longer.
    pub fn release(&self, workspace: &str) {
        let mut state = self.state.lock();
        state.mounts.remove(workspace);
        let released = state.keeper.as_ref().map(|k| k.release(workspace));
        if let Some(Err(error)) = released {
            tracing::warn!(workspace, %error, "the keeper cannot be told that the mount has ended");
        }
    }

    /// The daemon ends as it was asked to.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.mounts.clear();
        if let Some(Err(error)) = state.keeper.take().map(|keeper| keeper.end()) {
            tracing::debug!(%error, "the keeper is gone already");
        }
    }
}
