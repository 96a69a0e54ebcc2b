//! Bounds and fixed settings of the front, each with its reason.

use std::time::Duration;

/// How long the kernel may keep names and attributes: for ever, as far as a mount lives. The daemon
/// is the only writer and invalidates what it changes.
pub(crate) const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Largest WRITE. Larger ones gain nothing measurable; the kernel's own cap is 1 MiB.
pub(crate) const MAX_WRITE_BYTES: u32 = 1 << 20;

/// Longest message from the kernel: a WRITE, with its header and fields (rounded up to a page).
pub(crate) const MESSAGE_BYTES_MAX: usize = MAX_WRITE_BYTES as usize + 4096;

/// Most bytes that one READ or listing is answered with. The kernel asks for no more than a request may
/// have pages, which are as many as a WRITE's.
pub(crate) const ANSWER_BYTES_MAX: u32 = MAX_WRITE_BYTES;

/// Requests that the kernel may have queued in the background. As high as it goes: above its
/// congestion threshold `syncfs` leaves dirty mapped pages unwritten.
pub(crate) const MAX_BACKGROUND: u16 = u16::MAX;

/// Most bytes that one COPY_FILE_RANGE may answer: the reply has 32 bits. A multiple of a page.
pub(crate) const COPY_RANGE_MAX: u64 = (u32::MAX as u64) & !4095;

/// Most threads that wait for the disk on behalf of requests.
pub(crate) const POOL_THREADS_MAX: usize = 32;

/// How long an idle pool thread stays.
pub(crate) const POOL_IDLE: Duration = Duration::from_secs(10);

/// Passes over the dirty mappings before a checkpoint or rollback. Processes that never stop
/// dirtying pages would make it endless.
pub(crate) const FLUSH_PASSES_MAX: usize = 5;

/// How long a flush waits for requests that are being handled.
pub(crate) const DRAIN_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long a switch waits for the kernel to take in the sizes of files: a program may hold up whoever asks
/// for one that it writes to.
pub(crate) const REFRESH_WAIT_MAX: Duration = Duration::from_secs(2);

/// Requests in [`LATENCY_WINDOW`] from which on they count as coming fast.
pub(crate) const LATENCY_BURST: u64 = 16;

/// See [`LATENCY_BURST`]; also how long after the last request the processors may sleep again.
pub(crate) const LATENCY_WINDOW: Duration = Duration::from_millis(50);

/// Changes of one rollback that watchers are told of.
pub(crate) const ANNOUNCEMENTS_MAX: usize = 10_000;

/// How long unmounting waits for an announcement that is under way.
pub(crate) const ANNOUNCE_WAIT_MAX: Duration = Duration::from_secs(2);

/// Dead mounts that are detached from one directory, should several lie over each other.
pub(crate) const DEAD_MOUNTS_MAX: usize = 64;

// The reply has 32 bits, and copies that end at a page's end can go on without copying bytes twice.
const _: () = assert!(COPY_RANGE_MAX <= u32::MAX as u64 && COPY_RANGE_MAX.is_multiple_of(4096));
