//! Tool calls of a branch.

use super::{Error, Result, Workspace};
use crate::protocol::{
    Call, CallId, Finished, TimelineAnswer, TimelineList, TimelineRow, ToolFigures, ToolFinish,
    ToolStart, ToolStatsAnswer, ToolUndo, ToolUndoAnswer,
};
use serde::Serialize;
use std::fmt::Display;

impl Workspace {
    /// Makes a call of a tool: notes that it begins, does `work`, and notes its end with the result or the error. All
    /// that `work` changes through the workspace that it gets is on stable storage with the end: one sync for all.
    ///
    /// If this program ends in the middle, the call ends with it.
    pub fn call<T, E>(
        &mut self,
        tool: &str,
        parameters: &impl Serialize,
        work: impl FnOnce(&mut Workspace) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E>
    where
        T: Serialize,
        E: Display + From<Error>,
    {
        let text = |e: serde_json::Error| Error::Usage(format!("no JSON: {e}"));
        let start = Call::ToolStart(ToolStart {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            name: tool.to_owned(),
            parameters: Some(serde_json::to_string(parameters).map_err(text)?),
            unsynced: true,
            of_process: true,
            key: None,
        });
        let CallId { id } = self.ask(&start)?;
        let around = std::mem::replace(&mut self.unsynced, true);
        let done = work(self);
        self.unsynced = around;
        let (result, error) = match &done {
            Ok(value) => (Some(serde_json::to_string(value).map_err(text)?), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let finish = Call::ToolFinish(ToolFinish {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            id: Some(id),
            key: None,
            result,
            error,
            unsynced: false,
        });
        let finished: Result<Finished> = self.ask(&finish);
        if let Err(error) = finished {
            // What was changed is kept all the same.
            self.sync()?;
            return Err(error.into());
        }
        done
    }

    /// The newest calls, without their texts.
    pub fn timeline(&mut self, limit: u64) -> Result<Vec<TimelineRow>> {
        let ask = Call::Timeline(TimelineList {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            limit,
            before: None,
            name: None,
            status: None,
            all: false,
            brief: true,
            of: None,
        });
        let answer: TimelineAnswer = self.ask(&ask)?;
        Ok(answer.items)
    }

    /// How often each tool was called, and how that ended.
    pub fn tool_stats(&mut self) -> Result<Vec<ToolFigures>> {
        let answer: ToolStatsAnswer = self.ask(&Call::TimelineStats(self.here()))?;
        Ok(answer.tools)
    }

    /// Takes back what one call changed. Where the answer has conflicts nothing was changed.
    pub fn undo_call(&mut self, id: u64) -> Result<ToolUndoAnswer> {
        let ask = Call::ToolUndo(ToolUndo {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            id,
            dry_run: false,
        });
        self.ask(&ask)
    }
}
