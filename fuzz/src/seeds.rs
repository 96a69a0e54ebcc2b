//! Seeds: well-formed inputs of every kind, from which the fuzzer starts.
//!
//! They stand in `corpus/` under names that begin with `seed-`; a test keeps the files and these
//! values the same, and writes the files where `FUZZ_WRITE_SEEDS` is set.

use crate::{index, request, seal};
use engine::journal::{Journal, JournalConfig};
use engine::record::{
    Allocation, BodyRecord, BroughtEntry, ContentRecord, Counters, Event, InodeRecord, Mutation,
    OpKind, Record, SrcRecord, StateInfo, SwitchKind, TreePatch, encode,
};
use engine::tree::Tree;
use engine::tree::patch::BaseDirs;
use engine::{KvEntry, KvMap, Nid, Stamp, Time, mode};
use objstore::crash_storage::CrashStorage;
use objstore::io::Storage;
use objstore::object::manifest::{Child, Form, Manifest, Node, Part};
use objstore::object::tree::{TreeChild, TreeNode};
use objstore::{
    Body, ChunkId, Commit, CommitId, CommitKind, FileContent, ManifestId, Meta, Object, TreeEntry,
    TreeId,
};
use std::sync::Arc;

/// (check, name, bytes).
pub type Seed = (&'static str, String, Vec<u8>);

/// All seeds.
pub fn all() -> Vec<Seed> {
    let groups = [
        ("acl", acls()),
        ("database", crate::database::seeds()),
        ("deed", crate::deed::seeds()),
        ("index", indexes()),
        ("journal", journals()),
        ("object", objects()),
        ("pack", packs()),
        ("policy", crate::policy::seeds()),
        ("program", crate::program::seeds()),
        ("record", records()),
        ("reference", vec![b"a value".to_vec(), vec![]]),
        ("remote", crate::remote::seeds()),
        ("request", request::seeds()),
        ("state", crate::state::seeds()),
        (
            "timeline",
            vec![crate::timeline::log(), crate::timeline::frame()],
        ),
        ("wire", crate::wire::seeds()),
    ];
    let named = |(check, seeds): (&'static str, Vec<Vec<u8>>)| {
        let seeds = seeds.into_iter().enumerate();
        seeds.map(move |(i, bytes)| (check, format!("seed-{i:02}"), bytes))
    };
    groups.into_iter().flat_map(named).collect()
}

fn acls() -> Vec<Vec<u8>> {
    let list = |tags: &[u16]| {
        let mut b = 2u32.to_le_bytes().to_vec();
        for tag in tags {
            b.extend_from_slice(&tag.to_le_bytes());
            b.extend_from_slice(&[7, 0, 0xe8, 3, 0, 0]);
        }
        b
    };
    vec![list(&[]), list(&[1, 4, 32]), list(&[1, 2, 4, 16, 32])]
}

pub(crate) fn chunk(byte: u8) -> FileContent {
    FileContent::Chunk {
        id: ChunkId::from_bytes([byte; 32]),
        len: 3,
    }
}

fn manifests() -> [Manifest; 3] {
    let data = Part::Data {
        len: 16384,
        id: ChunkId::from_bytes([3; 32]),
    };
    let child = Child {
        len: 20480,
        id: ManifestId::from_bytes([4; 32]),
    };
    let leaf = Node::Leaf(vec![data, Part::Hole { len: 4096 }]);
    let inner = Node::Inner {
        level: 1,
        children: vec![child],
    };
    [
        (Form::ByRanges, leaf.clone()),
        (Form::Canonical, leaf),
        (Form::Canonical, inner),
    ]
    .map(|(form, node)| Manifest { form, node })
}

fn tree_nodes() -> [TreeNode; 2] {
    let entry = TreeEntry {
        name: b"a".to_vec(),
        meta: Meta {
            mode: mode::REG | 0o644,
            xattrs: vec![(b"user.a".to_vec(), b"1".to_vec())],
            ..Meta::default()
        },
        body: Body::File(chunk(1)),
    };
    let child = TreeChild {
        slot: 15,
        count: 65,
        id: TreeId::from_bytes([2; 32]),
    };
    [TreeNode::Leaf(vec![entry]), TreeNode::Inner(vec![child])]
}

/// Commits without and with what came with version 2.
fn commits() -> [Commit; 2] {
    let plain = commit();
    let timeline = objstore::TimelineHead {
        entries: 3,
        hash: [7; 32],
    };
    let full = Commit {
        kv: Some(FileContent::Empty),
        timeline: Some(timeline),
        ..plain.clone()
    };
    [plain, full]
}

fn commit() -> Commit {
    Commit {
        root_meta: Meta::default(),
        root: Some(TreeId::from_bytes([5; 32])),
        parents: vec![CommitId::from_bytes([6; 32])],
        time_sec: 1_700_000_000,
        time_nsec: 9,
        author: "me".into(),
        message: "first".into(),
        meta: vec![("k".into(), "v".into())],
        kind: CommitKind::Asked,
        kv: None,
        timeline: None,
    }
}

fn objects() -> Vec<Vec<u8>> {
    fn bytes<T: Object>(object: &T) -> Vec<u8> {
        object.to_bytes()
    }
    let manifests = manifests();
    let nodes = tree_nodes();
    let all = manifests.iter().map(bytes).chain(nodes.iter().map(bytes));
    let mut keys = KvMap::default();
    keys.insert("key", Arc::new(value()));
    keys.insert("other", Arc::new(value()));
    let keys = engine::kv::encode_map(&keys);
    all.chain(commits().iter().map(bytes))
        .chain([keys])
        .collect()
}

fn packs() -> Vec<Vec<u8>> {
    let one = index::pack();
    let mut broken = one.clone();
    broken.extend_from_slice(b"no record");
    broken.extend_from_slice(&one[24..]);
    vec![one, broken]
}

/// An index of [`index::pack`], without its checksum.
fn indexes() -> Vec<Vec<u8>> {
    let pack = index::pack();
    let mut b = b"avfspidx\x01\0\0\0\x01\0\0\0".to_vec();
    b.extend_from_slice(&(pack.len() as u64).to_le_bytes());
    b.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    b.extend_from_slice(&pack[24 + 20..24 + 52]);
    b.extend_from_slice(&24u32.to_le_bytes());
    b.extend_from_slice(&pack[24 + 12..24 + 16]);
    vec![b]
}

/// A segment with two records, made by the journal itself.
fn journals() -> Vec<Vec<u8>> {
    let disk: Arc<dyn Storage> = Arc::new(CrashStorage::without_log());
    let made = Journal::create(disk.clone(), "j", JournalConfig::default()).and_then(|journal| {
        journal.append(&encode(&record(write())), &[7; 5000])?;
        journal.append(b"meta", &[])
    });
    let segment = disk.read("j/00000001.seg").ok().flatten();
    let Some(segment) = segment.filter(|_| made.is_ok()) else {
        return Vec::new();
    };
    let marked = |synced: u8| [&[synced][..], &seal::segment(&segment)].concat();
    vec![marked(0), marked(2), marked(9)]
}

const NOW: Time = Time { sec: 5, nsec: 6 };

fn record(m: Mutation) -> Record {
    Record::Mutation(m)
}

fn write() -> Mutation {
    Mutation::Write {
        nid: 2,
        offset: 3,
        perm: None,
        now: NOW,
    }
}

fn mutations() -> Vec<Mutation> {
    let name = b"name".to_vec();
    vec![
        create(1, 9),
        Mutation::Link {
            nid: 2,
            parent: 1,
            name: name.clone(),
            group: 7,
            now: NOW,
        },
        Mutation::Unlink {
            parent: 1,
            name: b"f".to_vec(),
            now: NOW,
        },
        Mutation::Rename {
            parent: 1,
            name: b"f".to_vec(),
            new_parent: 1,
            new_name: name,
            exchange: false,
            now: NOW,
        },
        set_attr(),
        write(),
        Mutation::Allocate {
            nid: 2,
            offset: 0,
            len: 4096,
            how: Allocation::Zero,
            size: 4096,
            perm: Some(0o600),
            now: NOW,
        },
        Mutation::Copy {
            src: 2,
            src_offset: 0,
            dst: 2,
            dst_offset: 8192,
            len: 3,
            perm: None,
            now: NOW,
        },
        Mutation::Kv {
            key: "key".to_owned(),
            entry: Some(Box::new(value())),
        },
        Mutation::Kv {
            key: "key".to_owned(),
            entry: None,
        },
    ]
}

fn later_mutations() -> Vec<Mutation> {
    vec![
        Mutation::Nameless {
            parent: 1,
            nid: 9,
            ino: 1 << 39,
            mode: mode::REG | 0o600,
            uid: 0,
            gid: 0,
            xattrs: vec![(b"user.a".to_vec(), b"1".to_vec())],
            now: NOW,
        },
        Mutation::Whiteout {
            parent: 1,
            name: b"f".to_vec(),
            new_parent: 1,
            new_name: b"name".to_vec(),
            nid: 9,
            ino: 1 << 39,
            uid: 0,
            gid: 0,
            xattrs: vec![],
            now: NOW,
        },
    ]
}

fn create(parent: u64, nid: u64) -> Mutation {
    Mutation::Create {
        parent,
        name: b"new".to_vec(),
        nid,
        ino: 1 << 39,
        mode: mode::REG | 0o644,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: vec![],
        xattrs: vec![(b"user.a".to_vec(), b"1".to_vec())],
        now: NOW,
    }
}

fn set_attr() -> Mutation {
    Mutation::SetAttr {
        nid: 2,
        perm: Some(0o600),
        uid: Some(1),
        gid: None,
        size: Some(1),
        atime: None,
        mtime: Some(NOW),
        ctime: NOW,
        xattrs: vec![(b"user.a".to_vec(), None)],
    }
}

pub(crate) fn info() -> StateInfo {
    StateInfo {
        number: 2,
        kind: OpKind::Checkpoint,
        asked: false,
        time: NOW,
        author: "me".into(),
        message: "m".into(),
        meta: vec![("k".into(), "v".into())],
        parents: vec![1],
        id: None,
    }
}

fn stamp() -> Stamp {
    Stamp {
        dev: 1,
        ino: 2,
        size: 3,
        mtime: NOW,
        ctime: NOW,
    }
}

pub(crate) fn counters() -> Counters {
    Counters {
        nid: 3,
        ino: 1 << 39,
        state: 3,
    }
}

fn events() -> Vec<Event> {
    vec![
        Event::Freeze {
            info: info(),
            head: true,
            label: Some("l".into()),
        },
        Event::Withdraw { state: 2 },
        Event::Label {
            label: "l".into(),
            state: 1,
        },
        Event::Switch {
            kind: SwitchKind::Undo,
            replaced: 2,
            target: 1,
            head: 1,
            counters: counters(),
        },
        Event::Fenced {
            state: 2,
            nid: 2,
            offset: 4096,
            now: NOW,
        },
        Event::LoadDir {
            dir: 1,
            entries: vec![],
            unreadable: true,
            more: false,
        },
        Event::SwitchPart,
        Event::Brought {
            dir: 3,
            id: TreeId::from_bytes([9; 32]),
            entries: vec![BroughtEntry {
                nid: 4,
                name: b"f".to_vec(),
                inode: Box::new(inode(
                    mode::DIR | 0o755,
                    3,
                    ContentRecord::Away(TreeId::from_bytes([8; 32])),
                )),
            }],
            more: false,
        },
        Event::TakeAnew {
            nid: 2,
            old: stamp(),
            content: Some(chunk(8)),
            size: 3,
            alloc: 4096,
            mtime: NOW,
            ctime: NOW,
        },
        Event::Named {
            state: 2,
            id: CommitId::from_bytes([7; 32]),
        },
    ]
}

/// Those of branches, merges and expiry.
fn later_events() -> Vec<Event> {
    vec![
        Event::Inherited {
            label: "l".into(),
            state: 1,
        },
        Event::Applied { time: NOW },
        Event::Same { state: 3, kept: 2 },
        Event::Patched {
            counters: counters(),
        },
        Event::Known { info: info() },
        Event::Merged {
            replaced: 2,
            info: info(),
            label: Some("l".into()),
            conflicts: vec![],
            counters: counters(),
        },
        Event::Resolved {
            path: b"d/f".to_vec(),
        },
        Event::Switch {
            kind: SwitchKind::Restore,
            replaced: 2,
            target: 1,
            head: 1,
            counters: counters(),
        },
        Event::Expired {
            states: vec![2, 3],
            undo: 1,
            redo: 0,
        },
    ]
}

fn records() -> Vec<Vec<u8>> {
    let requested = [Some(7), None].map(|connection| Record::Requested {
        connection,
        unique: 1 << 40,
        mutation: write(),
    });
    let mutations = mutations().into_iter().map(Record::Mutation);
    let events = events().into_iter().chain(later_events());
    let events = events.chain(crate::timeline::events());
    let events = events.map(Record::Event);
    let records = mutations.chain(events).map(|r| encode(&r));
    let records = records.chain([patch().to_bytes()]);
    let records = records.chain(requested.map(|r| encode(&r)));
    let later = later_mutations().into_iter().map(record);
    let kept = Record::Event(Event::Kept { info: info() });
    let later = later.chain([kept]);
    records.chain(later.map(|r| encode(&r))).collect()
}

fn inode(mode: u32, parent: u64, content: ContentRecord) -> InodeRecord {
    InodeRecord {
        mode,
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        ino: 5,
        size: 9000,
        atime: NOW,
        mtime: NOW,
        ctime: NOW,
        parent,
        hash: objstore::name_hash(b"f"),
        links: None,
        xattrs: vec![],
        content,
    }
}

fn value() -> KvEntry {
    KvEntry {
        value: "{\"a\":1}".to_owned(),
        created: NOW,
        updated: NOW,
    }
}

/// A root with the file `f`, number 2, that has an extent of every kind.
pub(crate) fn patch() -> TreePatch {
    let body = BodyRecord::Stored(chunk(1));
    let base = BodyRecord::Base(b"dir".to_vec(), b"f".to_vec(), stamp(), 4096);
    let extents = vec![
        (0, 5, SrcRecord::Journal(1, 96, 5, 0)),
        (4096, 4096, SrcRecord::Hole),
        (8192, 4, SrcRecord::Zero),
        (8196, 4, SrcRecord::Shared(base, 7)),
    ];
    let file = ContentRecord::File(body, 9000, 9000, extents);
    let names = vec![(b"f".to_vec(), 2, mode::REG)];
    let root = ContentRecord::Dir(names, None, false);
    let lazy = ContentRecord::LazyDir(b"a/b".to_vec());
    let away = ContentRecord::Away(TreeId::from_bytes([8; 32]));
    TreePatch {
        inodes: vec![
            (1, Some(Box::new(inode(mode::DIR | 0o755, 1, root)))),
            (2, Some(Box::new(inode(mode::REG | 0o644, 1, file)))),
            (3, Some(Box::new(inode(mode::DIR | 0o755, 1, lazy)))),
            (4, None),
            (5, Some(Box::new(inode(mode::DIR | 0o755, 1, away)))),
        ],
        kv: vec![
            ("gone".to_owned(), None),
            ("key".to_owned(), Some(Box::new(value()))),
        ],
    }
}

/// The tree that mutations are tried on: a root, a file `f` with the number 2.
pub(crate) fn tree() -> Tree {
    let mut tree = Tree::default();
    let made = patch().apply(&mut tree, &mut BaseDirs::default());
    assert!(made.is_ok(), "the seed of a tree is refused");
    for nid in [3, 5] {
        tree.remove(Nid(nid));
    }
    tree
}
