//! Calls that are begun and ended by a key, and commits of turns: what an agent's hooks make.
#![allow(clippy::unwrap_used)]

use crate::calls::*;
use engine::verbs;
use engine::{
    AutomaticRequest, CallOutcome, CallStart, CallStatus, CheckpointRequest, EndedBy, Error, Owner,
    Target, Workspace,
};
use objstore::crash_storage::Policy;

fn begin_keyed(w: &Workspace, branch: &str, key: &str) -> u64 {
    let call = CallStart {
        name: "Bash".into(),
        unsynced: true,
        owner: Owner::Key(key.into()),
        ..CallStart::default()
    };
    verbs::call_start(w, branch, call).unwrap()
}

fn finish_keyed(w: &Workspace, key: &str) -> Option<u64> {
    let outcome = CallOutcome::Success(None);
    verbs::call_finish_keyed(w, (key, None), (outcome, true)).unwrap()
}

#[test]
fn a_key_names_a_call_until_it_ends() {
    let dir = base();
    let (_, _engine, w) = start(dir.path());
    assert_eq!(finish_keyed(&w, "a:s:1"), None, "a finish without a start");
    assert_eq!(all(&w).len(), 0);
    let one = begin_keyed(&w, MAIN, "a:s:1");
    assert_eq!(begin_keyed(&w, MAIN, "a:s:1"), one, "told of twice");
    write(&w, "one", "1\n");
    let two = begin_keyed(&w, MAIN, "a:s:2");
    assert_ne!(one, two);
    assert_eq!(finish_keyed(&w, "a:s:1"), Some(one));
    assert_eq!(finish_keyed(&w, "a:s:1"), None, "ended twice");
    write(&w, "two", "2\n");
    assert_eq!(finish_keyed(&w, "a:s:2"), Some(two));
    let items = all(&w);
    assert_eq!(items.len(), 2);
    // They ran beside each other, and neither is part of the other.
    assert!(items.iter().all(|i| i.parent.is_none()), "{items:?}");
    assert_eq!(items[0].overlaps, [one]);
    let keys: Vec<_> = items.iter().map(|i| i.key.as_deref().unwrap()).collect();
    assert_eq!(keys, ["a:s:2", "a:s:1"]);
    // The key is free again.
    assert_eq!(begin_keyed(&w, MAIN, "a:s:1"), two + 1);
    assert_eq!(finish_keyed(&w, "a:s:1"), Some(two + 1));
    verified(&w);
}

#[test]
fn keys_are_known_after_a_power_cut_and_a_clean_end() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    let id = begin_keyed(&w, MAIN, "a:s:1");
    // What is synced next has the call, too.
    write(&w, "f", "x\n");
    let after_cut = disk.image_at(disk.op_count(), Policy::Drop, 1);
    end(&engine);
    drop((engine, w));
    for disk in [disk, after_cut] {
        let (engine, w) = open(&disk, dir.path());
        assert_eq!(begin_keyed(&w, MAIN, "a:s:1"), id, "it still runs");
        assert_eq!(finish_keyed(&w, "a:s:1"), Some(id));
        w.settle().unwrap();
        assert_eq!(changed(&w, id), ["A f"]);
        verified(&w);
        drop((engine, w));
    }
}

#[test]
fn a_call_is_ended_on_whichever_branch_it_runs_and_only_those_meant_are_given_up() {
    let dir = base();
    let (_, _engine, w) = start(dir.path());
    verbs::create_branch(&w, "fix", MAIN, None).unwrap();
    let there = begin_keyed(&w, "fix", "a:s:1");
    assert_eq!(finish_keyed(&w, "a:s:1"), Some(there));
    let given_up = begin_keyed(&w, "fix", "a:s:2");
    let mine = begin_keyed(&w, MAIN, "a:s:3");
    for other in ["a:s/sub:4", "a:s2:5", "b:s:6"] {
        begin_keyed(&w, MAIN, other);
    }
    begin(&w, "nobody's");
    let why = "no end was reported";
    assert_eq!(verbs::give_up_keyed(&w, ("a:s:", None), why).unwrap(), 2);
    assert_eq!(verbs::give_up_keyed(&w, ("a:s:", None), why).unwrap(), 0);
    for (branch, id) in [("fix", given_up), (MAIN, mine)] {
        let item = verbs::call(&w, branch, id).unwrap();
        assert_eq!(item.status, CallStatus::Error);
        assert_eq!(item.error.as_deref(), Some(why));
        assert_eq!(item.ended_by, Some(EndedBy::Nobody));
    }
    assert_eq!(verbs::running_calls(&w, MAIN).unwrap().len(), 4);
    assert_eq!(finish_keyed(&w, "a:s:3"), None);
}

