//! Random histories of calls: inside one another, overlapping, of processes that die, with checkpoints, rollbacks,
//! kills and undos between; what `tool diff` and `tool undo` make of each against an oracle.
//!
//! The oracle knows every moment of the history with the files of then, and says what is certain by looking at all
//! pairs of calls. `AGENTVFS_SEED` makes a run happen again, `CALL_HISTORIES` sets how many there are.
#![allow(clippy::unwrap_used)]

use crate::calls::*;
use crate::rng::Rng;
use engine::verbs;
use engine::{
    CallOutcome, CallStart, CheckpointRequest, DiffSide, Engine, Error, Owner, Process, Target,
    Workspace,
};
use objstore::crash_storage::{CrashStorage, Policy};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Paths and what is in them.
type Files = BTreeMap<String, String>;

const PATHS: [&str; 5] = ["a", "b", "c", "src/main", "src/new"];

/// A call as the oracle knows it.
struct Known {
    id: u64,
    /// The process that it is of, and what it is part of by that.
    process: Option<Process>,
    lineage: Vec<Process>,
    /// Moments.
    begun: usize,
    ended: Option<usize>,
    before: Files,
    after: Files,
    switched: bool,
}

impl Known {
    /// True where it cannot be part of `outer`.
    fn is_apart(&self, outer: &Known) -> bool {
        match outer.process {
            None => false,
            Some(p) => self.lineage.first() == Some(&p) || !self.lineage.contains(&p),
        }
    }

    fn is_inside(&self, outer: &Known) -> bool {
        let end = |k: &Known| k.ended.unwrap_or(usize::MAX);
        outer.begun < self.begun && end(self) < end(outer) && !self.is_apart(outer)
    }
}

/// A workspace, and all that happened in it.
struct History<'a> {
    dir: &'a Path,
    rng: Rng,
    disk: CrashStorage,
    engine: Arc<Engine>,
    w: Arc<Workspace>,
    live: Files,
    head: Files,
    calls: Vec<Known>,
    /// Moments so far.
    moment: usize,
    switches: usize,
    /// Processes that live, each after the one that started it.
    processes: Vec<Vec<Process>>,
    started: u64,
}

fn files(w: &Workspace) -> Files {
    let view = verbs::read_state(w, MAIN, &DiffSide::Live).unwrap();
    let text = |path: &str| {
        let read = view.read(path.as_bytes(), 0, 1 << 16).ok()?;
        Some((path.to_owned(), String::from_utf8(read.bytes).unwrap()))
    };
    PATHS.iter().filter_map(|path| text(path)).collect()
}

/// What a diff is to show.
fn difference(from: &Files, to: &Files) -> Vec<String> {
    let row = |path: &&str| match (from.get(*path), to.get(*path)) {
        (None, Some(_)) => Some(format!("A {path}")),
        (Some(_), None) => Some(format!("D {path}")),
        (Some(a), Some(b)) if a != b => Some(format!("M {path}")),
        _ => None,
    };
    PATHS.iter().filter_map(row).collect()
}

