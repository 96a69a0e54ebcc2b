//! Power cuts: whatever the disk did with what was not synced, nothing acknowledged is missing, what is
//! shown is a state that existed, and the engine works on.
//!
//! A workload runs on a disk that logs; then the disk is rebuilt as a cut at any of its operations may
//! leave it, and opened. `ENGINE_MODEL_SECONDS` and `ENGINE_MODEL_SEED` as in the model test.
#![allow(clippy::unwrap_used)]

mod common;

use common::base_dir;
use common::check::{adopt, compare};
use common::history::History;
use common::model::Tree;
use common::op::Op;
use common::rng::{self, Rng};
use common::runner::{Runner, sequence};
use common::world::{MAIN, World};
use engine::verbs;
use engine::{CheckpointRequest, NodeId, Target};
use objstore::crash_storage::{CrashStorage, Policy};
use std::time::{Duration, Instant};

/// Cuts that are tried of one workload.
const CUTS: usize = 12;
/// Operations of a workload.
const STEPS: usize = 60;

/// What was there after a step.
struct Moment {
    /// Operations of the disk when the step began and when it had answered.
    began: usize,
    ended: usize,
    /// The answer means that everything up to here is on stable storage.
    acknowledged: bool,
    live: Tree,
    history: History,
}

/// A workload that ran, and its disk.
struct Workload {
    disk: CrashStorage,
    moments: Vec<Moment>,
    trace: Vec<Op>,
}

fn moment(r: &Runner, began: usize, ended: usize, acknowledged: bool) -> Moment {
    let live = r.live.clone().without_orphans();
    Moment {
        began,
        ended,
        acknowledged,
        live,
        history: r.history.clone(),
    }
}

fn run(ops: Vec<Op>) -> Result<Workload, String> {
    let disk = CrashStorage::new();
    let base = base_dir::shared();
    let world = World::on_disk(disk.clone(), base);
    let mut r = Runner::new(world, &base_dir::tree_of(base))?;
    compare(&mut r.live, r.world.w(), false)?;
    let start = disk.op_count();
    let mut moments = vec![moment(&r, start, start, true)];
    for (i, op) in ops.iter().enumerate() {
        let began = disk.op_count();
        r.step(*op).map_err(|e| format!("step {i}, {op:?}: {e}"))?;
        let syncs_all = matches!(op, Op::Fsync | Op::KvSet { .. } | Op::KvDelete { .. });
        let synced = matches!(
            op,
            Op::Checkpoint { .. }
                | Op::Rollback { .. }
                | Op::Undo
                | Op::Redo
                | Op::Merge { .. }
                | Op::Restore { .. }
                | Op::Resolve { .. }
                | Op::UndoCall { .. }
        );
        // An undo of nothing and the like say nothing of the disk; nor does a merge that ends in conflicts, for
        // which what was there may have become an automatic commit.
        let may_end_in_conflicts = matches!(op, Op::Merge { .. } | Op::UndoCall { .. });
        let said = |h: &History| {
            let commits = (!may_end_in_conflicts).then_some(h.commits.len());
            (commits, h.head, h.undo.len(), h.redo.len())
        };
        let before = moments.last().map(|m| said(&m.history));
        let did = before != Some(said(&r.history));
        let acknowledged = syncs_all || (synced && did);
        moments.push(moment(&r, began, disk.op_count(), acknowledged));
    }
    Ok(Workload {
        disk,
        moments,
        trace: ops,
    })
}

/// Operations without restarts; those that sync come a little more often.
fn workload(seed: u64) -> Vec<Op> {
    let mut rng = Rng(seed ^ 0xABCD);
    let all = sequence(seed, STEPS * 2).into_iter();
    let mut ops: Vec<Op> = all
        .filter(|op| !matches!(op, Op::Kill | Op::Close { .. } | Op::Check))
        .take(STEPS)
        .collect();
    for op in ops.iter_mut().filter(|_| rng.one_in(12)) {
        *op = Op::Fsync;
    }
    ops
}

