//! Which branches belong to the sandbox of one: what a command in it may work with by name.
//!
//! These are the branch itself and those that were made from inside its sandbox, or from inside theirs. Invariant: a
//! branch that was made outside never belongs to one, whatever its history; one that takes the name or the number of
//! another does not get what belonged to that.
//!
//! Tests: `engine/tests/sandboxes.rs`.

use crate::error::{Error, Result};
use crate::types::Time;
use crate::workspace::Workspace;
use crate::workspace::branch_refs::MadeIn;
use std::collections::BTreeSet;

/// What is recorded of a branch that is made in the sandbox of this one.
pub(crate) fn made_in(ws: &Workspace, sandbox: &str) -> Result<MadeIn> {
    let number = ws.branch(sandbox)?.slot;
    let created = ws.views.created().get(&number).copied();
    Ok(MadeIn {
        number,
        created: created.unwrap_or_default(),
    })
}

/// Names of the branches that belong to the sandbox of `branch`, which was made at `created`; it is the first. None
/// where another branch has that name by now.
pub fn branches_of_sandbox(ws: &Workspace, branch: &str, created: Time) -> Result<Vec<String>> {
    let top = ws.branch(branch)?;
    let (times, made_in) = (ws.views.created(), ws.views.made_in());
    if times.get(&top.slot) != Some(&created) {
        return Err(Error::NoSuchBranch(branch.to_owned()));
    }
    let mut found = BTreeSet::from([top.slot]);
    loop {
        let belongs = |(slot, of): (&u16, &MadeIn)| {
            let is_same = times.get(&of.number) == Some(&of.created);
            (is_same && found.contains(&of.number)).then_some(*slot)
        };
        let more: Vec<u16> = made_in.iter().filter_map(belongs).collect();
        let before = found.len();
        found.extend(more);
        if found.len() == before {
            break;
        }
    }
    let all = ws.views.branches().into_iter();
    let others = all.filter(|b| b.slot != top.slot && found.contains(&b.slot));
    let names = others.map(|b| b.name());
    Ok(std::iter::once(branch.to_owned()).chain(names).collect())
}

/// Whether a ref names a state that the branch has itself, so that nothing of another one is looked at.
pub fn has_own_ref(ws: &Workspace, branch: &str, text: &str) -> Result<bool> {
    let branch = ws.branch(branch)?;
    let found = branch.lock().book.history.resolve(&branch.name(), text);
    match found {
        Ok(_) | Err(Error::AmbiguousRef { .. }) => Ok(true),
        Err(Error::NoSuchRef(_) | Error::NoSuchBranch(_)) => Ok(false),
        Err(error) => Err(error),
    }
}
