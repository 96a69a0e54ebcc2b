//! Names: looking up, listing, linking, renaming, removing.

use super::{Script, short};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, RenameFlags, SeekFrom};
use rustix::io::Result;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

pub(super) fn play(script: &mut Script) {
    long(script);
    listings(script);
    links(script);
    renames(script);
    removed(script);
    nodes(script);
}

fn long(script: &mut Script) {
    for len in [1, 254, 255, 256] {
        let name = "n".repeat(len);
        let made = script.open(&name, OFlags::CREATE | OFlags::RDWR).map(drop);
        script.say(&format!("create a name of {len}"), made);
        script.stat(&name);
        script.stat(&format!("{name}/x"));
        let gone = rustix::fs::unlinkat(&script.dir, &*name, AtFlags::empty());
        script.say("unlink it", gone);
        script.stat(&name);
    }
    for name in ["", ".", "..", "missing", "missing/below", "\u{fc}\n\t\\"] {
        script.stat(name);
        let made = rustix::fs::mkdirat(&script.dir, name, Mode::from_raw_mode(0o700));
        script.say(&format!("mkdir {name:?}"), made);
        let gone = rustix::fs::unlinkat(&script.dir, name, AtFlags::REMOVEDIR);
        script.say(&format!("rmdir {name:?}"), gone);
    }
}

/// A listing in pieces as small as the kernel takes them, then again from each position.
fn listings(script: &mut Script) {
    rustix::fs::mkdirat(&script.dir, "list", Mode::from_raw_mode(0o755)).unwrap();
    for i in 0..40 {
        let name = format!("list/{}", "x".repeat(i * 6 + 1));
        drop(script.make(&name));
    }
    rustix::fs::symlinkat("x", &script.dir, "list/link").unwrap();
    rustix::fs::mkdirat(&script.dir, "list/dir", Mode::from_raw_mode(0o755)).unwrap();
    let dir = script
        .open("list", OFlags::RDONLY | OFlags::DIRECTORY)
        .unwrap();
    let all = entries(&dir, 320).unwrap();
    for (name, kind, position) in &all {
        script.say(&format!("entry {}", short(name)), (kind, position));
    }
    for (_, _, position) in all.iter().step_by(5) {
        let sought = rustix::fs::seek(&dir, SeekFrom::Start(*position));
        let left = entries(&dir, 4096).unwrap();
        let first = left.first().map(|entry| entry.0.clone());
        script.say("from there", (sought.is_ok(), left.len(), first));
    }
}

/// Names, types and positions from the descriptor's own position on.
fn entries(dir: &OwnedFd, bytes: usize) -> Result<Vec<(String, FileType, u64)>> {
    let mut buffer = vec![MaybeUninit::uninit(); bytes];
    let mut listing = RawDir::new(dir, &mut buffer);
    let mut found = Vec::new();
    while let Some(entry) = listing.next() {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        found.push((name, entry.file_type(), entry.next_entry_cookie()));
    }
    Ok(found)
}

fn links(script: &mut Script) {
    drop(script.make("one"));
    let pairs = [
        ("one", "two"),
        ("one", "two"),
        ("list", "dir-too"),
        ("missing", "x"),
        ("one", "list/three"),
    ];
    for (from, to) in pairs {
        let linked = rustix::fs::linkat(&script.dir, from, &script.dir, to, AtFlags::empty());
        script.say(&format!("link {from} {to}"), linked);
    }
    script.stat("one");
    for target in ["one", "loop", &"t".repeat(4095), "a/b/../c"] {
        let name = if target == "loop" { "loop" } else { "soft" };
        let linked = rustix::fs::symlinkat(target, &script.dir, name);
        script.say(&format!("symlink {}", short(target)), linked);
        let read = rustix::fs::readlinkat(&script.dir, name, Vec::new());
        script.say("readlink", read.map(|target| target.to_bytes().len()));
        script.stat(name);
        let opened = script.open(name, OFlags::RDONLY).map(drop);
        script.say("open through it", opened);
        rustix::fs::unlinkat(&script.dir, name, AtFlags::empty()).unwrap();
    }
}

fn renames(script: &mut Script) {
    let dir = |name: &str| rustix::fs::mkdirat(&script.dir, name, Mode::from_raw_mode(0o755));
    for name in ["empty", "full", "full/inner"] {
        dir(name).unwrap();
    }
    for name in ["a", "b"] {
        drop(script.make(name));
    }
    let pairs = [
        ("a", "b"),
        ("b", "full"),
        ("full", "empty"),
        ("empty", "full"),
        ("full", "full/inner"),
        ("missing", "b"),
        ("one", "two"),
        ("b", "c"),
        ("empty", "list/moved"),
    ];
    for flags in [0, 1, 2, 3, 4, 5, 6, 8] {
        for (from, to) in pairs {
            let how = RenameFlags::from_bits_retain(flags);
            let renamed = rustix::fs::renameat_with(&script.dir, from, &script.dir, to, how);
            script.say(&format!("rename {from} {to} {flags}"), renamed);
        }
    }
    for name in ["a", "b", "c", "one", "two", "full", "empty", "list"] {
        script.stat(name);
    }
}

/// What is removed while it is open.
fn removed(script: &mut Script) {
    let file = script.make("removed");
    rustix::io::write(&file, b"still here").unwrap();
    rustix::fs::unlinkat(&script.dir, "removed", AtFlags::empty()).unwrap();
    script.stat("removed");
    let links = rustix::fs::fstat(&file).map(|stat| (stat.st_nlink, stat.st_size));
    script.say("fstat of a removed file", links);
    let mut text = [0; 20];
    let count = rustix::io::pread(&file, &mut text, 0);
    script.say("read it", (count, text));
    script.say("write it", rustix::io::pwrite(&file, b"more", 100));
    script.say(
        "chmod it",
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o600)),
    );
    let linked = rustix::fs::linkat(&file, "", &script.dir, "back", AtFlags::EMPTY_PATH);
    script.say("link it", linked);
    rustix::fs::mkdirat(&script.dir, "gone", Mode::from_raw_mode(0o755)).unwrap();
    let gone = script
        .open("gone", OFlags::RDONLY | OFlags::DIRECTORY)
        .unwrap();
    rustix::fs::unlinkat(&script.dir, "gone", AtFlags::REMOVEDIR).unwrap();
    let made = rustix::fs::mkdirat(&gone, "inner", Mode::from_raw_mode(0o755));
    script.say("mkdir in a removed directory", made);
    script.say("list it", entries(&gone, 4096).map(|all| all.len()));
    let flags = AtFlags::REMOVEDIR;
    let full = rustix::fs::unlinkat(&script.dir, "list", flags);
    script.say("rmdir of what is not empty", full);
    let wrong = rustix::fs::unlinkat(&script.dir, "list", AtFlags::empty());
    script.say("unlink of a directory", wrong);
}

fn nodes(script: &mut Script) {
    let mut kinds = vec![
        (FileType::Fifo, 0),
        (FileType::Socket, 0),
        (FileType::RegularFile, 0),
    ];
    if crate::mount::is_root() {
        kinds.push((FileType::CharacterDevice, rustix::fs::makedev(1, 3)));
        kinds.push((FileType::BlockDevice, rustix::fs::makedev(259, 70_000)));
    }
    for (kind, device) in kinds {
        let name = format!("node {kind:?}");
        let mode = Mode::from_raw_mode(0o666);
        let made = rustix::fs::mknodat(&script.dir, &*name, kind, mode, device);
        script.say(&name, made);
        script.stat(&name);
    }
}
