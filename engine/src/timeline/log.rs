//! Reading the log of a timeline, from either end, a piece at a time.
//!
//! Invariant: any bytes give entries or an error, and no more memory is taken than they have.

use super::Timeline;
use super::entry::{Entry, FRAME_EXTRA_BYTES};
use crate::error::{Error, Result};
use crate::record::decode;
use objstore::content::{FileContent, read_content};
use objstore::gc::Pin;
use objstore::{ObjectStore, store_content};
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
        Log {
            store,
            stored: timeline.stored,
            tail: timeline.tail.clone(),
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
    pub fn entry(&self) -> Result<Entry> {
        decode(&self.body).map_err(|why| damaged(&why))
    }
}

/// A piece of the log that was read.
struct Window<'a, L: LogBytes + ?Sized> {
    log: &'a L,
    from: u64,
    bytes: Vec<u8>,
}

impl<L: LogBytes + ?Sized> Window<'_, L> {
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

    fn frame(&mut self, at: u64, len: usize, before: bool) -> Result<Frame> {
        let all = self.get(at, len + FRAME_EXTRA_BYTES, before)?;
        if all[..4] != all[all.len() - 4..] {
            return Err(damaged("an entry says two lengths"));
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(&all[4 + len..36 + len]);
        let body = all[4..4 + len].to_vec();
        Ok(Frame { body, hash })
    }
}

/// Calls `each` for all entries, the newest first, until it says false.
pub(crate) fn newest_first<L: LogBytes + ?Sized>(
    log: &L,
    each: &mut dyn FnMut(Frame) -> Result<bool>,
) -> Result<()> {
    let mut window = Window {
        log,
        from: 0,
        bytes: Vec::new(),
    };
    let mut end = log.len();
    while end > 0 {
        let short = || damaged("it begins in the middle of an entry");
        let len = window.word(end.checked_sub(4).ok_or_else(short)?, true)?;
        let whole = (len + FRAME_EXTRA_BYTES) as u64;
        let at = end.checked_sub(whole).ok_or_else(short)?;
        if !each(window.frame(at, len, true)?)? {
            break;
        }
        end = at;
    }
    Ok(())
}

/// Calls `each` for all entries, the oldest first, until it says false.
pub(crate) fn oldest_first<L: LogBytes + ?Sized>(
    log: &L,
    each: &mut dyn FnMut(Frame) -> Result<bool>,
) -> Result<()> {
    let mut window = Window {
        log,
        from: 0,
        bytes: Vec::new(),
    };
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
    use super::super::entry::What;
    use super::*;
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
