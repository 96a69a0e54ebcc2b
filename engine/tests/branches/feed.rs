//! The feed of a workspace: its events, carried out in order on the first tree, give the last one, whatever is done;
//! and who asked is told with each.
//!
//! `ENGINE_MODEL_SECONDS` sets how long random operations run, `ENGINE_MODEL_SEED` runs one seed alone.
#![allow(clippy::unwrap_used)]

use crate::common::by_path::{mkdir, write};
use crate::common::model::Tree;
use crate::common::op::Op;
use crate::common::runner::{self, Runner};
use crate::common::world::{MAIN, World};
use crate::common::{base_dir, rng};
use engine::feed::{FeedBackend, FeedOp, FeedWho, Follower, Lost, Told};
use engine::{Asking, CallStart, CheckpointRequest, Kind, Owner, Target, acting_for, verbs};
use objstore::crash_storage::CrashStorage;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Operations of one sequence.
const STEPS: usize = 120;

/// What a test asks of an event, after the batch that it came in is gone.
#[derive(Debug)]
struct Seen {
    op: FeedOp,
    branch: String,
    path: Vec<u8>,
    path2: Vec<u8>,
    detail: String,
    who: FeedWho,
    call: Option<u64>,
    ino: u64,
    count: u64,
    time_ns: u64,
    latency_ns: u64,
}

impl From<Told<'_>> for Seen {
    fn from(told: Told<'_>) -> Seen {
        Seen {
            op: told.op,
            branch: told.branch.to_owned(),
            path: told.path.to_vec(),
            path2: told.path2.to_vec(),
            detail: told.detail.to_string(),
            who: told.who.clone(),
            call: told.call,
            ino: told.ino,
            count: told.count,
            time_ns: told.time_ns,
            latency_ns: told.latency_ns,
        }
    }
}

/// Names with the inode that each stands for, and the lengths of files.
#[derive(Default)]
struct Mirror {
    names: BTreeMap<Vec<u8>, u64>,
    inodes: BTreeMap<u64, (Kind, u64)>,
    next: u64,
}

fn key_of(detail: &str, key: &str) -> Option<u64> {
    let mut words = detail.split(' ');
    words.find_map(|word| word.strip_prefix(key)?.parse().ok())
}

impl Mirror {
    fn of(tree: &Tree) -> Mirror {
        let mut mirror = Mirror {
            next: 1 << 40,
            ..Mirror::default()
        };
        for (path, n) in tree.paths() {
            let node = tree.get(n).unwrap();
            let size = node.file().map_or(0, |content| content.len());
            mirror.inodes.insert(n, (node.kind, size));
            mirror.names.insert(path, n);
        }
        mirror
    }

    /// What a tree shows: kind and length of each name.
    fn shown(&self) -> BTreeMap<Vec<u8>, (Kind, u64)> {
        let shown = |(path, n): (&Vec<u8>, &u64)| (path.clone(), self.inodes[n]);
        self.names.iter().map(shown).collect()
    }

    fn new_inode(&mut self, kind: Kind) -> u64 {
        self.next += 1;
        self.inodes.insert(self.next, (kind, 0));
        self.next
    }

    /// Everything at a path and below it moves.
    fn take(&mut self, path: &[u8]) -> Vec<(Vec<u8>, u64)> {
        let is_in =
            |p: &[u8]| p == path || (p.starts_with(path) && p.get(path.len()) == Some(&b'/'));
        let all: Vec<Vec<u8>> = self.names.keys().filter(|p| is_in(p)).cloned().collect();
        let taken = all.into_iter().map(|p| {
            let n = self.names.remove(&p).unwrap();
            (p[path.len()..].to_vec(), n)
        });
        taken.collect()
    }

    fn put(&mut self, path: &[u8], all: Vec<(Vec<u8>, u64)>) {
        for (rest, n) in all {
            self.names.insert([path, &rest].concat(), n);
        }
    }

