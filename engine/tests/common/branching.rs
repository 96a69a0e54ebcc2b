//! Branches, merges, paths restored, conflicts settled, calls taken back, snapshots, carried out on both sides.
//!
//! What a merge makes of three trees is tested elsewhere; the model takes the stored commit for it, and
//! checks what is around that: the states that were merged are those of the model, the live tree
//! becomes the commit, inodes keep their identity, the kernel is told, undo goes back.

use super::by_path;
use super::history::shift;
use super::learn;
use super::model::{Body, Node, Tree, When, split};
use super::op::Op;
use super::rng::{Rng, bytes};
use super::runner::Runner;
use super::world::MAIN;
use crate::ensure;
use engine::verbs;
use engine::{
    CallOutcome, CallStart, Caller, Error, MergeRequest, Resolution, RolledBack, Wait,
    merge::{Conflict, Outcome},
};
use std::collections::{BTreeMap, BTreeSet};

const W: Wait = Wait::Allowed;
/// Branches beside main.
const BRANCHES: [&str; 2] = ["b", "c.d"];

/// What the runner knows beside the tree and the history of main.
#[derive(Default)]
pub struct Besides {
    /// What the other branches show.
    pub branches: BTreeMap<String, Tree>,
    /// Conflicts of main that are not settled.
    pub conflicts: Vec<Conflict>,
    /// A call that runs, with what it found.
    running: Option<(u64, Tree)>,
    /// Calls that are over, with what they found and left.
    calls: Vec<(u64, Tree, Tree)>,
}

/// How things are before something that may switch.
struct Before {
    tree: Tree,
    head: usize,
    shown: usize,
    /// Number of states.
    known: usize,
}

impl Runner {
    fn before(&self) -> Before {
        self.pages.expect(None);
        Before {
            tree: self.live.clone().without_orphans(),
            head: self.history.head,
            shown: self.history.shown,
            known: self.history.commits.len(),
        }
    }

    /// Learns the states that came into the history; gives those that stand for what was live before.
    fn resync(&mut self, before: &mut Before, kind: &str) -> Result<Option<usize>, String> {
        let w = self.world.w();
        w.settle().map_err(|e| format!("settle: {e}"))?;
        self.unsettled = false;
        let log = verbs::log(w, MAIN, true).map_err(|e| format!("log: {e}"))?;
        let mut own = None;
        for (i, e) in log.iter().rev().enumerate() {
            let id = e.commit.ok_or("a state got no id")?;
            if self.history.is_new_of_others(e) {
                // Those of other branches are listed by their time, so also before known ones.
                self.history.insert(i, e, learn::commit(w, &id)?);
                let moved = [&mut before.head, &mut before.shown, &mut before.known];
                shift(i, moved.into_iter().chain(&mut own));
            } else if i < before.known {
                let known = &mut self.history.commits[i];
                known.id = known.id.or(e.commit);
            } else {
                let n = self.history.insert(i, e, learn::commit(w, &id)?);
                if e.kind == kind {
                    let differs = self.history.commits[n].tree.difference(&before.tree);
                    ensure!(
                        differs.is_none(),
                        "a {kind} is not what was there: {differs:?}"
                    );
                    own = Some(n);
                }
            }
        }
        if let Some(n) = own {
            self.history.shown = n;
        }
        self.history.head = log.iter().rev().position(|e| e.is_head).ok_or("no head")?;
        if self.history.head != before.head {
            // What a merge goes forward to counts as asked for, whatever it was before.
            self.history.commits[self.history.head].automatic = false;
        }
        self.history.compare(&log)?;
        Ok(own)
    }

    /// The live tree became the state `shown`, instead of `replaced` or what was shown before.
    fn switch_to(
        &mut self,
        before: &Before,
        replaced: Option<usize>,
        shown: usize,
        commit: Option<engine::CommitId>,
    ) -> Result<(), String> {
        let back = replaced.unwrap_or(before.shown);
        let kept = self.history.commits[back].tree.difference(&before.tree);
        ensure!(kept.is_none(), "what was replaced is not kept: {kept:?}");
        self.history.undo.push((back, before.head));
        self.history.redo.clear();
        let done = RolledBack {
            commit,
            replaced: None,
            files_changed: 0,
        };
        let keys = self.history.commits[shown].tree.kv.clone();
        let from = self.live.clone();
        self.switched((shown, self.history.head), Some(keys), &done)?;
        self.switched_from = Some(from);
        Ok(())
    }

