//! `agentvfs stats`.

mod screen;

use super::Context;
use crate::output::{Facts, human_bytes, talk};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, Nothing, StatsAnswer};
use serde_json::{Value, json};
use std::io::IsTerminal;

/// Prints what takes the space.
pub fn run(context: &mut Context) -> Result<u8, Failure> {
    let answer: StatsAnswer = context.ask_with_bar(
        "cannot compute the disk usage",
        &Call::Stats(Nothing {}),
        "adding up",
    )?;
    if std::io::stdout().is_terminal() && !context.json() {
        screen::show(&answer)?;
        return Ok(0);
    }
    facts(&answer).print(context.json())?;
    talk(&format!(
        "{} on disk; full copies would need {}",
        human_bytes(answer.used_bytes),
        human_bytes(answer.logical_bytes)
    ));
    Ok(0)
}

fn facts(answer: &StatsAnswer) -> Facts {
    let mut facts = Facts::default();
    let a = answer;
    for (key, number) in [
        ("used_bytes", a.used_bytes),
        ("free_bytes", a.free_bytes),
        ("packs", a.packs),
        ("pack_bytes", a.pack_bytes),
        ("objects", a.objects),
        ("needed_bytes", a.needed_bytes),
        ("unneeded_bytes", a.unneeded_bytes),
        ("journal_bytes", a.journal_bytes),
        ("state_bytes", a.state_bytes),
        ("logical_bytes", a.logical_bytes),
        ("chunk_bytes", a.chunk_bytes),
        ("chunk_stored_bytes", a.chunk_stored_bytes),
        ("meta_stored_bytes", a.meta_stored_bytes),
    ] {
        facts
            .line(key, number.to_string().as_bytes())
            .json(key, number);
    }
    let quota = a.quota.map_or("none".to_owned(), |q| q.to_string());
    facts.line("quota", quota.as_bytes()).json("quota", a.quota);
    for (key, part, whole) in [
        ("dedup_ratio", a.logical_bytes, a.chunk_bytes),
        ("compression_ratio", a.chunk_bytes, a.chunk_stored_bytes),
    ] {
        let ratio = ratio(part, whole);
        facts
            .line(key, format!("{ratio:.2}").as_bytes())
            .json(key, ratio);
    }
    lines_below(&mut facts, answer);
    facts
        .json(
            "workspaces",
            a.workspaces.iter().map(workspace_json).collect::<Vec<_>>(),
        )
        .json("kinds", json!(a.kinds));
    facts
}

/// How much smaller a whole is than its part as it was; 1 where there is nothing.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 1.0;
    }
    (part as f64 / whole as f64 * 100.0).round() / 100.0
}

fn lines_below(facts: &mut Facts, answer: &StatsAnswer) {
    for w in &answer.workspaces {
        let mut line = |key: &str, n: u64| {
            facts.line(
                &format!("workspace.{}.{key}", w.name),
                n.to_string().as_bytes(),
            );
        };
        line("needed_bytes", w.needed_bytes);
        line("own_bytes", w.own_bytes);
        for b in &w.branches {
            for (key, n) in [
                ("files", b.files),
                ("bytes", b.bytes),
                ("keys", b.keys),
                ("commits", b.commits),
                ("automatic_commits", b.automatic_commits),
                ("journal_bytes", b.journal_bytes),
                ("state_bytes", b.state_bytes),
            ] {
                line(&format!("branch.{}.{key}", b.name), n);
            }
        }
    }
    for k in &answer.kinds {
        let name = if k.extension.is_empty() {
            "none"
        } else {
            &k.extension
        };
        for (key, n) in [("bytes", k.bytes), ("stored_bytes", k.stored_bytes)] {
            facts.line(&format!("kind.{name}.{key}"), n.to_string().as_bytes());
        }
    }
}

fn workspace_json(w: &agentvfs_client::protocol::WorkspaceStats) -> Value {
    json!({
        "name": w.name,
        "needed_bytes": w.needed_bytes,
        "own_bytes": w.own_bytes,
        "branches": w.branches,
    })
}
