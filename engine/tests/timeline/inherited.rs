//! A branch that is made of an older state begins with the timeline up to that state.
#![allow(clippy::unwrap_used)]

use crate::calls::*;
use engine::verbs;
use engine::{CallStatus, CheckpointRequest, Target, Workspace};

/// Takes a checkpoint; gives its commit.
fn checkpoint(w: &Workspace, branch: &str) -> String {
    let request = CheckpointRequest {
        wait: true,
        ..CheckpointRequest::default()
    };
    let made = verbs::checkpoint(w, branch, request, &|_, _| ()).unwrap();
    made.commit.unwrap().to_string()
}

/// Names of the calls and switches of a branch's own timeline, the oldest first.
fn told(w: &Workspace, branch: &str) -> Vec<String> {
    // States get their commits in the background.
    w.settle().unwrap();
    let mut names = Vec::new();
    verbs::timeline_each(w, branch, &mut |item| {
        let known = |s: Option<engine::StateRef>| s.is_some_and(|s| s.commit.is_some());
        assert!(known(item.before) && known(item.after), "{item:?}");
        names.push(item.name);
        Ok(true)
    })
    .unwrap();
    names.reverse();
    names
}

/// Names of the calls that changed a path, the oldest first.
fn blamed(w: &Workspace, branch: &str, path: &str) -> Vec<String> {
    let blame = verbs::blame(w, branch, path.as_bytes(), 100).unwrap();
    assert_eq!(blame.unknown, 0, "{blame:?}");
    let calls = blame.items.into_iter().filter(|i| i.kind == "call");
    let mut names: Vec<String> = calls.map(|i| i.name).collect();
    names.reverse();
    names
}

fn write_in(w: &Workspace, branch: &str, call: &str, path: &str, data: &str) {
    in_call(w, branch, call, || write_on(w, branch, path, data));
}

fn whole(w: &Workspace, branch: &str) {
    let found = verbs::timeline_verify(w, branch).unwrap();
    assert_eq!(found.faults, [], "{branch}");
}

#[test]
fn a_branch_of_an_older_commit_has_the_calls_up_to_it() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    write_in(&w, MAIN, "one", "a", "1");
    let first = checkpoint(&w, MAIN);
    write_in(&w, MAIN, "two", "a", "22");
    let second = checkpoint(&w, MAIN);
    write_in(&w, MAIN, "three", "a", "333");
    verbs::create_branch(&w, "b", MAIN, Some(&first)).unwrap();
    verbs::create_branch(&w, "c", MAIN, Some(&second)).unwrap();
    verbs::create_branch(&w, "all", MAIN, None).unwrap();
    let check = |w: &Workspace| {
        let names = [("b", &["one"][..]), ("c", &["one", "two"])];
        for (branch, names) in names {
            assert_eq!(blamed(w, branch, "a"), names, "{branch}");
            assert_eq!(told(w, branch), names, "{branch}");
            whole(w, branch);
        }
        assert_eq!(blamed(w, "all", "a"), ["one", "two", "three"]);
    };
    check(&w);
    end(&engine);
    drop((w, engine));
    let (engine, w) = open(&disk, dir.path());
    gc(&engine);
    check(&w);
    write_in(&w, "b", "four", "a", "4444");
    assert_eq!(blamed(&w, "b", "a"), ["one", "four"]);
    merge(&w, "c", MAIN);
    assert_eq!(blamed(&w, MAIN, "a"), ["one", "two", "three"]);
    end(&engine);
}

#[test]
fn what_a_call_left_has_the_call_and_what_it_found_has_not() {
    let dir = base();
    let (_disk, engine, w) = start(dir.path());
    write_in(&w, MAIN, "one", "a", "1");
    let id = begin(&w, "outer");
    write_in(&w, MAIN, "inner", "a", "22");
    write(&w, "a", "333");
    finish(&w, id);
    write_in(&w, MAIN, "later", "a", "4444");
    let inner = verbs::call_with_commits(&w, MAIN, id + 1).unwrap();
    let outer = verbs::call_with_commits(&w, MAIN, id).unwrap();
    let at = |state: Option<engine::StateRef>| state.unwrap().commit.unwrap().to_string();
    verbs::create_branch(&w, "before", MAIN, Some(&at(outer.before))).unwrap();
    verbs::create_branch(&w, "within", MAIN, Some(&at(inner.after))).unwrap();
    verbs::create_branch(&w, "after", MAIN, Some(&at(outer.after))).unwrap();
    assert_eq!(told(&w, "before"), ["one"]);
    assert_eq!(told(&w, "within"), ["one", "outer", "inner"]);
    assert_eq!(told(&w, "after"), ["one", "outer", "inner"]);
    let status = |branch, id| verbs::call(&w, branch, id).unwrap().status;
    assert_eq!(status("after", id), CallStatus::Success);
    assert_eq!(status("within", id + 1), CallStatus::Success);
    // It ran still at that moment.
    assert_eq!(status("within", id), CallStatus::Error);
    assert_eq!(blamed(&w, "before", "a"), ["one"]);
    assert_eq!(blamed(&w, "after", "a"), ["one", "outer", "inner"]);
    ["before", "within", "after"]
        .iter()
        .for_each(|b| whole(&w, b));
    end(&engine);
}

