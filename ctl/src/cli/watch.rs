//! Command line of `watch`.

use clap::Args;

/// What `watch --help` says more.
pub const WATCH_HELP: &str = "Examples:\n  agentvfs watch\n  \
    agentvfs watch --op unlink,rmdir,rename --path src | jq .path\n  \
    agentvfs watch --since 1790000000000000 --no-follow\n\n\
    On a terminal a line for a person; in a pipe, and with --json, a line of JSON for each event (NDJSON). Events\n\
    are kept in memory while somebody follows them, and for 10 minutes afterwards; what was not kept is told by an\n\
    event with op lost.";

#[doc = concat!("Arguments of `watch`.")]
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// The workspace
    #[arg(value_name = "WORKSPACE")]
    pub name: Option<String>,
    /// Print the events after this number (extra.seq), then those to come [default: those to come; with --no-follow: 0,
    /// all that are kept]
    #[arg(long, value_name = "SEQ")]
    pub since: Option<u64>,
    /// Only events about this path or what is below it; * and ? stand for any characters, also /; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub path: Vec<String>,
    /// Only these operations
    #[arg(long, value_name = "OP,...", value_delimiter = ',')]
    pub op: Vec<String>,
    /// End after the events that are kept
    #[arg(long)]
    pub no_follow: bool,
}
