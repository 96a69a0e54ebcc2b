//! Remotes over the network: the process that has it, against a service that misbehaves, and the commands.
#![allow(clippy::unwrap_used)]

#[path = "../../remote/tests/common/promises.rs"]
mod promises;

use promises::{done, keeps_the_promises};
use remote::Error;
use remote::bucket::retry::RetryBucket;
use remote::bucket::wire::Access;
use remote::bucket::worker::{Start, WorkerBucket};
use remote::bucket::{Bucket, Condition};
use remote::clock::SimulatedClock;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use tests::env::{Env, Told};
use tests::s3::{Fault, KEY_ID, Service};
use tests::skip::{Want, skip};
use tests::{binary, tree};

/// The secret of the tests, which must be found nowhere.
const SECRET: &str = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY";

/// A user who is not root.
const NOBODY: u32 = 65534;

/// Starts the process and keeps its number; with a copy of the program, as a user who is not root.
#[derive(Debug, Default, Clone)]
struct Program(Arc<Mutex<Vec<u32>>>, Option<PathBuf>);

impl Start for Program {
    fn start(&self) -> io::Result<(UnixStream, Child)> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(self.1.as_deref().unwrap_or(binary::agentvfs()));
        command
            .arg0("agentvfs")
            .arg("remote-worker")
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)));
        if self.1.is_some() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let child = command.spawn()?;
        self.0.lock().unwrap().push(child.id());
        Ok((ours, child))
    }
}

fn access(endpoint: &str, id: &str) -> Access {
    let all = [
        ("endpoint", endpoint),
        ("region", "here-1"),
        ("access_key_id", id),
        ("secret_access_key", SECRET),
    ];
    Access(BTreeMap::from(
        all.map(|(k, v)| (k.to_owned(), v.to_owned())),
    ))
}

fn bucket(endpoint: &str) -> (WorkerBucket, Program) {
    let program = Program::default();
    let access = access(endpoint, KEY_ID);
    let bucket = WorkerBucket::new(Box::new(program.clone()), "s3://b/team/x", access);
    (bucket, program)
}

fn retried(inner: WorkerBucket) -> RetryBucket {
    RetryBucket::new(Arc::new(inner), Arc::new(SimulatedClock::default()))
}

#[test]
fn a_service_keeps_the_promises() {
    let service = Service::start();
    let (bucket, program) = bucket(&service.endpoint());
    keeps_the_promises(&bucket);
    assert_eq!(program.0.lock().unwrap().len(), 1);
    assert!(
        service
            .names()
            .iter()
            .all(|name| name.starts_with("b/team/x/"))
    );
}

#[test]
fn a_service_that_fails_now_and_then_keeps_them_too() {
    let faults = [
        Fault::Status(500, "InternalError"),
        Fault::Status(503, "SlowDown"),
        Fault::Status(429, "TooManyRequests"),
        Fault::Unanswered,
    ];
    for fault in faults {
        let service = Service::start();
        let bucket = retried(bucket(&service.endpoint()).0);
        service.misbehave(&[fault; 3]);
        keeps_the_promises(&bucket);
        service.misbehave(&[fault; 7]);
        let tag = bucket.put("c", b"1", Condition::Always);
        assert!(
            matches!(tag, Err(Error::Transient { .. })),
            "{fault:?}: {tag:?}"
        );
    }
}

#[test]
fn answers_that_are_cut_or_longer_are_asked_for_again() {
    let service = Service::start();
    let bucket = retried(bucket(&service.endpoint()).0);
    let bytes = vec![7; 100_000];
    done(bucket.put("x", &bytes, Condition::Always).unwrap());
    service.misbehave(&[Fault::Cut; 2]);
    assert_eq!(bucket.get("x", 100_000).unwrap().unwrap().bytes, bytes);
    service.misbehave(&[Fault::Cut, Fault::Status(503, "SlowDown")]);
    let part = bucket.get_range("x", 10..90_000).unwrap().unwrap();
    assert!(part == bytes[10..90_000]);
    // What another length was said of never comes.
    service.misbehave(&[Fault::Longer]);
    let got = bucket.get("x", 100_000);
    assert!(
        matches!(got, Err(Error::TooLarge { bytes: 100_007, .. })),
        "{got:?}"
    );
}

#[test]
fn a_process_that_is_killed_is_started_again() {
    let service = Service::start();
    let (bucket, program) = bucket(&service.endpoint());
    let bucket = retried(bucket);
    for round in 1..4 {
        bucket.put("x", &[round], Condition::Always).unwrap();
        let pid = *program.0.lock().unwrap().last().unwrap();
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        assert_eq!(bucket.get("x", 1).unwrap().unwrap().bytes, [round]);
    }
    assert_eq!(program.0.lock().unwrap().len(), 4);
}