#[test]
fn what_another_branch_made_is_told_by_that_branch() {
    let dir = base();
    let (_disk, engine, w) = start(dir.path());
    write_in(&w, MAIN, "one", "a", "1");
    checkpoint(&w, MAIN);
    verbs::create_branch(&w, "b", MAIN, None).unwrap();
    write_in(&w, "b", "two", "a", "22");
    let second = checkpoint(&w, "b");
    write_in(&w, "b", "not-of-it", "a", "333");
    write_in(&w, MAIN, "mine", "a", "4444");
    verbs::create_branch(&w, "c", MAIN, Some(&format!("b:{second}"))).unwrap();
    assert_eq!(blamed(&w, "c", "a"), ["one", "two"]);
    whole(&w, "c");
    end(&engine);
}

#[test]
fn a_commit_named_from_elsewhere_brings_the_calls_of_all_that_it_comes_from() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    write_in(&w, MAIN, "one", "a", "1");
    checkpoint(&w, MAIN);
    verbs::create_branch(&w, "a", MAIN, None).unwrap();
    write_in(&w, "a", "two", "a", "22");
    let two = checkpoint(&w, "a");
    write_in(&w, "a", "not-of-it", "a", "3");
    write_in(&w, MAIN, "mine", "a", "4");
    // Made of what a branch made which is not the one it is named from, and so on.
    verbs::create_branch(&w, "b", MAIN, Some(&format!("a:{two}"))).unwrap();
    write_in(&w, "b", "three", "a", "333");
    let three = checkpoint(&w, "b");
    write_in(&w, "b", "not-of-it", "a", "4");
    verbs::create_branch(&w, "c", MAIN, Some(&format!("b:{three}"))).unwrap();
    write_in(&w, "c", "four", "a", "4444");
    let four = checkpoint(&w, "c");
    verbs::create_branch(&w, "d", "a", Some(&format!("c:{four}"))).unwrap();
    verbs::create_branch(&w, "e", "d", None).unwrap();
    let check = |w: &Workspace| {
        let all = ["one", "two", "three", "four"];
        for (branch, count) in [("b", 3), ("c", 4), ("d", 4), ("e", 4)] {
            let mut found = blamed(w, branch, "a");
            found.retain(|name| name != "not-of-it" || branch != "b");
            assert_eq!(found, all[..count], "{branch}");
            whole(w, branch);
        }
    };
    check(&w);
    delete(&w, "a");
    delete(&w, "b");
    check_but_b(&w);
    end(&engine);
    drop((w, engine));
    let (engine, w) = open(&disk, dir.path());
    gc(&engine);
    check_but_b(&w);
    end(&engine);
}

fn check_but_b(w: &Workspace) {
    for branch in ["c", "d", "e"] {
        let all = ["one", "two", "three", "four"];
        assert_eq!(blamed(w, branch, "a"), all, "{branch}");
    }
}

#[test]
fn a_log_that_is_in_the_store_is_cut_too() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    let big = |n: usize| format!("\"{}\"", format!("{n} ").repeat(150_000));
    let note = |n: usize| {
        let call = engine::CallRecord {
            name: format!("call-{n}"),
            parameters: Some(big(n)),
            outcome: engine::CallOutcome::Success(None),
            started: None,
            completed: None,
        };
        write(&w, "a", &n.to_string().repeat(n));
        verbs::call_record(&w, MAIN, call).unwrap();
    };
    (1..30).for_each(note);
    let commit = checkpoint(&w, MAIN);
    (30..60).for_each(note);
    verbs::create_branch(&w, "b", MAIN, Some(&commit)).unwrap();
    let names: Vec<String> = (1..30).map(|n| format!("call-{n}")).collect();
    assert_eq!(told(&w, "b"), names);
    end(&engine);
    drop((w, engine));
    let (engine, w) = open(&disk, dir.path());
    gc(&engine);
    assert_eq!(told(&w, "b"), names);
    whole(&w, "b");
    verbs::rollback(&w, MAIN, &Target::Ref(commit)).unwrap();
    verbs::create_branch(&w, "all", MAIN, None).unwrap();
    assert_eq!(told(&w, "all").len(), 60);
    end(&engine);
}
