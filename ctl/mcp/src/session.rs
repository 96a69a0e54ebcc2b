//! What a client's calls are about: a workspace, a branch, and the way to them.

use super::lines::RawValue;
use super::paths::{PathMeant, Refused, path_meant};
use super::pool::Pool;
use agentvfs_client::context::Context;
use agentvfs_client::failure::Failure;
use agentvfs_client::files::TreeAt;
use agentvfs_client::protocol::{AtPath, Bytes, Call, FileNode, Side, StatusAnswer, StatusOf};
use serde::de::DeserializeOwned;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Kinds of faults of a path that leads to nothing: no such name, one below a file, or symbolic links that lead
/// to themselves.
const NOWHERE: [&str; 3] = ["no-such-path", "wrong-type", "link-loop"];

/// A client's session.
pub struct Session {
    /// The workspace.
    pub(crate) workspace: String,
    /// The branch, where a call names no other.
    pub(crate) branch: String,
    /// Where the workspace is mounted.
    pub(crate) mount: PathBuf,
    /// The project's directory.
    pub(crate) base: PathBuf,
    /// Where exports are written.
    pub(crate) exports: PathBuf,
    pool: Pool,
}

impl Session {
    /// A session on the workspace and branch that the command's surroundings name; exports go to a
    /// directory that was given, else into the home.
    pub fn open(exports: Option<&Path>, mut context: Context) -> Result<Session, Failure> {
        let exports = match exports {
            Some(dir) => context.absolute(dir)?,
            None => context.home().root().join("exports"),
        };
        let workspace = context.workspace(None)?;
        let branch = context.branch()?;
        let call = Call::Status(StatusOf {
            workspace: workspace.clone(),
            branch: branch.clone(),
            resources: false,
        });
        let answer: StatusAnswer = context.ask(&format!("cannot serve {workspace}"), &call)?;
        Ok(Session {
            workspace,
            branch,
            mount: answer.info.mount.to_path(),
            base: answer.info.base.to_path(),
            exports,
            pool: Pool::new(context)?,
        })
    }

    /// Has a turn of its own do something; `raw` is a parameter as it was written, where that matters.
    pub fn with_turn<R>(
        &self,
        raw: Option<RawValue>,
        work: impl FnOnce(&mut Turn<'_>) -> R,
    ) -> Result<R, Failure> {
        self.pool.with(|context| {
            work(&mut Turn {
                session: self,
                context,
                raw,
                unsynced: false,
            })
        })
    }
}

/// One call of a tool, with a connection of its own.
pub struct Turn<'a> {
    session: &'a Session,
    context: &'a mut Context,
    raw: Option<RawValue>,
    unsynced: bool,
}

