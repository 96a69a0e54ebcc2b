//! Tables, trees, bars and words in colours on a terminal, and that nothing of them reaches a pipe.

#![allow(clippy::unwrap_used)]

use std::fs;
use tests::env::Env;
use tests::terminal::{shown, with_history};
use unicode_width::UnicodeWidthStr;

/// Lines that end where a terminal of so many columns does.
fn fits(text: &str, columns: usize) -> bool {
    text.lines().all(|line| line.width() <= columns)
}

/// A branch `fix` of main, and `deep` of that, with a conflict in main.
fn with_branches(env: &Env) {
    fs::write(env.project().join("f"), "0\n").unwrap();
    let root = env.start();
    env.imported();
    let run = |args: &[&str]| env.told(env.command(&env.project(), args));
    run(&["config", "auto-idle=off", "auto-busy=off"]).ok();
    run(&["branch", "create", "fix"]).ok();
    fs::write(root.join(".agentvfs/branches/fix/f"), "fix\n").unwrap();
    run(&["--branch", "fix", "checkpoint", "fixed"]).ok();
    run(&["--branch", "fix", "branch", "create", "deep"]).ok();
    fs::write(root.join("f"), "main\n").unwrap();
    run(&["checkpoint", "one"]).ok();
    fs::write(root.join("g"), "main\n").unwrap();
    run(&["checkpoint", "two"]).ok();
}

#[test]
fn branch_list_on_a_terminal_is_a_tree_of_how_branches_stand() {
    let Some(env) = Env::new() else { return };
    with_branches(&env);
    let plain = [("NO_COLOR", "1")];
    let Some(text) = shown(&env, 100, &plain, "branch list") else {
        return;
    };
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("AHEAD  BEHIND  CHANGED"), "{text}");
    assert!(lines[1].starts_with("@  main "), "{text}");
    assert!(lines[2].contains("└─ fix "), "{text}");
    assert!(lines[3].contains("   └─ deep "), "{text}");
    let fields =
        |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    assert_eq!(fields(lines[2])[3..5], ["1", "2"], "{text}");
    assert_eq!(fields(lines[3])[3..5], ["0", "0"], "{text}");
    assert!(
        lines[1..]
            .iter()
            .all(|line| line.contains(" ago") || line.contains("  now")),
        "{text}"
    );
    env.told(env.command(&env.project(), &["merge", "fix", "--conflicts", "keep"]));
    let text = shown(&env, 100, &plain, "branch list").unwrap();
    assert!(
        text.lines().nth(1).unwrap().contains("1 conflict"),
        "{text}"
    );
    // A commit of its own, and its origin merged elsewhere, change nothing about what it was made of.
    fs::write(env.mountpoint().join(".agentvfs/branches/deep/h"), "deep\n").unwrap();
    let deep = ["--branch", "deep", "checkpoint", "deeper"];
    env.told(env.command(&env.project(), &deep)).ok();
    let text = shown(&env, 100, &plain, "branch list").unwrap();
    let line = text.lines().nth(3).unwrap();
    assert!(line.contains("   └─ deep "), "{text}");
    assert_eq!(fields(line)[3..5], ["1", "0"], "{text}");
    for columns in [40, 200] {
        for locale in ["C", "C.UTF-8"] {
            let variables = [("LC_ALL", locale), ("NO_COLOR", "1")];
            let text = shown(&env, columns, &variables, "branch list").unwrap();
            assert!(fits(&text, columns.into()), "{text}");
            assert_eq!(locale == "C", text.contains("`- fix"), "{text}");
        }
    }
    let coloured = shown(&env, 100, &[], "branch list").unwrap();
    assert!(coloured.contains("\x1b[1;32mfix\x1b[0m"), "{coloured}");
    let dumb = shown(&env, 100, &[("TERM", "dumb")], "branch list").unwrap();
    assert!(!dumb.contains('\x1b'), "{dumb}");
    let piped = env
        .told(env.command(&env.project(), &["branch", "list"]))
        .ok();
    assert!(
        piped.lines().all(|line| line.split('\t').count() == 3),
        "{piped}"
    );
}

/// The rows of `status`: key and value.
fn status_rows(text: &str) -> Vec<(&str, &str)> {
    let rows = text.lines();
    rows.filter_map(|line| Some((line.get(..11)?.trim(), line.get(11..)?)))
        .filter(|(key, _)| !key.is_empty())
        .collect()
}

/// With a conflict, a file more and one less.
fn with_changes(env: &Env) -> std::path::PathBuf {
    with_branches(env);
    let root = env.mountpoint();
    let merge = &["merge", "fix", "--conflicts", "keep"];
    assert_eq!(env.told(env.command(&env.project(), merge)).status, 1);
    fs::write(root.join("added"), "1").unwrap();
    fs::remove_file(root.join("g")).unwrap();
    root
}

