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

trait Usage {
    fn fails_usage(self);
}

impl Usage for Told {
    fn fails_usage(self) {
        assert_eq!((self.status, self.out.as_str()), (2, ""), "{self:?}");
    }
}
