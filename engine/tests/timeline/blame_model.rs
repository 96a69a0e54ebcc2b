//! Random histories of branches, calls, renames, merges, deletions and rollbacks against an oracle that knows for
//! each file which calls changed it, and for each branch which calls it has.
//!
//! Each directory has one branch at a time that may change it, so merges have no conflicts and what one side
//! did is always the beginning of what the other one did. `AGENTVFS_SEED` runs one seed again.
#![allow(clippy::unwrap_used)]

use crate::calls::*;
use crate::rng::Rng;
use engine::merge::Outcome;
use engine::verbs;
use engine::{CheckpointRequest, Engine, Target, Workspace};
use std::collections::{BTreeMap, BTreeSet};

const RUNS: u64 = 6;
const STEPS: usize = 45;

/// A file as a branch has it.
#[derive(Clone, Default)]
struct File {
    /// `None` where it was removed.
    name: Option<String>,
    lines: Vec<String>,
    /// Calls that changed it, with the path that each renamed it from.
    calls: Vec<(String, Option<String>)>,
    /// How many of them there were when it first got another path than at the checkpoint.
    away: Option<usize>,
}

impl File {
    fn was_moved(&mut self) {
        self.away = self.away.or(Some(self.calls.len()));
    }
}

/// A directory as a branch has it.
#[derive(Clone, Default)]
struct Dir {
    name: String,
    files: BTreeMap<u64, File>,
    /// Changes so far: of two branches' versions the one with more has all of the other.
    changes: u64,
}

impl Dir {
    fn has_not_moved(&mut self) {
        self.files.values_mut().for_each(|f| f.away = None);
    }

    /// Becomes a later version of itself. Of a file that it does not change a merge tells nothing: not of calls
    /// either whose changes a rollback took back before. Of one that it changes all calls of both branches are told.
    fn take_over(&mut self, later: Dir) {
        let moved = self.name != later.name;
        let before = std::mem::replace(self, later);
        for (number, file) in &mut self.files {
            let Some(was) = before.files.get(number) else {
                continue;
            };
            let same = !moved && (&was.name, &was.lines) == (&file.name, &file.lines);
            let theirs = std::mem::replace(&mut file.calls, was.calls.clone());
            if !same {
                let new = theirs.into_iter().filter(|c| !was.calls.contains(c));
                file.calls.extend(new);
            }
        }
    }
}

#[derive(Clone, Default)]
struct Branch {
    dirs: BTreeMap<u64, Dir>,
    calls: BTreeSet<String>,
    /// What a rollback goes back to.
    checkpoint: Option<BTreeMap<u64, Dir>>,
    /// It was made of an older commit, or of such a branch: it takes part in no merge.
    side: bool,
    /// An older commit, with what it has and the calls up to it.
    older: Option<(String, BTreeMap<u64, Dir>, BTreeSet<String>)>,
}

struct Model {
    rng: Rng,
    branches: BTreeMap<String, Branch>,
    /// Calls that commits lead to which were named from other branches: those may tell of them.
    named: BTreeSet<String>,
    /// By directory: the branch that may change it.
    owners: BTreeMap<u64, String>,
    next: u64,
}

impl Model {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn some_branch(&mut self) -> String {
        let names: Vec<String> = self.branches.keys().cloned().collect();
        self.rng.pick(&names).clone()
    }

    /// A directory that a branch may change.
    fn some_dir(&mut self, branch: &str) -> Option<u64> {
        let of = &self.branches[branch].dirs;
        let own = self
            .owners
            .iter()
            .filter(|(d, b)| *b == branch && of.contains_key(d));
        let own: Vec<u64> = own.map(|(d, _)| *d).collect();
        (!own.is_empty()).then(|| *self.rng.pick(&own))
    }

    fn write(&self, w: &Workspace, branch: &str, dir: u64, file: u64) {
        let d = &self.branches[branch].dirs[&dir];
        let f = &d.files[&file];
        let path = format!("{}/{}", d.name, f.name.as_ref().unwrap());
        println!("  {branch}: write {path}");
        write_on(w, branch, &path, &f.lines.concat());
    }

