//! `agentvfs completions`.

use crate::cli;
use crate::output::print;
use agentvfs_client::failure::Failure;

/// Prints the completions of a shell.
pub fn run(shell: clap_complete::Shell) -> Result<u8, Failure> {
    print(&cli::completions(shell))?;
    Ok(0)
}
