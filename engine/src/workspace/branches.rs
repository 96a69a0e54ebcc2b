//! The branches of an open workspace, and the snapshots that somebody looks at: their views.
//!
//! Each has a view slot, by which the mount addresses it. A branch exists once its ref
//! (`branches/WORKSPACE/BRANCH`) is written, after its directory is whole; its directory, its journal
//! and its slot have one number, that of a branch that is gone being given again once the kernel knows nothing
//! of it.
//!
//! Lock order: `changing` (making, renaming and deleting branches, one at a time) → a branch's control
//! lock → its inner lock → `table`.

use crate::branch::Branch;
use crate::branch::create;
use crate::branch::open::OpenBranch;
use crate::branch::shared::SharedParts;
use crate::branch::states;
use crate::branch::tree_file::Trees;
use crate::branch::wake::Wake;
use crate::error::{Error, Result};
use crate::names::MAIN;
use crate::ops;
use crate::stored::journals::Journals;
use crate::types::*;
use crate::workspace::Workspace;
use crate::workspace::branch_refs::{
    BranchRecord, MadeIn, branch_dir, recorded, ref_name, trees_dir,
};
use objstore::CommitId;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// First slot of snapshots; branches have those below.
const FIRST_SNAPSHOT_SLOT: u16 = crate::journal::JOURNALS_MAX as u16;
/// Slots are below this: shown inode numbers stay below 2^53.
const SLOTS_MAX: u16 = 1 << 13;
/// How long who is at work on a deleted branch is waited for, and how often that is looked at: nothing tells
/// when the last one lets go.
const LET_GO_WAIT: Duration = Duration::from_secs(5);
const LET_GO_LOOK: Duration = Duration::from_millis(1);

/// Says which branch a process sees, by its id; `None` for `main`. It can ask whether there is a branch of
/// a name.
pub type SeenBy = Box<dyn Fn(u32, &dyn Fn(&str) -> bool) -> Option<String> + Send + Sync>;

/// What a snapshot shows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Shown {
    /// A state of its branch.
    State(u64),
    /// A commit that its branch need not know.
    Commit(CommitId),
}

/// The views of a workspace.
pub(crate) struct Views {
    workspace: String,
    author: String,
    shared: SharedParts,
    /// While they are opened: the connection by which they are still mounted.
    kept: Option<u64>,
    journals: Arc<Journals>,
    trees: Arc<Trees>,
    wake: Arc<Wake>,
    changing: Mutex<()>,
    table: RwLock<Table>,
    /// How often the kernel knows the directories and links of agentvfs itself, by node.
    virtuals: Mutex<BTreeMap<NodeId, u64>>,
    seen_by: RwLock<Option<SeenBy>>,
}

#[derive(Default)]
struct Table {
    by_slot: BTreeMap<u16, Arc<Branch>>,
    created: BTreeMap<u16, Time>,
    /// In whose sandbox a branch was made, of those that were.
    made_in: BTreeMap<u16, MadeIn>,
    /// Deleted branches and snapshots that the kernel may still know inodes of, or that somebody is at work
    /// on, by slot: that is not given again meanwhile.
    retired: BTreeMap<u16, Arc<Branch>>,
    /// Snapshots: slot by branch and what is shown.
    snapshots: BTreeMap<(u16, Shown), u16>,
    /// Slots of snapshots and deleted branches that a daemon before had, and the kernel may still know.
    lost: BTreeSet<u16>,
    cache: Option<Arc<dyn KernelCache>>,
}

impl Table {
    fn is_free(&self, slot: u16) -> bool {
        !self.by_slot.contains_key(&slot)
            && !self.retired.contains_key(&slot)
            && !self.lost.contains(&slot)
    }

    fn retire(&mut self, slot: u16) {
        if let Some(branch) = self.by_slot.remove(&slot) {
            self.retired.insert(slot, branch);
        }
    }

    /// Whether the kernel knows nothing of some deleted branch, which somebody is at work on.
    fn is_about_to_let_go(&self) -> bool {
        let mut retired = self.retired.range(..FIRST_SNAPSHOT_SLOT);
        retired.any(|(_, branch)| branch.is_forgotten() && Arc::strong_count(branch) > 1)
    }
}

/// True where the kernel knows no inode of a branch, and nobody but the table has it, so that no request is
/// about to hand one out and nothing is written in its name.
fn is_unused(branch: &Arc<Branch>) -> bool {
    Arc::strong_count(branch) == 1 && branch.is_forgotten()
}

impl std::fmt::Debug for Views {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Views of {}", self.workspace)
    }
}

