//! Random histories of calls side by side whose processes change files, with changes of which nobody knows, undos and
//! restarts between; whether each call is certain, what `tool diff` shows of it, and whom `blame` names, against an
//! oracle that knows who did what.
//!
//! `AGENTVFS_SEED` makes a run happen again, `BESIDE_HISTORIES` sets how many there are.
#![allow(clippy::unwrap_used)]

use crate::calls::*;
use crate::rng::Rng;
use engine::verbs;
use engine::{CallStart, DiffSide, Engine, Error, Owner, Process, Workspace, acting_as};
use objstore::crash_storage::CrashStorage;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

const PATHS: [&str; 7] = ["a", "b", "c", "d/a", "d/b", "e/a", "e/b"];

/// Paths and what is in them.
type Files = BTreeMap<String, String>;

/// Something that was done to paths.
struct Done {
    moment: usize,
    /// The call whose process did it, where that is known.
    call: Option<u64>,
    paths: Vec<String>,
}

/// A call as the oracle knows it.
struct Known {
    id: u64,
    process: Process,
    begun: usize,
    ended: Option<usize>,
    before: Files,
    after: Files,
    switched: bool,
}

impl Known {
    fn runs_at(&self, moment: usize) -> bool {
        self.begun < moment && self.ended.is_none_or(|end| moment < end)
    }

    fn overlaps(&self, other: &Known) -> bool {
        let end = |k: &Known| k.ended.unwrap_or(usize::MAX);
        self.id != other.id && self.begun < end(other) && other.begun < end(self)
    }
}

struct History<'a> {
    dir: &'a Path,
    rng: Rng,
    disk: CrashStorage,
    engine: Arc<Engine>,
    w: Arc<Workspace>,
    live: Files,
    calls: Vec<Known>,
    done: Vec<Done>,
    moment: usize,
    restarts: Vec<usize>,
}

fn difference(from: &Files, to: &Files) -> BTreeSet<String> {
    let paths = from.keys().chain(to.keys());
    paths
        .filter(|path| from.get(*path) != to.get(*path))
        .cloned()
        .collect()
}

