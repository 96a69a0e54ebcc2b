//! The daemon from its first request to its end: looks after the mounts, then ends in good order.

use super::gate::Gate;
use super::mounts::Mounts;
use std::time::Duration;

/// How long an ending daemon waits for requests that it works on.
const FINISH_WAIT: Duration = Duration::from_secs(20);

/// Looks after the mounts until the daemon is to end. Afterwards the gate is shut.
pub fn run(gate: &Gate, mounts: &Mounts) {
    loop {
        mounts.look_after();
        if gate.shut_if_done(|| mounts.are_none()) {
            return;
        }
        gate.wait(mounts.are_none());
    }
}

/// Ends in good order: requests in progress are finished, or cancelled where that can be, and all workspaces
/// stopped, unless another daemon goes on with them.
pub fn finish(gate: &Gate, mounts: &Mounts) {
    mounts.jobs().cancel_all();
    gate.wait_quiet(FINISH_WAIT);
    if !gate.is_handed_over() {
        mounts.stop_all();
    }
}
