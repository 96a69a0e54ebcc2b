//! `agentvfs watch` and `events.subscribe`: what is told of changes, to whom, and what a slow reader costs.
//!
//! Events are kept while somebody follows, and for a while afterwards; so a test follows once, does something, and
//! asks for what happened since. A change is told before it is answered.
#![allow(clippy::unwrap_used)]

use agentvfs_client::protocol::{EventLine, OPS};
use rustix::fs::RenameFlags;
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use tests::binary;
use tests::env::Env;
use tests::sandbox;
use tests::sys::Mapping;
use tests::wait;

fn project() -> Option<Env> {
    let env = Env::new()?;
    fs::write(env.project().join("file"), "of the base\n").unwrap();
    env.start();
    env.imported();
    Some(env)
}

fn cli(env: &Env, args: &[&str]) -> String {
    env.told(env.command(&env.path(""), args)).ok()
}

/// Lines that `watch` prints of what there is.
fn watched(env: &Env, args: &[&str]) -> Vec<String> {
    let args = [&["watch", "--no-follow", "-w", "project"], args].concat();
    cli(env, &args).lines().map(str::to_owned).collect()
}

fn event(line: &str) -> EventLine {
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

/// Turns the feed on, and gives the number of the newest event.
fn begin(env: &Env) -> String {
    let lines = watched(env, &[]);
    let again = watched(env, &["--since", "0"]);
    assert_eq!(event(&lines[0]).extra.seq, event(&again[0]).extra.seq);
    let first = event(&lines[0]);
    assert_eq!((&*first.op, &*first.extra.count), ("lost", ""), "{lines:?}");
    event(lines.last().unwrap()).extra.seq
}

fn since(env: &Env, seq: &str, args: &[&str]) -> Vec<EventLine> {
    let args = [&["--since", seq], args].concat();
    watched(env, &args).iter().map(|line| event(line)).collect()
}

/// Operation and paths of each, without attributes alone: when the kernel brings times back is its own affair.
fn told(events: &[EventLine]) -> Vec<String> {
    let of = |e: &EventLine| match e.extra.path2.as_str() {
        "" => format!("{} {}", e.op, e.path),
        second => format!("{} {} {second}", e.op, e.path),
    };
    events
        .iter()
        .filter(|e| e.op != "setattr")
        .map(of)
        .collect()
}

/// Makes, moves and removes names, and gives the inode number of one.
fn change_names(env: &Env) -> u64 {
    let at = |name: &str| env.mountpoint().join(name);
    fs::create_dir(at("d")).unwrap();
    let mut file = File::create(at("d/f")).unwrap();
    file.write_all(b"hello").unwrap();
    file.sync_all().unwrap();
    let ino = file.metadata().unwrap().ino();
    drop(file);
    fs::hard_link(at("d/f"), at("g")).unwrap();
    symlink("d/f", at("l")).unwrap();
    fs::rename(at("g"), at("file")).unwrap();
    rustix::fs::renameat_with(
        rustix::fs::CWD,
        at("file"),
        rustix::fs::CWD,
        at("l"),
        RenameFlags::EXCHANGE,
    )
    .unwrap();
    OpenOptions::new()
        .write(true)
        .open(at("d/f"))
        .unwrap()
        .set_len(2)
        .unwrap();
    fs::remove_file(at("file")).unwrap();
    fs::remove_file(at("d/f")).unwrap();
    fs::remove_dir(at("d")).unwrap();
    ino
}

#[test]
fn each_change_in_the_mount_is_one_event_that_says_who_made_it() {
    let Some(env) = project() else { return };
    let seq = begin(&env);
    let ino = change_names(&env);
    let events = since(&env, &seq, &[]);
    let wanted = [
        "create d",
        "create d/f",
        "write d/f",
        "link g d/f",
        "symlink l d/f",
        "rename g file",
        "rename file l",
        "truncate d/f",
        "unlink file",
        "unlink d/f",
        "rmdir d",
    ];
    assert_eq!(told(&events), wanted, "{events:?}");
    let device = env.mountpoint().metadata().unwrap().dev();
    let numbers = events.iter().map(|e| e.extra.seq.parse::<u64>().unwrap());
    let first: u64 = seq.parse().unwrap();
    assert!(numbers.eq((1..=events.len() as u64).map(|n| first + n)));
    for e in &events {
        assert_eq!(
            (e.dev, &*e.verdict, &*e.extra.result),
            (device, "allow", "ok")
        );
        assert_eq!((&*e.extra.branch, &*e.backend), ("main", "fuse"));
        assert!(
            e.ts > 1_600_000_000_000_000_000 && e.latency_ns > 0,
            "{e:?}"
        );
    }
    let made: Vec<_> = events
        .iter()
        .filter(|e| e.op != "write" && e.op != "setattr")
        .collect();
    let me = (std::process::id(), rustix::process::getuid().as_raw());
    for e in made {
        assert_eq!((e.pid, e.uid), me, "{e:?}");
        assert!(!e.extra.comm.is_empty());
    }
    let write = events.iter().find(|e| e.op == "write").unwrap();
    assert_eq!((write.bytes, write.ino), (5, ino));
}

/// Checks a value against the part of JSON Schema that docs/events.schema.json uses.
fn check(schema: &Value, value: &Value, at: &str) {
    let is = match schema["type"].as_str().unwrap() {
        "object" => value.is_object(),
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        other => panic!("type {other} at {at}"),
    };
    assert!(is, "{at}: {value}");
    if let Some(all) = schema["enum"].as_array() {
        assert!(all.contains(value), "{at}: {value}");
    }
    let Some(object) = value.as_object() else {
        return;
    };
    for name in schema["required"].as_array().unwrap() {
        assert!(
            object.contains_key(name.as_str().unwrap()),
            "{at}: no {name}"
        );
    }
    for (name, value) in object {
        let schema = &schema["properties"][name];
        assert!(!schema.is_null(), "{at}: {name} is not in the schema");
        check(schema, value, name);
    }
}

fn schema() -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/events.schema.json");
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

/// ContextFS's fields, in their order, and ours behind them.
const FIELDS: [&str; 17] = [
    "ts",
    "session_id",
    "branch_id",
    "policy_version",
    "op",
    "verdict",
    "dev",
    "ino",
    "i_generation",
    "path",
    "pid",
    "uid",
    "gid",
    "bytes",
    "latency_ns",
    "backend",
    "extra",
];

#[test]
fn every_line_has_contextfs_fields_in_their_order_and_fits_the_schema() {
    let Some(env) = project() else { return };
    let seq = begin(&env);
    let file = env.mountpoint().join("new");
    fs::write(&file, "x").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(env.mountpoint().join("a b\n\"\u{e9}"), "").unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"odd\xff");
    fs::write(env.mountpoint().join(odd), "").unwrap();
    cli(&env, &["checkpoint", "-w", "project", "one"]);
    cli(&env, &["kv", "-w", "project", "set", "k", "1"]);
    let call = cli(&env, &["tool", "-w", "project", "start", "edit"]);
    cli(&env, &["tool", "-w", "project", "success", call.trim()]);
    cli(&env, &["branch", "-w", "project", "create", "side"]);
    fs::write(env.mountpoint().join(".agentvfs/branches/side/s"), "").unwrap();
    cli(&env, &["rollback", "-w", "project", "one"]);
    cli(&env, &["undo", "-w", "project"]);
    cli(
        &env,
        &["branch", "-w", "project", "merge", "side", "--into", "main"],
    );
    let lines = [
        watched(&env, &["--since", "0"]),
        watched(&env, &["--since", &seq]),
    ]
    .concat();
    let schema = schema();
    for line in &lines {
        check(&schema, &serde_json::from_str(line).unwrap(), "event");
        let places: Vec<usize> = FIELDS
            .iter()
            .map(|name| {
                line.find(&format!("\"{name}\":"))
                    .unwrap_or_else(|| panic!("{name}: {line}"))
            })
            .collect();
        assert!(places.is_sorted() && places[0] == 1, "{line}");
    }
    let ops: Vec<String> = lines.iter().map(|line| event(line).op).collect();
    for op in [
        "lost",
        "create",
        "checkpoint",
        "kv",
        "tool",
        "branch",
        "rollback",
        "undo",
        "merge",
    ] {
        assert!(ops.iter().any(|told| told == op), "{op}: {ops:?}");
    }
    assert_eq!(schema["properties"]["op"]["enum"], json!(OPS));
    let mut odd = lines.iter().map(|line| event(line).extra.path_b64);
    let bytes = agentvfs_client::quote::base64(b"odd\xff");
    assert!(odd.any(|told| told == bytes), "{lines:?}");
}

