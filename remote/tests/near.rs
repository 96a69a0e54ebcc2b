//! Objects that come when they are read: with how many requests, and what becomes of those who wait.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Machine, branch, noise, world};
use objstore::elsewhere::{Branches, Elsewhere};
use objstore::exchange::commit_key;
use objstore::{Commit, FileContent, Key, Kind, ObjectStore, read_content};
use remote::fetch::{self, Depth};
use remote::near::Near;
use remote::sources::Sources;
use remote::{Error, Remote};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A store that has nothing, and brings what is read.
#[derive(Debug)]
struct Reading(Near);

impl Elsewhere for Reading {
    fn bring(&self, store: &ObjectStore, key: &Key) -> objstore::Result<bool> {
        Ok(self.0.bring(store, key).unwrap().is_some())
    }
}

fn requests(reading: &Reading) -> u64 {
    reading.0.remote().traffic().requests
}

#[test]
fn neighbours_come_with_what_is_read() {
    let (clock, bucket) = world();
    let bucket = Arc::new(bucket);
    let mut a = Machine::new(bucket.clone(), clock.clone());
    let names: Vec<String> = (0..400).map(|n| format!("d{}/f{n:03}", n / 20)).collect();
    let contents: Vec<Vec<u8>> = (0..400).map(|n| noise(n, 5000)).collect();
    let files: Vec<(&str, Option<&[u8]>)> = names
        .iter()
        .zip(&contents)
        .map(|(name, bytes)| (name.as_str(), Some(bytes.as_slice())))
        .collect();
    let commit = a.commit(&[], &files);
    a.push("main", commit).unwrap();
    let b = Machine::new(bucket.clone(), clock.clone());
    let remote = Remote::open(bucket, clock).unwrap();
    let reading = Arc::new(Reading(Near::new(remote)));
    b.store.set_elsewhere(Some(reading.clone()));
    assert_eq!(a.whole(commit), b.whole(commit));
    // The marker, the head, the catalog, an index; the rest is 2 MB in one pack.
    let sent = requests(&reading);
    assert!((5..=12).contains(&sent), "{sent} requests");
    assert!(
        reading
            .0
            .bring(&b.store, &(Kind::Chunk, [9; 32]))
            .unwrap()
            .is_none()
    );
    assert_eq!(requests(&reading), sent, "it was looked at a moment before");
}

#[test]
fn reading_on_brings_more_each_time() {
    let (clock, bucket) = world();
    let bucket = Arc::new(bucket);
    let mut a = Machine::new(bucket.clone(), clock.clone());
    let bytes = noise(1, 40 << 20);
    let content: FileContent = a.content(&bytes);
    let commit = a.commit(&[], &[("large", Some(&bytes))]);
    a.push("main", commit).unwrap();
    let b = Machine::new(bucket.clone(), clock.clone());
    let remote = Remote::open(bucket, clock).unwrap();
    let reading = Arc::new(Reading(Near::new(remote)));
    b.store.set_elsewhere(Some(reading.clone()));
    let mut part = vec![0; 128 << 10];
    read_content(&b.store, &content, 0, &mut part).unwrap();
    let before = requests(&reading);
    for at in (0..bytes.len()).step_by(part.len()) {
        read_content(&b.store, &content, at as u64, &mut part).unwrap();
        assert!(part == bytes[at..at + part.len()], "at {at}");
    }
    let sent = requests(&reading) - before;
    assert!(sent <= 12, "{sent} requests for 40 MiB");
}

#[test]
fn a_fetch_of_commits_brings_their_ancestors_and_no_files() {
    let (clock, bucket) = world();
    let bucket = Arc::new(bucket);
    let mut a = Machine::new(bucket.clone(), clock.clone());
    let mut last = a.commit(&[], &[("d/f", Some(b"first"))]);
    for n in 0..50u32 {
        last = a.commit(&[last], &[("d/f", Some(&n.to_le_bytes()))]);
    }
    a.push("main", last).unwrap();
    let b = Machine::new(bucket.clone(), clock.clone());
    let remote = Remote::open(bucket, clock).unwrap();
    let context = fetch::Context {
        progress: &|_, _| (),
        check: &|| Ok(()),
        room: &|_| Ok(()),
        complete: &|_| false,
        directory: b.dir.path(),
        depth: Depth::Commits,
    };
    let found = remote.reference(&branch("main")).unwrap().unwrap().0;
    let roots = [(commit_key(&found.commit), false)];
    let done = fetch::fetch(&remote, &b.store, &roots, &context).unwrap();
    assert_eq!((done.objects, b.store.stats().objects), (51, 51));
    assert!(remote.traffic().requests <= 7, "{:?}", remote.traffic());
    let mut at = Some(found.commit);
    let mut count = 0;
    while let Some(id) = at {
        at = b
            .store
            .get_object::<Commit>(&id)
            .unwrap()
            .parents
            .first()
            .copied();
        count += 1;
    }
    assert_eq!(count, 51);
}

