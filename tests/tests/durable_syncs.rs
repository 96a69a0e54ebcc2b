//! What reaches the disk before an answer, as the system calls of the real program show it: the daemon runs
//! under strace(1).
//!
//! Simulated disks show that the right syncs are asked for. This shows that they are made: a storage on
//! files that leaves them out passes every other test.

#![allow(clippy::unwrap_used)]

use agentvfs_client::context::Options;
use agentvfs_client::launch::{Launch, Program};
use agentvfs_client::workspace::{Error, Workspace};
use serde_json::json;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tests::env::Env;
use tests::skip::{Want, skip};
use tests::{binary, mcp, wait};

/// What a program writes, and a label: neither is anywhere else in what the daemon writes.
const DATA: &[u8] = b"these bytes were fsynced by the program that wrote them";
const LABEL: &str = "a-label-that-nothing-else-has";

/// Files that are applied: more than are put on stable storage together.
const APPLIED: usize = 150;

/// Calls whose syncs are counted.
const CALLS: usize = 8;

/// Number of the request FSYNC (linux/fuse.h).
const FUSE_FSYNC: u32 = 20;

/// A finished system call.
#[derive(Debug, Clone, Default)]
struct Call {
    pid: u32,
    name: String,
    /// Path of the descriptor that is its first argument.
    file: String,
    /// Its arguments that are strings or buffers.
    strings: Vec<Vec<u8>>,
    /// Lines of the trace at which it began and ended.
    begun: usize,
    ended: usize,
    failed: bool,
}

impl Call {
    fn is(&self, names: &[&str], file: &str) -> bool {
        names.contains(&&self.name[..]) && self.file == file && !self.failed
    }

    /// True where it writes to a file whose path has `to` in it.
    fn writes_to(&self, to: &str) -> bool {
        let writes = [
            "write", "writev", "pwrite64", "pwritev", "pwritev2", "sendto",
        ];
        writes.contains(&&self.name[..]) && self.file.contains(to)
    }

    fn writes(&self, to: &str, what: &[u8]) -> bool {
        self.writes_to(to) && self.strings.concat().windows(what.len()).any(|w| w == what)
    }
}

/// Reads strace's `PID NAME(ARGUMENTS) = RESULT` and its calls in two lines.
fn calls(trace: &str) -> Vec<Call> {
    let mut open: HashMap<u32, (usize, String)> = HashMap::new();
    let mut calls = Vec::new();
    for (at, line) in trace.lines().enumerate() {
        let Some((pid, rest)) = line.split_once(' ') else {
            continue;
        };
        let (pid, rest): (u32, &str) = (pid.parse().unwrap(), rest.trim_start());
        if let Some(begun) = rest.strip_suffix("<unfinished ...>") {
            open.insert(pid, (at, begun.to_owned()));
            continue;
        }
        let resumed = rest.strip_prefix("<... ").and_then(|r| r.split_once('>'));
        let (begun, text) = match resumed {
            Some((_, end)) => {
                let (begun, start) = open.remove(&pid).unwrap();
                (begun, start + end)
            }
            None => (at, rest.to_owned()),
        };
        calls.extend(parse(pid, &text).map(|call| Call {
            begun,
            ended: at,
            ..call
        }));
    }
    calls
}

fn parse(pid: u32, text: &str) -> Option<Call> {
    let (name, rest) = text.split_once('(')?;
    let file = rest
        .split_once(['"', ',', ')'])
        .map_or("", |(first, _)| first);
    let file = file.split_once('<').map_or("", |(_, path)| path);
    Some(Call {
        pid,
        name: name.to_owned(),
        file: file.trim_end().trim_end_matches('>').to_owned(),
        strings: strings(rest),
        failed: text.rsplit_once(" = ")?.1.starts_with('-'),
        ..Call::default()
    })
}

