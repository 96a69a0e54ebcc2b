//! Carrying out what a check found. Nothing that can still be read is thrown away: what is replaced or cut
//! is copied to `damaged/` first, durably.

use super::{FsckReport, Reopen};
use crate::branch::inspect::{first_needed_record, inspect, state_path, take_older_keys};
use crate::engine::Engine;
use crate::engine::fsck::exact;
use crate::engine::fsck::reopen;
use crate::engine::gc;
use crate::error::{Error, Result};
use crate::journal::{Journal, Needed};
use crate::workspace::WorkspaceConfig;
use crate::workspace::branch_refs::{self, BranchRecord};
use objstore::io::Segment;
use objstore::{store_content, store_content_by_ranges};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Where it is put what a repair replaces.
const ASIDE: &str = "damaged";
/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// One step of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairStep {
    /// Makes the index of a pack anew.
    RebuildIndex {
        /// Its file.
        path: String,
    },
    /// Puts the data of a file of the project into the store again, where it is what is missing.
    FromBase {
        /// Workspace.
        workspace: String,
        /// Path in it.
        path: Vec<u8>,
    },
    /// Copies all whole records of a pack into a new one, and sets the pack aside.
    RewritePack {
        /// Its file.
        path: String,
    },
    /// Ends a journal before its first damaged record, and sets it aside as it was.
    CutJournal {
        /// Directory of the branch.
        dir: String,
        /// A record that is whole but for data without which it cannot be carried out.
        before: Option<u64>,
    },
    /// Writes the mark of a journal anew, of which a part is missing that is not needed.
    MarkAnew {
        /// Directory of the branch.
        dir: String,
    },
    /// Takes the keys of the newest commit of which they can be read for those of a branch.
    OlderKeys {
        /// Directory of the branch.
        dir: String,
    },
    /// Lets a state file count that is whole but for its header, or is not named.
    TakeState {
        /// Directory of the branch.
        dir: String,
        /// Its number.
        file: u32,
    },
    /// Writes the header of a tree file anew, which is whole but for that.
    TreeHeader {
        /// The file.
        path: String,
    },
    /// Opens a branch again whose journal has all that was ever done to it.
    Replay {
        /// Its workspace.
        workspace: String,
        /// Directory of the branch.
        dir: String,
    },
    /// Opens a branch again whose state is damaged.
    Reopen(Box<Reopen>),
    /// Writes what is remembered of a workspace anew.
    WorkspaceRecord {
        /// Its name.
        workspace: String,
        /// Its base, as its first commit has it.
        base: PathBuf,
    },
    /// Writes the record of a branch anew, which names its directory.
    BranchRecord {
        /// Its workspace.
        workspace: String,
        /// Its name.
        branch: String,
        /// Number of the one directory that no other branch has.
        number: u16,
    },
    /// Removes a ref that can be done without.
    DropRef {
        /// Its name.
        name: String,
    },
}

impl fmt::Display for RepairStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RepairStep::RebuildIndex { path } => write!(f, "rebuild the index {path}"),
            RepairStep::FromBase { workspace, path } => write!(
                f,
                "store {} of {workspace}'s project again, in case it is the missing file",
                String::from_utf8_lossy(path)
            ),
            RepairStep::RewritePack { path } => {
                write!(
                    f,
                    "copy all undamaged records of {path} into a new pack and set it aside"
                )
            }
            RepairStep::CutJournal { dir, .. } => write!(
                f,
                "cut the journal of {dir} before its first damaged record, and set the original aside"
            ),
            RepairStep::MarkAnew { dir } => {
                write!(f, "rewrite the mark of {dir}'s journal; nothing is lost")
            }
            RepairStep::OlderKeys { dir } => write!(
                f,
                "open {dir} with the keys of the newest commit whose keys can be read, and set its original state aside"
            ),
            RepairStep::TakeState { dir, file } => write!(
                f,
                "open {dir} with its state file {file}, of which only the header or the reference is damaged; nothing is lost"
            ),
            RepairStep::TreeHeader { path } => write!(
                f,
                "rewrite the header of {path}; the rest is undamaged, and nothing is lost"
            ),
            RepairStep::Replay { dir, .. } => write!(
                f,
                "open {dir} with its project and its complete journal; nothing is lost"
            ),
            RepairStep::Reopen(step) => step.fmt(f),
            RepairStep::WorkspaceRecord { workspace, base } => write!(
                f,
                "rewrite the record of workspace {workspace} with the base {}",
                base.display()
            ),
            RepairStep::BranchRecord {
                workspace,
                branch,
                number,
            } => write!(
                f,
                "rewrite the record of branch {branch} of {workspace} with the directory {number}"
            ),
            RepairStep::DropRef { name } => {
                write!(f, "set the ref {name} aside; the defaults apply then")
            }
        }
    }
}

