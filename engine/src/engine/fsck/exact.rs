//! A branch whose state is damaged: what brings it back, and the ways that lose nothing.
//!
//! A state file that is whole but for its header, or is not named any more; a tree file whose header is
//! damaged; a journal that has everything since the branch was made. Where none of them is left, it is
//! opened [again](super::reopen). Invariants: a state that can be read is never replaced; what is
//! replaced is in `damaged/` before, durably.

use super::{Check, RepairStep};
use crate::base::{Base, BaseDir};
use crate::branch::inspect::{is_all_in_journal, left_of, state_file};
use crate::branch::open::first_head;
use crate::branch::state_file::{StateFile, StateMore};
use crate::branch::tree_file::Trees;
use crate::engine::Engine;
use crate::engine::fsck::reopen;
use crate::engine::fsck::repair;
use crate::engine::gc;
use crate::error::{Error, Result};
use crate::journal::{Journal, ReplayRecord};
use crate::tree::Tree;
use crate::tree::inode::Inode;
use crate::tree::load::inode_of;
use crate::tree::patch::BaseDirs;
use crate::types::{Nid, Time};
use crate::workspace::branch_refs::{branch_dir, trees_dir};
use objstore::Commit;

impl Check<'_> {
    /// Plans what brings a branch back whose state cannot be read.
    pub(super) fn plan_state(&mut self, workspace: &str, branch: &str, dir: &str) -> Result<()> {
        let engine = self.engine;
        let trees = gc::look_at_trees(engine, workspace);
        let file = state_file(&*engine.storage, &trees, dir);
        if let Ok(Some(_)) = file.read(&mut BaseDirs::default()) {
            return Ok(());
        }
        let current = file.current().ok().flatten();
        if let Some((number, tree)) = whole_state(engine, &file)? {
            if let Some(path) = tree {
                self.step(RepairStep::TreeHeader { path });
            }
            if current != Some(number) || !file.is_whole(number) {
                let dir = dir.to_owned();
                self.step(RepairStep::TakeState { dir, file: number });
            }
            if !journal_goes_on(engine, &file, number) {
                let dir = dir.to_owned();
                self.step(RepairStep::CutJournal { dir, before: None });
            }
            return Ok(());
        }
        if current.is_some_and(|n| is_of_later_version(engine, &file, n)) {
            return Ok(());
        }
        if can_replay(engine, workspace, dir) {
            let (workspace, dir) = (workspace.to_owned(), dir.to_owned());
            self.step(RepairStep::Replay { workspace, dir });
            return Ok(());
        }
        if let Some(best) = reopen::best(engine, workspace, branch, dir, None)? {
            self.step(RepairStep::Reopen(Box::new(best.step)));
        }
        Ok(())
    }
}

/// The state file that is whole but for its header or for what names it, and its tree file where only
/// the header of that is damaged.
fn whole_state(engine: &Engine, file: &StateFile<'_>) -> Result<Option<(u32, Option<String>)>> {
    let current = file.current().ok().flatten();
    let numbers = file.numbers()?.into_iter();
    let numbers: Vec<u32> = numbers
        .filter(|n| current.is_none_or(|c| *n <= c))
        .collect();
    // The oldest: one behind it may have been left by a writer that was cut off, and since then its
    // tree file's number may have been given again.
    for number in &numbers {
        let Some(head) = file.mended(*number).and_then(|_| file.left(*number).head) else {
            continue;
        };
        if numbers.len() > 1 && !journal_goes_on(engine, file, *number) {
            continue;
        }
        let tree = head.tree_file;
        let read = file.trees.read(tree, 0);
        if read.is_ok() {
            return Ok(Some((*number, None)));
        }
        if file.trees.mended(tree).is_some() {
            return Ok(Some((*number, Some(file.trees.path(tree)))));
        }
    }
    Ok(None)
}

