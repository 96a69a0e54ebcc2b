//! Arguments of `tool`, `timeline` and `blame`.

use super::RowArgs;
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// What can be done with tool calls.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ToolVerb {
    /// Note a call that is over already, and print its id
    #[command(
        after_help = "Example:\n  agentvfs tool record edit_file --params '{\"path\": \"src/main.rs\"}' --result true\n\n\
        What it changed is what differs from the call or rollback before it. To have the states before \
        and after\na call exactly, use `agentvfs tool start` and `success`, or `agentvfs tool exec`."
    )]
    Record(ToolRecordArgs),
    /// Note that a call begins, and print its id
    #[command(after_help = "Example:\n  id=$(agentvfs tool start edit_file)\n  \
        agentvfs tool success $id --result true\n\n\
        A call that begins and ends while another runs is part of that one. One that nobody ends is given up\n\
        after a time: see end-calls in `agentvfs config --help`.")]
    Start(ToolStartArgs),
    /// Note that a call has ended well
    #[command(after_help = "Example:\n  agentvfs tool success 7 --result '{\"lines\": 12}'")]
    Success(ToolSuccessArgs),
    /// Note that a call has failed, or that nobody will hear of it any more
    #[command(after_help = "Example:\n  agentvfs tool error 7 'no such file'")]
    Error(ToolErrorArgs),
    /// List the calls: id, tool, status, duration, start; newest first (as `agentvfs timeline`)
    #[command(after_help = "Example:\n  agentvfs tool list --status error")]
    List(ListCallsArgs),
    /// Tell what a call changed in the files
    #[command(after_help = "Example:\n  agentvfs tool diff 7 --patch")]
    Diff(ToolDiffArgs),
    /// Take back what a call changed in files and keys, and nothing else; print the commit now shown
    #[command(after_help = "Example:\n  agentvfs tool undo 7\n\n\
        What was changed there since is kept where it fits; else it is a conflict, and nothing changes.\n\
        Calls inside the call are taken back with it. Where another call ran at the same time, and the branch\n\
        changed meanwhile, it is not known whose that was: then it is refused.\n\
        `agentvfs workspace undo` takes it back.")]
    Undo(ToolUndoArgs),
    /// Run a command here as a call: note what it was, what it printed, how it ended, what it changed
    #[command(after_help = "Example:\n  agentvfs tool exec test -- cargo test\n\n\
        Its exit status is the command's own; 126 where that cannot be run, 127 where it is not found,\n\
        125 where the call cannot be noted. It ends with the command: what that leaves running goes on, and\n\
        its output goes where it went. SIGTERM is passed on, a second one kills the command. With --json what the command prints goes to standard error,\n\
        and standard output has the call's id, commit and exit_status.")]
    Exec(ToolExecArgs),
}

#[doc = concat!("Arguments of `tool record`.")]
#[derive(Debug, Args)]
pub struct ToolRecordArgs {
    /// Name of the tool
    pub name: String,
    /// What it was called with
    #[arg(long, value_name = "JSON")]
    pub params: Option<String>,
    /// What it returned
    #[arg(long, value_name = "JSON")]
    pub result: Option<String>,
    /// Why it failed
    #[arg(long, value_name = "TEXT", conflicts_with = "result")]
    pub error: Option<String>,
    /// When it began, in RFC 3339 or as a time ago (90s, 5m); else when it ended
    #[arg(long, value_name = "TIME")]
    pub started: Option<String>,
    /// When it ended; else now
    #[arg(long, value_name = "TIME")]
    pub completed: Option<String>,
}

#[doc = concat!("Arguments of `tool start`.")]
#[derive(Debug, Args)]
pub struct ToolStartArgs {
    /// Name of the tool
    pub name: String,
    /// What it is called with
    #[arg(long, value_name = "JSON")]
    pub params: Option<String>,
}

#[doc = concat!("Arguments of `tool success`.")]
#[derive(Debug, Args)]
pub struct ToolSuccessArgs {
    /// The call
    pub id: u64,
    /// What it returned
    #[arg(long, value_name = "JSON")]
    pub result: Option<String>,
}

#[doc = concat!("Arguments of `tool error`.")]
#[derive(Debug, Args)]
pub struct ToolErrorArgs {
    /// The call
    pub id: u64,
    /// Why it failed
    pub message: String,
}

#[doc = concat!("Arguments of `tool list`, and of `timeline` with more.")]
#[derive(Debug, Args)]
pub struct ListCallsArgs {
    /// At most so many, the newest
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: u64,
    /// Only calls of this tool
    #[arg(long, value_name = "NAME")]
    pub filter: Option<String>,
    /// Only calls that are so
    #[arg(long, value_name = "STATUS")]
    pub status: Option<StatusArg>,
    /// A table also where nobody looks at it, or a JSON array
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<FormatArg>,
    /// Also rollbacks, undos, redos, merges and restores
    #[arg(long)]
    pub all: bool,
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
    /// Check instead that no entry was altered or removed; exit status 1 where one was
    #[arg(long, conflicts_with_all = ["limit", "filter", "status", "format", "all", "nul"])]
    pub verify: bool,
}

/// How a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StatusArg {
    /// It has not ended
    Pending,
    /// It worked
    Success,
    /// It failed
    Error,
}

/// How a list is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// Aligned, with a header
    Table,
    /// As a JSON array
    Json,
}

#[doc = concat!("Arguments of `tool diff`.")]
#[derive(Debug, Args)]
pub struct ToolDiffArgs {
    /// The call
    pub id: u64,
    /// Only what lies at or below this path; may be given often
    #[arg(long, value_name = "PATH")]
    pub path: Vec<PathBuf>,
    /// Print A, M, D, R or T and the path (the default)
    #[arg(long, conflicts_with_all = ["stat", "patch"])]
    pub name_status: bool,
    /// Print how many lines were added and removed, and the path
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
    /// The call
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
    /// At most so many, the newest
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: u64,
    /// How rows are printed
    #[command(flatten)]
    pub rows: RowArgs,
}