    /// Makes a branch of what is live, or deletes the one that there is.
    pub fn branch(&mut self, which: u32) -> Result<(), String> {
        let (name, w) = (BRANCHES[which as usize % 2], self.world.w());
        if self.besides.branches.remove(name).is_some() {
            let gone = verbs::delete_branch(w, name, &|_, _| ());
            return gone.map(drop).map_err(|e| format!("deleting: {e}"));
        }
        let mut before = self.before();
        let made = verbs::create_branch(self.world.w(), name, MAIN, None);
        made.map_err(|e| format!("branching: {e}"))?;
        self.resync(&mut before, "before-branch")?;
        self.besides.branches.insert(name.to_owned(), before.tree);
        self.check_branches()
    }

    fn some_branch(&self, which: u32) -> Option<String> {
        let all: Vec<&String> = self.besides.branches.keys().collect();
        Some((*all.get(which as usize % all.len().max(1))?).clone())
    }

    /// Changes something in another branch.
    pub fn beside(&mut self, which: u32, seed: u32) -> Result<(), String> {
        let Some(name) = self.some_branch(which) else {
            return Ok(());
        };
        let (w, mut rng) = (self.world.w(), Rng(u64::from(seed)));
        let paths = self.besides.branches[&name].paths();
        let nodes = &self.besides.branches[&name].nodes;
        let text = |p: &Vec<u8>| String::from_utf8(p.clone()).ok();
        let files = paths.iter().filter(|(_, n)| nodes[*n].file().is_some());
        let files: Vec<String> = files.filter_map(|(p, _)| text(p)).collect();
        let who = Caller::default();
        match (rng.below(6), files.is_empty()) {
            (0..=1, _) => {
                let file = format!("new {}", rng.below(5));
                let there = paths
                    .get(file.as_bytes())
                    .is_some_and(|n| nodes[n].file().is_none());
                if !there {
                    by_path::write(w, &name, &file, &bytes(rng.next(), 3000));
                }
            }
            (2, _) => {
                let done = verbs::kv_set(w, &name, "key/0", &format!("{seed}"));
                done.map_err(|e| format!("kv_set: {e}"))?;
            }
            (_, true) => {}
            (3, _) => {
                let file = rng.pick(&files[..]).as_str();
                let (dir, base) = split(file.as_bytes());
                let dir = by_path::find(w, &name, &String::from_utf8_lossy(dir)).unwrap();
                w.unlink(dir, base, W).map_err(|e| format!("unlink: {e}"))?;
            }
            (4, _) => {
                let node = by_path::find(w, &name, rng.pick(&files[..]).as_str()).unwrap();
                let value = seed.to_le_bytes();
                let set = w.setxattr(&who, node, b"user.side", &value, 0, W);
                set.map_err(|e| format!("setxattr: {e}"))?;
            }
            _ => drop(by_path::write(
                w,
                &name,
                rng.pick(&files[..]).as_str(),
                &bytes(rng.next(), 700),
            )),
        }
        let now = learn::branch(w, &name)?;
        self.besides.branches.insert(name, now);
        Ok(())
    }

    /// Other branches show what they showed, and conflicts are as they were.
    pub fn check_branches(&self) -> Result<(), String> {
        for (name, want) in &self.besides.branches {
            let differs = learn::branch(self.world.w(), name)?.difference(want);
            ensure!(differs.is_none(), "branch {name}: {differs:?}");
        }
        let conflicts = verbs::conflicts(self.world.w(), MAIN);
        let conflicts = conflicts.map_err(|e| format!("conflicts: {e}"))?;
        ensure!(
            conflicts == self.besides.conflicts,
            "conflicts are {conflicts:?}, not {:?}",
            self.besides.conflicts
        );
        Ok(())
    }

    /// After a switch: the conflicts that are left.
    pub fn learn_conflicts(&mut self) -> Result<(), String> {
        let left = verbs::conflicts(self.world.w(), MAIN);
        self.besides.conflicts = left.map_err(|e| format!("conflicts: {e}"))?;
        Ok(())
    }

    /// Merges another branch into main.
    pub fn merge(&mut self, which: u32, keep_conflicts: bool, dry_run: bool) -> Result<(), String> {
        let Some(from) = self.some_branch(which) else {
            return Ok(());
        };
        let mut before = self.before();
        let req = MergeRequest {
            from: from.clone(),
            into: MAIN.into(),
            keep_conflicts,
            dry_run,
            ..MergeRequest::default()
        };
        let done = verbs::merge_branch(self.world.w(), &req, &|_, _| ());
        let done = done.map_err(|e| format!("merge: {e}"))?;
        let own = self.resync(&mut before, "before-merge")?;
        let nothing = done.outcome == Outcome::UpToDate
            || (done.outcome == Outcome::Conflicts && !keep_conflicts)
            || dry_run;
        if nothing {
            ensure!(self.history.head == before.head, "{done:?} moved the head");
        } else {
            let head = self.history.head;
            self.switch_to(&before, own, head, done.commit)?;
            self.learn_conflicts()?;
            ensure!(self.besides.conflicts == done.conflicts, "other conflicts");
        }
        self.check_branches()
    }

