//! `start --telemetry ebpf`: what the processes of runs execute, connect to and open, by programs in the kernel.
#![allow(clippy::unwrap_used)]

use agentvfs_client::protocol::EventLine;
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tests::env::{Env, Told};
use tests::skip::{Want, skip};
use tests::{sandbox, wait};

/// Whoever is not root.
const NOBODY: u32 = 65534;

/// A workspace with a directory and a file of events, if programs can be loaded into this kernel.
fn new(sources: &str) -> Option<(Env, PathBuf)> {
    filled(Env::as_root()?, sources)
}

fn filled(env: Env, sources: &str) -> Option<(Env, PathBuf)> {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        skip(Want::Machine, "the kernel does not describe its types");
        return None;
    }
    fs::create_dir(env.project().join("d")).unwrap();
    fs::write(env.project().join("d/file"), "of the base\n").unwrap();
    fs::write(env.project().join("script"), "#!/bin/sh\nexec true\n").unwrap();
    std::os::unix::fs::symlink("d/file", env.project().join("link")).unwrap();
    Command::new("cp")
        .args(["/bin/true", env.project().join("program").to_str().unwrap()])
        .status()
        .unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(env.project().join("script"), mode).unwrap();
    let file = env.path("audit.ndjson");
    let told = start(
        &env,
        &["--audit", file.to_str().unwrap(), "--telemetry", sources],
    );
    if told.err.contains("BPF") {
        skip(
            Want::Machine,
            &format!("programs cannot be loaded: {}", told.err),
        );
        return None;
    }
    told.ok();
    env.imported();
    Some((env, file))
}

fn start(env: &Env, more: &[&str]) -> Told {
    let project = env.project();
    let args = ["start", "--from", project.to_str().unwrap()];
    env.workspace(&[&args[..], more].concat())
}

fn run(env: &Env, session: &str, command: &[&str]) -> Told {
    let args = ["run", "--quiet", "--session", session, "--"];
    env.told(env.command(&env.project(), &[&args[..], command].concat()))
}

fn events(file: &Path) -> Vec<EventLine> {
    let text = fs::read_to_string(file).unwrap();
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let event = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    whole.lines().map(event).collect()
}

/// What programs in the kernel told.
fn heard(file: &Path) -> Vec<EventLine> {
    let mut all = events(file);
    all.retain(|event| event.backend == "ebpf");
    all
}

/// Waits for an event: operation, path and detail.
fn heard_of(file: &Path, op: &str, path: &str, detail: &str) -> EventLine {
    let find = || {
        let mut all = heard(file).into_iter();
        all.find(|e| e.op == op && e.path == path && e.extra.detail == detail)
    };
    wait::until(&format!("{op} {path} {detail} is told of"), || {
        find().is_some()
    });
    find().unwrap()
}

/// Number of a branch, which its session has, too.
fn number(env: &Env, branch: &str) -> u64 {
    let args = ["status", "project", "--branch", branch, "--json"];
    let status = env.told(env.command(&env.project(), &args)).ok();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["branch_id"].as_u64().unwrap()
}

/// Where a program really is.
fn real(path: &str) -> String {
    fs::canonicalize(path).unwrap().to_str().unwrap().to_owned()
}

