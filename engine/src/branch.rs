//! A branch: live tree, journal, history, and the lock that keeps them together.
//!
//! Every change goes: lock → validate → append to the journal → apply → unlock. Journal records are
//! appended only with the lock held, so their order is the order of the changes, and a frozen tree
//! belongs to exactly one sequence number.

pub mod acting;
pub(crate) mod auto;
pub(crate) mod away;
mod blocks;
pub(crate) mod calls;
pub(crate) mod carry;
pub(crate) mod close;
pub(crate) mod create;
pub mod descent;
pub(crate) mod endings;
pub(crate) mod events;
pub(crate) mod fence;
pub(crate) mod frames;
pub(crate) mod inherit;
pub(crate) mod inspect;
pub(crate) mod judging;
pub(crate) mod kept;
pub(crate) mod known;
pub(crate) mod left;
pub(crate) mod load;
pub(crate) mod notable;
pub(crate) mod open;
pub(crate) mod opens;
pub mod outcomes;
pub(crate) mod pins;
pub(crate) mod replay;
pub(crate) mod seal;
pub(crate) mod shared;
pub(crate) mod sizes;
pub(crate) mod state_file;
pub(crate) mod states;
pub(crate) mod telling;
pub(crate) mod timeline;
pub(crate) mod tree_file;
pub(crate) mod wake;
pub(crate) mod whose;

use self::fence::Fence;
use self::judging::Judged;
use self::tree_file::Trees;
use crate::book::Book;
use crate::branch::wake::Wake;
use crate::error::{Error, Result};
use crate::feed::Feed;
use crate::journal::{Appended, JournalError, PayloadRef};
use crate::judge::Judges;
use crate::limits::{DISK_RESERVE_BYTES, QUESTIONS_MAX, SPACE_CHECK_BYTES};
use crate::record::{Counters, Event, Mutation, Record, encode};
use crate::stored::data::Places;
use crate::stored::import::Importer;
use crate::stored::load::Numbers;
use crate::stored::store::Reference;
use crate::tree::Tree;
use crate::tree::accessed::Accessed;
use crate::tree::inode::Inode;
use crate::tree::lookups::Lookups;
use crate::types::{Attr, KernelCache, Nid, NoKernelCache, NodeId, Wait};
use objstore::io::Storage;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Everything that changes, under one lock.
#[derive(Debug)]
pub(crate) struct Inner {
    pub live: Tree,
    /// What is known besides the trees.
    pub book: Book,
    pub lookups: Lookups,
    /// Access times that the tree does not have.
    pub accessed: Accessed,
    /// Stands while the kernel may still bring pages of a replaced state.
    pub fence: Option<Fence>,
    /// Until when changes of the live tree wait for a merge.
    pub held_until: Option<Instant>,
    /// All base directories were read.
    pub scan_done: bool,
    /// Inodes of base files with several links, by device and number in the base.
    pub base_inodes: HashMap<(u64, u64), Nid>,
    /// What came of directories that were away.
    pub brought: away::Brought,
    /// The tree that was stored last.
    pub reference: Option<Reference>,
    /// The tree file that the state file names, with its tree.
    pub tree_file: (u32, Tree),
    /// Trees that somebody reads.
    pub pins: pins::Pins,
    /// The tree that is being stored: the live one may have gone on, and what is stored of it will
    /// be referred to.
    pub storing: Option<Tree>,
    /// Whose changes are while calls run that are apart.
    pub whose: whose::Whose,
    /// What rules say of changes.
    pub judging: judging::Judging,
    /// What became of requests that the kernel may send again.
    pub outcomes: outcomes::Outcomes,
    /// States that switches replaced which may not have ended when the daemon before died: the kernel may have pages and
    /// names of before them. Nothing pending is stored until it has dropped those, because that would say that they ended.
    pub cut_off: BTreeSet<u64>,
}

