//! gc of a remote beside pushes and fetches of several machines, on a simulated clock: nothing that is needed is ever
//! missing, and what nobody needs goes.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Machine, branch, check_whole, noise, seed, world};
use parking_lot::Mutex;
use remote::bucket::faulty::{Faults, FaultyBucket};
use remote::bucket::memory::MemoryBucket;
use remote::bucket::{Bucket, Condition, Got, Listed, Put};
use remote::chance::Chance;
use remote::clock::SimulatedClock;
use remote::gc::{Collected, Context, GcRequest, collect};
use remote::limits::GRACE_SEC;
use remote::push::Allow;
use remote::{Error, Remote, Sizes};
use std::ops::Range;
use std::sync::Arc;

fn run(remote: &Remote) -> Result<Collected, Error> {
    run_with(remote, &GcRequest::default())
}

fn run_with(remote: &Remote, request: &GcRequest) -> Result<Collected, Error> {
    let context = Context {
        progress: &|_, _| (),
        check: &|| Ok(()),
        local: None,
    };
    collect(remote, request, &context)
}

/// gc until everything that can go has gone.
fn settle(remote: &Remote, clock: &SimulatedClock) {
    for _ in 0..6 {
        run(remote).unwrap();
        clock.pass(GRACE_SEC + 1);
    }
    run(remote).unwrap();
}

#[test]
fn what_nobody_needs_is_gone_after_the_grace_period_and_not_before() {
    let (clock, bucket) = world();
    let mut a = Machine::new(Arc::new(bucket.clone()), clock.clone());
    let base = a.commit(&[], &[("keep", Some(&noise(1, 200_000)))]);
    a.push("main", base).unwrap();
    let lost = a.commit(&[], &[("lost", Some(&noise(2, 900_000)))]);
    let mut forced = a.request("main", lost);
    forced.allow = Allow::From(Some(base));
    a.push_as(&forced).unwrap();
    forced.commit = base;
    forced.allow = Allow::From(Some(lost));
    a.push_as(&forced).unwrap();
    bucket
        .put("packs/00.pack", b"orphan", Condition::Always)
        .unwrap();

    let has_lost = |a: &Machine| {
        let key = objstore::exchange::commit_key(&lost);
        a.remote.generation().unwrap().has(&key)
    };
    run(&a.remote).unwrap();
    clock.pass(GRACE_SEC - 10);
    run(&a.remote).unwrap();
    assert!(has_lost(&a), "it is young");
    let names = bucket.contents();
    assert!(names.contains_key("packs/00.pack"));
    clock.pass(20);
    let dry = GcRequest {
        dry_run: true,
        ..GcRequest::default()
    };
    let before = bucket.contents();
    assert!(run_with(&a.remote, &dry).unwrap().dropped > 0);
    assert_eq!(bucket.contents(), before, "a dry run changes nothing");
    assert!(run(&a.remote).unwrap().dropped > 0);
    assert!(!has_lost(&a));
    settle(&a.remote, &clock);
    check_whole(&a.remote, &bucket);
    let bytes: u64 = bucket.contents().values().sum();
    assert!(bytes < 300_000, "{:?}", bucket.contents());
    assert!(!bucket.contents().contains_key("packs/00.pack"));
    // What was collected can be pushed again.
    a.push("other", lost).unwrap();
    check_whole(&a.remote, &bucket);
}

#[test]
fn a_pack_with_little_that_is_needed_is_put_again_without_the_rest() {
    let (clock, bucket) = world();
    let mut a = Machine::new(Arc::new(bucket.clone()), clock.clone());
    let base = a.commit(
        &[],
        &[
            ("a", Some(&noise(1, 10_000))),
            ("b", Some(&noise(2, 1_000_000))),
        ],
    );
    a.push("main", base).unwrap();
    let small = a.commit(&[], &[("a", Some(&noise(1, 10_000)))]);
    let mut forced = a.request("main", small);
    forced.allow = Allow::From(Some(base));
    a.push_as(&forced).unwrap();
    settle(&a.remote, &clock);
    let bytes: u64 = bucket.contents().values().sum();
    assert!(bytes < 30_000, "{:?}", bucket.contents());
    check_whole(&a.remote, &bucket);
    let mut b = Machine::new(Arc::new(bucket.clone()), clock);
    assert_eq!(b.fetch("main").unwrap().0, small);
}

