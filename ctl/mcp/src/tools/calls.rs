//! The tool for the timeline: `timeline`.

use super::Tool;
use crate::answer::{Answer, row};
use crate::limits::{ENTRIES_DEFAULT, ROWS_BYTES_MAX, ROWS_MAX};
use crate::session::Turn;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, CallState, TimelineAnswer, TimelineList, TimelineRow};
use agentvfs_client::render::call_object;
use agentvfs_client::when::rfc3339;
use rmcp::schemars::JsonSchema;
use serde::Deserialize;

pub fn tools() -> [Tool; 1] {
    [Tool::looks(
        "timeline",
        "List the tool calls that changed something, newest first, one a line: id, tool, status, duration, \
         start. details returns JSON with parameters, result or error, and the commits before and \
         after each: diff between the two shows what the call changed.",
        timeline,
    )]
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "rmcp::schemars")]
enum Status {
    Pending,
    Success,
    Error,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct TimelineArgs {
    /// Only calls of this tool
    tool: Option<String>,
    /// Only those with this status
    status: Option<Status>,
    /// Also rollbacks, undos, merges and restores
    #[serde(default)]
    all: bool,
    /// Give JSON objects with all that is known
    #[serde(default)]
    details: bool,
    /// Only what began before this entry: from the note of the page before
    before: Option<u64>,
    /// How many to give at most; 20 without this, 1000 at most
    limit: Option<u64>,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn timeline(turn: &mut Turn<'_>, args: TimelineArgs) -> Result<Answer, Failure> {
    let limit = args.limit.unwrap_or(ENTRIES_DEFAULT).clamp(1, ROWS_MAX);
    let mut ask = TimelineList {
        workspace: turn.workspace(),
        branch: turn.branch(args.branch),
        limit,
        before: args.before,
        name: args.tool,
        status: args.status.map(|status| match status {
            Status::Pending => CallState::Pending,
            Status::Success => CallState::Success,
            Status::Error => CallState::Error,
        }),
        all: args.all,
        brief: !args.details,
        of: None,
    };
    let (mut shown, mut bytes) = (Vec::new(), 0);
    loop {
        let call = Call::Timeline(ask.clone());
        let answer: TimelineAnswer = turn.ask("cannot show the timeline", &call)?;
        for item in &answer.items {
            let text = match args.details {
                true => call_object(item).to_string(),
                false => call_row(item),
            };
            bytes += text.len() + 1;
            if !shown.is_empty() && bytes > ROWS_BYTES_MAX {
                return Ok(page(&shown, args.details, ask.before));
            }
            shown.push(text);
            ask.before = Some(item.entry);
        }
        ask.limit = limit.saturating_sub(shown.len() as u64);
        if answer.next.is_none() || ask.limit == 0 {
            return Ok(page(&shown, args.details, answer.next));
        }
        ask.before = answer.next;
    }
}

fn call_row(item: &TimelineRow) -> String {
    let id = item.id.map_or_else(|| "--".to_owned(), |id| id.to_string());
    let took = item
        .duration_ms
        .map_or_else(|| "--".to_owned(), |ms| format!("{ms}ms"));
    let began = rfc3339(item.started);
    row(&[
        id.as_bytes(),
        item.name.as_bytes(),
        item.status.word().as_bytes(),
        took.as_bytes(),
        began.as_bytes(),
    ])
}

fn page(shown: &[String], details: bool, next: Option<u64>) -> Answer {
    let answer = Answer::text(match details {
        true => format!("[{}]", shown.join(",\n")),
        false => shown.join("\n"),
    });
    match next {
        Some(entry) => answer
            .note(format!("there are more; to continue, use before {entry}"))
            .fact("next_before", entry),
        None if shown.is_empty() => answer.note("none"),
        None => answer,
    }
}
