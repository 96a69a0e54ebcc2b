//! State files of branches.

use crate::{record, seal};
use engine::StateFile;

/// A state file is understood or refused; its tree can be built or is refused.
pub fn check(bytes: &[u8]) {
    let _ = StateFile::parse(bytes);
    if let Ok(state) = StateFile::parse(&seal::state(bytes)) {
        record::carry_out(&state.tree);
    }
}
