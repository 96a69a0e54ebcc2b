//! A rule about changes, compiled.

use crate::errno::Errno;
use crate::names::Names;
use crate::op::Ops;
use crate::rate::Rate;
use engine::judge::Sentence;
use std::ops::Range;
use std::sync::Arc;

/// The stricter verdict counts where several names are concerned.
pub(crate) fn severity(verdict: Sentence) -> u8 {
    match verdict {
        Sentence::Allow => 0,
        Sentence::Watch => 1,
        Sentence::Ask => 2,
        Sentence::Deny(_) => 3,
    }
}

/// Where a rule holds.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pub branches: Option<Names>,
    pub runs: Option<Names>,
}

impl Place {
    /// Whether it holds in a branch, and in a run if there is one.
    pub fn holds(&self, branch: &str, run: Option<&str>) -> bool {
        let branch = self.branches.as_ref().is_none_or(|names| names.fit(branch));
        let fits_run = |names: &Names| run.is_some_and(|run| names.fit(run));
        branch && self.runs.as_ref().is_none_or(fits_run)
    }
}

/// A rule about changes.
#[derive(Debug)]
pub(crate) struct ChangeRule {
    pub name: Arc<str>,
    pub ops: Ops,
    /// Its patterns among all of the policy's; `None`: any path, and what has none.
    pub globs: Option<Range<usize>>,
    pub uids: Option<Vec<u32>>,
    pub commands: Option<Names>,
    pub place: Place,
    pub rate: Option<Rate>,
    /// What it says; of a rule that asks the program: what is said if that gives no verdict.
    pub verdict: Sentence,
    /// The program decides, and denies with this error.
    pub asks: Option<Errno>,
}
