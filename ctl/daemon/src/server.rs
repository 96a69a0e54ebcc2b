//! Accepting connections: a thread for each, up to a bound, which waits a while for the next one; the
//! peer's user is checked.

use super::connection;
use super::served::{self, Daemon};
use agentvfs_client::sys;
use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    /// Hands a connection to a thread that waits for one.
    waiting: (Sender<Client>, Receiver<Client>),
}

/// A connection that was accepted.
struct Client {
    stream: UnixStream,
    _share: Share,
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
            waiting: bounded(0),
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
        let Err(TrySendError::Full(client) | TrySendError::Disconnected(client)) =
            self.waiting.0.try_send(client)
        else {
            return;
        };
        let (daemon, more) = (self.daemon.clone(), self.waiting.1.clone());
        let spawned = thread::Builder::new().name("client".into()).spawn(move || {
            let mut next = Ok(client);
            while let Ok(client) = next {
                if let Err(error) = connection::serve(&daemon, &client.stream) {
                    tracing::debug!(%error, "a connection broke");
                }
                drop(client);
                next = more.recv_timeout(IDLE);
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
    fn share_is_given_back() {
        let count = Arc::new(AtomicUsize::new(1));
        drop(Share(count.clone()));
        assert_eq!(count.load(Ordering::Acquire), 0);
    }
}
