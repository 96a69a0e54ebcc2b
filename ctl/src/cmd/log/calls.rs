//! The tool calls that `log --graph` shows beside commits, fetched as far back as the commits are.

use crate::cmd::Context;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, LogRow, Moment, TimelineAnswer, TimelineList, TimelineRow};
use agentvfs_picture::Graph;

/// Kind of the fault that a workspace which does not run gives.
const NOT_RUNNING: &str = "not-running";

/// Calls that are asked for at first.
const FIRST: u64 = 64;

/// Calls of each further page.
const MORE: u64 = 1024;

/// The calls of a branch, the newest first.
pub struct Calls {
    ask: TimelineList,
    /// All were fetched.
    is_done: bool,
    /// When the last of a page ended of which all calls ended before.
    reached: Option<Moment>,
}

impl Calls {
    /// None were fetched yet.
    pub fn new(workspace: &str, branch: &str) -> Calls {
        Calls {
            ask: TimelineList {
                workspace: workspace.to_owned(),
                branch: branch.to_owned(),
                limit: FIRST,
                before: None,
                name: None,
                status: None,
                all: false,
                brief: true,
                of: None,
            },
            is_done: false,
            reached: None,
        }
    }

    /// Tells `graph` of the calls that led to these commits, and of some older ones. A call that took longer than
    /// a whole page of later ones may be left out.
    pub fn add_those_of(
        &mut self,
        commits: &[LogRow],
        graph: &mut Graph,
        context: &mut Context,
    ) -> Result<(), Failure> {
        let Some(oldest) = commits.iter().map(|row| row.time).min_by_key(key) else {
            return Ok(());
        };
        while !self.is_done && self.reached.is_none_or(|at| key(&at) >= key(&oldest)) {
            self.fetch(graph, context)?;
        }
        Ok(())
    }

    fn fetch(&mut self, graph: &mut Graph, context: &mut Context) -> Result<(), Failure> {
        let what = format!("cannot show the calls of {}", self.ask.workspace);
        let answer: TimelineAnswer =
            match context.try_ask(&what, &Call::Timeline(self.ask.clone()))? {
                Ok(answer) => answer,
                Err(fault) if fault.kind == NOT_RUNNING => {
                    self.is_done = true;
                    return Ok(());
                }
                Err(fault) => return Err(Failure::from_fault(what, fault)),
            };
        let ended = |row: &TimelineRow| row.completed.unwrap_or(row.started);
        let last = answer.items.iter().map(ended).max_by_key(key);
        self.reached = last.or(self.reached);
        self.is_done = answer.next.is_none();
        (self.ask.before, self.ask.limit) = (answer.next, MORE);
        for row in answer.items {
            if let Some(commit) = row.after {
                graph.add_call(commit, row.name);
            }
        }
        Ok(())
    }
}

fn key(moment: &Moment) -> (i64, u32) {
    (moment.sec, moment.nsec)
}
