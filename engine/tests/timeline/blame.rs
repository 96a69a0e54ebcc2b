//! Who changed a file: over renames of it and of the directories above it, and over merges of branches that are
//! gone.
#![allow(clippy::unwrap_used)]

use crate::calls::*;
use engine::verbs;
use engine::{BlameQuery, CheckpointRequest, Workspace};

/// A text that is known again after a small change.
fn text(of: &str) -> String {
    (0..40).map(|n| format!("{of} line {n}\n")).collect()
}

/// Rows: kind or name of the call, what it did, the old name, and another branch than main.
fn rows(w: &Workspace, branch: &str, path: &str, follow: bool) -> Vec<String> {
    let query = BlameQuery { limit: 100, follow };
    let blame = verbs::blame_as(w, branch, path.as_bytes(), query).unwrap();
    assert_eq!(blame.unknown, 0);
    let one = |i: engine::BlameItem| {
        let what = match i.kind {
            "call" => i.name,
            kind => kind.to_owned(),
        };
        let mut row = format!("{what} {}", i.change.word());
        if let Some(old) = i.old_path {
            row += &format!(" {}", String::from_utf8(old).unwrap());
        }
        match i.branch.as_deref() {
            Some(MAIN) | None => row,
            Some(other) => format!("{row} @{other}"),
        }
    };
    blame.items.into_iter().map(one).collect()
}

fn followed(w: &Workspace, path: &str) -> Vec<String> {
    rows(w, MAIN, path, true)
}

fn write_in(w: &Workspace, branch: &str, call: &str, path: &str, data: &str) {
    in_call(w, branch, call, || write_on(w, branch, path, data));
}

fn checkpoint(w: &Workspace, label: &str) {
    let request = CheckpointRequest {
        label: Some(label.into()),
        wait: true,
        ..CheckpointRequest::default()
    };
    verbs::checkpoint(w, MAIN, request, &|_, _| ()).unwrap();
}

#[test]
fn a_file_that_a_call_renamed_keeps_its_history() {
    let dir = base();
    let (_disk, engine, w) = start(dir.path());
    write_in(&w, MAIN, "make", "old", &text("a"));
    write_in(&w, MAIN, "other", "else", &text("b"));
    in_call(&w, MAIN, "move", || rename_on(&w, MAIN, "old", "new"));
    write_in(&w, MAIN, "edit", "new", &(text("a") + "more\n"));
    let all = ["edit modified", "move renamed old", "make added"];
    assert_eq!(followed(&w, "new"), all);
    let name_alone = ["edit modified", "move added"];
    assert_eq!(rows(&w, MAIN, "new", false), name_alone);
    let gone = ["move renamed old", "make added"];
    assert_eq!(followed(&w, "old"), gone);
    end(&engine);
}

#[test]
fn a_file_that_was_renamed_outside_of_calls_keeps_its_history() {
    let dir = base();
    let (_disk, engine, w) = start(dir.path());
    write_in(&w, MAIN, "make", "one", &text("a"));
    rename_on(&w, MAIN, "one", "two");
    write_in(&w, MAIN, "other", "else", &text("b"));
    write_in(&w, MAIN, "edit", "two", &(text("a") + "more\n"));
    rename_on(&w, MAIN, "two", "three");
    assert_eq!(followed(&w, "three"), ["edit modified", "make added"]);
    checkpoint(&w, "moved");
    let all = ["checkpoint renamed one", "edit modified", "make added"];
    let found = followed(&w, "three");
    assert_eq!(found[1..], all[1..], "{found:?}");
    assert!(found[0].starts_with("checkpoint added") || found[0].starts_with("checkpoint renamed"));
    end(&engine);
}

#[test]
fn files_and_directories_are_followed_through_a_renamed_directory() {
    let dir = base();
    let (_disk, engine, w) = start(dir.path());
    write_in(&w, MAIN, "make", "lib/deep/a", &text("a"));
    write_in(&w, MAIN, "empty", "lib/deep/nothing", "");
    in_call(&w, MAIN, "move", || rename_on(&w, MAIN, "lib", "core"));
    write_in(&w, MAIN, "edit", "core/deep/a", &(text("a") + "more\n"));
    let all = ["edit modified", "move renamed lib/deep/a", "make added"];
    assert_eq!(followed(&w, "core/deep/a"), all);
    let all = ["move renamed lib/deep/nothing", "empty added"];
    assert_eq!(followed(&w, "core/deep/nothing"), all);
    let all = [
        "edit modified",
        "move renamed lib/deep",
        "empty modified",
        "make added",
    ];
    assert_eq!(followed(&w, "core/deep"), all);
    in_call(&w, MAIN, "remove", || {
        verbs::remove_path(&w, MAIN, b"core/deep/a", false).unwrap();
    });
    assert_eq!(followed(&w, "core/deep/a")[0], "remove deleted");
    end(&engine);
}

