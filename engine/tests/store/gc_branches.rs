//! gc over all branches: what any of them, a snapshot or a conflict needs stays, open or not.
#![allow(clippy::unwrap_used)]

use crate::common::rng::bytes;
use crate::common::world::World;
use engine::verbs;
use engine::*;
use objstore::crash_storage::CrashStorage;
use std::time::Duration;

const W: Wait = Wait::Allowed;

fn gc(world: &World, grace: Duration) -> GcReport {
    let req = GcRequest {
        grace: Some(grace),
        dead_percent: Some(0),
        dry_run: false,
    };
    world.engine.gc(req, &|_, _| ()).unwrap()
}

/// A world in which automatic commits expire at once.
fn world(base: &std::path::Path) -> World {
    let world = World::on_disk(CrashStorage::new(), base);
    let at_once = Settings {
        keep_all: Duration::ZERO,
        keep_hourly: Duration::ZERO,
        keep_daily: Duration::ZERO,
        ..Settings::quiet()
    };
    world.engine.set_settings(at_once).unwrap();
    world
}

fn base() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("base"), bytes(1, 9000)).unwrap();
    std::fs::write(dir.path().join("text"), "one\ntwo\nthree\n").unwrap();
    dir
}

fn find(w: &Workspace, path: &str) -> Result<NodeId> {
    let mut at = NodeId::ROOT;
    for part in path.split('/').filter(|p| !p.is_empty()) {
        at = w.lookup(at, part.as_bytes(), W)?.node;
    }
    Ok(at)
}

fn place(branch: &str) -> String {
    match branch {
        MAIN => String::new(),
        _ => format!(".agentvfs/branches/{branch}"),
    }
}

fn write(w: &Workspace, branch: &str, name: &str, data: &[u8]) {
    let who = Caller::default();
    let dir = find(w, &place(branch)).unwrap();
    let node = match w.lookup(dir, name.as_bytes(), W) {
        Ok(a) => a.node,
        Err(_) => {
            let made = w.mknod(&who, dir, name.as_bytes(), mode::REG | 0o644, 0, W);
            made.unwrap().node
        }
    };
    let empty = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    w.setattr(&who, node, &empty, W).unwrap();
    w.write(node, 0, data, WriteFlags::default(), W).unwrap();
}

fn read_at(w: &Workspace, path: &str) -> Vec<u8> {
    w.read(find(w, path).unwrap(), 0, 1 << 20, W).unwrap()
}

fn read(w: &Workspace, branch: &str, name: &str) -> Vec<u8> {
    read_at(w, &format!("{}/{name}", place(branch)))
}

fn checkpoint(w: &Workspace, branch: &str, label: &str) -> CommitId {
    let req = CheckpointRequest {
        label: Some(label.into()),
        wait: true,
        ..Default::default()
    };
    let done = verbs::checkpoint(w, branch, req, &|_, _| ()).unwrap();
    done.commit.unwrap()
}

fn merge(w: &Workspace, from: &str) -> MergeReport {
    let req = MergeRequest {
        from: from.into(),
        into: MAIN.into(),
        keep_conflicts: true,
        ..MergeRequest::default()
    };
    verbs::merge_branch(w, &req, &|_, _| ()).unwrap()
}

#[test]
fn every_branch_stays_readable_open_closed_and_after_a_kill() {
    let base = base();
    let mut world = world(base.path());
    write(world.w(), MAIN, "both", &bytes(2, 9000));
    world.w().settle().unwrap();
    world.w().seal().unwrap();
    verbs::create_branch(world.w(), "b", MAIN, None).unwrap();
    let check = |world: &World| {
        let w = world.w();
        assert_eq!(read(w, MAIN, "base"), bytes(1, 9000));
        assert_eq!(read(w, MAIN, "both"), bytes(3, 9000));
        assert_eq!(read(w, "b", "both"), bytes(2, 9000));
        assert_eq!(read(w, "b", "base"), bytes(1, 9000));
        assert_eq!(read(w, "b", "own"), bytes(4, 9000));
    };
    write(world.w(), MAIN, "both", &bytes(3, 9000));
    write(world.w(), "b", "own", &bytes(4, 9000));
    gc(&world, Duration::ZERO);
    check(&world);
    world.w().seal().unwrap();
    gc(&world, Duration::ZERO);
    check(&world);
    world.close(CloseMode::NoCheckpoint).unwrap();
    gc(&world, Duration::ZERO);
    world.reopen().unwrap();
    check(&world);
    world.kill().unwrap();
    gc(&world, Duration::ZERO);
    check(&world);
    let report = world.engine.fsck(&|_, _| ()).unwrap();
    assert_eq!(report.findings, []);
    world.close(CloseMode::NoCheckpoint).unwrap();
    let report = world.engine.fsck(&|_, _| ()).unwrap();
    assert_eq!((report.findings, report.branches), (vec![], 2));
}

