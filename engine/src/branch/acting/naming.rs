//! The process of a thread and its name now, as the system tells it (proc(5)).
//!
//! A thread may take another name at any moment, so its name is read again for each change, unless nothing can have
//! changed it: a thread that waits for an answer executes nothing, and execve(2) takes longer than [`NAME_QUIET`] until
//! the new program asks for anything. So a name stays true where the thread was last seen waiting less than that before its
//! request came. One that it gives itself (prctl(2)) is read within [`NAME_OLD`].
//!
//! Opening the file costs ten times as much as reading it, so the files of the last threads are kept open, in a list for all
//! of our threads. A thread that has a file table of its own ([`files_are_own`]) has a list of its own: what is a file in one
//! table is another one, or none, in the other.
//! (`telemetry_denied` finds it where that is forgotten.)
//! Invariant: a file speaks of the thread for which it was opened and of no later one with its number: once that has
//! ended, reading it fails.
//!
//! Tests: here; `tests/tests/policy_names.rs`, where the smallest program that there can be is executed by other names.

use crate::limits::{NAME_OLD, NAME_QUIET, NAMED_SHARDS, NAMED_THREADS_MAX};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// A process and its name.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// Its id; 0 where it is not known.
    pub pid: u32,
    /// Name of the thread that asked.
    pub comm: Arc<str>,
    /// Until when it is known to have waited for an answer, in nanoseconds.
    waited: AtomicU64,
}

impl Named {
    /// A process that is known already.
    pub fn new(pid: u32, comm: Arc<str>) -> Named {
        Named {
            pid,
            comm,
            waited: AtomicU64::new(0),
        }
    }

    /// Its thread waits for an answer, now.
    pub fn waits(&self, now: Instant) {
        self.waited.fetch_max(count(now), Ordering::Relaxed);
    }

    /// Whether its thread can have executed nothing since it was last seen, if it waits since a moment.
    fn is_quiet(&self, since: Instant) -> bool {
        let waited = self.waited.load(Ordering::Relaxed);
        waited > 0 && count(since).saturating_sub(waited) < nanoseconds(NAME_QUIET)
    }
}

/// A moment as nanoseconds.
fn count(moment: Instant) -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    nanoseconds(moment.saturating_duration_since(*START))
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What is known of a thread.
#[derive(Debug)]
struct Known {
    thread: u32,
    file: File,
    named: Arc<Named>,
    /// Its name was read no earlier.
    read: Option<Instant>,
}

/// Threads, each in the part that its number says, the one that asked last at the end.
static KNOWN: [Mutex<Vec<Known>>; NAMED_SHARDS] = [const { Mutex::new(Vec::new()) }; NAMED_SHARDS];

thread_local! {
    /// The list of a thread that has a file table of its own.
    static OWN: RefCell<Option<Vec<Known>>> = const { RefCell::new(None) };
}

/// To be called once by a thread that has a file table of its own from now on (unshare(2), `CLONE_FILES`).
pub fn files_are_own() {
    OWN.set(Some(Vec::new()));
}

/// When the last name was read, in nanoseconds; 0: none was.
static LAST_READ: AtomicU64 = AtomicU64::new(0);

/// Bytes of a name, at most, with the end of the line: TASK_COMM_LEN (proc_pid_comm(5)) and room for kernel threads'.
const NAME_BYTES: usize = 64;

/// The same, where it is known without asking the system; the thread waits since that moment, which is noted, whatever it asks
/// for. Costs nothing while no names are asked for.
pub(super) fn still(thread: u32, since: Instant) -> Option<Arc<Named>> {
    let last = LAST_READ.load(Ordering::Relaxed);
    if last == 0 || count(since).saturating_sub(last) > nanoseconds(NAME_OLD) {
        return None;
    }
    let known = KNOWN.get(thread as usize % NAMED_SHARDS)?.lock();
    let known = known.iter().rfind(|known| known.thread == thread)?;
    known.still(since)
}

/// The process of a thread and its name; empty where there is none such. `since` is when its request came, where it waits
/// for the answer.
pub(super) fn name_of(thread: u32, since: Option<Instant>) -> Arc<Named> {
    OWN.with_borrow_mut(|own| match own {
        Some(known) => look_up(known, thread, since),
        None => match KNOWN.get(thread as usize % NAMED_SHARDS) {
            Some(part) => look_up(&mut part.lock(), thread, since),
            None => Arc::default(),
        },
    })
}

