//! What a commit keeps beside files and names, and that what a rollback shows is on the disk before it is
//! acknowledged. Everything is looked at in a new process, where nothing is left in memory.
#![allow(clippy::unwrap_used)]

use crate::common::by_path::{at, checkpoint, find, gc, mkdir, read, write};
use crate::common::rng::bytes;
use crate::common::watched::{self, Act};
use crate::common::world::World;
use engine::verbs;
use engine::*;
use objstore::crash_storage::{CrashStorage, Policy};
use std::io::ErrorKind;
use std::sync::Arc;

const W: Wait = Wait::Allowed;

fn world() -> (World, tempfile::TempDir) {
    let base = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(base.path().join("based/deep")).unwrap();
    std::fs::write(base.path().join("based/deep/file"), "of the base").unwrap();
    (World::on_disk(CrashStorage::new(), base.path()), base)
}

/// The state is in the state file and in commits; no process has it in memory.
fn anew(world: &mut World) {
    world.w().settle().unwrap();
    world.w().seal().unwrap();
    world.close(CloseMode::NoCheckpoint).unwrap();
    world.reopen().unwrap();
}

#[test]
fn directories_of_a_commit_have_their_attributes() {
    let (mut world, _base) = world();
    let w = world.w();
    let dirs = ["", "based", "based/deep", "made", "made/inner"];
    mkdir(w, MAIN, "made");
    mkdir(w, MAIN, "made/inner");
    let set = |w: &Workspace, value: &str| {
        for dir in dirs {
            let node = find(w, MAIN, dir).unwrap();
            let value = format!("{value} {dir}").into_bytes();
            let who = Caller::default();
            w.setxattr(&who, node, b"user.note", &value, 0, W).unwrap();
        }
    };
    set(w, "first");
    let id = checkpoint(w, MAIN, "first");
    set(w, "second");
    checkpoint(w, MAIN, "second");
    anew(&mut world);
    let w = world.w();
    verbs::rollback(w, MAIN, &at("first")).unwrap();
    verbs::create_branch(w, "b", MAIN, Some(&id.to_string())).unwrap();
    for (branch, dir) in [MAIN, "b"].into_iter().flat_map(|b| dirs.map(|d| (b, d))) {
        let node = find(w, branch, dir).unwrap();
        let value = w.getxattr(node, b"user.note");
        let value = value.map(|v| String::from_utf8_lossy(&v).into_owned());
        assert_eq!(value.ok(), Some(format!("first {dir}")), "{branch}:{dir:?}");
    }
}

#[test]
fn gc_keeps_the_keys_of_every_commit() {
    let (mut world, _base) = world();
    // Short ones are in the commit itself or beside it, long ones in objects of their own.
    let text = |n: u64, len: usize| format!("\"{}\"", hex(&bytes(n, len / 2)));
    let sets = [(1, 10), (2, 6000), (3, 60_000)];
    for (n, len) in sets {
        verbs::kv_set(world.w(), MAIN, "key", &text(n, len)).unwrap();
        checkpoint(world.w(), MAIN, &format!("c{n}"));
    }
    verbs::kv_delete(world.w(), MAIN, "key").unwrap();
    checkpoint(world.w(), MAIN, "none");
    anew(&mut world);
    gc(&world);
    anew(&mut world);
    gc(&world);
    anew(&mut world);
    for (n, len) in sets {
        verbs::rollback(world.w(), MAIN, &at(&format!("c{n}"))).unwrap();
        let kv = verbs::kv(world.w(), MAIN).unwrap();
        let entry = kv.get("key").map(|e| e.value.clone());
        assert_eq!(entry, Some(text(n, len)), "c{n}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Bytes that no recovery holds in memory while they wait for the packs.
const MUCH: usize = 12 << 20;

/// After a power cut the journal has the rollback; what it shows must be readable from then on, not only
/// once the state has been stored another time.
#[test]
fn what_a_rollback_shows_is_stored_before_the_journal_says_so() {
    let (world, base) = world();
    let w = world.w();
    checkpoint(w, MAIN, "start");
    w.seal().unwrap();
    let content = bytes(1, MUCH);
    write(w, MAIN, "much", &content);
    checkpoint(w, MAIN, "stored");
    write(w, MAIN, "much", b"little");
    verbs::rollback(w, MAIN, &at("stored")).unwrap();
    let disk = world.disk.clone().unwrap();
    let left = disk.image_at(disk.op_count(), Policy::Drop, 1);
    // Nothing is stored a second time.
    let no_packs = Arc::new(|act, path: &str| match act {
        Act::Append if path.starts_with("packs/") => Err(ErrorKind::StorageFull.into()),
        _ => Ok(()),
    });
    let after = watched::world(left, no_packs, base.path());
    assert!(read(after.w(), MAIN, "much").unwrap() == content);
}