    fn change(&mut self, w: &Workspace, branch: &str) {
        let call = format!("c{}", self.number());
        println!("{branch}: call {call}");
        let id = begin_on(w, branch, &call);
        let dir = match self.some_dir(branch) {
            Some(dir) if !self.rng.one_in(5) => dir,
            _ => self.new_dir(branch),
        };
        match self.rng.below(6) {
            0 | 1 => self.new_file(w, branch, dir, &call),
            2 => self.edit(w, branch, dir, &call),
            3 => self.rename_file(w, branch, dir, Some(&call)),
            4 => self.rename_dir(w, branch, dir, Some(&call)),
            _ => self.remove(w, branch, dir, &call),
        }
        finish_on(w, branch, id);
        let b = self.branches.get_mut(branch).unwrap();
        b.calls.insert(call);
    }

    fn new_dir(&mut self, branch: &str) -> u64 {
        let dir = self.number();
        let new = Dir {
            name: format!("dir{dir}"),
            ..Dir::default()
        };
        let b = self.branches.get_mut(branch).unwrap();
        b.dirs.insert(dir, new);
        self.owners.insert(dir, branch.into());
        dir
    }

    fn dir(&mut self, branch: &str, dir: u64) -> &mut Dir {
        let b = self.branches.get_mut(branch).unwrap();
        let d = b.dirs.get_mut(&dir).unwrap();
        d.changes += 1;
        d
    }

    fn new_file(&mut self, w: &Workspace, branch: &str, dir: u64, call: &str) {
        let file = self.number();
        let new = File {
            name: Some(format!("f{file}")),
            lines: (0..60).map(|n| format!("{file} of line {n}\n")).collect(),
            calls: vec![(call.into(), None)],
            away: None,
        };
        self.dir(branch, dir).files.insert(file, new);
        self.write(w, branch, dir, file);
    }

    /// A file that is there; one is made where there is none.
    fn some_file(
        &mut self,
        w: &Workspace,
        branch: &str,
        dir: u64,
        call: Option<&str>,
    ) -> Option<u64> {
        let d = &self.branches[branch].dirs[&dir];
        let there = d.files.iter().filter(|(_, f)| f.name.is_some());
        let there: Vec<u64> = there.map(|(n, _)| *n).collect();
        if there.is_empty() {
            if let Some(call) = call {
                self.new_file(w, branch, dir, call);
            }
            return None;
        }
        Some(*self.rng.pick(&there))
    }

    fn edit(&mut self, w: &Workspace, branch: &str, dir: u64, call: &str) {
        let Some(file) = self.some_file(w, branch, dir, Some(call)) else {
            return;
        };
        let (line, text) = (self.rng.below(60) as usize, format!("edited by {call}\n"));
        let f = self.dir(branch, dir).files.get_mut(&file).unwrap();
        f.lines[line] = text;
        f.calls.push((call.into(), None));
        self.write(w, branch, dir, file);
    }

    fn rename_file(&mut self, w: &Workspace, branch: &str, dir: u64, call: Option<&str>) {
        let Some(file) = self.some_file(w, branch, dir, call) else {
            return;
        };
        let to = format!("f{file}-{}", self.number());
        let d = self.dir(branch, dir);
        let f = d.files.get_mut(&file).unwrap();
        let old = format!("{}/{}", d.name, f.name.replace(to.clone()).unwrap());
        println!("  {branch}: rename {old} to {to}");
        rename_on(w, branch, &old, &format!("{}/{to}", d.name));
        f.calls.extend(call.map(|call| (call.into(), Some(old))));
        f.was_moved();
    }

    fn rename_dir(&mut self, w: &Workspace, branch: &str, dir: u64, call: Option<&str>) {
        if self.some_file(w, branch, dir, call).is_none() {
            return;
        }
        let to = format!("dir{dir}-{}", self.number());
        let d = self.dir(branch, dir);
        let from = std::mem::replace(&mut d.name, to);
        println!("  {branch}: rename {from} to {}", d.name);
        rename_on(w, branch, &from, &d.name);
        for f in d.files.values_mut() {
            let old = f.name.as_ref().map(|name| format!("{from}/{name}"));
            if let (Some(call), Some(old)) = (call, old) {
                f.calls.push((call.into(), Some(old)));
            }
            f.was_moved();
        }
    }

