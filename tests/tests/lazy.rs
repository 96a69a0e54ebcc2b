//! Clones that fetch what is read when it is read: what they show without the rest, with and without their remote.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tests::env::Env;
use tests::machines::{Away, first, head, json, noise, other, root, rows, run, verified, write};
use tests::tree;

/// Requests after which a clone must be mounted.
const REQUESTS_MAX: u64 = 20;
/// How long a read may take that fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// A machine that has pushed a project with many directories, a large file and hard links.
fn pushed() -> Option<(Env, PathBuf)> {
    let (a, remote) = first()?;
    let mount = a.mountpoint();
    for dir in 0..40 {
        let at = mount.join(format!("d{dir:02}/in"));
        fs::create_dir_all(&at).unwrap();
        for file in 0..25 {
            let name = format!("d{dir}f{file}");
            fs::write(at.join(format!("f{file:02}")), noise(&name, 2000)).unwrap();
        }
    }
    fs::write(mount.join("large"), noise("large", 24 << 20)).unwrap();
    fs::hard_link(mount.join("d00/in/f00"), mount.join("d39/in/linked")).unwrap();
    run(&a, &["kv", "set", "plan", "\"first\""]).ok();
    run(&a, &["push"]).ok();
    Some((a, remote))
}

/// Reading fails with EIO, soon enough.
fn is_not_here(path: &Path) {
    let since = Instant::now();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    let error = read.err().unwrap();
    assert_eq!(error.raw_os_error(), Some(5), "{}: {error}", path.display());
    assert!(since.elapsed() < PATIENCE, "{:?}", since.elapsed());
}

fn lazy(env: &Env) -> serde_json::Value {
    env.status()["lazy"].clone()
}

fn failed(env: &Env) -> u64 {
    lazy(env)["failed"].as_u64().unwrap()
}

#[test]
fn a_clone_is_mounted_after_few_requests_and_is_what_was_pushed() {
    let Some((a, remote)) = pushed() else { return };
    let b = Env::new().unwrap();
    let made = json(&b, &["clone", remote.to_str().unwrap(), "project"]);
    assert!(made["requests"].as_u64() <= Some(REQUESTS_MAX), "{made}");
    assert!(made["bytes"].as_u64() < Some(4 << 20), "{made}");
    assert_eq!(head(&a), head(&b));
    assert!(run(&b, &["kv", "get", "plan"]).ok().contains("first"));
    verified(&b);
    let before = lazy(&b)["objects"].as_u64();
    assert_eq!(run(&b, &["diff"]).ok(), "");
    assert_eq!(lazy(&b)["objects"].as_u64(), before, "nothing was read");
    tree::same(
        "the clone",
        &tree::of(&a.mountpoint()),
        &tree::of(&b.mountpoint()),
    );
    assert_eq!(root(&a), root(&b));
    assert_eq!(failed(&b), 0);
}

#[test]
fn what_was_read_works_without_the_remote_and_the_rest_is_an_error() {
    let Some((a, remote)) = pushed() else { return };
    let b = other(&remote);
    let (from, to) = (a.mountpoint(), b.mountpoint());
    assert_eq!(fs::read(to.join("both")).unwrap(), b"1\n2\n3\n4\n5\n");
    tree::same(
        "a directory",
        &tree::of(&from.join("d07")),
        &tree::of(&to.join("d07")),
    );
    {
        let _away = Away::take(&remote);
        is_not_here(&to.join("large"));
        let status = run(&b, &["status"]);
        assert!(status.err.contains("remote origin"), "{status:?}");
        assert!(lazy(&b)["why"].as_str().unwrap().contains("No such file"));
        tree::same(
            "again",
            &tree::of(&from.join("d07")),
            &tree::of(&to.join("d07")),
        );
        // A change is made and kept without it.
        write(&b, "d07/in/new", "new\n");
        fs::rename(to.join("d07/in/f01"), to.join("d07/moved")).unwrap();
        run(&b, &["checkpoint", "offline"]).id();
        // A daemon that begins now is not stopped by it.
        b.kill_daemon();
        run(&b, &["start", "project"]).ok();
        assert_eq!(fs::read_to_string(to.join("d07/in/new")).unwrap(), "new\n");
        is_not_here(&to.join("large"));
        run(&b, &["fetch"]).fails(1, "remote");
    }
    assert_eq!(
        fs::read(to.join("large")).unwrap(),
        noise("large", 24 << 20)
    );
    assert_eq!(lazy(&b)["why"], serde_json::Value::Null);
    run(&b, &["push"]).ok();
    run(&a, &["pull"]).id();
    assert_eq!((head(&a), root(&a)), (head(&b), root(&b)));
}

