//! Every bound of the store in one place, each with its reason.

/// Smallest chunk but for the last of a data segment.
pub const CHUNK_BYTES_MIN: usize = 16 * 1024;
/// Chunk size that the boundaries aim at.
pub const CHUNK_BYTES_AVG: usize = 64 * 1024;
/// Largest chunk.
pub const CHUNK_BYTES_MAX: usize = 256 * 1024;

/// Holes are kept in whole blocks of this size; what is smaller is stored as zeros.
pub const HOLE_BLOCK_BYTES: u64 = 4096;

/// Largest encoded object: a tree leaf whose 64 entries carry many large extended attributes.
pub const OBJECT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Longest encoding that is decoded at all: a directory of some million entries in a state file.
pub const DECODED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A pack is closed and the next one begun when a record would take it beyond this.
pub const PACK_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// A pack of which nothing needs this much is rewritten by gc.
pub const REWRITE_DEAD_PERCENT: u64 = 20;

/// Where nothing needs this much of a pack's length, it is rewritten though most of that is holes by now:
/// so the number of packs stays in proportion to what they hold.
pub const REWRITE_SPARSE_PERCENT: u64 = 75;
/// Holes are punched in packs in whole blocks of this size: what file systems mostly allocate, and no
/// less than what a disk writes at once.
pub const PUNCH_BLOCK_BYTES: u64 = 4096;
/// A pack in which holes would give less back than this is left alone: its index has to be written anew.
pub const PUNCH_BYTES_MIN: u64 = 64 * 1024;

/// Free space that packs leave alone: what is in the journals is safe already, and going back and
/// deleting need room there.
pub const FREE_BYTES_MIN: u64 = 8 * 1024 * 1024;
/// Space that is kept on the disk for what must go on when it is full: the records of some 200,000
/// deletions, or going back over as many changed files.
pub const RESERVE_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// On a small disk the reserve is one in so many of its bytes.
pub const RESERVE_DISK_PART: u64 = 16;
/// The first piece of the reserve that is given back; the next ones are larger.
pub const RESERVE_PIECE_BYTES: u64 = 256 * 1024;
/// Free space that small files of others need: records of mounts, directories.
pub const ROOM_BYTES: u64 = 128 * 1024;
/// Packed bytes after which free space is looked at again.
pub const FREE_CHECK_BYTES: u64 = 1024 * 1024;

/// Bytes of objects that wait to be packed; beyond them whoever puts does all the work itself. A
/// checkpoint of a thousand edited sources fits.
pub const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The index beside a growing pack is rewritten at a sync once this much of the pack is not covered:
/// it bounds what has to be read again at open after a crash.
pub const UNINDEXED_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Bytes of decoded chunks kept in memory.
pub const CHUNK_CACHE_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of decoded manifest nodes kept in memory.
pub const MANIFEST_CACHE_BYTES: usize = 8 * 1024 * 1024;

/// Entries of one manifest node.
pub const MANIFEST_ENTRIES_MAX: usize = 1024;
/// Levels of a manifest: 1024^6 entries are beyond any file.
pub const MANIFEST_LEVELS_MAX: u8 = 6;

/// Entries of a tree leaf; one more and it is split.
pub const TREE_LEAF_ENTRIES_MAX: usize = 64;
/// Depth at which a tree node is always a leaf: the hash has no four bits left to split by.
pub const TREE_DEPTH_MAX: u32 = 15;
/// Longest name of a directory entry in bytes.
pub const NAME_BYTES_MAX: usize = 1024;

/// Bytes read from a source at a time while chunking; at least one largest chunk.
pub const CHUNK_WINDOW_BYTES: usize = 2 * CHUNK_BYTES_MAX;

/// Page cache of the import table.
pub const IMPORT_CACHE_BYTES: u64 = 1024 * 1024;
