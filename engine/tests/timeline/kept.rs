//! The timeline over power cuts, kills, branches and gc; what was altered or removed on the disk is found.
#![allow(clippy::unwrap_used)]

use crate::calls::*;
use engine::verbs;
use engine::{
    CallOutcome, CallRecord, CallStatus, CloseMode, Error, GcRequest, Target, TimelineItem,
    Workspace,
};
use objstore::crash_storage::{CrashStorage, Policy};
use std::time::Duration;

#[test]
fn a_power_cut_takes_nothing_that_was_answered() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    verbs::checkpoint(&w, MAIN, Default::default(), &|_, _| {}).unwrap();
    let began = disk.op_count();
    let mut answered = vec![(began, 0)];
    for n in 0..4 {
        // Whoever did not ask for it to be synced is promised it with the end only.
        let unsynced = n >= 2;
        let id = begin_so(&w, "edit", unsynced);
        if !unsynced {
            answered.push((disk.op_count(), all(&w).len()));
        }
        write(&w, "src/main", &format!("{n}\n"));
        finish(&w, id);
        record(&w, "look");
        answered.push((disk.op_count(), all(&w).len()));
        if n % 2 == 1 {
            verbs::rollback(&w, MAIN, &Target::Head).unwrap();
            answered.push((disk.op_count(), all(&w).len()));
        }
    }
    let whole = all(&w);
    end(&engine);
    drop((w, engine));
    for cut in (began..=disk.op_count()).step_by(3) {
        for policy in Policy::ALL {
            let image = disk.image_at(cut, policy, cut as u64);
            let (engine, w) = open(&image, dir.path());
            let (_, least) = *answered.iter().rev().find(|(at, _)| *at <= cut).unwrap();
            let items = all(&w);
            assert!(items.len() >= least, "cut {cut} {policy:?}");
            let was = &whole[whole.len() - items.len()..];
            let told = |i: &TimelineItem| (i.call, i.name.clone(), i.started, i.switch);
            assert!(items.iter().map(told).eq(was.iter().map(told)));
            record(&w, "after");
            w.settle().unwrap();
            verified(&w);
            end(&engine);
        }
    }
}

#[test]
fn a_kill_in_the_middle_of_a_call_leaves_it_pending() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    let over = edit(&w, "a", "1");
    let runs = begin(&w, "edit");
    write(&w, "a", "half");
    let killed = disk.image_at(disk.op_count(), Policy::Keep, 1);
    end(&engine);
    drop((w, engine));
    let (engine, w) = open(&killed, dir.path());
    let status = |id| verbs::call(&w, MAIN, id).unwrap().status;
    assert_eq!(
        (status(over), status(runs)),
        (CallStatus::Success, CallStatus::Pending)
    );
    let next = edit(&w, "b", "2");
    let item = verbs::call(&w, MAIN, next).unwrap();
    assert_eq!((item.parent, item.overlaps), (Some(runs), vec![]));
    verbs::call_finish(&w, MAIN, runs, CallOutcome::Error("killed".into())).unwrap();
    assert_eq!(verbs::call(&w, MAIN, runs).unwrap().overlaps, [0; 0]);
    let later = edit(&w, "c", "3");
    assert_eq!(verbs::call(&w, MAIN, later).unwrap().overlaps, [0; 0]);
    verified(&w);
    end(&engine);
}

#[test]
fn a_branch_goes_on_with_the_timeline_it_was_made_of() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    edit(&w, "a", "1");
    let runs = begin(&w, "long");
    write(&w, "b", "2");
    verbs::create_branch(&w, "side", MAIN, None).unwrap();
    write_on(&w, "side", "c", "3");
    let over = verbs::call_finish(&w, "side", runs, CallOutcome::Success(None));
    assert!(
        matches!(over, Err(Error::CallOver(_))),
        "it runs on the other branch"
    );
    let call = CallRecord {
        name: "on-side".into(),
        parameters: None,
        outcome: CallOutcome::Success(None),
        started: None,
        completed: None,
    };
    let id = verbs::call_record(&w, "side", call).unwrap();
    assert_eq!(id, runs + 1);
    finish(&w, runs);
    let killed = disk.image_at(disk.op_count(), Policy::Drop, 1);
    end(&engine);
    drop((w, engine));
    let (engine, w) = open(&killed, dir.path());
    w.settle().unwrap();
    assert_eq!(
        verbs::call(&w, MAIN, runs).unwrap().status,
        CallStatus::Success
    );
    let there = verbs::call(&w, "side", runs).unwrap();
    assert_eq!(there.status, CallStatus::Error, "nobody can end it there");
    assert!(there.error.unwrap().starts_with("unknown: "));
    let ours = |n| verbs::call(&w, MAIN, n).unwrap().after.unwrap().commit;
    assert_eq!(
        verbs::call(&w, "side", 1).unwrap().after.unwrap().commit,
        ours(1)
    );
    for branch in [MAIN, "side"] {
        let found = verbs::timeline_verify(&w, branch).unwrap();
        assert_eq!(found.faults, []);
        assert!(found.commits > 0);
    }
    end(&engine);
}

