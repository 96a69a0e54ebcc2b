//! Daemons that end again and again: what is asked of their mounts fails with EIO, until a command has one of them go on.

#![allow(clippy::unwrap_used)]

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use tests::env::Env;
use tests::rng::{self, Rng};
use tests::skip::{Want, skip};
use tests::sys::Mapping;
use tests::wait;

/// An environment in which a minute's crash after so many others is one too many.
fn env_after(crashes: &str) -> Option<Env> {
    let mut env = Env::new()?;
    env.set_variable("AGENTVFS_KEEPER", crashes);
    Some(env)
}

fn is_refused(root: &Path) -> bool {
    rustix::fs::statvfs(root).err() == Some(Errno::IO)
}

/// Kills the daemon once too often.
fn exhaust(env: &Env, root: &Path) {
    env.kill_daemon();
    wait::until("what is asked fails", || is_refused(root));
}

fn wait_for_no_daemon(env: &Env) {
    wait::until("no daemon is left", || env.daemons().is_empty());
}

fn errno<T: std::fmt::Debug>(done: io::Result<T>) -> Option<Errno> {
    done.err().as_ref().and_then(Errno::from_io_error)
}

fn open_to_append(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    options.open(path).unwrap()
}

#[test]
fn a_crash_loop_ends_in_eio_and_a_command_brings_everything_back() {
    let Some(env) = env_after("2") else { return };
    let root = env.start();
    fs::create_dir(root.join("dir")).unwrap();
    for name in ["cached", "never read", "dir/inside"] {
        fs::write(root.join(name), name).unwrap();
    }
    let (held, inside) = (
        open_to_append(&root.join("held")),
        File::open(root.join("dir")).unwrap(),
    );
    held.write_all_at(b"one", 0).unwrap();
    for _ in 0..2 {
        let before = env.daemons();
        env.kill_daemon();
        wait::until(
            "another daemon has come",
            || matches!(env.daemons()[..], [one] if !before.contains(&one)),
        );
        assert_eq!(fs::read(root.join("cached")).unwrap(), b"cached");
    }
    let cached = File::open(root.join("cached")).unwrap();
    exhaust(&env, &root);
    everything_fails_with_eio(&root, &held, &inside);
    let mut read = [0; 6];
    cached.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"cached", "what the kernel has is read");
    says_why(&env, &root);
    env.workspace(&["log", "project"]).ok();
    assert!(!is_refused(&root));
    let doctor = env.told(env.command(&env.path(""), &["doctor"])).out;
    assert!(!doctor.contains("EIO"), "{doctor}");
    assert!(doctor.contains("mounts outlive a crash of the daemon"));
    let told = env.workspace(&["status", "project"]).ok();
    assert!(told.contains("mounts answered EIO until then"), "{told}");
    held.write_all_at(b"two", 0).unwrap();
    let mut read = [0; 6];
    held.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"onetwo");
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    rustix::fs::openat(&inside, "new", flags, Mode::from_raw_mode(0o600)).unwrap();
    let mut names: Vec<_> = fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["cached", "dir", "held", "never read"]);
    assert_eq!(fs::read(root.join("never read")).unwrap(), b"never read");
    drop((cached, held, inside));
    env.workspace(&["stop"]).ok();
    wait::until("daemon and keeper have ended", || {
        env.keepers().is_empty() && env.daemons().is_empty()
    });
}

/// Calls of every kind that need the daemon.
fn everything_fails_with_eio(root: &Path, held: &File, inside: &File) {
    let path = |name: &str| root.join(name);
    let dir = File::open(root).unwrap();
    let all: [(&str, io::Result<()>); 14] = [
        ("create", fs::write(path("new"), b"new")),
        ("look up", fs::metadata(path("never looked up")).map(drop)),
        ("read", fs::read(path("never read")).map(drop)),
        ("append", held.write_all_at(b"lost", 0)),
        ("truncate", held.set_len(1)),
        ("sync", held.sync_all()),
        (
            "allocate",
            rustix::fs::fallocate(held, FallocateFlags::empty(), 0, 99).map_err(Into::into),
        ),
        ("mkdir", fs::create_dir(path("sub"))),
        (
            "symlink",
            rustix::fs::symlinkat("to", CWD, path("link")).map_err(Into::into),
        ),
        ("remove", fs::remove_file(path("cached"))),
        ("rename", fs::rename(path("cached"), path("moved"))),
        ("link", fs::hard_link(path("cached"), path("other"))),
        (
            "list",
            fs::read_dir(root).and_then(|mut all| all.try_for_each(|one| one.map(drop))),
        ),
        (
            "in a directory that is held",
            rustix::fs::openat(
                inside.as_fd(),
                "not looked up",
                OFlags::RDONLY,
                Mode::empty(),
            )
            .map(drop)
            .map_err(Into::into),
        ),
    ];
    for (what, done) in all {
        assert_eq!(errno(done), Some(Errno::IO), "{what}");
    }
    let figures = rustix::fs::fstatvfs(&dir).map(drop);
    assert_eq!(figures, Err(Errno::IO));
}

