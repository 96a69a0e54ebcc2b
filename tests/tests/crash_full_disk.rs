//! The disk that holds the store is full: writers get ENOSPC, nothing that was answered is lost, going
//! back, deleting and stopping go on working, and with room again so does everything else.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use tests::env::Env;
use tests::skip::{Want, skip};
use tests::{mount, tree};

const DISK_BYTES: u64 = 256 << 20;
/// More than what is written later: storing it takes its space a second time until the journal is dropped.
const BALLAST_BYTES: usize = 160 << 20;
const BLOCK_BYTES: usize = 256 << 10;

/// An environment whose home lies on a small disk, together with ballast to be removed later.
fn on_small_disk(make: impl FnOnce(&Path) -> bool) -> Option<(Env, PathBuf)> {
    let mut env = Env::as_root()?;
    let disk = env.path("disk");
    if !make(&disk) {
        skip(Want::Machine, "the machine cannot mount such a file system");
        return None;
    }
    let ballast = disk.join("ballast");
    fs::write(&ballast, vec![1; BALLAST_BYTES]).unwrap();
    env.set_home(disk.join("home"));
    Some((env, ballast))
}

/// Blocks that no compression makes smaller, each with its number.
fn block(number: u64) -> Vec<u8> {
    tests::rng::Rng::new(number).bytes(BLOCK_BYTES)
}

/// Writes until the disk is full; gives how many blocks were answered.
fn fill(root: &Path) -> u64 {
    let mut number = 0;
    loop {
        let path = root.join(format!("block{number}"));
        let mut file = match fs::File::create(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::StorageFull => return number,
            Err(e) => panic!("create: {e}"),
        };
        match file.write_all(&block(number)) {
            Ok(()) => number += 1,
            Err(e) if e.kind() == ErrorKind::StorageFull => {
                drop(file);
                fs::remove_file(&path).unwrap();
                return number;
            }
            Err(e) => panic!("write: {e}"),
        }
        assert!(
            number * (BLOCK_BYTES as u64) < DISK_BYTES,
            "the disk is never full"
        );
    }
}

fn all_there(root: &Path, blocks: u64) {
    for number in 0..blocks {
        let found = fs::read(root.join(format!("block{number}"))).unwrap();
        assert!(found == block(number), "block {number}");
    }
}

/// A checkpoint on a full disk is made, or says why not and leaves all as it was.
fn checkpoint_or_reason(env: &Env, root: &Path) {
    let before = tree::identities(root);
    let log = env.workspace(&["log"]).ok();
    let told = env.workspace(&["checkpoint", "full"]);
    if told.status == 0 {
        told.id();
    } else {
        told.fails(1, "no space left");
        assert_eq!(env.workspace(&["log"]).ok(), log);
    }
    assert!(tree::identities(root) == before);
}

fn full_disk(env: &Env, ballast: &Path) {
    fs::write(env.project().join("file"), "of the base").unwrap();
    let root = env.start();
    env.imported();
    env.workspace(&["checkpoint", "empty"]).id();
    let blocks = fill(&root);
    assert!(blocks > 50, "only {blocks} blocks");
    all_there(&root, blocks);
    checkpoint_or_reason(env, &root);
    all_there(&root, blocks);
    env.workspace(&["rollback", "empty"]).id();
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
    // The state that it goes back to cannot be stored now, so its id may be pending.
    env.workspace(&["undo"]).ok();
    all_there(&root, blocks);
    fs::remove_file(root.join("block0")).unwrap();
    fs::rename(root.join("block1"), root.join("block0")).unwrap_or(());
    env.kill_daemon();
    env.workspace(&["log", "project"]).ok();
    assert!(fs::read(root.join("block2")).unwrap() == block(2));
    env.workspace(&["stop", "--no-checkpoint"]).ok();
    fs::remove_file(ballast).unwrap();
    env.workspace(&["start", "project"]).ok();
    assert!(fs::read(root.join("block2")).unwrap() == block(2));
    fs::write(root.join("more"), block(7)).unwrap();
    env.workspace(&["checkpoint", "room"]).id();
    env.workspace(&["rollback", "empty"]).id();
    env.workspace(&["rollback", "room"]).id();
    assert!(fs::read(root.join("more")).unwrap() == block(7));
    assert_eq!(env.status()["healthy"], true);
}

#[test]
fn full_tmpfs_costs_nothing_that_was_answered() {
    let make = |disk: &Path| {
        mount::memory(disk, DISK_BYTES);
        true
    };
    if let Some((env, ballast)) = on_small_disk(make) {
        full_disk(&env, &ballast);
    }
}

#[test]
fn full_ext4_costs_nothing_that_was_answered() {
    if let Some((env, ballast)) = on_small_disk(|disk| mount::ext4(disk, DISK_BYTES)) {
        full_disk(&env, &ballast);
    }
}