fn look_up(known: &mut Vec<Known>, thread: u32, since: Option<Instant>) -> Arc<Named> {
    if let Some(last) = known.last_mut().filter(|last| last.thread == thread)
        && last.refresh(since)
    {
        return last.named.clone();
    }
    let at = known.iter().rposition(|known| known.thread == thread);
    let found = at.map(|at| known.remove(at));
    let refreshed = |mut known: Known| known.refresh(since).then_some(known);
    let found = found.and_then(refreshed);
    let Some(found) = found.or_else(|| meet(thread).and_then(refreshed)) else {
        return Arc::default();
    };
    if known.len() >= NAMED_THREADS_MAX {
        known.remove(0);
    }
    let named = found.named.clone();
    known.push(found);
    named
}

fn meet(thread: u32) -> Option<Known> {
    let file = File::open(format!("/proc/{thread}/comm")).ok()?;
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let pid = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    let pid = pid.trim().parse().ok()?;
    Some(Known {
        thread,
        file,
        named: Arc::new(Named::new(pid, Arc::default())),
        read: None,
    })
}

impl Known {
    /// The name, where it is still true of a thread that waits since this moment.
    fn still(&self, since: Instant) -> Option<Arc<Named>> {
        let age = since.saturating_duration_since(self.read?);
        if age >= NAME_OLD || !self.named.is_quiet(since) {
            return None;
        }
        self.named.waits(since);
        Some(self.named.clone())
    }

    /// Has the name at hand; false where the thread has ended.
    fn refresh(&mut self, since: Option<Instant>) -> bool {
        if since.is_some_and(|since| self.still(since).is_some()) {
            return true;
        }
        let mut bytes = [0; NAME_BYTES];
        let Ok(len @ 1..) = self.file.read_at(&mut bytes, 0) else {
            return false;
        };
        let name = bytes.get(..len).unwrap_or_default();
        let name = name.strip_suffix(b"\n").unwrap_or(name);
        if self.named.comm.as_bytes() != name {
            let name = String::from_utf8_lossy(name).into();
            self.named = Arc::new(Named::new(self.named.pid, name));
        }
        self.read = since;
        if let Some(since) = since {
            self.named.waits(since);
            LAST_READ.fetch_max(count(since), Ordering::Relaxed);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_name_is_the_present_one_and_ends_with_its_thread() {
        let own = name_of(std::process::id(), None);
        assert_eq!(own.pid, std::process::id());
        let mut child = Command::new("sh")
            .args(["-c", "read line; exec sleep 60"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let id = child.id();
        let name = || name_of(id, Some(Instant::now())).comm.to_string();
        while name() != "sh" {
            std::thread::yield_now();
        }
        drop(child.stdin.take());
        while name() != "sleep" {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(name_of(id, Some(Instant::now())).pid, 0);
        assert_eq!(name_of(0, None).pid, 0);
    }

    /// Gives this thread a name, and asks for it, as for a request that came at a moment.
    fn named(name: &str, since: Instant) -> Arc<Named> {
        std::fs::write("/proc/thread-self/comm", name).unwrap();
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        let thread = own.file_name().unwrap().to_str().unwrap().parse();
        name_of(thread.unwrap(), Some(since))
    }

    #[test]
    fn a_name_stays_true_for_a_moment_after_its_thread_waited() {
        let of_another_thread = || {
            let begun = Instant::now();
            let seen = named("one", begun);
            assert_eq!(&*seen.comm, "one");
            let done = begun + Duration::from_micros(300);
            seen.waits(done);
            assert_eq!(&*named("two", done + NAME_QUIET / 2).comm, "one");
            assert_eq!(&*named("three", done + 2 * NAME_QUIET).comm, "three");
            // It asks again and again, and never lets up.
            let mut at = begun + NAME_OLD;
            let mut name = named("four", at);
            while at < begun + 3 * NAME_OLD {
                at += NAME_QUIET / 2;
                name = named("five", at);
            }
            assert_eq!(&*name.comm, "five");
        };
        std::thread::spawn(of_another_thread).join().unwrap();
    }

    #[test]
    fn few_files_are_kept_open() {
        for _ in 0..2 * NAMED_THREADS_MAX * NAMED_SHARDS {
            let named = std::thread::spawn(|| named("some", Instant::now()));
            assert_eq!(named.join().unwrap().pid, std::process::id());
        }
        for part in &KNOWN {
            assert!(part.lock().len() <= NAMED_THREADS_MAX);
        }
    }
}