/// `doctor` says why without a daemon; `status` has one come, which leaves the mount alone and ends again.
fn says_why(env: &Env, root: &Path) {
    // One that was being started when the last one died finds nothing to serve, and ends.
    wait_for_no_daemon(env);
    let doctor = env.told(env.command(&env.path(""), &["doctor"])).out;
    for part in [
        "mounts answer EIO: daemons end again and again: 3 within a minute",
        "answers EIO: its daemons ended again and again",
        "agentvfs start project serves it again",
    ] {
        assert!(doctor.contains(part), "no {part:?} in {doctor}");
    }
    let told = env.workspace(&["status", "project"]).err;
    for part in [
        "its mount answers EIO (daemons end again and again: 3 within a minute)",
        "agentvfs start project recovers it",
    ] {
        assert!(told.contains(part), "no {part:?} in {told}");
    }
    assert!(is_refused(root));
    wait_for_no_daemon(env);
    assert!(is_refused(root), "the keeper stays");
    assert_eq!(env.keepers().len(), 1);
}

#[test]
fn a_call_that_waits_when_daemons_are_given_up_fails_with_eio() {
    let Some(env) = env_after("0") else { return };
    let root = env.start();
    let held = open_to_append(&root.join("held"));
    for pid in env.daemons() {
        kill_process(pid, Signal::STOP).unwrap();
        wait::until("every thread of the daemon stands still", || {
            stands_still(pid)
        });
    }
    let (say, thread) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn(move || {
        say.send(rustix::thread::gettid()).unwrap();
        (held.write_all_at(b"x", 0), held)
    });
    let thread = thread.recv().unwrap();
    wait::until("the call waits for its answer", || waits_for_fuse(thread));
    exhaust(&env, &root);
    let (written, held) = waiting.join().unwrap();
    assert_eq!(errno(written), Some(Errno::IO));
    env.workspace(&["start", "project"]).ok();
    held.write_all_at(b"y", 0).unwrap();
    assert_eq!(fs::read(root.join("held")).unwrap(), b"y");
}

/// Whether no thread of a process goes on.
fn stands_still(pid: Pid) -> bool {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    let stops = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat"));
        stat.is_ok_and(|stat| stat.contains(") T "))
    };
    tasks.is_ok_and(|mut tasks| tasks.all(|task| task.is_ok_and(stops)))
}

/// Whether a thread of this process waits for an answer to a request.
fn waits_for_fuse(thread: Pid) -> bool {
    // It does nothing else that waits.
    let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero()));
    let stat = stat.unwrap_or_default();
    let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    state.starts_with(['S', 'D'])
}

#[test]
fn mounts_that_are_refused_can_be_stopped_by_force_and_unmounted() {
    let Some(env) = env_after("0") else { return };
    let root = env.start();
    fs::write(root.join("a"), b"a").unwrap();
    let held = File::open(root.join("a")).unwrap();
    exhaust(&env, &root);
    env.workspace(&["stop", "--force", "project"]).ok();
    wait::until("daemon and keeper have ended", || {
        env.keepers().is_empty() && env.daemons().is_empty()
    });
    assert!(held.sync_all().is_err());
    env.workspace(&["start", "project"]).ok();
    assert_eq!(fs::read(root.join("a")).unwrap(), b"a");
    drop(held);
    exhaust(&env, &root);
    rustix::mount::unmount(&root, rustix::mount::UnmountFlags::DETACH)
        .or_else(|_| by_helper(&root))
        .unwrap();
    wait::until("the keeper has ended", || env.keepers().is_empty());
    assert!(!env.home().join("keeper.given-up").exists());
    env.workspace(&["start", "project"]).ok();
    assert_eq!(fs::read(root.join("a")).unwrap(), b"a");
}

fn by_helper(root: &Path) -> Result<(), Errno> {
    let mut command = Command::new("fusermount3");
    let ended = command.args(["-u", "-z"]).arg(root).status();
    match ended.is_ok_and(|status| status.success()) {
        true => Ok(()),
        false => Err(Errno::PERM),
    }
}

#[test]
fn of_two_workspaces_each_is_taken_by_itself() {
    let Some(env) = env_after("0") else { return };
    let root = env.start();
    fs::write(root.join("a"), b"a").unwrap();
    let other = env.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("b"), b"b").unwrap();
    let place = other.to_str().unwrap();
    env.workspace(&["start", "other", "--from", place]).ok();
    let second = env.home().join("mnt/other");
    exhaust(&env, &root);
    wait::until("the other is refused, too", || is_refused(&second));
    env.workspace(&["start", "project"]).ok();
    assert_eq!(fs::read(root.join("a")).unwrap(), b"a");
    assert!(is_refused(&second));
    exhaust(&env, &root);
    assert!(is_refused(&second));
    env.workspace(&["start", "other"]).ok();
    assert!(is_refused(&root));
    assert_eq!(fs::read(second.join("b")).unwrap(), b"b");
    env.workspace(&["stop", "project"]).ok();
    env.workspace(&["stop", "other"]).ok();
}

