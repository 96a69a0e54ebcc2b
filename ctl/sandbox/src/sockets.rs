//! Sockets of the machine that have a path. To connect to one needs no write access to the file system, so a
//! read-only mount does not keep anybody from it: each must be covered.

use crate::error::{Doing, Result};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Paths of all sockets of this network namespace that are there.
pub fn paths() -> Result<Vec<PathBuf>> {
    let table = std::fs::read("/proc/net/unix").doing(|| "reading /proc/net/unix".to_owned())?;
    let is_socket = |path: &PathBuf| {
        let meta = std::fs::symlink_metadata(path);
        meta.is_ok_and(|meta| meta.file_type().is_socket())
    };
    Ok(listed(&table).into_iter().filter(is_socket).collect())
}

/// Absolute paths in a table such as `/proc/net/unix`: what follows the seventh field and one space. Sockets that
/// are only connected have the path of the one that they were accepted from.
fn listed(table: &[u8]) -> BTreeSet<PathBuf> {
    const FIELDS: usize = 7;
    let mut paths = BTreeSet::new();
    for line in table.split(|byte| *byte == b'\n').skip(1) {
        let mut rest = line;
        for _ in 0..FIELDS {
            let start = rest.iter().position(|b| *b != b' ').unwrap_or(rest.len());
            rest = &rest[start..];
            let end = rest.iter().position(|b| *b == b' ').unwrap_or(rest.len());
            rest = &rest[end..];
        }
        if let Some(path) = rest
            .strip_prefix(b" ")
            .filter(|path| path.first() == Some(&b'/'))
        {
            paths.insert(Path::new(OsStr::from_bytes(path)).to_owned());
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn paths_are_read_with_their_spaces_and_abstract_names_are_none() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01   123 /run/a b\n\
            0000000000000000: 00000002 00000000 00000000 0002 01  9 @/tmp/.X11-unix/X0\n\
            0000000000000000: 00000002 00000000 00000000 0002 01 77777777\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 8 /run/a b\n\
            0000000000000000: 00000002 00000000 00000000 0002 01 8 relative\n\
            short\n";
        let paths: Vec<PathBuf> = listed(table).into_iter().collect();
        assert_eq!(paths, [Path::new("/run/a b")]);
    }

    #[test]
    fn a_listening_socket_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        assert!(paths().unwrap().contains(&path));
    }
}
