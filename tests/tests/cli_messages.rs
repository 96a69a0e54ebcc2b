//! On a terminal, each command that changes something says on one line what was done, to which workspace, branch and
//! directory, and how to take it back.

#![allow(clippy::unwrap_used)]

use std::fs;
use tests::env::Env;
use tests::terminal::shown;

/// Command, what its line begins with after `agentvfs: `, and what it names to take it back. `MOUNT`, `BASE` and
/// `HOME` stand for directories.
const LINES: [(&str, &str, &str); 23] = [
    (
        "update",
        "workspace project, branch main, MOUNT: up-to-date",
        "nothing changed",
    ),
    (
        "init two --from BASE/../other",
        "workspace two of ",
        "`agentvfs delete two` deletes it",
    ),
    (
        "start two",
        "workspace two, branch main, ",
        "`agentvfs stop two` unmounts it",
    ),
    (
        "stop two",
        "workspace two with all its branches, ",
        "`agentvfs start two` mounts it again",
    ),
    (
        "delete two --yes",
        "workspace two with all its branches: deleted for ever; its project ",
        " is unchanged",
    ),
    (
        "kv set plan 1",
        "workspace project, branch main, MOUNT: key plan set; ",
        "`agentvfs kv get plan --ref @`",
    ),
    (
        "kv delete plan",
        "workspace project, branch main, MOUNT: key plan deleted; ",
        "`agentvfs kv get plan --ref @`",
    ),
    (
        "fs mkdir dir",
        "workspace project, branch main, MOUNT: dir made; ",
        "`agentvfs fs rm dir` removes it",
    ),
    (
        "fs mv dir dir2",
        "workspace project, branch main, MOUNT: dir is dir2 now; ",
        "`agentvfs fs mv dir2 dir` reverses it",
    ),
    (
        "fs write f < MOUNT/f",
        "workspace project, branch main, MOUNT: 2 bytes written to f; ",
        "`agentvfs restore f` takes it from the head",
    ),
    (
        "checkpoint one",
        "workspace project, branch main, MOUNT: ",
        "`agentvfs rollback one` comes back to it",
    ),
    (
        "fs rm f",
        "workspace project, branch main, MOUNT: f removed; ",
        "`agentvfs restore f` takes it from the head",
    ),
    (
        "restore f",
        "workspace project, branch main, MOUNT: ",
        "`agentvfs undo` reverses it",
    ),
    (
        "branch create fix",
        "workspace project, branch fix, MOUNT/.agentvfs/branches/fix: created; ",
        "`agentvfs branch delete fix` deletes it",
    ),
    (
        "branch rename fix mend",
        "workspace project, branch mend, MOUNT/.agentvfs/branches/mend: renamed from fix; ",
        "`agentvfs branch rename mend fix`",
    ),
    (
        "--branch mend fs mkdir made",
        "workspace project, branch mend, MOUNT/.agentvfs/branches/mend: made made; ",
        "`agentvfs fs rm made` removes it",
    ),
    (
        "merge mend",
        "workspace project, branch main, MOUNT",
        "`agentvfs undo` reverses it",
    ),
    (
        "branch delete mend",
        "workspace project, branch mend: deleted; ",
        "recreates it",
    ),
    (
        "rollback one",
        "workspace project, branch main, MOUNT: ",
        "`agentvfs undo` reverses it",
    ),
    (
        "undo",
        "workspace project, branch main, MOUNT: ",
        "`agentvfs redo` reverses it",
    ),
    (
        "config auto-idle=3s",
        "settings of all workspaces in HOME: changed; ",
        "`agentvfs config auto-idle=off` takes that back",
    ),
    (
        "export BASE/../x.db",
        "workspace project, branch main: ",
        "x.db takes that back",
    ),
    (
        "apply",
        "workspace project, branch main, BASE: ",
        "agentvfs restore --ref ",
    ),
];

#[test]
fn each_command_says_what_it_did_where_and_how_to_take_it_back() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("f"), "1\n").unwrap();
    fs::create_dir(env.path("other")).unwrap();
    let root = env.start();
    env.imported();
    let quiet = ["config", "auto-idle=off", "auto-busy=off"];
    env.told(env.command(&env.project(), &quiet)).ok();
    let places = [
        ("MOUNT", root.display().to_string()),
        ("BASE", env.project().display().to_string()),
        ("HOME", env.home().display().to_string()),
    ];
    let placed = |text: &str| {
        let replace = |text: String, (word, place): &(&str, String)| text.replace(word, place);
        places.iter().fold(text.to_owned(), replace)
    };
    let mut wrong = Vec::new();
    for (line, begins, reverse) in LINES {
        let line = format!("-w project {}", placed(line));
        let line = match line.contains(" two") {
            true => line.replace("-w project ", ""),
            false => line,
        };
        let variables = [("NO_COLOR", "1")];
        let Some(text) = shown(&env, 200, &variables, &line) else {
            return;
        };
        let said: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("agentvfs: "))
            .collect();
        let is_right = |said: &&&str| said.starts_with(&placed(begins)) && said.contains(reverse);
        if said.iter().filter(is_right).count() != 1 {
            wrong.push(format!("{line}: {said:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
