//! State files of this version and of those before it, whole and damaged.

use super::*;
use crate::book::later::Asked;
use crate::record::Outcome;
use crate::record::encode;
use crate::tree::patch::record_of;
use crate::types::{Time, mode};
use objstore::crash_storage::CrashStorage;

/// A tree of a root directory alone.
pub(crate) fn one_file_tree() -> Tree {
    Tree::with_root(crate::tree::inode::Inode {
        mode: mode::DIR | 0o755,
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        ino: 1,
        size: 0,
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
        parent: Nid::ROOT,
        hash: 0,
        links: None,
        xattrs: None,
        content: crate::tree::inode::Content::Dir(Box::new(crate::tree::inode::Dir::new(
            crate::tree::dirmap::DirMap::default(),
            0,
        ))),
    })
}

pub(super) fn head() -> StateHead {
    StateHead {
        next_seq: 7,
        counters: Counters {
            nid: 2,
            ino: 3,
            state: 4,
        },
        history: HistoryRecord {
            labels: vec![("a".into(), 1)],
            head: 1,
            ..HistoryRecord::default()
        },
        root: Some(None),
        base_changed: vec![b"x".to_vec()],
        unreadable: vec![],
        tree_file: 0,
        patched: 0,
    }
}

#[test]
fn a_flipped_bit_or_a_missing_end_is_noticed() {
    let storage: Arc<dyn Storage> = Arc::new(CrashStorage::without_log());
    storage.create_dir_all("b").unwrap();
    let trees = Trees::open(storage.clone(), "t".into()).unwrap();
    let file = StateFile {
        storage: &*storage,
        dir: "b",
        trees: &trees,
        branch: 0,
    };
    let mut dirs = BaseDirs::default();
    assert!(file.read(&mut dirs).unwrap().is_none());
    let none = (0, Tree::default());
    let more = StateMore::default();
    file.write(head(), &more, &one_file_tree(), &none).unwrap();
    file.write(head(), &more, &one_file_tree(), &none).unwrap();
    assert_eq!(storage.list("b").unwrap(), ["state", "state-00000002"]);
    let read = file.read(&mut dirs).unwrap().unwrap();
    assert_eq!((read.head.next_seq, read.tree.len()), (7, 1));
    let bytes = storage.read("b/state-00000002").unwrap().unwrap();
    let whole = |b: &[u8]| read_state(b, &mut |_| Ok(())).is_ok();
    assert!(whole(&bytes));
    for i in 0..bytes.len() {
        assert!(!whole(&bytes[..i]));
        let mut bad = bytes.clone();
        bad[i] ^= 4;
        assert!(!whole(&bad), "byte {i}");
    }
}

#[test]
fn files_of_older_versions_are_read_without_what_came_later() {
    let storage: Arc<dyn Storage> = Arc::new(CrashStorage::without_log());
    storage.create_dir_all("b").unwrap();
    let trees = Trees::open(storage.clone(), "t".into()).unwrap();
    let file = StateFile {
        storage: &*storage,
        dir: "b",
        trees: &trees,
        branch: 0,
    };
    let mut timeline = Timeline::default();
    timeline.used.insert(7);
    let time = Time::default();
    let what = Asked::Apply { time };
    let more = StateMore {
        kv: Some(FileContent::Empty),
        timeline,
        later: vec![Later { steps: 1, what }],
        outcomes: OutcomesRecord {
            connection: 7,
            outcomes: vec![(2, Outcome::Bytes(3))],
        },
        shown: Some(5),
    };
    let (tree, none) = (one_file_tree(), (0, Tree::default()));
    file.write(head(), &more, &tree, &none).unwrap();
    let read = file.read(&mut BaseDirs::default()).unwrap().unwrap();
    assert_eq!(read.more, more);
    let bytes = storage.read("b/state-00000001").unwrap().unwrap();
    let length = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let second = 12 + 8 + length(12) as usize;
    let third = second + 8 + length(second) as usize;
    let fourth = third + 8 + length(third) as usize;
    let fifth = fourth + 8 + length(fourth) as usize;
    let sixth = fifth + 8 + length(fifth) as usize;
    let seventh = sixth + 8 + length(sixth) as usize;
    let root = tree.get(Nid::ROOT).map(|root| Box::new(record_of(root)));
    let entries = encode(&vec![(Nid::ROOT.0, root)]);
    let sums = [entries.len() as u32, crc32fast::hash(&entries)].map(u32::to_le_bytes);
    let entries = [&sums.concat()[..], &entries].concat();
    let mut old = [&bytes[..seventh], &entries].concat();
    old[8] = 9;
    let (_, in_entries) = read_state(&old[..], &mut |_| Ok(())).unwrap();
    assert_eq!(in_entries, more);
    let mut old = [&bytes[..sixth], &entries].concat();
    old[8] = 8;
    let (_, without_shown) = read_state(&old[..], &mut |_| Ok(())).unwrap();
    assert!(without_shown.outcomes == more.outcomes && without_shown.shown.is_none());
    let mut old = [&bytes[..fifth], &entries].concat();
    old[8] = 6;
    let (_, without_outcomes) = read_state(&old[..], &mut |_| Ok(())).unwrap();
    assert_eq!(without_outcomes.outcomes, OutcomesRecord::default());
    assert_eq!(without_outcomes.later, more.later);
    let mut old = [&bytes[..fourth], &entries].concat();
    old[8] = 4;
    let (_, without_later) = read_state(&old[..], &mut |_| Ok(())).unwrap();
    assert!(without_later.timeline == more.timeline && without_later.later.is_empty());
    let mut old = [&bytes[..third], &entries].concat();
    old[8] = 3;
    let (_, without_timeline) = read_state(&old[..], &mut |_| Ok(())).unwrap();
    assert_eq!(without_timeline.kv, more.kv);
    assert_eq!(without_timeline.timeline, Timeline::default());
    let mut old = [&bytes[..second], &entries].concat();
    old[8] = 2;
    let (head, more) = read_state(&old[..], &mut |_| Ok(())).unwrap();
    assert_eq!((head.next_seq, head.patched), (7, 1));
    assert_eq!(more, StateMore::default());
    old[8] = 1;
    assert!(read_state(&old[..], &mut |_| Ok(())).is_err());
}