#[test]
fn an_exec_and_a_connect_of_a_run_are_events_with_its_session() {
    let Some((env, file)) = new("ebpf") else {
        return;
    };
    assert_eq!(env.status()["telemetry"], json!(["front", "ebpf"]));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    // Of no run: it must not be told of.
    let stranger = Command::new("true").spawn().unwrap();
    let stranger_id = stranger.id();
    stranger.wait_with_output().unwrap();
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; (exec 3<>/dev/tcp/127.0.0.1/{closed}) 2>/dev/null; \
         ./script; ./program; exec true"
    );
    run(&env, "s", &["bash", "-c", &script]).ok();
    let session = number(&env, "s");
    assert!(session > 0);
    let bash = heard_of(&file, "exec", &real("/bin/bash"), "argv0=bash");
    let connected = format!("address=127.0.0.1 port={port}");
    let connected = heard_of(&file, "connect", "", &connected);
    let refused = format!("address=127.0.0.1 port={closed} errno={}", 111);
    heard_of(&file, "connect", "", &refused);
    heard_of(
        &file,
        "exec",
        &real("/bin/sh"),
        "argv0=/bin/sh script=./script",
    );
    let own = heard_of(&file, "exec", "program", "argv0=./program");
    let last = heard_of(&file, "exec", &real("/bin/true"), "argv0=true");
    assert!(own.ino > 0, "it is in the mount");
    for event in [&bash, &connected, &own, &last] {
        assert_eq!((event.session_id, event.branch_id), (session, session));
        assert_eq!((&*event.extra.branch, event.uid, event.gid), ("s", 0, 0));
        assert!(event.pid > 0);
    }
    assert_eq!(
        (&*bash.extra.comm, &*connected.extra.comm),
        ("bash", "bash")
    );
    assert_eq!(bash.pid, connected.pid);
    // `exec` in the shell: the same process.
    let all = heard(&file);
    let trues = all.iter().filter(|e| e.op == "exec" && e.pid == bash.pid);
    assert_eq!(trues.count(), 2, "{all:?}");
    assert!(all.iter().all(|event| event.pid != stranger_id));
    assert!(all.iter().all(|event| event.extra.branch == "s"));
    // What builds the sandbox is not the command's.
    let ours = all.iter().filter(|e| e.extra.comm.starts_with("agentvfs"));
    assert_eq!(ours.count(), 0, "{all:?}");
    env.workspace(&["stop", "project"]).ok();
}

#[test]
fn opens_of_a_run_are_events_by_where_the_file_is() {
    let Some((env, file)) = new("ebpf") else {
        return;
    };
    let script =
        "read line < link; echo x >> d/file; read line < /etc/../etc/passwd; cat d/nothing; ls d";
    run(&env, "s", &["sh", "-c", script]);
    let read = heard_of(&file, "open", "d/file", "read");
    heard_of(&file, "open", "d/file", "write append");
    let outside = heard_of(&file, "open", "/etc/passwd", "read");
    assert_eq!((&*read.extra.branch, &*outside.extra.branch), ("s", "s"));
    assert!(read.ino > 0 && outside.ino == 0);
    assert_eq!(read.pid, outside.pid);
    heard_of(&file, "exec", &real("/bin/ls"), "argv0=ls");
    let all = heard(&file);
    let named = |name: &str| {
        all.iter()
            .filter(|e| e.op == "open" && e.path == name)
            .count()
    };
    assert_eq!((named("d/nothing"), named("d"), named("link")), (0, 0, 0));
    env.workspace(&["stop", "project"]).ok();
}

#[test]
fn with_fanotify_an_open_in_the_mount_is_told_of_once() {
    let Some((env, file)) = new("auto") else {
        return;
    };
    assert_eq!(
        env.status()["telemetry"],
        json!(["front", "fanotify", "ebpf"])
    );
    run(
        &env,
        "s",
        &["sh", "-c", "read line < d/file; read line < /etc/passwd"],
    )
    .ok();
    heard_of(&file, "open", "/etc/passwd", "read");
    let in_the_mount = |backend: &str| {
        let all = events(&file).into_iter();
        all.filter(|e| e.op == "open" && e.path == "d/file" && e.backend == backend)
            .count()
    };
    wait::until("fanotify tells", || in_the_mount("fanotify") == 1);
    assert_eq!(in_the_mount("ebpf"), 0);
    env.workspace(&["stop", "project"]).ok();
}

