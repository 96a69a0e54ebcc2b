//! Directories of a lazy workspace coming when they are looked into.
//!
//! The object is read first, which may wait for a remote, and under no lock. Then its entries get numbers, are journalled,
//! and come into all trees of the branch. Trees that are made meanwhile of older ones, without the lock, are brought up to
//! date when they are kept ([`Brought::catch_up`]). Invariant: whoever needs a directory and tries again finds it, or gets an
//! error.
//!
//! Tests: below, `engine/tests/base/away.rs`, `tests/tests/lazy.rs`.

use super::load::{self, Rounds};
use super::{Branch, Inner};
use crate::change::transition::Transition;
use crate::clock;
use crate::error::{Error, Result};
use crate::record::{BroughtEntry, Event};
use crate::stored::load::inode_of_entry;
use crate::tree::Tree;
use crate::tree::away::Load;
use crate::tree::patch::{BaseDirs, inode_of, record_of};
use crate::types::{Nid, Time};
use objstore::{TreeEntry, TreeId, read_tree};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

/// Entries in one journal record (extended attributes can make one large).
const PART: usize = 32;

/// What came of away directories.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    /// In the order in which they came: what lies above others first.
    loads: Vec<Load>,
    known: HashSet<(Nid, TreeId)>,
    /// Inodes of hard-link groups, once that is needed.
    groups: Option<HashMap<u64, Nid>>,
    /// Some directory may still be away.
    pub is_any_away: bool,
}

impl Brought {
    /// For another view of the same trees.
    pub fn again(&self) -> Brought {
        Brought {
            is_any_away: self.is_any_away,
            ..Brought::default()
        }
    }

    /// Gives a tree that was made of an older one what came since.
    pub fn catch_up(&self, tree: &mut Tree) {
        for load in &self.loads {
            load.apply(std::iter::once(&mut *tree));
        }
    }
}

impl Inner {
    /// All names of every inode are known.
    pub fn knows_links(&self) -> bool {
        self.scan_done && !self.brought.is_any_away
    }

    /// Gives a directory its entries in all trees; gives inodes that have a further name now.
    pub fn bring(&mut self, load: Load) -> Vec<Nid> {
        if let Some(groups) = &mut self.brought.groups {
            let linked = load.inodes();
            groups.extend(linked.filter_map(|(nid, i)| Some((i.links.as_ref()?.group, nid))));
        }
        let relinked = load.apply(self.trees_mut().into_iter());
        self.brought.known.insert(load.key());
        self.brought.loads.push(load);
        relinked
    }

    /// The same of what a record says, or is to say.
    pub fn bring_recorded(
        &mut self,
        (dir, id): (u64, TreeId),
        entries: &[BroughtEntry],
    ) -> std::result::Result<Vec<Nid>, crate::tree::Broken> {
        let mut made = Vec::with_capacity(entries.len());
        for entry in entries {
            let inode = inode_of(&entry.inode, &mut BaseDirs::default())?;
            made.push((Nid(entry.nid), entry.name.clone(), inode));
        }
        Ok(self.bring(Load::new(Nid(dir), id, made)))
    }

