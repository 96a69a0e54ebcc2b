//! The `agentvfs` binary; everything is in the library so that tests and fuzzers reach it.

use std::process::ExitCode;

/// Trees are many small objects of few sizes that come and go in bulk: this allocator keeps sizes
/// apart, so that what was freed goes back to the system.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    ctl::main()
}
