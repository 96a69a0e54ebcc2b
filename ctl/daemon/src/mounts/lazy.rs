//! The remotes that lazy workspaces need: opened when something is read that is not here.
//!
//! Credentials come with a command, are in memory for as long as the workspace runs, and nowhere else. A remote that needs
//! some and has none answers nothing: what is read then fails, and the workspace's status says what to do.

use super::Mounts;
use crate::remotes;
use agentvfs_client::protocol::Access;
use engine::verbs::remotes::RemoteConfig;
use remote::near::Near;
use remote::sources::{Sources, Standing};
use remote::{Error, Remote};
use std::sync::{Arc, OnceLock, Weak};

/// The remotes, and the mounts below which none of them may be.
pub struct Lazies {
    sources: Arc<Sources>,
    mounts: OnceLock<Weak<Mounts>>,
}

impl Lazies {
    /// What the store lacks comes from them.
    pub(super) fn new(store: &Arc<remote::ObjectStore>) -> Lazies {
        let sources = Sources::new(store);
        store.set_elsewhere(Some(sources.clone()));
        Lazies {
            sources,
            mounts: OnceLock::new(),
        }
    }
}

impl Mounts {
    /// Has each lazy workspace find its remote. Before any of them is opened.
    pub fn begin_lazy(self: &Arc<Mounts>) {
        // Whoever came first said the same.
        let _ = self.lazies.mounts.set(Arc::downgrade(self));
        match self.engine.needed_remotes() {
            Ok(all) => all.into_iter().for_each(|(workspace, config)| {
                self.needs_remote(&workspace, &config, &Access::default(), None);
            }),
            Err(error) => tracing::error!("the remotes of lazy workspaces are not known: {error}"),
        }
        // What they lack does not come, and their status says why.
        for (workspace, remote) in self.engine.cut_off_clones().unwrap_or_default() {
            let opening = Box::new(|| Err(Error::CutOff));
            self.lazies.sources.set(&workspace, &remote, opening, None);
        }
    }

    /// A workspace needs a remote, which is reached so; `open` where it is open already.
    pub fn needs_remote(
        &self,
        workspace: &str,
        config: &RemoteConfig,
        access: &Access,
        open: Option<Remote>,
    ) {
        let mounts = self.lazies.mounts.get().cloned().unwrap_or_default();
        let (of, access) = (config.clone(), access.clone());
        let opening = move || {
            let mounts = mounts.upgrade().ok_or(Error::Stopped)?;
            remotes::open_near(&mounts, &of, &access)
        };
        let open = open.map(Near::new);
        self.lazies
            .sources
            .set(workspace, &config.name, Box::new(opening), open);
    }

    /// Credentials for the remote of a lazy workspace go with its mount.
    pub(super) fn forget_access(&self, workspace: &str) {
        let all = self.engine.needed_remotes().unwrap_or_default();
        if let Some((_, config)) = all.iter().find(|(name, _)| name == workspace) {
            self.needs_remote(workspace, config, &Access::default(), None);
        }
    }

    /// A workspace needs no remote any more.
    pub fn needs_no_remote(&self, workspace: &str) {
        self.lazies.sources.forget(workspace);
    }

    /// What came from the remote of a lazy workspace.
    pub fn lazy_standing(&self, workspace: &str) -> Option<Standing> {
        self.lazies.sources.standing(workspace)
    }
}
