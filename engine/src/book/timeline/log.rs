//! Reading the log of a timeline, from either end, a piece at a time.
//!
//! Invariant: any bytes give entries or an error, and no more memory is taken than they have.

use crate::book::timeline::Timeline;
use crate::error::{Error, Result};
use crate::record::call::{FRAME_EXTRA_BYTES, TimelineEntry};
use crate::record::decode;
use objstore::content::{FileContent, read_content};
use objstore::gc::Pin;
use objstore::{ObjectStore, TimelineHead, store_content};
use std::sync::Arc;

/// Bytes that are read of the stored part at a time.
const WINDOW_BYTES: usize = 256 << 10;
/// Longest frame: an entry has three texts of 1 MiB at most, and lists.
const FRAME_BYTES_MAX: usize = 4 << 20;

/// Bytes of a log.
pub(crate) trait LogBytes {
    /// How many there are.
    fn len(&self) -> u64;
    /// Fills `buf` from `at` on.
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()>;
}

impl LogBytes for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let from = at as usize;
        let bytes = self.get(from..from + buf.len());
        buf.copy_from_slice(bytes.ok_or_else(|| damaged("it is too short"))?);
        Ok(())
    }
}

impl<L: LogBytes + ?Sized> LogBytes for &L {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        (**self).read(at, buf)
    }
}

/// Where a log is, and how far it went at one moment.
#[derive(Clone, Debug)]
pub(crate) struct LogPlace {
    /// The part in the store.
    pub stored: FileContent,
    /// The rest.
    pub tail: Arc<Vec<u8>>,
    /// Its newest entry.
    pub head: Option<TimelineHead>,
}

impl LogPlace {
    /// That of `timeline` as it is now.
    pub fn of(timeline: &Timeline) -> LogPlace {
        LogPlace {
            stored: timeline.stored,
            tail: timeline.tail.clone(),
            head: timeline.head(),
        }
    }

    /// How many entries there are.
    pub fn entries(&self) -> u64 {
        self.head.map_or(0, |head| head.entries)
    }
}

/// The log of a branch as it was at one moment; what it needs of the store stays there meanwhile.
pub(crate) struct Log<'a> {
    store: &'a ObjectStore,
    stored: FileContent,
    tail: Arc<Vec<u8>>,
    _pin: Pin<'a>,
}

impl<'a> Log<'a> {
    /// The log of `timeline`. `pin` was taken before the timeline was looked at.
    pub fn of(timeline: &Timeline, store: &'a ObjectStore, pin: Pin<'a>) -> Log<'a> {
        Log::at(&LogPlace::of(timeline), store, pin)
    }

    /// The log of a place. What is there is kept until `pin` was taken.
    pub fn at(place: &LogPlace, store: &'a ObjectStore, pin: Pin<'a>) -> Log<'a> {
        Log {
            store,
            stored: place.stored,
            tail: place.tail.clone(),
            _pin: pin,
        }
    }
}

impl LogBytes for Log<'_> {
    fn len(&self) -> u64 {
        self.stored.len() + self.tail.len() as u64
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let stored = self.stored.len();
        let from_store = stored.saturating_sub(at).min(buf.len() as u64) as usize;
        let (first, second) = buf.split_at_mut(from_store);
        if !first.is_empty() {
            read_content(self.store, &self.stored, at, first)?;
        }
        if second.is_empty() {
            return Ok(());
        }
        self.tail.read(at.max(stored) - stored, second)
    }
}

/// Stores `tail` behind what is stored already. Durable after a sync of the store.
pub(crate) fn append(
    store: &ObjectStore,
    stored: &FileContent,
    tail: &[u8],
) -> Result<FileContent> {
    struct Joined<'a>(&'a ObjectStore, &'a FileContent, &'a [u8]);
    impl objstore::content::Source for Joined<'_> {
        fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
            let Joined(store, stored, tail) = self;
            let old = stored.len().saturating_sub(at).min(buf.len() as u64) as usize;
            let (first, second) = buf.split_at_mut(old);
            if !first.is_empty() {
                read_content(store, stored, at, first).map_err(std::io::Error::other)?;
            }
            match second.is_empty() {
                true => Ok(()),
                false => tail.read_at(at.max(stored.len()) - stored.len(), second),
            }
        }
    }
    let (old, len) = (stored.len(), stored.len() + tail.len() as u64);
    let source = Joined(store, stored, tail);
    let changed: Vec<_> = std::iter::once(old..len).collect();
    let data: Vec<_> = std::iter::once(0..len).collect();
    Ok(store_content(
        store,
        Some(stored),
        &changed,
        &data,
        len,
        &source,
    )?)
}

