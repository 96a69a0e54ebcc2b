//! How many requests the kernel sends for a call, by the daemon's own count.
//!
//! FORGET is left out: the kernel sends it when it likes, and waits for no answer.

use crate::env::Env;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Timespec, Timestamps};
use std::collections::BTreeMap;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Times that each call is made, on another file each time.
pub const TIMES: u64 = 25;

/// Requests by kind.
pub type Count = BTreeMap<String, u64>;

/// A call: its name in the table, what must have been done before (not counted), and itself.
pub struct Call {
    /// By which the table has it.
    pub name: &'static str,
    before: fn(&OwnedFd, &str),
    call: fn(&OwnedFd, &str),
}

fn open(dir: &OwnedFd, name: &str, flags: OFlags) -> OwnedFd {
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o644)).unwrap()
}

fn write(file: impl AsFd) {
    assert_eq!(rustix::io::write(file, &[7; 200]).unwrap(), 200);
}

fn read(dir: &OwnedFd, name: &str) {
    let file = open(dir, name, OFlags::RDONLY);
    assert_eq!(rustix::io::read(&file, &mut [0; 4096]).unwrap(), 200);
}

fn make(dir: &OwnedFd, name: &str) {
    write(open(
        dir,
        name,
        OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY,
    ));
}

fn stat(dir: &OwnedFd, name: &str) {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn made_and_seen(dir: &OwnedFd, name: &str) {
    make(dir, name);
    stat(dir, name);
}

fn written(dir: &OwnedFd, name: &str) {
    made_and_seen(dir, name);
    write(open(dir, name, OFlags::WRONLY));
}

fn mkdir(dir: &OwnedFd, name: &str) {
    rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o755)).unwrap();
}

fn listed(dir: &OwnedFd, name: &str) {
    mkdir(dir, name);
    let inner = open(dir, name, OFlags::RDONLY | OFlags::DIRECTORY);
    (0..20).for_each(|i| make(&inner, &format!("{i}")));
    (0..2).for_each(|_| list(dir, name));
}

/// Lists a directory and looks at everything in it.
fn list(dir: &OwnedFd, name: &str) {
    let inner = open(dir, name, OFlags::RDONLY | OFlags::DIRECTORY);
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(&inner, &mut buffer);
    let mut seen = 0;
    while let Some(entry) = entries.next() {
        let name = entry.unwrap().file_name().to_owned();
        rustix::fs::statat(&inner, &name, AtFlags::empty()).unwrap();
        seen += 1;
    }
    assert_eq!(seen, 22);
}

fn missing(dir: &OwnedFd, name: &str) {
    let stat = rustix::fs::statat(dir, name, AtFlags::empty());
    assert_eq!(stat.map(drop), Err(rustix::io::Errno::NOENT));
}

fn chmod(dir: &OwnedFd, name: &str) {
    rustix::fs::chmodat(dir, name, Mode::from_raw_mode(0o600), AtFlags::empty()).unwrap();
}