/// True where the journal is whole from where a state file ends.
fn journal_goes_on(engine: &Engine, file: &StateFile<'_>, number: u32) -> bool {
    let dir = format!("{}/journal", file.dir);
    let head = file.left(number).head;
    head.is_some_and(|head| {
        let (from, ignore) = (head.next_seq, &mut |_: ReplayRecord<'_>| Ok(()));
        Journal::inspect(file.storage, &dir, from, engine.boot, ignore).is_ok()
    })
}

fn is_of_later_version(_engine: &Engine, file: &StateFile<'_>, number: u32) -> bool {
    let head = file.left(number).head;
    file.is_newer(number) || head.is_some_and(|h| file.trees.is_newer(h.tree_file))
}

/// Lets a whole state file count.
pub(super) fn take_state(engine: &Engine, dir: &str, number: u32) -> Result<()> {
    let trees = gc::look_at_trees(engine, "");
    let file = state_file(&*engine.storage, &trees, dir);
    let bytes = file.mended(number).ok_or_else(|| Error::Damaged {
        what: file.path(number),
        why: "it changed after the check".into(),
    })?;
    repair::set_aside_if_there(engine, &file.pointer())?;
    if file.is_whole(number) {
        return file.settle(number);
    }
    repair::set_aside(engine, &file.path(number))?;
    let next = file.numbers()?.into_iter().max().unwrap_or(number) + 1;
    let to = file.path(next);
    let written = engine.storage.create(&to).and_then(|new| {
        new.append(&[&bytes])?;
        new.sync()
    });
    written.map_err(Error::io(to))?;
    file.settle(next)
}

/// Writes the header of a tree file anew.
pub(super) fn mend_tree_header(engine: &Engine, path: &str) -> Result<()> {
    let damaged = || Error::Damaged {
        what: path.to_owned(),
        why: "it changed after the check".into(),
    };
    let (dir, number) = path.rsplit_once('/').ok_or_else(damaged)?;
    let trees = Trees::look(engine.storage.clone(), dir.to_owned());
    let number = number.parse().map_err(|_| damaged())?;
    let bytes = trees.mended(number).ok_or_else(damaged)?;
    repair::set_aside(engine, path)?;
    engine
        .storage
        .replace(path, &bytes)
        .map_err(Error::io(path))
}

/// Root directory of a workspace's base, as a branch that is made begins with it: as its first commit
/// has it, where that can be read.
fn first_root(engine: &Engine, workspace: &str, dir: &str) -> Result<Inode> {
    let base = Base::open(&engine.get(workspace)?.base)?;
    let entry = base.root_entry()?;
    let mut root = inode_of(&entry, None, &BaseDir::root(), Nid::ROOT, 1);
    let trees = gc::look_at_trees(engine, workspace);
    let left = left_of(&*engine.storage, &trees, dir, engine.boot);
    let id = left.inner.book.history.id_of(1);
    if let Some(commit) = id.and_then(|id| engine.store.get_object::<Commit>(&id).ok()) {
        let meta = commit.root_meta;
        (root.mode, root.uid, root.gid) = (meta.mode, meta.uid, meta.gid);
        root.mtime = Time {
            sec: meta.mtime_sec,
            nsec: meta.mtime_nsec,
        };
    }
    Ok(root)
}

/// True where a branch can be made of its journal alone. Only `main` began with the base; others began
/// with another branch's tree.
fn can_replay(engine: &Engine, workspace: &str, dir: &str) -> bool {
    if dir != branch_dir(workspace, 0) {
        return false;
    }
    let root = first_root(engine, workspace, dir);
    root.and_then(|root| is_all_in_journal(&*engine.storage, dir, engine.boot, &root))
        .unwrap_or(false)
}

/// Lets a branch begin with the base again, and with all of its journal.
pub(super) fn replay_all(engine: &Engine, workspace: &str, dir: &str) -> Result<()> {
    let trees = Trees::open(engine.storage.clone(), trees_dir(workspace))?.at_once();
    let file = state_file(&*engine.storage, &trees, dir);
    if let Ok(Some(_)) = file.read(&mut BaseDirs::default()) {
        return Ok(());
    }
    let root = first_root(engine, workspace, dir)?;
    if !is_all_in_journal(&*engine.storage, dir, engine.boot, &root)? {
        return Err(Error::Damaged {
            what: dir.to_owned(),
            why: "its journal changed after the check".into(),
        });
    }
    repair::set_aside_if_there(engine, &file.pointer())?;
    for number in file.numbers()? {
        repair::set_aside_if_there(engine, &file.path(number))?;
    }
    reopen::reserve_trees(engine, workspace, &trees)?;
    let tree = Tree::with_root(root);
    file.write_over(first_head(), &StateMore::default(), &tree)
}
