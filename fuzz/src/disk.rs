//! Simulated disks that hold the bytes under test as files.

use objstore::crash_storage::CrashStorage;
use objstore::io::Storage;
use std::io;
use std::sync::Arc;

/// A disk with these files, each in a directory of its own or in a shared one.
pub(crate) fn with_files(files: &[(&str, &[u8])]) -> io::Result<Arc<dyn Storage>> {
    let disk = CrashStorage::without_log();
    for (path, bytes) in files {
        if let Some((dir, _)) = path.rsplit_once('/') {
            disk.create_dir_all(dir)?;
        }
        disk.create(path)?.append(&[bytes])?;
    }
    Ok(Arc::new(disk))
}
