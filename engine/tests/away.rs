//! A workspace whose directories come from elsewhere when they are looked into is the one that has them all: the same
//! random steps on both, compared after each.
#![allow(clippy::unwrap_used)]

mod common;

use common::away::{Step, W, carry_out, copy, origin, seen, step, workspace};
use common::by_path;
use common::rng::Rng;
use common::world::{MAIN, World};
use engine::verbs::{self, MergeRequest, remotes};
use engine::{Cancel, CloseMode, CommitId, NodeId, RenameFlags, Target, Workspace};
use objstore::exchange::commit_key;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

fn run(seed: u64, steps: usize) {
    let base = tempfile::tempdir().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let (_origin, other, id) = origin(base.path());
    let mut lazy = workspace(empty.path(), &other, id, true);
    let mut whole = workspace(empty.path(), &other, id, false);
    let mut rng = Rng(seed);
    let mut labels = vec![id.to_string()];
    let mut done = Vec::new();
    for number in 0..steps {
        let step = step(&mut rng, number, &labels);
        done.push(step.clone());
        println!("{step:?}");
        let results = [&mut lazy, &mut whole].map(|world| carry_out(world, &step));
        // Another engine, which knows nobody yet; it was opened without.
        lazy.engine.objects().set_elsewhere(Some(other.clone()));
        assert_eq!(results[0], results[1], "seed {seed}, {step:?} of {done:#?}");
        if let Step::Checkpoint(label) = step {
            labels.push(label);
        }
    }
    let check = |lazy: &World, whole: &World| {
        // A file has as many names as are known: all of them once all directories are.
        seen(lazy.w());
        let (a, b) = (seen(lazy.w()), seen(whole.w()));
        for (path, entry) in &b {
            let path_shown = String::from_utf8_lossy(path);
            assert_eq!(
                a.get(path),
                Some(entry),
                "seed {seed}, {path_shown} after {done:#?}"
            );
        }
        assert_eq!(a.len(), b.len(), "seed {seed}");
    };
    check(&lazy, &whole);
    for world in [&mut lazy, &mut whole] {
        carry_out(world, &Step::Reopen).unwrap();
    }
    lazy.engine.objects().set_elsewhere(Some(other.clone()));
    check(&lazy, &whole);
    carry_out(&mut lazy, &Step::Collect).unwrap();
}

#[test]
fn a_lazy_workspace_is_the_whole_one() {
    let seeds: Vec<u64> = match std::env::var("AGENTVFS_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..40).collect(),
    };
    for seed in seeds {
        println!("AGENTVFS_SEED={seed}");
        run(seed, 40);
    }
}

#[test]
fn nothing_is_brought_before_it_is_looked_at_and_opening_needs_nobody() {
    let base = tempfile::tempdir().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let (_origin, other, id) = origin(base.path());
    let brought = || other.brought.load(Ordering::Relaxed);
    let mut lazy = workspace(empty.path(), &other, id, true);
    assert_eq!(brought(), 0);
    let root = NodeId::ROOT;
    lazy.w().lookup(root, b"d1", W).unwrap();
    assert_eq!(brought(), 1);
    // A directory that was never looked into is moved and committed as it is.
    let flags = RenameFlags::default();
    lazy.w()
        .rename(root, b"d2", root, b"moved", flags, W)
        .unwrap();
    by_path::checkpoint(lazy.w(), MAIN, "moved");
    assert_eq!(brought(), 1);
    other.is_away.store(true, Ordering::Relaxed);
    lazy.kill().unwrap();
    lazy.close(CloseMode::Checkpoint).unwrap();
    lazy.reopen().unwrap();
    lazy.engine.objects().set_elsewhere(Some(other.clone()));
    let nothing = by_path::read(lazy.w(), MAIN, "moved/s0/f0").unwrap_err();
    assert_eq!(nothing.errno(), 5, "{nothing}");
    by_path::write(lazy.w(), MAIN, "own", b"own\n");
    by_path::checkpoint(lazy.w(), MAIN, "own");
    other.is_away.store(false, Ordering::Relaxed);
    assert_eq!(
        by_path::text(lazy.w(), MAIN, "moved/s0/f0"),
        "2 0 0\n".repeat(50)
    );
    // A file that has names in directories that are not known is changed once all are.
    by_path::write(lazy.w(), MAIN, "d4/linked", b"changed\n");
    assert_eq!(by_path::text(lazy.w(), MAIN, "d3/s1/linked"), "changed\n");
}

