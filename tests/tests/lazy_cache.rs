//! The cache of lazy clones: what it drops, when it drops nothing, and that a gc that is killed leaves a whole workspace.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tests::env::Env;
use tests::machines::{Away, begin, first, json, noise, other, root, run, write};
use tests::tree;

/// Bytes of the large file.
const LARGE: usize = 24 << 20;

/// A machine that has pushed some directories and a large file.
fn pushed() -> Option<(Env, PathBuf)> {
    let (a, remote) = first()?;
    for dir in 0..8 {
        let at = a.mountpoint().join(format!("d{dir}"));
        fs::create_dir_all(&at).unwrap();
        for file in 0..10 {
            let name = format!("d{dir}f{file}");
            fs::write(at.join(format!("f{file}")), noise(&name, 30_000)).unwrap();
        }
    }
    fs::write(a.mountpoint().join("large"), noise("large", LARGE)).unwrap();
    run(&a, &["push"]).ok();
    Some((a, remote))
}

/// Another machine that has read everything.
fn full(a: &Env, remote: &Path) -> Env {
    let b = other(remote);
    tree::same(
        "all",
        &tree::of(&a.mountpoint()),
        &tree::of(&b.mountpoint()),
    );
    b
}

fn gc(env: &Env) -> serde_json::Value {
    json(env, &["gc", "--grace", "0s"])
}

fn number(value: &serde_json::Value, key: &str) -> u64 {
    value[key].as_u64().unwrap()
}

/// Has the kernel drop what it keeps, by another daemon.
fn forget(env: &Env) {
    run(env, &["stop", "project"]).ok();
    run(env, &["start", "project"]).ok();
}

#[test]
fn what_is_beyond_the_cache_goes_and_is_fetched_again() {
    let Some((a, remote)) = pushed() else { return };
    let b = full(&a, &remote);
    assert_eq!(run(&b, &["config", "cache"]).ok(), "cache=20G\n");
    assert_eq!(number(&gc(&b), "dropped_bytes"), 0);
    run(&b, &["config", "cache=5M"]).ok();
    let planned = json(&b, &["gc", "--grace", "0s", "--dry-run"]);
    let done = gc(&b);
    assert_eq!(planned["dropped_bytes"], done["dropped_bytes"]);
    assert!(number(&done, "dropped_bytes") > 18 << 20, "{done}");
    assert!(number(&done, "cache_bytes") <= 5 << 20, "{done}");
    assert!(number(&done, "freed_bytes") > 18 << 20, "{done}");
    let again = gc(&b);
    assert_eq!(number(&again, "dropped_bytes"), 0, "{again}");
    run(&b, &["fsck"]).ok();
    run(&b, &["config", "cache=0"]).ok();
    assert!(number(&gc(&b), "dropped_bytes") > 3 << 20);
    forget(&b);
    {
        let _away = Away::take(&remote);
        // The directories are here.
        assert_eq!(fs::read_dir(b.mountpoint().join("d3")).unwrap().count(), 10);
        assert!(fs::read(b.mountpoint().join("large")).is_err());
        write(&b, "own", "own\n");
        run(&b, &["checkpoint", "offline"]).id();
    }
    fs::remove_file(b.mountpoint().join("own")).unwrap();
    assert_eq!(root(&a), root(&b));
    run(&b, &["fsck"]).ok();
}

#[test]
fn status_counts_what_is_only_in_the_remote() {
    let Some((a, remote)) = pushed() else { return };
    let b = other(&remote);
    assert!(run(&b, &["status"]).ok().contains("\nremote_only_bytes="));
    fs::read(b.mountpoint().join("d1/f1")).unwrap();
    let lazy = b.status()["lazy"].clone();
    assert!(number(&lazy, "remote_only_bytes") > 20 << 20, "{lazy}");
    let found = json(&b, &["fsck"]);
    // What only objects refer to that are not here is not counted there.
    let here = number(&found, "remote_only_objects");
    assert!(
        (1..=number(&lazy, "remote_only_objects")).contains(&here),
        "{found} {lazy}"
    );
    tree::same(
        "all",
        &tree::of(&a.mountpoint()),
        &tree::of(&b.mountpoint()),
    );
    let lazy = b.status()["lazy"].clone();
    assert_eq!(number(&lazy, "remote_only_objects"), 0, "{lazy}");
    run(&b, &["config", "cache=0"]).ok();
    let dropped = number(&gc(&b), "dropped_bytes");
    let lazy = b.status()["lazy"].clone();
    let away = number(&lazy, "remote_only_bytes");
    assert!(away.abs_diff(dropped) < 1 << 20, "{away} {dropped}");
    let found = json(&b, &["fsck"]);
    assert_eq!(found["remote_only_objects"], lazy["remote_only_objects"]);
    assert_eq!(found["remote_only_bytes"], lazy["remote_only_bytes"]);
    let _away = Away::take(&remote);
    let told = run(&b, &["fsck"]);
    assert!(told.err.contains("not checked: remote origin"), "{told:?}");
    assert_eq!(told.status, 0);
}

