//! Every bound of a remote in one place, each with its reason.

/// Longest name of an object: S3 takes 1024 bytes.
pub const NAME_BYTES_MAX: usize = 512;
/// Longest part of such a name: it is a file name in a directory, with room for a temporary one.
pub const NAME_PART_BYTES_MAX: usize = 200;
/// Names that a listing may give: it is only advice, and what it leaves out is found by a later one.
pub const LISTED_MAX: usize = 1_000_000;
/// Objects that may be replaced are small; a conditional put of more is refused.
pub const REPLACED_BYTES_MAX: usize = 4 << 20;

/// How often a request is sent at most before its failure counts.
pub const ATTEMPTS_MAX: u32 = 6;
/// Pause after the first failure of a request; it doubles with each further one.
pub const BACKOFF_FIRST_MS: u64 = 200;
/// Longest pause between two attempts.
pub const BACKOFF_MAX_MS: u64 = 10_000;
