//! `agentvfs tool exec`: a command as a tool call.
//!
//! What it prints is passed on at once and kept: the first and the last part of it where it is much. With
//! `--json` all of it goes to standard error, so that standard output has the one object about the call.
//! The call ends with the command. What that left running may print on: a process of its own passes that on
//! ([`pass_on`]), so that it goes where it always went and nobody waits for it here.

use super::Context;
use crate::cli::ToolExecArgs;
use crate::output::{print_json, warn};
use crate::signals::pass_signals_on;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{
    Call, CallId, Finished, OneCall, TimelineRow, ToolFinish, ToolStart,
};
use agentvfs_daemon::sys;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::ScopedJoinHandle;

/// Bytes that are kept of each stream.
const KEPT_BYTES: usize = 256 << 10;
/// Bytes of a result as it stands in a request: below the longest request.
const RESULT_BYTES_MAX: usize = 960 << 10;
/// The call cannot be noted.
const NOT_NOTED: u8 = 125;
/// The command cannot be run.
const CANNOT_RUN: u8 = 126;
/// There is no such command.
const NOT_FOUND: u8 = 127;

/// Runs the command and gives its exit status.
pub fn run(args: &ToolExecArgs, context: &mut Context) -> Result<u8, Failure> {
    let (workspace, branch) = (context.workspace(None)?, context.branch()?);
    let words: Vec<String> = args
        .command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let cwd = context.surroundings().cwd.clone();
    let cwd = cwd.map(|dir| dir.to_string_lossy().into_owned());
    let start = Call::ToolStart(ToolStart {
        workspace: workspace.clone(),
        branch: branch.clone(),
        name: args.name.clone(),
        parameters: Some(json!({ "command": words, "cwd": cwd }).to_string()),
        unsynced: false,
        of_process: true,
        key: None,
    });
    let what = format!("cannot record {}", args.name);
    let begun: Result<CallId, Failure> = context.ask(&what, &start);
    let CallId { id } = begun.map_err(|failure| Failure {
        exit: NOT_NOTED,
        ..failure
    })?;
    let ended = carry_out(args, context.json());
    let exit = ended.exit;
    // The daemon ends connections that are silent for long.
    context.forget_client();
    let finish = Call::ToolFinish(ToolFinish {
        workspace: workspace.clone(),
        branch: branch.clone(),
        id: Some(id),
        key: None,
        result: ended.result,
        error: ended.error,
        unsynced: false,
    });
    let noted: Result<Finished, Failure> =
        context.ask(&format!("cannot record the end of call {id}"), &finish);
    let told = noted.and_then(|_| match context.json() {
        true => tell(
            id,
            exit,
            ended.failure.as_ref(),
            (workspace, branch),
            context,
        ),
        false => Ok(()),
    });
    match told {
        Ok(()) => Ok(exit),
        // The command's own failure is what whoever called must hear of.
        Err(failure) if exit != 0 => {
            warn(&format!("{}: {}", failure.what, failure.why));
            Ok(exit)
        }
        Err(failure) => Err(Failure {
            exit: NOT_NOTED,
            ..failure
        }),
    }
}

/// Prints the call as an object, with the commit that holds what there was when it ended.
fn tell(
    id: u64,
    exit: u8,
    failure: Option<&Failure>,
    (workspace, branch): (String, String),
    context: &mut Context,
) -> Result<(), Failure> {
    let what = format!("cannot determine the commit after call {id}");
    let ask = Call::ToolShow(OneCall {
        workspace,
        branch,
        id,
        wait: true,
    });
    let row: TimelineRow = context.ask(&what, &ask)?;
    let mut object = Map::new();
    object.insert("id".into(), id.into());
    object.insert("commit".into(), row.after.into());
    object.insert("exit_status".into(), exit.into());
    if let Some(failure) = failure {
        object.insert("error".into(), failure.object());
    }
    print_json(&Value::Object(object))
}

