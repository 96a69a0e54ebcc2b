//! A simulated disk for crash and fault tests: [`Storage`] in memory that logs every operation.
//!
//! What was written and what was synced are kept apart: [`CrashStorage::image_at`] rebuilds the disk as a
//! power cut at any operation may leave it (see [`replay`]). Faults can be planted: an operation that
//! fails with EIO or ENOSPC, a disk of limited size, a flipped bit.
//!
//! The model is pessimistic where POSIX leaves room: a file that was created and synced is there only
//! if its directory was synced too, and what a failed sync was to bring to the disk may be lost for good.

mod disk;
pub mod replay;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::io::Segment;
#[cfg(doc)]
use crate::io::Storage;
use disk::CrashSegment;
use replay::Image;
pub use replay::Policy;

/// Number of a simulated file; names point to it.
pub(crate) type Ino = u64;

/// One logged operation.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create {
        path: String,
        ino: Ino,
    },
    Write {
        ino: Ino,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    Truncate {
        ino: Ino,
        len: u64,
    },
    Punch {
        ino: Ino,
        range: Range<u64>,
    },
    Remove {
        path: String,
    },
    RemoveDir {
        path: String,
    },
    CreateDir {
        path: String,
    },
    Replace {
        path: String,
        ino: Ino,
        bytes: Arc<[u8]>,
    },
    Sync {
        ino: Ino,
    },
    FailedSync {
        ino: Ino,
    },
    SyncDir {
        dir: String,
    },
}

/// Operations that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOp {
    /// [`Segment::append`].
    Append,
    /// [`Segment::write_at`].
    WriteAt,
    /// [`Segment::truncate`].
    Truncate,
    /// [`Segment::punch_hole`].
    Punch,
    /// [`Segment::sync`].
    Sync,
    /// [`Segment::read_at`], [`Segment::try_read_at`] and [`Storage::read`].
    Read,
    /// [`Storage::create`].
    Create,
    /// [`Storage::replace`].
    Replace,
    /// [`Storage::remove`].
    Remove,
    /// [`Storage::sync_dir`].
    SyncDir,
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// EIO.
    Io,
    /// ENOSPC.
    NoSpace,
}

impl Fault {
    fn error(self) -> io::Error {
        match self {
            Fault::Io => io::Error::other("planted I/O error"),
            Fault::NoSpace => ErrorKind::StorageFull.into(),
        }
    }
}

/// The simulated disk. Clones share it.
#[derive(Clone, Debug)]
pub struct CrashStorage {
    state: Arc<Mutex<Disk>>,
}

#[derive(Debug)]
struct Disk {
    live: Image,
    next_ino: Ino,
    /// What was durable before the log; `None` where nothing is logged.
    start: Option<Image>,
    log: Vec<Op>,
    faults: Vec<PlantedFault>,
    capacity: Option<u64>,
    /// Space of the reserve, and what of it was not given back.
    reserve: u64,
    reserve_left: u64,
}

#[derive(Debug)]
struct PlantedFault {
    op: FaultOp,
    /// Calls until it strikes; 1 is the next.
    countdown: u64,
    fault: Fault,
}

impl Default for CrashStorage {
    fn default() -> CrashStorage {
        CrashStorage::new()
    }
}

impl CrashStorage {
    /// An empty disk that logs.
    pub fn new() -> CrashStorage {
        CrashStorage::with(Image::default(), true)
    }

    /// An empty disk that does not log: for tests that only want a fast store.
    pub fn without_log() -> CrashStorage {
        CrashStorage::with(Image::default(), false)
    }

