//! Bytes that must never change: each object of a remote but packs, which are those of the store.
//!
//! If one of these tests fails, remotes that others have made read differently: the format needs a new version, not
//! the test a new value.
#![allow(clippy::unwrap_used)]

use objstore::{ChunkId, CommitId, FileContent, Kind, TimelineHead};
use remote::layout::catalog::{BranchName, Catalog, Head, IndexEntry, Pending};
use remote::layout::index::{Index, PackEntry, Place};
use remote::layout::reference::{RemoteRef, Timeline};
use remote::layout::{catalog_name, index_name, marker, pack_name, ref_name};
use std::fmt::Debug;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes are these, in hex without white space, up to the checksum; they are read as what they were made of.
fn is<T: PartialEq + Debug>(value: &T, bytes: &[u8], expected: &str, read: impl Fn(&[u8]) -> T) {
    let (all, sum) = bytes.split_at(bytes.len() - 32);
    assert_eq!(hex(all), expected.replace([' ', '\n'], ""));
    assert_eq!(sum, blake3::hash(all).as_bytes());
    assert_eq!(&read(bytes), value);
}

fn branch() -> BranchName {
    BranchName {
        project: "p".into(),
        branch: "b".into(),
    }
}

#[test]
fn names() {
    let hash = [0xab; 32];
    let digits = "ab".repeat(32);
    assert_eq!(pack_name(&hash), format!("packs/{digits}.pack"));
    assert_eq!(index_name(&hash), format!("indexes/{digits}.idx"));
    assert_eq!(catalog_name(&hash), format!("catalogs/{digits}.cat"));
    assert_eq!(ref_name("My.p", "x_y-1"), "refs/_4dy_2ep/x_5fy-1");
}

#[test]
fn the_marker() {
    let text = String::from_utf8(marker::encode("2026-11-25T00:00:00Z")).unwrap();
    let chunker = "857af5aee3f1cb1c7d27087726dfd3f4bc92ccfdf91613538d38db8c63d51ee9";
    let expected = format!(
        "{{\"chunker\":\"{chunker}\",\"format\":1,\"key\":null,\"made\":\"2026-11-25T00:00:00Z\"}}\n"
    );
    assert_eq!(text, expected);
}

#[test]
fn head() {
    let head = Head {
        generation: 3,
        catalog: [0x11; 32],
        random: 7,
    };
    let expected = format!(
        "6176667372686564 0100 0000 00000000 0300000000000000 {} 0700000000000000",
        "11".repeat(32)
    );
    is(&head, &head.encode(), &expected, |b| {
        Head::decode(b).unwrap()
    });
}

#[test]
fn catalog() {
    let catalog = Catalog {
        generation: 3,
        collections: 1,
        random: 7,
        indexes: vec![IndexEntry {
            hash: [0x22; 32],
            bytes: 200,
            objects: 2,
            generation: 2,
        }],
        refs: vec![branch()],
        pending: vec![Pending {
            of: branch(),
            commits: vec![CommitId::from_bytes([0x33; 32])],
            contents: vec![FileContent::Empty],
            generation: 3,
        }],
        observed: vec![(2, 100)],
        condemned: [("packs/x".to_owned(), 90)].into(),
        removing: [("packs/y".to_owned(), 80)].into(),
    };
    let expected = format!(
        "6176667372636174 0100 0000 00000000
         0300000000000000 0100000000000000 0700000000000000
         0100000000000000 {} c800000000000000 0200000000000000 0200000000000000
         0100000000000000 0100000000000000 70 0100000000000000 62
         0100000000000000 0100000000000000 70 0100000000000000 62
         0100000000000000 {} 0100000000000000 00000000 0300000000000000
         0100000000000000 0200000000000000 6400000000000000
         0100000000000000 0700000000000000 7061636b732f78 5a00000000000000
         0100000000000000 0700000000000000 7061636b732f79 5000000000000000",
        "22".repeat(32),
        "33".repeat(32)
    );
    is(&catalog, &catalog.encode(), &expected, |b| {
        Catalog::decode("c", b).unwrap()
    });
}

#[test]
fn index() {
    let pack = PackEntry {
        hash: [0x44; 32],
        bytes: 300,
        generation: 2,
    };
    let place = |offset| Place {
        pack: 0,
        offset,
        stored_len: 9,
    };
    let objects = vec![
        ((Kind::Tree, [0x66; 32]), place(89)),
        ((Kind::Chunk, [0x55; 32]), place(24)),
    ];
    let index = Index::build(vec![pack], objects);
    let expected = format!(
        "6176667372696478 0100 0000 00000000
         0700000000000000 01000000 01000000 00000000 01000000 00000000
         {} 2c01000000000000 0200000000000000
         {} 00000000 18000000 09000000
         {} 00000000 59000000 09000000",
        "44".repeat(32),
        "55".repeat(32),
        "66".repeat(32)
    );
    is(&index, &index.encode(7), &expected, |b| {
        Index::decode("i", b).unwrap()
    });
}

#[test]
fn reference() {
    let head = TimelineHead {
        entries: 2,
        hash: [0x77; 32],
    };
    let reference = RemoteRef {
        commit: CommitId::from_bytes([0x33; 32]),
        labels: vec![("v1".into(), CommitId::from_bytes([0x44; 32]))],
        timelines: vec![Timeline {
            branch: "b".into(),
            head,
            log: FileContent::Chunk {
                id: ChunkId::from_bytes([0x55; 32]),
                len: 99,
            },
            commits: FileContent::Empty,
            first: None,
        }],
        time_sec: 5,
        time_nsec: 6,
        by: "me".into(),
        random: 7,
    };
    let expected = format!(
        "6176667372726566 0100 0000 00000000
         {}
         0100000000000000 0200000000000000 7631 {}
         0100000000000000 0100000000000000 62 0200000000000000 {}
         01000000 {} 63000000 00000000 00
         0500000000000000 06000000 0200000000000000 6d65 0700000000000000",
        "33".repeat(32),
        "44".repeat(32),
        "77".repeat(32),
        "55".repeat(32)
    );
    is(&reference, &reference.encode(), &expected, |b| {
        RemoteRef::decode("r", b).unwrap()
    });
}