#[test]
fn a_merged_branch_that_is_gone_still_tells_its_calls() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    write_in(&w, MAIN, "make", "a", &text("a"));
    verbs::create_branch(&w, "side", MAIN, None).unwrap();
    write_in(&w, "side", "edit", "a", &(text("a") + "side\n"));
    in_call(&w, "side", "move", || rename_on(&w, "side", "a", "b"));
    write_in(&w, MAIN, "meanwhile", "m", "1");
    merge(&w, "side", MAIN);
    let all = [
        "merge renamed a",
        "move renamed a @side",
        "edit modified @side",
        "make added",
    ];
    assert_eq!(followed(&w, "b"), all);
    assert_eq!(followed(&w, "m"), ["meanwhile added"]);
    delete(&w, "side");
    gc(&engine);
    assert_eq!(followed(&w, "b"), all);
    end(&engine);
    drop((w, engine));
    let (engine, w) = open(&disk, dir.path());
    assert_eq!(followed(&w, "b"), all);
    end(&engine);
}

#[test]
fn branches_merged_into_one_another_and_shown_as_they_are_tell_all() {
    let dir = base();
    let (_disk, engine, w) = start(dir.path());
    for name in ["one", "two"] {
        verbs::create_branch(&w, name, MAIN, None).unwrap();
        write_in(&w, name, name, name, &text(name));
    }
    merge(&w, "two", "one");
    assert_eq!(merge(&w, "one", MAIN), engine::merge::Outcome::FastForward);
    delete(&w, "one");
    delete(&w, "two");
    gc(&engine);
    assert_eq!(followed(&w, "one"), ["merge added", "one added @one"]);
    let two = ["merge added", "merge added @one", "two added @two"];
    assert_eq!(followed(&w, "two"), two);
    end(&engine);
}

#[test]
fn a_merge_of_a_merge_leads_on_where_a_branch_had_no_call_before_it() {
    let dir = base();
    let (_disk, engine, w) = start(dir.path());
    write_in(&w, MAIN, "make", "a", &text("a"));
    verbs::create_branch(&w, "two", MAIN, None).unwrap();
    write_in(&w, "two", "two", "two", &text("two"));
    checkpoint(&w, "all-is-named");
    verbs::create_branch(&w, "one", MAIN, None).unwrap();
    // What the merge makes holds an entry that main has, too.
    write_on(&w, "one", "by-hand", "1");
    merge(&w, "two", "one");
    write_in(&w, MAIN, "meanwhile", "m", "1");
    merge(&w, "one", MAIN);
    let all = ["merge added", "checkpoint added", "two added @two"];
    assert_eq!(followed(&w, "two"), all);
    delete(&w, "one");
    delete(&w, "two");
    gc(&engine);
    assert_eq!(followed(&w, "two"), all);
    end(&engine);
}

#[test]
fn a_checkpoint_before_a_merge_does_not_lead_past_it() {
    let dir = base();
    let (_disk, engine, w) = start(dir.path());
    checkpoint(&w, "before");
    verbs::create_branch(&w, "side", MAIN, None).unwrap();
    write_in(&w, "side", "edit", "lib/a", &text("a"));
    write(&w, "by-hand", "1");
    checkpoint(&w, "same");
    // What this replaces is the checkpoint.
    merge(&w, "side", MAIN);
    rename_on(&w, MAIN, "lib", "core");
    write_in(&w, MAIN, "other", "else", &text("b"));
    let all = ["merge added", "edit added @side"];
    assert_eq!(followed(&w, "core/a"), all);
    end(&engine);
}

