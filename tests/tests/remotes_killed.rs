//! Pushes and fetches of which the daemon or the command ends in the middle: the remote is whole at each moment, and the
//! next one finishes.

#![allow(clippy::unwrap_used)]

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::Path;
use tests::env::Env;
use tests::machines::{
    MANY_BYTES, begin, files_in, first, full, head, json, many, other, root, rows, run, write,
};
use tests::wait;

#[test]
fn a_push_that_is_killed_is_finished_by_the_next() {
    let Some((a, remote)) = first() else { return };
    run(&a, &["push"]).ok();
    let packs = files_in(&remote.join("packs"));
    let refs = fs::read(remote.join("refs/project/main")).unwrap();
    let generation = fs::read(remote.join("head")).unwrap();
    many(&a, "large");
    // Whoever replaces a version waits for this lock: packs come, and nothing can name them.
    let lock = File::open(remote.join(".lock")).unwrap();
    lock.lock().unwrap();
    let child = begin(&a, &["push"]);
    wait::until("packs are put", || {
        files_in(&remote.join("packs")) > packs + 1
    });
    a.kill_daemon();
    drop(lock);
    let killed = a.finish(child, "push");
    assert_ne!(killed.status, 0, "{killed:?}");
    assert_eq!(refs, fs::read(remote.join("refs/project/main")).unwrap());
    assert_eq!(generation, fs::read(remote.join("head")).unwrap());
    let reader = other(&remote);
    assert!(!reader.mountpoint().join("large").exists());

    assert_eq!(rows(run(&a, &["push"])), ["pushed origin/main"]);
    run(&reader, &["pull"]).id();
    assert_eq!((head(&a), root(&a)), (head(&reader), root(&reader)));
    run(&a, &["fsck"]).ok();
}

#[test]
fn a_push_that_waits_for_the_remote_stops_nobody_and_can_be_interrupted() {
    let Some((a, remote)) = first() else { return };
    run(&a, &["push"]).ok();
    let refs = fs::read(remote.join("refs/project/main")).unwrap();
    let packs = || files_in(&remote.join("packs"));
    let mut once = |round: u32| {
        let (name, before) = (format!("new-{round}"), packs());
        write(&a, &name, &name);
        let lock = File::open(remote.join(".lock")).unwrap();
        lock.lock().unwrap();
        let child = begin(&a, &["push"]);
        wait::until("a pack is put", || packs() > before);
        // It waits for the lock, and holds nothing that these need.
        write(&a, "beside", &name);
        run(&a, &["kv", "set", "key", "1"]).ok();
        run(&a, &["checkpoint", &format!("beside-{round}")]).id();
        run(&a, &["branch", "create", &format!("b{round}")]).ok();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        drop(lock);
        let told = a.finish(child, "an interrupted push");
        if told.status == 0 {
            // The interrupt came too late.
            return false;
        }
        assert_eq!((told.status, told.out.as_str()), (130, ""), "{told:?}");
        assert!(told.err.contains("no branch was changed"), "{told:?}");
        true
    };
    assert!((0..20).any(&mut once), "nothing was interrupted");
    let last = head(&a);
    let pushed = json(&a, &["push"]);
    assert_eq!(pushed["branches"][0]["commit"], last);
    assert_ne!(refs, fs::read(remote.join("refs/project/main")).unwrap());
    let b = other(&remote);
    assert_eq!(root(&a), root(&b));
}

