//! Reading the timelines of branches: pages of it, proofs, and what each call changed.

pub(crate) mod certain;
pub(crate) mod imported;
pub(crate) mod kept;
pub(crate) mod own;
pub(crate) mod read;
pub(crate) mod sources;
pub(crate) mod stats;
pub(crate) mod verify;
