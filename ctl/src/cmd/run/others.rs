//! `agentvfs run --list`, `--stop` and `--discard`: runs that somebody else began.
//!
//! Invariant: a signal goes to a process only through a descriptor of it that was opened while its run was seen alive,
//! and seen alive again after that.

use super::super::{Context, branch};
use super::kept;
use crate::cli::RunArgs;
use crate::output::{Rows, print_json, talk};
use agentvfs_client::failure::Failure;
use agentvfs_client::render::insert_bytes;
use agentvfs_client::runs::{self, RunRecord};
use agentvfs_client::when::rfc3339;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long a run may take to end.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// Time between two requests to end, of which the second one kills.
const AGAIN: Duration = Duration::from_millis(100);

/// Refuses options that say how something is done that was not asked for: the parser lets them pass beside a command.
pub fn check(args: &RunArgs) -> Result<(), Failure> {
    let needed = match (args.nul && !args.list, args.force && args.stop.is_none()) {
        (true, _) => "-z needs --list",
        (_, true) => "--force needs --stop",
        _ => return Ok(()),
    };
    Err(Failure::usage(needed))
}

/// Lists the runs that are alive.
pub fn list(nul: bool, context: &mut Context) -> Result<u8, Failure> {
    let before = alive(context)?;
    let parents = parents()?;
    // What ended meanwhile may have left its process id to somebody else.
    let mut found = alive(context)?;
    found.retain(|run| before.contains(run));
    if context.json() {
        let runs: Vec<Value> = found.iter().map(|run| object(run, &parents)).collect();
        print_json(&json!({ "runs": runs }))?;
        return Ok(0);
    }
    let mut rows = Rows::new(&["RUN", "SESSION", "BRANCH", "PIDS", "STARTED", "COMMAND"]);
    for run in found {
        let pids: Vec<String> = processes(&run, &parents)
            .iter()
            .map(i32::to_string)
            .collect();
        let words: Vec<&[u8]> = run.command.iter().map(|word| word.0.as_slice()).collect();
        rows.push(vec![
            run.run.into_bytes(),
            run.branch.clone().into_bytes(),
            run.branch.into_bytes(),
            match pids.is_empty() {
                true => b"-".to_vec(),
                false => pids.join(",").into_bytes(),
            },
            rfc3339(run.started).into_bytes(),
            words.join(&b' '),
        ]);
    }
    rows.print(nul)?;
    Ok(0)
}

fn object(run: &RunRecord, parents: &BTreeMap<i32, i32>) -> Value {
    let mut object = Map::new();
    object.insert("run".into(), run.run.clone().into());
    object.insert("workspace".into(), run.workspace.clone().into());
    object.insert("session".into(), run.branch.clone().into());
    object.insert("branch".into(), run.branch.clone().into());
    object.insert("pids".into(), processes(run, parents).into());
    object.insert("started".into(), rfc3339(run.started).into());
    let words = run.command.iter().map(|word| word.0.as_slice());
    insert_bytes(
        &mut object,
        "command",
        &words.collect::<Vec<_>>().join(&b' '),
    );
    Value::Object(object)
}

/// The runs that are alive, of the workspace that is named if one is.
fn alive(context: &Context) -> Result<Vec<RunRecord>, Failure> {
    let workspace = context.surroundings().named(None)?;
    let all = runs::alive(context.home());
    let all = all.map_err(|e| Failure::new("cannot look for runs", e.to_string()))?;
    let is_meant = |run: &RunRecord| workspace.as_ref().is_none_or(|name| *name == run.workspace);
    Ok(all.into_iter().filter(is_meant).collect())
}

/// Those in a session; `what` says what cannot be done without one.
fn in_session(name: &str, what: &str, context: &Context) -> Result<Vec<RunRecord>, Failure> {
    let mut found = alive(context)?;
    found.retain(|run| run.branch == name || run.run == name);
    let workspaces: BTreeSet<&str> = found.iter().map(|run| run.workspace.as_str()).collect();
    if workspaces.len() > 1 {
        let names: Vec<&str> = workspaces.into_iter().collect();
        let why = format!(
            "several workspaces have runs of that name: {}",
            names.join(", ")
        );
        return Err(Failure::new(what, why).hint("name the workspace: -w NAME"));
    }
    Ok(found)
}

/// The processes of a run, `agentvfs run` first; none if it is in another PID namespace.
fn processes(run: &RunRecord, parents: &BTreeMap<i32, i32>) -> Vec<i32> {
    if runs::pid_namespace().ok().as_ref() != Some(&run.pid_namespace) {
        return Vec::new();
    }
    let mut found = vec![run.pid];
    let mut next = 0;
    while let Some(at) = found.get(next).copied() {
        let children = parents.iter().filter(|(_, parent)| **parent == at);
        found.extend(children.map(|(child, _)| *child));
        next += 1;
    }
    found
}

/// All processes, each with its parent.
fn parents() -> Result<BTreeMap<i32, i32>, Failure> {
    let failed = |e: std::io::Error| Failure::new("cannot look for processes", e.to_string());
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // One that has ended has no file.
        let Ok(stat) = std::fs::read(format!("/proc/{pid}/stat")) else {
            continue;
        };
        if let Some(parent) = parent_in(&stat) {
            found.insert(pid, parent);
        }
    }
    Ok(found)
}

