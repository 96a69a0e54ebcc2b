//! Histories with many merges, made of real files: done on two machines through a remote they come out as in one home.
//!
//! One machine works on `main`, the other, whose clone is lazy, on `other`; each pushes now and then, and merges what it
//! fetched last, so histories cross. Times of files are the machines' own and not compared.
//!
//! `REMOTE_WORLDS` sets the number of histories, `AGENTVFS_SEED` the first seed. A failure names its seed.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../engine/tests/merging/mod.rs"]
mod merging;

use merging::rng::Rng;
use merging::tree::{Leaf, Tree, What, file_meta};
use merging::{history, rounds};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tests::env::{Env, Told};
use tests::machines::{json, run, verified};

/// Steps of a history.
const STEPS: usize = 24;

/// The branches of the two machines, in one home as well.
const BRANCHES: [&str; 2] = ["main", "other"];

/// What a machine fetched last of the other, where there is one home: names have no `/` there.
const FETCHED: [&str; 2] = ["origin_main", "origin_other"];

/// A branch and where it is seen.
struct Line {
    env: usize,
    dir: PathBuf,
    branch: &'static str,
}

/// Two machines (0 and 1) and one home (2) with the same history.
struct World<'a> {
    envs: &'a [Env; 3],
    apart: [Line; 2],
    alone: [Line; 2],
    /// The heads in one home at the last push of each.
    pushed: [Option<String>; 2],
    merges: [usize; 2],
}

impl World<'_> {
    fn run(&self, line: &Line, args: &[&str]) -> Told {
        let args: Vec<&str> = args.iter().copied().chain(["-w", "project"]).collect();
        run(&self.envs[line.env], &args)
    }

    fn step(&mut self, rng: &mut Rng, texts: &[Vec<u8>]) {
        let which = rng.below(2) as usize;
        match rng.below(7) {
            0..3 => self.work(which, rng, texts),
            3 => self.push(which),
            4 => self.fetch(which),
            _ => self.merge(which, rng),
        }
    }

    fn work(&self, which: usize, rng: &mut Rng, texts: &[Vec<u8>]) {
        let before = read(&self.alone[which].dir);
        let mut tree = before.clone();
        history::work(rng, &mut tree, texts);
        for line in [&self.alone[which], &self.apart[which]] {
            write(&line.dir, &before, &tree);
            self.run(line, &["checkpoint", "--branch", line.branch])
                .id();
        }
        self.same(which);
    }

    fn push(&mut self, which: usize) {
        let (apart, alone) = (&self.apart[which], &self.alone[which]);
        self.run(apart, &["push", "--branch", apart.branch]).ok();
        let head = self.run(alone, &["checkpoint", "--branch", alone.branch]);
        self.pushed[which] = Some(head.id());
    }

    /// Brings the other machine's branch, if it was pushed.
    fn fetch(&self, which: usize) {
        self.run(&self.apart[which], &["fetch"]).ok();
        let theirs = 1 - which;
        if let Some(commit) = &self.pushed[theirs] {
            let (line, name) = (&self.alone[which], FETCHED[theirs]);
            self.run(line, &["branch", "delete", name]);
            let from = format!("{}:{commit}", BRANCHES[theirs]);
            self.run(line, &["branch", "create", name, "--from", &from])
                .ok();
        }
    }

    /// Merges what was fetched last, and settles conflicts one way or the other.
    fn merge(&mut self, which: usize, rng: &mut Rng) {
        let theirs = 1 - which;
        let tracked = format!("origin/{}", BRANCHES[theirs]);
        let told = [
            (&self.apart[which], tracked.as_str()),
            (&self.alone[which], FETCHED[theirs]),
        ]
        .map(|(line, source)| {
            let into = ["--into", line.branch, "--conflicts", "keep", "--json"];
            let args = [&["branch", "merge", source][..], &into].concat();
            outcome(&self.run(line, &args))
        });
        assert_eq!(told[0], told[1]);
        self.same(which);
        let Some((_, _, conflicts)) = &told[0] else {
            return;
        };
        self.merges[usize::from(!conflicts.is_empty())] += 1;
        // Later merges see the same bytes.
        for line in [&self.apart[which], &self.alone[which]] {
            write(&line.dir, &Tree::default(), &read(&line.dir));
        }
        for path in conflicts.iter().map(|conflict| &conflict.1) {
            let how = *rng.pick(&["--ours", "--theirs", "--working"]);
            let told = [&self.apart[which], &self.alone[which]].map(|line| {
                let args = ["branch", "resolve", "--branch", line.branch, how, path];
                self.run(line, &args).status
            });
            assert_eq!(told[0], told[1], "{path} {how}");
            self.same(which);
        }
    }

    fn same(&self, which: usize) {
        let [apart, alone] = [&self.apart, &self.alone].map(|lines| read(&lines[which].dir));
        assert_eq!(
            apart.leaves.keys().collect::<Vec<_>>(),
            alone.leaves.keys().collect::<Vec<_>>()
        );
        for (path, leaf) in &apart.leaves {
            let other = &alone.leaves[path];
            let path = String::from_utf8_lossy(path);
            assert_eq!(leaf.meta.mode, other.meta.mode, "{path}");
            let lines = leaf.bytes().split(|byte| *byte == b'\n');
            for (here, there) in lines.zip(other.bytes().split(|byte| *byte == b'\n')) {
                let [here, there] = [here, there].map(String::from_utf8_lossy);
                assert_eq!(here, there, "{path}");
            }
            assert!(leaf == other, "{path} has another length");
        }
    }
}

