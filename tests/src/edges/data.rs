//! Contents: reading, writing, lengths, holes, mappings, locks.

use super::Script;
use crate::rng::Rng;
use crate::sys::{Mapping, RangeLock, try_lock};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::{Result, pread, pwrite};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::SeqCst;

const PAGE: u64 = 4096;

pub(super) fn play(script: &mut Script) {
    reads_and_writes(script);
    lengths(script);
    holes(script);
    copies(script);
    mappings(script);
    locks(script);
}

/// Hash of all bytes of a file, read in pieces of `len`.
fn hash(file: &OwnedFd, len: usize) -> Result<String> {
    let (mut hasher, mut at, mut buffer) = (blake3::Hasher::new(), 0, vec![0; len]);
    loop {
        match pread(file, &mut buffer[..], at)? {
            0 => return Ok(hasher.finalize().to_string()),
            count => {
                hasher.update(&buffer[..count]);
                at += count as u64;
            }
        }
    }
}

fn reads_and_writes(script: &mut Script) {
    let file = script.make("data");
    script.say("write nothing", rustix::io::write(&file, &[]));
    script.say("read of an empty file", pread(&file, &mut [0; 10], 0));
    let big = Rng::new(7).bytes((9 << 20) + 123);
    script.say("write 9 MiB", pwrite(&file, &big, 5));
    for len in [4096, 1 << 20, 16 << 20] {
        script.say("its bytes", hash(&file, len));
    }
    let end = 5 + big.len() as u64;
    for at in [
        0,
        end - 1,
        end,
        end + 1,
        i64::MAX as u64 - 10,
        i64::MAX as u64,
        u64::MAX,
    ] {
        let mut buffer = [9; 16];
        let read = pread(&file, &mut buffer[..], at);
        script.say(&format!("read at {at}"), (read, buffer));
        script.say("write there", pwrite(&file, &[], at));
    }
    let far = (16u64 << 40) - PAGE;
    for at in [far - 4, far - 2, far] {
        script.say(&format!("write at {at}"), pwrite(&file, b"last", at));
    }
    script.stat("data");
    for flags in [OFlags::APPEND, OFlags::DSYNC, OFlags::SYNC, OFlags::NOATIME] {
        let opened = script.open("data", flags | OFlags::RDWR).unwrap();
        rustix::fs::ftruncate(&opened, 10).unwrap();
        script.say("write", rustix::io::write(&opened, b"abc"));
        script.say("its bytes", hash(&opened, 4096));
    }
    let direct = script.open("data", OFlags::DIRECT | OFlags::RDWR).unwrap();
    script.say("write directly", pwrite(&direct, &big[..10_000], 100));
    script.say("read directly", hash(&direct, 1000));
    for flags in [
        OFlags::TRUNC | OFlags::WRONLY,
        OFlags::CREATE | OFlags::TRUNC | OFlags::RDWR,
    ] {
        pwrite(&file, b"content", 0).unwrap();
        script.say("open and empty", script.open("data", flags).map(drop));
        script.stat("data");
    }
    let exclusive = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
    script.say(
        "create what exists",
        script.open("data", exclusive).map(drop),
    );
    script.say(
        "sync",
        (rustix::fs::fsync(&file), rustix::fs::fdatasync(&file)),
    );
}

fn lengths(script: &mut Script) {
    let file = script.make("lengths");
    pwrite(&file, b"0123456789", 0).unwrap();
    for len in [
        10,
        4,
        8192,
        5,
        (16 << 40) - PAGE,
        (16 << 40),
        u64::MAX,
        0,
        7,
    ] {
        script.say(
            &format!("truncate to {len}"),
            rustix::fs::ftruncate(&file, len),
        );
        script.stat("lengths");
    }
    script.say("its bytes", hash(&file, 4096));
    let read_only = script.open("lengths", OFlags::RDONLY).unwrap();
    script.say(
        "truncate without the right",
        rustix::fs::ftruncate(&read_only, 1),
    );
}

