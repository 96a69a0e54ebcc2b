//! `agentvfs` alone: where one is, and what can be done next.
//!
//! Invariant: changes nothing, and starts no daemon in a home in which nothing was ever kept.

use super::Context;
use crate::output::{print, print_json};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Info, WorkspaceStatus};
use agentvfs_client::quote::shown;
use serde_json::json;

/// What can be done in a workspace that runs.
const RUNS: &[(&str, &str)] = &[
    ("status", "show its state"),
    ("checkpoint LABEL", "commit all files as they are now"),
    ("diff", "list what changed since the last commit"),
    ("log", "list the commits"),
    (
        "rollback",
        "go back to the last checkpoint; undo reverses it",
    ),
    (
        "branch create NAME",
        "create a branch in a directory of its own",
    ),
    ("run -- CMD", "run a command in a sandbox, on a branch"),
    ("apply", "write the changes to the project's directory"),
];

/// What can be done in one that does not.
const STOPPED: &[(&str, &str)] = &[
    ("start", "mount it"),
    ("log", "list the commits"),
    ("delete", "delete it with all its commits"),
];

/// How to begin.
const BEGIN: &[(&str, &str)] = &[
    (
        "start --from DIR",
        "create and mount a workspace of a project",
    ),
    (
        "run -- CMD",
        "run a command on a branch of the current directory, in a sandbox",
    ),
    ("doctor", "check what this machine has and lacks"),
];

/// Prints it.
pub fn run(context: &mut Context) -> Result<u8, Failure> {
    let name = here(context)?;
    let info = match &name {
        Some(name) => context.info(name)?,
        None => None,
    };
    let branch = context.branch()?;
    if context.json() {
        print_json(&json!({
            "workspace": name,
            "branch": name.as_ref().map(|_| &branch),
            "status": info.as_ref().map(|info| info.status.word()),
        }))?;
        return Ok(0);
    }
    let text = match (&name, &info) {
        (Some(_), Some(info)) => inside(info, &branch),
        // The name comes from an option or variable.
        (Some(name), None) => outside(&format!("There is no workspace {name}.")),
        (None, _) if context.list()?.is_empty() => outside("There are no workspaces."),
        (None, _) => {
            outside("No workspace holds this directory; agentvfs list lists those that exist.")
        }
    };
    print(text.as_bytes())?;
    Ok(0)
}

/// The workspace that is named, else the one that holds the current directory.
fn here(context: &mut Context) -> Result<Option<String>, Failure> {
    match context.surroundings().named(None)? {
        Some(name) => Ok(Some(name)),
        None => context.workspace_here(),
    }
}

fn inside(info: &Info, branch: &str) -> String {
    let runs = info.status == WorkspaceStatus::Started;
    let mut text = format!(
        "Workspace {} ({}), branch {branch}\n  mount    {}\n  project  {}\n",
        info.name,
        info.status.word(),
        shown(&info.mount.0),
        shown(&info.base.0)
    );
    push_next(&mut text, "What next:", if runs { RUNS } else { STOPPED });
    text
}

fn outside(why: &str) -> String {
    let mut text = format!("{why}\n");
    push_next(&mut text, "To begin:", BEGIN);
    text
}

fn push_next(text: &mut String, title: &str, verbs: &[(&str, &str)]) {
    text.push_str(&format!("\n{title}\n"));
    for (verb, about) in verbs {
        text.push_str(&format!("  agentvfs {verb:<20}{about}\n"));
    }
    text.push_str("\nagentvfs --help lists all commands; --help after one explains it.\n");
}
