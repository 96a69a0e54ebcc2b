//! `agentvfs hook`: what agents tell is in the timeline and the history, and nothing ever stops an agent.

#![allow(clippy::unwrap_used)]

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use tests::env::{Env, Told};
use tests::skip::{Want, skip};
use tests::wait;

/// Begins a hook with this input, in a directory that is in no workspace.
fn begin(env: &Env, agent: &str, input: &[u8]) -> Child {
    let mut command = env.command(&env.path(""), &["hook", agent]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child
}

/// What the agent hears; the hook never fails and never complains.
fn end(child: Child) -> String {
    let told = child.wait_with_output().unwrap();
    assert!(told.status.success(), "{told:?}");
    assert_eq!(String::from_utf8_lossy(&told.stderr), "");
    String::from_utf8(told.stdout).unwrap()
}

fn hook_with(env: &Env, agent: &str, input: &[u8]) -> String {
    end(begin(env, agent, input))
}

/// An agent with one session.
struct Agent<'a> {
    env: &'a Env,
    cwd: PathBuf,
    turn: u32,
}

impl Agent<'_> {
    fn message(&self, event: &str, more: Value) -> Value {
        let mut message = json!({
            "hook_event_name": event, "session_id": "5-e", "prompt_id": format!("p{}", self.turn),
            "cwd": self.cwd.to_str().unwrap(), "transcript_path": "/nowhere", "permission_mode": "default",
        });
        for (key, value) in more.as_object().unwrap() {
            message[key] = value.clone();
        }
        message
    }

    fn says(&self, event: &str, more: Value) {
        let message = self.message(event, more).to_string();
        assert_eq!(hook_with(self.env, "claude", message.as_bytes()), "");
    }

    fn call(&self, event: &str, id: &str, more: Value) {
        let mut about =
            json!({"tool_name": "Bash", "tool_input": {"command": id}, "tool_use_id": id});
        for (key, value) in more.as_object().unwrap() {
            about[key] = value.clone();
        }
        self.says(event, about);
    }

    fn prompt(&mut self) {
        self.turn += 1;
        self.says("UserPromptSubmit", json!({"prompt": "do it"}));
    }

    fn stops(&self) {
        self.says("Stop", json!({"last_assistant_message": "Done it.\nMore."}));
    }
}

fn agent(env: &Env) -> Agent<'_> {
    Agent {
        env,
        cwd: env.start(),
        turn: 0,
    }
}

fn told(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.mountpoint(), args))
}

fn json_of(env: &Env, args: &[&str]) -> Value {
    serde_json::from_str(&told(env, args).ok()).unwrap()
}

/// Key, status and error of all calls, the oldest first.
fn calls(env: &Env) -> Vec<(String, String, Value)> {
    let found = json_of(env, &["timeline", "--json"]);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let one = |c: &Value| (text(&c["key"]), text(&c["status"]), c["error"].clone());
    let calls = found["calls"].as_array().unwrap();
    calls.iter().rev().map(one).collect()
}

fn succeeded(key: &str) -> (String, String, Value) {
    (key.into(), "success".into(), Value::Null)
}

fn failed(key: &str, why: &str) -> (String, String, Value) {
    (key.into(), "error".into(), why.into())
}

