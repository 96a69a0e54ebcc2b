//! Opening, writing and syncing: flags of open(2), several writers, what the kernel decides alone.

#![allow(clippy::unwrap_used)]

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, SealFlags, StatxFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};
use tests::env::Env;
use tests::wait;

fn flags(flags: OFlags) -> i32 {
    flags.bits() as i32
}

/// How many requests of a kind the daemon has answered.
fn answered(env: &Env, kind: &str) -> u64 {
    env.status()["requests"][kind]["count"]
        .as_u64()
        .unwrap_or(0)
}

/// A file without a name.
fn nameless(dir: &Path, more: OFlags) -> rustix::io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | more;
    rustix::fs::open(dir, flags, Mode::from_raw_mode(0o640)).map(File::from)
}

fn name(file: &File, path: &Path) -> rustix::io::Result<()> {
    rustix::fs::linkat(file, "", CWD, path, AtFlags::EMPTY_PATH)
}

/// Inodes of the live tree.
fn inodes(env: &Env) -> u64 {
    env.status()["entries"].as_u64().unwrap()
}

#[test]
fn a_file_without_a_name_gets_one_or_goes_with_its_descriptor() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let dir = root.join("dir");
    fs::create_dir(&dir).unwrap();
    let before = inodes(&env);
    let mut file = nameless(&dir, OFlags::empty()).unwrap();
    file.write_all(b"text").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    assert_eq!(inodes(&env), before + 1);
    // O_EXCL: it never gets a name.
    let for_ever = nameless(&dir, OFlags::EXCL).unwrap();
    assert_eq!(name(&for_ever, &dir.join("x")), Err(Errno::NOENT));
    drop(for_ever);
    name(&file, &dir.join("named")).unwrap();
    assert_eq!(name(&file, &dir.join("named")), Err(Errno::EXIST));
    name(&file, &root.join("again")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 2);
    assert_eq!(fs::read(dir.join("named")).unwrap(), b"text");
    fs::remove_file(dir.join("named")).unwrap();
    fs::remove_file(root.join("again")).unwrap();
    assert_eq!(name(&file, &dir.join("back")), Err(Errno::NOENT));
    drop(file);
    wait::until("the files are gone", || inodes(&env) == before);
    let refused = |path: &str| nameless(&root.join(path), OFlags::empty()).map(drop);
    assert_eq!(refused(".agentvfs"), Err(Errno::PERM));
    let id = env.workspace(&["checkpoint"]).id();
    let snapshot = format!(".agentvfs/snapshots/{id}");
    assert_eq!(refused(&snapshot), Err(Errno::ROFS));
}

#[test]
fn a_file_without_a_name_stays_usable_over_a_rollback_and_is_in_no_commit() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let mut early = nameless(&root, OFlags::empty()).unwrap();
    early.write_all(b"before ").unwrap();
    let id = env.workspace(&["checkpoint"]).id();
    assert_eq!(env.workspace(&["diff", "--name-status", &id]).ok(), "");
    let mut late = nameless(&root, OFlags::empty()).unwrap();
    early.write_all(b"and after").unwrap();
    late.write_all(b"late").unwrap();
    fs::write(root.join("gone"), "").unwrap();
    env.workspace(&["rollback", &id]).ok();
    for (file, text) in [(&early, "before and after"), (&late, "late")] {
        let mut found = vec![0; text.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found, text.as_bytes());
        name(file, &root.join(text)).unwrap();
        assert_eq!(fs::read_to_string(root.join(text)).unwrap(), text);
    }
    // What a rollback takes the name from does not get one again.
    env.workspace(&["rollback", &id]).ok();
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    assert_eq!(name(&late, &root.join("late")), Err(Errno::NOENT));
    env.workspace(&["undo"]).ok();
    assert_eq!(fs::read_to_string(root.join("late")).unwrap(), "late");
}

#[test]
fn of_a_file_without_a_name_nothing_is_left_once_the_daemon_is_killed() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let before = inodes(&env);
    let mut files = [0, 1].map(|_| nameless(&root, OFlags::empty()).unwrap());
    for file in &mut files {
        file.write_all(b"text").unwrap();
        file.sync_all().unwrap();
    }
    name(&files[0], &root.join("named")).unwrap();
    assert_eq!(inodes(&env), before + 2);
    env.kill_daemon();
    drop(files);
    env.start();
    assert_eq!(inodes(&env), before + 1);
    assert_eq!(fs::read_to_string(root.join("named")).unwrap(), "text");
    env.workspace(&["stop"]).ok();
    env.told(env.command(&env.path(""), &["fsck"])).ok();
}

#[test]
fn a_renaming_leaves_a_whiteout_of_who_asks() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let rename = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(CWD, root.join(from), CWD, root.join(to), flags)
    };
    fs::create_dir(root.join("dir")).unwrap();
    fs::write(root.join("dir/file"), "text").unwrap();
    fs::write(root.join("other"), "").unwrap();
    let (leave, keep) = (RenameFlags::WHITEOUT, RenameFlags::NOREPLACE);
    assert_eq!(rename("dir", "other", leave | keep), Err(Errno::EXIST));
    assert_eq!(rename("missing", "other", leave), Err(Errno::NOENT));
    assert_eq!(rename("dir", "dir/below", leave), Err(Errno::INVAL));
    rename("dir", "moved", leave | keep).unwrap();
    rename("moved/file", "other", leave).unwrap();
    assert_eq!(fs::read_to_string(root.join("other")).unwrap(), "text");
    let owner = rustix::process::geteuid().as_raw();
    for left in ["dir", "moved/file"] {
        let stat = fs::symlink_metadata(root.join(left)).unwrap();
        assert_eq!((stat.mode(), stat.rdev()), (0o020_000, 0), "{left}");
        assert_eq!((stat.uid(), stat.nlink()), (owner, 1), "{left}");
    }
    let names = fs::read_dir(&root).unwrap().count();
    assert_eq!(names, 3);
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
