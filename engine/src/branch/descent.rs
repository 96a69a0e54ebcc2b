//! From which processes a process or thread descends, as the system tells it (proc(5)).
//!
//! Invariant: what was found once stays true. Who started a process does not change when that ends and the process
//! gets another parent; a process is told apart from others with its id by when it was started.
//!
//! Tests: `ctl/daemon/src/callers.rs`, `tests/tests/cli_beside.rs`.

use crate::journal::this_boot;
use crate::record::call::Process;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Steps upwards from a process to its ancestors, at most.
const LINEAGE_MAX: usize = 256;
/// Processes and threads that are remembered, at most.
const REMEMBERED_MAX: usize = 4096;

/// What the system says of a process.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Which one it is.
    pub process: Process,
    /// Id of its parent.
    pub parent: u32,
    /// It has ended, and its parent has not asked how.
    pub ended: bool,
}

/// A process (or thread) by its id, where there is one.
pub fn seen(pid: u32) -> Option<Seen> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may have any bytes.
    let end = text.iter().rposition(|b| *b == b')')?;
    let fields = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let process = Process {
        pid,
        started: fields.get(19)?.parse().ok()?,
        boot: this_boot(),
    };
    Some(Seen {
        process,
        parent: fields.get(1)?.parse().ok()?,
        ended: matches!(*fields.first()?, "Z" | "X"),
    })
}

/// A process and those that it descends from, the nearest first; empty where it is not known.
pub fn lineage(pid: Option<u32>) -> Vec<Process> {
    let mut found = Vec::new();
    let mut next = pid.filter(|pid| *pid > 0);
    while let Some(seen) = next.and_then(seen)
        && found.len() < LINEAGE_MAX
    {
        found.push(seen.process);
        next = Some(seen.parent).filter(|pid| *pid > 0);
    }
    found
}

/// Lineages by process and by thread.
static MET: LazyLock<Mutex<HashMap<Process, Arc<[Process]>>>> = LazyLock::new(Mutex::default);

/// The process of a thread and those that it descends from, the nearest first; empty where it is not known. What was
/// found before is remembered: a process that was given to another parent since still descends from the first one.
pub(super) fn of_thread(thread: u32) -> Arc<[Process]> {
    let Some(asking) = seen(thread) else {
        return Arc::default();
    };
    if let Some(known) = MET.lock().get(&asking.process) {
        return known.clone();
    }
    let (mut found, mut next) = (Vec::new(), leader(thread));
    while let Some(seen) = next.and_then(seen)
        && found.len() < LINEAGE_MAX
    {
        found.push(seen.process);
        let known = MET.lock().get(&seen.process).cloned();
        if let Some(known) = known {
            found.extend(known.iter().skip(1));
            break;
        }
        next = Some(seen.parent).filter(|pid| *pid > 0);
    }
    let found: Arc<[Process]> = found.into();
    let mut met = MET.lock();
    if met.len() >= REMEMBERED_MAX {
        met.clear();
    }
    met.insert(asking.process, found.clone());
    if let Some(first) = found.first() {
        met.insert(*first, found.clone());
    }
    found
}

/// Id of the process that a thread belongs to.
fn leader(thread: u32) -> Option<u32> {
    let text = std::fs::read(format!("/proc/{thread}/status")).ok()?;
    let mut lines = text.split(|byte| *byte == b'\n');
    let id = lines.find_map(|line| line.strip_prefix(b"Tgid:"))?;
    std::str::from_utf8(id).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn a_thread_descends_from_what_its_process_does() {
        let own = lineage(Some(std::process::id()));
        let thread = std::thread::spawn(|| {
            let link = std::fs::read_link("/proc/thread-self").unwrap();
            let id = link.file_name().unwrap().to_str().unwrap().to_owned();
            (of_thread(id.parse().unwrap()), id)
        });
        let (found, id) = thread.join().unwrap();
        assert_ne!(id, std::process::id().to_string());
        assert_eq!(found[..], own[..]);
        assert!(of_thread(0).is_empty());
    }

    #[test]
    fn a_process_keeps_the_lineage_that_it_was_seen_with() {
        // The shell starts a process, names it, and ends when its input does.
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 600 & echo $!; read line"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = std::io::BufReader::new(shell.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        let child: u32 = line.trim().parse().unwrap();
        let before = of_thread(child);
        assert_eq!(before[1].pid, shell.id());
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert_ne!(seen(child).unwrap().parent, shell.id());
        assert_eq!(of_thread(child), before);
        let kill = format!("kill {child}");
        let ended = Command::new("sh").args(["-c", &kill]).status();
        assert!(ended.unwrap().success());
    }
}