#[test]
fn a_long_timeline_lies_in_the_store_and_gc_keeps_it() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    for n in 0..20 {
        let call = CallRecord {
            name: "loud".into(),
            parameters: None,
            outcome: CallOutcome::Error(format!(
                "{n}{}",
                "x".repeat(1 << 20)[..1_000_000].to_owned()
            )),
            started: None,
            completed: None,
        };
        verbs::call_record(&w, MAIN, call).unwrap();
    }
    let everything = GcRequest {
        grace: Some(Duration::ZERO),
        dead_percent: Some(0),
        dry_run: false,
    };
    engine.gc(everything, &|_, _| ()).unwrap();
    assert_eq!(all(&w).len(), 20);
    let entries = verified(&w);
    let killed = disk.image_at(disk.op_count(), Policy::Drop, 1);
    w.seal().unwrap();
    engine.gc(everything, &|_, _| ()).unwrap();
    assert_eq!(verified(&w), entries);
    end(&engine);
    drop((w, engine));
    let (engine, w) = open(&killed, dir.path());
    assert_eq!(verified(&w), entries);
    engine.gc(everything, &|_, _| ()).unwrap();
    assert_eq!(all(&w).len(), 20);
    assert_eq!(engine.fsck(&|_, _| ()).unwrap().findings.len(), 0);
    end(&engine);
}

#[test]
fn an_entry_that_was_altered_or_removed_on_the_disk_is_named() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    for name in ["alpha", "bravo", "charlie"] {
        record(&w, name);
    }
    w.settle().unwrap();
    let entries = verified(&w);
    engine
        .close_workspace(W, CloseMode::Checkpoint, &|_, _| {})
        .unwrap();
    drop((w, engine));
    let faults = |change: &dyn Fn(&mut Vec<u8>)| {
        let image = disk.image_at(disk.op_count(), Policy::Keep, 1);
        change_timeline(&image, change);
        let (engine, w) = open(&image, dir.path());
        let found = verbs::timeline_verify(&w, MAIN).unwrap();
        end(&engine);
        let faults = found.faults.iter().map(|f| f.entry);
        faults.collect::<Vec<u64>>()
    };
    assert_eq!(faults(&|_| {}), [0; 0]);
    let number = |w: &Workspace, name: &str| {
        let item = all(w).into_iter().find(|i| i.name == name);
        item.unwrap().entry
    };
    let (engine, w) = open(&disk.image_at(disk.op_count(), Policy::Keep, 1), dir.path());
    let (bravo, charlie) = (number(&w, "bravo"), number(&w, "charlie"));
    end(&engine);
    let altered = faults(&|body| {
        let at = find(body, b"bravo");
        body[at] = b'g';
    });
    assert_eq!(altered, [bravo]);
    let removed = faults(&|body| remove_frame(body, b"bravo"));
    assert_eq!(removed, [bravo]);
    let last = faults(&|body| remove_frame(body, b"charlie"));
    assert_eq!(last[0], charlie);
    assert!(entries >= 3);
}

fn find(body: &[u8], what: &[u8]) -> usize {
    body.windows(what.len()).position(|b| b == what).unwrap()
}

/// Takes the entry that has `name` out of the tail in a state file's frame of the timeline.
fn remove_frame(body: &mut Vec<u8>, name: &[u8]) {
    let word = |b: &[u8], at: usize| u64::from_le_bytes(b[at..at + 8].try_into().unwrap());
    let short =
        |b: &[u8], at: usize| u32::from_le_bytes(b[at..at + 4].try_into().unwrap()) as usize;
    // The stored part is empty (4 bytes), then comes the tail with its length.
    let len = word(body, 4) as usize;
    let mut at = 12;
    while at < 12 + len {
        let whole = short(body, at) + 40;
        if body[at..at + whole].windows(name.len()).any(|b| b == name) {
            body.drain(at..at + whole);
            let left = (len - whole) as u64;
            body[4..12].copy_from_slice(&left.to_le_bytes());
            return;
        }
        at += whole;
    }
    panic!("no such entry");
}

/// Changes the frame of the timeline in the state file of `main`, checksums and all.
fn change_timeline(disk: &CrashStorage, change: &dyn Fn(&mut Vec<u8>)) {
    use objstore::io::Storage;
    let dir = format!("workspaces/{W}/branches/main");
    let names = disk.list(&dir).unwrap();
    let name = names.iter().find(|n| n.starts_with("state-")).unwrap();
    let path = format!("{dir}/{name}");
    let bytes = disk.read(&path).unwrap().unwrap();
    let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let mut frames: Vec<Vec<u8>> = Vec::new();
    let mut at = 12;
    while at < bytes.len() {
        let len = short(at);
        frames.push(bytes[at + 8..at + 8 + len].to_vec());
        at += 8 + len;
    }
    let of_timeline = |f: &Vec<u8>| f.windows(5).any(|b| b == b"bravo");
    let body = frames.iter_mut().find(|f| of_timeline(f)).unwrap();
    change(body);
    let mut out = bytes[..12].to_vec();
    for body in frames {
        out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        out.extend_from_slice(&body);
    }
    disk.replace(&path, &out).unwrap();
}