#[test]
fn rows_of_status_on_a_terminal_have_an_order() {
    let Some(env) = Env::new() else { return };
    with_changes(&env);
    let wanted =
        "workspace mount project branch changes conflicts import size disk memory next next";
    for (columns, variables) in [
        (200, &[("NO_COLOR", "1")][..]),
        (200, &[("TERM", "dumb"), ("LC_ALL", "C")]),
        (40, &[("NO_COLOR", "1"), ("LC_ALL", "C")]),
    ] {
        let Some(text) = shown(&env, columns, variables, "status") else {
            return;
        };
        assert!(
            fits(&text, columns.into()) && !text.contains('\x1b'),
            "{text}"
        );
        let keys: Vec<&str> = status_rows(&text).iter().map(|row| row.0).collect();
        assert_eq!(keys.join(" "), wanted, "{text}");
    }
}

#[test]
fn rows_of_status_on_a_terminal_say_what_is() {
    let Some(env) = Env::new() else { return };
    let root = with_changes(&env);
    let Some(text) = shown(&env, 200, &[("NO_COLOR", "1")], "status") else {
        return;
    };
    let rows = status_rows(&text);
    let value = |key: &str| rows.iter().find(|row| row.0 == key).unwrap().1;
    assert_eq!(value("workspace"), "project, started, healthy", "{text}");
    assert_eq!(value("mount"), root.display().to_string(), "{text}");
    assert_eq!(
        value("project"),
        env.project().display().to_string(),
        "{text}"
    );
    let head = env.status()["head"].as_str().unwrap()[..12].to_owned();
    assert_eq!(value("branch"), format!("main, head {head}"), "{text}");
    assert_eq!(
        value("changes"),
        "1 added, 1 removed since the head",
        "{text}"
    );
    assert_eq!(value("conflicts"), "1 conflict", "{text}");
    assert!(value("import").starts_with("done, 1 file, 2 B"), "{text}");
    assert!(
        value("size").contains(" files and directories, journal "),
        "{text}"
    );
    assert!(value("disk").ends_with(" free"), "{text}");
    assert!(
        value("memory").contains(" in the daemon (process "),
        "{text}"
    );
    assert!(
        rows[10].1.starts_with("agentvfs diff lists the changes"),
        "{text}"
    );
    assert!(
        rows[11].1.starts_with("agentvfs branch conflicts lists"),
        "{text}"
    );
}

#[test]
fn the_bright_digits_of_an_id_name_it() {
    let Some(env) = Env::new() else { return };
    with_history(&env);
    let Some(text) = shown(&env, 200, &[], "log --no-graph") else {
        return;
    };
    let piped = env.told(env.command(&env.project(), &["log"])).ok();
    let ids: Vec<&str> = piped
        .lines()
        .map(|line| line.split('\t').next().unwrap())
        .collect();
    let bright: Vec<&str> = text
        .split("\x1b[1;35m")
        .skip(1)
        .map(|rest| rest.split('\x1b').next().unwrap())
        .collect();
    assert_eq!(bright.len(), ids.len(), "{text}");
    for (digits, id) in bright.iter().zip(&ids) {
        assert!(id.starts_with(digits) && digits.len() >= 4, "{digits} {id}");
        let diff = env
            .told(env.command(&env.project(), &["diff", digits, id]))
            .ok();
        assert_eq!(diff, "", "{digits} {id}");
    }
}

#[test]
fn full_times_are_in_the_local_zone_and_say_so() {
    let Some(env) = Env::new() else { return };
    with_history(&env);
    let variables = [("TZ", "XYZ-05:30"), ("NO_COLOR", "1")];
    let Some(text) = shown(&env, 200, &variables, "log --absolute") else {
        return;
    };
    assert!(text.lines().next().unwrap().contains("+05:30"), "{text}");
    let time = text
        .split_whitespace()
        .find(|word| word.ends_with("+05:30"))
        .unwrap();
    env.told(env.command(&env.project(), &["rollback", "--before", time, "--dry-run"]));
    let listed = shown(&env, 200, &variables, "branch list --absolute").unwrap();
    assert!(listed.contains("+05:30"), "{listed}");
}