impl Turn<'_> {
    /// Whether somebody brings what is changed to stable storage before the call is answered.
    pub fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    /// Says so.
    pub fn set_unsynced(&mut self, unsynced: bool) {
        self.unsynced = unsynced;
    }

    /// The value that is to be stored, as it was written.
    pub fn raw_value(&self) -> Option<&str> {
        self.raw.as_ref().map(|raw| &*raw.0)
    }

    /// Why a path in the mount means nothing to this process, where that is so.
    pub fn unseen(&mut self) -> Option<String> {
        let workspace = self.workspace();
        let seen = self.context.check_seen_now(&workspace);
        seen.err().map(|failure| failure.why)
    }

    /// The workspace's name.
    pub fn workspace(&self) -> String {
        self.session.workspace.clone()
    }

    /// The branch that a call means.
    pub fn branch(&self, named: Option<String>) -> String {
        named.unwrap_or_else(|| self.session.branch.clone())
    }

    /// The live tree of a branch, or a commit.
    pub fn state(&self, branch: Option<String>, reference: Option<String>) -> TreeAt {
        TreeAt {
            workspace: self.workspace(),
            branch: self.branch(branch),
            side: reference.map_or(Side::Live, Side::Ref),
        }
    }

    /// Asks the daemon; `what` says what could not be done if it fails.
    pub fn ask<R: DeserializeOwned>(&mut self, what: &str, call: &Call) -> Result<R, Failure> {
        self.context.ask(what, call)
    }

    /// Asks for something whose result comes in parts before the answer.
    pub fn ask_data<R: DeserializeOwned>(
        &mut self,
        what: &str,
        call: &Call,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<R, Failure> {
        self.context.ask_data(what, call, take)
    }

    /// What is known of a path; with `follow` of what a symbolic link there leads to.
    pub fn stat(&mut self, state: &TreeAt, path: &[u8], follow: bool) -> Result<FileNode, Failure> {
        let call = self.look(state, path, follow);
        self.ask(&format!("cannot look into {}", state.workspace), &call)
    }

    /// The same, where one kind of fault is an answer, too.
    pub fn ask_unless<R: DeserializeOwned>(
        &mut self,
        what: &str,
        call: &Call,
        kind: &str,
    ) -> Result<Option<R>, Failure> {
        match self.context.try_ask(what, call)? {
            Ok(answer) => Ok(Some(answer)),
            Err(fault) if fault.kind == kind => Ok(None),
            Err(fault) => Err(Failure::from_fault(what, fault)),
        }
    }

    /// What a path leads to; none where nothing does.
    pub fn find(&mut self, state: &TreeAt, path: &[u8]) -> Result<Option<FileNode>, Failure> {
        let call = self.look(state, path, true);
        let what = format!("cannot look into {}", state.workspace);
        match self.context.try_ask(&what, &call)? {
            Ok(node) => Ok(Some(node)),
            Err(fault) if NOWHERE.contains(&fault.kind.as_str()) => Ok(None),
            Err(fault) => Err(Failure::from_fault(what, fault)),
        }
    }

    /// The directory for exports, which is made where it does not exist.
    pub fn exports(&self) -> Result<&Path, Failure> {
        let dir = &self.session.exports;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|e| {
                let what = format!("cannot export {}", self.session.workspace);
                Failure::new(what, format!("{}: {e}", dir.display()))
                    .hint("agentvfs serve mcp --exports DIR uses another directory")
            })?;
        Ok(dir)
    }

    fn look(&self, state: &TreeAt, path: &[u8], follow: bool) -> Call {
        Call::FsStat(AtPath {
            workspace: state.workspace.clone(),
            branch: state.branch.clone(),
            state: state.side.clone(),
            path: Bytes(path.to_vec()),
            follow,
        })
    }

    /// A path in that state, for one that was given.
    pub fn path(&mut self, state: &TreeAt, given: &str) -> Result<Vec<u8>, Failure> {
        let session = self.session;
        let (path, top) = match path_meant(given, &session.mount, &session.base) {
            Ok(PathMeant::Inside(path)) => return Ok(path),
            Ok(PathMeant::IfThere(path, top)) => (path, top),
            Err(refused) => return Err(self.refused(&refused)),
        };
        match self.stat(state, top.as_bytes(), false) {
            Ok(_) => Ok(path),
            Err(_) => Err(self.refused(&Refused::Outside(given.to_owned()))),
        }
    }

    fn refused(&self, refused: &Refused) -> Failure {
        let failure = Failure::usage(refused.to_string());
        match refused {
            Refused::Outside(_) => failure.hint(format!(
                "paths start at the workspace's root, which is mounted at {}; src/main.rs and \
                 /src/main.rs are the same",
                self.session.mount.display()
            )),
            Refused::Own(_) => {
                failure.hint("use the parameter branch for a branch, and ref for a commit")
            }
            Refused::NoPath => failure.hint("a path has at most 4,096 bytes and no NUL"),
        }
    }

    /// The same for several.
    pub fn paths(&mut self, state: &TreeAt, given: &[String]) -> Result<Vec<Bytes>, Failure> {
        given
            .iter()
            .map(|path| self.path(state, path).map(Bytes))
            .collect()
    }
}