/// A branch of an open workspace.
#[derive(Debug)]
pub(crate) struct Branch {
    name: RwLock<Arc<str>>,
    pub dir: String,
    /// View under which the mount shows it.
    pub slot: u16,
    pub storage: Arc<dyn Storage>,
    pub places: Places,
    pub trees: Arc<Trees>,
    pub importer: Importer,
    /// Serialises checkpoint, rollback, undo, redo, merge and stop of the branch.
    pub control: Mutex<()>,
    /// A snapshot: nothing changes it.
    pub read_only: bool,
    inner: Mutex<Inner>,
    /// Signalled when a state got its id, the scan ended, or the journal shrank.
    progress: Condvar,
    /// Serialises storing: who holds it may set `Inner::reference`.
    sealing: Mutex<()>,
    /// Serialises reading base directories.
    loading: Mutex<()>,
    cache: RwLock<CacheRef>,
    /// Why background storing stands still.
    pub paused: Mutex<Option<Paused>>,
    pub closing: AtomicBool,
    /// What recovery did at open.
    pub recovered: Option<String>,
    /// Inodes whose attributes the kernel must drop, found while handling requests.
    pub stale: Mutex<Vec<Nid>>,
    unchecked_bytes: AtomicU64,
    /// Trees refer to stored content that no sync has covered yet; a record in the journal must not.
    pub unsynced: AtomicBool,
    /// Held while that is being changed.
    syncing: Mutex<()>,
    /// Sequence number that the last state file covers.
    pub sealed_seq: AtomicU64,
    /// Wakes the workspace's background work.
    pub wake: Arc<Wake>,
    /// What the background work last saw of the journal.
    rest: Mutex<Rest>,
    /// Automatic commits.
    pub auto: auto::Automatic,
    /// What happens in the workspace, for those who follow it.
    pub feed: Arc<Feed>,
    /// Rules that changes are judged by.
    pub judges: Arc<Judges>,
    /// What tells it from all others in the feed, also from a later one of its name or number.
    pub teller: u64,
    /// Serialises storing the timeline.
    pub flushing: Mutex<()>,
    /// Pages that the kernel must drop, found while handling requests.
    pub mending: sizes::Mending,
}

/// Why background storing stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paused {
    pub why: String,
    /// More space would help.
    pub wants_space: bool,
}

impl From<&Error> for Paused {
    fn from(error: &Error) -> Paused {
        Paused {
            why: error.to_string(),
            wants_space: error.wants_space(),
        }
    }
}

/// What the background work last saw of a branch's journal.
#[derive(Debug)]
struct Rest {
    last_seq: u64,
    since: Instant,
    scanned: bool,
    /// When the journal was last sealed, or the branch opened, and how long that took.
    sealed: (Instant, Duration),
}

struct CacheRef(Arc<dyn KernelCache>);

impl std::fmt::Debug for CacheRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KernelCache")
    }
}

