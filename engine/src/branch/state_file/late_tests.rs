//! A tree that is decoded late is the tree that was written, after any operations; what cannot be decoded is an error, and
//! nothing is written any more.

use super::tests::head;
use super::*;
use crate::branch::notable::{NEEDED_AT_ONCE, why_notable};
use crate::record::{BodyRecord, ContentRecord, InodeRecord, SrcRecord, encode};
use crate::tree::inode::Inode;
use crate::tree::patch::record_of;
use crate::tree::radix::late_tests::Random;
use crate::types::{Time, mode};
use objstore::crash_storage::CrashStorage;
use objstore::{ChunkId, TreeId};
use std::collections::{BTreeMap, BTreeSet};

/// Numbers of the inodes of a random tree.
const NUMBERS: u64 = 12_000;

/// One in so many.
fn rarely(random: &mut Random, times: u64) -> bool {
    random.below(times) == 0
}

fn content(random: &mut Random) -> (u32, ContentRecord) {
    let chunk = BodyRecord::Stored(FileContent::Chunk {
        id: ChunkId::from_bytes([random.below(256) as u8; 32]),
        len: 9,
    });
    match random.below(1000) {
        0 if rarely(random, 2) => {
            let id = TreeId::from_bytes([random.below(256) as u8; 32]);
            (mode::DIR, ContentRecord::Away(id))
        }
        0 => (mode::DIR, ContentRecord::LazyDir(b"a/b".to_vec())),
        1 => {
            let written = (0, 5, SrcRecord::Journal(1, 96, 5, 0));
            (mode::REG, ContentRecord::File(chunk, 9, 9, vec![written]))
        }
        2..50 => (mode::LNK, ContentRecord::Symlink(b"target".to_vec())),
        50..150 => {
            let entry = |n: u64| (format!("n{n}").into_bytes(), n + 1, mode::REG);
            let entries = (0..random.below(100)).map(entry).collect();
            (mode::DIR, ContentRecord::Dir(entries, None, false))
        }
        _ => (mode::REG, ContentRecord::File(chunk, 9, 9, vec![])),
    }
}

fn inode(random: &mut Random) -> Arc<Inode> {
    let (kind, content) = content(random);
    let many = rarely(random, 50);
    let record = InodeRecord {
        mode: kind | 0o644,
        uid: random.below(3) as u32,
        gid: 0,
        nlink: if rarely(random, 1000) {
            0
        } else {
            1 + u32::from(many)
        },
        rdev: 0,
        ino: random.below(1 << 30),
        size: 9,
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
        parent: 1,
        hash: random.below(1 << 60),
        links: many.then(|| (77, vec![(1, 5, 1)])),
        xattrs: vec![],
        content,
    };
    Arc::new(patch::inode_of(&record, &mut BaseDirs::default()).unwrap())
}

fn nid(random: &mut Random) -> Nid {
    Nid(1 + random.below(NUMBERS))
}

fn random_tree(random: &mut Random) -> Tree {
    let mut tree = Tree::default();
    for _ in 0..1 + random.below(3) {
        let from = random.below(NUMBERS);
        for n in from..(from + 1500).min(NUMBERS) {
            tree.set(Nid(n + 1), inode(random));
        }
    }
    tree
}

/// Some inodes are set, some removed.
fn change(random: &mut Random, trees: &mut [&mut Tree], steps: u64) {
    for _ in 0..steps {
        let nid = nid(random);
        match random.below(4) {
            0 => trees.iter_mut().for_each(|t| drop(t.remove(nid))),
            1 => trees.iter_mut().for_each(|t| {
                t.update(nid, |inode| inode.size += 1);
            }),
            _ => {
                let inode = inode(random);
                trees.iter_mut().for_each(|t| t.set(nid, inode.clone()));
            }
        }
    }
}

fn bytes_of(inode: Option<&Arc<Inode>>) -> Option<Vec<u8>> {
    inode.map(|inode| encode(&record_of(inode)))
}

fn inodes_of(tree: &Tree) -> BTreeMap<Nid, Option<Vec<u8>>> {
    let mut all = BTreeMap::new();
    tree.for_each(&mut |nid, inode| drop(all.insert(nid, bytes_of(Some(inode)))));
    all
}

fn differing(a: &Tree, b: &Tree) -> Vec<Nid> {
    let mut nids = Vec::new();
    Tree::diff(a, b, &mut |nid, _, _| nids.push(nid));
    nids
}