fn set_times(dir: &OwnedFd, name: &str) {
    let time = Timespec {
        tv_sec: 1_000_000_000,
        tv_nsec: 5,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(dir, name, &times, AtFlags::empty()).unwrap();
}

const NOTHING: fn(&OwnedFd, &str) = |_, _| {};

/// Calls that read, or change data and attributes.
pub const DATA: &[Call] = &[
    Call {
        name: "create, write 200 B, close",
        before: NOTHING,
        call: make,
    },
    Call {
        name: "open, overwrite, close",
        before: |dir, name| {
            make(dir, name);
            write(open(dir, name, OFlags::WRONLY));
        },
        call: |dir, name| write(open(dir, name, OFlags::WRONLY)),
    },
    Call {
        name: "append to an open file",
        before: make,
        call: |dir, name| write(open(dir, name, OFlags::WRONLY | OFlags::APPEND)),
    },
    Call {
        name: "open, close",
        before: made_and_seen,
        call: |dir, name| drop(open(dir, name, OFlags::RDWR)),
    },
    Call {
        name: "open, read, close for the first time",
        before: made_and_seen,
        call: read,
    },
    Call {
        name: "open, read, close again",
        before: |dir, name| {
            made_and_seen(dir, name);
            read(dir, name);
        },
        call: read,
    },
    Call {
        name: "stat after a write",
        before: written,
        call: stat,
    },
    Call {
        name: "stat again",
        before: made_and_seen,
        call: stat,
    },
    Call {
        name: "stat of a missing name again",
        before: missing,
        call: missing,
    },
    Call {
        name: "chmod",
        before: made_and_seen,
        call: chmod,
    },
    Call {
        name: "utimens",
        before: made_and_seen,
        call: set_times,
    },
    Call {
        name: "fsync",
        before: make,
        call: |dir, name| rustix::fs::fsync(open(dir, name, OFlags::WRONLY)).unwrap(),
    },
];

/// Calls that change names, or list them.
pub const NAMES: &[Call] = &[
    Call {
        name: "rename",
        before: made_and_seen,
        call: |dir, name| rustix::fs::renameat(dir, name, dir, format!("{name}-new")).unwrap(),
    },
    Call {
        name: "unlink",
        before: made_and_seen,
        call: |dir, name| rustix::fs::unlinkat(dir, name, AtFlags::empty()).unwrap(),
    },
    Call {
        name: "mkdir",
        before: NOTHING,
        call: mkdir,
    },
    Call {
        name: "rmdir",
        before: mkdir,
        call: |dir, name| rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR).unwrap(),
    },
    Call {
        name: "symlink",
        before: NOTHING,
        call: |dir, name| rustix::fs::symlinkat("target", dir, name).unwrap(),
    },
    Call {
        name: "readlink",
        before: |dir, name| {
            rustix::fs::symlinkat("target", dir, name).unwrap();
            stat(dir, name);
        },
        call: |dir, name| drop(rustix::fs::readlinkat(dir, name, Vec::new()).unwrap()),
    },
    Call {
        name: "link",
        before: made_and_seen,
        call: |dir, name| {
            let other = format!("{name}-too");
            rustix::fs::linkat(dir, name, dir, other, AtFlags::empty()).unwrap();
        },
    },
    Call {
        name: "mkfifo",
        before: NOTHING,
        call: |dir, name| {
            let mode = Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(dir, name, FileType::Fifo, mode, 0).unwrap();
        },
    },
    Call {
        name: "list a directory of 20 files again, stat each",
        before: listed,
        call: list,
    },
];

/// What the daemon has answered so far.
pub fn answered(env: &Env) -> Count {
    let status = env.status();
    let kinds = status["requests"].as_object().unwrap();
    let counts = kinds
        .iter()
        .map(|(kind, told)| (kind.clone(), told["count"].as_u64().unwrap()));
    counts.filter(|(kind, _)| kind != "forget").collect()
}

/// What was answered between two looks; each look sends one STATFS itself, to see that the mount answers.
pub fn since(before: &Count, after: &Count) -> Count {
    let difference = |(kind, count): (&String, &u64)| {
        let looks = u64::from(kind == "statfs");
        let count = (count - before.get(kind).unwrap_or(&0)).saturating_sub(looks);
        (count > 0).then(|| (kind.clone(), count))
    };
    after.iter().filter_map(difference).collect()
}

/// What a call costs, made on many files.
pub fn cost(env: &Env, root: &Path, call: &Call) -> Count {
    let place = root.join(call.name.replace([' ', ','], "-"));
    fs::create_dir(&place).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(&place, flags, Mode::empty()).unwrap();
    // The directory's first change brings what is known of it from then on.
    make(&dir, "first");
    let names: Vec<String> = (0..TIMES).map(|i| format!("f{i}")).collect();
    names.iter().for_each(|name| (call.before)(&dir, name));
    rustix::fs::fstat(&dir).unwrap();
    let before = answered(env);
    names.iter().for_each(|name| (call.call)(&dir, name));
    since(&before, &answered(env))
}
