//! Calls inside calls, and beside them: what each changed is told apart, or refused.
#![allow(clippy::unwrap_used)]

use crate::calls::*;
use engine::verbs;
use engine::{CallStart, Error, Owner, Process, Workspace};
use objstore::crash_storage::Policy;
use std::time::{Duration, Instant};

fn process(pid: u32) -> Process {
    Process {
        pid,
        started: 7,
        boot: 1,
    }
}

/// A call of the first process of a lineage.
fn begin_in(w: &Workspace, lineage: &[Process]) -> u64 {
    let call = CallStart {
        name: "run".into(),
        owner: Owner::Process(lineage[0]),
        lineage: lineage.to_vec(),
        ..CallStart::default()
    };
    verbs::call_start(w, MAIN, call).unwrap()
}

fn refused(w: &Workspace, id: u64) -> (String, Vec<u64>) {
    match verbs::undo_call(w, MAIN, id, false) {
        Err(Error::CallUnknown { why, pending, .. }) => (why, pending),
        other => panic!("call {id}: {other:?}"),
    }
}

#[test]
fn a_call_inside_another_is_its_part() {
    let dir = base();
    let (_, engine, w) = start(dir.path());
    let outer = begin(&w, "hook");
    write(&w, "a", "outer\n");
    let inner = begin(&w, "mcp");
    write(&w, "b", "inner\n");
    let innermost = edit(&w, "c", "innermost\n");
    finish(&w, inner);
    write(&w, "d", "outer\n");
    finish(&w, outer);
    w.settle().unwrap();
    let item = |id| verbs::call(&w, MAIN, id).unwrap();
    let parents = [outer, inner, innermost].map(|id| item(id).parent);
    assert_eq!(parents, [None, Some(outer), Some(inner)]);
    assert_eq!(item(outer).overlaps, [0; 0]);
    assert_eq!(changed(&w, innermost), ["A c"]);
    assert_eq!(changed(&w, inner), ["A b", "A c"]);
    assert_eq!(changed(&w, outer), ["A a", "A b", "A c", "A d"]);
    // The innermost alone, then all that is left of the outer one.
    let undone = verbs::undo_call(&w, MAIN, innermost, false).unwrap();
    assert_eq!(undone.conflicts, []);
    assert_eq!(names(&w), ["README", "a", "b", "d", "src"]);
    let undone = verbs::undo_call(&w, MAIN, outer, false).unwrap();
    assert_eq!(undone.conflicts, []);
    assert_eq!(names(&w), ["README", "src"]);
    verified(&w);
    end(&engine);
}

#[test]
fn a_call_that_nobody_ended_takes_nothing_from_those_inside_it() {
    let dir = base();
    let (_, engine, w) = start(dir.path());
    let dead = begin(&w, "dead");
    let later = edit(&w, "a", "1\n");
    assert_eq!(verbs::call_doubt(&w, MAIN, later).unwrap(), None);
    verbs::undo_call(&w, MAIN, later, false).unwrap();
    assert_eq!(names(&w), ["README", "src"]);
    let (why, pending) = refused(&w, dead);
    assert_eq!((why.as_str(), pending), ("it has not ended", vec![dead]));
    end(&engine);
}

#[test]
fn calls_of_processes_that_did_not_start_each_other_are_not_parts() {
    let dir = base();
    let (_, engine, w) = start(dir.path());
    let (one, other, child) = (process(1), process(2), process(3));
    let outer = begin_in(&w, &[one]);
    write(&w, "a", "1\n");
    let beside = begin_in(&w, &[other]);
    write(&w, "b", "1\n");
    let inside = begin_in(&w, &[child, one]);
    write(&w, "c", "1\n");
    finish(&w, inside);
    finish(&w, beside);
    finish(&w, outer);
    let overlaps = |id| verbs::call(&w, MAIN, id).unwrap().overlaps;
    assert_eq!(overlaps(outer), [beside]);
    assert_eq!(overlaps(beside), [outer, inside]);
    assert_eq!(overlaps(inside), [beside]);
    assert_eq!(verbs::call(&w, MAIN, inside).unwrap().parent, Some(outer));
    for id in [outer, beside, inside] {
        assert!(refused(&w, id).0.contains("at the same time"));
    }
    // The process that asks makes several calls at once: none is part of another.
    let first = begin_in(&w, &[one]);
    let second = begin_in(&w, &[one]);
    finish(&w, second);
    finish(&w, first);
    assert_eq!(overlaps(first), [second]);
    end(&engine);
}

