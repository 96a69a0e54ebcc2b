//! Words that people try first: each works, or the error names what does; short commands are the long ones.

#![allow(clippy::unwrap_used)]

use std::fs;
use tests::env::{Env, Told};

fn agentvfs(env: &Env, line: &str) -> Told {
    let args: Vec<&str> = line.split_whitespace().collect();
    env.told(env.command(&env.project(), &args))
}

/// What a guess comes to.
enum Comes {
    /// It succeeds, with this on standard output.
    To(&'static str),
    /// It is wrong usage, whose hint has this.
    Hint(&'static str),
    /// It fails for another reason than its words: standard error has this.
    Else(&'static str),
}

use Comes::{Else, Hint, To};

/// What is tried without a workspace.
const BEFORE: &[(&str, Comes)] = &[
    ("", To("agentvfs start --from DIR")),
    ("-v", To("agentvfs 0.")),
    ("version", To("agentvfs 0.")),
    ("help", To("Usage: agentvfs")),
    ("help workspace", To("Usage: agentvfs workspace")),
    ("help log", To("Usage: agentvfs log")),
    ("workspace help", To("Usage: agentvfs workspace")),
    ("workspace help ls", To("Usage: agentvfs list")),
    ("help commit", To("Usage: agentvfs checkpoint")),
    (
        "ls",
        Hint("agentvfs list lists the workspaces, agentvfs fs ls"),
    ),
    ("list", To("")),
    ("workspace ls", To("")),
    ("exec", Hint("agentvfs run runs a command")),
    ("create", Hint("agentvfs start --from DIR")),
    ("checkout fix", Hint("agentvfs switch BRANCH")),
    ("rm x", Hint("agentvfs delete")),
    ("reset --hard", Hint("agentvfs rollback REF")),
    ("rename a b", Hint("agentvfs branch rename")),
    ("cat f", Hint("agentvfs fs cat")),
    ("resolve f", Hint("--help after a command")),
    ("workspace run", Hint("agentvfs run")),
    ("workspace merge x", Hint("agentvfs merge")),
    ("chekpoint", Hint("agentvfs checkpoint")),
    ("rollbak", Hint("agentvfs rollback")),
    ("branch crate x", Hint("agentvfs branch create")),
    ("xyzzy", Hint("agentvfs --help")),
    ("workspace xyzzy", Hint("agentvfs workspace --help")),
    ("mount nothing", Else("no workspace named nothing")),
    ("umount nothing", Else("no workspace named nothing")),
    ("mcp --help", To("Usage: agentvfs serve mcp")),
    ("run --help", To("Usage: agentvfs run")),
    ("checkpoint --label x", Hint("agentvfs checkpoint LABEL")),
    ("start --path x", Hint("agentvfs start --from DIR")),
    (
        "workspace start --path x",
        Hint("agentvfs start --from DIR"),
    ),
    ("rollback --hard", Hint("agentvfs undo")),
    ("apply -n", Hint("agentvfs apply --dry-run")),
    ("branch merge x --abort", Hint("agentvfs undo")),
    ("status --home /x", Hint("agentvfs --root DIR")),
    ("status -v", Hint("agentvfs --verbose")),
    ("diff --staged", Hint("agentvfs diff compares")),
];

/// What is tried in a project with a workspace that runs, in this order.
const WITHIN: &[(&str, Comes)] = &[
    ("", To("Workspace project (started), branch main")),
    ("status", To("status=started")),
    ("list", To("project\tstarted\t")),
    ("workspace ls", To("project\tstarted\t")),
    ("commit first -m one", To("")),
    ("snapshot second", To("")),
    ("checkpoint third", To("")),
    ("log", To("\tthird\t")),
    ("history", To("\tthird\t")),
    ("checkpoints", To("\tthird\t")),
    ("conflicts", To("")),
    ("runs", To("")),
    ("remotes", To("")),
    ("log -n 1", To("\tthird\t")),
    ("log --limit 1 --oneline", To(" (third")),
    ("log --branch main", To("\tthird\tone")),
    ("diff", To("")),
    ("diff --name-only", To("")),
    ("diff --stat", To("")),
    ("branch create fix", To("name=fix")),
    ("switch fix", To("/.agentvfs/branches/fix\n")),
    ("branch switch fix", To("/.agentvfs/branches/fix\n")),
    ("branch checkout fix", To("/.agentvfs/branches/fix\n")),
    ("switch none", Else("hint: `agentvfs branch create none`")),
    ("merge fix", To("")),
    ("branch ls", To("fix\t")),
    ("branches", To("fix\t")),
    ("rollback --to first", To("")),
    ("rollback --to @-", To("")),
    ("undo", To("")),
    ("redo", To("")),
    ("rollback HEAD", To("")),
    ("restore f", To("")),
    ("apply", To("")),
    ("update", To("")),
    ("push", Else("agentvfs apply and agentvfs update work with")),
    ("pull", Else("agentvfs apply and agentvfs update work with")),
    ("config set keep-all 2h", To("keep-all=2h")),
    ("config get keep-all", To("keep-all=2h\n")),
    ("config keep-all=1h", To("keep-all=1h\n")),
    ("umount project", To("status=stopped")),
    ("mount project", To("status=started")),
    ("stop", To("status=stopped")),
    ("", To("agentvfs start")),
    ("workspace rm project --yes", To("name=project")),
    ("init", To("status=initialized")),
    ("delete project --yes", To("name=project")),
];

fn try_all(env: &Env, guesses: &[(&str, Comes)]) {
    for (line, comes) in guesses {
        let told = agentvfs(env, line);
        let is_right = match comes {
            To(out) => told.status == 0 && told.out.contains(out),
            Hint(hint) => {
                let last = told.err.lines().last().unwrap_or_default();
                told.status == 2
                    && told.out.is_empty()
                    && told.err.starts_with("agentvfs: wrong usage: ")
                    && last.starts_with("hint: ")
                    && last.contains(hint)
            }
            Else(err) => told.status == 1 && told.err.contains(err),
        };
        assert!(is_right, "agentvfs {line}: {told:?}");
    }
}

#[test]
fn what_people_try_first_works_or_names_what_does() {
    let Some(env) = Env::new() else { return };
    try_all(&env, BEFORE);
    fs::write(env.project().join("f"), "x").unwrap();
    let root = env.start();
    env.imported();
    fs::write(root.join("f"), "changed").unwrap();
    try_all(&env, WITHIN);
}

#[test]
fn short_commands_print_what_the_long_ones_do() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("f"), "x").unwrap();
    let root = env.start();
    env.imported();
    env.workspace(&["checkpoint", "one"]).id();
    fs::write(root.join("f"), "changed").unwrap();
    fs::write(root.join("g"), "new").unwrap();
    for line in [
        "status",
        "list",
        "list --json",
        "log",
        "log --json --all",
        "log -z",
        "diff",
        "diff --stat",
        "diff one --patch",
        "apply --dry-run",
        "rollback --dry-run",
        "restore f --dry-run",
        "init --from .",
        "start",
        "checkpoint bad/label",
        "rollback nowhere",
        "delete",
        "log one two",
        "rollback --hlep",
    ] {
        let (short, long) = (
            agentvfs(&env, line),
            agentvfs(&env, &format!("workspace {line}")),
        );
        let usage = |told: &Told| told.err.replace("agentvfs workspace ", "agentvfs ");
        assert_eq!(
            (short.status, &short.out),
            (long.status, &long.out),
            "{line}"
        );
        assert_eq!(usage(&short), usage(&long), "{line}");
    }
}

#[test]
fn exact_labels_come_before_other_names_of_the_head() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let checkpoint = |content: &str, label: &str| {
        fs::write(root.join("f"), content).unwrap();
        env.workspace(&["checkpoint", label]).id()
    };
    let one = checkpoint("1", "one");
    let two = checkpoint("2", "two");
    checkpoint("3", "three");
    let shows = |reference: &str| {
        let told = agentvfs(&env, &format!("fs cat f --ref {reference}"));
        told.ok()
    };
    for (reference, content) in [
        ("HEAD", "3"),
        ("HEAD~1", "2"),
        ("HEAD^", "2"),
        ("HEAD~2", "1"),
        ("@-", "2"),
        ("@--", "1"),
        ("main:HEAD~1", "2"),
    ] {
        assert_eq!(shows(reference), content, "{reference}");
    }
    env.workspace(&["rollback", "HEAD~2"]).id_or_pending();
    assert_eq!(fs::read(root.join("f")).unwrap(), b"1");
    assert_ne!(one, two);
    let labelled = checkpoint("4", "HEAD");
    checkpoint("5", "five");
    assert_eq!(shows("HEAD"), "4", "{labelled} has that label");
    assert_eq!(shows("@"), "5");
    for reference in ["HEADS", "HEAD~x", "@x", "HEAD-^"] {
        let told = agentvfs(&env, &format!("rollback {reference}"));
        assert_eq!(told.status, 1, "{reference}: {told:?}");
    }
}

