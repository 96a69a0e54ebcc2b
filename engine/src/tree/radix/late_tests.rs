//! A map whose blocks are made late is what a map is whose values are all there, after any operations.

use super::later::{BLOCK, Block};
use super::*;
use std::collections::BTreeMap;

/// Pseudo-random numbers of a seed that is new each time and printed; `AGENTVFS_SEED` gives one.
pub(crate) struct Random(u64);

impl Random {
    pub fn new() -> Random {
        let given = std::env::var("AGENTVFS_SEED").ok();
        let now = std::time::UNIX_EPOCH.elapsed().map_or(1, |d| d.as_nanos());
        let seed = given.and_then(|s| s.parse().ok());
        let seed = seed.unwrap_or((now % 1_000_000_007) as u64);
        println!("AGENTVFS_SEED={seed} makes this happen again");
        Random(seed)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n.max(1)
    }
}

/// The same map twice.
#[derive(Clone)]
struct Pair {
    late: Radix<u64>,
    whole: Radix<u64>,
}

/// Values of keys, or that they are gone.
type Changes = BTreeMap<u64, Option<Arc<u64>>>;

fn key(random: &mut Random) -> u64 {
    let ranges = [16, 200, 600, 5_000, 70_000, 1 << 30];
    let range = random.below(ranges.len() as u64) as usize;
    random.below(ranges[range])
}

fn changes_of_block(random: &mut Random, number: u64, next: &mut u64) -> Changes {
    let many = [1, 3, 40, BLOCK][random.below(4) as usize];
    let keys = (0..many).map(|_| number * BLOCK + random.below(BLOCK));
    let keys: Vec<u64> = keys.collect();
    let mut changes = Changes::new();
    for key in keys {
        *next += 1;
        let value = (random.below(4) > 0).then(|| Arc::new(*next));
        changes.insert(key, value);
    }
    changes
}

impl Pair {
    fn set_later(&mut self, number: u64, changes: Changes) {
        for (key, value) in &changes {
            match value {
                Some(value) => drop(self.whole.insert(*key, value.clone())),
                None => drop(self.whole.remove(*key)),
            }
        }
        let count = (number * BLOCK..(number + 1) * BLOCK).filter(|k| self.whole.get(*k).is_some());
        let opening = move |block: &mut Block<u64>| {
            assert_eq!(block.number(), number);
            assert!(!block.set((number + 1) * BLOCK, None));
            for (key, value) in changes {
                assert!(block.set(key, value));
            }
        };
        let count = count.count();
        self.late.set_later(number, count, Box::new(opening));
        assert_eq!(self.late.count_of_block(number), count);
        assert_eq!(self.late.is_block_open(number), count == 0);
    }

    fn step(&mut self, random: &mut Random, next: &mut u64) {
        let key = key(random);
        *next += 1;
        match random.below(12) {
            0..3 => {
                let changes = changes_of_block(random, key / BLOCK, next);
                self.set_later(key / BLOCK, changes);
            }
            3..6 => {
                let value = Arc::new(*next);
                let (late, whole) = (
                    self.late.insert(key, value.clone()),
                    self.whole.insert(key, value),
                );
                assert_eq!(late, whole);
            }
            6 | 7 => assert_eq!(self.late.remove(key), self.whole.remove(key)),
            8 => assert_eq!(
                self.late.update(key, |v| *v),
                self.whole.update(key, |v| *v)
            ),
            9 => self.check_open(key),
            10 if random.below(8) == 0 => self.late.open(),
            _ => assert_eq!(self.late.get(key), self.whole.get(key)),
        }
        assert_eq!(self.late.len(), self.whole.len());
        assert_eq!(self.late.is_empty(), self.whole.is_empty());
    }

    /// What does not make values says only what is.
    fn check_open(&self, key: u64) {
        let was_open = self.late.is_block_open(key / BLOCK);
        let found = self.late.get_open(key);
        assert_eq!(self.late.is_block_open(key / BLOCK), was_open);
        assert_eq!(found, self.whole.get(key).filter(|_| was_open));
        self.late
            .for_each_open(&mut |k, v| assert_eq!(self.whole.get(k), Some(v)));
        assert_eq!(self.late.is_block_open(key / BLOCK), was_open);
        assert_eq!(
            self.late.count_of_block(key / BLOCK),
            self.whole.count_of_block(key / BLOCK)
        );
    }