/// What stands in double quotes, with C escapes.
fn strings(text: &str) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'"' {
            continue;
        }
        let mut string = Vec::new();
        while let Some(byte) = bytes.next().filter(|byte| *byte != b'"') {
            string.push(match byte {
                b'\\' => escaped(&mut bytes),
                byte => byte,
            });
        }
        out.push(string);
    }
    out
}

fn escaped(bytes: &mut std::iter::Peekable<std::str::Bytes<'_>>) -> u8 {
    let byte = bytes.next().unwrap();
    if !(b'0'..=b'7').contains(&byte) {
        return match byte {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'f' => 0x0c,
            b'v' => 0x0b,
            other => other,
        };
    }
    let mut value = u32::from(byte - b'0');
    for _ in 0..2 {
        let Some(digit) = bytes.next_if(|byte| (b'0'..=b'7').contains(byte)) else {
            break;
        };
        value = value * 8 + u32::from(digit - b'0');
    }
    value as u8
}

/// The daemon under strace; none, with the reason printed, where that cannot be.
fn traced_daemon(env: &Env, trace: &Path) -> Option<Child> {
    let probe = Command::new("strace")
        .args(["-f", "-o", "/dev/null", "true"])
        .stderr(Stdio::null())
        .status();
    if !probe.is_ok_and(|status| status.success()) {
        skip(Want::Machine, "strace is missing, or may not trace");
        return None;
    }
    if !rustix::process::geteuid().is_root() {
        skip(Want::Root, "fusermount3 has no rights under strace");
        return None;
    }
    let traced = "trace=read,write,writev,pwrite64,pwritev,pwritev2,sendto,fsync,fdatasync,rename";
    let mut strace = env.program("strace");
    strace
        .args(["-f", "--seccomp-bpf", "-y", "-s", "600", "-e", traced, "-o"])
        .arg(trace)
        .arg(binary::agentvfs())
        .args(["daemon", "--root"])
        .arg(env.home())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = strace.spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert!(line.contains("ready"), "{line}");
    Some(child)
}

/// Does what the promises are about; gives the trace and the id of the checkpoint.
fn work(env: &Env) -> Option<(Vec<Call>, String)> {
    fs::write(env.project().join("file"), "of the base").unwrap();
    let trace = env.path("trace");
    let mut daemon = traced_daemon(env, &trace)?;
    let root = env.start();
    env.imported();
    let mut file = File::create(root.join("new")).unwrap();
    file.write_all(DATA).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let id = env.workspace(&["checkpoint", LABEL]).id();
    for n in 0..APPLIED {
        fs::write(root.join(format!("applied{n}")), "applied").unwrap();
    }
    env.workspace(&["apply"]).ok();
    env.workspace(&["stop"]).ok();
    wait::until("the daemon has ended", || {
        daemon.try_wait().unwrap().is_some()
    });
    let text = fs::read(&trace).unwrap();
    Some((calls(&String::from_utf8_lossy(&text)), id))
}

/// The first call that `wanted` holds for.
fn first(calls: &[Call], what: &str, wanted: impl Fn(&Call) -> bool) -> Call {
    let found = calls.iter().find(|call| wanted(call));
    found
        .unwrap_or_else(|| panic!("{what} is not in the trace"))
        .clone()
}

/// `written` is on stable storage before `answer` begins.
fn synced_between(calls: &[Call], written: &Call, answer: &Call) {
    let synced = calls.iter().any(|call| {
        call.is(&["fdatasync", "fsync"], &written.file)
            && call.begun > written.ended
            && call.ended < answer.begun
    });
    assert!(synced, "no sync between {written:?} and {answer:?}");
}

/// The answer to the FSYNC that came first after `written`.
fn fsync_answered(calls: &[Call], written: &Call) -> Call {
    let number = |bytes: &[u8], at: usize| bytes.get(at..at + 4).map(<[u8]>::to_owned);
    let request = first(calls, "a request FSYNC", |call| {
        call.name == "read"
            && call.file == "/dev/fuse"
            && call.ended > written.ended
            && call.strings.first().and_then(|s| number(s, 4))
                == Some(FUSE_FSYNC.to_le_bytes().into())
    });
    let unique = request.strings[0][8..16].to_owned();
    first(calls, "the answer to FSYNC", |call| {
        ["write", "writev"].contains(&&call.name[..])
            && call.file == "/dev/fuse"
            && call.begun > request.ended
            && call.strings.first().and_then(|s| s.get(8..16)) == Some(&unique[..])
    })
}

