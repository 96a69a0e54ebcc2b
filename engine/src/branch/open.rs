//! Opening a branch: made anew from the base, or recovered.

use super::auto::{Automatic, Expiring};
use super::notable::Notable;
use super::outcomes::Outcomes;
use super::replay::Replay;
use super::state_file::{LoadedState, StateFile, StateHead, StateMore};
use super::tree_file::Trees;
use super::{Branch, CacheRef, Inner, Rest};
use crate::base::{Base, BaseDir};
use crate::book::history::{History, HistoryRecord};
use crate::book::{Beside, Book};
use crate::branch::load;
use crate::branch::seal;
use crate::branch::wake::Wake;
use crate::clock;
use crate::error::{Error, Result};
use crate::feed::Feed;
use crate::journal::{Journal, JournalConfig, RecoveryReport};
use crate::judge::Judges;
use crate::limits::{FIRST_NEW_INO, JOURNAL_CAP_BYTES_MIN};
use crate::record::{Counters, Event, OpKind, Record, StateInfo, encode};
use crate::settings::SharedSettings;
use crate::stored::data::Places;
use crate::stored::import::{Importer, base_files};
use crate::stored::journals::Journals;
use crate::stored::store::Reference;
use crate::tree::Tree;
use crate::tree::load::inode_of;
use crate::tree::lookups::Lookups;
use crate::tree::patch::BaseDirs;
use crate::types::{Kind, Nid, NoKernelCache};
use objstore::ObjectStore;
use objstore::import_table::ImportTable;
use objstore::io::Storage;
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a branch is opened with.
#[derive(Debug, Clone)]
pub(crate) struct OpenBranch {
    pub name: String,
    /// View under which the mount shows it.
    pub slot: u16,
    /// Number of its journal.
    pub number: u32,
    /// What the branches of the workspace share.
    pub journals: Arc<Journals>,
    pub trees: Arc<Trees>,
    pub wake: Arc<Wake>,
    /// Directory of the branch in the storage.
    pub dir: String,
    pub storage: Arc<dyn Storage>,
    pub store: Arc<ObjectStore>,
    pub base: Arc<Base>,
    pub table: Arc<ImportTable>,
    /// Who makes commits.
    pub author: String,
    /// Boot of the machine, 0 where unknown.
    pub boot: u64,
    /// Settings of the store.
    pub settings: SharedSettings,
    /// Held by who needs that nothing expires.
    pub expiry: Expiring,
    /// The connection by which the branch is still mounted; `None` where it is not.
    pub kept: Option<u64>,
    /// What happens in the workspace.
    pub feed: Arc<Feed>,
    pub judges: Arc<Judges>,
}

impl Branch {
    /// Opens the branch; makes it where it never existed.
    pub fn open(o: OpenBranch) -> Result<Branch> {
        let mut dirs = BaseDirs::default();
        match state_file(&o).read(&mut dirs)? {
            Some(state) => recover(o, state, dirs),
            None => {
                state_file(&o).check_never_made(o.boot)?;
                create(o)
            }
        }
    }
}

/// The state files of a branch that is not open.
pub(super) fn state_file(o: &OpenBranch) -> StateFile<'_> {
    StateFile {
        storage: &*o.storage,
        dir: &o.dir,
        trees: &o.trees,
        branch: o.number,
    }
}

pub(super) fn journal_dir(o: &OpenBranch) -> String {
    format!("{}/journal", o.dir)
}

pub(super) fn journal_config(o: &OpenBranch) -> Result<JournalConfig> {
    let free = o.storage.free_bytes().map_err(Error::io(&o.dir))?;
    Ok(JournalConfig {
        cap_bytes: (free / 20).max(JOURNAL_CAP_BYTES_MIN),
        boot: o.boot,
        number: o.number,
        ..JournalConfig::default()
    })
}

