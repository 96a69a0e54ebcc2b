//! Calls that run side by side, of processes of which it is known which change each made: what each changed is told
//! apart, or refused with the path that both changed or that nobody knows of.
#![allow(clippy::unwrap_used)]

use crate::calls::*;
use engine::verbs;
use engine::{
    BlameItem, CallStart, CallUndone, Caller, DiffSide, Error, Owner, Process, Target, Workspace,
    acting_as,
};
use objstore::crash_storage::Policy;

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

/// Two calls of processes that have nothing to do with each other.
fn two(w: &Workspace) -> [u64; 2] {
    [1, 2].map(|pid| begin_in(w, &[process(pid)]))
}

/// Something that a process does which the process of a call started.
fn by(pid: u32, work: impl FnOnce()) {
    acting_as(&[process(100 + pid), process(pid)], work);
}

fn undo(w: &Workspace, id: u64) -> CallUndone {
    let undone = verbs::undo_call(w, MAIN, id, false).unwrap();
    assert_eq!(undone.conflicts, []);
    undone
}

fn refused(w: &Workspace, id: u64) -> String {
    match verbs::undo_call(w, MAIN, id, false) {
        Err(Error::CallUnknown { why, .. }) => why,
        other => panic!("call {id}: {other:?}"),
    }
}

/// What `tool diff` shows.
fn own(w: &Workspace, id: u64) -> Vec<String> {
    let item = verbs::call_with_commits(w, MAIN, id).unwrap();
    assert_eq!(verbs::call_doubt(w, MAIN, id).unwrap(), None);
    let before = verbs::call_own_before(w, MAIN, id).unwrap();
    let before = before.or(item.before.unwrap().commit);
    let side = |commit: Option<engine::CommitId>| DiffSide::Ref(commit.unwrap().to_string());
    let changes = verbs::diff(
        w,
        MAIN,
        &side(before),
        &side(item.after.unwrap().commit),
        &[],
    );
    let path = |c: &engine::Change| String::from_utf8_lossy(&c.path).into_owned();
    let changes = changes.unwrap();
    changes
        .iter()
        .map(|c| format!("{} {}", c.status, path(c)))
        .collect()
}

/// Calls that changed a path, each with those that may have done it in its place.
fn who(w: &Workspace, path: &str) -> Vec<(u64, Vec<u64>)> {
    let blame = verbs::blame(w, MAIN, path.as_bytes(), 100).unwrap();
    let one = |i: BlameItem| Some((i.call?, i.overlaps));
    let mut found: Vec<_> = blame.items.into_iter().filter_map(one).collect();
    found.sort();
    found
}

fn remove(w: &Workspace, path: &str) {
    verbs::remove_path(w, MAIN, path.as_bytes(), true).unwrap();
}

#[test]
fn calls_that_change_different_files_are_told_apart() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    write(&w, "shared", "0\n");
    let one = begin_in(&w, &[process(1)]);
    // Whoever does it, while one call runs alone it is this one's.
    write(&w, "alone", "1\n");
    let other = begin_in(&w, &[process(2)]);
    by(1, || write(&w, "a", "1\n"));
    by(2, || write(&w, "b", "2\n"));
    by(1, || write(&w, "dir/a", "1\n"));
    by(2, || write(&w, "dir/b", "2\n"));
    by(2, || remove(&w, "src/main"));
    by(1, || drop(verbs::kv_set(&w, MAIN, "one", "1").unwrap()));
    by(2, || drop(verbs::kv_set(&w, MAIN, "other", "2").unwrap()));
    by(1, || write(&w, "README", "1\n"));
    finish(&w, one);
    by(2, || write(&w, "b", "over\n"));
    write(&w, "later", "2\n");
    finish(&w, other);
    let check = |w: &Workspace| {
        assert_eq!(own(w, one), ["M README", "A a", "A alone", "A dir/a"]);
        let all = ["A b", "A dir/b", "A later", "D src/main"];
        assert_eq!(own(w, other), all);
        assert_eq!(who(w, "dir/a"), [(one, vec![])]);
        assert_eq!(who(w, "dir/b"), [(other, vec![])]);
        assert_eq!(who(w, "src/main"), [(other, vec![])]);
        assert_eq!(who(w, "alone"), [(one, vec![])]);
        assert_eq!(who(w, "a"), [(one, vec![])]);
        verified(w);
    };
    check(&w);
    end(&engine);
    drop((engine, w));
    let (engine, w) = open(&disk, dir.path());
    gc(&engine);
    check(&w);
    undo(&w, other);
    assert_eq!(names(&w), ["README", "a", "alone", "dir", "shared", "src"]);
    assert_eq!(
        (read(&w, "a"), read(&w, "README")),
        ("1\n".into(), "1\n".into())
    );
    undo(&w, one);
    // A directory that one made and in which the other had something stays.
    assert_eq!(names(&w), ["README", "dir", "shared", "src"]);
    assert_eq!(read(&w, "README"), "base\n");
    assert!(verbs::kv_of(&w, MAIN, &DiffSide::Live).unwrap().is_empty());
    end(&engine);
}

