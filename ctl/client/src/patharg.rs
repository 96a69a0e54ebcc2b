//! Paths inside a workspace, as they are given on the command line.
//!
//! Relative ones count from the current directory where that lies in the mount, else from the
//! workspace's root; absolute ones may name the mount or the base. Invariant: what comes out never
//! leads out of the workspace. Pure but for resolving links of absolute paths.

use crate::home::canonical;
use crate::infer::read_state;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Why a path cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It leads out of the workspace.
    #[error("{0} is not inside the workspace (its mount is {1})")]
    Outside(String, String),
    /// It is the root.
    #[error("{0} is the whole workspace")]
    Root(String),
}

/// The directories from which paths of a workspace are counted.
#[derive(Debug, Clone, Copy)]
pub struct Roots<'a> {
    /// The mount.
    pub mount: &'a Path,
    /// The project's directory.
    pub base: &'a Path,
    /// The current directory, if there is one.
    pub cwd: Option<&'a Path>,
}

/// `given` relative to the workspace's root, without `.` and `..`.
pub fn inside(given: &Path, roots: Roots<'_>) -> Result<Vec<u8>, PathError> {
    let outside = || PathError::Outside(shown(given), shown(roots.mount));
    let relative = if given.is_absolute() {
        below_roots(given, roots).ok_or_else(outside)?
    } else {
        let start = roots.cwd.and_then(|cwd| cwd.strip_prefix(roots.mount).ok());
        start.unwrap_or(Path::new("")).join(given)
    };
    let clean = normal(&relative).ok_or_else(outside)?;
    // Below a branch's view paths count from its root.
    let clean = match read_state(&clean) {
        Some((_, rest)) if clean.starts_with(".agentvfs") => rest,
        _ => clean,
    };
    if clean.as_os_str().is_empty() {
        return Err(PathError::Root(shown(given)));
    }
    Ok(clean.as_os_str().as_bytes().to_vec())
}

/// An absolute path relative to mount or base: as it is written, else with the links of its
/// directory resolved (the last component itself may be a link that is meant).
fn below_roots(given: &Path, roots: Roots<'_>) -> Option<PathBuf> {
    let resolved = match (given.parent(), given.file_name()) {
        (Some(dir), Some(name)) => canonical(dir).join(name),
        _ => given.to_owned(),
    };
    for path in [given, &resolved] {
        for root in [roots.mount, roots.base] {
            if let Ok(rest) = path.strip_prefix(root) {
                return Some(rest.to_owned());
            }
        }
    }
    None
}

/// `path` without `.` and `..`; `None` where it leads above its start.
pub fn normal(path: &Path) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !clean.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(clean)
}

fn shown(path: &Path) -> String {
    crate::quote::shown(path.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(given: &str, cwd: &str) -> Option<String> {
        let roots = Roots {
            mount: Path::new("/m"),
            base: Path::new("/src/p"),
            cwd: Some(Path::new(cwd)),
        };
        inside(Path::new(given), roots)
            .ok()
            .map(|path| String::from_utf8(path).unwrap())
    }

    fn is(given: &str, cwd: &str, wanted: &str) {
        assert_eq!(
            resolve(given, cwd).as_deref(),
            Some(wanted),
            "{given} in {cwd}"
        );
    }

    #[test]
    fn relative_paths_count_from_cwd_in_the_mount_or_from_the_root() {
        is("a", "/m/sub", "sub/a");
        is("../a/./b", "/m/sub", "a/b");
        is("a", "/elsewhere", "a");
        is("a", "/src/p/sub", "a");
    }

    #[test]
    fn absolute_paths_name_mount_or_base() {
        is("/m/x/y", "/", "x/y");
        is("/src/p/x", "/", "x");
        is("/m/x/../y/", "/", "y");
    }

    #[test]
    fn nothing_leads_out() {
        for given in ["..", "a/../..", "/m/../etc", "/etc/passwd", "/mx/a"] {
            assert_eq!(resolve(given, "/"), None, "{given}");
        }
    }

    #[test]
    fn the_root_is_no_path_inside() {
        for given in [".", "/m", "/src/p/", "a/.."] {
            assert_eq!(resolve(given, "/"), None, "{given}");
        }
    }

    #[test]
    fn links_in_the_directory_part_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let roots = Roots {
            mount: &real,
            base: Path::new("/b"),
            cwd: None,
        };
        assert_eq!(inside(&link.join("f"), roots), Ok(b"f".to_vec()));
    }
}
