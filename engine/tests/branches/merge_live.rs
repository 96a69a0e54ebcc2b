//! Merges of live branches: what is written beside them, and what a crash and gc leave of their conflicts.
#![allow(clippy::unwrap_used)]

use crate::common::by_path::{at, checkpoint, gc, merge as merged, read, text, write};
use crate::common::watched::{self, Act};
use crate::common::world::World;
use engine::verbs;
use engine::*;
use objstore::crash_storage::CrashStorage;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

fn base() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("text"), "one\ntwo\nthree\nfour\nfive\n").unwrap();
    dir
}

fn world(base: &Path) -> World {
    World::on_disk(CrashStorage::new(), base)
}

/// Writes that come while a merge syncs the store: what it merged is frozen by then, and not shown yet.
#[derive(Default)]
struct Late {
    w: Mutex<Weak<Workspace>>,
    left: AtomicUsize,
}

impl Late {
    fn sync_begins(&self) {
        let Some(w) = self.w.lock().unwrap().upgrade() else {
            return;
        };
        let took = |n: usize| n.checked_sub(1);
        let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
        if let Ok(n) = self.left.fetch_update(set, get, took) {
            let lines = format!("one\ntwo\nthree\nfour\nlate {n}\n");
            write(&w, MAIN, "text", lines.as_bytes());
            write(&w, MAIN, &format!("new {n}"), b"made late");
        }
    }
}

#[test]
fn what_is_written_between_freezing_and_showing_is_merged_too() {
    let (base, late) = (base(), Arc::new(Late::default()));
    let hand = late.clone();
    let before = Arc::new(move |act, path: &str| {
        if act == Act::Sync && path.starts_with("packs/") {
            hand.sync_begins();
        }
        Ok(())
    });
    let world = watched::world(CrashStorage::new(), before, base.path());
    let w = world.w();
    checkpoint(w, MAIN, "start");
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    write(w, "b", "text", b"ONE\ntwo\nthree\nfour\nfive\n");
    write(w, MAIN, "own", b"main is no ancestor of b");
    *late.w.lock().unwrap() = Arc::downgrade(&world.shared());
    // Once: later writes wait for the merge, and so would this thread, which makes it.
    late.left.store(1, Ordering::SeqCst);
    let done = merged(w, "b", MAIN);
    let left = late.left.swap(0, Ordering::SeqCst);
    assert_eq!(left, 0, "nothing came late");
    assert_eq!(done.conflicts, []);
    assert_eq!(text(w, MAIN, "text"), "ONE\ntwo\nthree\nfour\nlate 1\n");
    assert_eq!(text(w, MAIN, "new 1"), "made late");
}

/// Two branches that both changed line two, merged into main; the conflict is open.
fn in_conflict(world: &World) {
    let w = world.w();
    checkpoint(w, MAIN, "start");
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    write(w, MAIN, "text", b"one\nOURS\nthree\nfour\nfive\n");
    write(w, "b", "text", b"one\nTHEIRS\nthree\nfour\nfive\n");
    verbs::kv_set(w, MAIN, "key", "\"ours\"").unwrap();
    verbs::kv_set(w, "b", "key", "\"theirs\"").unwrap();
    assert_eq!(merged(w, "b", MAIN).conflicts.len(), 2);
}

#[test]
fn conflicts_of_a_merge_outlast_kills_and_can_be_settled_then() {
    for sealed in [false, true] {
        let base = base();
        let mut world = world(base.path());
        in_conflict(&world);
        let before = verbs::conflicts(world.w(), MAIN).unwrap();
        if sealed {
            world.w().seal().unwrap();
        }
        for _ in 0..2 {
            world.kill().unwrap();
            assert_eq!(
                verbs::conflicts(world.w(), MAIN).unwrap(),
                before,
                "{sealed}"
            );
        }
        let settle = |w: &Workspace| verbs::resolve_conflict(w, MAIN, b"text", Resolution::Theirs);
        assert_eq!(settle(world.w()).unwrap().0, 1);
        let lines = "one\nTHEIRS\nthree\nfour\nfive\n";
        assert_eq!(text(world.w(), MAIN, "text"), lines);
        world.kill().unwrap();
        assert_eq!(
            verbs::conflicts(world.w(), MAIN).unwrap().len(),
            1,
            "{sealed}"
        );
        assert_eq!(text(world.w(), MAIN, "text"), lines);
    }
}

/// A conflict whose common ancestor is merged of two, that are in conflict themselves: it is in no commit.
fn criss_cross(world: &World) -> Vec<merge::Conflict> {
    let w = world.w();
    checkpoint(w, MAIN, "start");
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    let with = |second: &str| format!("one\n{second}\nthree\nfour\nfive\n").into_bytes();
    write(w, MAIN, "text", &with("A"));
    checkpoint(w, MAIN, "a");
    verbs::create_branch(w, "a", MAIN, None).unwrap();
    write(w, "b", "text", &with("B"));
    checkpoint(w, "b", "b");
    assert_eq!(merged(w, "b", MAIN).conflicts.len(), 1);
    assert_eq!(merged(w, "a", "b").conflicts.len(), 1);
    write(w, MAIN, "text", &with("OURS"));
    write(w, "b", "text", &with("THEIRS"));
    checkpoint(w, MAIN, "ours");
    checkpoint(w, "b", "theirs");
    let conflicts = merged(w, "b", MAIN).conflicts;
    assert_eq!(conflicts.len(), 1);
    conflicts
}

#[test]
fn gc_keeps_what_only_the_virtual_ancestor_of_a_conflict_holds() {
    let base = base();
    let mut world = world(base.path());
    let conflicts = criss_cross(&world);
    assert!(conflicts[0].base.is_some());
    gc(&world);
    world.w().seal().unwrap();
    world.kill().unwrap();
    gc(&world);
    world.close(CloseMode::NoCheckpoint).unwrap();
    gc(&world);
    world.reopen().unwrap();
    let w = world.w();
    verbs::resolve_conflict(w, MAIN, b"text", Resolution::Base).unwrap();
    let base = text(w, MAIN, "text");
    let parts = base.contains("A\n") && base.contains("two\n") && base.contains("B\n");
    assert!(parts && base.contains("<<<<"), "{base}");
    // It is in no commit, so nothing but the conflict kept it.
    for label in ["a", "b:b", "ours", "b:theirs"] {
        verbs::rollback(w, MAIN, &at(label)).unwrap();
        assert_ne!(read(w, MAIN, "text").unwrap(), base.as_bytes(), "{label}");
    }
}
