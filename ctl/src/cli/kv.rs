//! Arguments of `kv`.

use super::{RowArgs, StateArg};
use clap::{Args, Subcommand};

/// What can be done with key-value state.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum KvVerb {
    /// Set a key to a JSON value; the value is on stable storage when the command returns
    #[command(after_help = "Example:\n  agentvfs kv set plan '{\"step\": 3}'\n  \
        agentvfs kv set note --string 'tests are green'\n  agentvfs kv set big - < big.json\n\n\
        A key has 1 to 1024 bytes of UTF-8 without control characters, a value at most 512 KiB, all \
        keys and values of a branch at most 64 MiB.")]
    Set(KvSetArgs),
    /// Print the value of a key; exit status 1 if the key does not exist
    #[command(after_help = "Example:\n  agentvfs kv get plan")]
    Get(KvGetArgs),
    /// List keys with their values
    #[command(after_help = "Example:\n  agentvfs kv list plan/")]
    List(KvListArgs),
    /// Delete a key; exit status 1 if the key does not exist
    #[command(after_help = "Example:\n  agentvfs kv delete plan")]
    Delete(KvDeleteArgs),
}

#[doc = concat!("Arguments of `kv set`.")]
#[derive(Debug, Args)]
pub struct KvSetArgs {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: String,
    /// The value; - reads it from standard input
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub value: String,
    /// Store the value as a JSON string
    #[arg(long)]
    pub string: bool,
}

#[doc = concat!("Arguments of `kv get`.")]
#[derive(Debug, Args)]
pub struct KvGetArgs {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: String,
    /// Which state.
    #[command(flatten)]
    pub state: StateArg,
}

#[doc = concat!("Arguments of `kv list`.")]
#[derive(Debug, Args)]
pub struct KvListArgs {
    /// List only keys with this prefix [default: all keys]
    #[arg(value_name = "PREFIX")]
    pub prefix: Option<String>,
    /// Which state.
    #[command(flatten)]
    pub state: StateArg,
    /// How rows are printed.
    #[command(flatten)]
    pub rows: RowArgs,
}

#[doc = concat!("Arguments of `kv delete`.")]
#[derive(Debug, Args)]
pub struct KvDeleteArgs {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: String,
}
