//! What is drawn on a terminal, and that nothing of it reaches a pipe.

#![allow(clippy::unwrap_used)]

use std::fs;
use tests::env::Env;
use tests::terminal::{shown, with_history};

#[test]
fn log_on_a_terminal_is_a_graph() {
    let Some(env) = Env::new() else { return };
    with_history(&env);
    let Some(text) = shown(&env, 100, &[("NO_COLOR", "1")], "log") else {
        return;
    };
    assert!(!text.contains(['\x1b', '\u{202e}']), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("@  ") && lines[0].contains("[main]  four"),
        "{text}"
    );
    assert!(text.contains("1 automatic commit, "), "{text}");
    assert!(text.contains('◆') && text.contains("├─╮"), "{text}");
    assert!(text.contains("[fix]  fixed"), "{text}");
    assert!(text.contains("  one  first\n"), "{text}");
    assert!(lines.last().unwrap().contains("start from "), "{text}");
    assert!(
        lines[0].contains("ago") || lines[0].contains("now"),
        "{text}"
    );
    let all = shown(&env, 100, &[("NO_COLOR", "1")], "log --all --absolute").unwrap();
    assert!(
        all.contains("(before-rollback)") && !all.contains("automatic"),
        "{all}"
    );
    assert!(
        all.lines().next().unwrap().contains("+00:00  [main]"),
        "{all}"
    );
    let two = shown(&env, 100, &[("NO_COLOR", "1")], "log -n 2").unwrap();
    assert_eq!(
        two.matches("  two").count() + two.matches("four").count(),
        1,
        "{two}"
    );
    let table = shown(&env, 100, &[("NO_COLOR", "1")], "log --no-graph").unwrap();
    assert!(table.contains("COMMIT") && !table.contains('│'), "{table}");
}

#[test]
fn calls_stand_beside_the_commits_that_have_what_they_did() {
    let Some(env) = Env::new() else { return };
    let root = with_history(&env);
    let run = |args: &[&str]| env.told(env.command(&root, args)).ok();
    let call = |tool: &str, line: &str| run(&["tool", "exec", tool, "--", "sh", "-c", line]);
    call("edit", "echo 5 > f");
    call("look", "cat f");
    run(&["checkpoint", "five"]);
    let graph = run(&["log", "--graph"]);
    let line = |word: &str| graph.lines().find(|line| line.contains(word)).unwrap();
    assert!(line("2 calls").contains("look, edit"), "{graph}");
    assert!(!line("  four").contains("call"), "{graph}");
    assert!(
        !run(&["log"]).contains("call"),
        "rows for scripts stay as they are"
    );
}

#[test]
fn graph_heeds_the_terminal_and_the_locale() {
    let Some(env) = Env::new() else { return };
    with_history(&env);
    let Some(coloured) = shown(&env, 200, &[], "log") else {
        return;
    };
    assert!(coloured.contains("\x1b[1;32m@\x1b[0m"), "{coloured}");
    for plain in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let text = shown(&env, 40, &[plain], "log").unwrap();
        assert!(!text.contains('\x1b'), "{plain:?}: {text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 40),
            "{text}"
        );
    }
    let ascii = shown(&env, 80, &[("LC_ALL", "C"), ("NO_COLOR", "1")], "log").unwrap();
    assert!(ascii.is_ascii(), "{ascii}");
}

#[test]
fn pipes_get_rows_and_a_plain_graph_on_request() {
    let Some(env) = Env::new() else { return };
    with_history(&env);
    let piped = |args: &[&str]| env.told(env.command(&env.project(), args)).ok();
    let rows = piped(&["log"]);
    assert_eq!(rows, piped(&["log", "--no-graph"]));
    assert_eq!(rows, piped(&["log", "--absolute"]));
    let fields = |line: &str| line.split('\t').count();
    assert!(rows.lines().all(|line| fields(line) == 4), "{rows}");
    let graph = piped(&["log", "--graph"]);
    assert!(
        graph.starts_with("@  ") && !graph.contains("ago"),
        "{graph}"
    );
    assert!(graph.contains("Z  [main]  four"), "{graph}");
    assert!(!graph.contains('\x1b'), "{graph}");
    // Of a workspace that does not run, the branches are not known.
    piped(&["stop"]);
    let stopped = piped(&["log", "--graph"]);
    assert!(
        stopped.starts_with("@  ") && !stopped.contains("[main]"),
        "{stopped}"
    );
}

