//! Listening to a client while its request is worked on: it may cancel it, or leave.
//!
//! A client that has closed its connection hears of nothing any more, so what can be cancelled is. One that has
//! only closed its sending side still waits for the answer. Invariant: whatever else comes stays where it is,
//! for later.

use super::peer::{Lines, Peer};
use agentvfs_client::protocol::{CancelHeard, REQUEST_BYTES_MAX, RequestId, encode_cancel_heard};
use engine::Cancel;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::OwnedFd;
use std::io;
use std::net::Shutdown;
use std::thread;

/// Does `work` for the request of an id, and cancels it when the client says so or leaves; where it is endless, also when
/// the client sends no more.
pub fn listening<R>(
    lines: &mut Lines<'_>,
    peer: &Peer<'_>,
    (id, is_endless): (&RequestId, bool),
    cancel: &Cancel,
    work: impl FnOnce() -> R,
) -> io::Result<R> {
    let over = eventfd(0, EventfdFlags::CLOEXEC)?;
    thread::scope(|scope| {
        let listener = Listener {
            peer,
            id,
            is_endless,
            cancel,
            over: &over,
        };
        let spawned = thread::Builder::new()
            .name("listen".into())
            .spawn_scoped(scope, move || listener.run(lines))?;
        let result = work();
        if let Err(error) = rustix::io::write(&over, &1u64.to_ne_bytes()) {
            // So that the listener ends.
            tracing::error!(%error, "a connection is closed");
            peer.stream().shutdown(Shutdown::Both)?;
        }
        match spawned.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a client was not listened to"),
            Err(_) => tracing::error!("who listened to a client has panicked"),
        }
        Ok(result)
    })
}

struct Listener<'a> {
    peer: &'a Peer<'a>,
    id: &'a RequestId,
    /// Nobody waits for its answer who sends no more.
    is_endless: bool,
    cancel: &'a Cancel,
    /// Readable once the work is over.
    over: &'a OwnedFd,
}