#[test]
fn a_fetch_that_is_killed_is_finished_by_the_next() {
    let Some((a, remote)) = first() else { return };
    run(&a, &["push"]).ok();
    let b = full(&remote);
    many(&a, "large");
    run(&a, &["push"]).ok();
    let before = run(&b, &["log", "--branch", "origin/main"]).ok();
    let stored = || {
        let files = fs::read_dir(b.home().join("packs")).unwrap();
        let len = |file: std::io::Result<fs::DirEntry>| file.unwrap().metadata().unwrap().len();
        files.map(len).sum::<u64>()
    };
    let small = stored();
    let child = begin(&b, &["fetch"]);
    wait::until("bytes come", || stored() > small + (1 << 20));
    b.kill_daemon();
    let killed = b.finish(child, "fetch");
    assert_ne!(killed.status, 0, "{killed:?}");
    run(&b, &["fsck"]).ok();
    assert_eq!(before, run(&b, &["log", "--branch", "origin/main"]).ok());

    // What came is here already.
    let again = json(&b, &["fetch"]);
    assert!(
        again["bytes"].as_u64().unwrap() < MANY_BYTES as u64,
        "{again}"
    );
    run(&b, &["pull"]).id();
    assert_eq!((head(&a), root(&a)), (head(&b), root(&b)));
    run(&b, &["fsck"]).ok();
}

/// A clone whose daemon is killed once the workspace is there and its remote is not; `None` where that was missed.
fn cut_off(remote: &Path, options: &[&str]) -> Option<Env> {
    let b = Env::new().unwrap();
    let url = remote.to_str().unwrap();
    let mut child = begin(&b, &[&["clone", url, "project"], options].concat());
    let refs = b.home().join("refs");
    // The remotes of a workspace that was before are removed ahead of this. The next to come reads them.
    let dir = b.home().join("workspaces/project");
    while !dir.exists() && child.try_wait().unwrap().is_none() {
        std::hint::spin_loop();
    }
    fs::create_dir_all(refs.join("remotes")).unwrap();
    let fifo = refs.join("remotes/project.ref");
    let made = mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0);
    // Who reads it waits until something is written; who may not wait can open it once there is a reader.
    let mut held = None;
    if made.is_ok() {
        wait::until("the remotes are read", || {
            held = open(&fifo, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).ok();
            held.is_some() || child.try_wait().unwrap().is_some()
        });
    }
    b.kill_daemon();
    let told = b.finish(child, "clone");
    held?;
    assert_ne!(told.status, 0, "{told:?}");
    fs::remove_file(&fifo).unwrap();
    let is_made = refs.join("workspaces/project.ref").exists();
    is_made.then_some(b)
}

#[test]
fn a_clone_that_is_killed_before_its_remote_is_written_is_deleted_and_made_again() {
    let Some((a, remote)) = first() else { return };
    run(&a, &["push"]).ok();
    let of_project = ["-w", "project"];
    for options in [&[][..], &["--full"]] {
        let mut tries = (0..20).filter_map(|_| cut_off(&remote, options));
        let b = tries
            .next()
            .unwrap_or_else(|| panic!("no clone was killed at that moment"));
        let is_lazy = options.is_empty();
        run(&b, &["fsck"]).ok();
        let remotes = run(&b, &[&["remote", "list"][..], &of_project].concat()).ok();
        assert_eq!(remotes, "");
        let url = remote.to_str().unwrap();
        let clone = [&["clone", url, "project"], options].concat();
        let again = run(&b, &clone);
        let way_out = match is_lazy {
            true => "hint: agentvfs delete project",
            false => "hint: use another name",
        };
        assert!(again.err.contains(way_out), "{again:?}");
        again.fails(1, "workspace project already exists");

        run(&b, &["start", "project"]).ok();
        // All is there, or status says why not.
        let read = fs::read(b.mountpoint().join("both"));
        let why = b.status()["lazy"]["why"].as_str().map(str::to_owned);
        assert_eq!(read.is_err(), is_lazy, "{read:?}");
        let why = why.unwrap_or_default();
        assert_eq!(why.contains("the clone was cut off"), is_lazy, "{why}");
        run(&b, &["gc"]).ok();
        run(&b, &["stop", "project"]).ok();

        run(&b, &["delete", "project", "--yes"]).ok();
        run(&b, &clone).ok();
        assert_eq!((head(&a), root(&a)), (head(&b), root(&b)));
        run(&b, &["push"]).ok();
        run(&b, &["fsck"]).ok();
    }
}
