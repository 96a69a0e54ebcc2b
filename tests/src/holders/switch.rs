//! Steps that change the tree under those who hold on: checkpoint, rollback, undo, redo, restore, merge,
//! update, `fs write`; and what becomes of holders then.

use super::beside::{Appended, record};
use super::hold::What;
use super::run::{Outcome, World};
use super::tree::{Node, Number, Tree};
use super::update::other_permissions;
use crate::rng::Rng;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

impl World {
    pub(super) fn control(&mut self, rng: &mut Rng) -> Outcome {
        match rng.below(16) {
            0..=2 => self.checkpoint(),
            3..=6 => self.rollback(rng),
            7..=8 => self.turn(false, rng),
            9 => self.turn(true, rng),
            10 => self.restore(rng),
            11..=12 => self.merge(rng),
            13..=14 => self.update(rng),
            _ => self.fs_write(rng),
        }
    }

    /// `agentvfs …` for this workspace; what it says where it fails.
    pub(super) fn command(&self, args: &[&str]) -> Outcome {
        let args: Vec<&str> = args.iter().chain(&["-w", "project"]).copied().collect();
        let _turn = self.turns.take();
        let told = self.env.told(self.env.command(&self.env.path(""), &args));
        match told.status {
            0 => Ok(()),
            status => Err(format!("{args:?}: {status}: {}{}", told.out, told.err)),
        }
    }

    fn checkpoint(&mut self) -> Outcome {
        let label = format!("c{}", self.states.len());
        self.say(format!("checkpoint {label}"));
        self.command(&["workspace", "checkpoint", &label])?;
        self.states.push((label, self.tree.named()));
        // Whether undo goes back over a checkpoint is another matter.
        (self.undo, self.redo) = Default::default();
        Ok(())
    }

    fn rollback(&mut self, rng: &mut Rng) -> Outcome {
        if self.states.is_empty() {
            return Ok(());
        }
        let i = rng.below(self.states.len() as u64) as usize;
        let (label, target) = self.states[i].clone();
        if self.tree.shows(&target) {
            return Ok(());
        }
        self.switch(&["workspace", "rollback", &label], &target, "", rng)
    }

    fn turn(&mut self, forward: bool, rng: &mut Rng) -> Outcome {
        let stack = if forward {
            &mut self.redo
        } else {
            &mut self.undo
        };
        let Some(target) = stack.pop() else {
            return Ok(());
        };
        let word = if forward { "redo" } else { "undo" };
        let (undo, redo) = (self.undo.clone(), self.redo.clone());
        self.switch(&["workspace", word], &target, "", rng)?;
        let back = self.undo.pop();
        (self.undo, self.redo) = (undo, redo);
        match forward {
            true => self.undo.extend(back),
            false => self.redo.extend(back),
        }
        Ok(())
    }