/// How a command ended.
struct Ended {
    exit: u8,
    /// The call's result.
    result: Option<String>,
    /// The call's error.
    error: Option<String>,
    /// Why it could not be run.
    failure: Option<Failure>,
}

impl Ended {
    fn not_run(exit: u8, failure: Failure) -> Ended {
        warn(&format!("{}: {}", failure.what, failure.why));
        Ended {
            exit,
            result: None,
            error: Some(format!("{}: {}", failure.what, failure.why)),
            failure: Some(failure.kind("cannot-run")),
        }
    }
}

/// Runs the command; with `json` its standard output goes to standard error.
fn carry_out(args: &ToolExecArgs, json: bool) -> Ended {
    let Some((program, rest)) = args.command.split_first() else {
        return Ended::not_run(CANNOT_RUN, Failure::usage("no command was given"));
    };
    let mut command = Command::new(program);
    command
        .args(rest)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // A call that ended as its process died must not go on changing files.
    sys::end_with_this(&mut command);
    // Before the command runs: nothing that asks it to end may end this process alone. Where they cannot
    // be blocked they end this process as ever.
    let blocked = sys::block_signals().map(|before| before.give_to(&mut command));
    let child = match command.spawn() {
        Ok(child) => {
            // Ctrl-C reaches the command by itself; what it does then is to be noted.
            if blocked.is_ok()
                && let Err(e) = pass_signals_on(child.id())
            {
                warn(&format!("signals are not passed on: {e}"));
            }
            child
        }
        Err(e) => {
            let name = program.to_string_lossy();
            let exit = match e.kind() {
                std::io::ErrorKind::NotFound => NOT_FOUND,
                _ => CANNOT_RUN,
            };
            return Ended::not_run(
                exit,
                Failure::new(format!("cannot run {name}"), e.to_string()),
            );
        }
    };
    let (status, out, err) = watch(child, json);
    let text = told(status, &out, &err);
    let exit = exit_of(status);
    let (result, error) = match exit {
        0 => (Some(text), None),
        _ => (None, Some(text)),
    };
    Ended {
        exit,
        result,
        error,
        failure: None,
    }
}

/// Waits for a command, passing on what it prints until it ends.
fn watch(mut child: Child, json: bool) -> (ExitStatus, Kept, Kept) {
    let out = child.stdout.take().map(OwnedFd::from);
    let err = child.stderr.take().map(OwnedFd::from);
    let ended = End::new();
    std::thread::scope(|scope| {
        let ended = &ended;
        let out = scope.spawn(move || match json {
            true => passed_on(out, &mut std::io::stderr(), ended),
            false => passed_on(out, &mut std::io::stdout(), ended),
        });
        let err = scope.spawn(move || passed_on(err, &mut std::io::stderr(), ended));
        let status = child.wait().unwrap_or(ExitStatus::from_raw(1 << 8));
        ended.tell();
        let kept = |thread: ScopedJoinHandle<'_, Passed>, to_err: bool| {
            let passed = thread.join().unwrap_or_default();
            if let Some(open) = passed.open {
                hand_over(open, to_err);
            }
            passed.kept
        };
        (status, kept(out, json), kept(err, true))
    })
}

/// Says to all who wait that the command has ended.
struct End(Option<OwnedFd>);

impl End {
    fn new() -> End {
        let made = eventfd(0, EventfdFlags::CLOEXEC);
        // Without one the streams are read to their ends.
        End(made.ok())
    }

    fn tell(&self) {
        if let Some(fd) = &self.0 {
            // A number that was 0 takes 1 at once.
            let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
        }
    }

    /// Waits until there is something to read, or the stream has ended; false once the command has.
    fn wait(&self, stream: &OwnedFd) -> bool {
        let Some(end) = &self.0 else {
            return true;
        };
        let mut polled = [
            PollFd::new(end, PollFlags::IN),
            PollFd::new(stream, PollFlags::IN),
        ];
        // An interrupted wait, like a failed one, is as if there were something.
        let _ = poll(&mut polled, None);
        polled[0].revents().is_empty()
    }
}

