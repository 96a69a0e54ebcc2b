//! Arguments of `export` and `import`.

use clap::Args;
use std::path::PathBuf;

#[doc = concat!("Arguments of `export`.")]
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The file to write; a workspace may come first
    #[arg(value_name = "WORD", num_args = 1..=2, required = true)]
    pub words: Vec<PathBuf>,
    /// The commit to export: a label, commit id, unique prefix of one, @ or @~N [default: the live tree]
    #[arg(long = "ref", value_name = "REF")]
    pub reference: Option<String>,
    /// Include every commit of the branch, what each changed, and the calls of merged branches
    #[arg(long)]
    pub history: bool,
    /// Replace FILE if it exists
    #[arg(long)]
    pub force: bool,
}

#[doc = concat!("Arguments of `import`.")]
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file: an export, or a database of AgentFS
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The directory that an AgentFS overlay database is based on
    #[arg(long, value_name = "DIR")]
    pub base: Option<PathBuf>,
    /// Treat missing pieces of files as holes, as AgentFS's own mount leaves them
    #[arg(long)]
    pub sparse: bool,
    /// Leave out keys and calls that AgentFS allows and agentvfs does not, and list them
    #[arg(long)]
    pub skip_invalid: bool,
}