impl Views {
    /// What all branches share.
    pub(crate) fn shared(&self) -> &SharedParts {
        &self.shared
    }

    /// Opens all branches of a workspace, making `main` where it does not exist.
    ///
    /// `kept` is the connection by which they are still mounted, if they are.
    pub fn open(
        workspace: String,
        author: String,
        shared: SharedParts,
        kept: Option<u64>,
    ) -> Result<Views> {
        let mut views = Views::new(workspace, author, shared)?;
        views.kept = kept;
        views.open_branch(MAIN, 0, Time::default())?;
        for (name, record) in views.recorded()? {
            views.open_branch(&name, record.number, record.created)?;
            views.set_made_in(record.number, record.made_in);
        }
        views.trees.sweep()?;
        views.sweep_dirs()?;
        views.kept = None;
        Ok(views)
    }

    /// The views of a workspace none of whose branches is open.
    pub fn new(workspace: String, author: String, shared: SharedParts) -> Result<Views> {
        let trees = Trees::open(shared.storage.clone(), trees_dir(&workspace))?;
        Ok(Views {
            trees: Arc::new(trees),
            workspace,
            author,
            shared,
            kept: None,
            journals: Arc::default(),
            wake: Arc::default(),
            changing: Mutex::new(()),
            table: RwLock::default(),
            virtuals: Mutex::default(),
            seen_by: RwLock::new(None),
        })
    }

    /// Held while branches are made, renamed or deleted.
    pub fn changing(&self) -> parking_lot::MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// When each branch was made, by slot.
    pub fn created(&self) -> BTreeMap<u16, Time> {
        self.table.read().created.clone()
    }

    /// In whose sandbox branches were made, by slot; others have none.
    pub fn made_in(&self) -> BTreeMap<u16, MadeIn> {
        self.table.read().made_in.clone()
    }

    /// Says in whose sandbox a branch was made.
    pub fn set_made_in(&self, slot: u16, made_in: Option<MadeIn>) {
        let mut table = self.table.write();
        match made_in {
            Some(made_in) => table.made_in.insert(slot, made_in),
            None => table.made_in.remove(&slot),
        };
    }

    /// The journals of all branches.
    pub fn journals(&self) -> &Arc<Journals> {
        &self.journals
    }

    /// Takes the ref of a branch away: from now on there is none of that name.
    pub fn unrecord(&self, name: &str) -> Result<()> {
        Ok(self.shared.refs.delete(&ref_name(&self.workspace, name))?)
    }

    /// Takes a branch that has no ref any more, and the snapshots of it, out of the views.
    pub fn retire(&self, slot: u16) {
        let mut table = self.table.write();
        table.retire(slot);
        table.created.remove(&slot);
        table.made_in.remove(&slot);
        let of_it = |k: &(u16, Shown)| k.0 == slot;
        let snapshots: Vec<_> = table.snapshots.keys().copied().filter(of_it).collect();
        for key in snapshots {
            if let Some(slot) = table.snapshots.remove(&key) {
                table.retire(slot);
            }
        }
    }

    /// Removes the files of a branch that was retired.
    pub fn remove_files(&self, branch: &Branch) -> Result<()> {
        let number = branch.places.journal.number();
        self.journals.remove(number);
        self.trees.settle(number, 0)?;
        let removed = self.shared.storage.remove_dir_all(&branch.dir);
        removed.map_err(Error::io(&branch.dir))
    }

    /// The refs of all branches but `main`; that of one that was being renamed goes.
    pub fn recorded(&self) -> Result<BTreeMap<String, BranchRecord>> {
        let (found, old) = recorded(&self.shared.refs, &self.workspace)?;
        for name in old {
            self.shared.refs.delete(&ref_name(&self.workspace, &name))?;
        }
        Ok(found)
    }

    pub fn open_branch(&self, name: &str, number: u16, created: Time) -> Result<()> {
        let branch = Branch::open(self.open_parts(name, number))?;
        self.add(branch, created);
        Ok(())
    }

    /// What a branch is opened with.
    pub fn open_parts(&self, name: &str, number: u16) -> OpenBranch {
        let s = &self.shared;
        OpenBranch {
            name: name.to_owned(),
            slot: number,
            number: u32::from(number),
            journals: self.journals.clone(),
            trees: self.trees.clone(),
            wake: self.wake.clone(),
            dir: branch_dir(&self.workspace, number),
            storage: s.storage.clone(),
            store: s.store.clone(),
            base: s.base.clone(),
            table: s.table.clone(),
            author: self.author.clone(),
            boot: s.boot,
            settings: s.settings.clone(),
            expiry: s.expiry.clone(),
            kept: self.kept,
            feed: s.feed.clone(),
            judges: s.judges.clone(),
        }
    }

