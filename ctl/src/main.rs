//! The `agentvfs` binary; everything is in the library so that tests and fuzzers reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    ctl::main()
}
