//! Every bound of the merge, by name.

/// Longest file whose lines are merged, in bytes; longer ones conflict as binaries do and are never
/// loaded.
pub const TEXT_BYTES_MAX: u64 = 32 << 20;
/// Longest file that is compared for similarity; longer ones are followed only where they were renamed
/// unchanged.
pub const SIMILARITY_BYTES_MAX: u64 = 8 << 20;
/// Merged texts kept in memory until the outcome is known; what is beyond is stored at once.
pub const HELD_BYTES_MAX: usize = 64 << 20;
/// Renames with edits are looked for as long as sources times targets are no more than this squared
/// (git's default for merges).
pub const RENAME_LIMIT: usize = 7000;
/// Files with the same content among which a rename's source is chosen.
pub const SAME_CONTENT_MAX: usize = 100;
/// Best sources that are kept for each target.
pub const CANDIDATES_PER_TARGET: usize = 4;
/// Virtual ancestors within virtual ancestors.
pub const DEPTH_MAX: u32 = 64;
