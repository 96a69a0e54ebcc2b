//! What scripts read stays as it is: the standard output of each command in a pipe, as lines and with `--json`, and its
//! exit status, against `tests/fixtures/lines.txt`.
//!
//! In that file `$` begins a command that is run, `%` one of a shell that prepares it, `|` a line of what is printed, `[N]`
//! is an exit status that is not 0, and NUL is shown as `␀`. Ids have names by the order in which they come, so the same id
//! is the same everywhere; times, sizes and what else differs from run to run is left out. `AGENTVFS_BLESS=1` writes the file
//! anew: a change of it is a change for scripts and belongs into the changelog.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tests::env::Env;

/// Commands whose lines another test has, or that print none.
const ELSEWHERE: [(&str, &str); 17] = [
    ("run", "run_report.rs, run_list.rs"),
    ("session register", "cli_sessions.rs"),
    ("session list", "cli_sessions.rs"),
    ("session unregister", "cli_sessions.rs"),
    ("serve mcp", "cli_mcp.rs"),
    ("watch", "events.rs, against its schema"),
    ("policy test", "policy.rs"),
    ("agent list", "agent_setup.rs"),
    ("agent install", "agent_setup.rs"),
    ("agent status", "agent_setup.rs"),
    ("agent remove", "agent_setup.rs"),
    ("agent run", "agent_quickstart.rs"),
    ("quickstart", "agent_quickstart.rs"),
    ("hook", "agent_hooks.rs"),
    ("skill", "agent_skill.rs"),
    ("doctor", "cli_doctor.rs"),
    ("man install", "install.rs"),
];

/// Numbers that differ from run to run or between users, by the last word of their key.
const NUMBERS: [&str; 16] = [
    "pid",
    "uid",
    "gid",
    "inode",
    "duration_ms",
    "started_at",
    "completed_at",
    "packs",
    "objects",
    "records",
    "commits",
    "automatic_commits",
    "compression_ratio",
    "dedup_ratio",
    "kept",
    "condemned",
];
/// Sizes that do not.
const BYTES_SAME: [&str; 3] = ["import_bytes", "bytes_changed", "value_bytes"];
/// Objects of figures, of which only the name is kept.
const FIGURES: [&str; 1] = ["requests"];
/// What undo, redo and rollback go to may still be being stored: an id, or that it is not known yet.
const MAY_BE_PENDING: [&str; 4] = ["undo", "redo", "rollback", "tool undo"];

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/lines.txt")
}

/// A line of the file that is no output, with the output after it.
struct Step {
    line: String,
    wanted: String,
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines() {
        match (line.starts_with(['|', '[']), steps.last_mut()) {
            (true, Some(step)) => writeln!(step.wanted, "{line}").unwrap(),
            _ => steps.push(Step {
                line: line.to_owned(),
                wanted: String::new(),
            }),
        }
    }
    steps
}

/// A text without what differs from run to run.
struct Plain {
    root: String,
    ids: HashMap<String, usize>,
}

impl Plain {
    fn text(&mut self, text: &str, may_be_pending: bool) -> String {
        let text = match serde_json::from_str::<Value>(text) {
            // JSON that is kept as it was given is compared as it is.
            Ok(mut value) if format!("{value:#}\n") == text => {
                value_without(&mut value, may_be_pending);
                format!("{value:#}\n")
            }
            _ if may_be_pending && is_id_or_pending(text.trim_end()) => "COMMIT\n".to_owned(),
            _ => text.lines().map(line_without).collect(),
        };
        let text = text.replace(&self.root, "/ROOT");
        let is_word = |c: char| c.is_ascii_alphanumeric() || "-:.".contains(c);
        let words = text.split_inclusive(|c: char| !is_word(c));
        words.map(|word| self.word(word)).collect()
    }

    fn word(&mut self, word: &str) -> String {
        let end = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let rest = &word[end.len()..];
        let of = |text: &str, marks: &str| {
            let is_one = |c: char| c.is_ascii_digit() || marks.contains(c);
            !text.is_empty() && text.chars().all(is_one)
        };
        let hex = end.bytes().all(|b| b.is_ascii_hexdigit());
        if end.len() == 64 && hex {
            let next = self.ids.len();
            let name = *self.ids.entry(end.to_owned()).or_insert(next);
            return format!("ID{name}{rest}");
        }
        if (8..=12).contains(&end.len()) && hex {
            let known = self.ids.iter().find(|(id, _)| id.starts_with(end));
            return format!(
                "{}{rest}",
                known.map_or(end.to_owned(), |(_, n)| format!("ID{n}*"))
            );
        }
        if end.len() >= 8 && of(end, "-:.TZ") && end.contains(['-', ':']) {
            return format!("TIME{rest}");
        }
        match end.strip_suffix("ms") {
            Some(number) if of(number, "") => format!("TOOK{rest}"),
            _ => word.to_owned(),
        }
    }
}