#[test]
fn a_run_goes_on_to_be_heard_of_when_its_daemon_was_killed() {
    let Some((mut env, file)) = new("ebpf") else {
        return;
    };
    env.keep_mounts();
    let args = ["run", "--quiet", "--session", "s", "--", "sh", "-c"];
    // A child that was there before, too.
    let script = "mkfifo /tmp/f; (read go < /tmp/f; cat d/file) & echo ready; read go; echo go > /tmp/f; wait; cat d/file";
    let mut command = env.command(&env.project(), &[&args[..], &[script]].concat());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let cats = || {
        let is_one = |e: &&EventLine| e.op == "exec" && e.extra.detail == "argv0=cat";
        heard(&file).iter().filter(is_one).count()
    };
    heard_of(&file, "exec", &real("/bin/sh"), "argv0=sh");
    env.kill_daemon();
    wait::until("a successor hears", || {
        env.status()["telemetry"] == json!(["front", "ebpf"])
    });
    assert_eq!(cats(), 0);
    drop(child.stdin.take());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    child.wait().unwrap();
    wait::until("both are told of", || cats() == 2);
    env.workspace(&["stop", "project"]).ok();
}

#[test]
fn whoever_is_not_root_is_told_why_it_cannot_be() {
    let Some((env, _)) = new("front") else { return };
    env.workspace(&["stop", "project"]).ok();
    if !tests::binary::agentvfs().exists() {
        return;
    }
    let home = env.path("nobodys");
    fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    let project = home.join("p");
    fs::create_dir(&project).unwrap();
    std::os::unix::fs::chown(&project, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = env.command(
        &home,
        &[
            "workspace",
            "start",
            "--from",
            project.to_str().unwrap(),
            "--telemetry",
            "ebpf",
        ],
    );
    command.env("AGENTVFS_HOME", home.join("home"));
    command.uid(NOBODY).gid(NOBODY);
    env.told(command).fails(1, "cannot hear of runs by ebpf");
}

/// A cgroup of version 2, removed at the end.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Group> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
        let name = format!("agentvfs-test-ebpf-{}", std::process::id());
        let place = Path::new(line.split(' ').nth(4)?).join(name);
        fs::create_dir(&place).ok()?;
        Some(Group(place))
    }

    /// Runs a script by a shell that goes into the group; gives its process.
    fn sh(&self, script: &str) -> u32 {
        let script = format!("echo $$ > {}/cgroup.procs; {script}", self.0.display());
        let mut child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_registered_cgroup_is_heard_of_while_it_is() {
    let Some((env, file)) = new("ebpf") else {
        return;
    };
    let Some(group) = Group::new() else {
        return skip(Want::Machine, "no cgroup of version 2 can be made");
    };
    let of_project = |args: &[&str]| env.told(env.command(&env.project(), args)).ok();
    of_project(&["branch", "create", "side"]);
    let at = group.0.to_str().unwrap();
    group.sh("exec true");
    of_project(&["session", "register", "--cgroup", at, "--branch", "side"]);
    // The thread takes it up at once, but the command does not wait for that.
    let is_told = |pid: u32| heard(&file).iter().any(|event| event.pid == pid);
    wait::until("it is heard of", || is_told(group.sh("exec true")));
    let pid = group.sh("read line < /etc/passwd; exec true");
    let all = || heard(&file).into_iter().filter(move |e| e.pid == pid);
    wait::until("its program is told of", || all().any(|e| e.op == "exec"));
    assert!(all().any(|e| e.op == "open" && e.path == "/etc/passwd"));
    assert!(all().all(|e| e.extra.branch == "side"));
    let stranger = Command::new("true").spawn().unwrap();
    let stranger_id = stranger.id();
    stranger.wait_with_output().unwrap();
    of_project(&["session", "unregister", "--cgroup", at]);
    wait::until("calls are not looked at", || !looks_at_calls(&env));
    let after = group.sh("exec true");
    run(&env, "side", &["true"]).ok();
    heard_of(&file, "exec", &real("/bin/true"), "argv0=true");
    assert!(!is_told(stranger_id) && !is_told(after));
    env.workspace(&["stop", "project"]).ok();
}

/// Whether the daemon's programs look at system calls.
fn looks_at_calls(env: &Env) -> bool {
    let daemon = env.status()["pid"].as_u64().unwrap();
    let files = fs::read_dir(format!("/proc/{daemon}/fdinfo")).unwrap();
    let texts = files
        .flatten()
        .filter_map(|file| fs::read_to_string(file.path()).ok());
    texts.into_iter().any(|text| text.contains("sys_exit"))
}

/// A run that goes on until its input ends, once it has said so.
fn going(env: &Env, script: &str) -> std::process::Child {
    let args = ["run", "--quiet", "--session", "s", "--", "sh", "-c", script];
    let mut command = env.command(&env.project(), &args);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 6];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut said)
        .unwrap();
    assert_eq!(&said, b"ready\n");
    child
}

