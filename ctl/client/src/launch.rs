//! Reaching the daemon, and starting it where none runs.
//!
//! Invariant: of many clients at once one starts the daemon (it holds the launch lock), the others
//! find it. What kept a daemon from starting is told to the user, not only to the log.

use crate::connection::{Client, ClientError};
use crate::failure::Failure;
use crate::home::{Home, process_env};
use crate::protocol::Fault;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A daemon's log longer than this is put aside.
pub const LOG_BYTES_MAX: u64 = 8 << 20;

/// How long all attempts to reach a daemon may take.
const DEADLINE: Duration = Duration::from_secs(15);

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(3);

/// The one line that a starting daemon writes to its standard output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Startup {
    /// It listens.
    Ready,
    /// It cannot run.
    Failed(Fault),
}

/// Which program a daemon is started from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Program {
    /// `agentvfs`, where `$PATH` has it.
    #[default]
    OnPath,
    /// The one that runs, which is `agentvfs` itself; also where its file was replaced since.
    Own,
    /// This one.
    At(PathBuf),
}

impl Program {
    fn path(&self) -> PathBuf {
        match self {
            Program::OnPath => PathBuf::from("agentvfs"),
            Program::Own => own_program(),
            Program::At(path) => path.clone(),
        }
    }
}

/// How a daemon is started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launch {
    /// From which program.
    pub program: Program,
    /// Whether it keeps a detailed log.
    pub verbose: bool,
}

/// A connection to the daemon of `home`; starts it where none runs.
pub fn connect_or_start(home: &Home, launch: &Launch) -> Result<Client, Failure> {
    connect_or_start_in(home, launch, &mut Vec::new())
}

/// The same; the processes that were started on the way, which may have ended again, are in `started`.
pub(crate) fn connect_or_start_in(
    home: &Home,
    launch: &Launch,
    started: &mut Vec<Child>,
) -> Result<Client, Failure> {
    let deadline = Instant::now() + DEADLINE;
    if let Some(socket) = home.socket_of_run() {
        return connect_to_run(socket, deadline);
    }
    loop {
        match Client::connect(&home.socket()) {
            Ok(client) => return Ok(client),
            Err(ClientError::NotRunning) => start_one(home, launch, deadline, started)?,
            Err(ClientError::Ending) => {}
            Err(error) => return Err(unusable(&error)),
        }
        if Instant::now() > deadline {
            return Err(Failure::no_daemon("it exits again and again").hint(see_log(home)));
        }
        std::thread::sleep(PAUSE);
    }
}

/// A connection to the socket of a run. Whoever serves it waits for a daemon; none is started from inside a sandbox.
fn connect_to_run(socket: &Path, deadline: Instant) -> Result<Client, Failure> {
    loop {
        match Client::connect(socket) {
            Ok(client) => return Ok(client),
            Err(ClientError::Ending) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Err(error) => {
                return Err(unusable(&error).hint(
                    "this is the sandbox of a run, or $AGENTVFS_SOCKET is set: unset it outside of one",
                ));
            }
        }
    }
}

/// What a command says where its request could not be made or failed.
pub fn failed(what: &str, error: ClientError) -> Failure {
    match error {
        ClientError::Fault(fault) => Failure::from_fault(what, fault),
        ClientError::Broken(_) => Failure::new(what, error.to_string())
            .kind("daemon-ended")
            .hint("agentvfs status shows whether it was done"),
        other => unusable(&other),
    }
}

fn unusable(error: &ClientError) -> Failure {
    let failure = Failure::no_daemon(error.to_string());
    match error {
        ClientError::Version(_) => {
            failure.hint("stop all workspaces with the agentvfs that started them, then try again; agentvfs doctor shows its process id")
        }
        ClientError::Silent(_) => {
            failure.hint("look for a stopped or hanging `agentvfs daemon` process")
        }
        ClientError::Foreign(_) => {
            failure.hint("use another home: --root DIR or $AGENTVFS_HOME")
        }
        _ => failure,
    }
}

fn see_log(home: &Home) -> String {
    format!("the log is {}", home.log().display())
}

/// Starts a daemon unless somebody else just did.
fn start_one(
    home: &Home,
    launch: &Launch,
    deadline: Instant,
    started: &mut Vec<Child>,
) -> Result<(), Failure> {
    home.prepare().map_err(|e| cannot_start(&e.to_string()))?;
    let _lock = launch_lock(&home.launch_lock(), deadline)?;
    match Client::connect(&home.socket()) {
        Err(ClientError::NotRunning) => spawn(home, launch, deadline, started),
        _ => Ok(()),
    }
}

fn cannot_start(why: &str) -> Failure {
    Failure {
        what: "cannot start the daemon".to_owned(),
        ..Failure::no_daemon(why)
    }
    .hint("use another home: --root DIR or $AGENTVFS_HOME")
}

