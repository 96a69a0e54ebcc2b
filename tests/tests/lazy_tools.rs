//! What people run in a project works on a lazy clone, and then on what it has read without the remote.
//!
//! `AGENTVFS_LAZY_FILES` sets the number of files (2,000). The time of each step is printed, and how many objects came.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tests::env::Env;
use tests::{mount, tree};

/// Requests after which a clone must be mounted.
const REQUESTS_MAX: u64 = 20;

/// Files of a directory.
const PER_DIR: usize = 100;

const MAKEFILE: &str = "\
objects := $(patsubst %.c,%.o,$(sort $(wildcard build/*.c)))
program: $(objects)
\tcc -o $@ $^
";

/// Other commands than `agentvfs`, as who works in a project types them.
fn sh(env: &Env, dir: &Path, script: &str) -> String {
    let mut command = env.program("sh");
    command.current_dir(dir).args(["-euc", script]);
    let identity = [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_AUTHOR_NAME", "a"),
        ("GIT_AUTHOR_EMAIL", "a@example.org"),
        ("GIT_COMMITTER_NAME", "a"),
        ("GIT_COMMITTER_EMAIL", "a@example.org"),
    ];
    command.envs(identity);
    ended(command)
}

/// Standard output of a command that succeeds; with many files it may take longer than tests wait elsewhere.
fn ended(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn run(env: &Env, args: &[&str]) -> String {
    ended(env.command(&env.path(""), args))
}

/// A git repository with `count` text files, and a program in C of ten more.
fn make_project(env: &Env, count: usize) {
    let project = env.project();
    for dir in 0..count.div_ceil(PER_DIR) {
        let at = project.join(format!("text/{:02}/{dir:05}", dir % 100));
        fs::create_dir_all(&at).unwrap();
        for file in dir * PER_DIR..count.min((dir + 1) * PER_DIR) {
            let word = if file % 1000 == 7 { "needle" } else { "hay" };
            let text = format!("file {file} in {dir}\n{word} of {file}\n").repeat(3);
            fs::write(at.join(format!("f{file}.txt")), text).unwrap();
        }
    }
    fs::create_dir(project.join("build")).unwrap();
    let part = |at: usize| format!("int part{at}(void) {{ return {at}; }}\n");
    for at in 0..9 {
        fs::write(project.join(format!("build/part{at}.c")), part(at)).unwrap();
    }
    let sum = "int part3(void), part8(void);\nint main(void) { return part3() + part8() == 11 ? 0 : 1; }\n";
    fs::write(project.join("build/main.c"), sum).unwrap();
    fs::write(project.join("Makefile"), MAKEFILE).unwrap();
    fs::write(project.join(".gitignore"), "*.o\nprogram\n").unwrap();
    sh(
        env,
        &project,
        "git init -q && git add . && git commit -qm all",
    );
}

/// What tools say of a project: what git finds changed, where a word is, what a build makes.
fn said(env: &Env, what: &str) -> Vec<String> {
    let scripts = [
        "git status --porcelain",
        "grep -rlw needle --include='*.txt' . | LC_ALL=C sort",
        "make -s program && ./program && echo built",
        "git log --format=%s && git fsck --no-progress",
    ];
    let dir = env.mountpoint();
    let told = scripts.map(|script| {
        let (since, before) = (Instant::now(), brought(env));
        let told = sh(env, &dir, script);
        let objects = brought(env) - before;
        println!(
            "{what}: {script}: {:.1} s, {objects} objects",
            since.elapsed().as_secs_f64()
        );
        told
    });
    told.into()
}

/// Objects that came from the remote.
fn brought(env: &Env) -> u64 {
    env.status()["lazy"]["objects"].as_u64().unwrap_or(0)
}

#[test]
fn git_grep_and_make_work_on_a_clone_and_again_without_its_remote() {
    let (Some(a), Some(b)) = (Env::new(), Env::new()) else {
        return;
    };
    if !mount::found_git_and_make() {
        return;
    }
    let count = std::env::var("AGENTVFS_LAZY_FILES").map_or(2000, |text| text.parse().unwrap());
    make_project(&a, count);
    run(&a, &["start", "--from", a.project().to_str().unwrap()]);
    while a.status()["import"]["state"] != "done" {
        std::thread::sleep(Duration::from_millis(200));
    }
    let remote = a.path("remote");
    run(&a, &["remote", "add", "origin", remote.to_str().unwrap()]);
    run(&a, &["push"]);

    let since = Instant::now();
    let made = run(
        &b,
        &["clone", remote.to_str().unwrap(), "project", "--json"],
    );
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let asked = made["requests"].as_u64().unwrap();
    println!(
        "clone: {:.1} s, {asked} requests",
        since.elapsed().as_secs_f64()
    );
    assert!((1..=REQUESTS_MAX).contains(&asked), "{asked} requests");

    let wanted = said(&a, "whole");
    assert_eq!(wanted[0], "");
    assert_eq!(wanted[1].lines().count(), count.div_ceil(1000));
    assert_eq!(said(&b, "clone"), wanted);
    let away = remote.with_extension("away");
    fs::rename(&remote, &away).unwrap();
    assert_eq!(said(&b, "without the remote"), wanted);
    sh(
        &b,
        &b.mountpoint(),
        "touch build/part3.c && make -s program && ./program",
    );
    run(&b, &["checkpoint", "offline"]);
    fs::rename(&away, &remote).unwrap();

    run(&b, &["push"]);
    run(&a, &["checkpoint"]);
    run(&a, &["fetch"]);
    run(&b, &["timeline", "--verify"]);
    if count <= 10_000 {
        let [of_a, of_b] = [&a, &b].map(|env| tree::of(&env.mountpoint().join("text")));
        tree::same("the clone", &of_a, &of_b);
    }
}