impl Engine {
    /// Carries out the steps of a report, in order. Nothing may be open. `told` hears of each step what
    /// became of it.
    pub fn repair(
        &self,
        report: &FsckReport,
        told: &mut dyn FnMut(&RepairStep, Result<()>),
    ) -> Result<()> {
        for step in &report.steps {
            told(step, carry_out_step(self, step));
        }
        self.store.close()?;
        Ok(())
    }
}

fn carry_out_step(engine: &Engine, step: &RepairStep) -> Result<()> {
    match step {
        RepairStep::RebuildIndex { path } => Ok(engine.store.rebuild_index(path)?),
        RepairStep::FromBase { workspace, path } => restore_from_base(engine, workspace, path),
        RepairStep::RewritePack { path } => {
            set_aside(engine, path)?;
            Ok(engine.store.rewrite_pack(path)?)
        }
        RepairStep::CutJournal { dir, before } => cut_journal(engine, dir, *before),
        RepairStep::MarkAnew { dir } => {
            let journal = format!("{dir}/journal");
            set_aside(engine, &format!("{journal}/mark"))?;
            Ok(Journal::mend_mark(&*engine.storage, &journal)?)
        }
        RepairStep::OlderKeys { dir } => older_keys(engine, dir),
        RepairStep::TakeState { dir, file } => exact::take_state(engine, dir, *file),
        RepairStep::TreeHeader { path } => exact::mend_tree_header(engine, path),
        RepairStep::Replay { workspace, dir } => exact::replay_all(engine, workspace, dir),
        RepairStep::Reopen(step) => reopen::reopen(engine, step),
        RepairStep::WorkspaceRecord { workspace, base } => engine.put(&WorkspaceConfig {
            name: workspace.clone(),
            base: base.clone(),
            mount: None,
            created: crate::clock::now(),
            running: None,
        }),
        RepairStep::BranchRecord {
            workspace,
            branch,
            number,
        } => {
            let name = branch_refs::ref_name(workspace, branch);
            set_aside(engine, &objstore::refs::ref_path(&name)?)?;
            let record = BranchRecord::new(*number, crate::clock::now(), None);
            Ok(engine.refs.set(&name, &record.bytes())?)
        }
        RepairStep::DropRef { name } => {
            set_aside(engine, &objstore::refs::ref_path(name)?)?;
            Ok(engine.refs.delete(name)?)
        }
    }
}

/// Reads a file of the base and stores what of it is missing. A file that is no longer what it was
/// stores something else, which gc takes away.
fn restore_from_base(engine: &Engine, workspace: &str, path: &[u8]) -> Result<()> {
    let base = engine.get(workspace)?.base;
    let file = base.join(std::ffi::OsStr::from_bytes(path));
    let meta = std::fs::symlink_metadata(&file).map_err(Error::io(&file))?;
    if !meta.is_file() {
        return Err(Error::NotFound);
    }
    let source = std::fs::File::open(&file).map_err(Error::io(&file))?;
    let all = std::iter::once(0..meta.len()).collect::<Vec<_>>();
    store_content(&engine.store, None, &[], &all, meta.len(), &source)?;
    // What is missing may be of an earlier build.
    store_content_by_ranges(&engine.store, &all, meta.len(), &source)?;
    Ok(engine.store.sync()?)
}

fn cut_journal(engine: &Engine, dir: &str, before: Option<u64>) -> Result<()> {
    let journal = format!("{dir}/journal");
    for name in engine.storage.list(&journal).map_err(Error::io(&journal))? {
        set_aside(engine, &format!("{journal}/{name}"))?;
    }
    // A state names its tree file, but that is not read for this.
    let trees = gc::look_at_trees(engine, "");
    let needed = Needed {
        from: Some(first_needed_record(&*engine.storage, &trees, dir)?),
        before,
    };
    let number = branch_refs::number_of(dir);
    let storage = &*engine.storage;
    Ok(Journal::repair(
        storage,
        &journal,
        needed,
        number,
        engine.boot,
    )?)
}

