//! Checkpoint, rollback, undo, redo, restarts, carried out on both sides.

use super::check::{adopt, compare};
use super::history::Turn;
use super::keys::Keys;
use super::model::{Body, Node, Tree, When};
use super::op::Op;
use super::rng::bytes;
use super::runner::{Pages, Runner};
use super::world::MAIN;
use crate::ensure;
use engine::verbs;
use engine::{CheckpointRequest, CloseMode, DiffSide, Error, GcRequest, Kind, RolledBack};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Labels that checkpoints get; a few, so that they move.
const LABELS: [&str; 5] = ["one", "two words", "drei", "vier", "fünf"];

impl Runner {
    fn log(&mut self) -> Result<(), String> {
        let log = verbs::log(self.world.w(), MAIN, true).map_err(|e| format!("log: {e}"))?;
        self.history.compare(&log)
    }

    /// Collects what holes give back, then all that can be.
    pub fn gc(&mut self) -> Result<(), String> {
        for dead_percent in [101, 0] {
            let request = GcRequest {
                grace: Some(Duration::ZERO),
                dead_percent: Some(dead_percent),
                dry_run: false,
            };
            let done = self.world.engine.gc(request, &|_, _| ());
            done.map_err(|e| format!("gc: {e}"))?;
        }
        Ok(())
    }

    /// Makes a checkpoint.
    pub fn checkpoint(&mut self, op: Op) -> Result<(), String> {
        let Op::Checkpoint {
            label,
            message,
            meta,
            wait,
        } = op
        else {
            return Ok(());
        };
        let label = LABELS.get(label as usize).map(|l| l.to_string());
        let message = if message {
            "why".to_owned()
        } else {
            String::new()
        };
        let meta = match meta {
            0..=2 => vec![("turn".to_owned(), meta.to_string())],
            _ => vec![],
        };
        let plain = message.is_empty() && meta.is_empty();
        let head = self.history.head;
        let differs = self
            .live
            .clone()
            .without_orphans()
            .difference(&self.history.commits[head].tree);
        let request = CheckpointRequest {
            label: label.clone(),
            message: message.clone(),
            meta: meta.clone(),
            wait,
        };
        let done = verbs::checkpoint(self.world.w(), MAIN, request, &|_, _| ());
        let done = done.map_err(|e| format!("checkpoint: {e}"))?;
        ensure!(
            done.new_commit == (!plain || differs.is_some()) || (done.new_commit && self.unsettled),
            "a new commit: {}, but difference: {differs:?}",
            done.new_commit
        );
        if done.new_commit {
            let n = self.history.push(&self.live, "checkpoint");
            self.history.head = n;
            self.history.commits[n].message = message;
            self.history.commits[n].meta = meta.into_iter().collect();
            self.history.redo.clear();
        }
        if done.new_commit || label.is_some() {
            self.history.later.push(self.history.undo.len());
        }
        let n = self.history.head;
        let old = label
            .and_then(|l| self.history.label(&l, n))
            .filter(|o| *o != n);
        self.log()?;
        let known = |i: usize| self.history.commits[i].id;
        ensure!(
            done.moved_from.is_none() || done.moved_from == old.and_then(known),
            "moved from"
        );
        ensure!(!wait || done.commit.is_some(), "no id");
        ensure!(
            done.commit.is_none() || done.commit == known(n),
            "another id"
        );
        Ok(())
    }

