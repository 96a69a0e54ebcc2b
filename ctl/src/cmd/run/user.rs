//! Paths as the user names them and as they are told.

use agentvfs_client::failure::Failure;
use agentvfs_client::quote::shown;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A path as it is told.
pub fn told(path: &Path) -> String {
    shown(path.as_os_str().as_bytes())
}

/// A path that must exist, without links.
pub fn existing(path: &Path) -> Result<PathBuf, Failure> {
    let real = path.canonicalize();
    real.map_err(|e| Failure::usage(format!("{}: {e}", told(path))))
}

/// The user's home directory, without links.
pub fn user_home() -> Option<PathBuf> {
    let home = PathBuf::from(std::env::var_os("HOME")?);
    home.canonicalize()
        .ok()
        .filter(|home| home != Path::new("/"))
}

/// Paths as they are told, those in the user's home by `~`.
pub fn short(paths: &[PathBuf]) -> Vec<String> {
    let home = user_home();
    let one = |path: &PathBuf| match home.as_ref().and_then(|home| path.strip_prefix(home).ok()) {
        Some(rest) => format!("~/{}", told(rest)),
        None => told(path),
    };
    paths.iter().map(one).collect()
}
