//! Tools for what single calls did: `tool_diff`, `tool_undo`, `blame`.

use super::Tool;
use super::branches::conflict_object;
use super::versions::{change_row, patch};
use crate::answer::{Answer, Page, row};
use crate::limits::{ENTRIES_DEFAULT, ROWS_MAX};
use crate::session::Turn;
use agentvfs_client::blame;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{
    BlameAnswer, BlamePath, Bytes, Call, Diff, DiffAnswer, OneCall, Side, TimelineRow, ToolUndo,
    ToolUndoAnswer,
};
use agentvfs_client::render::count;
use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// Rows of which is told one by one why their change may not be the call's own.
const DOUBTS_MAX: usize = 5;

pub fn tools() -> [Tool; 3] {
    [
        Tool::looks(
            "tool_diff",
            "Show what one tool call changed, by its id (timeline lists them, and results have it as \
             agentvfs/call): one path a line, as in diff; patch returns the changed lines instead.",
            diff,
        ),
        Tool::changes(
            "tool_undo",
            "Undo only what one tool call changed, by its id; later changes stay. If later changes \
             touch the same, conflicts are listed and nothing is changed. undo reverses it. dry_run only \
             lists what would change.",
            undo,
        ),
        Tool::looks(
            "blame",
            "List what changed a file or directory, newest first, one a line: time, kind (call, checkpoint, \
             rollback, merge and so on), id of the call or -, name, commit after it, what it did (added, \
             modified, renamed, type-changed, deleted), old path of a rename or -, branch of the \
             call. Follows renames, and merges into the calls of merged branches, also deleted ones.",
            blame,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct CallDiffArgs {
    /// The call's id
    call: u64,
    /// Only what lies at or below these paths
    #[serde(default)]
    paths: Vec<String>,
    /// Give the changed lines, as a patch in git's format
    #[serde(default)]
    patch: bool,
    /// How many paths (with patch: bytes) to pass over; 0 without this
    offset: Option<u64>,
    /// How many paths (with patch: bytes) to give at most; 100 (32768) without this
    limit: Option<u64>,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn diff(turn: &mut Turn<'_>, args: CallDiffArgs) -> Result<Answer, Failure> {
    let state = turn.state(args.branch, None);
    let what = format!("cannot determine what call {} changed", args.call);
    let paths = turn.paths(&state, &args.paths)?;
    let of_call: TimelineRow = turn.ask(
        &what,
        &Call::ToolShow(OneCall {
            workspace: state.workspace.clone(),
            branch: state.branch.clone(),
            id: args.call,
            wait: true,
        }),
    )?;
    let before = of_call.own_before.clone().or(of_call.before.clone());
    let Some(before) = before else {
        return Err(Failure::new(what, "it was imported without its files")
            .hint("timeline with details shows what is recorded of it"));
    };
    let ask = Diff {
        workspace: state.workspace,
        branch: state.branch,
        from: Side::Ref(before),
        to: of_call.after.clone().map_or(Side::Live, Side::Ref),
        paths: match paths.iter().any(|path| path.0.is_empty()) {
            true => Vec::new(),
            false => paths,
        },
        stat: false,
    };
    let answer = match args.patch {
        true => patch(turn, &what, ask, args.offset, args.limit)?,
        false => {
            let answer: DiffAnswer = turn.ask(&what, &Call::Diff(ask))?;
            Page::new(args.offset, args.limit).of(&answer.changes, change_row)
        }
    };
    Ok(doubted(answer, &of_call))
}

/// Says so where what differs may not be the call's own.
fn doubted(answer: Answer, call: &TimelineRow) -> Answer {
    let why = match call.doubt.as_ref().map(|doubt| doubt.why.clone()) {
        None if call.after.is_none() => {
            Some("it has not ended; these are the changes so far".to_owned())
        }
        doubt => doubt,
    };
    match why {
        Some(why) => answer.also(&why).fact("certain", false),
        None => answer.fact("certain", true),
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct UndoArgs {
    /// The call's id
    call: u64,
    /// Change nothing, list what would change
    #[serde(default)]
    dry_run: bool,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn undo(turn: &mut Turn<'_>, args: UndoArgs) -> Result<Answer, Failure> {
    let what = format!("cannot undo call {}", args.call);
    let call = Call::ToolUndo(ToolUndo {
        workspace: turn.workspace(),
        branch: turn.branch(args.branch),
        id: args.call,
        dry_run: args.dry_run,
    });
    let answer: ToolUndoAnswer = turn.ask(&what, &call)?;
    if !answer.conflicts.is_empty() {
        let many = count(answer.conflicts.len() as u64, "conflict");
        let why = format!("{many} with later changes; nothing was changed");
        let shown = answer.conflicts.iter().take(ROWS_MAX as usize);
        let conflicts: Vec<Value> = shown.map(conflict_object).collect();
        let failure = Failure::new(what, why)
            .kind("conflicts")
            .hint("restore restores single paths from the commit before the call; timeline with details shows it");
        return Ok(Answer::failure(&failure).note(json!({ "conflicts": conflicts }).to_string()));
    }
    if args.dry_run {
        return Ok(Page::new(None, Some(u64::MAX)).of(&answer.changes, change_row));
    }
    let nothing = answer.replaced.is_none() && answer.files_changed == 0;
    let told = Answer::json(&json!({
        "commit": answer.commit,
        "replaced": answer.replaced,
        "files_changed": answer.files_changed,
    }));
    Ok(match nothing {
        true => told.note(format!("no change of call {} is left to undo", args.call)),
        false => told,
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct BlameArgs {
    /// A file or directory, from the workspace's root; / is everything
    path: String,
    /// How many to give at most; 20 without this, 1000 at most
    limit: Option<u64>,
    /// Look at this name alone, not at those that it had before it was renamed
    #[serde(default)]
    no_follow: bool,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn blame(turn: &mut Turn<'_>, args: BlameArgs) -> Result<Answer, Failure> {
    let state = turn.state(args.branch, None);
    let path = turn.path(&state, &args.path)?;
    let limit = args.limit.unwrap_or(ENTRIES_DEFAULT).clamp(1, ROWS_MAX);
    let call = Call::Blame(BlamePath {
        workspace: state.workspace,
        branch: state.branch,
        path: Bytes(path),
        limit,
        no_follow: args.no_follow,
    });
    let answer: BlameAnswer = turn.ask(
        &format!("cannot determine who changed {}", args.path),
        &call,
    )?;
    let rows = answer.items.iter().map(|item| row(&blame::cells(item)));
    let total = answer.items.len() as u64;
    let mut shown = Page::new(None, Some(u64::MAX)).shown(rows, total);
    if answer.more {
        shown = shown.also("there may be more; use a higher limit");
    }
    let mut notes: Vec<String> = answer.items.iter().filter_map(blame::doubt).collect();
    if notes.len() > DOUBTS_MAX {
        let more = notes.len() - DOUBTS_MAX;
        notes.truncate(DOUBTS_MAX);
        notes.push(format!("the same is true of {more} older changes"));
    }
    notes.extend(blame::uncalled(&args.path, &answer));
    notes.extend(blame::unknown(&answer));
    for note in notes {
        shown = shown.also(&note);
    }
    let shown = shown.fact("unknown", answer.unknown);
    Ok(match answer.calls {
        0 => shown.fact("commits", answer.commits),
        _ => shown,
    })
}
