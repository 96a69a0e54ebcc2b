//! Rules about opens: fanotify asks before a file is opened, also one whose pages are cached, and `--audit opens` has the mount
//! asked.
#![allow(clippy::unwrap_used)]

use agentvfs_client::protocol::EventLine;
use rustix::io::Errno;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tests::env::{Env, Told};
use tests::wait;

/// Nobody opens what is in `secret`, and what is in `watched` is told of.
const RULES: &str = "[[rule]]\nname = \"hidden\"\nop = \"open\"\npath = \"secret/**\"\nverdict = \"deny\"\n\
                     [[rule]]\nname = \"seen\"\nop = \"open\"\npath = \"watched/**\"\nverdict = \"soft_watch\"\n";
/// Rules that say nothing of opens.
const OTHERS: &str = "[[rule]]\nop = \"write\"\npath = \"secret/**\"\nverdict = \"deny\"\n";
/// `FAN_OPEN_PERM` (linux/fanotify.h), as fdinfo shows it.
const OPEN_PERM: &str = "mask:10000 ";
/// How often the daemon is killed while programs open files.
const KILLS: usize = 4;
/// Longest that an open may take where nothing goes wrong: the machine may be busy, an unanswered open takes for ever.
const OPEN_MAX: Duration = Duration::from_secs(10);

fn filled(env: Env) -> (Env, PathBuf) {
    for dir in ["secret", "watched", "open"] {
        fs::create_dir(env.project().join(dir)).unwrap();
        fs::write(env.project().join(dir).join("f"), "of the base\n").unwrap();
    }
    let file = env.path("audit.ndjson");
    (env, file)
}

fn start(env: &Env, more: &[&str]) {
    let project = env.project();
    let args = ["start", "--from", project.to_str().unwrap()];
    env.workspace(&[&args[..], more].concat()).ok();
    env.imported();
}

fn set(env: &Env, rules: &str) -> Told {
    let path = env.path("policy.toml");
    fs::write(&path, rules).unwrap();
    let args = ["policy", "set", "-w", "project", path.to_str().unwrap()];
    env.told(env.command(&env.path(""), &args))
}

fn read(env: &Env, name: &str) -> Result<String, Option<Errno>> {
    let read = fs::read_to_string(env.mountpoint().join(name));
    read.map_err(|error| Errno::from_io_error(&error))
}

/// Verdicts that the file has: sentence, path and detail.
fn verdicts(file: &Path) -> Vec<(String, String, String)> {
    let text = fs::read_to_string(file).unwrap();
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let all = whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    all.filter(|event: &EventLine| event.op == "verdict")
        .map(|event| (event.verdict, event.path, event.extra.detail))
        .collect()
}

/// Whether the daemon is asked before files are opened: its threads have tables of files of their own.
fn is_asked(env: &Env) -> bool {
    let daemon = env.status()["pid"].as_u64().unwrap();
    let tasks = fs::read_dir(format!("/proc/{daemon}/task")).unwrap();
    let files = |task: fs::DirEntry| {
        fs::read_dir(task.path().join("fdinfo"))
            .into_iter()
            .flatten()
    };
    let texts = tasks.flatten().flat_map(files).flatten();
    let mut texts = texts.filter_map(|file| fs::read_to_string(file.path()).ok());
    texts.any(|text| text.contains(OPEN_PERM))
}

#[test]
fn an_open_that_a_rule_denies_fails_with_eperm_though_the_pages_are_cached() {
    let Some(env) = Env::as_root() else { return };
    let (env, file) = filled(env);
    start(
        &env,
        &["--audit", file.to_str().unwrap(), "--telemetry", "fanotify"],
    );
    let all = ["secret/f", "watched/f", "open/f"];
    all.iter().for_each(|name| drop(read(&env, name).unwrap()));
    set(&env, OTHERS).ok();
    assert!(!is_asked(&env), "no rule is about opens");
    set(&env, RULES).ok();
    assert!(is_asked(&env));
    assert_eq!(read(&env, "secret/f"), Err(Some(Errno::PERM)));
    let cat = Command::new("cat")
        .arg(env.mountpoint().join("secret/f"))
        .output()
        .unwrap();
    assert!(!cat.status.success() && cat.stdout.is_empty());
    for name in ["watched/f", "open/f"] {
        assert_eq!(read(&env, name).unwrap(), "of the base\n");
    }
    // A further name does not get round the rule, and what moves away does.
    let at = |name: &str| env.mountpoint().join(name);
    fs::hard_link(at("secret/f"), at("open/g")).unwrap();
    assert_eq!(read(&env, "open/g"), Err(Some(Errno::PERM)));
    // Snapshots and directories are not asked about.
    fs::read_dir(at("secret")).unwrap();
    let told = |verdict: &str, path: &str, detail: &str| {
        let one = (verdict.to_owned(), path.to_owned(), detail.to_owned());
        let all = verdicts(&file).into_iter();
        all.filter(|told| *told == one).count()
    };
    let denied = || told("deny", "secret/f", "rule=hidden op=open errno=1");
    wait::until("all are told of", || denied() >= 3);
    assert_eq!(denied(), 3, "once for each open: {:?}", verdicts(&file));
    assert_eq!(told("soft_watch", "watched/f", "rule=seen op=open"), 1);
    // So does a command in a sandbox hear of it.
    let args = ["run", "--quiet", "--session", "s", "--", "cat", "secret/f"];
    let run = env.told(env.command(&env.project(), &args));
    assert!(
        run.status == 1 && run.err.contains("Operation not permitted"),
        "{run:?}"
    );
    set(&env, OTHERS).ok();
    assert!(!is_asked(&env));
    assert_eq!(read(&env, "secret/f").unwrap(), "of the base\n");
    set(&env, RULES).ok();
    env.workspace(&["stop", "project"]).ok();
    start(&env, &["--telemetry", "fanotify"]);
    assert_eq!(
        read(&env, "secret/f"),
        Err(Some(Errno::PERM)),
        "from the beginning"
    );
    env.workspace(&["stop", "project"]).ok();
}

