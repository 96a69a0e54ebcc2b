//! The transcripts of README.md and docs/guide.md are what the program says.
//!
//! A transcript with a name in a comment before it is run in a shell, with the directory of a new user as `/home/me`.
//! Ids, times and durations may differ, but what is the same in one place must be the same in another.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tests::env::Env;

/// The user's home as documents name it.
const HOME: &str = "/home/me";
/// What is printed before the output of each command.
const MARK: &str = "\u{1e}";

/// A command, and what it prints.
type Step = (String, String);

/// The transcript of a name in a document.
fn transcript(doc: &str, name: &str) -> Vec<Step> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(doc);
    let text = fs::read_to_string(path).unwrap();
    let begin = format!("<!-- transcript: {name} -->\n```console\n");
    let block = text.split(&begin).nth(1).unwrap();
    let block = block.split("\n```\n").next().unwrap();
    let mut steps: Vec<Step> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push((command.to_owned(), String::new())),
            (None, Some((_, output))) => writeln!(output, "{line}").unwrap(),
            (None, None) => panic!("{name} begins with output"),
        }
    }
    steps
}

/// A user whose home is the environment's directory, with the project `project`.
fn user() -> Option<(Env, PathBuf)> {
    user_of(Env::new()?)
}

fn user_of(mut env: Env) -> Option<(Env, PathBuf)> {
    let home = env.path("");
    env.set_home(home.join(".local/share/agentvfs"));
    fs::create_dir(home.join("bin")).unwrap();
    symlink(tests::binary::agentvfs(), home.join("bin/agentvfs")).unwrap();
    Some((env, home))
}

/// Runs the commands of a transcript one after the other in one shell, in a directory; gives what each prints.
fn outputs(env: &Env, directory: &Path, steps: &[Step]) -> Vec<String> {
    let home = env.path("").display().to_string();
    let home = home.trim_end_matches('/').to_owned();
    let mut script = String::new();
    for (command, _) in steps {
        let command = command.replace(HOME, &home);
        writeln!(script, "printf '{MARK}'\n{command}").unwrap();
    }
    let path = std::env::var("PATH").unwrap();
    let mut shell = env.program("bash");
    shell
        .args(["-c", &format!("exec 2>&1\n{script}")])
        .env("PATH", format!("{home}/bin:{path}"))
        .env("HOME", &home)
        .env_remove("AGENTVFS_HOME")
        .env("LC_ALL", "C.UTF-8")
        .current_dir(directory);
    let told = env.told(shell);
    assert_eq!(told.err, "");
    let out = told.out.replace(&home, HOME);
    out.split(MARK).skip(1).map(str::to_owned).collect()
}

/// A text without what differs from run to run; ids get names in the order in which they come.
struct Plain(BTreeMap<String, usize>);

impl Plain {
    fn text(&mut self, text: &str) -> String {
        let mut out = String::new();
        for line in text.lines() {
            let words =
                line.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && !"-:.".contains(c));
            let words: Vec<String> = words.map(|word| self.word(word)).collect();
            // Columns are as wide as what differs.
            let words = words.concat();
            let words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
            writeln!(out, "{}", words.join(" ")).unwrap();
        }
        out
    }

    fn word(&mut self, word: &str) -> String {
        let end = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let rest = &word[end.len()..];
        // It may have digits alone, as a time.
        let is_run = |text: &str| {
            let (is_digit, bytes) = (u8::is_ascii_digit, text.as_bytes());
            bytes.len() == 16
                && bytes[4] == b'-'
                && bytes[9] == b'-'
                && bytes[..4].iter().chain(&bytes[5..9]).all(is_digit)
        };
        let is_hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
        let of_digits = |text: &str, marks: &str| {
            text.chars()
                .all(|c| c.is_ascii_digit() || marks.contains(c))
        };
        let plain = if end.len() == 64 && is_hex(end) {
            let next = self.0.len();
            format!("ID{}", self.0.entry(end.to_owned()).or_insert(next))
        } else if is_run(end) {
            "RUN".to_owned()
        } else if end.len() >= 8 && of_digits(end, "-:.TZ") && end.contains(['-', ':']) {
            "TIME".to_owned()
        } else if end
            .strip_suffix("ms")
            .is_some_and(|n| !n.is_empty() && of_digits(n, ""))
            || end
                .strip_suffix('s')
                .is_some_and(|n| n.contains('.') && of_digits(n, "."))
        {
            "DURATION".to_owned()
        } else {
            end.to_owned()
        };
        plain + rest
    }
}