/// Before a request something else happens, perhaps: requests of one machine lie between those of another.
#[derive(Debug)]
struct Between {
    inner: MemoryBucket,
    clock: Arc<SimulatedClock>,
    state: Arc<Mutex<Turn>>,
}

#[derive(Debug)]
struct Turn {
    chance: Chance,
    one_in: u64,
    busy: bool,
}

impl Between {
    fn step(&self) {
        let gc = {
            let mut turn = self.state.lock();
            let one_in = turn.one_in;
            if turn.busy || !turn.chance.one_in(one_in) {
                return;
            }
            turn.busy = true;
            turn.chance.below(3)
        };
        match gc {
            0 => self.clock.pass(GRACE_SEC / 5),
            1 => self.clock.pass(GRACE_SEC + 1),
            _ => {
                let remote =
                    Remote::open(Arc::new(self.inner.clone()), self.clock.clone()).unwrap();
                run(&remote).unwrap();
            }
        }
        self.state.lock().busy = false;
    }
}

impl Bucket for Between {
    fn get(&self, name: &str, max: u64) -> Result<Option<Got>, Error> {
        self.step();
        self.inner.get(name, max)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>, Error> {
        self.step();
        self.inner.get_range(name, range)
    }

    fn put(&self, name: &str, bytes: &[u8], condition: Condition<'_>) -> Result<Put, Error> {
        self.step();
        self.inner.put(name, bytes, condition)
    }

    fn delete(&self, name: &str) -> Result<(), Error> {
        self.step();
        self.inner.delete(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, Error> {
        self.step();
        self.inner.list(prefix)
    }
}

/// What one machine of the simulation has.
struct Actor {
    machine: Machine,
    faulty: Arc<FaultyBucket>,
    head: Option<objstore::CommitId>,
}

struct World {
    clock: Arc<SimulatedClock>,
    bucket: MemoryBucket,
    turn: Arc<Mutex<Turn>>,
    chance: Chance,
    actors: Vec<Actor>,
    count: u64,
}

impl World {
    fn new(seed: u64, faults: Faults) -> World {
        let (clock, bucket) = world();
        drop(Machine::new(Arc::new(bucket.clone()), clock.clone()));
        let mut chance = Chance::new(seed);
        let turn = Arc::new(Mutex::new(Turn {
            chance: Chance::new(chance.word()),
            one_in: 12,
            busy: false,
        }));
        let actors = (0..3).map(|_| {
            let between = Between {
                inner: bucket.clone(),
                clock: clock.clone(),
                state: turn.clone(),
            };
            let faulty = Arc::new(FaultyBucket::new(Arc::new(between), faults, chance.word()));
            let remote = loop {
                if let Ok(remote) = Remote::open(faulty.clone(), clock.clone()) {
                    break remote;
                }
            };
            Actor {
                machine: Machine::with(remote.sized(Sizes {
                    pack_bytes: 2000,
                    register_bytes: 4000,
                })),
                faulty,
                head: None,
            }
        });
        World {
            actors: actors.collect(),
            clock,
            bucket,
            turn,
            chance,
            count: 0,
        }
    }

    /// One thing that one machine does. Errors are those of a bad network.
    fn step(&mut self) {
        self.count += 1;
        let who = self.chance.below(3) as usize;
        let to = ["main", "side"][self.chance.below(2) as usize];
        let what = self.chance.below(20);
        let content = noise(self.chance.below(40), 50 + self.chance.below(3000) as usize);
        let name = format!("f{}", self.chance.below(6));
        let actor = &mut self.actors[who];
        let outcome = match what {
            0..6 => {
                let parents: Vec<_> = actor.head.into_iter().collect();
                let new = actor.machine.commit(&parents, &[(&name, Some(&content))]);
                actor.head = Some(new);
                Ok(())
            }
            6..11 => actor
                .head
                .map_or(Ok(()), |head| actor.machine.push(to, head).map(drop)),
            11..13 => match (actor.head, actor.machine.remote.reference(&branch(to))) {
                (Some(head), Ok(found)) => {
                    let mut forced = actor.machine.request(to, head);
                    forced.allow = Allow::From(found.map(|(found, _)| found.commit));
                    actor.machine.push_as(&forced).map(drop)
                }
                _ => Ok(()),
            },
            13..16 => actor
                .machine
                .fetch(to)
                .map(|(commit, _)| actor.head = Some(commit)),
            16..18 => {
                let percent = 1 + self.chance.below(60);
                let request = GcRequest {
                    dead_percent: percent,
                    dry_run: false,
                };
                run_with(&actor.machine.remote, &request).map(drop)
            }
            18 => {
                self.clock
                    .pass(self.chance.below(GRACE_SEC as u64 * 2) as i64);
                Ok(())
            }
            // It dies in its next work, and comes back with what it had.
            _ => {
                let at = actor.faulty.requests() + self.chance.below(12);
                actor.faulty.die_at(at);
                let died = match actor.head {
                    Some(head) => actor.machine.push(to, head).map(drop),
                    None => run(&actor.machine.remote).map(drop),
                };
                actor.faulty.die_at(u64::MAX);
                died
            }
        };
        if let Err(e) = outcome {
            let expected = matches!(
                e,
                Error::Transient { .. }
                    | Error::Rejected { .. }
                    | Error::NoRemote
                    | Error::Denied { .. }
                    | Error::Damaged { .. }
                    | Error::TooLarge { .. }
            );
            assert!(expected, "step {}: {e:?}", self.count);
        }
    }

    /// Everything that refs need is there, and every head of a machine that it fetched is whole there.
    fn check(&self) {
        let busy = std::mem::replace(&mut self.turn.lock().busy, true);
        let remote = Remote::open(Arc::new(self.bucket.clone()), self.clock.clone()).unwrap();
        check_whole(&remote, &self.bucket);
        for actor in &self.actors {
            if let Some(head) = actor.head {
                actor.machine.whole(head);
            }
        }
        self.turn.lock().busy = busy;
    }
}

fn rounds() -> u64 {
    let given = std::env::var("AGENTVFS_ROUNDS").ok();
    given.map_or(300, |text| text.parse().unwrap())
}

fn simulate(faults: Faults) {
    let seed = seed();
    let mut world = World::new(seed, faults);
    for round in 0..rounds() {
        world.step();
        if round % 10 == 9 {
            world.check();
        }
        if round % 500 == 499 {
            for actor in &world.actors {
                actor.faulty.settle();
            }
            world.check();
        }
    }
    // In the end only what refs need is left.
    world.turn.lock().busy = true;
    let remote = Remote::open(Arc::new(world.bucket.clone()), world.clock.clone()).unwrap();
    world.actors.iter().for_each(|actor| actor.faulty.settle());
    settle(&remote, &world.clock);
    let needed = check_whole(&remote, &world.bucket);
    let generation = remote.generation().unwrap();
    let present: usize = generation.indexes.iter().map(|index| index.len()).sum();
    assert_eq!(present, needed, "what nobody needs is there");
    let packs: usize = generation
        .indexes
        .iter()
        .map(|index| index.packs().len())
        .sum();
    let there = world.bucket.contents();
    let count = |dir: &str| there.keys().filter(|name| name.starts_with(dir)).count();
    assert_eq!(count("packs/"), packs, "{there:?}");
    assert_eq!(count("indexes/"), generation.indexes.len(), "{there:?}");
    assert_eq!(count("clock/") + count("probe/"), 0, "{there:?}");
}

#[test]
fn nothing_needed_is_ever_missing_beside_three_machines() {
    simulate(Faults::default());
}

#[test]
fn nothing_needed_is_ever_missing_beside_three_machines_with_a_bad_network() {
    simulate(Faults::all(40));
}
