//! Automatic commits: nothing that was there a while ago is lost, though nobody made a checkpoint.
#![allow(clippy::unwrap_used)]

use crate::common::world::{MAIN, World};
use engine::verbs;
use engine::{
    Caller, CheckpointRequest, CloseMode, LogEntry, NodeId, Settings, Target, Time, Wait,
    WriteFlags, mode,
};
use objstore::crash_storage::CrashStorage;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const W: Wait = Wait::Allowed;
const DEADLINE: Duration = Duration::from_secs(60);

fn often() -> Settings {
    Settings {
        auto_idle: Some(Duration::from_millis(50)),
        auto_busy: Some(Duration::from_millis(200)),
        ..Settings::quiet()
    }
}

fn world() -> (World, TempDir) {
    let base = tempfile::tempdir().unwrap();
    std::fs::write(base.path().join("based"), b"of the base").unwrap();
    let world = World::on_disk(CrashStorage::new(), base.path());
    world.w().settle().unwrap();
    world.engine.set_settings(often()).unwrap();
    (world, base)
}

fn write(world: &World, name: &str, data: &[u8]) {
    let node = match world.w().lookup(NodeId::ROOT, name.as_bytes(), W) {
        Ok(found) => found.node,
        Err(_) => {
            let who = Caller::default();
            let mode = mode::REG | 0o644;
            let made = world
                .w()
                .mknod(&who, NodeId::ROOT, name.as_bytes(), mode, 0, W);
            made.unwrap().node
        }
    };
    let flags = WriteFlags::default();
    world.w().write(node, 0, data, flags, W).unwrap();
}

fn read(world: &World, name: &str) -> Option<Vec<u8>> {
    let node = world.w().lookup(NodeId::ROOT, name.as_bytes(), W).ok()?;
    Some(world.w().read(node.node, 0, 1 << 20, W).unwrap())
}

fn automatic(world: &World) -> Vec<LogEntry> {
    let log = verbs::log(world.w(), MAIN, true).unwrap();
    log.into_iter().filter(|e| e.kind == "auto").collect()
}