#[test]
fn what_was_renamed_since_a_fast_forward_or_a_rollback_is_followed() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    verbs::create_branch(&w, "side", MAIN, None).unwrap();
    write_in(&w, "side", "edit", "lib/a", &text("a"));
    assert_eq!(merge(&w, "side", MAIN), engine::merge::Outcome::FastForward);
    verbs::create_branch(&w, "two", MAIN, None).unwrap();
    rename_on(&w, "two", "lib", "core");
    rename_on(&w, MAIN, "lib", "new");
    checkpoint(&w, "new");
    in_call(&w, MAIN, "remove", || {
        verbs::remove_path(&w, MAIN, b"new/a", false).unwrap();
    });
    verbs::rollback(&w, MAIN, &engine::Target::Head).unwrap();
    rename_on(&w, MAIN, "new", "newest");
    let told = |w: &Workspace| {
        let two = ["merge added @two", "edit added @side"];
        assert_eq!(rows(w, "two", "core/a", true), two);
        let rows = followed(w, "newest/a");
        assert_eq!(rows[..2], ["rollback added", "remove deleted"]);
        assert_eq!(rows.last().unwrap(), "edit added @side");
    };
    told(&w);
    end(&engine);
    drop((w, engine));
    let (engine, w) = open(&disk, dir.path());
    told(&w);
    end(&engine);
}

/// Made of another branch's checkpoint, it has older states of the branch that was asked for it, and no newer ones.
#[test]
fn a_branch_of_another_ones_checkpoint_begins_there_after_a_restart_too() {
    let dir = base();
    let (disk, engine, w) = start(dir.path());
    write_in(&w, MAIN, "make", "one/file", &text("a"));
    verbs::create_branch(&w, "asked", MAIN, None).unwrap();
    rename_on(&w, MAIN, "one", "two");
    write_in(&w, MAIN, "other", "two/else", &text("b"));
    write_in(&w, MAIN, "edit", "two/file", &(text("a") + "more\n"));
    checkpoint(&w, "then");
    rename_on(&w, MAIN, "two", "three");
    verbs::create_branch(&w, "new", "asked", Some("main:then")).unwrap();
    end(&engine);
    drop((w, engine));
    let (engine, w) = open(&disk, dir.path());
    // Whose timeline tells of the first call depends on when its states were stored: all three branches have it.
    let told = rows(&w, "new", "two/file", true);
    let told: Vec<&str> = told
        .iter()
        .map(|row| row.trim_end_matches(" @new"))
        .collect();
    assert_eq!(told, ["checkpoint added", "edit modified", "make added"]);
    end(&engine);
}

#[test]
fn where_the_limit_ends_the_search_nobody_is_said_to_have_changed_nothing() {
    let dir = base();
    let (_disk, engine, w) = start(dir.path());
    write_in(&w, MAIN, "make", "a", "1");
    write(&w, "a", "by hand");
    checkpoint(&w, "by-hand");
    let query = |limit| BlameQuery {
        limit,
        follow: true,
    };
    let cut = verbs::blame_as(&w, MAIN, b"a", query(1)).unwrap();
    assert_eq!((cut.items.len(), cut.more, cut.commits), (1, true, vec![]));
    let whole = verbs::blame_as(&w, MAIN, b"a", query(3)).unwrap();
    assert_eq!((whole.items.len(), whole.calls, whole.more), (2, 1, false));
    end(&engine);
}

#[test]
fn a_file_that_no_call_changed_names_its_commits() {
    let dir = base();
    let (_disk, engine, w) = start(dir.path());
    write_in(&w, MAIN, "make", "a", "1");
    let first = verbs::log(&w, MAIN, false)
        .unwrap()
        .last()
        .unwrap()
        .commit
        .unwrap();
    let of = |path: &str| verbs::blame(&w, MAIN, path.as_bytes(), 9).unwrap();
    let found = of("README");
    assert_eq!((found.items.len(), found.calls), (0, 0));
    assert_eq!(found.commits, [first]);
    write(&w, "README", "changed by hand");
    write(&w, "new", "by hand");
    assert_eq!(of("new").commits, [], "it is in no commit yet");
    checkpoint(&w, "by-hand");
    let id = verbs::log(&w, MAIN, false).unwrap()[0].commit.unwrap();
    assert_eq!(of("README").commits, [id]);
    assert_eq!(of("new").commits, [id]);
    let found = of("a");
    assert_eq!((found.calls, found.commits), (1, vec![]));
    end(&engine);
}
