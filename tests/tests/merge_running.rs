//! Merges under running programs, on a real mount: what is stored through mappings and written by path
//! meanwhile is all there afterwards, and every merge ends.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tests::env::Env;
use tests::pages::{stamp, words};
use tests::sys::Mapping;

const PAGES: usize = 64;
const ROUNDS: u32 = 12;

fn branch(env: &Env, args: &[&str]) {
    let args: Vec<&str> = ["branch"].iter().chain(args).copied().collect();
    env.told(env.command(&env.path(""), &args)).ok();
}

/// Adds one to page after page of a mapped file until told to stop; gives how much each page got.
fn store(file: &Path, stop: &AtomicBool, stores: &AtomicU64) -> Vec<u64> {
    let options = OpenOptions::new().read(true).write(true).open(file);
    let mapping = Mapping::new(&options.unwrap(), PAGES).unwrap();
    let mut added = vec![0; PAGES];
    while !stop.load(Ordering::SeqCst) {
        let page = (stores.fetch_add(1, Ordering::SeqCst) % PAGES as u64) as usize;
        mapping.word(page).fetch_add(1, Ordering::SeqCst);
        added[page] += 1;
    }
    added
}

/// Makes and removes files in a directory until told to stop; gives the number of the last one.
fn make(dir: &Path, stop: &AtomicBool) -> u64 {
    let mut n = 0;
    while !stop.load(Ordering::SeqCst) {
        n += 1;
        fs::write(dir.join(format!("own{n}")), n.to_string()).unwrap();
        if n > 20 {
            fs::remove_file(dir.join(format!("own{}", n - 20))).unwrap();
        }
    }
    n
}

/// Merges branch after branch that changed the attributes of `file` and added a name beside it.
fn merge_all(env: &Env, dir: &Path, stores: &AtomicU64) {
    for round in 0..ROUNDS {
        let name = format!("b{round}");
        branch(env, &["create", &name]);
        let there = env.mountpoint().join(".agentvfs/branches").join(&name);
        let own = there.join("dir");
        let perm = Permissions::from_mode(0o600 + (round & 0o77));
        fs::set_permissions(own.join("pages"), perm).unwrap();
        fs::write(own.join(format!("merged{round}")), "of the branch").unwrap();
        let before = stores.load(Ordering::SeqCst);
        branch(env, &["merge", &name]);
        branch(env, &["delete", &name]);
        let path = dir.join(format!("merged{round}"));
        assert_eq!(fs::read_to_string(path).unwrap(), "of the branch");
        tests::wait::until("stores go on", || {
            stores.load(Ordering::SeqCst) > before + 1000
        });
    }
}

#[test]
fn nothing_that_programs_do_while_branches_are_merged_is_lost() {
    let Some(env) = Env::in_memory() else { return };
    let dir = env.start().join("dir");
    fs::create_dir(&dir).unwrap();
    let file = dir.join("pages");
    stamp(&file, PAGES, 0);
    env.workspace(&["checkpoint", "start"]).id();
    let (stop, stores) = (AtomicBool::new(false), AtomicU64::new(0));
    let (added, last) = std::thread::scope(|scope| {
        let storing = scope.spawn(|| store(&file, &stop, &stores));
        let making = scope.spawn(|| make(&dir, &stop));
        let merging = std::panic::AssertUnwindSafe(|| merge_all(&env, &dir, &stores));
        let merged = std::panic::catch_unwind(merging);
        stop.store(true, Ordering::SeqCst);
        let done = (storing.join().unwrap(), making.join().unwrap());
        merged.unwrap();
        done
    });
    let file = File::open(dir.join("pages")).unwrap();
    assert_eq!(words(&file, PAGES).unwrap(), added);
    // Who holds it open would keep the workspace from stopping.
    drop(file);
    for n in last.saturating_sub(19)..=last {
        let text = fs::read_to_string(dir.join(format!("own{n}"))).unwrap();
        assert_eq!(text, n.to_string());
    }
    // And in the engine, not in the kernel's cache alone.
    env.workspace(&["stop"]).ok();
    let dir = env.start().join("dir");
    let file = File::open(dir.join("pages")).unwrap();
    assert_eq!(words(&file, PAGES).unwrap(), added);
}