    /// Takes a path back.
    pub fn restore(&mut self, how: u8, which: u32, path: u32) -> Result<(), String> {
        let (target, want) = self.history.target(how, which);
        let Some(want) = want else { return Ok(()) };
        let source = self.history.commits[want].tree.clone();
        let mut before = self.before();
        let mut paths: BTreeSet<Vec<u8>> = before.tree.paths().into_keys().collect();
        paths.extend(source.paths().into_keys());
        paths.remove(&Vec::new());
        let Some(path) = paths
            .iter()
            .nth(path as usize % paths.len().max(1))
            .cloned()
        else {
            return Ok(());
        };
        let done = verbs::restore(self.world.w(), MAIN, &target, std::slice::from_ref(&path));
        match done {
            Err(Error::InTheWay(_)) => Ok(()),
            Err(e) => Err(format!("restore of {path:?}: {e}")),
            Ok(_) => {
                let shown = String::from_utf8_lossy(&path).into_owned();
                self.restored(&mut before, "before-rollback")?;
                taken_back(&before.tree, &source, &self.live, &path)
                    .map_err(|e| format!("restore of {shown:?}: {e}"))
            }
        }
    }

    /// What was shown instead, where something was.
    fn restored(&mut self, before: &mut Before, kind: &str) -> Result<bool, String> {
        let own = self.resync(before, kind)?;
        let new = before.known..self.history.commits.len();
        let is = |n: &usize| self.history.commits[*n].kind == "restored";
        let Some(shown) = new.rev().find(is) else {
            return Ok(false);
        };
        self.switch_to(before, own, shown, None)?;
        Ok(true)
    }

    /// Settles a conflict.
    pub fn resolve(&mut self, which: u32, how: u8) -> Result<(), String> {
        let count = self.besides.conflicts.len().max(1);
        let Some(conflict) = self.besides.conflicts.get(which as usize % count).cloned() else {
            return Ok(());
        };
        let how = [
            Resolution::Ours,
            Resolution::Theirs,
            Resolution::Base,
            Resolution::Working,
        ][how as usize % 4];
        let mut before = self.before();
        match verbs::resolve_conflict(self.world.w(), MAIN, &conflict.path, how) {
            Err(Error::InTheWay(_)) => return Ok(()),
            Err(e) => return Err(format!("resolving by {how:?}: {e}")),
            Ok((left, _)) => {
                self.besides.conflicts.retain(|c| c.path != conflict.path);
                ensure!(left == self.besides.conflicts.len(), "{left} are left");
            }
        }
        let changed = self.restored(&mut before, "before-rollback")?;
        ensure!(!changed || how != Resolution::Working, "the path changed");
        self.check_branches()
    }

    /// A call begins, or ends.
    pub fn call(&mut self) -> Result<(), String> {
        let (mut before, w) = (self.before(), self.world.w());
        match self.besides.running.take() {
            None => {
                let call = CallStart {
                    name: "tool".into(),
                    parameters: None,
                    ..CallStart::default()
                };
                let id = verbs::call_start(w, MAIN, call);
                let id = id.map_err(|e| format!("call_start: {e}"))?;
                self.besides.running = Some((id, before.tree.clone()));
            }
            Some((id, found)) => {
                let done = verbs::call_finish(w, MAIN, id, CallOutcome::Success(None));
                done.map_err(|e| format!("call_finish: {e}"))?;
                self.besides.calls.push((id, found, before.tree.clone()));
            }
        }
        self.resync(&mut before, "tool-call").map(drop)
    }

    /// Takes back what a call did.
    pub fn undo_call(&mut self, which: u32) -> Result<(), String> {
        let count = self.besides.calls.len().max(1);
        let call = self.besides.calls.get(which as usize % count).cloned();
        let Some((id, found, left)) = call else {
            return Ok(());
        };
        let mut before = self.before();
        match verbs::undo_call(self.world.w(), MAIN, id, false) {
            Err(Error::CallUnknown { .. }) => {
                self.resync(&mut before, "tool-call")?;
            }
            Err(e) => return Err(format!("undo of call {id}: {e}")),
            Ok(done) => {
                let shown = self.before_of_undo(&mut before)?;
                ensure!(done.conflicts.is_empty() || !shown, "undone with conflicts");
                if before.tree.difference(&left).is_none() {
                    let differs = in_content(&self.live, &found);
                    ensure!(
                        done.conflicts.is_empty(),
                        "conflicts in {:?}",
                        done.conflicts
                    );
                    ensure!(differs.is_none(), "not what call {id} found: {differs:?}");
                }
            }
        }
        self.learn_conflicts()
    }

