//! A tree that is looked into through the daemon: what is known of its paths, and what is in its files.

use crate::context::Context;
use crate::failure::Failure;
use crate::protocol::{
    AtPath, Bytes, Call, FileKind, FileNode, ListFiles, ListFilesAnswer, ReadAnswer, ReadFile, Side,
};
use crate::quote::from_base64;

/// Takes data of a file with their offset.
pub type TakeData<'a> = &'a mut dyn FnMut(u64, &[u8]) -> Result<(), Failure>;

/// Takes a path with what is known of it.
pub type EachNode<'a> = &'a mut dyn FnMut(&[u8], &FileNode) -> Result<(), Failure>;

/// Which tree is looked into: a commit's, or the live tree of a branch.
#[derive(Debug, Clone)]
pub struct TreeAt {
    /// The workspace.
    pub workspace: String,
    /// The branch.
    pub branch: String,
    /// The commit, or the live tree.
    pub side: Side,
}

impl TreeAt {
    /// The commit of that name, or the live tree, of the workspace and branch that are meant.
    pub fn find(reference: Option<&str>, context: &mut Context) -> Result<TreeAt, Failure> {
        Ok(TreeAt {
            workspace: context.workspace(None)?,
            branch: context.branch()?,
            side: reference.map_or(Side::Live, |name| Side::Ref(name.to_owned())),
        })
    }

    /// The live tree that is meant by who changes it.
    pub fn to_change(context: &mut Context) -> Result<TreeAt, Failure> {
        Ok(TreeAt {
            workspace: context.workspace_to_change(None)?,
            branch: context.branch()?,
            side: Side::Live,
        })
    }

    /// What is known of a path.
    pub fn stat(&self, path: &[u8], context: &mut Context) -> Result<FileNode, Failure> {
        let call = Call::FsStat(AtPath {
            workspace: self.workspace.clone(),
            branch: self.branch.clone(),
            state: self.side.clone(),
            path: Bytes(path.to_vec()),
            follow: false,
        });
        context.ask(&self.cannot("look into"), &call)
    }

    /// The entries of a directory, by name.
    pub fn list(&self, path: &[u8], context: &mut Context) -> Result<Vec<FileNode>, Failure> {
        let mut all: Vec<FileNode> = Vec::new();
        loop {
            let call = Call::FsList(ListFiles {
                workspace: self.workspace.clone(),
                branch: self.branch.clone(),
                state: self.side.clone(),
                path: Bytes(path.to_vec()),
                after: all.last().map(|node| node.name.clone()),
                skip: 0,
                limit: None,
            });
            let answer: ListFilesAnswer = context.ask(&self.cannot("look into"), &call)?;
            all.extend(answer.entries);
            if !answer.more {
                return Ok(all);
            }
        }
    }

    /// Hands out the data of a file with their offsets, holes left out; gives the file's length.
    pub fn read(
        &self,
        path: &[u8],
        context: &mut Context,
        take: TakeData<'_>,
    ) -> Result<u64, Failure> {
        let what = self.cannot("read a file of");
        let mut offset = 0;
        loop {
            let call = Call::FsRead(ReadFile {
                workspace: self.workspace.clone(),
                branch: self.branch.clone(),
                state: self.side.clone(),
                path: Bytes(path.to_vec()),
                offset,
                length: None,
            });
            let answer: ReadAnswer = context.ask(&what, &call)?;
            let bytes = from_base64(&answer.b64)
                .ok_or_else(|| Failure::new(what.clone(), "the daemon sent no base64"))?;
            if bytes.is_empty() {
                return Ok(answer.size);
            }
            take(answer.offset, &bytes)?;
            offset = answer.offset + bytes.len() as u64;
            if offset >= answer.size {
                return Ok(answer.size);
            }
        }
    }

    /// Everything at and below a path, parents before their children.
    pub fn walk(
        &self,
        path: &[u8],
        depth: usize,
        context: &mut Context,
        each: EachNode<'_>,
    ) -> Result<(), Failure> {
        let top = self.stat(path, context)?;
        let mut work = vec![(path.to_vec(), top, 0)];
        while let Some((path, node, level)) = work.pop() {
            each(&path, &node)?;
            if node.kind != FileKind::Directory || level >= depth {
                continue;
            }
            for child in self.list(&path, context)?.into_iter().rev() {
                work.push((joined(&path, &child.name.0), child, level + 1));
            }
        }
        Ok(())
    }

    fn cannot(&self, verb: &str) -> String {
        format!("cannot {verb} {}", self.workspace)
    }
}

/// `dir/name`; of the root the name alone.
pub fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() {
        name.to_vec()
    } else {
        [dir, b"/", name].concat()
    }
}