/// The parent that a `/proc/PID/stat` names; the process's name before it may have any bytes.
fn parent_in(stat: &[u8]) -> Option<i32> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Ends the runs of a session: SIGTERM for their commands; with `force` they are killed then.
pub fn stop(name: &str, force: bool, context: &mut Context) -> Result<u8, Failure> {
    let what = format!("cannot stop {name}");
    let found = in_session(name, &what, context)?;
    if found.is_empty() {
        return Err(Failure::new(what, "no run of that name is alive")
            .kind("no-such-run")
            .hint("agentvfs run --list shows all"));
    }
    let held = hold(&found, &what, context)?;
    end(&held, force).map_err(|errno| Failure::new(what.clone(), errno.to_string()))?;
    let left = alive(context)?;
    if let Some(run) = found.iter().find(|run| left.contains(run)) {
        let why = format!(
            "run {} has not ended within {} s",
            run.run,
            STOP_WAIT.as_secs()
        );
        return Err(Failure::new(what, why).kind("run-alive").hint(format!(
            "agentvfs run --stop {name} --force kills its processes"
        )));
    }
    let ended: Vec<&str> = found.iter().map(|run| run.run.as_str()).collect();
    if context.json() {
        print_json(&json!({ "stopped": ended }))?;
        return Ok(0);
    }
    let mut rows = Rows::new(&["RUN"]);
    ended
        .iter()
        .for_each(|run| rows.push(vec![run.as_bytes().to_vec()]));
    rows.print(false)?;
    talk(&format!("{name}: what was written stays in its branch"));
    Ok(0)
}

/// Descriptors of the processes of runs that are alive.
fn hold(found: &[RunRecord], what: &str, context: &Context) -> Result<Vec<OwnedFd>, Failure> {
    let failed = |why: String| Failure::new(what, why);
    let own = runs::pid_namespace().map_err(|e| failed(e.to_string()))?;
    let mut held = Vec::new();
    for run in found {
        if run.pid_namespace != own {
            let why = format!("run {} was started in another PID namespace", run.run);
            return Err(failed(why).hint("use the container in which it was started"));
        }
        let Some(pid) = Pid::from_raw(run.pid) else {
            continue;
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => held.push((run, process)),
            Err(Errno::SRCH) => {}
            Err(errno) => return Err(failed(format!("process {}: {errno}", run.pid))),
        }
    }
    let still = alive(context)?;
    held.retain(|(run, _)| still.contains(run));
    Ok(held.into_iter().map(|(_, process)| process).collect())
}

/// Asks processes to end and waits until they have, for some time. With `force` they are asked twice, upon which a run
/// kills its command, and at last killed themselves. Not three times: a run that is about to end takes no more of it.
fn end(held: &[OwnedFd], force: bool) -> rustix::io::Result<()> {
    send(held, Signal::TERM)?;
    // One that is stopped takes the signal only then.
    send(held, Signal::CONT)?;
    if force && !wait(held, AGAIN)? {
        send(held, Signal::TERM)?;
    }
    if !wait(held, STOP_WAIT)? && force {
        send(held, Signal::KILL)?;
        wait(held, STOP_WAIT)?;
    }
    Ok(())
}

fn send(held: &[OwnedFd], signal: Signal) -> rustix::io::Result<()> {
    for process in held {
        match pidfd_send_signal(process, signal) {
            // It has ended.
            Err(Errno::SRCH) => {}
            sent => sent?,
        }
    }
    Ok(())
}

/// Waits for all processes to end, for so long at most. True if all have.
fn wait(held: &[OwnedFd], time: Duration) -> rustix::io::Result<bool> {
    let until = Instant::now() + time;
    let mut left: Vec<&OwnedFd> = held.iter().collect();
    loop {
        let mut polled: Vec<PollFd<'_>> = left
            .iter()
            .map(|fd| PollFd::new(*fd, PollFlags::IN))
            .collect();
        let time = until.saturating_duration_since(Instant::now());
        let time = Timespec::try_from(time).unwrap_or_default();
        match poll(&mut polled, Some(&time)) {
            Err(Errno::INTR) => continue,
            ready => ready?,
        };
        let alive: Vec<bool> = polled.iter().map(|fd| fd.revents().is_empty()).collect();
        let mut alive = alive.into_iter();
        left.retain(|_| alive.next() == Some(true));
        if left.is_empty() || Instant::now() >= until {
            return Ok(left.is_empty());
        }
    }
}

/// Deletes the branch of a session that nobody runs in.
pub fn discard(name: &str, context: &mut Context) -> Result<u8, Failure> {
    let what = format!("cannot discard {name}");
    let workspace = context.workspace_to_change(None)?;
    let mut found = in_session(name, &what, context)?.into_iter();
    if let Some(run) = found.find(|run| run.workspace == workspace) {
        return Err(Failure::new(what, format!("run {} has not ended", run.run))
            .kind("branch-in-use")
            .hint(format!("agentvfs run --stop {name}")));
    }
    let kept = kept::kept(context.home(), &workspace, name);
    match branch::delete(name.to_owned(), context) {
        // A branch in which nothing changed is gone, but not what could not be written back.
        Err(failure) if failure.kind == "no-such-branch" && kept.exists() => {
            kept::forget(context.home(), &workspace, name, false);
            talk(&format!("{name}: what its runs kept was removed"));
            Ok(0)
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::parent_in;

    #[test]
    fn parents_are_found_behind_every_name() {
        assert_eq!(parent_in(b"12 (sh) S 7 12"), Some(7));
        assert_eq!(parent_in(b"12 (a) S 1) R 9 (\xff) S 7 12"), Some(7));
        assert_eq!(parent_in(b"12 (sh"), None);
        assert_eq!(parent_in(b""), None);
    }
}
