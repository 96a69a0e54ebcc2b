//! Paths as clients give them, as paths in the workspace.
//!
//! They count from the workspace's root, with or without a `/` in front; those of the machine that lie in
//! the mount or the base are understood. Invariant: what comes out never leads out of the workspace by
//! itself; symbolic links that do are refused by the daemon.

use agentvfs_client::patharg::{PathError, Roots, inside, normal};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Longest path, in bytes.
const PATH_BYTES_MAX: usize = 4096;

/// Directories in a machine's root (hier(7)): a path in one of them is meant for the machine, unless the
/// workspace has a directory of that name.
const MACHINE: [&str; 20] = [
    "bin", "boot", "dev", "etc", "home", "lib", "lib64", "media", "mnt", "opt", "proc", "root",
    "run", "sbin", "srv", "sys", "tmp", "usr", "var", "Users",
];

/// Why a path is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It leads out of the workspace.
    #[error("{0} is not inside the workspace")]
    Outside(String),
    /// It is in the directory that agentvfs adds to each mount.
    #[error("{0} is reserved for agentvfs")]
    Own(String),
    /// No file can have it.
    #[error("it is not a path")]
    NoPath,
}

/// The path in the workspace that a client means; empty for its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathMeant {
    /// This one.
    Inside(Vec<u8>),
    /// This one if the workspace's root has the name that comes with it, else none.
    IfThere(Vec<u8>, &'static str),
}

/// What `given` means in a workspace with this mount and base.
pub fn path_meant(given: &str, mount: &Path, base: &Path) -> Result<PathMeant, Refused> {
    if given.contains('\0') || given.len() > PATH_BYTES_MAX {
        return Err(Refused::NoPath);
    }
    if given.split('/').any(|name| name == ".agentvfs") {
        return Err(Refused::Own(given.to_owned()));
    }
    let roots = Roots {
        mount,
        base,
        cwd: None,
    };
    if given.starts_with('/') {
        match inside(Path::new(given), roots) {
            Ok(path) => return Ok(PathMeant::Inside(path)),
            Err(PathError::Root(_)) => return Ok(PathMeant::Inside(Vec::new())),
            Err(PathError::Outside(..)) => {}
        }
    }
    let outside = || Refused::Outside(given.to_owned());
    let path = normal(Path::new(given.trim_start_matches('/'))).ok_or_else(outside)?;
    let bytes = path.as_os_str().as_bytes().to_vec();
    Ok(match machine_directory(given, &path) {
        Some(top) => PathMeant::IfThere(bytes, top),
        None => PathMeant::Inside(bytes),
    })
}

/// The machine's directory that an absolute path lies in.
fn machine_directory(given: &str, path: &Path) -> Option<&'static str> {
    let first = path.components().next()?.as_os_str();
    let is_first = |top: &&&str| first == **top;
    given
        .starts_with('/')
        .then(|| MACHINE.iter().find(is_first).copied())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(given: &str) -> Result<PathMeant, Refused> {
        path_meant(given, Path::new("/h/mnt/p"), Path::new("/home/u/p"))
    }

    fn is_at(given: &str, path: &str) {
        assert_eq!(meant(given), Ok(PathMeant::Inside(path.into())), "{given}");
    }

    #[test]
    fn paths_count_from_the_root() {
        is_at("src/a.rs", "src/a.rs");
        is_at("/src/a.rs", "src/a.rs");
        is_at("./src//b/../a.rs", "src/a.rs");
        for root in ["", "/", ".", "a/..", "/h/mnt/p", "/home/u/p/"] {
            is_at(root, "");
        }
        is_at("etc/x", "etc/x");
    }

    #[test]
    fn paths_of_the_machine_name_mount_or_base() {
        is_at("/h/mnt/p/src/a.rs", "src/a.rs");
        is_at("/home/u/p/src/a.rs", "src/a.rs");
        let other = PathMeant::IfThere("home/u/other/x".into(), "home");
        assert_eq!(meant("/home/u/other/x"), Ok(other));
        let passwd = PathMeant::IfThere("etc/passwd".into(), "etc");
        assert_eq!(meant("/etc/passwd"), Ok(passwd.clone()));
        assert_eq!(meant("//a/../etc/passwd"), Ok(passwd));
    }

    #[test]
    fn nothing_leads_out() {
        for given in [
            "..",
            "../x",
            "a/../../x",
            "/..",
            "/../etc/passwd",
            "/h/mnt/p/../../x/../../../y",
        ] {
            assert_eq!(meant(given), Err(Refused::Outside(given.into())), "{given}");
        }
        for given in [
            ".agentvfs/view",
            "/h/mnt/p/.agentvfs/branches/b/x",
            "a/../.agentvfs",
        ] {
            assert_eq!(meant(given), Err(Refused::Own(given.into())), "{given}");
        }
        assert_eq!(meant("a\0b"), Err(Refused::NoPath));
        assert_eq!(meant(&"x/".repeat(4000)), Err(Refused::NoPath));
    }
}
