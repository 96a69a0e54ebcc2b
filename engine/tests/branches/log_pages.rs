//! The log in pages is the log, whatever their length, also with commits of other branches and after some expired.
#![allow(clippy::unwrap_used)]

use crate::common::damaged::{checkpoint, put_in};
use crate::common::rng::{Rng, fresh_seed};
use crate::common::world::{MAIN, World};
use engine::verbs;
use engine::*;
use objstore::crash_storage::CrashStorage;

/// Main with a merged branch, a rollback, labels and automatic commits between.
fn world(rng: &mut Rng) -> (tempfile::TempDir, World) {
    let base = tempfile::tempdir().unwrap();
    std::fs::write(base.path().join("a"), "a").unwrap();
    let world = World::on_disk(CrashStorage::new(), base.path());
    let w = world.w();
    for round in 0..6 {
        let branch = format!("b{round}");
        verbs::create_branch(w, &branch, MAIN, None).unwrap();
        for n in 0..rng.below(4) {
            put_in(&world, &branch, &format!("{branch}-{n}"), b"x");
            checkpoint(&world, &branch, &format!("{branch}.{n}"));
        }
        put_in(&world, MAIN, &format!("m{round}"), b"y");
        checkpoint(&world, MAIN, &format!("m.{round}"));
        let request = MergeRequest {
            from: branch.clone(),
            into: MAIN.into(),
            ..MergeRequest::default()
        };
        verbs::merge_branch(w, &request, &|_, _| ()).unwrap();
        if rng.one_in(2) {
            let back = Target::Ref(format!("m.{round}"));
            verbs::rollback(w, MAIN, &back).unwrap();
        }
    }
    (base, world)
}

fn cursor(entry: &LogEntry) -> LogCursor {
    LogCursor {
        number: entry.number,
        time: entry.time,
    }
}

#[test]
fn pages_of_the_log_together_are_the_log() {
    let seed = fresh_seed();
    eprintln!("AGENTVFS_SEED={seed}");
    let mut rng = Rng(seed);
    let (_base, world) = world(&mut rng);
    for all in [false, true] {
        let whole = verbs::log(world.w(), MAIN, all).unwrap();
        assert!(whole.len() > 6, "seed {seed}: {whole:?}");
        let count = verbs::count_of_log(world.w(), MAIN, all).unwrap();
        assert_eq!(count, whole.len() as u64, "seed {seed}, all {all}");
        assert!(whole.iter().any(|entry| !entry.labels.is_empty()));
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let limit = rng.below(4);
            let page = LogPage {
                limit: Some(limit),
                after,
            };
            let rows = verbs::page_of_log(world.w(), MAIN, all, page).unwrap();
            assert!(rows.len() as u64 <= limit);
            if rows.is_empty() && limit != 0 {
                break;
            }
            after = rows.last().map(cursor).or(after);
            found.extend(rows);
        }
        assert_eq!(found, whole, "seed {seed}, all {all}");
    }
}

#[test]
fn a_page_after_what_expired_begins_with_what_is_older() {
    let seed = fresh_seed();
    eprintln!("AGENTVFS_SEED={seed}");
    let (_base, world) = world(&mut Rng(seed));
    let whole = verbs::log(world.w(), MAIN, true).unwrap();
    let last = &whole[whole.len() / 2];
    let page = LogPage {
        limit: None,
        after: Some(LogCursor {
            number: u64::MAX,
            time: last.time,
        }),
    };
    let rows = verbs::page_of_log(world.w(), MAIN, true, page).unwrap();
    let older: Vec<LogEntry> = whole
        .iter()
        .filter(|e| e.time < last.time)
        .cloned()
        .collect();
    assert!(!older.is_empty(), "seed {seed}");
    assert_eq!(rows, older, "seed {seed}");
}