#[test]
fn a_deleted_branch_can_be_gone_back_to_until_its_grace_is_over() {
    let base = base();
    let world = world(base.path());
    let w = world.w();
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    write(w, "b", "own", &bytes(5, 9000));
    let last = verbs::delete_branch(w, "b", &|_, _| ()).unwrap().last;
    gc(&world, Duration::from_secs(3600));
    let target = Target::Ref(last.to_string());
    verbs::rollback(w, MAIN, &target).unwrap();
    assert_eq!(read(w, MAIN, "own"), bytes(5, 9000));
    verbs::create_branch(w, "c", MAIN, None).unwrap();
    write(w, "c", "own", &bytes(6, 9000));
    let last = verbs::delete_branch(w, "c", &|_, _| ()).unwrap().last;
    assert!(gc(&world, Duration::ZERO).objects > 0);
    let gone = verbs::rollback(w, MAIN, &Target::Ref(last.to_string()));
    assert!(matches!(gone, Err(Error::NoSuchRef(_))));
    assert_eq!(read(w, MAIN, "own"), bytes(5, 9000));
}

#[test]
fn conflicts_can_be_settled_though_the_branch_that_was_merged_is_gone() {
    for (how, wanted) in [
        (Resolution::Theirs, "one\nTHEIRS\nthree\n"),
        (Resolution::Base, "one\ntwo\nthree\n"),
        (Resolution::Ours, "one\nOURS\nthree\n"),
    ] {
        let base = base();
        let mut world = world(base.path());
        checkpoint(world.w(), MAIN, "start");
        verbs::create_branch(world.w(), "b", MAIN, None).unwrap();
        write(world.w(), MAIN, "text", b"one\nOURS\nthree\n");
        write(world.w(), "b", "text", b"one\nTHEIRS\nthree\n");
        let report = merge(world.w(), "b");
        assert_eq!(report.conflicts.len(), 1);
        verbs::delete_branch(world.w(), "b", &|_, _| ()).unwrap();
        gc(&world, Duration::ZERO);
        world.close(CloseMode::NoCheckpoint).unwrap();
        gc(&world, Duration::ZERO);
        world.reopen().unwrap();
        verbs::resolve_conflict(world.w(), MAIN, b"text", how).unwrap();
        gc(&world, Duration::ZERO);
        assert_eq!(read(world.w(), MAIN, "text"), wanted.as_bytes());
    }
}

#[test]
fn a_snapshot_that_somebody_looks_at_stays_readable() {
    let base = base();
    let world = world(base.path());
    let w = world.w();
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    write(w, "b", "own", &bytes(7, 9000));
    let id = checkpoint(w, "b", "shown");
    let file = format!("{}/.agentvfs/snapshots/{id}/own", place("b"));
    assert_eq!(read_at(w, &file), bytes(7, 9000));
    write(w, "b", "own", &bytes(8, 9000));
    gc(&world, Duration::ZERO);
    assert_eq!(read_at(w, &file), bytes(7, 9000));
}

#[test]
fn what_a_branch_was_made_of_does_not_expire() {
    let base = base();
    let world = world(base.path());
    let w = world.w();
    write(w, MAIN, "own", &bytes(9, 9000));
    let made = verbs::create_branch(w, "b", MAIN, None).unwrap().commit;
    w.settle().unwrap();
    let made = made.or_else(|| verbs::log(w, "b", true).unwrap()[0].commit);
    for n in 0..3 {
        write(w, MAIN, "own", &bytes(20 + n, 9000));
        verbs::rollback(w, MAIN, &Target::Head).unwrap();
    }
    w.settle().unwrap();
    w.expire_now(MAIN).unwrap();
    gc(&world, Duration::ZERO);
    let log = verbs::log(w, MAIN, true).unwrap();
    assert!(log.iter().any(|e| e.commit == made));
    verbs::rollback(w, MAIN, &Target::Ref(made.unwrap().to_string())).unwrap();
    assert_eq!(read(w, MAIN, "own"), bytes(9, 9000));
}
