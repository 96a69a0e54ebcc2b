//! Which workspace a command means, and what it says of what it did: to a person, who sees where that was.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Read;
use std::path::Path;
use tests::env::{Env, Told};

/// A command with a terminal for all its output, which is what comes of it.
fn on_terminal(env: &Env, directory: &Path, args: &[&str]) -> String {
    let mut line = vec![format!("'{}'", tests::binary::agentvfs().display())];
    line.extend(args.iter().map(|arg| format!("'{arg}'")));
    let mut script = env.program("script");
    script.args(["-qefc", &line.join(" "), "/dev/null"]);
    script.current_dir(directory).env("TERM", "xterm");
    let told = env.told(script);
    assert_eq!(told.status, 0, "{told:?}");
    told.out.replace("\r\n", "\n")
}

fn branch(env: &Env, args: &[&str]) -> Told {
    let args: Vec<&str> = ["branch"].iter().chain(args).copied().collect();
    env.told(env.command(&env.path(""), &args))
}

#[test]
fn what_changes_something_is_never_the_only_one_running_elsewhere() {
    let Some(env) = Env::new() else { return };
    let mount = env.start();
    let elsewhere = env.path("tmp");
    fs::write(mount.join("a"), "1").unwrap();
    env.workspace(&["checkpoint", "one"]).id();
    fs::write(mount.join("a"), "2").unwrap();
    let refused: [&[&str]; 15] = [
        &["workspace", "apply"],
        &["workspace", "update"],
        &["workspace", "rollback"],
        &["workspace", "undo"],
        &["workspace", "redo"],
        &["workspace", "restore", "a"],
        &["workspace", "checkpoint", "two"],
        &["workspace", "stop"],
        &["workspace", "delete", "--yes"],
        &["branch", "create", "b"],
        &["branch", "merge", "b"],
        &["branch", "delete", "b"],
        &["fs", "rm", "a"],
        &["kv", "set", "k", "1"],
        &["kv", "delete", "k"],
    ];
    for args in refused {
        let told = env.told(env.command(&elsewhere, args));
        assert!(told.err.contains("--workspace project"), "{told:?}");
        told.fails(1, "the only running workspace is project");
    }
    assert_eq!(fs::read(mount.join("a")).unwrap(), b"2");
    // Looking does no harm.
    env.workspace_in(&elsewhere, &["log"]).ok();
    env.workspace_in(&elsewhere, &["status"]).ok();
    // Named, in the mount, in the project and before it they work.
    let mut named = env.command(&elsewhere, &["workspace", "checkpoint"]);
    env.told({
        named.env("AGENTVFS_WORKSPACE", "project");
        named
    })
    .id();
    for directory in [mount.as_path(), &env.project(), &env.path("")] {
        fs::write(mount.join("a"), "3").unwrap();
        env.workspace_in(directory, &["rollback"]).id();
        assert_eq!(fs::read(mount.join("a")).unwrap(), b"2");
    }
    env.workspace_in(&elsewhere, &["stop", "project"]).ok();
}

#[test]
fn a_person_is_told_where_it_was_done() {
    let Some(env) = Env::new() else { return };
    let mount = env.start();
    let place = format!("workspace project, branch main, {}: ", mount.display());
    fs::write(mount.join("a"), "1").unwrap();
    let root = env.path("");
    let on = |args: &[&str]| on_terminal(&env, &root, args);
    for args in [
        &["workspace", "checkpoint", "one"][..],
        &["workspace", "rollback", "@~1"],
        &["workspace", "undo"],
        &["workspace", "redo"],
        &["workspace", "restore", "--ref", "one", "a"],
    ] {
        let said = on(args);
        assert!(said.contains(&place), "{args:?}: {said}");
    }
    branch(&env, &["create", "b"]).ok();
    fs::write(mount.join(".agentvfs/branches/b/b"), "1").unwrap();
    let said = on(&["branch", "merge", "b"]);
    assert!(said.contains(&place), "{said}");
    let said = on(&["workspace", "rollback", "--branch", "b"]);
    let of_b = format!("branch b, {}/.agentvfs/branches/b: ", mount.display());
    assert!(said.contains(&of_b), "{said}");
    let said = on(&["workspace", "apply"]);
    let base = format!("branch main, {}: ", env.project().display());
    assert!(said.contains(&base), "{said}");
    let said = on(&["workspace", "stop"]);
    assert!(
        said.contains("workspace project with all its branches, "),
        "{said}"
    );
    let said = on(&["workspace", "delete", "project", "--yes"]);
    let gone = format!("its project {} is unchanged", env.project().display());
    assert!(said.contains(&gone), "{said}");
}

