//! How often each tool was called on a branch, how that ended, and how long it took.

use crate::error::Result;
use crate::verbs::timeline::read::{CallStatus, timeline_each};
use crate::workspace::Workspace;
use std::collections::BTreeMap;

/// Figures of one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolStats {
    /// Its name.
    pub name: String,
    /// Calls in all.
    pub calls: u64,
    /// Those that worked.
    pub success: u64,
    /// Those that failed.
    pub error: u64,
    /// Those that have not ended.
    pub pending: u64,
    /// How long those took that have ended, together.
    pub total_ms: u64,
    /// How long the longest took; `None` where none has ended.
    pub max_ms: Option<u64>,
}

impl ToolStats {
    /// Calls that have ended.
    pub fn ended(&self) -> u64 {
        self.success + self.error
    }

    fn count(&mut self, status: CallStatus, took_ms: Option<u64>) {
        self.calls += 1;
        match status {
            CallStatus::Pending => self.pending += 1,
            CallStatus::Success => self.success += 1,
            CallStatus::Error => self.error += 1,
        }
        if status != CallStatus::Pending {
            let took_ms = took_ms.unwrap_or(0);
            self.total_ms = self.total_ms.saturating_add(took_ms);
            self.max_ms = self.max_ms.max(Some(took_ms));
        }
    }
}

/// Figures of all tools that were called on a branch, by name.
pub fn tool_stats(ws: &Workspace, branch: &str) -> Result<Vec<ToolStats>> {
    let mut tools: BTreeMap<String, ToolStats> = BTreeMap::new();
    timeline_each(ws, branch, &mut |item| {
        if item.switch.is_none() {
            let took_ms = item.duration_ms();
            let stats = tools.entry(item.name).or_default();
            stats.count(item.status, took_ms);
        }
        Ok(true)
    })?;
    let named = |(name, stats)| ToolStats { name, ..stats };
    Ok(tools.into_iter().map(named).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_run_have_no_time_and_the_longest_counts() {
        let mut stats = ToolStats::default();
        stats.count(CallStatus::Pending, None);
        assert_eq!((stats.max_ms, stats.ended()), (None, 0));
        stats.count(CallStatus::Success, Some(3));
        stats.count(CallStatus::Error, Some(9));
        // A clock that went back.
        stats.count(CallStatus::Success, None);
        assert_eq!((stats.calls, stats.pending, stats.error), (4, 1, 1));
        assert_eq!((stats.total_ms, stats.max_ms), (12, Some(9)));
    }
}
