//! Arguments of the commands about single files: `restore` and `fs`.

use super::RowArgs;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[doc = concat!("Arguments of `restore`.")]
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// Files or directories; relative to the current directory in the mount, else to the workspace's root
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// The commit to restore from: a label, commit id, unique prefix of one, @~N [default: @]
    #[arg(long = "ref", value_name = "REF", conflicts_with = "before")]
    pub reference: Option<String>,
    /// The newest commit, automatic ones included, from before a time: RFC 3339, or a time ago
    /// (90s, 5m, 2h, 1d)
    #[arg(long, value_name = "TIME")]
    pub before: Option<String>,
    /// Write them below this directory outside the workspace instead, under the same paths; nothing
    /// that exists is overwritten
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
    /// Change nothing; list what would change and which processes hold those files open
    #[arg(long)]
    pub dry_run: bool,
    /// End rows of --dry-run with NUL instead of a newline, and do not quote names
    #[arg(short = 'z', requires = "dry_run")]
    pub nul: bool,
}

/// What can be done with files without a mount.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum FsVerb {
    /// List a directory: permissions, size, time, name, target of a symbolic link
    #[command(after_help = "Example:\n  agentvfs fs ls --ref before-refactor src")]
    Ls(FsListArgs),
    /// Print a file
    #[command(
        after_help = "Example:\n  agentvfs fs cat --ref @~1 src/main.rs | diff - src/main.rs"
    )]
    Cat(FsPathArgs),
    /// Write standard input to a file of the live tree; create the file if it does not exist
    #[command(after_help = "Example:\n  echo hello | agentvfs fs write notes/today --parents")]
    Write(FsWriteArgs),
    /// Create a directory
    #[command(after_help = "Example:\n  agentvfs fs mkdir --parents notes/2026")]
    Mkdir(FsMkdirArgs),
    /// Remove a file or an empty directory; with --recursive, a directory and everything in it
    #[command(after_help = "Example:\n  agentvfs fs rm --recursive build")]
    Rm(FsRmArgs),
    /// Move or rename a file or directory; replaces an existing file
    #[command(after_help = "Example:\n  agentvfs fs mv draft.md notes/final.md")]
    Mv(FsMvArgs),
    /// Show type, size, permissions, owner and times of a path
    #[command(after_help = "Example:\n  agentvfs fs stat --ref @ README")]
    Stat(FsPathArgs),
    /// Show everything below a directory
    #[command(after_help = "Example:\n  agentvfs fs tree --depth 2")]
    Tree(FsTreeArgs),
    /// List the paths below a directory that match
    #[command(after_help = "Example:\n  agentvfs fs find --ref @ --name '*.rs' --type f src")]
    Find(FsFindArgs),
}

#[doc = concat!("Which state is looked into.")]
#[derive(Debug, Args)]
pub struct StateArg {
    /// Read this commit instead of the live tree: a label, commit id, unique prefix of one, @, @~N
    #[arg(long = "ref", value_name = "REF")]
    pub reference: Option<String>,
}

#[doc = concat!("Arguments of `fs ls`.")]
#[derive(Debug, Args)]
pub struct FsListArgs {
    /// The directory [default: the root]; for a file, its own row is printed
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Which state.
    #[command(flatten)]
    pub state: StateArg,
    /// How rows are printed.
    #[command(flatten)]
    pub rows: RowArgs,
}

#[doc = concat!("A path and a state.")]
#[derive(Debug, Args)]
pub struct FsPathArgs {
    /// The path
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Which state.
    #[command(flatten)]
    pub state: StateArg,
}

#[doc = concat!("Arguments of `fs write`.")]
#[derive(Debug, Args)]
pub struct FsWriteArgs {
    /// The file
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Append to the file
    #[arg(long)]
    pub append: bool,
    /// Create missing parent directories
    #[arg(long)]
    pub parents: bool,
}

#[doc = concat!("Arguments of `fs mkdir`.")]
#[derive(Debug, Args)]
pub struct FsMkdirArgs {
    /// The directory
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Create missing parent directories; a directory that exists is no error
    #[arg(long)]
    pub parents: bool,
}

#[doc = concat!("Arguments of `fs rm`.")]
#[derive(Debug, Args)]
pub struct FsRmArgs {
    /// The file or directory; of a symbolic link, the link itself
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Remove a directory with everything in it
    #[arg(long)]
    pub recursive: bool,
}

#[doc = concat!("Arguments of `fs mv`.")]
#[derive(Debug, Args)]
pub struct FsMvArgs {
    /// The file or directory
    #[arg(value_name = "FROM")]
    pub from: PathBuf,
    /// Its new path, name included
    #[arg(value_name = "TO")]
    pub to: PathBuf,
}

#[doc = concat!("Arguments of `fs tree`.")]
#[derive(Debug, Args)]
pub struct FsTreeArgs {
    /// The directory [default: the root]
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Number of levels to show
    #[arg(long, value_name = "N")]
    pub depth: Option<usize>,
    /// Which state.
    #[command(flatten)]
    pub state: StateArg,
    /// How rows are printed.
    #[command(flatten)]
    pub rows: RowArgs,
}

#[doc = concat!("Arguments of `fs find`.")]
#[derive(Debug, Args)]
pub struct FsFindArgs {
    /// The directory [default: the root]
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Only names that match PATTERN, with *, ? and [a-z]
    #[arg(long, value_name = "PATTERN")]
    pub name: Option<String>,
    /// Only one type
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Option<KindArg>,
    /// Which state.
    #[command(flatten)]
    pub state: StateArg,
    /// How rows are printed.
    #[command(flatten)]
    pub rows: RowArgs,
}

/// A type of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KindArg {
    /// Regular files
    F,
    /// Directories
    D,
    /// Symbolic links
    L,
    /// Pipes, sockets and devices
    O,
}