#[test]
fn undo_works_in_a_directory_that_the_rollback_removed() {
    let Some(env) = Env::new() else { return };
    let mount = env.start();
    fs::create_dir(env.path("other")).unwrap();
    env.workspace(&["start", "--from", "other"]).ok();
    fs::create_dir_all(mount.join("made/deep")).unwrap();
    fs::write(mount.join("made/deep/file"), "x").unwrap();
    // The one that was removed itself, and one below it.
    for directory in ["made", "made/deep"] {
        let script = format!(
            "cd {directory} && '{0}' workspace rollback >&2 && test ! -e '{1}/made' \
             && '{0}' workspace undo",
            tests::binary::agentvfs().display(),
            mount.display()
        );
        let mut shell = env.program("sh");
        shell.args(["-ec", &script]).current_dir(&mount);
        env.told(shell).id_or_pending();
        assert_eq!(fs::read(mount.join("made/deep/file")).unwrap(), b"x");
    }
}

#[test]
fn undo_names_what_came_later_and_changes_nothing() {
    let Some(env) = Env::new() else { return };
    let mount = env.start();
    fs::write(mount.join("a"), "1").unwrap();
    env.workspace(&["rollback"]).id_or_pending();
    fs::write(mount.join("b"), "1").unwrap();
    env.workspace(&["checkpoint", "precious"]).id();
    let told = env.workspace(&["undo"]);
    let hint = told.err.lines().nth(1).unwrap_or_default().to_owned();
    assert!(hint.contains("--over-later-changes"), "{hint}");
    assert!(hint.contains("checkpoint precious"), "{hint}");
    told.fails(1, "checkpoint precious");
    assert!(mount.join("b").exists() && !mount.join("a").exists());
    env.workspace(&["undo", "--over-later-changes"])
        .id_or_pending();
    assert!(!mount.join("b").exists() && mount.join("a").exists());
}

#[test]
fn log_shows_where_one_is_after_a_fast_forward() {
    let Some(env) = Env::new() else { return };
    let mount = env.start();
    branch(&env, &["create", "b"]).ok();
    let on_b = |args: &[&str]| env.workspace(&[args, &["--branch", "b"]].concat());
    fs::write(mount.join(".agentvfs/branches/b/f"), "1").unwrap();
    let first = on_b(&["checkpoint", "first"]).id();
    on_b(&["checkpoint", "also"]).id();
    fs::write(mount.join(".agentvfs/branches/b/f"), "2").unwrap();
    let head = on_b(&["checkpoint", "second"]).id();
    branch(&env, &["merge", "b"]).id();
    branch(&env, &["delete", "b"]).ok();
    let log = env.workspace(&["log"]).ok();
    let rows: Vec<Vec<&str>> = log.lines().map(|l| l.split('\t').collect()).collect();
    assert!(rows.iter().all(|row| row.len() == 4), "{log}");
    assert_eq!((rows[0][0], rows[0][2]), (head.as_str(), "second"));
    assert_eq!((rows[1][0], rows[1][2]), (first.as_str(), "also"));
    let json = env.workspace(&["log", "--json"]).ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let commits = json["commits"].as_array().unwrap();
    assert_eq!(commits[0]["current"], true);
    assert_eq!(commits[0]["parents"], serde_json::json!([first]));
    assert_eq!(commits[1]["labels"], serde_json::json!(["also", "first"]));
    assert_eq!(commits[1]["current"], false);
    assert!(commits.iter().all(|c| c["kind"].is_string()));
    let shown = on_terminal(&env, &env.path(""), &["workspace", "log"]);
    let shown = without_colours(&shown);
    let marked: Vec<&str> = shown.lines().filter(|l| l.starts_with('@')).collect();
    assert!(
        marked.len() == 1 && marked[0].contains(&head[..8]),
        "{shown}"
    );
    assert!(shown.contains("also, first"), "{shown}");
    env.workspace(&["rollback", "also"]).id();
    assert_eq!(fs::read(mount.join("f")).unwrap(), b"1");
}