fn holes(script: &mut Script) {
    let modes = [0, 1, 2, 3, 4, 8, 0x10, 0x11, 0x13, 0x20, 0x40];
    for mode in modes {
        let name = format!("holes {mode}");
        let file = script.make(&name);
        pwrite(&file, &[7; 3 * PAGE as usize], 0).unwrap();
        pwrite(&file, &[8; 10], 20 * PAGE).unwrap();
        for (at, len) in [
            (PAGE, PAGE),
            (10, 0),
            (PAGE - 10, 30),
            (30 * PAGE, PAGE),
            (1 << 45, 1),
        ] {
            let how = FallocateFlags::from_bits_retain(mode);
            let done = rustix::fs::fallocate(&file, how, at, len);
            script.say(&format!("fallocate {mode} {at} {len}"), done);
        }
        script.stat(&name);
        script.say("its bytes", hash(&file, 8192));
        for at in [0, 1, PAGE, 3 * PAGE, 15 * PAGE, 20 * PAGE + 9, 1 << 40] {
            let data = rustix::fs::seek(&file, SeekFrom::Data(at));
            let hole = rustix::fs::seek(&file, SeekFrom::Hole(at));
            script.say(&format!("data and hole from {at}"), (data, hole));
        }
    }
}

fn copies(script: &mut Script) {
    let (from, to) = (script.make("from"), script.make("to"));
    pwrite(&from, &Rng::new(9).bytes(200_000), 0).unwrap();
    let ranges = [
        (0, 0, 200_000),
        (0, 100, 4096),
        (4096, 8192, 100_000),
        (199_990, 0, 4096),
        (200_000, 0, 10),
        (300_000, 0, 10),
        (10, 400_000, 1),
        (0, 0, 0),
    ];
    for (at, to_at, len) in ranges {
        let (mut at, mut to_at) = (at, to_at);
        let copied = rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut to_at), len);
        script.say("copy", (copied, at, to_at));
        script.say("its bytes", hash(&to, 1 << 20));
    }
    for (mut at, mut to_at) in [(0, 100_000), (0, 50)] {
        let own = rustix::fs::copy_file_range(&from, Some(&mut at), &from, Some(&mut to_at), 5000);
        script.say("copy within a file", own);
        script.say("its bytes", hash(&from, 1 << 20));
    }
}

fn mappings(script: &mut Script) {
    let file = script.make("mapped");
    rustix::fs::ftruncate(&file, 3 * PAGE + 5).unwrap();
    let opened = File::from(rustix::io::dup(&file).unwrap());
    let mapping = Mapping::new(&opened, 4).unwrap();
    for page in 0..4 {
        mapping.word(page).store(page as u64 + 0x0101, SeqCst);
    }
    script.say("its bytes", hash(&file, 4096));
    pwrite(&file, &[5; 100], PAGE).unwrap();
    script.say("the mapping sees it", mapping.get(1));
    drop(mapping);
    script.say("sync", rustix::fs::fsync(&file));
    script.stat("mapped");
    script.say("its bytes", hash(&file, 4096));
}

fn locks(script: &mut Script) {
    let name = "locked";
    drop(script.make(name));
    let open = || File::from(script.open(name, OFlags::RDWR).unwrap());
    let files = [open(), open()];
    let mut gave = Vec::new();
    for exclusive in [false, true] {
        for (start, len) in [(0, 10), (5, 0), (20, 1)] {
            let lock = RangeLock {
                of_open_file: true,
                exclusive,
                start,
                len,
            };
            gave.extend(
                files
                    .iter()
                    .map(|file| try_lock(file, lock).map_err(|e| e.kind())),
            );
        }
    }
    script.say("locks of open files", gave);
    let both = files.each_ref().map(|file| file.try_lock().is_ok());
    script.say("flock", both);
}
