//! The feed of a workspace: what happens in it, for those who follow it.
//!
//! A ring of the newest events, in memory alone. Branches tell it of each change as they carry it out, under their own
//! locks, so the order of a branch's events is the order of its changes. While nobody follows, a branch looks at
//! one flag and does nothing else.
//!
//! Numbers ascend, by one for each event while the feed is on, and begin with the microseconds since 1970 at which it
//! was turned on; so they ascend over daemons, too. Invariant: a follower gets each event after the one that it named,
//! in order, or is told that it lost some.
//!
//! Lock order: a branch's lock, then the feed's, which is held for moments. Nothing waits with it but followers.

mod block;
mod event;

pub use event::{Detail, FeedBackend, FeedOp, FeedWho, Sentence, Told, ToldDetail};

use crate::limits::{FEED_BYTES_MAX, FEED_EVENTS_MAX, FEED_LINGER};
use block::Block;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What happens in a workspace.
#[derive(Debug, Default)]
pub struct Feed {
    /// Events are wanted.
    on: AtomicBool,
    ring: Mutex<Ring>,
    signal: Condvar,
}

#[derive(Debug, Default)]
struct Ring {
    /// Followers that there are.
    followers: usize,
    /// When the last one went.
    alone_since: Option<Instant>,
    /// Number of the first event since the feed was turned on.
    born: u64,
    /// Number of the next event.
    next: u64,
    /// Blocks that are full.
    blocks: VecDeque<Arc<Block>>,
    /// Bytes that these hold.
    bytes: usize,
    /// The block that the next event is put into.
    open: Block,
    /// One whose events are gone.
    spare: Option<Block>,
    /// Followers that wait and have everything.
    idle: usize,
    /// Followers that wait although there is something for them: they will be woken, one by the other.
    due: usize,
    /// The workspace was closed: no more come.
    is_closed: bool,
}

/// How many events a follower has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// So many.
    Count(u64),
    /// Not known: the feed was off, or another one, in between.
    Unknown,
}

/// Events, in order.
#[derive(Debug, Default)]
pub struct Events {
    parts: Vec<(Arc<Block>, Range<usize>)>,
}

impl Events {
    /// How many.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|(_, places)| places.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// They, one by one.
    pub fn iter(&self) -> impl Iterator<Item = Told<'_>> {
        fn each((block, places): &(Arc<Block>, Range<usize>)) -> impl Iterator<Item = Told<'_>> {
            places.clone().filter_map(|at| block.get(at))
        }
        self.parts.iter().flat_map(each)
    }
}

/// What a follower gets at once.
#[derive(Debug, Default)]
pub struct Batch {
    /// Events that are gone before those that follow.
    pub lost: Option<Lost>,
    /// None where the time ran out, and at the end.
    pub events: Events,
    /// The workspace was closed, and these are the last ones.
    pub is_last: bool,
}

/// Somebody who follows a feed. While there is one, the feed is on, and for a while afterwards.
#[derive(Debug)]
pub struct Follower {
    feed: Arc<Feed>,
    /// Number of the next event to get.
    next: u64,
    lost: Option<Lost>,
}

impl Feed {
    /// Whether events are wanted.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Follows from now on, or from after the event `since`.
    pub fn follow(self: &Arc<Feed>, since: Option<u64>) -> Follower {
        let mut ring = self.ring.lock();
        if !self.is_on() {
            ring.begin();
        }
        ring.followers += 1;
        ring.alone_since = None;
        self.on.store(true, Ordering::Relaxed);
        let (next, lost) = match since {
            None => (ring.next, None),
            Some(seen) if seen < ring.born.saturating_sub(1) => (ring.born, Some(Lost::Unknown)),
            // A number that no event here has: another daemon's, whose clock was ahead.
            Some(seen) if seen >= ring.next => (ring.next, Some(Lost::Unknown)),
            Some(seen) => (seen + 1, None),
        };
        Follower {
            feed: self.clone(),
            next,
            lost,
        }
    }

    /// No more events come: followers get those that there are, and hear that they are the last.
    pub(crate) fn close(&self) {
        let mut ring = self.ring.lock();
        ring.is_closed = true;
        ring.due += std::mem::take(&mut ring.idle);
        drop(ring);
        self.signal.notify_all();
    }

