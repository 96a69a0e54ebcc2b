//! What files take: copies share, holes are exact, allocations are kept.

#![allow(clippy::unwrap_used)]

use rustix::fs::{FallocateFlags, SeekFrom, fallocate};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use tests::env::Env;
use tests::rng::Rng;

const PAGE: u64 = 4096;

/// Bytes on disk of everything below a directory.
fn disk_usage(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else {
        return 0;
    };
    let each = entries.flatten().map(|entry| {
        let stat = fs::symlink_metadata(entry.path());
        let own = stat.as_ref().map_or(0, |stat| stat.blocks() * 512);
        match stat.is_ok_and(|stat| stat.is_dir()) {
            true => own + disk_usage(&entry.path()),
            false => own,
        }
    });
    each.sum()
}

/// Where data is: first byte and end of each piece.
fn pieces(file: &File) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Ok(start) = rustix::fs::seek(file, SeekFrom::Data(at)) {
        at = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap();
        out.push((start, at));
    }
    out
}

#[test]
fn statfs_has_the_figures_of_the_disk_under_the_store() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let seen = rustix::fs::statvfs(&root).unwrap();
    let disk = rustix::fs::statvfs(env.home()).unwrap();
    let bytes = |stat: &rustix::fs::StatVfs| stat.f_blocks * stat.f_frsize;
    assert_eq!(bytes(&seen), bytes(&disk));
    assert!(seen.f_bavail * seen.f_frsize <= bytes(&disk) && seen.f_bavail > 0);
    assert_eq!(seen.f_namemax, 255);
}

#[test]
fn copies_of_large_files_store_nothing_new() {
    let Some(env) = Env::new() else { return };
    let bytes = Rng::new(9).bytes(24 << 20);
    fs::write(env.project().join("of-the-base"), &bytes).unwrap();
    let root = env.start();
    env.imported();
    fs::write(root.join("fresh"), &bytes).unwrap();
    env.workspace(&["checkpoint", "stored"]).id();
    fs::write(root.join("in-the-journal"), &bytes[1000..]).unwrap();
    let places = ["packs", "workspaces"].map(|name| env.home().join(name));
    let used = || places.iter().map(|place| disk_usage(place)).sum::<u64>();
    let before = used();
    for name in ["of-the-base", "fresh", "in-the-journal"] {
        for copy in 0..3 {
            let mut cp = env.program("cp");
            cp.arg(root.join(name))
                .arg(root.join(format!("{name}-{copy}")));
            env.told(cp).ok();
        }
    }
    // What is in the journal may be stored in the background meanwhile, once.
    let grown = used().saturating_sub(before);
    assert!(
        before > 48 << 20 && grown < 30 << 20,
        "nine copies of 24 MiB took {grown} bytes"
    );
    let last = fs::read(root.join("of-the-base-2")).unwrap();
    assert!(last == bytes);
    assert!(fs::read(root.join("in-the-journal-0")).unwrap() == bytes[1000..]);
    // A copy is a file of its own.
    File::options()
        .write(true)
        .open(root.join("fresh-1"))
        .unwrap()
        .write_all_at(b"changed", 5)
        .unwrap();
    assert!(fs::read(root.join("fresh")).unwrap() == bytes);
}

#[test]
fn holes_are_exact_to_the_block() {
    let Some(env) = Env::new() else { return };
    let path = env.start().join("file");
    let file = File::create_new(&path).unwrap();
    file.set_len(64 * PAGE).unwrap();
    assert_eq!(pieces(&file), []);
    file.write_all_at(b"x", 5 * PAGE + 17).unwrap();
    file.write_all_at(&[1; 2 * PAGE as usize], 20 * PAGE - 1)
        .unwrap();
    let wanted = [(5 * PAGE, 6 * PAGE), (19 * PAGE, 22 * PAGE)];
    assert_eq!(pieces(&file), wanted);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 20 * PAGE, PAGE).unwrap();
    let wanted = [wanted[0], (19 * PAGE, 20 * PAGE), (21 * PAGE, 22 * PAGE)];
    assert_eq!(pieces(&file), wanted);
    env.workspace(&["checkpoint", "holes"]).id();
    let file = File::open(&path).unwrap();
    assert_eq!(pieces(&file), wanted, "once it is stored");
    assert_eq!(
        rustix::fs::seek(&file, SeekFrom::Hole(64 * PAGE)),
        Err(Errno::NXIO)
    );
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)), Ok(0));
}

#[test]
fn ranges_are_allocated_zeroed_and_punched() {
    let Some(env) = Env::new() else { return };
    let path = env.start().join("file");
    let file = File::create_new(&path).unwrap();
    file.write_all_at(&[0xaa; 50_000], 0).unwrap();
    let size = || fs::metadata(&path).unwrap().size();
    let none = FallocateFlags::empty();
    let keep = FallocateFlags::KEEP_SIZE;
    fallocate(&file, none, 0, 80_000).unwrap();
    assert_eq!(size(), 80_000);
    fallocate(&file, keep, 80_000, 40_000).unwrap();
    assert_eq!(size(), 80_000);
    fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, 10_001, 20_000).unwrap();
    fallocate(&file, FallocateFlags::ZERO_RANGE, 40_000, 3000).unwrap();
    let mut wanted = [vec![0xaa; 50_000], vec![0; 30_000]].concat();
    wanted[10_001..30_001].fill(0);
    wanted[40_000..43_000].fill(0);
    assert!(fs::read(&path).unwrap() == wanted);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 79_000, 9000).unwrap();
    assert_eq!(size(), 88_000);
    fallocate(&file, FallocateFlags::ZERO_RANGE | keep, 87_000, 9000).unwrap();
    assert_eq!(size(), 88_000);
    for refused in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        assert_eq!(fallocate(&file, refused, 0, PAGE), Err(Errno::OPNOTSUPP));
    }
    assert_eq!(fallocate(&file, none, 0, 0), Err(Errno::INVAL));
}
