//! Policies on a real mount: what rules deny is not done, by whatever way, and is told; what was there before is kept.
#![allow(clippy::unwrap_used)]

use agentvfs_client::protocol::{EventLine, LOST};
use engine::{Engine, EngineConfig};
use objstore::{Commit, CommitId};
use rustix::fs::RenameFlags;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::io::{Error, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::Ordering::SeqCst;
use tests::env::{Env, Told};
use tests::sys::Mapping;
use tests::wait;

/// Rules under which nothing in `kept` changes.
const KEPT: &str = "[[rule]]\nname = \"kept\"\npath = [\"kept/**\", \"kept\"]\nverdict = \"deny\"\nerrno = \"EROFS\"\n";

/// Of a flood of events at least so many can be read afterwards.
const EVENTS_KEPT: usize = 60_000;

/// A workspace with kept/f, kept/d/g and other.
fn project() -> Option<Env> {
    filled(Env::new()?)
}

fn filled(env: Env) -> Option<Env> {
    fs::create_dir_all(env.project().join("kept/d")).unwrap();
    for name in ["kept/f", "kept/d/g", "other"] {
        fs::write(env.project().join(name), "of the base\n").unwrap();
    }
    env.start();
    env.imported();
    Some(env)
}

fn run(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

fn file(env: &Env, text: &str) -> PathBuf {
    let path = env.path("policy.toml");
    fs::write(&path, text).unwrap();
    path
}

/// Sets rules; gives what is printed.
fn set(env: &Env, text: &str) -> String {
    let path = file(env, text);
    run(
        env,
        &["policy", "set", "-w", "project", path.to_str().unwrap()],
    )
    .ok()
}

fn errno<T>(done: Result<T, Error>) -> Option<Errno> {
    Errno::from_io_error(&done.err()?)
}

type Attempt = (&'static str, fn(&Path) -> Result<(), Error>);

fn opened(path: PathBuf) -> Result<File, Error> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn by_rustix<T>(done: Result<T, Errno>) -> Result<(), Error> {
    done.map(drop).map_err(Error::from)
}

/// Ways to change something in `kept`, or to take it out of there.
const ATTEMPTS: [Attempt; 22] = [
    ("create", |at| File::create(at.join("kept/new")).map(drop)),
    ("mkdir", |at| fs::create_dir(at.join("kept/new"))),
    ("symlink", |at| symlink("x", at.join("kept/new"))),
    ("link into", |at| {
        fs::hard_link(at.join("other"), at.join("kept/new"))
    }),
    ("O_TRUNC", |at| File::create(at.join("kept/f")).map(drop)),
    ("write", |at| opened(at.join("kept/f"))?.write_all(b"x")),
    ("ftruncate", |at| opened(at.join("kept/f"))?.set_len(1)),
    ("fallocate", |at| {
        let file = opened(at.join("kept/f"))?;
        by_rustix(rustix::fs::fallocate(
            file,
            rustix::fs::FallocateFlags::empty(),
            0,
            99,
        ))
    }),
    ("copy_file_range", |at| {
        let (from, to) = (File::open(at.join("other"))?, opened(at.join("kept/f"))?);
        by_rustix(rustix::fs::copy_file_range(from, None, to, None, 5))
    }),
    ("setxattr", |at| {
        let flags = rustix::fs::XattrFlags::empty();
        by_rustix(rustix::fs::setxattr(
            at.join("kept/f"),
            "user.a",
            b"1",
            flags,
        ))
    }),
    ("chmod", |at| {
        fs::set_permissions(at.join("kept/f"), fs::Permissions::from_mode(0o600))
    }),
    ("unlink", |at| fs::remove_file(at.join("kept/f"))),
    ("rmdir", |at| fs::remove_dir(at.join("kept/empty"))),
    ("rename out", |at| {
        fs::rename(at.join("kept/f"), at.join("f"))
    }),
    ("rename in", |at| {
        fs::rename(at.join("other"), at.join("kept/new"))
    }),
    ("rename over", |at| {
        fs::rename(at.join("other"), at.join("kept/f"))
    }),
    ("exchange", |at| {
        let (a, b) = (at.join("other"), at.join("kept/f"));
        let cwd = rustix::fs::CWD;
        by_rustix(rustix::fs::renameat_with(
            cwd,
            a,
            cwd,
            b,
            RenameFlags::EXCHANGE,
        ))
    }),
    ("rename the directory", |at| {
        fs::rename(at.join("kept"), at.join("free"))
    }),
    ("rename a directory in it", |at| {
        fs::rename(at.join("kept/d"), at.join("free"))
    }),
    ("by ..", |at| fs::remove_file(at.join("side/../kept/f"))),
    ("by a symbolic link", |at| fs::remove_file(at.join("way/f"))),
    ("by a hard link", |at| {
        opened(at.join("side/name"))?.write_all(b"x")
    }),
];

/// Everything in the mount, with content and mode.
fn shown(at: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut dirs = vec![at.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with(".agentvfs") {
                continue;
            }
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                dirs.push(path.clone());
            }
            let content = fs::read(&path).unwrap_or_default();
            all.push(format!(
                "{} {:o} {:?}",
                path.display(),
                meta.permissions().mode(),
                content
            ));
        }
    }
    all.sort();
    all
}

#[test]
fn what_a_rule_denies_is_done_by_no_way_and_changes_nothing() {
    let Some(env) = project() else { return };
    let at = env.mountpoint();
    fs::create_dir(at.join("side")).unwrap();
    fs::create_dir(at.join("kept/empty")).unwrap();
    fs::hard_link(at.join("kept/f"), at.join("side/name")).unwrap();
    symlink("kept", at.join("way")).unwrap();
    assert_eq!(set(&env, KEPT), "name=project\nversion=1\nrules=1\n");
    let before = shown(&at);
    let checkpoint = || env.workspace(&["checkpoint", "project"]).id();
    let mut commits = vec![("before", checkpoint())];
    for (name, attempt) in ATTEMPTS {
        let journal = env.status()["journal_bytes"].clone();
        assert_eq!(errno(attempt(&at)), Some(Errno::ROFS), "{name}");
        assert_eq!(env.status()["journal_bytes"], journal, "{name}");
        assert_eq!(shown(&at), before, "{name}");
        commits.push((name, checkpoint()));
    }
    // The control protocol, and what is not in a rule's reach.
    run(&env, &["fs", "rm", "-w", "project", "kept/f"])
        .fails(1, "denied by rule kept of the policy");
    fs::write(at.join("other"), "changed").unwrap();
    fs::write(at.join("Kept"), "another name").unwrap();
    assert_eq!(env.status()["policy"], 1);
    set(&env, "");
    fs::remove_file(at.join("kept/f")).unwrap();
    env.workspace(&["stop", "project"]).ok();
    env.kill_daemon();
    let (root, author) = (env.home().to_owned(), "test".to_owned());
    let engine = Engine::open(EngineConfig { root, author }).unwrap();
    // The hash of all names, contents, attributes and times.
    let tree = |commit: &str| {
        let id: CommitId = commit.parse().unwrap();
        let found: Commit = engine.objects().get_object(&id).unwrap();
        (found.root, found.root_meta)
    };
    let first = tree(&commits[0].1);
    for (name, commit) in &commits {
        assert_eq!(tree(commit), first, "{name}");
    }
}

#[test]
fn pages_of_a_mapping_are_refused_when_they_come() {
    let Some(env) = project() else { return };
    let path = env.mountpoint().join("mapped");
    fs::write(&path, vec![0; 4096]).unwrap();
    let file = opened(path.clone()).unwrap();
    file.sync_all().unwrap();
    let mapping = Mapping::new(&file, 1).unwrap();
    set(&env, "[[rule]]\npath = \"mapped\"\nverdict = \"deny\"\n");
    mapping.word(0).store(7, SeqCst);
    assert_eq!(errno(file.sync_all()), Some(Errno::ACCESS));
    drop((mapping, file));
    set(&env, "");
    let read = run(&env, &["fs", "cat", "-w", "project", "mapped"]).ok();
    assert!(read.bytes().all(|byte| byte == 0), "it was not written");
}

fn events(env: &Env, args: &[&str]) -> Vec<EventLine> {
    let args = [&["watch", "--no-follow", "-w", "project"], args].concat();
    let text = run(env, &args).ok();
    let all = text.lines().map(|line| serde_json::from_str(line).unwrap());
    // With `--since 0` the first one tells that nobody followed before.
    all.filter(|event: &EventLine| event.op != LOST).collect()
}

#[test]
fn a_mass_deletion_is_stopped_told_and_can_be_taken_back() {
    let Some(env) = project() else { return };
    let at = env.mountpoint();
    // A machine that does other tests beside may take long for 200 deletions; alone it does not.
    let (count, rate) = match std::env::var("AGENTVFS_MASS_FILES") {
        Ok(count) => (count.parse().unwrap(), "200/10s"),
        Err(_) => (1_000, "200/10m"),
    };
    fs::create_dir(at.join("many")).unwrap();
    for n in 0..count {
        fs::write(at.join(format!("many/{n}")), n.to_string()).unwrap();
    }
    let rule = format!(
        "[[rule]]\nname = \"mass-delete\"\nop = [\"unlink\", \"rmdir\"]\nrate = \"{rate}\"\nverdict = \"deny\"\n"
    );
    set(&env, &rule);
    events(&env, &[]);
    let call = run(&env, &["tool", "start", "-w", "project", "Bash"]).ok();
    let removed = env.told({
        let mut command = env.program("rm");
        command.args(["-rf", "many"]).current_dir(&at);
        command
    });
    assert!(removed.status == 1 && removed.err.contains("Permission denied"));
    assert_eq!(fs::read_dir(at.join("many")).unwrap().count(), count - 200);
    let denied = events(&env, &["--since", "0", "--op", "verdict"]);
    let kept = EVENTS_KEPT.min(count - 200);
    assert!(denied.len() >= kept, "{}", denied.len());
    let first = &denied[0];
    assert_eq!(
        (&*first.verdict, first.policy_version, &*first.backend),
        ("deny", 1, "fuse")
    );
    assert_eq!(first.extra.detail, "rule=mass-delete op=unlink errno=13");
    assert_eq!((&*first.extra.comm, &*first.extra.result), ("rm", "denied"));
    assert!(
        first.pid > 0 && first.path.starts_with("many/"),
        "{first:?}"
    );
    assert_eq!(first.extra.call, call.trim());
    let rolled = [
        "rollback",
        "-w",
        "project",
        "--meta",
        "policy-rule=mass-delete",
    ];
    wait::until("the commit before the deletion", || {
        run(&env, &rolled).status == 0
    });
    set(&env, "");
    for n in 0..count {
        let content = fs::read_to_string(at.join(format!("many/{n}"))).unwrap();
        assert_eq!(content, n.to_string());
    }
}

#[test]
fn watched_changes_are_made_and_told() {
    let Some(env) = project() else { return };
    events(&env, &[]);
    set(
        &env,
        "[[rule]]\nop = \"create\"\nverdict = \"soft_watch\"\ncommand = \"touch\"\n",
    );
    let touched = env
        .program("touch")
        .arg(env.mountpoint().join("new"))
        .status();
    assert!(touched.unwrap().success());
    fs::write(env.mountpoint().join("by-another"), "x").unwrap();
    let told = events(&env, &["--since", "0", "--op", "verdict,create"]);
    let words: Vec<_> = told
        .iter()
        .map(|e| (&*e.op, &*e.verdict, &*e.path))
        .collect();
    assert_eq!(
        words,
        [
            ("verdict", "soft_watch", "new"),
            ("create", "soft_watch", "new"),
            ("create", "allow", "by-another"),
        ]
    );
}

#[test]
fn a_policy_survives_a_restart_and_a_successor_and_is_checked_first() {
    let Some(mut env) = Env::new() else { return };
    env.keep_mounts();
    let Some(env) = filled(env) else { return };
    let kept = env.mountpoint().join("kept/f");
    set(&env, KEPT);
    let bad = file(&env, "[[rule]]\nverdict = \"deny\"\npathh = \"a\"\n");
    let bad = bad.to_str().unwrap();
    let why = "line 3, column 1: \"pathh\" is no key in a rule; did you mean \"path\"?";
    run(&env, &["policy", "set", "-w", "project", bad]).fails(1, why);
    run(&env, &["policy", "check", bad]).fails(1, why);
    let is_denied = || errno(fs::write(&kept, "x")) == Some(Errno::ROFS);
    assert!(is_denied());
    run(&env, &["stop", "project"]).ok();
    run(&env, &["start", "project"]).ok();
    assert!(is_denied(), "after a restart");
    env.strike_daemon();
    wait::until("a successor", || fs::read(&kept).is_ok());
    assert!(is_denied(), "by a successor");
    assert_eq!(run(&env, &["policy", "show", "project"]).ok(), KEPT);
    assert_eq!(set(&env, KEPT), "name=project\nversion=2\nrules=1\n");
}

#[test]
fn recorded_events_are_judged_by_other_rules() {
    let Some(env) = project() else { return };
    events(&env, &[]);
    for n in 0..5 {
        fs::write(env.mountpoint().join(format!("f{n}")), "x").unwrap();
        fs::remove_file(env.mountpoint().join(format!("f{n}"))).unwrap();
    }
    let args = ["watch", "--no-follow", "-w", "project", "--since", "0"];
    let lines = run(&env, &args).ok();
    let rules = file(
        &env,
        "[[rule]]\nname = \"r\"\nop = \"unlink\"\nrate = \"3/1h\"\nverdict = \"deny\"\n",
    );
    let mut command = env.command(&env.path(""), &["policy", "test", rules.to_str().unwrap()]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let said = child.wait_with_output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let rows: Vec<Vec<&str>> = said
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    let paths: Vec<_> = rows
        .iter()
        .map(|row| (row[0], row[1], row[3], row[4]))
        .collect();
    assert_eq!(
        paths,
        [("deny", "r", "unlink", "f3"), ("deny", "r", "unlink", "f4")]
    );
}

const PUSH: &str = "[[rule]]\nname = \"no-push\"\ntool = [\"Bash\", \"*shell*\", \"terminal\"]\ninput = 'regex:git\\s+push'\n\
    verdict = \"deny\"\nreason = \"Pushing is for the user.\"\n[[rule]]\nname = \"look\"\ninput = \"deploy\"\nverdict = \"ask\"\n";

/// What an agent's hook answers before a call.
fn hook(env: &Env, agent: &str, message: &Value) -> Value {
    let mut command = env.command(&env.path(""), &["hook", agent]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(message.to_string().as_bytes())
        .unwrap();
    let told = child.wait_with_output().unwrap();
    assert!(told.status.success());
    serde_json::from_slice(&told.stdout).unwrap_or(Value::Null)
}

#[test]
fn agents_are_told_why_a_tool_call_is_denied() {
    let Some(env) = project() else { return };
    set(&env, PUSH);
    events(&env, &[]);
    let cwd = env.mountpoint();
    let said = |agent: &str, tool: &str, command: &str| {
        let name = match agent {
            "gemini" => "BeforeTool",
            "cursor" => "preToolUse",
            _ => "PreToolUse",
        };
        hook(
            &env,
            agent,
            &json!({
                "hook_event_name": name, "session_id": "s", "conversation_id": "s", "cwd": cwd.to_str().unwrap(),
                "workspace_roots": [cwd.to_str().unwrap()], "tool_name": tool, "tool_use_id": format!("{agent}-{command}"),
                "tool_input": {"command": command},
            }),
        )
    };
    let why = "agentvfs rule no-push: Pushing is for the user.";
    for agent in ["claude", "codex", "openhands"] {
        let said = said(agent, "Bash", "git push origin main");
        let told = &said["hookSpecificOutput"];
        assert_eq!(
            (
                &told["permissionDecision"],
                &told["permissionDecisionReason"]
            ),
            (&json!("deny"), &json!(why)),
            "{agent}"
        );
    }
    let gemini = said("gemini", "run_shell_command", "git push");
    assert_eq!(gemini, json!({"decision": "deny", "reason": why}));
    assert_eq!(said("cursor", "Shell", "deploy")["permission"], "ask");
    assert_eq!(said("claude", "Bash", "git pull"), Value::Null);
    let told = events(&env, &["--since", "0", "--op", "verdict,tool"]);
    let verdicts: Vec<&str> = told.iter().map(|e| &*e.verdict).collect();
    // The call that is asked about, and the one that is allowed, begin.
    assert_eq!(
        verdicts,
        ["deny", "deny", "deny", "deny", "ask", "allow", "allow"]
    );
    assert_eq!(told[0].extra.detail, "rule=no-push op=tool name=Bash");
    let rules = env.path("policy.toml");
    let tested = [
        "policy",
        "test",
        rules.to_str().unwrap(),
        "--tool",
        "Bash",
        "--input",
        "git push",
    ];
    assert_eq!(
        run(&env, &tested).ok(),
        "verdict=deny\nrule=no-push\nreason=Pushing is for the user.\n"
    );
}
