//! `agentvfs completions`.

use crate::cli;
use crate::failure::Failure;
use crate::output::print;

/// Prints the completions of a shell.
pub fn run(shell: clap_complete::Shell) -> Result<u8, Failure> {
    print(&cli::completions(shell))?;
    Ok(0)
}
