//! Arguments of `workspace`.

use super::{ConflictsArg, RestoreArgs, RowArgs, UndoArgs};
use agentvfs_client::protocol::Telemetry;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// What can be done with a workspace.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Verb {
    /// Create a workspace from a project's directory without mounting it
    #[command(after_help = "Example:\n  agentvfs init my-task --from project")]
    Init(InitArgs),
    /// Mount a workspace; with --from, create it if it does not exist
    #[command(after_help = "Example:\n  agentvfs start --from project")]
    Start(StartArgs),
    /// Unmount a workspace; an automatic commit keeps what was not checkpointed
    #[command(after_help = "Example:\n  agentvfs stop my-task")]
    Stop(StopArgs),
    /// Show the state of a workspace; exit status 0 only if it runs and is healthy
    #[command(after_help = "Examples:\n  agentvfs status --json\n  \
        agentvfs status --log")]
    Status(StatusArgs),
    /// List the workspaces: name, status, mount
    #[command(after_help = "Example:\n  agentvfs list")]
    List(RowArgs),
    /// Delete a stopped workspace with all its commits; the project's directory does not change
    #[command(after_help = "Example:\n  agentvfs delete my-task --yes")]
    Delete(DeleteArgs),
    /// Commit all files and keys as they are now, and print the commit id
    #[command(override_usage = "agentvfs checkpoint [OPTIONS] [[WORKSPACE] LABEL]")]
    #[command(after_help = "Example:\n  agentvfs checkpoint before-refactor --meta turn=12")]
    Checkpoint(CheckpointArgs),
    /// Roll back to the last checkpoint, or to the commit that REF, --before or --meta names
    #[command(
        override_usage = "agentvfs rollback [OPTIONS] [[WORKSPACE] REF]\n       \
        agentvfs rollback [OPTIONS] <--before TIME|--meta KEY=VALUE> [WORKSPACE]"
    )]
    #[command(after_help = "Example:\n  agentvfs rollback --before 5m\n\n\
        The replaced state is kept: `agentvfs undo` brings it back.")]
    Rollback(RollbackArgs),
    /// Restore files or directories from the last checkpoint or from REF, in place or elsewhere
    #[command(after_help = "Examples:\n  agentvfs restore src/main.rs\n  \
        agentvfs restore --ref before-refactor src docs\n  \
        agentvfs restore --ref @~1 src --to /tmp/old\n\n\
        The replaced state is kept: `agentvfs undo` brings it back.")]
    Restore(RestoreArgs),
    /// Undo the branch's last rollback, restore, merge, resolve or update
    #[command(after_help = "Example:\n  agentvfs undo\n\n\
        Files and keys become what that command replaced. `agentvfs redo` reverses the undo.\n\
        If a checkpoint or an apply came later, undo changes nothing unless --over-later-changes is\n\
        given; neither of the two is undone.")]
    Undo(UndoArgs),
    /// Reverse the last undo
    #[command(after_help = "Example:\n  agentvfs redo")]
    Redo(OneWorkspace),
    /// List the commits: id, time, label, message; newest first
    #[command(after_help = "Examples:\n  agentvfs log --graph\n  agentvfs log --json")]
    Log(LogArgs),
    /// Show what differs from the head, from REF, between two refs, or from the base
    #[command(
        override_usage = "agentvfs diff [OPTIONS] [WORKSPACE] [REF [REF]] [PATH]... [-- PATH...]\n       \
        agentvfs diff [OPTIONS] --base [WORKSPACE] [PATH]... [-- PATH...]"
    )]
    #[command(
        after_help = "Examples:\n  agentvfs diff before-refactor src/main.rs\n  \
        agentvfs diff --base --patch | git -C project apply"
    )]
    Diff(DiffArgs),
    /// Write a branch's changes to the project's directory, all or none of them
    #[command(after_help = "Examples:\n  agentvfs apply --dry-run\n  \
        agentvfs apply my-task --branch fix\n\n\
        What both sides changed is merged. If there are conflicts, nothing changes.")]
    Apply(ApplyArgs),
    /// Merge what changed in the project's directory into a branch
    #[command(after_help = "Example:\n  agentvfs update\n\n\
        `agentvfs undo` reverses it.")]
    Update(UpdateArgs),
}