/// What a call changed.
fn changed(env: &Env, id: u64) -> Vec<String> {
    let found = json_of(env, &["tool", "diff", "--json", &id.to_string()]);
    let row = |r: &Value| {
        let text = |key: &str| r[key].as_str().unwrap().to_owned();
        format!("{} {}", text("status"), text("path"))
    };
    found["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(row)
        .collect()
}

fn hooks_log(env: &Env) -> String {
    fs::read_to_string(env.home().join("hooks.log")).unwrap_or_default()
}

/// The commits of the three turns below.
fn turns_are_commits(env: &Env) {
    let log = json_of(env, &["log", "--all", "--json"]);
    let commits = log["commits"].as_array().unwrap();
    let with = |key: &str, id: &str| {
        let has = |c: &&Value| c["meta"][key] == id;
        let found: Vec<&Value> = commits.iter().filter(has).collect();
        assert!(found.iter().all(|c| c["automatic"] == true), "{log}");
        found
    };
    assert_eq!(with("prompt", "p1").len(), 1);
    let ends = with("prompt-end", "p1");
    assert_eq!(ends[0]["message"], "Done it.");
    assert_eq!(ends[0]["meta"]["session"], "5-e");
    assert_eq!(ends[0]["meta"]["agent"], "claude");
    assert!(
        with("prompt-end", "p3").is_empty(),
        "that turn changed nothing"
    );
}

#[test]
fn every_call_and_turn_of_an_agent_can_be_taken_back() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("f"), "before\n").unwrap();
    let mut agent = agent(&env);
    let root = agent.cwd.clone();
    let write = |name: &str, text: &str| fs::write(root.join(name), text).unwrap();

    agent.prompt();
    agent.call("PreToolUse", "t1", json!({}));
    write("one", "1\n");
    agent.call(
        "PostToolUse",
        "t1",
        json!({"tool_response": {"stdout": ""}}),
    );
    // Reading is not noted.
    let reads = json!({"tool_name": "Read"});
    agent.call("PreToolUse", "t2", reads.clone());
    agent.call("PostToolUse", "t2", reads);
    agent.call("PreToolUse", "t3", json!({"tool_name": "Edit"}));
    write("f", "edited\n");
    agent.call("PostToolUse", "t3", json!({"tool_name": "Edit"}));
    agent.call("PreToolUse", "t4", json!({}));
    agent.call("PostToolUseFailure", "t4", json!({"error": "exit 1"}));
    agent.stops();

    agent.prompt();
    // Codex tells of no end of calls that fail.
    agent.call("PreToolUse", "t5", json!({}));
    write("two", "2\n");
    agent.stops();
    agent.prompt();
    agent.stops();

    let no_end = failed("claude:5-e:t5", "no end was reported");
    let expected = [
        succeeded("claude:5-e:t1"),
        succeeded("claude:5-e:t3"),
        failed("claude:5-e:t4", "exit 1"),
        no_end,
    ];
    assert_eq!(calls(&env), expected);
    let differences = [1, 2, 3, 4].map(|id| changed(&env, id));
    assert_eq!(
        differences,
        [vec!["A one"], vec!["M f"], vec![], vec!["A two"]]
    );
    told(&env, &["tool", "undo", "1"]).ok();
    assert!(!root.join("one").exists() && root.join("two").exists());

    turns_are_commits(&env);
    let back = |meta: &str| told(&env, &["rollback", "--meta", meta]).id_or_pending();
    back("prompt-end=p2");
    assert_eq!(fs::read_to_string(root.join("two")).unwrap(), "2\n");
    back("prompt=p2");
    assert!(!root.join("two").exists() && root.join("one").exists());
    back("prompt=p1");
    assert!(!root.join("one").exists());
    assert_eq!(fs::read_to_string(root.join("f")).unwrap(), "before\n");
    assert_eq!(calls(&env).len(), 4, "the timeline only grows");
    assert_eq!(hooks_log(&env), "");
}

#[test]
fn calls_side_by_side_and_agents_of_an_agent_are_told_apart() {
    let Some(env) = Env::new() else { return };
    let mut agent = agent(&env);
    agent.prompt();
    let sub = json!({"agent_id": "sub"});
    agent.call("PreToolUse", "a", json!({}));
    agent.call("PreToolUse", "b", sub.clone());
    agent.call("PreToolUse", "c", sub.clone());
    agent.call("PostToolUse", "b", sub.clone());
    agent.says("SubagentStop", sub);
    agent.call("PostToolUse", "a", json!({}));
    let no_end = "no end was reported";
    let of_sub = failed("claude:5-e/sub:c", no_end);
    let expected = [
        succeeded("claude:5-e:a"),
        succeeded("claude:5-e/sub:b"),
        of_sub,
    ];
    assert_eq!(calls(&env), expected);
    let found = json_of(&env, &["timeline", "--json"]);
    let found = found["calls"].as_array().unwrap();
    assert!(found.iter().all(|c| c["parent"].is_null()), "{found:?}");

    // A turn's end leaves what its agents do in the background; the session's end does not.
    agent.call("PreToolUse", "d", json!({"agent_id": "other"}));
    agent.stops();
    assert_eq!(calls(&env)[3].1, "pending");
    agent.says("SessionEnd", json!({"reason": "exit"}));
    assert_eq!(calls(&env)[3], failed("claude:5-e/other:d", no_end));
    // A turn that was interrupted has no end: the next one ends its calls.
    agent.call("PreToolUse", "e", json!({}));
    agent.prompt();
    assert_eq!(calls(&env)[4], failed("claude:5-e:e", no_end));
    assert_eq!(hooks_log(&env), "");
}

