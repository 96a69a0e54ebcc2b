//! The socket by which a command in a sandbox asks for what it may of agentvfs.
//!
//! This process listens at it, says to the daemon for each connection which sandbox it comes from, and passes lines on;
//! the daemon decides what is answered. Invariants: no request of the command reaches the daemon on a connection that
//! has not said so; after [`Relay::end`] none is worked on any more, so what the branch shows then is what it shows. The
//! socket's file is gone as soon as the sandbox has it: only the sandbox can connect.

use super::reach::Reach;
use crate::output::warn;
use agentvfs_client::connection::{Client, ClientError};
use agentvfs_client::protocol::*;
use agentvfs_client::sys::peer;
use agentvfs_sandbox::reach::{MAP, MAPPED};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Connections of one run at once.
const CONNECTIONS_MAX: usize = 16;
/// How long the daemon may be away.
const DAEMON_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause between two attempts to reach it.
const PAUSE: Duration = Duration::from_millis(20);
/// How long what is being worked on at the end may take.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// A socket that listens, and that nobody can connect to yet.
pub struct Bound {
    listener: UnixListener,
    path: PathBuf,
}

impl Bound {
    /// Listens at a path, which may be longer than a socket's name may be.
    pub fn at(path: &Path) -> io::Result<Bound> {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(dir, flags, Mode::empty())?;
        let short = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
        let bound = Bound {
            listener: UnixListener::bind(short)?,
            path: path.to_owned(),
        };
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(bound)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // Who has it keeps it; its name leads nowhere from now on.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// What all connections share.
struct Shared {
    socket: PathBuf,
    sandbox: SandboxOf,
    reach: Option<Reach>,
    /// Something was asked for that may have changed something.
    has_changed: AtomicBool,
    is_over: AtomicBool,
    count: AtomicUsize,
    next: AtomicUsize,
    /// The command's ends by number, to wake who waits for it.
    ends: Mutex<BTreeMap<usize, UnixStream>>,
}

/// A socket that serves a sandbox.
pub struct Relay {
    shared: Arc<Shared>,
    wake: UnixStream,
    /// Ends when all threads have.
    left: Receiver<()>,
}

impl Relay {
    /// Serves the sandbox, in threads of its own: passes requests on to a socket, and shows branches that are made.
    pub fn begin(
        bound: Bound,
        socket: PathBuf,
        sandbox: SandboxOf,
        reach: Option<Reach>,
    ) -> io::Result<Relay> {
        let (wake, woken) = UnixStream::pair()?;
        let (alive, left) = channel();
        let shared = Arc::new(Shared {
            socket,
            sandbox,
            reach,
            has_changed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            count: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            ends: Mutex::default(),
        });
        let listener = bound.listener.try_clone()?;
        drop(bound);
        let here = Arc::clone(&shared);
        thread::Builder::new()
            .name("relay".into())
            .spawn(move || accept(&here, &listener, &woken, &alive))?;
        Ok(Relay { shared, wake, left })
    }

    /// Ends all connections, and waits until nothing of them is worked on any more. True if nothing was asked for that
    /// may have changed something; false also where that cannot be told.
    pub fn end(self) -> bool {
        self.shared.is_over.store(true, Ordering::SeqCst);
        drop(self.wake);
        for end in self.shared.ends().values() {
            // It may have ended.
            let _ = end.shutdown(Shutdown::Both);
        }
        let ended = self.left.recv_timeout(END_TIMEOUT);
        ended == Err(RecvTimeoutError::Disconnected)
            && !self.shared.has_changed.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn ends(&self) -> MutexGuard<'_, BTreeMap<usize, UnixStream>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(shared: &Arc<Shared>, listener: &UnixListener, woken: &UnixStream, alive: &Sender<()>) {
    loop {
        let mut polled = [
            PollFd::new(listener, PollFlags::IN),
            PollFd::new(woken, PollFlags::IN),
        ];
        match poll(&mut polled, None) {
            Err(Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) => {}
        }
        if shared.is_over.load(Ordering::SeqCst) {
            return;
        }
        let Ok((end, _)) = listener.accept() else {
            // For want of descriptors, or because the other end has gone again.
            thread::sleep(PAUSE);
            continue;
        };
        if shared.count.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
            // It sees the connection end, and tries again.
            shared.count.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (here, alive) = (Arc::clone(shared), alive.clone());
        let served = thread::Builder::new()
            .name("relayed".into())
            .spawn(move || {
                // What ends the connection is no news for the run; the command sees it.
                let _ = noted(&here, &end);
                here.count.fetch_sub(1, Ordering::SeqCst);
                drop(alive);
            });
        if served.is_err() {
            shared.count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Serves a connection that the end of the run can end.
fn noted(shared: &Arc<Shared>, end: &UnixStream) -> io::Result<()> {
    let number = shared.next.fetch_add(1, Ordering::SeqCst);
    shared.ends().insert(number, end.try_clone()?);
    // After it was noted: what comes later is not shut down.
    let served = match shared.is_over.load(Ordering::SeqCst) {
        true => Ok(()),
        false => serve(shared, end),
    };
    shared.ends().remove(&number);
    served
}

/// Passes lines on until one end has gone; ends when the daemon has, and so has worked all off.
fn serve(shared: &Arc<Shared>, end: &UnixStream) -> io::Result<()> {
    let daemon = connect(shared, end)?;
    let (mut answers, back) = (daemon.try_clone()?, end.try_clone()?);
    let asked = Arc::new(Asked::default());
    let (here, wanted) = (Arc::clone(shared), Arc::clone(&asked));
    let answering = thread::Builder::new()
        .name("answers".into())
        .spawn(move || {
            let passed = answer(&here, &wanted, &answers, &back);
            // Neither end has anything more to say: what cannot be sent is not asked for.
            let _ = back.shutdown(Shutdown::Both);
            // What nobody reads would keep the daemon from ending.
            if passed.is_err() {
                let _ = io::copy(&mut answers, &mut io::sink());
            }
        })?;
    let passed = ask(shared, &asked, end, &daemon);
    let _ = end.shutdown(Shutdown::Both);
    // The daemon reads to the end what it has got.
    let _ = daemon.shutdown(Shutdown::Write);
    // It panics never, and would have nothing to say.
    let _ = answering.join();
    passed
}

/// What becomes of a branch if a request for it is answered with success.
enum Change {
    Made(String),
    Deleted(String),
}

/// Requests that are not answered yet and change which branches there are.
type Asked = Mutex<Vec<(RequestId, Change)>>;

/// Passes answers on, whole lines. A branch that was made is in the sandbox before who made it hears of that.
fn answer(
    shared: &Shared,
    asked: &Asked,
    daemon: &UnixStream,
    mut end: &UnixStream,
) -> io::Result<()> {
    let mut lines = BufReader::new(daemon);
    loop {
        let mut line = Vec::new();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        if !asked.is_empty()
            && let Some(FromDaemon::Answer(id, result)) = parse_from_daemon(&line)
            && let Some(at) = asked.iter().position(|(of, _)| *of == id)
        {
            let (_, change) = asked.swap_remove(at);
            if result.is_ok() {
                show(shared, &change);
            }
        }
        drop(asked);
        end.write_all(&line)?;
    }
}

/// Shows a branch in the sandbox, or no more.
fn show(shared: &Shared, change: &Change) {
    let Some(reach) = &shared.reach else { return };
    let (done, name, what) = match change {
        Change::Made(name) => (reach.show(name), name, "is not shown"),
        Change::Deleted(name) => (reach.hide(name), name, "is still shown"),
    };
    if let Err(error) = done {
        warn(&format!("branch {name} {what} in the sandbox: {error}"));
    }
}

/// Which branches there are after a request, if that changes.
fn change_of(line: &[u8]) -> Option<(RequestId, Change)> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let request = parse_request(line).ok()?;
    let change = match request.call {
        Call::BranchCreate(ask) => Change::Made(ask.name),
        Call::BranchDelete(ask) => Change::Deleted(ask.branch),
        _ => return None,
    };
    Some((request.id, change))
}

/// Writes the maps of a sandbox that is made inside, whose process 1 asks for it.
fn map(shared: &Shared, mut end: &UnixStream) -> io::Result<()> {
    let process = peer(end)?.process.ok_or(io::ErrorKind::NotFound)?;
    let reach = shared.reach.as_ref().ok_or(io::ErrorKind::Unsupported)?;
    reach.map_ids(process)?;
    end.write_all(MAPPED)
}

/// Passes requests on, whole lines.
fn ask(
    shared: &Shared,
    asked: &Asked,
    end: &UnixStream,
    mut daemon: &UnixStream,
) -> io::Result<()> {
    let mut lines = BufReader::new(end);
    loop {
        let mut line = Vec::new();
        let limit = REQUEST_BYTES_MAX as u64 + 1;
        let count = lines.by_ref().take(limit).read_until(b'\n', &mut line)?;
        if count == 0 || shared.is_over.load(Ordering::SeqCst) {
            return Ok(());
        }
        if line == MAP {
            return map(shared, end);
        }
        if let Some(change) = change_of(&line) {
            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.push(change);
        }
        if !only_looks(&line) {
            shared.has_changed.store(true, Ordering::SeqCst);
        }
        // One that is too long is refused by the daemon, which then ends the connection.
        daemon.write_all(&line)?;
    }
}

/// Whether a line asks for nothing that changes anything: the daemon reads it as this does.
fn only_looks(line: &[u8]) -> bool {
    if parse_cancel(line).is_some() {
        return true;
    }
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    match parse_request(line) {
        Ok(request) => matches!(request.call, Call::Hello(_)) || request.call.only_looks(),
        Err(_) => true,
    }
}

/// A connection to the daemon that says which sandbox it is for; another daemon may be about to come.
fn connect(shared: &Shared, end: &UnixStream) -> io::Result<UnixStream> {
    let mut sandbox = SandboxOf {
        process: peer(end)?.process,
        ..shared.sandbox.clone()
    };
    let since = Instant::now();
    loop {
        match Client::connect_for(&shared.socket, sandbox.clone()) {
            Ok(stream) => return Ok(stream),
            // A daemon of an earlier build, which tells paths as they are outside.
            Err(ClientError::Fault(fault))
                if fault.code == code::INVALID_PARAMS && sandbox.at.is_some() =>
            {
                sandbox.at = None;
            }
            Err(ClientError::NotRunning | ClientError::Ending)
                if since.elapsed() < DAEMON_TIMEOUT && !shared.is_over.load(Ordering::SeqCst) => {}
            Err(error) => return Err(io::Error::other(error)),
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_that_change_something_count() {
        let request = |method: &str, params: &str| {
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{{{params}}}}}\n"
            )
        };
        let on = "\"workspace\":\"w\",\"branch\":\"b\"";
        assert!(only_looks(request("workspace.log", on).as_bytes()));
        assert!(only_looks(b"what\n"));
        assert!(!only_looks(request("workspace.redo", on).as_bytes()));
        assert!(!only_looks(request("workspace.checkpoint", on).as_bytes()));
    }

    #[test]
    fn a_socket_may_have_a_long_path_and_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(200));
        std::fs::create_dir(&deep).unwrap();
        let bound = Bound::at(&deep.join("s")).unwrap();
        assert!(deep.join("s").exists());
        drop(bound);
        assert_eq!(deep.read_dir().unwrap().count(), 0);
    }
}
