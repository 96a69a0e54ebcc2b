//! Several requests of one connection at once.
//!
//! The connection's thread reads, others carry out. Invariants: requests that change something are carried out one
//! after the other, in the order in which they came, so a client may send the next one before it has heard of the last;
//! those that only look are carried out at once, and are overtaken by nothing that they would have to see. No more are
//! read than the client may have in flight. When [`serve`] returns, all that were read are answered.

use super::peer::{End, Lines, Peer};
use super::served::{SILENCE_TIMEOUT, Served, refuse, too_long};
use agentvfs_client::protocol::{
    CancelHeard, Request, RequestId, encode_cancel_heard, parse_cancel, parse_request,
};
use engine::Cancel;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io;
use std::net::Shutdown;
use std::thread::{self, Scope};
use std::time::Duration;

/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// How often it is looked whether the client has left while its requests are waited for.
const LOOK: Duration = Duration::from_millis(50);

/// A request that was read.
struct Job {
    number: u64,
    request: Request,
    cancel: Cancel,
}

/// What was read and not answered.
#[derive(Default)]
struct Open {
    next: u64,
    /// Requests that only look.
    looks: VecDeque<Job>,
    /// Requests that change something.
    changes: VecDeque<Job>,
    /// One of those is being carried out.
    is_changing: bool,
    /// How many there are, those that are being carried out too.
    count: u32,
    /// Of those that can be cancelled: number, id, and how.
    cancels: Vec<(u64, RequestId, Cancel)>,
    /// Of those that end with what the client sends.
    endless: Vec<(u64, Cancel)>,
    /// Threads that wait for work.
    idle: usize,
    threads: usize,
    /// No more come.
    is_over: bool,
}

impl Open {
    fn take(&mut self) -> Option<Job> {
        if let Some(job) = self.looks.pop_front() {
            return Some(job);
        }
        let job = (!self.is_changing)
            .then(|| self.changes.pop_front())
            .flatten();
        self.is_changing |= job.is_some();
        job
    }

    fn is_ready(&self) -> bool {
        !self.looks.is_empty() || (!self.is_changing && !self.changes.is_empty())
    }
}

#[derive(Default)]
struct Flights {
    open: Mutex<Open>,
    /// Signalled when there is work, or no more will come.
    work: Condvar,
    /// Signalled when a request was answered.
    room: Condvar,
}

/// Serves a connection that may have several requests in flight, until it ends.
pub fn serve(served: &Served<'_>, lines: &mut Lines<'_>) -> io::Result<()> {
    let flights = Flights::default();
    thread::scope(|scope| {
        let ended = read(served, lines, &flights, scope);
        flights.end_endless();
        flights.wait_until(served.peer, |count| count == 0);
        flights.open.lock().is_over = true;
        flights.work.notify_all();
        ended
    })
}

fn read<'scope>(
    served: &'scope Served<'_>,
    lines: &mut Lines<'_>,
    flights: &'scope Flights,
    scope: &'scope Scope<'scope, '_>,
) -> io::Result<()> {
    loop {
        flights.wait_until(served.peer, |count| count < served.in_flight);
        let line = match lines.next(SILENCE_TIMEOUT) {
            Ok(line) => line,
            Err(End::Silent) if flights.open.lock().count > 0 => continue,
            Err(End::TooLong) => return refuse(served.peer.stream(), too_long()),
            Err(End::Gone | End::Silent) => return Ok(()),
        };
        if let Some(id) = parse_cancel(&line) {
            flights.cancel(served.peer, &id)?;
            continue;
        }
        match parse_request(&line) {
            Ok(request) => {
                if !flights.add(request) {
                    flights.hire(served, scope);
                }
            }
            Err(refusal) => served.refuse(refusal)?,
        }
    }
}

impl Flights {
    /// Waits until as many requests are open as is wanted. Where the client leaves meanwhile, what can be cancelled is.
    fn wait_until(&self, peer: &Peer<'_>, is_wanted: impl Fn(u32) -> bool) {
        let mut open = self.open.lock();
        while !is_wanted(open.count) {
            if self.room.wait_for(&mut open, LOOK).timed_out() && has_left(peer) {
                for (_, _, cancel) in &open.cancels {
                    // Nobody hears whether that is in time.
                    let _ = cancel.cancel();
                }
            }
        }
    }

    /// Notes a request; false where no thread waits for it.
    fn add(&self, request: Request) -> bool {
        let mut open = self.open.lock();
        let (number, cancel) = (open.next, Cancel::new());
        open.next += 1;
        open.count += 1;
        if request.call.can_be_cancelled() {
            open.cancels
                .push((number, request.id.clone(), cancel.clone()));
        }
        if request.call.is_endless() {
            open.endless.push((number, cancel.clone()));
        }
        let looks = request.call.only_looks();
        let job = Job {
            number,
            request,
            cancel,
        };
        match looks {
            true => open.looks.push_back(job),
            false => open.changes.push_back(job),
        }
        self.work.notify_one();
        // One that is ready and not taken yet has a thread of its own on the way.
        let ready = open.looks.len() + usize::from(!open.is_changing && !open.changes.is_empty());
        open.idle >= ready
    }