#[test]
fn system_calls_are_looked_at_while_a_run_is_alive_alone() {
    let Some((env, _)) = new("ebpf") else { return };
    assert!(!looks_at_calls(&env));
    let mut child = going(&env, "echo ready; read line");
    assert!(looks_at_calls(&env));
    drop(child.stdin.take());
    child.wait().unwrap();
    wait::until("no more is looked at", || !looks_at_calls(&env));
    env.workspace(&["stop", "project"]).ok();
}

/// More opens than the buffer takes.
const OPENS: usize = 60_000;

#[test]
fn what_is_lost_is_counted_and_told() {
    let Some((env, file)) = new("ebpf") else {
        return;
    };
    let script = format!(
        "echo ready; read line; i=0; while [ $i -lt {OPENS} ]; do read l < /etc/passwd; i=$((i+1)); done; \
         echo done; read line"
    );
    let mut child = going(&env, &script);
    let daemon = env.status()["pid"].as_u64().unwrap();
    let daemon = rustix::process::Pid::from_raw(daemon.try_into().unwrap()).unwrap();
    let signal = |signal| rustix::process::kill_process(daemon, signal).unwrap();
    signal(rustix::process::Signal::STOP);
    use std::io::Write;
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"go\n").unwrap();
    let mut said = [0; 5];
    let read = child.stdout.as_mut().unwrap().read_exact(&mut said);
    signal(rustix::process::Signal::CONT);
    read.unwrap();
    drop(stdin);
    child.wait().unwrap();
    let lost = || -> usize {
        let all = heard(&file).into_iter().filter(|e| e.op == "lost");
        all.map(|e| e.extra.count.parse::<usize>().unwrap()).sum()
    };
    let is_open = |e: &&EventLine| e.op == "open" && e.path == "/etc/passwd";
    let told = || heard(&file).iter().filter(is_open).count();
    wait::until("all are told of or counted", || {
        lost() > 0 && told() + lost() >= OPENS
    });
    assert!(
        told() <= OPENS && told() + lost() <= OPENS + 100,
        "{} {}",
        told(),
        lost()
    );
    env.workspace(&["stop", "project"]).ok();
}

#[test]
fn a_run_inside_a_run_is_of_its_own_session() {
    if !tests::mount::is_root() {
        return skip(Want::Root, "only root may load programs");
    }
    // Where a sandbox shows the program.
    let Some((env, file)) = sandbox::stopped().and_then(|env| filled(env, "ebpf")) else {
        return;
    };
    let dir = env.path("bin");
    fs::create_dir(&dir).unwrap();
    tests::binary::same_build(&dir.join("agentvfs"));
    let path = format!("PATH={}:/usr/local/bin:/usr/bin:/bin", dir.display());
    let script =
        "cat d/file; agentvfs run --quiet --session inner -- sh -c 'ls; exec false'; exec true";
    let args = [
        "run",
        "--quiet",
        "--session",
        "s",
        "--env",
        &path,
        "--",
        "sh",
        "-c",
        script,
    ];
    env.told(env.command(&env.project(), &args)).ok();
    let inner = heard_of(&file, "exec", &real("/bin/false"), "argv0=false");
    let outer = heard_of(&file, "exec", &real("/bin/true"), "argv0=true");
    assert_eq!((&*inner.extra.branch, &*outer.extra.branch), ("inner", "s"));
    assert_eq!(inner.session_id, number(&env, "inner"));
    env.workspace(&["stop", "project"]).ok();
}
