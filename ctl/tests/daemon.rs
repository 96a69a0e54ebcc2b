//! The daemon as far as it needs no mount: starting, sharing, refusing, ending.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a condition may take to come true.
const DEADLINE: Duration = Duration::from_secs(60);

/// A home of its own with a project beside it; the daemon is ended on drop.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("project")).unwrap();
        Place { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agentvfs"));
        command
            .env_clear()
            .env("AGENTVFS_HOME", self.path("home"))
            .current_dir(self.dir.path());
        command.args(["workspace"]).args(args).stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> (i32, String, String) {
        told(self.command(args).output().unwrap())
    }

    fn ok(&self, args: &[&str]) -> String {
        let (status, out, err) = self.run(args);
        assert_eq!(status, 0, "{args:?}: {err}");
        out
    }

    fn spawn(&self, args: &[&str]) -> Child {
        self.command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn daemon(&self) -> Option<i32> {
        let hello = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\",\"params\":{\"protocol\":1,\"client\":\"test\"}}\n";
        let mut stream = UnixStream::connect(self.path("home/daemon.sock")).ok()?;
        stream.write_all(hello.as_bytes()).ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok()?;
        let answer: serde_json::Value = serde_json::from_str(&line).ok()?;
        i32::try_from(answer["result"]["pid"].as_i64()?).ok()
    }

    fn signal_daemon(&self, signal: rustix::process::Signal) {
        let Some(pid) = self.daemon().and_then(rustix::process::Pid::from_raw) else {
            return;
        };
        rustix::process::kill_process(pid, signal).unwrap();
        until("the daemon is gone", || {
            !Path::new(&format!("/proc/{}/exe", pid.as_raw_nonzero())).exists()
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.signal_daemon(rustix::process::Signal::KILL);
    }
}

fn told(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(
            since.elapsed() < DEADLINE,
            "{what}: not within {DEADLINE:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn init_prints_facts_and_refuses_a_second_time() {
    let place = Place::new();
    let out = place.ok(&["init", "--from", "project"]);
    let base = place.path("project").display().to_string();
    let mount = place.path("home/mnt/project").display().to_string();
    for line in [
        "name=project",
        &format!("base={base}"),
        &format!("mount={mount}"),
        "status=initialized",
    ] {
        assert!(
            out.lines().any(|found| found == line),
            "{line} is missing in {out}"
        );
    }
    let (status, out, err) = place.run(&["init", "project", "--from", "project"]);
    assert_eq!((status, out.as_str()), (1, ""));
    assert!(
        err.contains("already exists") && err.contains("\nhint: "),
        "{err}"
    );
}

#[test]
fn list_and_status_tell_what_was_made() {
    let place = Place::new();
    place.ok(&["init", "b", "--from", "project"]);
    place.ok(&["init", "a", "--from", "project"]);
    let mount = |name: &str| place.path("home/mnt").join(name).display().to_string();
    let wanted = format!(
        "a\tinitialized\t{}\nb\tinitialized\t{}\n",
        mount("a"),
        mount("b")
    );
    assert_eq!(place.ok(&["list"]), wanted);
    assert_eq!(place.ok(&["list", "-z"]), wanted.replace('\n', "\0"));
    let (status, out, _) = place.run(&["status", "a", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (status, &value["status"], &value["healthy"]),
        (1, &"initialized".into(), &false.into())
    );
    assert_eq!(
        value["pid"].as_i64().unwrap(),
        i64::from(place.daemon().unwrap())
    );
}

#[test]
fn what_needs_a_running_workspace_says_how_to_start_it() {
    let place = Place::new();
    place.ok(&["init", "w", "--from", "project"]);
    for args in [
        &["checkpoint", "w", "label"][..],
        &["rollback", "w", "label"],
        &["undo", "w"],
        &["redo", "w"],
        &["stop", "w"],
    ] {
        let (status, out, err) = place.run(args);
        assert_eq!((status, out.as_str()), (1, ""), "{args:?}");
        assert!(err.contains("hint: agentvfs start w\n"), "{args:?}: {err}");
    }
    let (status, _, err) = place.run(&["undo", "nosuch"]);
    assert_eq!(status, 1);
    assert!(err.contains("no workspace named nosuch"), "{err}");
}

#[test]
fn ambiguous_workspaces_are_listed() {
    let place = Place::new();
    place.ok(&["init", "one", "--from", "project"]);
    place.ok(&["init", "two", "--from", "project"]);
    let (status, _, err) = place.run(&["log"]);
    assert_eq!(status, 1);
    assert!(err.contains("one, two"), "{err}");
}

#[test]
fn deleted_workspace_is_gone() {
    let place = Place::new();
    place.ok(&["init", "w", "--from", "project"]);
    assert!(
        place
            .ok(&["delete", "w", "--yes"])
            .contains("status=deleted")
    );
    assert_eq!(place.ok(&["list"]), "");
    assert_eq!(place.run(&["delete", "w", "--yes"]).0, 1);
}

#[test]
fn bad_mounts_are_refused() {
    let place = Place::new();
    for mount in ["project/inside", ".", "home"] {
        let (status, _, err) = place.run(&["init", "w", "--from", "project", "--mount", mount]);
        assert_eq!(status, 1, "{mount}");
        assert!(err.contains("cannot be a mount point"), "{mount}: {err}");
    }
    assert_eq!(place.ok(&["list"]), "");
}

#[test]
fn many_commands_at_once_share_one_daemon() {
    let place = Place::new();
    let children: Vec<Child> = (0..20)
        .map(|i| place.spawn(&["init", &format!("w{i}"), "--from", "project"]))
        .collect();
    for child in children {
        let (status, _, err) = told(child.wait_with_output().unwrap());
        assert_eq!((status, err.as_str()), (0, ""));
    }
    assert_eq!(place.ok(&["list"]).lines().count(), 20);
    let log = std::fs::read_to_string(place.path("home/daemon.log")).unwrap();
    assert_eq!(log.matches(" ready ").count(), 1, "{log}");
}

#[test]
fn killed_daemon_is_replaced() {
    let place = Place::new();
    place.ok(&["init", "w", "--from", "project"]);
    place.signal_daemon(rustix::process::Signal::KILL);
    assert!(place.ok(&["list"]).starts_with("w\tinitialized\t"));
}

#[test]
fn daemon_ends_when_asked_but_not_by_a_hang_up() {
    let place = Place::new();
    place.ok(&["init", "w", "--from", "project"]);
    let pid = rustix::process::Pid::from_raw(place.daemon().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    assert_eq!(place.daemon(), Some(pid.as_raw_nonzero().get()));
    place.signal_daemon(rustix::process::Signal::TERM);
    assert!(!place.path("home/daemon.sock").exists());
}

#[test]
fn idle_daemon_ends_and_the_next_command_starts_another() {
    let place = Place::new();
    place.ok(&["init", "w", "--from", "project"]);
    until("the idle daemon ended", || {
        !place.path("home/daemon.sock").exists()
    });
    assert!(place.ok(&["list"]).starts_with("w\t"));
}

#[test]
fn daemon_leaves_the_callers_session_and_keeps_no_pipe_open() {
    let place = Place::new();
    // Returns only because the daemon does not hold the other end of these pipes.
    place.ok(&["init", "w", "--from", "project"]);
    let pid = place.daemon().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let session = stat.rsplit(") ").next().unwrap().split(' ').nth(3).unwrap();
    assert_eq!(session, pid.to_string());
}

#[test]
fn home_is_private() {
    let place = Place::new();
    place.ok(&["init", "w", "--from", "project"]);
    let mode = |name: &str| place.path(name).metadata().unwrap().mode() & 0o777;
    assert_eq!((mode("home"), mode("home/mnt")), (0o711, 0o711));
    assert_eq!(
        (mode("home/daemon.sock"), mode("home/daemon.log")),
        (0o600, 0o600)
    );
    for entry in std::fs::read_dir(place.path("home")).unwrap() {
        let entry = entry.unwrap();
        let meta = entry.metadata().unwrap();
        if entry.file_name() != "mnt" {
            assert_eq!(
                meta.mode() & 0o077,
                0,
                "{:?} is open to others",
                entry.path()
            );
        }
    }
}

#[test]
fn other_descriptors_are_not_kept_open() {
    let place = Place::new();
    let (mut reader, writer) = std::io::pipe().unwrap();
    // The shell hands the pipe on as descriptor 9, as a script's `exec 9>…` would.
    let script = format!(
        "exec 9>&1; {} workspace init w --from project >/dev/null 2>&1",
        env!("CARGO_BIN_EXE_agentvfs")
    );
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &script]).current_dir(place.dir.path());
    shell
        .env("AGENTVFS_HOME", place.path("home"))
        .stdout(Stdio::from(writer));
    assert!(shell.status().unwrap().success());
    drop(shell);
    let mut all = Vec::new();
    reader.read_to_end(&mut all).unwrap();
    assert!(
        place.daemon().is_some(),
        "the daemon still runs though the pipe has ended"
    );
}

#[test]
fn one_broken_client_costs_nobody_else_anything() {
    let place = Place::new();
    place.ok(&["init", "w", "--from", "project"]);
    let connect = || UnixStream::connect(place.path("home/daemon.sock")).unwrap();
    let silent: Vec<UnixStream> = (0..40).map(|_| connect()).collect();
    let mut rude = connect();
    rude.write_all(b"\xff\x00 nonsense\n[1,2]\n").unwrap();
    let mut answers = BufReader::new(rude).lines();
    for _ in 0..2 {
        let answer: serde_json::Value =
            serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap();
        assert!(answer["error"]["code"].is_i64(), "{answer}");
    }
    assert!(place.ok(&["list"]).starts_with("w\t"));
    drop(silent);
}
