//! Names of any script on a terminal: wide letters, letters that are read from the right, combined ones, and characters
//! that a terminal obeys. What is drawn fits, its columns stand below each other, and nothing is obeyed.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use tests::env::Env;
use tests::terminal::shown;
use unicode_width::UnicodeWidthStr;

/// Names of files, with what is shown of each: marks of direction and controls as escapes, letters as they are.
const NAMES: [(&str, &str); 6] = [
    ("後で作る一覧表", "後で作る一覧表"),
    ("שלום", "שלום"),
    ("e\u{301}te\u{301}", "e\u{301}te\u{301}"),
    ("gpj\u{202e}.exe", r#""gpj\342\200\256.exe""#),
    ("a\u{1b}[2J\u{7}\nb", r#""a\033[2J\a\nb""#),
    ("c1\u{9b}2J", r#""c1\302\2332J""#),
];
/// A label and a message.
const LABEL: &str = "版本 שלום\u{202e}";
const MESSAGE: &str = "直した\u{9b}2J\u{2066}x";

/// A workspace with these names in files, a label, a message and calls; gives its directory in the mount.
fn with_names(env: &Env) -> PathBuf {
    for (name, _) in NAMES {
        fs::write(env.project().join(name), "1\n").unwrap();
    }
    let root = env.start();
    env.imported();
    let run = |args: &[&str]| env.told(env.command(&root, args)).ok();
    run(&["config", "auto-idle=off", "auto-busy=off"]);
    for name in calls() {
        let line = ["-c", "echo 2 >> \"$1\"", "sh", name];
        run(&[&["tool", "exec", name, "--", "sh"], &line[..]].concat());
    }
    run(&["checkpoint", LABEL, "-m", MESSAGE]);
    run(&["branch", "create", "fix"]);
    for (name, _) in NAMES {
        fs::write(root.join(name), "1\n2\n3\n").unwrap();
    }
    root
}

/// The names that a call may have: those without controls.
fn calls() -> impl Iterator<Item = &'static str> {
    let names = NAMES.iter().map(|(name, _)| *name);
    names.filter(|name| !name.contains(char::is_control))
}

/// Whether a terminal would obey it.
fn is_obeyed(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The columns before a word in a line that has it.
#[track_caller]
fn column(text: &str, line: usize, word: &str) -> usize {
    let line = text.lines().nth(line).unwrap();
    let at = line.find(word);
    line[..at.unwrap_or_else(|| panic!("no {word:?} in {text}"))].width()
}

#[test]
fn names_of_any_script_fit_the_terminal_and_none_is_obeyed() {
    let Some(env) = Env::new() else { return };
    with_names(&env);
    let first = format!("'{}'", NAMES[0].0);
    let bad = NAMES[3].0;
    // What is never cut, because paths are copied, has only to be harmless.
    for (line, is_cut) in [
        ("log", true),
        ("log --no-graph", true),
        ("log --oneline", true),
        ("log --absolute --all", true),
        ("diff --stat", true),
        ("status", true),
        ("branch list", true),
        ("timeline", true),
        (&*format!("blame {first}"), true),
        (&*format!("blame '{bad}'"), true),
        (&*format!("blame -l {first}"), true),
        (&*format!("blame -l '{bad}'"), true),
        ("diff", false),
        ("diff --name-only", false),
        ("timeline --format table", false),
        ("fs ls", false),
        ("fs tree", false),
        ("fs find", false),
    ] {
        for columns in [40, 80, 200] {
            for locale in ["C", "C.UTF-8"] {
                let variables = [("NO_COLOR", "1"), ("LC_ALL", locale)];
                let line = format!("-w project {line}");
                let Some(text) = shown(&env, columns, &variables, &line) else {
                    return;
                };
                assert!(
                    !text.is_empty() && !text.contains(is_obeyed),
                    "{line}: {text:?}"
                );
                let fits = |text: &str| text.lines().all(|row| row.width() <= columns.into());
                assert!(!is_cut || fits(&text), "{line} in {columns}: {text}");
            }
        }
    }
}

#[test]
fn columns_stand_below_each_other_whatever_the_names_are() {
    let Some(env) = Env::new() else { return };
    with_names(&env);
    let plain = [("NO_COLOR", "1")];
    let Some(text) = shown(&env, 200, &plain, "-w project timeline") else {
        return;
    };
    let of = |call: &str| NAMES.iter().find(|(name, _)| *name == call).unwrap().1;
    for (at, call) in calls().collect::<Vec<_>>().into_iter().rev().enumerate() {
        let row = text.lines().nth(at + 1).unwrap();
        assert!(row.contains(of(call)), "{text}");
        assert_eq!(
            column(&text, at + 1, "success"),
            column(&text, 0, "STATUS"),
            "{text}"
        );
    }
    let text = shown(&env, 200, &plain, "-w project diff --stat").unwrap();
    let after: Vec<usize> = (0..NAMES.len())
        .map(|at| column(&text, at, "  +"))
        .collect();
    assert!(after.iter().all(|at| *at == after[0]), "{text}");
    for (_, name) in NAMES {
        assert!(
            text.lines().any(|line| line.starts_with(name)),
            "{name}: {text}"
        );
    }
    let text = shown(&env, 200, &plain, "-w project log --no-graph").unwrap();
    assert_eq!(
        column(&text, 1, "\"直した"),
        column(&text, 0, "MESSAGE"),
        "{text}"
    );
    assert_eq!(
        column(&text, 1, "\"版本 שלום"),
        column(&text, 0, "LABELS"),
        "{text}"
    );
    let text = shown(
        &env,
        200,
        &plain,
        &format!("-w project blame '{}'", NAMES[3].0),
    )
    .unwrap();
    for (line, name) in [(1, "\"版本 שלום"), (2, NAMES[3].1)] {
        assert_eq!(
            column(&text, line, name),
            column(&text, 0, "NAME"),
            "{text}"
        );
        let change = column(&text, 0, "CHANGE");
        assert_eq!(column(&text, line, "modified"), change, "{text}");
    }
    let text = shown(
        &env,
        200,
        &plain,
        &format!("-w project blame -l '{}'", NAMES[0].0),
    )
    .unwrap();
    assert!(text.contains(NAMES[0].0), "{text}");
}

#[test]
fn blame_in_a_narrow_terminal_leaves_out_what_matters_least() {
    let Some(env) = Env::new() else { return };
    with_names(&env);
    let plain = [("NO_COLOR", "1")];
    let of = |columns| shown(&env, columns, &plain, "-w project blame 後で作る一覧表");
    let Some(wide) = of(200) else { return };
    let titles = |text: &str| -> Vec<String> {
        let words = text.lines().next().unwrap().split_whitespace();
        words.map(str::to_owned).collect()
    };
    assert_eq!(
        titles(&wide),
        ["TIME", "KIND", "ID", "NAME", "COMMIT", "CHANGE", "BRANCH"],
        "{wide}"
    );
    let narrow = of(40).unwrap();
    assert_eq!(titles(&narrow), ["TIME", "KIND", "ID", "NAME"], "{narrow}");
    assert!(narrow.contains("後で作る一覧表"), "{narrow}");
}