/// A new branch shows the base; its first state is the base as it is.
fn create(o: OpenBranch) -> Result<Branch> {
    let dir = journal_dir(&o);
    o.storage.remove_dir_all(&dir).map_err(Error::io(&dir))?;
    let root = inode_of(&o.base.root_entry()?, None, &BaseDir::root(), Nid::ROOT, 1);
    let tree = Tree::with_root(root);
    let journal = Journal::create(o.storage.clone(), &dir, journal_config(&o)?)?;
    let head = first_head();
    let info = StateInfo {
        number: 1,
        kind: OpKind::Start,
        asked: true,
        time: clock::now(),
        author: o.author.clone(),
        message: format!("start from {}", o.base.path().display()),
        meta: vec![],
        parents: vec![],
        id: None,
    };
    let history = History::from_record(head.history.clone());
    let mut inner = new_inner(tree.clone(), head.counters, history);
    let event = Event::Freeze {
        info,
        head: true,
        label: None,
    };
    let record = Record::Event(event.clone());
    let seq = journal.append(&encode(&record), &[])?.seq;
    let live = &tree;
    let carried = inner.book.carry_out(event, Beside { seq, live });
    carried.map_err(|why| Error::Damaged {
        what: "a new branch".into(),
        why: why.into(),
    })?;
    journal.sync(journal.last_seq())?;
    let none = (0, Tree::default());
    let more = StateMore::default();
    inner.tree_file = state_file(&o).write(head, &more, &tree, &none)?;
    Ok(assemble(o, Arc::new(journal), inner, None, 1))
}

/// What a branch that shows the base begins with; its first state is the first record of its journal.
pub(crate) fn first_head() -> StateHead {
    StateHead {
        next_seq: 1,
        counters: Counters {
            nid: 2,
            ino: FIRST_NEW_INO,
            state: 2,
        },
        history: HistoryRecord {
            head: 1,
            ..HistoryRecord::default()
        },
        root: None,
        base_changed: vec![],
        unreadable: vec![],
        tree_file: 0,
        patched: 0,
    }
}

fn recover(o: OpenBranch, state: LoadedState, dirs: BaseDirs) -> Result<Branch> {
    let LoadedState {
        head: state,
        more:
            StateMore {
                kv,
                timeline,
                later,
                outcomes,
                shown,
            },
        tree,
        shared,
        notable,
    } = state.with_kv(&o.store)?;
    let mut history = History::from_record(state.history);
    (history.later, history.shown) = (later, shown);
    let mut inner = new_inner(tree.clone(), state.counters, history);
    inner.book.base_changed = state.base_changed.into_iter().collect();
    inner.book.unreadable = state.unreadable.into_iter().collect();
    (inner.book.anchors.root, inner.book.anchors.kv) = (state.root.flatten(), kv);
    inner.book.anchors.timeline = timeline.stored;
    inner.book.timeline = timeline;
    inner.reference = state.root.map(|root| Reference { tree, root, kv });
    inner.tree_file = (state.tree_file, shared);
    inner.outcomes = Outcomes::of_record(outcomes);
    let mut replay = Replay::new(&mut inner, dirs);
    let cfg = journal_config(&o)?;
    let dir = journal_dir(&o);
    let (journal, report) =
        Journal::recover(o.storage.clone(), &dir, state.next_seq, cfg, &mut |r| {
            replay.take(r)
        })?;
    let places = Places {
        store: o.store.clone(),
        journal: Arc::new(journal),
        journals: o.journals.clone(),
        base: o.base.clone(),
    };
    let read = |p, buf: &mut [u8]| Ok(places.journal.read(p, 0, buf)?);
    replay.finish(&read)?;
    match o.kept {
        Some(connection) => inner.take_up(connection, &notable),
        None => inner.begin_unmounted(&notable),
    }
    (inner.scan_done, inner.brought.is_any_away) = is_scanned(&mut inner, &notable);
    if !inner.scan_done {
        let known = base_inodes(&inner.live, &notable, o.base.dev());
        known.into_iter().for_each(|(place, nid)| {
            inner.base_inodes.entry(place).or_insert(nid);
        });
    }
    let told = (!report.clean).then(|| describe(&report));
    let branch = assemble(o, places.journal, inner, told, state.next_seq);
    count_files(&mut branch.lock(), &notable, &branch.importer);
    if branch.places.base.missing().is_some() {
        load::recall_imported(&branch, &notable);
    }
    // What was brought back, or what the state file has, may be in no state.
    branch.auto.note_change();
    seal::pin_opened(&branch, &notable);
    Ok(branch)
}

fn describe(r: &RecoveryReport) -> String {
    format!(
        "the daemon had ended without stopping; {} changes were recovered",
        r.records
    )
}

/// What is known of a branch whose state file has this tree and this history.
pub(super) fn new_inner(live: Tree, counters: Counters, history: History) -> Inner {
    Inner {
        book: Book::new(live.clone(), counters, history),
        live,
        lookups: Lookups::default(),
        accessed: Default::default(),
        fence: None,
        held_until: None,
        scan_done: false,
        base_inodes: HashMap::new(),
        brought: Default::default(),
        reference: None,
        tree_file: (0, Tree::default()),
        pins: Default::default(),
        storing: None,
        whose: Default::default(),
        judging: Default::default(),
        outcomes: Default::default(),
        cut_off: Default::default(),
    }
}

