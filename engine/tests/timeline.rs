//! The timeline without a mount: what was answered is there after a power cut or a kill, rollbacks remove
//! nothing, what was altered is found, and calls are told apart, taken back and blamed exactly.
#![allow(clippy::unwrap_used)]

use engine::{
    CallOutcome, CallRecord, CallStart, CallStatus, Caller, CloseMode, DiffSide, Engine,
    EngineConfig, Error, GcRequest, ImportedCall, SwitchWord, Target, Time, TimelineItem,
    TimelineQuery, Workspace, WriteFile,
};
use objstore::crash_storage::{CrashStorage, Policy};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const W: &str = "w";
const MAIN: &str = "main";

fn base() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let project = dir.path().join("project");
    std::fs::create_dir_all(project.join("src")).unwrap();
    std::fs::create_dir(dir.path().join("home")).unwrap();
    let lines: String = (0..40).map(|n| format!("line {n}\n")).collect();
    std::fs::write(project.join("src/main"), lines).unwrap();
    std::fs::write(project.join("README"), "base\n").unwrap();
    dir
}

fn open(disk: &CrashStorage, dir: &Path) -> (Arc<Engine>, Arc<Workspace>) {
    let config = EngineConfig {
        root: dir.join("home"),
        author: "test".into(),
    };
    let engine = Engine::on_storage(config, Arc::new(disk.clone())).unwrap();
    if engine.get(W).is_err() {
        engine.create(W, &dir.join("project"), None).unwrap();
    }
    let w = engine.open_workspace(W).unwrap();
    (engine, w)
}

/// A workspace on a new disk whose base is stored.
fn start(dir: &Path) -> (CrashStorage, Arc<Engine>, Arc<Workspace>) {
    let disk = CrashStorage::new();
    let (engine, w) = open(&disk, dir);
    w.settle().unwrap();
    (disk, engine, w)
}

fn end(engine: &Engine) {
    engine
        .close_workspace(W, CloseMode::NoCheckpoint, &|_, _| {})
        .unwrap();
}

fn write_on(w: &Workspace, branch: &str, path: &str, data: &str) {
    let part = WriteFile {
        path: path.into(),
        offset: Some(0),
        data: data.into(),
        last: true,
        perm: 0o644,
        parents: true,
    };
    w.write_file(branch, &Caller::default(), &part).unwrap();
}

fn write(w: &Workspace, path: &str, data: &str) {
    write_on(w, MAIN, path, data);
}

fn read(w: &Workspace, path: &str) -> String {
    let view = w.view_of(MAIN, &DiffSide::Live).unwrap();
    let bytes = view.read(path.as_bytes(), 0, 1 << 20).unwrap().bytes;
    String::from_utf8(bytes).unwrap()
}

fn begin(w: &Workspace, name: &str) -> u64 {
    let call = CallStart {
        name: name.into(),
        parameters: Some(format!("{{\"of\": \"{name}\"}}")),
    };
    w.call_start(MAIN, call).unwrap()
}

fn finish(w: &Workspace, id: u64) {
    let outcome = CallOutcome::Success(Some("true".into()));
    w.call_finish(MAIN, id, outcome).unwrap();
}

/// A call that writes a file.
fn edit(w: &Workspace, path: &str, data: &str) -> u64 {
    let id = begin(w, "edit");
    write(w, path, data);
    finish(w, id);
    id
}

fn record(w: &Workspace, name: &str) -> u64 {
    let call = CallRecord {
        name: name.into(),
        parameters: None,
        outcome: CallOutcome::Success(None),
        started: None,
        completed: None,
    };
    w.call_record(MAIN, call).unwrap()
}

fn all(w: &Workspace) -> Vec<TimelineItem> {
    let mut items = Vec::new();
    w.timeline_each(MAIN, &mut |item| {
        items.push(item);
        Ok(true)
    })
    .unwrap();
    items
}

