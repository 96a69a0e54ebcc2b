//! Where a command did what it did, for a person: workspace, branch and directory.
//!
//! A command that picks its workspace by itself says which one that was. Scripts get nothing of this, and
//! the daemon is not asked for it where nobody looks.

use super::Context;
use agentvfs_client::protocol::MAIN;
use agentvfs_client::quote::shown;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The directory that was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Directory {
    /// Where the branch is seen.
    Mount,
    /// The project's own.
    Base,
}

/// Workspace, branch and directory, to begin a sentence with; empty where standard error is no terminal.
pub fn place(workspace: &str, branch: &str, which: Directory, context: &mut Context) -> String {
    if !std::io::stderr().is_terminal() {
        return String::new();
    }
    // The work is done; not to know the directory is no failure of it.
    let info = context.info(workspace).ok().flatten();
    let directory = info.map(|info| match which {
        Directory::Base => info.base.path().to_owned(),
        Directory::Mount if branch == MAIN || is_own(branch, context) => {
            info.mount.path().to_owned()
        }
        Directory::Mount => info.mount.path().join(".agentvfs/branches").join(branch),
    });
    told(workspace, branch, directory.as_deref())
}

/// In a sandbox the mount is the branch of its run.
fn is_own(branch: &str, context: &Context) -> bool {
    let own = std::env::var("AGENTVFS_BRANCH");
    context.home().socket_of_run().is_some() && own.is_ok_and(|own| own == branch)
}

/// The same, once the directory is known.
pub fn told(workspace: &str, branch: &str, directory: Option<&Path>) -> String {
    let directory = directory.map(|d| format!(", {}", shown(d.as_os_str().as_bytes())));
    format!(
        "workspace {workspace}, branch {branch}{}: ",
        directory.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::told;
    use std::path::Path;

    #[test]
    fn it_names_all_three_and_quotes_the_directory() {
        assert_eq!(
            told("w", "b", Some(Path::new("/m/a\nb"))),
            "workspace w, branch b, \"/m/a\\nb\": "
        );
        assert_eq!(told("w", "main", None), "workspace w, branch main: ");
    }
}
