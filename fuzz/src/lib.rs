//! What must hold for any bytes that a decoder of agentvfs is given.
//!
//! Each module owns one `fn check(&[u8])`, which panics where something does not hold. The targets in
//! `fuzz_targets/` call it with what libFuzzer makes up, `tests/replay.rs` with the corpora.
//!
//! Most stored bytes carry checksums, behind which no mutation would ever get. So the checks look at
//! the bytes as they are and once more *sealed*: with right checksums in place, put there by code of
//! its own, written after `docs/format.md` and not after the decoder.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod acl;
pub mod database;
pub mod deed;
mod disk;
pub mod index;
pub mod journal;
pub mod object;
pub mod pack;
pub mod policy;
pub mod program;
pub mod record;
pub mod reference;
pub mod remote;
pub mod request;
mod seal;
pub mod seeds;
pub mod state;
pub mod timeline;
pub mod wire;

/// A check by the name of its target and corpus.
pub type Check = (&'static str, fn(&[u8]));

/// All checks.
pub const CHECKS: [Check; 16] = [
    ("acl", acl::check),
    ("database", database::check),
    ("deed", deed::check),
    ("index", index::check),
    ("journal", journal::check),
    ("object", object::check),
    ("pack", pack::check),
    ("policy", policy::check),
    ("program", program::check),
    ("record", record::check),
    ("reference", reference::check),
    ("remote", remote::check),
    ("request", request::check),
    ("state", state::check),
    ("timeline", timeline::check),
    ("wire", wire::check),
];
