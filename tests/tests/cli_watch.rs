//! `watch` as its readers have it: a person at a terminal, and a program that was written for ContextFS's lines.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use tests::env::Env;
use tests::terminal::shown;

/// ContextFS's fields in their order, and whether each is a text; the others are numbers.
const FIELDS: [(&str, bool); 16] = [
    ("ts", false),
    ("session_id", false),
    ("branch_id", false),
    ("policy_version", false),
    ("op", true),
    ("verdict", true),
    ("dev", false),
    ("ino", false),
    ("i_generation", false),
    ("path", true),
    ("pid", false),
    ("uid", false),
    ("gid", false),
    ("bytes", false),
    ("latency_ns", false),
    ("backend", true),
];

/// What a reader has of a line that takes one field after the other, as scanf(3) does, and texts of any name at the end.
fn read(line: &str) -> Option<(Vec<String>, BTreeMap<String, String>)> {
    let mut rest = line.strip_prefix('{')?;
    let mut values = Vec::new();
    for (key, is_text) in FIELDS {
        rest = rest.strip_prefix(&format!("\"{key}\":"))?;
        let value = if is_text {
            let mut texts = serde_json::Deserializer::from_str(rest).into_iter::<String>();
            let text = texts.next()?.ok()?;
            rest = &rest[texts.byte_offset()..];
            text
        } else {
            let end = rest.find(|c: char| !c.is_ascii_digit())?;
            let (number, behind) = rest.split_at(end);
            rest = behind;
            number.parse::<u64>().ok()?.to_string()
        };
        values.push(value);
        rest = rest.strip_prefix(',')?;
    }
    let extra = rest.strip_prefix("\"extra\":")?.strip_suffix('}')?;
    Some((values, serde_json::from_str(extra).ok()?))
}

/// A workspace in which files with plain and with hostile names were changed while somebody followed.
fn changed() -> Option<Env> {
    let env = Env::new()?;
    env.start();
    let run = |args: &[&str]| env.told(env.command(&env.path(""), args)).ok();
    run(&["watch", "-w", "project", "--no-follow"]);
    let at = env.mountpoint();
    fs::write(at.join("plain"), "x").unwrap();
    fs::rename(at.join("plain"), at.join("moved")).unwrap();
    fs::write(at.join("a\n\"\\\u{1b}[2J\u{202e}"), "").unwrap();
    fs::write(at.join(OsStr::from_bytes(b"odd\xff")), "").unwrap();
    run(&["checkpoint", "-w", "project", "one"]);
    fs::write(at.join("late"), "").unwrap();
    run(&["rollback", "-w", "project", "one"]);
    run(&["kv", "-w", "project", "set", "k", "1"]);
    Some(env)
}

#[test]
fn a_reader_of_contextfs_lines_reads_ours() {
    let Some(env) = changed() else { return };
    let args = ["watch", "-w", "project", "--no-follow"];
    let text = env.told(env.command(&env.path(""), &args)).ok();
    let mut ops = Vec::new();
    for line in text.lines() {
        let (values, extra) = read(line).unwrap_or_else(|| panic!("{line}"));
        assert!(extra.contains_key("seq"), "{line}");
        ops.push(values[4].clone());
        if values[4] == "rename" {
            assert_eq!((&*values[9], &*extra["path2"]), ("plain", "moved"));
        }
    }
    let told = ["create", "rename", "checkpoint", "rollback", "kv"];
    assert!(told.iter().all(|op| ops.iter().any(|o| o == op)), "{ops:?}");
}

#[test]
fn on_a_terminal_an_event_is_a_line_for_people_that_obeys_no_name() {
    let Some(env) = changed() else { return };
    let watch = "watch -w project --no-follow";
    let Some(text) = shown(&env, 200, &[], watch) else {
        return;
    };
    let of = |op: &str| {
        let line = text
            .lines()
            .find(|line| line.get(9..).is_some_and(|l| l.starts_with(op)));
        line.unwrap_or_else(|| panic!("{op}: {text}"))
    };
    let renamed = of("rename ");
    assert!(
        renamed.contains("plain -> moved") && renamed.contains("pid="),
        "{renamed}"
    );
    assert!(of("checkpoint ").contains("label=one"), "{text}");
    assert!(of("rollback ").contains("names=1"), "{text}");
    assert!(
        !text.contains('\u{1b}') && !text.contains('\u{202e}'),
        "{text:?}"
    );
    assert!(text.lines().any(|line| line.contains("\\n")), "{text}");
    let lines = shown(&env, 200, &[], &format!("{watch} --json")).unwrap();
    let count = lines.lines().filter(|line| read(line).is_some()).count();
    assert_eq!(count, lines.lines().count(), "{lines}");
}