    fn check_all(&self) {
        assert_eq!(entries(&self.late), entries(&self.whole));
    }
}

fn entries(map: &Radix<u64>) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    map.for_each(&mut |k, v| out.push((k, **v)));
    out
}

type Differing = Vec<(u64, Option<u64>, Option<u64>)>;

fn differing(a: &Radix<u64>, b: &Radix<u64>) -> Differing {
    let mut out = Vec::new();
    Radix::diff(a, b, &mut |k, x, y| {
        out.push((k, x.map(|x| **x), y.map(|y| **y)));
    });
    out
}

#[test]
fn blocks_that_are_made_late_are_as_if_they_had_always_been_there() {
    let mut random = Random::new();
    for _ in 0..150 {
        let mut next = 0;
        let mut pairs = vec![Pair {
            late: Radix::default(),
            whole: Radix::default(),
        }];
        for _ in 0..120 {
            let at = random.below(pairs.len() as u64) as usize;
            if random.below(20) == 0 && pairs.len() < 5 {
                pairs.push(pairs[at].clone());
            }
            pairs[at].step(&mut random, &mut next);
            if random.below(25) == 0 {
                let other = random.below(pairs.len() as u64) as usize;
                let (a, b) = (&pairs[at], &pairs[other]);
                let found = differing(&a.late, &b.late);
                assert_eq!(found, differing(&a.whole, &b.whole));
            }
        }
        for a in &pairs {
            a.check_all();
            for b in &pairs {
                assert_eq!(differing(&a.late, &b.late), differing(&a.whole, &b.whole));
            }
        }
    }
}

#[test]
fn a_difference_without_what_is_still_to_be_made_makes_nothing() {
    let mut a = Radix::default();
    a.insert(5, Arc::new(1));
    let mut b = a.clone();
    b.insert(6, Arc::new(2));
    let never = |_: &mut Block<u64>| panic!("it was made");
    b.set_later(3, 7, Box::new(never));
    let mut seen = Vec::new();
    Radix::diff_open(&a, &b, &mut |k, _, _| seen.push(k));
    assert_eq!((seen, b.len()), (vec![6], 9));
    b.set_later(3, 0, Box::new(never));
    assert_eq!(b.len(), 2);
    assert_eq!(differing(&a, &b), [(6, None, Some(2))]);
}

#[test]
fn threads_that_need_a_block_at_once_get_the_same_values() {
    let mut map = Radix::default();
    for number in 0..50 {
        let set = move |block: &mut Block<u64>| {
            for key in number * BLOCK..(number + 1) * BLOCK {
                block.set(key, Some(Arc::new(key)));
            }
        };
        map.set_later(number, BLOCK as usize, Box::new(set));
    }
    let other = map.clone();
    std::thread::scope(|scope| {
        for map in [&map, &other, &map] {
            scope.spawn(|| map.open());
        }
    });
    assert_eq!(differing(&map, &other), []);
    assert_eq!(entries(&map).len(), 50 * BLOCK as usize);
}

#[test]
fn the_blocks_of_given_keys_are_made_and_no_others() {
    let mut map = Radix::default();
    for number in 0..40 {
        let set = move |block: &mut Block<u64>| {
            block.set(number * BLOCK, Some(Arc::new(number)));
        };
        map.set_later(number, 1, Box::new(set));
    }
    let wanted: Vec<u64> = (0..40).step_by(2).collect();
    let keys = wanted.iter().flat_map(|n| [n * BLOCK + 7, n * BLOCK]);
    map.open_those(keys.chain([99 * BLOCK, u64::MAX]));
    let open: Vec<u64> = (0..40).filter(|n| map.is_block_open(*n)).collect();
    assert_eq!(open, wanted);
    assert_eq!(entries(&map).len(), 40);
}
