//! What takes long says how far it is, and ends where it is cancelled.
#![allow(clippy::unwrap_used)]

use crate::common::damaged::{checkpoint, put_in, root_of};
use crate::common::world::{MAIN, World};
use engine::merge::Outcome;
use engine::verbs;
use engine::*;
use objstore::crash_storage::CrashStorage;
use std::cell::RefCell;

const W: Wait = Wait::Allowed;
/// Files that are changed.
const FILES: u64 = 200;

/// A branch whose files differ from its checkpoint `one`.
fn world() -> (tempfile::TempDir, World) {
    let base = tempfile::tempdir().unwrap();
    let world = World::on_disk(CrashStorage::new(), base.path());
    for n in 0..FILES {
        put_in(&world, MAIN, &format!("f{n}"), b"1");
    }
    checkpoint(&world, MAIN, "one");
    for n in 0..FILES {
        change(&world, &format!("f{n}"), b"2");
    }
    (base, world)
}

fn change(world: &World, name: &str, text: &[u8]) {
    let root = root_of(world, MAIN);
    let node = world.w().lookup(root, name.as_bytes(), W).unwrap().node;
    let flags = WriteFlags::default();
    world.w().write(node, 0, text, flags, W).unwrap();
}

/// Collects what is heard while something is done.
fn heard(work: impl FnOnce(&dyn Fn(u64, u64))) -> Vec<(u64, u64)> {
    let heard = RefCell::new(Vec::new());
    work(&|done, total| heard.borrow_mut().push((done, total)));
    heard.into_inner()
}

/// It goes up, and is told more than once, of all files.
fn goes_up(heard: &[(u64, u64)]) {
    assert!(heard.len() > 1, "{heard:?}");
    assert!(heard.is_sorted(), "{heard:?}");
    assert!(
        heard.iter().all(|(done, all)| done < all && *all >= FILES),
        "{heard:?}"
    );
}

#[test]
fn a_rollback_an_undo_and_a_redo_of_many_files_say_how_far_they_are() {
    let (_base, world) = world();
    let w = world.w();
    let to = Target::Ref("one".into());
    goes_up(&heard(|progress| {
        let back = verbs::rollback_with(w, MAIN, &to, false, progress).unwrap();
        assert_eq!(back.files_changed, FILES);
    }));
    goes_up(&heard(|progress| {
        verbs::undo_with(w, MAIN, false, progress).unwrap();
    }));
    goes_up(&heard(|progress| {
        verbs::redo_with(w, MAIN, progress).unwrap();
    }));
}

#[test]
fn a_restore_of_many_paths_says_how_far_it_is() {
    let (_base, world) = world();
    let paths: Vec<Vec<u8>> = (0..FILES).map(|n| format!("f{n}").into_bytes()).collect();
    let to = Target::Ref("one".into());
    goes_up(&heard(|progress| {
        verbs::restore_with(world.w(), MAIN, &to, &paths, progress).unwrap();
    }));
}

#[test]
fn a_check_that_is_cancelled_ends_and_the_next_one_is_whole() {
    let (_base, world) = world();
    let cancel = Cancel::new();
    assert!(cancel.cancel());
    let ended = world.engine.fsck_unless(&|_, _| (), &cancel);
    assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
    let report = world.engine.fsck(&|_, _| ()).unwrap();
    assert!(
        report.findings.is_empty() && report.records > 0 && report.commits > 0,
        "{report:?}"
    );
}

/// What was heard, cut where the count begins again, of parts that count all files.
fn parts(heard: &[(u64, u64)]) -> Vec<&[(u64, u64)]> {
    let parts = heard.chunk_by(|a, b| a.1 == b.1 && a.0 <= b.0);
    parts.filter(|part| part[0].1 >= FILES).collect()
}

#[test]
fn an_apply_says_how_far_each_of_its_parts_is() {
    let (_base, world) = world();
    let request = ApplyRequest {
        branch: MAIN.to_owned(),
        dry_run: false,
        privileged: false,
        trust: true,
        in_use: false,
    };
    let apply = || {
        heard(|progress| {
            let done = verbs::apply(world.w(), &request, progress).unwrap();
            assert_eq!(done.outcome, Outcome::Merged);
        })
    };
    // Files are made, and moved to their places.
    let first = apply();
    assert!(parts(&first).len() >= 2, "{first:?}");
    for n in 0..FILES {
        change(&world, &format!("f{n}"), b"3");
    }
    // Now there is something to compare with.
    let second = apply();
    assert!(parts(&second).len() >= 3, "{second:?}");
    for part in parts(&first).into_iter().chain(parts(&second)) {
        goes_up(part);
    }
}
