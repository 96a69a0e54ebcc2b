//! Command line of `remote`.

use super::RowArgs;
use clap::{Args, Subcommand};

/// What can be done with the remotes of a workspace.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum RemoteVerb {
    /// Add a remote: a directory that several machines share; it is created if it does not exist
    #[command(
        after_help = "Examples:\n  agentvfs remote add origin /mnt/team/agentvfs\n  \
        agentvfs remote add origin file:///mnt/team/agentvfs --project website\n\n\
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
}

#[doc = concat!("Arguments of `remote add`.")]
#[derive(Debug, Args)]
pub struct RemoteAddArgs {
    /// Name of the remote in this workspace
    pub name: String,
    /// Where it is: a directory, or file:///DIR
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
