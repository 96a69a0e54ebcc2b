//! Arguments of `branch`.

use super::RowArgs;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// What can be done with branches, also without `branch` before it.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum DailyBranchVerb {
    /// Merge a branch into another; on conflicts nothing changes unless --conflicts keep is given
    #[command(after_help = "Example:\n  agentvfs merge fix --into main\n\n\
        `agentvfs undo` reverses it.")]
    Merge(MergeArgs),
    /// Print the directory that shows a branch
    #[command(after_help = "Example:\n  cd \"$(agentvfs switch fix)\"\n\n\
        Every branch has a directory of its own, so nothing is switched: work in that directory is\n\
        work on that branch.")]
    Switch(BranchNameArgs),
}

/// What can be done with branches.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum BranchVerb {
    /// Create a branch from the files as they are now, or from a commit; print its path
    #[command(after_help = "Example:\n  agentvfs branch create fix --from before-refactor")]
    Create(CreateArgs),
    /// List the branches: name, head, path; on a terminal as a tree, with what sets each apart from its origin
    #[command(after_help = "Example:\n  agentvfs branch list")]
    List(ListBranchesArgs),
    /// Delete a branch; gc removes its last state later
    #[command(after_help = "Example:\n  agentvfs branch delete fix")]
    Delete(BranchNameArgs),
    /// Rename a branch
    #[command(after_help = "Example:\n  agentvfs branch rename fix fix-2")]
    Rename(RenameArgs),
    #[command(flatten)]
    #[allow(missing_docs)]
    Daily(DailyBranchVerb),
    /// List the unresolved conflicts of the last merge: kind, path
    #[command(after_help = "Example:\n  agentvfs branch conflicts --branch main")]
    Conflicts(ConflictsArgs),
    /// Resolve a conflict with one side's version, or with the file as it is now
    #[command(after_help = "Example:\n  agentvfs branch resolve src/main.rs --theirs")]
    Resolve(ResolveArgs),
    /// List what differs between two branches
    #[command(after_help = "Example:\n  agentvfs branch diff main fix")]
    Diff(BranchDiffArgs),
}

#[doc = concat!("Arguments of `branch create`.")]
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Name of the new branch
    pub name: String,
    /// Create it from this commit instead: a label, commit id, unique prefix of one, @, @~N, or one of
    /// these after BRANCH:
    #[arg(long, value_name = "REF")]
    pub from: Option<String>,
}

#[doc = concat!("Arguments of `branch list`.")]
#[derive(Debug, Args)]
pub struct ListBranchesArgs {
    /// On a terminal, print times in full, in the local time zone, not as times ago
    #[arg(long)]
    pub absolute: bool,
    /// How rows are printed
    #[command(flatten)]
    pub rows: RowArgs,
}

#[doc = concat!("A branch's name.")]
#[derive(Debug, Args)]
pub struct BranchNameArgs {
    /// The branch
    pub name: String,
}

#[doc = concat!("Arguments of `branch rename`.")]
#[derive(Debug, Args)]
pub struct RenameArgs {
    /// The branch
    pub name: String,
    /// Its new name
    pub new: String,
}

/// What to do with conflicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ConflictsArg {
    /// Commit the files with conflict markers
    Keep,
    /// Change nothing
    Abort,
}

#[doc = concat!("Arguments of `branch merge`.")]
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// The branch to merge
    pub name: String,
    /// The branch to merge into [default: --branch, else main]
    #[arg(long, value_name = "BRANCH")]
    pub into: Option<String>,
    /// Change nothing; list what would change
    #[arg(long)]
    pub dry_run: bool,
    /// What to do with conflicts
    #[arg(long, value_name = "HOW", default_value = "abort")]
    pub conflicts: ConflictsArg,
    /// Label for the merge commit
    #[arg(long, value_name = "LABEL")]
    pub label: Option<String>,
    /// Message for the merge commit
    #[arg(long, short, value_name = "TEXT")]
    pub message: Option<String>,
    /// End rows with NUL instead of a newline, and do not quote names
    #[arg(short = 'z')]
    pub nul: bool,
}

#[doc = concat!("Arguments of `branch conflicts`.")]
#[derive(Debug, Args)]
pub struct ConflictsArgs {
    /// The branch [default: --branch, else main]
    #[arg(value_name = "BRANCH")]
    pub name: Option<String>,
    /// How rows are printed.
    #[command(flatten)]
    pub rows: RowArgs,
}

#[doc = concat!("Arguments of `branch resolve`.")]
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("version").required(true).args(["ours", "theirs", "base", "working"])))]
pub struct ResolveArgs {
    /// The path in conflict
    pub path: PathBuf,
    /// The version of the branch that was merged into
    #[arg(long)]
    pub ours: bool,
    /// The version of the branch that was merged
    #[arg(long)]
    pub theirs: bool,
    /// The version of the merge base
    #[arg(long)]
    pub base: bool,
    /// The file as it is now
    #[arg(long)]
    pub working: bool,
}

#[doc = concat!("Arguments of `branch diff`.")]
#[derive(Debug, Args)]
pub struct BranchDiffArgs {
    /// The branch to compare from
    pub from: String,
    /// The branch to compare to
    pub to: String,
    /// Compare only this path and what is below it; may be repeated
    #[arg(long, value_name = "PATH")]
    pub path: Vec<PathBuf>,
    /// How rows are printed.
    #[command(flatten)]
    pub rows: RowArgs,
}