impl Workload {
    /// Opens what a cut at operation `cut` left, and checks it.
    fn check(&self, cut: usize, policy: Policy, rng: &mut Rng) -> Result<(), String> {
        let image = self.disk.image_at(cut, policy, rng.next());
        let world = self.opened(image, rng)?;
        let first = self
            .moments
            .iter()
            .rposition(|m| m.acknowledged && m.ended <= cut);
        let first = first.ok_or("a cut before the start")?;
        let last = self
            .moments
            .iter()
            .rposition(|m| m.began <= cut)
            .unwrap_or(first);
        let shown = self.shown(&world, first, last.max(first))?;
        self.history(&world, first, cut)?;
        self.works_on(world, first, shown, rng)
    }

    fn opened(&self, image: CrashStorage, rng: &mut Rng) -> Result<World, String> {
        let base = base_dir::shared();
        let mut world = World::try_open(image, base).map_err(|e| format!("opening: {e}"))?;
        if rng.one_in(3) {
            // The power goes again while this recovers.
            let disk = world.disk.clone().unwrap();
            let again = disk.image_at(
                rng.below(1 + disk.op_count() as u64) as usize,
                *rng.pick(&Policy::ALL),
                rng.next(),
            );
            world.end();
            world = World::try_open(again, base).map_err(|e| format!("opening again: {e}"))?;
        }
        Ok(world)
    }

    /// Which moment is shown; one between `first` and `last`.
    fn shown(&self, world: &World, first: usize, last: usize) -> Result<Tree, String> {
        let mut why = String::new();
        for i in (first..=last).rev() {
            let tried = adopt(&self.moments[i].live, world.w()).and_then(|mut live| {
                compare(&mut live, world.w(), true)?;
                Ok(live)
            });
            match tried {
                Ok(live) => return Ok(live),
                Err(e) => why += &format!("\n  not the state after step {i}: {e}"),
            }
        }
        Err(format!("shows none of the states {first} to {last}:{why}"))
    }

    /// Every commit that was acknowledged is there, with the id that was told of it.
    fn history(&self, world: &World, first: usize, cut: usize) -> Result<(), String> {
        world.w().settle().map_err(|e| format!("settling: {e}"))?;
        let log = verbs::log(world.w(), MAIN, true).map_err(|e| format!("log: {e}"))?;
        let want = &self.moments[first].history;
        let told = |i: usize| {
            let before = self.moments.iter().filter(|m| m.ended <= cut);
            before.rev().find_map(|m| m.history.commits.get(i)?.id)
        };
        for (i, c) in want.commits.iter().enumerate() {
            let e = log
                .iter()
                .rev()
                .nth(i)
                .ok_or(format!("commit {i} ({}) is gone", c.kind))?;
            ensure!(
                e.kind == c.kind,
                "commit {i} is a {}, was a {}",
                e.kind,
                c.kind
            );
            let id = c.id.or_else(|| told(i));
            ensure!(
                id.is_none() || e.commit == id,
                "commit {i} is {:?}, was {id:?}",
                e.commit
            );
            ensure!(e.commit.is_some(), "commit {i} got no id");
        }
        for (label, _) in &want.labels {
            let there = log.iter().any(|e| e.labels.contains(label));
            ensure!(there, "the label {label:?} is gone");
        }
        Ok(())
    }

