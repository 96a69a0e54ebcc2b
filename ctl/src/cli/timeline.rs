//! Arguments of `tool`, `timeline` and `blame`.

use super::RowArgs;
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// What can be done with tool calls.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ToolVerb {
    /// Record a call that has ended already, and print its id
    #[command(
        after_help = "Example:\n  agentvfs tool record edit_file --params '{\"path\": \"src/main.rs\"}' --result true\n\n\
        Its changes are the differences from the previous call or rollback. To record the exact states \
        before and after\na call, use `agentvfs tool start` and `success`, or `agentvfs tool exec`."
    )]
    Record(ToolRecordArgs),
    /// Record the start of a call, and print its id
    #[command(after_help = "Example:\n  id=$(agentvfs tool start edit_file)\n  \
        agentvfs tool success $id --result true\n\n\
        A call that begins and ends while another runs is part of that one. A call that is never ended\n\
        times out: see end-calls in `agentvfs config --help`.")]
    Start(ToolStartArgs),
    /// Record that a call succeeded
    #[command(after_help = "Example:\n  agentvfs tool success 7 --result '{\"lines\": 12}'")]
    Success(ToolSuccessArgs),
    /// Record that a call failed or was abandoned
    #[command(after_help = "Example:\n  agentvfs tool error 7 'no such file'")]
    Error(ToolErrorArgs),
    /// List the calls: id, tool, status, duration, start; newest first (as `agentvfs timeline`)
    #[command(after_help = "Example:\n  agentvfs tool list --status error")]
    List(ListCallsArgs),
    /// Show what a call changed in the files
    #[command(after_help = "Example:\n  agentvfs tool diff 7 --patch")]
    Diff(ToolDiffArgs),
    /// Undo only what a call changed in files and keys; print the commit that is now shown
    #[command(after_help = "Example:\n  agentvfs tool undo 7\n\n\
        Later changes are merged with the undo; on a conflict nothing changes. Calls inside the call are\n\
        undone with it. If another call ran at the same time, only what the call's own processes changed is\n\
        undone. If both changed a file, or it is not known which call made a change, the undo is refused and\n\
        says why.\n\
        `agentvfs undo` reverses it.")]
    Undo(ToolUndoArgs),
    /// Run a command as a call; record the command, its output, its exit status and its changes
    #[command(after_help = "Example:\n  agentvfs tool exec test -- cargo test\n\n\
        The exit status is the command's own; 126 if it cannot be run, 127 if it is not found, 125 if the\n\
        call cannot be recorded. The call ends with the command; processes that it leaves running go on, and\n\
        so does their output. SIGTERM is passed on; a second one kills the command. With --json the command's\n\
        output goes to standard error, and standard output has the call's id, commit and exit_status.")]
    Exec(ToolExecArgs),
}

#[doc = concat!("Arguments of `tool record`.")]
#[derive(Debug, Args)]
pub struct ToolRecordArgs {
    /// Name of the tool
    pub name: String,
    /// Its parameters
    #[arg(long, value_name = "JSON")]
    pub params: Option<String>,
    /// Its result
    #[arg(long, value_name = "JSON")]
    pub result: Option<String>,
    /// Why it failed
    #[arg(long, value_name = "TEXT", conflicts_with = "result")]
    pub error: Option<String>,
    /// Start time, in RFC 3339 or as a time ago (90s, 5m) [default: --completed]
    #[arg(long, value_name = "TIME")]
    pub started: Option<String>,
    /// End time [default: now]
    #[arg(long, value_name = "TIME")]
    pub completed: Option<String>,
}

#[doc = concat!("Arguments of `tool start`.")]
#[derive(Debug, Args)]
pub struct ToolStartArgs {
    /// Name of the tool
    pub name: String,
    /// Its parameters
    #[arg(long, value_name = "JSON")]
    pub params: Option<String>,
}

