//! Command line of `policy`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What can be done with the policy of a workspace.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum PolicyVerb {
    /// Set the rules by which changes are denied or watched, and tool calls judged; they hold at once
    #[command(
        after_help = "Examples:\n  agentvfs policy set policy.toml\n  agentvfs policy set --lua judge.lua\n  \
        agentvfs policy set /dev/null\n\n\
        The rules are TOML: docs/policy.md. They are kept with the workspace, and replace those before. A file without\n\
        rules allows everything. A program judges what rules with verdict = \"program\" leave to it; without such a rule,\n\
        every change that no rule decides. A command in a sandbox of `agentvfs run` cannot set them."
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
    #[arg(value_name = "FILE", required_unless_present_any = ["lua", "wasm"])]
    pub file: Option<PathBuf>,
    #[doc = concat!("The program.")]
    #[command(flatten)]
    pub program: ProgramArgs,
}

#[doc = concat!("The program of a policy.")]
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct ProgramArgs {
    /// Let a Lua program judge changes: on_event(event) returns a table with a verdict
    #[arg(long, value_name = "PROGRAM")]
    pub lua: Option<PathBuf>,
    /// Let a WebAssembly module judge changes: on_event(i32) returns the number of a verdict
    #[arg(long, value_name = "MODULE")]
    pub wasm: Option<PathBuf>,
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
    #[arg(value_name = "FILE", required_unless_present_any = ["lua", "wasm"])]
    pub file: Option<PathBuf>,
    #[doc = concat!("The program.")]
    #[command(flatten)]
    pub program: ProgramArgs,
}

#[doc = concat!("Arguments of `policy test`.")]
#[derive(Debug, Args)]
pub struct PolicyTestArgs {
    /// The rules
    #[arg(value_name = "FILE", required_unless_present_any = ["lua", "wasm"])]
    pub file: Option<PathBuf>,
    #[doc = concat!("The program.")]
    #[command(flatten)]
    pub program: ProgramArgs,
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
