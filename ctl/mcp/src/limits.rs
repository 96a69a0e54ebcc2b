//! Bounds of what a client can have the server hold, and of what a result holds.

/// Longest message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 2 << 20;

/// Requests in hand at once; further ones wait unread.
pub const REQUESTS_MAX: usize = 16;

/// Threads, and so connections, that ask the daemon at once.
pub const THREADS_MAX: usize = 4;

/// Answers that wait to be written.
pub const ANSWERS_MAX: usize = 32;

/// Bytes of a file or patch in a result where nothing else was asked for: some 8,000 tokens.
pub const BYTES_DEFAULT: u64 = 32 << 10;

/// Bytes of a file or patch in a result at most.
pub const BYTES_MAX: u64 = 256 << 10;

/// Rows of a list in a result where nothing else was asked for.
pub const ROWS_DEFAULT: u64 = 100;

/// Rows of a list in a result at most.
pub const ROWS_MAX: u64 = 1000;

/// Commits and timeline entries in a result where nothing else was asked for.
pub const ENTRIES_DEFAULT: u64 = 20;

/// Bytes of text in the rows of a result at most, whatever their number.
pub const ROWS_BYTES_MAX: usize = 256 << 10;