/// Names and paths that a call changed.
fn changed(w: &Workspace, id: u64) -> Vec<String> {
    let item = w.call(MAIN, id).unwrap();
    let side = |s: Option<engine::StateRef>| DiffSide::Ref(s.unwrap().commit.unwrap().to_string());
    let changes = w
        .diff(MAIN, &side(item.before), &side(item.after), &[])
        .unwrap();
    let path = |c: &engine::Change| String::from_utf8_lossy(&c.path).into_owned();
    changes
        .iter()
        .map(|c| format!("{} {}", c.status, path(c)))
        .collect()
}

/// Nothing is wrong with the timeline; gives its length.
fn verified(w: &Workspace) -> u64 {
    let found = w.timeline_verify(MAIN).unwrap();
    assert_eq!(found.faults, []);
    found.entries
}

fn blamed(w: &Workspace, path: &str) -> Vec<String> {
    let blame = w.blame(MAIN, path.as_bytes(), 100).unwrap();
    assert_eq!(blame.unknown, 0);
    let one = |i: engine::BlameItem| match i.call {
        Some(id) => format!("{} {id}", i.kind),
        None => format!("{} {}", i.kind, i.name).trim_end().to_owned(),
    };
    blame.items.into_iter().map(one).collect()
}

#[test]
fn a_call_tells_what_it_found_and_what_it_left() {
    let dir = base();
    let (_, engine, w) = start(dir.path());
    let first = edit(&w, "a", "1");
    let second = begin(&w, "shell");
    let item = w.call(MAIN, second).unwrap();
    assert_eq!((item.status, item.completed), (CallStatus::Pending, None));
    write(&w, "b", "2");
    let why = CallOutcome::Error("no such thing".into());
    w.call_finish(MAIN, second, why).unwrap();
    write(&w, "README", "by hand\n");
    let third = record(&w, "look");
    let fourth = record(&w, "look");
    w.settle().unwrap();
    assert_eq!(changed(&w, first), ["A a"]);
    assert_eq!(changed(&w, second), ["A b"]);
    assert_eq!(
        changed(&w, third),
        ["M README"],
        "what is there since the call before"
    );
    assert_eq!(changed(&w, fourth), [""; 0]);
    let items = all(&w);
    let ids: Vec<_> = items.iter().map(|i| i.call.unwrap()).collect();
    assert_eq!(ids, [fourth, third, second, first]);
    assert_eq!(items[2].error.as_deref(), Some("no such thing"));
    assert_eq!(items[3].result.as_deref(), Some("true"));
    assert_eq!(items[3].parameters.as_deref(), Some("{\"of\": \"edit\"}"));
    // Nothing changed between, so one state is what one left and the next found.
    assert_eq!(items[3].after, items[2].before);
    assert_eq!(items[0].before, items[0].after);
    let over = w.call_finish(MAIN, first, CallOutcome::Success(None));
    assert!(matches!(over, Err(Error::CallOver(1))));
    let none = w.call_finish(MAIN, 99, CallOutcome::Success(None));
    assert!(matches!(none, Err(Error::NoSuchCall(99))));
    verified(&w);
    end(&engine);
}

#[test]
fn lists_are_filtered_and_paged() {
    let dir = base();
    let (_, engine, w) = start(dir.path());
    for n in 0..30 {
        let id = begin(&w, if n % 3 == 0 { "a" } else { "b" });
        match n % 2 {
            0 => finish(&w, id),
            _ => w
                .call_finish(MAIN, id, CallOutcome::Error("x".repeat(100_000)))
                .unwrap(),
        }
    }
    let query = |name: Option<&str>, status, before| TimelineQuery {
        limit: 4,
        before,
        name: name.map(str::to_owned),
        status,
        ..TimelineQuery::default()
    };
    let ids = |q: &TimelineQuery| {
        let page = w.timeline(MAIN, q).unwrap();
        let ids: Vec<u64> = page.items.iter().map(|i| i.call.unwrap()).collect();
        (ids, page.next)
    };
    let (got, next) = ids(&query(Some("a"), Some(CallStatus::Success), None));
    assert_eq!(got, [25, 19, 13, 7]);
    let (got, next) = ids(&query(Some("a"), Some(CallStatus::Success), next));
    assert_eq!((got, next), (vec![1], None));
    // Long texts end a page early, and the next goes on where it ended.
    let mut q = TimelineQuery {
        limit: 30,
        ..TimelineQuery::default()
    };
    let (mut got, mut pages) = (Vec::new(), 0);
    loop {
        let (more, next) = ids(&q);
        got.extend(more);
        pages += 1;
        q.before = next;
        if next.is_none() {
            break;
        }
    }
    assert_eq!(got, (1..=30).rev().collect::<Vec<u64>>());
    assert!(pages > 2);
    end(&engine);
}

