//! `agentvfs timeline` and `agentvfs tool list`.

mod screen;

use super::Context;
use crate::cli::{FormatArg, ListCallsArgs, StatusArg, TimelineArgs};
use crate::output::{Rows, print, print_json, talk};
use agentvfs_client::failure::{FAILED, Failure};
use agentvfs_client::protocol::*;
use agentvfs_client::render::{call_object, count};
use agentvfs_client::when::{rfc3339, rfc3339_seconds};
use serde_json::{Value, json};
use std::io::IsTerminal;

/// What is said where there is nothing to list.
const NONE: &str = "No tool calls found";

/// Lists or verifies.
pub fn run(args: &TimelineArgs, context: &mut Context) -> Result<u8, Failure> {
    match args.verify {
        true => verify(context),
        false => list(&args.list, context),
    }
}

/// Lists calls, the newest first.
pub fn list(args: &ListCallsArgs, context: &mut Context) -> Result<u8, Failure> {
    if args.rows.nul && args.format.is_some() {
        return Err(Failure::usage("-z is for rows, not for --format"));
    }
    if context.json() && args.format == Some(FormatArg::Table) {
        return Err(Failure::usage(
            "--json and --format table exclude each other",
        ));
    }
    let as_json = context.json() || args.format == Some(FormatArg::Json);
    let items = fetch(args, !as_json, context)?;
    if as_json {
        let calls: Vec<Value> = items.iter().map(call_object).collect();
        // AgentFS prints an array; everything else here prints an object.
        return match context.json() {
            true => print_json(&json!({ "calls": calls })).map(|()| 0),
            false => print_json(&Value::Array(calls)).map(|()| 0),
        };
    }
    let as_table = args.format == Some(FormatArg::Table);
    let to_person = as_table || (std::io::stdout().is_terminal() && !args.rows.nul);
    if items.is_empty() {
        match to_person {
            true => print(format!("{NONE}\n").as_bytes())?,
            false => talk(NONE),
        }
        return Ok(0);
    }
    if to_person && !as_table {
        screen::show(&items, args.all, args.absolute)?;
        return Ok(0);
    }
    let rows = rows(&items, args.all, as_table);
    match as_table {
        true => rows.print_table()?,
        false => rows.print(args.rows.nul)?,
    }
    Ok(0)
}

/// Asks for page after page.
fn fetch(
    args: &ListCallsArgs,
    brief: bool,
    context: &mut Context,
) -> Result<Vec<TimelineRow>, Failure> {
    let mut ask = TimelineList {
        workspace: context.workspace(None)?,
        branch: context.branch()?,
        limit: args.limit,
        before: None,
        name: args.filter.clone(),
        status: args.status.map(|status| match status {
            StatusArg::Pending => CallState::Pending,
            StatusArg::Success => CallState::Success,
            StatusArg::Error => CallState::Error,
        }),
        all: args.all,
        brief,
        of: None,
    };
    let (mut items, mut others) = fetch_one(&mut ask, args.limit, context)?;
    let several = !others.is_empty();
    while let Some(other) = others.pop() {
        (ask.before, ask.of) = (None, Some(other));
        items.extend(fetch_one(&mut ask, args.limit, context)?.0);
    }
    if several {
        items.sort_by_key(|item| std::cmp::Reverse((item.started.sec, item.started.nsec)));
        items.truncate(usize::try_from(args.limit).unwrap_or(usize::MAX));
    }
    Ok(items)
}

/// Asks for one timeline; gives the others that there are.
fn fetch_one(
    ask: &mut TimelineList,
    limit: u64,
    context: &mut Context,
) -> Result<(Vec<TimelineRow>, Vec<TimelineOf>), Failure> {
    let (mut items, mut others) = (Vec::new(), Vec::new());
    loop {
        ask.limit = limit - items.len() as u64;
        let call = Call::Timeline(ask.clone());
        let answer: TimelineAnswer =
            context.look("cannot show the timeline", &call, "reading the timeline")?;
        items.extend(answer.items);
        others.extend(answer.others);
        ask.before = answer.next;
        if answer.next.is_none() || items.len() as u64 >= limit {
            return Ok((items, others));
        }
    }
}

fn rows(items: &[TimelineRow], all: bool, to_person: bool) -> Rows {
    let mut rows = match all {
        true => Rows::new(&["ID", "TOOL", "STATUS", "DURATION", "STARTED", "BRANCH"]),
        false => Rows::new(&["ID", "TOOL", "STATUS", "DURATION", "STARTED"]),
    };
    for item in items {
        let time = item.started;
        let started = match to_person {
            true => rfc3339_seconds(time).replace('T', " ").replace('Z', ""),
            false => rfc3339(time),
        };
        let id = item.id.map_or_else(|| "--".to_owned(), |id| id.to_string());
        let duration = item.duration_ms.filter(|_| item.kind == "call");
        let duration = duration.map_or_else(|| "--".to_owned(), |ms| format!("{ms}ms"));
        let name = match item.undoes {
            Some(call) if all => format!("{} {call}", item.name),
            _ => item.name.clone(),
        };
        let branch = all.then(|| item.branch.clone());
        let cells = [id, name, item.status.word().to_owned(), duration, started];
        let cells = cells.into_iter().chain(branch);
        rows.push(cells.map(String::into_bytes).collect());
    }
    rows
}

fn verify(context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace(None)?;
    let what = format!("the timeline of {workspace} was altered");
    let call = Call::TimelineVerify(OnBranch {
        workspace,
        branch: context.branch()?,
    });
    let answer: VerifyAnswer = context.look("cannot verify the timeline", &call, "verifying")?;
    let failed = answer.found > 0;
    if context.json() {
        let fault = |f: &VerifyFault| json!({ "entry": f.entry, "what": f.what });
        let faults: Vec<Value> = answer.faults.iter().map(fault).collect();
        print_json(&json!({
            "entries": answer.entries,
            "commits": answer.commits,
            "found": answer.found,
            "faults": faults,
        }))?;
        return Ok(if failed { FAILED } else { 0 });
    }
    let facts = format!("entries={}\ncommits={}\n", answer.entries, answer.commits);
    print(facts.as_bytes())?;
    if !failed {
        return Ok(0);
    }
    for fault in &answer.faults {
        print(format!("entry {} {}\n", fault.entry, fault.what).as_bytes())?;
    }
    Err(Failure::new(what, count(answer.found, "fault"))
        .kind("damaged")
        .hint("agentvfs fsck shows whether the disk damaged it; otherwise somebody changed it"))
}