#[test]
fn who_waits_waits_for_one_request_and_not_for_ever() {
    let (clock, bucket) = world();
    let bucket = Arc::new(bucket);
    let mut a = Machine::new(bucket.clone(), clock.clone());
    let bytes = noise(1, 10_000);
    let commit = a.commit(&[], &[("f", Some(&bytes))]);
    a.push("main", commit).unwrap();
    let disk = Arc::new(objstore::crash_storage::CrashStorage::without_log());
    let store = Arc::new(ObjectStore::open(disk, objstore::StoreConfig::default()).unwrap());
    let sources = Sources::with_patience(&store, Duration::from_millis(300));
    store.set_elsewhere(Some(sources.clone()));
    let (is_silent, opened) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let (silent, count) = (is_silent.clone(), opened.clone());
    let opening = move || {
        count.fetch_add(1, Ordering::SeqCst);
        while silent.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Remote::open(bucket.clone(), clock.clone())
    };
    assert!(store.get_object::<Commit>(&commit).is_err());
    sources.set("w", "origin", Box::new(opening), None);
    let since = Instant::now();
    let error = store.get_object::<Commit>(&commit).unwrap_err();
    assert!(
        error.is_elsewhere() && error.to_string().contains("no answer"),
        "{error}"
    );
    assert!(since.elapsed() < Duration::from_secs(5));
    // The work goes on, and who asks again waits for it.
    std::thread::scope(|scope| {
        let waiting = [(); 8].map(|()| scope.spawn(|| store.get_object::<Commit>(&commit)));
        is_silent.store(false, Ordering::SeqCst);
        for one in waiting {
            one.join().unwrap().unwrap();
        }
    });
    assert_eq!(opened.load(Ordering::SeqCst), 1);
    let standing = sources.standing("w").unwrap();
    assert_eq!((standing.failed, standing.why), (0, None));
    assert!(standing.objects > 0);
    sources.forget("w");
    assert!(sources.standing("w").is_none());
}

#[test]
fn why_nothing_comes_is_told_with_the_remotes_name() {
    let disk = Arc::new(objstore::crash_storage::CrashStorage::without_log());
    let store = Arc::new(ObjectStore::open(disk, objstore::StoreConfig::default()).unwrap());
    let sources = Sources::new(&store);
    store.set_elsewhere(Some(sources.clone()));
    let tries = Arc::new(AtomicU64::new(0));
    let count = tries.clone();
    let opening = move || {
        count.fetch_add(1, Ordering::SeqCst);
        Err(Error::Transient {
            name: "s3://bucket".into(),
            why: "no network".into(),
        })
    };
    sources.set("w", "origin", Box::new(opening), None);
    for _ in 0..3 {
        let error = store.get_chunk(&objstore::ChunkId::from_bytes([1; 32]));
        let text = error.unwrap_err().to_string();
        assert!(
            text.contains("remote origin: s3://bucket: no network"),
            "{text}"
        );
    }
    assert_eq!(
        tries.load(Ordering::SeqCst),
        1,
        "it is left alone for a while"
    );
    let standing = sources.standing("w").unwrap();
    assert_eq!(standing.failed, 3);
    assert!(standing.why.unwrap().contains("no network"));
}

#[test]
fn what_a_remote_holds_is_found_though_its_ref_is_far_ahead() {
    let (clock, bucket) = world();
    let bucket = Arc::new(bucket);
    let mut a = Machine::new(bucket.clone(), clock.clone());
    let known = a.commit(&[], &[("d/f", Some(b"first"))]);
    let mut last = known;
    for n in 0..200u32 {
        last = a.commit(&[last], &[("d/f", Some(&n.to_le_bytes()))]);
    }
    a.push("main", last).unwrap();
    let aside = a.commit(&[], &[("d/f", Some(b"aside"))]);
    let b = Machine::new(bucket.clone(), clock.clone());
    for commit in [known, aside] {
        let record = a.store.get_record(&commit_key(&commit)).unwrap();
        b.store.put_record(&record).unwrap();
    }
    let near = Near::new(Remote::open(bucket.clone(), clock.clone()).unwrap());
    let of = |names: &[&str]| Branches {
        project: branch("main").project,
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    let held = near.held(&b.store, &of(&["main", "nowhere"])).unwrap();
    assert_eq!(held.commits(), [known], "not what lies aside");
    let sent = near.remote().traffic().requests;
    assert!(sent <= 8, "{sent} requests");
    assert_eq!(b.store.stats().objects, 2, "nothing is kept");
    let chunk = |bytes: &[u8]| (Kind::Chunk, *blake3::hash(bytes).as_bytes());
    assert!(held.find(&chunk(b"first")).is_some() && held.find(&chunk(b"aside")).is_none());
    // It is looked at anew each time: the ref is replaced by what does not reach the commit.
    assert_eq!(
        near.held(&b.store, &of(&["nowhere"])).unwrap().commits(),
        []
    );
    a.push("other", aside).unwrap();
    let held = near.held(&b.store, &of(&["other", "main"])).unwrap();
    assert!(held.find(&chunk(b"aside")).is_some());
    let mut commits = held.commits().to_vec();
    commits.sort_unstable();
    let mut both = [known, aside];
    both.sort_unstable();
    assert_eq!(commits, both);
}
