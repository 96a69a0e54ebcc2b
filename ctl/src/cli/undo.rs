//! Arguments of `undo`.

use clap::Args;

#[doc = concat!("Arguments of `undo`.")]
#[derive(Debug, Args)]
pub struct UndoArgs {
    /// The workspace
    #[arg(value_name = "WORKSPACE")]
    pub name: Option<String>,
    /// Undo even if a checkpoint or an apply came later
    #[arg(long)]
    pub over_later_changes: bool,
}