fn notable_in(tree: &Tree, wanted: u8) -> BTreeSet<Nid> {
    let mut nids = BTreeSet::new();
    tree.for_each(&mut |nid, inode| {
        if why_notable(inode) & wanted != 0 {
            nids.insert(nid);
        }
    });
    nids
}

/// What a branch finds of the tree `whole` when it opens the state.
fn check_opened(state: &LoadedState, whole: &Tree) {
    assert_eq!(state.tree.len(), whole.len());
    let needed = notable_in(whole, NEEDED_AT_ONCE);
    for nid in &needed {
        assert!(state.tree.get_open(*nid).is_some(), "{nid} is needed");
    }
    let mut found = BTreeSet::new();
    state.notable.each(&state.tree, &mut |nid, inode| {
        if why_notable(inode) & NEEDED_AT_ONCE != 0 {
            assert!(found.insert(nid), "{nid} comes twice");
        }
    });
    assert_eq!(found, needed);
    let mut lazy = whole.lazy_dirs();
    lazy.retain(|nid| needed.contains(nid));
    assert_eq!(state.tree.lazy_dirs(), lazy);
    let mut without_away = state.tree.clone();
    for (nid, _) in whole.all_away() {
        assert!(!without_away.knows_links(), "{nid} is away");
        without_away.remove(nid);
    }
    assert!(without_away.knows_links());
}

fn check_linked(state: &LoadedState, whole: &Tree) {
    let mut linked = BTreeSet::new();
    state.notable.each_linked(&state.tree, &mut |nid, inode| {
        if inode.links.is_some() {
            linked.insert(nid);
        }
    });
    let mut all = BTreeSet::new();
    whole.for_each(&mut |nid, inode| {
        if inode.links.is_some() {
            all.insert(nid);
        }
    });
    assert_eq!(linked, all);
}

/// Operations on both, compared.
fn check_operations(random: &mut Random, late: &mut Tree, whole: &mut Tree) {
    let before = (late.clone(), whole.clone());
    for _ in 0..random.below(60) {
        let nid = nid(random);
        match random.below(5) {
            0 => assert_eq!(bytes_of(late.get(nid)), bytes_of(whole.get(nid))),
            1 => {
                let nameless = late.nameless_since(&before.0);
                assert_eq!(nameless, whole.nameless_since(&before.1));
            }
            2 if rarely(random, 10) => late.open(),
            _ => change(random, &mut [late, whole], 1),
        }
        assert_eq!(late.len(), whole.len());
    }
    let found = differing(&before.0, late);
    assert_eq!(found, differing(&before.1, whole));
}

fn state_file<'a>(storage: &'a Arc<dyn Storage>, trees: &'a Trees) -> StateFile<'a> {
    StateFile {
        storage: &**storage,
        dir: "b",
        trees,
        branch: 0,
    }
}

fn disk() -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = Arc::new(CrashStorage::without_log());
    storage.create_dir_all("b").unwrap();
    storage
}

fn trees(storage: &Arc<dyn Storage>) -> Trees {
    Trees::open(storage.clone(), "t".into()).unwrap()
}

fn read(storage: &Arc<dyn Storage>, trees: &Trees) -> LoadedState {
    let read = state_file(storage, trees).read(&mut BaseDirs::default());
    read.unwrap().unwrap()
}

#[test]
fn a_tree_that_is_decoded_late_is_the_one_that_was_written() {
    let mut random = Random::new();
    let more = StateMore::default();
    for _ in 0..12 {
        let storage = disk();
        let first = random_tree(&mut random);
        let written = trees(&storage);
        let file = state_file(&storage, &written);
        let none = (0, Tree::default());
        let shared = file.write(head(), &more, &first, &none).unwrap();
        let mut whole = first.clone();
        let steps = [0, 5, 300][random.below(3) as usize];
        change(&mut random, &mut [&mut whole], steps);
        file.write(head(), &more, &whole, &shared).unwrap();

        let again = trees(&storage);
        let state = read(&storage, &again);
        check_opened(&state, &whole);
        let mut late = state.tree.clone();
        check_operations(&mut random, &mut late, &mut whole.clone());
        assert!(inodes_of(&state.tree) == inodes_of(&whole));
        check_linked(&state, &whole);
        assert!(inodes_of(&state.shared) == inodes_of(&shared.1));
        assert_eq!(
            differing(&state.shared, &state.tree),
            differing(&shared.1, &whole)
        );

        let (number, tree) = (state.head.tree_file, state.shared);
        change(&mut random, &mut [&mut late], 20);
        let file = state_file(&storage, &again);
        file.write(head(), &more, &late, &(number, tree)).unwrap();
        let looked = Trees::look(storage.clone(), "t".into());
        let state = read(&storage, &looked);
        assert!(inodes_of(&state.tree) == inodes_of(&late));
    }
}

