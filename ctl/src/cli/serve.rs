//! Arguments of `serve`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What a workspace is offered by.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ServeVerb {
    /// Serve the Model Context Protocol on standard input and output
    #[command(
        after_help = "Examples:\n  agentvfs serve mcp --workspace my-task --branch fix\n  \
        claude mcp add files -- agentvfs serve mcp -w my-task\n\n\
        It serves one client and exits when the client closes its input. docs/mcp.md describes the tools."
    )]
    Mcp(McpArgs),
}

#[doc = concat!("Arguments of `serve mcp`.")]
#[derive(Debug, Args)]
pub struct McpArgs {
    /// Directory for files that the tool export writes [default: exports in the agentvfs home]
    #[arg(long, value_name = "DIR")]
    pub exports: Option<PathBuf>,
    /// Serve the workspace that is named, or that holds the current directory; without one, offer no tools [default: the
    /// only one running, else an error]
    #[arg(long)]
    pub here: bool,
}
