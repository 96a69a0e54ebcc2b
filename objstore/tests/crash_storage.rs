//! The simulated disk keeps its own promises: crash tests are worth what it is worth.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::io::ErrorKind;

use common::noise;
use objstore::crash_storage::{CrashStorage, Fault, FaultOp, Policy};
use objstore::io::Storage;

/// What a file may hold after a cut now, over many seeds.
fn outcomes(disk: &CrashStorage, path: &str, policy: Policy) -> BTreeSet<Option<Vec<u8>>> {
    let at = disk.op_count();
    (0..200)
        .map(|seed| disk.image_at(at, policy, seed).read(path).unwrap())
        .collect()
}

#[test]
fn synced_bytes_stay_and_others_may_go() {
    let disk = CrashStorage::new();
    let segment = disk.create("f").unwrap();
    disk.sync_dir("").unwrap();
    segment.append(&[b"synced"]).unwrap();
    segment.sync().unwrap();
    segment.append(&[b"not"]).unwrap();
    let one = |bytes: &[u8]| BTreeSet::from([Some(bytes.to_vec())]);
    assert_eq!(outcomes(&disk, "f", Policy::Keep), one(b"syncednot"));
    assert_eq!(outcomes(&disk, "f", Policy::Drop), one(b"synced"));
    for policy in [Policy::Torn, Policy::Reorder] {
        let seen = outcomes(&disk, "f", policy);
        assert!(
            seen.len() > 3,
            "kept, dropped, zeros, garbage: {}",
            seen.len()
        );
        assert!(
            seen.iter()
                .flatten()
                .all(|bytes| bytes.starts_with(b"synced"))
        );
    }
}

#[test]
fn writes_are_torn_at_sectors_and_reordered() {
    let disk = CrashStorage::new();
    let segment = disk.create("f").unwrap();
    disk.sync_dir("").unwrap();
    let bytes = noise(1, 2000);
    segment.append(&[&bytes]).unwrap();
    let torn = outcomes(&disk, "f", Policy::Torn);
    assert!(
        torn.iter()
            .flatten()
            .any(|b| b.len() == 512 && *b == bytes[..512])
    );
    let reordered = outcomes(&disk, "f", Policy::Reorder);
    let late_only =
        |b: &Vec<u8>| b.len() == 2000 && b[..512] != bytes[..512] && b[1536..] == bytes[1536..];
    assert!(reordered.iter().flatten().any(late_only));
}

#[test]
fn names_need_their_directory_synced() {
    let disk = CrashStorage::new();
    disk.create_dir_all("d").unwrap();
    let segment = disk.create("d/f").unwrap();
    segment.append(&[b"x"]).unwrap();
    segment.sync().unwrap();
    assert_eq!(outcomes(&disk, "d/f", Policy::Drop), BTreeSet::from([None]));
    assert_eq!(outcomes(&disk, "d/f", Policy::Reorder).len(), 2);
    disk.sync_dir("d").unwrap();
    assert_eq!(
        outcomes(&disk, "d/f", Policy::Drop),
        BTreeSet::from([Some(b"x".to_vec())])
    );
    disk.remove("d/f").unwrap();
    assert_eq!(outcomes(&disk, "d/f", Policy::Reorder).len(), 2);
    disk.remove_dir_all("d").unwrap();
    disk.sync_dir("").unwrap();
    assert_eq!(outcomes(&disk, "d/f", Policy::Drop), BTreeSet::from([None]));
}

#[test]
fn replacing_is_all_or_nothing_and_durable() {
    let disk = CrashStorage::new();
    disk.replace("f", b"old").unwrap();
    let before = disk.op_count();
    disk.replace("f", b"new").unwrap();
    for policy in Policy::ALL {
        assert_eq!(
            outcomes(&disk, "f", policy),
            BTreeSet::from([Some(b"new".to_vec())])
        );
    }
    let under_way = |seed| {
        disk.image_at(before, Policy::Torn, seed)
            .read("f")
            .unwrap()
            .unwrap()
    };
    let seen: BTreeSet<Vec<u8>> = (0..50).map(under_way).collect();
    assert_eq!(seen, BTreeSet::from([b"new".to_vec(), b"old".to_vec()]));
}

