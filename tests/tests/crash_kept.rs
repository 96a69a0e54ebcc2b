//! The daemon is killed, and programs in its mounts notice nothing: every call returns what it would have returned.
//!
//! `AGENTVFS_KEPT_SECONDS` says for how long each random test goes on (8).

#![allow(clippy::unwrap_used)]

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tests::differential::{self as differ, Pair};
use tests::env::Env;
use tests::rng::{self, Rng};
use tests::skip::{Want, skip};
use tests::{mount, wait};

fn seconds() -> Duration {
    let given = std::env::var("AGENTVFS_KEPT_SECONDS").ok();
    Duration::from_secs(given.map_or(8, |text| text.parse().unwrap()))
}

/// An environment whose mounts outlive their daemons; none, with the reason printed, where that cannot be.
fn kept() -> Option<Env> {
    let mut env = Env::new()?;
    env.keep_mounts();
    Some(env)
}

/// Kills the daemon after a while that is anything up to 150 ms.
fn strike(env: &Env, rng: &mut Rng) {
    wait::let_run(Duration::from_micros(rng.below(150_000)));
    env.strike_daemon();
}

/// Kills the daemon where it is about to answer a request that it has carried out: one of the next fifty.
fn strike_before_an_answer(env: &Env, rng: &mut Rng) {
    let Some(daemon) = env.daemons().first().copied() else {
        return wait::let_run(Duration::from_millis(1));
    };
    let nth = 1 + rng.below(50);
    let strace = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-P", "/dev/fuse"])
        .args(["-p", &daemon.as_raw_nonzero().to_string()])
        .args(["-e", "trace=writev", "-e"])
        .arg(format!("inject=writev:error=EIO:signal=KILL:when={nth}"))
        .stderr(Stdio::null())
        .spawn();
    let mut strace = strace.unwrap();
    let since = Instant::now();
    while strace.try_wait().unwrap().is_none() && since.elapsed() < Duration::from_secs(1) {
        wait::let_run(Duration::from_millis(1));
    }
    // Nobody asked for enough: what is traced goes on.
    let _ = strace.kill();
    strace.wait().unwrap();
}

/// Whether strace(1) is there and may trace.
fn can_trace() -> bool {
    let probe = Command::new("strace")
        .args(["-f", "-o", "/dev/null", "true"])
        .stderr(Stdio::null())
        .status();
    let can = probe.is_ok_and(|status| status.success());
    if !can {
        skip(Want::Machine, "strace is missing, or may not trace");
    }
    can
}