#[test]
fn rules_about_opens_need_somebody_who_is_asked() {
    let Some(env) = Env::new() else { return };
    let (env, file) = filled(env);
    start(&env, &["--audit", file.to_str().unwrap()]);
    set(&env, RULES).ok();
    assert_eq!(read(&env, "secret/f").unwrap(), "of the base\n");
    let troubles = env.status()["troubles"].to_string();
    assert!(
        troubles.contains("rules about opens are not in force"),
        "{troubles}"
    );
    env.workspace(&["stop", "project"]).ok();
    // The mount itself is asked: without privileges, and with the rule's error.
    start(&env, &["--audit", "opens"]);
    assert_eq!(read(&env, "secret/f"), Err(Some(Errno::ACCESS)));
    assert_eq!(read(&env, "open/f").unwrap(), "of the base\n");
    assert_eq!(env.status()["troubles"].to_string(), "[]");
    env.workspace(&["stop", "project"]).ok();
}

#[test]
fn rules_that_count_or_ask_a_program_are_not_about_opens() {
    let Some(env) = Env::new() else { return };
    env.start();
    let rated = "[[rule]]\nop = [\"open\", \"write\"]\nrate = \"1/1s\"\nverdict = \"deny\"\n";
    set(&env, rated).fails(1, "`rate` is for changes, and `open` is none");
    env.workspace(&["stop", "project"]).ok();
}

/// Opens a file that it may and one that it may not, until the end; gives how often, and the longest that one took. While no daemon
/// says no, both can be opened.
fn open_both(mount: &Path, end: &AtomicBool) -> (usize, Duration) {
    let (mut rounds, mut longest) = (0, Duration::ZERO);
    while !end.load(Relaxed) {
        for name in ["open/f", "secret/f"] {
            let begun = Instant::now();
            let opened = fs::File::open(mount.join(name));
            longest = longest.max(begun.elapsed());
            assert!(opened.is_ok() || name == "secret/f", "{opened:?}");
        }
        rounds += 1;
    }
    (rounds, longest)
}

struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a_daemon_that_is_killed_while_it_is_asked_leaves_nobody_waiting() {
    let Some(mut env) = Env::as_root() else {
        return;
    };
    env.keep_mounts();
    let (env, file) = filled(env);
    start(
        &env,
        &["--audit", file.to_str().unwrap(), "--telemetry", "fanotify"],
    );
    set(&env, RULES).ok();
    let end = AtomicBool::new(false);
    let mount = env.mountpoint();
    let rounds: [(usize, Duration); 3] = std::thread::scope(|scope| {
        let (mount, end) = (&mount, &end);
        let users = [0; 3].map(|_| scope.spawn(move || open_both(mount, end)));
        let ended = EndOnDrop(end);
        for _ in 0..KILLS {
            let told = verdicts(&file).len();
            wait::until("more is denied", || verdicts(&file).len() > told);
            env.kill_daemon();
            wait::until("a successor is asked", || is_asked(&env));
        }
        drop(ended);
        users.map(|user| user.join().unwrap())
    });
    let is_well = |(rounds, longest): &(usize, Duration)| *rounds > 0 && *longest < OPEN_MAX;
    assert!(rounds.iter().all(is_well), "{rounds:?}");
    assert_eq!(read(&env, "secret/f"), Err(Some(Errno::PERM)));
    env.workspace(&["stop", "project"]).ok();
}

#[test]
fn switches_and_other_work_of_the_daemon_go_on_while_it_is_asked() {
    let Some(env) = Env::as_root() else { return };
    let (env, _) = filled(env);
    start(&env, &["--telemetry", "fanotify"]);
    set(&env, RULES).ok();
    let end = AtomicBool::new(false);
    let mount = env.mountpoint();
    std::thread::scope(|scope| {
        let (mount, end) = (&mount, &end);
        let user = scope.spawn(move || open_both(mount, end));
        let ended = EndOnDrop(end);
        for round in 0..10 {
            fs::write(mount.join("open/f"), format!("round {round}")).unwrap();
            env.workspace(&["checkpoint", "project", &format!("c{round}")])
                .ok();
            fs::write(mount.join("open/f"), "again").unwrap();
            env.workspace(&["rollback", "project", &format!("c{round}")])
                .ok();
        }
        drop(ended);
        assert!(user.join().unwrap().1 < OPEN_MAX);
    });
    env.workspace(&["stop", "project", "--force"]).ok();
}
