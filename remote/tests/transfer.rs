//! Push and fetch: what is sent, what is refused, what a cut leaves.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Machine, check_whole, noise, seed, world};
use remote::Error;
use remote::bucket::Bucket;
use remote::bucket::faulty::{Faults, FaultyBucket};
use remote::chance::Chance;
use remote::push::{Allow, Pushed};
use std::sync::Arc;

#[test]
fn a_history_goes_from_one_machine_to_another() {
    let (clock, bucket) = world();
    let machine = || Machine::new(Arc::new(bucket.clone()), clock.clone());
    let (mut a, mut b) = (machine(), machine());
    let big = noise(1, 3_000_000);
    let first = a.commit(
        &[],
        &[
            ("one", Some(b"1")),
            ("big", Some(&big)),
            ("d/x", Some(b"x")),
        ],
    );
    let second = a.commit(&[first], &[("one", Some(b"2")), ("d/y", Some(b"y"))]);
    let pushed = a.push("main", second).unwrap();
    assert_eq!((pushed.before, pushed.moved), (None, true));
    assert_eq!(pushed.objects as usize, a.whole(second).len());
    check_whole(&a.remote, &bucket);

    let (commit, fetched) = b.fetch("main").unwrap();
    assert_eq!(commit, second);
    assert_eq!(fetched.objects, pushed.objects);
    assert_eq!(b.whole(second), a.whole(second));
    assert_eq!(b.fetch("main").unwrap().1.objects, 0);

    let third = b.commit(&[second], &[("d/x", None), ("two", Some(b"2"))]);
    let pushed = b.push("main", third).unwrap();
    assert_eq!(pushed.before, Some(second));
    assert_eq!(a.fetch("main").unwrap().0, third);
    assert_eq!(a.whole(third), b.whole(third));
}

#[test]
fn nothing_is_sent_twice() {
    let (clock, bucket) = world();
    let machine = || Machine::new(Arc::new(bucket.clone()), clock.clone());
    let (mut a, mut b) = (machine(), machine());
    let big = noise(1, 64 << 20);
    let first = a.commit(&[], &[("big", Some(&big))]);
    a.push("main", first).unwrap();
    let before = a.remote.traffic();
    assert!(!a.push("main", first).unwrap().moved);
    let after = a.remote.traffic();
    assert!(after.requests - before.requests <= 3);
    assert_eq!(after.sent, before.sent);

    // One byte of the file.
    let mut changed = big.clone();
    changed[40 << 20] ^= 1;
    let second = a.commit(&[first], &[("big", Some(&changed))]);
    let pushed = a.push("main", second).unwrap();
    assert!(pushed.bytes < 1 << 20, "{pushed:?}");
    assert!(a.remote.traffic().sent - after.sent < 1 << 20);

    // The same content from another machine that has never fetched it.
    let own = b.commit(&[], &[("big", Some(&big)), ("own", Some(b"b"))]);
    let pushed = b.push("other", own).unwrap();
    assert!(pushed.objects <= 4, "{pushed:?}");
    check_whole(&a.remote, &bucket);
}

#[test]
fn many_small_files_are_few_objects() {
    let (clock, bucket) = world();
    let mut a = Machine::new(Arc::new(bucket.clone()), clock);
    let names: Vec<String> = (0..10_000).map(|i| format!("d{}/f{i}", i % 40)).collect();
    let contents: Vec<Vec<u8>> = (0..10_000).map(|i| noise(i, 40)).collect();
    let files: Vec<_> = names
        .iter()
        .zip(&contents)
        .map(|(n, c)| (&n[..], Some(&c[..])))
        .collect();
    let commit = a.commit(&[], &files);
    let before = bucket.contents().len();
    a.push("main", commit).unwrap();
    let objects = bucket.contents().len() - before;
    assert!(objects <= 8, "{objects} objects");
}