#[test]
fn almost_nothing_is_decoded_when_a_state_is_read() {
    let mut random = Random::new();
    let storage = disk();
    let mut tree = Tree::default();
    for n in 1..20_000 {
        let mut plain = (*inode(&mut random)).clone();
        while why_notable(&plain) & NEEDED_AT_ONCE != 0 {
            plain = (*inode(&mut random)).clone();
        }
        tree.set(Nid(n), Arc::new(plain));
    }
    let written = trees(&storage);
    let file = state_file(&storage, &written);
    let (none, more) = ((0, Tree::default()), StateMore::default());
    let shared = file.write(head(), &more, &tree, &none).unwrap();
    for n in (1..20_000).step_by(10) {
        tree.update(Nid(n), |inode| inode.size += 1);
    }
    tree.update(Nid(7), |inode| inode.nlink = 0);
    file.write(head(), &more, &tree, &shared).unwrap();
    let state = read(&storage, &trees(&storage));
    let mut open = 0;
    state.tree.for_each_open(&mut |_, _| open += 1);
    assert!(open < 256, "{open} inodes of {} were decoded", tree.len());
    assert!(state.tree.get_open(Nid(7)).is_some());
    assert_eq!(state.tree.len(), tree.len());
}

/// A file as versions before blocks had it.
fn put_entries<T: bincode::Encode>(file: &dyn objstore::io::Segment, entries: &[T]) {
    let writer = Writer::begin(file, &HEADER).unwrap();
    for part in entries.chunks(512) {
        let part: Vec<&T> = part.iter().collect();
        writer.value(&part).unwrap();
    }
}

#[test]
fn files_of_versions_before_blocks_are_read() {
    let mut random = Random::new();
    let storage = disk();
    let first = random_tree(&mut random);
    let mut whole = first.clone();
    change(&mut random, &mut [&mut whole], 400);
    let written = trees(&storage);
    let file = state_file(&storage, &written);
    let (none, more) = ((0, Tree::default()), StateMore::default());
    let shared = file.write(head(), &more, &first, &none).unwrap();
    file.write(head(), &more, &whole, &shared).unwrap();

    let mut old = b"AVFSTREE\x01\0\0\0".to_vec();
    let all = encode(&(first.len() as u64));
    let mut inodes = Vec::new();
    first.for_each(&mut |nid, inode| inodes.push((nid.0, record_of(inode))));
    let temporary = storage.create("old").unwrap();
    put_entries(&*temporary, &inodes);
    let frames = storage.read("old").unwrap().unwrap()[12..].to_vec();
    for part in [
        (all.len() as u32).to_le_bytes().to_vec(),
        crc32fast::hash(&all).to_le_bytes().to_vec(),
        all,
        frames,
    ] {
        old.extend(part);
    }
    storage.replace("t/00000001", &old).unwrap();

    let path = file.current_path().unwrap().unwrap();
    let new = storage.read(&path).unwrap().unwrap();
    let mut entries: Vec<Patched> = Vec::new();
    Tree::diff(&first, &whole, &mut |nid, _, now| {
        entries.push((nid.0, now.map(|inode| Box::new(record_of(inode)))));
    });
    let heads = new.len() - frames_from(&new, 6).unwrap().len();
    let temporary = storage.create("old-patch").unwrap();
    put_entries(&*temporary, &entries);
    let frames = storage.read("old-patch").unwrap().unwrap()[12..].to_vec();
    let mut old = [new[..heads].to_vec(), frames].concat();
    old[8] = 9;
    storage.replace(&path, &old).unwrap();

    let state = read(&storage, &trees(&storage));
    check_opened(&state, &whole);
    assert!(inodes_of(&state.tree) == inodes_of(&whole));
    check_linked(&state, &whole);
    assert!(inodes_of(&state.shared) == inodes_of(&first));
}