#[test]
fn a_power_cut_takes_nothing_that_was_answered() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    w.checkpoint(MAIN, Default::default(), &|_, _| {}).unwrap();
    let began = disk.op_count();
    let mut answered = vec![(began, 0)];
    for n in 0..4 {
        let id = begin(&w, "edit");
        answered.push((disk.op_count(), all(&w).len()));
        write(&w, "src/main", &format!("{n}\n"));
        finish(&w, id);
        record(&w, "look");
        answered.push((disk.op_count(), all(&w).len()));
        if n % 2 == 1 {
            w.rollback(MAIN, &Target::Head).unwrap();
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
    let status = |id| w.call(MAIN, id).unwrap().status;
    assert_eq!(
        (status(over), status(runs)),
        (CallStatus::Success, CallStatus::Pending)
    );
    let next = edit(&w, "b", "2");
    assert_eq!(
        w.call(MAIN, next).unwrap().overlaps,
        [runs],
        "nobody knows whether it still runs"
    );
    w.call_finish(MAIN, runs, CallOutcome::Error("killed".into()))
        .unwrap();
    assert_eq!(w.call(MAIN, runs).unwrap().overlaps, [next]);
    let later = edit(&w, "c", "3");
    assert_eq!(w.call(MAIN, later).unwrap().overlaps, [0; 0]);
    verified(&w);
    end(&engine);
}

#[test]
fn switches_add_entries_and_remove_none() {
    let dir = base();
    let (_, engine, w) = start(dir.path());
    edit(&w, "a", "1");
    edit(&w, "src/main", "2");
    let before = all(&w);
    w.rollback(MAIN, &Target::Head).unwrap();
    w.undo(MAIN).unwrap();
    w.redo(MAIN).unwrap();
    w.undo(MAIN).unwrap();
    w.restore(MAIN, &Target::Head, &[b"src".to_vec()]).unwrap();
    w.settle().unwrap();
    let after = all(&w);
    let words: Vec<_> = after.iter().rev().filter_map(|i| i.switch).collect();
    use SwitchWord::{Redo, Restore, Rollback, Undo};
    assert_eq!(words, [Rollback, Undo, Redo, Undo, Restore]);
    let calls: Vec<_> = after.iter().filter(|i| i.switch.is_none()).collect();
    assert_eq!(calls.len(), before.len());
    for item in after.iter().filter(|i| i.switch.is_some()) {
        let known = |s: Option<engine::StateRef>| s.and_then(|s| s.commit).is_some();
        assert!(known(item.before) && known(item.after), "{item:?}");
    }
    assert_eq!(
        blamed(&w, "src/main"),
        ["restore", "undo", "redo", "undo", "rollback", "call 2"]
    );
    let running = begin(&w, "long");
    w.rollback(MAIN, &Target::Head).unwrap();
    finish(&w, running);
    assert_eq!(w.call(MAIN, running).unwrap().switches.len(), 1);
    let refused = w.undo_call(MAIN, running, false);
    assert!(matches!(refused, Err(Error::CallUnknown { .. })));
    verified(&w);
    end(&engine);
}

#[test]
fn calls_that_ran_at_the_same_time_name_each_other() {
    let dir = base();
    let (_, engine, w) = start(dir.path());
    let (a, b) = (begin(&w, "a"), begin(&w, "b"));
    write(&w, "x", "1");
    finish(&w, a);
    let c = edit(&w, "y", "2");
    finish(&w, b);
    let d = edit(&w, "z", "3");
    let overlaps = |id| w.call(MAIN, id).unwrap().overlaps;
    assert_eq!(
        [overlaps(a), overlaps(b), overlaps(c), overlaps(d)],
        [vec![b], vec![a, c], vec![b], vec![]]
    );
    // By the times that they are told with.
    let at = |sec| Some(Time { sec, nsec: 0 });
    let told = |from, to| CallRecord {
        name: "t".into(),
        parameters: None,
        outcome: CallOutcome::Success(None),
        started: at(from),
        completed: at(to),
    };
    let one = w.call_record(MAIN, told(100, 110)).unwrap();
    let two = w.call_record(MAIN, told(105, 115)).unwrap();
    let three = w.call_record(MAIN, told(115, 120)).unwrap();
    assert_eq!(
        [overlaps(one), overlaps(two), overlaps(three)],
        [vec![two], vec![one], vec![]]
    );
    for id in [a, b, c, one, two] {
        let refused = w.undo_call(MAIN, id, false);
        assert!(matches!(refused, Err(Error::CallUnknown { .. })));
    }
    end(&engine);
}

#[test]
fn one_call_is_taken_back_and_nothing_else() {
    let dir = base();
    let (_, engine, w) = start(dir.path());
    let text = |first: &str, last: &str| {
        let middle: String = (1..39).map(|n| format!("line {n}\n")).collect();
        format!("{first}\n{middle}{last}\n")
    };
    let id = begin(&w, "edit");
    write(&w, "src/main", &text("first", "line 39"));
    write(&w, "new", "new\n");
    finish(&w, id);
    edit(&w, "src/main", &text("first", "last"));
    edit(&w, "other", "o");
    let plan = w.undo_call(MAIN, id, true).unwrap();
    assert_eq!(plan.changes.len(), 2);
    assert_eq!(read(&w, "src/main"), text("first", "last"));
    let done = w.undo_call(MAIN, id, false).unwrap();
    assert!(done.conflicts.is_empty() && done.back.commit.is_some());
    assert_eq!(read(&w, "src/main"), text("line 0", "last"));
    assert_eq!(read(&w, "other"), "o");
    assert!(
        w.view_of(MAIN, &DiffSide::Live)
            .unwrap()
            .stat(b"new", false)
            .is_err()
    );
    let item = &all(&w)[0];
    assert_eq!(
        (item.switch, item.call),
        (Some(SwitchWord::ToolUndo), Some(id))
    );
    assert_eq!(item.after.unwrap().commit, done.back.commit);
    w.undo(MAIN).unwrap();
    assert_eq!(read(&w, "src/main"), text("first", "last"));
    w.redo(MAIN).unwrap();
    assert_eq!(read(&w, "src/main"), text("line 0", "last"));
    // Once more: nothing of it is left.
    let again = w.undo_call(MAIN, id, false).unwrap();
    assert_eq!((again.back.replaced, again.conflicts.len()), (None, 0));
    verified(&w);
    end(&engine);
}

#[test]
fn what_was_changed_since_is_a_conflict_and_nothing_changes() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    let id = edit(&w, "README", "call\n");
    write(&w, "README", "since\n");
    let entries = verified(&w);
    let refused = w.undo_call(MAIN, id, false).unwrap();
    assert_eq!(refused.conflicts.len(), 1);
    assert_eq!(refused.conflicts[0].path, b"README");
    assert_eq!(read(&w, "README"), "since\n");
    assert!(verified(&w) <= entries + 1, "a name of a commit at most");
    // A kill right after a call was taken back keeps that.
    write(&w, "README", "call\n");
    w.undo_call(MAIN, id, false).unwrap();
    let killed = disk.image_at(disk.op_count(), Policy::Drop, 1);
    end(&engine);
    drop((w, engine));
    let (engine, w) = open(&killed, dir.path());
    assert_eq!(read(&w, "README"), "base\n");
    assert_eq!(all(&w)[0].switch, Some(SwitchWord::ToolUndo));
    w.undo(MAIN).unwrap();
    assert_eq!(read(&w, "README"), "call\n");
    w.settle().unwrap();
    verified(&w);
    end(&engine);
}