#[test]
fn what_is_no_fast_forward_is_rejected_and_changes_nothing() {
    let (clock, bucket) = world();
    let machine = || Machine::new(Arc::new(bucket.clone()), clock.clone());
    let (mut a, mut b) = (machine(), machine());
    let base = a.commit(&[], &[("f", Some(b"0"))]);
    a.push("main", base).unwrap();
    b.fetch("main").unwrap();
    let ours = a.commit(&[base], &[("f", Some(b"a"))]);
    let theirs = b.commit(&[base], &[("f", Some(b"b"))]);
    a.push("main", ours).unwrap();
    let before = bucket.contents();
    assert!(matches!(
        b.push("main", theirs),
        Err(Error::Rejected { .. })
    ));
    assert_eq!(bucket.contents(), before);

    // With a lease on what is not there any more, neither.
    let mut forced = b.request("main", theirs);
    forced.allow = Allow::From(Some(base));
    assert!(matches!(b.push_as(&forced), Err(Error::Rejected { .. })));
    forced.allow = Allow::From(Some(ours));
    assert_eq!(b.push_as(&forced).unwrap().before, Some(ours));
    assert_eq!(a.fetch("main").unwrap().0, theirs);

    // After a merge it is one.
    let merge = a.commit(&[ours, theirs], &[("f", Some(b"ab"))]);
    assert!(a.push("main", merge).unwrap().moved);
}

#[test]
fn labels_go_along_and_none_is_overwritten() {
    let (clock, bucket) = world();
    let machine = || Machine::new(Arc::new(bucket.clone()), clock.clone());
    let (mut a, b) = (machine(), machine());
    let one = a.commit(&[], &[("f", Some(b"1"))]);
    let two = a.commit(&[one], &[("f", Some(b"2"))]);
    let aside = a.commit(&[], &[("g", Some(b"3"))]);
    let mut request = a.request("main", two);
    request.labels = [("v1".to_owned(), one), ("aside".to_owned(), aside)].into();
    a.push_as(&request).unwrap();
    let labels = b.remote.reference(&request.to).unwrap().unwrap().0.labels;
    assert_eq!(
        labels,
        [("aside".to_owned(), aside), ("v1".to_owned(), one)]
    );
    check_whole(&b.remote, &bucket);

    request.labels = [("v1".to_owned(), two), ("v2".to_owned(), two)].into();
    let pushed = a.push_as(&request).unwrap();
    assert_eq!(
        (pushed.moved, pushed.labels_differ),
        (true, vec!["v1".to_owned()])
    );
    let labels = b.remote.reference(&request.to).unwrap().unwrap().0.labels;
    let all = [
        ("aside".to_owned(), aside),
        ("v1".to_owned(), one),
        ("v2".to_owned(), two),
    ];
    assert_eq!(labels, all);
    assert!(!a.push_as(&request).unwrap().moved);
}

/// Each push is cut at each of its requests; the remote is whole after each, and the next push finishes.
#[test]
fn a_push_that_is_killed_at_any_request_leaves_a_whole_remote_and_is_continued() {
    let seed = seed();
    let mut at = 0;
    loop {
        let (clock, bucket) = world();
        let mut a = Machine::new(Arc::new(bucket.clone()), clock.clone());
        let base = a.commit(&[], &[("f", Some(b"0"))]);
        a.push("main", base).unwrap();
        let next = a.commit(
            &[base],
            &[("f", Some(b"1")), ("d/g", Some(&noise(seed, 500_000)))],
        );

        let dying = Arc::new(FaultyBucket::new(
            Arc::new(bucket.clone()),
            Faults::default(),
            1,
        ));
        let remote = remote::Remote::open(dying.clone(), clock.clone()).unwrap();
        let alive = std::mem::replace(&mut a.remote, remote);
        dying.die_at(dying.requests() + at);
        let died = a.push("main", next).is_err();
        assert!(check_whole(&alive, &bucket) > 0);
        a.remote = alive;
        let Pushed { moved, .. } = a.push("main", next).unwrap();
        assert_eq!(moved, died, "at request {at}");
        check_whole(&a.remote, &bucket);
        let mut b = Machine::new(Arc::new(bucket.clone()), clock);
        assert_eq!(b.fetch("main").unwrap().0, next);
        assert_eq!(a.whole(next), b.whole(next));
        if !died {
            break;
        }
        at += 1;
    }
    assert!(at >= 6, "a push has only {at} requests");
}

