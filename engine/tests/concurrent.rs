//! Requests from several threads while checkpoints, rollbacks, undo and sealing run: no deadlock, every
//! commit is one moment, and what must hold between names and inodes holds.
#![allow(clippy::unwrap_used)]

mod common;

use common::base_dir;
use common::check::list;
use common::model::ROOT;
use common::rng::{self, Rng, bytes};
use common::world::{MAIN, World};
use engine::verbs;
use engine::{
    Caller, CheckpointRequest, Error, Kind, NodeId, RenameFlags, Result, Target, Wait, Workspace,
    WriteFlags, mode,
};
use objstore::crash_storage::CrashStorage;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const W: Wait = Wait::Allowed;
/// Threads that write pairs, and threads that do anything.
const WRITERS: u64 = 3;
const CHAOS: u64 = 3;
/// Time after the end in which all threads must have come back.
const DEADLINE: Duration = Duration::from_secs(60);

/// What the threads share.
struct Arena {
    w: Arc<Workspace>,
    stop: AtomicBool,
    /// A writer's pair is not torn by a rollback in its middle; checkpoints may come at any time.
    gate: RwLock<()>,
}

/// What one thread does; the labels that it made.
type Work = Box<dyn FnOnce(&Arena) -> Vec<String> + Send>;

fn who() -> Caller {
    Caller::default()
}

impl Arena {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// The inode of a name, made where there is none; forgotten at once.
    fn file(&self, dir: NodeId, name: &str) -> Result<NodeId> {
        let made = match self.w.lookup(dir, name.as_bytes(), W) {
            Err(Error::NotFound) => {
                self.w
                    .mknod(&who(), dir, name.as_bytes(), mode::REG | 0o644, 0, W)
            }
            other => other,
        };
        let node = made?.node;
        self.w.forget(node, 1);
        Ok(node)
    }

    fn put(&self, name: &str, generation: u64) -> Result<()> {
        let node = self.file(NodeId::ROOT, name)?;
        let data = generation.to_le_bytes();
        self.w
            .write(node, 0, &data, WriteFlags::default(), W)
            .map(|_| ())
    }

    fn get(&self, name: &str) -> u64 {
        let Ok(found) = self.w.lookup(NodeId::ROOT, name.as_bytes(), W) else {
            return 0;
        };
        let node = found.node;
        self.w.forget(node, 1);
        let have = self.w.read(node, 0, 8, W).unwrap();
        have.try_into().map_or(0, u64::from_le_bytes)
    }

    /// Writes first one file, then the other, the same number in both.
    fn writer(&self, i: u64) {
        let mut generation = 0;
        while self.goes_on() {
            let _whole = self.gate.read();
            generation += 1;
            self.put(&format!("first{i}"), generation).unwrap();
            self.put(&format!("second{i}"), generation).unwrap();
        }
    }

    /// One moment shows the same number in both, or the first one ahead.
    fn check_pairs(&self, what: &str) {
        for i in 0..WRITERS {
            let (a, b) = (
                self.get(&format!("first{i}")),
                self.get(&format!("second{i}")),
            );
            assert!(
                a >= b && (b > 0 || a <= 1 || a == b || a > 0),
                "{what}: pair {i} is {a}, {b}"
            );
            assert!(a == b || b == 0 || a > b, "{what}: pair {i} is {a}, {b}");
        }
    }

    /// Anything, in directories of its own and in one that all share. Errors are what comes of it.
    fn chaos(&self, seed: u64) {
        let mut rng = Rng(seed);
        let names = ["x", "y", "z", "u", "v"];
        while self.goes_on() {
            let dir = ["shared", "own1", "own2"][rng.below(3) as usize];
            let made = self.w.mkdir(&who(), NodeId::ROOT, dir.as_bytes(), 0o755, W);
            let dir = match made.or_else(|_| self.w.lookup(NodeId::ROOT, dir.as_bytes(), W)) {
                Ok(a) => a.node,
                Err(_) => continue,
            };
            let (a, b) = (rng.pick(&names).as_bytes(), rng.pick(&names).as_bytes());
            let _ = self.something(&mut rng, dir, a, b);
            self.w.forget(dir, 1);
        }
    }

