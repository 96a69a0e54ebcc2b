//! The daemon: one process that serves all workspaces of a home.
//!
//! Started by the first command that needs it, with its standard error in the log and one line about
//! its start on standard output ([`Startup`]). Invariant: it holds the store's lock for as long as
//! its socket exists, so at most one daemon serves a home. A home that was moved away may leave its place to
//! another one with a daemon of its own, so the socket's path is removed only where it is this daemon's.
//!
//! Turns requests of the protocol into engine calls, and what the engine says into answers. `unsafe` stands in the
//! module `sys` alone.

mod apply;
mod aside;
mod audit;
mod branches;
mod callers;
mod cgroup;
mod connection;
mod dispatch;
mod ebpf;
mod errnos;
mod event_lines;
mod events;
mod exchange;
mod fanotify;
mod faults;
mod files;
mod gate;
mod handles;
mod holders;
mod in_flight;
mod jobs;
mod keeping;
mod kv;
mod lifecycle;
mod log;
mod moments;
mod mountpoint;
mod mounts;
mod open_files;
mod peer;
pub mod policies;
pub mod policy;
pub mod programs;
mod project;
mod remotes;
mod request;
mod sandboxed;
mod served;
mod server;
mod sessions;
pub mod settings;
mod sharing;
mod store;
pub mod sys;
mod timeline;
mod watch;

use agentvfs_client::failure::NO_DAEMON;
use agentvfs_client::home::{Home, process_env};
use agentvfs_client::launch::Startup;
use agentvfs_client::protocol::Fault;
use engine::{Engine, EngineConfig};
use fuse_front::Transport;
use gate::Gate;
use keeping::Keeping;
use log::Log;
use mounts::Mounts;
use rustix::fs::Mode;
use served::Daemon;
use server::Server;
use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use fuse_front::{is_dead_mount, is_refused_mount, unescape};
pub use store::fsck_answer;

/// How long to wait for the store's lock: a daemon that is just ending gives it up soon.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Pause between two attempts to get the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// How long a daemon that hands over goes on refusing requests.
const FAREWELL: Duration = Duration::from_millis(10);

/// Says by which of the ways that this build has ([`Transport`]) mounts speak to the kernel: for tests.
const TRANSPORT_VARIABLE: &str = "AGENTVFS_TRANSPORT";

/// Serves `home` until nothing is mounted any more or the process is asked to end.
pub fn run(home: Home) -> u8 {
    sys::close_from(3);
    detach();
    // Before any other thread runs: one that has signals unblocked would end the process at once.
    let signals = sys::block_signals();
    let log = log::start(&home);
    if let Err(error) = sys::abort_without_dump() {
        tracing::warn!(%error, "a daemon that aborts may hang until its mounts are aborted");
    }
    give_memory_back();
    let opened = signals
        .map_err(|e| Fault::failed("signals", format!("cannot block signals: {e}")))
        .and_then(|_| transport())
        .and_then(|transport| Ok((open(&home)?, transport)));
    let status = match opened {
        Ok(((engine, socket), transport)) => {
            report(&Startup::Ready);
            serve(home, engine, socket, transport, &log);
            0
        }
        Err(fault) => {
            tracing::error!("cannot start: {}", fault.message);
            report(&Startup::Failed(fault));
            NO_DAEMON
        }
    };
    log.finish();
    status
}

/// Leaves the session and control group of whoever started this process.
fn detach() {
    // Fails where this process leads a session already, which is what is wanted.
    let _ = rustix::process::setsid();
    rustix::process::umask(Mode::from_raw_mode(0o077));
    cgroup::leave();
}

/// Lets the allocator give back what was freed after a while, also when nothing is allocated any more.
fn give_memory_back() {
    if let Err(e) = tikv_jemalloc_ctl::background_thread::write(true) {
        tracing::warn!("memory is freed late: {e}");
    }
}

/// Tells whoever started this process how it went, once; afterwards standard output is closed, so
/// that nobody who waits for its end waits for the daemon.
fn report(startup: &Startup) {
    if let Ok(line) = serde_json::to_string(startup) {
        // Nobody may be there to read it; the daemon serves all the same.
        let _ = writeln!(io::stdout(), "{line}");
    }
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// The way to the kernel that the environment asks for.
fn transport() -> Result<Transport, Fault> {
    let Some(name) = process_env(TRANSPORT_VARIABLE) else {
        return Ok(Transport::default());
    };
    let known = name.to_str().and_then(Transport::named);
    known.ok_or_else(|| {
        let what = format!(
            "this build has no transport {:?} (${TRANSPORT_VARIABLE})",
            name.display()
        );
        Fault::failed("transport", what).hint(format!("unset {TRANSPORT_VARIABLE}"))
    })
}

/// Opens the store and listens.
fn open(home: &Home) -> Result<(Arc<Engine>, Socket), Fault> {
    home.prepare()
        .map_err(|e| Fault::failed("home", e.to_string()))?;
    engine::open_dead_bases_with(fuse_front::open_beneath_dead);
    let engine = open_engine(home).map_err(|e| faults::at_open(&e))?;
    let socket = Socket::listen(home).map_err(|e| {
        Fault::failed(
            "socket",
            format!("cannot listen at {}: {e}", home.socket().display()),
        )
    })?;
    Ok((engine, socket))
}

fn open_engine(home: &Home) -> Result<Arc<Engine>, engine::Error> {
    let deadline = Instant::now() + LOCK_WAIT;
    let config = EngineConfig {
        root: home.root().to_owned(),
        author: author(),
    };
    loop {
        match Engine::open(config.clone()) {
            Err(engine::Error::StoreLocked { .. }) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_PAUSE);
            }
            result => return result,
        }
    }
}