#[test]
fn everything_arrives_over_a_bad_network() {
    let mut chance = Chance::new(seed());
    for round in 0..60 {
        let (clock, bucket) = world();
        let bad = |seed| -> Arc<dyn Bucket> {
            Arc::new(FaultyBucket::new(
                Arc::new(bucket.clone()),
                Faults::all(25),
                seed,
            ))
        };
        // Somebody made it on a good day.
        drop(Machine::new(Arc::new(bucket.clone()), clock.clone()));
        let open = |seed| {
            let remote =
                (0..20).find_map(|i| remote::Remote::open(bad(seed + i), clock.clone()).ok());
            Machine::with(remote.unwrap())
        };
        let (mut a, mut b) = (open(chance.word() >> 8), open(chance.word() >> 8));
        let mut head = Vec::new();
        for step in 0..4 {
            let content = noise(round * 10 + step, 300_000);
            let commit = a.commit(
                &head,
                &[
                    ("f", Some(&content)),
                    ("d/g", Some(&content[..step as usize * 9])),
                ],
            );
            head = vec![commit];
            // One clear error is allowed; what is there stays whole, and the next try goes on from it.
            let mut tries = 0;
            while let Err(e) = a.push("main", commit) {
                assert!(
                    !matches!(e, Error::Rejected { .. } | Error::Store(_)),
                    "{e}"
                );
                tries += 1;
                assert!(tries < 200, "{e}");
            }
            let mut tries = 0;
            loop {
                match b.fetch("main") {
                    Ok((found, _)) => {
                        assert_eq!(found, commit);
                        break;
                    }
                    Err(e) => assert!(!matches!(e, Error::Store(_)) && tries < 200, "{e}"),
                }
                tries += 1;
            }
            assert_eq!(a.whole(commit), b.whole(commit));
        }
        let good = remote::Remote::open(Arc::new(bucket.clone()), clock).unwrap();
        check_whole(&good, &bucket);
    }
}

#[test]
fn a_fetch_of_a_small_change_looks_at_little() {
    let (clock, bucket) = world();
    let machine = || Machine::new(Arc::new(bucket.clone()), clock.clone());
    let (mut a, mut b) = (machine(), machine());
    let names: Vec<String> = (0..3000).map(|i| format!("d{}/f{i}", i % 30)).collect();
    let files: Vec<_> = names.iter().map(|n| (&n[..], Some(n.as_bytes()))).collect();
    let first = a.commit(&[], &files);
    a.push("main", first).unwrap();
    let before = b.remote.traffic();
    b.fetch("main").unwrap();
    let requests = b.remote.traffic().requests - before.requests;
    assert!(requests <= 20, "{requests} requests for a clone");
    let second = a.commit(&[first], &[("d7/f7", Some(b"new"))]);
    a.push("main", second).unwrap();
    let before = b.remote.traffic();
    let fetched = b.fetch("main").unwrap().1;
    assert!(fetched.objects <= 6, "{fetched:?}");
    let after = b.remote.traffic();
    assert!(after.received - before.received < 300_000);
    assert_eq!(a.whole(second), b.whole(second));
}

#[test]
fn damage_in_the_remote_is_one_clear_error_and_nothing_is_kept() {
    let (clock, bucket) = world();
    let mut a = Machine::new(Arc::new(bucket.clone()), clock.clone());
    let commit = a.commit(&[], &[("f", Some(&noise(1, 10_000))), ("d/g", Some(b"x"))]);
    a.push("main", commit).unwrap();
    let names: Vec<String> = bucket.contents().into_keys().collect();
    let mut chance = Chance::new(seed());
    for name in names {
        let good = bucket.get(&name, 1 << 30).unwrap().unwrap().bytes;
        for _ in 0..40 {
            let mut bad = good.clone();
            let at = chance.below(bad.len() as u64) as usize;
            match chance.below(3) {
                0 => bad[at] ^= 1 << chance.below(8),
                1 => bad.truncate(at),
                _ => bad.extend(noise(at as u64, 50)),
            }
            bucket
                .put(&name, &bad, remote::bucket::Condition::Always)
                .unwrap();
            let Ok(remote) = remote::Remote::open(Arc::new(bucket.clone()), clock.clone()) else {
                continue;
            };
            let mut b = Machine::with(remote);
            match b.fetch("main") {
                // A bit of a pack's header, or of a record's salt, or of time in the marker, means nothing.
                Ok(_) => assert_eq!(a.whole(commit), b.whole(commit)),
                Err(e) => {
                    let clear = matches!(
                        e,
                        Error::Damaged { .. } | Error::Missing { .. } | Error::TooLarge { .. }
                    );
                    assert!(clear, "{name}: {e}");
                    let trees = b.store.ids(objstore::Kind::Tree).len();
                    assert_eq!((trees, b.store.ids(objstore::Kind::Commit).len()), (0, 0));
                }
            }
        }
        bucket
            .put(&name, &good, remote::bucket::Condition::Always)
            .unwrap();
    }
    check_whole(&a.remote, &bucket);
}
