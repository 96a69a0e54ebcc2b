//! A tool call with what it changes costs one sync, that of its end, after which all of it survives a power cut.
#![allow(clippy::unwrap_used)]

use crate::common::watched::{Act, world as watched};
use crate::common::world::World;
use engine::verbs;
use engine::*;
use objstore::crash_storage::{CrashStorage, Policy};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A world, and how many syncs there were.
fn counted(base: &tempfile::TempDir, disk: &CrashStorage) -> (World, Arc<AtomicUsize>) {
    let syncs = Arc::new(AtomicUsize::new(0));
    let count = syncs.clone();
    let counting = move |act, _: &str| {
        count.fetch_add(usize::from(act == Act::Sync), Ordering::SeqCst);
        Ok(())
    };
    let world = watched(disk.clone(), Arc::new(counting), base.path());
    world.w().settle().unwrap();
    (world, syncs)
}

fn start(w: &Workspace) -> u64 {
    let call = CallStart {
        name: "write_file".into(),
        unsynced: true,
        ..CallStart::default()
    };
    verbs::call_start(w, MAIN, call).unwrap()
}

fn write(w: &Workspace, text: &str, unsynced: bool) {
    let part = WriteFile {
        path: b"dir/file".to_vec(),
        offset: Some(0),
        data: text.into(),
        last: true,
        unsynced,
        perm: 0o644,
        parents: true,
    };
    verbs::write_file(w, MAIN, &Caller::default(), &part).unwrap();
}

#[test]
fn a_call_with_its_changes_costs_one_sync() {
    let (base, disk) = (tempfile::tempdir().unwrap(), CrashStorage::new());
    let (world, syncs) = counted(&base, &disk);
    let w = world.w();
    for round in 0..5 {
        let before = syncs.load(Ordering::SeqCst);
        let id = start(w);
        write(w, &format!("text {round}"), true);
        verbs::kv_set_unsynced(w, MAIN, "key", &round.to_string()).unwrap();
        assert_eq!(
            syncs.load(Ordering::SeqCst),
            before,
            "nothing is waited for"
        );
        verbs::call_finish(w, MAIN, id, CallOutcome::Success(None)).unwrap();
        assert_eq!(syncs.load(Ordering::SeqCst), before + 1);
    }
    // Beside it, what waits each time.
    let before = syncs.load(Ordering::SeqCst);
    write(w, "synced", false);
    verbs::kv_set(w, MAIN, "key", "9").unwrap();
    assert_eq!(syncs.load(Ordering::SeqCst), before + 2);
}

#[test]
fn once_the_end_of_a_call_is_told_its_changes_survive_a_power_cut() {
    let (base, disk) = (tempfile::tempdir().unwrap(), CrashStorage::new());
    let (world, _) = counted(&base, &disk);
    let w = world.w();
    let id = start(w);
    write(w, "text", true);
    verbs::kv_set_unsynced(w, MAIN, "key", "1").unwrap();
    verbs::call_finish(w, MAIN, id, CallOutcome::Success(None)).unwrap();
    let left = disk.image_at(disk.op_count(), Policy::Drop, 1);
    drop(world);
    let after = World::on_disk(left, base.path());
    let view = verbs::read_state(after.w(), MAIN, &DiffSide::Live).unwrap();
    assert_eq!(view.read_plain(b"dir/file", 0, 99).unwrap().0, b"text");
    let entry = verbs::kv_get(after.w(), MAIN, "key").unwrap().unwrap();
    assert_eq!(&*entry.value, "1");
    let item = verbs::call(after.w(), MAIN, id).unwrap();
    assert_eq!(item.status, CallStatus::Success);
}
