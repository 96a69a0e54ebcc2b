//! Keys and calls of a database that cannot be taken over, and what an import does about them.
//!
//! AgentFS's SDKs write what agentvfs does not hold: values that are no JSON, empty names, times with
//! fractions. An import refuses the database for one of them, or leaves them out and says so. Names of files
//! are never left out: what they name would go with them.

use crate::error::Result;
use crate::source::Source;

/// Those that are named; of more it is only known how many there are.
const NAMED_MAX: usize = 200;
/// What to try where one is met.
const HINT: &str = "--skip-invalid leaves out such keys and calls, and lists them";

/// What was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// How many there were.
    pub count: u64,
    /// What the first 200 are, and why they cannot be taken over.
    pub named: Vec<String>,
}

/// Decides on what cannot be taken over.
#[derive(Debug)]
pub(crate) struct Skipping<'a> {
    source: &'a Source,
    skips: bool,
    /// What was left out so far.
    pub skipped: Skipped,
}

impl<'a> Skipping<'a> {
    /// Leaves it out where `skips` says so, else refuses the database.
    pub fn new(source: &'a Source, skips: bool) -> Skipping<'a> {
        Skipping {
            source,
            skips,
            skipped: Skipped::default(),
        }
    }

    /// Something cannot be taken over for this reason, which names it.
    pub fn invalid(&mut self, why: String) -> Result<()> {
        if !self.skips {
            return Err(self.source.refused_hint(why, Some(HINT)));
        }
        self.skipped.count += 1;
        if self.skipped.named.len() < NAMED_MAX {
            self.skipped.named.push(why);
        }
        Ok(())
    }
}
