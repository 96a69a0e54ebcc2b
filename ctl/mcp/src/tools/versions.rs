//! Tools that keep and bring back states: `checkpoint`, `rollback`, `undo`, `log`, `diff`.

use super::Tool;
use crate::answer::{Answer, Page, row};
use crate::limits::{BYTES_DEFAULT, BYTES_MAX, ENTRIES_DEFAULT};
use crate::session::Turn;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{
    Bytes, Call, Changed, Checkpoint, CheckpointAnswer, Diff, DiffAnswer, Log, LogAnswer, LogRow,
    PatchAnswer, PlanAnswer, Rollback, RollbackAnswer, Side, Target, Undo,
};
use agentvfs_client::when::{moment, rfc3339};
use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;

pub fn tools() -> [Tool; 5] {
    [
        Tool::changes(
            "checkpoint",
            "Commit everything as it is now (all files, also ignored and untracked ones), to come \
             back to it later. Takes milliseconds; use it before risky changes. Returns the commit's id and how \
             many files changed since the last checkpoint.",
            checkpoint,
        ),
        Tool::changes(
            "rollback",
            "Roll back: without arguments to the last checkpoint, else to ref or to the state before a \
             time. All files and key-value data, or only paths. undo reverses it. dry_run only \
             lists what would change.",
            rollback,
        ),
        Tool::changes(
            "undo",
            "Undo the last rollback, restore, merge, resolve or update of the branch (not single file \
             changes). Can be called several times. Refuses if a checkpoint or an apply came later, unless \
             over_later_changes is given.",
            undo,
        ),
        Tool::looks(
            "log",
            "List the checkpoints, newest first, one a line: commit id, time, label or -, message. all adds \
             automatic ones, which are made when work pauses and before each rollback.",
            log,
        ),
        Tool::looks(
            "diff",
            "Show what changed: from the last checkpoint to now, or from one commit to another or to now. \
             One path a line: A added, M modified, D deleted, R renamed (old and new path), T type \
             changed. patch returns the changed lines instead.",
            diff,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct CheckpointArgs {
    /// A name for it, unique in the branch, such as before-refactor; given again it moves here
    label: Option<String>,
    /// Why it was made
    #[serde(default)]
    message: String,
    /// Keys and values to find it by, such as {"turn": "12"}
    #[serde(default)]
    meta: BTreeMap<String, String>,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn checkpoint(turn: &mut Turn<'_>, args: CheckpointArgs) -> Result<Answer, Failure> {
    let workspace = turn.workspace();
    let what = format!("cannot checkpoint {workspace}");
    let call = Call::Checkpoint(Checkpoint {
        workspace,
        branch: turn.branch(args.branch),
        label: args.label,
        message: args.message,
        meta: args.meta.into_iter().collect(),
        wait: true,
        automatic: false,
        unlike: None,
        joins: None,
        progress: false,
    });
    let answer: CheckpointAnswer = turn.ask(&what, &call)?;
    Ok(Answer::json(&json!({
        "commit": answer.commit,
        "files_changed": answer.files_changed,
        "bytes_changed": answer.bytes_changed,
        "new_commit": answer.new_commit,
        "moved_from": answer.moved_from,
        "unresolved_conflicts": answer.unresolved,
        "unreadable": answer.unreadable.iter().map(lossy).collect::<Vec<_>>(),
    })))
}

fn lossy(path: &Bytes) -> String {
    String::from_utf8_lossy(&path.0).into_owned()
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct RollbackArgs {
    /// The commit: a label, an id or the beginning of one, @~1 (the checkpoint before the last)
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// Instead of ref, the newest state from before then: a duration (90s, 5m, 2h, 1d) or an RFC 3339
    /// time
    before: Option<String>,
    /// Go back only with what lies at or below these paths
    #[serde(default)]
    paths: Vec<String>,
    /// Leave key-value data (kv_get, kv_set) as it is now
    #[serde(default)]
    keep_kv: bool,
    /// Change nothing, list what would change
    #[serde(default)]
    dry_run: bool,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

/// The state that a call of a tool means.
pub(super) fn target(
    tool: &str,
    reference: Option<String>,
    before: Option<String>,
) -> Result<Target, Failure> {
    match (reference, before) {
        (Some(_), Some(_)) => {
            let why = format!("{tool}: a ref cannot be combined with before");
            Err(Failure::usage(why).hint("use one of them, or none for the last checkpoint"))
        }
        (Some(name), None) => Ok(Target::Ref(name)),
        (None, Some(before)) => Ok(Target::Before(moment(&before)?)),
        (None, None) => Ok(Target::Head),
    }
}

fn rollback(turn: &mut Turn<'_>, args: RollbackArgs) -> Result<Answer, Failure> {
    let target = target("rollback", args.reference, args.before)?;
    let state = turn.state(args.branch, None);
    let what = format!("cannot roll back {}", state.workspace);
    let request = Rollback {
        paths: turn.paths(&state, &args.paths)?,
        workspace: state.workspace,
        branch: state.branch,
        target,
        keep_kv: args.keep_kv,
    };
    if request.paths.iter().any(|path| path.0.is_empty()) {
        return Err(Failure::usage("rollback: a path is the whole workspace")
            .hint("leave out paths to mean all of it"));
    }
    if args.dry_run {
        let plan: PlanAnswer = turn.ask(&what, &Call::RollbackPlan(request))?;
        let rows = Page::new(None, Some(u64::MAX)).of(&plan.changes, change_row);
        return Ok(rows.fact("keys_changed", plan.keys_changed));
    }
    let answer: RollbackAnswer = turn.ask(&what, &Call::Rollback(request))?;
    Ok(went(&answer))
}

/// What a rollback, undo or redo did.
pub(super) fn went(answer: &RollbackAnswer) -> Answer {
    Answer::json(&json!({
        "commit": answer.commit,
        "replaced": answer.replaced,
        "files_changed": answer.files_changed,
    }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct UndoArgs {
    /// Undo also where a checkpoint or an apply came later; they stay in log
    #[serde(default)]
    over_later_changes: bool,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn undo(turn: &mut Turn<'_>, args: UndoArgs) -> Result<Answer, Failure> {
    let workspace = turn.workspace();
    let what = format!("cannot undo in {workspace}");
    let call = Call::Undo(Undo {
        workspace,
        branch: turn.branch(args.branch),
        over_later_changes: args.over_later_changes,
    });
    let answer: RollbackAnswer = turn.ask(&what, &call)?;
    Ok(went(&answer))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct LogArgs {
    /// Also automatic commits
    #[serde(default)]
    all: bool,
    /// How many to pass over; 0 without this
    offset: Option<u64>,
    /// How many to give at most; 20 without this, 1000 at most
    limit: Option<u64>,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn log(turn: &mut Turn<'_>, args: LogArgs) -> Result<Answer, Failure> {
    let workspace = turn.workspace();
    let what = format!("cannot show the log of {workspace}");
    let page = Page::with_default(args.offset, args.limit, ENTRIES_DEFAULT);
    let call = Call::Log(Log {
        workspace,
        branch: turn.branch(args.branch),
        all: args.all,
        limit: Some(page.end()),
        after: None,
        digits: false,
        count: true,
    });
    let answer: LogAnswer = turn.ask(&what, &call)?;
    let total = answer.total.unwrap_or(answer.commits.len() as u64);
    Ok(page.of_first(&answer.commits, total, commit_row))
}

fn commit_row(commit: &LogRow) -> String {
    let time = rfc3339(commit.time);
    row(&[
        commit.commit.as_deref().unwrap_or("pending").as_bytes(),
        time.as_bytes(),
        commit.labels.first().map_or("-", String::as_str).as_bytes(),
        commit.message.as_bytes(),
    ])
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct DiffArgs {
    /// The older commit: a label, an id, @~1; base is the project as it was at the start; the last
    /// checkpoint without this
    from: Option<String>,
    /// The newer commit; now without this
    to: Option<String>,
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

fn diff(turn: &mut Turn<'_>, args: DiffArgs) -> Result<Answer, Failure> {
    let state = turn.state(args.branch, None);
    let what = format!("cannot compare in {}", state.workspace);
    let paths = turn.paths(&state, &args.paths)?;
    let ask = Diff {
        from: side(args.from.unwrap_or_else(|| "@".to_owned())),
        to: args.to.map_or(Side::Live, side),
        // The root is everything.
        paths: if paths.iter().any(|path| path.0.is_empty()) {
            Vec::new()
        } else {
            paths
        },
        workspace: state.workspace,
        branch: state.branch,
        stat: false,
    };
    if args.patch {
        return patch(turn, &what, ask, args.offset, args.limit);
    }
    let answer: DiffAnswer = turn.ask(&what, &Call::Diff(ask))?;
    Ok(Page::new(args.offset, args.limit).of(&answer.changes, change_row))
}

fn side(name: String) -> Side {
    match name.as_str() {
        "base" => Side::Base,
        _ => Side::Ref(name),
    }
}

/// A stretch of the patch; all of it is made, and what is not wanted is not kept.
pub(super) fn patch(
    turn: &mut Turn<'_>,
    what: &str,
    ask: Diff,
    offset: Option<u64>,
    limit: Option<u64>,
) -> Result<Answer, Failure> {
    let page = Page {
        offset: offset.unwrap_or(0),
        limit: limit.unwrap_or(BYTES_DEFAULT).clamp(1, BYTES_MAX),
    };
    let (mut at, mut bytes) = (0u64, Vec::new());
    let end = page.offset.saturating_add(page.limit);
    let answer: PatchAnswer = turn.ask_data(what, &Call::Patch(ask), &mut |piece| {
        let within = |n: u64| n.saturating_sub(at).min(piece.len() as u64) as usize;
        bytes.extend_from_slice(&piece[within(page.offset)..within(end)]);
        at += piece.len() as u64;
    })?;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    for path in &answer.left_out {
        let path = String::from_utf8_lossy(&path.0);
        text.push_str(&format!("\n# changed, but not in the patch: {path}"));
    }
    Ok(page.noted(Answer::text(text), bytes.len() as u64, at))
}

/// A change as a row of `diff`.
pub fn change_row(change: &Changed) -> String {
    let status = change.status.to_string();
    let mut cells: Vec<&[u8]> = vec![status.as_bytes()];
    cells.extend(change.old_path.as_ref().map(|path| path.0.as_slice()));
    cells.push(&change.path.0);
    row(&cells)
}