impl Branch {
    /// The lock.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.name.read().to_string()
    }

    /// The same, without a copy.
    fn shared_name(&self) -> Arc<str> {
        self.name.read().clone()
    }

    /// Gives it another name.
    pub fn set_name(&self, name: &str) {
        *self.name.write() = name.into();
        self.lock().judging.forget_decisions();
    }

    /// Sets what is told to forget.
    pub fn set_cache(&self, cache: Arc<dyn KernelCache>) {
        *self.cache.write() = CacheRef(cache);
    }

    /// What is told to forget.
    pub fn cache(&self) -> Arc<dyn KernelCache> {
        self.cache.read().0.clone()
    }

    /// Nothing is mounted any more: no inode is known, open unlinked files are gone.
    pub fn forget_kernel(&self) {
        self.set_cache(Arc::new(NoKernelCache));
        let mut inner = self.lock();
        inner.lookups.clear();
        inner.cut_off.clear();
        drop_orphans(&mut inner.live);
    }

    /// Address of an inode in this branch's view.
    pub fn node(&self, nid: Nid) -> NodeId {
        NodeId::new(self.slot, nid)
    }

    /// Waits until `progress` is signalled, a short while at most.
    pub fn wait_progress(&self, inner: &mut MutexGuard<'_, Inner>) {
        self.progress
            .wait_for(inner, std::time::Duration::from_millis(100));
    }

    /// Signals progress alone.
    pub fn signal_progress(&self) {
        self.progress.notify_all();
    }

    /// Waits until `progress` is signalled, until `deadline` at most; false where that has passed.
    pub fn wait_progress_until(
        &self,
        inner: &mut MutexGuard<'_, Inner>,
        deadline: Instant,
    ) -> bool {
        !self.progress.wait_until(inner, deadline).timed_out()
    }

    /// Signals progress, and that there may be work in the background.
    pub fn signal(&self) {
        self.progress.notify_all();
        self.wake.wake();
    }

    /// Journals and applies a mutation that was validated.
    pub fn change(&self, inner: &mut Inner, m: Mutation, payload: &[u8]) -> Result<()> {
        if inner.held_until.is_some_and(|until| Instant::now() < until) {
            return Err(Error::WouldBlock);
        }
        let frees = matches!(
            m,
            Mutation::Unlink { .. }
                | Mutation::SetAttr { .. }
                | Mutation::Rename { .. }
                | Mutation::Kv { entry: None, .. }
        );
        let judged = match self.judges.version() {
            0 => None,
            _ if self.read_only => None,
            _ => Some(self.judge(inner, &m, payload.len() as u64)?),
        };
        let record = inner.outcomes.record_of(m);
        let appended = self.append(&record, payload, frees)?;
        inner.outcomes.note(&record, payload.len() as u64);
        let Some(m) = record.mutation() else {
            return Ok(());
        };
        self.auto.note_change();
        let is_watched = judged.as_ref().is_some_and(Judged::is_watched);
        if let Some(judged) = judged {
            self.judged(inner, m, judged);
        }
        if inner.whose.is_active() {
            inner.put_down(m);
        }
        let told = self.feed.is_on().then(|| self.about_to(inner, m));
        inner.live.apply(m, appended.payload).map_err(|e| {
            tracing::error!("a validated change did not fit the tree: {e}: {m:?}");
            Error::Damaged {
                what: "the live tree".into(),
                why: e.to_string(),
            }
        })?;
        if let Some(mut draft) = told {
            draft.watch_if(is_watched);
            self.tell_change(inner, draft, m, payload.len());
        }
        Ok(())
    }

    /// Journals an event that is carried out already, or otherwise than by [`Branch::carry_out`].
    pub fn record(&self, event: Event, payload: &[u8]) -> Result<Option<PayloadRef>> {
        Ok(self.append(&Record::Event(event), payload, true)?.payload)
    }

    fn append(&self, record: &Record, payload: &[u8], reserve: bool) -> Result<Appended> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        self.trees.check_whole()?;
        let meta = encode(record);
        let journal = &self.places.journal;
        let appended = if reserve {
            journal.append_reserve(&meta, payload)
        } else {
            journal.append(&meta, payload)
        };
        self.wake.changed();
        appended.map_err(|e| match e {
            JournalError::Full { .. } => {
                self.wake.wake();
                Error::WouldBlock
            }
            e => Error::Journal(e),
        })
    }

    /// Lets changes of the live tree wait from now on, for `at_most`, or until [`Branch::release`]. What the
    /// kernel has of changes is asked for before.
    pub fn hold(&self, at_most: Duration) {
        self.cache().flush_dirty();
        self.lock().held_until = Some(Instant::now() + at_most);
    }

    /// Lets changes of the live tree go on.
    pub fn release(&self) {
        if self.lock().held_until.take().is_some() {
            self.progress.notify_all();
        }
    }

    /// Runs a request. `body` says [`Error::WouldBlock`] where the journal is full or a merge holds changes
    /// back (then that is waited for, if `wait` allows), [`Error::NeedsDir`] where a base directory must be read, and
    /// [`Error::NeedsAnswer`] where rules ask something: that is done without the lock, and the body runs again.
    pub fn request<R>(&self, wait: Wait, body: impl FnMut(&mut Inner) -> Result<R>) -> Result<R> {
        self.carry_through(wait, true, body)
    }

    /// As [`Branch::request`], for what changes nothing: nobody is told who asks.
    pub fn look<R>(&self, wait: Wait, body: impl FnMut(&mut Inner) -> Result<R>) -> Result<R> {
        self.carry_through(wait, false, body)
    }

    fn carry_through<R>(
        &self,
        wait: Wait,
        changes: bool,
        mut body: impl FnMut(&mut Inner) -> Result<R>,
    ) -> Result<R> {
        let (mut heard, mut asked, mut rounds) = (None, 0, load::Rounds::default());
        let needs_name = || changes && self.wants_names() && acting::is_nameless();
        loop {
            if needs_name() {
                acting::find_name();
            }
            let mut inner = self.inner.lock();
            if inner.whose.is_active() && acting::is_unknown() {
                drop(inner);
                acting::look_up();
                continue;
            }
            if needs_name() {
                continue;
            }
            inner.judging.heard = heard.take();
            let done = body(&mut inner);
            inner.judging.heard = None;
            match done {
                Err(e) if wait == Wait::Never && e.is_need() => return Err(Error::WouldBlock),
                Err(Error::NeedsAnswer(_)) if asked == QUESTIONS_MAX => {
                    return Err(judging::restless());
                }
                Err(Error::NeedsAnswer(question)) => {
                    drop(inner);
                    asked += 1;
                    heard = Some(question.ask());
                }
                Err(Error::NeedsCommit) => judging::keep_first(self, inner),
                Err(Error::NeedsDir(nid)) => {
                    drop(inner);
                    rounds.load_dir(self, nid)?;
                }
                Err(Error::NeedsScan) if wait == Wait::Allowed && inner.scan_done => {
                    drop(inner);
                    away::bring_all(self)?;
                }
                Err(Error::NeedsScan | Error::WouldBlock) if wait == Wait::Allowed => {
                    if self.closing.load(Ordering::Relaxed) {
                        return Err(Error::Closing);
                    }
                    self.wait_progress(&mut inner);
                }
                other => return other,
            }
        }
    }

    /// Whether the name of a program that changes something is needed.
    fn wants_names(&self) -> bool {
        self.feed.is_on() || self.judges.want_names()
    }

    /// Refuses data where the disk is nearly full, so that deleting and rolling back go on working.
    pub fn check_space(&self, bytes: u64) -> Result<()> {
        let before = self.unchecked_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes < SPACE_CHECK_BYTES && before != 0 {
            return Ok(());
        }
        let free = self.storage.free_bytes().map_err(Error::io(&self.dir))?;
        let checked = if free < DISK_RESERVE_BYTES + bytes {
            Err(Error::NoSpace)
        } else {
            self.check_quota(bytes)
        };
        if checked.is_err() {
            self.unchecked_bytes
                .store(SPACE_CHECK_BYTES, Ordering::Relaxed);
            return checked;
        }
        self.unchecked_bytes.store(1, Ordering::Relaxed);
        Ok(())
    }

    /// Refuses what would take the home beyond its quota.
    pub fn check_quota(&self, bytes: u64) -> Result<()> {
        let Some(quota) = self.auto.settings.read().quota else {
            return Ok(());
        };
        let used = self.storage.used_bytes().map_err(Error::io(&self.dir))?;
        if used.saturating_add(bytes) > quota {
            return Err(Error::Quota { quota });
        }
        Ok(())
    }

    /// Brings everything answered so far to stable storage.
    pub fn sync(&self) -> Result<()> {
        Ok(self.places.journal.sync(self.places.journal.last_seq())?)
    }

    /// The lock, at a moment when all stored content that trees refer to is on stable storage.
    pub fn lock_synced(&self) -> Result<MutexGuard<'_, Inner>> {
        loop {
            self.sync_store()?;
            let inner = self.lock();
            if !self.unsynced.load(Ordering::SeqCst) && !self.syncing.is_locked() {
                return Ok(inner);
            }
        }
    }

    /// Brings the objects that trees refer to to stable storage. Who finds that somebody else is at it
    /// waits for that.
    fn sync_store(&self) -> Result<()> {
        let _one = self.syncing.lock();
        if self.unsynced.swap(false, Ordering::SeqCst) {
            let failed = |_: &objstore::Error| self.unsynced.store(true, Ordering::SeqCst);
            self.places.store.sync().inspect_err(failed)?;
        }
        Ok(())
    }

    /// Numbers for inodes that are made outside the lock.
    pub fn numbers(&self) -> BranchNumbers<'_> {
        BranchNumbers {
            branch: self,
            have: Counters {
                nid: 0,
                ino: 0,
                state: 0,
            },
            left: 0,
        }
    }
}

