//! What a program may use.

use std::time::Duration;

/// Longest program, in bytes.
pub const PROGRAM_BYTES_MAX: usize = 256 << 10;

/// Processor time for an event.
pub const TIME_MAX: Duration = Duration::from_millis(1);

/// Processor time for the beginning of a program.
pub const BEGIN_TIME_MAX: Duration = Duration::from_millis(10);

/// Memory of a module of WebAssembly, in bytes.
pub const WASM_BYTES_MAX: usize = 16 << 20;

/// Entries of a table of a module.
pub const WASM_TABLE_MAX: usize = 10_000;

/// Nested calls of a module.
pub const WASM_CALLS_MAX: usize = 256;

/// Bytes of a module's stack of values.
pub const WASM_STACK_BYTES_MAX: usize = 256 << 10;

/// Fuel of a module for an event: about an instruction a unit.
pub const WASM_FUEL: u64 = 100_000;

/// Fuel of a module for its beginning.
pub const WASM_BEGIN_FUEL: u64 = 5_000_000;

/// Memory of a Lua program, in bytes. A function of Lua's library that was called is not cut, so this bounds how long one takes.
pub const LUA_BYTES_MAX: usize = 2 << 20;

/// Instructions of a Lua program after which its time is looked at.
pub const LUA_LOOK_EVERY: u32 = 10;

/// Instructions of a Lua program for an event.
pub const LUA_INSTRUCTIONS_MAX: u32 = 50_000;

/// The same for its beginning.
pub const LUA_BEGIN_INSTRUCTIONS_MAX: u32 = 1_000_000;

/// Steps that a pattern of Lua may take at most, by an upper bound that is computed before it is tried.
pub const LUA_PATTERN_STEPS_MAX: u64 = 200_000;

/// Length of a table that something is inserted into or removed from, at most: each entry takes 16 bytes of memory.
pub const LUA_LENGTH_MAX: usize = LUA_BYTES_MAX / 16;

/// Longest text that `string.rep` makes, in bytes.
pub const LUA_REP_BYTES_MAX: usize = 64 << 10;

/// Texts of an answer, and their bytes together.
pub const EXTRA_MAX: usize = 16;
/// See [`EXTRA_MAX`].
pub const EXTRA_BYTES_MAX: usize = 4 << 10;
