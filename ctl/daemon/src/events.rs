//! Sending a subscriber what happens in a workspace.
//!
//! Each subscriber has a thread of its own, which takes from the engine's ring and writes to the client. Invariant: it
//! holds the feed alone, no lock and no workspace, so a client that does not read delays nobody; it is told what it has
//! lost, and its connection is closed after the write timeout.

mod filter;

use super::event_lines::Lines;
use super::faults;
use super::mounts::Mounts;
use super::request::{Watch, on};
use agentvfs_client::protocol::{Fault, Subscribe, SubscribeAnswer};
use engine::Error;
use filter::Filter;
use std::collections::HashSet;
use std::time::Duration;

/// Events that are taken from the ring at once.
const BATCH: usize = 512;

/// Bytes of lines that are sent at once.
const SEND_BYTES: usize = 64 << 10;

/// How often a subscriber that waits looks whether its client has left.
const LOOK: Duration = Duration::from_millis(250);

/// Pause of a subscriber that has all there is: what comes meanwhile goes together, and no one is woken for it.
const PAUSE: Duration = Duration::from_millis(50);

/// Says of which branches a sandbox may hear, by `Told::teller`.
pub type Tellers<'a> = &'a dyn Fn() -> Result<Vec<u64>, Fault>;

/// Sends events until there are no more of them, or the client leaves. With `tellers`, those of their branches alone.
pub fn subscribe(
    mounts: &Mounts,
    ask: &Subscribe,
    watch: &Watch<'_>,
    tellers: Option<Tellers<'_>>,
) -> Result<SubscribeAnswer, Fault> {
    let filter = Filter::new(&ask.filter)?;
    mounts.check_told(&ask.workspace)?;
    let feed = on(mounts, &ask.workspace, |w| Ok(w.feed()))?;
    let device = mounts.get(&ask.workspace)?.device;
    let mut lines = Lines::new(&ask.workspace, device, tellers.is_none());
    let mut heard_of = HashSet::new();
    let mut follower = feed.follow(ask.since);
    loop {
        let check = watch.cancel.check();
        check.map_err(|error| faults::of_engine(&error, &ask.workspace))?;
        let at_most = if ask.follow { LOOK } else { Duration::ZERO };
        let batch = follower.next(BATCH, at_most);
        if let Some(tellers) = tellers.filter(|_| !batch.events.is_empty()) {
            heard_of.extend(tellers()?);
        }
        if let Some(lost) = batch.lost {
            lines.add_lost(lost, &batch, &follower);
        }
        for event in batch.events.iter() {
            if (tellers.is_none() || heard_of.contains(&event.teller)) && filter.fits(&event) {
                lines.add(&event);
            }
            if lines.bytes.len() >= SEND_BYTES {
                send(&mut lines, &ask.workspace, watch)?;
            }
        }
        send(&mut lines, &ask.workspace, watch)?;
        if batch.is_last || (!ask.follow && batch.events.is_empty()) {
            return Ok(SubscribeAnswer {
                seq: follower.seen(),
                stopped: batch.is_last,
            });
        }
        if ask.follow && (1..BATCH).contains(&batch.events.len()) {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Sends what there is.
fn send(lines: &mut Lines, workspace: &str, watch: &Watch<'_>) -> Result<(), Fault> {
    if !lines.bytes.is_empty() && !(watch.data)(&lines.bytes) {
        // Its client does not read.
        return Err(faults::of_engine(&Error::Closing, workspace));
    }
    lines.bytes.clear();
    Ok(())
}
