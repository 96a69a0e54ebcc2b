//! Arguments of `session`.

use super::RowArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What can be done with sessions.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum SessionVerb {
    /// Show a branch to the processes of a cgroup and its descendants at the path printed
    #[command(
        after_help = "Example:\n  agentvfs session register --cgroup /sys/fs/cgroup/agents/1 --branch fix\n\n\
        Processes of other cgroups see main there. This is not a security boundary."
    )]
    Register(CgroupArgs),
    /// List the registered cgroups: directory, branch, workspace
    #[command(after_help = "Example:\n  agentvfs session list")]
    List(RowArgs),
    /// Remove the mapping of a cgroup; without --workspace, in all workspaces
    #[command(
        after_help = "Example:\n  agentvfs session unregister --cgroup /sys/fs/cgroup/agents/1"
    )]
    Unregister(CgroupArgs),
}

#[doc = concat!("A control group.")]
#[derive(Debug, Args)]
pub struct CgroupArgs {
    /// The cgroup's directory (version 1 or 2)
    #[arg(long, value_name = "PATH")]
    pub cgroup: PathBuf,
}