#[test]
fn agents_are_noted_in_their_own_forms_and_told_where_they_are() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let cwd = root.to_str().unwrap();
    let says = |agent: &str, message: Value| hook_with(&env, agent, message.to_string().as_bytes());
    let gemini = |event: &str| {
        let id = "g".repeat(300);
        says(
            "gemini",
            json!({"hook_event_name": event, "session_id": id, "cwd": cwd, "tool_name": "write_file",
                "tool_input": {"file_path": "x"}, "prompt": "go", "prompt_response": "Done."}),
        )
    };
    for event in "BeforeAgent BeforeTool AfterTool AfterAgent SessionEnd".split(' ') {
        assert_eq!(gemini(event), "");
    }
    let cursor = |event: &str| {
        says(
            "cursor",
            json!({"hook_event_name": event, "conversation_id": "c", "generation_id": "p",
                "workspace_roots": ["/", cwd], "tool_name": "Shell", "tool_input": {}, "tool_use_id": "1"}),
        )
    };
    for event in ["beforeSubmitPrompt", "preToolUse", "postToolUse", "stop"] {
        assert_eq!(cursor(event), "");
    }
    let codex = |event: &str| {
        says(
            "codex",
            json!({"hook_event_name": event, "session_id": "x", "turn_id": "1", "cwd": cwd,
                "tool_name": "apply_patch", "tool_input": {}, "tool_use_id": "1"}),
        )
    };
    let hands = |event: &str| {
        says(
            "openhands",
            json!({"event_type": event, "session_id": "h", "working_dir": cwd,
                "tool_name": "terminal", "tool_input": {"command": "ls"}}),
        )
    };
    for event in [
        "UserPromptSubmit",
        "PreToolUse",
        "PostToolUse",
        "Stop",
        "PreCompact",
    ] {
        assert_eq!(codex(event) + &hands(event), "");
    }
    let calls = calls(&env);
    let agents = ["gemini", "cursor", "codex", "openhands"];
    assert_eq!(calls.len(), agents.len(), "{calls:?}");
    for (call, agent) in calls.iter().zip(agents) {
        assert!(call.0.starts_with(agent) && call.1 == "success", "{call:?}");
    }
    told(&env, &["rollback", "--meta", "prompt=p"]).id_or_pending();
    assert_eq!(hooks_log(&env), "");
}

#[test]
fn an_agent_that_begins_is_told_where_it_is() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let says = |agent: &str, event: &str| {
        let message = json!({"hook_event_name": event, "cwd": root.to_str().unwrap()});
        hook_with(&env, agent, message.to_string().as_bytes())
    };
    let text = |answer: &str| -> Value { serde_json::from_str(answer).unwrap() };
    for agent in ["claude", "codex", "gemini"] {
        let answer = text(&says(agent, "SessionStart"));
        let told = answer["hookSpecificOutput"]["additionalContext"]
            .as_str()
            .unwrap();
        assert!(told.contains("workspace project, branch main"), "{told}");
        assert!(told.lines().count() <= 6, "{told}");
    }
    assert!(text(&says("cursor", "sessionStart"))["additional_context"].is_string());
    assert_eq!(says("openhands", "SessionStart"), "");
    assert_eq!(hooks_log(&env), "");
}

#[test]
fn the_branch_and_the_workspace_are_those_of_the_directory() {
    let Some(env) = Env::new() else { return };
    let mut agent = agent(&env);
    let root = agent.cwd.clone();
    told(&env, &["branch", "create", "fix"]).ok();
    let fix = root.join(".agentvfs/branches/fix");
    agent.cwd = fix.clone();
    agent.call("PreToolUse", "a", json!({}));
    fs::write(fix.join("new"), "x").unwrap();
    // The agent's directory is another one by the end of the call.
    agent.cwd = root.clone();
    agent.call("PostToolUse", "a", json!({}));
    assert_eq!(calls(&env), []);
    let of_fix = json_of(&env, &["timeline", "--branch", "fix", "--json"]);
    assert_eq!(of_fix["calls"][0]["status"], "success");
    let link = env.path("link");
    symlink(&root, &link).unwrap();
    agent.cwd = link;
    agent.call("PreToolUse", "b", json!({}));
    // An agent that has gone elsewhere is still in its project.
    agent.cwd = env.path("");
    let message = agent.message(
        "PostToolUse",
        json!({"tool_name": "Bash", "tool_input": {}, "tool_use_id": "b"}),
    );
    let mut command = env.command(&env.path(""), &["hook", "claude"]);
    command
        .env("CLAUDE_PROJECT_DIR", &root)
        .stdin(Stdio::piped());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(message.to_string().as_bytes()).unwrap();
    drop(input);
    assert_eq!(end(child), "");
    assert_eq!(calls(&env), [succeeded("claude:5-e:b")]);
    assert_eq!(hooks_log(&env), "");
}

