//! Branches by name: listing, making, renaming and deleting them, and commits of one that another one refers to.

pub(crate) mod deleting;
pub(crate) mod sandboxes;
pub(crate) mod standing;

use super::Calls;
use crate::branch::Branch;
use crate::branch::create;
use crate::branch::create::Origin;
use crate::branch::states;
use crate::branch::states::Target;
use crate::clock;
use crate::error::{Error, Result};
use crate::feed::FeedOp;
use crate::names::check_branch_name;
use crate::types::*;
use crate::verbs::exchange;
use crate::verbs::lineage;
use crate::verbs::runs;
use crate::verbs::timeline::imported::TakenOver;
use crate::workspace::Workspace;
use crate::workspace::branch_refs::{BranchRecord, MadeIn};
use crate::workspace::remotes;
use crate::workspace::views::{branches_node, snapshots_node};
use objstore::CommitId;
use std::sync::Arc;

/// A branch of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchInfo {
    /// Its name.
    pub name: String,
    /// Its head, once its id is known.
    pub head: Option<CommitId>,
    /// When it was made.
    pub created: Time,
}

/// A branch that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Its name.
    pub name: String,
    /// The commit that it begins with; `None` while its id is not known.
    pub commit: Option<CommitId>,
}

/// A branch that was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Commit of what it showed last.
    pub last: CommitId,
    /// True where no other branch has that commit.
    pub only_here: bool,
}

/// All branches, `main` first.
pub fn list_branches(ws: &Workspace) -> Vec<BranchInfo> {
    let created = ws.views.created();
    let info = |b: Arc<Branch>| {
        let inner = b.lock();
        BranchInfo {
            name: b.name(),
            head: inner.book.history.id_of(inner.book.history.head),
            created: created.get(&b.slot).copied().unwrap_or_default(),
        }
    };
    ws.views.branches().into_iter().map(info).collect()
}

/// Makes branch `name` of what `of` shows now, or of the state that `from` names there. Durable after
/// `Ok`.
pub fn create_branch(ws: &Workspace, name: &str, of: &str, from: Option<&str>) -> Result<Created> {
    make_branch(ws, name, (of, from), None)
}

/// The same from inside the sandbox of branch `sandbox`, which was made at that time, and to which the new branch belongs
/// from now on.
pub fn create_branch_in_sandbox(
    ws: &Workspace,
    name: &str,
    (of, from): (&str, Option<&str>),
    sandbox: (&str, Time),
) -> Result<Created> {
    make_branch(ws, name, (of, from), Some(sandbox))
}

fn make_branch(
    ws: &Workspace,
    name: &str,
    (of, from): (&str, Option<&str>),
    sandbox: Option<(&str, Time)>,
) -> Result<Created> {
    check_branch_name(name)?;
    let _one = ws.views.changing();
    if ws.branch(name).is_ok() {
        return Err(Error::BranchExists(name.to_owned()));
    }
    let parent = ws.branch(of)?;
    let made_in = sandbox
        .map(|sandbox| sandboxes::made_in(ws, sandbox, (of, from)))
        .transpose()?;
    let _control = parent.control.lock();
    // Until the new branch is there, gc does not know of it.
    let _pin = parent.places.store.pin();
    let origin = match from {
        None => {
            ws.untrusted.makes(name, of, None)?;
            create::origin_live(&parent, ws.author())?
        }
        Some(text) => {
            let target = Target::Ref(text.to_owned());
            let target = import_ref(ws, &parent, &target)?;
            let state = states::resolve(&parent, &target)?;
            let foreign = runs::is_foreign(&parent, state)?;
            ws.untrusted.makes(name, of, Some(foreign))?;
            create::origin_at(&parent, state)?
        }
    };
    // The new branch refers to objects, and to data in its parent's journal, and must not be durable
    // before those are.
    parent.places.store.sync()?;
    parent.sync()?;
    let no_calls: Calls<'_> = &mut || Ok(TakenOver::Calls(Vec::new()));
    let made = add_branch(ws, name, (origin, made_in), no_calls)?;
    if let Some(text) = from.filter(|text| !text.starts_with(&format!("{of}:"))) {
        let target = Target::Ref(text.to_owned());
        lineage::take_over_target(ws, &*ws.branch(name)?, &target, made.commit);
    }
    Ok(made)
}

