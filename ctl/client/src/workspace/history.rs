//! Commits and branches: making them, going back, comparing, merging.

use super::{Result, Workspace};
use crate::protocol::{
    BranchCreate, BranchDeleteAnswer, BranchList, BranchListAnswer, BranchMerge, BranchMergeAnswer,
    BranchResolve, BranchResolveAnswer, BranchRow, Bytes, Call, Changed, Checkpoint,
    CheckpointAnswer, ConflictRow, ConflictsAnswer, Diff, DiffAnswer, Log, LogAnswer, LogRow,
    OnBranch, Rollback, RollbackAnswer, Side, Target, Undo, Version,
};
use std::path::Path;

/// What a checkpoint is made with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Commit {
    /// Label for the commit.
    pub label: Option<String>,
    /// Its message.
    pub message: String,
    /// Its metadata.
    pub meta: Vec<(String, String)>,
}

impl Workspace {
    /// Makes a commit of what the branch shows.
    pub fn checkpoint(&mut self, message: &str) -> Result<CheckpointAnswer> {
        self.checkpoint_with(Commit {
            message: message.to_owned(),
            ..Commit::default()
        })
    }

    /// The same with a label and metadata.
    pub fn checkpoint_with(&mut self, commit: Commit) -> Result<CheckpointAnswer> {
        let ask = Call::Checkpoint(Checkpoint {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            label: commit.label,
            message: commit.message,
            meta: commit.meta,
            wait: true,
            automatic: false,
            unlike: None,
            joins: None,
            progress: false,
        });
        self.ask(&ask)
    }

    /// Goes back to a label or a commit. What was there is an automatic commit, and [`Workspace::undo`] brings it back.
    pub fn undo_to(&mut self, reference: &str) -> Result<RollbackAnswer> {
        self.rollback(Target::Ref(reference.to_owned()), false)
    }

    /// Goes back to a target; with `keep_keys` keys stay as they are.
    pub fn rollback(&mut self, target: Target, keep_keys: bool) -> Result<RollbackAnswer> {
        let ask = Call::Rollback(Rollback {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            target,
            paths: Vec::new(),
            keep_kv: keep_keys,
        });
        self.ask(&ask)
    }

    /// Takes the last rollback, restore, merge or update back.
    pub fn undo(&mut self) -> Result<RollbackAnswer> {
        let ask = Call::Undo(Undo {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            over_later_changes: false,
        });
        self.ask(&ask)
    }

    /// Takes the last undo back.
    pub fn redo(&mut self) -> Result<RollbackAnswer> {
        self.ask(&Call::Redo(self.here()))
    }

    /// The newest commits; with `all` automatic ones, too.
    pub fn log(&mut self, limit: u64, all: bool) -> Result<Vec<LogRow>> {
        let ask = Call::Log(Log {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            all,
            limit: Some(limit),
            after: None,
            digits: false,
            count: false,
        });
        let answer: LogAnswer = self.ask(&ask)?;
        Ok(answer.commits)
    }

    /// What differs between two states.
    pub fn diff(&mut self, from: Side, to: Side) -> Result<Vec<Changed>> {
        let ask = Call::Diff(Diff {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            from,
            to,
            paths: Vec::new(),
            stat: false,
        });
        let answer: DiffAnswer = self.ask(&ask)?;
        Ok(answer.changes)
    }

    /// The branches of the workspace.
    pub fn branches(&mut self) -> Result<Vec<BranchRow>> {
        let ask = Call::BranchList(BranchList {
            workspace: self.name.clone(),
            standing: false,
        });
        let answer: BranchListAnswer = self.ask(&ask)?;
        Ok(answer.branches)
    }

    /// Makes a branch of what this one shows. [`Workspace::on_branch`] works on it.
    pub fn create_branch(&mut self, name: &str) -> Result<BranchRow> {
        let ask = Call::BranchCreate(BranchCreate {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            name: name.to_owned(),
            from: None,
        });
        self.ask(&ask)
    }

    /// Deletes a branch; gives its last commit.
    pub fn delete_branch(&mut self, name: &str) -> Result<BranchDeleteAnswer> {
        let ask = Call::BranchDelete(OnBranch {
            workspace: self.name.clone(),
            branch: name.to_owned(),
        });
        self.ask(&ask)
    }

    /// Merges another branch into this one. With conflicts nothing is changed, unless they are to be kept: then
    /// [`Workspace::resolve`] settles each.
    pub fn merge(&mut self, from: &str, keep_conflicts: bool) -> Result<BranchMergeAnswer> {
        let ask = Call::BranchMerge(BranchMerge {
            workspace: self.name.clone(),
            from: from.to_owned(),
            into: self.branch.clone(),
            keep_conflicts,
            dry_run: false,
            label: None,
            message: String::new(),
            progress: false,
        });
        self.ask(&ask)
    }

    /// Conflicts that are not settled.
    pub fn conflicts(&mut self) -> Result<Vec<ConflictRow>> {
        let answer: ConflictsAnswer = self.ask(&Call::BranchConflicts(self.here()))?;
        Ok(answer.conflicts)
    }

    /// Settles a conflict; gives how many are left.
    pub fn resolve(&mut self, path: impl AsRef<Path>, by: Version) -> Result<u64> {
        let ask = Call::BranchResolve(BranchResolve {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            path: Bytes::from(path.as_ref()),
            by,
        });
        let answer: BranchResolveAnswer = self.ask(&ask)?;
        Ok(answer.left)
    }
}