/// More commits than the daemon is asked for at once.
#[test]
fn a_long_log_is_whole_and_has_each_commit_once() {
    const COMMITS: usize = 270;
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("f"), "0").unwrap();
    let root = env.start();
    env.imported();
    let program = tests::binary::agentvfs().display().to_string();
    let mut shell = env.program("sh");
    let made = format!(
        "{program} config auto-idle=off auto-busy=off; n=0; \
         while [ $n -lt {COMMITS} ]; do echo $n > f; {program} checkpoint c$n || exit 1; n=$((n + 1)); done"
    );
    shell.args(["-c", &made]).current_dir(&root);
    env.told(shell).ok();
    let piped = |args: &[&str]| env.told(env.command(&env.project(), args)).ok();
    let rows = piped(&["log"]);
    let labels: Vec<&str> = rows
        .lines()
        .map(|line| line.split('\t').nth(2).unwrap())
        .collect();
    let wanted: Vec<String> = (0..COMMITS).rev().map(|n| format!("c{n}")).collect();
    assert_eq!(&labels[..COMMITS], wanted);
    assert_eq!(labels.len(), COMMITS + 1, "the start is one, too");
    let first = piped(&["log", "-n", "265"]);
    assert!(
        first.lines().count() == 265 && rows.starts_with(&first),
        "{first}"
    );
    assert_eq!(piped(&["log", "--oneline"]).lines().count(), COMMITS + 1);
    let json: serde_json::Value = serde_json::from_str(&piped(&["log", "--json"])).unwrap();
    assert_eq!(json["commits"].as_array().unwrap().len(), COMMITS + 1);
    let graph = piped(&["log", "--graph"]);
    let drawn = graph.lines().filter_map(|line| line.rsplit("  ").next());
    let drawn: Vec<&str> = drawn.filter(|label| label.starts_with('c')).collect();
    assert_eq!(drawn, wanted, "{graph}");
}

/// The keys of `key=value` lines; an error where a line is none.
fn keys(text: &str) -> Vec<&str> {
    text.lines()
        .map(|line| line.split_once('=').unwrap().0)
        .collect()
}

#[test]
fn status_and_stats_are_lines_in_a_pipe() {
    let Some(env) = Env::new() else { return };
    with_history(&env);
    let piped = |args: &[&str]| env.told(env.command(&env.project(), args)).ok();
    let status = piped(&["status"]);
    assert_eq!(
        keys(&status),
        [
            "name",
            "mount",
            "view",
            "socket",
            "store",
            "base",
            "branch",
            "status",
            "head",
            "import",
            "import_files",
            "import_bytes",
            "base_changed",
            "unreadable",
            "journal_bytes",
            "entries",
            "telemetry",
        ]
    );
    let stats = piped(&["stats"]);
    assert_eq!(
        keys(&stats)[..18],
        [
            "used_bytes",
            "free_bytes",
            "packs",
            "pack_bytes",
            "objects",
            "needed_bytes",
            "unneeded_bytes",
            "journal_bytes",
            "state_bytes",
            "logical_bytes",
            "chunk_bytes",
            "chunk_stored_bytes",
            "meta_stored_bytes",
            "quota",
            "dedup_ratio",
            "compression_ratio",
            "workspace.project.needed_bytes",
            "workspace.project.own_bytes",
        ]
    );
}

#[test]
fn status_on_a_terminal_says_what_changed_and_what_to_do() {
    let Some(env) = Env::new() else { return };
    with_history(&env);
    let root = env.mountpoint();
    fs::write(root.join("new"), "x").unwrap();
    fs::write(root.join("f"), "5").unwrap();
    for columns in [40, 200] {
        let Some(text) = shown(&env, columns, &[("NO_COLOR", "1")], "status") else {
            return;
        };
        let fits = |line: &str| line.chars().count() <= columns.into();
        assert!(text.lines().all(fits), "{text}");
        assert!(
            text.starts_with("workspace  project, started, healthy\n"),
            "{text}"
        );
        assert!(text.contains("changes    1 added, 1 modified"), "{text}");
        assert!(text.contains("next       agentvfs diff"), "{text}");
        assert!(text.contains("import     done, 1 file, "), "{text}");
        assert!(!text.contains(['=', '\x1b']), "{text}");
    }
    env.workspace(&["stop", "project"]).ok();
    let program = tests::binary::agentvfs().display().to_string();
    let mut script = env.program("script");
    script
        .args(["-qec", &format!("{program} status project"), "/dev/null"])
        .env("NO_COLOR", "1");
    let stopped = env.told(script);
    assert_eq!(stopped.status, 1, "{stopped:?}");
    assert!(
        stopped.out.starts_with("workspace  project, stopped\r\n"),
        "{stopped:?}"
    );
    env.start();
    let json = shown(&env, 80, &[], "status --json").unwrap();
    assert!(json.contains("\"import\""), "{json}");
}

#[test]
fn stats_on_a_terminal_are_tables() {
    let Some(env) = Env::new() else { return };
    with_history(&env);
    for columns in [40, 200] {
        let Some(text) = shown(&env, columns, &[("LC_ALL", "C")], "stats") else {
            return;
        };
        for wanted in [
            "WORKSPACE",
            "BRANCH",
            "project/main",
            "project/fix",
            "KIND",
            " used, ",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(text.is_ascii() && !text.contains('='), "{text}");
    }
}