#[test]
fn work_goes_both_ways_and_back_and_brings_only_what_is_needed() {
    let Some((a, remote)) = pushed() else { return };
    let b = other(&remote);
    let begun = head(&b);
    write(&b, "d01/in/of-b", "b\n");
    write(&b, "both", "1\n2\n3\n4\nfive\n");
    fs::remove_file(b.mountpoint().join("d02/in/f00")).unwrap();
    let sent = json(&b, &["push"]);
    assert!(
        sent["branches"][0]["bytes"].as_u64() < Some(100_000),
        "{sent}"
    );
    write(&a, "both", "one\n2\n3\n4\n5\n");
    write(&a, "d03/in/of-a", "a\n");
    run(&a, &["pull"]).id();
    assert_eq!(rows(run(&a, &["push"])), ["pushed origin/main"]);
    run(&b, &["pull"]).id();
    assert_eq!(head(&a), head(&b));
    let text = fs::read_to_string(b.mountpoint().join("both")).unwrap();
    assert_eq!(text, "one\n2\n3\n4\nfive\n");
    assert!(run(&b, &["log"]).ok().contains(&begun));
    run(&b, &["branch", "create", "side"]).ok();
    assert!(
        b.mountpoint()
            .join(".agentvfs/branches/side/d03/in/of-a")
            .exists()
    );
    run(&b, &["rollback", &begun]).id();
    assert!(!b.mountpoint().join("d01/in/of-b").exists());
    assert!(b.mountpoint().join("d02/in/f00").exists());
    run(&b, &["undo"]).ok();
    let came = lazy(&b)["bytes"].as_u64();
    assert!(
        came < Some(8 << 20),
        "the large file was not read: {came:?}"
    );
    tree::same(
        "all",
        &tree::of(&a.mountpoint()),
        &tree::of(&b.mountpoint()),
    );
    assert_eq!(root(&a), root(&b));
    for env in [&a, &b] {
        verified(env);
        run(env, &["fsck"]).ok();
    }
}

#[test]
fn gc_and_fsck_take_nothing_and_find_nothing_that_is_only_elsewhere() {
    let Some((a, remote)) = pushed() else { return };
    let b = other(&remote);
    run(&b, &["fsck"]).ok();
    run(&b, &["gc"]).ok();
    run(&b, &["stats"]).ok();
    let to = b.mountpoint();
    fs::read(to.join("d11/in/f11")).unwrap();
    write(&b, "own", "own\n");
    run(&b, &["checkpoint", "own"]).id();
    run(&b, &["gc"]).ok();
    run(&b, &["fsck"]).ok();
    run(&b, &["stop", "project"]).ok();
    run(&b, &["gc"]).ok();
    run(&b, &["fsck"]).ok();
    run(&b, &["start", "project"]).ok();
    {
        let _away = Away::take(&remote);
        assert_eq!(
            fs::read(to.join("d11/in/f11")).unwrap(),
            noise("d11f11", 2000)
        );
        assert_eq!(fs::read_to_string(to.join("own")).unwrap(), "own\n");
    }
    fs::remove_file(to.join("own")).unwrap();
    let all = [tree::of(&a.mountpoint()), tree::of(&to)].map(|mut all| {
        // Its time is that of the removal.
        all.remove(&Vec::new());
        all
    });
    tree::same("all", &all[0], &all[1]);
    run(&b, &["gc"]).ok();
    run(&b, &["fsck"]).ok();
}