/// Inodes of base files with several links, for directories that are still to be read.
fn base_inodes(tree: &Tree, notable: &Notable, dev: u64) -> HashMap<(u64, u64), Nid> {
    let mut found = Vec::new();
    notable.each_linked(tree, &mut |nid, i| {
        if let Some(links) = i
            .links
            .as_ref()
            .filter(|l| l.group < FIRST_NEW_INO && i.kind() != Kind::Dir)
        {
            found.push((nid, links.group));
        }
    });
    // Of several in one group the last counts.
    found.sort_unstable();
    let places = found.into_iter().map(|(nid, group)| ((dev, group), nid));
    places.collect()
}

/// Whether no tree has a directory of the base that was not read, and whether one has a directory that is away.
fn is_scanned(inner: &mut Inner, notable: &Notable) -> (bool, bool) {
    let (mut is_scanned, mut is_any_away) = (true, false);
    notable.each_of_all(inner.trees_mut(), &mut |_, inode| {
        is_scanned &= inode.dir().is_none_or(|dir| dir.lazy.is_none());
        is_any_away |= inode.dir().is_some_and(|dir| dir.away);
    });
    (is_scanned, is_any_away)
}

/// A branch of its parts. What it needs of other journals is for the caller to pin.
pub(super) fn assemble(
    o: OpenBranch,
    journal: Arc<Journal>,
    inner: Inner,
    recovered: Option<String>,
    sealed: u64,
) -> Branch {
    o.journals.add(journal.clone());
    let parts = Parts {
        name: o.name,
        dir: o.dir,
        slot: o.slot,
        storage: o.storage,
        places: Places {
            store: o.store,
            journal,
            journals: o.journals,
            base: o.base,
        },
        trees: o.trees,
        importer: Importer::new(o.table),
        wake: o.wake,
        auto: Automatic::new(o.settings, o.expiry, o.author),
        feed: o.feed,
        judges: o.judges,
        read_only: false,
    };
    parts.into_branch(inner, recovered, sealed)
}

/// What a branch is made of beside what changes.
pub(super) struct Parts {
    pub name: String,
    pub dir: String,
    pub slot: u16,
    pub storage: Arc<dyn Storage>,
    pub places: Places,
    pub trees: Arc<Trees>,
    pub importer: Importer,
    pub wake: Arc<Wake>,
    pub auto: Automatic,
    pub feed: Arc<Feed>,
    pub judges: Arc<Judges>,
    pub read_only: bool,
}

/// Branches that there were.
static TELLERS: AtomicU64 = AtomicU64::new(1);

impl Parts {
    /// The branch; `sealed` is the sequence number that its state file covers.
    pub fn into_branch(self, inner: Inner, recovered: Option<String>, sealed: u64) -> Branch {
        Branch {
            name: RwLock::new(self.name.into()),
            dir: self.dir,
            slot: self.slot,
            storage: self.storage,
            places: self.places,
            trees: self.trees,
            importer: self.importer,
            control: Mutex::new(()),
            read_only: self.read_only,
            inner: Mutex::new(inner),
            progress: Condvar::new(),
            sealing: Mutex::new(()),
            loading: Mutex::new(()),
            cache: RwLock::new(CacheRef(Arc::new(NoKernelCache))),
            paused: Mutex::new(None),
            closing: AtomicBool::new(false),
            recovered,
            stale: Mutex::default(),
            unchecked_bytes: AtomicU64::new(0),
            unsynced: AtomicBool::new(false),
            mending: Default::default(),
            syncing: Mutex::new(()),
            sealed_seq: AtomicU64::new(sealed),
            wake: self.wake,
            auto: self.auto,
            feed: self.feed,
            judges: self.judges,
            teller: TELLERS.fetch_add(1, Ordering::Relaxed),
            flushing: Mutex::new(()),
            rest: Mutex::new(Rest {
                last_seq: 0,
                since: Instant::now(),
                scanned: false,
                sealed: (Instant::now(), Duration::ZERO),
            }),
        }
    }
}

/// Counts what is to be imported of all trees that a branch begins with: what the live one has let go of may be in
/// a state that is no commit yet.
pub(super) fn count_files(inner: &mut Inner, notable: &Notable, importer: &Importer) {
    let mut counted = HashSet::new();
    notable.each_of_all(inner.trees_mut(), &mut |_, inode| {
        for file in inode.file().map(base_files).into_iter().flatten() {
            if file.stored().is_none() && counted.insert(file.identity()) {
                importer.found(file.stamp());
            }
        }
    });
}