    pub fn add(&self, branch: Branch, created: Time) -> Arc<Branch> {
        let branch = Arc::new(branch);
        let mut table = self.table.write();
        if let Some(cache) = &table.cache {
            branch.set_cache(cache.clone());
        }
        table.created.insert(branch.slot, created);
        table.by_slot.insert(branch.slot, branch.clone());
        drop(table);
        self.wake.changed();
        branch
    }

    /// Removes directories of branches whose making was not finished, or that were deleted.
    fn sweep_dirs(&self) -> Result<()> {
        let dir = format!("workspaces/{}/branches", self.workspace);
        let storage = &self.shared.storage;
        for name in storage.list(&dir).map_err(Error::io(&dir))? {
            let known = name
                .parse::<u16>()
                .map_or(true, |n| self.by_slot(n).is_some());
            if !known {
                let path = format!("{dir}/{name}");
                storage.remove_dir_all(&path).map_err(Error::io(path))?;
            }
        }
        Ok(())
    }

    /// What wakes the background threads.
    pub fn wake(&self) -> Arc<Wake> {
        self.wake.clone()
    }

    /// The branch `main`.
    #[allow(clippy::expect_used)]
    pub fn main(&self) -> Arc<Branch> {
        self.by_slot(0)
            .expect("main is opened first and never deleted")
    }

    /// All branches, `main` first, the others as they were made.
    pub fn branches(&self) -> Vec<Arc<Branch>> {
        let table = self.table.read();
        let all = table.by_slot.range(..FIRST_SNAPSHOT_SLOT);
        all.map(|(_, b)| b.clone()).collect()
    }

    /// All branches but one.
    pub fn branches_but(&self, one: &Branch) -> Vec<Arc<Branch>> {
        let mut all = self.branches();
        all.retain(|b| b.slot != one.slot);
        all
    }

    /// All branches and snapshots.
    pub fn all(&self) -> Vec<Arc<Branch>> {
        self.table.read().by_slot.values().cloned().collect()
    }

    /// The branch or snapshot of a slot.
    pub fn by_slot(&self, slot: u16) -> Option<Arc<Branch>> {
        self.table.read().by_slot.get(&slot).cloned()
    }

    /// The branch of a name.
    pub fn by_name(&self, name: &str) -> Result<Arc<Branch>> {
        let found = self.branches().into_iter().find(|b| b.name() == name);
        found.ok_or_else(|| Error::NoSuchBranch(name.to_owned()))
    }

    /// Tells all who keeps the kernel's caches.
    pub fn set_cache(&self, cache: Arc<dyn KernelCache>) {
        let mut table = self.table.write();
        table
            .by_slot
            .values()
            .for_each(|b| b.set_cache(cache.clone()));
        table.cache = Some(cache);
    }

    /// Nothing is mounted any more: snapshots and slots of deleted branches are free.
    pub fn unmounted(&self) {
        let mut table = self.table.write();
        table.cache = None;
        table.retired.clear();
        table.lost.clear();
        table.snapshots.clear();
        table.by_slot.retain(|slot, _| *slot < FIRST_SNAPSHOT_SLOT);
        table.by_slot.values().for_each(|b| b.forget_kernel());
        self.virtuals.lock().clear();
    }

    /// The kernel was handed a directory or link of agentvfs itself.
    pub fn virtual_found(&self, node: NodeId) {
        *self.virtuals.lock().entry(node).or_default() += 1;
    }

    /// The kernel forgets what [`Views::virtual_found`] noted.
    pub fn virtual_forgotten(&self, node: NodeId, lookups: u64) {
        {
            let mut known = self.virtuals.lock();
            let left = known.get(&node).map_or(0, |n| n.saturating_sub(lookups));
            match left {
                0 => drop(known.remove(&node)),
                left => drop(known.insert(node, left)),
            }
        }
        self.release(&mut self.table.write());
    }

    /// The kernel forgets an inode of a branch or snapshot that is gone.
    pub fn gone_forgotten(&self, node: NodeId, lookups: u64) {
        let Some(branch) = self.table.read().retired.get(&node.slot()).cloned() else {
            return;
        };
        ops::names::forget(&branch, node.nid(), lookups);
        let forgotten = branch.is_forgotten();
        drop(branch);
        if forgotten {
            self.release(&mut self.table.write());
        }
    }

    /// Gives the slots back of which nobody holds anything any more.
    fn release(&self, table: &mut Table) {
        if table.retired.is_empty() {
            return;
        }
        let virtuals = self.virtuals.lock();
        let known = |slot: u16| virtuals.keys().any(|node| node.slot() == slot);
        table
            .retired
            .retain(|slot, branch| !is_unused(branch) || known(*slot));
    }

