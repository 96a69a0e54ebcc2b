//! The project changes, and the workspace is updated from it.
//!
//! Only what lies in the project's root is changed there, under names that nothing else gives, and only where
//! the branch has left it as it was: so what the update makes is known. Permissions are no part of the model; where
//! the project's change, those of the branch are looked at.

use super::run::{Outcome, World};
use super::tree::Node;
use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// Permissions and bytes of files in the project's root, by name.
pub type Files = BTreeMap<String, (u32, Vec<u8>)>;

impl World {
    pub(super) fn update(&mut self, rng: &mut Rng) -> Outcome {
        if rng.below(3) == 0
            && let Some((holder, path)) = self.storer(true)
            && self.project == *self.tree.base
            && let Some((perm, _)) = self.project.get(&path)
            && permissions(&self.root.join(&path)) == Some(*perm)
        {
            return self.update_beside_stores(holder, &path);
        }
        let mut now = self.project.clone();
        let old = now.keys().nth(rng.below(4) as usize).cloned();
        match (rng.below(4), old) {
            (0, Some(old)) => drop(now.remove(&old)),
            (1, Some(old)) => now.entry(old).or_default().1 = Self::content(rng),
            _ => {
                self.made += 1;
                now.insert(format!("p{}", self.made), (0o644, Self::content(rng)));
            }
        }
        let base = self.tree.base.clone();
        let names: BTreeSet<&String> = now.keys().chain(base.keys()).collect();
        let changed = names.into_iter().filter(|n| now.get(*n) != base.get(*n));
        let changed: Vec<String> = changed.cloned().collect();
        let ours = |name: &str| {
            let bytes = self.tree.file(self.tree.find(name)?)?;
            Some((permissions(&self.root.join(name))?, bytes.clone()))
        };
        let left_alone = |name: &String| ours(name).as_ref() == base.get(name);
        if changed.is_empty() || !changed.iter().all(left_alone) {
            return Ok(());
        }
        self.change_project(&now)?;
        let mut target = self.tree.named();
        for name in &changed {
            match (now.get(name), target.find(name)) {
                (Some((_, bytes)), Some(n)) => *target.bytes(n) = bytes.clone(),
                (Some((_, bytes)), None) => {
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
        for (name, (perm, bytes)) in now {
            let (path, old) = (dir.join(name), self.project.get(name));
            if old.is_none_or(|(_, old)| old != bytes) {
                fs::write(&path, bytes).map_err(said)?;
            }
            if old.is_none_or(|(old, _)| old != perm) {
                fs::set_permissions(&path, fs::Permissions::from_mode(*perm)).map_err(said)?;
            }
        }
        self.project = now.clone();
        Ok(())
    }

    /// The project's file gets other permissions, while somebody stores into the branch's.
    fn update_beside_stores(&mut self, holder: u64, path: &str) -> Outcome {
        let mut now = self.project.clone();
        let perm = &mut now.entry(path.to_owned()).or_default().0;
        *perm = another(*perm);
        self.change_project(&now)?;
        self.say(format!("update, with other permissions of {path}"));
        let stored = self.run_beside_stores(&["workspace", "update"], holder)?;
        stored.apply(&mut self.tree);
        self.tree.base = Arc::new(now);
        // What of it the state has that was replaced is not known.
        (self.undo, self.redo) = Default::default();
        self.follow()
    }
}

/// Permissions of a file.
fn permissions(file: &Path) -> Option<u32> {
    Some(fs::metadata(file).ok()?.permissions().mode() & 0o777)
}

/// Other permissions than these.
fn another(perm: u32) -> u32 {
    if perm == 0o640 { 0o600 } else { 0o640 }
}

/// Gives a file other permissions than it has.
pub fn other_permissions(file: &Path) -> Outcome {
    let said = |e: std::io::Error| format!("{}: {e}", file.display());
    let old = permissions(file).ok_or_else(|| format!("{} is gone", file.display()))?;
    fs::set_permissions(file, fs::Permissions::from_mode(another(old))).map_err(said)
}
