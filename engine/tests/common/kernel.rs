//! What the engine tells a kernel, as a test stands in for it: what to forget, which late pages come, the clock.

use super::model::{ROOT, Tree};
use super::runner::Pages;
use crate::ensure;
use engine::{KernelCache, NodeId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What the kernel was told to forget, and pages that it brings while it does.
#[derive(Default)]
pub struct Told {
    pub inodes: BTreeSet<u64>,
    pub names: BTreeSet<(u64, Vec<u8>)>,
    pub all_names: bool,
    pub plan: Option<(u64, u64, Vec<u8>)>,
    pub brought: Vec<(u64, u64, Vec<u8>)>,
    pub failed: Option<String>,
}

impl KernelCache for Pages {
    fn flush_dirty(&self) {}

    fn inval_inode(&self, node: NodeId) {
        let mut told = self.told.lock();
        told.inodes.insert(node.0);
        if told.plan.as_ref().is_some_and(|p| p.0 == node.0)
            && let Some((n, at, data)) = told.plan.take()
        {
            match self.bring(node, at, &data) {
                Ok(()) => told.brought.push((n, at, data)),
                Err(e) => told.failed = Some(e),
            }
        }
    }

    fn inval_entry(&self, parent: NodeId, name: &[u8]) {
        self.told.lock().names.insert((parent.0, name.to_vec()));
    }

    fn inval_all_entries(&self) -> bool {
        self.told.lock().all_names = true;
        true
    }
}

impl Pages {
    /// Forgets what was told, and plans a page.
    pub fn expect(&self, plan: Option<(u64, u64, Vec<u8>)>) {
        *self.told.lock() = Told {
            plan,
            ..Told::default()
        };
    }

    pub fn brought(&self) -> Vec<(u64, u64, Vec<u8>)> {
        std::mem::take(&mut self.told.lock().brought)
    }

    /// Whatever the kernel had cached and is no longer so was told.
    pub fn check(
        &self,
        before: &Tree,
        now: &Tree,
        held: &BTreeMap<u64, u64>,
    ) -> Result<(), String> {
        let told = self.told.lock();
        ensure!(
            told.failed.is_none(),
            "a page of the old state: {:?}",
            told.failed
        );
        let (old_links, new_links) = (before.links(), now.links());
        for (n, was) in before
            .nodes
            .iter()
            .filter(|(n, _)| held.contains_key(n) || **n == ROOT)
        {
            let Some(is) = now.nodes.get(n) else { continue };
            let changed = !Tree::same_inode(was, is) || old_links.get(n) != new_links.get(n);
            ensure!(
                !changed || told.inodes.contains(n),
                "inode {n} changed, nobody was told"
            );
            let (Some(a), Some(b)) = (was.dir(), is.dir()) else {
                continue;
            };
            if !new_links.contains_key(n) {
                continue;
            }
            for name in a
                .keys()
                .chain(b.keys())
                .filter(|name| a.get(*name) != b.get(*name))
            {
                let key = (*n, name.clone());
                ensure!(
                    told.all_names || told.names.contains(&key),
                    "{key:?} changed unsaid"
                );
            }
        }
        Ok(())
    }
}

/// The clock that the engine uses.
pub fn now() -> Time {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Time {
        sec: t.tv_sec,
        nsec: t.tv_nsec as u32,
    }
}

/// Shares the cache between the engine and the test.
pub fn install(pages: &Arc<Pages>, w: &engine::Workspace) {
    w.set_kernel_cache(pages.clone());
}
