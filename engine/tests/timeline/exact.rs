//! The timeline without a mount: calls are told apart, taken back and blamed exactly; switches add to it
//! and remove nothing.
#![allow(clippy::unwrap_used)]

use crate::calls::*;
use engine::verbs;
use engine::{
    CallOutcome, CallRecord, CallStatus, DiffSide, Error, ImportedCall, SwitchWord, Target, Time,
    TimelineQuery,
};
use objstore::crash_storage::Policy;

#[test]
fn a_call_tells_what_it_found_and_what_it_left() {
    let dir = base();
    let (_, engine, w) = start(dir.path());
    let first = edit(&w, "a", "1");
    let second = begin(&w, "shell");
    let item = verbs::call(&w, MAIN, second).unwrap();
    assert_eq!((item.status, item.completed), (CallStatus::Pending, None));
    write(&w, "b", "2");
    let why = CallOutcome::Error("no such thing".into());
    verbs::call_finish(&w, MAIN, second, why).unwrap();
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
    let over = verbs::call_finish(&w, MAIN, first, CallOutcome::Success(None));
    assert!(matches!(over, Err(Error::CallOver(1))));
    let none = verbs::call_finish(&w, MAIN, 99, CallOutcome::Success(None));
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
            _ => verbs::call_finish(&w, MAIN, id, CallOutcome::Error("x".repeat(100_000))).unwrap(),
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
        let page = verbs::timeline(&w, MAIN, q).unwrap();
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
fn switches_add_entries_and_remove_none() {
    let dir = base();
    let (_, engine, w) = start(dir.path());
    edit(&w, "a", "1");
    edit(&w, "src/main", "2");
    let before = all(&w);
    verbs::rollback(&w, MAIN, &Target::Head).unwrap();
    verbs::undo(&w, MAIN).unwrap();
    verbs::redo(&w, MAIN).unwrap();
    verbs::undo(&w, MAIN).unwrap();
    verbs::restore(&w, MAIN, &Target::Head, &[b"src".to_vec()]).unwrap();
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
    verbs::rollback(&w, MAIN, &Target::Head).unwrap();
    finish(&w, running);
    assert_eq!(verbs::call(&w, MAIN, running).unwrap().switches.len(), 1);
    let refused = verbs::undo_call(&w, MAIN, running, false);
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
    let overlaps = |id| verbs::call(&w, MAIN, id).unwrap().overlaps;
    assert_eq!(
        [overlaps(a), overlaps(b), overlaps(c), overlaps(d)],
        [vec![b], vec![a], vec![], vec![]]
    );
    assert_eq!(verbs::call(&w, MAIN, c).unwrap().parent, Some(b));
    // By the times that they are told with.
    let at = |sec| Some(Time { sec, nsec: 0 });
    let told = |from, to| CallRecord {
        name: "t".into(),
        parameters: None,
        outcome: CallOutcome::Success(None),
        started: at(from),
        completed: at(to),
    };
    let one = verbs::call_record(&w, MAIN, told(100, 110)).unwrap();
    let two = verbs::call_record(&w, MAIN, told(105, 115)).unwrap();
    let three = verbs::call_record(&w, MAIN, told(115, 120)).unwrap();
    assert_eq!(
        [overlaps(one), overlaps(two), overlaps(three)],
        [vec![two], vec![one], vec![]]
    );
    for id in [a, b, one, two] {
        let refused = verbs::undo_call(&w, MAIN, id, false);
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
    let plan = verbs::undo_call(&w, MAIN, id, true).unwrap();
    assert_eq!(plan.changes.len(), 2);
    assert_eq!(read(&w, "src/main"), text("first", "last"));
    let done = verbs::undo_call(&w, MAIN, id, false).unwrap();
    assert!(done.conflicts.is_empty() && done.back.commit.is_some());
    assert_eq!(read(&w, "src/main"), text("line 0", "last"));
    assert_eq!(read(&w, "other"), "o");
    assert!(
        verbs::read_state(&w, MAIN, &DiffSide::Live)
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
    verbs::undo(&w, MAIN).unwrap();
    assert_eq!(read(&w, "src/main"), text("first", "last"));
    verbs::redo(&w, MAIN).unwrap();
    assert_eq!(read(&w, "src/main"), text("line 0", "last"));
    // Once more: nothing of it is left.
    let again = verbs::undo_call(&w, MAIN, id, false).unwrap();
    assert_eq!((again.back.replaced, again.conflicts.len()), (None, 0));
    verified(&w);
    end(&engine);
}

#[test]
fn keys_that_a_call_set_are_taken_back_with_its_files() {
    let dir = base();
    let (_, engine, w) = start(dir.path());
    verbs::kv_set(&w, MAIN, "kept", "1").unwrap();
    let id = begin(&w, "set");
    verbs::kv_set(&w, MAIN, "turn", "2").unwrap();
    write(&w, "new", "new\n");
    finish(&w, id);
    verbs::kv_set(&w, MAIN, "later", "3").unwrap();
    let plan = verbs::undo_call(&w, MAIN, id, true).unwrap();
    assert_eq!(plan.changes.len(), 1);
    verbs::undo_call(&w, MAIN, id, false).unwrap();
    let has = |key| {
        verbs::kv_get(&w, MAIN, key)
            .unwrap()
            .map(|e| e.value.clone())
    };
    assert_eq!(
        (has("turn"), has("kept"), has("later")),
        (None, Some("1".into()), Some("3".into()))
    );
    verbs::undo(&w, MAIN).unwrap();
    assert_eq!(has("turn"), Some("2".into()));
    verbs::kv_set(&w, MAIN, "turn", "4").unwrap();
    let refused = verbs::undo_call(&w, MAIN, id, false).unwrap();
    assert_eq!(refused.conflicts[0].path, b".agentvfs/kv/turn");
    assert_eq!(has("turn"), Some("4".into()));
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
    let refused = verbs::undo_call(&w, MAIN, id, false).unwrap();
    assert_eq!(refused.conflicts.len(), 1);
    assert_eq!(refused.conflicts[0].path, b"README");
    assert_eq!(read(&w, "README"), "since\n");
    assert!(verified(&w) <= entries + 1, "a name of a commit at most");
    // A kill right after a call was taken back keeps that.
    write(&w, "README", "call\n");
    verbs::undo_call(&w, MAIN, id, false).unwrap();
    let killed = disk.image_at(disk.op_count(), Policy::Drop, 1);
    end(&engine);
    drop((w, engine));
    let (engine, w) = open(&killed, dir.path());
    assert_eq!(read(&w, "README"), "base\n");
    assert_eq!(all(&w)[0].switch, Some(SwitchWord::ToolUndo));
    verbs::undo(&w, MAIN).unwrap();
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
    verbs::checkpoint(&w, MAIN, label("good"), &|_, _| {}).unwrap();
    record(&w, "look");
    edit(&w, "src/main", "4");
    verbs::checkpoint(&w, MAIN, label("better"), &|_, _| {}).unwrap();
    verbs::rollback(&w, MAIN, &Target::Ref("good".into())).unwrap();
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
    let few = verbs::blame(&w, MAIN, b"src", 2).unwrap();
    assert_eq!(few.items.len(), 2);
    assert!(matches!(
        verbs::blame(&w, MAIN, b"none", 9),
        Err(Error::NoSuchPath(_))
    ));
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
        ..ImportedCall::default()
    };
    let done = Some(CallOutcome::Success(Some("1".into())));
    let ids = verbs::call_import(
        &w,
        MAIN,
        vec![
            call(Some(5), done.clone()),
            call(None, None),
            call(Some(9), done),
        ],
    )
    .unwrap();
    assert_eq!(ids, [5, 6, 9]);
    let item = verbs::call(&w, MAIN, 5).unwrap();
    assert_eq!(
        (item.started, item.completed, item.duration_ms()),
        (at(7), Some(at(9)), Some(2000))
    );
    assert_eq!((item.before, item.after), (None, None));
    assert_eq!(
        verbs::call(&w, MAIN, 6).unwrap().status,
        CallStatus::Pending
    );
    assert!(matches!(
        verbs::call_import(&w, MAIN, vec![call(Some(9), None)]),
        Err(Error::CallIdTaken(9))
    ));
    assert!(matches!(
        verbs::undo_call(&w, MAIN, 5, false),
        Err(Error::CallUnknown { .. })
    ));
    assert_eq!(edit(&w, "a", "1"), 10);
    verified(&w);
    end(&engine);
}