    /// The objects that trees have under this number as an away directory.
    fn away(&mut self, nid: Nid) -> Vec<TreeId> {
        let trees = self.trees_mut();
        let mut ids: Vec<TreeId> = trees.iter().filter_map(|tree| tree.away(nid)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// What a switch does to the live tree needs all names of files of which some may not be known.
    pub fn needs_links(&self, changes: &Transition) -> bool {
        self.brought.is_any_away && changes.relinks(&self.live)
    }

    fn all_away(&mut self) -> Vec<(Nid, TreeId)> {
        let trees = self.trees_mut();
        let mut all: Vec<_> = trees.iter().flat_map(|tree| tree.all_away()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn groups(&mut self) -> &mut HashMap<u64, Nid> {
        if self.brought.groups.is_none() {
            let mut groups = HashMap::new();
            for tree in self.trees_mut() {
                tree.for_each(&mut |nid, i| {
                    groups.extend(i.links.as_ref().map(|links| (links.group, nid)));
                });
            }
            self.brought.groups = Some(groups);
        }
        self.brought.groups.get_or_insert_default()
    }

    /// The number that a hard-link group has in all trees that have it.
    fn linked(&mut self, group: u64) -> Option<Nid> {
        let nid = *self.groups().get(&group)?;
        let is_it = |tree: &mut Tree| tree.get(nid).is_none_or(|i| i.is_linked_as(group));
        self.trees_mut().into_iter().all(is_it).then_some(nid)
    }

    /// Gives numbers to the entries of a directory; further links of one file get the first's.
    fn number(&mut self, dir: Nid, entries: &[TreeEntry], now: Time) -> Result<Vec<BroughtEntry>> {
        let mut out = Vec::with_capacity(entries.len());
        for entry in entries {
            let group = entry.meta.link_group;
            let known = match group {
                0 => None,
                group => self.linked(group),
            };
            let counters = &mut self.book.counters;
            let nid = known.unwrap_or(Nid(counters.nid));
            counters.nid += u64::from(known.is_none());
            counters.ino += 1;
            if group != 0 {
                self.groups().insert(group, nid);
            }
            let inode = inode_of_entry(entry, dir, self.book.counters.ino - 1, now)?;
            out.push(BroughtEntry {
                nid: nid.0,
                name: entry.name.clone(),
                inode: Box::new(record_of(&inode)),
            });
        }
        Ok(out)
    }
}

/// Brings the entries of a directory that trees have away; false where none has. Harmless where that was done meanwhile.
pub(crate) fn bring_dir(branch: &Branch, nid: Nid) -> Result<bool> {
    let ids = {
        let mut inner = branch.lock();
        match inner.brought.is_any_away {
            true => inner.away(nid),
            false => Vec::new(),
        }
    };
    for id in &ids {
        bring(branch, nid, *id)?;
    }
    Ok(!ids.is_empty())
}

/// Brings the entries of a directory whose object this is.
///
/// # Errors
/// `Damaged` where a tree cannot take them, twice.
pub(crate) fn bring(branch: &Branch, nid: Nid, id: TreeId) -> Result<()> {
    let _pin = branch.places.store.pin();
    let mut entries = Vec::new();
    read_tree(&branch.places.store, Some(id), &mut |entry| {
        entries.push(entry);
        Ok(())
    })?;
    let _one = branch.loading.lock();
    let mut relinked = Vec::new();
    // Once more with other numbers, for a tree that had the first ones already.
    for _ in 0..2 {
        let mut inner = branch.lock();
        if inner.brought.known.contains(&(nid, id)) && !inner.away(nid).contains(&id) {
            break;
        }
        relinked.extend(bring_entries(branch, &mut inner, (nid, id), &entries)?);
    }
    if branch.lock().away(nid).contains(&id) {
        return Err(load::still_unknown(branch, nid));
    }
    if !relinked.is_empty() {
        branch.stale.lock().extend(relinked);
        branch.wake.changed();
    }
    Ok(())
}

/// Gives a directory these entries, with numbers that they get now.
fn bring_entries(
    branch: &Branch,
    inner: &mut Inner,
    (nid, id): (Nid, TreeId),
    entries: &[TreeEntry],
) -> Result<Vec<Nid>> {
    let time = inner.trees_mut().into_iter().find_map(|tree| {
        let dir = tree.get(nid).filter(|_| tree.away(nid) == Some(id));
        dir.map(|dir| dir.ctime)
    });
    let entries = inner.number(nid, entries, time.unwrap_or_else(clock::now))?;
    if !branch.read_only {
        match record(branch, (nid, id), &entries) {
            // No record can follow that would need these numbers, and reading is to go on.
            Err(_) if branch.places.journal.poisoned().is_some() => {}
            recorded => recorded?,
        }
    }
    let broken = |broken: crate::tree::Broken| Error::Damaged {
        what: "a stored directory".into(),
        why: broken.to_string(),
    };
    inner.bring_recorded((nid.0, id), &entries).map_err(broken)
}

/// Journals the entries of a directory, in parts where they are many.
fn record(branch: &Branch, (dir, id): (Nid, TreeId), entries: &[BroughtEntry]) -> Result<()> {
    let mut rest = entries;
    loop {
        let (part, after) = rest.split_at(rest.len().min(PART));
        let event = Event::Brought {
            dir: dir.0,
            id,
            entries: part.to_vec(),
            more: !after.is_empty(),
        };
        branch.record(event, &[])?;
        if after.is_empty() {
            return Ok(());
        }
        rest = after;
    }
}

/// Brings all directories that are away: afterwards all names of every inode are known.
pub(crate) fn bring_all(branch: &Branch) -> Result<()> {
    loop {
        let all = {
            let mut inner = branch.lock();
            let all = inner.all_away();
            if all.is_empty() {
                inner.brought.is_any_away = false;
                return Ok(());
            }
            all
        };
        for (nid, id) in all {
            if branch.closing.load(Ordering::Relaxed) {
                return Err(Error::Closing);
            }
            bring(branch, nid, id)?;
        }
    }
}

/// Does what needs directories of trees of this branch, which are brought.
pub(crate) fn with_dirs<R>(branch: &Branch, mut work: impl FnMut() -> Result<R>) -> Result<R> {
    let mut rounds = Rounds::default();
    loop {
        match work() {
            Err(Error::NeedsDir(nid)) => rounds.load_dir(branch, nid)?,
            Err(Error::NeedsScan) if branch.lock().scan_done => bring_all(branch)?,
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::branch::states::empty_reference;
    use crate::change::transition::differs;
    use crate::stored::load::load_tree;
    use crate::stored::store::Reference;
    use crate::types::{Kind, NodeId, Wait, mode};
    use crate::verbs::diff::{changes, learn_here};
    use crate::{Caller, Engine, EngineConfig, MAIN, Workspace};
    use objstore::content::FileContent;
    use objstore::crash_storage::CrashStorage;
    use objstore::{Body, Edit, Meta, edit_tree};
    use std::sync::Arc;

    const W: Wait = Wait::Allowed;

    struct Opened {
        w: Arc<Workspace>,
        branch: Arc<Branch>,
        _engine: Arc<Engine>,
        _dir: tempfile::TempDir,
    }

    fn opened() -> Opened {
        let dir = tempfile::tempdir().unwrap();
        let config = EngineConfig {
            root: dir.path().join("home"),
            author: "test".into(),
        };
        std::fs::create_dir(dir.path().join("home")).unwrap();
        std::fs::create_dir(dir.path().join("base")).unwrap();
        let engine = Engine::on_storage(config, Arc::new(CrashStorage::new())).unwrap();
        engine.create("w", &dir.path().join("base"), None).unwrap();
        let w = engine.open_workspace("w").unwrap();
        let branch = w.branch(MAIN).unwrap();
        Opened {
            w,
            branch,
            _engine: engine,
            _dir: dir,
        }
    }

    impl Opened {
        /// A stored directory with files of these names and hard-link groups.
        fn stored(&self, names: &[(&str, u64)]) -> Option<TreeId> {
            let put = |(name, link_group): &(&str, u64)| {
                let meta = Meta {
                    mode: mode::REG | 0o644,
                    link_group: *link_group,
                    ..Meta::default()
                };
                Edit::Put(TreeEntry {
                    name: name.as_bytes().to_vec(),
                    meta,
                    body: Body::File(FileContent::Empty),
                })
            };
            let edits = names.iter().map(put).collect();
            edit_tree(&self.branch.places.store, None, edits).unwrap()
        }

        /// Makes a directory that is away, with such files.
        fn away(&self, names: &[(&str, u64)]) -> Nid {
            let id = self.stored(names);
            let who = Caller::default();
            let made = self.w.mkdir(&who, NodeId::ROOT, b"d", 0o755, W).unwrap();
            let mut inner = self.branch.lock();
            inner.brought.is_any_away = true;
            inner.live.update(made.node.nid(), |i| {
                i.dir_mut().map(|d| (d.stored, d.away) = (id, true))
            });
            made.node.nid()
        }

        fn file(&self, name: &[u8]) -> NodeId {
            let (who, mode) = (Caller::default(), mode::REG | 0o644);
            let made = self.w.mknod(&who, NodeId::ROOT, name, mode, 0, W);
            made.unwrap().node
        }

        /// Has something under the next so many numbers that entries get.
        fn occupy(&self, count: u64) {
            let file = self.file(format!("f{count}").as_bytes());
            let mut inner = self.branch.lock();
            let inode = inner.live.get(file.nid()).unwrap().clone();
            let next = inner.book.counters.nid;
            (next..next + count).for_each(|nid| inner.live.set(Nid(nid), inode.clone()));
        }
    }

    fn is_damage<T: std::fmt::Debug>(result: Result<T>) {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        assert_eq!(error.errno(), 5);
    }

    #[test]
    fn whoever_needs_a_directory_that_stays_unknown_gets_an_error() {
        let opened = opened();
        let branch = &opened.branch;
        let mut rounds = 0;
        let mut needs = || {
            rounds += 1;
            assert!(rounds <= 6, "it goes round for ever");
            Err::<(), _>(Error::NeedsDir(Nid(1 << 30)))
        };
        is_damage(with_dirs(branch, &mut needs));
        is_damage(branch.look(W, |_| needs()));
        let pinned = branch.pin(|inner| Ok(inner.live.clone())).unwrap();
        is_damage(pinned.with(|_| needs()));
        assert_eq!(rounds, 6);
    }

    #[test]
    fn entries_whose_numbers_are_in_use_get_others_or_an_error() {
        let opened = opened();
        let dir = opened.away(&[("a", 0), ("b", 0)]);
        let lookup = |name: &[u8]| {
            let node = opened.branch.node(dir);
            opened.w.lookup(node, name, W)
        };
        // Two names, twice.
        opened.occupy(3);
        is_damage(lookup(b"a"));
        assert!(opened.branch.lock().live.away(dir).is_some());
        opened.occupy(2);
        let (a, b) = (lookup(b"a").unwrap(), lookup(b"b").unwrap());
        assert_ne!(a.node, b.node);
        assert_eq!(lookup(b"f").unwrap_err().errno(), 2);
    }

    #[test]
    fn a_link_never_takes_the_number_of_another_file() {
        let opened = opened();
        let dir = opened.away(&[("a", 77)]);
        let other = opened.file(b"other");
        opened.branch.lock().groups().insert(77, other.nid());
        let a = opened.w.lookup(opened.branch.node(dir), b"a", W).unwrap();
        assert_ne!(a.node, other);
        let attr = opened.w.getattr(other).unwrap();
        assert_eq!((attr.kind, attr.nlink), (Kind::File, 1));
    }

    #[test]
    fn what_is_loaded_names_no_file_otherwise_before_all_its_names_are_known() {
        let opened = opened();
        let (store, meta) = (&opened.branch.places.store, Meta::default());
        let load = |from: &Reference, to: Option<TreeId>, knows_links| {
            let (numbers, now) = (&mut opened.branch.numbers(), clock::now());
            load_tree(store, from, (to, &meta), numbers, now, knows_links)
        };
        let none = empty_reference(&opened.branch).unwrap();
        let both = load(&none, opened.stored(&[("a", 7), ("b", 7)]), true).unwrap();
        // One more name, one less, none, a file with one name in its place.
        let names: [&[(&str, u64)]; 4] = [
            &[("a", 7), ("b", 7), ("c", 7)],
            &[("a", 7)],
            &[],
            &[("a", 0), ("b", 7)],
        ];
        for names in names {
            let to = opened.stored(names);
            let why = load(&both, to, false).unwrap_err();
            assert!(matches!(why, Error::NeedsScan), "{names:?}: {why}");
            load(&both, to, true).unwrap();
        }
        load(&none, opened.stored(&[("plain", 0)]), false).unwrap();
    }

    #[test]
    fn a_directory_that_one_side_alone_knows_is_no_difference_where_its_object_is_here() {
        let opened = opened();
        let dir = opened.away(&[("a", 0)]);
        let live = || opened.branch.lock().live.clone();
        let (before, id) = (live(), live().away(dir).unwrap());
        opened.w.lookup(opened.branch.node(dir), b"a", W).unwrap();
        // As it is in a tree that came from the store by another way.
        let target = live();
        {
            let mut inner = opened.branch.lock();
            inner.live = before;
            inner.brought = Brought {
                is_any_away: true,
                ..Brought::default()
            };
        }
        assert!(live().away(dir) == Some(id) && differs(&live(), &target));
        learn_here(&opened.branch, &target);
        assert!(live().away(dir).is_none() && !differs(&live(), &target));
        let changes = changes(&opened.branch, &target, &live(), &[]).unwrap();
        assert_eq!(changes, []);
    }
}
