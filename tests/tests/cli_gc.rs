//! Space comes back to the disk: gc through the real binary, beside work and killed at random moments.

#![allow(clippy::unwrap_used)]

use rustix::fs::{FallocateFlags, fallocate};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use tests::env::{Env, Told};
use tests::rng::{self, Rng};
use tests::skip::{Want, skip};
use tests::tree;

fn agentvfs(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

fn gc(env: &Env, args: &[&str]) -> Value {
    let args: Vec<&str> = ["gc", "--json"].iter().chain(args).copied().collect();
    serde_json::from_str(&agentvfs(env, &args).ok()).unwrap()
}

/// Bytes that do not compress.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    Rng::new(seed).bytes(len)
}

fn pack_bytes(env: &Env) -> u64 {
    let packs = fs::read_dir(env.home().join("packs")).unwrap();
    packs.map(|p| p.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn a_deleted_workspace_gives_its_space_back_and_the_others_stay() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("kept"), noise(1, 2 << 20)).unwrap();
    let mount = env.start();
    env.imported();
    let before = tree::of(&mount);
    let other = env.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("big"), noise(2, 12 << 20)).unwrap();
    env.workspace(&["start", "--from", "other"]).ok();
    env.workspace(&["stop", "other"]).ok();
    let full = pack_bytes(&env);
    env.workspace(&["delete", "other", "--yes"]).ok();
    let young = gc(&env, &[]);
    assert_eq!(young["freed_bytes"], 0, "the grace period: {young}");
    let dry = gc(&env, &["--grace", "0s", "--dry-run"]);
    assert!(dry["freed_bytes"].as_u64().unwrap() > 11 << 20, "{dry}");
    assert!(pack_bytes(&env) >= full);
    let done = gc(&env, &["--grace", "0s"]);
    assert!(done["freed_bytes"].as_u64().unwrap() > 11 << 20, "{done}");
    assert!(pack_bytes(&env) < full - (11 << 20));
    assert_eq!(tree::of(&mount), before);
    env.kill_daemon();
    env.workspace(&["checkpoint", "project", "after"]).id();
    assert_eq!(tree::of(&mount), before);
    let told = agentvfs(&env, &["gc", "--grace", "soon"]);
    told.fails(2, "not a duration");
    env.workspace(&["stop", "project"]).ok();
}

/// Bytes that the packs and their indexes take on the disk.
fn pack_blocks(env: &Env) -> u64 {
    let packs = fs::read_dir(env.home().join("packs")).unwrap();
    packs
        .map(|p| p.unwrap().metadata().unwrap().blocks() * 512)
        .sum()
}

fn punches(env: &Env) -> bool {
    let path = env.path("probe");
    fs::write(&path, [1; 8192]).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, flags, 0, 4096).is_ok()
}

/// Nothing is copied for a tenth of a pack; its space comes back all the same.
#[test]
fn what_a_pack_holds_of_a_deleted_workspace_is_punched() {
    let Some(env) = Env::new() else { return };
    if !punches(&env) {
        skip(Want::Machine, "this file system punches no holes");
        return;
    }
    fs::write(env.project().join("kept"), noise(1, 36 << 20)).unwrap();
    let mount = env.start();
    env.imported();
    let before = tree::of(&mount);
    let other = env.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("big"), noise(2, 4 << 20)).unwrap();
    env.workspace(&["start", "--from", "other"]).ok();
    env.workspace(&["stop", "other"]).ok();
    env.workspace(&["delete", "other", "--yes"]).ok();
    gc(&env, &["--dry-run"]);
    let (len, full) = (pack_bytes(&env), pack_blocks(&env));
    let dry = gc(&env, &["--grace", "0s", "--dry-run"]);
    let done = gc(&env, &["--grace", "0s"]);
    let given = full - pack_blocks(&env);
    assert!(given > 7 << 19, "{given} {done}");
    let freed = done["freed_bytes"].as_u64().unwrap();
    assert!(freed.abs_diff(given) < 64 << 10, "{given} {done}");
    assert_eq!(
        (&done["copied_bytes"], &done["packs"]),
        (&0.into(), &0.into())
    );
    assert_eq!(
        (&dry["freed_bytes"], &dry["objects"]),
        (&done["freed_bytes"], &done["objects"])
    );
    assert!(
        len - pack_bytes(&env) < 64 << 10,
        "the pack is as long as before"
    );
    let again = gc(&env, &["--grace", "0s"]);
    assert_eq!(again["freed_bytes"], 0, "{again}");
    assert_eq!(tree::of(&mount), before);
    agentvfs(&env, &["fsck"]).ok();
    let stats: Value = serde_json::from_str(&agentvfs(&env, &["stats", "--json"]).ok()).unwrap();
    assert!(
        stats["unneeded_bytes"].as_u64().unwrap() < 1 << 20,
        "{stats}"
    );
    env.workspace(&["stop", "project"]).ok();
    env.kill_daemon();
    for entry in fs::read_dir(env.home().join("packs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "idx") {
            fs::remove_file(path).unwrap();
        }
    }
    // All indexes are made anew, and what went is stored again.
    env.workspace(&["start", "--from", "other"]).ok();
    env.workspace(&["stop", "other"]).ok();
    fs::remove_file(other.join("big")).unwrap();
    agentvfs(&env, &["fsck"]).ok();
    assert!(pack_bytes(&env) > len + (7 << 19));
    assert_eq!(env.start(), mount);
    assert_eq!(tree::of(&mount), before);
    env.workspace(&["stop", "project"]).ok();
}

/// Work, checkpoints, rollbacks, gc, and the daemon killed in between. `AGENTVFS_GC_KILLS` sets how often.
#[test]
fn a_kill_at_any_moment_of_gc_loses_nothing() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("base"), noise(9, 300_000)).unwrap();
    let kills = std::env::var("AGENTVFS_GC_KILLS").ok();
    let kills: u64 = kills.and_then(|n| n.parse().ok()).unwrap_or(6);
    let none = ["config", "keep-all=0s", "keep-hourly=0s", "keep-daily=0s"];
    agentvfs(&env, &none).ok();
    let mount = env.start();
    env.imported();
    let mut rng = Rng::new(rng::seed());
    let mut labelled = Vec::new();
    for round in 0..kills {
        for i in 0..6 {
            let len = 1000 + rng.below(400_000) as usize;
            fs::write(mount.join(format!("f{i}")), noise(round * 10 + i, len)).unwrap();
        }
        let label = format!("l{}", round % 3);
        env.workspace(&["checkpoint", "project", &label]).id();
        labelled.retain(|(l, _)| *l != label);
        labelled.push((label, tree::of(&mount)));
        fs::remove_file(mount.join("f0")).unwrap();
        fs::write(mount.join("f1"), noise(round + 1000, 200_000)).unwrap();
        let now = tree::of(&mount);
        let mut running = env.command(&env.path(""), &["gc", "--grace", "0s"]);
        let mut running = running
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(rng.below(60_000)));
        env.kill_daemon();
        running.wait().unwrap();
        env.workspace(&["log", "project"]).ok();
        assert_eq!(tree::of(&mount), now, "round {round}");
        for (label, tree) in &labelled {
            env.workspace(&["rollback", "project", label]).id();
            assert_eq!(tree::of(&mount), *tree, "round {round}, {label}");
        }
    }
    gc(&env, &["--grace", "0s"]);
    for (label, tree) in &labelled {
        env.workspace(&["rollback", "project", label]).id();
        assert_eq!(tree::of(&mount), *tree, "{label}");
    }
    env.workspace(&["stop", "project"]).ok();
}