/// Does `work` while the daemon is killed again and again; says how often it was.
fn while_killed<R>(env: &Env, strike: fn(&Env, &mut Rng), work: impl FnOnce() -> R) -> (R, u64) {
    let (over, kills) = (AtomicBool::new(false), AtomicU64::new(0));
    let seed = rng::seed();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = Rng::new(seed);
            while !over.load(Ordering::Relaxed) {
                strike(env, &mut rng);
                kills.fetch_add(1, Ordering::Relaxed);
            }
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Ordering::Relaxed);
        match done {
            Ok(done) => (done, kills.load(Ordering::Relaxed)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[test]
fn random_calls_give_the_same_as_natively_while_the_daemon_is_killed() {
    let Some(env) = kept() else { return };
    let native = env.path("native");
    fs::create_dir(&native).unwrap();
    let root = env.start();
    let pair = Pair {
        fine_clock: differ::has_fine_clock(&native),
        native,
        mount: root,
    };
    let first = rng::seed();
    let end = Instant::now() + seconds();
    let (seeds, kills) = while_killed(&env, strike, || {
        let mut seed = first;
        while Instant::now() < end {
            let steps = differ::steps(seed, 100, mount::is_root());
            let compared = differ::compare(&pair, &format!("seed-{seed}"), &steps, false);
            assert!(compared.is_ok(), "seed {seed}: {compared:?}");
            seed += 1;
        }
        seed - first
    });
    println!("{seeds} seeds of 100 calls, {kills} kills");
    env.workspace(&["stop"]).ok();
    assert!(env.keepers().is_empty() || wait_for_no_keeper(&env));
}

fn wait_for_no_keeper(env: &Env) -> bool {
    wait::until("the keeper ends with the last workspace", || {
        env.keepers().is_empty()
    });
    true
}

/// The call that failed.
fn at(call: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{call}: {error}"))
}

/// A directory in which one thread does what fails when a call is carried out twice or not at all.
struct Cycle {
    dir: PathBuf,
    rounds: u64,
}

impl Cycle {
    fn new(root: &Path, number: usize) -> Cycle {
        let dir = root.join(format!("cycle-{number}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("log"), b"").unwrap();
        Cycle { dir, rounds: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// One round; each call must do exactly what it says.
    fn round(&mut self) -> io::Result<()> {
        let [file, other, dir, link] = ["file", "other", "dir", "link"].map(|n| self.path(n));
        let line = format!("{:08}\n", self.rounds);
        let mut log = OpenOptions::new()
            .append(true)
            .open(self.path("log"))
            .map_err(|e| {
                at(
                    "let mut log = OpenOptions::new().append(true).open(self.path",
                    e,
                )
            })?;
        assert_eq!(log.write(line.as_bytes())?, line.len());
        let mut made = OpenOptions::new();
        let mut made = made
            .write(true)
            .create_new(true)
            .mode(0o640)
            .open(&file)
            .map_err(|e| {
                at(
                    "let mut made = made.write(true).create_new(true).mode(0o640)",
                    e,
                )
            })?;
        made.write_all(b"0123456789")
            .map_err(|e| at("made.write_all(b'0123456789')?;", e))?;
        made.set_len(5).map_err(|e| at("made.set_len(5)?;", e))?;
        fs::hard_link(&file, &link).map_err(|e| at("fs::hard_link(&file, &link)?;", e))?;
        assert_eq!(made.metadata()?.nlink(), 2);
        fs::rename(&file, &other).map_err(|e| at("fs::rename(&file, &other)?;", e))?;
        rustix::fs::setxattr(&other, "user.a", b"1", rustix::fs::XattrFlags::CREATE)
            .map_err(io::Error::from)
            .map_err(|e| {
                at(
                    "rustix::fs::setxattr(&other, 'user.a', b'1', rustix::fs::Xat",
                    e,
                )
            })?;
        rustix::fs::removexattr(&other, "user.a")
            .map_err(io::Error::from)
            .map_err(|e| at("rustix::fs::removexattr(&other, 'user.a')?;", e))?;
        fs::remove_file(&link).map_err(|e| at("fs::remove_file(&link)?;", e))?;
        assert_eq!(fs::read(&other)?, b"01234");
        fs::create_dir(&dir).map_err(|e| at("fs::create_dir(&dir)?;", e))?;
        symlink("target", dir.join("s"))
            .map_err(|e| at("symlink('target', dir.join('s'))?;", e))?;
        fs::remove_file(dir.join("s")).map_err(|e| at("fs::remove_file(dir.join('s'))?;", e))?;
        fs::remove_dir(&dir).map_err(|e| at("fs::remove_dir(&dir)?;", e))?;
        fs::remove_file(&other).map_err(|e| at("fs::remove_file(&other)?;", e))?;
        made.write_at(b"gone", 5)
            .map_err(|e| at("made.write_at(b'gone', 5)?;", e))?;
        assert_eq!(made.metadata()?.size(), 9);
        self.nameless()?;
        self.rounds += 1;
        Ok(())
    }

    /// A file that gets its name later, and is moved so that a whiteout is left.
    fn nameless(&self) -> io::Result<()> {
        let [named, moved] = ["named", "moved"].map(|n| self.path(n));
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let made = rustix::fs::open(&self.dir, flags, Mode::from_raw_mode(0o640))
            .map_err(|e| at("open(O_TMPFILE)", e.into()))?;
        let mut made = File::from(made);
        let (number, links) = (made.metadata()?.ino(), made.metadata()?.nlink());
        assert_eq!(links, 0);
        made.write_all(b"nameless")?;
        let open = format!("/proc/self/fd/{}", made.as_raw_fd());
        rustix::fs::linkat(CWD, open, CWD, &named, AtFlags::SYMLINK_FOLLOW)
            .map_err(|e| at("linkat(/proc/self/fd)", e.into()))?;
        let there = fs::metadata(&named)?;
        assert_eq!((there.ino(), there.nlink(), there.size()), (number, 1, 8));
        rustix::fs::renameat_with(CWD, &named, CWD, &moved, RenameFlags::WHITEOUT)
            .map_err(|e| at("renameat2(RENAME_WHITEOUT)", e.into()))?;
        let left = fs::symlink_metadata(&named)?;
        assert_eq!((left.mode(), left.rdev()), (0o020_000, 0));
        assert_eq!(fs::read(&moved)?, b"nameless");
        fs::remove_file(&named).map_err(|e| at("unlink a whiteout", e))?;
        fs::remove_file(&moved).map_err(|e| at("unlink what was nameless", e))
    }

    fn check(&self) {
        let log = fs::read_to_string(self.path("log")).unwrap();
        let lines: String = (0..self.rounds).map(|n| format!("{n:08}\n")).collect();
        assert!(log == lines, "the log of {}", self.dir.display());
        let names = fs::read_dir(&self.dir).unwrap().count();
        assert_eq!(names, 1, "{}", self.dir.display());
    }
}

/// Three threads go through their rounds while the daemon is killed.
fn rounds_while_killed(strike: fn(&Env, &mut Rng)) {
    let Some(env) = kept() else { return };
    let root = env.start();
    let end = Instant::now() + seconds();
    let (cycles, kills) = while_killed(&env, strike, || {
        std::thread::scope(|scope| {
            let run = |number| {
                let mut cycle = Cycle::new(&root, number);
                while Instant::now() < end {
                    let done = cycle.round();
                    assert!(done.is_ok(), "round {}: {done:?}", cycle.rounds);
                }
                cycle
            };
            let all: Vec<_> = (0..3).map(|n| scope.spawn(move || run(n))).collect();
            let ended = all.into_iter().map(|one| one.join());
            ended.collect::<Result<Vec<_>, _>>().unwrap()
        })
    });
    let rounds: u64 = cycles.iter().map(|cycle| cycle.rounds).sum();
    println!("{rounds} rounds of 22 calls, {kills} kills");
    cycles.iter().for_each(Cycle::check);
    env.workspace(&["stop"]).ok();
    env.workspace(&["start", "project"]).ok();
    cycles.iter().for_each(Cycle::check);
}

#[test]
fn no_call_is_lost_or_carried_out_twice_while_the_daemon_is_killed() {
    rounds_while_killed(strike);
}

#[test]
fn a_request_that_was_carried_out_and_not_answered_is_carried_out_once() {
    if can_trace() {
        rounds_while_killed(strike_before_an_answer);
    }
}

/// The first thread of a process that cannot be woken, by two looks in a row.
fn stuck_thread(pid: Pid) -> bool {
    let stuck = || -> Vec<PathBuf> {
        let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
        let paths = tasks.unwrap().flatten().map(|task| task.path());
        let is_stuck = |path: &PathBuf| {
            let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('D'))
        };
        paths.filter(is_stuck).collect()
    };
    let first = stuck();
    wait::let_run(Duration::from_millis(200));
    stuck().iter().any(|path| first.contains(path))
}

fn drop_pages(path: &Path) {
    let file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// A rollback has the kernel drop the pages of a file, and it waits there for a page that is being read. If the daemon
/// that is to bring it is killed then, nothing but that thread may be left of it.
#[test]
fn a_daemon_that_is_killed_while_the_kernel_waits_to_drop_a_page_is_replaced() {
    if !can_trace() {
        return;
    }
    let Some(env) = kept() else { return };
    let file = env.start().join("file");
    env.workspace(&["checkpoint", "before"]).id();
    let written = File::create(&file).unwrap();
    written.write_all_at(&[b'a'; 1 << 16], 0).unwrap();
    written.sync_all().unwrap();
    drop(written);
    let journal = env.home().join("workspaces/project/branches/main/journal");
    let segments = fs::read_dir(journal)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let last = segments
        .filter(|path| path.extension().is_some_and(|e| e == "seg"))
        .max();
    let daemon = env.daemons()[0];
    // What is read of the journal does not come for a minute.
    let mut strace = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-P"])
        .arg(last.unwrap())
        .args(["-p", &daemon.as_raw_nonzero().to_string()])
        .args(["-e", "trace=preadv2,pread64"])
        .args(["-e", "inject=preadv2:error=EAGAIN"])
        .args(["-e", "inject=pread64:delay_enter=60000000"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", daemon.as_raw_nonzero());
    let traced = || {
        !fs::read_to_string(&status)
            .unwrap()
            .contains("TracerPid:\t0")
    };
    wait::until("the daemon is traced", traced);
    std::thread::scope(|scope| {
        let read = || fs::read(&file).map(|bytes| bytes.len());
        let reader = std::iter::repeat_with(|| {
            drop_pages(&file);
            let reader = scope.spawn(read);
            // The page is locked before the rollback begins, or there would be nothing to wait for.
            wait::let_run(Duration::from_millis(300));
            reader
        });
        // The kernel need not drop what it is asked to drop; what is still there is read without the daemon.
        let mut waiting = reader.take(20).filter(|reader| !reader.is_finished());
        let reader = waiting.next().expect("all pages stay");
        let rollback = env.begin(&["rollback", "before"]);
        wait::until("a thread waits for the page", || stuck_thread(daemon));
        env.strike_daemon();
        strace.kill().unwrap();
        strace.wait().unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), 1 << 16);
        env.finish(rollback, "the rollback");
    });
    env.workspace(&["rollback", "before"]).ok();
    assert!(!file.exists());
    env.workspace(&["stop"]).ok();
}

/// Kills the daemon, and waits until its successor knows what the kernel holds.
fn kill_and_settle(env: &Env) {
    let settled = || {
        let log = fs::read_to_string(env.home().join("daemon.log")).unwrap();
        log.matches("what the kernel holds is known").count()
    };
    let before = settled();
    env.kill_daemon();
    wait::until("the successor knows what is held", || settled() > before);
}

/// Whether all of a file is read without the daemon, which stands still meanwhile.
fn is_cached(env: &Env, file: &File, content: &[u8]) -> bool {
    let daemon = env.daemons();
    kill_process(daemon[0], Signal::STOP).unwrap();
    let (file, mut read) = (file.try_clone().unwrap(), vec![0; content.len()]);
    let reader = std::thread::spawn(move || file.read_exact_at(&mut read, 0).map(|()| read));
    let since = Instant::now();
    while !reader.is_finished() && since.elapsed() < Duration::from_secs(10) {
        wait::let_run(Duration::from_millis(5));
    }
    let is_cached = reader.is_finished();
    kill_process(daemon[0], Signal::CONT).unwrap();
    assert_eq!(reader.join().unwrap().unwrap(), content);
    is_cached
}

#[test]
fn what_the_kernel_has_cached_stays_cached_unless_a_switch_was_cut_off() {
    let Some(env) = kept() else { return };
    let root = env.start();
    let content = b"of the checkpoint".repeat(1000);
    fs::write(root.join("f"), &content).unwrap();
    env.workspace(&["checkpoint", "one"]).ok();
    let file = File::open(root.join("f")).unwrap();
    let read = |n: u64| {
        let mut bytes = vec![0; content.len()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, content, "read {n}");
    };
    read(0);
    kill_and_settle(&env);
    assert!(is_cached(&env, &file, &content), "without any switch");
    fs::write(root.join("f"), b"short").unwrap();
    env.workspace(&["rollback", "--to", "one"]).ok();
    wait::until("what was replaced is stored", || {
        let log = env.workspace(&["log", "project", "--all"]).ok();
        !log.contains("pending")
    });
    read(1);
    kill_and_settle(&env);
    assert!(
        is_cached(&env, &file, &content),
        "after a rollback that ended"
    );
    drop(file);
    env.workspace(&["stop"]).ok();
}