#[test]
fn calls_that_ran_before_calls_had_owners_run_on() {
    let storage = CrashStorage::without_log();
    let segment = storage.create("old").unwrap();
    let old = Header {
        version: 5,
        ..HEADER
    };
    let (before, now) = crate::book::timeline::tests_of_running::before();
    let writer = Writer::begin(&*segment, &old).unwrap();
    writer.value(&head()).unwrap();
    writer.value(&Option::<FileContent>::None).unwrap();
    writer.value(&before).unwrap();
    writer.value(&Vec::<Later>::new()).unwrap();
    let bytes = storage.read("old").unwrap().unwrap();
    let (_, more) = read_state(&bytes[..], &mut |_| Ok(())).unwrap();
    assert_eq!(more.timeline, now);
    assert_eq!(now.overlaps_of(4), [2]);
}

/// docs/format.md, section 9: what stands before the first inode of a block.
#[test]
fn the_bytes_of_a_block() {
    let storage: Arc<dyn Storage> = Arc::new(CrashStorage::without_log());
    storage.create_dir_all("t").unwrap();
    let trees = Trees::open(storage.clone(), "t".into()).unwrap();
    let mut tree = one_file_tree();
    let root = tree.get(Nid::ROOT).cloned().unwrap();
    let mut nameless = (*root).clone();
    nameless.nlink = 0;
    tree.set(Nid(2), root.clone());
    tree.set(Nid(0x107), Arc::new(nameless));
    let number = trees.write(&tree, 0).unwrap();
    let bytes = storage.read(&trees.path(number)).unwrap().unwrap();
    assert_eq!(&bytes[..12], b"AVFSTREE\x02\0\0\0");
    let first = frames_from(&bytes, 1).unwrap();
    #[rustfmt::skip]
    let head = [
        0, 0, 0, 0, 0, 0, 0, 0, // block 0
        2, 0, 0, 0, 2, 0, 0, 0, // inodes, entries
        0, 0, 0, 0, 0, 0, 0, 0, // none is looked for
        2, 0, 0, 0, 0, 0, 0, 0, // entries
        1, 0, 0, 0, 0, 0, 0, 0, 1, // number 1, there is an inode
    ];
    assert_eq!(&first[8..8 + head.len()], head);
    assert!(first[8 + head.len()..].starts_with(&encode(&record_of(&root))));
    let second = frames_from(&bytes, 2).unwrap();
    #[rustfmt::skip]
    let head = [
        1, 0, 0, 0, 0, 0, 0, 0, // block 1
        1, 0, 0, 0, 1, 0, 0, 0,
        1, 0, 0, 0, 0, 0, 0, 0, 7, 1, // the inode 0x107 has no name
        1, 0, 0, 0, 0, 0, 0, 0,
        7, 1, 0, 0, 0, 0, 0, 0, 1,
    ];
    assert_eq!(&second[8..8 + head.len()], head);
}