/// Data, fsync, rename, fsync of the directory, and only then any answer of the same thread.
fn check_replacement(calls: &[Call], rename: &Call) {
    let temporary = String::from_utf8_lossy(&rename.strings[0]).into_owned();
    let directory = Path::new(&temporary)
        .parent()
        .unwrap()
        .display()
        .to_string();
    let before = |call: &&Call| call.ended < rename.begun;
    let mut written = calls.iter().filter(before);
    let written = written.rfind(|call| call.is(&["write"], &temporary));
    let written = written.unwrap_or_else(|| panic!("{temporary} was not written"));
    synced_between(calls, written, rename);
    let answer = calls.iter().find(|call| {
        call.pid == rename.pid && call.begun > rename.ended && call.writes_to("socket")
    });
    let end = answer.map_or(usize::MAX, |call| call.begun);
    let synced = calls.iter().any(|call| {
        call.is(&["fsync"], &directory) && call.begun > rename.ended && call.ended < end
    });
    assert!(synced, "{directory} was not synced after {rename:?}");
}

/// Files for the project, and the directory in which they are made, are on stable storage before the record says that
/// they are being moved to their places.
fn check_applied(calls: &[Call], renames: &[&Call]) {
    let mut records = renames
        .iter()
        .filter(|call| call.strings[1].ends_with(b"/workspaces/project/apply"));
    let moving = records.nth(1).unwrap();
    let staged = calls
        .iter()
        .filter(|call| call.writes_to("/.agentvfs-apply-"));
    let staged: Vec<&Call> = staged.collect();
    assert!(staged.len() > APPLIED, "{} files", staged.len());
    for written in &staged {
        synced_between(calls, written, moving);
    }
    let made = Call {
        file: Path::new(&staged[0].file)
            .parent()
            .unwrap()
            .display()
            .to_string(),
        ..staged[staged.len() - 1].clone()
    };
    synced_between(calls, &made, moving);
}

#[test]
fn syncs_are_made_before_anything_is_answered() {
    let Some(env) = Env::new() else { return };
    let Some((calls, id)) = work(&env) else {
        return;
    };
    let written = first(&calls, "what was written", |call| call.writes(".seg", DATA));
    synced_between(&calls, &written, &fsync_answered(&calls, &written));
    let frozen = first(&calls, "the checkpoint's record", |call| {
        call.writes(".seg", LABEL.as_bytes())
    });
    let answer = first(&calls, "the checkpoint's answer", |call| {
        call.writes("socket", id.as_bytes())
    });
    synced_between(&calls, &frozen, &answer);
    let replaced = |call: &&Call| call.name == "rename" && call.strings[0].ends_with(b".tmp~");
    let renames: Vec<&Call> = calls.iter().filter(replaced).collect();
    let to = |end: &[u8]| renames.iter().find(|call| call.strings[1].ends_with(end));
    assert!(to(b"refs/workspaces/project.ref").is_some());
    renames
        .iter()
        .for_each(|rename| check_replacement(&calls, rename));
    check_applied(&calls, &renames);
    // The first segment is there before the mark says that there is a journal.
    let mark = to(b"/journal/mark").unwrap();
    let journal = String::from_utf8_lossy(&mark.strings[1]).into_owned();
    let journal = journal.trim_end_matches("/mark");
    let named = calls
        .iter()
        .any(|call| call.is(&["fsync"], journal) && call.ended < mark.begun);
    assert!(named, "{journal} was not synced before its mark was made");
}