    fn something(&self, rng: &mut Rng, dir: NodeId, a: &[u8], b: &[u8]) -> Result<()> {
        let (w, none) = (&self.w, RenameFlags::default());
        match rng.below(9) {
            0..=2 => {
                let node = self.file(dir, std::str::from_utf8(a).unwrap())?;
                let data = bytes(rng.next(), 1 + rng.below(9000) as usize);
                w.write(node, rng.below(40_000), &data, WriteFlags::default(), W)?;
            }
            3 => w.unlink(dir, a, W)?,
            4 => w.rename(dir, a, dir, b, none, W)?,
            5 => w.rename(
                dir,
                a,
                dir,
                b,
                RenameFlags {
                    exchange: true,
                    ..none
                },
                W,
            )?,
            6 => {
                let node = self.file(dir, std::str::from_utf8(a).unwrap())?;
                let made = w.link(node, dir, b, W)?;
                w.forget(made.node, 1);
            }
            7 => drop(w.read(self.file(dir, "x")?, 0, 100_000, W)?),
            _ => drop(list(w, dir.0, 3, false)?),
        }
        Ok(())
    }

    /// Checkpoints, rollbacks, undo and redo; returns the labels.
    fn control(&self, seed: u64) -> Vec<String> {
        let mut rng = Rng(seed);
        let mut labels: Vec<String> = Vec::new();
        while self.goes_on() {
            match rng.below(8) {
                0..=3 => labels.push(self.checkpoint(labels.len(), rng.one_in(3))),
                4..=5 if !labels.is_empty() => {
                    let _alone = self.gate.write();
                    let label = rng.pick(&labels).clone();
                    verbs::rollback(&self.w, MAIN, &Target::Ref(label.clone())).unwrap();
                    self.check_pairs(&label);
                }
                n => {
                    let _alone = self.gate.write();
                    self.turn(if n == 6 {
                        verbs::undo_over_later(&self.w, MAIN)
                    } else {
                        verbs::redo(&self.w, MAIN)
                    });
                }
            }
        }
        labels
    }

    fn checkpoint(&self, n: usize, wait: bool) -> String {
        let label = format!("l{n}");
        let request = CheckpointRequest {
            label: Some(label.clone()),
            wait,
            ..Default::default()
        };
        verbs::checkpoint(&self.w, MAIN, request, &|_, _| ()).unwrap();
        label
    }

    fn turn(&self, done: Result<engine::RolledBack>) {
        assert!(matches!(done, Ok(_) | Err(Error::NothingTo(_))), "{done:?}");
    }
}

/// Runs all threads for `time`; fails where one does not come back.
fn run(world: &World, seed: u64, time: Duration) -> Vec<String> {
    let arena = Arc::new(Arena {
        w: world.shared(),
        stop: AtomicBool::new(false),
        gate: RwLock::new(()),
    });
    let (done, threads) = channel();
    let spawn = |work: Work| {
        let (arena, done) = (arena.clone(), done.clone());
        std::thread::spawn(move || {
            let labels = work(&arena);
            let _ = done.send(labels);
        });
    };
    for i in 0..WRITERS {
        spawn(Box::new(move |a| {
            a.writer(i);
            Vec::new()
        }));
    }
    for i in 0..CHAOS {
        spawn(Box::new(move |a| {
            a.chaos(seed + i);
            Vec::new()
        }));
    }
    spawn(Box::new(move |a| a.control(seed)));
    spawn(Box::new(|a| {
        while a.goes_on() {
            a.w.seal().unwrap();
            a.w.fsync(NodeId::ROOT).unwrap();
        }
        Vec::new()
    }));
    drop(done);
    std::thread::sleep(time);
    arena.stop.store(true, Ordering::Relaxed);
    let (mut labels, mut left) = (Vec::new(), WRITERS + CHAOS + 2);
    let until = Instant::now() + DEADLINE;
    while left > 0 {
        let wait = until.saturating_duration_since(Instant::now());
        let one = threads.recv_timeout(wait);
        labels.extend(one.unwrap_or_else(|e| panic!("{left} threads are stuck or panicked: {e}")));
        left -= 1;
    }
    labels
}

