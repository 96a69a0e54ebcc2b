//! Whether other users may enter a mount, where nobody has said so.
//!
//! A daemon of root could let everybody in. It does so only where everybody may reach the project itself: a
//! mount must not show what lies below a directory that is closed to others.

use agentvfs_client::quote::quoted;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The bit that lets others pass through a directory.
const OTHERS_PASS: u32 = 0o001;

/// Whether other users may enter a mount of the project `base`, and what the user should know of that.
pub fn decide(choice: Option<bool>, base: &Path) -> (bool, Option<String>) {
    let is_root = rustix::process::geteuid().is_root();
    match (choice, is_root.then(|| closed_at(base))) {
        (Some(choice), _) => (choice, None),
        (None, None) => (false, None),
        (None, Some(None)) => (true, None),
        (None, Some(Some(closed))) => {
            let closed = quoted(closed.as_os_str().as_bytes()).into_owned();
            let closed = String::from_utf8_lossy(&closed);
            let warning = format!(
                "other users cannot reach the mount through {closed}; --allow-other gives them access"
            );
            (false, Some(warning))
        }
    }
}

/// The first directory on the way from the root to `dir`, itself among them, that others cannot pass or
/// that cannot be looked at.
fn closed_at(dir: &Path) -> Option<PathBuf> {
    let mut way: Vec<&Path> = dir.ancestors().collect();
    way.reverse();
    let is_open = |dir: &Path| {
        dir.metadata()
            .is_ok_and(|meta| meta.mode() & OTHERS_PASS != 0)
    };
    way.into_iter()
        .find(|dir| !is_open(dir))
        .map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn one_closed_directory_on_the_way_is_enough() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let base = root.join("a/b");
        std::fs::create_dir_all(&base).unwrap();
        let set = |dir: &Path, mode| set_permissions(dir, Permissions::from_mode(mode)).unwrap();
        for dir in [&root, &root.join("a"), &base] {
            set(dir, 0o711);
        }
        let above = root.ancestors().skip(1).find_map(closed_at);
        if above.is_none() {
            assert_eq!(closed_at(&base), None);
        }
        for dir in [&base, &root.join("a")] {
            set(dir, 0o770);
            assert!(closed_at(&base).is_some());
        }
        assert!(closed_at(&root.join("missing")).is_some());
        assert_eq!(decide(Some(true), &base), (true, None));
        assert_eq!(decide(Some(false), &base), (false, None));
        let (allowed, warning) = decide(None, &base);
        assert!(!allowed);
        assert_eq!(warning.is_some(), rustix::process::geteuid().is_root());
    }
}