/// A name with everything that a terminal would obey.
const NAME: &str = "x\n\u{1b}[2J\u{9b}2J\u{202e}y";

/// A text without the sequences that colour it.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| {
        let after = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        match after.strip_prefix('m') {
            Some(rest) => plain + rest,
            None => plain + "\u{1b}[" + part,
        }
    })
}

#[track_caller]
fn is_harmless(text: &str) {
    let bad = |c: char| {
        let control = c.is_control() && !matches!(c, '\n' | '\r' | '\t');
        control || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let plain = without_colours(text);
    assert!(!plain.contains(bad), "{text:?}");
}

#[test]
fn names_reach_no_terminal_as_they_are() {
    let Some(env) = Env::new() else { return };
    let mount = env.start();
    fs::create_dir(mount.join(NAME)).unwrap();
    std::os::unix::fs::symlink(NAME, mount.join(NAME).join("link")).unwrap();
    env.workspace(&["checkpoint", "-m", &NAME.replace('\n', " ")])
        .id();
    fs::write(mount.join(NAME).join("file"), "1").unwrap();
    let root = env.path("");
    for args in [
        &["fs", "tree"][..],
        &["fs", "ls"],
        &["fs", "ls", "--json"],
        &["workspace", "log"],
        &["workspace", "log", "--json"],
        &["workspace", "diff"],
        &["workspace", "diff", "--stat"],
        &["workspace", "rollback", "--dry-run"],
        &["blame", NAME],
    ] {
        let shown = on_terminal(&env, &root, args);
        assert!(
            shown.contains("2J"),
            "{args:?} shows nothing of it: {shown}"
        );
        is_harmless(&shown);
    }
    for args in [
        &["workspace", "diff"][..],
        &["fs", "find"],
        &["fs", "cat", NAME],
        &["fs", "mv", NAME, "no/such/directory"],
        &["workspace", "rollback", NAME],
        &["workspace", "restore", "--ref", "@", "--to", NAME, NAME],
    ] {
        let told = env.told(env.command(&root, args));
        is_harmless(&told.out);
        is_harmless(&told.err);
        let ours = ["agentvfs: ", "hint: ", "", "Usage: ", "  "];
        let foreign = |l: &str| {
            !ours
                .iter()
                .any(|o| l.is_empty() || l.starts_with(o) && !o.is_empty())
        };
        assert!(!told.err.lines().any(foreign), "{told:?}");
    }
    let told = env.told(env.command(&root, &["fs", NAME]));
    assert_eq!(told.status, 2);
    is_harmless(&told.err);
}

#[test]
fn command_lines_of_others_are_quoted() {
    let Some(env) = Env::new() else { return };
    let mount = env.start();
    fs::write(mount.join("held"), "1").unwrap();
    let mut holder = env.program("sh");
    holder
        .args(["-c", "exec 3>>held; echo ready; read _", NAME])
        .current_dir(&mount)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut holder = holder.spawn().unwrap();
    let mut ready = [0; 6];
    holder
        .stdout
        .take()
        .unwrap()
        .read_exact(&mut ready)
        .unwrap();
    let told = env.workspace(&["rollback", "--dry-run"]);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(told.err.contains("held open: held by process"), "{told:?}");
    is_harmless(&told.err);
    assert_eq!(told.err.lines().count(), 1, "{told:?}");
}
