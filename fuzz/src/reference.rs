//! Files of refs.

use crate::{disk, seal};
use objstore::refs::RefStore;

/// A file gives its value or an error; a sealed one gives the value that was put in.
pub fn check(bytes: &[u8]) {
    let _ = value(bytes);
    if let Some(found) = value(&seal::reference(bytes)) {
        assert!(found == bytes, "a ref reads as another value");
    }
}

fn value(file: &[u8]) -> Option<Vec<u8>> {
    let disk = disk::with_files(&[("refs/workspaces/w.ref", file)]).ok()?;
    let refs = RefStore::open(disk).ok()?;
    refs.get("workspaces/w").ok()?
}
