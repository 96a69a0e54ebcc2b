//! A workspace without a mount on a generated project of small files.

use engine::verbs;
use engine::{
    CheckpointRequest, Engine, EngineConfig, Error, NodeId, Result, Target, Wait, Workspace,
    WriteFlags,
};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// Files in one directory.
const FILES_PER_DIR: usize = 100;

/// A workspace `w`, open, on a project of its own; all gone when it is dropped.
#[derive(Debug)]
pub struct Project {
    /// The workspace.
    pub workspace: Arc<Workspace>,
    files: Vec<NodeId>,
    round: u64,
    _dirs: [TempDir; 2],
}

/// Makes `files` small files below `dir`, 100 to a directory.
pub fn generate(dir: &Path, files: usize) -> std::io::Result<()> {
    for i in 0..files {
        let sub = dir.join(format!("d{}", i / FILES_PER_DIR));
        if i % FILES_PER_DIR == 0 {
            std::fs::create_dir_all(&sub)?;
        }
        let text = format!("file {i}\n").repeat(20 + i % 200);
        std::fs::write(sub.join(format!("f{i}")), text)?;
    }
    Ok(())
}

impl Project {
    /// A workspace on a project of `files` files that is wholly imported, with one checkpoint.
    pub fn new(files: usize) -> Result<Project> {
        let io = |source| Error::io("a temporary directory")(source);
        let dirs = [
            tempfile::tempdir().map_err(io)?,
            tempfile::tempdir().map_err(io)?,
        ];
        generate(dirs[0].path(), files).map_err(io)?;
        let engine = Engine::open(EngineConfig {
            root: dirs[1].path().to_owned(),
            author: "bench".into(),
        })?;
        engine.create("w", dirs[0].path(), None)?;
        let workspace = engine.open_workspace("w")?;
        workspace.settle()?;
        let mut project = Project {
            files: Vec::with_capacity(files),
            workspace,
            round: 0,
            _dirs: dirs,
        };
        for i in 0..files {
            let file = project.find(i)?;
            project.files.push(file);
        }
        project.checkpoint()?;
        Ok(project)
    }

    fn find(&self, i: usize) -> Result<NodeId> {
        let dir = format!("d{}", i / FILES_PER_DIR);
        let w = &self.workspace;
        let dir = w.lookup(NodeId::ROOT, dir.as_bytes(), Wait::Allowed)?.node;
        let name = format!("f{i}");
        Ok(w.lookup(dir, name.as_bytes(), Wait::Allowed)?.node)
    }

    /// Writes new content to the first `count` files, spread over the directories.
    pub fn dirty(&mut self, count: usize) -> Result<()> {
        self.round += 1;
        let text = format!("round {}\n", self.round).repeat(20);
        let step = (self.files.len() / count.max(1)).max(1);
        for node in self.files.iter().step_by(step).take(count) {
            let flags = WriteFlags::default();
            self.workspace
                .write(*node, 0, text.as_bytes(), flags, Wait::Allowed)?;
        }
        Ok(())
    }

    /// A checkpoint of what is there.
    pub fn checkpoint(&self) -> Result<()> {
        let request = CheckpointRequest {
            wait: true,
            ..Default::default()
        };
        verbs::checkpoint(&self.workspace, "main", request, &|_, _| ()).map(|_| ())
    }

    /// A rollback to the last checkpoint.
    pub fn rollback(&self) -> Result<()> {
        verbs::rollback(&self.workspace, "main", &Target::Head).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_changed_and_rolled_back() {
        let mut project = Project::new(250).unwrap();
        project.dirty(10).unwrap();
        let plan = verbs::rollback_plan(&project.workspace, "main", &Target::Head);
        assert_eq!(plan.unwrap().len(), 10);
        project.rollback().unwrap();
        let plan = verbs::rollback_plan(&project.workspace, "main", &Target::Head);
        assert_eq!(plan.unwrap().len(), 0);
    }
}