#[test]
fn what_both_changed_is_refused_and_named() {
    let dir = base();
    let (_disk, engine, w) = start(dir.path());
    let both = |do_one: &dyn Fn(), do_other: &dyn Fn(), path: &str| {
        let [one, other] = two(&w);
        by(1, do_one);
        by(2, do_other);
        finish(&w, other);
        finish(&w, one);
        for (id, with) in [(one, other), (other, one)] {
            let why = refused(&w, id);
            let wanted = format!(
                "it ran at the same time as {with}, and {path} was changed by it and by another"
            );
            assert_eq!(why, wanted);
        }
        assert_eq!(verbs::call(&w, MAIN, one).unwrap().overlaps, [other]);
    };
    both(&|| write(&w, "x", "1\n"), &|| write(&w, "x", "2\n"), "x");
    both(
        &|| drop(verbs::kv_set(&w, MAIN, "k", "1").unwrap()),
        &|| drop(verbs::kv_set(&w, MAIN, "k", "2").unwrap()),
        "key k",
    );
    write(&w, "d/f", "0\n");
    both(
        &|| write(&w, "d/f", "1\n"),
        &|| rename_on(&w, MAIN, "d", "e"),
        "d/f",
    );
    both(
        &|| rename_on(&w, MAIN, "e", "d"),
        &|| write(&w, "d/new", "1\n"),
        "d/new",
    );
    assert_eq!(who(&w, "x").len(), 2);
    assert!(who(&w, "x").iter().all(|(_, overlaps)| overlaps.len() == 1));
    end(&engine);
}

#[test]
fn what_a_call_changed_alone_and_another_changed_later_is_refused_to_the_first() {
    let dir = base();
    let (_disk, engine, w) = start(dir.path());
    let one = begin_in(&w, &[process(1)]);
    write(&w, "x", "1\n");
    let other = begin_in(&w, &[process(2)]);
    by(2, || write(&w, "x", "2\n"));
    by(1, || write(&w, "y", "1\n"));
    finish(&w, other);
    finish(&w, one);
    assert!(refused(&w, one).ends_with("x was changed by it and by another"));
    assert_eq!(own(&w, other), ["M x"]);
    assert_eq!(who(&w, "x"), [(one, vec![other]), (other, vec![])]);
    undo(&w, other);
    assert_eq!((read(&w, "x"), read(&w, "y")), ("1\n".into(), "1\n".into()));
    end(&engine);
}

#[test]
fn a_change_of_which_nobody_knows_is_refused_to_all_that_run() {
    let dir = base();
    let (_disk, engine, w) = start(dir.path());
    let unknown: [&dyn Fn(); 4] = [
        &|| write(&w, "x", "?\n"),
        // It descends from neither, or from both.
        &|| by(3, || write(&w, "x", "??\n")),
        &|| {
            acting_as(&[process(9), process(1), process(2)], || {
                write(&w, "x", "!\n")
            })
        },
        &|| engine::acting_for(u32::MAX, || write(&w, "x", "!!\n")),
    ];
    for change in unknown {
        let [one, other] = two(&w);
        by(1, || write(&w, "a", "1\n"));
        change();
        finish(&w, one);
        finish(&w, other);
        for id in [one, other] {
            assert!(refused(&w, id).ends_with("it is not known which call changed x"));
        }
    }
    // While one runs alone it does not matter.
    let [one, other] = two(&w);
    by(1, || write(&w, "a", "11\n"));
    finish(&w, other);
    write(&w, "x", "again\n");
    finish(&w, one);
    assert_eq!(own(&w, other), [""; 0]);
    assert_eq!(own(&w, one), ["M a", "M x"]);
    end(&engine);
}

#[test]
fn calls_inside_those_that_run_side_by_side_are_their_parts() {
    let dir = base();
    let (_disk, engine, w) = start(dir.path());
    let [one, other] = two(&w);
    let inner = begin_in(&w, &[process(3), process(1)]);
    let inside = |pids: &[u32], path: &str| {
        let lineage: Vec<Process> = pids.iter().map(|pid| process(*pid)).collect();
        acting_as(&lineage, || write(&w, path, "1\n"));
    };
    inside(&[4, 3, 1], "inner");
    inside(&[5, 1], "outer");
    inside(&[6, 2], "other");
    finish(&w, inner);
    finish(&w, one);
    finish(&w, other);
    assert_eq!(verbs::call(&w, MAIN, inner).unwrap().parent, Some(one));
    assert_eq!(own(&w, one), ["A inner", "A outer"]);
    assert_eq!(own(&w, other), ["A other"]);
    // What the one around it did meanwhile counts as the inner one's, as where nothing runs beside it.
    assert_eq!(own(&w, inner), ["A inner", "A outer"]);
    // Several calls of one process: whose a change is nobody knows.
    let [first, second] = [1, 1].map(|pid| begin_in(&w, &[process(pid)]));
    by(1, || write(&w, "x", "1\n"));
    finish(&w, first);
    finish(&w, second);
    assert!(refused(&w, first).contains("it is not known which call changed x"));
    end(&engine);
}

