//! What is agreed with the kernel when a mount begins, and the threads that read requests.
//!
//! The settings were measured; several combinations deadlock or lose data (never ATOMIC_O_TRUNC while
//! OPEN is refused: the truncation is lost; never the write-back cache: the kernel would own sizes).

use crate::limits::{MAX_BACKGROUND, MAX_WRITE_BYTES};
use crate::serve::Front;
use fuser::{InitFlags, KernelConfig, Session, SessionACL};
use std::os::fd::OwnedFd;

/// What is asked of the kernel, each where it knows it.
const CAPABILITIES: [InitFlags; 5] = [
    // Listings bring attributes, so that a walk needs no further requests.
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_PARALLEL_DIROPS,
    // Pages are dropped when we say so, not when a size or time looks different.
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    // Set-id bits and capabilities are cleared by the engine; saves a GETXATTR before each write.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    // Modes come unmasked: with a default ACL the umask does not count.
    InitFlags::FUSE_DONT_MASK,
];

/// Answers the kernel's offer. What it does not know is left out. `permissions`: the kernel checks
/// mode bits and ACLs (the flag for ACLs alone would make it check both).
pub(crate) fn negotiate(config: &mut KernelConfig, permissions: bool) {
    let acl = permissions.then_some(InitFlags::FUSE_POSIX_ACL);
    for capability in CAPABILITIES.into_iter().chain(acl) {
        if config.add_capabilities(capability).is_err() {
            tracing::info!(?capability, "not offered by this kernel");
        }
    }
    // Both take any value in range.
    let _ = config.set_max_background(MAX_BACKGROUND);
    let _ = config.set_max_write(MAX_WRITE_BYTES);
}

/// A session over a device that is mounted: answers the kernel's first request.
///
/// Who may use the mount is the kernel's business (`allow_other`), so the session itself lets
/// everybody in.
pub(crate) fn open(
    front: Front,
    device: OwnedFd,
    threads: usize,
) -> std::io::Result<Session<Front>> {
    let mut config = fuser::Config::default();
    config.n_threads = Some(threads.max(1));
    config.acl = SessionACL::All;
    Session::from_fd(front, device, SessionACL::All, config)
}
