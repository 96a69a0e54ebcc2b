//! What the processes of runs do, as programs in the kernel tell of it: what they execute, connect to and open. For root
//! alone, on a kernel that describes its types (BTF).
//!
//! The programs are `bpf/runs.bpf.c`, compiled ahead by `bpf/build.sh`; they are attached to tracepoints and to nothing else.
//! [`Hearing`] loads them, says to them which processes are of runs, and hands over what they tell. Invariants: it
//! knows nothing of workspaces and branches, a run is a number to it; whatever bytes come from the kernel give a deed or
//! nothing; a process of no run is never told of; and while no run is alive, nothing is attached to system calls.
//!
//! A thread that is slow delays no program: what the buffer between kernel and thread (1 MiB) does not take is counted, and
//! told as [`Heard::Lost`]. If this process ends, the kernel takes the programs away.
//!
//! Tests: `tests/object.rs`, and `tests/tests/telemetry_ebpf.rs` of the workspace.

#![forbid(unsafe_code)]

mod deed;
mod error;
mod hearing;
mod machine;
mod programs;

pub use deed::{Address, Deed, What};
pub use error::{Error, Result};
pub use hearing::{Heard, Hearing, Listener};
pub use programs::{Mount, check};
