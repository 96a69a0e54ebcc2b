//! The project changes, and the workspace is updated from it.
//!
//! Only what lies in the project's root is changed there, under names that nothing else gives, and only where
//! the branch has left it as it was: so what the update makes is known.

use super::run::{Outcome, World};
use super::tree::Node;
use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

/// Files in the project's root, by name.
pub type Files = BTreeMap<String, Vec<u8>>;

impl World {
    pub(super) fn update(&mut self, rng: &mut Rng) -> Outcome {
        if rng.below(3) == 0
            && let Some((holder, path)) = self.storer(true)
            && self.project.contains_key(&path)
            && self.project == *self.tree.base
        {
            return self.update_beside_stores(holder, &path);
        }
        let mut now = self.project.clone();
        let old = now.keys().nth(rng.below(4) as usize).cloned();
        match (rng.below(4), old) {
            (0, Some(old)) => drop(now.remove(&old)),
            (1, Some(old)) => drop(now.insert(old, Self::content(rng))),
            _ => {
                self.made += 1;
                now.insert(format!("p{}", self.made), Self::content(rng));
            }
        }
        let base = self.tree.base.clone();
        let names: BTreeSet<&String> = now.keys().chain(base.keys()).collect();
        let changed = names.into_iter().filter(|n| now.get(*n) != base.get(*n));
        let changed: Vec<String> = changed.cloned().collect();
        let ours = |name: &str| self.tree.find(name).map(|n| self.tree.file(n));
        let left_alone = |name: &String| ours(name) == base.get(name).map(Some);
        if changed.is_empty() || !changed.iter().all(left_alone) {
            return Ok(());
        }
        self.change_project(&now)?;
        let mut target = self.tree.named();
        for name in &changed {
            match (now.get(name), target.find(name)) {
                (Some(bytes), Some(n)) => *target.bytes(n) = bytes.clone(),
                (Some(bytes), None) => {
                    self.next += 1;
                    target.nodes.insert(self.next, Node::File(bytes.clone()));
                    target.put(name, self.next);
                }
                (None, _) => drop(target.take(name)),
            }
        }
        target.base = Arc::new(now);
        self.say(format!("update, with {changed:?} changed"));
        let before = self.tree.named();
        self.command(&["workspace", "update"])?;
        self.tree = self.tree.made_into(&target, &mut self.next);
        self.undo.push(before);
        self.redo.clear();
        self.follow()
    }

    /// Makes the files of the project's root these.
    fn change_project(&mut self, now: &Files) -> Outcome {
        let dir = self.env.project();
        let said = |e: std::io::Error| format!("in the project: {e}");
        for name in self.project.keys().filter(|n| !now.contains_key(*n)) {
            fs::remove_file(dir.join(name)).map_err(said)?;
        }
        for (name, bytes) in now {
            if self.project.get(name) != Some(bytes) {
                fs::write(dir.join(name), bytes).map_err(said)?;
            }
        }
        self.project = now.clone();
        Ok(())
    }

    /// The project's file gets other permissions, while somebody stores into the branch's.
    fn update_beside_stores(&mut self, holder: u64, path: &str) -> Outcome {
        let file = self.env.project().join(path);
        other_permissions(&file)?;
        self.say(format!("update, with other permissions of {path}"));
        let stored = self.run_beside_stores(&["workspace", "update"], holder)?;
        stored.apply(&mut self.tree);
        // What of it the state has that was replaced is not known.
        (self.undo, self.redo) = Default::default();
        self.follow()
    }
}

/// Gives a file other permissions than it has.
pub fn other_permissions(file: &std::path::Path) -> Outcome {
    let said = |e: std::io::Error| format!("{}: {e}", file.display());
    let old = fs::metadata(file).map_err(said)?.permissions().mode() & 0o777;
    let new = if old == 0o640 { 0o600 } else { 0o640 };
    fs::set_permissions(file, fs::Permissions::from_mode(new)).map_err(said)
}
