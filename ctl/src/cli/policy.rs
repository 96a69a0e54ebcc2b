//! Command line of `policy`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What can be done with the policy of a workspace.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum PolicyVerb {
    /// Set the rules by which changes are denied or watched, and tool calls judged; they hold at once
    #[command(
        after_help = "Examples:\n  agentvfs policy set policy.toml\n  agentvfs policy set /dev/null\n\n\
        The rules are TOML: docs/policy.md. They are kept with the workspace, and replace those before. A file without\n\
        rules allows everything. A command in a sandbox of `agentvfs run` cannot set them."
    )]
    Set(PolicySetArgs),
    /// Print the rules
    #[command(after_help = "Example:\n  agentvfs policy show > policy.toml")]
    Show(PolicyShowArgs),
    /// Check a file of rules, and change nothing
    #[command(after_help = "Example:\n  agentvfs policy check policy.toml")]
    Check(PolicyCheckArgs),
    /// Say what rules would have said of recorded events, or of a tool call
    #[command(
        after_help = "Examples:\n  agentvfs policy test policy.toml < events.ndjson\n  \
        agentvfs policy test policy.toml --tool Bash --input 'git push'\n\n\
        Events are lines of JSON as `agentvfs watch` and `start --audit` write them. One row for each event that a rule\n\
        fits: verdict, rule, seq, op, path."
    )]
    Test(PolicyTestArgs),
}

#[doc = concat!("Arguments of `policy set`.")]
#[derive(Debug, Args)]
pub struct PolicySetArgs {
    /// The rules; - reads standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

#[doc = concat!("Arguments of `policy show`.")]
#[derive(Debug, Args)]
pub struct PolicyShowArgs {
    /// The workspace
    #[arg(value_name = "WORKSPACE")]
    pub name: Option<String>,
}

#[doc = concat!("Arguments of `policy check`.")]
#[derive(Debug, Args)]
pub struct PolicyCheckArgs {
    /// The rules; - reads standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

#[doc = concat!("Arguments of `policy test`.")]
#[derive(Debug, Args)]
pub struct PolicyTestArgs {
    /// The rules
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Judge a call of this tool instead of events
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// Its input: JSON, or a text [default: empty]
    #[arg(
        long,
        value_name = "INPUT",
        requires = "tool",
        allow_hyphen_values = true
    )]
    pub input: Option<String>,
}