impl History<'_> {
    fn run(dir: &Path, seed: u64, steps: usize) {
        let (disk, engine, w) = start(dir);
        let live = files(&w);
        let mut history = History {
            dir,
            rng: Rng(seed),
            disk,
            engine,
            w,
            head: live.clone(),
            live,
            calls: Vec::new(),
            moment: 0,
            switches: 0,
            processes: Vec::new(),
            started: 0,
        };
        for _ in 0..steps {
            history.step();
            assert_eq!(files(&history.w), history.live);
        }
        history.check_all();
        verified(&history.w);
        end(&history.engine);
    }

    fn step(&mut self) {
        self.moment += 1;
        match self.rng.below(40) {
            0..=7 => self.begin(),
            8..=13 => self.finish(),
            14 => self.die(),
            15..=30 => self.write(),
            31..=32 => self.checkpoint(),
            33 => self.rollback(),
            34 => self.reopen(),
            35..=38 => self.undo(),
            _ => self.check_all(),
        }
    }

    fn begin(&mut self) {
        let lineage = match self.rng.below(3) {
            // Nobody knows who asks.
            0 => Vec::new(),
            _ => self.process(),
        };
        let of_process = !lineage.is_empty() && self.rng.one_in(2);
        let process = lineage.first().copied().filter(|_| of_process);
        let call = CallStart {
            name: "call".into(),
            unsynced: self.rng.one_in(3),
            owner: process.map_or(Owner::Anybody, Owner::Process),
            lineage: lineage.clone(),
            ..CallStart::default()
        };
        self.calls.push(Known {
            id: verbs::call_start(&self.w, MAIN, call).unwrap(),
            process,
            lineage,
            begun: self.moment,
            ended: None,
            before: self.live.clone(),
            after: Files::new(),
            switched: false,
        });
    }

    /// A process that lives: one there is, or a new one that one of them started.
    fn process(&mut self) -> Vec<Process> {
        if !self.processes.is_empty() && self.rng.one_in(2) {
            return self.rng.pick(&self.processes).clone();
        }
        self.started += 1;
        let new = Process {
            pid: u32::try_from(self.started % 3).unwrap(),
            started: self.started,
            boot: 1,
        };
        let mut lineage = vec![new];
        if !self.processes.is_empty() && !self.rng.one_in(3) {
            lineage.extend(self.rng.pick(&self.processes).iter());
        }
        self.processes.push(lineage.clone());
        lineage
    }

    fn running(&self) -> Vec<usize> {
        let all = self.calls.iter().enumerate();
        all.filter(|(_, k)| k.ended.is_none())
            .map(|(n, _)| n)
            .collect()
    }

    fn over(&mut self, n: usize) {
        let call = &mut self.calls[n];
        (call.ended, call.after) = (Some(self.moment), self.live.clone());
        self.moment += 1;
    }

    fn finish(&mut self) {
        let running = self.running();
        let Some(last) = running.last().copied() else {
            return;
        };
        // Mostly the innermost, as calls inside calls do.
        let n = match self.rng.one_in(3) {
            true => *self.rng.pick(&running),
            false => last,
        };
        let outcome = CallOutcome::Success(None);
        verbs::call_finish(&self.w, MAIN, self.calls[n].id, outcome).unwrap();
        self.over(n);
    }

    fn die(&mut self) {
        if self.processes.is_empty() {
            return;
        }
        let at = self.rng.below(self.processes.len() as u64) as usize;
        let gone = self.processes.remove(at)[0];
        let ended = verbs::end_calls_of(&self.w, &|p| *p == gone).unwrap();
        let meant: Vec<usize> = self.running();
        let meant = meant
            .into_iter()
            .rev()
            .filter(|n| self.calls[*n].process == Some(gone));
        let meant: Vec<usize> = meant.collect();
        assert_eq!(ended, meant.len() as u64);
        meant.into_iter().for_each(|n| self.over(n));
    }

    fn write(&mut self) {
        let path = *self.rng.pick(&PATHS);
        if self.live.contains_key(path) && self.rng.one_in(4) {
            verbs::remove_path(&self.w, MAIN, path.as_bytes(), false).unwrap();
            self.live.remove(path);
        } else {
            // Nothing that was ever anywhere else.
            let text = format!("{:016x} {}\n", self.rng.next(), self.moment);
            write(&self.w, path, &text);
            self.live.insert(path.to_owned(), text);
        }
    }

    fn checkpoint(&mut self) {
        let ask = CheckpointRequest {
            message: "kept".into(),
            wait: true,
            ..CheckpointRequest::default()
        };
        verbs::checkpoint(&self.w, MAIN, ask, &|_, _| {}).unwrap();
        self.head = self.live.clone();
    }

    fn rollback(&mut self) {
        verbs::rollback(&self.w, MAIN, &Target::Head).unwrap();
        self.live = self.head.clone();
        self.switched();
    }

    /// Calls that run know of a switch, where there was one.
    fn switched(&mut self) {
        let now = all(&self.w).iter().filter(|i| i.switch.is_some()).count();
        if now > self.switches {
            self.switches = now;
            let running = self.calls.iter_mut().filter(|k| k.ended.is_none());
            running.for_each(|k| k.switched = true);
        }
    }

    /// The daemon goes away, in order or not.
    fn reopen(&mut self) {
        let image = |disk: &CrashStorage| disk.image_at(disk.op_count(), Policy::Keep, 1);
        let killed = self.rng.one_in(2).then(|| image(&self.disk));
        end(&self.engine);
        let disk = killed.unwrap_or_else(|| image(&self.disk));
        let (engine, w) = open(&disk, self.dir);
        (self.disk, self.engine, self.w) = (disk, engine, w);
        let running = verbs::running_calls(&self.w, MAIN).unwrap();
        let expected: Vec<u64> = self.running().iter().map(|n| self.calls[*n].id).collect();
        assert_eq!(running.iter().map(|c| c.id).collect::<Vec<_>>(), expected);
    }

    /// Whether it is certain what a call changed.
    fn certain(&self, call: &Known) -> bool {
        let Some(ended) = call.ended.filter(|_| !call.switched) else {
            return false;
        };
        let others = self.calls.iter().filter(|o| o.id != call.id);
        let doubtful = |other: &Known| {
            let end = other.ended.unwrap_or(usize::MAX);
            let together = call.begun < end && other.begun < ended;
            let later = if call.begun > other.begun {
                call
            } else {
                other
            };
            let first = if ended < end { call } else { other };
            let apart = !call.is_inside(other) && !other.is_inside(call);
            together && apart && later.before != first.after
        };
        !others.into_iter().any(doubtful)
    }

    /// What is there once a call was taken back; none where that conflicts with what was changed since.
    fn without(&self, call: &Known) -> Option<Files> {
        let mut files = self.live.clone();
        for path in PATHS {
            let [before, after, now] =
                [&call.before, &call.after, &self.live].map(|files| files.get(path));
            if before == after || now == before {
                continue;
            }
            if now != after {
                return None;
            }
            match before {
                Some(text) => files.insert(path.to_owned(), text.clone()),
                None => files.remove(path),
            };
        }
        Some(files)
    }

    fn undo(&mut self) {
        if self.calls.is_empty() {
            return;
        }
        let n = self.rng.below(self.calls.len() as u64) as usize;
        let call = &self.calls[n];
        let expected = self.certain(call).then(|| self.without(call));
        let done = verbs::undo_call(&self.w, MAIN, call.id, false);
        match (expected, done) {
            (None, Err(Error::CallUnknown { pending, .. })) => {
                let runs = |id: &u64| self.calls.iter().any(|k| k.id == *id && k.ended.is_none());
                assert!(pending.iter().all(runs), "{pending:?}");
            }
            (Some(None), Ok(done)) => assert!(!done.conflicts.is_empty(), "call {}", call.id),
            (Some(Some(files)), Ok(done)) => {
                assert_eq!(done.conflicts, [], "call {}", call.id);
                self.live = files;
            }
            (expected, done) => panic!("call {}: {done:?}, not {expected:?}", call.id),
        }
        self.switched();
    }

    /// What each call changed, and whether that is certain.
    fn check_all(&self) {
        self.w.settle().unwrap();
        for call in &self.calls {
            let doubt = verbs::call_doubt(&self.w, MAIN, call.id).unwrap();
            assert_eq!(
                doubt.is_none(),
                self.certain(call),
                "call {}: {doubt:?}",
                call.id
            );
            let item = verbs::call(&self.w, MAIN, call.id).unwrap();
            assert_eq!(item.completed.is_some(), call.ended.is_some());
            let inside = self.calls.iter().filter(|o| call.is_inside(o));
            let parent = call.ended.and_then(|_| inside.map(|o| o.id).max());
            assert_eq!(item.parent, parent, "parent of call {}", call.id);
            if call.ended.is_some() && !call.switched {
                let expected = difference(&call.before, &call.after);
                assert_eq!(changed(&self.w, call.id), expected, "call {}", call.id);
            }
        }
    }
}

#[test]
fn random_histories_are_told_as_they_were() {
    let seed = crate::rng::fresh_seed();
    let rounds = std::env::var("CALL_HISTORIES").ok();
    let rounds: u64 = rounds.map_or(12, |n| n.parse().unwrap());
    println!("seeds from {seed}; AGENTVFS_SEED={seed} makes this happen again");
    for seed in seed..seed + rounds {
        println!("seed {seed}");
        let dir = base();
        History::run(dir.path(), seed, 120);
    }
}