#[test]
fn timeline_on_a_terminal_shows_which_calls_overlapped() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("f"), "0\n").unwrap();
    env.start();
    env.imported();
    let record = |name: &str, from: u32, to: u32| {
        let at = |second: u32| format!("2026-11-21T12:00:{second:02}Z");
        let args = [
            "tool",
            "record",
            name,
            "--started",
            &at(from),
            "--completed",
            &at(to),
        ];
        env.told(env.command(&env.project(), &args)).ok();
    };
    record("first", 0, 10);
    record("beside", 5, 20);
    record("後で", 30, 31);
    let plain = [("NO_COLOR", "1")];
    let Some(text) = shown(&env, 100, &plain, "timeline") else {
        return;
    };
    assert!(
        !text.contains('\x1b') && text.contains("OVER TIME"),
        "{text}"
    );
    let bar = |name: &str| -> (usize, usize) {
        let line = text.lines().find(|line| line.contains(name)).unwrap();
        let from = line.find('█').unwrap();
        (line[..from].width(), line.trim_end().width())
    };
    let (first, beside, later) = (bar("first"), bar("beside"), bar("後で"));
    assert!(
        first.0 < beside.0 && beside.0 < first.1 && first.1 < beside.1,
        "{text}"
    );
    assert!(beside.1 < later.0, "{text}");
    for columns in [40, 200] {
        let text = shown(
            &env,
            columns,
            &[("LC_ALL", "C"), ("NO_COLOR", "1")],
            "timeline",
        )
        .unwrap();
        assert!(fits(&text, columns.into()), "{text}");
        assert!(columns == 40 || text.contains('#'), "{text}");
    }
    let piped = env.told(env.command(&env.project(), &["timeline"])).ok();
    assert!(
        piped.lines().all(|line| line.split('\t').count() == 5),
        "{piped}"
    );
}

#[test]
fn diff_on_a_terminal_has_bars_colours_and_words() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("f"), "let a = 1;\nsame\n").unwrap();
    fs::write(env.project().join("gone"), "1\n2\n3\n").unwrap();
    let root = env.start();
    env.imported();
    fs::write(root.join("f"), "let a = 2;\nsame\n").unwrap();
    fs::write(root.join("binary"), [0; 9]).unwrap();
    fs::write(root.join("new\n\u{1b}"), "1\n".repeat(300)).unwrap();
    fs::remove_file(root.join("gone")).unwrap();
    for columns in [40, 200] {
        let variables = [("NO_COLOR", "1"), ("LC_ALL", "C")];
        let Some(text) = shown(&env, columns, &variables, "diff --stat") else {
            return;
        };
        assert!(
            fits(&text, columns.into()) && !text.contains('\x1b'),
            "{text}"
        );
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line("f ").ends_with(" 2  +-"), "{text}");
        assert!(line("gone").ends_with("3  -"), "{text}");
        assert!(line("binary").ends_with("binary"), "{text}");
        assert!(line("\"new\\n").contains("300  ++++++++"), "{text}");
        assert!(text.contains("4 paths, 301 lines"), "{text}");
    }
    let coloured = shown(&env, 100, &[], "diff --stat").unwrap();
    assert!(
        coloured.contains("\x1b[32m+\x1b[0m\x1b[31m-\x1b[0m"),
        "{coloured}"
    );
    let bars = env
        .told(env.command(&env.project(), &["diff", "--stat", "--bars"]))
        .ok();
    assert!(bars.contains("+-\n") && fits(&bars, 80), "{bars}");
    let rows = env
        .told(env.command(&env.project(), &["diff", "--stat"]))
        .ok();
    assert!(rows.contains("1\t1\tf\n"), "{rows}");
    let patch = shown(&env, 100, &[("PAGER", "cat")], "diff --patch f").unwrap();
    assert!(
        patch.contains("\x1b[31m-let a = \x1b[7m1\x1b[27m;\x1b[0m"),
        "{patch}"
    );
    let status = shown(&env, 100, &[], "diff").unwrap();
    assert!(status.contains("\x1b[31mD\x1b[0m       gone\n"), "{status}");
    // A pager that is not there loses nothing.
    let plain = env
        .told(env.command(&env.project(), &["diff", "--patch"]))
        .ok();
    let missing = [("PAGER", "no-such-pager"), ("NO_COLOR", "1")];
    let paged = shown(&env, 100, &missing, "diff --patch").unwrap();
    assert!(paged.contains(&plain), "{paged}");
}