/// Who makes commits: the user whose daemon this is.
fn author() -> String {
    let name = ["USER", "LOGNAME"].into_iter().find_map(process_env);
    let name = name.and_then(|name| name.into_string().ok());
    name.unwrap_or_else(|| format!("uid {}", rustix::process::geteuid().as_raw()))
}

/// The socket that clients come to.
struct Socket {
    listener: UnixListener,
    mark: SocketMark,
}

/// By which a daemon knows its socket's file again.
struct SocketMark {
    path: PathBuf,
    /// Device and inode.
    file: (u64, u64),
}

impl Socket {
    /// Binds it. What lies at its path was left by a daemon that died: the store's lock is ours.
    fn listen(home: &Home) -> io::Result<Socket> {
        let path = home.socket();
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let meta = path.symlink_metadata()?;
        let file = (meta.dev(), meta.ino());
        Ok(Socket {
            listener,
            mark: SocketMark { path, file },
        })
    }
}

impl SocketMark {
    /// Removes the socket's file, unless another daemon's is there by now.
    fn remove(&self) {
        let found = self.path.symlink_metadata();
        match found.map(|meta| (meta.dev(), meta.ino()) == self.file) {
            // A client that comes meanwhile is told that the daemon ends.
            Ok(true) => drop(std::fs::remove_file(&self.path)),
            Ok(false) => tracing::warn!("{} is another daemon's", self.path.display()),
            Err(error) => tracing::info!(%error, "the socket's file is gone"),
        }
    }
}

fn serve(home: Home, engine: Arc<Engine>, socket: Socket, transport: Transport, log: &Log) {
    let Socket { listener, mark } = socket;
    tracing::info!(version = agentvfs_client::identity::build(), home = %home.root().display(), "ready");
    let gate = Arc::new(Gate::new());
    let (keeping, kept) = Keeping::begin(&home);
    let mounts = Mounts::new(
        engine.clone(),
        home.clone(),
        gate.clone(),
        transport,
        keeping.clone(),
    );
    let mounts = Arc::new(mounts);
    mounts.begin_lazy();
    mounts.resume(kept);
    spawn_signal_thread(gate.clone());
    store::keep_house(engine.clone());
    let daemon = Daemon {
        mounts: mounts.clone(),
        gate: gate.clone(),
    };
    Server::new(daemon).listen(listener);
    lifecycle::run(&gate, &mounts);
    // New clients start a new daemon, which waits for the store's lock.
    mark.remove();
    lifecycle::finish(&gate, &mounts);
    if gate.is_handed_over() {
        // Whoever has just come is told so.
        std::thread::sleep(FAREWELL);
        mounts.end_audits();
        tracing::info!("ended; another daemon goes on with the mounts");
        log.finish();
        // As if killed: whoever goes on replays the journals, and gets what is not answered yet.
        std::process::exit(0);
    }
    keeping.end();
    if let Err(error) = engine.shut_down() {
        tracing::error!(%error, "the store was not closed cleanly; the next start checks it");
    }
    tracing::info!("ended");
}

fn spawn_signal_thread(gate: Arc<Gate>) {
    let spawned = std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            sys::wait_for_end();
            tracing::info!("received a signal to stop");
            gate.ask_end();
        });
    if let Err(error) = spawned {
        tracing::error!(%error, "no thread for signals: only SIGKILL will end this process");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_of_a_dead_daemon_is_replaced_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::find(Some(dir.path()), &|_| None).unwrap();
        drop(Socket::listen(&home).unwrap());
        assert!(home.socket().exists(), "a dead daemon's socket stays");
        let _socket = Socket::listen(&home).unwrap();
        assert_eq!(home.socket().metadata().unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn another_daemons_socket_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::find(Some(dir.path()), &|_| None).unwrap();
        let old = Socket::listen(&home).unwrap();
        let new = Socket::listen(&home).unwrap();
        old.mark.remove();
        assert!(home.socket().exists());
        new.mark.remove();
        assert!(!home.socket().exists());
        new.mark.remove();
    }
}