    /// Rolls back.
    pub fn rollback(&mut self, op: Op) -> Result<(), String> {
        let Op::Rollback { how, which, page } = op else {
            return Ok(());
        };
        let (target, want) = self.history.target(how, which);
        let plan = page.and_then(|p| self.plan_page(p));
        self.pages.expect(plan);
        if which % 5 == 0 && want.is_some() {
            let plan = verbs::rollback_plan(self.world.w(), MAIN, &target);
            plan.map_err(|e| format!("planning a rollback to {target:?}: {e}"))?;
        }
        let keep_kv = (how / 8) % 3 == 0;
        let have = match keep_kv {
            true => verbs::rollback_keeping_kv(self.world.w(), MAIN, &target),
            false => verbs::rollback(self.world.w(), MAIN, &target),
        };
        let kept = keep_kv.then(|| self.live.kv.clone());
        match (want, have) {
            (None, Err(Error::NoSuchRef(_) | Error::NoCommit(_))) => Ok(()),
            (None, have) => Err(format!(
                "rollback to {target:?}, which is nothing: {have:?}"
            )),
            (Some(_), Err(e)) => Err(format!("rollback to {target:?}: {e}")),
            (Some(n), Ok(done)) => {
                let turn = (n, n);
                let mut target = self.history.commits[n].tree.clone();
                target.kv = kept.clone().unwrap_or(target.kv);
                let live = self.live.clone().without_orphans();
                let same = self.history.head == n && live.difference(&target).is_none();
                let states = verbs::log(self.world.w(), MAIN, true).map_or(0, |l| l.len());
                let switched = states > self.history.commits.len() || done.replaced.is_some();
                if same && !(self.unsettled && switched) {
                    ensure!(done.files_changed == 0, "nothing to do, yet {done:?}");
                    return self.log();
                }
                let back = self.replaced("before-rollback")?;
                self.history.undo.push(back);
                self.history.redo.clear();
                // Who goes back to a commit asks for it: from now on it is no automatic one.
                self.history.commits[n].automatic = false;
                let before = self.live.clone();
                self.switched(turn, kept, &done)?;
                self.switched_from = Some(before);
                self.learn_conflicts()
            }
        }
    }

    /// A file that the kernel knows, with a page of it.
    fn plan_page(&self, pick: u32) -> Option<(u64, u64, Vec<u8>)> {
        let linked = self.live.links();
        let known = |n: &&u64| {
            linked.contains_key(*n)
                && self
                    .live
                    .nodes
                    .get(*n)
                    .is_some_and(|i| i.kind == Kind::File)
        };
        let all: Vec<u64> = self.lookups.keys().filter(known).copied().collect();
        let n = *all.get(pick as usize % all.len().max(1))?;
        // The kernel sends no more of it than the file has.
        let at = u64::from(pick % 3) * 4096;
        let len = self.length(n).saturating_sub(at).min(4096);
        (len > 0).then(|| (n, at, bytes(u64::from(pick), len as usize)))
    }

    /// Takes a rollback back, or forward again.
    pub fn turn(&mut self, forward: bool) -> Result<(), String> {
        self.pages.expect(None);
        let h = &mut self.history;
        let steps = h.undo.len();
        let refused = !forward && steps > 0 && h.later.iter().any(|later| *later >= steps);
        let turn = if forward { h.redo.pop() } else { h.undo.pop() };
        let w = self.world.w();
        let have = if forward {
            verbs::redo(w, MAIN)
        } else {
            verbs::undo(w, MAIN)
        };
        let have = match have {
            Err(Error::LaterAsked(_)) if refused => verbs::undo_over_later(w, MAIN),
            Ok(done) if refused => return Err(format!("undone over a checkpoint: {done:?}")),
            have => have,
        };
        if !forward {
            h.later.retain(|later| *later < steps);
        }
        match (turn, have) {
            (None, Err(Error::NothingTo(_))) => Ok(()),
            (Some(turn), Ok(done)) => {
                let back = self.replaced(if forward {
                    "before-redo"
                } else {
                    "before-undo"
                })?;
                let h = &mut self.history;
                if forward {
                    h.undo.push(back)
                } else {
                    h.redo.push(back)
                }
                let before = self.switched_from.take();
                self.switched(turn, None, &done)?;
                if let Some(before) = before.filter(|_| !forward) {
                    self.came_back(&before)?;
                }
                self.learn_conflicts()
            }
            (turn, have) => Err(format!("undo or redo to {turn:?}: {have:?}")),
        }
    }

    /// Remembers what is replaced, with the pages that the kernel brought late. Where nothing was written
    /// since another state was shown, that one may stand for it.
    fn replaced(&mut self, kind: &'static str) -> Result<Turn, String> {
        let shown = self.history.shown;
        let n = self.history.push(&self.live, kind);
        for (node, at, data) in self.pages.brought() {
            let tree = &mut self.history.commits[n].tree;
            tree.file_mut(node).write(at, &data);
            tree.at(node).mtime = When::Any;
        }
        let log = verbs::log(self.world.w(), MAIN, true).map_err(|e| format!("log: {e}"))?;
        if log.len() >= self.history.commits.len() {
            return Ok((n, self.history.head));
        }
        let lost = self
            .history
            .commits
            .pop()
            .map(|c| c.tree)
            .unwrap_or_default();
        let differs = lost.difference(&self.history.commits[shown].tree);
        ensure!(
            differs.is_none(),
            "what was replaced is not kept: {differs:?}"
        );
        Ok((shown, self.history.head))
    }

