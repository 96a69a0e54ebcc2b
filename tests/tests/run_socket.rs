//! `agentvfs run`: what a command inside may ask of agentvfs, for its branch and those that it makes, and for no other.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use tests::binary;
use tests::env::{Env, Told};
use tests::sandbox::{self, Going, mark, run};
use tests::wait;

/// `agentvfs` by its name, wherever a shell inside looks. It may have been built below /tmp, which is hidden there.
fn path(env: &Env) -> String {
    let dir = env.path("bin");
    if !dir.exists() {
        fs::create_dir(&dir).unwrap();
        binary::same_build(&dir.join("agentvfs"));
    }
    format!("PATH={}:/usr/local/bin:/usr/bin:/bin", dir.display())
}

/// A shell in the session with `agentvfs` on its path.
fn shell(env: &Env, options: &[&str], script: &str) -> Told {
    let path = path(env);
    let args = [options, &["--env", &path, "--", "sh", "-c", script]].concat();
    run(env, &args)
}

const IN_S: &[&str] = &["--session", "s"];

fn outside(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.project(), args))
}

#[test]
fn the_daily_verbs_work_inside_without_options() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    let script = "set -e
        echo one > f; agentvfs checkpoint first >/dev/null; echo two > f
        agentvfs diff --name-status; agentvfs log | cut -f3
        agentvfs rollback >/dev/null; cat f; agentvfs undo >/dev/null; cat f
        agentvfs kv set k 1; agentvfs kv get k; agentvfs fs cat f; agentvfs status | grep ^branch=
        agentvfs tool exec t -- sh -c 'echo three > f' && agentvfs timeline | grep -c t
        agentvfs list | cut -f1; agentvfs branch list | cut -f1";
    let told = shell(&env, IN_S, script);
    assert_eq!(told.status, 0, "{told:?}");
    let words: Vec<&str> = told.out.split_whitespace().collect();
    let wanted = "M f first - one two 1 two branch=s 1 project s";
    assert_eq!(words.join(" "), wanted, "{told:?}");
    assert_eq!(
        fs::read_to_string(env.mountpoint().join("f")).unwrap(),
        "base\n"
    );
}

#[test]
fn a_policy_is_read_inside_and_set_outside_alone() {
    let Some(env) = sandbox::env(&[("kept", "base\n")]) else {
        return;
    };
    let rules = "[[rule]]\nname = \"kept\"\npath = \"kept\"\nverdict = \"deny\"\n";
    let file = env.path("policy.toml");
    fs::write(&file, rules).unwrap();
    outside(&env, &["policy", "set", file.to_str().unwrap()]).ok();
    let script = "agentvfs policy show; agentvfs policy set /dev/null; echo set=$?; echo x > kept; echo wrote=$?";
    let told = shell(&env, IN_S, script);
    assert!(told.out.starts_with(rules), "{told:?}");
    assert!(
        !told.out.contains("set=0") && !told.out.contains("wrote=0"),
        "{told:?}"
    );
    assert!(told.err.contains("cannot set the policy"), "{told:?}");
    let shown = outside(&env, &["policy", "show", "--json"]).ok();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        (&shown["version"], &shown["text"]),
        (&json!(1), &json!(rules))
    );
}

#[test]
fn the_file_that_events_are_appended_to_is_not_named_inside() {
    let Some(env) = sandbox::env(&[]) else { return };
    let (project, file) = (env.project(), env.path("audit.ndjson"));
    let args = [
        "start",
        "--from",
        project.to_str().unwrap(),
        "--audit",
        file.to_str().unwrap(),
    ];
    env.workspace(&["stop", "project"]);
    env.workspace(&args).ok();
    // What is wrong with it is not told either.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    fs::create_dir(env.mountpoint().join("d")).unwrap();
    wait::until("status says what is wrong", || {
        env.status()["troubles"]
            .to_string()
            .contains("audit.ndjson")
    });
    let told = shell(&env, IN_S, "agentvfs status; agentvfs status --json");
    assert!(told.out.contains("branch=s\n"), "{told:?}");
    assert!(
        !told.out.contains("audit") && !told.err.contains("audit"),
        "{told:?}"
    );
    fs::remove_dir(&file).unwrap();
}

