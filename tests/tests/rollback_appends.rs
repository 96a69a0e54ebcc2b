//! Logs to which programs append while the live tree is switched: records are whole, in order, and none is lost.

#![allow(clippy::unwrap_used)]

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::gettid;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tests::env::Env;
use tests::loggers::{
    How, ROUNDS, SHORT, numbers, numbers_of, record, with_loggers, with_loggers_of,
};
use tests::sys::{Mapping, PAGE};
use tests::wait;

#[test]
fn loggers_append_whole_records_in_order_through_a_hundred_switches() {
    const WRITERS: usize = 2;
    let Some(env) = Env::in_memory() else { return };
    let root = env.start();
    let path = root.join("log");
    let long: Vec<u8> = (0..200).flat_map(|n| record(0, n)).collect();
    for (label, content) in [
        ("long", &long[..]),
        ("short", &record(1, 0)),
        ("empty", b""),
    ] {
        fs::write(&path, content).unwrap();
        env.workspace(&["checkpoint", label]).id();
    }
    // Numbers start anew with the loggers: what the commits hold has none of theirs.
    let base = |label: &str| match label {
        "long" => long.clone(),
        "short" => record(1, 0),
        _ => Vec::new(),
    };
    let done = with_loggers(&path, WRITERS, |round, done| {
        let label = ["long", "short", "empty"][round % 3];
        env.workspace(&["rollback", label]).id();
        let answered: Vec<u64> = done.iter().map(|d| d.load(Ordering::SeqCst)).collect();
        for (done, before) in done.iter().zip(&answered) {
            wait::until("a logger goes on", || {
                done.load(Ordering::SeqCst) > before + 2
            });
        }
        let kept = base(label);
        let now = fs::read(&path).unwrap();
        assert!(
            now.starts_with(&kept),
            "round {round}: {label} is not what came back"
        );
        let found = numbers(&now[kept.len()..], WRITERS);
        for (found, answered) in found.iter().zip(answered) {
            // What was answered after the rollback's answer is there without a gap.
            let after = found.iter().copied().filter(|n| *n >= answered);
            assert!(found.last().is_some_and(|last| *last > answered));
            assert!(after.zip(answered..).all(|(a, b)| a == b || a == b + 1));
        }
    });
    let bytes = fs::read(&path).unwrap();
    let kept = base(["long", "short", "empty"][(ROUNDS - 1) % 3]);
    let found = numbers(&bytes[kept.len()..], WRITERS);
    for (found, done) in found.iter().zip(done) {
        assert_eq!(
            found.last().copied(),
            Some(done - 1),
            "the last record is the last one"
        );
    }
}

/// Writes a record whose second half the kernel has to bring in first: it is sent in two parts.
fn write_in_parts(log: &mut File, bytes: &[u8]) {
    let memory = tempfile::tempfile_in("/dev/shm").unwrap();
    let start = PAGE - bytes.len() / 2;
    memory.write_all_at(bytes, start as u64).unwrap();
    let mapping = Mapping::new(&memory, 2).unwrap();
    mapping.word(0).store(1, Ordering::SeqCst);
    let wrote = mapping.write_to(log, start, bytes.len());
    assert_eq!(wrote.unwrap(), bytes.len());
}

/// Rolls back beside loggers; each record must then be whole, and in exactly one of the states that were
/// replaced or in what is shown.
fn records_are_whole_everywhere(how: How<'_>) {
    const WRITERS: usize = 2;
    let Some(env) = Env::in_memory() else { return };
    let (root, len) = (env.start(), how.0);
    let path = root.join("log");
    // No multiple of a page.
    let bases = [9001, 100, 0].map(|n| vec![b'.'; n]);
    for (n, base) in bases.iter().enumerate() {
        fs::write(&path, base).unwrap();
        env.workspace(&["checkpoint", &format!("c{n}")]).id();
    }
    let found = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        let kept = bytes.iter().take_while(|b| **b == b'.').count();
        assert!(bases.iter().any(|base| base.len() == kept), "{kept} bytes");
        numbers_of(len, &bytes[kept..], WRITERS)
    };
    let done = with_loggers_of(how, &path, WRITERS, |round, _| {
        env.workspace(&["rollback", &format!("c{}", round % bases.len())])
            .id();
        found(&path);
    });
    let mut all: Vec<Vec<u64>> = found(&path);
    env.workspace(&["checkpoint", "end"]).id();
    let log = env.workspace(&["log", "--all"]).ok();
    let ids = log
        .lines()
        .skip(1)
        .filter_map(|line| line.split('\t').next());
    let mut states = 0;
    for id in ids {
        let path = root.join(".agentvfs/snapshots").join(id).join("log");
        if !path.exists() {
            // What the workspace began with.
            continue;
        }
        let more = found(&path);
        all.iter_mut()
            .zip(more)
            .for_each(|(all, more)| all.extend(more));
        states += 1;
    }
    assert!(states >= ROUNDS, "{log}");
    for (mut all, done) in all.into_iter().zip(done) {
        all.sort();
        assert!(all.into_iter().eq(0..done), "some are lost, or there twice");
    }
}