#[test]
fn keys_that_cannot_be_are_refused() {
    let dir = base();
    let (_, _engine, w) = start(dir.path());
    for key in ["", "a\nb", &"x".repeat(513)] {
        let call = CallStart {
            name: "Bash".into(),
            owner: Owner::Key(key.into()),
            ..CallStart::default()
        };
        let refused = verbs::call_start(&w, MAIN, call);
        assert!(matches!(refused, Err(Error::BadName { .. })), "{refused:?}");
    }
    assert_eq!(all(&w).len(), 0);
}

fn commit(w: &Workspace, key: &str, unlike: Option<&str>) -> bool {
    let request = AutomaticRequest {
        commit: CheckpointRequest {
            meta: vec![(key.into(), "7".into())],
            ..CheckpointRequest::default()
        },
        unlike: unlike.map(|key| (key.to_owned(), "7".to_owned())),
        joins: None,
    };
    let made = verbs::commit_automatically(w, MAIN, request, &|_, _| {});
    made.unwrap().is_some()
}

#[test]
fn a_turn_has_an_end_only_where_it_changed_something() {
    let dir = base();
    let (_, _engine, w) = start(dir.path());
    write(&w, "f", "before\n");
    assert!(commit(&w, "prompt", None));
    assert!(!commit(&w, "prompt-end", Some("prompt")));
    write(&w, "f", "in the turn\n");
    // A call's own states do not hide that the turn changed something.
    let id = begin_keyed(&w, MAIN, "a:s:1");
    assert_eq!(finish_keyed(&w, "a:s:1"), Some(id));
    assert!(commit(&w, "prompt-end", Some("prompt")));
    write(&w, "f", "after\n");
    let back = |key: &str| {
        let target = Target::Meta {
            key: key.into(),
            value: "7".into(),
        };
        verbs::rollback(&w, MAIN, &target).unwrap();
        read(&w, "f")
    };
    assert_eq!(back("prompt-end"), "in the turn\n");
    assert_eq!(back("prompt"), "before\n");
    assert!(
        commit(&w, "session-end", Some("session")),
        "none to be like"
    );
}

/// Ends a turn of a session; gives its metadata as they are in the newest commit that `rollback` finds for it.
fn turn_ends(w: &Workspace, session: &str) -> Vec<(String, String)> {
    let pair = |key: &str| (key.to_owned(), session.to_owned());
    let request = AutomaticRequest {
        commit: CheckpointRequest {
            meta: vec![pair("prompt-end"), pair("session")],
            ..CheckpointRequest::default()
        },
        unlike: Some(pair("session")),
        joins: Some("prompt-end".into()),
    };
    let made = verbs::commit_automatically(w, MAIN, request, &|_, _| {}).unwrap();
    let state = made.unwrap().state;
    let log = verbs::log(w, MAIN, true).unwrap();
    log.into_iter().find(|e| e.number == state).unwrap().meta
}

#[test]
fn turns_that_end_with_the_same_files_are_in_one_commit_and_others_are_not() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    let meta = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(pair).collect()
    };
    write(&w, "f", "both\n");
    let own = meta(&[("prompt-end", "a"), ("session", "a")]);
    assert_eq!(turn_ends(&w, "a"), own);
    let both = meta(&[
        ("prompt-end", "b"),
        ("prompt-end.2", "a"),
        ("session", "b"),
        ("session.2", "a"),
    ]);
    assert_eq!(turn_ends(&w, "b"), both);
    write(&w, "f", "later\n");
    let own = meta(&[("prompt-end", "c"), ("session", "c")]);
    assert_eq!(turn_ends(&w, "c"), own, "other files");
    end(&engine);
    drop((engine, w));
    let (_engine, w) = open(&disk, dir.path());
    for session in ["a", "b"] {
        let target = Target::Meta {
            key: "prompt-end".into(),
            value: session.into(),
        };
        verbs::rollback(&w, MAIN, &target).unwrap();
        assert_eq!(read(&w, "f"), "both\n");
    }
}
