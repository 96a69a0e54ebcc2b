//! Arguments of `branch`.

use super::RowArgs;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// What can be done with branches.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum BranchVerb {
    /// Make a branch of everything as it is now, or of a commit; it is at once at the path printed
    #[command(after_help = "Example:\n  agentvfs branch create fix --from before-refactor")]
    Create(CreateArgs),
    /// List the branches: name, head, path
    #[command(after_help = "Example:\n  agentvfs branch list")]
    List(RowArgs),
    /// Delete a branch; what it showed last stays as a commit until it is collected
    #[command(after_help = "Example:\n  agentvfs branch delete fix")]
    Delete(BranchNameArgs),
    /// Give a branch another name
    #[command(after_help = "Example:\n  agentvfs branch rename fix fix-2")]
    Rename(RenameArgs),
    /// Merge a branch into another; with conflicts nothing is changed unless they are to be kept
    #[command(after_help = "Example:\n  agentvfs branch merge fix --into main\n\n\
        `agentvfs workspace undo` takes it back.")]
    Merge(MergeArgs),
    /// List the conflicts of the last merge that are not settled: kind, path
    #[command(after_help = "Example:\n  agentvfs branch conflicts --branch main")]
    Conflicts(ConflictsArgs),
    /// Settle a conflict by one side's version, or by what is there now
    #[command(after_help = "Example:\n  agentvfs branch resolve src/main.rs --theirs")]
    Resolve(ResolveArgs),
    /// List what differs between two branches as they are now
    #[command(after_help = "Example:\n  agentvfs branch diff main fix")]
    Diff(BranchDiffArgs),
}

#[doc = concat!("Arguments of `branch create`.")]
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Name of the new branch
    pub name: String,
    /// The commit to make it of, instead of the files as they are: a label, commit id, unique prefix
    /// of one, @, @~N, or one of these after BRANCH:
    #[arg(long, value_name = "REF")]
    pub from: Option<String>,
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
    /// Make a commit that shows them, with markers
    Keep,
    /// Change nothing
    Abort,
}

#[doc = concat!("Arguments of `branch merge`.")]
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// The branch that is merged
    pub name: String,
    /// The branch that is changed [default: --branch, else main]
    #[arg(long, value_name = "BRANCH")]
    pub into: Option<String>,
    /// Change nothing; list what would change
    #[arg(long)]
    pub dry_run: bool,
    /// What to do with conflicts
    #[arg(long, value_name = "HOW", default_value = "abort")]
    pub conflicts: ConflictsArg,
    /// Label for the merge's commit
    #[arg(long, value_name = "LABEL")]
    pub label: Option<String>,
    /// Message for it
    #[arg(long, short, value_name = "TEXT")]
    pub message: Option<String>,
    /// End rows with NUL and quote nothing
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
    /// The version that both came from
    #[arg(long)]
    pub base: bool,
    /// What is there now
    #[arg(long)]
    pub working: bool,
}

#[doc = concat!("Arguments of `branch diff`.")]
#[derive(Debug, Args)]
pub struct BranchDiffArgs {
    /// From this branch
    pub from: String,
    /// To this one
    pub to: String,
    /// Compare only what lies at or below this path; may be given often
    #[arg(long, value_name = "PATH")]
    pub path: Vec<PathBuf>,
    /// How rows are printed.
    #[command(flatten)]
    pub rows: RowArgs,
}
