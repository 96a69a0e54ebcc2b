//! A workspace in which nothing happens costs nothing: its threads sleep until something changes.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tests::env::Env;
use tests::wait;

/// The background threads of a workspace.
const THREADS: [&str; 2] = ["storing", "sync-timer"];
/// How long they must sleep to be taken for resting: several times what they sleep while something may become due.
const LOOK: Duration = Duration::from_secs(2);

/// How often each of the background threads of a process has gone to sleep so far.
fn sleeps(process: &Path) -> Vec<(String, String)> {
    let threads = fs::read_dir(process.join("task")).unwrap();
    let mut all: Vec<(String, String)> = threads
        .filter_map(|thread| {
            let thread = thread.unwrap().path();
            // A thread may end meanwhile.
            let name = fs::read_to_string(thread.join("comm")).ok()?;
            let status = fs::read_to_string(thread.join("status")).ok()?;
            let switches = status.lines().find(|l| l.starts_with("voluntary"))?;
            let ours = THREADS.contains(&name.trim_end());
            ours.then(|| (thread.display().to_string(), switches.to_owned()))
        })
        .collect();
    all.sort();
    all
}

fn wait_for_rest(process: &Path) {
    let since = Instant::now();
    let mut before = sleeps(process);
    assert_eq!(before.len(), THREADS.len(), "{before:?}");
    loop {
        wait::let_run(LOOK);
        let now = sleeps(process);
        if now == before {
            return;
        }
        assert!(since.elapsed() < wait::DEADLINE, "they wake: {now:?}");
        before = now;
    }
}

/// How many commits there are, automatic ones too.
fn commits(env: &Env) -> usize {
    env.workspace(&["log", "--all"]).ok().lines().count()
}

#[test]
fn threads_rest_until_something_changes() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let set = ["config", "auto-idle=300ms"];
    env.told(env.command(&env.path(""), &set)).ok();
    fs::write(root.join("file"), "before").unwrap();
    let process = env.daemons().remove(0);
    wait_for_rest(Path::new(&format!("/proc/{}", process.as_raw_nonzero())));
    let before = commits(&env);
    fs::write(root.join("file"), "after").unwrap();
    wait::until("an automatic commit", || commits(&env) > before);
}