#[test]
fn blame_tells_who_changed_a_path() {
    let dir = base();
    let (_, engine, w) = start(dir.path());
    edit(&w, "src/main", "1");
    edit(&w, "src/deep/lib", "2");
    edit(&w, "README", "3");
    let label = |l: &str| engine::CheckpointRequest {
        label: Some(l.into()),
        ..Default::default()
    };
    w.checkpoint(MAIN, label("good"), &|_, _| {}).unwrap();
    record(&w, "look");
    edit(&w, "src/main", "4");
    w.checkpoint(MAIN, label("better"), &|_, _| {}).unwrap();
    w.rollback(MAIN, &Target::Ref("good".into())).unwrap();
    let newest = ["rollback", "checkpoint better", "call 5"];
    let with = |rest: &[&str]| -> Vec<String> {
        newest.iter().chain(rest).map(|s| s.to_string()).collect()
    };
    assert_eq!(blamed(&w, "src/main"), with(&["checkpoint good", "call 1"]));
    assert_eq!(
        blamed(&w, "src"),
        with(&["checkpoint good", "call 2", "call 1"])
    );
    assert_eq!(blamed(&w, "src/deep/lib"), ["checkpoint good", "call 2"]);
    assert_eq!(blamed(&w, "README"), ["checkpoint good", "call 3"]);
    let few = w.blame(MAIN, b"src", 2).unwrap();
    assert_eq!(few.items.len(), 2);
    assert!(matches!(
        w.blame(MAIN, b"none", 9),
        Err(Error::NoSuchPath(_))
    ));
    end(&engine);
}