#[test]
fn diff_takes_refs_first_and_then_paths() {
    let Some(env) = Env::new() else { return };
    fs::create_dir(env.project().join("d")).unwrap();
    for name in ["a", "d/b", "gone", "project", "one"] {
        fs::write(env.project().join(name), "x").unwrap();
    }
    let root = env.start();
    env.imported();
    env.workspace(&["checkpoint", "one"]).id();
    for name in ["a", "d/b", "project", "one"] {
        fs::write(root.join(name), "changed").unwrap();
    }
    fs::remove_file(root.join("gone")).unwrap();
    for (line, names) in [
        ("diff --name-only", "a\nd/b\ngone\none\nproject\n"),
        ("diff one --name-only a d", "a\nd/b\n"),
        ("diff one @ a", ""),
        ("diff --name-only a", "a\n"),
        ("diff --name-only gone", "gone\n"),
        ("diff a d/b gone", "M\ta\nM\td/b\nD\tgone\n"),
        ("diff -- one", "M\tone\n"),
        ("diff -- project", "M\tproject\n"),
        ("diff project -- project", "M\tproject\n"),
        ("diff project one a", "M\ta\n"),
        ("diff --base a", "M\ta\n"),
        ("diff --base project a gone", "M\ta\nD\tgone\n"),
        ("diff --name-only -w project a", "a\n"),
        ("diff --stat a", "1\t1\ta\n"),
        ("diff --path a d", "M\ta\nM\td/b\n"),
    ] {
        assert_eq!(agentvfs(&env, line).ok(), names, "{line}");
    }
    let told = agentvfs(&env, "diff nowhere");
    assert!(told.status == 1 && told.err.contains("nowhere"), "{told:?}");
    let told = agentvfs(&env, "diff one @ nowhere");
    assert_eq!(told.ok(), "", "a path that neither side has");
}
