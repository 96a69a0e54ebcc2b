//! Power cuts around the first denial of a rule that counts: whoever is told of it finds what was there before.

use super::{W, judge, set};
use crate::common::by_path::{find, mkdir, root, text, write};
use crate::common::watched::world as watched;
use crate::common::world::{MAIN, World};
use engine::feed::{FeedOp, Follower};
use engine::judge::Sentence;
use engine::{LogEntry, Target, Workspace, errno, verbs};
use objstore::crash_storage::{CrashStorage, Policy};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Files that are removed before the rule denies.
const ALLOWED: usize = 3;
const FILES: usize = 6;

/// The moments, in operations of the disk, at which it was first seen that somebody is told.
#[derive(Debug, Default)]
struct Told {
    follower: Option<Follower>,
    event: Option<usize>,
    error: Option<usize>,
    begun: usize,
}

impl Told {
    /// Looks whether the event is there, `at` a moment.
    fn look(&mut self, at: usize) {
        let Some(follower) = &mut self.follower else {
            return;
        };
        let batch = follower.next(1000, Duration::ZERO);
        let mut events = batch.events.iter();
        if self.event.is_none() && events.any(|event| event.op == FeedOp::Verdict) {
            self.event = Some(at);
        }
    }
}

/// Removes files until a rule denies that, on a disk that logs.
fn denied(base: &Path) -> (CrashStorage, Told) {
    let disk = CrashStorage::new();
    let told = Arc::new(Mutex::new(Told::default()));
    let (at, seen) = (disk.clone(), told.clone());
    let look = move |_, _: &str| {
        seen.lock().unwrap().look(at.op_count());
        Ok(())
    };
    let mut world = watched(disk.clone(), Arc::new(look), base);
    let w = world.w();
    mkdir(w, MAIN, "d");
    for n in 0..FILES {
        write(
            w,
            MAIN,
            &format!("d/{n}"),
            format!("content {n}").as_bytes(),
        );
    }
    w.fsync(root(w, MAIN)).unwrap();
    set(w, &judge(Sentence::Deny(errno::EACCES), ALLOWED));
    let d = find(w, MAIN, "d").unwrap();
    {
        let mut told = told.lock().unwrap();
        told.follower = Some(w.feed().follow(None));
        told.begun = disk.op_count();
    }
    for n in 0..FILES {
        let done = w.unlink(d, n.to_string().as_bytes(), W);
        assert_eq!(done.is_ok(), n < ALLOWED, "{n}");
        let mut told = told.lock().unwrap();
        told.look(disk.op_count());
        if done.is_err() && told.error.is_none() {
            told.error = Some(disk.op_count());
        }
    }
    let told = std::mem::take(&mut *told.lock().unwrap());
    world.end();
    (disk, told)
}

fn of_rule(w: &Workspace) -> Vec<LogEntry> {
    let log = verbs::log(w, MAIN, true).unwrap();
    let is_it = |e: &LogEntry| e.meta.contains(&("policy-rule".into(), "test".into()));
    log.into_iter().filter(is_it).collect()
}

/// What a cut left shows the changes up to some moment, and has the commit, if there is one, as it was before them; gives
/// whether there is one.
fn check(world: &World) -> bool {
    let w = world.w();
    let is_there = |n: &usize| find(w, MAIN, &format!("d/{n}")).is_ok();
    let gone = (0..FILES).take_while(|n| !is_there(n)).count();
    assert!(gone <= ALLOWED, "{gone} files are gone");
    assert_eq!((gone..FILES).filter(is_there).count(), FILES - gone);
    w.settle().unwrap();
    let kept = of_rule(w);
    assert!(kept.len() < 2, "{kept:?}");
    let Some(commit) = kept.first() else {
        return false;
    };
    assert_eq!(gone, ALLOWED, "the commit is of a time after the changes");
    let id = commit.commit.unwrap().to_string();
    verbs::rollback(w, MAIN, &Target::Ref(id)).unwrap();
    for n in 0..FILES {
        assert_eq!(text(w, MAIN, &format!("d/{n}")), format!("content {n}"));
    }
    true
}

#[test]
fn whoever_is_told_of_a_first_denial_finds_the_commit_after_a_power_cut() {
    let base = tempfile::tempdir().unwrap();
    let (disk, told) = denied(base.path());
    let (event, error) = (told.event.unwrap(), told.error.unwrap());
    let first = event.min(error);
    assert!(first > told.begun);
    let mut without = 0;
    for cut in told.begun..=disk.op_count() {
        for (policy, seed) in Policy::ALL.into_iter().zip(1..) {
            let image = disk.image_at(cut, policy, seed);
            let world = World::try_open(image, base.path()).unwrap();
            let is_kept = check(&world);
            without += u32::from(!is_kept);
            assert!(
                is_kept || cut < first,
                "cut at {cut}, {policy:?}: nothing is kept, and it was told at {first}"
            );
        }
    }
    assert!(without > 0, "no cut came before the commit");
}