fn is_id_or_pending(text: &str) -> bool {
    text == "pending" || (text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn differs(key: &str) -> bool {
    let last = key.rsplit('.').next().unwrap_or(key);
    NUMBERS.contains(&last) || (last.ends_with("bytes") && !BYTES_SAME.contains(&last))
}

/// A line `key=value` without a value that differs.
fn line_without(line: &str) -> String {
    match line.split_once('=') {
        Some((key, _)) if differs(key) => format!("{key}=N\n"),
        _ => format!("{line}\n"),
    }
}

/// The same for JSON.
fn value_without(value: &mut Value, may_be_pending: bool) {
    match value {
        Value::Array(values) => values
            .iter_mut()
            .for_each(|value| value_without(value, may_be_pending)),
        Value::Object(object) => {
            for (key, value) in object.iter_mut() {
                if key == "replaced" || (may_be_pending && key == "commit") {
                    *value = "COMMIT".into();
                } else if FIGURES.contains(&key.as_str()) || (differs(key) && value.is_number()) {
                    *value = "N".into();
                } else if key == "by" {
                    *value = "WHO".into();
                } else {
                    value_without(value, may_be_pending);
                }
            }
        }
        _ => {}
    }
}

/// Runs a line of the file; gives standard output, and the exit status where it is not 0.
fn run(env: &Env, plain: &mut Plain, line: &str) -> String {
    let mut shell = env.program("bash");
    let bin = env.path("bin").display().to_string();
    let path = std::env::var("PATH").unwrap();
    shell
        .args(["-c", &format!("umask 022; {}", &line[2..])])
        .env("PATH", format!("{bin}:{path}"))
        .env("MOUNT", env.mountpoint())
        .env("OUT", env.path("tmp"))
        .env("LC_ALL", "C.UTF-8")
        .current_dir(env.project());
    let told = env.told(shell);
    if line.starts_with('%') {
        assert_eq!((told.status, &told.out[..]), (0, ""), "{line}: {told:?}");
        return String::new();
    }
    let of = |verb: &&str| line[2..].starts_with(&format!("agentvfs {verb}"));
    let may_be_pending = MAY_BE_PENDING.iter().any(of);
    let mut text = plain.text(&told.out.replace('\0', "␀"), may_be_pending);
    if line.contains("--format table") {
        // Columns are as wide as what differs.
        let words = text.split(' ').filter(|word| !word.is_empty());
        text = words.collect::<Vec<_>>().join(" ");
    }
    let mut out = String::new();
    for line in text.lines() {
        writeln!(out, "{}", format!("| {line}").trim_end_matches(' ')).unwrap();
    }
    if told.status != 0 {
        writeln!(out, "[{}]", told.status).unwrap();
    }
    out
}

#[test]
fn what_scripts_read_stays_as_it_is() {
    let Some(env) = Env::new() else { return };
    fs::create_dir(env.path("bin")).unwrap();
    symlink(tests::binary::agentvfs(), env.path("bin/agentvfs")).unwrap();
    let mut plain = Plain {
        root: env
            .path("")
            .display()
            .to_string()
            .trim_end_matches('/')
            .to_owned(),
        ids: HashMap::new(),
    };
    let bless = std::env::var_os("AGENTVFS_BLESS").is_some();
    let mut new = String::new();
    for step in steps(&fs::read_to_string(file()).unwrap()) {
        writeln!(new, "{}", step.line).unwrap();
        if !step.line.starts_with(['$', '%']) {
            continue;
        }
        let found = run(&env, &mut plain, &step.line);
        if step.line.starts_with("$ agentvfs start") {
            env.imported();
        }
        assert!(
            bless || found == step.wanted,
            "{}\n{found}\nwanted:\n{}",
            step.line,
            step.wanted
        );
        new.push_str(&found);
    }
    if bless {
        fs::write(file(), new).unwrap();
    }
}

#[test]
fn every_command_has_its_lines() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    let docs = fs::read_to_string(docs).unwrap();
    let lines = fs::read_to_string(file()).unwrap();
    let has = |command: &str, more: &str| {
        let begins = |line: &str| line.starts_with(&format!("$ agentvfs {command}"));
        lines
            .lines()
            .any(|line| begins(line) && line.contains(more))
    };
    let mut without = Vec::new();
    for section in docs.split("\n## agentvfs ").skip(1) {
        let (command, rest) = section.split_once('\n').unwrap();
        let is_group = rest.contains("Usage: agentvfs ") && rest.contains(" <COMMAND>\n");
        if is_group || ELSEWHERE.iter().any(|(name, _)| *name == command) {
            continue;
        }
        for more in ["", "--json"] {
            if !has(command, more) {
                without.push(format!("{command} {more}"));
            }
        }
    }
    assert!(without.is_empty(), "{without:#?}");
}