/// Takes numbers from the branch in blocks.
#[derive(Debug)]
pub(crate) struct BranchNumbers<'a> {
    branch: &'a Branch,
    have: Counters,
    left: u64,
}

impl Numbers for BranchNumbers<'_> {
    fn next(&mut self) -> (Nid, u64) {
        const BLOCK: u64 = 256;
        if self.left == 0 {
            let mut inner = self.branch.lock();
            self.have = inner.book.counters;
            inner.book.counters.nid += BLOCK;
            inner.book.counters.ino += BLOCK;
            self.left = BLOCK;
        }
        self.left -= 1;
        self.have.next()
    }
}

impl Inner {
    /// True where nothing here waits for a background thread, now or later.
    pub fn is_at_rest(&self) -> bool {
        let calls = &self.book.timeline.running;
        self.fence.is_none()
            && calls.is_empty()
            && self.judging.is_at_rest()
            && self.book.history.first_pending().is_none()
    }

    /// Trees and history as they are now, for looking at; O(states).
    pub fn snapshot(&self) -> Inner {
        Inner {
            live: self.live.clone(),
            book: self.book.clone(),
            lookups: Lookups::default(),
            accessed: Default::default(),
            fence: None,
            held_until: None,
            scan_done: self.scan_done,
            base_inodes: HashMap::new(),
            brought: self.brought.again(),
            reference: self.reference.clone(),
            storing: self.storing.clone(),
            tree_file: self.tree_file.clone(),
            pins: pins::Pins::default(),
            whose: whose::Whose::default(),
            judging: judging::Judging::default(),
            outcomes: outcomes::Outcomes::default(),
            cut_off: BTreeSet::new(),
        }
    }