#[test]
fn what_comes_without_the_mount_is_told_with_its_process_too() {
    let Some(env) = project() else { return };
    let seq = begin(&env);
    cli(&env, &["fs", "mkdir", "-w", "project", "d"]);
    cli(&env, &["kv", "-w", "project", "set", "k", "1"]);
    let events = since(&env, &seq, &["--op", "create,kv"]);
    assert_eq!(told(&events), ["create d", "kv "]);
    for e in &events {
        assert_eq!(
            (&*e.backend, &*e.extra.comm),
            ("control", "agentvfs"),
            "{e:?}"
        );
        assert!(e.pid > 0 && e.latency_ns > 0);
    }
}

#[test]
fn a_write_to_a_mapping_is_told_when_it_comes_back_of_an_unknown_process() {
    let Some(env) = project() else { return };
    let path = env.mountpoint().join("mapped");
    fs::write(&path, vec![0; 4096]).unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    file.sync_all().unwrap();
    let mapping = Mapping::new(&file, 1).unwrap();
    let seq = begin(&env);
    mapping.word(0).store(7, SeqCst);
    file.sync_all().unwrap();
    let events = since(&env, &seq, &["--op", "write"]);
    assert_eq!(told(&events), ["write mapped"]);
    assert_eq!(
        (events[0].pid, &*events[0].extra.comm, events[0].bytes),
        (0, "", 4096)
    );
}

