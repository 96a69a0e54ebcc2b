//! Tools for branches and merges: `branch_create`, `branch_list`, `branch_merge`, `conflicts`, `resolve`.

use super::Tool;
use super::versions::change_row;
use crate::answer::{Answer, Page, row};
use crate::limits::ROWS_MAX;
use crate::session::Turn;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{
    BranchCreate, BranchList, BranchListAnswer, BranchMerge, BranchMergeAnswer, BranchResolve,
    BranchResolveAnswer, BranchRow, Bytes, Call, ConflictRow, ConflictsAnswer, KV_CONFLICTS,
    OnBranch, Version,
};
use agentvfs_client::render::{count, insert_bytes};
use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub fn tools() -> [Tool; 5] {
    [
        Tool::changes(
            "branch_create",
            "Create a branch: a copy of all files as they are now (or as in from), created at once whatever \
             their size. Changes in it do not affect the branch it came from. Returns the \
             directory where it is mounted; other tools take its name as branch.",
            branch_create,
        ),
        Tool::looks(
            "branch_list",
            "List the branches, main first, one a line: name, commit of its last checkpoint, and the directory \
             where it is mounted.",
            branch_list,
        ),
        Tool::changes(
            "branch_merge",
            "Merge the changes of one branch into another. If both changed the same, conflicts are \
             listed and nothing is changed; conflicts=keep commits them with markers instead, to be \
             resolved with resolve. undo reverses a merge.",
            branch_merge,
        ),
        Tool::looks(
            "conflicts",
            "List the unresolved conflicts of the last merge, one a line: kind and path.",
            conflicts,
        ),
        Tool::changes(
            "resolve",
            "Resolve a conflict: use one side's version of a path, or declare that the file as it is now \
             resolves it (working).",
            resolve,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct CreateArgs {
    /// Its name: letters, digits, dots, dashes and underscores
    name: String,
    /// A commit to make it from: a label, an id, @; the files as they are now without this
    from: Option<String>,
    /// The branch that it is made of, where it is not the one served
    branch: Option<String>,
}

fn branch_create(turn: &mut Turn<'_>, args: CreateArgs) -> Result<Answer, Failure> {
    let what = format!("cannot create branch {}", args.name);
    let call = Call::BranchCreate(BranchCreate {
        workspace: turn.workspace(),
        branch: turn.branch(args.branch),
        name: args.name,
        from: args.from,
    });
    let made: BranchRow = turn.ask(&what, &call)?;
    let mut object = Map::new();
    object.insert("name".into(), made.name.into());
    object.insert("commit".into(), made.commit.into());
    let unseen = turn.unseen();
    if unseen.is_none() {
        insert_bytes(&mut object, "path", &made.path.0);
    }
    Ok(told_unseen(Answer::json(&Value::Object(object)), unseen))
}

/// Says why there is no path where this process does not see the mount: what is written there is in no workspace.
fn told_unseen(answer: Answer, unseen: Option<String>) -> Answer {
    match unseen {
        Some(why) => answer.also(&format!(
            "the mount is not visible here ({why}): use the tools, with branch"
        )),
        None => answer,
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct ListArgs {
    /// How many to pass over; 0 without this
    offset: Option<u64>,
    /// How many to give at most; 100 without this, 1000 at most
    limit: Option<u64>,
}

fn branch_list(turn: &mut Turn<'_>, args: ListArgs) -> Result<Answer, Failure> {
    let call = Call::BranchList(BranchList {
        workspace: turn.workspace(),
        standing: false,
    });
    let answer: BranchListAnswer = turn.ask("cannot list the branches", &call)?;
    let unseen = turn.unseen();
    let shown = |b: &BranchRow| {
        let commit = b.commit.as_deref().unwrap_or("pending");
        let path: &[u8] = if unseen.is_none() { &b.path.0 } else { b"-" };
        row(&[b.name.as_bytes(), commit.as_bytes(), path])
    };
    let listed = Page::new(args.offset, args.limit).of(&answer.branches, shown);
    Ok(told_unseen(listed, unseen))
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "rmcp::schemars")]
enum Conflicts {
    #[default]
    Abort,
    Keep,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct MergeArgs {
    /// The branch whose changes are taken
    from: String,
    /// The branch that is changed, where it is not the one served
    into: Option<String>,
    /// With conflicts: abort (without this) changes nothing, keep commits them with markers
    #[serde(default)]
    conflicts: Conflicts,
    /// Change nothing, tell what would happen
    #[serde(default)]
    dry_run: bool,
    /// A name for the merge's commit
    label: Option<String>,
    /// Why it was made
    #[serde(default)]
    message: String,
}

fn branch_merge(turn: &mut Turn<'_>, args: MergeArgs) -> Result<Answer, Failure> {
    let into = turn.branch(args.into);
    let what = format!("cannot merge {} into {into}", args.from);
    let call = Call::BranchMerge(BranchMerge {
        workspace: turn.workspace(),
        from: args.from,
        into,
        keep_conflicts: args.conflicts == Conflicts::Keep,
        dry_run: args.dry_run,
        label: args.label,
        message: args.message,
        progress: false,
    });
    let answer: BranchMergeAnswer = turn.ask(&what, &call)?;
    let told = merged(&answer, args.dry_run);
    if answer.conflicts.is_empty() || answer.commit.is_some() || args.dry_run {
        return Ok(Answer::json(&told));
    }
    let many = count(answer.conflicts.len() as u64, "conflict");
    let failure = Failure::new(what, format!("{many}; nothing was changed"))
        .hint("conflicts=keep commits them with markers; resolve resolves them");
    Ok(Answer::failure(&failure).note(told.to_string()))
}

/// What a merge did; of very many paths the first.
fn merged(answer: &BranchMergeAnswer, dry_run: bool) -> Value {
    let most = ROWS_MAX as usize;
    let conflicts = answer.conflicts.iter().take(most).map(conflict_object);
    let mut told = json!({
        "status": answer.status,
        "commit": answer.commit,
        "conflicts": conflicts.collect::<Vec<_>>(),
        "conflict_count": answer.conflicts.len(),
        "files_changed": answer.files_changed,
    });
    if dry_run {
        let changes = answer.changes.iter().take(most).map(change_row);
        told["changes"] = changes.collect::<Vec<_>>().into();
        told["change_count"] = answer.changes.len().into();
    }
    told
}

pub(super) fn conflict_object(conflict: &ConflictRow) -> Value {
    let mut object = Map::new();
    insert_bytes(&mut object, "path", &conflict.path.0);
    object.insert("kind".into(), conflict.kind.clone().into());
    Value::Object(object)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct ConflictsArgs {
    /// How many to pass over; 0 without this
    offset: Option<u64>,
    /// How many to give at most; 100 without this, 1000 at most
    limit: Option<u64>,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn conflicts(turn: &mut Turn<'_>, args: ConflictsArgs) -> Result<Answer, Failure> {
    let call = Call::BranchConflicts(OnBranch {
        workspace: turn.workspace(),
        branch: turn.branch(args.branch),
    });
    let answer: ConflictsAnswer = turn.ask("cannot list the conflicts", &call)?;
    let shown = |c: &ConflictRow| row(&[c.kind.as_bytes(), &c.path.0]);
    Ok(Page::new(args.offset, args.limit).of(&answer.conflicts, shown))
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "rmcp::schemars")]
enum Take {
    Ours,
    Theirs,
    Base,
    Working,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct ResolveArgs {
    /// The path in conflict, as conflicts lists it
    path: String,
    /// ours: the branch that was merged into; theirs: the one that was merged; base: their common
    /// ancestor; working: the file as it is now
    take: Take,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn resolve(turn: &mut Turn<'_>, args: ResolveArgs) -> Result<Answer, Failure> {
    let state = turn.state(args.branch, None);
    // A key in conflict stands below a path that no file has.
    let path = match args.path.as_bytes().starts_with(KV_CONFLICTS) {
        true => args.path.clone().into_bytes(),
        false => turn.path(&state, &args.path)?,
    };
    let call = Call::BranchResolve(BranchResolve {
        workspace: state.workspace,
        branch: state.branch,
        path: Bytes(path),
        by: match args.take {
            Take::Ours => Version::Ours,
            Take::Theirs => Version::Theirs,
            Take::Base => Version::Base,
            Take::Working => Version::Working,
        },
    });
    let answer: BranchResolveAnswer = turn.ask(&format!("cannot resolve {}", args.path), &call)?;
    Ok(Answer::json(
        &json!({ "left": answer.left, "files_changed": answer.files_changed }),
    ))
}