    fn remove(&mut self, w: &Workspace, branch: &str, dir: u64, call: &str) {
        let Some(file) = self.some_file(w, branch, dir, Some(call)) else {
            return;
        };
        let d = self.dir(branch, dir);
        let f = d.files.get_mut(&file).unwrap();
        let path = format!("{}/{}", d.name, f.name.take().unwrap());
        f.calls.push((call.into(), None));
        println!("  {branch}: remove {path}");
        verbs::remove_path(w, branch, path.as_bytes(), false).unwrap();
    }

    fn create(&mut self, w: &Workspace) {
        let (from, name) = (self.some_branch(), format!("b{}", self.number()));
        println!("{name} is made of {from}");
        verbs::create_branch(w, &name, &from, None).unwrap();
        let mut new = self.branches[&from].clone();
        (new.checkpoint, new.older) = (None, None);
        for dir in new.dirs.keys() {
            let owner = self.owners.get_mut(dir).unwrap();
            if *owner == from && self.rng.one_in(2) {
                owner.clone_from(&name);
            }
        }
        self.branches.insert(name, new);
        self.no_way_back();
    }

    /// A branch of an older commit, named from its own branch or from another: it has the calls up to that.
    fn create_older(&mut self, w: &Workspace) {
        let (from, via) = (self.some_branch(), self.some_branch());
        let name = format!("b{}", self.number());
        let Some((commit, dirs, calls)) = self.branches[&from].older.clone() else {
            return;
        };
        let named = match from == via {
            true => commit,
            false => {
                self.named.extend(calls.iter().cloned());
                format!("{from}:{commit}")
            }
        };
        println!("{name} is made of {named}, named from {via}");
        verbs::create_branch(w, &name, &via, Some(&named)).unwrap();
        let new = Branch {
            dirs,
            calls,
            side: true,
            ..Branch::default()
        };
        self.branches.insert(name, new);
    }

    /// What one branch does to another makes a rollback mean more than the oracle knows.
    fn no_way_back(&mut self) {
        self.branches.values_mut().for_each(|b| b.checkpoint = None);
    }

    fn merge(&mut self, w: &Workspace) {
        let (from, into) = (self.some_branch(), self.some_branch());
        let side = |name: &String| self.branches[name].side;
        if from == into || side(&from) || side(&into) {
            return;
        }
        self.no_way_back();
        let outcome = merge(w, &from, &into);
        println!("{from} is merged into {into}: {outcome:?}");
        if outcome == Outcome::UpToDate {
            return;
        }
        let theirs = self.branches[&from].clone();
        let ours = self.branches.get_mut(&into).unwrap();
        ours.calls.extend(theirs.calls);
        for (number, dir) in theirs.dirs {
            match ours.dirs.get_mut(&number) {
                Some(ours) if ours.changes >= dir.changes => {}
                Some(ours) => ours.take_over(dir),
                None => drop(ours.dirs.insert(number, dir)),
            }
            let owner = self.owners.get_mut(&number).unwrap();
            if *owner == from && self.rng.one_in(2) {
                owner.clone_from(&into);
            }
        }
    }

    fn delete(&mut self, w: &Workspace) {
        let name = self.some_branch();
        if name == MAIN {
            return;
        }
        println!("{name} is deleted");
        delete(w, &name);
        self.branches.remove(&name);
        for (dir, owner) in self.owners.iter_mut().filter(|(_, owner)| **owner == name) {
            let changes = |b: &Branch| b.dirs.get(dir).map(|d| d.changes);
            let newest = self.branches.iter().max_by_key(|(_, b)| changes(b));
            owner.clone_from(newest.unwrap().0);
        }
    }

    fn checkpoint(&mut self, w: &Workspace) {
        let branch = self.some_branch();
        let request = CheckpointRequest {
            wait: true,
            ..CheckpointRequest::default()
        };
        println!("{branch}: checkpoint");
        let made = verbs::checkpoint(w, &branch, request, &|_, _| ()).unwrap();
        let b = self.branches.get_mut(&branch).unwrap();
        // Only what is never merged elsewhere again may forget what it did.
        if branch == MAIN {
            b.dirs.values_mut().for_each(Dir::has_not_moved);
            b.checkpoint = Some(b.dirs.clone());
        }
        let commit = made.commit.unwrap().to_string();
        b.older = Some((commit, b.dirs.clone(), b.calls.clone()));
    }