/// Kills the daemon where it is about to give its `nth` answer from now on; `None` where that cannot be traced.
fn strike_at_answer(env: &Env, nth: u64) -> Option<std::process::Child> {
    let daemon = env.daemons()[0].as_raw_nonzero();
    let strace = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-P", "/dev/fuse"])
        .args(["-p", &daemon.to_string(), "-e", "trace=writev", "-e"])
        .arg(format!("inject=writev:error=EIO:signal=KILL:when={nth}"))
        .stderr(Stdio::null())
        .spawn();
    let strace = strace.ok()?;
    let is_traced = || {
        let status = fs::read_to_string(format!("/proc/{daemon}/status")).unwrap_or_default();
        !status.contains("TracerPid:\t0")
    };
    wait::until("the daemon is traced, or has ended", || {
        is_traced() || env.daemons().is_empty()
    });
    Some(strace)
}

/// The last two are the file that is held and the one that is mapped.
const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// What the kernel shows of the names, by looking each up and by listing.
fn shown(root: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for name in NAMES {
        match fs::read(root.join(name)) {
            Ok(content) => all.insert(name.to_owned(), String::from_utf8_lossy(&content).into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => panic!("{name}: {error}"),
        };
    }
    let listed = fs::read_dir(root).unwrap();
    let mut listed: Vec<String> = listed
        .map(|one| one.unwrap().file_name().into_string().unwrap())
        .collect();
    listed.sort();
    assert_eq!(all.keys().cloned().collect::<Vec<_>>(), listed);
    all
}

/// One call that changes something; it may fail, with EIO alone.
fn change(root: &Path, held: &File, rng: &mut Rng) {
    let name = |rng: &mut Rng| -> PathBuf { root.join(NAMES[rng.below(5) as usize]) };
    let done = match rng.below(6) {
        0 => fs::write(name(rng), format!("{}", rng.below(1 << 40))),
        1 => fs::remove_file(name(rng)),
        2 => fs::rename(name(rng), name(rng)),
        3 => fs::hard_link(name(rng), name(rng)),
        4 => held.set_len(rng.below(9000)),
        _ => held.write_all_at(&vec![b'x'; rng.below(9000) as usize], 0),
    };
    let expected = [Errno::IO, Errno::NOENT, Errno::EXIST];
    let failed = errno(done);
    assert!(
        failed.is_none_or(|errno| expected.contains(&errno)),
        "{failed:?}"
    );
}

#[test]
fn what_failed_though_it_was_carried_out_is_shown_as_it_is() {
    let Some(env) = env_after("0") else { return };
    let root = env.start();
    let mut rng = Rng::new(rng::seed());
    for round in 0..12u64 {
        let held = open_to_append(&root.join("f"));
        held.set_len(4096).unwrap();
        let stored = open_to_append(&root.join("g"));
        stored.set_len(4096).unwrap();
        let mapped = Mapping::new(&stored, 1).unwrap();
        mapped.word(0).store(round, Ordering::SeqCst);
        stored.sync_all().unwrap();
        // What the kernel knows of now.
        shown(&root);
        // In every other round it is the creation of a file of which the kernel knows that it is missing.
        let creates = round % 2 == 0;
        let nth = if creates { 1 } else { 1 + rng.below(4) };
        let Some(mut strace) = strike_at_answer(&env, nth) else {
            return skip(Want::Machine, "strace is missing");
        };
        if creates {
            let made = errno(File::create_new(root.join("e")));
            assert!(made.is_none_or(|errno| errno == Errno::IO), "{made:?}");
        }
        for _ in 0..40 {
            change(&root, &held, &mut rng);
            if env.daemons().is_empty() || is_refused(&root) {
                break;
            }
        }
        let _ = strace.kill();
        strace.wait().unwrap();
        env.kill_daemon();
        wait::until("what is asked fails", || is_refused(&root));
        // Stored by a mapping, and refused when it is written back.
        mapped.word(0).store(u64::MAX, Ordering::SeqCst);
        assert_eq!(errno(stored.sync_all()), Some(Errno::IO));
        env.workspace(&["start", "project"]).ok();
        wait::until("what the kernel holds is known", || {
            let log = fs::read_to_string(env.home().join("daemon.log")).unwrap();
            log.matches("what the kernel holds is known").count() as u64 > round
        });
        let before = shown(&root);
        drop((mapped, held, stored));
        env.workspace(&["stop"]).ok();
        env.workspace(&["start", "project"]).ok();
        assert_eq!(before, shown(&root), "round {round}");
        for name in &NAMES[..5] {
            let _ = rustix::fs::unlinkat(CWD, root.join(name), AtFlags::empty());
        }
    }
}
