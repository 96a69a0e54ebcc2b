//! The process of a thread and its name now, as the system tells it (proc(5)).
//!
//! A thread may take another name at any moment, by exec(2) for one, so its name is read again and again: where it was
//! read just now ([`NAME_FRESH`]), it is taken to be the same, because reading it costs more than telling of a change, and
//! a program needs longer from its exec(2) to its first change. Opening the file costs ten times as much as reading it;
//! so each of our threads keeps the files of the last threads that it asked for.
//! Invariant: a file speaks of the thread for which it was opened and of no later one with its number: once that has
//! ended, reading it fails.

use crate::limits::{NAME_FRESH, NAMED_THREADS_MAX};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

/// A process and its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    /// Its id; 0 where it is not known.
    pub pid: u32,
    /// Name of the thread that asked.
    pub comm: Arc<str>,
}

/// What is known of a thread.
struct Known {
    thread: u32,
    file: File,
    named: Named,
    /// When its name was read.
    read: Option<Instant>,
}

thread_local! {
    /// Threads, the one that asked last at the end.
    static KNOWN: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
}

/// Bytes of a name, at most, with the end of the line: TASK_COMM_LEN (proc_pid_comm(5)) and room for kernel threads'.
const NAME_BYTES: usize = 64;

/// The process of a thread and its name; empty where there is none such.
pub(super) fn name_of(thread: u32) -> Named {
    KNOWN.with_borrow_mut(|known| {
        let at = known.iter().rposition(|k| k.thread == thread);
        if let Some(mut found) = at.map(|at| known.remove(at))
            && found.refresh()
        {
            let named = found.named.clone();
            known.push(found);
            return named;
        }
        let Some(mut new) = meet(thread) else {
            return Named::default();
        };
        if !new.refresh() {
            return Named::default();
        }
        if known.len() >= NAMED_THREADS_MAX {
            known.remove(0);
        }
        let named = new.named.clone();
        known.push(new);
        named
    })
}

fn meet(thread: u32) -> Option<Known> {
    let file = File::open(format!("/proc/{thread}/comm")).ok()?;
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let pid = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    Some(Known {
        thread,
        file,
        named: Named {
            pid: pid.trim().parse().ok()?,
            comm: Arc::default(),
        },
        read: None,
    })
}

impl Known {
    /// Reads the name; false where the thread has ended.
    fn refresh(&mut self) -> bool {
        let now = Instant::now();
        let is_fresh = |read| now.duration_since(read) < NAME_FRESH;
        if self.read.is_some_and(is_fresh) {
            return true;
        }
        let mut bytes = [0; NAME_BYTES];
        let Ok(len @ 1..) = self.file.read_at(&mut bytes, 0) else {
            return false;
        };
        let name = bytes.get(..len).unwrap_or_default();
        let name = name.strip_suffix(b"\n").unwrap_or(name);
        if self.named.comm.as_bytes() != name {
            self.named.comm = String::from_utf8_lossy(name).into();
        }
        self.read = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_name_is_the_present_one_and_ends_with_its_thread() {
        let own = name_of(std::process::id());
        assert_eq!(own.pid, std::process::id());
        let mut child = Command::new("sh")
            .args(["-c", "read line; exec sleep 60"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let id = child.id();
        let name = || name_of(id).comm.to_string();
        while name() != "sh" {
            std::thread::yield_now();
        }
        drop(child.stdin.take());
        while name() != "sleep" {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        std::thread::sleep(NAME_FRESH);
        assert_eq!(name_of(id).pid, 0);
        assert_eq!(name_of(0).pid, 0);
    }

    #[test]
    fn few_files_are_kept_open() {
        for _ in 0..2 * NAMED_THREADS_MAX {
            let named = std::thread::spawn(|| {
                let own = std::fs::read_link("/proc/thread-self").unwrap();
                let thread = own.file_name().unwrap().to_str().unwrap().parse();
                name_of(thread.unwrap())
            });
            assert_eq!(named.join().unwrap().pid, std::process::id());
        }
        name_of(std::process::id());
        assert!(KNOWN.with_borrow(Vec::len) <= NAMED_THREADS_MAX);
    }
}