impl History<'_> {
    fn next(&mut self) -> usize {
        self.moment += 1;
        self.moment
    }

    fn begin(&mut self) {
        let moment = self.next();
        let process = Process {
            pid: moment as u32,
            started: 1,
            boot: 1,
        };
        let call = CallStart {
            name: format!("call-{moment}"),
            unsynced: true,
            owner: Owner::Process(process),
            lineage: vec![process],
            ..CallStart::default()
        };
        let id = verbs::call_start(&self.w, MAIN, call).unwrap();
        println!("{moment}: call {id} begins");
        self.calls.push(Known {
            id,
            process,
            begun: moment,
            ended: None,
            before: self.live.clone(),
            after: Files::new(),
            switched: false,
        });
    }

    fn running(&self) -> Vec<usize> {
        let all = self.calls.iter().enumerate();
        all.filter(|(_, c)| c.ended.is_none())
            .map(|(n, _)| n)
            .collect()
    }

    fn end_one(&mut self) {
        let running = self.running();
        if running.is_empty() {
            return;
        }
        let (n, moment) = (*self.rng.pick(&running), self.next());
        let call = &mut self.calls[n];
        println!("{moment}: call {} ends", call.id);
        (call.ended, call.after) = (Some(moment), self.live.clone());
        finish(&self.w, call.id);
    }

    /// Changes something for a call that runs, or for nobody.
    fn change(&mut self) {
        let (moment, running) = (self.next(), self.running());
        let by = match running.is_empty() || self.rng.one_in(30) {
            true => None,
            false => Some(*self.rng.pick(&running)),
        };
        let lineage: Vec<Process> = by.map(|n| self.calls[n].process).into_iter().collect();
        let path = self.rng.pick(&PATHS).to_string();
        let to = self.rng.pick(&PATHS).to_string();
        let there = self.live.contains_key(&path);
        let w = self.w.clone();
        let mut paths = vec![path.clone()];
        match self.rng.below(6) {
            0 if there => {
                acting_as(&lineage, || {
                    verbs::remove_path(&w, MAIN, path.as_bytes(), false).unwrap()
                });
                self.live.remove(&path);
            }
            1 if there && path != to => {
                acting_as(&lineage, || rename_on(&w, MAIN, &path, &to));
                let text = self.live.remove(&path).unwrap();
                self.live.insert(to.clone(), text);
                paths.push(to);
            }
            _ => {
                let text = format!("{moment}\n").repeat(moment % 5 + 1);
                acting_as(&lineage, || write(&w, &path, &text));
                self.live.insert(path, text);
            }
        }
        let call = by.map(|n| self.calls[n].id);
        println!("{moment}: {paths:?} by {call:?}");
        self.done.push(Done {
            moment,
            call,
            paths,
        });
    }

    fn restart(&mut self) {
        let moment = self.next();
        println!("{moment}: restart");
        self.restarts.push(moment);
        end(&self.engine);
        (self.engine, self.w) = open(&self.disk, self.dir);
    }

    /// What a call changed, where that is certain.
    fn own(&self, call: &Known) -> Option<BTreeSet<String>> {
        let (begun, end) = (call.begun, call.ended?);
        if call.switched {
            return None;
        }
        let all = difference(&call.before, &call.after);
        let beside: Vec<&Known> = self.calls.iter().filter(|c| call.overlaps(c)).collect();
        // Nothing changed while it ran together with any of them.
        let idle = |other: &&Known| {
            let later = if other.begun > begun { *other } else { call };
            let first_to_end = match other.ended {
                Some(theirs) if theirs < end => other,
                _ => call,
            };
            later.before == first_to_end.after
        };
        if beside.iter().all(idle) {
            return Some(all);
        }
        let unknown = |at: &usize| call.runs_at(*at) && beside.iter().any(|c| c.runs_at(*at));
        // What was known of both went with the memory.
        let lost = |at: &usize| call.runs_at(*at) && beside.iter().any(|c| c.begun < *at);
        if self.restarts.iter().any(lost) {
            return None;
        }
        let mut theirs: BTreeSet<&String> = BTreeSet::new();
        let mut own: BTreeSet<&String> = BTreeSet::new();
        for done in self.done.iter().filter(|d| unknown(&d.moment)) {
            match done.call? == call.id {
                true => own.extend(&done.paths),
                false => theirs.extend(&done.paths),
            }
        }
        let alone = self.alone(call, &beside);
        own.extend(&alone);
        if own.intersection(&theirs).next().is_some() {
            return None;
        }
        Some(
            all.into_iter()
                .filter(|path| !theirs.contains(path))
                .collect(),
        )
    }

    /// Paths that were others after a time in which a call ran alone than before it.
    fn alone(&self, call: &Known, beside: &[&Known]) -> BTreeSet<String> {
        let mut marks: Vec<(usize, i32, &Files)> = Vec::new();
        let mut running = 0;
        for other in beside {
            match other.begun < call.begun {
                true => running += 1,
                false => marks.push((other.begun, 1, &other.before)),
            }
            if let Some(end) = other.ended.filter(|end| Some(*end) < call.ended) {
                marks.push((end, -1, &other.after));
            }
        }
        marks.push((call.ended.unwrap(), 1, &call.after));
        marks.sort_by_key(|(moment, ..)| *moment);
        let (mut found, mut at) = (BTreeSet::new(), &call.before);
        for (_, step, files) in marks {
            if running == 0 {
                found.extend(difference(at, files));
            }
            running += step;
            at = files;
        }
        found
    }

    /// What `tool diff` shows of a call; nothing where it is not certain.
    fn told(&self, id: u64) -> Option<BTreeSet<String>> {
        let item = verbs::call_with_commits(&self.w, MAIN, id).unwrap();
        if verbs::call_doubt(&self.w, MAIN, id).unwrap().is_some() {
            return None;
        }
        let before = verbs::call_own_before(&self.w, MAIN, id).unwrap();
        let before = before.or(item.before.unwrap().commit);
        let side = |commit: Option<engine::CommitId>| DiffSide::Ref(commit.unwrap().to_string());
        let (from, to) = (side(before), side(item.after.unwrap().commit));
        let changes = verbs::diff(&self.w, MAIN, &from, &to, &[]).unwrap();
        let paths = changes.into_iter().flat_map(|c| [Some(c.path), c.old_path]);
        let text = |path: Vec<u8>| String::from_utf8(path).unwrap();
        Some(paths.flatten().map(text).collect())
    }

    /// Takes back the call that ended last, where that is certain.
    fn undo(&mut self) {
        let ended = self.calls.iter().filter(|c| c.ended.is_some());
        let Some(last) = ended.max_by_key(|c| c.ended) else {
            return;
        };
        if last.ended != Some(self.moment) {
            return;
        }
        let (id, own, before) = (last.id, self.own(last), last.before.clone());
        let undone = verbs::undo_call(&self.w, MAIN, id, false);
        let Some(own) = own else {
            assert!(
                matches!(undone, Err(Error::CallUnknown { .. })),
                "{id}: {undone:?}"
            );
            return;
        };
        assert_eq!(undone.unwrap().conflicts, [], "call {id}");
        let moment = self.next();
        println!("{moment}: call {id} is taken back");
        for path in &own {
            match before.get(path) {
                Some(text) => drop(self.live.insert(path.clone(), text.clone())),
                None => drop(self.live.remove(path)),
            }
        }
        if !own.is_empty() {
            let running = self.calls.iter_mut().filter(|c| c.ended.is_none());
            running.for_each(|c| c.switched = true);
        }
    }

    fn step(&mut self) {
        match self.rng.below(24) {
            0..=3 if self.running().len() < 4 => self.begin(),
            4..=6 => {
                self.end_one();
                if self.rng.one_in(4) {
                    self.undo();
                }
            }
            7 if self.rng.one_in(5) => self.restart(),
            _ => self.change(),
        }
    }

    fn check(&self) {
        for (path, text) in &self.live {
            assert_eq!(read(&self.w, path), *text, "{path}");
        }
        let ended = || self.calls.iter().filter(|c| c.ended.is_some());
        let own: BTreeMap<u64, _> = ended().map(|c| (c.id, self.own(c))).collect();
        for (id, own) in &own {
            assert_eq!(self.told(*id), *own, "call {id}");
        }
        for path in PATHS {
            let query = engine::BlameQuery {
                limit: 1000,
                follow: false,
            };
            let items = match verbs::blame_as(&self.w, MAIN, path.as_bytes(), query) {
                Ok(blame) => blame.items,
                Err(Error::NoSuchPath(_)) => Vec::new(),
                Err(e) => panic!("{path}: {e}"),
            };
            let rows = items.into_iter().filter(|i| i.kind == "call");
            let rows: BTreeMap<u64, Vec<u64>> =
                rows.map(|i| (i.call.unwrap(), i.overlaps)).collect();
            for (id, own) in &own {
                if let Some(own) = own {
                    assert_eq!(
                        rows.contains_key(id),
                        own.contains(path),
                        "{path}, call {id}"
                    );
                }
            }
        }
        verified(&self.w);
    }
}

#[test]
fn whose_each_change_was_is_told_where_it_is_known() {
    let first = crate::rng::fresh_seed();
    let count = std::env::var("BESIDE_HISTORIES")
        .ok()
        .and_then(|n| n.parse().ok());
    for seed in first..first + count.unwrap_or(12) {
        println!("seed {seed}");
        let dir = base();
        let (disk, engine, w) = start(dir.path());
        write(&w, "d/stays", "1\n");
        write(&w, "e/stays", "1\n");
        let mut history = History {
            dir: dir.path(),
            rng: Rng(seed),
            disk,
            engine,
            w,
            live: Files::new(),
            calls: Vec::new(),
            done: Vec::new(),
            moment: 0,
            restarts: Vec::new(),
        };
        for _ in 0..80 {
            history.step();
        }
        while !history.running().is_empty() {
            history.end_one();
        }
        history.check();
        end(&history.engine);
    }
}
