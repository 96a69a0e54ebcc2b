//! State files of branches, tree files, and the pointer to the one that counts.

use crate::seal;
use engine::{check_state_bytes, check_tree_bytes};

/// A state or tree file is understood or refused.
pub fn check(bytes: &[u8]) {
    check_state_bytes(bytes);
    check_state_bytes(&seal::state(bytes));
    check_state_bytes(&seal::first_timeline_state(bytes));
    check_state_bytes(&seal::old_state(bytes));
    check_tree_bytes(bytes);
    check_tree_bytes(&seal::tree(bytes));
}