/// Compares what the commands of a transcript print in `directory` with what the document says.
#[track_caller]
fn check(doc: &str, name: &str, env: &Env, directory: &Path) {
    let steps = transcript(doc, name);
    let found = outputs(env, directory, &steps);
    assert_eq!(found.len(), steps.len(), "{found:?}");
    let (mut theirs, mut ours) = (Plain(BTreeMap::new()), Plain(BTreeMap::new()));
    for ((command, wanted), found) in steps.iter().zip(&found) {
        assert_eq!(
            ours.text(found),
            theirs.text(wanted),
            "{doc}, {name}: $ {command}\n{found}"
        );
    }
}

/// A project with a program that says hello.
fn hello(home: &Path) -> PathBuf {
    let project = home.join("project");
    fs::create_dir(project.join("src")).unwrap();
    fs::write(project.join("README.md"), "hello\n").unwrap();
    let text = "fn main() {\n    println!(\"hello\");\n}\n";
    fs::write(project.join("src/main.rs"), text).unwrap();
    project
}

/// Starts the workspace `project` and waits for its import.
fn started(env: &Env) -> PathBuf {
    let root = env.start();
    env.imported();
    env.told(env.command(&root, &["config", "auto-idle=off", "auto-busy=off"]))
        .ok();
    root
}

#[test]
fn the_first_minute_of_the_readme_is_as_it_says() {
    let Some((env, home)) = user() else { return };
    hello(&home);
    check("README.md", "first", &env, &home);
}

#[test]
fn calls_of_the_readme_are_as_it_says() {
    let Some((env, home)) = user() else { return };
    hello(&home);
    let root = started(&env);
    check("README.md", "calls", &env, &root);
}

/// What stands for Claude Code: it calls its hooks as that does, around what its tools do. The real one is in
/// `tests/agents/turns.py`.
const CLAUDE: &str = r#"#!/bin/sh
say() {
    printf '{"hook_event_name": "%s", "session_id": "s", "prompt_id": "1", "tool_use_id": "%s", "tool_name": "%s", "tool_input": {}}' \
        "$@" | agentvfs hook claude
}
tool() {
    say PreToolUse "$1" "$2"
    sh -c "$3"
    say PostToolUse "$1" "$2"
}
say UserPromptSubmit 0 -
tool a Bash 'echo hello > hello.txt'
tool b Edit 'sed -i "s/hello/hello, world/" src/main.rs'
tool c Bash 'rm README.md'
say Stop 0 -
echo "All done."
"#;

#[test]
fn the_agent_of_the_readme_is_as_it_says() {
    let Some((env, home)) = user() else { return };
    hello(&home);
    let claude = home.join("bin/claude");
    fs::write(home.join("draft"), CLAUDE).unwrap();
    fs::set_permissions(home.join("draft"), fs::Permissions::from_mode(0o755)).unwrap();
    tests::binary::copy(&home.join("draft"), &claude);
    check("README.md", "agent", &env, &home);
}

#[test]
fn branches_of_the_readme_are_as_it_says() {
    let Some((env, home)) = user() else { return };
    fs::create_dir(home.join("project/src")).unwrap();
    fs::write(home.join("project/README"), "readme\n").unwrap();
    let lines = "line1\nline2\nline3\nline4\nline5\n";
    fs::write(home.join("project/src/a.txt"), lines).unwrap();
    let root = started(&env);
    check("README.md", "branches", &env, &root);
    let merged = fs::read_to_string(home.join("project/src/a.txt")).unwrap();
    assert_eq!(merged, "line1\nline two\nline3\nline4\nline five\n");
}

#[test]
fn the_other_machine_of_the_readme_is_as_it_says() {
    let Some((env, home)) = user() else { return };
    hello(&home);
    let root = started(&env);
    check("README.md", "remote", &env, &root);
}

#[test]
fn runs_of_the_readme_are_as_it_says() {
    let Some(env) = tests::sandbox::stopped() else {
        return;
    };
    let Some((env, home)) = user_of(env) else {
        return;
    };
    let project = hello(&home);
    started(&env);
    check("README.md", "run", &env, &project);
}

#[test]
fn calls_of_the_guide_are_as_it_says() {
    let Some((env, home)) = user() else { return };
    hello(&home);
    let root = started(&env);
    check("docs/guide.md", "author", &env, &root);
}

#[test]
fn names_of_what_differs_tell_the_same_from_others() {
    let (a, b) = ("a".repeat(64), "b".repeat(64));
    let mut plain = Plain(BTreeMap::new());
    let text = format!(
        "commit={a}\n{b}\n{a} 2026-11-21T19:33:53.6Z  16ms x 3 of 1123-0115-cx40pq 1123-0115-123456\n"
    );
    assert_eq!(
        plain.text(&text),
        "commit=ID0\nID1\nID0 TIME DURATION x 3 of RUN RUN\n"
    );
    assert_eq!(
        plain.text("10-12 a  b 3.5 src/a.txt"),
        "10-12 a b 3.5 src/a.txt\n"
    );
}
