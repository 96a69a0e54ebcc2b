//! `agentvfs quickstart` and `agentvfs agent run`: an agent is set up in one command, or for one run without a trace; and the
//! program by its other names.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tests::binary;
use tests::env::{Env, Told};
use tests::sandbox;

/// A program in the environment's `bin`.
fn program(env: &Env, name: &str, script: &str) -> PathBuf {
    let bin = env.path("bin");
    fs::create_dir_all(&bin).unwrap();
    let path = bin.join(name);
    fs::write(env.path("draft"), format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(env.path("draft"), fs::Permissions::from_mode(0o755)).unwrap();
    binary::copy(&env.path("draft"), &path);
    path
}

/// `agentvfs` by a name, in the project, with that `bin` and little else on its path.
fn named(env: &Env, name: &str, args: &[&str]) -> Command {
    let link = env.path("bin").join(name);
    if !link.exists() {
        fs::create_dir_all(env.path("bin")).unwrap();
        symlink(binary::agentvfs(), &link).unwrap();
    }
    let mut command = env.program(&link);
    let path = format!(
        "{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        env.path("bin").display()
    );
    command
        .args(args)
        .env("PATH", path)
        .current_dir(env.project());
    command
}

fn told(env: &Env, args: &[&str]) -> Told {
    env.told(named(env, "agentvfs", args))
}

/// Names of all that is below a directory.
fn names(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                left.push(path.clone());
            }
            all.push(path);
        }
    }
    all.sort();
    all
}

#[test]
fn quickstart_sets_everything_up_and_twice_is_once() {
    let Some(env) = Env::new() else { return };
    program(&env, "claude", "exit 0");
    fs::create_dir(env.path("user/.codex")).unwrap();
    fs::write(env.project().join("f"), "base\n").unwrap();
    let wanted = format!(
        "mount={}\nbranch=main\nagents=claude,codex\n",
        env.mountpoint().display()
    );
    let before = names(&env.path("user"));
    let dry = told(&env, &["quickstart", "--dry-run"]);
    assert_eq!(dry.clone().ok(), wanted);
    assert!(dry.err.contains("would write hooks to "), "{dry:?}");
    assert!(names(&env.path("user")) == before && !env.mountpoint().exists());
    let first = told(&env, &["quickstart"]);
    assert_eq!(first.clone().ok(), wanted);
    let now = format!(
        "agentvfs: now: cd {} && claude\n",
        env.mountpoint().display()
    );
    assert!(
        first.err.ends_with(&now) && first.err.contains("/hooks"),
        "{first:?}"
    );
    assert_eq!(
        fs::read_to_string(env.mountpoint().join("f")).unwrap(),
        "base\n"
    );
    let all = told(&env, &["agent", "status"]).ok();
    assert!(
        all.lines().count() == 8 && all.lines().all(|row| row.ends_with("\tsame")),
        "{all}"
    );
    let after = names(&env.path("user"));
    let second = told(&env, &["quickstart", env.project().to_str().unwrap()]);
    assert_eq!(second.clone().ok(), wanted);
    assert!(
        !second.err.contains("wrote") && second.err.ends_with(&now),
        "{second:?}"
    );
    assert_eq!(names(&env.path("user")), after);
    let one = told(&env, &["quickstart", "--agent", "codex", "--json"]).ok();
    let one: Value = serde_json::from_str(&one).unwrap();
    assert_eq!(one["agents"], json!(["codex"]));
    told(&env, &["quickstart", "/nowhere"]).fails(2, "no directory");
    told(&env, &["quickstart", "--agent", "nobody"]).fails(2, "no agent named nobody");
    // By ContextFS's name for it.
    let third = env
        .told(named(&env, "agentvfs-quickstart", &["--agent", "claude"]))
        .ok();
    assert_eq!(third, wanted.replace(",codex", ""));
}

/// What the agents below run: it keeps its arguments, and calls the hook as the agent would.
const AGENT: &str = r#"printf '%s\0' "$@" > args
env > env
say() { echo "{\"hook_event_name\": \"$1\", \"session_id\": \"e\", \"prompt_id\": \"p\", \"tool_use_id\": \"c\",
    \"tool_name\": \"Bash\", \"tool_input\": {}}" | agentvfs hook claude; }
say UserPromptSubmit
say PreToolUse
echo two > f
say PostToolUse
say Stop"#;

fn run_agent(env: &Env, options: &[&str], words: &[&str]) -> Told {
    let path = format!("PATH={}:/usr/bin:/bin", env.path("bin").display());
    let args = [
        &["agent", "run", "--session", "s", "--env", &path][..],
        options,
        words,
    ]
    .concat();
    told(env, &args)
}