    /// The engine shows another state, or that with the keys `kept`: checks it, and what was said about it.
    pub fn switched(
        &mut self,
        turn: Turn,
        kept: Option<Keys>,
        done: &RolledBack,
    ) -> Result<(), String> {
        self.history.head = turn.1;
        self.history.shown = turn.0;
        let before = std::mem::take(&mut self.live);
        let target = self.history.commits[turn.0].tree.clone();
        let mut now = adopt(&target, self.world.w())?;
        now.kv = kept.unwrap_or(now.kv);
        keep_identity(&before, &mut now, self.unsettled)?;
        self.keep_orphans(&before, &mut now);
        compare(&mut now, self.world.w(), true)?;
        // Times that the model did not know are those that are seen now.
        let learnt = adopt_back(&now, &target);
        self.history.commits[turn.0].tree = learnt;
        self.pages.check(&before, &now, &self.lookups)?;
        let links = now.links();
        let dead = self.dead.iter().find(|n| links.contains_key(*n));
        ensure!(dead.is_none(), "{dead:?} is dead in the kernel, and shown");
        self.live = now;
        self.log()?;
        let id = self.history.commits[turn.0].id;
        ensure!(
            done.commit.is_none() || done.commit == id,
            "says {done:?}, is {id:?}"
        );
        let next = self.live.nodes.values().filter_map(|n| n.ino);
        self.seen_inos.extend(next);
        Ok(())
    }

    /// Directories that a switch removed are the same again once it is undone: whoever stands in one is
    /// where he was.
    fn came_back(&self, before: &Tree) -> Result<(), String> {
        let now = self.live.paths();
        for (path, n) in before.paths() {
            let held = before.dir(n).is_some() && self.held(n) > 0;
            let shown = String::from_utf8_lossy(&path).into_owned();
            ensure!(
                !held || now.get(&path) == Some(&n),
                "{shown:?} was inode {n}, came back as {:?}",
                now.get(&path)
            );
        }
        Ok(())
    }

    /// What the kernel knows and the target has not stays as an unlinked inode.
    fn keep_orphans(&mut self, before: &Tree, now: &mut Tree) {
        for (n, node) in &before.nodes {
            if now.nodes.contains_key(n) || self.held(*n) == 0 {
                continue;
            }
            let mut node = node.clone();
            node.ctime = When::Any;
            if let Body::Dir(d) = &mut node.body {
                d.clear();
            }
            now.nodes.insert(*n, node);
        }
    }

    /// Closes in order and opens again.
    pub fn close(&mut self, commit: bool) -> Result<(), String> {
        let mode = if commit {
            CloseMode::Checkpoint
        } else {
            CloseMode::NoCheckpoint
        };
        self.live.drop_orphans();
        let head = self.history.head;
        let differs = self.live.difference(&self.history.commits[head].tree);
        let closed = self.world.close(mode).map_err(|e| format!("close: {e}"))?;
        ensure!(
            closed.new_commit == (commit && differs.is_some())
                || (closed.new_commit && self.unsettled),
            "a new commit at stop: {}, but difference: {differs:?}",
            closed.new_commit
        );
        self.unsettled = !commit;
        if closed.new_commit {
            self.history.push(&self.live, "stop");
        }
        self.world
            .reopen()
            .map_err(|e| format!("opening again: {e}"))?;
        self.opened()
    }

    /// Dies and comes back.
    pub fn kill(&mut self) -> Result<(), String> {
        self.live.drop_orphans();
        self.world
            .kill()
            .map_err(|e| format!("opening after a kill: {e}"))?;
        self.unsettled = true;
        self.opened()
    }

    fn opened(&mut self) -> Result<(), String> {
        self.lookups.clear();
        self.forget_besides();
        self.dead.clear();
        self.pages = Pages::on(&self.world);
        self.live = adopt(&self.live, self.world.w())?;
        compare(&mut self.live, self.world.w(), true)?;
        self.check_branches()?;
        self.log()
    }

    /// Compares everything, `diff` and `status` too.
    pub fn check(&mut self) -> Result<(), String> {
        compare(&mut self.live, self.world.w(), true)?;
        self.log()?;
        self.kv_of_commits()?;
        self.check_branches()?;
        self.diff()?;
        let status = verbs::status(self.world.w(), MAIN).map_err(|e| format!("status: {e}"))?;
        ensure!(status.poisoned.is_none(), "poisoned: {:?}", status.poisoned);
        ensure!(
            status.base_changed.is_empty(),
            "the base changed: {:?}",
            status.base_changed
        );
        Ok(())
    }