#[test]
fn a_start_makes_a_clone_first() {
    let Some((a, remote)) = pushed() else { return };
    let b = Env::new().unwrap();
    let at = remote.to_str().unwrap();
    run(&b, &["start", "--clone", at]).fails(2, "name of the project");
    run(&b, &["start", "project", "--clone", at]).ok();
    assert_eq!(head(&a), head(&b));
    assert_eq!(lazy(&b)["remote"], "origin");
    run(&b, &["start", "project", "--clone", at]).fails(1, "already exists");
}

#[test]
fn a_full_clone_needs_its_remote_no_more() {
    let Some((a, remote)) = pushed() else { return };
    let b = Env::new().unwrap();
    run(
        &b,
        &["clone", remote.to_str().unwrap(), "project", "--full"],
    )
    .ok();
    assert_eq!(lazy(&b), serde_json::Value::Null);
    run(&b, &["prefetch"]).fails(1, "needs no remote");
    let _away = Away::take(&remote);
    tree::same(
        "all",
        &tree::of(&a.mountpoint()),
        &tree::of(&b.mountpoint()),
    );
}

#[test]
fn what_is_prefetched_is_here_and_with_all_of_it_the_remote_may_go() {
    let Some((a, remote)) = pushed() else { return };
    let b = other(&remote);
    let (from, to) = (a.mountpoint(), b.mountpoint());
    run(&b, &["remote", "remove", "origin"]).fails(1, "only in remote origin");
    let came = json(&b, &["prefetch", "d20", "large", "-w", "project"]);
    assert!(came["objects"].as_u64() > Some(20), "{came}");
    {
        let _away = Away::take(&remote);
        tree::same(
            "d20",
            &tree::of(&from.join("d20")),
            &tree::of(&to.join("d20")),
        );
        assert_eq!(
            fs::read(to.join("large")).unwrap(),
            noise("large", 24 << 20)
        );
    }
    run(&b, &["prefetch", "nowhere", "-w", "project"]).fails(1, "nowhere");
    write(&b, "own", "own\n");
    run(&b, &["prefetch"]).ok();
    let again = json(&b, &["prefetch"]);
    assert_eq!((&again["objects"], &again["bytes"]), (&0.into(), &0.into()));
    fs::remove_file(to.join("own")).unwrap();
    run(&b, &["prefetch", "--all"]).ok();
    assert_eq!(lazy(&b), serde_json::Value::Null);
    run(&b, &["remote", "remove", "origin"]).ok();
    let _away = Away::take(&remote);
    b.kill_daemon();
    run(&b, &["start", "project"]).ok();
    run(&b, &["fsck"]).ok();
    run(&b, &["gc"]).ok();
    assert_eq!(
        fs::read(to.join("d39/in/linked")).unwrap(),
        noise("d0f0", 2000)
    );
    assert_eq!(
        fs::read(to.join("d31/in/f17")).unwrap(),
        noise("d31f17", 2000)
    );
}

#[test]
fn changed_bytes_in_the_remote_are_an_error_and_are_neither_shown_nor_kept() {
    let Some((_a, remote)) = pushed() else { return };
    let b = other(&remote);
    let to = b.mountpoint();
    let mut packs = Vec::new();
    for pack in fs::read_dir(remote.join("packs")).unwrap() {
        let path = pack.unwrap().path();
        let whole = fs::read(&path).unwrap();
        let mut bad = whole.clone();
        // One bit in each KiB: no record of some length is whole.
        bad.iter_mut()
            .skip(100)
            .step_by(1024)
            .for_each(|byte| *byte ^= 4);
        fs::write(&path, bad).unwrap();
        packs.push((path, whole));
    }
    is_not_here(&to.join("d15/in/f03"));
    is_not_here(&to.join("large"));
    let why = lazy(&b)["why"].as_str().unwrap().to_owned();
    assert!(why.contains("damaged in the remote"), "{why}");
    for (path, whole) in packs {
        fs::write(path, whole).unwrap();
    }
    run(&b, &["fsck"]).ok();
    assert_eq!(
        fs::read(to.join("d15/in/f03")).unwrap(),
        noise("d15f3", 2000)
    );
    assert_eq!(
        fs::read(to.join("large")).unwrap(),
        noise("large", 24 << 20)
    );
}
