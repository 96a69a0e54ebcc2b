//! Whether two trees would be recorded as different commits.

use super::transition;
use crate::record::Counters;
use crate::tree::Tree;
use crate::tree::inode::Inode;
use crate::tree::lookups::Lookups;
use std::sync::Arc;

/// Above all numbers that a branch gives: for trees that are only compared.
pub(crate) const FRESH_NID: u64 = 1 << 39;

/// True where a commit of one would differ from a commit of the other.
pub(crate) fn differs(a: &Tree, b: &Tree) -> bool {
    if !a.kv().equals(b.kv()) {
        return true;
    }
    let (mut certain, mut numbers) = (false, false);
    each_difference(a, b, &mut |x, y| match (x, y) {
        // The same name for the same number: not only numbered in another way.
        (Some(x), Some(y)) if x.dir().is_none() => {
            certain |= (x.parent, x.hash, x.nlink) == (y.parent, y.hash, y.nlink);
            numbers = true;
        }
        _ => numbers = true,
    });
    certain || (numbers && differs_by_path(a, b))
}

/// As [`differs`], for trees in which one file may have two numbers, as in a state that was loaded from
/// the store.
fn differs_by_path(a: &Tree, b: &Tree) -> bool {
    let mut fresh = Counters {
        nid: FRESH_NID,
        ino: FRESH_NID,
        state: 0,
    };
    let same_numbers = transition(a, b, &mut fresh, &Lookups::default()).tree;
    let mut found = false;
    each_difference(a, &same_numbers, &mut |_, _| found = true);
    found
}

/// Calls `each` for inodes with a name that a commit would record otherwise.
fn each_difference(a: &Tree, b: &Tree, each: &mut dyn FnMut(Option<&Inode>, Option<&Inode>)) {
    Tree::diff(a, b, &mut |_, x, y| {
        let named = |i: &&Arc<Inode>| i.nlink > 0;
        match (x.filter(named), y.filter(named)) {
            (None, None) => {}
            (Some(x), Some(y)) if Tree::commit_alike((a, x), (b, y)) => {}
            (x, y) => each(x.map(|i| &**i), y.map(|i| &**i)),
        }
    });
}