#[doc = concat!("Arguments of `tool success`.")]
#[derive(Debug, Args)]
pub struct ToolSuccessArgs {
    /// Id of the call
    pub id: u64,
    /// Its result
    #[arg(long, value_name = "JSON")]
    pub result: Option<String>,
}

#[doc = concat!("Arguments of `tool error`.")]
#[derive(Debug, Args)]
pub struct ToolErrorArgs {
    /// Id of the call
    pub id: u64,
    /// Why it failed
    pub message: String,
}

#[doc = concat!("Arguments of `tool list`, and of `timeline` with more.")]
#[derive(Debug, Args)]
pub struct ListCallsArgs {
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: u64,
    /// Only calls of this tool
    #[arg(long, value_name = "NAME")]
    pub filter: Option<String>,
    /// Only calls with this status
    #[arg(long, value_name = "STATUS")]
    pub status: Option<StatusArg>,
    /// Print a table even if standard output is no terminal, or a JSON array
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<FormatArg>,
    /// Include rollbacks, undos, redos, merges and restores, and the timelines of merged branches
    #[arg(long)]
    pub all: bool,
    /// On a terminal, print times in full, in the local time zone, not as times ago
    #[arg(long)]
    pub absolute: bool,
    /// How rows are printed
    #[command(flatten)]
    pub rows: RowArgs,
}

#[doc = concat!("Arguments of `timeline`.")]
#[derive(Debug, Args)]
pub struct TimelineArgs {
    /// What to list
    #[command(flatten)]
    pub list: ListCallsArgs,
    /// Check instead that no entry was altered or removed; exit status 1 if one was
    #[arg(long, conflicts_with_all = ["limit", "filter", "status", "format", "all", "absolute", "nul"])]
    pub verify: bool,
}

/// How a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StatusArg {
    /// Calls that have not ended
    Pending,
    /// Calls that succeeded
    Success,
    /// Calls that failed
    Error,
}

/// How a list is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// Aligned columns with a header
    Table,
    /// A JSON array
    Json,
}

#[doc = concat!("Arguments of `tool diff`.")]
#[derive(Debug, Args)]
pub struct ToolDiffArgs {
    /// Id of the call
    pub id: u64,
    /// Only this path and what is below it; may be repeated
    #[arg(long, value_name = "PATH")]
    pub path: Vec<PathBuf>,
    /// Print A, M, D, R or T and the path (the default)
    #[arg(long, conflicts_with_all = ["stat", "patch"])]
    pub name_status: bool,
    /// Print the number of added and removed lines, and the path
    #[arg(long, conflicts_with = "patch")]
    pub stat: bool,
    /// Print a patch for git apply or patch -p1
    #[arg(long, short)]
    pub patch: bool,
    /// How rows are printed
    #[command(flatten)]
    pub rows: RowArgs,
}

#[doc = concat!("Arguments of `tool undo`.")]
#[derive(Debug, Args)]
pub struct ToolUndoArgs {
    /// Id of the call
    pub id: u64,
    /// Change nothing; list what would change
    #[arg(long)]
    pub dry_run: bool,
    /// How rows are printed
    #[command(flatten)]
    pub rows: RowArgs,
}

#[doc = concat!("Arguments of `tool exec`.")]
#[derive(Debug, Args)]
pub struct ToolExecArgs {
    /// Name of the tool
    pub name: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[doc = concat!("Arguments of `blame`.")]
#[derive(Debug, Args)]
pub struct BlameArgs {
    /// A file or directory
    pub path: PathBuf,
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: u64,
    /// Do not follow renames: only look at this name
    #[arg(long)]
    pub no_follow: bool,
    /// Print for each line of a file what it comes from: kind, call or commit, time, line number, line
    #[arg(long, short)]
    pub lines: bool,
    /// On a terminal, print times in full, in the local time zone, not as times ago
    #[arg(long)]
    pub absolute: bool,
    /// How rows are printed
    #[command(flatten)]
    pub rows: RowArgs,
}
