//! Where sessions keep what they changed outside their projects, and how that is removed.

use crate::output::warn;
use agentvfs_client::home::Home;
use agentvfs_client::quote::shown;
use agentvfs_sandbox::copies::remove_tree;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where a session keeps its copies.
pub fn kept(home: &Home, workspace: &str, branch: &str) -> PathBuf {
    home.kept().join(workspace).join(branch)
}

/// Removes what a session kept, but with `conflicts` not what it could not write back.
pub fn forget(home: &Home, workspace: &str, branch: &str, conflicts: bool) {
    let session = kept(home, workspace, branch);
    let left = conflicts && session.join("conflicts").exists();
    let removed = match left {
        false => remove_tree(&session),
        true => remove_layers(&session),
    };
    if let Err(error) = removed {
        let path = shown(session.as_os_str().as_bytes());
        warn(&format!("what the session kept in {path} stays: {error}"));
    }
}

/// Removes what all sessions of a workspace kept.
pub fn forget_workspace(home: &Home, workspace: &str) {
    let all = home.kept().join(workspace);
    if let Err(error) = remove_tree(&all) {
        let path = shown(all.as_os_str().as_bytes());
        warn(&format!("what its sessions kept in {path} stays: {error}"));
    }
}

fn remove_layers(session: &Path) -> io::Result<()> {
    for entry in session.read_dir()? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("conflicts") {
            remove_tree(&path)?;
        }
    }
    Ok(())
}
