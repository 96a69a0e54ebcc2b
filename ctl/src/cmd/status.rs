//! `agentvfs workspace status`.

mod screen;

use super::{Context, workspace_facts};
use crate::cli::StatusArgs;
use crate::output::{Facts, print, print_json, warn};
use agentvfs_client::failure::{FAILED, Failure};
use agentvfs_client::protocol::{self, Bytes, Call, Requests, StatusAnswer, StatusOf};
use agentvfs_client::quote::one_line;
use agentvfs_client::render::insert_bytes;
use agentvfs_client::seen::Look;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::IsTerminal;

/// Lines of the log that are shown.
const LOG_LINES: usize = 200;

/// Prints what a workspace is doing; 0 only where it is healthy.
pub fn run(args: &StatusArgs, context: &mut Context) -> Result<u8, Failure> {
    if args.log {
        return log(context);
    }
    let name = context.workspace(args.name.as_deref())?;
    let what = format!("cannot show the status of {name}");
    if !context.is_home_used()? {
        return Err(Failure::new(what, format!("no workspace named {name}"))
            .kind("no-such-workspace")
            .hint(format!(
                "agentvfs start {name} --from DIR creates and starts it"
            )));
    }
    let to_person = std::io::stdout().is_terminal() && !context.json();
    let call = Call::Status(StatusOf {
        workspace: name,
        branch: context.branch()?,
        resources: to_person,
    });
    let answer: StatusAnswer = context.look(&what, &call, "looking")?;
    context.check_seen(&answer.info, Look::Into)?;
    match to_person {
        true => screen::show(&answer, context)?,
        false => facts(&answer, context).print(context.json())?,
    }
    for trouble in &answer.troubles {
        warn(trouble);
    }
    Ok(if answer.healthy { 0 } else { FAILED })
}

/// Prints the end of the daemon's log.
fn log(context: &Context) -> Result<u8, Failure> {
    let place = context.home().log();
    // What was put aside comes first, so that the end is never short just after that.
    let mut text = std::fs::read(place.with_extension("log.1")).unwrap_or_default();
    match std::fs::read(&place) {
        Ok(new) => text.extend_from_slice(&new),
        Err(_) if !text.is_empty() => {}
        Err(e) => {
            let failure = Failure::new("cannot show the log", format!("{}: {e}", place.display()));
            return Err(failure.hint("the daemon creates it when it starts"));
        }
    }
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(LOG_LINES)..];
    if context.json() {
        print_json(&json!({ "log": place.to_string_lossy(), "lines": shown }))?;
    } else {
        print(
            shown
                .iter()
                .map(|line| format!("{}\n", one_line(line)))
                .collect::<String>()
                .as_bytes(),
        )?;
    }
    Ok(0)
}

fn facts(answer: &StatusAnswer, context: &Context) -> Facts {
    let mut facts = workspace_facts(&answer.info, &answer.branch, context.home());
    facts
        .json("pid", answer.pid)
        .json("healthy", answer.healthy)
        .json("troubles", answer.troubles.clone());
    if let Some(more) = &answer.facts {
        branch_facts(&mut facts, more);
    }
    facts
}

fn branch_facts(facts: &mut Facts, more: &protocol::Facts) {
    facts.line("head", more.head.as_deref().unwrap_or("pending").as_bytes());
    facts.json("head", more.head.clone());
    facts.line("import", more.import.state.as_bytes());
    facts.line(
        "import_files",
        format!("{}/{}", more.import.files_done, more.import.files_total).as_bytes(),
    );
    facts.line(
        "import_bytes",
        format!("{}/{}", more.import.bytes_done, more.import.bytes_total).as_bytes(),
    );
    facts.json("import", import_json(&more.import));
    facts.line(
        "base_changed",
        more.base_changed.len().to_string().as_bytes(),
    );
    facts.json("base_changed", paths_json(&more.base_changed));
    facts.line("unreadable", more.unreadable.len().to_string().as_bytes());
    facts.json("unreadable", paths_json(&more.unreadable));
    if !more.not_imported.is_empty() {
        let many = more.not_imported.len().to_string();
        facts.line("not_imported", many.as_bytes());
    }
    facts.json("not_imported", paths_json(&more.not_imported));
    for (key, number) in [
        ("journal_bytes", more.journal_bytes),
        ("entries", more.entries),
    ] {
        facts
            .line(key, number.to_string().as_bytes())
            .json(key, number);
    }
    facts.json("requests", requests_json(&more.requests));
    facts
        .json("branch_id", more.branch_id)
        .json("session_id", more.branch_id)
        .line("telemetry", more.telemetry.join(",").as_bytes())
        .json("telemetry", more.telemetry.clone());
    if let Some(audit) = &more.audit {
        facts.add("audit", &audit.0);
    }
    if let Some(policy) = more.policy {
        facts
            .line("policy", policy.to_string().as_bytes())
            .json("policy", policy);
    }
    let mut standings = Vec::new();
    for remote in &more.remotes {
        facts
            .line("remote", remote.name.as_bytes())
            .line("ahead", remote.ahead.to_string().as_bytes())
            .line("behind", remote.behind.to_string().as_bytes());
        standings.push(json!({
            "name": remote.name, "ahead": remote.ahead, "behind": remote.behind
        }));
    }
    facts.json("remotes", standings);
    if let Some(lazy) = &more.lazy {
        lazy_facts(facts, lazy);
    }
    if let Some(recovered) = &more.recovered {
        facts.add("recovered", recovered.as_bytes());
    }
}

/// What came from the remote of a lazy workspace when it was read.
fn lazy_facts(facts: &mut Facts, lazy: &protocol::LazyStanding) {
    facts.line("lazy", lazy.remote.as_bytes());
    for (key, number) in [
        ("lazy_objects", lazy.objects),
        ("lazy_bytes", lazy.bytes),
        ("lazy_failed", lazy.failed),
    ] {
        facts.line(key, number.to_string().as_bytes());
    }
    for (key, number) in [
        ("remote_only_objects", lazy.remote_only_objects),
        ("remote_only_bytes", lazy.remote_only_bytes),
    ] {
        let text = number.map_or("unknown".to_owned(), |number| number.to_string());
        facts.line(key, text.as_bytes());
    }
    let object = json!({
        "remote": lazy.remote, "objects": lazy.objects, "bytes": lazy.bytes,
        "failed": lazy.failed, "why": lazy.why,
        "remote_only_objects": lazy.remote_only_objects,
        "remote_only_bytes": lazy.remote_only_bytes,
    });
    facts.json("lazy", object);
}

fn import_json(import: &protocol::Import) -> Value {
    json!({
        "state": import.state,
        "files_done": import.files_done,
        "files_total": import.files_total,
        "bytes_done": import.bytes_done,
        "bytes_total": import.bytes_total,
    })
}

/// By kind: how many requests the mount has answered, and how long that took together.
fn requests_json(requests: &BTreeMap<String, Requests>) -> Value {
    let row = |(kind, r): (&String, &Requests)| {
        let figures = json!({ "count": r.count, "us": r.us });
        (kind.clone(), figures)
    };
    Value::Object(requests.iter().map(row).collect())
}

/// Paths as objects.
pub fn paths_json(paths: &[Bytes]) -> Value {
    let object = |path: &Bytes| {
        let mut object = Map::new();
        insert_bytes(&mut object, "path", &path.0);
        Value::Object(object)
    };
    paths.iter().map(object).collect()
}
