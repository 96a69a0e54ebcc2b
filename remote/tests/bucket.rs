//! What every bucket promises, on each kind; and what a directory keeps when others write to it.
#![allow(clippy::unwrap_used)]

#[path = "common/promises.rs"]
mod promises;

use promises::keeps_the_promises;
use remote::Error;
use remote::bucket::directory::DirectoryBucket;
use remote::bucket::faulty::{Faults, FaultyBucket};
use remote::bucket::memory::MemoryBucket;
use remote::bucket::retry::RetryBucket;
use remote::bucket::{Bucket, Condition, Put};
use remote::chance::Chance;
use remote::clock::SimulatedClock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The seed of a random test: `AGENTVFS_SEED`, else a new one.
fn seed() -> u64 {
    let given = std::env::var("AGENTVFS_SEED").ok();
    let seed = given.map_or_else(|| Chance::fresh().word(), |text| text.parse().unwrap());
    println!("AGENTVFS_SEED={seed} makes this happen again");
    seed
}

fn memory() -> MemoryBucket {
    MemoryBucket::new(Arc::new(SimulatedClock::at(1_700_000_000)))
}

fn retried(inner: Arc<dyn Bucket>) -> RetryBucket {
    RetryBucket::new(inner, Arc::new(SimulatedClock::default()))
}

#[test]
fn memory_keeps_the_promises() {
    keeps_the_promises(&memory());
}

#[test]
fn a_directory_keeps_the_promises() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("new");
    keeps_the_promises(&DirectoryBucket::create(&root).unwrap());
    keeps_the_names_of(&root);
}

/// No file of a put is left beside its place.
fn keeps_the_names_of(root: &std::path::Path) {
    for dir in [root.to_owned(), root.join("a")] {
        for entry in std::fs::read_dir(dir).unwrap() {
            let name = entry.unwrap().file_name();
            assert!(
                !name.to_string_lossy().starts_with(".put-"),
                "{name:?} is left"
            );
        }
    }
}

#[test]
fn retries_keep_the_promises_over_lost_answers_and_repeated_requests() {
    let seed = seed();
    for round in 0..200 {
        let faults = Faults {
            lost: 40,
            unanswered: 40,
            repeated: 7,
            ..Faults::default()
        };
        let faulty = FaultyBucket::new(Arc::new(memory()), faults, seed.wrapping_add(round));
        keeps_the_promises(&retried(Arc::new(faulty)));
    }
}

/// Many add to one number, each over its own view of the bucket: nothing is lost, nothing counted twice.
fn count_together(views: Vec<Arc<dyn Bucket>>, each: u32) {
    let adders = views.len() as u32;
    std::thread::scope(|scope| {
        for (who, view) in views.iter().enumerate() {
            scope.spawn(move || (0..each).for_each(|n| add_one(&**view, who as u32, n)));
        }
    });
    let text = views[0].get("count", 1000).unwrap().unwrap().bytes;
    let text = String::from_utf8(text).unwrap();
    let count = text.split(' ').next().unwrap();
    assert_eq!(count.parse::<u32>().unwrap(), adders * each);
}

fn add_one(b: &dyn Bucket, who: u32, n: u32) {
    loop {
        let now = b.get("count", 1000).unwrap();
        let value: u32 = now.as_ref().map_or(0, |got| {
            let text = std::str::from_utf8(&got.bytes).unwrap();
            text.split(' ').next().unwrap().parse().unwrap()
        });
        let condition = match &now {
            Some(got) => Condition::Matches(&got.etag),
            None => Condition::Absent,
        };
        // Who wrote it, so that no two writers ever put the same bytes.
        let text = format!("{} {who}.{n}", value + 1);
        if let Put::Done(_) = b.put("count", text.as_bytes(), condition).unwrap() {
            return;
        }
    }
}

#[test]
fn of_several_who_replace_one_object_in_a_directory_one_wins_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let view = || Arc::new(DirectoryBucket::open(dir.path()).unwrap()) as Arc<dyn Bucket>;
    count_together((0..4).map(|_| view()).collect(), 25);
}

#[test]
fn of_several_who_replace_one_object_over_a_bad_network_one_wins_each_time() {
    let (seed, bucket) = (seed(), memory());
    let faults = Faults {
        lost: 30,
        ..Faults::default()
    };
    let view = |i| {
        let faulty = FaultyBucket::new(Arc::new(bucket.clone()), faults, seed.wrapping_add(i));
        Arc::new(retried(Arc::new(faulty))) as Arc<dyn Bucket>
    };
    count_together((0..4).map(view).collect(), 100);
}

#[test]
fn a_directory_follows_no_links_and_reads_no_pipes() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    let b = DirectoryBucket::open(dir.path()).unwrap();
    std::os::unix::fs::symlink(outside.path(), dir.path().join("refs")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret"), dir.path().join("head")).unwrap();
    assert!(b.get("refs/secret", 100).is_err() && b.get("head", 100).is_err());
    assert!(b.put("refs/new", b"x", Condition::Always).is_err());
    assert!(b.put("refs/new", b"x", Condition::Absent).is_err());
    assert!(b.delete("refs/secret").is_err());
    // A link in the place of an object is replaced, not followed.
    b.put("head", b"mine", Condition::Always).unwrap();
    let names = std::fs::read_dir(outside.path()).unwrap().count();
    let secret = std::fs::read(outside.path().join("secret")).unwrap();
    assert_eq!((names, secret.as_slice()), (1, &b"secret"[..]));

    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_bits_truncate(0o600),
        0,
    )
    .unwrap();
    assert!(matches!(b.get("fifo", 100), Err(Error::Damaged { .. })));
    assert_eq!(b.list("").unwrap().len(), 1);
}

#[test]
fn a_fault_of_each_kind_happens_and_a_seed_repeats_it() {
    let outcomes = |seed| {
        let b = FaultyBucket::new(Arc::new(memory()), Faults::all(10), seed);
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        for i in 0..2000 {
            let name = format!("o{}", i % 5);
            let what = match i % 4 {
                0 => format!(
                    "put {:?}",
                    b.put(&name, &[7; 100], Condition::Absent).is_ok()
                ),
                1 => match b.get(&name, 1000) {
                    Ok(got) => format!(
                        "get {:?}",
                        got.map(|g| (g.bytes.len().cmp(&100), g.bytes.iter().all(|b| *b == 7)))
                    ),
                    Err(e) => e.to_string(),
                },
                2 => format!("delete {}", b.delete(&name).is_ok()),
                _ => format!("list {:?}", b.list("").map(|l| l.len()).ok()),
            };
            *seen.entry(what).or_default() += 1;
        }
        seen
    };
    let seed = seed();
    let seen = outcomes(seed);
    assert_eq!(seen, outcomes(seed));
    for part in [
        "put false",
        "delete false",
        "Less",
        "Greater",
        "false",
        "None",
    ] {
        assert!(
            seen.keys().any(|k| k.contains(part)),
            "{part} is not in {seen:?}"
        );
    }
}
