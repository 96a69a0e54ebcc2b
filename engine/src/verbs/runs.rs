//! Commands in a sandbox: what they write is marked as such ([`Untrusted`](crate::workspace::untrusted::Untrusted)), and
//! the mark follows it wherever another verb takes it.

use super::{MergeReport, MergeRequest};
use crate::branch::Branch;
use crate::branch::states;
use crate::branch::states::Target;
use crate::error::Result;
use crate::feed::{FeedOp, Sentence};
use crate::merge::Outcome;
use crate::record::OpKind;
use crate::workspace::Workspace;

/// A command that may write in a branch is about to begin; `made_of` is the branch of which that was made for it.
/// Durable after `Ok`. Gives the branch of which it was made, if a run made it.
pub fn run_begins(
    ws: &Workspace,
    branch: &str,
    run: &str,
    made_of: Option<&str>,
) -> Result<Option<String>> {
    let _one = ws.views.changing();
    let found = ws.branch(branch)?;
    let made_of = ws.untrusted.begins(branch, run, made_of)?;
    found.lock().judging.begin_run(run);
    found.tell_of(FeedOp::Run, &|| format!("begin run={run}"));
    Ok(made_of)
}

/// That command has ended, and the branch shows what it showed before. A crash may leave it marked.
pub fn run_wrote_nothing(ws: &Workspace, branch: &str, run: &str) -> Result<()> {
    let _one = ws.views.changing();
    ws.branch(branch)?;
    ws.untrusted.wrote_nothing(branch, run);
    Ok(())
}

/// The run that began last in a branch.
pub fn run_of(ws: &Workspace, branch: &str) -> Result<Option<String>> {
    let branch = ws.branch(branch)?;
    let inner = branch.lock();
    Ok(inner.run().map(str::to_owned))
}

/// Tells what rules say of a tool call.
pub fn tell_verdict(ws: &Workspace, branch: &str, said: Sentence, detail: &str) -> Result<()> {
    ws.branch(branch)?.tell_said(said, detail);
    Ok(())
}

/// Whether a branch has a state from another one.
pub(crate) fn is_foreign(branch: &Branch, state: u64) -> Result<bool> {
    let inner = branch.lock();
    Ok(inner.book.history.state(state)?.info.kind == OpKind::Foreign)
}

/// A branch is to show a state again, or a part of it.
pub(crate) fn shows_again(ws: &Workspace, branch: &Branch, target: &Target) -> Result<()> {
    let state = states::resolve(branch, target)?;
    let foreign = is_foreign(branch, state)?;
    ws.untrusted.shows_again(&branch.name(), foreign)
}

/// Merges, and lets the mark follow if that changes something.
pub(crate) fn merging(
    ws: &Workspace,
    req: &MergeRequest,
    merge: impl FnOnce() -> Result<MergeReport>,
) -> Result<MergeReport> {
    if req.dry_run {
        return merge();
    }
    let id = format!("merge {}", ws.untrusted.next_merge());
    match is_of_remote(&req.from) {
        true => ws.untrusted.merges_from_afar(&req.into, &id)?,
        false => ws.untrusted.merges(&req.from, &req.into, &id)?,
    }
    let report = merge()?;
    if report.commit.is_none() || report.outcome == Outcome::UpToDate {
        ws.untrusted.merged_nothing(&req.into, &id)?;
    }
    Ok(report)
}

/// Whether this names a branch of a remote, `REMOTE/BRANCH`: no branch's name has a slash.
fn is_of_remote(name: &str) -> bool {
    name.contains('/')
}

/// There is no branch of that name any more. A mark that stays would only mark the next one of that name.
pub(crate) fn forget(ws: &Workspace, branch: &str) {
    if let Err(error) = ws.untrusted.forget(branch) {
        tracing::warn!("the mark of branch {branch} stays: {error}");
    }
}
