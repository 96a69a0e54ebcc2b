//! Arguments of `export` and `import`.

use clap::Args;
use std::path::PathBuf;

#[doc = concat!("Arguments of `export`.")]
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The file to write; a workspace may come first
    #[arg(value_name = "WORD", num_args = 1..=2, required = true)]
    pub words: Vec<PathBuf>,
    /// The label, commit id, unique prefix of one, @ or @~N to export; else what the branch shows now
    #[arg(long = "ref", value_name = "REF")]
    pub reference: Option<String>,
    /// Also every commit of the branch, and what it changed
    #[arg(long)]
    pub history: bool,
    /// Replace FILE where it is there
    #[arg(long)]
    pub force: bool,
}

#[doc = concat!("Arguments of `import`.")]
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file: an export, or a database of AgentFS
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The directory that a database of AgentFS's overlay was made on
    #[arg(long, value_name = "DIR")]
    pub base: Option<PathBuf>,
    /// Take pieces of files that are missing as holes, as AgentFS's own mount leaves them
    #[arg(long)]
    pub sparse: bool,
    /// Leave out keys and calls that AgentFS takes and agentvfs does not, and say which
    #[arg(long)]
    pub skip_invalid: bool,
}
