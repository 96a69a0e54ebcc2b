//! The write-ahead journal of a branch: every change, handed to the kernel before it is answered.
//!
//! Owns a directory of append-only segments and a mark file. A record is opaque metadata and, for
//! written data, a payload; what they mean is the caller's business. An append never waits for the
//! disk; [`Journal::sync`] does, shared by all who wait.
//!
//! Invariants: a record whose append failed is not there; recovered records are always a prefix of
//! what was appended, up to at least the last one whose sync returned; no byte is returned that fails
//! its checksum. Once a write or sync failed for another reason than space, the journal is
//! *poisoned*: it gives no more promises, reads go on.
//!
//! Locks, in order: commit (group commit) → tail (appends) → mark → table of segments. None but the
//! mark's is held while the disk is waited for.
//!
//! Tested by crash tests over a simulated disk (`tests/crash.rs`), by damaging each kind of byte
//! (`tests/damage.rs`), by running threads against each other (`tests/threads.rs`).

mod commit;
mod error;
mod format;
mod inspect;
mod mark;
mod reader;
mod recovery;
mod repair;
mod scan;
mod segment;
#[cfg(test)]
mod tests;
mod writer;

pub use error::{JournalError, JournalResult, ReplayError};
pub use inspect::Inspected;
pub use recovery::{Each, RecoveryReport, ReplayRecord};
pub use repair::Needed;
pub use scan::check_record_bytes;

use commit::Commit;
use format::{Mark, SEGMENT_HEADER_BYTES, SegmentHeader, VERSION};
use mark::MarkFile;
use objstore::io::Storage;
use objstore::reserve::with_reserve;
use parking_lot::{Mutex, RwLock};
use reader::Wait;
use segment::{Live, Table};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use writer::Tail;

/// Sizes of a journal, and the machine's boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalConfig {
    /// A segment that would grow beyond this is closed and the next one begun.
    pub segment_bytes_max: u64,
    /// Bytes that all segments may hold together; beyond it appends fail with `Full`.
    pub cap_bytes: u64,
    /// Bytes above the cap that [`Journal::append_reserve`] may use.
    pub reserve_bytes: u64,
    /// A number that changes with each boot of the machine, 0 where unknown (see [`this_boot`]).
    /// Known, it lets recovery tell damage from what a power cut may leave.
    pub boot: u64,
    /// Number of a new journal: no two of a workspace have the same, so that a segment's number says
    /// whose it is. Below [`JOURNALS_MAX`].
    pub number: u32,
}

/// Bits of a segment's number below its journal's.
const SEGMENT_BITS: u32 = 22;
/// Journals of one workspace.
pub const JOURNALS_MAX: u32 = 1 << (32 - SEGMENT_BITS);

/// Number of the journal that a segment belongs to.
pub fn journal_of(segment: u32) -> u32 {
    segment >> SEGMENT_BITS
}

impl Default for JournalConfig {
    fn default() -> JournalConfig {
        JournalConfig {
            segment_bytes_max: 64 << 20,
            cap_bytes: 4 << 30,
            reserve_bytes: 64 << 20,
            boot: 0,
            number: 0,
        }
    }
}

/// The number of this boot of the machine, from the kernel's boot id; 0 where that cannot be read.
pub fn this_boot() -> u64 {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id
        .chars()
        .filter(char::is_ascii_hexdigit)
        .take(16)
        .collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

/// Where a payload lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, bincode::Encode, bincode::Decode)]
pub struct PayloadRef {
    /// Number of the segment.
    pub segment: u32,
    /// Offset of the payload's first byte in it.
    pub offset: u64,
    /// Length of the payload.
    pub len: u32,
}

/// What an append gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The record's sequence number: the first one is 1, each next one is higher by 1.
    pub seq: u64,
    /// Where its payload lies, where it has one.
    pub payload: Option<PayloadRef>,
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    storage: Arc<dyn Storage>,
    dir: String,
    cfg: JournalConfig,
    id: u64,
    commit: Commit,
    tail: Mutex<Tail>,
    mark: Mutex<MarkFile>,
    table: RwLock<Table>,
    last_seq: AtomicU64,
    bytes: AtomicU64,
    poison: OnceLock<String>,
}

impl Journal {
    /// Makes an empty journal in `dir`, durably. `Exists` where there is one.
    pub fn create(
        storage: Arc<dyn Storage>,
        dir: &str,
        cfg: JournalConfig,
    ) -> JournalResult<Journal> {
        storage.create_dir_all(dir).map_err(JournalError::io(dir))?;
        remove_unfinished(&*storage, dir)?;
        let header = SegmentHeader {
            version: VERSION,
            journal: new_id(dir),
            segment: (cfg.number << SEGMENT_BITS) + 1,
            first_seq: 1,
        };
        let live = segment::create(&*storage, dir, &header)?;
        live.sync()?;
        storage.sync_dir(dir).map_err(JournalError::io(dir))?;
        // Last: a journal without a mark is one whose creation was not finished.
        let mark = MarkFile::create(&*storage, dir, first_mark(&header, cfg.boot))?;
        Ok(Journal::assemble(storage, dir, cfg, vec![live], mark, 1))
    }