#[test]
fn nothing_stops_an_agent_and_what_is_lost_has_a_line() {
    let Some(env) = Env::new() else { return };
    let agent = agent(&env);
    let lines = || hooks_log(&env).lines().count();
    for bad in [
        &b""[..],
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{\"hook_event_name\": 7}",
    ] {
        let before = lines();
        assert_eq!(hook_with(&env, "claude", bad), "");
        assert_eq!(lines(), before + 1, "{bad:?}: {}", hooks_log(&env));
    }
    let pre = agent.message(
        "PreToolUse",
        json!({"tool_name": "Bash", "tool_use_id": "t"}),
    );
    let before = lines();
    assert_eq!(hook_with(&env, "../claude", pre.to_string().as_bytes()), "");
    assert_eq!(lines(), before + 1);
    // An end without a beginning.
    agent.call("PostToolUse", "t0", json!({}));
    assert_eq!(lines(), before + 2);
    assert!(
        hooks_log(&env).contains("claude:5-e:t0"),
        "{}",
        hooks_log(&env)
    );

    let long = json!({"tool_name": "Write", "tool_use_id": "long",
        "tool_input": {"file_path": "f", "content": "x".repeat(10 << 20)}});
    agent.says("PreToolUse", long.clone());
    agent.says("PostToolUse", long);
    // One call that is told of by 32 at once.
    let at_once = |event: &str| {
        let message = agent.message(event, json!({"tool_name": "Bash", "tool_use_id": "t"}));
        let message = message.to_string();
        let hooks: Vec<Child> = (0..32)
            .map(|_| begin(&env, "claude", message.as_bytes()))
            .collect();
        hooks.into_iter().for_each(|hook| assert_eq!(end(hook), ""));
    };
    at_once("PreToolUse");
    at_once("PostToolUse");
    assert_eq!(
        calls(&env),
        [succeeded("claude:5-e:long"), succeeded("claude:5-e:t")]
    );
    let found = json_of(&env, &["timeline", "--json"]);
    let parameters = &found["calls"][1]["parameters"];
    assert_eq!(parameters["file_path"], "f");
    assert!(parameters.to_string().len() < 2000);

    // In no workspace nothing is said at all, whether a daemon runs or not.
    let before = hooks_log(&env);
    let mut elsewhere = self::agent(&env);
    elsewhere.cwd = env.path("");
    elsewhere.prompt();
    env.workspace(&["stop", "project"]).ok();
    agent.call("PreToolUse", "t9", json!({}));
    elsewhere.prompt();
    assert_eq!(hooks_log(&env), before);
    assert!(!Path::new(&env.home().join("hooks.log.old")).exists());
}

#[test]
fn a_call_outlives_the_daemon_that_it_began_with() {
    let Some(mut env) = Env::new() else { return };
    env.keep_mounts();
    let mut agent = agent(&env);
    agent.prompt();
    agent.call("PreToolUse", "t", json!({}));
    fs::write(agent.cwd.join("new"), "x").unwrap();
    env.kill_daemon();
    // The keeper starts another one meanwhile.
    agent.call("PostToolUse", "t", json!({}));
    assert_eq!(
        calls(&env),
        [succeeded("claude:5-e:t")],
        "{}",
        hooks_log(&env)
    );
    assert_eq!(changed(&env, 1), ["A new"]);
    env.kill_daemon();
    agent.stops();
    told(&env, &["rollback", "--meta", "prompt=p1"]).id_or_pending();
    assert!(!agent.cwd.join("new").exists());
    assert_eq!(hooks_log(&env), "");
}

#[test]
fn a_daemon_that_is_gone_or_hangs_holds_no_agent_up() {
    let Some(mut env) = Env::new() else { return };
    env.set_variable("AGENTVFS_KEEPER", "off");
    let agent = agent(&env);
    let Some(daemon) = env.daemons().first().copied() else {
        return skip(Want::Machine, "no daemon is found");
    };
    kill_process(daemon, Signal::STOP).unwrap();
    agent.call("PreToolUse", "t", json!({}));
    kill_process(daemon, Signal::CONT).unwrap();
    assert!(
        hooks_log(&env).contains("not done within 2 s"),
        "{}",
        hooks_log(&env)
    );
    // What was asked for is done all the same once it goes on, or not at all.
    wait::until("the daemon works", || told(&env, &["status"]).status == 0);
    env.kill_daemon();
    let before = hooks_log(&env).lines().count();
    agent.call("PostToolUse", "t", json!({}));
    let log = hooks_log(&env);
    assert_eq!(log.lines().count(), before + 1, "{log}");
    assert!(
        log.contains("PostToolUse in project is not noted: no daemon is running"),
        "{log}"
    );
}

#[test]
fn sessions_that_end_a_turn_at_once_have_one_commit_with_the_metadata_of_both() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let says = |session: &str, event: &str| {
        let message = json!({
            "hook_event_name": event, "session_id": session, "prompt_id": format!("of-{session}"), "cwd": root,
        });
        begin(&env, "claude", message.to_string().as_bytes())
    };
    for session in ["a", "b"] {
        end(says(session, "UserPromptSubmit"));
        fs::write(root.join(session), session).unwrap();
    }
    let both = ["a", "b"].map(|session| says(session, "Stop"));
    both.into_iter().for_each(|child| drop(end(child)));
    fs::write(root.join("a"), "later").unwrap();
    let back = |meta: &str| {
        let shown = json_of(&env, &["rollback", "--meta", meta, "--json"]);
        let text = |name: &str| fs::read_to_string(root.join(name)).unwrap();
        assert_eq!((text("a"), text("b")), ("a".into(), "b".into()), "{meta}");
        told(&env, &["undo"]).ok();
        shown["commit"].clone()
    };
    assert_eq!(back("prompt-end=of-a"), back("prompt-end=of-b"));
    let log = json_of(&env, &["log", "--all", "--json"]);
    let mut commits = log["commits"].as_array().unwrap().iter();
    let joined = commits.find(|c| c["meta"]["prompt-end.2"].is_string());
    let meta = &joined.unwrap()["meta"];
    let of = |number: &str| {
        ["agent", "session", "prompt-end"].map(|key| meta[&format!("{key}{number}")].to_string())
    };
    let mut sessions = [of(""), of(".2")];
    sessions.sort();
    let text = |text: &str| format!("\"{text}\"");
    let wanted = |s: &str| [text("claude"), text(s), text(&format!("of-{s}"))];
    assert_eq!(sessions, ["a", "b"].map(wanted), "{meta}");
    assert_eq!(hooks_log(&env), "");
}

