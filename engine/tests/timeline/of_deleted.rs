//! The timelines that a branch's commits lead into: they live as long as these, also where the branch that they
//! were recorded on was deleted, and over power cuts in the middle of that.
#![allow(clippy::unwrap_used)]

use crate::calls::*;
use engine::verbs;
use engine::{CallOutcome, CallRecord, CallStatus, GcRequest, Workspace};
use objstore::crash_storage::Policy;

/// A call on a branch that writes a file.
fn edit_on(w: &Workspace, branch: &str, name: &str, path: &str, data: &str) -> u64 {
    write_on(w, branch, path, data);
    let call = CallRecord {
        name: name.into(),
        parameters: None,
        outcome: CallOutcome::Success(None),
        started: None,
        completed: None,
    };
    verbs::call_record(w, branch, call).unwrap()
}

/// Of each timeline: its branch, `!` where that is deleted, and the names of what is in it, the newest first.
fn told(w: &Workspace, branch: &str) -> Vec<String> {
    let of = |source: &engine::TimelineSource| {
        let mut names = Vec::new();
        verbs::timeline_of(w, source, &mut |item| {
            names.push(item.name);
            Ok(true)
        })
        .unwrap();
        let gone = if source.deleted.is_some() { "!" } else { "" };
        format!("{}{gone}: {}", source.branch, names.join(" "))
    };
    verbs::timelines(w, branch)
        .unwrap()
        .iter()
        .map(of)
        .collect()
}

#[test]
fn the_timeline_of_a_merged_branch_outlives_the_branch() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    edit_on(&w, MAIN, "before", "a", "1");
    verbs::create_branch(&w, "b", MAIN, None).unwrap();
    edit_on(&w, "b", "on-b", "b", "1");
    edit_on(&w, MAIN, "meanwhile", "m", "1");
    merge(&w, "b", MAIN);
    edit_on(&w, "b", "not-merged", "c", "1");
    let ours = "main: merge meanwhile before";
    assert_eq!(told(&w, MAIN), [ours, "b: on-b"]);
    delete(&w, "b");
    assert_eq!(told(&w, MAIN), [ours, "b!: on-b"]);
    gc(&engine);
    end(&engine);
    drop((w, engine));
    let (engine, w) = open(&disk, dir.path());
    gc(&engine);
    assert_eq!(told(&w, MAIN), [ours, "b!: on-b"]);
    let source = &verbs::timelines(&w, MAIN).unwrap()[1];
    verbs::timeline_of(&w, source, &mut |item| {
        let known = |s: Option<engine::StateRef>| s.is_some_and(|s| s.commit.is_some());
        assert!(known(item.before) && known(item.after), "{item:?}");
        Ok(true)
    })
    .unwrap();
    verified(&w);
    end(&engine);
}

#[test]
fn timelines_of_branches_merged_into_one_another_are_told_once() {
    let dir = base();
    let (_disk, engine, w) = start(dir.path());
    edit_on(&w, MAIN, "one", "a", "1");
    verbs::create_branch(&w, "b", MAIN, None).unwrap();
    edit_on(&w, "b", "two", "b", "1");
    verbs::create_branch(&w, "c", "b", None).unwrap();
    edit_on(&w, "b", "three", "b", "2");
    edit_on(&w, "c", "four", "c", "1");
    merge(&w, "c", "b");
    edit_on(&w, MAIN, "five", "m", "1");
    merge(&w, "b", MAIN);
    let all = ["main: merge five one", "b: merge three two", "c: four"];
    assert_eq!(told(&w, MAIN), all);
    delete(&w, "b");
    delete(&w, "c");
    let all = ["main: merge five one", "b!: merge three two", "c!: four"];
    assert_eq!(told(&w, MAIN), all);
    gc(&engine);
    assert_eq!(told(&w, MAIN), all);
    end(&engine);
}

#[test]
fn what_no_commit_leads_into_goes_with_its_grace_period() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    let kept = || {
        let refs = objstore::refs::RefStore::open(std::sync::Arc::new(disk.clone())).unwrap();
        refs.list("timelines").unwrap().len()
    };
    edit_on(&w, MAIN, "one", "a", "1");
    verbs::create_branch(&w, "idle", MAIN, None).unwrap();
    write_on(&w, "idle", "x", "1");
    delete(&w, "idle");
    assert_eq!(kept(), 0, "it has no entries of its own");
    verbs::create_branch(&w, "b", MAIN, None).unwrap();
    edit_on(&w, "b", "two", "b", "1");
    delete(&w, "b");
    assert_eq!(kept(), 1, "its last commit can still be named");
    engine.gc(GcRequest::default(), &|_, _| ()).unwrap();
    assert_eq!(kept(), 1);
    gc(&engine);
    assert_eq!(kept(), 0);
    end(&engine);
}

#[test]
fn a_call_that_ran_when_its_branch_was_deleted_has_ended() {
    let dir = base();
    let (_disk, engine, w) = start(dir.path());
    verbs::create_branch(&w, "b", MAIN, None).unwrap();
    let call = engine::CallStart {
        name: "runs".into(),
        ..engine::CallStart::default()
    };
    verbs::call_start(&w, "b", call).unwrap();
    write_on(&w, "b", "b", "1");
    verbs::checkpoint(&w, "b", Default::default(), &|_, _| {}).unwrap();
    merge(&w, "b", MAIN);
    delete(&w, "b");
    let sources = verbs::timelines(&w, MAIN).unwrap();
    let mut items = Vec::new();
    verbs::timeline_of(&w, &sources[1], &mut |item| {
        items.push(item);
        Ok(true)
    })
    .unwrap();
    assert_eq!((items.len(), items[0].status), (1, CallStatus::Error));
    assert!(items[0].completed.is_some());
    end(&engine);
}

#[test]
fn a_power_cut_while_a_branch_is_deleted_loses_neither_it_nor_its_timeline() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    verbs::checkpoint(&w, MAIN, Default::default(), &|_, _| {}).unwrap();
    verbs::create_branch(&w, "b", MAIN, None).unwrap();
    edit_on(&w, "b", "on-b", "b", "1");
    edit_on(&w, MAIN, "meanwhile", "m", "1");
    merge(&w, "b", MAIN);
    let began = disk.op_count();
    delete(&w, "b");
    let ended = disk.op_count();
    end(&engine);
    drop((w, engine));
    for cut in began..=ended {
        for policy in Policy::ALL {
            let image = disk.image_at(cut, policy, cut as u64);
            let (engine, w) = open(&image, dir.path());
            let found = told(&w, MAIN);
            let there = verbs::timelines(&w, "b").is_ok();
            let expected = if there { "b: on-b" } else { "b!: on-b" };
            assert_eq!(found[1..], [expected.to_owned()], "cut {cut} {policy:?}");
            gc(&engine);
            assert_eq!(told(&w, MAIN), found, "cut {cut} {policy:?}, after gc");
            end(&engine);
        }
    }
}