/// The first `len` bytes of what is stored, as content of their own. Durable after a sync of the store.
pub(crate) fn beginning(
    store: &ObjectStore,
    stored: &FileContent,
    len: u64,
) -> Result<FileContent> {
    struct Beginning<'a>(&'a ObjectStore, &'a FileContent);
    impl objstore::content::Source for Beginning<'_> {
        fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
            read_content(self.0, self.1, at, buf).map_err(std::io::Error::other)
        }
    }
    let data: Vec<_> = std::iter::once(0..len).collect();
    let source = Beginning(store, stored);
    Ok(store_content(
        store,
        Some(stored),
        &[],
        &data,
        len,
        &source,
    )?)
}

fn damaged(why: &str) -> Error {
    Error::Damaged {
        what: "the timeline".into(),
        why: why.into(),
    }
}

/// An entry with what stands beside it.
pub(crate) struct Frame {
    /// The entry's bytes.
    pub body: Vec<u8>,
    /// Its hash as it stands there.
    pub hash: [u8; 32],
}

impl Frame {
    /// The entry.
    pub fn entry(&self) -> Result<TimelineEntry> {
        decode(&self.body).map_err(|why| damaged(&why))
    }
}

/// A piece of the log that was read.
struct Window<L: LogBytes> {
    log: L,
    from: u64,
    bytes: Vec<u8>,
}

impl<L: LogBytes> Window<L> {
    fn of(log: L) -> Window<L> {
        Window {
            log,
            from: 0,
            bytes: Vec::new(),
        }
    }

    /// The bytes of a range; reads `around` more than that where they must be read, before or after it.
    fn get(&mut self, at: u64, len: usize, before: bool) -> Result<&[u8]> {
        let end = at + len as u64;
        if end > self.log.len() {
            return Err(damaged("it ends in the middle of an entry"));
        }
        let has = at >= self.from && end <= self.from + self.bytes.len() as u64;
        if !has {
            let (from, to) = match before {
                true => (end.saturating_sub((len + WINDOW_BYTES) as u64), end),
                false => (at, (end + WINDOW_BYTES as u64).min(self.log.len())),
            };
            self.bytes.resize((to - from) as usize, 0);
            self.log.read(from, &mut self.bytes)?;
            self.from = from;
        }
        let first = (at - self.from) as usize;
        self.bytes
            .get(first..first + len)
            .ok_or_else(|| damaged("it is too short"))
    }

    fn word(&mut self, at: u64, before: bool) -> Result<usize> {
        let b = self.get(at, 4, before)?;
        let len = u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize;
        match len + FRAME_EXTRA_BYTES <= FRAME_BYTES_MAX {
            true => Ok(len),
            false => Err(damaged("an entry is too long")),
        }
    }

    /// The entry and its hash, where they stand.
    fn parts(&mut self, at: u64, len: usize, before: bool) -> Result<(&[u8], [u8; 32])> {
        let all = self.get(at, len + FRAME_EXTRA_BYTES, before)?;
        if all[..4] != all[all.len() - 4..] {
            return Err(damaged("an entry says two lengths"));
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(&all[4 + len..36 + len]);
        Ok((&all[4..4 + len], hash))
    }

    fn frame(&mut self, at: u64, len: usize, before: bool) -> Result<Frame> {
        let (body, hash) = self.parts(at, len, before)?;
        let body = body.to_vec();
        Ok(Frame { body, hash })
    }
}

/// Goes through a log from its newest entry on, at the caller's pace.
pub(crate) struct Newest<L: LogBytes> {
    window: Window<L>,
    end: u64,
}

impl<L: LogBytes> Newest<L> {
    /// Stands at the newest entry.
    pub fn of(log: L) -> Newest<L> {
        let end = log.len();
        Newest {
            window: Window::of(log),
            end,
        }
    }

    /// Where the next entry begins, and how long it is.
    fn next(&mut self) -> Result<Option<(u64, usize)>> {
        if self.end == 0 {
            return Ok(None);
        }
        let short = || damaged("it begins in the middle of an entry");
        let len = self
            .window
            .word(self.end.checked_sub(4).ok_or_else(short)?, true)?;
        let whole = (len + FRAME_EXTRA_BYTES) as u64;
        Ok(Some((self.end.checked_sub(whole).ok_or_else(short)?, len)))
    }

