//! Which branches belong to the sandbox of one: what a command in it may work with by name.
//!
//! These are the branch itself and those that were made from inside its sandbox, or from inside theirs. Invariant: a
//! branch that was made outside never belongs to one, whatever its history; one that takes the name or the number of
//! another does not get what belonged to that.
//!
//! Tests: `engine/tests/apply/sandboxes.rs`.

use crate::error::{Error, Result};
use crate::types::Time;
use crate::workspace::Workspace;
use crate::workspace::branch_refs::MadeIn;
use crate::workspace::only::{self, Identity};
use std::collections::BTreeSet;

/// Finds, while no branch can be made or deleted, whether what a new branch is to be made of still belongs to a sandbox.
/// Gives what is recorded of that branch.
pub(crate) fn made_in(
    ws: &Workspace,
    (sandbox, created): (&str, Time),
    (of, from): (&str, Option<&str>),
) -> Result<MadeIn> {
    let members = sandbox_members(ws, sandbox, created)?;
    let has = |name: &str| members.iter().any(|member| member.name == name);
    if !has(of) {
        return Err(Error::NoSuchBranch(of.to_owned()));
    }
    if let Some((other, _)) = from.and_then(|text| text.split_once(':'))
        && !has(other)
    {
        return Err(Error::NoSuchBranch(other.to_owned()));
    }
    Ok(MadeIn {
        number: ws.branch(sandbox)?.slot,
        created,
    })
}

/// A branch that belongs to a sandbox.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name, as it was found.
    pub name: String,
    /// What its events in the feed have as `teller`.
    pub teller: u64,
    identity: Identity,
}

/// Does something that finds these branches alone by their names, and no others that have got the names meanwhile.
pub fn only_with_members<R>(members: &[Member], work: impl FnOnce() -> R) -> R {
    only::only_with(members.iter().map(|member| member.identity).collect(), work)
}

/// Names of [`sandbox_members`].
pub fn branches_of_sandbox(ws: &Workspace, branch: &str, created: Time) -> Result<Vec<String>> {
    let members = sandbox_members(ws, branch, created)?;
    Ok(members.into_iter().map(|member| member.name).collect())
}

/// The branches that belong to the sandbox of `branch`, which was made at `created`; it is the first. None where another
/// branch has that name by now.
pub fn sandbox_members(ws: &Workspace, branch: &str, created: Time) -> Result<Vec<Member>> {
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
    let member = |name: String, number: u16, teller: u64| Member {
        name,
        teller,
        identity: Identity {
            number,
            created: times.get(&number).copied().unwrap_or_default(),
        },
    };
    let others = others.map(|b| member(b.name(), b.slot, b.teller));
    let own = member(branch.to_owned(), top.slot, top.teller);
    Ok(std::iter::once(own).chain(others).collect())
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
