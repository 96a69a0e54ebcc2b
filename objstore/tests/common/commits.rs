//! Commits of files that prove themselves, and gc over them.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::{noise, open};
use objstore::crash_storage::CrashStorage;
use objstore::gc::{Strictness, Swept, Walk};
use objstore::{
    Body, Commit, CommitId, CommitKind, Edit, Meta, ObjectStore, Result, StoreConfig, TreeEntry,
    edit_tree, read_content, read_tree, store_content,
};

/// A commit of files whose content depends on `seeds`, one for each.
pub fn commit(store: &ObjectStore, seeds: &[u64]) -> Result<CommitId> {
    let mut edits = Vec::new();
    for seed in seeds {
        let len = 100 + (*seed as usize * 917) % 30_000;
        let bytes = noise(*seed, len);
        let all = std::iter::once(0..len as u64).collect::<Vec<_>>();
        let content = store_content(store, None, &[], &all, len as u64, &bytes)?;
        edits.push(Edit::Put(TreeEntry {
            name: format!("file{seed}").into_bytes(),
            meta: Meta {
                mode: 0o100644,
                ..Meta::default()
            },
            body: Body::File(content),
        }));
    }
    let root = edit_tree(store, None, edits)?;
    store.put_object(&Commit {
        root_meta: Meta::default(),
        root,
        parents: vec![],
        time_sec: 0,
        time_nsec: 0,
        author: String::new(),
        message: format!("{seeds:?}"),
        meta: vec![],
        kind: CommitKind::Asked,
        kv: None,
        timeline: None,
    })
}

/// Reads all of a commit.
pub fn check(store: &ObjectStore, id: CommitId) -> Result<usize> {
    let commit: Commit = store.get_object(&id)?;
    let mut files = 0;
    read_tree(store, commit.root, &mut |entry| {
        let Body::File(content) = entry.body else {
            return Ok(());
        };
        let mut bytes = vec![0; content.len() as usize];
        read_content(store, &content, 0, &mut bytes)?;
        let name = String::from_utf8(entry.name).unwrap();
        let seed: u64 = name.strip_prefix("file").unwrap().parse().unwrap();
        assert!(bytes == noise(seed, bytes.len()), "wrong bytes");
        files += 1;
        Ok(())
    })?;
    Ok(files)
}

/// Takes away what `roots` do not need; packs are rewritten where that is `percent` of them or more.
pub fn collect_at(store: &ObjectStore, roots: &[CommitId], percent: u64) -> Result<Swept> {
    let stop = AtomicBool::new(false);
    let run = store.collect(&stop)?;
    let met = &mut |_: objstore::gc::Met<'_>| ();
    let mut walk = Walk::new(&run, met);
    for root in roots {
        walk.commit(*root, Strictness::All)?;
    }
    walk.finish()?;
    run.sweep(&run.plan(Duration::ZERO, percent)?, &|_| ())
}

/// As gc does it.
pub fn collect(store: &ObjectStore, roots: &[CommitId]) -> Result<Swept> {
    collect_at(store, roots, 20)
}

/// Packs that hold some files of [`commit`], in which holes are punched for single ones.
pub fn holey_packs() -> StoreConfig {
    StoreConfig {
        pack_bytes_max: 48 * 1024,
        punch_bytes_min: 4096,
        chunk_cache_bytes: 0,
        ..StoreConfig::default()
    }
}

/// Share of a pack that no pack with anything needed has: packs are not rewritten, but punched.
pub const NEVER: u64 = 101;

fn assert_all_of(store: &ObjectStore, all: CommitId, at: &str) {
    let files = check(store, all).unwrap_or_else(|e| panic!("{at}: {e}"));
    assert_eq!(files, 17, "{at}");
}

/// Puts all that may ever have been put, and sees that it is there: nothing is taken for present that is
/// not.
pub fn anything_can_be_put(disk: &CrashStorage, config: &StoreConfig, at: &str) {
    let seeds: Vec<u64> = (0..17).collect();
    let store = open(disk, config.clone());
    let all = commit(&store, &seeds).unwrap();
    assert_all_of(&store, all, at);
    store.sync().unwrap();
    drop(store);
    let store = open(disk, config.clone());
    assert_all_of(&store, all, at);
}