#[test]
fn a_branch_goes_on_with_the_timeline_it_was_made_of() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    edit(&w, "a", "1");
    let runs = begin(&w, "long");
    write(&w, "b", "2");
    w.create_branch("side", MAIN, None).unwrap();
    write_on(&w, "side", "c", "3");
    let over = w.call_finish("side", runs, CallOutcome::Success(None));
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
    let id = w.call_record("side", call).unwrap();
    assert_eq!(id, runs + 1);
    finish(&w, runs);
    let killed = disk.image_at(disk.op_count(), Policy::Drop, 1);
    end(&engine);
    drop((w, engine));
    let (engine, w) = open(&killed, dir.path());
    w.settle().unwrap();
    assert_eq!(w.call(MAIN, runs).unwrap().status, CallStatus::Success);
    assert_eq!(w.call("side", runs).unwrap().status, CallStatus::Pending);
    let ours = |n| w.call(MAIN, n).unwrap().after.unwrap().commit;
    assert_eq!(w.call("side", 1).unwrap().after.unwrap().commit, ours(1));
    for branch in [MAIN, "side"] {
        let found = w.timeline_verify(branch).unwrap();
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
        w.call_record(MAIN, call).unwrap();
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
fn calls_from_elsewhere_keep_their_ids_and_times() {
    let dir = base();
    let (_, engine, w) = start(dir.path());
    let at = |sec| Time { sec, nsec: 5 };
    let call = |id, outcome: Option<CallOutcome>| ImportedCall {
        id,
        name: "old".into(),
        parameters: Some("{}".into()),
        completed: outcome.as_ref().map(|_| at(9)),
        outcome,
        started: at(7),
        overlaps: vec![],
    };
    let done = Some(CallOutcome::Success(Some("1".into())));
    let ids = w
        .call_import(
            MAIN,
            vec![
                call(Some(5), done.clone()),
                call(None, None),
                call(Some(9), done),
            ],
        )
        .unwrap();
    assert_eq!(ids, [5, 6, 9]);
    let item = w.call(MAIN, 5).unwrap();
    assert_eq!(
        (item.started, item.completed, item.duration_ms()),
        (at(7), Some(at(9)), Some(2000))
    );
    assert_eq!((item.before, item.after), (None, None));
    assert_eq!(w.call(MAIN, 6).unwrap().status, CallStatus::Pending);
    assert!(matches!(
        w.call_import(MAIN, vec![call(Some(9), None)]),
        Err(Error::CallIdTaken(9))
    ));
    assert!(matches!(
        w.undo_call(MAIN, 5, false),
        Err(Error::CallUnknown { .. })
    ));
    assert_eq!(edit(&w, "a", "1"), 10);
    verified(&w);
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
        let found = w.timeline_verify(MAIN).unwrap();
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