#[test]
fn records_of_100_bytes_are_whole_in_what_is_shown_or_in_what_was_replaced() {
    records_are_whole_everywhere((100, &|log, bytes| log.write_all(bytes).unwrap()));
}

#[test]
fn records_of_3000_bytes_are_whole_in_what_is_shown_or_in_what_was_replaced() {
    records_are_whole_everywhere((3000, &|log, bytes| log.write_all(bytes).unwrap()));
}

#[test]
fn records_of_memory_that_is_brought_in_are_whole_in_what_is_shown_or_in_what_was_replaced() {
    records_are_whole_everywhere((100, &write_in_parts));
}

#[test]
fn undo_gives_back_what_loggers_had_written_before_the_rollback() {
    let Some(env) = Env::in_memory() else { return };
    let path = env.start().join("log");
    fs::write(&path, "").unwrap();
    env.workspace(&["checkpoint", "empty"]).id();
    with_loggers(&path, 1, |_, done| {
        let answered = done[0].load(Ordering::SeqCst);
        env.workspace(&["rollback", "empty"]).id();
        env.workspace(&["undo"]).id_or_pending();
        let found = numbers(&fs::read(&path).unwrap(), 1);
        assert!(
            found[0].contains(&(answered - 1)),
            "{answered} of {found:?}"
        );
    });
}

/// How long a switch waits for who writes to a file (semantics.md).
const WRITERS_WAIT: Duration = Duration::from_secs(2);

/// Stops the daemons of an environment until it is dropped.
struct Stopped<'a>(&'a Env);

impl Stopped<'_> {
    fn new(env: &Env) -> Stopped<'_> {
        for pid in env.daemons() {
            kill_process(pid, Signal::STOP).unwrap();
            // Until one of its threads has seen the signal all of them go on.
            wait::until("the daemon is stopped", || is_stopped(pid));
        }
        Stopped(env)
    }
}

/// Whether all threads of a process are stopped (proc(5), `stat`: the state stands behind the name).
fn is_stopped(pid: Pid) -> bool {
    let stopped = |stat: String| stat.rsplit(") ").next().is_some_and(|s| s.starts_with('T'));
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap();
    threads
        .flatten()
        .all(|thread| fs::read_to_string(thread.path().join("stat")).is_ok_and(stopped))
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        for pid in self.0.daemons() {
            kill_process(pid, Signal::CONT).unwrap();
        }
    }
}

/// Whether a thread of this process waits within write(2).
fn waits_in_write(thread: i32) -> bool {
    let call = fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
    let number = call.unwrap_or_default();
    number.split(' ').next() == Some(&libc::SYS_write.to_string())
}

/// An append that has looked up the file's end, and has yet to be sent, cannot be held there by a test. It holds
/// the same lock as this write, and as little can be seen of it: the file does not become longer by this one.
#[test]
fn a_rollback_waits_for_a_write_that_the_kernel_has_begun() {
    // What is written lies in a file of the other one, whose daemon is stopped: the kernel waits for it.
    let (Some(env), Some(other)) = (Env::in_memory(), Env::in_memory()) else {
        return;
    };
    let path = env.start().join("log");
    let long: Vec<u8> = (0..10).flat_map(|n| record(1, n)).collect();
    fs::write(&path, &long).unwrap();
    env.workspace(&["checkpoint", "long"]).id();
    let mut source = record(0, 10);
    source.resize(PAGE, 0);
    fs::write(other.project().join("source"), source).unwrap();
    let both = |path: &Path| File::options().read(true).write(true).open(path).unwrap();
    let source = both(&other.start().join("source"));
    let source = Mapping::new(&source, 1).unwrap();
    fs::write(&path, &long[..SHORT]).unwrap();
    let log = both(&path);

    std::thread::scope(|scope| {
        let stopped = Stopped::new(&other);
        let (tell, thread) = mpsc::channel();
        let (source, log) = (&source, &log);
        let writer = scope.spawn(move || {
            tell.send(gettid().as_raw_nonzero().get()).unwrap();
            source.write_to(log, 0, SHORT).unwrap()
        });
        let thread = thread.recv().unwrap();
        wait::until("the write waits", || waits_in_write(thread));
        let began = Instant::now();
        let mut rollback = env.begin(&["rollback", "long"]);
        wait::until("the log is long", || fs::read(&path).unwrap() == long);
        // It must not end now, for which nothing can be waited.
        wait::let_run(WRITERS_WAIT / 8);
        let ended = rollback.try_wait().unwrap().is_some();
        assert!(!ended || began.elapsed() >= WRITERS_WAIT, "it did not wait");
        drop(stopped);
        assert_eq!(writer.join().unwrap(), SHORT);
        env.finish(rollback, "rollback").id();
        let written = [&record(0, 10)[..], &long[SHORT..]].concat();
        assert_eq!(fs::read(&path).unwrap(), written);
    });
}
