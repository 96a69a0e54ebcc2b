//! Accepting connections: a thread for each, up to a bound, which waits a while for the next one; the
//! peer's user is checked.

use super::connection;
use super::served::{self, Daemon};
use agentvfs_client::sys;
use parking_lot::Mutex;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Most connections at once.
const CONNECTIONS_MAX: usize = 256;

/// Pause after a failed accept, which may be for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a thread without a connection waits for one: commands of a script come shortly after each
/// other, and making a thread takes longer than answering.
const IDLE: Duration = Duration::from_secs(5);

/// The listening side.
pub struct Server {
    daemon: Daemon,
    connections: Arc<AtomicUsize>,
    /// Threads that wait for a connection.
    idle: Arc<Idle>,
}

/// A connection that was accepted.
struct Client {
    stream: UnixStream,
    _share: Share,
}

/// Threads that wait for a connection, by a number of their own: the one that came last is taken first.
#[derive(Default)]
struct Idle {
    threads: Mutex<Vec<(u64, Sender<Client>)>>,
    last: AtomicU64,
}

impl Idle {
    /// Gives a connection to a thread that waits for one; gives it back if none does.
    fn give(&self, client: Client) -> Option<Client> {
        let Some((_, thread)) = self.threads.lock().pop() else {
            return Some(client);
        };
        let given = thread.send(client);
        given.err().map(|SendError(client)| client)
    }

    /// The next connection for a thread with this channel; none if it has waited for long.
    fn next(&self, (thread, client): &(Sender<Client>, Receiver<Client>)) -> Option<Client> {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        self.threads.lock().push((number, thread.clone()));
        if let Ok(client) = client.recv_timeout(IDLE) {
            return Some(client);
        }
        let mut threads = self.threads.lock();
        let at = threads.iter().position(|(other, _)| *other == number);
        match at {
            Some(at) => {
                threads.remove(at);
                None
            }
            // Somebody has taken it just now, and gives it a connection.
            None => {
                drop(threads);
                client.recv().ok()
            }
        }
    }
}

/// One connection's share of [`CONNECTIONS_MAX`].
struct Share(Arc<AtomicUsize>);

impl Drop for Share {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Server {
    /// A server that has accepted nothing yet.
    pub fn new(daemon: Daemon) -> Server {
        Server {
            daemon,
            connections: Arc::default(),
            idle: Arc::default(),
        }
    }

    /// Accepts connections in a thread of its own, until the process ends.
    pub fn listen(self, listener: UnixListener) {
        let spawned = thread::Builder::new().name("accept".into()).spawn(move || {
            loop {
                match listener.accept() {
                    Ok((stream, _)) => self.take(stream),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        thread::sleep(ACCEPT_PAUSE);
                    }
                }
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread to accept connections");
        }
    }

    fn take(&self, stream: UnixStream) {
        match is_allowed(&stream) {
            Ok(true) => {}
            Ok(false) => return tracing::warn!("refused a connection of another user"),
            Err(error) => return tracing::warn!(%error, "cannot tell whose connection it is"),
        }
        let share = Share(self.connections.clone());
        if self.connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            // Best effort: whoever does not read it sees the connection end.
            let _ = served::refuse(&stream, served::ending());
            return;
        }
        let client = Client {
            stream,
            _share: share,
        };
        let Some(client) = self.idle.give(client) else {
            return;
        };
        let (daemon, idle) = (self.daemon.clone(), self.idle.clone());
        let spawned = thread::Builder::new().name("client".into()).spawn(move || {
            let own = channel();
            let mut next = Some(client);
            while let Some(client) = next {
                if let Err(error) = connection::serve(&daemon, &client.stream) {
                    tracing::debug!(%error, "a connection broke");
                }
                drop(client);
                next = idle.next(&own);
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread for a connection");
        }
    }
}

/// The same user, or root.
fn is_allowed(stream: &UnixStream) -> io::Result<bool> {
    let user = sys::peer(stream)?.user;
    Ok(user == rustix::process::geteuid() || user.is_root())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_connections_are_allowed() {
        let (here, _there) = UnixStream::pair().unwrap();
        assert!(is_allowed(&here).unwrap());
    }

    #[test]
    fn a_connection_goes_to_a_thread_that_waits_and_to_no_other() {
        let client = || Client {
            stream: UnixStream::pair().unwrap().0,
            _share: Share(Arc::new(AtomicUsize::new(1))),
        };
        let idle = Arc::new(Idle::default());
        assert!(idle.give(client()).is_some(), "nobody waits");
        let waiting = idle.clone();
        let thread = thread::spawn(move || waiting.next(&channel()).is_some());
        while idle.threads.lock().is_empty() {
            thread::yield_now();
        }
        assert!(idle.give(client()).is_none());
        assert!(thread.join().unwrap());
        assert!(idle.give(client()).is_some(), "it does not wait any more");
    }

    #[test]
    fn share_is_given_back() {
        let count = Arc::new(AtomicUsize::new(1));
        drop(Share(count.clone()));
        assert_eq!(count.load(Ordering::Acquire), 0);
    }
}
