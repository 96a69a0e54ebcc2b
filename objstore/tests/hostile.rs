//! Decoders are total: any bytes give a value or an error, without panic and without allocating more
//! than their length justifies.
#![allow(clippy::unwrap_used)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use common::{mem_store, noise};
use objstore::crash_storage::CrashStorage;
use objstore::io::Storage;
use objstore::object::commit::Commit;
use objstore::object::manifest::Manifest;
use objstore::object::tree::TreeNode;
use objstore::{
    Body, Edit, FileContent, Meta, Object, ObjectStore, StoreConfig, TreeEntry, edit_tree,
    name_hash,
};
use proptest::prelude::*;

/// Remembers the largest single allocation of this thread.
struct Watching;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.set(LARGEST.get().max(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System`, see `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

/// Decodes as every kind; none may allocate much.
fn decode_all(bytes: &[u8]) {
    fn one<T: Object>(bytes: &[u8]) {
        LARGEST.set(0);
        let decoded = T::from_bytes(bytes);
        let largest = LARGEST.get();
        assert!(
            largest <= 4096.max(bytes.len()) * 64,
            "{largest} bytes for {}",
            bytes.len()
        );
        if let Ok(object) = decoded {
            let _ = object.check();
            assert_eq!(object.to_bytes(), bytes);
        }
    }
    one::<Manifest>(bytes);
    one::<TreeNode>(bytes);
    one::<Commit>(bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 2u8..5) {
        decode_all(&bytes);
        let mut with_header = vec![b'a', b'v', b'f', b's', kind, 0, 1, 0];
        with_header.append(&mut bytes);
        decode_all(&with_header);
    }

    #[test]
    fn damaged_trees(at in any::<prop::sample::Index>(), value in any::<u8>(), len in any::<prop::sample::Index>()) {
        let mut bytes = some_tree().to_bytes();
        let i = at.index(bytes.len());
        bytes[i] = value;
        decode_all(&bytes);
        decode_all(&bytes[..len.index(bytes.len())]);
    }
}

fn some_tree() -> TreeNode {
    let entry = |i: u8| TreeEntry {
        name: vec![b'a' + i; 5],
        meta: Meta {
            xattrs: vec![(b"user.k".to_vec(), vec![i; 9])],
            ..Meta::default()
        },
        body: if i.is_multiple_of(2) {
            Body::Symlink(vec![b'x'; 7])
        } else {
            Body::File(FileContent::Empty)
        },
    };
    let mut entries: Vec<TreeEntry> = (0..5).map(entry).collect();
    entries.sort_by_key(|entry| (name_hash(&entry.name), entry.name.clone()));
    TreeNode::Leaf(entries)
}

#[test]
fn packs_of_random_bytes_open_as_empty_ones() {
    for seed in 0..50 {
        let disk = CrashStorage::without_log();
        disk.create_dir_all("packs").unwrap();
        let mut bytes = noise(seed, 3000);
        if seed % 2 == 0 {
            bytes[24..28].copy_from_slice(b"avob");
        }
        disk.replace("packs/00000001.pack", &bytes).unwrap();
        disk.replace("packs/00000001.idx", &noise(seed + 100, 500))
            .unwrap();
        disk.replace("packs/junk", b"junk").unwrap();
        let store = ObjectStore::open(Arc::new(disk), StoreConfig::default()).unwrap();
        assert_eq!(store.stats().objects, 0);
        let id = store.put_chunk(b"new").unwrap();
        assert_eq!(*store.get_chunk(&id).unwrap(), b"new");
    }
}

#[test]
fn objects_of_the_wrong_kind_are_refused() {
    let store = mem_store();
    let put = vec![Edit::Put(TreeEntry {
        name: b"a".to_vec(),
        meta: Meta::default(),
        body: Body::None,
    })];
    let tree = edit_tree(&store, None, put).unwrap().unwrap();
    let as_commit = objstore::CommitId::from_bytes(*tree.as_bytes());
    assert!(store.get_object::<Commit>(&as_commit).is_err());
    // A file may hold the bytes of an object; it does not become one by that.
    let bytes = some_tree().to_bytes();
    let chunk = store.put_chunk(&bytes).unwrap();
    let as_tree = objstore::TreeId::from_bytes(*chunk.as_bytes());
    assert!(store.get_object::<TreeNode>(&as_tree).is_err());
    assert_eq!(store.put_object(&some_tree()).unwrap(), as_tree);
    assert!(store.get_object::<TreeNode>(&as_tree).is_ok());
}