/// Status of a merge, changed files, and kind and path of each conflict; nothing if there is no such branch.
type Outcome = Option<(String, u64, Vec<(String, String)>)>;

fn outcome(told: &Told) -> Outcome {
    let value: Value = serde_json::from_str(&told.out).unwrap_or_else(|_| panic!("{told:?}"));
    let text = |value: &Value| value.as_str().unwrap().replace("origin/", "origin_");
    let Some(status) = value.get("status") else {
        assert!(told.err.contains("no "), "{told:?}");
        return None;
    };
    let conflicts = value["conflicts"].as_array().unwrap().iter();
    let conflicts: Vec<_> = conflicts
        .map(|row| (text(&row["kind"]), text(&row["path"])))
        .collect();
    assert_eq!(told.status, i32::from(!conflicts.is_empty()), "{told:?}");
    Some((
        text(status),
        value["files_changed"].as_u64().unwrap_or(0),
        conflicts,
    ))
}

/// Files and links below a directory. Labels of conflict markers are those of one home.
fn read(dir: &Path) -> Tree {
    let mut tree = Tree::default();
    let mut dirs = vec![PathBuf::new()];
    while let Some(below) = dirs.pop() {
        for entry in fs::read_dir(dir.join(&below)).unwrap() {
            let entry = entry.unwrap();
            let path = below.join(entry.file_name());
            if path == Path::new(".agentvfs") {
                continue;
            }
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                dirs.push(path);
                continue;
            }
            let leaf = if kind.is_symlink() {
                Leaf::link(fs::read_link(entry.path()).unwrap().as_os_str().as_bytes())
            } else {
                let mut leaf = Leaf::file(unlabelled(&fs::read(entry.path()).unwrap()));
                leaf.meta = file_meta(entry.metadata().unwrap().permissions().mode() & 0o100 != 0);
                leaf
            };
            tree.put(path.as_os_str().as_bytes(), leaf);
        }
    }
    tree
}

/// With the labels of one home in lines that mark conflicts, and without the base's id.
fn unlabelled(bytes: &[u8]) -> Vec<u8> {
    let lines = bytes.split(|byte| *byte == b'\n').map(|line| {
        let base = line.strip_prefix(b"|||||||").map(|rest| {
            let at = rest.iter().position(|byte| *byte != b'|');
            rest.len() - at.unwrap_or(0)
        });
        let mut line = line.to_vec();
        // A blank and the id's 12 digits, then perhaps the path.
        if let Some(length) = base.filter(|length| *length >= 13) {
            let at = line.len() - length;
            line[at..at + 13].fill(b'-');
        }
        for (there, here) in [
            ("origin/main", "origin_main"),
            ("origin/other", "origin_other"),
        ] {
            let mut windows = line.windows(there.len());
            if let Some(at) = windows.position(|found| found == there.as_bytes()) {
                line[at..at + here.len()].copy_from_slice(here.as_bytes());
            }
        }
        line
    });
    lines.collect::<Vec<_>>().join(&b'\n')
}