    /// Tells that events of a source are missing, as it did not take them in time; `count` is how many, if that is known.
    pub fn tell_missing(&self, source: FeedBackend, count: Option<u64>) {
        if self.is_on() {
            let who = FeedWho {
                backend: source,
                ..FeedWho::default()
            };
            self.tell(&Told {
                seq: 0,
                time_ns: nanoseconds(SystemTime::now()),
                op: FeedOp::Lost,
                branch: "",
                branch_number: 0,
                teller: 0,
                ino: 0,
                path: &[],
                path2: &[],
                who: &who,
                bytes: 0,
                count: count.unwrap_or_default(),
                latency_ns: 0,
                call: None,
                detail: ToldDetail::default(),
                sentence: Sentence::Allow,
                policy_version: 0,
            });
        }
    }

    /// Tells of an event; its number is given here.
    pub(crate) fn tell(&self, event: &Told<'_>) {
        let mut ring = self.ring.lock();
        let is_over = |since: Instant| since.elapsed() > FEED_LINGER;
        if ring.followers == 0 && ring.alone_since.is_none_or(is_over) {
            self.on.store(false, Ordering::Relaxed);
            ring.end();
            return;
        }
        ring.push(event);
        let wakes = ring.idle > 0;
        ring.due += std::mem::take(&mut ring.idle);
        drop(ring);
        if wakes {
            // It wakes the next one: who changes something pays for one of them, however many follow.
            self.signal.notify_one();
        }
    }
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl Ring {
    /// Events are wanted from now on.
    fn begin(&mut self) {
        let now = nanoseconds(SystemTime::now()) / 1000;
        self.born = now.max(self.next.saturating_add(1));
        self.next = self.born;
    }

    /// Nobody wants them any more.
    fn end(&mut self) {
        self.blocks = VecDeque::new();
        self.open = Block::default();
        self.spare = None;
        self.bytes = 0;
        self.alone_since = None;
    }

    fn push(&mut self, event: &Told<'_>) {
        if self.open.is_full() {
            self.seal();
        }
        if self.open.len() == 0 {
            self.open.begin(self.next);
        }
        self.open.push(event);
        self.next += 1;
        while self.is_over_full()
            && let Some(oldest) = self.blocks.pop_front()
        {
            self.bytes -= oldest.bytes_held();
            self.spare = Arc::into_inner(oldest);
        }
    }

    /// Whether the oldest block is to go.
    fn is_over_full(&self) -> bool {
        let is_old = |block: &Arc<Block>| block.first() + block.len() as u64 <= self.oldest_kept();
        self.bytes + self.open.bytes_held() > FEED_BYTES_MAX
            || self.blocks.front().is_some_and(is_old)
    }

    /// Begins another block.
    fn seal(&mut self) {
        let next = self.spare.take().unwrap_or_default();
        let mut full = std::mem::replace(&mut self.open, next);
        self.open.begin(self.next);
        full.fit();
        self.bytes += full.bytes_held();
        self.blocks.push_back(Arc::new(full));
    }

    /// Number of the oldest of the events that are kept at most.
    fn oldest_kept(&self) -> u64 {
        self.next.saturating_sub(FEED_EVENTS_MAX as u64)
    }

    /// Number of the oldest event that is there, or of the next one.
    fn first(&self) -> u64 {
        let first = self.blocks.front().map_or(&self.open, |block| block);
        match first.len() {
            0 => self.next,
            _ => first.first().max(self.oldest_kept()),
        }
    }

    /// Events from a number on, so many at most.
    fn events(&self, from: u64, max: usize) -> Events {
        let end = from.saturating_add(max as u64).min(self.next);
        let at = |number: u64, block: &Block| {
            let at = usize::try_from(number.saturating_sub(block.first()));
            at.unwrap_or(usize::MAX).min(block.len())
        };
        let places = |block: &Block| at(from, block)..at(end, block);
        let is_before = |block: &Arc<Block>| block.first() + block.len() as u64 <= from;
        let begin = self.blocks.partition_point(is_before);
        let full = self
            .blocks
            .range(begin..)
            .map(|block| (block.clone(), places(block)));
        let mut parts: Vec<_> = full.take_while(|(_, places)| !places.is_empty()).collect();
        let rest = places(&self.open);
        if !rest.is_empty() {
            // It goes on changing.
            parts.push((Arc::new(self.open.part(rest.start)), 0..rest.len()));
        }
        Events { parts }
    }
}

impl Follower {
    /// The next events, `max` at most. Waits `at_most` for the first.
    pub fn next(&mut self, max: usize, at_most: Duration) -> Batch {
        let deadline = Instant::now() + at_most;
        let feed = self.feed.clone();
        let mut ring = feed.ring.lock();
        let has_all = |ring: &Ring| ring.next <= self.next && !ring.is_closed;
        if self.lost.is_none() && has_all(&ring) {
            ring.idle += 1;
            while has_all(&ring) {
                let timed_out = feed.signal.wait_until(&mut ring, deadline).timed_out();
                if timed_out && has_all(&ring) {
                    ring.idle -= 1;
                    return Batch::default();
                }
                if has_all(&ring) && ring.due > 0 {
                    // It was woken in another one's place.
                    feed.signal.notify_one();
                }
            }
            ring.due -= 1;
            if ring.due > 0 {
                feed.signal.notify_one();
            }
        }
        let first = ring.first();
        if self.next < first {
            let gone = first - self.next;
            self.lost.get_or_insert(Lost::Count(gone));
            self.next = first;
        }
        let events = ring.events(self.next, max);
        self.next += events.len() as u64;
        Batch {
            lost: self.lost.take(),
            events,
            is_last: ring.is_closed && self.next >= ring.next,
        }
    }

