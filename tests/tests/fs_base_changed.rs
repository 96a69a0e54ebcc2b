//! The base changes under a workspace that has not read all of it yet: each file is the old or the new
//! version as a whole, never a mixture, and `status` counts what changed.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use tests::env::Env;
use tests::tree;

const FILES: usize = 40;
const FILE_BYTES: usize = 400_000;

/// A version of a file: one byte again and again.
fn write(path: &Path, version: u8) {
    fs::write(path, vec![version; FILE_BYTES + usize::from(version)]).unwrap();
}

fn project(env: &Env) {
    for i in 0..FILES {
        write(&env.project().join(format!("f{i}")), 1);
    }
}

/// The version that a file has; it must be of one as a whole.
fn version(path: &Path) -> u8 {
    let bytes = fs::read(path).unwrap();
    let version = bytes[0];
    assert!(
        bytes.iter().all(|byte| *byte == version),
        "{}: mixed",
        path.display()
    );
    assert_eq!(
        bytes.len(),
        FILE_BYTES + usize::from(version),
        "{}",
        path.display()
    );
    version
}

#[test]
fn rewritten_base_file_is_old_or_new_as_a_whole() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    for i in (0..FILES).rev() {
        write(&env.project().join(format!("f{i}")), 2);
    }
    // The read that finds a change out may still end where the old version did, as the kernel had
    // asked for its size before.
    (0..FILES).for_each(|i| drop(fs::read(root.join(format!("f{i}"))).unwrap()));
    env.imported();
    let later: Vec<u8> = (0..FILES)
        .map(|i| version(&root.join(format!("f{i}"))))
        .collect();
    assert!(later.iter().all(|version| [1, 2].contains(version)));
    let new = later.iter().filter(|version| **version == 2).count();
    let listed = env.status()["base_changed"].as_array().unwrap().len();
    // A file that was rewritten before its directory was read was never shown in its old version.
    assert!(listed <= new, "{listed} listed as changed, {new} new");
    let shown = tree::of(&root);
    env.workspace(&["checkpoint", "one"]).id();
    fs::write(root.join("f0"), "x").unwrap();
    env.workspace(&["rollback"]).id();
    tree::same("rollback", &shown, &tree::of(&root));
}

#[test]
fn base_file_replaced_after_its_import_stays_what_it_was() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    env.imported();
    for i in 0..FILES {
        write(&env.project().join(format!("f{i}")), 3);
    }
    for i in 0..FILES {
        assert_eq!(version(&root.join(format!("f{i}"))), 1);
    }
    assert_eq!(env.status()["base_changed"].as_array().unwrap().len(), 0);
}

#[test]
fn removed_base_file_is_a_listed_loss_or_was_imported() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    // What was never shown is no loss.
    assert_eq!(fs::read_dir(&root).unwrap().count(), FILES);
    for i in 0..FILES {
        fs::remove_file(env.project().join(format!("f{i}"))).unwrap();
    }
    env.imported();
    let gone = (0..FILES)
        .filter(|i| fs::read(root.join(format!("f{i}"))).is_err())
        .count();
    let status = env.status();
    let listed = ["base_changed", "unreadable"].map(|key| status[key].as_array().unwrap().len());
    assert!(
        listed.iter().sum::<usize>() >= gone,
        "{gone} gone, listed {listed:?}"
    );
    env.workspace(&["checkpoint", "one"]).id();
}