    fn carry_out(&mut self, event: &Seen) -> Result<(), String> {
        let unknown = || format!("of what is not known: {event:?}");
        let (path, path2) = (&event.path, &event.path2);
        let detail = &event.detail[..];
        match event.op {
            FeedOp::Create if detail == "nameless file" => {}
            FeedOp::Create | FeedOp::Symlink => {
                let kind = match (event.op, detail) {
                    (FeedOp::Symlink, _) => Kind::Symlink,
                    (_, "directory") => Kind::Dir,
                    (_, "file") => Kind::File,
                    _ => Kind::Fifo,
                };
                let n = self.new_inode(kind);
                self.names.insert(path.clone(), n);
            }
            FeedOp::Link => {
                let n = match self.names.get(path2) {
                    // It had no name before; the root, which has this path, cannot get one.
                    _ if path2.is_empty() => self.new_inode(Kind::File),
                    Some(n) => *n,
                    None => return Err(unknown()),
                };
                let size = key_of(detail, "size=");
                self.inodes.get_mut(&n).unwrap().1 = size.unwrap_or_default();
                self.names.insert(path.clone(), n);
            }
            FeedOp::Unlink | FeedOp::Rmdir => {
                let n = self.names.remove(path).ok_or_else(unknown)?;
                let is_dir = self.inodes[&n].0 == Kind::Dir;
                assert_eq!(is_dir, event.op == FeedOp::Rmdir, "{event:?}");
            }
            FeedOp::Rename => {
                let (from, to) = (self.take(path), self.take(path2));
                self.put(path2, from);
                match detail {
                    "exchange" => self.put(path, to),
                    "whiteout" => {
                        let n = self.new_inode(Kind::Char);
                        self.names.insert(path.clone(), n);
                    }
                    _ => {}
                }
            }
            // Files without a name are not in the tree.
            FeedOp::Write | FeedOp::Truncate if path.is_empty() => {}
            FeedOp::Write | FeedOp::Truncate => {
                let size = key_of(detail, "size=").ok_or_else(unknown)?;
                let n = self.names.get(path).ok_or_else(unknown)?;
                self.inodes.insert(*n, (Kind::File, size));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Runs a sequence, and carries out after each operation what the feed told of it.
fn run(ops: &[Op]) -> Result<(), String> {
    let base = base_dir::shared();
    let world = World::on_disk(CrashStorage::new(), base);
    let mut r = Runner::new(world, &base_dir::tree_of(base))?;
    let mut mirror = Mirror::of(&r.live);
    let mut follower = r.world.w().feed().follow(None);
    for (i, op) in ops.iter().enumerate() {
        let failed = |e: String| format!("step {i}, {op:?}: {e}");
        let feed = r.world.w().feed();
        if r.step(*op).is_err() {
            // What an operation does is for `model.rs` to judge: here it is whether the feed tells of it.
            return Ok(());
        }
        if !Arc::ptr_eq(&feed, &r.world.w().feed()) {
            // Another daemon's.
            follower = r.world.w().feed().follow(None);
            mirror = Mirror::of(&r.live);
            continue;
        }
        let told = all(&mut follower);
        let own: Vec<_> = told.iter().filter(|e| &*e.branch == MAIN).collect();
        if own.iter().any(|e| switches(e.op)) {
            mirror = Mirror::of(&r.live);
        } else {
            let done = own.iter().try_for_each(|event| mirror.carry_out(event));
            done.map_err(|e| failed(format!("{e}\ntold {told:?}")))?;
        }
        let want = Mirror::of(&r.live).shown();
        let have = with_special_kinds(mirror.shown(), &want);
        if have != want {
            return Err(failed(format!(
                "told {told:?}\nhave {have:?}\nwant {want:?}"
            )));
        }
    }
    Ok(())
}

/// An event says of a special file only that it is one.
fn with_special_kinds(
    have: BTreeMap<Vec<u8>, (Kind, u64)>,
    want: &BTreeMap<Vec<u8>, (Kind, u64)>,
) -> BTreeMap<Vec<u8>, (Kind, u64)> {
    let special = [Kind::Fifo, Kind::Socket, Kind::Char, Kind::Block];
    let of = |path: &Vec<u8>, kind: Kind| match want.get(path) {
        Some((wanted, _)) if special.contains(&kind) && special.contains(wanted) => *wanted,
        _ => kind,
    };
    let all = have.into_iter();
    all.map(|(path, (kind, size))| (path.clone(), (of(&path, kind), size)))
        .collect()
}

fn switches(op: FeedOp) -> bool {
    let all = [
        FeedOp::Rollback,
        FeedOp::Undo,
        FeedOp::Redo,
        FeedOp::Restore,
        FeedOp::Merge,
        FeedOp::Update,
        FeedOp::Conflict,
    ];
    all.contains(&op)
}

/// All events that there are.
fn all(follower: &mut Follower) -> Vec<Seen> {
    let mut all = Vec::new();
    loop {
        let batch = follower.next(1000, Duration::ZERO);
        assert_eq!(batch.lost, None::<Lost>);
        if batch.events.is_empty() {
            return all;
        }
        all.extend(batch.events.iter().map(Seen::from));
    }
}

#[test]
fn events_in_order_make_the_first_tree_the_last_one() {
    if let Some(seed) = rng::asked_seed() {
        return run(&runner::sequence(seed, STEPS)).unwrap();
    }
    let until = Instant::now() + rng::budget(6.0);
    let mut seed = rng::fresh_seed();
    while Instant::now() < until {
        let ran = run(&runner::sequence(seed, STEPS));
        assert_eq!(ran, Ok(()), "ENGINE_MODEL_SEED={seed}");
        seed += 1;
    }
}

fn world() -> World {
    let base = base_dir::shared();
    World::on_disk(CrashStorage::new(), base)
}

#[test]
fn an_event_says_who_asked_and_which_call_it_is_part_of() {
    let world = world();
    let w = world.w();
    let mut follower = w.feed().follow(None);
    let asking = Asking {
        thread: std::process::id(),
        uid: 12,
        gid: 34,
        since: Some(Instant::now()),
        backend: FeedBackend::Front,
        waits: false,
        comm: [0; 16],
    };
    acting_for(asking, || mkdir(w, MAIN, "new"));
    write(w, MAIN, "new/f", b"nobody asked");
    let start = CallStart {
        name: "edit".into(),
        parameters: None,
        owner: Owner::Anybody,
        unsynced: true,
        lineage: Vec::new(),
    };
    let call = verbs::call_start(w, MAIN, start).unwrap();
    write(w, MAIN, "new/g", b"in a call");
    let told = all(&mut follower);
    let first = &told[0];
    assert_eq!((first.op, &first.path[..]), (FeedOp::Create, &b"new"[..]));
    assert_eq!(
        (first.who.pid, first.who.uid, first.who.gid),
        (std::process::id(), 12, 34)
    );
    assert!(first.latency_ns > 0 && first.time_ns > 0 && first.ino > 0);
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(&*first.who.comm, comm.trim_end());
    let of = |path: &'static str| told.iter().filter(move |e| e.path == path.as_bytes());
    assert!(of("new/f").all(|e| e.who.pid == 0 && e.call.is_none()));
    assert!(of("new/g").all(|e| e.call == Some(call)));
    let words: Vec<&str> = of("").map(|e| e.op.word()).collect();
    assert_eq!(words, ["tool"]);
}

#[test]
fn a_switch_is_one_event_and_a_checkpoint_another() {
    let world = world();
    let w = world.w();
    let label = |label: &str| CheckpointRequest {
        label: Some(label.into()),
        ..CheckpointRequest::default()
    };
    verbs::checkpoint(w, MAIN, label("before"), &|_, _| {}).unwrap();
    let mut follower = w.feed().follow(None);
    for n in 0..20 {
        write(w, MAIN, &format!("f{n}"), b"x");
    }
    let target = Target::Ref("before".into());
    verbs::rollback(w, MAIN, &target).unwrap();
    verbs::checkpoint(w, MAIN, label("after"), &|_, _| {}).unwrap();
    let told = all(&mut follower);
    let rest: Vec<_> = told
        .iter()
        .skip(60)
        .map(|e| (e.op.word(), e.detail.clone()))
        .collect();
    let want = [("rollback", "names=20"), ("checkpoint", "label=after")];
    let want = want.map(|(op, detail)| (op, detail.to_owned()));
    assert_eq!(rest, want);
}

#[test]
fn a_merge_of_the_base_is_an_update_and_one_of_a_branch_is_none() {
    let base = tempfile::tempdir().unwrap();
    std::fs::write(base.path().join("a"), "of the base\n").unwrap();
    let world = World::on_disk(CrashStorage::new(), &base.path().canonicalize().unwrap());
    let w = world.w();
    w.settle().unwrap();
    let mut follower = w.feed().follow(None);
    let request = engine::UpdateRequest {
        branch: MAIN.into(),
        ..engine::UpdateRequest::default()
    };
    // The branch had no change of its own the first time: nothing has to be merged then.
    for (own, theirs) in [(None, "new"), (Some("own"), "newer")] {
        if let Some(path) = own {
            write(w, MAIN, path, b"x");
        }
        std::fs::write(base.path().join(theirs), "x").unwrap();
        verbs::update(w, &request, &|_, _| ()).unwrap();
    }
    verbs::create_branch(w, "side", MAIN, None).unwrap();
    write(w, "side", "on the side", b"x");
    let merge = engine::MergeRequest {
        from: "side".into(),
        into: MAIN.into(),
        ..engine::MergeRequest::default()
    };
    verbs::merge_branch(w, &merge, &|_, _| ()).unwrap();
    let told = all(&mut follower);
    let words = told.iter().map(|e| e.op.word());
    let merges: Vec<&str> = words.filter(|w| ["update", "merge"].contains(w)).collect();
    assert_eq!(merges, ["update", "update", "merge"]);
}

#[test]
fn opens_and_reads_are_told_of_while_somebody_follows() {
    let world = world();
    let w = world.w();
    write(w, MAIN, "f", b"x");
    let node = w.lookup(engine::NodeId::ROOT, b"f", engine::types::Wait::Allowed);
    let node = node.unwrap().node;
    let how = engine::types::Opening {
        read: true,
        write: true,
        ..Default::default()
    };
    w.opens(node, how).unwrap();
    let mut follower = w.feed().follow(None);
    let asking = Asking {
        backend: FeedBackend::Fanotify,
        ..std::process::id().into()
    };
    acting_for(asking, || w.was_opened(node, how));
    w.was_read(node);
    // Whatever the kernel names that there is not: nothing is told.
    w.was_read(engine::NodeId(node.0 + 1000));
    w.was_read(engine::NodeId(u64::MAX));
    w.feed().tell_missing(FeedBackend::Fanotify, None);
    let told = all(&mut follower);
    let words = |e: &Seen| {
        let path = String::from_utf8_lossy(&e.path).into_owned();
        (e.op.word(), path, e.detail.clone(), e.who.pid)
    };
    let pid = std::process::id();
    let want = [
        ("open", "f", "read write", pid),
        ("read", "f", "", 0),
        ("lost", "", "", 0),
    ];
    let want = want.map(|(op, path, detail, pid)| (op, path.to_owned(), detail.to_owned(), pid));
    assert_eq!(told.iter().map(words).collect::<Vec<_>>(), want);
}

#[test]
fn what_a_program_did_is_told_of_the_file_or_of_its_branch() {
    let world = world();
    let w = world.w();
    write(w, MAIN, "f", b"x");
    verbs::create_branch(w, "side", MAIN, None).unwrap();
    let node = w.lookup(engine::NodeId::ROOT, b"f", engine::types::Wait::Allowed);
    let node = node.unwrap().node;
    let scene = w.scene("side").unwrap();
    assert!(scene.is(&w.scene("side").unwrap()) && !scene.is(&w.scene(MAIN).unwrap()));
    let did = |op, node, path: &str| {
        let deed = engine::Deed {
            op,
            node,
            path: path.as_bytes(),
            detail: "argv0=a",
        };
        let asking = Asking {
            thread: u32::MAX,
            uid: 7,
            backend: FeedBackend::Ebpf,
            comm: *b"sixteen letters!",
            ..Asking::default()
        };
        acting_for(asking, || w.did(&scene, deed));
    };
    did(FeedOp::Exec, None, "/before");
    let mut follower = w.feed().follow(None);
    did(FeedOp::Exec, Some(node), "/project/f");
    did(FeedOp::Exec, None, "/bin/sh");
    // Whatever the kernel names that there is not.
    did(FeedOp::Connect, Some(engine::NodeId(u64::MAX)), "");
    w.feed().tell_missing(FeedBackend::Ebpf, Some(3));
    let told = all(&mut follower);
    let words = |e: &Seen| {
        let path = String::from_utf8_lossy(&e.path).into_owned();
        (e.op.word(), path, e.branch.to_string(), e.count)
    };
    let want = [
        ("exec", "f", MAIN, 0),
        ("exec", "/bin/sh", "side", 0),
        ("connect", "", "side", 0),
        ("lost", "", "", 3),
    ];
    let want = want.map(|(op, path, branch, n)| (op, path.to_owned(), branch.to_owned(), n));
    assert_eq!(told.iter().map(words).collect::<Vec<_>>(), want);
    let who = &told[1].who;
    assert_eq!(
        (who.pid, who.uid, &*who.comm),
        (u32::MAX, 7, "sixteen letters!")
    );
}