/// Makes a branch, in a sandbox or not, of what it begins with and of calls that are taken over from elsewhere.
pub(crate) fn add_branch(
    ws: &Workspace,
    name: &str,
    (origin, made_in): (Origin, Option<MadeIn>),
    calls: Calls<'_>,
) -> Result<Created> {
    let views = &ws.views;
    let number = views.free_number()?;
    let head = origin.head();
    let branch = create::make(views.open_parts(name, number), origin)?;
    if let Err(error) = exchange::take_over(&branch, calls) {
        views.journals().remove(branch.places.journal.number());
        exchange::discard(ws, &branch)?;
        return Err(error);
    }
    let created = clock::now();
    let record = BranchRecord {
        made_in,
        ..BranchRecord::new(number, created, None)
    };
    views.record(name, &record)?;
    let branch = views.add(branch, created);
    views.set_made_in(number, made_in);
    let commit = branch.lock().book.history.id_of(head);
    branch.tell_of(FeedOp::Branch, &|| "create".to_owned());
    branch.signal();
    branches_changed(ws, &branch, name);
    Ok(Created {
        name: name.to_owned(),
        commit,
    })
}

/// Gives a branch another name.
pub fn rename_branch(ws: &Workspace, old: &str, new: &str) -> Result<()> {
    check_branch_name(new)?;
    let _one = ws.views.changing();
    let branch = changeable(ws, old)?;
    if ws.branch(new).is_ok() {
        return Err(Error::BranchExists(new.to_owned()));
    }
    let created = ws.views.created().get(&branch.slot).copied();
    let was = Some(old.to_owned());
    let record = BranchRecord {
        made_in: ws.views.made_in().remove(&branch.slot),
        ..BranchRecord::new(branch.slot, created.unwrap_or_default(), was)
    };
    ws.untrusted.renames(old, new)?;
    ws.views.record(new, &record)?;
    branch.set_name(new);
    ws.views.unrecord(old)?;
    branch.tell_of(FeedOp::Branch, &|| format!("rename from={old}"));
    branches_changed(ws, &branch, old);
    branches_changed(ws, &branch, new);
    runs::forget(ws, old);
    Ok(())
}

/// A branch that may be renamed or deleted.
fn changeable(ws: &Workspace, name: &str) -> Result<Arc<Branch>> {
    let branch = ws.branch(name)?;
    if branch.slot == ws.main.slot {
        return Err(Error::MainBranch);
    }
    Ok(branch)
}

/// The kernel's list of branches is not right any more.
fn branches_changed(_ws: &Workspace, branch: &Branch, name: &str) {
    let cache = branch.cache();
    cache.inval_entry(branches_node(), name.as_bytes());
    cache.inval_inode(branches_node());
}

/// The kernel's list of a branch's labels is not right any more.
pub(crate) fn snapshots_changed(_ws: &Workspace, branch: &Branch) {
    branch.cache().inval_inode(snapshots_node(branch.slot));
}

/// Makes what a reference of another branch (`BRANCH:LABEL`) or a remote's (`REMOTE/BRANCH`), or the id of a commit that this branch
/// does not know, names a state of `branch`; returns what names it there.
pub(crate) fn import_ref(ws: &Workspace, branch: &Branch, target: &Target) -> Result<Target> {
    let Target::Ref(text) = target else {
        return Ok(target.clone());
    };
    // What the other has may expire before this one has it, and gc may look in between.
    let _pin = branch.places.store.pin();
    let other = match text.split_once(':') {
        Some((name, _)) if name != branch.name() => Some(ws.branch(name)?),
        _ => None,
    };
    let tracked = match text.contains('/') {
        true => remotes::tracking(ws, text)?,
        false => None,
    };
    if let Some(tracked) = tracked {
        ws.untrusted.comes_from_afar(&branch.name())?;
        branch.know(tracked.commit)?;
        return Ok(Target::Ref(tracked.commit.to_string()));
    }
    let id = match other {
        Some(other) => {
            let state = other.lock().book.history.resolve(&other.name(), text)?;
            states::wait_for_id(&other, state, &|_, _| {})?
        }
        None => match states::resolve(branch, target) {
            Err(Error::NoSuchRef(_)) => match exchange::stored_commit(ws, text)? {
                Some(id) => id,
                None => return Ok(target.clone()),
            },
            _ => return Ok(target.clone()),
        },
    };
    branch.know(id)?;
    Ok(Target::Ref(id.to_string()))
}