#[doc = concat!("Arguments of `apply`.")]
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// The workspace
    #[arg(value_name = "WORKSPACE")]
    pub name: Option<String>,
    /// Show what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Only write the changes to FILE as a patch (-: standard output)
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    pub patch: Option<PathBuf>,
    /// Also apply set-id bits, devices, capabilities and files of other owners
    #[arg(long)]
    pub privileged: bool,
    /// Also apply files that run by themselves (.envrc, git hooks and the like; docs/sandbox.md lists them) if
    /// `agentvfs run` changed the branch since the last apply
    #[arg(long)]
    pub trust: bool,
    /// How rows are printed
    #[command(flatten)]
    pub rows: RowArgs,
}

#[doc = concat!("Arguments of `update`.")]
#[derive(Debug, Args)]
pub struct UpdateArgs {
    /// The workspace
    #[arg(value_name = "WORKSPACE")]
    pub name: Option<String>,
    /// Show what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// On conflicts, change nothing or commit the files with conflict markers
    #[arg(long, value_name = "WHAT", default_value = "abort")]
    pub conflicts: ConflictsArg,
    /// How rows are printed
    #[command(flatten)]
    pub rows: RowArgs,
}

#[doc = concat!("A workspace and nothing else.")]
#[derive(Debug, Args)]
pub struct OneWorkspace {
    /// The workspace
    #[arg(value_name = "WORKSPACE")]
    pub name: Option<String>,
}

#[doc = concat!("Arguments of `status`.")]
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The workspace
    #[arg(value_name = "WORKSPACE")]
    pub name: Option<String>,
    /// Print the end of the daemon's log instead; works without a daemon
    #[arg(long)]
    pub log: bool,
}

#[doc = concat!("Arguments of `init`.")]
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Name of the new workspace [default: name of the directory]
    #[arg(value_name = "WORKSPACE")]
    pub name: Option<String>,
    /// The project's directory, which is only read
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub from: PathBuf,
    /// Mount point: the project's directory itself, an empty directory, or a new one
    #[arg(long, value_name = "DIR")]
    pub mount: Option<PathBuf>,
}

#[doc = concat!("Arguments of `start`.")]
#[derive(Debug, Args)]
pub struct StartArgs {
    /// The workspace; with --from its name [default: name of the directory]
    #[arg(value_name = "WORKSPACE")]
    pub name: Option<String>,
    /// The project's directory, which is only read; a named workspace whose directory is gone takes this one
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
    /// Create the workspace from the project of its name in this remote first, as `agentvfs clone` does
    #[arg(long, value_name = "URL", conflicts_with = "from")]
    pub clone: Option<String>,
    /// Mount point from now on: the project's directory itself, an empty directory, or a new one
    #[arg(long, value_name = "DIR")]
    pub mount: Option<PathBuf>,
    /// Do not mount it: SDKs and MCP work in it, and a later start mounts it; for machines without FUSE
    #[arg(long, conflicts_with_all = ["mount", "allow_other", "suid", "dev", "latency"])]
    pub no_mount: bool,
    /// Let other users access the mount, subject to permissions [default for root: true if they can pass every directory from / to the project]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allow_other: Option<bool>,
    /// Honor set-user-id bits in the mount
    #[arg(long)]
    pub suid: bool,
    /// Allow device nodes in the mount to be opened
    #[arg(long)]
    pub dev: bool,
    /// Whether to keep processors awake while requests come fast
    #[arg(long, value_name = "KIND", default_value = "low")]
    pub latency: LatencyArg,
    /// Append each change, checkpoint and tool call as a line of JSON to this file until the workspace is stopped; `opens`: each open of a file is an event, too, and takes four times as long
    #[arg(long, value_name = "FILE|opens")]
    pub audit: Vec<PathBuf>,
    /// Where events come from: `front` (changes), `fanotify` (opens and reads, also from cached pages; for root), `ebpf` (what runs execute, connect to and open; for root), several with commas, `auto`: all that can be had, or `none`
    #[arg(long, value_name = "SOURCES", default_value = "front")]
    pub telemetry: Telemetry,
}

/// How much waking up may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LatencyArg {
    /// Keep processors awake while requests come fast
    Low,
    /// Let idle processors sleep
    Normal,
}

#[doc = concat!("Arguments of `stop`.")]
#[derive(Debug, Args)]
pub struct StopArgs {
    /// The workspace
    #[arg(value_name = "WORKSPACE")]
    pub name: Option<String>,
    /// Stop even if processes use the workspace; their open files fail afterwards
    #[arg(long)]
    pub force: bool,
    /// Make no commit; changes since the last one are kept and shown again at the next start
    #[arg(long)]
    pub no_checkpoint: bool,
}