/// The lock that serialises launches; it ends with the returned file.
fn launch_lock(path: &Path, deadline: Instant) -> Result<File, Failure> {
    let file = private_file(path).map_err(|e| cannot_start(&format!("{}: {e}", path.display())))?;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                std::thread::sleep(PAUSE);
            }
            Err(e) => return Err(cannot_start(&format!("{}: {e}", path.display()))),
        }
    }
}

fn private_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

fn spawn(
    home: &Home,
    launch: &Launch,
    deadline: Instant,
    started: &mut Vec<Child>,
) -> Result<(), Failure> {
    let (here, there) = UnixStream::pair().map_err(|e| cannot_start(&e.to_string()))?;
    let log = open_log(&home.log())
        .map_err(|e| cannot_start(&format!("{}: {e}", home.log().display())))?;
    let mut daemon = Command::new(launch.program.path());
    if launch.verbose && process_env("AGENTVFS_LOG").is_none() {
        daemon.env("AGENTVFS_LOG", "debug");
    }
    let process = daemon
        .arg0("agentvfs")
        .arg("daemon")
        .arg("--root")
        .arg(home.root())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::from(OwnedFd::from(there)))
        .stderr(Stdio::from(log))
        .spawn()
        .map_err(|e| cannot_start(&e.to_string()))?;
    started.push(process);
    // It has the other end, which nobody else may keep open: where the daemon dies, reading ends.
    drop(daemon);
    let remaining = deadline
        .saturating_duration_since(Instant::now())
        .max(PAUSE);
    // Without a time limit a daemon that hangs would hang us; the limit itself cannot be refused,
    // as it is not zero.
    let _ = here.set_read_timeout(Some(remaining));
    heard(here, home)
}

/// Waits for the daemon's one line.
fn heard(from: impl Read, home: &Home) -> Result<(), Failure> {
    let mut line = String::new();
    let read = BufReader::new(from).read_line(&mut line);
    match (read, serde_json::from_str::<Startup>(&line)) {
        (_, Ok(Startup::Ready)) => Ok(()),
        (_, Ok(Startup::Failed(fault))) => {
            let failure = cannot_start(&fault.message);
            Err(Failure {
                hint: fault.hint.or(failure.hint.clone()),
                kind: fault.kind,
                ..failure
            })
        }
        (Err(e), _) => {
            Err(cannot_start(&format!("it did not become ready: {e}")).hint(see_log(home)))
        }
        (Ok(_), _) => Err(cannot_start("it exited immediately").hint(see_log(home))),
    }
}

/// This program's file, also where it was replaced while it runs.
pub fn own_program() -> PathBuf {
    match std::env::current_exe() {
        Ok(path) if path.exists() => path,
        _ => PathBuf::from("/proc/self/exe"),
    }
}

pub(crate) fn open_log(path: &Path) -> std::io::Result<File> {
    if path.metadata().is_ok_and(|meta| meta.len() > LOG_BYTES_MAX) {
        std::fs::rename(path, path.with_extension("log.1"))?;
    }
    private_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::find(Some(dir.path()), &|_| None).unwrap();
        (dir, home)
    }

    #[test]
    fn cause_of_a_failed_start_reaches_the_user() {
        let (_dir, home) = home();
        let fault = Fault::failed("store-locked", "the store is in use by process 7").hint("wait");
        let line = serde_json::to_string(&Startup::Failed(fault)).unwrap();
        let failure = heard(line.as_bytes(), &home).unwrap_err();
        assert_eq!(failure.exit, crate::failure::NO_DAEMON);
        assert!(failure.why.contains("process 7"));
        assert_eq!(
            (failure.hint.as_deref(), &*failure.kind),
            (Some("wait"), "store-locked")
        );
    }

    #[test]
    fn readiness_and_sudden_death_are_told_apart() {
        let (_dir, home) = home();
        let line = serde_json::to_string(&Startup::Ready).unwrap();
        assert!(heard(line.as_bytes(), &home).is_ok());
        assert_eq!(
            heard(&b""[..], &home).unwrap_err().exit,
            crate::failure::NO_DAEMON
        );
    }

    #[test]
    fn launch_lock_is_given_to_one_at_a_time() {
        let (_dir, home) = home();
        let now = Instant::now();
        let held = launch_lock(&home.launch_lock(), now).unwrap();
        assert_eq!(
            launch_lock(&home.launch_lock(), now).unwrap_err().exit,
            crate::failure::NO_DAEMON
        );
        drop(held);
        assert!(launch_lock(&home.launch_lock(), now).is_ok());
    }

    #[test]
    fn long_log_is_put_aside() {
        let (_dir, home) = home();
        std::fs::write(home.log(), vec![b'x'; LOG_BYTES_MAX as usize + 1]).unwrap();
        open_log(&home.log()).unwrap();
        assert_eq!(home.log().metadata().unwrap().len(), 0);
        assert!(home.root().join("daemon.log.1").exists());
    }
}
