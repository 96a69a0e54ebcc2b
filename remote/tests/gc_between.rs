//! gc that runs exactly before one request of a push: what the push found present may be gone by then.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Machine, check_whole, noise, world};
use remote::bucket::memory::MemoryBucket;
use remote::bucket::{Bucket, Condition, Got, Listed, Put};
use remote::clock::SimulatedClock;
use remote::gc::{Collected, Context, GcRequest, collect};
use remote::limits::GRACE_SEC;
use remote::push::Allow;
use remote::{Error, Remote};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn run(bucket: &MemoryBucket, clock: &Arc<SimulatedClock>) -> Collected {
    let remote = Remote::open(Arc::new(bucket.clone()), clock.clone()).unwrap();
    let context = Context {
        progress: &|_, _| (),
        check: &|| Ok(()),
        local: None,
    };
    collect(&remote, &GcRequest::default(), &context).unwrap()
}

/// Runs gc before the first put of a name that begins so.
#[derive(Debug)]
struct Before {
    inner: MemoryBucket,
    clock: Arc<SimulatedClock>,
    prefix: &'static str,
    armed: AtomicBool,
}

impl Bucket for Before {
    fn get(&self, name: &str, max: u64) -> Result<Option<Got>, Error> {
        self.inner.get(name, max)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>, Error> {
        self.inner.get_range(name, range)
    }

    fn put(&self, name: &str, bytes: &[u8], condition: Condition<'_>) -> Result<Put, Error> {
        if name.starts_with(self.prefix) && self.armed.swap(false, Ordering::Relaxed) {
            run(&self.inner, &self.clock);
            run(&self.inner, &self.clock);
        }
        self.inner.put(name, bytes, condition)
    }

    fn delete(&self, name: &str) -> Result<(), Error> {
        self.inner.delete(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, Error> {
        self.inner.list(prefix)
    }
}

/// A remote that still has a commit which no ref has needed for longer than the grace period.
fn with_something_lost(
    bucket: &MemoryBucket,
    clock: &Arc<SimulatedClock>,
) -> (Machine, objstore::CommitId) {
    let mut a = Machine::new(Arc::new(bucket.clone()), clock.clone());
    let base = a.commit(&[], &[("keep", Some(&noise(1, 1000)))]);
    a.push("main", base).unwrap();
    let lost = a.commit(&[], &[("lost", Some(&noise(2, 400_000)))]);
    let mut forced = a.request("main", lost);
    forced.allow = Allow::From(Some(base));
    a.push_as(&forced).unwrap();
    (forced.commit, forced.allow) = (base, Allow::From(Some(lost)));
    a.push_as(&forced).unwrap();
    run(bucket, clock);
    clock.pass(GRACE_SEC + 1);
    (a, lost)
}

#[test]
fn gc_before_any_put_of_a_push_takes_nothing_that_it_relies_on() {
    for prefix in ["packs/", "indexes/", "catalogs/", "head", "refs/"] {
        // A commit that is present, and one that has content in common with it.
        for is_new in [false, true] {
            let (clock, bucket) = world();
            let (mut a, lost) = with_something_lost(&bucket, &clock);
            let commit = match is_new {
                true => a.commit(
                    &[],
                    &[("lost", Some(&noise(2, 400_000))), ("new", Some(b"new"))],
                ),
                false => lost,
            };
            let before = Before {
                inner: bucket.clone(),
                clock: clock.clone(),
                prefix,
                armed: AtomicBool::new(true),
            };
            a.remote = Remote::open(Arc::new(before), clock.clone()).unwrap();
            a.push("other", commit).unwrap();
            check_whole(&a.remote, &bucket);
            let mut b = Machine::new(Arc::new(bucket.clone()), clock.clone());
            assert_eq!(b.fetch("other").unwrap().0, commit, "{prefix} {is_new}");
            assert_eq!(a.whole(commit), b.whole(commit));
            // And what is there stays there.
            for _ in 0..4 {
                clock.pass(GRACE_SEC + 1);
                run(&bucket, &clock);
            }
            check_whole(&b.remote, &bucket);
        }
    }
}

#[test]
fn without_a_push_the_same_runs_take_what_is_lost() {
    let (clock, bucket) = world();
    let (a, lost) = with_something_lost(&bucket, &clock);
    assert!(run(&bucket, &clock).dropped > 0);
    let key = objstore::exchange::commit_key(&lost);
    assert!(!a.remote.generation().unwrap().has(&key));
}

/// Notes that something of this name was put.
#[derive(Debug)]
struct After {
    inner: MemoryBucket,
    prefix: &'static str,
    put: Arc<AtomicBool>,
}

impl Bucket for After {
    fn get(&self, name: &str, max: u64) -> Result<Option<Got>, Error> {
        self.inner.get(name, max)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>, Error> {
        self.inner.get_range(name, range)
    }

    fn put(&self, name: &str, bytes: &[u8], condition: Condition<'_>) -> Result<Put, Error> {
        let put = self.inner.put(name, bytes, condition);
        self.put
            .fetch_or(name.starts_with(self.prefix), Ordering::Relaxed);
        put
    }

    fn delete(&self, name: &str) -> Result<(), Error> {
        self.inner.delete(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, Error> {
        self.inner.list(prefix)
    }
}

#[test]
fn a_machine_that_sleeps_for_days_in_a_push_goes_on_with_it() {
    for prefix in ["packs/", "head"] {
        let (clock, bucket) = world();
        let (mut a, lost) = with_something_lost(&bucket, &clock);
        let next = a.commit(&[lost], &[("new", Some(&noise(5, 5000)))]);
        let put = Arc::new(AtomicBool::new(false));
        let after = After {
            inner: bucket.clone(),
            prefix,
            put: put.clone(),
        };
        a.remote = Remote::open(Arc::new(after), clock.clone()).unwrap();
        let (of, time) = (bucket.clone(), clock.clone());
        let slept = AtomicBool::new(false);
        a.between = Some(Box::new(move || {
            if put.load(Ordering::Relaxed) && !slept.swap(true, Ordering::Relaxed) {
                for _ in 0..3 {
                    run(&of, &time);
                    time.pass(GRACE_SEC + 1);
                }
                run(&of, &time);
            }
        }));
        a.push("other", next).unwrap();
        check_whole(&a.remote, &bucket);
        let mut b = Machine::new(Arc::new(bucket.clone()), clock.clone());
        assert_eq!(b.fetch("other").unwrap().0, next, "{prefix}");
        assert_eq!(a.whole(next), b.whole(next));
    }
}

#[test]
fn what_only_a_label_names_stays() {
    let (clock, bucket) = world();
    let mut a = Machine::new(Arc::new(bucket.clone()), clock.clone());
    let commit = a.commit(&[], &[("f", Some(b"1"))]);
    let aside = a.commit(&[], &[("g", Some(b"2"))]);
    let mut request = a.request("main", commit);
    request.labels = [("aside".to_owned(), aside)].into();
    a.push_as(&request).unwrap();
    for _ in 0..4 {
        run(&bucket, &clock);
        clock.pass(GRACE_SEC + 1);
    }
    let key = objstore::exchange::commit_key(&aside);
    assert!(a.remote.generation().unwrap().has(&key));
    check_whole(&a.remote, &bucket);
}

/// A fetch that began before gc took packs away goes on with what it knew.
#[test]
fn a_fetch_beside_gc_gets_all_of_what_it_began_with() {
    let (clock, bucket) = world();
    let mut a = Machine::new(Arc::new(bucket.clone()), clock.clone());
    let one = a.commit(
        &[],
        &[
            ("a", Some(&noise(1, 10_000))),
            ("b", Some(&noise(2, 1_000_000))),
        ],
    );
    a.push("main", one).unwrap();
    let generation = a.remote.generation().unwrap();
    let small = a.commit(&[], &[("a", Some(&noise(1, 10_000)))]);
    let mut forced = a.request("main", small);
    forced.allow = Allow::From(Some(one));
    a.push_as(&forced).unwrap();
    run(&bucket, &clock);
    clock.pass(GRACE_SEC + 1);
    assert!(run(&bucket, &clock).dropped > 0);
    run(&bucket, &clock);
    clock.pass(GRACE_SEC - 1);
    run(&bucket, &clock);
    // All that the old generation has can still be read.
    let work = vec![objstore::exchange::commit_key(&one)];
    let read = common::below(&generation, &bucket, work, &mut Default::default());
    assert!(read.len() > 3);
}