#[test]
fn a_rollback_is_one_event_with_the_number_of_names() {
    let Some(env) = project() else { return };
    cli(&env, &["checkpoint", "-w", "project", "before"]);
    let seq = begin(&env);
    fs::create_dir(env.mountpoint().join("d")).unwrap();
    for n in 0..20 {
        File::create(env.mountpoint().join(format!("d/{n}"))).unwrap();
    }
    cli(&env, &["rollback", "-w", "project", "before"]);
    let events = since(&env, &seq, &[]);
    let last: Vec<_> = events
        .iter()
        .skip(21)
        .filter(|e| e.op != "setattr")
        .collect();
    let told: Vec<_> = last
        .iter()
        .map(|e| (&*e.op, &*e.extra.detail, &*e.backend))
        .collect();
    assert_eq!(told, [("rollback", "names=21", "control")], "{last:?}");
}

#[test]
fn events_are_chosen_by_path_operation_and_branch() {
    let Some(env) = project() else { return };
    cli(&env, &["branch", "-w", "project", "create", "side"]);
    let seq = begin(&env);
    let at = |name: &str| env.mountpoint().join(name);
    fs::create_dir(at("src")).unwrap();
    File::create(at("src/a.rs")).unwrap();
    File::create(at("b.rs")).unwrap();
    fs::rename(at("b.rs"), at("src/b.rs")).unwrap();
    File::create(at(".agentvfs/branches/side/src.c")).unwrap();
    let of = |args: &[&str]| told(&since(&env, &seq, args));
    let below = ["create src", "create src/a.rs", "rename b.rs src/b.rs"];
    assert_eq!(of(&["--path", "src"]), below);
    assert_eq!(
        of(&["--path", "*.rs", "--op", "create"]),
        ["create src/a.rs", "create b.rs"]
    );
    assert_eq!(of(&["--branch", "side"]), ["create src.c"]);
    let refused =
        env.told(env.command(&env.path(""), &["watch", "-w", "project", "--op", "chmod"]));
    assert_eq!(refused.status, 2);
    assert!(
        refused.err.contains("\"chmod\"") && refused.err.contains("setattr"),
        "{refused:?}"
    );
}