#[test]
fn overwriting_leaves_a_mixture_of_old_and_new() {
    let disk = CrashStorage::new();
    let segment = disk.create("f").unwrap();
    disk.sync_dir("").unwrap();
    segment.append(&[b"aaaa"]).unwrap();
    segment.sync().unwrap();
    segment.write_at(1, b"bb").unwrap();
    assert_eq!(
        segment.write_at(3, b"bb").unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );
    let seen = outcomes(&disk, "f", Policy::Reorder);
    let mixtures = [b"aaaa", b"abaa", b"abba"].map(|bytes| Some(bytes.to_vec()));
    assert_eq!(seen, BTreeSet::from(mixtures));
}

#[test]
fn a_failed_sync_may_lose_for_good() {
    let disk = CrashStorage::new();
    let segment = disk.create("f").unwrap();
    disk.sync_dir("").unwrap();
    segment.append(&[b"x"]).unwrap();
    disk.fail_nth(FaultOp::Sync, 1, Fault::Io);
    assert!(segment.sync().is_err());
    segment.sync().unwrap();
    assert_eq!(
        outcomes(&disk, "f", Policy::Drop),
        BTreeSet::from([Some(vec![])])
    );
    assert_eq!(
        outcomes(&disk, "f", Policy::Keep),
        BTreeSet::from([Some(b"x".to_vec())])
    );
}

#[test]
fn faults_strike_once_and_change_nothing() {
    let disk = CrashStorage::new();
    let segment = disk.create("f").unwrap();
    disk.fail_nth(FaultOp::Append, 2, Fault::NoSpace);
    segment.append(&[b"one"]).unwrap();
    assert_eq!(
        segment.append(&[b"two"]).unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    assert_eq!(segment.len(), 3);
    disk.set_capacity(Some(5));
    assert_eq!(disk.free_bytes().unwrap(), 2);
    assert!(segment.append(&[b"abc"]).is_err());
    assert_eq!(segment.append(&[b"ab"]).unwrap(), 3);
}

#[test]
fn a_seed_gives_the_same_disk_again() {
    let disk = CrashStorage::new();
    disk.create_dir_all("d").unwrap();
    for i in 0..20 {
        let segment = disk.create(&format!("d/{i}")).unwrap();
        segment.append(&[&noise(i, 3000)]).unwrap();
    }
    let image = |seed| {
        let image = disk.image_at(disk.op_count(), Policy::Reorder, seed);
        let read = |path: &String| image.read(path).unwrap();
        image.paths().iter().map(read).collect::<Vec<_>>()
    };
    assert_eq!(image(7), image(7));
    assert_ne!(image(7), image(8));
}

#[test]
fn a_hole_is_there_sector_by_sector_until_it_is_synced() {
    let disk = CrashStorage::new();
    let segment = disk.create("f").unwrap();
    disk.sync_dir("").unwrap();
    segment.append(&[&vec![7; 3 * 4096]]).unwrap();
    segment.sync().unwrap();
    assert_eq!(segment.holes().unwrap(), []);
    let hole = 4096..8192;
    segment.punch_hole(hole.clone()).unwrap();
    let past_the_end = segment.punch_hole(8192..12289).unwrap_err();
    assert_eq!(past_the_end.kind(), ErrorKind::UnexpectedEof);
    assert_eq!(segment.holes().unwrap(), std::slice::from_ref(&hole));
    let zeros = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == 0).count();
    let seen = |policy| -> BTreeSet<usize> {
        let images = outcomes(&disk, "f", policy).into_iter().flatten();
        images
            .inspect(|image| assert_eq!(image.len(), 3 * 4096))
            .inspect(|image| assert_eq!(zeros(&image[4096..8192]), zeros(image)))
            .map(|image| zeros(&image))
            .collect()
    };
    assert_eq!(seen(Policy::Drop), BTreeSet::from([0]));
    assert_eq!(seen(Policy::Keep), BTreeSet::from([4096]));
    for policy in [Policy::Torn, Policy::Reorder] {
        let seen = seen(policy);
        assert!(seen.len() > 3, "{policy:?} {seen:?}");
        assert!(seen.iter().all(|zeros| zeros % 512 == 0), "{seen:?}");
    }
    segment.sync().unwrap();
    assert_eq!(seen(Policy::Drop), BTreeSet::from([4096]));
}