/// A file whose lines come from the project, two calls, a call in a merged branch, and nobody yet; gives the mount.
fn with_calls(env: &Env) -> std::path::PathBuf {
    fs::write(env.project().join("f"), "one\ntwo\nthree\n").unwrap();
    let root = env.start();
    env.imported();
    let run = |args: &[&str]| env.told(env.command(&env.project(), args)).ok();
    run(&["config", "auto-idle=off", "auto-busy=off"]);
    let call = |name: &str, line: &str| {
        let mut command = env.command(&root, &["tool", "exec", name, "--", "sh", "-c", line]);
        command.stdin(std::process::Stdio::null());
        env.told(command).ok();
    };
    call("edit", "sed -i s/two/2/ f");
    run(&["branch", "create", "side"]);
    call("grow", "echo four >> f");
    let side = root.join(".agentvfs/branches/side");
    let mut command = env.command(
        &side,
        &[
            "tool",
            "exec",
            "elsewhere",
            "--",
            "sed",
            "-i",
            "1s/^/zero\\n/",
            "f",
        ],
    );
    command.stdin(std::process::Stdio::null());
    env.told(command).ok();
    run(&["merge", "side"]);
    run(&["checkpoint", "two"]);
    let mut text = fs::read_to_string(root.join("f")).unwrap();
    text.push_str("\tlive\n");
    fs::write(root.join("f"), text).unwrap();
    root
}

#[test]
fn blame_names_the_call_of_each_line() {
    let Some(env) = Env::new() else { return };
    let root = with_calls(&env);
    let text = env.told(env.command(&root, &["blame", "-l", "f"])).ok();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.splitn(5, '\t').collect())
        .collect();
    let who: Vec<(&str, &str)> = rows.iter().map(|row| (row[0], row[4])).collect();
    assert_eq!(
        who,
        [
            ("call", "zero"),
            ("commit", "one"),
            ("call", "2"),
            ("commit", "three"),
            ("call", "four"),
            ("uncommitted", "\tlive"),
        ],
        "{text}"
    );
    assert_eq!(
        (rows[2][1], rows[4][1], rows[0][1]),
        ("1", "2", "side:2"),
        "{text}"
    );
    assert_eq!(
        (rows[1][1].len(), rows[5][1], rows[5][2]),
        (64, "-", "-"),
        "{text}"
    );
    assert!(
        rows.iter()
            .enumerate()
            .all(|(at, row)| row[3] == (at + 1).to_string()),
        "{text}"
    );
    let json = env
        .told(env.command(&root, &["blame", "-l", "f", "--json"]))
        .ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["lines"][4]["name"], "grow");
    assert_eq!(json["lines"][0]["name"], "elsewhere");
    let Some(text) = shown(&env, 60, &[("NO_COLOR", "1")], "blame -l f") else {
        return;
    };
    assert!(fits(&text, 60), "{text}");
    let line = text.lines().nth(4).unwrap();
    assert!(
        line.starts_with("call 2") && line.contains("grow") && line.ends_with("5  four"),
        "{text}"
    );
    let narrow = shown(&env, 30, &[("NO_COLOR", "1")], "blame -l f").unwrap();
    assert!(fits(&narrow, 30) && !narrow.contains("grow"), "{narrow}");
    let line = narrow.lines().nth(4).unwrap();
    assert!(
        line.starts_with("call 2") && line.ends_with("5  four"),
        "{narrow}"
    );
}

#[test]
fn lines_that_came_with_the_import_name_it_whatever_was_committed_before_they_changed() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("f"), "one\ntwo\nthree\n").unwrap();
    let root = env.start();
    env.imported();
    let run = |args: &[&str]| env.told(env.command(&env.project(), args)).ok();
    run(&["config", "auto-idle=off", "auto-busy=off"]);
    fs::write(root.join("other"), "before\n").unwrap();
    run(&["checkpoint", "before"]);
    fs::rename(root.join("f"), root.join("g")).unwrap();
    fs::write(root.join("g"), "one\n2\nthree\n").unwrap();
    run(&["checkpoint", "changed"]);
    fs::write(root.join("g"), "one\n2\nthree\nfour\n").unwrap();
    run(&["checkpoint", "changed-again"]);
    let log: serde_json::Value = serde_json::from_str(&run(&["log", "--all", "--json"])).unwrap();
    let commits = log["commits"].as_array().unwrap();
    let start = commits.iter().find(|c| c["kind"] == "start").unwrap();
    let lines = || run(&["blame", "-l", "g", "--json"]);
    let lines: serde_json::Value = serde_json::from_str(&lines()).unwrap();
    let commit = |at: usize| &lines["lines"][at]["commit"];
    for at in [0, 2] {
        assert_eq!(*commit(at), start["commit"], "{lines}");
        assert_eq!(lines["lines"][at]["time"], start["time"], "{lines}");
    }
    let labelled = |label: &str| {
        let found = commits.iter().find(|c| c["label"] == label);
        &found.unwrap()["commit"]
    };
    assert_eq!(commit(1), labelled("changed"), "{lines}");
    assert_eq!(commit(3), labelled("changed-again"), "{lines}");
}