    /// Shows another tree, by a command that switches what lies at `within`, while somebody may go on appending.
    fn switch(&mut self, args: &[&str], target: &Tree, within: &str, rng: &mut Rng) -> Outcome {
        self.say(args.join(" "));
        let now = self.tree.made_into(target, &mut self.next);
        let named: Vec<Number> = now.paths().into_values().collect();
        let appends =
            |h: &&super::hold::Holder| matches!(h.what, What::Appending) && named.contains(&h.node);
        let holder = self.holders.iter().find(appends);
        let busy = holder.filter(|_| rng.below(3) > 0).map(|h| h.name);
        let appended = self.run_beside(args, busy)?;
        let mut replaced = self.tree.named();
        self.tree = now;
        let switched = |path: &str| {
            let rest = path.strip_prefix(within);
            within.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let alone = match &appended {
            Some(a) if !switched(&self.path_of(a.node)?) => Some(a),
            Some(a) => {
                self.place_records(a, &mut replaced)?;
                None
            }
            None => None,
        };
        self.undo.push(replaced);
        self.redo.clear();
        if let Some(a) = alone {
            let bytes = self.tree.bytes(a.node);
            bytes.extend((0..a.count).flat_map(record));
            // How many of them what was replaced has, nobody said.
            self.undo.clear();
        }
        self.follow()
    }

    /// A path of an inode that has one.
    fn path_of(&self, node: Number) -> Result<String, String> {
        let mut paths = self.tree.paths().into_iter();
        let found = paths.find(|(_, n)| *n == node);
        found
            .map(|(path, _)| path)
            .ok_or_else(|| format!("inode {node} has no path"))
    }

    /// The first records belong to what was replaced, the others follow what is shown now.
    fn place_records(&mut self, a: &Appended, replaced: &mut Tree) -> Outcome {
        let path = self.path_of(a.node)?;
        let mut have = Vec::new();
        let read = self.open(&path)?.read_to_end(&mut have);
        read.map_err(|e| format!("{path}: {e}"))?;
        let len = record(0).len();
        let shown = self.tree.bytes(a.node);
        let late = have.len().saturating_sub(shown.len()) / len;
        let first = a.count.saturating_sub(late);
        shown.extend((first..a.count).flat_map(record));
        let what = format!(
            "{path}, to which holder {} appended {} records, {late} of them at last",
            a.holder, a.count
        );
        super::hold::same(&what, &have, shown)?;
        if replaced.file(a.node).is_some() {
            replaced.bytes(a.node).extend((0..first).flat_map(record));
        }
        Ok(())
    }

    /// After a switch: who holds what has no name in the model may hold what came back under one.
    pub(super) fn follow(&mut self) -> Outcome {
        let paths: BTreeMap<String, Number> = self.tree.paths();
        let mut by_ino = BTreeMap::new();
        for (path, n) in &paths {
            let m = fs::symlink_metadata(self.root.join(path));
            let m = m.map_err(|e| format!("{path}: {e}"))?;
            by_ino.insert(m.ino(), *n);
        }
        for h in &mut self.holders {
            if h.node == super::tree::ROOT || paths.values().any(|n| *n == h.node) {
                continue;
            }
            let (ino, named) = h.identity()?;
            if named {
                let gone = || format!("holder {} has a name that is nowhere", h.name);
                h.node = *by_ino.get(&ino).ok_or_else(gone)?;
            }
        }
        Ok(())
    }

    fn restore(&mut self, rng: &mut Rng) -> Outcome {
        if self.states.is_empty() {
            return Ok(());
        }
        let i = rng.below(self.states.len() as u64) as usize;
        let (label, source) = self.states[i].clone();
        let mut paths: Vec<String> = source.paths().into_keys().collect();
        paths.extend(self.tree.paths().into_keys());
        if paths.is_empty() {
            return Ok(());
        }
        let path = paths.swap_remove(rng.below(paths.len() as u64) as usize);
        let Some(target) = self.tree.with_path(&source, &path, &mut self.next) else {
            return Ok(());
        };
        if self.tree.shows(&target) {
            return Ok(());
        }
        let args = ["workspace", "restore", "--ref", &label, &path];
        self.switch(&args, &target, &path, rng)
    }

    /// Makes a branch, changes one file there and another one here, and merges.
    fn merge(&mut self, rng: &mut Rng) -> Outcome {
        self.made += 1;
        let name = format!("m{}", self.made);
        let Some((ours, n)) = self.some_file(rng) else {
            return Ok(());
        };
        self.say(format!("branch {name}"));
        self.command(&["branch", "create", &name])?;
        let place = self.root.join(".agentvfs/branches").join(&name);
        if rng.below(3) == 0
            && let Some((holder, path)) = self.storer(false)
        {
            self.say(format!("in {name}: other permissions of {path}"));
            other_permissions(&place.join(&path))?;
            self.merge_beside_stores(&name, holder)?;
            return self.command(&["branch", "delete", &name]);
        }
        if rng.below(3) == 0
            && let Some(path) = self.appended()
        {
            self.say(format!("in {name}: other permissions of {path}"));
            other_permissions(&place.join(&path))?;
            self.merge_in(&name, &self.tree.named(), &path)?;
            return self.command(&["branch", "delete", &name]);
        }
        let mut target = self.tree.named();
        let theirs = match self.some_file(rng) {
            Some((path, _)) if path != ours && rng.below(3) > 0 => path,
            _ => format!("of {name}"),
        };
        let bytes = Self::content(rng);
        self.say(format!("in {name}: {} bytes to {theirs}", bytes.len()));
        fs::write(place.join(&theirs), &bytes).map_err(|e| format!("{name}/{theirs}: {e}"))?;
        match target.find(&theirs) {
            Some(t) => *target.bytes(t) = bytes,
            None => {
                self.next += 1;
                target.nodes.insert(self.next, Node::File(bytes));
                target.put(&theirs, self.next);
            }
        }
        if rng.below(2) == 0 {
            let bytes = Self::content(rng);
            self.say(format!("here: {} bytes to {ours}", bytes.len()));
            let done = fs::write(self.root.join(&ours), &bytes);
            done.map_err(|e| format!("{ours}: {e}"))?;
            *self.tree.bytes(n) = bytes.clone();
            *target.bytes(n) = bytes;
        }
        self.merge_in(&name, &target, &ours)?;
        self.command(&["branch", "delete", &name])
    }

    /// Merges, while somebody may append to a file of which the merge leaves the content alone.
    fn merge_in(&mut self, name: &str, target: &Tree, alone: &str) -> Outcome {
        self.say(format!("merge {name}"));
        let node = self.tree.find(alone);
        let appends =
            |h: &&super::hold::Holder| matches!(h.what, What::Appending) && Some(h.node) == node;
        let holder = self.holders.iter().find(appends).map(|h| h.name);
        let before = self.tree.named();
        let appended = self.run_beside(&["branch", "merge", name], holder)?;
        self.tree = self.tree.made_into(target, &mut self.next);
        self.undo.push(before);
        self.redo.clear();
        if let Some(a) = appended {
            let bytes = self.tree.bytes(a.node);
            bytes.extend((0..a.count).flat_map(record));
            // How many of them what was replaced has, nobody said.
            self.undo.clear();
        }
        self.follow()
    }

    /// Merges, while somebody stores into a file of which the merge changes the permissions.
    fn merge_beside_stores(&mut self, name: &str, holder: u64) -> Outcome {
        self.say(format!("merge {name}"));
        let stored = self.run_beside_stores(&["branch", "merge", name], holder)?;
        stored.apply(&mut self.tree);
        // What of it the state has that was replaced is not known.
        (self.undo, self.redo) = Default::default();
        self.follow()
    }

    fn fs_write(&mut self, rng: &mut Rng) -> Outcome {
        let Some((path, n)) = self.some_file(rng) else {
            return Ok(());
        };
        let bytes = Self::content(rng);
        if !self.has_parent(&path) {
            return Ok(());
        }
        self.say(format!("fs write {} bytes to {path}", bytes.len()));
        let args = ["fs", "write", "-w", "project", &path];
        let turn = self.turns.take();
        let mut command = self.env.command(&self.env.path(""), &args);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let input = child.stdin.take();
        let wrote = input.map_or(Ok(()), |mut i| i.write_all(&bytes));
        wrote.map_err(|e| format!("to fs write: {e}"))?;
        let told = self.env.finish(child, "fs write");
        drop(turn);
        if told.status != 0 {
            return Err(format!("fs write: {told:?}"));
        }
        *self.tree.bytes(n) = bytes;
        Ok(())
    }
}