    /// Has one more thread carry out requests; without any it is done here.
    fn hire<'scope>(&'scope self, served: &'scope Served<'_>, scope: &'scope Scope<'scope, '_>) {
        {
            let mut open = self.open.lock();
            if open.threads >= served.in_flight as usize {
                return;
            }
            open.threads += 1;
        }
        let spawned = thread::Builder::new()
            .name("client".into())
            .spawn_scoped(scope, || self.carry_out(served));
        let Err(error) = spawned else {
            return;
        };
        tracing::warn!(%error, "no further thread for a connection");
        let mut open = self.open.lock();
        open.threads -= 1;
        if open.threads == 0 {
            while let Some(job) = open.take() {
                open = self.finish(served, open, job);
            }
        }
    }

    /// A thread that carries out requests, until there were none for a while.
    fn carry_out(&self, served: &Served<'_>) {
        let mut open = self.open.lock();
        loop {
            if let Some(job) = open.take() {
                open = self.finish(served, open, job);
                continue;
            }
            if open.is_over {
                break;
            }
            open.idle += 1;
            let waited = self.work.wait_for(&mut open, IDLE);
            open.idle -= 1;
            if waited.timed_out() && !open.is_ready() {
                break;
            }
        }
        open.threads -= 1;
    }

    /// Carries out a request, not under the lock.
    fn finish<'a>(
        &'a self,
        served: &Served<'_>,
        open: MutexGuard<'a, Open>,
        job: Job,
    ) -> MutexGuard<'a, Open> {
        drop(open);
        let changes = !job.request.call.only_looks();
        if let Err(error) = served.carry_out(&job.request, &job.cancel) {
            tracing::debug!(%error, "an answer could not be sent");
            // Whoever reads hears of that.
            let _ = served.peer.stream().shutdown(Shutdown::Both);
        }
        let mut open = self.open.lock();
        open.count -= 1;
        open.cancels.retain(|(number, ..)| *number != job.number);
        open.endless.retain(|(number, _)| *number != job.number);
        if changes {
            open.is_changing = false;
        }
        self.room.notify_all();
        open
    }

    /// The client sends no more.
    fn end_endless(&self) {
        for (_, cancel) in &self.open.lock().endless {
            // One that is over needs it no more.
            let _ = cancel.cancel();
        }
    }

    /// Cancels a request, and says whether that was in time; nothing where there is none of that id.
    fn cancel(&self, peer: &Peer<'_>, id: &RequestId) -> io::Result<()> {
        let open = self.open.lock();
        let Some((.., cancel)) = open.cancels.iter().find(|(_, other, _)| other == id) else {
            return Ok(());
        };
        let cancelled = cancel.cancel();
        tracing::info!(cancelled, "a client wants a request cancelled");
        let id = id.clone();
        peer.send(&encode_cancel_heard(&CancelHeard { id, cancelled }))
    }
}

/// Whether the client has closed the connection; not where it only sends no more.
fn has_left(peer: &Peer<'_>) -> bool {
    let mut fds = [PollFd::new(peer.stream(), PollFlags::empty())];
    let now = Timespec::default();
    let gone = PollFlags::HUP | PollFlags::ERR;
    matches!(poll(&mut fds, Some(&now)), Ok(1)) && fds[0].revents().intersects(gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentvfs_client::protocol::{Call, KvGet, KvSet, Side};

    fn job(open: &Flights, changes: bool) -> u64 {
        let (workspace, branch, key) = ("w".to_owned(), "main".to_owned(), "k".to_owned());
        let call = match changes {
            true => Call::KvSet(KvSet {
                workspace,
                branch,
                key,
                value: "1".into(),
                unsynced: false,
            }),
            false => Call::KvGet(KvGet {
                workspace,
                branch,
                state: Side::Live,
                key,
            }),
        };
        let number = open.open.lock().next;
        open.add(Request {
            id: RequestId::Number(7),
            call,
            progress: false,
        });
        number
    }

    #[test]
    fn changes_go_one_after_the_other_and_looks_at_once() {
        let flights = Flights::default();
        let first = job(&flights, true);
        let look = job(&flights, false);
        let second = job(&flights, true);
        let take = || flights.open.lock().take().map(|job| job.number);
        assert_eq!([take(), take(), take()], [Some(look), Some(first), None]);
        let late = job(&flights, false);
        assert_eq!(take(), Some(late), "also while something is changed");
        assert!(!flights.open.lock().is_ready());
        flights.open.lock().is_changing = false;
        assert!(flights.open.lock().is_ready());
        assert_eq!([take(), take()], [Some(second), None]);
    }

    #[test]
    fn a_client_that_only_sends_no_more_has_not_left() {
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = Peer::new(&here);
        assert!(!has_left(&peer));
        there.shutdown(Shutdown::Write).unwrap();
        assert!(!has_left(&peer));
        drop(there);
        assert!(has_left(&peer));
    }
}