fn older_keys(engine: &Engine, dir: &str) -> Result<()> {
    let trees = gc::look_at_trees(engine, "");
    if let Some(path) = state_path(&*engine.storage, &trees, dir)? {
        set_aside(engine, &path)?;
    }
    take_older_keys(&*engine.storage, &engine.store, &trees, dir)
}

/// As [`set_aside`], where there is such a file.
pub(super) fn set_aside_if_there(engine: &Engine, path: &str) -> Result<()> {
    match engine.storage.open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        _ => set_aside(engine, path),
    }
}

/// Copies a file of the store to `damaged/`, durably, under its path; earlier copies stay, and one
/// with the same bytes will do.
pub(super) fn set_aside(engine: &Engine, path: &str) -> Result<()> {
    let storage = &*engine.storage;
    let mut to = format!("{ASIDE}/{path}");
    let (dir, _) = to.rsplit_once('/').unwrap_or((ASIDE, ""));
    let dir = dir.to_owned();
    let io = || Error::io(to.clone());
    storage.create_dir_all(&dir).map_err(io())?;
    let from = storage.open(path).map_err(io())?;
    let taken = storage.list(&dir).map_err(io())?;
    let name = to[dir.len() + 1..].to_owned();
    let mut number = 1;
    while taken.contains(&to[dir.len() + 1..].to_owned()) {
        let copy = storage.open(&to).map_err(Error::io(to.clone()))?;
        if is_same(&*from, &*copy).map_err(Error::io(path))? {
            // It may have been made by a repair that was cut off.
            let synced = copy.sync().and_then(|()| storage.sync_dir(&dir));
            return synced.map_err(Error::io(to));
        }
        number += 1;
        to = format!("{dir}/{name}.{number}");
    }
    let copied = storage.create(&to).and_then(|copy| {
        each_piece(&*from, |_, piece| copy.append(&[piece]).map(|_| true))?;
        copy.sync()?;
        storage.sync_dir(&dir)
    });
    copied.map_err(Error::io(to))
}

/// The number of a branch whose ref cannot be read: that of the one directory that none of the
/// others has. `None` where there is not exactly one, or another ref is damaged too.
pub(super) fn number_of(engine: &Engine, workspace: &str, branch: &str) -> Option<u16> {
    let known = branch_refs::numbers_but(&engine.refs, workspace, branch).ok()?;
    let dir = format!("workspaces/{workspace}/branches");
    let numbers = engine.storage.list(&dir).ok()?;
    let numbers = numbers.iter().filter_map(|name| name.parse::<u16>().ok());
    let mut left = numbers.filter(|n| *n > 0 && !known.contains(n));
    let only = left.next()?;
    left.next().is_none().then_some(only)
}

/// The base that a workspace was started from, as its first commit's message has it.
pub(super) fn base_by_history(engine: &Engine, workspace: &str) -> Option<PathBuf> {
    let dir = branch_refs::branch_dir(workspace, 0);
    let trees = gc::look_at_trees(engine, workspace);
    let found = inspect(&*engine.storage, &engine.store, &trees, &dir, engine.boot).ok()??;
    let first = found.inner.book.history.states.values().next()?;
    if first.info.message.starts_with(crate::IMPORTED) {
        return Some(crate::engine::exchange::no_base(engine.root()));
    }
    let base = first.info.message.strip_prefix("start from ")?;
    Some(PathBuf::from(OsString::from_vec(base.as_bytes().to_vec())))
}

/// Gives the bytes of a file to `each`, with their offset, until it says false.
fn each_piece(
    file: &dyn Segment,
    mut each: impl FnMut(u64, &[u8]) -> std::io::Result<bool>,
) -> std::io::Result<()> {
    let mut at = 0;
    while at < file.len() {
        let mut piece = vec![0; COPY_BYTES.min((file.len() - at) as usize)];
        file.read_at(at, &mut piece)?;
        if !each(at, &piece)? {
            break;
        }
        at += piece.len() as u64;
    }
    Ok(())
}

fn is_same(a: &dyn Segment, b: &dyn Segment) -> std::io::Result<bool> {
    let mut same = a.len() == b.len();
    if same {
        each_piece(a, |at, piece| {
            let mut other = vec![0; piece.len()];
            b.read_at(at, &mut other)?;
            same = other == piece;
            Ok(same)
        })?;
    }
    Ok(same)
}