    /// Slots that no view has.
    pub fn free_slots(&self) -> Vec<u16> {
        let table = self.table.read();
        (1..SLOTS_MAX).filter(|slot| table.is_free(*slot)).collect()
    }

    /// Slots that the kernel knows from a daemon before: nothing else is shown under them while it is mounted.
    pub fn lose_slots(&self, slots: impl IntoIterator<Item = u16>) {
        self.table.write().lost.extend(slots);
    }

    /// Sets what says which branch a process sees.
    pub fn set_seen_by(&self, seen_by: SeenBy) {
        *self.seen_by.write() = Some(seen_by);
    }

    /// Branch that a process sees; `None` for `main`.
    pub fn seen_by(&self, pid: u32) -> Option<String> {
        let exists = |name: &str| self.by_name(name).is_ok();
        self.seen_by.read().as_ref().and_then(|f| f(pid, &exists))
    }

    /// A number for a new branch. Where only what is at work on a deleted branch has one, such as a round of a
    /// background thread, that is waited for.
    pub fn free_number(&self) -> Result<u16> {
        let until = Instant::now() + LET_GO_WAIT;
        loop {
            let mut table = self.table.write();
            self.release(&mut table);
            if let Some(free) = (1..FIRST_SNAPSHOT_SLOT).find(|n| table.is_free(*n)) {
                return Ok(free);
            }
            if !table.is_about_to_let_go() || Instant::now() >= until {
                return Err(Error::TooManyBranches);
            }
            drop(table);
            std::thread::sleep(LET_GO_LOOK);
        }
    }

    /// A snapshot's view, made where there is none.
    pub(super) fn snapshot(&self, of: &Branch, shown: Shown) -> Result<Arc<Branch>> {
        let key = (of.slot, shown);
        {
            let table = self.table.read();
            if let Some(view) = table.snapshots.get(&key).and_then(|s| table.by_slot.get(s)) {
                return Ok(view.clone());
            }
        }
        let _pin = of.places.store.pin();
        let tree = match shown {
            Shown::State(state) => states::tree_of(of, state)?,
            Shown::Commit(id) => states::tree_of_commit(of, id)?,
        };
        let mut table = self.table.write();
        let unused: Vec<((u16, Shown), u16)> = table
            .snapshots
            .iter()
            .filter(|(k, slot)| **k != key && table.by_slot.get(slot).is_none_or(is_unused))
            .map(|(k, slot)| (*k, *slot))
            .collect();
        for (k, slot) in unused {
            table.snapshots.remove(&k);
            table.by_slot.remove(&slot);
        }
        if let Some(view) = table.snapshots.get(&key).and_then(|s| table.by_slot.get(s)) {
            return Ok(view.clone());
        }
        self.release(&mut table);
        let free = (FIRST_SNAPSHOT_SLOT..SLOTS_MAX).find(|n| table.is_free(*n));
        let slot = free.ok_or(Error::TooManyBranches)?;
        let view = Arc::new(create::snapshot(of, slot, tree));
        if let Some(cache) = &table.cache {
            view.set_cache(cache.clone());
        }
        table.snapshots.insert(key, slot);
        table.by_slot.insert(slot, view.clone());
        Ok(view)
    }

    pub fn record(&self, name: &str, record: &BranchRecord) -> Result<()> {
        let name = ref_name(&self.workspace, name);
        Ok(self.shared.refs.set(&name, &record.bytes())?)
    }
}

impl Workspace {
    /// Sets what says which branch a process sees through `.agentvfs/view`.
    pub fn set_seen_by(&self, seen_by: SeenBy) {
        self.views.set_seen_by(seen_by);
    }

    /// The snapshot of a reference, for the view `slot`. Where its commit is not stored yet, that is
    /// waited for.
    pub(crate) fn snapshot(&self, slot: u16, text: &str, wait: Wait) -> Result<Arc<Branch>> {
        let branch = self.views.by_slot(slot).ok_or(Error::Stale)?;
        let found = branch.lock().book.history.resolve(&branch.name(), text);
        let state = match found {
            Err(Error::NoSuchRef(_) | Error::AmbiguousRef { .. } | Error::NoSuchBranch(_)) => {
                return Err(Error::NotFound);
            }
            other => other?,
        };
        if wait == Wait::Never {
            return Err(Error::WouldBlock);
        }
        states::wait_for_id(&branch, state, &|_, _| {})?;
        self.views.snapshot(&branch, Shown::State(state))
    }
}
