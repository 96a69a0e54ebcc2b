//! Opening, writing and syncing: flags of open(2), several writers, what the kernel decides alone.

#![allow(clippy::unwrap_used)]

use rustix::fs::{AtFlags, CWD, Mode, OFlags, SealFlags, StatxFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};
use tests::env::Env;

fn flags(flags: OFlags) -> i32 {
    flags.bits() as i32
}

/// How many requests of a kind the daemon has answered.
fn answered(env: &Env, kind: &str) -> u64 {
    env.status()["requests"][kind]["count"]
        .as_u64()
        .unwrap_or(0)
}

#[test]
fn unnamed_temporary_files_are_refused_so_that_programs_take_named_ones() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    for _ in 0..2 {
        let made = rustix::fs::open(&root, flags, Mode::from_raw_mode(0o600));
        assert_eq!(made.map(drop), Err(Errno::OPNOTSUPP));
    }
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
}

#[test]
fn synchronous_writes_and_syncs_of_directories_reach_the_journal() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    for (name, flag) in [("sync", OFlags::SYNC), ("dsync", OFlags::DSYNC)] {
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true);
        let mut file = options
            .custom_flags(flags(flag))
            .open(root.join(name))
            .unwrap();
        let before = answered(&env, "fsync");
        file.write_all(b"safe").unwrap();
        assert_eq!(answered(&env, "fsync"), before + 1, "{name}");
        assert_eq!(fs::read(root.join(name)).unwrap(), b"safe");
    }
    let before = answered(&env, "fsyncdir");
    File::open(&root).unwrap().sync_all().unwrap();
    assert_eq!(answered(&env, "fsyncdir"), before + 1);
}

#[test]
fn direct_and_cached_access_see_the_same_bytes() {
    let Some(env) = Env::new() else { return };
    let path = env.start().join("file");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let cached = options.open(&path).unwrap();
    let direct = options
        .custom_flags(flags(OFlags::DIRECT))
        .open(&path)
        .unwrap();
    let room = vec![7; 3 * 4096];
    let start = room.as_ptr().align_offset(4096);
    let block = &room[start..start + 8192];
    direct.write_all_at(block, 0).unwrap();
    let mut found = vec![0; 8192];
    cached.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, block);
    cached.write_all_at(&[9; 100], 4000).unwrap();
    let mut room = vec![0; 3 * 4096];
    let start = room.as_ptr().align_offset(4096);
    direct
        .read_exact_at(&mut room[start..start + 8192], 0)
        .unwrap();
    let found = &room[start..start + 8192];
    assert_eq!(
        (found[3999], found[4000], found[4099], found[4100]),
        (7, 9, 9, 7)
    );
}

#[test]
fn exclusive_creation_has_one_winner() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let win = || {
        let tries = (0..200).map(|i| File::create_new(root.join(format!("f{i}"))));
        tries.filter(Result::is_ok).count()
    };
    let wins: usize = std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(win)).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(wins, 200);
}

#[test]
fn appends_of_several_writers_never_overlap() {
    let Some(env) = Env::new() else { return };
    let path = env.start().join("log");
    File::create_new(&path).unwrap();
    let append = |writer: u8| {
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        for i in 0..300 {
            let line = format!("{writer}:{i}:{}\n", "x".repeat(i % 90));
            assert_eq!(file.write(line.as_bytes()).unwrap(), line.len());
        }
    };
    std::thread::scope(|scope| {
        (0..4).for_each(|writer| drop(scope.spawn(move || append(writer))));
    });
    let text = fs::read_to_string(&path).unwrap();
    let mut next = [0; 4];
    for line in text.lines() {
        let parts: Vec<&str> = line.split(':').collect();
        let (writer, i): (usize, usize) = (parts[0].parse().unwrap(), parts[1].parse().unwrap());
        assert_eq!((next[writer], parts[2].len()), (i, i % 90));
        next[writer] += 1;
    }
    assert_eq!(next, [300; 4]);
}

#[test]
fn seals_are_for_files_in_memory_alone() {
    let Some(env) = Env::new() else { return };
    let seal = |path: &Path| {
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .open(path)
            .unwrap();
        rustix::fs::fcntl_add_seals(file, SealFlags::WRITE)
    };
    assert_eq!(seal(&env.path("tmp/native")), Err(Errno::INVAL));
    assert_eq!(seal(&env.start().join("file")), Err(Errno::INVAL));
}

#[test]
fn birth_time_is_not_claimed() {
    let Some(env) = Env::new() else { return };
    let path = env.start().join("file");
    fs::write(&path, "x").unwrap();
    let all = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = rustix::fs::statx(CWD, &path, AtFlags::empty(), all).unwrap();
    let given = StatxFlags::from_bits_retain(stat.stx_mask);
    assert!(given.contains(StatxFlags::BASIC_STATS));
    assert!(!given.contains(StatxFlags::BTIME));
    // Asking for it costs nothing: programs that do so by default are not slowed down.
    let before = answered(&env, "getattr");
    (0..10).for_each(|_| {
        rustix::fs::statx(CWD, &path, AtFlags::empty(), all).unwrap();
    });
    assert_eq!(answered(&env, "getattr"), before);
}

#[test]
fn access_time_is_as_set_and_moves_at_reads_that_reach_the_daemon() {
    let Some(env) = Env::new() else { return };
    let path = env.start().join("file");
    fs::write(&path, "x").unwrap();
    let day = Duration::from_secs(86_400);
    let old = SystemTime::now() - 3 * day;
    let times = fs::FileTimes::new().set_accessed(old).set_modified(old);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_times(times)
        .unwrap();
    assert_eq!(fs::metadata(&path).unwrap().accessed().unwrap(), old);
    let before = fs::metadata(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"x");
    let after = fs::metadata(&path).unwrap();
    assert!(after.accessed().unwrap() > SystemTime::now() - day);
    let rest = |stat: &fs::Metadata| (stat.mtime(), stat.ctime(), stat.ctime_nsec());
    assert_eq!(rest(&after), rest(&before));
    // As with `relatime` of other file systems, a further read leaves it.
    fs::read(&path).unwrap();
    let again = fs::metadata(&path).unwrap();
    assert_eq!(again.accessed().unwrap(), after.accessed().unwrap());
}
