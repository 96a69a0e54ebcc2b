//! Arguments of `run`.

use agentvfs_client::units;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What `run --help` ends with.
pub const RUN_HELP: &str = "Examples:\n  agentvfs run --session review -- claude\n  \
    agentvfs run --session review -- bash     # join it from another terminal\n\n\
    The command sees the project at its own path, and changes its branch instead. The rest of\n\
    the machine is read-only; /tmp is the session's own; /run, keys and tokens in the home\n\
    directory, and sockets of other programs are hidden; docs/sandbox.md has the details. Every\n\
    process that the command leaves running ends with it. What it changed stays in the branch\n\
    until you apply, merge or delete that.\n\n\
    The exit status is the command's own, 128+N if signal N ended it; 126 if it cannot be\n\
    executed, 127 if it is not found, 124 if its --time has run out, 125 if agentvfs failed,\n\
    2 for wrong usage. SIGTERM is passed on; a second one kills it.";

/// What says how a command is run.
const OF_A_RUN: [&str; 24] = [
    "agent",
    "session",
    "from",
    "at",
    "cwd",
    "net",
    "no_network",
    "env",
    "allow",
    "show",
    "hide",
    "no_default_allows",
    "allow_socket",
    "strict",
    "best_effort",
    "no_sandbox",
    "pids",
    "memory",
    "cpu",
    "time",
    "then",
    "report",
    "quiet",
    "command",
];

/// What says how a sandbox is made.
const OF_A_SANDBOX: [&str; 9] = [
    "net",
    "no_network",
    "allow",
    "allow_socket",
    "show",
    "hide",
    "no_default_allows",
    "strict",
    "best_effort",
];

#[doc = concat!("Arguments of `run`.")]
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Run an agent with hooks, MCP server and instructions for this run alone; the words are its
    /// arguments: claude, codex or opencode
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Branch to run in: created if it does not exist, joined if it does [default: a new branch,
    /// which is deleted at the end if nothing changed]
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// Project to start a workspace on [default: the workspace that holds the current directory,
    /// else the current directory]
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
    /// Path that shows the branch [default: the project's own]
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
    /// Working directory of the command [default: the current directory if it is in the project,
    /// else the project's]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Network of the command
    #[arg(long, value_name = "KIND", default_value = "host")]
    pub net: NetArg,
    /// The same as --net none
    #[arg(long, conflicts_with = "net")]
    pub no_network: bool,
    /// Set an environment variable; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub env: Vec<OsString>,
    /// Let the command write to a file or directory outside the project; a file is a copy, which is
    /// written back; can be repeated
    #[arg(long, value_name = "PATH")]
    pub allow: Vec<PathBuf>,
    /// Let the command connect to a socket outside, such as $SSH_AUTH_SOCK; can be repeated
    #[arg(long, value_name = "PATH")]
    pub allow_socket: Vec<PathBuf>,
    /// Show a path that is hidden by default, read-only; can be repeated
    #[arg(long, value_name = "PATH")]
    pub show: Vec<PathBuf>,
    /// Show an empty file or directory instead of a path; can be repeated
    #[arg(long, value_name = "PATH")]
    pub hide: Vec<PathBuf>,
    /// Show agents' directories and caches in the home directory as they are, read-only [default: the
    /// command may write to them; see docs/sandbox.md for what of that is written outside]
    #[arg(long)]
    pub no_default_allows: bool,
    /// Deny user namespaces, too, and limit writing by Landlock: agents' own sandboxes do not work then
    #[arg(long)]
    pub strict: bool,
    /// Run also if this kernel lacks a part of the sandbox, without that part; print which [default: an error]
    #[arg(long)]
    pub best_effort: bool,
    /// Only show the branch at the project's path: the command can do elsewhere whatever you can
    #[arg(long, conflicts_with_all = OF_A_SANDBOX)]
    pub no_sandbox: bool,
    /// End the command after this time: SIGTERM, five seconds later SIGKILL
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub time: Option<Duration>,
    /// Limit the command and all that it starts to so many processes and threads; needs a cgroup
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub pids: Option<u64>,
    /// Limit their memory, such as 2G; they get no swap; needs a cgroup
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// Limit their processor time, in percent of one processor; needs a cgroup
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub cpu: Option<u64>,
    /// What to do with the branch if the command succeeds and no other run uses it
    #[arg(long, value_name = "WHAT", default_value = "keep")]
    pub then: ThenArg,
    /// Write what ran and what became of it to a file, as one JSON object; it is replaced when all is done
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print nothing but errors
    #[arg(long)]
    pub quiet: bool,
    /// Run nothing; list the runs that are alive: run, session, branch, process ids, start, command
    #[arg(long, conflicts_with_all = OF_A_RUN, conflicts_with_all = ["stop", "discard"])]
    pub list: bool,
    /// End rows of --list with NUL instead of a newline, and do not quote names
    #[arg(short = 'z', requires = "list")]
    pub nul: bool,
    /// Run nothing; end the runs of a session, or one run: SIGTERM for their commands
    #[arg(long, value_name = "NAME", conflicts_with_all = OF_A_RUN, conflicts_with = "discard")]
    pub stop: Option<String>,
    /// Kill what does not end on SIGTERM
    #[arg(long, requires = "stop")]
    pub force: bool,
    /// Run nothing; delete the branch of a session that has no runs
    #[arg(long, value_name = "NAME", conflicts_with_all = OF_A_RUN)]
    pub discard: Option<String>,
    /// The command and its arguments [default: $SHELL]
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// A network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NetArg {
    /// The machine's
    Host,
    /// Its own, without connection
    None,
}

/// What is done with a branch after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ThenArg {
    /// Nothing
    Keep,
    /// Write its changes to the project's directory, all or none of them
    Apply,
    /// Merge it into the branch that it was created from
    Merge,
    /// Delete it
    Discard,
}

fn duration(text: &str) -> Result<Duration, String> {
    let is_some = |time: &Duration| !time.is_zero();
    let time = units::duration(text).filter(is_some);
    time.ok_or_else(|| "a duration is 90s, 5m or 1h30m".to_owned())
}

fn size(text: &str) -> Result<u64, String> {
    let size = units::size(text).filter(|bytes| *bytes > 0);
    size.ok_or_else(|| "a size is 500M, 2G or a number of bytes".to_owned())
}