    /// Number of the event that it got last, or of the last one before it came: to go on after it.
    pub fn seen(&self) -> u64 {
        self.next.saturating_sub(1)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut ring = self.feed.ring.lock();
        ring.followers -= 1;
        if ring.followers == 0 {
            ring.alone_since = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::FEED_BLOCK_EVENTS;

    const NO_TIME: Duration = Duration::ZERO;

    fn tell(feed: &Feed, path: &str) {
        feed.tell(&Told {
            seq: 0,
            time_ns: 0,
            op: FeedOp::Create,
            branch: "main",
            branch_number: 0,
            teller: 0,
            ino: 0,
            path: path.as_bytes(),
            path2: &[],
            who: &FeedWho::default(),
            bytes: 0,
            count: 0,
            latency_ns: 0,
            call: None,
            detail: ToldDetail::default(),
            sentence: Sentence::Allow,
            policy_version: 0,
        });
    }

    fn paths(batch: &Batch) -> Vec<String> {
        let path = |e: Told<'_>| String::from_utf8_lossy(e.path).into_owned();
        batch.events.iter().map(path).collect()
    }

    #[test]
    fn nothing_is_kept_while_nobody_follows() {
        let feed = Arc::new(Feed::default());
        assert!(!feed.is_on());
        tell(&feed, "before");
        let mut follower = feed.follow(None);
        assert!(feed.is_on());
        tell(&feed, "a");
        tell(&feed, "b");
        let batch = follower.next(10, NO_TIME);
        assert_eq!(
            (paths(&batch), batch.lost),
            (vec!["a".into(), "b".into()], None)
        );
        assert!(follower.next(10, NO_TIME).events.is_empty());
    }

    #[test]
    fn who_comes_back_goes_on_after_what_he_had() {
        let feed = Arc::new(Feed::default());
        let mut follower = feed.follow(None);
        tell(&feed, "a");
        let seen = follower.next(1, NO_TIME).events.iter().next().unwrap().seq;
        drop(follower);
        tell(&feed, "b");
        let mut again = feed.follow(Some(seen));
        assert_eq!(paths(&again.next(10, NO_TIME)), ["b"]);
        let end = again.next(10, NO_TIME);
        assert!(end.events.is_empty() && end.lost.is_none() && !end.is_last);
        // Another daemon's number, and one from the future.
        let old = feed.follow(Some(7)).next(10, NO_TIME);
        assert_eq!(
            (old.lost, paths(&old)),
            (Some(Lost::Unknown), vec!["a".into(), "b".into()])
        );
        let mut ahead = feed.follow(Some(u64::MAX));
        let first = ahead.next(10, NO_TIME);
        assert_eq!((first.lost, paths(&first)), (Some(Lost::Unknown), vec![]));
        assert_eq!(ahead.seen(), again.seen());
    }

    #[test]
    fn a_slow_follower_is_told_how_many_it_lost_and_the_ring_stays_bounded() {
        let feed = Arc::new(Feed::default());
        let mut slow = feed.follow(None);
        for n in 0..FEED_EVENTS_MAX + 10 {
            tell(&feed, &n.to_string());
        }
        let batch = slow.next(2, NO_TIME);
        assert_eq!(batch.lost, Some(Lost::Count(10)));
        assert_eq!(paths(&batch), ["10", "11"]);
        assert_eq!(slow.next(1, NO_TIME).lost, None, "once only");
        // Who comes back after some of what is gone is told of the rest.
        let first = feed.ring.lock().first();
        let since = feed.follow(Some(first - 4)).next(1, NO_TIME);
        assert_eq!(
            (since.lost, paths(&since)),
            (Some(Lost::Count(3)), vec!["10".into()])
        );
        let long = "x".repeat(1 << 20);
        for _ in 0..(2 * FEED_BYTES_MAX) >> 20 {
            tell(&feed, &long);
        }
        assert!(feed.ring.lock().bytes <= FEED_BYTES_MAX);
    }

    #[test]
    fn events_that_blocks_part_are_each_told_once_in_any_portions() {
        const ALL: usize = 3 * FEED_BLOCK_EVENTS + 300;
        let feed = Arc::new(Feed::default());
        let portions = [
            1,
            7,
            FEED_BLOCK_EVENTS - 1,
            FEED_BLOCK_EVENTS,
            FEED_BLOCK_EVENTS + 1,
            2 * ALL,
        ];
        let mut followers = portions.map(|max| (feed.follow(None), max, 0));
        let first = feed.ring.lock().next;
        // Some blocks are full by their events, others by their texts.
        let path = |n: usize| format!("{n}{}", "x".repeat(if n < ALL / 2 { 0 } else { 1_000 }));
        for n in 0..ALL {
            tell(&feed, &path(n));
            for (follower, max, seen) in &mut followers {
                let is_time = n + 1 == ALL || n % 50 == *max % 50;
                while is_time && *seen <= n {
                    let batch = follower.next(*max, NO_TIME);
                    assert_eq!(batch.events.len(), (n + 1 - *seen).min(*max));
                    for event in batch.events.iter() {
                        assert_eq!(event.seq, first + *seen as u64);
                        assert_eq!(event.path, path(*seen).as_bytes());
                        *seen += 1;
                    }
                    assert_eq!(batch.lost, None);
                }
            }
        }
        assert!(feed.ring.lock().blocks.len() > 4);
        // Who comes back goes on in the middle of a block.
        let rest = ALL - 10;
        let mut again = feed.follow(Some(first + rest as u64 - 1));
        assert_eq!(paths(&again.next(ALL, NO_TIME))[0], path(rest));
    }

    #[test]
    fn who_follows_a_feed_that_is_closed_hears_the_last_events_and_the_end() {
        let feed = Arc::new(Feed::default());
        let mut follower = feed.follow(None);
        let (first, waiting) = (feed.clone(), feed.clone());
        let mut waiter = waiting.follow(None);
        let ended = std::thread::spawn(move || {
            let mut all = Vec::new();
            loop {
                let batch = waiter.next(1, Duration::from_secs(60));
                all.extend(paths(&batch));
                if batch.is_last {
                    return all;
                }
            }
        });
        tell(&first, "a");
        tell(&first, "b");
        feed.close();
        assert!(!follower.next(1, NO_TIME).is_last);
        let last = follower.next(1, NO_TIME);
        assert_eq!((paths(&last), last.is_last), (vec!["b".into()], true));
        assert!(follower.next(1, Duration::from_secs(60)).is_last);
        assert_eq!(ended.join().unwrap(), ["a", "b"]);
    }

    #[test]
    fn every_follower_that_waits_is_woken_by_one_event() {
        const MANY: usize = 60;
        let feed = Arc::new(Feed::default());
        let at_most = Duration::from_secs(60);
        let wait = |feed: &Arc<Feed>, rounds: usize| {
            let mut follower = feed.follow(None);
            std::thread::spawn(move || {
                let one = |_| follower.next(1, at_most).events.len();
                (0..rounds).map(one).sum::<usize>()
            })
        };
        let waiting: Vec<_> = (0..MANY).map(|_| wait(&feed, 3)).collect();
        for round in 1..=3 {
            while feed.ring.lock().idle < MANY {
                std::thread::yield_now();
            }
            if round == 2 {
                // Some that leave meanwhile, without an event.
                let mut leaves = feed.follow(None);
                assert!(leaves.next(1, NO_TIME).events.is_empty());
            }
            tell(&feed, "one");
        }
        let told = waiting.into_iter().map(|w| w.join().unwrap());
        assert_eq!(told.sum::<usize>(), 3 * MANY);
        let ring = feed.ring.lock();
        assert_eq!((ring.idle, ring.due), (0, 0));
    }

    #[test]
    fn a_follower_waits_for_the_next_event() {
        let feed = Arc::new(Feed::default());
        let mut follower = feed.follow(None);
        let teller = feed.clone();
        let told = std::thread::spawn(move || tell(&teller, "late"));
        let batch = follower.next(1, Duration::from_secs(60));
        assert_eq!(paths(&batch), ["late"]);
        told.join().unwrap();
    }
}