#[test]
fn calls_that_overlap_are_told_apart_where_nothing_changed_while_both_ran() {
    let dir = base();
    let (_, engine, w) = start(dir.path());
    let one = begin(&w, "one");
    write(&w, "a", "1\n");
    let other = begin(&w, "other");
    finish(&w, one);
    write(&w, "b", "2\n");
    // Still running, and yet it is certain that nothing of this is its.
    assert_eq!(verbs::call_doubt(&w, MAIN, one).unwrap(), None);
    finish(&w, other);
    verbs::undo_call(&w, MAIN, one, false).unwrap();
    assert_eq!(names(&w), ["README", "b", "src"]);
    verbs::undo_call(&w, MAIN, other, false).unwrap();
    assert_eq!(names(&w), ["README", "src"]);
    let third = begin(&w, "third");
    let fourth = begin(&w, "fourth");
    write(&w, "c", "3\n");
    finish(&w, third);
    let (why, pending) = refused(&w, third);
    assert!(why.contains(&format!("{fourth} has not ended")), "{why}");
    assert_eq!(pending, [fourth]);
    end(&engine);
}

#[test]
fn parts_are_known_after_a_power_cut_and_a_clean_end() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    let outer = begin_in(&w, &[process(1)]);
    let beside = begin_in(&w, &[process(2)]);
    let after_cut = disk.image_at(disk.op_count(), Policy::Drop, 1);
    let running = |w: &Workspace| {
        let calls = verbs::running_calls(w, MAIN).unwrap();
        calls
            .into_iter()
            .map(|c| (c.id, c.owner))
            .collect::<Vec<_>>()
    };
    let expected = [(outer, 1), (beside, 2)].map(|(id, pid)| (id, Owner::Process(process(pid))));
    assert_eq!(running(&w), expected);
    end(&engine);
    drop((engine, w));
    for disk in [disk, after_cut] {
        let (engine, w) = open(&disk, dir.path());
        assert_eq!(running(&w), expected);
        let inside = begin_in(&w, &[process(3), process(2)]);
        finish(&w, inside);
        let item = verbs::call(&w, MAIN, inside).unwrap();
        assert_eq!((item.parent, item.overlaps), (Some(beside), vec![outer]));
        verified(&w);
        end(&engine);
    }
}

#[test]
fn calls_end_with_their_process_and_others_when_they_are_overdue() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    let (lives, dies) = (process(1), process(2));
    let living = begin_in(&w, &[lives]);
    let dead = begin_in(&w, &[dies, lives]);
    let inside = begin_in(&w, &[dies, lives]);
    write(&w, "a", "1\n");
    assert_eq!(verbs::calling(&w), [lives, dies]);
    let image = disk.image_at(disk.op_count(), Policy::Keep, 1);
    assert_eq!(verbs::end_calls_of(&w, &|p| *p == dies).unwrap(), 2);
    let died = |w: &Workspace| {
        let item = verbs::call(w, MAIN, dead).unwrap();
        let parent = verbs::call(w, MAIN, inside).unwrap().parent;
        assert_eq!(item.error.as_deref(), Some("its process died"));
        assert_eq!((item.parent, parent), (Some(living), Some(living)));
        assert_eq!(changed(w, dead), ["A a"]);
    };
    w.settle().unwrap();
    died(&w);
    let later = begin_in(&w, &[process(9), lives]);
    write(&w, "b", "2\n");
    finish(&w, later);
    verbs::undo_call(&w, MAIN, later, false).unwrap();
    assert_eq!(verbs::end_calls_of(&w, &|p| *p == dies).unwrap(), 0);
    let by_hand = begin(&w, "by hand");
    let mut settings = engine.settings();
    settings.end_calls = Some(Duration::ZERO);
    engine.set_settings(settings).unwrap();
    until(|| verbs::running_calls(&w, MAIN).unwrap().len() == 1);
    assert!(refused(&w, by_hand).0.contains("its end was not reported"));
    assert_eq!(verbs::running_calls(&w, MAIN).unwrap()[0].id, living);
    verified(&w);
    end(&engine);
    drop((engine, w));
    // The machine went away meanwhile: it is the same as soon as somebody says so.
    let (engine, w) = open(&image, dir.path());
    assert_eq!(verbs::end_calls_of(&w, &|p| *p == dies).unwrap(), 2);
    w.settle().unwrap();
    died(&w);
    verified(&w);
    end(&engine);
}

/// Waits for something, half a minute at most.
fn until(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "it did not come about");
        std::thread::yield_now();
    }
}