/// A frame's body, changed, with a right checksum.
fn change_frame(bytes: &mut [u8], number: usize, change: impl FnOnce(&mut [u8])) {
    let mut at = 12;
    let len = |bytes: &[u8], at: usize| {
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
    };
    for _ in 0..number {
        at += 8 + len(bytes, at);
    }
    let end = at + 8 + len(bytes, at);
    change(&mut bytes[at + 8..end]);
    let crc = crc32fast::hash(&bytes[at + 8..end]);
    bytes[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
}

/// What a block of a tree file is changed to, by the name of the change.
type Fault = (&'static str, fn(&mut [u8]));

/// Whoever wrote these was wrong, which no checksum tells.
const FAULTS: [Fault; 3] = [
    ("an entry that is no inode", |b| {
        let end = b.len();
        b[end - 60..].fill(0xee);
    }),
    ("an inode of another block", |b| {
        // The last entry: its number is found by its first bytes.
        let number = 300u64.to_le_bytes();
        let at = b.windows(8).rposition(|w| w == number).unwrap();
        b[at + 2] = 9;
    }),
    ("an inode without a name that is not said to be one", |b| {
        let number = 300u64.to_le_bytes();
        let at = b.windows(8).rposition(|w| w == number).unwrap();
        // number, option, mode, uid, gid
        b[at + 8 + 1 + 12..at + 8 + 1 + 16].fill(0);
    }),
];

#[test]
fn what_cannot_be_decoded_late_is_an_error_and_stops_all_writing() {
    let more = StateMore::default();
    for (what, fault) in FAULTS {
        let storage = disk();
        let mut plain = (*super::tests::one_file_tree()
            .get(Nid::ROOT)
            .unwrap()
            .clone())
        .clone();
        (plain.mode, plain.content) = (
            mode::REG | 0o600,
            crate::tree::inode::Content::File(Default::default()),
        );
        let tree: Tree = (1..3000)
            .map(|n| (Nid(n), Arc::new(plain.clone())))
            .collect();
        let file_trees = trees(&storage);
        let file = state_file(&storage, &file_trees);
        file.write(head(), &more, &tree, &(0, Tree::default()))
            .unwrap();
        let mut bytes = storage.read("t/00000001").unwrap().unwrap();
        change_frame(&mut bytes, 2, fault);
        storage.replace("t/00000001", &bytes).unwrap();

        let late_trees = trees(&storage);
        let state = read(&storage, &late_trees);
        let mut late = state.tree;
        assert!(late.inode(Nid(5)).is_ok() && late.check_whole().is_ok());
        for nid in 256..512 {
            let error = late.inode(Nid(nid)).unwrap_err();
            assert!(matches!(error, Error::Damaged { .. }), "{what}: {error}");
        }
        assert!(late.inode(Nid(512)).is_ok(), "{what}");
        late_trees.check_whole().unwrap_err();
        let file = state_file(&storage, &late_trees);
        late.remove(Nid(9));
        let shared = (state.head.tree_file, state.shared);
        let written = file.write(head(), &more, &late, &shared);
        assert!(matches!(written, Err(Error::Damaged { .. })), "{what}");
        let looked = Trees::look(storage.clone(), "t".into());
        let file = state_file(&storage, &looked);
        let error = file.read(&mut BaseDirs::default()).unwrap_err();
        assert!(error.to_string().contains("t/00000001"), "{what}: {error}");
    }
}

#[test]
fn a_block_that_has_another_count_than_it_says_is_damage() {
    let storage = disk();
    let written = trees(&storage);
    let file = state_file(&storage, &written);
    let (tree, none) = (super::tests::one_file_tree(), (0, Tree::default()));
    file.write(head(), &StateMore::default(), &tree, &none)
        .unwrap();
    let path = file.current_path().unwrap().unwrap();
    let mut bytes = storage.read(&path).unwrap().unwrap();
    change_frame(&mut bytes, 6, |block| block[8] = 2);
    storage.replace(&path, &bytes).unwrap();
    let state = read(&storage, &trees(&storage));
    assert!(state.tree.check_whole().is_ok() && state.tree.len() == 2);
    let error = state.tree.inode(Nid::ROOT).unwrap_err().to_string();
    assert!(error.contains(&path), "{error}");
    let looked = Trees::look(storage.clone(), "t".into());
    let file = state_file(&storage, &looked);
    file.read(&mut BaseDirs::default()).unwrap_err();
}
