//! fsck through the real binary: damage is found, named and repaired; a daemon looks, and no more.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs;
use tests::env::{Env, Told};
use tests::rng::Rng;
use tests::{tree, wait};

fn fsck(env: &Env, args: &[&str]) -> Told {
    let args: Vec<&str> = ["fsck"].iter().chain(args).copied().collect();
    env.told(env.command(&env.path(""), &args))
}

/// Flips a bit where `content` stands in a pack.
fn damage(env: &Env, content: &[u8]) {
    for pack in fs::read_dir(env.home().join("packs")).unwrap() {
        let path = pack.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.windows(64).position(|w| w == &content[..64]);
        if let Some(at) = at.filter(|_| path.extension().is_some_and(|e| e == "pack")) {
            bytes[at + 10] ^= 1;
            fs::write(path, bytes).unwrap();
            return;
        }
    }
    panic!("the content is in no pack");
}

#[test]
fn damage_is_found_named_and_repaired() {
    let Some(env) = Env::new() else { return };
    fs::create_dir(env.project().join("src")).unwrap();
    let (good, bad) = (Rng::new(1).bytes(20_000), Rng::new(2).bytes(20_000));
    fs::write(env.project().join("src/good"), &good).unwrap();
    fs::write(env.project().join("src/bad"), &bad).unwrap();
    let mount = env.start();
    env.imported();
    fs::write(mount.join("own"), "of the branch").unwrap();
    env.workspace(&["checkpoint", "project", "kept"]).id();
    let before = tree::of(&mount);
    assert_eq!(fsck(&env, &[]).ok(), "", "through the daemon");
    fsck(&env, &["--repair"]).fails(1, "a daemon is serving it");
    fsck(&env, &["--dry-run"]).fails_usage();
    env.workspace(&["stop", "project"]).ok();
    wait::until("the daemon has ended", || env.daemons().is_empty());
    assert_eq!(fsck(&env, &[]).ok(), "", "without one");
    damage(&env, &bad);
    let told = fsck(&env, &[]);
    assert_eq!(told.status, 1, "{told:?}");
    assert!(
        told.out.contains("\tproject\tmain\tkept\tsrc/bad\n"),
        "{told:?}"
    );
    assert!(!told.out.contains("src/good"), "{told:?}");
    let json: Value = serde_json::from_str(&fsck(&env, &["--json"]).out).unwrap();
    assert_eq!(
        json["findings"][0]["affects"][0]["path"], "src/bad",
        "{json:#}"
    );
    let plan = fsck(&env, &["--repair", "--dry-run"]);
    assert_eq!(plan.status, 1);
    assert!(plan.err.contains("--repair would"), "{plan:?}");
    assert_eq!(fsck(&env, &[]).status, 1, "nothing was changed");
    let done = fsck(&env, &["--repair"]);
    assert_eq!(done.status, 1, "{done:?}");
    assert!(done.err.contains("0 findings left"), "{done:?}");
    assert!(env.home().join("damaged/packs").is_dir());
    assert_eq!(fsck(&env, &["--rebuild-index"]).ok(), "");
    env.start();
    assert_eq!(tree::of(&mount), before);
    env.workspace(&["stop", "project"]).ok();
}

/// Flips a bit at the end of the state file of `main`.
fn damage_state(env: &Env) -> std::path::PathBuf {
    let dir = env.home().join("workspaces/project/branches/main");
    let names = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let is_state = |p: &std::path::PathBuf| {
        let name = p.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("state-")
    };
    let path = names.into_iter().find(is_state).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_branch_whose_state_is_damaged_is_opened_again_at_its_newest_commit() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("based"), "of the project").unwrap();
    let mount = env.start();
    env.imported();
    fs::write(mount.join("own"), "first").unwrap();
    let first = env.workspace(&["checkpoint", "project", "first"]).id();
    fs::write(mount.join("own"), "second").unwrap();
    env.told(env.command(&env.path(""), &["tool", "record", "edit"]))
        .ok();
    let second = env.workspace(&["checkpoint", "project", "second"]).id();
    let before = tree::of(&mount);
    // Stopping stores all: the journal does not begin with the project any more.
    env.workspace(&["stop", "project"]).ok();
    env.start();
    fs::write(mount.join("late"), "in no commit").unwrap();
    env.kill_daemon();
    let path = damage_state(&env);
    let damaged = fs::read(&path).unwrap();
    let told = fsck(&env, &["--repair", "--dry-run"]);
    assert_eq!(told.status, 1, "{told:?}");
    assert!(told.out.contains("\tproject\tmain\t"), "{told:?}");
    let plan = format!("would reopen branch main of project at commit {second} (\"second\", ");
    assert!(told.err.contains(&plan), "{told:?}");
    assert!(told.err.contains("are kept in damaged/ but not shown"));
    assert_eq!(fs::read(&path).unwrap(), damaged, "nothing was changed");
    let done = fsck(&env, &["--repair"]);
    assert!(done.err.contains("0 findings left"), "{done:?}");
    let name = path.file_name().unwrap();
    let aside = env.home().join("damaged/workspaces/project/branches/main");
    assert_eq!(fs::read(aside.join(name)).unwrap(), damaged);
    assert_eq!(fsck(&env, &[]).ok(), "");
    env.start();
    assert_eq!(tree::of(&mount), before);
    let log = env.workspace(&["log", "project"]).ok();
    assert!(log.contains(&first) && log.contains(&second), "{log}");
    env.told(env.command(&env.path(""), &["timeline", "--verify"]))
        .ok();
    env.workspace(&["rollback", "project", "first"]).ok();
    assert_eq!(fs::read(mount.join("own")).unwrap(), b"first");
    env.workspace(&["stop", "project"]).ok();
}

trait Usage {
    fn fails_usage(self);
}

impl Usage for Told {
    fn fails_usage(self) {
        assert_eq!((self.status, self.out.as_str()), (2, ""), "{self:?}");
    }
}
