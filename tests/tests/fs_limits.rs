//! How much fits: names, paths, link targets, entries of a directory, links of a file, lengths.

#![allow(clippy::unwrap_used)]

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use tests::env::Env;

fn open_dir(path: &Path) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).unwrap()
}

#[test]
fn names_have_up_to_255_bytes_of_any_value() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let mut wanted = BTreeSet::new();
    for byte in (1..=255u8).filter(|byte| *byte != b'/') {
        wanted.insert(vec![byte, byte, b'x']);
    }
    wanted.insert(vec![0xff; 255]);
    wanted.insert("é".repeat(127).into_bytes());
    for name in &wanted {
        fs::write(root.join(OsStr::from_bytes(name)), name).unwrap();
    }
    let listed: BTreeSet<Vec<u8>> = fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_vec())
        .collect();
    assert_eq!(listed, wanted);
    for name in &wanted {
        assert_eq!(fs::read(root.join(OsStr::from_bytes(name))).unwrap(), *name);
    }
    let long = root.join("n".repeat(256));
    let error = fs::write(&long, "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidFilename);
    assert_eq!(fs::metadata(&long).unwrap_err().kind(), error.kind());
}

#[test]
fn directories_may_lie_deeper_than_a_path_can_say() {
    let Some(env) = Env::new() else { return };
    let mut dirs = vec![open_dir(&env.start())];
    let name = "d".repeat(200);
    for _ in 0..40 {
        let at = dirs.last().unwrap();
        rustix::fs::mkdirat(at, &*name, Mode::from_raw_mode(0o755)).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        dirs.push(rustix::fs::openat(at, &*name, flags, Mode::empty()).unwrap());
    }
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    let deepest = dirs.last().unwrap();
    let file = rustix::fs::openat(deepest, "file", flags, Mode::from_raw_mode(0o644)).unwrap();
    rustix::io::write(&file, b"deep").unwrap();
    rustix::fs::renameat(deepest, "file", deepest, "other").unwrap();
    env.workspace(&["checkpoint", "deep"]).id();
    rustix::fs::unlinkat(deepest, "other", AtFlags::empty()).unwrap();
    env.workspace(&["rollback"]).ok();
    assert_eq!(
        rustix::fs::statat(deepest, "other", AtFlags::empty())
            .unwrap()
            .st_size,
        4
    );
    rustix::fs::unlinkat(deepest, "other", AtFlags::empty()).unwrap();
    for at in dirs.iter().rev().skip(1) {
        rustix::fs::unlinkat(at, &*name, AtFlags::REMOVEDIR).unwrap();
    }
}

#[test]
fn symbolic_links_have_up_to_4095_bytes() {
    let Some(env) = Env::new() else { return };
    let link = env.start().join("link");
    let target = "t".repeat(4095);
    symlink(&target, &link).unwrap();
    assert_eq!(fs::read_link(&link).unwrap().as_os_str(), &*target);
    assert_eq!(fs::symlink_metadata(&link).unwrap().size(), 4095);
    let longer = rustix::fs::symlink("t".repeat(4096), env.mountpoint().join("longer"));
    assert_eq!(longer, Err(Errno::NAMETOOLONG));
}

#[test]
fn a_file_has_up_to_65000_names() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("f"), "x").unwrap();
    let dirs = [open_dir(&root), open_dir(&root.join("d"))];
    for i in 1..65_000 {
        let name = format!("l{i}");
        rustix::fs::linkat(&dirs[0], "f", &dirs[i % 2], name, AtFlags::empty()).unwrap();
    }
    assert_eq!(fs::metadata(root.join("f")).unwrap().nlink(), 65_000);
    let one_more = rustix::fs::linkat(&dirs[0], "f", &dirs[0], "more", AtFlags::empty());
    assert_eq!(one_more, Err(Errno::MLINK));
    rustix::fs::unlinkat(&dirs[1], "l1", AtFlags::empty()).unwrap();
    rustix::fs::linkat(&dirs[0], "f", &dirs[0], "more", AtFlags::empty()).unwrap();
}

