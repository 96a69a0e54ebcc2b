//! Branches that are written to all at once, at the same paths, while branches are made, checkpointed,
//! rolled back, merged and deleted: no byte of one appears in another, and nothing hangs.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tests::env::{Env, Told};
use tests::rng::Rng;

const WRITERS: usize = 16;
const ROUNDS: usize = 24;
const PATHS: u64 = 12;

fn command(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

fn root(env: &Env, name: &str) -> PathBuf {
    env.mountpoint().join(".agentvfs/branches").join(name)
}

/// One change at a path that all writers use.
fn step(root: &Path, own: &str, rng: &mut Rng, count: u64) -> io::Result<()> {
    let dir = root.join(format!("d{}", rng.below(3)));
    let file = dir.join(format!("f{}", rng.below(PATHS)));
    let other = root.join(format!("d{}/f{}", rng.below(3), rng.below(PATHS)));
    match rng.below(10) {
        0..=3 => {
            let many = 1 + rng.below(2000) as usize;
            let line = byte_of(own).to_string().repeat(1 + count as usize % 8) + "\n";
            fs::write(&file, line.repeat(many))
        }
        4 => fs::create_dir(&dir),
        5 => fs::rename(&file, &other),
        6 => fs::remove_file(&file),
        7 => fs::hard_link(&file, &other),
        8 => fs::rename(&dir, root.join(format!("d{}", rng.below(3)))),
        _ => check(&file, own),
    }
}

/// What a branch's files are made of. A rollback may come between the truncation of a file and the write
/// behind it, so that the old content stands behind the new: nothing but the bytes tells of the branch.
fn byte_of(own: &str) -> char {
    let number = own.strip_prefix('b').and_then(|n| n.parse::<u8>().ok());
    number.map_or('.', |n| char::from(b'a' + n))
}

/// Every byte of a file is the branch's own, or of the base. A read beside a rollback that shortens the file may
/// have zeros up to the length that the kernel knew, before pages that it has yet to drop; and a write(2) of
/// several pages that a rollback divides leaves a hole.
fn check(file: &Path, own: &str) -> io::Result<()> {
    let text = fs::read_to_string(file)?;
    let mine = [byte_of(own), byte_of("base"), '\n', '\0'];
    let other = text.chars().find(|c| !mine.contains(c));
    assert_eq!(other, None, "{} in {own}", file.display());
    Ok(())
}

fn check_all(dir: &Path, own: &str) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            check_all(&path, own);
        } else {
            allowed(check(&path, own));
        }
    }
}

/// What may go wrong where paths are changed by a rollback beneath whoever uses them.
fn allowed(done: io::Result<()>) {
    let Err(error) = done else { return };
    let kind = error.kind();
    let fine = [
        ErrorKind::NotFound,
        ErrorKind::AlreadyExists,
        ErrorKind::DirectoryNotEmpty,
    ];
    assert!(fine.contains(&kind), "{error}");
}

fn write_on(root: &Path, own: &str, seed: u64, stop: &AtomicBool, steps: &AtomicU64) {
    let mut rng = Rng::new(seed);
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        count += 1;
        allowed(step(root, own, &mut rng, count));
        steps.fetch_add(1, Ordering::Relaxed);
    }
}

/// Makes a branch of a writer's, merges both ways, and deletes it; checkpoints and rolls others back.
fn control(env: &Env, number: u64) {
    let mut rng = Rng::new(1000 + number);
    for round in 0..ROUNDS {
        let own = format!("b{}", rng.below(WRITERS as u64));
        let other = format!("b{}", rng.below(WRITERS as u64));
        let new = format!("t{number}-{round}");
        command(env, &["branch", "create", &new, "--branch", &own]).ok();
        check_all(&root(env, &new), &own);
        command(env, &["workspace", "checkpoint", &new, "--branch", &other]).id();
        let merged = command(env, &["branch", "merge", &own, "--into", &new]);
        let paused = merged.err.contains("keeps changing") || merged.err.contains("conflict");
        assert!(merged.status == 0 || paused, "{merged:?}");
        check_all(&root(env, &new), &own);
        command(env, &["workspace", "rollback", "--branch", &other]).id();
        if round % 2 == 0 {
            command(env, &["workspace", "undo", "--branch", &new]);
        }
        command(env, &["branch", "delete", &new]).ok();
    }
}

#[test]
fn no_byte_of_one_branch_appears_in_another() {
    let Some(env) = Env::new() else { return };
    for dir in 0..3 {
        fs::create_dir(env.project().join(format!("d{dir}"))).unwrap();
        for file in 0..PATHS {
            fs::write(env.project().join(format!("d{dir}/f{file}")), ".\n").unwrap();
        }
    }
    env.start();
    let names: Vec<String> = (0..WRITERS).map(|n| format!("b{n}")).collect();
    for name in &names {
        command(&env, &["branch", "create", name]).ok();
    }
    let (stop, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (n, name) in names.iter().enumerate() {
            let (stop, steps, root) = (&stop, &steps, root(&env, name));
            scope.spawn(move || write_on(&root, name, n as u64, stop, steps));
        }
        let controls: Vec<_> = (0..2)
            .map(|n| {
                let env = &env;
                scope.spawn(move || control(env, n))
            })
            .collect();
        let done: Vec<_> = controls.into_iter().map(|c| c.join()).collect();
        stop.store(true, Ordering::Relaxed);
        done.into_iter().for_each(|d| d.unwrap());
    });
    eprintln!("{} steps", steps.load(Ordering::Relaxed));
    for name in &names {
        check_all(&root(&env, name), name);
    }
    check_all(&env.mountpoint(), "base");
    env.kill_daemon();
    env.workspace(&["start", "project"]).ok();
    for name in &names {
        check_all(&root(&env, name), name);
    }
}