    /// Number and hash of the next entry, which stays the next one; it is not decoded.
    pub fn peek(&mut self) -> Result<Option<TimelineHead>> {
        let Some((at, len)) = self.next()? else {
            return Ok(None);
        };
        let (body, hash) = self.window.parts(at, len, true)?;
        let number = body.first_chunk().map(|b| u64::from_le_bytes(*b));
        let entries = number.ok_or_else(|| damaged("an entry has no number"))?;
        Ok(Some(TimelineHead { entries, hash }))
    }

    /// The next entry.
    pub fn take(&mut self) -> Result<Option<Frame>> {
        let Some((at, len)) = self.next()? else {
            return Ok(None);
        };
        self.end = at;
        self.window.frame(at, len, true).map(Some)
    }

    /// Passes over all entries after this one; what is next then.
    pub fn skip_to(&mut self, number: u64) -> Result<Option<TimelineHead>> {
        loop {
            match self.peek()? {
                Some(head) if head.entries > number => {
                    self.end = self.next()?.map_or(0, |(at, _)| at);
                }
                other => return Ok(other),
            }
        }
    }
}

/// Calls `each` for all entries, the newest first, until it says false.
pub(crate) fn newest_first<L: LogBytes + ?Sized>(
    log: &L,
    each: &mut dyn FnMut(Frame) -> Result<bool>,
) -> Result<()> {
    let mut log = Newest::of(log);
    while let Some(frame) = log.take()? {
        if !each(frame)? {
            break;
        }
    }
    Ok(())
}

/// Calls `each` for all entries, the oldest first, until it says false.
pub(crate) fn oldest_first<L: LogBytes + ?Sized>(
    log: &L,
    each: &mut dyn FnMut(Frame) -> Result<bool>,
) -> Result<()> {
    let mut window = Window::of(log);
    let mut at = 0;
    while at < log.len() {
        let len = window.word(at, false)?;
        if !each(window.frame(at, len, false)?)? {
            break;
        }
        at += (len + FRAME_EXTRA_BYTES) as u64;
    }
    Ok(())
}

/// Decodes arbitrary bytes as a log from both ends (for fuzzing): never panics, never allocates more than
/// they justify, and where both ways lead through they find the same entries.
pub fn check_log_bytes(bytes: &[u8]) {
    let (mut forth, mut back) = (Vec::new(), Vec::new());
    let there = oldest_first(bytes, &mut |f| {
        let _ = f.entry();
        forth.push(f.hash);
        Ok(true)
    });
    let again = newest_first(bytes, &mut |f| {
        back.push(f.hash);
        Ok(true)
    });
    if there.is_ok() && again.is_ok() {
        back.reverse();
        assert_eq!(forth, back, "a log has other entries from its end");
    }
    let timeline = crate::record::decode::<Timeline>(bytes);
    if let Ok(mut timeline) = timeline {
        timeline.expired(&[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::call::What;
    use crate::types::Time;
    use objstore::CommitId;

    fn log(entries: u64) -> Timeline {
        let mut t = Timeline::default();
        for n in 1..=entries {
            let what = What::Named {
                state: n,
                commit: CommitId::from_bytes([n as u8; 32]),
            };
            t.push(Time::default(), what);
        }
        t
    }

    fn numbers(bytes: &[u8], back: bool) -> Vec<u64> {
        let mut out = Vec::new();
        let mut each = |f: Frame| {
            out.push(f.entry()?.number);
            Ok(true)
        };
        match back {
            true => newest_first(bytes, &mut each).unwrap(),
            false => oldest_first(bytes, &mut each).unwrap(),
        }
        out
    }

    #[test]
    fn entries_are_read_from_both_ends() {
        let t = log(9000);
        let all: Vec<u64> = (1..=9000).collect();
        assert!(t.tail.len() > 3 * WINDOW_BYTES);
        assert_eq!(numbers(&t.tail, false), all);
        assert_eq!(
            numbers(&t.tail, true),
            all.into_iter().rev().collect::<Vec<_>>()
        );
        assert_eq!(numbers(&[], true), [0; 0]);
    }

    #[test]
    fn a_log_that_is_cut_anywhere_is_an_error_or_shorter() {
        let t = log(3);
        for cut in 0..t.tail.len() {
            check_log_bytes(&t.tail[..cut]);
            check_log_bytes(&t.tail[cut..]);
        }
        let frame = t.tail.len() / 3;
        let whole = |b: &[u8]| newest_first(b, &mut |_| Ok(true)).is_ok();
        assert!(whole(&t.tail[..frame]) && !whole(&t.tail[..frame + 1]));
    }
}