/// Syncs of the journal for each call whose parameters name `PREFIX0`, `PREFIX1` and so on, in turn.
fn syncs_of_calls(calls: &[Call], prefix: &str) -> Vec<usize> {
    let begins = |n: usize| {
        let name = format!("{prefix}{n}-");
        calls
            .iter()
            .find(|call| call.writes(".seg", name.as_bytes()))
    };
    let begun: Vec<usize> = (0..=CALLS)
        .map_while(begins)
        .map(|call| call.begun)
        .collect();
    assert_eq!(begun.len(), CALLS + 1, "{prefix}");
    let is_sync = |call: &Call| {
        let syncs = ["fsync", "fdatasync"].contains(&&call.name[..]);
        syncs && call.file.ends_with(".seg")
    };
    let between = |range: &[usize]| {
        let inside = |call: &&Call| range[0] < call.begun && call.begun < range[1];
        calls
            .iter()
            .filter(inside)
            .filter(|call| is_sync(call))
            .count()
    };
    begun.windows(2).map(between).collect()
}

#[test]
fn a_call_of_mcp_or_an_sdk_that_changes_files_costs_one_sync() {
    let Some(env) = Env::new() else { return };
    let trace = env.path("trace");
    let Some(mut daemon) = traced_daemon(&env, &trace) else {
        return;
    };
    env.start();
    env.imported();
    let mut mcp = mcp::serve(&env);
    for n in 0..=CALLS {
        let path = format!("mcp{n}-");
        mcp.call("write_file", json!({"path": path, "content": "x"}))
            .ok();
    }
    assert_eq!(mcp.end().1, 0);
    let options = Options {
        root: Some(env.home().to_owned()),
        workspace: Some("project".to_owned()),
        branch: Some("main".to_owned()),
        launch: Launch {
            program: Program::At(binary::agentvfs().to_owned()),
            verbose: false,
        },
    };
    let mut ws = Workspace::open_with(options).unwrap();
    for n in 0..=CALLS {
        let path = format!("sdk{n}-");
        let written: Result<(), Error> = ws.call("edit", &[&path], |ws| {
            ws.write(&path, b"x")?;
            ws.write(format!("{path}2"), b"y")
        });
        written.unwrap();
    }
    drop(ws);
    env.workspace(&["stop"]).ok();
    wait::until("the daemon has ended", || {
        daemon.try_wait().unwrap().is_some()
    });
    let text = fs::read(&trace).unwrap();
    let all = calls(&String::from_utf8_lossy(&text));
    for prefix in ["mcp", "sdk"] {
        let syncs = syncs_of_calls(&all, prefix);
        // Now and then the daemon syncs what it stores meanwhile.
        let usual = syncs.iter().filter(|count| **count == 1).count();
        assert!(
            syncs.iter().all(|count| *count >= 1) && 2 * usual > CALLS,
            "{prefix}: {syncs:?}"
        );
    }
}

#[test]
fn traces_are_read_as_strace_writes_them() {
    let trace = "12 fsync(3</a b>) = 0\n\
        12 pwritev(4</h/1.seg>, [{iov_base=\"\\1\\0\\3012\\\"\\n\", iov_len=6}], 1, 0 <unfinished ...>\n\
        13 fdatasync(4</h/1.seg>) = -1 EIO (Input/output error)\n\
        12 <... pwritev resumed>) = 6\n\
        12 fdatasync(4</h/1.seg> <unfinished ...>\n\
        12 <... fdatasync resumed>)          = 0\n";
    let calls = calls(trace);
    let names: Vec<&str> = calls.iter().map(|c| &c.name[..]).collect();
    assert_eq!(names, ["fsync", "fdatasync", "pwritev", "fdatasync"]);
    assert!(calls[3].is(&["fdatasync"], "/h/1.seg"));
    assert_eq!(calls[0].file, "/a b");
    assert!(calls[1].failed && !calls[2].failed);
    assert_eq!((calls[2].begun, calls[2].ended), (1, 3));
    assert_eq!(calls[2].strings, [b"\x01\x00\xc12\"\n".to_vec()]);
}
