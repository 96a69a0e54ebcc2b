//! Command line of `remote`.

use super::{ConflictsArg, RowArgs};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What can be done with the remotes of a workspace.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum RemoteVerb {
    /// Add a remote: a directory that several machines share, or a bucket of a service that speaks S3
    #[command(
        after_help = "Examples:\n  agentvfs remote add origin /mnt/team/agentvfs\n  \
        agentvfs remote add origin file:///mnt/team/agentvfs --project website\n  \
        agentvfs remote add origin s3://bucket/team --endpoint http://localhost:9000\n\n\
        It is created if it does not exist; the bucket must be there. Credentials are found as AWS's\n\
        programs find them ($AWS_ACCESS_KEY_ID, $AWS_PROFILE, ~/.aws), and are not kept.\n\n\
        One remote holds the histories of any number of projects; docs/remote.md says what is in it. A\n\
        store that does not keep the conditions of puts is refused."
    )]
    Add(RemoteAddArgs),
    /// List the remotes: name, URL, project
    #[command(after_help = "Example:\n  agentvfs remote list")]
    List(RowArgs),
    /// Forget a remote and what is known of its branches; the remote itself is not changed
    #[command(after_help = "Example:\n  agentvfs remote remove origin")]
    Remove(RemoteNameArgs),
    /// Remove from the remote what no branch needs; safe beside pushes and fetches of other machines
    #[command(after_help = "Example:\n  agentvfs remote gc --dry-run\n\n\
        What is no longer needed is deleted by a run that begins a day or more later. Exit status 1 if\n\
        something is missing in the remote.")]
    Gc(RemoteGcArgs),
}

#[doc = concat!("Arguments of `remote add`.")]
#[derive(Debug, Args)]
pub struct RemoteAddArgs {
    /// Name of the remote in this workspace
    pub name: String,
    /// Where it is: a directory, file:///DIR, or s3://BUCKET/PREFIX
    pub url: String,
    /// Name of the project in the remote [default: the workspace's name]
    #[arg(long, value_name = "NAME")]
    pub project: Option<String>,
    /// Address of the service, if it is not the one that the URL implies
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// Region of the service
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
}

#[doc = concat!("A remote's name.")]
#[derive(Debug, Args)]
pub struct RemoteNameArgs {
    /// The remote
    pub name: String,
}

#[doc = concat!("Arguments of `push`.")]
#[derive(Debug, Args)]
pub struct PushArgs {
    /// The remote [default: origin, else the only one]
    #[arg(value_name = "REMOTE")]
    pub remote: Option<String>,
    /// Push all branches [default: the one that is used]
    #[arg(long)]
    pub all: bool,
    /// Push the labels, too; one that the remote has on another commit is named and stays as it is there
    #[arg(long)]
    pub labels: bool,
    /// Replace what the remote has, if that is this commit: all 64 digits of an id, or REMOTE/BRANCH as it was fetched last
    #[arg(
        long,
        value_name = "COMMIT",
        require_equals = true,
        conflicts_with = "all"
    )]
    pub force_with_lease: Option<String>,
    /// How rows are printed.
    #[command(flatten)]
    pub rows: RowArgs,
}

#[doc = concat!("Arguments of `fetch`.")]
#[derive(Debug, Args)]
pub struct FetchArgs {
    /// The remote [default: origin, else the only one]
    #[arg(value_name = "REMOTE")]
    pub remote: Option<String>,
    /// How rows are printed.
    #[command(flatten)]
    pub rows: RowArgs,
}

#[doc = concat!("Arguments of `pull`.")]
#[derive(Debug, Args)]
pub struct PullArgs {
    /// The remote [default: origin, else the only one]
    #[arg(value_name = "REMOTE")]
    pub remote: Option<String>,
    /// What to do with conflicts
    #[arg(long, value_name = "HOW", default_value = "abort")]
    pub conflicts: ConflictsArg,
    /// Message for the merge commit
    #[arg(long, short, value_name = "TEXT")]
    pub message: Option<String>,
    /// End rows of conflicts with NUL instead of a newline, and do not quote names
    #[arg(short = 'z')]
    pub nul: bool,
}

#[doc = concat!("Arguments of `clone`.")]
#[derive(Debug, Args)]
pub struct CloneArgs {
    /// Where the remote is, as in `remote add`
    pub url: String,
    /// Name of the project in the remote; also of the workspace, unless --workspace gives another one
    pub project: String,
    /// Mount point: an empty directory, or a new one
    #[arg(long, value_name = "DIR")]
    pub mount: Option<PathBuf>,
    /// Address of the service, if it is not the one that the URL implies
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// Region of the service
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// Fetch everything now [default: fetch files and directories when they are read]
    #[arg(long)]
    pub full: bool,
}

#[doc = concat!("Arguments of `prefetch`.")]
#[derive(Debug, Args)]
pub struct PrefetchArgs {
    /// Files and directories of the branch [default: all that it shows]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Fetch all branches of the remote with their history; afterwards the workspace needs the remote no more
    #[arg(long, conflicts_with = "paths")]
    pub all: bool,
}

#[doc = concat!("Arguments of `remote gc`.")]
#[derive(Debug, Args)]
pub struct RemoteGcArgs {
    /// The remote [default: origin, else the only one]
    #[arg(value_name = "REMOTE")]
    pub remote: Option<String>,
    /// Change nothing; print what would be done
    #[arg(long)]
    pub dry_run: bool,
}