    fn with(image: Image, logged: bool) -> CrashStorage {
        let state = Disk {
            next_ino: image.files.keys().max().map_or(1, |max| max + 1),
            start: logged.then(|| image.clone()),
            live: image,
            log: Vec::new(),
            faults: Vec::new(),
            capacity: None,
            reserve: 0,
            reserve_left: 0,
        };
        CrashStorage {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Number of operations so far. Before and after a call of the store they differ by what it did.
    pub fn op_count(&self) -> usize {
        self.state.lock().log.len()
    }

    /// The disk after a power cut when the first `op_index` operations were done and the next one, if
    /// any, was under way. What was synced is there; `policy` and `seed` decide about the rest.
    ///
    /// With [`Policy::Keep`] and [`CrashStorage::op_count`] it is what a killed process leaves.
    pub fn image_at(&self, op_index: usize, policy: Policy, seed: u64) -> CrashStorage {
        let state = self.state.lock();
        let start = state.start.clone().unwrap_or_default();
        let done = op_index.min(state.log.len());
        let image = replay::replay(start, &state.log[..done], state.log.get(done), policy, seed);
        CrashStorage::with(image, true)
    }

    /// Lets the `nth` call of `op` from now on (1 is the next) fail once.
    pub fn fail_nth(&self, op: FaultOp, nth: u64, fault: Fault) {
        self.state.lock().faults.push(PlantedFault {
            op,
            countdown: nth.max(1),
            fault,
        });
    }

    /// Forgets faults that did not strike yet.
    pub fn clear_faults(&self) {
        self.state.lock().faults.clear();
    }

    /// Limits the bytes of all files together; beyond it writing gives ENOSPC.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// Keeps so many bytes of the capacity as the reserve.
    pub fn set_reserve(&self, bytes: u64) {
        let mut state = self.state.lock();
        (state.reserve, state.reserve_left) = (bytes, bytes);
    }

    /// Flips one bit of a file, as a failing disk does; false where there is no such byte.
    pub fn flip_bit(&self, path: &str, offset: u64, bit: u8) -> bool {
        let mut state = self.state.lock();
        let Disk { live, start, .. } = &mut *state;
        let flipped = live.flip_bit(path, offset, bit);
        if let Some(start) = start {
            start.flip_bit(path, offset, bit);
        }
        flipped
    }

    /// Paths of all files, sorted.
    pub fn paths(&self) -> Vec<String> {
        self.state.lock().live.names.keys().cloned().collect()
    }

    fn segment(&self, ino: Ino) -> Arc<dyn Segment> {
        Arc::new(CrashSegment {
            state: self.state.clone(),
            ino,
        })
    }
}

impl Disk {
    fn record(&mut self, op: Op) {
        if self.start.is_some() {
            self.log.push(op);
        }
    }

    /// Counts a call; an error if a fault was planted for it.
    fn strike(&mut self, op: FaultOp) -> io::Result<()> {
        let mut struck = None;
        self.faults.retain_mut(|planted| {
            if planted.op == op {
                planted.countdown -= 1;
            }
            let strikes = planted.countdown == 0;
            struck = struck.or(strikes.then_some(planted.fault));
            !strikes
        });
        struck.map_or(Ok(()), |fault| Err(fault.error()))
    }

    fn free_bytes(&self) -> u64 {
        match self.capacity {
            Some(capacity) => capacity.saturating_sub(self.live.bytes() + self.reserve_left),
            None => u64::MAX / 2,
        }
    }

    fn new_ino(&mut self) -> Ino {
        self.next_ino += 1;
        self.next_ino - 1
    }

    fn parent_exists(&self, path: &str) -> io::Result<()> {
        let dir = replay::parent(path);
        if dir.is_empty() || self.live.dirs.contains(dir) {
            Ok(())
        } else {
            Err(ErrorKind::NotFound.into())
        }
    }

    fn write(&mut self, ino: Ino, offset: u64, bytes: Arc<[u8]>) {
        self.live.write(ino, offset, &bytes);
        self.record(Op::Write { ino, offset, bytes });
    }

    /// What an append that ran into an error does: some bytes get out and are cut off again.
    fn failed_append(&mut self, ino: Ino, offset: u64, bytes: &[u8]) {
        let half = Arc::from(&bytes[..bytes.len() / 2]);
        self.record(Op::Write {
            ino,
            offset,
            bytes: half,
        });
        self.record(Op::Truncate { ino, len: offset });
    }
}

/// Contents by number, names to numbers.
pub(crate) type Files = HashMap<Ino, Vec<u8>>;
pub(crate) type Names = BTreeMap<String, Ino>;
