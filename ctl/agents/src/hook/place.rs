//! Which workspace and branch a hook is about: the mount that holds the agent's directory.
//!
//! Told from the records of the mounts, without asking a daemon, so that outside of all workspaces a hook ends at once.
//! Invariant: a directory is looked at only where its words alone do not tell, as a mount may hang.

use super::Surroundings;
use agentvfs_client::home::Home;
use agentvfs_client::infer::branch_meant;
use agentvfs_client::record::Records;
use std::path::{Path, PathBuf};

/// What a hook is about.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    /// The workspace.
    pub workspace: String,
    /// The branch.
    pub branch: String,
}

/// The mount that holds the first of the directories that is in one; those that the agent says come first.
pub fn find(home: &Home, surroundings: &Surroundings, told: &[PathBuf]) -> Option<Place> {
    if let Some((workspace, branch)) = &surroundings.run {
        return Some(Place {
            workspace: workspace.clone(),
            branch: branch.clone(),
        });
    }
    let mounts: Vec<(String, PathBuf)> = Records::new(home.running())
        .all_running()
        .into_iter()
        .map(|(name, record)| (name, super::path_of(&record.mountpoint)))
        .collect();
    if mounts.is_empty() {
        return None;
    }
    let dirs = told.iter().chain(&surroundings.dirs);
    dirs.filter(|dir| dir.is_absolute()).find_map(|dir| {
        within(dir, &mounts).or_else(|| within(&std::fs::canonicalize(dir).ok()?, &mounts))
    })
}

fn within(dir: &Path, mounts: &[(String, PathBuf)]) -> Option<Place> {
    let holding = mounts.iter().filter(|(_, mount)| dir.starts_with(mount));
    let (workspace, mount) = holding.max_by_key(|(_, mount)| mount.components().count())?;
    // What lies above the mount says nothing of its branches.
    let inside = dir.strip_prefix(mount).ok();
    Some(Place {
        workspace: workspace.clone(),
        branch: branch_meant(None, None, inside),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_and_its_branch_are_meant() {
        let mounts = [("a", "/m/a"), ("b", "/m/a/in/.agentvfs/branches/x/b")];
        let mounts = mounts.map(|(name, path)| (name.to_owned(), PathBuf::from(path)));
        let at = |dir: &str| {
            let place = within(Path::new(dir), &mounts)?;
            Some(format!("{} {}", place.workspace, place.branch))
        };
        assert_eq!(at("/m/a").as_deref(), Some("a main"));
        assert_eq!(
            at("/m/a/.agentvfs/branches/fix/src").as_deref(),
            Some("a fix")
        );
        assert_eq!(
            at("/m/a/in/.agentvfs/branches/x/b/c").as_deref(),
            Some("b main")
        );
        assert_eq!(at("/m/ab"), None);
        assert_eq!(at("/m"), None);
    }
}