impl Listener<'_> {
    fn run(&self, lines: &mut Lines<'_>) -> io::Result<()> {
        let mut sends = true;
        loop {
            if lines.take_cancel(self.id) {
                self.told()?;
            }
            let more = sends && lines.held() < REQUEST_BYTES_MAX;
            let wanted = if more {
                PollFlags::IN
            } else {
                PollFlags::empty()
            };
            let mut fds = [
                PollFd::new(self.over, PollFlags::IN),
                PollFd::new(self.peer.stream(), wanted),
            ];
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            let (over, client) = (fds[0].revents(), fds[1].revents());
            if !over.is_empty() {
                return Ok(());
            }
            if client.intersects(PollFlags::HUP | PollFlags::ERR) {
                // Nobody hears whether that is in time.
                let _ = self.cancel.cancel();
                return Ok(());
            }
            if client.contains(PollFlags::IN) {
                sends = lines.take_more()?;
                if !sends && self.is_endless {
                    // It is answered, if that can be sent.
                    let _ = self.cancel.cancel();
                    return Ok(());
                }
            }
        }
    }

    fn told(&self) -> io::Result<()> {
        let cancelled = self.cancel.cancel();
        tracing::info!(cancelled, "a client wants its request cancelled");
        let id = self.id.clone();
        self.peer
            .send(&encode_cancel_heard(&CancelHeard { id, cancelled }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentvfs_client::protocol::{FromDaemon, encode_cancel, parse_from_daemon};
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    const ID: RequestId = RequestId::Number(7);

    /// Lets `client` do something while work goes on that ends when `is_over`; gives whether that was so.
    fn meanwhile(
        cancel: &Cancel,
        client: impl FnOnce(UnixStream) + Send,
        is_over: impl Fn() -> bool,
    ) -> (bool, Vec<u8>) {
        let (here, there) = UnixStream::pair().unwrap();
        let peer = Peer::new(&here);
        let mut lines = Lines::new(&here);
        let over = thread::scope(|scope| {
            scope.spawn(|| client(there));
            let until = Instant::now() + Duration::from_secs(20);
            listening(&mut lines, &peer, (&ID, false), cancel, || {
                while !is_over() && Instant::now() < until {
                    thread::sleep(Duration::from_millis(1));
                }
                is_over()
            })
            .unwrap()
        });
        (over, lines.rest())
    }

    #[test]
    fn a_client_that_leaves_cancels() {
        let cancel = Cancel::new();
        let (over, _) = meanwhile(&cancel, drop, || cancel.is_cancelled());
        assert!(over);
    }

    #[test]
    fn a_client_that_only_sends_no_more_is_answered() {
        let (cancel, seen) = (Cancel::new(), std::sync::atomic::AtomicBool::new(false));
        let client = |mut stream: UnixStream| {
            stream.shutdown(Shutdown::Write).unwrap();
            // What the daemon does with that cannot be seen; the answer must come all the same.
            stream
                .set_read_timeout(Some(Duration::from_millis(200)))
                .unwrap();
            let waited = std::io::Read::read(&mut stream, &mut [0; 1]);
            assert!(waited.is_err(), "{waited:?}");
            seen.store(true, std::sync::atomic::Ordering::Release);
            // Stays until the work is over.
            stream.set_read_timeout(None).unwrap();
            let _ = std::io::Read::read(&mut stream, &mut [0; 1]);
        };
        let (over, _) = {
            let seen = &seen;
            let (here, there) = UnixStream::pair().unwrap();
            let peer = Peer::new(&here);
            let mut lines = Lines::new(&here);
            let over = thread::scope(|scope| {
                scope.spawn(move || client(there));
                let over = listening(&mut lines, &peer, (&ID, false), &cancel, || {
                    while !seen.load(std::sync::atomic::Ordering::Acquire) {
                        thread::sleep(Duration::from_millis(1));
                    }
                    cancel.decide().is_ok()
                });
                here.shutdown(Shutdown::Both).unwrap();
                over.unwrap()
            });
            (over, ())
        };
        assert!(over);
    }

    #[test]
    fn a_cancel_of_this_request_counts_and_what_else_comes_waits() {
        let cancel = Cancel::new();
        let client = |mut stream: UnixStream| {
            stream.write_all(&encode_cancel(3)).unwrap();
            stream.write_all(b"later\n").unwrap();
            stream.write_all(&encode_cancel(7)).unwrap();
            stream.write_all(b"more").unwrap();
            let mut line = Vec::new();
            BufReader::new(&stream)
                .read_until(b'\n', &mut line)
                .unwrap();
            let heard = parse_from_daemon(&line);
            assert!(matches!(heard, Some(FromDaemon::Cancel(h)) if h.cancelled && h.id == ID));
        };
        let (over, rest) = meanwhile(&cancel, client, || cancel.is_cancelled());
        assert!(over);
        assert!(rest.starts_with(b"later\n"), "{rest:?}");
    }

    #[test]
    fn past_the_point_of_no_return_the_client_hears_so() {
        let (cancel, heard) = (Cancel::new(), std::sync::atomic::AtomicBool::new(false));
        cancel.decide().unwrap();
        let client = |mut stream: UnixStream| {
            stream.write_all(&encode_cancel(7)).unwrap();
            let mut line = Vec::new();
            BufReader::new(&stream)
                .read_until(b'\n', &mut line)
                .unwrap();
            let told = parse_from_daemon(&line);
            assert!(matches!(told, Some(FromDaemon::Cancel(h)) if !h.cancelled));
            heard.store(true, std::sync::atomic::Ordering::Release);
        };
        let is_over = || heard.load(std::sync::atomic::Ordering::Acquire);
        assert!(meanwhile(&cancel, client, is_over).0 && !cancel.is_cancelled());
    }
}