/// Makes a directory that has `before` have `after`.
fn write(dir: &Path, before: &Tree, after: &Tree) {
    let place = |path: &Vec<u8>| dir.join(std::ffi::OsStr::from_bytes(path));
    let stays = |path: &Vec<u8>, leaf: &Leaf| after.leaves.get(path) == Some(leaf);
    for (path, _) in before
        .leaves
        .iter()
        .filter(|(path, leaf)| !stays(path, leaf))
    {
        let place = place(path);
        fs::remove_file(&place).unwrap();
        // Directories that became empty go, too.
        let above = place.ancestors().skip(1).take_while(|above| *above != dir);
        for above in above {
            if fs::remove_dir(above).is_err() {
                break;
            }
        }
    }
    for (path, leaf) in &after.leaves {
        if before.leaves.get(path) == Some(leaf) {
            continue;
        }
        let place = place(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        match &leaf.what {
            What::Link(target) => {
                let _ = fs::remove_file(&place);
                symlink(std::ffi::OsStr::from_bytes(target), place).unwrap();
            }
            _ => {
                fs::write(&place, leaf.bytes()).unwrap();
                fs::set_permissions(&place, Permissions::from_mode(leaf.meta.mode & 0o777))
                    .unwrap();
            }
        }
    }
}

/// Where a branch of a running workspace is seen.
fn line(envs: &[Env; 3], env: usize, branch: &'static str) -> Line {
    let place = match branch {
        "main" => envs[env].mountpoint(),
        _ => {
            let made = json(&envs[env], &["branch", "create", branch, "-w", "project"]);
            PathBuf::from(made["path"].as_str().unwrap())
        }
    };
    Line {
        env,
        dir: place,
        branch,
    }
}

fn play(seed: u64, texts: &[Vec<u8>]) -> Option<[usize; 2]> {
    let mut rng = Rng(seed);
    let envs = [Env::new()?, Env::new()?, Env::new()?];
    let start = history::project(&mut rng, texts);
    for env in [0, 2] {
        write(&envs[env].project(), &Tree::default(), &start);
        envs[env].start();
        envs[env].imported();
    }
    let remote = envs[0].path("remote");
    let remote = remote.to_str().unwrap();
    run(&envs[0], &["remote", "add", "origin", remote]).ok();
    run(&envs[0], &["push"]).ok();
    run(&envs[1], &["clone", remote, "project"]).ok();
    let mut world = World {
        envs: &envs,
        apart: [line(&envs, 0, "main"), line(&envs, 1, "other")],
        alone: [line(&envs, 2, "main"), line(&envs, 2, "other")],
        pushed: [None, None],
        merges: [0, 0],
    };
    world.push(0);
    world.fetch(1);
    world.same(0);
    world.same(1);
    for _ in 0..STEPS {
        world.step(&mut rng, texts);
    }
    // In the end both have everything.
    for which in [0, 1, 0] {
        world.push(1 - which);
        world.fetch(which);
        world.merge(which, &mut rng);
    }
    for env in &envs {
        verified(env);
        run(env, &["fsck"]).ok();
    }
    Some(world.merges)
}

#[test]
fn histories_of_two_machines_come_out_as_in_one_home() {
    let texts = merging::real_texts();
    let first = merging::seed("AGENTVFS_SEED");
    let count = rounds("REMOTE_WORLDS", 1);
    let mut merges = [0, 0];
    for seed in first..first + count {
        println!("seed {seed}");
        let Some(made) = play(seed, &texts) else {
            return;
        };
        merges = [merges[0] + made[0], merges[1] + made[1]];
    }
    println!("{} merges without conflicts, {} with", merges[0], merges[1]);
    assert!(merges[0] + merges[1] >= count as usize, "{merges:?}");
}