#[test]
fn paths_inside_are_those_that_are_seen_inside() {
    let Some(env) = sandbox::env(&[]) else { return };
    fs::create_dir_all(env.project().join("src")).unwrap();
    let script =
        "set -e; agentvfs list | cut -f3; agentvfs status | grep -E '^(mount|view|socket)='
        mkdir -p src; cd src; echo one > f; agentvfs checkpoint first >/dev/null; echo two > f
        agentvfs restore --ref first f >/dev/null; cat f; readlink -f ../.agentvfs/view";
    let told = shell(&env, IN_S, script);
    let at = env.project().canonicalize().unwrap();
    let at = at.to_str().unwrap();
    let wanted = format!(
        "{at}\nmount={at}\nview={at}/.agentvfs/view\nsocket=/run/agentvfs.sock\none\n{at}\n"
    );
    assert_eq!(
        (told.out.as_str(), told.status),
        (wanted.as_str(), 0),
        "{told:?}"
    );
    // What only looks for the store says that it is outside.
    let told = shell(&env, IN_S, "agentvfs fsck");
    let why = "a command in a sandbox may not do that";
    assert!(told.status == 1 && told.err.contains(why), "{told:?}");
}

/// What a command tries on another branch `other`, another workspace `second`, and the machine.
const TRIES: &[&str] = &[
    "branch delete other",
    "branch rename s t",
    "branch rename other t",
    "branch create mine --from other:theirs",
    "branch create mine --branch other",
    "branch merge other --into s",
    "branch merge s --into other",
    "branch merge s --into main",
    "branch delete s",
    "branch delete main",
    "checkpoint x --branch main",
    "checkpoint x -w second",
    "checkpoint x --meta run=1",
    "rollback theirs",
    "rollback other:theirs",
    "diff other:theirs",
    "log --branch other",
    "log --branch main",
    "undo --branch other",
    "fs cat f --branch other",
    "fs cat f --ref other:theirs",
    "fs write f --branch other",
    "kv set k 1 --branch main",
    "kv list -w second",
    "status second",
    "apply",
    "apply --branch other",
    "update",
    "export /tmp/x.db",
    "import /etc/passwd -w new",
    "stop",
    "stop second",
    "delete --yes",
    "start --from /etc",
    "gc",
    "stats",
    "fsck",
    "config",
    "session list",
    "run --list",
    "run --session other -- true",
    "run --session main -- true",
    "run --session s -- true",
    "run -w second -- true",
];

#[test]
fn other_branches_and_the_machine_do_not_exist_for_it() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    run(&env, &["--session", "s", "true"]);
    outside(&env, &["branch", "create", "other"]).ok();
    let other = env.mountpoint().join(".agentvfs/branches/other");
    fs::write(other.join("f"), "precious\n").unwrap();
    let id = outside(
        &env,
        &["checkpoint", "-w", "project", "--branch", "other", "theirs"],
    )
    .id();
    fs::create_dir(env.path("second")).unwrap();
    env.workspace(&["start", "--from", "second"]).ok();
    let mut script = String::new();
    for words in TRIES.iter().map(|words| (*words).to_owned()).chain([
        format!("rollback {id}"),
        format!("diff {id}"),
        format!("fs cat f --ref {id}"),
        format!("branch create mine --from {id}"),
    ]) {
        script += &format!("agentvfs {words} </dev/null && echo 'DONE {words}'\n");
    }
    script += "agentvfs list --json; agentvfs branch list --json; true";
    let told = shell(&env, IN_S, &script);
    assert!(!told.out.contains("DONE"), "{told:?}");
    assert!(
        !told.out.contains("precious") && !told.err.contains("precious"),
        "{told:?}"
    );
    for word in ["second", "\"other\"", "\"main\""] {
        assert!(!told.out.contains(word), "{word} in {told:?}");
    }
    assert!(!told.err.contains("panicked"), "{told:?}");
    assert_eq!(fs::read_to_string(other.join("f")).unwrap(), "precious\n");
    let names = outside(&env, &["branch", "list", "-w", "project"]).ok();
    assert_eq!(names.lines().count(), 3, "{names}");
}