    fn diff(&self) -> Result<(), String> {
        let (from, to) = (DiffSide::Ref("@".into()), DiffSide::Live);
        let have =
            verbs::diff(self.world.w(), MAIN, &from, &to, &[]).map_err(|e| format!("diff: {e}"))?;
        let mut shown = BTreeSet::new();
        for c in have {
            match c.old_path {
                Some(old) => shown.extend([('A', c.path), ('D', old)]),
                None => drop(shown.insert((c.status, c.path))),
            }
        }
        let old = &self.history.commits[self.history.head].tree;
        let mut live = self.live.clone();
        live.drop_orphans();
        let want = differences(old, &live);
        let lost: Vec<_> = want.iter().filter(|c| !shown.contains(*c)).collect();
        let more: Vec<_> = shown
            .iter()
            .filter(|c| c.0 != 'M' && !want.contains(*c))
            .collect();
        ensure!(
            lost.is_empty() && more.is_empty(),
            "diff lacks {lost:?}, has besides {more:?}"
        );
        Ok(())
    }
}

/// What `diff` has to show, renames as two; of changes only those of files with one name.
fn differences(old: &Tree, new: &Tree) -> BTreeSet<(char, Vec<u8>)> {
    let (a, b) = (old.paths(), new.paths());
    let shown = |n: &Node| n.dir().is_none_or(|d| d.is_empty());
    let mut out = BTreeSet::new();
    for path in a.keys().chain(b.keys()).filter(|p| !p.is_empty()) {
        let status = match (
            a.get(path).map(|n| &old.nodes[n]),
            b.get(path).map(|n| &new.nodes[n]),
        ) {
            (Some(x), None) if shown(x) => 'D',
            (None, Some(y)) if shown(y) => 'A',
            (Some(x), Some(y)) if x.kind != y.kind => 'T',
            (Some(x), Some(y)) if x.kind == Kind::File => {
                let bytes = |n: &Node| n.file().map(|c| c.bytes.clone());
                if (x.perm, x.uid, x.gid) == (y.perm, y.uid, y.gid) && bytes(x) == bytes(y) {
                    continue;
                }
                'M'
            }
            _ => continue,
        };
        out.insert((status, path.clone()));
    }
    out
}

/// Names of one type keep their inode; what did not change keeps its ctime.
fn keep_identity(before: &Tree, now: &mut Tree, unsettled: bool) -> Result<(), String> {
    let (old_links, new_links) = (before.links(), now.links());
    let (old, new) = (before.paths(), now.paths());
    for node in now.nodes.values_mut() {
        (node.ino, node.ctime) = (None, When::Any);
    }
    for (n, was) in &before.nodes {
        if let Some(node) = now.nodes.get_mut(n) {
            node.ino = was.ino;
        }
    }
    for (path, n) in &new {
        let Some(o) = old.get(path) else { continue };
        let single = |links: &BTreeMap<u64, u32>, n: &u64| links.get(n) == Some(&1);
        let (was, is) = (&before.nodes[o], &now.nodes[n]);
        if was.kind != is.kind || !single(&old_links, o) || !single(&new_links, n) {
            continue;
        }
        let shown = String::from_utf8_lossy(path);
        ensure!(o == n, "{shown:?} was inode {o} and is {n}");
        if Tree::same_inode(was, is) && !unsettled {
            now.at(*n).ctime = was.ctime;
        }
    }
    Ok(())
}

/// `target` with the times that its adopted form shows.
fn adopt_back(now: &Tree, target: &Tree) -> Tree {
    let (new, mut out) = (now.paths(), target.clone());
    for (path, n) in target.paths() {
        if let Some(seen) = new.get(&path).and_then(|n| now.get(*n)) {
            out.at(n).mtime = seen.mtime;
        }
    }
    out
}

impl Tree {
    pub fn same_inode(a: &Node, b: &Node) -> bool {
        let mut a = a.clone();
        (a.ino, a.ctime) = (b.ino, b.ctime);
        a == *b
    }

    /// Without inodes that have no name.
    pub fn without_orphans(mut self) -> Tree {
        self.drop_orphans();
        self
    }
}