/// Waits for the `count`th automatic commit to have its id.
fn committed(world: &World, count: usize) -> LogEntry {
    let since = Instant::now();
    loop {
        let found = automatic(world);
        if found.len() >= count && found[0].commit.is_some() {
            return found[0].clone();
        }
        assert!(since.elapsed() < DEADLINE, "{found:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Lets the background threads look a few times.
fn looked_at(world: &World) {
    let rounds = 20;
    for _ in 0..rounds {
        std::thread::sleep(Duration::from_millis(20));
        world.w().settle().unwrap();
    }
}

fn after(t: Time) -> Time {
    Time {
        sec: t.sec,
        nsec: t.nsec + 1,
    }
}

#[test]
fn what_was_there_comes_back_though_nobody_made_a_checkpoint() {
    let (world, _base) = world();
    write(&world, "work", b"hours of it");
    let kept = committed(&world, 1);
    assert!(kept.automatic && !kept.is_head);
    for name in ["work", "based"] {
        world.w().unlink(NodeId::ROOT, name.as_bytes(), W).unwrap();
    }
    let gone = committed(&world, 2);
    verbs::rollback(world.w(), MAIN, &Target::Before(after(kept.time))).unwrap();
    assert_eq!(read(&world, "work").unwrap(), b"hours of it");
    assert_eq!(read(&world, "based").unwrap(), b"of the base");
    let back = verbs::rollback(world.w(), MAIN, &Target::Before(after(gone.time)));
    back.unwrap();
    assert_eq!(read(&world, "work"), None, "any moment can be gone back to");
    verbs::undo(world.w(), MAIN).unwrap();
    assert_eq!(read(&world, "work").unwrap(), b"hours of it");
}

#[test]
fn none_is_made_when_nothing_changed_and_the_log_hides_them() {
    let (world, _base) = world();
    looked_at(&world);
    assert!(automatic(&world).is_empty());
    write(&world, "a", b"1");
    committed(&world, 1);
    looked_at(&world);
    write(&world, "a", b"2");
    write(&world, "a", b"1");
    let who = Caller::default();
    let set = engine::SetAttr {
        mtime: Some(engine::SetTime::At(Time { sec: 5, nsec: 0 })),
        ..Default::default()
    };
    let node = world.w().lookup(NodeId::ROOT, b"a", W).unwrap().node;
    world.w().setattr(&who, node, &set, W).unwrap();
    committed(&world, 2);
    world.w().setattr(&who, node, &set, W).unwrap();
    looked_at(&world);
    assert_eq!(automatic(&world).len(), 2, "the same again is no change");
    let asked = verbs::log(world.w(), MAIN, false).unwrap();
    assert_eq!(asked.len(), 1, "{asked:?}");
}

#[test]
fn they_survive_a_kill_and_what_a_kill_interrupted_is_kept_too() {
    let (mut world, _base) = world();
    write(&world, "a", b"before");
    let kept = committed(&world, 1);
    world.engine.set_settings(Settings::quiet()).unwrap();
    write(&world, "a", b"late.."); // in no commit when the daemon dies
    world.kill().unwrap();
    world.w().settle().unwrap();
    assert_eq!(automatic(&world)[0].commit, kept.commit);
    world.engine.set_settings(often()).unwrap();
    let late = committed(&world, 2);
    write(&world, "a", b"oh no.");
    verbs::rollback(world.w(), MAIN, &Target::Before(after(late.time))).unwrap();
    assert_eq!(read(&world, "a").unwrap(), b"late..");
}

#[test]
fn expired_ones_stay_expired_and_what_was_asked_for_stays() {
    let (mut world, _base) = world();
    for (i, label) in ["one", "two", "three"].iter().enumerate() {
        write(&world, "a", label.as_bytes());
        committed(&world, i + 1);
    }
    verbs::rollback(world.w(), MAIN, &Target::Head).unwrap();
    let chosen = automatic(&world)[1].clone();
    let to = Target::Ref(chosen.commit.unwrap().to_string());
    verbs::rollback(world.w(), MAIN, &to).unwrap();
    let request = CheckpointRequest {
        label: Some("kept".into()),
        wait: true,
        ..Default::default()
    };
    write(&world, "a", b"four");
    verbs::checkpoint(world.w(), MAIN, request, &|_, _| ()).unwrap();
    let none = Settings {
        keep_all: Duration::ZERO,
        keep_hourly: Duration::ZERO,
        keep_daily: Duration::ZERO,
        ..Settings::quiet()
    };
    world.engine.set_settings(none).unwrap();
    world.w().settle().unwrap();
    world.w().expire_now(MAIN).unwrap();
    let left: Vec<_> = verbs::log(world.w(), MAIN, true).unwrap();
    let ids = |log: &[LogEntry]| log.iter().map(|e| e.commit).collect::<Vec<_>>();
    assert!(left.iter().any(|e| e.commit == chosen.commit), "{left:?}");
    assert!(left.iter().any(|e| e.labels == ["kept"]));
    assert!(left.len() < 5, "{left:?}");
    world.kill().unwrap();
    world.w().settle().unwrap();
    assert_eq!(ids(&verbs::log(world.w(), MAIN, true).unwrap()), ids(&left));
    world.close(CloseMode::Checkpoint).unwrap();
    world.reopen().unwrap();
    assert_eq!(ids(&verbs::log(world.w(), MAIN, true).unwrap()), ids(&left));
    assert_eq!(read(&world, "a").unwrap(), b"four");
}

#[test]
fn a_checkpoint_that_fails_is_taken_back_from_under_an_automatic_commit() {
    use objstore::crash_storage::{Fault, FaultOp};
    let (world, _base) = world();
    write(&world, "a", b"one");
    committed(&world, 1);
    let before = verbs::log(world.w(), MAIN, false).unwrap();
    write(&world, "a", &vec![7; 100_000]);
    let disk = world.disk.clone().unwrap();
    // The journal takes the freeze, the packs take nothing.
    (2..40).for_each(|n| disk.fail_nth(FaultOp::Append, n, Fault::NoSpace));
    let request = CheckpointRequest {
        label: Some("no".into()),
        wait: true,
        ..Default::default()
    };
    let made = verbs::checkpoint(world.w(), MAIN, request, &|_, _| ());
    disk.clear_faults();
    world.w().settle().unwrap();
    let now = verbs::log(world.w(), MAIN, false).unwrap();
    match made {
        Ok(_) => assert_eq!(now.len(), before.len() + 1),
        Err(_) => assert_eq!(now.len(), before.len()),
    }
    for entry in verbs::log(world.w(), MAIN, true).unwrap() {
        assert_eq!(entry.parents.len(), usize::from(entry.kind != "start"));
    }
}