#[test]
fn a_command_makes_branches_of_its_own_and_works_with_them() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    outside(&env, &["branch", "create", "s"]).ok();
    outside(&env, &["branch", "create", "outer", "--branch", "s"]).ok();
    let script = "set -e
        agentvfs branch create child >/dev/null
        echo hello | agentvfs fs write new --branch child
        agentvfs checkpoint c --branch child >/dev/null
        agentvfs branch diff s child; agentvfs branch list | cut -f1
        agentvfs branch merge child --into s >/dev/null; cat new
        agentvfs rollback child:c >/dev/null
        agentvfs branch create grand --branch child >/dev/null";
    let told = shell(&env, IN_S, script);
    assert_eq!(told.status, 0, "{told:?}");
    let words: Vec<&str> = told.out.split_whitespace().collect();
    assert_eq!(words.join(" "), "A new s child hello", "{told:?}");
    // The next run of the session has them; another session has not, and neither has what was made outside.
    let list = "agentvfs branch list | cut -f1 | sort | tr '\\n' ' '";
    assert_eq!(shell(&env, IN_S, list).ok(), "child grand s ");
    assert_eq!(shell(&env, &["--session", "outer"], list).ok(), "outer ");
    let delete = "agentvfs branch delete child >/dev/null && agentvfs branch delete outer; true";
    let told = shell(&env, IN_S, delete);
    assert!(
        told.err.contains("no branch outer") || told.err.contains("outer"),
        "{told:?}"
    );
    let left = outside(&env, &["branch", "list", "-w", "project"]).ok();
    assert!(left.contains("outer") && !left.contains("child"), "{left}");
    // What was written is not trusted, whichever branch it went through.
    let script =
        "echo x | agentvfs fs write .envrc --branch grand && agentvfs branch merge grand --into s";
    shell(&env, IN_S, script).ok();
    let told = env.workspace(&["apply", "-w", "project", "--branch", "s"]);
    assert!(told.status == 1 && told.err.contains(".envrc"), "{told:?}");
}

#[test]
fn a_run_of_main_has_main_and_no_branch_that_was_made_outside() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    outside(&env, &["branch", "create", "other"]).ok();
    let script = "agentvfs branch create child >/dev/null; agentvfs branch list | cut -f1; agentvfs fs cat f --branch other";
    let told = shell(&env, &["--session", "main"], script);
    assert_eq!(told.out, "main\nchild\n", "{told:?}");
}

#[test]
fn what_a_command_asked_for_is_kept_and_nothing_is_worked_on_afterwards() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    // A new branch stays if a checkpoint was made in it, though no file changed.
    let told = shell(&env, &[], "agentvfs checkpoint kept >/dev/null");
    assert!(!told.err.contains("was deleted"), "{told:?}");
    let told = shell(&env, &[], "agentvfs log >/dev/null");
    assert!(told.err.contains("was deleted"), "{told:?}");
    // A change that the checkpoint holds is counted.
    let told = shell(&env, &[], "echo x > f; agentvfs checkpoint x >/dev/null");
    assert!(told.err.contains("1 file changed"), "{told:?}");
    // A file that runs by itself needs trust however it came, also if the branch shows what it showed before.
    let script = "echo x > .envrc; agentvfs checkpoint x >/dev/null; rm .envrc; agentvfs rollback x >/dev/null";
    shell(&env, IN_S, script).ok();
    let told = env.workspace(&["apply", "-w", "project", "--branch", "s"]);
    assert!(told.status == 1 && told.err.contains(".envrc"), "{told:?}");
}

#[test]
fn the_socket_is_the_runs_and_ends_with_it() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    let mark = mark();
    let going = Going::start(
        &env,
        "s",
        &mark,
        "echo \"$AGENTVFS_SOCKET\" > socket; stat -c %a \"$AGENTVFS_SOCKET\" >> socket",
    );
    let told = fs::read_to_string(env.mountpoint().join(".agentvfs/branches/s/socket")).unwrap();
    assert_eq!(told, "/run/agentvfs.sock\n600\n");
    // Outside it has no name.
    let runs = fs::read_dir(env.home().join("runs")).unwrap();
    let names: Vec<_> = runs.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        names
            .iter()
            .all(|name| !name.to_string_lossy().ends_with(".sock")),
        "{names:?}"
    );
    let _ = rustix::process::kill_process(going.command, rustix::process::Signal::KILL);
    going.finish(&env);
    // What hides a file of the project has no socket, and no snapshots: both would show it.
    fs::write(env.mountpoint().join(".env"), "KEY=1").unwrap();
    outside(&env, &["checkpoint", "-w", "project", "with"]).ok();
    let dotenv = env.project().join(".env");
    let script = "echo \"[$AGENTVFS_SOCKET]\"; cat .agentvfs/snapshots/with/.env; agentvfs fs cat .env; true";
    let told = shell(&env, &["--hide", dotenv.to_str().unwrap()], script);
    assert_eq!(told.out, "[]\n", "{told:?}");
}

