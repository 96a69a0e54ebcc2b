//! The daemon is killed beside an agent that makes directories and files by their paths: what was synced is in
//! the workspace or in the named directory beside it, and nothing is in the directory below the mount.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tests::env::Env;
use tests::rng::Rng;
use tests::{mount, wait};

/// How often the daemon is killed.
const KILLS: usize = 8;

/// Writes by path, whatever happens to the mount, until it is told to end. Gives the names that were synced.
fn work(root: &Path, is_over: &AtomicBool, synced: &AtomicUsize) -> Vec<PathBuf> {
    let mut done = Vec::new();
    for n in 0.. {
        if is_over.load(Ordering::Acquire) {
            break;
        }
        let name = PathBuf::from(format!("agent/d{}/f{n}", n % 7));
        if write(&root.join(&name)).is_ok() {
            synced.fetch_add(1, Ordering::AcqRel);
            done.push(name);
        } else {
            std::thread::yield_now();
        }
    }
    done
}

fn write(path: &Path) -> std::io::Result<()> {
    fs::create_dir_all(path.parent().unwrap())?;
    let mut file = fs::File::create(path)?;
    file.write_all(path.file_name().unwrap().as_encoded_bytes())?;
    file.sync_all()
}

/// Where what was written while nothing was mounted is.
fn aside(env: &Env) -> Vec<PathBuf> {
    let all = fs::read_dir(env.home().join("aside/project"));
    all.map(|all| all.map(|entry| entry.unwrap().path()).collect())
        .unwrap_or_default()
}

fn is_whole(path: &Path) -> bool {
    let name = path.file_name().unwrap().as_encoded_bytes();
    fs::read(path).is_ok_and(|bytes| bytes == name)
}

/// Kills the daemon time and again while an agent works in `place`, where `start` mounts.
fn nothing_synced_is_lost(env: &Env, place: &Path, start: &[&str]) {
    let seed = Rng::fresh();
    println!("AGENTVFS_SEED={seed} repeats it");
    let mut rng = Rng::new(seed);
    env.workspace(start).ok();
    let (is_over, synced) = (AtomicBool::new(false), AtomicUsize::new(0));
    let done = std::thread::scope(|scope| {
        let agent = scope.spawn(|| work(place, &is_over, &synced));
        for _ in 0..KILLS {
            let before = synced.load(Ordering::Acquire);
            wait::until("the agent writes", || {
                agent.is_finished() || synced.load(Ordering::Acquire) > before + 20
            });
            wait::let_run(Duration::from_micros(rng.below(20_000)));
            env.kill_daemon();
            env.workspace(&["log", "project"]).ok();
        }
        is_over.store(true, Ordering::Release);
        agent.join().unwrap()
    });
    let aside = aside(env);
    let status = env.workspace(&["status", "project"]);
    for dir in &aside {
        assert!(status.err.contains(dir.to_str().unwrap()), "{status:?}");
    }
    for name in &done {
        let places = aside.iter().map(PathBuf::as_path).chain([place]);
        let found = places.filter(|root| is_whole(&root.join(name))).count();
        assert_eq!(found, 1, "{} of {}", name.display(), done.len());
    }
    env.workspace(&["stop", "project"]).ok();
    assert!(mount::below(&env.path("")).is_empty());
    assert!(
        !place.join("agent").exists(),
        "it is in the directory below"
    );
}

#[test]
fn nothing_is_written_below_a_mount_whose_daemon_is_killed() {
    let Some(env) = Env::new() else { return };
    let place = env.mountpoint();
    nothing_synced_is_lost(&env, &place, &["start", "--from", "project"]);
    assert!(!place.exists());
    env.workspace(&["start", "project"]).ok();
    assert!(place.join("agent").exists());
}

#[test]
fn nothing_is_written_to_a_project_whose_mount_dies_over_it() {
    let Some(env) = Env::as_root() else { return };
    fs::write(env.project().join("file"), "theirs").unwrap();
    let start = ["start", "--from", "project", "--mount", "project"];
    nothing_synced_is_lost(&env, &env.project(), &start);
    assert_eq!(fs::read_dir(env.project()).unwrap().count(), 1);
}

#[test]
fn nothing_is_written_to_a_directory_that_was_given_when_the_mount_on_it_dies() {
    let Some(env) = Env::as_root() else { return };
    let place = env.path("given");
    fs::create_dir(&place).unwrap();
    let start = ["start", "--from", "project", "--mount", "given"];
    nothing_synced_is_lost(&env, &place, &start);
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
}
