//! State files of branches, and the pointer to the one that counts.

use crate::seal;
use engine::check_state_bytes;

/// A state file is understood or refused.
pub fn check(bytes: &[u8]) {
    check_state_bytes(bytes);
    check_state_bytes(&seal::state(bytes));
}