#[test]
fn a_command_in_a_sandbox_hears_of_its_own_branches_alone() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    begin(&env);
    fs::write(env.mountpoint().join("secret"), "outside").unwrap();
    let dir = env.path("bin");
    fs::create_dir(&dir).unwrap();
    binary::same_build(&dir.join("agentvfs"));
    let path = format!("PATH={}:/usr/local/bin:/usr/bin:/bin", dir.display());
    let script = "echo x > inside; agentvfs watch --since 0 --no-follow";
    let told = sandbox::run(
        &env,
        &["--session", "s", "--env", &path, "--", "sh", "-c", script],
    );
    assert_eq!(told.status, 0, "{told:?}");
    assert!(!told.out.contains("secret"), "{told:?}");
    let events: Vec<EventLine> = told.out.lines().map(event).collect();
    assert!(
        events
            .iter()
            .any(|e| e.op == "create" && e.path == "inside")
    );
    assert!(
        events
            .iter()
            .all(|e| (e.op == "lost" || e.extra.branch == "s") && e.pid == 0),
        "{events:?}"
    );
}

/// A connection that follows the workspace.
fn follow(env: &Env) -> UnixStream {
    asking(env, 1)
}

/// The same with so many requests in flight.
fn asking(env: &Env, in_flight: u32) -> UnixStream {
    let mut stream = UnixStream::connect(env.home().join("daemon.sock")).unwrap();
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "hello",
        "params": {"protocol": 1, "client": "t", "in_flight": in_flight}});
    let ask = json!({"jsonrpc": "2.0", "id": 2, "method": "events.subscribe",
        "params": {"workspace": "project", "since": 0}});
    stream
        .write_all(format!("{hello}\n{ask}\n").as_bytes())
        .unwrap();
    stream
}

/// The part of a message that is lines of events.
fn data(line: &str) -> Vec<EventLine> {
    let message: Value = serde_json::from_str(line).unwrap();
    let Some(b64) = message["params"]["b64"].as_str() else {
        return Vec::new();
    };
    let bytes = agentvfs_client::quote::from_base64(b64).unwrap();
    String::from_utf8(bytes)
        .unwrap()
        .lines()
        .map(event)
        .collect()
}

/// Changes of a file whose path is so long that the ring, which has 32 MiB, cannot keep all of them.
const FLOOD: u64 = 100_000;
/// Directories above it, and bytes of each name.
const DEPTH: usize = 8;
const NAME: usize = 250;

/// Memory by which the daemon may grow meanwhile, in bytes: the ring, and for each follower a portion of events that it sends.
const FLOOD_BYTES_MAX: u64 = 144 << 20;

/// The most memory that the daemon ever had, in bytes.
fn resident(env: &Env) -> u64 {
    let status = format!("/proc/{}/status", env.status()["pid"]);
    let status = fs::read_to_string(status).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = peak
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib << 10
}