#[test]
fn it_ends_with_its_bucket_and_shows_its_memory_to_nobody() {
    if !tests::mount::is_root() {
        return skip(Want::Root, "whose memory it is shows only for another user");
    }
    let service = Service::start();
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = place.path().join("agentvfs");
    binary::copy(binary::agentvfs(), &copy);
    let program = Program(Arc::default(), Some(copy));
    let access = access(&service.endpoint(), KEY_ID);
    let bucket = WorkerBucket::new(Box::new(program.clone()), "s3://b", access);
    assert_eq!(bucket.get("x", 1).unwrap(), None);
    let pid = program.0.lock().unwrap()[0];
    let of = |file: &str| format!("/proc/{pid}/{file}");
    let words = fs::read_to_string(of("cmdline")).unwrap();
    assert_eq!(words, "agentvfs\0remote-worker\0");
    let status = fs::read_to_string(of("status")).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    assert!(status.contains("Uid:\t65534"), "{status}");
    // Of a process that cannot be dumped they are root's.
    assert_eq!(fs::metadata(of("mem")).unwrap().uid(), 0);
    drop(bucket);
    tests::wait::until("it has ended", || !Path::new(&of("cmdline")).exists());
}

#[test]
fn who_is_not_let_in_is_told_so_without_a_secret() {
    let service = Service::start();
    let wrong = access(&service.endpoint(), "AKIDOFNOBODY");
    let bucket = WorkerBucket::new(Box::new(Program::default()), "s3://b", wrong);
    let denied = bucket.get("x", 1).unwrap_err();
    assert!(matches!(denied, Error::Denied { .. }), "{denied:?}");
    let text = denied.to_string();
    assert!(text.contains("403, InvalidAccessKeyId"), "{text}");
    assert!(!text.contains("AKID") && !text.contains(SECRET), "{text}");
    let nobody = WorkerBucket::new(
        Box::new(Program::default()),
        "s3://b",
        access("http://127.0.0.1:1", KEY_ID),
    );
    let unreached = nobody.get("x", 1).unwrap_err();
    assert!(
        matches!(unreached, Error::Transient { .. }),
        "{unreached:?}"
    );
    assert!(!unreached.to_string().contains(SECRET), "{unreached}");
    for url in ["s3://", "s3:///x", "s3://b//c", "s3://b/../c", "s3://b c"] {
        let none = WorkerBucket::new(
            Box::new(Program::default()),
            url,
            access(&service.endpoint(), KEY_ID),
        );
        let refused = none.get("x", 1).unwrap_err();
        assert!(
            matches!(refused, Error::Unsupported { .. }),
            "{url}: {refused:?}"
        );
    }
}

/// A machine that has the service's credentials in its environment.
fn machine() -> Option<Env> {
    let mut env = Env::new()?;
    env.set_variable("AWS_ACCESS_KEY_ID", KEY_ID);
    env.set_variable("AWS_SECRET_ACCESS_KEY", SECRET);
    Some(env)
}

fn run(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

/// No file of a directory has the secret.
fn nowhere_below(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            nowhere_below(&path);
        } else if kind.is_file() {
            let bytes = fs::read(&path).unwrap_or_default();
            let found = bytes
                .windows(SECRET.len())
                .any(|part| part == SECRET.as_bytes());
            assert!(!found, "{} has the secret", path.display());
        }
    }
}

/// Two machines and a clone; `meanwhile` is called before a push and before a pull.
fn share(endpoint: &str, url: &str, meanwhile: impl Fn(&str)) {
    let Some(env) = machine() else { return };
    fs::write(env.project().join("file"), "of the base\n").unwrap();
    let root = env.start();
    env.imported();
    let at = ["--endpoint", endpoint];
    run(&env, &[&["remote", "add", "origin", url], &at[..]].concat()).ok();
    fs::write(root.join("new"), "written\n").unwrap();
    meanwhile("push");
    run(&env, &["push"]).ok();
    let other = machine().unwrap();
    run(&other, &[&["clone", url, "project"], &at[..]].concat()).ok();
    let there = other.mountpoint();
    tree::same("a clone", &tree::of(&root), &tree::of(&there));
    fs::write(there.join("new"), "of the other\n").unwrap();
    run(&other, &["push"]).ok();
    // What the other one pushed is not lost.
    fs::write(root.join("more"), "some more text\n").unwrap();
    let rejected = run(&env, &["push"]);
    assert!(
        rejected.status == 1 && rejected.err.contains("rejected"),
        "{rejected:?}"
    );
    run(&env, &["pull"]).ok();
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    assert_eq!(read(&root.join("new")), "of the other\n");
    run(&env, &["push"]).ok();
    meanwhile("pull");
    run(&other, &["pull"]).ok();
    assert_eq!(read(&there.join("more")), "some more text\n");
    tree::same("both", &tree::of(&root), &tree::of(&there));
    for env in [&env, &other] {
        run(env, &["timeline", "--verify"]).ok();
        nowhere_below(env.home());
    }
    run(&env, &["remote", "gc"]).ok();
}