#[test]
fn a_hook_that_is_installed_twice_makes_one_commit_at_each_end_of_a_turn() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let twice = |turn: &str, event: &str| {
        let message = json!({
            "hook_event_name": event, "session_id": "s", "prompt_id": turn, "cwd": root,
            "last_assistant_message": turn,
        });
        let message = message.to_string();
        let both = [(); 2].map(|()| begin(&env, "claude", message.as_bytes()));
        both.into_iter().for_each(|child| drop(end(child)));
    };
    for turn in ["one", "two", "three"] {
        twice(turn, "UserPromptSubmit");
        if turn != "three" {
            fs::write(root.join("file"), turn).unwrap();
        }
        twice(turn, "Stop");
    }
    let log = json_of(&env, &["log", "--all", "--json"]);
    let count = |key: &str, turn: &str| {
        let commits = log["commits"].as_array().unwrap().iter();
        commits.filter(|c| c["meta"][key] == turn).count()
    };
    for (turn, ends) in [("one", 1), ("two", 1), ("three", 0)] {
        let found = (count("prompt", turn), count("prompt-end", turn));
        assert_eq!(found, (1, ends), "{turn}: {log}");
    }
    assert_eq!(hooks_log(&env), "");
}

#[test]
fn a_turn_that_is_asked_for_again_in_the_same_words_begins_anew() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let says = |event: &str| {
        let message = json!({
            "hook_event_name": event, "session_id": "s", "prompt": "go on", "cwd": root,
        });
        let message = message.to_string();
        assert_eq!(hook_with(&env, "gemini", message.as_bytes()), "");
    };
    for turn in ["one", "two"] {
        says("BeforeAgent");
        fs::write(root.join("file"), turn).unwrap();
        says("AfterAgent");
    }
    let log = json_of(&env, &["log", "--all", "--json"]);
    let commits = log["commits"].as_array().unwrap();
    let prompts = commits.iter().filter(|c| c["meta"]["prompt"].is_string());
    let prompts: Vec<&Value> = prompts.collect();
    assert_eq!(prompts.len(), 2, "{log}");
    let id = prompts[0]["meta"]["prompt"].as_str().unwrap();
    told(&env, &["rollback", "--meta", &format!("prompt={id}")]).ok();
    assert_eq!(fs::read_to_string(root.join("file")).unwrap(), "one");
}
