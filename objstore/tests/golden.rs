//! Bytes that must never change: chunk boundaries, name hashes, one object of each kind, ids.
//!
//! If one of these tests fails, stored data of earlier versions reads or compares differently: the
//! format needs a new version, not the test a new value.
#![allow(clippy::unwrap_used)]

mod common;

use common::noise;
use objstore::chunker;
use objstore::object::manifest::{Child, Form, Manifest, Node, Part};
use objstore::object::tree::{TreeChild, TreeNode, child_slot};
use objstore::{
    Body, ChunkId, Commit, CommitId, CommitKind, FileContent, ManifestId, Meta, Object,
    TimelineHead, TreeEntry, TreeId, name_hash,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn encoded<T: Object>(object: &T) -> (String, String) {
    object.check().unwrap();
    let bytes = object.to_bytes();
    (hex(&bytes), blake3::hash(&bytes).to_hex().to_string())
}

#[test]
fn chunk_boundaries() {
    let lengths = chunker::cut_all(&noise(42, 1_000_000));
    assert_eq!(lengths, BOUNDARIES);
    let text = b"the quick brown fox jumps over the lazy dog\n".repeat(10_000);
    assert_eq!(chunker::cut_all(&text), TEXT_BOUNDARIES);
}

#[test]
fn name_hashes() {
    assert_eq!(name_hash(b"README.md"), README_HASH);
    assert_eq!(
        [0, 1, 2, 14].map(|depth| child_slot(README_HASH, depth)),
        README_SLOTS
    );
}

fn meta() -> Meta {
    Meta {
        mode: 0o100644,
        uid: 1000,
        gid: 100,
        mtime_sec: 1_700_000_000,
        mtime_nsec: 5,
        rdev: 0,
        link_group: 7,
        xattrs: vec![(b"user.a".to_vec(), b"1".to_vec())],
    }
}

#[test]
fn tree_leaf() {
    let entry = TreeEntry {
        name: b"a".to_vec(),
        meta: meta(),
        body: Body::File(FileContent::Chunk {
            id: ChunkId::from_bytes([0x11; 32]),
            len: 3,
        }),
    };
    let expected = (TREE_LEAF.concat(), TREE_LEAF_ID.to_owned());
    assert_eq!(encoded(&TreeNode::Leaf(vec![entry])), expected);
}

#[test]
fn tree_inner() {
    let child = TreeChild {
        slot: 15,
        count: 65,
        id: TreeId::from_bytes([0x22; 32]),
    };
    assert_eq!(
        encoded(&TreeNode::Inner(vec![child])).0,
        TREE_INNER.concat()
    );
}

#[test]
fn manifests() {
    let parts = vec![
        Part::Data {
            len: 16384,
            id: ChunkId::from_bytes([0x33; 32]),
        },
        Part::Hole { len: 4096 },
    ];
    let leaf = Node::Leaf(parts);
    let children = vec![Child {
        len: 20480,
        id: ManifestId::from_bytes([0x44; 32]),
    }];
    let inner = Node::Inner { level: 1, children };
    for (form, header) in [
        (Form::ByRanges, "6176667302000100"),
        (Form::Canonical, "6176667302000200"),
    ] {
        for (node, body) in [(&leaf, &MANIFEST_LEAF), (&inner, &MANIFEST_INNER)] {
            let node = node.clone();
            let manifest = Manifest { form, node };
            let bytes = header.to_owned() + &body.concat();
            assert_eq!(encoded(&manifest).0, bytes);
            assert_eq!(Manifest::from_bytes(&manifest.to_bytes()), Ok(manifest));
        }
    }
}

#[test]
fn commit() {
    let commit = Commit {
        root_meta: Meta {
            mode: 0o40755,
            ..Meta::default()
        },
        root: Some(TreeId::from_bytes([0x55; 32])),
        parents: vec![CommitId::from_bytes([0x66; 32])],
        time_sec: 1_700_000_000,
        time_nsec: 9,
        author: "me".into(),
        message: "first".into(),
        meta: vec![("k".into(), "v".into())],
        kind: CommitKind::Asked,
        kv: None,
        timeline: None,
    };
    assert_eq!(encoded(&commit), (COMMIT.concat(), COMMIT_ID.to_owned()));
    let full = Commit {
        kv: Some(FileContent::Chunk {
            id: ChunkId::from_bytes([0x77; 32]),
            len: 8,
        }),
        timeline: Some(TimelineHead {
            entries: 3,
            hash: [0x88; 32],
        }),
        ..commit
    };
    // The header's version and the kind differ; the two follow.
    let plain = COMMIT.concat();
    let mut expected = format!("{}02{}", &plain[..12], &plain[14..plain.len() - 2]);
    expected.push_str(&format!("3101000000{}08000000", "77".repeat(32)));
    expected.push_str(&format!("0300000000000000{}", "88".repeat(32)));
    assert_eq!(encoded(&full).0, expected);
    assert_eq!(Commit::from_bytes(&full.to_bytes()), Ok(full));
}

const BOUNDARIES: [usize; 14] = [
    72462, 95088, 92685, 126641, 61257, 33809, 38933, 30628, 67662, 92703, 66969, 50006, 78032,
    93125,
];
const TEXT_BOUNDARIES: [usize; 2] = [262_144, 177_856];
const README_HASH: u64 = 180806892294368743;
const README_SLOTS: [usize; 4] = [0, 10, 0, 9];
const TREE_LEAF: [&str; 6] = [
    "6176667303000100",
    "000000000100000000000000010000000000000061a4810000e8030000640000",
    "0000f15365000000000500000000000000000000000700000000000000010000",
    "00000000000600000000000000757365722e6101000000000000003101000000",
    "0100000011111111111111111111111111111111111111111111111111111111",
    "1111111103000000",
];
const TREE_LEAF_ID: &str = "52364e465de1a4a9059bef76df4823e73a3e5c9d5755d46a8e999ab632e7fbd6";
const TREE_INNER: [&str; 3] = [
    "6176667303000100",
    "0100000001000000000000000f41000000000000002222222222222222222222",
    "222222222222222222222222222222222222222222",
];
const MANIFEST_LEAF: [&str; 2] = [
    "0000000002000000000000000100000000400000333333333333333333333333",
    "3333333333333333333333333333333333333333000000000010000000000000",
];
const MANIFEST_INNER: [&str; 2] = [
    "0100000001010000000000000000500000000000004444444444444444444444",
    "444444444444444444444444444444444444444444",
];
const COMMIT: [&str; 7] = [
    "6176667304000100",
    "ed41000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000001555555555555555555555555555555",
    "5555555555555555555555555555555555010000000000000066666666666666",
    "6666666666666666666666666666666666666666666666666600f15365000000",
    "000900000002000000000000006d650500000000000000666972737401000000",
    "0000000001000000000000006b01000000000000007601",
];
const COMMIT_ID: &str = "942e48c347ed8e247fc6cfb6b5191825f6be7bb690b30055a8afb75ecdb5f0f9";
