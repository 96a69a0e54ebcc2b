//! The worked examples of `docs/format.md` are what the program reads and writes.
#![allow(clippy::unwrap_used)]

use engine::record::{CallOutcome, Counters, Event, Mutation, Record, SwitchKind, What, encode};
use engine::{Engine, EngineConfig, StoredPolicy, Time, encode_policy};
use objstore::crash_storage::CrashStorage;
use objstore::refs::RefStore;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const NOW: Time = Time { sec: 5, nsec: 6 };

/// The bytes of all examples in blocks of a kind: of each line, what stands before its comment.
fn examples(kind: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/format.md");
    let text = std::fs::read_to_string(path).unwrap();
    let opening = format!("```{kind}\n");
    let blocks = text.split(opening.as_str()).skip(1);
    blocks
        .map(|block| {
            let lines = block.split("```").next().unwrap().lines();
            let digits: String = lines
                .map(|line| line.split("  ").next().unwrap().replace(' ', ""))
                .collect();
            let bytes = (0..digits.len()).step_by(2);
            bytes
                .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap())
                .collect()
        })
        .collect()
}

#[test]
fn records() {
    let unlink = Record::Mutation(Mutation::Unlink {
        parent: 1,
        name: b"name".to_vec(),
        now: NOW,
    });
    let switch = Record::Event(Event::Switch {
        kind: SwitchKind::Rollback,
        replaced: 3,
        target: 1,
        head: 1,
        counters: Counters {
            nid: 9,
            ino: 1 << 39,
            state: 4,
        },
    });
    assert_eq!(examples("record"), [encode(&unlink), encode(&switch)]);
}

#[test]
fn entries_of_the_timeline() {
    let elsewhere = What::Elsewhere {
        timeline: 1,
        branch: "b".into(),
        deleted: None,
    };
    let imported = What::Imported {
        timeline: Some(1),
        call: 7,
        name: "ls".into(),
        parameters: None,
        outcome: Some(CallOutcome::Success(None)),
        started: NOW,
        completed: Some(NOW),
        parent: Some(6),
        overlaps: vec![8],
    };
    let entries = [
        encode(&(1u64, NOW, elsewhere)),
        encode(&(2u64, NOW, imported)),
    ];
    let others = What::Others {
        call: 7,
        paths: vec![b"/k".to_vec(), b"d/".to_vec(), b"f".to_vec()],
        doubt: None,
    };
    let told = encode(&(3u64, NOW, others));
    assert_eq!(examples("entry"), [entries.concat(), told]);
}

#[test]
fn workspace_record() {
    let disk = Arc::new(CrashStorage::without_log());
    let refs = RefStore::open(disk.clone()).unwrap();
    let example = examples("workspace-record");
    refs.set("workspaces/w", &example[0]).unwrap();
    let home = tempfile::tempdir().unwrap();
    let config = EngineConfig {
        root: home.path().to_owned(),
        author: "me".into(),
    };
    let found = Engine::on_storage(config, disk).unwrap().get("w").unwrap();
    assert_eq!((found.base, found.created), (PathBuf::from("/p"), NOW));
    assert_eq!((found.mount, found.running), (None, None));
}

#[test]
fn policies() {
    let policy = StoredPolicy {
        version: 7,
        text: "version = 1".into(),
    };
    assert_eq!(examples("policy"), [encode_policy(&policy)]);
}
