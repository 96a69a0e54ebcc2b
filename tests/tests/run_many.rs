//! `agentvfs run`: many runs at once, in one session and each in its own.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::{Child, Stdio};
use tests::env::Env;
use tests::sandbox::{self, command, shell};
use tests::wait;

/// How many.
const MANY: usize = 32;

/// Runs begun at the same time, each of a shell that knows its number `n`.
fn many(env: &Env, session: &dyn Fn(usize) -> String, script: &str) -> Vec<Child> {
    let begin = |n: usize| {
        let script = format!("n={n}; {script}");
        let session = session(n);
        let mut command = command(env, &["--session", &session, "--", "sh", "-c", &script]);
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        piped.spawn().unwrap()
    };
    (0..MANY).map(begin).collect()
}

fn branches(env: &Env) -> usize {
    let list = env.command(&env.project(), &["branch", "list"]);
    env.told(list).ok().lines().count()
}

#[test]
fn eight_runs_share_a_session() {
    let Some(env) = sandbox::env(&[]) else { return };
    let all: Vec<_> = (0..8)
        .map(|n| {
            let script = format!("for i in $(seq 50); do echo {n} >> all; done; echo {n} > own-{n}; echo {n} > /tmp/own-{n}; cat /tmp/own-{n}");
            let mut command = command(&env, &["--session", "s", "sh", "-c", &script]);
            let piped = Stdio::piped;
            command.stdout(piped()).stderr(piped()).spawn().unwrap()
        })
        .collect();
    for (n, child) in all.into_iter().enumerate() {
        assert_eq!(env.finish(child, "a run").ok(), format!("{n}\n"));
    }
    let view = |name: &str| env.mountpoint().join(".agentvfs/branches/s").join(name);
    let text = fs::read_to_string(view("all")).unwrap();
    for n in 0..8 {
        let lines = text.lines().filter(|line| *line == n.to_string());
        assert_eq!(lines.count(), 50, "{n}");
        assert_eq!(
            fs::read_to_string(view(&format!("own-{n}"))).unwrap(),
            format!("{n}\n")
        );
    }
}

#[test]
fn many_runs_share_a_session() {
    let Some(env) = sandbox::env(&[]) else { return };
    let wait = format!("until [ $(ls up | wc -l) = {MANY} ]; do sleep 0.1; done");
    let script = format!("mkdir -p up; echo $n > up/$n; {wait}; echo $n > out-$n");
    for child in many(&env, &|_| "s".to_owned(), &script) {
        env.finish(child, "one of many").ok();
    }
    let files = shell(&env, "cat out-* | sort -n");
    let wanted: Vec<String> = (0..MANY).map(|n| n.to_string()).collect();
    assert_eq!(files.split_whitespace().collect::<Vec<_>>(), wanted);
    assert_eq!(branches(&env), 2);
}

#[test]
fn many_runs_have_sessions_of_their_own() {
    let Some(env) = sandbox::env(&[]) else { return };
    let script = "echo $n > mine; until [ -e go ]; do sleep 0.1; done; cat mine";
    let children = many(&env, &|n| format!("s{n}"), script);
    let view = |n: usize| env.mountpoint().join(format!(".agentvfs/branches/s{n}"));
    wait::until("all run", || {
        let is_up =
            |n| fs::read_to_string(view(n).join("mine")).is_ok_and(|t| t == format!("{n}\n"));
        (0..MANY).all(is_up)
    });
    (0..MANY).for_each(|n| fs::write(view(n).join("go"), "").unwrap());
    for (n, child) in children.into_iter().enumerate() {
        assert_eq!(env.finish(child, "one of many").ok(), format!("{n}\n"));
    }
    assert_eq!(branches(&env), MANY + 1);
    assert!(!env.mountpoint().join("mine").exists());
}
