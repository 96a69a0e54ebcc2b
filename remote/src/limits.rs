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

/// How often an object is read that was damaged on its way, or gone when it was read, before that is an error.
pub const READS_MAX: u32 = 4;
/// How often a generation is lost to others before a push or gc gives up.
pub const TRIES_MAX: u32 = 50;

/// Bytes of all indexes of a generation, which are in memory: some 25 million objects.
pub const INDEX_BYTES_TOTAL_MAX: u64 = 1 << 30;
/// Indexes of a generation beyond which the smallest are merged.
pub const INDEXES_KEPT_MAX: usize = 24;
/// Length at which a pack is full.
pub const PACK_BYTES: u64 = 64 << 20;
/// Bytes of packs after which a push makes them present, so that a later one goes on from there.
pub const REGISTER_BYTES: u64 = 512 << 20;
/// Objects after which it does so: one index holds them.
pub const REGISTER_OBJECTS: usize = 1_000_000;

/// Bytes that one request brings at most, unless one record has more.
pub const RANGE_BYTES: u64 = 8 << 20;
/// Bytes between two records that are brought rather than to have two requests.
pub const RANGE_GAP_BYTES: u64 = 64 << 10;

/// Bytes that are brought with an object that is read; they double with each that goes on beside the last, up to
/// [`RANGE_BYTES`].
pub const NEAR_BYTES: u64 = 1 << 20;
/// How long nobody looks again whether a remote has an object that its index did not have.
pub const LOOK_AGAIN_SEC: i64 = 5;

/// Time for which what may be needed stays in a remote.
pub const GRACE_SEC: i64 = 86_400;
/// Observations that gc keeps for one grace period.
pub const OBSERVATIONS_MAX: usize = 32;
/// Longest list of the commits that a timeline mentions.
pub const MENTIONED_BYTES_MAX: u64 = 256 << 20;
/// How many commits a branch of a remote may be ahead of what is here, for what lies behind to count as kept by it.
pub const AHEAD_MAX: u32 = 100_000;