#[test]
fn a_connection_that_names_a_sandbox_stays_in_it() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    outside(&env, &["branch", "create", "s"]).ok();
    let socket = env.home().join("daemon.sock");
    if !socket.exists() {
        return;
    }
    let mut stream = BufReader::new(UnixStream::connect(socket).unwrap());
    let mut ask = |method: &str, params: Value| -> Value {
        let line = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        stream
            .get_mut()
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    };
    let list = outside(&env, &["branch", "list", "-w", "project", "--json"]).ok();
    let list: Value = serde_json::from_str(&list).unwrap();
    assert!(list.to_string().contains("\"s\""), "{list}");
    let hello = |sandbox: Value| json!({ "protocol": 1, "client": "t", "sandbox": sandbox });
    let wrong =
        json!({ "workspace": "project", "branch": "s", "created": { "sec": 1, "nsec": 1 } });
    // A branch of that name that was made at another time is another one.
    assert!(ask("hello", hello(wrong))["error"].is_object());
    let on = |branch: &str| json!({ "workspace": "project", "branch": branch });
    for branch in ["s", "main"] {
        assert!(ask("workspace.log", on(branch))["error"].is_object());
    }
    // Another hello opens nothing.
    ask("hello", json!({ "protocol": 1, "client": "t" }));
    assert!(ask("workspace.log", on("main"))["error"].is_object());
}

/// A hook of Claude Code, as a line of a shell.
fn hook(event: &str, more: &str) -> String {
    format!(
        "echo '{{\"hook_event_name\": \"{event}\", \"session_id\": \"e\", \"prompt_id\": \"p\"{more}}}' \
        | agentvfs hook claude\n"
    )
}

const CALL: &str = r#", "tool_use_id": "c", "tool_name": "Bash", "tool_input": {}"#;

#[test]
fn hooks_inside_are_noted_in_the_branch_and_reach_no_call_outside() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    // The same session makes the same call in the mount.
    outside(&env, &["branch", "create", "s"]).ok();
    let script = hook("PreToolUse", CALL);
    let mut shell_outside = env.program("sh");
    shell_outside
        .args(["-c", &script])
        .current_dir(env.mountpoint());
    shell_outside.env("PATH", &path(&env)["PATH=".len()..]);
    assert_eq!(env.told(shell_outside).ok(), "");
    let script = [
        hook("SessionStart", ""),
        hook("UserPromptSubmit", ""),
        hook("PreToolUse", CALL),
        "echo two > f\n".to_owned(),
        hook("PostToolUse", CALL),
        hook("PostToolUse", CALL),
        hook("PreToolUse", &CALL.replace("\"c\"", "\"d\"")),
        hook("Stop", ", \"last_assistant_message\": \"Done.\""),
        hook("SessionEnd", ""),
        "agentvfs rollback --meta prompt=p >/dev/null; cat f".to_owned(),
    ];
    let told = shell(&env, IN_S, &script.concat());
    let lines: Vec<&str> = told.out.lines().collect();
    assert!(told.status == 0 && lines.len() == 2, "{told:?}");
    assert!(
        lines[0].contains("branch s:") && lines[1] == "base",
        "{told:?}"
    );
    let calls = |branch: &str| -> Vec<(String, String)> {
        let args = ["timeline", "-w", "project", "--branch", branch, "--json"];
        let found: Value = serde_json::from_str(&outside(&env, &args).ok()).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let calls = found["calls"].as_array().unwrap().iter();
        let calls = calls.filter(|call| call["key"].is_string());
        calls
            .map(|c| (text(&c["key"]), text(&c["status"])))
            .collect()
    };
    let call = |id: &str, status: &str| (format!("claude:e:{id}"), status.to_owned());
    assert_eq!(calls("s"), [call("d", "error"), call("c", "success")]);
    assert_eq!(calls("main"), [call("c", "pending")]);
    let diff = ["tool", "diff", "-w", "project", "--branch", "s", "1"];
    assert_eq!(outside(&env, &diff).ok(), "M\tf\n");
}