/// True where nobody can write into a pipe any more and nothing is left in it.
fn is_at_end(stream: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::IN)];
    let none = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let ready = poll(&mut polled, Some(&none)).is_ok_and(|ready| ready > 0);
    ready && !polled[0].revents().contains(PollFlags::IN)
}

/// Has a process of its own pass on what comes from what the command left running.
fn hand_over(stream: OwnedFd, to_err: bool) {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg("pass-on")
        .stdin(stream)
        .stderr(Stdio::null())
        // It is to hold no mount, and not to end with a terminal's Ctrl-C.
        .current_dir("/")
        .process_group(0);
    if to_err {
        match std::io::stderr().as_fd().try_clone_to_owned() {
            Ok(fd) => {
                command.stdout(fd);
            }
            Err(e) => return lost(&e),
        }
    }
    if let Err(e) = command.spawn() {
        lost(&e);
    }
}

fn lost(why: &std::io::Error) {
    warn(&format!(
        "background processes of the command can no longer print: {why}"
    ));
}

/// Passes standard input on to standard output until its end: what is behind the hidden command.
pub fn pass_on() -> Result<u8, Failure> {
    let (mut from, mut to) = (std::io::stdin().lock(), std::io::stdout().lock());
    // Where nobody reads any more, whoever writes learns that as it would without this.
    let done = std::io::copy(&mut from, &mut to).and_then(|_| to.flush());
    Ok(u8::from(done.is_err()))
}

fn exit_of(status: ExitStatus) -> u8 {
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => code,
        // As shells say it.
        (None, signal) => 128 + signal.unwrap_or(0),
    };
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// What is kept of a stream.
#[derive(Default)]
struct Kept {
    first: Vec<u8>,
    last: VecDeque<u8>,
    /// Bytes between them that are not kept.
    cut: u64,
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        let room = (KEPT_BYTES / 2).saturating_sub(self.first.len());
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.first.extend_from_slice(first);
        self.last.extend(rest);
        let over = self.last.len().saturating_sub(KEPT_BYTES / 2);
        self.last.drain(..over);
        self.cut += over as u64;
    }

    /// As text, with at most `each` bytes of the beginning and of the end; and how many were cut.
    fn text(&self, each: usize) -> (String, u64) {
        let first = &self.first[..self.first.len().min(each)];
        let last: Vec<u8> = self.last.iter().copied().collect();
        let whole = first.len() == self.first.len();
        let last = match whole || !last.is_empty() {
            true => last,
            // All of it is in the first part: its own end is the end.
            false => self.first[first.len()..].to_vec(),
        };
        let end = &last[last.len().saturating_sub(each)..];
        let all = self.first.len() as u64 + self.last.len() as u64 + self.cut;
        let cut = all - (first.len() + end.len()) as u64;
        let (first, end) = (String::from_utf8_lossy(first), String::from_utf8_lossy(end));
        match cut {
            0 => (format!("{first}{end}"), 0),
            _ => (
                format!("{first}\n… {cut} bytes are left out here …\n{end}"),
                cut,
            ),
        }
    }
}

/// What was read of a stream.
#[derive(Default)]
struct Passed {
    kept: Kept,
    /// The stream, where the command has ended and somebody may still write into it.
    open: Option<OwnedFd>,
}

