//! Who changed what, through the commands: a branch for each agent, calls in it, merged and deleted; renames; over
//! kills of the daemon, gc and fsck.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use tests::env::{Env, Told};
use tests::mcp;

fn agentvfs(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

fn told(env: &Env, args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().chain(&["--json"]).copied().collect();
    serde_json::from_str(&agentvfs(env, &args).ok()).unwrap()
}

fn place(env: &Env, branch: &str) -> PathBuf {
    match branch {
        "main" => env.mountpoint(),
        name => env.mountpoint().join(".agentvfs/branches").join(name),
    }
}

/// Carries out a script as a call of a tool, where the branch is.
fn exec(env: &Env, branch: &str, name: &str, script: &str) {
    let args = ["tool", "exec", name, "--", "sh", "-ec", script];
    env.told(env.command(&place(env, branch), &args)).ok();
}

/// A row of `blame`: kind or tool, what it did, old name, branch.
fn row(item: &Value) -> String {
    let text = |key: &str| item[key].as_str().unwrap_or("-").to_owned();
    let what = match item["kind"].as_str() {
        Some("call") => text("name"),
        _ => text("kind"),
    };
    let cells = [what, text("change"), text("old_path"), text("branch")];
    cells.join(" ")
}

fn blame(env: &Env, args: &[&str]) -> Vec<String> {
    let args: Vec<&str> = ["blame"].iter().chain(args).copied().collect();
    let answer = told(env, &args);
    assert_eq!(answer["unknown"], 0, "{answer}");
    answer["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(row)
        .collect()
}

/// Calls of the timeline with all that belongs to it: tool, branch, and whether that is gone.
fn timeline(env: &Env) -> Vec<String> {
    let all = told(env, &["timeline", "--all"]);
    let of = |item: &Value| match item["branch_deleted"] == true {
        true => format!("{} {}!", item["name"], item["branch"]).replace('"', ""),
        false => format!("{} {}", item["name"], item["branch"]).replace('"', ""),
    };
    all["calls"].as_array().unwrap().iter().map(of).collect()
}

fn merge_and_delete(env: &Env, branch: &str) {
    agentvfs(env, &["branch", "merge", branch, "--into", "main"]).id();
    agentvfs(env, &["branch", "delete", branch]).ok();
}

/// A branch that is merged by a fast-forward, and one that is merged with what main did meanwhile.
fn two_agents(env: &Env) {
    agentvfs(env, &["branch", "create", "one"]).ok();
    exec(env, "one", "edit", "sed -i '3s/.*/of one/' lib/notes");
    exec(env, "one", "move", "mv lib core");
    merge_and_delete(env, "one");
    agentvfs(env, &["branch", "create", "two"]).ok();
    exec(env, "main", "meanwhile", "echo 1 > other");
    exec(env, "two", "append", "echo of two >> core/notes");
    merge_and_delete(env, "two");
}

#[test]
fn calls_of_merged_and_deleted_branches_are_named() {
    let Some(env) = Env::new() else { return };
    fs::create_dir(env.project().join("lib")).unwrap();
    let text: String = (0..40).map(|n| format!("line {n}\n")).collect();
    fs::write(env.project().join("lib/notes"), text).unwrap();
    env.start();
    env.imported();
    two_agents(&env);
    let rows = [
        "merge modified - main",
        "append modified - two",
        "merge renamed lib/notes main",
        "move renamed lib/notes one",
        "edit modified - one",
    ];
    let calls = [
        "merge main",
        "append two!",
        "meanwhile main",
        "merge main",
        "move one!",
        "edit one!",
    ];
    let as_told = || {
        assert_eq!(blame(&env, &["core/notes"]), rows);
        assert_eq!(timeline(&env), calls);
    };
    as_told();
    env.kill_daemon();
    as_told();
    agentvfs(&env, &["gc", "--grace", "0s"]).ok();
    env.kill_daemon();
    as_told();
    agentvfs(&env, &["fsck"]).ok();
    as_told();
    let lines = agentvfs(&env, &["timeline"]).ok();
    assert_eq!(lines.lines().count(), 1, "without --all its own: {lines}");
    let mut mcp = mcp::serve(&env);
    let same = mcp.call("blame", json!({"path": "core/notes"}));
    let lines = agentvfs(&env, &["blame", "core/notes"]).ok();
    assert_eq!(same.ok(), lines.trim_end(), "{same:?}");
    assert_eq!(mcp.end(), (String::new(), 0));
}

#[test]
fn a_renamed_file_is_followed_and_one_that_no_call_changed_says_so() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("plain"), "of the project\n").unwrap();
    let root = env.start();
    env.imported();
    exec(&env, "main", "make", "seq 40 > old");
    exec(&env, "main", "move", "mkdir d; mv old d/new");
    exec(&env, "main", "dir", "mv d e");
    let all = [
        "dir renamed d/new main",
        "move renamed old main",
        "make added - main",
    ];
    assert_eq!(blame(&env, &["e/new"]), all);
    assert_eq!(blame(&env, &["e/new", "--no-follow"]), ["dir added - main"]);
    assert_eq!(blame(&env, &["e/new", "--limit", "1"]), all[..1]);
    let cells = agentvfs(&env, &["blame", "e/new"]).ok();
    let first: Vec<&str> = cells.lines().next().unwrap().split('\t').collect();
    assert_eq!((first[1], first[3]), ("call", "dir"));
    assert_eq!(first[5..], ["renamed", "d/new", "main"]);
    let none = told(&env, &["blame", "plain"]);
    let commit = none["commits"][0].as_str().unwrap();
    assert_eq!((none["calls"].as_u64(), commit.len()), (Some(0), 64));
    let said = agentvfs(&env, &["blame", "plain"]);
    let expected = format!(
        "no call changed plain: it came with commit {}",
        &commit[..12]
    );
    assert!(said.err.contains(&expected), "{said:?}");
    fs::write(root.join("plain"), "by hand\n").unwrap();
    env.workspace(&["checkpoint", "by-hand"]).id();
    assert_eq!(blame(&env, &["plain"]), ["checkpoint modified - main"]);
    let cut = told(&env, &["blame", "plain", "--limit", "1"]);
    assert_eq!(
        (
            cut["more"].as_bool(),
            cut["commits"].as_array().unwrap().len()
        ),
        (Some(true), 0)
    );
    let said = agentvfs(&env, &["blame", "plain", "--limit", "1"]);
    assert!(
        !said.err.contains("no call") && !said.err.contains("no known call"),
        "what was not looked at is not known: {said:?}"
    );
}
