//! Objects of remotes: head, catalog, index, ref and marker. The first byte chooses which.

use bincode::{Decode, Encode};
use objstore::{CommitId, FileContent, Kind};
use remote::bucket::check_name;
use remote::bucket::wire::{self, Access, Answer, Ask, Only, Request, Said};
use remote::layout::catalog::{BranchName, Catalog, Head, IndexEntry, Pending};
use remote::layout::index::{Index, PACK_BYTES_MAX, PackEntry, Place};
use remote::layout::reference::{RemoteRef, mentioned};
use remote::layout::{marker, ref_name};

const HEADER_BYTES: usize = 16;
const MAGICS: [&[u8; 8]; 4] = [b"avfsrhed", b"avfsrcat", b"avfsridx", b"avfsrref"];

/// Any bytes give a value that is within its bounds and is encoded to the same bytes, or an error.
pub fn check(bytes: &[u8]) {
    let Some((which, body)) = bytes.split_first() else {
        return;
    };
    let kind = usize::from(which % 8);
    match MAGICS.get(kind) {
        Some(magic) => {
            decode(kind, body);
            decode(kind, &sealed(magic, body));
        }
        None if kind == 4 => drop(marker::check(body)),
        None if kind == 5 => drop(mentioned(body)),
        None if kind == 6 => said_again::<Request>(body),
        None => said_again::<Answer>(body),
    }
}

fn decode(kind: usize, bytes: &[u8]) {
    match kind {
        0 => same(bytes, Head::decode(bytes).ok().map(|head| head.encode())),
        1 => {
            if let Ok(catalog) = Catalog::decode("catalogs/x", bytes) {
                for name in catalog
                    .refs
                    .iter()
                    .chain(catalog.pending.iter().map(|p| &p.of))
                {
                    let fits = check_name(&ref_name(&name.project, &name.branch));
                    assert!(fits.is_ok(), "{name:?}");
                }
                let again = Catalog::decode("catalogs/x", &catalog.encode());
                assert_eq!(again.ok(), Some(catalog));
            }
        }
        2 => index(bytes),
        _ => same(
            bytes,
            RemoteRef::decode("refs/x", bytes)
                .ok()
                .map(|found| found.encode()),
        ),
    }
}

fn index(bytes: &[u8]) {
    let Ok(index) = Index::decode("indexes/x", bytes) else {
        return;
    };
    for (key, place) in index.objects() {
        let pack = index.packs()[place.pack as usize];
        assert!(place.range().end <= pack.bytes && pack.bytes <= PACK_BYTES_MAX);
        assert_eq!(index.find(&key), Some(place));
    }
    let mut random = [0; 8];
    random.copy_from_slice(&bytes[HEADER_BYTES..HEADER_BYTES + 8]);
    same(bytes, Some(index.encode(u64::from_le_bytes(random))));
}

/// Frames of the process that has the network: each is the same when it is written again.
fn said_again<T: Encode + Decode<()>>(mut bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((message, object))) = wire::read_frame::<T>(&mut rest) {
        let mut again = Vec::new();
        assert!(wire::write_frame(&mut again, &message, &object).is_ok());
        let read = bytes.len() - rest.len();
        assert_eq!(again, bytes[..read]);
        bytes = rest;
    }
}

fn same(bytes: &[u8], again: Option<Vec<u8>>) {
    if let Some(again) = again {
        assert_eq!(again, bytes);
    }
}

/// A body with the header and the checksum of its kind.
pub(crate) fn sealed(magic: &[u8; 8], body: &[u8]) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(body);
    let sum = *blake3::hash(&bytes).as_bytes();
    bytes.extend_from_slice(&sum);
    bytes
}

/// One object of each kind, without headers and checksums.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let commit = CommitId::from_bytes([3; 32]);
    let of = BranchName {
        project: "p".into(),
        branch: "main".into(),
    };
    let head = Head {
        generation: 3,
        catalog: [1; 32],
        random: 7,
    };
    let catalog = Catalog {
        generation: 3,
        indexes: vec![IndexEntry {
            hash: [2; 32],
            bytes: 200,
            objects: 1,
            generation: 2,
        }],
        refs: vec![of.clone()],
        pending: vec![Pending {
            of,
            commits: vec![commit],
            contents: vec![FileContent::Empty],
            generation: 3,
        }],
        observed: vec![(2, 100)],
        condemned: [("packs/x".to_owned(), 90)].into(),
        removing: [("packs/y".to_owned(), 80)].into(),
        ..Catalog::default()
    };
    let pack = PackEntry {
        hash: [4; 32],
        bytes: 300,
        generation: 2,
    };
    let place = Place {
        pack: 0,
        offset: 24,
        stored_len: 9,
    };
    let index = Index::build(vec![pack], vec![((Kind::Chunk, [5; 32]), place)]);
    let reference = RemoteRef {
        commit,
        labels: vec![("v1".into(), commit)],
        timelines: Vec::new(),
        time_sec: 5,
        time_nsec: 6,
        by: "me".into(),
        random: 7,
    };
    let objects = [
        head.encode(),
        catalog.encode(),
        index.encode(7),
        reference.encode(),
    ];
    let body = |bytes: &Vec<u8>| bytes[HEADER_BYTES..bytes.len() - 32].to_vec();
    let objects = objects.iter().map(body);
    let others = [
        marker::encode("2026-11-25T00:00:00Z"),
        engine::record::encode(&vec![(1u64, [3u8; 32], 5i64, 6u32)]),
        frames(requests()),
        frames(answers()),
    ];
    let all = objects.chain(others).enumerate();
    all.map(|(kind, body)| [vec![kind as u8], body].concat())
        .collect()
}

fn frames(messages: Vec<impl Encode>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        assert!(wire::write_frame(&mut bytes, &message, b"bytes").is_ok());
    }
    bytes
}

fn requests() -> Vec<Request> {
    let name = || "packs/x".to_owned();
    let asks = [
        Ask::Open {
            url: "s3://b/p".into(),
            access: Access([("region".to_owned(), "r".to_owned())].into()),
        },
        Ask::Get {
            name: name(),
            max: 9,
        },
        Ask::Range {
            name: name(),
            start: 1,
            end: 9,
        },
        Ask::Put {
            name: name(),
            only: Only::Matches("\"t\"".into()),
        },
        Ask::Delete { name: name() },
        Ask::List {
            prefix: "packs/".into(),
        },
    ];
    (1..)
        .zip(asks)
        .map(|(id, ask)| Request { id, ask })
        .collect()
}

fn answers() -> Vec<Answer> {
    let all = [
        Said::Whole("\"t\"".into()),
        Said::Part,
        Said::Listed(vec![("packs/x".into(), 9, 5)]),
        Said::TooLarge(10),
        Said::Denied("HTTP status 403".into()),
    ];
    (1..)
        .zip(all)
        .map(|(id, said)| Answer { id, said })
        .collect()
}
