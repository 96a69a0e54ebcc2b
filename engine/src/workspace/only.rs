//! Which branches the request that this thread works on may find: those that whoever checked it has seen.
//!
//! A check looks at names, and what is done then looks them up again. Meanwhile another branch may have got a name.
//! Invariant: within [`only_with`] a name leads to a branch that was checked or to none.
//!
//! Tests: below, `engine/tests/apply/sandboxes.rs`.

use crate::types::Time;
use std::cell::RefCell;

/// A branch itself, whichever name it has: no two have had the same number from the same time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub number: u16,
    pub created: Time,
}

thread_local! {
    static ONLY: RefCell<Option<Vec<Identity>>> = const { RefCell::new(None) };
}

/// Does something that finds these branches alone by their names.
pub(crate) fn only_with<R>(branches: Vec<Identity>, work: impl FnOnce() -> R) -> R {
    let _back = Back(ONLY.replace(Some(branches)));
    work()
}

/// Puts back what could be found before, also after a panic.
struct Back(Option<Vec<Identity>>);

impl Drop for Back {
    fn drop(&mut self) {
        ONLY.set(self.0.take());
    }
}

/// Whether this thread may find a branch; `identity` is asked for only if not every branch may be found.
pub(crate) fn may_find(identity: impl FnOnce() -> Option<Identity>) -> bool {
    ONLY.with_borrow(|only| match only {
        None => true,
        Some(only) => identity().is_some_and(|identity| only.contains(&identity)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_found_ends_with_the_request_also_where_that_panics() {
        let one = |number| Identity {
            number,
            created: Time::default(),
        };
        let may = |number| may_find(|| Some(one(number)));
        only_with(vec![one(1)], || {
            let inner = std::panic::catch_unwind(|| only_with(vec![], || panic!("on purpose")));
            assert!(inner.is_err());
            assert!(may(1) && !may(2) && !may_find(|| None));
        });
        assert!(may(2) && may_find(|| None));
    }
}