/// While `switch` makes the tree of a commit of `origin/main`, a directory that both have comes into those that there are: afterwards
/// it has the entries and the numbers that it came with.
fn comes_meanwhile(switch: fn(&Workspace)) {
    let base = tempfile::tempdir().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let (origin, other, first) = origin(base.path());
    by_path::write(origin.w(), MAIN, "d2/s0/f0", b"second\n");
    let second = by_path::checkpoint(origin.w(), MAIN, "second");
    let lazy = workspace(empty.path(), &other, first, true);
    let from = other.engine.objects();
    copy(from, lazy.engine.objects(), &commit_key(&second), false);
    fetched(lazy.w(), second);
    // What differs is here, so nothing of the new tree is made twice; the entries of `d1` are not.
    assert_eq!(
        by_path::text(lazy.w(), MAIN, "d2/s0/f0"),
        "2 0 0\n".repeat(50)
    );
    let root = NodeId::ROOT;
    let d1 = lazy.w().lookup(root, b"d1", W).unwrap().node;

    let (came, number) = channel();
    let w = lazy.shared();
    let look = move || came.send(w.lookup(d1, b"s0", W).unwrap().node).unwrap();
    *other.when_brought.lock() = Some(Box::new(look));
    switch(lazy.w());
    let number = number.try_recv().unwrap();

    // Who finds the directory away, and that it came already, asks for it again and again.
    let (done, seen) = channel();
    let w = lazy.shared();
    std::thread::spawn(move || {
        let d1 = w.lookup(root, b"d1", W).unwrap().node;
        let s0 = w.lookup(d1, b"s0", W).unwrap().node;
        let read = |path: &str| by_path::text(&w, MAIN, path);
        done.send((s0, read("d1/s0/f0"), read("d2/s0/f0"))).unwrap();
    });
    let seen = seen.recv_timeout(Duration::from_secs(30));
    let seen = seen.unwrap_or_else(|why| panic!("the directory is away for ever: {why}"));
    let unchanged = "1 0 0\n".repeat(50);
    assert_eq!(seen, (number, unchanged, "second\n".to_owned()));
}

#[test]
fn a_directory_that_comes_while_a_rollback_is_prepared_is_the_same_after_it() {
    comes_meanwhile(|w| {
        verbs::rollback(w, MAIN, &Target::Ref("origin/main".into())).unwrap();
    });
}

#[test]
fn a_directory_that_comes_while_a_merge_is_prepared_is_the_same_after_it() {
    comes_meanwhile(|w| {
        let request = MergeRequest {
            from: "origin/main".into(),
            into: MAIN.into(),
            keep_conflicts: false,
            dry_run: false,
            label: None,
            message: String::new(),
        };
        remotes::merge_tracking(w, &request, &|_, _| {}, &Cancel::new()).unwrap();
    });
}

/// Notes that the branch `main` of a remote has a commit.
fn fetched(w: &Workspace, commit: CommitId) {
    let remote = remotes::RemoteConfig {
        name: "origin".into(),
        url: "file:///nowhere".into(),
        project: "project".into(),
        options: BTreeMap::new(),
    };
    remotes::add_remote(w, remote).unwrap();
    let incoming = remotes::Incoming {
        commit,
        labels: BTreeMap::new(),
        timelines: Vec::new(),
    };
    remotes::set_tracking(w, "origin", MAIN, &incoming).unwrap();
}