    /// Puts an open journal together, all of which is on stable storage.
    fn assemble(
        storage: Arc<dyn Storage>,
        dir: &str,
        cfg: JournalConfig,
        live: Vec<Live>,
        mark: MarkFile,
        next_seq: u64,
    ) -> Journal {
        let id = mark.last().journal;
        let bytes = live.iter().map(|live| live.file.len()).sum();
        let current = live[live.len() - 1].clone();
        Journal {
            storage,
            dir: dir.to_owned(),
            cfg,
            id,
            commit: Commit::new(next_seq - 1),
            tail: Mutex::new(Tail::new(id, current, next_seq)),
            mark: Mutex::new(mark),
            table: RwLock::new(Table::new(live)),
            last_seq: AtomicU64::new(next_seq - 1),
            bytes: AtomicU64::new(bytes),
            poison: OnceLock::new(),
        }
    }

    /// Appends one record and hands it to the kernel: it survives the death of this process, a power
    /// cut only after [`Journal::sync`]. Never waits for the disk. `NoSpace` and `Full` leave the
    /// journal as it was; other failures poison it.
    pub fn append(&self, meta: &[u8], payload: &[u8]) -> JournalResult<Appended> {
        let mut tail = self.tail.lock();
        self.check_cap(self.cfg.cap_bytes, meta, payload)?;
        if self.storage.is_reserve_in_use() {
            // The space there is now is kept for others.
            let full = std::io::ErrorKind::StorageFull.into();
            return Err(JournalError::io(&self.dir)(full));
        }
        self.append_at(&mut tail, meta, payload)
    }

    /// As [`Journal::append`], for what must go on (deleting, rolling back): may use the reserve above
    /// the cap, and that of the disk.
    pub fn append_reserve(&self, meta: &[u8], payload: &[u8]) -> JournalResult<Appended> {
        let mut tail = self.tail.lock();
        let cap = self.cfg.cap_bytes.saturating_add(self.cfg.reserve_bytes);
        with_reserve(&*self.storage, JournalError::is_no_space, || {
            self.check_cap(cap, meta, payload)?;
            self.append_at(&mut tail, meta, payload)
        })
    }

    /// An error where a record would exceed `cap`, or none is taken.
    fn check_cap(&self, cap: u64, meta: &[u8], payload: &[u8]) -> JournalResult<()> {
        let record_bytes = writer::record_bytes(meta, payload)?;
        self.check_poison()?;
        match self.bytes() {
            bytes if bytes + record_bytes > cap => Err(JournalError::Full { bytes, cap }),
            _ => Ok(()),
        }
    }

    fn append_at(&self, tail: &mut Tail, meta: &[u8], payload: &[u8]) -> JournalResult<Appended> {
        let record_bytes = writer::record_bytes(meta, payload)?;
        if !tail.is_empty() && tail.len() + record_bytes > self.cfg.segment_bytes_max {
            self.begin_segment(tail)?;
        }
        let appended = tail
            .append(meta, payload, self.commit.synced())
            .map_err(|error| self.append_failed(tail, error))?;
        self.bytes.fetch_add(record_bytes, Ordering::Relaxed);
        self.last_seq.store(appended.seq, Ordering::Release);
        Ok(appended)
    }

    /// A full disk is an answer, all else is the end of trust.
    fn append_failed(&self, tail: &Tail, error: JournalError) -> JournalError {
        if !error.is_no_space() || !tail.is_consistent() {
            self.poison(&error);
        }
        error
    }

    /// Goes on in a new segment. Nothing of it is durable yet: the next commit sees to it.
    fn begin_segment(&self, tail: &mut Tail) -> JournalResult<()> {
        let segment = tail.segment() + 1;
        if journal_of(segment) != self.number() {
            let used_up = std::io::Error::other("its segment numbers are used up");
            return Err(JournalError::io(&self.dir)(used_up));
        }
        let header = SegmentHeader {
            version: VERSION,
            journal: self.id,
            segment,
            first_seq: tail.next_seq(),
        };
        let live = segment::create(&*self.storage, &self.dir, &header)?;
        self.bytes
            .fetch_add(SEGMENT_HEADER_BYTES as u64, Ordering::Relaxed);
        self.table.write().push(live.clone());
        tail.move_to(live);
        Ok(())
    }

    /// Fills `buf` from byte `from` of a payload, checked by its checksums. May wait for the disk.
    /// `PayloadDamaged` where they do not match, `Dropped` where the segment is gone.
    pub fn read(&self, p: PayloadRef, from: u32, buf: &mut [u8]) -> JournalResult<()> {
        reader::read(&self.locate(p)?, p, from, buf, Wait::Yes).map(|_| ())
    }

    /// As [`Journal::read`], but `Ok(false)`, with `buf` undefined, where the disk would have to be
    /// waited for.
    pub fn try_read(&self, p: PayloadRef, from: u32, buf: &mut [u8]) -> JournalResult<bool> {
        reader::read(&self.locate(p)?, p, from, buf, Wait::No)
    }