#[test]
fn links_and_renames_are_changes_of_all_names() {
    let dir = base();
    let (_disk, engine, w) = start(dir.path());
    write(&w, "f", "0\n");
    write(&w, "g", "0\n");
    let root = engine::NodeId::ROOT;
    let node = |name: &str| {
        let attr = w
            .lookup(root, name.as_bytes(), engine::Wait::Allowed)
            .unwrap();
        attr.node
    };
    let link = |name: &str, to: &str| {
        w.link(node(name), root, to.as_bytes(), engine::Wait::Allowed)
            .unwrap();
    };
    link("f", "f2");
    let [one, other] = two(&w);
    by(1, || write(&w, "f", "1\n"));
    by(2, || rename_on(&w, MAIN, "g", "h"));
    finish(&w, one);
    finish(&w, other);
    assert_eq!(own(&w, one), ["M f", "M f2"]);
    assert_eq!(own(&w, other), ["R h"]);
    undo(&w, other);
    undo(&w, one);
    assert_eq!(
        (read(&w, "g"), read(&w, "f2")),
        ("0\n".into(), "0\n".into())
    );
    let [one, other] = two(&w);
    by(1, || write(&w, "f", "1\n"));
    by(2, || link("f2", "f3"));
    finish(&w, one);
    finish(&w, other);
    assert!(refused(&w, one).ends_with("f was changed by it and by another"));
    end(&engine);
}

#[test]
fn rollbacks_crashes_and_calls_that_nobody_ends_leave_the_doubt() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    let [one, other] = two(&w);
    by(1, || write(&w, "a", "1\n"));
    verbs::rollback(&w, MAIN, &Target::Head).unwrap();
    by(2, || write(&w, "b", "2\n"));
    finish(&w, one);
    finish(&w, other);
    assert!(refused(&w, one).contains("rolled back"));
    // Calls that ran when the daemon died: what was changed before that is not known any more.
    let [one, other] = two(&w);
    by(1, || write(&w, "c", "1\n"));
    let image = disk.image_at(disk.op_count(), Policy::Keep, 1);
    finish(&w, one);
    finish(&w, other);
    assert_eq!(own(&w, one), ["A c"]);
    end(&engine);
    drop((engine, w));
    let (engine, w) = open(&image, dir.path());
    let third = begin_in(&w, &[process(3)]);
    by(2, || write(&w, "d", "2\n"));
    by(3, || write(&w, "e", "3\n"));
    for id in [one, other, third] {
        finish(&w, id);
    }
    assert_eq!(own(&w, third), ["A e"]);
    assert!(refused(&w, one).contains("at the same time"));
    assert!(refused(&w, other).contains("at the same time"));
    verified(&w);
    end(&engine);
}

#[test]
fn what_was_told_of_a_call_whose_end_a_crash_cut_off_does_not_count() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    let [one, other] = two(&w);
    by(1, || write(&w, "a", "1\n"));
    let from = disk.op_count();
    finish(&w, one);
    let images: Vec<_> = (from..=disk.op_count())
        .map(|op| disk.image_at(op, Policy::Keep, 1))
        .collect();
    finish(&w, other);
    end(&engine);
    drop((engine, w));
    for disk in images {
        let (engine, w) = open(&disk, dir.path());
        let runs = verbs::running_calls(&w, MAIN).unwrap();
        let was_running = runs.iter().any(|call| call.id == one);
        write(&w, "b", "?\n");
        runs.iter().for_each(|call| finish(&w, call.id));
        match was_running {
            true => assert!(refused(&w, one).contains("at the same time")),
            false => assert_eq!(own(&w, one), ["A a"]),
        }
        verified(&w);
        end(&engine);
    }
}

#[test]
fn more_changes_than_are_kept_leave_a_doubt() {
    let dir = base();
    let (_disk, engine, w) = start(dir.path());
    let [one, other] = two(&w);
    by(1, || {
        let long = "n".repeat(200);
        for n in 0..6000 {
            let who = Caller::default();
            verbs::make_dir(&w, MAIN, &who, format!("{long}{n}").as_bytes(), false).unwrap();
        }
    });
    finish(&w, one);
    finish(&w, other);
    assert!(refused(&w, other).contains("more was changed meanwhile"));
    let [one, other] = two(&w);
    by(1, || write(&w, "a", "1\n"));
    finish(&w, one);
    finish(&w, other);
    assert_eq!(own(&w, one), ["A a"]);
    end(&engine);
}