    /// Rolls back to some acknowledged commits, and takes that back; makes a checkpoint.
    fn works_on(
        &self,
        world: World,
        first: usize,
        shown: Tree,
        rng: &mut Rng,
    ) -> Result<(), String> {
        let w = world.w();
        let log = verbs::log(w, MAIN, true).map_err(|e| format!("log: {e}"))?;
        let commits = &self.moments[first].history.commits;
        let mut now = shown;
        for _ in 0..2 {
            let i = rng.below(commits.len() as u64) as usize;
            let id = log
                .iter()
                .rev()
                .nth(i)
                .and_then(|e| e.commit)
                .ok_or("no id")?;
            let done = verbs::rollback(w, MAIN, &Target::Ref(id.to_string()));
            done.map_err(|e| format!("rollback to commit {i}: {e}"))?;
            now = adopt(&commits[i].tree, w).map_err(|e| format!("commit {i}: {e}"))?;
            now.nodes
                .values_mut()
                .for_each(|n| (n.ctime, n.ino) = (common::model::When::Any, None));
            compare(&mut now, w, true).map_err(|e| format!("commit {i}: {e}"))?;
        }
        let request = CheckpointRequest {
            message: "on".into(),
            wait: true,
            ..Default::default()
        };
        let done = verbs::checkpoint(w, MAIN, request, &|_, _| ());
        done.map_err(|e| format!("a checkpoint after the cut: {e}"))?;
        w.fsync(NodeId::ROOT)
            .map_err(|e| format!("fsync after the cut: {e}"))?;
        w.seal()
            .map_err(|e| format!("sealing after the cut: {e}"))?;
        compare(&mut now, w, true)
    }
}

fn check_seed(seed: u64, cuts: usize) {
    let load = run(workload(seed)).unwrap_or_else(|e| panic!("ENGINE_MODEL_SEED={seed}: {e}"));
    let mut rng = Rng(seed);
    let (from, to) = (load.moments[0].ended, load.disk.op_count());
    for _ in 0..cuts {
        let cut = from + rng.below((to - from) as u64 + 1) as usize;
        let policy = *rng.pick(&Policy::ALL);
        if let Err(e) = load.check(cut, policy, &mut rng) {
            let ops: Vec<String> = load
                .trace
                .iter()
                .enumerate()
                .map(|(i, o)| format!("{}: {o:?}", i + 1))
                .collect();
            panic!(
                "ENGINE_MODEL_SEED={seed}, cut at {cut} of {to}, {policy:?}: {e}\n{}",
                ops.join("\n")
            );
        }
    }
}

#[test]
fn random_cuts_lose_nothing_acknowledged_and_show_a_state_that_existed() {
    if let Some(seed) = rng::asked_seed() {
        return check_seed(seed, CUTS * 10);
    }
    let until = Instant::now() + rng::budget(15.0);
    let first = rng::fresh_seed();
    println!("seeds from {first}");
    let mut seed = first;
    while Instant::now() < until {
        check_seed(seed, CUTS);
        seed += 1;
    }
    println!("{} workloads, {CUTS} cuts each", seed - first);
}

/// A short script, cut at each of its operations under each policy.
#[test]
fn every_cut_of_a_short_script_keeps_what_was_acknowledged() {
    let write = |at, seed| Op::Write {
        node: 10,
        at,
        len: 3000,
        seed,
        kill: false,
    };
    let checkpoint = |label| Op::Checkpoint {
        label,
        message: false,
        meta: 0,
        wait: true,
    };
    let set = |key, value| Op::KvSet {
        key,
        value,
        import: false,
    };
    let ops = vec![
        write(0, 1),
        set(0, 8),
        checkpoint(0),
        set(0, 9),
        Op::Create {
            dir: 2,
            name: 3,
            kind: 0,
            perm: 0o644,
        },
        write(2000, 2),
        Op::Fsync,
        set(1, 15),
        Op::Seal,
        Op::KvDelete { key: 0 },
        write(9000, 4),
        Op::Rollback {
            how: 1,
            which: 0,
            page: None,
        },
        write(100, 5),
        set(2, 7),
        Op::Undo,
        checkpoint(1),
    ];
    let load = run(ops).unwrap();
    let until = Instant::now() + Duration::from_secs_f64(rng::budget(15.0).as_secs_f64());
    let mut rng = Rng(7);
    let all = load.moments[0].ended..=load.disk.op_count();
    let step = (all.end() - all.start()).div_ceil(120).max(1);
    for cut in all.step_by(step) {
        for policy in Policy::ALL {
            let checked = load.check(cut, policy, &mut rng);
            checked.unwrap_or_else(|e| panic!("cut at {cut}, {policy:?}: {e}"));
            if Instant::now() > until {
                return;
            }
        }
    }
}