    /// The segment of a payload. Whoever has it can read on while it is dropped.
    fn locate(&self, p: PayloadRef) -> JournalResult<Live> {
        let table = self.table.read();
        match table.get(p.segment) {
            Some(live) => Ok(live.clone()),
            None if p.segment < table.first() => Err(JournalError::Dropped { segment: p.segment }),
            None => Err(reader::bad_ref(p)),
        }
    }

    /// Closes the current segment, with all in it on stable storage, and begins a new one, whose
    /// number is returned. An empty segment stays the current one. Appends do not wait meanwhile.
    pub fn roll(&self) -> JournalResult<u32> {
        self.sync(u64::MAX)?;
        let number = {
            let mut tail = self.tail.lock();
            self.check_poison()?;
            if !tail.is_empty() {
                self.begin_segment(&mut tail)?;
            }
            tail.segment()
        };
        self.commit_all()?;
        Ok(number)
    }

    /// Removes all segments before `segment`, but never the current one. The caller guarantees that
    /// nothing needs them. That they are gone is durable before the first one is removed.
    pub fn drop_before(&self, segment: u32) -> JournalResult<()> {
        self.check_poison()?;
        let segment = segment.min(self.current_segment());
        if segment <= self.first_segment() {
            return Ok(());
        }
        if self.mark.lock().last().segment < segment {
            self.commit_all()?;
        }
        self.write_durable_mark(|mark| mark.first_segment = segment.max(mark.first_segment))?;
        let dropped = self.table.write().take_before(segment);
        for live in dropped {
            self.bytes.fetch_sub(live.file.len(), Ordering::Relaxed);
            self.storage
                .remove(&live.path)
                .map_err(JournalError::io(&live.path))?;
        }
        Ok(())
    }

    /// Syncs everything and notes that the journal was closed in order.
    pub fn mark_clean(&self) -> JournalResult<()> {
        self.sync(u64::MAX)?;
        self.write_durable_mark(|mark| mark.clean = true)
    }

    /// Writes the mark and waits until it is on stable storage.
    fn write_durable_mark(&self, change: impl FnOnce(&mut Mark)) -> JournalResult<()> {
        let mut mark = self.mark.lock();
        mark.update(change)
            .and_then(|()| mark.sync())
            .inspect_err(|error| self.poison(error))
    }

    /// Brings the names of segments to stable storage.
    fn sync_names(&self) -> JournalResult<()> {
        self.storage
            .sync_dir(&self.dir)
            .map_err(JournalError::io(&self.dir))
    }

    /// Last record appended; 0 where there never was one.
    pub fn last_seq(&self) -> u64 {
        self.last_seq.load(Ordering::Acquire)
    }

    /// Last record known to survive a power cut.
    pub fn synced_seq(&self) -> u64 {
        self.commit.synced()
    }

    /// Bytes in all segments.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Number of this journal in its workspace.
    pub fn number(&self) -> u32 {
        journal_of(self.first_segment())
    }

    /// Number of the segment that takes appends.
    pub fn current_segment(&self) -> u32 {
        self.table.read().last()
    }

    /// Number of the oldest segment.
    pub fn first_segment(&self) -> u32 {
        self.table.read().first()
    }

    /// When the oldest record was appended that no sync was started for; for the owner's timer.
    pub fn unsynced_since(&self) -> Option<Instant> {
        self.tail.lock().unsynced_since()
    }

    /// Why the journal takes no more records, where it does not.
    pub fn poisoned(&self) -> Option<String> {
        self.poison.get().cloned()
    }

    fn check_poison(&self) -> JournalResult<()> {
        match self.poison.get() {
            None => Ok(()),
            Some(why) => Err(JournalError::Poisoned { why: why.clone() }),
        }
    }

    /// Notes the first failure; later ones are its consequences.
    fn poison(&self, error: &JournalError) {
        tracing::error!(dir = self.dir, %error, "journal is poisoned");
        let _ = self.poison.set(error.to_string());
    }
}

/// Removes what an unfinished creation left. Refuses where there is a journal.
fn remove_unfinished(storage: &dyn Storage, dir: &str) -> JournalResult<()> {
    let mark_path = mark::path(dir);
    let mark = storage.read(&mark_path);
    if mark.map_err(JournalError::io(&mark_path))?.is_some() {
        return Err(JournalError::Exists {
            dir: dir.to_owned(),
        });
    }
    for number in segment::list(storage, dir)? {
        let path = segment::path(dir, number);
        storage.remove(&path).map_err(JournalError::io(&path))?;
    }
    Ok(())
}

/// The mark of a journal without records.
/// A random number for a new journal. Keys of the standard hasher are random: all that is wanted is that two
/// journals differ.
fn new_id(dir: &str) -> u64 {
    RandomState::new().hash_one(dir)
}

fn first_mark(header: &SegmentHeader, boot: u64) -> Mark {
    Mark {
        version: VERSION as u16,
        clean: false,
        journal: header.journal,
        generation: 1,
        seq: header.first_seq - 1,
        segment: header.segment,
        first_segment: header.segment,
        boot,
    }
}