type Seen = BTreeMap<Vec<u8>, (u64, Kind, Vec<u8>)>;

/// Walks everything; names, counts and listings must agree.
fn walk(w: &Workspace) -> Seen {
    let (mut seen, mut work) = (Seen::new(), vec![(Vec::new(), ROOT)]);
    let mut names: BTreeMap<u64, u32> = BTreeMap::new();
    while let Some((path, dir)) = work.pop() {
        let mut subdirs = 0;
        for e in list(w, dir, 4, false).unwrap() {
            let found = w.lookup(NodeId(dir), &e.name, W).unwrap();
            w.forget(found.node, 1);
            assert_eq!(
                (found.node.0, found.kind, found.ino),
                (e.node, e.kind, e.ino)
            );
            let full = [&path[..], b"/", &e.name].concat();
            let content = match e.kind {
                Kind::File => w.read(NodeId(e.node), 0, 16 << 20, W).unwrap(),
                _ => Vec::new(),
            };
            *names.entry(e.node).or_default() += 1;
            seen.insert(full.clone(), (e.ino, e.kind, content));
            if e.kind == Kind::Dir {
                subdirs += 1;
                work.push((full, e.node));
            }
        }
        assert_eq!(w.getattr(NodeId(dir)).unwrap().nlink, 2 + subdirs);
    }
    for (node, n) in names {
        let a = w.getattr(NodeId(node)).unwrap();
        assert!(
            a.kind == Kind::Dir || a.nlink == n,
            "{node} has {n} names, nlink {}",
            a.nlink
        );
    }
    seen
}

#[test]
fn every_commit_is_one_moment_and_nothing_gets_stuck() {
    let seed = rng::asked_seed().unwrap_or_else(rng::fresh_seed);
    println!("seed {seed}");
    let mut world = World::on_disk(CrashStorage::new(), base_dir::shared());
    let labels = run(&world, seed, rng::budget(4.0));
    assert!(!labels.is_empty());
    let arena = Arena {
        w: world.shared(),
        stop: AtomicBool::new(true),
        gate: RwLock::new(()),
    };
    let mut shown = BTreeMap::new();
    for label in labels.iter().rev().take(25) {
        verbs::rollback(world.w(), MAIN, &Target::Ref(label.clone())).unwrap();
        arena.check_pairs(label);
        shown.insert(label, contents(walk(world.w())));
    }
    let before = walk(world.w());
    drop(arena);
    world.kill().unwrap();
    assert!(walk(world.w()) == before, "the restart changed something");
    for (label, seen) in shown {
        verbs::rollback(world.w(), MAIN, &Target::Ref(label.clone())).unwrap();
        let now = contents(walk(world.w()));
        let differ = |p: &&Vec<u8>| seen.get(*p) != now.get(*p);
        let paths: Vec<_> = seen.keys().chain(now.keys()).filter(differ).collect();
        let told: Vec<_> = paths
            .iter()
            .take(4)
            .map(|p| {
                let short = |e: Option<&(Kind, Vec<u8>)>| {
                    e.map(|(k, c)| {
                        (
                            *k,
                            c.len(),
                            String::from_utf8_lossy(&c[..c.len().min(60)]).into_owned(),
                        )
                    })
                };
                format!(
                    "{}: {:?} -> {:?}",
                    String::from_utf8_lossy(p),
                    short(seen.get(*p)),
                    short(now.get(*p))
                )
            })
            .collect();
        assert!(
            paths.is_empty(),
            "{label} is another tree after the restart: {told:?}"
        );
    }
}

/// Without inode numbers, which a commit does not keep.
fn contents(seen: Seen) -> BTreeMap<Vec<u8>, (Kind, Vec<u8>)> {
    seen.into_iter().map(|(p, (_, k, c))| (p, (k, c))).collect()
}
