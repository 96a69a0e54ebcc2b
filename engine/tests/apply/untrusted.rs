//! Files that run by themselves and that a command in a sandbox wrote: applied only where that is asked for, whatever
//! way they took.
#![allow(clippy::unwrap_used)]

use crate::applying::*;
use crate::common::rng::{Rng, asked_seed, budget, fresh_seed};
use crate::common::world::{MAIN, World};
use engine::merge::Outcome;
use engine::verbs;
use engine::{ApplyReport, ApplyRequest, CheckpointRequest, Error, MergeRequest, Result, Target};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// A file that runs by itself.
const FILE: &str = ".envrc";

fn at(branch: &str, path: &str) -> String {
    match branch {
        MAIN => path.to_owned(),
        other => format!(".agentvfs/branches/{other}/{path}"),
    }
}

fn apply_branch(world: &World, branch: &str, trust: bool) -> Result<ApplyReport> {
    let request = ApplyRequest {
        branch: branch.into(),
        trust,
        ..ApplyRequest::default()
    };
    verbs::apply(world.w(), &request, &|_, _| ())
}

#[track_caller]
fn refused(world: &World, branch: &str) {
    match apply_branch(world, branch, false) {
        Err(Error::NeedsTrust { paths }) => assert_eq!(paths, [FILE.as_bytes()]),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn applied(world: &World, branch: &str, trust: bool) {
    let report = apply_branch(world, branch, trust).unwrap();
    assert_eq!(report.outcome, Outcome::Merged, "{report:?}");
}

/// A command in a sandbox that writes `text`.
fn run(world: &World, branch: &str, id: &str, text: &str) {
    verbs::run_begins(world.w(), branch, id, None).unwrap();
    write(world, &at(branch, FILE), text);
}

fn make(world: &World, name: &str, of: &str, from: Option<&str>) {
    verbs::create_branch(world.w(), name, of, from).unwrap();
}

fn checkpoint(world: &World, branch: &str, label: &str) {
    let request = CheckpointRequest {
        label: Some(label.into()),
        wait: true,
        ..CheckpointRequest::default()
    };
    verbs::checkpoint(world.w(), branch, request, &|_, _| ()).unwrap();
}

fn roll_back(world: &World, branch: &str, to: &str) {
    verbs::rollback(world.w(), branch, &Target::Ref(to.into())).unwrap();
}

fn merge(world: &World, from: &str, into: &str) -> Result<Outcome> {
    let request = MergeRequest {
        from: from.into(),
        into: into.into(),
        ..MergeRequest::default()
    };
    verbs::merge_branch(world.w(), &request, &|_, _| ()).map(|report| report.outcome)
}

#[test]
fn what_a_run_wrote_is_not_applied_unless_it_is_trusted() {
    let dir = base();
    let world = open(dir.path());
    run(&world, MAIN, "r", "evil\n");
    write(&world, "new", "new\n");
    let before = snapshot(dir.path());
    refused(&world, MAIN);
    assert_eq!(snapshot(dir.path()), before);
    let dry = ApplyRequest {
        branch: MAIN.into(),
        dry_run: true,
        ..ApplyRequest::default()
    };
    let report = verbs::apply(world.w(), &dry, &|_, _| ()).unwrap();
    assert_eq!(report.untrusted, [FILE.as_bytes()]);
    assert_eq!(report.changes.len(), 2);
    applied(&world, MAIN, true);
    assert_eq!(fs::read_to_string(dir.path().join(FILE)).unwrap(), "evil\n");
    // From now on it is the user who writes.
    write(&world, FILE, "mine\n");
    applied(&world, MAIN, false);
    // Taking it away changes what runs, too.
    verbs::run_begins(world.w(), MAIN, "r2", None).unwrap();
    remove(&world, FILE);
    refused(&world, MAIN);
}

#[test]
fn without_runs_nothing_has_to_be_trusted() {
    let dir = base();
    let world = open(dir.path());
    write(&world, FILE, "mine\n");
    make(&world, "b", MAIN, None);
    applied(&world, "b", false);
    write(&world, FILE, "mine, too\n");
    // A run in one branch does not mark another one.
    run(&world, "b", "r", "evil\n");
    applied(&world, MAIN, false);
}

#[test]
fn a_run_that_changed_nothing_leaves_no_mark() {
    let dir = base();
    let world = open(dir.path());
    write(&world, FILE, "mine\n");
    verbs::run_begins(world.w(), MAIN, "r", None).unwrap();
    refused(&world, MAIN);
    verbs::run_wrote_nothing(world.w(), MAIN, "r").unwrap();
    applied(&world, MAIN, false);
}

#[test]
fn a_run_that_goes_on_keeps_the_branch_marked() {
    let dir = base();
    let world = open(dir.path());
    run(&world, MAIN, "r", "evil\n");
    let request = ApplyRequest {
        branch: MAIN.into(),
        trust: true,
        in_use: true,
        ..ApplyRequest::default()
    };
    verbs::apply(world.w(), &request, &|_, _| ()).unwrap();
    write(&world, FILE, "worse\n");
    refused(&world, MAIN);
}

#[test]
fn the_mark_is_in_what_is_made_of_a_branch_and_merged_from_it() {
    let dir = base();
    let world = open(dir.path());
    make(&world, "b", MAIN, None);
    run(&world, "b", "r", "evil\n");
    make(&world, "of-live", "b", None);
    refused(&world, "of-live");
    checkpoint(&world, "b", "c");
    make(&world, "of-commit", "b", Some("c"));
    refused(&world, "of-commit");
    make(&world, "of-other", MAIN, Some("b:c"));
    refused(&world, "of-other");
    verbs::rename_branch(world.w(), "b", "d").unwrap();
    refused(&world, "d");
    merge(&world, "d", MAIN).unwrap();
    refused(&world, MAIN);
    // A new branch of the old name has nothing of it.
    make(&world, "clean", MAIN, Some("@~1"));
    drop(world);
}

#[test]
fn the_mark_outlives_the_daemon_and_the_branch() {
    let dir = base();
    let mut world = open(dir.path());
    make(&world, "b", MAIN, None);
    run(&world, "b", "r", "evil\n");
    checkpoint(&world, "b", "c");
    world.kill().unwrap();
    refused(&world, "b");
    let gone = verbs::delete_branch(world.w(), "b", &|_, _| ()).unwrap();
    make(&world, "b", MAIN, None);
    write(&world, &at("b", FILE), "mine\n");
    make(&world, "again", MAIN, Some(&gone.last.to_string()));
    refused(&world, "again");
    applied(&world, "b", false);
}

#[test]
fn what_is_shown_again_after_an_apply_is_not_trusted() {
    let dir = base();
    let world = open(dir.path());
    checkpoint(&world, MAIN, "clean");
    run(&world, MAIN, "r", "evil\n");
    write(&world, "new", "new\n");
    checkpoint(&world, MAIN, "evil");
    roll_back(&world, MAIN, "clean");
    write(&world, "other", "other\n");
    applied(&world, MAIN, false);
    let target = Target::Ref("evil".into());
    verbs::restore(world.w(), MAIN, &target, &[FILE.into()]).unwrap();
    refused(&world, MAIN);
    verbs::undo(world.w(), MAIN).unwrap();
    verbs::redo(world.w(), MAIN).unwrap();
    refused(&world, MAIN);
}

/// Branches at random, some of whose versions of [`FILE`] are written by runs (`R…`), others by the user (`U…`).
struct Game {
    world: World,
    rng: Rng,
    count: u64,
    branches: Vec<String>,
    /// Labels that there are, with the branch.
    labels: Vec<(String, String)>,
    trusted: BTreeSet<String>,
}

impl Game {
    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn branch(&mut self) -> String {
        self.rng.pick(&self.branches.clone()).clone()
    }

    fn step(&mut self, dir: &Path) {
        let (branch, n) = (self.branch(), self.next());
        match self.rng.below(12) {
            0 | 1 => run(&self.world, &branch, &n.to_string(), &format!("R{n}\n")),
            2 => write(&self.world, &at(&branch, FILE), &format!("U{n}\n")),
            3 => self.run_and_roll_back(&branch, n),
            4 => {
                checkpoint(&self.world, &branch, &format!("c{n}"));
                self.labels.push((branch, format!("c{n}")));
            }
            5 if self.branches.len() < 5 => self.make_branch(&branch, n),
            5 | 6 => {
                let into = self.branch();
                if into != branch {
                    merge(&self.world, &branch, &into).unwrap();
                }
            }
            7 => self.show_again(&branch),
            8 => {
                let undone = verbs::undo_over_later(self.world.w(), &branch);
                assert!(
                    matches!(undone, Ok(_) | Err(Error::NothingTo(_))),
                    "{undone:?}"
                );
            }
            9 if branch != MAIN => {
                verbs::delete_branch(self.world.w(), &branch, &|_, _| ()).unwrap();
                self.branches.retain(|name| *name != branch);
                self.labels.retain(|(of, _)| *of != branch);
            }
            9 => self.world.kill().unwrap(),
            _ => self.apply(&branch, dir),
        }
    }

    /// A run whose work somebody rolls back before it ends: it seems to have written nothing.
    fn run_and_roll_back(&mut self, branch: &str, n: u64) {
        let label = format!("before{n}");
        checkpoint(&self.world, branch, &label);
        run(&self.world, branch, &n.to_string(), &format!("R{n}\n"));
        roll_back(&self.world, branch, &label);
        verbs::run_wrote_nothing(self.world.w(), branch, &n.to_string()).unwrap();
    }

    fn make_branch(&mut self, of: &str, n: u64) {
        let name = format!("b{n}");
        let from = self.label();
        make(&self.world, &name, of, from.as_deref());
        self.branches.push(name);
    }

    /// `BRANCH:LABEL`, or nothing.
    fn label(&mut self) -> Option<String> {
        if self.labels.is_empty() || self.rng.one_in(2) {
            return None;
        }
        let (branch, label) = self.rng.pick(&self.labels.clone()).clone();
        Some(format!("{branch}:{label}"))
    }

    fn show_again(&mut self, branch: &str) {
        let Some(label) = self.label() else { return };
        if self.rng.one_in(2) {
            return roll_back(&self.world, branch, &label);
        }
        let restored = verbs::restore(self.world.w(), branch, &Target::Ref(label), &[FILE.into()]);
        let is_told = matches!(
            restored,
            Ok(_) | Err(Error::NoSuchPath(_) | Error::NotFound)
        );
        assert!(is_told, "{restored:?}");
    }

    fn apply(&mut self, branch: &str, dir: &Path) {
        match apply_branch(&self.world, branch, false) {
            Ok(_) => {
                let shown = fs::read_to_string(dir.join(FILE)).unwrap_or_default();
                let is_fine = !shown.starts_with('R') || self.trusted.contains(&shown);
                assert!(is_fine, "{branch} applied {shown:?}");
            }
            Err(Error::NeedsTrust { .. }) if self.rng.one_in(2) => {
                apply_branch(&self.world, branch, true).unwrap();
                let shown = fs::read_to_string(dir.join(FILE)).unwrap_or_default();
                self.trusted.insert(shown);
            }
            Err(Error::NeedsTrust { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn no_way_leads_past_the_question() {
    let (first, until) = (fresh_seed(), Instant::now() + budget(4.0));
    for seed in asked_seed().map_or(first..u64::MAX, |seed| seed..seed + 1) {
        println!("ENGINE_MODEL_SEED={seed}");
        let dir = base();
        let mut game = Game {
            world: open(dir.path()),
            rng: Rng(seed),
            count: 0,
            branches: vec![MAIN.into()],
            labels: Vec::new(),
            trusted: BTreeSet::new(),
        };
        for _ in 0..60 {
            game.step(dir.path());
        }
        game.world.end();
        if Instant::now() >= until {
            break;
        }
    }
}