    /// Files are as they were at the checkpoint; the calls since have changed them all the same. One that was
    /// removed under another path is back under its old one: what was done at the other path is not told of it.
    fn rollback(&mut self, w: &Workspace) {
        let b = self.branches.get_mut(MAIN).unwrap();
        let Some(then) = b.checkpoint.clone() else {
            return;
        };
        println!("{MAIN}: rollback");
        b.older = None;
        verbs::rollback(w, MAIN, &Target::Head).unwrap();
        let now = std::mem::replace(&mut b.dirs, then);
        for (number, dir) in now {
            let Some(was) = b.dirs.get_mut(&number) else {
                self.owners.remove(&number);
                continue;
            };
            was.changes = dir.changes;
            for (number, file) in dir.files {
                if let Some(f) = was.files.get_mut(&number) {
                    f.calls = file.calls;
                    if let (None, Some(away)) = (file.name, file.away) {
                        f.calls.truncate(away);
                    }
                }
            }
            was.has_not_moved();
        }
        b.checkpoint = Some(b.dirs.clone());
        // What is shown now is the checkpoint's own commit, which holds nothing of the calls that came later. With a
        // call more there is one that does.
        self.change(w, MAIN);
    }

    fn step(&mut self, engine: &Engine, w: &Workspace) {
        let branch = self.some_branch();
        match self.rng.below(20) {
            0..=9 => self.change(w, &branch),
            10 => {
                if let Some(dir) = self.some_dir(&branch) {
                    match self.rng.one_in(2) {
                        true => self.rename_file(w, &branch, dir, None),
                        false => self.rename_dir(w, &branch, dir, None),
                    }
                }
            }
            11 => self.create(w),
            12 => self.create_older(w),
            13..=15 => self.merge(w),
            16 => self.delete(w),
            17 => self.checkpoint(w),
            18 => self.rollback(w),
            _ => {
                println!("gc");
                gc(engine);
            }
        }
    }

    /// Compares all with the oracle.
    fn check(&self, w: &Workspace, seed: u64) {
        for (name, b) in &self.branches {
            let mut told = BTreeSet::new();
            for source in verbs::timelines(w, name).unwrap() {
                verbs::timeline_of(w, &source, &mut |item| {
                    let twice = item.switch.is_none() && !told.insert(item.name.clone());
                    assert!(!twice, "seed {seed}: {name} tells {} twice", item.name);
                    Ok(true)
                })
                .unwrap();
            }
            told.retain(|name| name.starts_with('c'));
            let only_named = |name: &String| self.named.contains(name) && !b.calls.contains(name);
            told.retain(|name| !only_named(name));
            assert_eq!(told, b.calls, "seed {seed}: calls of {name}");
            for dir in b.dirs.values() {
                for f in dir.files.values() {
                    if let Some(file) = &f.name {
                        check_file(w, name, &format!("{}/{file}", dir.name), f, seed);
                    }
                }
            }
        }
    }
}

fn check_file(w: &Workspace, branch: &str, path: &str, f: &File, seed: u64) {
    let blame = verbs::blame(w, branch, path.as_bytes(), 1000).unwrap();
    assert_eq!(blame.unknown, 0, "seed {seed}: {path} on {branch}");
    let rows = format!("{blame:#?}");
    let calls = blame.items.into_iter().filter(|i| i.kind == "call");
    let old = |i: engine::BlameItem| {
        let old = i.old_path.map(|old| String::from_utf8(old).unwrap());
        (i.name, old)
    };
    let mut found: Vec<_> = calls.map(old).collect();
    let mut expected = f.calls.clone();
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "seed {seed}: {path} on {branch}: {rows}");
}

#[test]
fn random_histories_are_told_as_they_were() {
    let first = crate::rng::fresh_seed();
    println!("seeds from {first}");
    for seed in first..first + RUNS {
        let dir = base();
        let (disk, engine, w) = start(dir.path());
        let mut model = Model {
            rng: Rng(seed),
            branches: BTreeMap::from([(MAIN.to_owned(), Branch::default())]),
            named: BTreeSet::new(),
            owners: BTreeMap::new(),
            next: 0,
        };
        for _ in 0..STEPS {
            model.step(&engine, &w);
        }
        model.check(&w, seed);
        end(&engine);
        drop((w, engine));
        let (engine, w) = open(&disk, dir.path());
        gc(&engine);
        model.check(&w, seed);
        end(&engine);
    }
}