    /// What `stat` shows of an inode, in view `slot`.
    pub fn attr(&self, inode: &Inode, slot: u16, nid: Nid) -> Attr {
        Attr {
            atime: self.accessed.of(nid, inode),
            ..inode.attr(slot, nid)
        }
    }

    /// Every tree that must agree on what the base holds.
    pub fn trees_mut(&mut self) -> Vec<&mut Tree> {
        let reference = self.reference.iter_mut().map(|r| &mut r.tree);
        std::iter::once(&mut self.live)
            .chain(self.book.history.states.trees_mut())
            .chain(reference)
            .chain(self.pins.trees_mut())
            .collect()
    }

    /// An inode lost a name: without any, and unknown to the kernel, it is gone.
    pub fn reap(&mut self, nid: Nid) {
        let gone = self.live.get_open(nid).is_some_and(|i| i.nlink == 0);
        if gone && self.lookups.get(nid) == 0 {
            self.accessed.forget(nid);
            self.live.remove(nid);
        }
    }
}

/// Removes inodes without a name.
pub(crate) fn drop_orphans(tree: &mut Tree) {
    let mut orphans = Vec::new();
    tree.for_each_open(&mut |nid, i| {
        if i.nlink == 0 {
            orphans.push(nid);
        }
    });
    for nid in orphans {
        tree.remove(nid);
    }
}