/// Reads a stream until it or the command ends, passing it on at once.
fn passed_on(stream: Option<OwnedFd>, to: &mut dyn Write, ended: &End) -> Passed {
    let mut passed = Passed::default();
    let Some(stream) = stream else {
        return passed;
    };
    let mut buffer = vec![0; 64 << 10];
    let mut read = true;
    // Reads up to so many bytes; none at the end.
    let mut take = |most: usize| {
        let most = most.min(buffer.len());
        let count = match rustix::io::read(&stream, &mut buffer[..most]) {
            Ok(0) => return None,
            Ok(count) => count,
            Err(Errno::INTR) => return Some(0),
            Err(_) => return None,
        };
        let bytes = &buffer[..count];
        passed.kept.push(bytes);
        // Where nobody reads any more the command still goes on to its end.
        read = read && to.write_all(bytes).and_then(|()| to.flush()).is_ok();
        Some(count)
    };
    while ended.wait(&stream) {
        if take(usize::MAX).is_none() {
            return passed;
        }
    }
    // All that the command wrote is there; what comes later is not its own.
    let mut left = rustix::io::ioctl_fionread(&stream).unwrap_or(0);
    while left > 0 {
        match take(usize::try_from(left).unwrap_or(usize::MAX)) {
            Some(count) => left -= (count as u64).min(left),
            None => return passed,
        }
    }
    passed.open = Some(stream).filter(|stream| !is_at_end(stream));
    passed
}

/// Result or error of the call: how the command ended and what it printed, cut to what a request takes.
fn told(status: ExitStatus, out: &Kept, err: &Kept) -> String {
    let mut each = KEPT_BYTES / 2;
    loop {
        let text = told_with(status, out, err, each);
        // Quotes and line ends take more in a request than here.
        let sent = serde_json::to_string(&text).map_or(usize::MAX, |sent| sent.len());
        if sent <= RESULT_BYTES_MAX || each < 1024 {
            return text;
        }
        each /= 2;
    }
}

fn told_with(status: ExitStatus, out: &Kept, err: &Kept, each: usize) -> String {
    let mut object = Map::new();
    object.insert("exit_status".into(), exit_of(status).into());
    if let Some(signal) = status.signal() {
        object.insert("signal".into(), signal.into());
    }
    for (key, kept) in [("stdout", out), ("stderr", err)] {
        let (text, cut) = kept.text(each);
        object.insert(key.into(), text.into());
        if cut > 0 {
            object.insert(format!("{key}_cut_bytes"), cut.into());
        }
    }
    Value::Object(object).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(bytes: &[u8]) -> Kept {
        let mut kept = Kept::default();
        bytes.chunks(7000).for_each(|part| kept.push(part));
        kept
    }

    #[test]
    fn short_output_is_kept_as_it_is() {
        for len in [0, 1, KEPT_BYTES / 2, KEPT_BYTES] {
            let text = "x".repeat(len);
            assert_eq!(kept(text.as_bytes()).text(KEPT_BYTES / 2), (text, 0));
        }
    }

    #[test]
    fn of_long_output_the_beginning_and_the_end_are_kept() {
        let text = format!("begin{}end", "x".repeat(3 * KEPT_BYTES));
        let (shown, cut) = kept(text.as_bytes()).text(KEPT_BYTES / 2);
        assert!(shown.starts_with("begin") && shown.ends_with("end"));
        assert_eq!(cut as usize, text.len() - KEPT_BYTES);
        assert!(shown.contains(&format!("{cut} bytes are left out")));
        let (shown, cut) = kept(b"0123456789").text(2);
        assert_eq!(
            (shown.starts_with("01"), shown.ends_with("89"), cut),
            (true, true, 6)
        );
    }

    #[test]
    fn a_result_fits_a_request_whatever_was_printed() {
        for byte in [0u8, b'"', b'\\', b'\n', 0xff] {
            let loud = kept(&vec![byte; 2 * KEPT_BYTES]);
            let text = told(ExitStatus::from_raw(0), &loud, &loud);
            assert!(serde_json::to_string(&text).unwrap().len() <= RESULT_BYTES_MAX);
            let back: Value = serde_json::from_str(&text).unwrap();
            assert!(back["stdout_cut_bytes"].as_u64().unwrap() >= KEPT_BYTES as u64);
        }
    }

    #[test]
    fn a_signal_is_told_as_shells_do() {
        let killed = ExitStatus::from_raw(9);
        assert_eq!(exit_of(killed), 137);
        assert_eq!(exit_of(ExitStatus::from_raw(3 << 8)), 3);
    }
}
