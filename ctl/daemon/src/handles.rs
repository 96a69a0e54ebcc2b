//! Files that a connection has open.
//!
//! A handle is a number that no other connection, and no daemon before this one, has given: so one that is used in the
//! wrong place is found out. Invariant: what is open here is closed with the connection at the latest.

use super::faults;
use super::mounts::Mounts;
use agentvfs_client::protocol::{Fault, NO_HANDLE, STALE_HANDLE};
use engine::{DiffSide, Error, OpenFile, Workspace};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

/// Most files that one connection has open.
const HANDLES_MAX: usize = 256;

/// Bits of a handle below the moment at which its daemon began; all of it is below 2^53, as numbers in JSON are.
const COUNT_BITS: u32 = 10;

/// The next handle. It begins above what a daemon before has given, unless that gave a thousand in each millisecond.
static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = now.map_or(0, |now| now.as_millis() as u64);
    AtomicU64::new(millis << COUNT_BITS)
});

/// The files that a connection has open.
#[derive(Debug, Default)]
pub struct Handles {
    open: Mutex<BTreeMap<u64, Arc<Open>>>,
}

/// An open file of a workspace.
#[derive(Debug)]
pub struct Open {
    /// The workspace's name.
    pub workspace: String,
    /// The file.
    pub file: File,
}

/// What is open.
#[derive(Debug)]
pub enum File {
    /// Of the live tree.
    Live(Weak<Workspace>, OpenFile),
    /// Of a state that does not change, which is looked up each time.
    Kept {
        /// The branch's name.
        branch: String,
        /// The state.
        state: DiffSide,
        /// The file's path in it.
        path: Vec<u8>,
    },
}

impl Handles {
    /// Notes an open file; gives the number for it.
    pub fn add(&self, open: Open) -> Result<u64, Fault> {
        let mut all = self.open.lock();
        if all.len() >= HANDLES_MAX {
            let why = format!("the connection has {HANDLES_MAX} files open, which is the maximum");
            return Err(Fault::failed("too-many-handles", why)
                .hint("close one, or use another connection")
                .errno("EMFILE"));
        }
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        all.insert(handle, Arc::new(open));
        Ok(handle)
    }

    /// The file of a number.
    pub fn get(&self, handle: u64) -> Result<Arc<Open>, Fault> {
        let found = self.open.lock().get(&handle).cloned();
        found.ok_or_else(|| no_handle(handle))
    }

    /// Closes the file of a number.
    pub fn close(&self, handle: u64) -> Result<(), Fault> {
        let closed = self.open.lock().remove(&handle);
        closed.map(drop).ok_or_else(|| no_handle(handle))
    }
}

fn no_handle(handle: u64) -> Fault {
    let why = format!("this connection has no open file {handle}");
    Fault::failed(NO_HANDLE, why)
        .hint("files are closed with their connection and with the daemon: open it again")
        .errno("EBADF")
}

fn stale() -> Fault {
    let why = "the workspace was stopped, or the branch deleted, after the file was opened";
    Fault::failed(STALE_HANDLE, why)
        .hint("open it again")
        .errno("ESTALE")
}

/// Files of commits cannot be changed.
pub fn read_only() -> Fault {
    Fault::failed("failed", "files of commits can only be read")
        .hint("open it with the state live to change it")
        .errno("EROFS")
}

impl Open {
    /// Does something with a file of the live tree.
    pub fn live<R>(
        &self,
        mounts: &Mounts,
        work: impl FnOnce(&Workspace, &OpenFile) -> Result<R, Error>,
    ) -> Result<R, Fault> {
        let File::Live(of, file) = &self.file else {
            return Err(read_only());
        };
        let Ok(workspace) = mounts.workspace(&self.workspace) else {
            return Err(stale());
        };
        if !of.upgrade().is_some_and(|of| Arc::ptr_eq(&of, &workspace)) {
            return Err(stale());
        }
        work(&workspace, file).map_err(|error| match error {
            Error::Stale => stale(),
            error => faults::of_engine(&error, &self.workspace),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Open {
        Open {
            workspace: "w".to_owned(),
            file: File::Kept {
                branch: "main".to_owned(),
                state: DiffSide::Base,
                path: b"f".to_vec(),
            },
        }
    }

    #[test]
    fn a_handle_is_of_one_connection_and_no_number_comes_twice() {
        let (one, other) = (Handles::default(), Handles::default());
        let first = one.add(kept()).unwrap();
        let second = other.add(kept()).unwrap();
        assert_ne!(first, second);
        assert!(first < 1 << 53, "a number that JSON can carry");
        let fault = other.get(first).unwrap_err();
        assert_eq!(
            (&*fault.kind, fault.errno.as_deref()),
            (NO_HANDLE, Some("EBADF"))
        );
        one.close(first).unwrap();
        assert!(one.get(first).is_err() && one.close(first).is_err());
    }

    #[test]
    fn a_connection_has_a_bounded_number_of_files_open() {
        let all = Handles::default();
        let handles: Vec<u64> = (0..HANDLES_MAX).map(|_| all.add(kept()).unwrap()).collect();
        let fault = all.add(kept()).unwrap_err();
        assert_eq!(fault.errno.as_deref(), Some("EMFILE"));
        all.close(handles[0]).unwrap();
        all.add(kept()).unwrap();
    }
}