#[test]
fn files_have_up_to_16_tib_most_of_which_may_be_holes() {
    let Some(env) = Env::new() else { return };
    let path = env.start().join("sparse");
    let file = File::create_new(&path).unwrap();
    let (far, end) = (8 << 40, (16 << 40) - 4096);
    file.write_all_at(b"here", far).unwrap();
    file.set_len(end).unwrap();
    let stat = fs::metadata(&path).unwrap();
    assert_eq!((stat.size(), stat.blocks()), (end, 8));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)), Ok(far));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(far)), Ok(far + 4096));
    assert_eq!(
        rustix::fs::seek(&file, SeekFrom::Data(far + 4096)),
        Err(Errno::NXIO)
    );
    let longer = file.set_len(end + 1).unwrap_err();
    assert_eq!(longer.kind(), ErrorKind::FileTooLarge);
    env.workspace(&["checkpoint", "sparse"]).id();
    let mut found = [0; 4];
    File::open(&path)
        .unwrap()
        .read_exact_at(&mut found, far)
        .unwrap();
    assert_eq!(&found, b"here");
}

/// A page of a listing: names, and the position after each.
fn listed(dir: &OwnedFd, pages: usize) -> Vec<(CString, u64)> {
    let mut buffer = [MaybeUninit::uninit(); 32 << 10];
    let mut out = Vec::new();
    let mut entries = RawDir::new(dir, &mut buffer);
    let mut left = pages;
    while left > 0 {
        let Some(entry) = entries.next() else { break };
        let entry = entry.unwrap();
        out.push((entry.file_name().to_owned(), entry.next_entry_cookie()));
        left -= usize::from(entries.is_buffer_empty());
    }
    out
}

/// Lists a directory of `count` files of the base while every second one of those already seen is
/// removed and others come: each that stays is seen once.
fn list_while_it_changes(count: usize) {
    let Some(env) = Env::new() else { return };
    let base = env.project().join("d");
    fs::create_dir(&base).unwrap();
    for i in 0..count {
        File::create_new(base.join(format!("f{i}"))).unwrap();
    }
    let root = env.start().join("d");
    let (reader, changer) = (open_dir(&root), open_dir(&root));
    let mut seen = Vec::new();
    let mut made = 0;
    loop {
        let page = listed(&reader, 1);
        if page.is_empty() {
            break;
        }
        for (name, _) in page
            .iter()
            .step_by(2)
            .filter(|(n, _)| n.to_bytes()[0] == b'f')
        {
            rustix::fs::unlinkat(&changer, name, AtFlags::empty()).unwrap();
        }
        let mode = Mode::from_raw_mode(0o644);
        let new = format!("new{made}");
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(&changer, new, flags, mode).unwrap();
        made += 1;
        seen.extend(page.into_iter().map(|(name, _)| name));
    }
    let old: Vec<_> = seen.iter().filter(|n| n.to_bytes()[0] == b'f').collect();
    let once: BTreeSet<_> = old.iter().collect();
    assert_eq!(
        (old.len(), once.len()),
        (count, count),
        "seen, and seen once"
    );
    let left = fs::read_dir(&root).unwrap().count();
    assert!(
        left < count / 2 + made + 1000 && left > count / 3,
        "{left} are left"
    );
}

/// `AGENTVFS_LIST_ENTRIES` entries, a hundred thousand without it: a million takes minutes.
#[test]
fn many_entries_are_listed_once_each_while_they_change() {
    let given = std::env::var("AGENTVFS_LIST_ENTRIES").ok();
    list_while_it_changes(given.map_or(100_000, |n| n.parse().unwrap()));
}

#[test]
fn positions_in_a_listing_stay_valid() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    for i in 0..3000 {
        File::create_new(root.join(format!("f{i}"))).unwrap();
    }
    let dir = open_dir(&root);
    let all = listed(&dir, usize::MAX);
    assert_eq!(all.len(), 3002);
    let (_, position) = all[1500];
    // What lies before the position does not matter to it, nor what comes later.
    for (name, _) in all[..1500].iter().filter(|(n, _)| n.to_bytes()[0] == b'f') {
        rustix::fs::unlinkat(
            CWD,
            root.join(OsStr::from_bytes(name.to_bytes())),
            AtFlags::empty(),
        )
        .unwrap();
    }
    rustix::fs::seek(&dir, SeekFrom::Start(position)).unwrap();
    let rest = listed(&dir, usize::MAX);
    assert_eq!(rest, all[1501..]);
}

#[test]
fn only_ioctls_that_the_kernel_handles_itself_work() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    fs::write(root.join("file"), "six by").unwrap();
    let file = File::open(root.join("file")).unwrap();
    assert_eq!(rustix::io::ioctl_fionread(&file), Ok(6));
    let flags = rustix::fs::ioctl_getflags(&file);
    assert_eq!(
        flags,
        Err(Errno::NOTTY),
        "no attributes as chattr sets them"
    );
}