/// Reads to the end of a connection, and checks that each event follows the one before, or that what is missing is
/// told; `seen` has the number of the last one.
fn read_all(stream: &UnixStream, seen: &AtomicU64) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        for e in data(&line) {
            let before = seen.load(SeqCst);
            let now: u64 = e.extra.seq.parse().unwrap();
            let wanted = match e.extra.count.parse::<u64>() {
                Ok(count) => before + count,
                // What was before the first one is not known.
                Err(_) if before == 0 => now,
                Err(_) => before + 1,
            };
            assert_eq!(now, wanted, "{e:?}");
            seen.store(now, SeqCst);
        }
    }
}

#[test]
fn a_flood_beside_a_hundred_followers_is_told_or_counted_and_delays_nobody() {
    let Some(env) = project() else { return };
    let seq = begin(&env);
    let before = resident(&env);
    let mut silent: Vec<UnixStream> = (0..98).map(|_| follow(&env)).collect();
    let readers = [follow(&env), follow(&env)];
    for reader in &readers {
        // So that they end where something fails here.
        reader.set_read_timeout(Some(wait::DEADLINE)).unwrap();
    }
    let seen = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        for (stream, seen) in readers.iter().zip(&seen) {
            scope.spawn(|| read_all(stream, seen));
        }
        let dir = (0..DEPTH).fold(env.mountpoint(), |dir, _| dir.join("d".repeat(NAME)));
        fs::create_dir_all(&dir).unwrap();
        let file = File::create(dir.join("file")).unwrap();
        for n in 0..FLOOD {
            if n == FLOOD / 2 {
                // They leave in the middle.
                silent.truncate(49);
            }
            file.set_len(n % 2).unwrap();
        }
        let grown = resident(&env) - before;
        assert!(grown < FLOOD_BYTES_MAX, "{} MiB", grown >> 20);
        let events = since(&env, &seq, &[]);
        let number = |e: &EventLine| e.extra.seq.parse::<u64>().unwrap();
        let (first, last) = (&events[0], number(events.last().unwrap()));
        let begun: u64 = seq.parse().unwrap();
        assert!(
            last >= begun + FLOOD && first.op == "lost",
            "{begun} {last} {first:?}"
        );
        let count: u64 = first.extra.count.parse().unwrap();
        let kept = events.len() as u64 - 1;
        assert_eq!(
            (number(first), kept),
            (begun + count, last - begun - count),
            "{first:?}"
        );
        for seen in &seen {
            wait::until("a reader has all", || seen.load(SeqCst) >= last);
        }
        for stream in &readers {
            stream.shutdown(std::net::Shutdown::Both).unwrap();
        }
    });
    env.workspace(&["stop", "project"]).ok();
    drop(silent);
}

#[test]
fn following_ends_when_the_workspace_is_stopped() {
    let Some(env) = project() else { return };
    let mut command = env.command(&env.path(""), &["watch", "-w", "project"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let stopping = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Changes until one was heard of: following begins at some moment.
        scope.spawn(|| {
            let mut n = 0;
            while !stopping.load(SeqCst) {
                n += 1;
                File::create(env.mountpoint().join(format!("f{n}"))).unwrap();
                wait::let_run(std::time::Duration::from_millis(20));
            }
        });
        let heard = event(&lines.next().unwrap().unwrap());
        stopping.store(true, SeqCst);
        assert_eq!(heard.op, "create");
    });
    env.workspace(&["stop", "project"]).ok();
    let rest: Vec<_> = lines
        .map_while(Result::ok)
        .map(|line| event(&line))
        .collect();
    assert!(
        rest.iter()
            .all(|e| e.op == "create" || e.op == "checkpoint"),
        "{rest:?}"
    );
    assert!(child.wait().unwrap().success());
}

#[test]
fn who_sends_no_more_hears_the_end_of_its_events() {
    let Some(env) = project() else { return };
    for in_flight in [1, 4] {
        let mut stream = asking(&env, in_flight);
        stream.set_read_timeout(Some(wait::DEADLINE)).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(
            text.lines().last().unwrap().contains("\"cancelled\""),
            "{in_flight}: {text}"
        );
    }
}