#[doc = concat!("Arguments of `delete`.")]
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// The workspace
    #[arg(value_name = "WORKSPACE")]
    pub name: Option<String>,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
}

#[doc = concat!("Arguments of `checkpoint`.")]
#[derive(Debug, Args)]
pub struct CheckpointArgs {
    /// The label, or workspace and label
    #[arg(value_name = "WORD", num_args = 0..=2)]
    pub words: Vec<String>,
    /// Why the commit was made
    #[arg(long, short, value_name = "TEXT")]
    pub message: Option<String>,
    /// Metadata to find the commit by, such as turn=12; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub meta: Vec<String>,
    /// Do not wait for the commit id while the project is still being imported
    #[arg(long)]
    pub no_wait: bool,
}

#[doc = concat!("Arguments of `rollback`.")]
#[derive(Debug, Args)]
pub struct RollbackArgs {
    /// A label, commit id, unique prefix of one, @ (HEAD) or @~N (HEAD~N); a workspace may come first
    #[arg(value_name = "WORD", num_args = 0..=2)]
    pub words: Vec<String>,
    /// The same as the word REF
    #[arg(long, value_name = "REF", conflicts_with_all = ["before", "meta"])]
    pub to: Option<String>,
    /// The newest commit, automatic ones included, from before a time: RFC 3339, or a time ago
    /// (90s, 5m, 2h, 1d)
    #[arg(long, value_name = "TIME", conflicts_with = "meta")]
    pub before: Option<String>,
    /// The newest commit with this metadata
    #[arg(long, value_name = "KEY=VALUE")]
    pub meta: Option<String>,
    /// Roll back only this path and what is below it; may be repeated
    #[arg(long, value_name = "PATH")]
    pub path: Vec<PathBuf>,
    /// Do not change keys (`agentvfs kv`); implied by --path
    #[arg(long)]
    pub keep_kv: bool,
    /// Change nothing; list what would change and which processes hold those files open
    #[arg(long)]
    pub dry_run: bool,
    /// End rows of --dry-run with NUL instead of a newline, and do not quote names
    #[arg(short = 'z', requires = "dry_run")]
    pub nul: bool,
}

#[doc = concat!("Arguments of `log`.")]
#[derive(Debug, Args)]
pub struct LogArgs {
    /// The workspace
    #[arg(value_name = "WORKSPACE")]
    pub name: Option<String>,
    /// Include automatic commits
    #[arg(long)]
    pub all: bool,
    /// Maximum number of commits
    #[arg(long, short = 'n', value_name = "N")]
    pub limit: Option<u64>,
    /// Print for each commit the first digits of its id, its labels and its message's first line
    #[arg(long, conflicts_with = "nul")]
    pub oneline: bool,
    /// Draw lines from commits to their parents, and fold automatic commits unless --all is given
    /// (the default on a terminal)
    #[arg(long, conflicts_with = "nul")]
    pub graph: bool,
    /// Print a table on a terminal
    #[arg(long, conflicts_with = "graph")]
    pub no_graph: bool,
    /// On a terminal, print times in full, in the local time zone, not as times ago
    #[arg(long)]
    pub absolute: bool,
    /// How rows are printed.
    #[command(flatten)]
    pub rows: RowArgs,
}

#[doc = concat!("Arguments of `diff`.")]
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// One ref: compare it with the live tree; two: compare them; a workspace may come first, paths last
    #[arg(value_name = "WORD", num_args = 0..)]
    pub words: Vec<String>,
    /// Compare only these paths and what is below them
    #[arg(last = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Compare with the project's directory as it was at the start
    #[arg(long)]
    pub base: bool,
    /// Compare only this path and what is below it; may be repeated
    #[arg(long, value_name = "PATH")]
    pub path: Vec<PathBuf>,
    /// Print A, M, D, R or T and the path (the default)
    #[arg(long, conflicts_with_all = ["name_only", "stat", "patch"])]
    pub name_status: bool,
    /// Print the path; of what was renamed, the new one
    #[arg(long, conflicts_with_all = ["stat", "patch"])]
    pub name_only: bool,
    /// Print the number of added and removed lines, and the path; on a terminal with bars
    #[arg(long, conflicts_with = "patch")]
    pub stat: bool,
    /// With --stat: draw bars even if standard output is no terminal
    #[arg(long, requires = "stat", conflicts_with = "nul")]
    pub bars: bool,
    /// Print a patch for git apply or patch -p1
    #[arg(long, short)]
    pub patch: bool,
    /// How rows are printed.
    #[command(flatten)]
    pub rows: RowArgs,
}
