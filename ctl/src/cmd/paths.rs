//! Paths of a workspace as words of a command give them.

use super::Context;
use agentvfs_client::failure::Failure;
use agentvfs_client::patharg::{PathError, Roots, inside};
use agentvfs_client::protocol::Bytes;
use std::path::{Path, PathBuf};

/// The paths, relative to the workspace's root.
/// Wrong usage where one leads out of the workspace or is its root.
pub fn paths(
    given: &[PathBuf],
    workspace: &str,
    context: &mut Context,
) -> Result<Vec<Bytes>, Failure> {
    if given.is_empty() {
        return Ok(Vec::new());
    }
    let Some(info) = context.info(workspace)? else {
        // The daemon's own answer about a workspace that does not exist is the better one.
        return Ok(given
            .iter()
            .map(|path| Bytes::from(path.as_path()))
            .collect());
    };
    let cwd = context.surroundings().cwd.clone();
    let roots = Roots {
        mount: info.mount.path(),
        base: info.base.path(),
        cwd: cwd.as_deref(),
    };
    given
        .iter()
        .map(|path| inside(path, roots).map(Bytes).map_err(bad_path))
        .collect()
}

/// A path of the workspace as it was given; empty for its root.
pub fn path_or_root(
    given: &Path,
    workspace: &str,
    context: &mut Context,
) -> Result<Vec<u8>, Failure> {
    let Some(info) = context.info(workspace)? else {
        // The daemon's own answer about a workspace that does not exist is the better one.
        return Ok(Bytes::from(given).0);
    };
    let cwd = context.surroundings().cwd.clone();
    let roots = Roots {
        mount: info.mount.path(),
        base: info.base.path(),
        cwd: cwd.as_deref(),
    };
    match inside(given, roots) {
        Err(PathError::Root(_)) => Ok(Vec::new()),
        other => other.map_err(bad_path),
    }
}

fn bad_path(error: PathError) -> Failure {
    let failure = Failure::usage(error.to_string());
    match error {
        PathError::Root(_) => failure.hint("leave out --path to mean all of it"),
        PathError::Outside(..) => failure
            .hint("paths start at the workspace's root, or in the mount at the current directory"),
    }
}
