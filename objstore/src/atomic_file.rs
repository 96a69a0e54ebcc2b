//! The one way in which a file's content is replaced: whole or not at all, also over a power cut.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const TMP_SUFFIX: &str = ".tmp~";

/// Name of the temporary file beside `name`. One per name, so that a killed process leaves at most one
/// behind, which the next replacement overwrites.
fn tmp_name(name: &str) -> String {
    format!(".{name}{TMP_SUFFIX}")
}

/// True for names that [`replace_file`] uses while it works.
pub fn is_tmp_name(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(TMP_SUFFIX)
}

/// Puts `bytes` in place of the file `name` in `dir` (mode 0600), or makes it.
///
/// After `Ok` the new content survives a power cut; at any moment the name holds the old or the new
/// content whole: the data is synced before the rename, the directory after it. Two replacements of
/// one name must not run at the same time.
pub fn replace_file(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let tmp = dir.join(tmp_name(name));
    let result = write_synced(&tmp, bytes).and_then(|()| fs::rename(&tmp, dir.join(name)));
    if result.is_err() {
        // Best effort: the next replacement overwrites what stays.
        let _ = fs::remove_file(&tmp);
        return result;
    }
    sync_dir(dir)
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Brings the names in a directory to stable storage.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_replaced_and_no_temporary_stays() {
        let dir = tempfile::tempdir().unwrap();
        replace_file(dir.path(), "a", b"one").unwrap();
        replace_file(dir.path(), "a", b"two").unwrap();
        assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn failure_leaves_the_old_content() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("taken")).unwrap();
        assert!(replace_file(dir.path(), "taken", b"x").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(is_tmp_name(&tmp_name("a")) && !is_tmp_name("a.tmp~") && !is_tmp_name(".a"));
    }
}
