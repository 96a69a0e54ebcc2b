//! A rule about changes, compiled.

use crate::errno::Errno;
use crate::names::Names;
use crate::op::Ops;
use crate::rate::Rate;
use std::ops::Range;
use std::sync::Arc;

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be done.
    Allow,
    /// It may be done, and is told of.
    Watch,
    /// It may not be done, and fails with this error.
    Deny(Errno),
}

impl Verdict {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Allow => "allow",
            Verdict::Watch => "soft_watch",
            Verdict::Deny(_) => "deny",
        }
    }

    /// The stricter one counts where several names are concerned.
    pub(crate) fn severity(self) -> u8 {
        match self {
            Verdict::Allow => 0,
            Verdict::Watch => 1,
            Verdict::Deny(_) => 2,
        }
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
    pub verdict: Verdict,
    /// The program decides, and denies with this error.
    pub asks: Option<Errno>,
}
