//! The view of a sandbox once more, over one that nobody serves any more.
//!
//! It is put together in a mount namespace of its own, before the sandbox sees anything of it. Invariant: who places it shows
//! nothing of it that is hidden, not even for a moment.

use crate::error::{Doing, Result};
use crate::pieces;
use crate::plan::{PathRule, What};
use crate::reach::{Namespaces, taken};
use crate::tree;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::path::Path;

/// Where a view is put together.
const STAGE: &str = "/proc";

/// Places the view `from` of the machine in a sandbox at `at`, over the one that is there, with all of `inner` in
/// place below it. What used the old one goes on using that. This process, which has one thread, is in the sandbox
/// afterwards.
pub fn attach_view(
    namespaces: &Namespaces,
    (from, at): (&Path, &Path),
    inner: &[PathRule],
) -> Result<()> {
    let view = taken(from, None, &|view| furnished(view, at, inner))?;
    namespaces.enter()?;
    // The old one stays below: to take it away first would show what is there without a view.
    pieces::attach(view.as_fd(), at)
}

fn furnished(view: OwnedFd, at: &Path, inner: &[PathRule]) -> Result<OwnedFd> {
    if inner.is_empty() {
        return Ok(view);
    }
    let stage = Path::new(STAGE);
    let staged = |place: &PathRule| match place.at.strip_prefix(at) {
        Ok(rest) if can_be_put_again(&place.what) => Ok(PathRule {
            at: stage.join(rest),
            what: place.what.clone(),
        }),
        _ => Err(Errno::NOTSUP).doing(|| format!("placing {} again", place.at.display())),
    };
    let inner: Vec<PathRule> = inner.iter().map(staged).collect::<Result<_>>()?;
    tree::furnished(view, stage, &inner)
}

/// Whether it is the same wherever it is taken: copies and what is there anyway are mounts of the sandbox.
fn can_be_put_again(what: &What) -> bool {
    matches!(
        what,
        What::Hidden | What::Private | What::Tree(_) | What::Empty | What::Link(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_the_sandbox_itself_are_not_put_again() {
        for what in [What::Hidden, What::Empty, What::Tree("/a".into())] {
            assert!(can_be_put_again(&what));
        }
        for what in [What::Writable, What::Shown, What::Socket("/s".into())] {
            assert!(!can_be_put_again(&what));
        }
    }
}
