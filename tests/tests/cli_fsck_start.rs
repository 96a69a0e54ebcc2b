//! `workspace start`, `fsck` and `fsck --repair` agree about every small file of a home: what one refuses the
//! other finds, and what it finds it mends or names. Files are cut in half and have a bit flipped.

#![allow(clippy::unwrap_used)]

use rustix::process::{Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use tests::env::{Env, Told};
use tests::rng::{Rng, seed};
use tests::{tree, wait};

/// Files up to this size are small.
const SMALL_BYTES: u64 = 256 << 10;

fn fsck(env: &Env, args: &[&str]) -> Told {
    let args: Vec<&str> = ["fsck"].iter().chain(args).copied().collect();
    env.told(env.command(&env.path(""), &args))
}

/// A stopped home with two branches, and journals that go on behind their states.
fn stopped(env: &Env) {
    fs::write(env.project().join("based"), "of the project").unwrap();
    let mount = env.start();
    env.imported();
    fs::write(mount.join("own"), "first").unwrap();
    env.workspace(&["checkpoint", "project", "first"]).id();
    let create = ["branch", "create", "side", "-w", "project"];
    env.told(env.command(&env.path(""), &create)).ok();
    fs::write(mount.join(".agentvfs/branches/side/of-side"), "s").unwrap();
    env.workspace(&["stop", "project"]).ok();
    env.start();
    fs::write(mount.join("late"), "in no commit").unwrap();
    env.workspace(&["stop", "project", "--no-checkpoint"]).ok();
    ended(env);
}

/// Has the daemon end, which it would by itself a while after it was used last.
fn ended(env: &Env) {
    for daemon in env.daemons() {
        // It may have ended by itself just now.
        let _ = kill_process(daemon, Signal::TERM);
    }
    wait::until("the daemon has ended", || env.daemons().is_empty());
}

/// Small files below a directory that say something of the store: neither what is being run, nor what was said.
fn small_files(home: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![home.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let (path, meta) = (entry.path(), entry.metadata().unwrap());
            if meta.is_dir() && entry.file_name() != "mnt" {
                dirs.push(path);
            } else if meta.is_file() && (1..=SMALL_BYTES).contains(&meta.len()) {
                found.push(path.strip_prefix(home).unwrap().to_owned());
            }
        }
    }
    let other = [Path::new("lock"), Path::new("daemon.log")];
    found.retain(|p| !other.contains(&p.as_path()) && p.extension() != Some("pack".as_ref()));
    found.sort();
    found
}

/// Puts the files of a kept home back; what came since goes.
fn put_back(kept: &Path, home: &Path) {
    for name in [
        "damaged",
        "import",
        "packs",
        "refs",
        "running",
        "workspaces",
    ] {
        if home.join(name).exists() {
            fs::remove_dir_all(home.join(name)).unwrap();
        }
        if kept.join(name).exists() {
            copy(&kept.join(name), &home.join(name));
        }
    }
    fs::copy(kept.join("format"), home.join("format")).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.metadata().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else if entry.metadata().unwrap().is_file() {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// The first file that cannot be read, and why.
fn unreadable(dir: &Path) -> Option<String> {
    let mut entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries.find_map(|entry| {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        match kind {
            _ if kind.is_dir() => unreadable(&path),
            _ if kind.is_file() => Some(format!("{}: {}", path.display(), fs::read(&path).err()?)),
            _ => None,
        }
    })
}

/// What `start` shows; else what it said, or why a file cannot be read then.
fn start(env: &Env) -> Result<tree::Tree, String> {
    let told = env.workspace(&["start", "project"]);
    if told.status != 0 {
        return Err(told.err);
    }
    let root = env.mountpoint();
    if let Some(why) = unreadable(&root) {
        // A commit would have what cannot be read.
        env.workspace(&["stop", "project", "--no-checkpoint"]).ok();
        return Err(why);
    }
    let shown = tree::of(&root);
    env.workspace(&["stop", "project"]).ok();
    ended(env);
    Ok(shown)
}

#[test]
fn what_start_refuses_fsck_finds_and_what_it_finds_it_mends_or_names() {
    let Some(env) = Env::new() else { return };
    let mut rng = Rng::new(seed());
    stopped(&env);
    let kept = env.path("kept");
    copy(env.home(), &kept);
    let whole = start(&env).unwrap();
    let files = small_files(&kept);
    assert!(files.len() > 10, "{files:?}");
    for path in &files {
        let bytes = fs::read(kept.join(path)).unwrap();
        let mut flipped = bytes.clone();
        flipped[rng.below(bytes.len() as u64) as usize] ^= 1 << rng.below(8);
        // The other one is tried another time: each start takes a while.
        let (what, damaged) = match path.ends_with("mark") || rng.below(2) == 0 {
            true => ("half", &bytes[..bytes.len() / 2]),
            false => ("flipped", &flipped[..]),
        };
        let at = format!("{} {what}", path.display());
        put_back(&kept, env.home());
        fs::write(env.home().join(path), damaged).unwrap();
        agree(&env, &whole, path, &at);
        put_back(&kept, env.home());
        fs::write(env.home().join(path), damaged).unwrap();
        mended(&env, path, &at);
    }
}

/// What is refused is found; where nothing is found, all is shown.
fn agree(env: &Env, whole: &tree::Tree, path: &Path, at: &str) {
    let found = fsck(env, &[]);
    match start(env) {
        Ok(shown) if found.status == 0 => assert!(shown == *whole, "{at}: {shown:?}"),
        Ok(_) => {}
        Err(why) => {
            assert_ne!(found.status, 0, "{at}: nothing is found, but {why}");
            let said = format!("{}{}", found.out, found.err);
            let named = said.contains(path.to_str().unwrap()) || said.contains("project");
            assert!(named || said.contains("the store"), "{at}: {said}");
            ended(env);
        }
    }
}

/// After a repair the workspace starts, and nothing is found any more.
fn mended(env: &Env, path: &Path, at: &str) {
    fsck(env, &["--repair"]);
    if path == Path::new("format") {
        // Without it nothing is known to be a store: it is named.
        return;
    }
    let left = fsck(env, &[]);
    let is_lost = |line: &str| line.contains("data fails its checksum");
    if left.status == 1 && !left.out.is_empty() && left.out.lines().all(is_lost) {
        // No repair brings the data of a file back: it goes on being named.
        return;
    }
    assert_eq!(left.status, 0, "{at}: {left:?}");
    start(env).unwrap_or_else(|why| panic!("{at}: {why}"));
}