    /// A state of what is live may have been made first, as for a call.
    fn before_of_undo(&mut self, before: &mut Before) -> Result<bool, String> {
        let own = self.resync(before, "tool-call")?;
        let all = &self.history.commits;
        let of = |kind: &str| {
            (before.known..all.len())
                .rev()
                .find(|n| all[*n].kind == kind)
        };
        let (replaced, shown) = (of("before-rollback"), of("restored"));
        let Some(shown) = shown else { return Ok(false) };
        self.switch_to(before, replaced.or(own), shown, None)?;
        Ok(true)
    }

    /// A commit as its snapshot shows it.
    pub fn snapshot(&self, which: u32) -> Result<(), String> {
        let all: Vec<_> = self
            .history
            .commits
            .iter()
            .filter(|c| c.id.is_some())
            .collect();
        let Some(c) = all.get(which as usize % all.len().max(1)) else {
            return Ok(());
        };
        let id = c.id.unwrap_or_else(|| panic!("filtered"));
        let have = learn::commit(self.world.w(), &id)?;
        let mut want = c.tree.clone();
        let (there, here) = (have.paths(), want.paths());
        for (path, n) in here {
            // A page that came late made a time that is not known.
            if let (Some(o), When::Any) = (there.get(&path), want.nodes[&n].mtime) {
                want.at(n).mtime = have.nodes[o].mtime;
            }
        }
        let differs = have.difference(&want);
        ensure!(differs.is_none(), "snapshot of {id}: {differs:?}");
        Ok(())
    }

    /// Carries out what is about branches and what can be taken back.
    pub fn branching(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Branch { which } => self.branch(which),
            Op::Beside { which, seed } => self.beside(which, seed),
            Op::Merge { which, keep, dry } => self.merge(which, keep, dry),
            Op::Restore { how, which, path } => self.restore(how, which, path),
            Op::Resolve { which, how } => self.resolve(which, how),
            Op::Call => self.call(),
            Op::UndoCall { which } => self.undo_call(which),
            Op::Snapshot { which } => self.snapshot(which),
            _ => Ok(()),
        }
    }

    /// The rest of the process is gone: what ran is not known to end.
    pub fn forget_besides(&mut self) {
        self.besides.running = None;
    }
}

/// What is at or below `path` is the source's, all else is as it was.
fn taken_back(before: &Tree, source: &Tree, now: &Tree, path: &[u8]) -> Result<(), String> {
    let (old, from, is) = (before.paths(), source.paths(), now.paths());
    let below = |p: &[u8]| p == path || (p.starts_with(path) && p.get(path.len()) == Some(&b'/'));
    let above =
        |p: &[u8]| p.is_empty() || (path.starts_with(p) && path.get(p.len()) == Some(&b'/'));
    for p in old.keys().chain(from.keys()).chain(is.keys()) {
        let (wanted, tree) = match below(p) {
            true => (from.get(p), source),
            false if above(p) => continue,
            false => (old.get(p), before),
        };
        let (want, have) = (
            wanted.map(|n| &tree.nodes[n]),
            is.get(p).map(|n| &now.nodes[n]),
        );
        let same = match (want, have) {
            (Some(a), Some(b)) => kept_alike(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        ensure!(
            same,
            "{:?} is not as it should be",
            String::from_utf8_lossy(p)
        );
    }
    Ok(())
}

fn kept_alike(a: &Node, b: &Node) -> bool {
    let mut a = a.kept();
    if a.mtime == When::Any {
        a.mtime = b.mtime;
    }
    a == b.kept()
}

/// The first path that has another kind or other bytes.
fn in_content(a: &Tree, b: &Tree) -> Option<String> {
    let (x, y) = (a.paths(), b.paths());
    let what = |tree: &Tree, n: Option<&u64>| {
        n.map(|n| match &tree.nodes[n].body {
            Body::Dir(_) => Body::Special,
            other => other.clone(),
        })
    };
    let mut all = x.keys().chain(y.keys());
    let other = all.find(|p| what(a, x.get(*p)) != what(b, y.get(*p)));
    other.map(|p| String::from_utf8_lossy(p).into_owned())
}