/// What the remote has lost is damage, of fsck and gc.
#[test]
fn what_the_remote_has_lost_is_named() {
    let Some((_a, remote)) = pushed() else { return };
    let b = other(&remote);
    fs::read(b.mountpoint().join("d1/f1")).unwrap();
    run(&b, &["fsck"]).ok();
    // Somebody makes another remote in its place.
    fs::remove_dir_all(&remote).unwrap();
    let c = Env::new().unwrap();
    fs::create_dir_all(c.project()).unwrap();
    fs::write(c.project().join("other"), "other\n").unwrap();
    c.start();
    c.imported();
    run(&c, &["remote", "add", "origin", remote.to_str().unwrap()]).ok();
    run(&c, &["push"]).ok();
    forget(&b);
    let told = run(&b, &["fsck"]);
    assert_eq!(told.status, 1, "{told:?}");
    assert!(told.out.contains("its remote does not have it"), "{told:?}");
    run(&b, &["gc"]).fails(1, "is not in the store");
}

#[test]
fn without_the_remote_nothing_goes_and_it_is_said_why() {
    let Some((a, remote)) = pushed() else { return };
    let b = full(&a, &remote);
    run(&b, &["config", "cache=0"]).ok();
    // A daemon that has not opened the remote yet.
    forget(&b);
    {
        let _away = Away::take(&remote);
        let done = gc(&b);
        assert_eq!(number(&done, "dropped_bytes"), 0, "{done}");
        let why = done["unasked"].as_str().unwrap();
        assert!(why.contains("remote origin of workspace project"), "{why}");
        let told = run(&b, &["gc", "--grace", "0s"]);
        assert!(told.ok().contains("unasked=remote origin"));
        forget(&b);
        assert_eq!(
            fs::read(b.mountpoint().join("large")).unwrap(),
            noise("large", LARGE)
        );
    }
    let done = gc(&b);
    assert!(number(&done, "dropped_bytes") > 20 << 20, "{done}");
    assert_eq!(done["unasked"], serde_json::Value::Null);
}

#[test]
fn what_programs_have_open_and_what_was_not_pushed_stays() {
    let Some((a, remote)) = pushed() else { return };
    let b = full(&a, &remote);
    run(&b, &["config", "cache=0"]).ok();
    write(&b, "d1/own", "not pushed\n");
    run(&b, &["checkpoint", "own"]).id();
    forget(&b);
    let held = File::open(b.mountpoint().join("d1/f1")).unwrap();
    // Another machine goes on: the remote is ahead of what is known here.
    for n in 0..3 {
        write(&a, "d1/f2", &format!("{n}\n"));
        run(&a, &["checkpoint", "ahead"]).id();
    }
    run(&a, &["push"]).ok();
    let done = gc(&b);
    assert!(number(&done, "dropped_bytes") > 20 << 20, "{done}");
    let _away = Away::take(&remote);
    let mut bytes = vec![0; 30_000];
    held.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == noise("d1f1", 30_000));
    assert!(fs::read(b.mountpoint().join("d1/f3")).is_err());
    let own = fs::read_to_string(b.mountpoint().join("d1/own")).unwrap();
    assert_eq!(own, "not pushed\n");
}

#[test]
fn a_gc_that_is_killed_leaves_a_whole_workspace() {
    let Some((a, remote)) = pushed() else { return };
    let b = full(&a, &remote);
    let wanted = tree::of(&a.mountpoint());
    run(&b, &["config", "cache=0"]).ok();
    let mut dropped = 0;
    for round in 0..12 {
        // As long as a run takes, in twelfths.
        let since = Instant::now();
        let mut running = begin(&b, &["gc", "--grace", "0s"]);
        let after = Duration::from_millis(round * 12);
        while since.elapsed() < after && running.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        b.kill_daemon();
        running.wait().unwrap();
        run(&b, &["start", "project"]).ok();
        run(&b, &["fsck"]).ok();
        let before = b.status()["lazy"]["bytes"].as_u64().unwrap();
        tree::same("all", &wanted, &tree::of(&b.mountpoint()));
        dropped += b.status()["lazy"]["bytes"].as_u64().unwrap() - before;
    }
    assert!(dropped > 20 << 20, "no run came far: {dropped}");
}