#[test]
fn machines_share_a_workspace_through_a_service() {
    let service = Service::start();
    share(&service.endpoint(), "s3://bucket/team", |what| match what {
        "push" => service.misbehave(&[
            Fault::Status(503, "SlowDown"),
            Fault::Unanswered,
            Fault::Cut,
        ]),
        // A wrong bit is seen, and asked for again.
        _ => service.misbehave(&[Fault::Flipped; 2]),
    });
    assert!(service.heard().iter().all(|text| !text.contains(SECRET)));
}

/// Bytes that nothing makes smaller.
fn noise(name: &str) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    let mut hasher = blake3::Hasher::new();
    hasher.update(name.as_bytes());
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

/// Reading fails, and the status says that credentials are missing.
fn wants_credentials(env: &Env, file: &str) {
    let error = fs::read(env.mountpoint().join(file)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    let status = run(env, &["status"]);
    assert!(status.err.contains("needs credentials"), "{status:?}");
}

#[test]
fn a_lazy_clone_reads_from_a_service_while_it_has_credentials() {
    let service = Service::start();
    let Some(env) = machine() else { return };
    let names = ["one", "two", "three"];
    let root = env.start();
    env.imported();
    let endpoint = service.endpoint();
    let (url, at) = ("s3://bucket/team", ["--endpoint", &endpoint]);
    run(&env, &[&["remote", "add", "origin", url], &at[..]].concat()).ok();
    // Each in a pack of its own: no neighbour of the others.
    for name in names {
        fs::write(root.join(name), noise(name)).unwrap();
        run(&env, &["push"]).ok();
    }
    let other = machine().unwrap();
    run(&other, &[&["clone", url, "project"], &at[..]].concat()).ok();
    let there = other.mountpoint();
    assert!(fs::read(there.join("one")).unwrap() == noise("one"));
    other.kill_daemon();
    run(&other, &["start", "project"]).ok();
    assert!(fs::read(there.join("one")).unwrap() == noise("one"));
    wants_credentials(&other, "two");
    run(&other, &["prefetch", "two", "-w", "project"]).ok();
    assert!(fs::read(there.join("two")).unwrap() == noise("two"));
    run(&other, &["stop", "project"]).ok();
    run(&other, &["start", "project"]).ok();
    wants_credentials(&other, "three");
    run(&other, &["fetch"]).ok();
    assert!(fs::read(there.join("three")).unwrap() == noise("three"));
    nowhere_below(other.home());
    assert!(service.heard().iter().all(|text| !text.contains(SECRET)));
}

/// The service that `tests/remote/run.sh` starts, with a bucket of that name.
fn another() -> Option<String> {
    let endpoint = std::env::var("AGENTVFS_S3").ok();
    if endpoint.is_none() {
        skip(
            Want::Machine,
            "tests/remote/run.sh starts the service that it wants",
        );
    }
    endpoint
}

#[test]
fn a_service_of_another_keeps_the_promises() {
    let Some(endpoint) = another() else { return };
    let program = Box::new(Program::default());
    let access = access(&endpoint, KEY_ID);
    keeps_the_promises(&WorkerBucket::new(program, "s3://bucket/promises", access));
}

#[test]
fn machines_share_a_workspace_through_a_service_of_another() {
    let Some(endpoint) = another() else { return };
    share(&endpoint, "s3://bucket/team", |_| {});
}

#[test]
fn a_service_without_conditional_puts_is_refused_and_errors_have_no_secret() {
    let Some(mut env) = machine() else { return };
    let service = Service::start();
    fs::write(env.project().join("file"), "of the base\n").unwrap();
    env.start();
    let endpoint = service.endpoint();
    let add = [
        "remote",
        "add",
        "origin",
        "s3://bucket/team",
        "--endpoint",
        &endpoint,
    ];
    service.ignore_conditions();
    let told = run(&env, &add);
    assert!(told.err.contains("condition"), "{told:?}");
    told.fails(1, "cannot add the remote origin");
    assert_eq!(run(&env, &["remote", "list"]).ok(), "");
    env.set_variable("AWS_ACCESS_KEY_ID", "AKIDOFNOBODY");
    let told = run(&env, &add);
    assert!(!told.err.contains(SECRET), "{told:?}");
    told.fails(1, "403, InvalidAccessKeyId");
    nowhere_below(env.home());
}
