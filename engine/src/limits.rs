//! Every bound of the engine, by name.

use std::time::Duration;

/// Longest name of a directory entry, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes.
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// Largest file, in bytes: what ext4 allows with 4 KiB blocks.
pub const FILE_BYTES_MAX: u64 = (16 << 40) - 4096;
/// Most names of one inode.
pub const LINKS_MAX: u32 = 65_000;
/// Longest value of an extended attribute, in bytes.
pub const XATTR_BYTES_MAX: usize = 65_536;
/// Free space that data may not use, in bytes: kept for deleting, rolling back and storing.
pub const DISK_RESERVE_BYTES: u64 = 16 << 20;
/// Written bytes after which free space is looked at again.
pub const SPACE_CHECK_BYTES: u64 = 8 << 20;
/// Journal size from which on background sealing begins at once, in bytes.
pub const SEAL_BYTES: u64 = 256 << 20;
/// Journal size that is sealed when nothing was written for a while, in bytes.
pub const SEAL_IDLE_BYTES: u64 = 4 << 20;
/// Records of the journal from which on it is sealed while changes go on, so that a successor of a daemon that dies has few
/// to replay.
pub const SEAL_RECORDS: u64 = 10_000;
/// Least time between two sealings for that reason.
pub const SEAL_PAUSE_MIN: Duration = Duration::from_secs(5);
/// What that pause is at least, as a multiple of the time that the last sealing took: at most a tenth of one core seals.
pub const SEAL_PAUSE_FACTOR: u32 = 9;
/// Smallest cap of the journal, in bytes.
pub const JOURNAL_CAP_BYTES_MIN: u64 = 4 << 30;
/// First inode number that is not a base file's: below it a file shows its number in the base.
pub const FIRST_NEW_INO: u64 = 1 << 39;
/// States that wait to be stored at which no automatic commit is added.
pub const PENDING_STATES_MAX: usize = 64;
/// Inodes or names that the kernel is told of at once.
pub const INVALIDATE_AT_ONCE: usize = 64;
/// Names up to which they are invalidated one by one.
pub const INVALIDATE_NAMES_MAX: usize = 10_000;
/// Files whose access times reads have moved, at most: 6 MB of memory.
pub const ACCESSED_MAX: usize = 200_000;
/// Name in the root that belongs to agentvfs.
pub const RESERVED_NAME: &[u8] = b".agentvfs";
/// Symbolic links that are followed on the way to one path (path_resolution(7)).
pub const SYMLINKS_MAX: usize = 40;
/// Longest key of the key-value state, in bytes.
pub const KV_KEY_BYTES_MAX: usize = 1024;
/// Longest value, in bytes: a request of the control protocol holds it with all escapes of a usual one.
pub const KV_VALUE_BYTES_MAX: usize = 512 << 10;
/// What all keys and values of a branch count, in bytes, 64 for each beside its text: it is in memory.
pub const KV_BYTES_MAX: u64 = 64 << 20;
/// Longest file that is compared by lines, in bytes; longer ones are binary.
pub const TEXT_BYTES_MAX: u64 = 8 << 20;
/// Bytes of the timeline's log from which on they are stored in the background.
pub const TIMELINE_FLUSH_BYTES: usize = 4 << 20;
/// Bytes of the timeline's log that are not stored at which whoever adds to it stores them first.
pub const TIMELINE_TAIL_BYTES_MAX: usize = 16 << 20;
/// Time for which a merge holds back changes of its target at most, where others go on changing it.
pub const MERGE_HOLD_MAX: Duration = Duration::from_secs(5);
/// How long a switch waits for programs to close files that it has removed: as long as it may take one that
/// has opened a file by its path to write to it. Who has one open for longer is not waited for beyond.
pub const VANISHED_WAIT_MAX: Duration = Duration::from_millis(100);
/// Times that the kernel is asked in a row to take a file's size in: it may not while it writes to the file.
pub const REFRESH_TRIES_MAX: usize = 4;
/// Rounds of that after an append came to the wrong place.
pub const MEND_ROUNDS_MAX: usize = 50;
/// Pause between two of these rounds.
pub const MEND_PAUSE: Duration = Duration::from_millis(1);
/// Events that a feed keeps, at most.
pub const FEED_EVENTS_MAX: usize = 65_536;
/// Files of which a branch remembers what rules allow, at most.
pub const DECISIONS_MAX: usize = 4_096;
/// How often rules may ask something about one change; each time what it touches became something else meanwhile.
pub const QUESTIONS_MAX: u32 = 16;
/// Names in a directory that is moved which are judged, at most: one that has more is not moved.
pub const MOVED_NAMES_MAX: usize = 200_000;
/// Events that a feed keeps in one piece of memory, at most.
pub const FEED_BLOCK_EVENTS: usize = 256;
/// Bytes of paths and words in such a piece, after which it takes no further event.
pub const FEED_BLOCK_TEXT_BYTES: usize = 64 << 10;
/// Bytes of events that a feed keeps, at most.
pub const FEED_BYTES_MAX: usize = 32 << 20;
/// How long a feed goes on once nobody follows it: who comes back in time has lost nothing.
pub const FEED_LINGER: Duration = Duration::from_secs(600);
/// Sessions whose metadata one commit has, at most.
pub const JOINED_MAX: u32 = 16;
/// Parts of the list of threads whose names are known, each with a lock of its own.
pub const NAMED_SHARDS: usize = 16;
/// Threads that such a part has, at most: each is an open file.
pub const NAMED_THREADS_MAX: usize = 8;
/// How long a thread can have executed something and have the name that it had before. An execve(2) of the smallest program
/// there can be takes longer until its first request comes: 60 µs on the machine where it was measured.
pub const NAME_QUIET: Duration = Duration::from_micros(40);
/// How long a name is used at most without being read again.
pub const NAME_OLD: Duration = Duration::from_millis(1);
/// Remotes of a workspace, at most.
pub const REMOTES_MAX: usize = 64;