fn arguments(env: &Env) -> Vec<String> {
    let args = env.mountpoint().join(".agentvfs/branches/s/args");
    let text = fs::read_to_string(args).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

/// Claude Code was given what settings would have had, before what the user typed.
fn options_of_claude(env: &Env) {
    let args = arguments(env);
    let value = |at: usize, option: &str| -> Value {
        serde_json::from_str(args[at].strip_prefix(option).unwrap()).unwrap()
    };
    let hook = value(0, "--settings=");
    let hook = hook.pointer("/hooks/PreToolUse/0/hooks/0/command").unwrap();
    assert_eq!(hook, "agentvfs hook claude");
    let server = value(1, "--mcp-config=");
    assert_eq!(
        server["mcpServers"]["agentvfs"]["args"],
        json!(["serve", "mcp", "--here"])
    );
    assert!(
        args[2].starts_with("--append-system-prompt=## agentvfs"),
        "{args:?}"
    );
    assert_eq!(args[3..], ["-p", "do it"]);
}

#[test]
fn an_agent_is_run_with_all_it_needs_and_nothing_is_written() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    for name in ["claude", "codex", "opencode"] {
        program(&env, name, AGENT);
    }
    binary::copy(binary::agentvfs(), &env.path("bin/agentvfs"));
    let before = names(&env.path("user"));
    let told_by_run = run_agent(&env, &[], &["claude", "-p", "do it"]);
    assert_eq!(told_by_run.status, 0, "{told_by_run:?}");
    options_of_claude(&env);
    let on_s =
        |args: &[&str]| told(&env, &[args, &["-w", "project", "--branch", "s"]].concat()).ok();
    let timeline = on_s(&["timeline"]);
    assert!(
        timeline.lines().count() == 1 && timeline.contains("Bash\tsuccess"),
        "{timeline}"
    );
    assert_eq!(on_s(&["tool", "diff", "1"]), "M\tf\n");
    // Its commits and the list of runs name what the user typed.
    let log = on_s(&["log", "--all", "--json"]);
    assert!(
        log.contains("\"claude -p do it\"") && !log.contains("--settings"),
        "{log}"
    );
    assert!(
        run_agent(&env, &[], &["codex", "exec", "x"])
            .err
            .contains("/hooks")
    );
    let args = arguments(&env);
    assert!(
        args[0] == "-c" && args[1].starts_with("hooks.SessionStart=[{hooks="),
        "{args:?}"
    );
    assert_eq!(args[args.len() - 2..], ["exec", "x"]);
    run_agent(&env, &["--quiet"], &["opencode"]).ok();
    let variables = fs::read_to_string(env.mountpoint().join(".agentvfs/branches/s/env")).unwrap();
    assert!(
        variables.contains("OPENCODE_CONFIG_CONTENT={\"mcp\":"),
        "{variables}"
    );
    let wrong: Vec<PathBuf> = names(&env.path("user"))
        .into_iter()
        .filter(|n| !before.contains(n))
        .collect();
    let is_settings = |path: &&PathBuf| path.is_file();
    assert_eq!(wrong.iter().find(is_settings), None);
    for (words, why) in [
        (&["gemini"][..], "no options"),
        (&["nobody"], "no agent named"),
        (&[], "the name of one agent"),
        (&["claude", "--settings", "x"], "one --settings"),
    ] {
        let told = run_agent(&env, &[], words);
        assert!(
            told.status == 2 && told.err.contains(why),
            "{words:?}: {told:?}"
        );
    }
}

#[test]
fn what_is_installed_is_not_added_to_a_run() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    program(&env, "claude", AGENT);
    binary::copy(binary::agentvfs(), &env.path("bin/agentvfs"));
    told(&env, &["agent", "install", "claude", "--hooks", "--mcp"]).ok();
    run_agent(&env, &["--quiet"], &["claude"]).ok();
    let args = arguments(&env);
    assert!(
        args.len() == 1 && args[0].starts_with("--append-system-prompt="),
        "{args:?}"
    );
}

#[test]
fn others_command_lines_work_under_their_names() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("f"), "base\n").unwrap();
    let by = |name: &str, args: &[&str]| env.told(named(&env, name, args));
    let agentfs = |line: &str| by("agentfs", &line.split(' ').collect::<Vec<_>>());
    agentfs("init my-agent --base .").ok();
    let mount = env.home().join("mnt/my-agent");
    fs::write(mount.join("g"), "new\n").unwrap();
    assert!(agentfs("fs my-agent ls /").ok().contains('g'));
    assert_eq!(agentfs("fs my-agent cat /g").ok(), "new\n");
    assert_eq!(agentfs("diff my-agent").ok(), "A\tg\n");
    assert_eq!(agentfs("timeline my-agent").ok(), "");
    agentfs("fs my-agent write g text").fails(2, "standard input");
    let socket = env.home().join("daemon.sock");
    let ctl = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let args = [&["--sock", socket.to_str().unwrap()][..], &words].concat();
        let mut command = named(&env, "agentvfs-ctl", &args);
        command.env_remove("AGENTVFS_HOME");
        env.told(command)
    };
    let id = ctl("checkpoint first").id();
    fs::write(mount.join("g"), "newer\n").unwrap();
    assert_eq!(ctl("rollback first").id(), id);
    assert_eq!(fs::read_to_string(mount.join("g")).unwrap(), "new\n");
    assert!(ctl("branch list").ok().contains("main"));
    ctl("policy set").fails(2, "no command");
    by("agentvfs-ctl", &["--sock", "/x/control.sock", "status"]).fails(2, "no socket");
    assert_eq!(agentfs("--version").ok(), told(&env, &["--version"]).ok());
}
