//! Storing content.
//!
//! Holes are kept where they are whole aligned blocks of [`HOLE_BLOCK_BYTES`]; each run of data between
//! them is chunked on its own. An old content only saves work: where a chunk begins at a place where the
//! old one had a boundary, and nothing changed up to [`LOOKAHEAD_BYTES`] after its end, it is taken over
//! unread.

use std::ops::Range;

use crate::chunker::{self, LOOKAHEAD_BYTES};
use crate::content::parts::Parts;
use crate::content::{FileContent, Source};
use crate::error::{Error, Result};
use crate::limits::{CHUNK_BYTES_MAX, CHUNK_WINDOW_BYTES, HOLE_BLOCK_BYTES};
use crate::object::manifest::{Builder, Part, Placed};
use crate::store::ObjectStore;

/// Stores a file's content and returns its canonical form.
///
/// `data` are the sorted, disjoint ranges of `0..len` that hold data; the rest are holes. `old` is an
/// earlier content of the file and `changed` the ranges in which bytes or holes may differ from it;
/// what lies beyond the shorter of both counts as changed anyway. They save work, nothing else.
/// Durable after [`ObjectStore::sync`].
pub fn store_content(
    store: &ObjectStore,
    old: Option<&FileContent>,
    changed: &[Range<u64>],
    data: &[Range<u64>],
    len: u64,
    src: &dyn Source,
) -> Result<FileContent> {
    if len == 0 {
        return Ok(FileContent::Empty);
    }
    let old = old.filter(|old| !old.is_empty());
    if let Some(old) = old
        && old.len() == len
        && changed.iter().all(|range| range.is_empty())
    {
        return Ok(*old);
    }
    let mut storer = Storer::new(store, old, changed, src)?;
    let mut end = 0;
    for segment in segments(data, len) {
        storer.hole(segment.start - end)?;
        storer.segment(&segment)?;
        end = segment.end;
    }
    storer.hole(len - end)?;
    storer.finish(len)
}

/// The maximal runs of data, widened to whole blocks.
fn segments(data: &[Range<u64>], len: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for range in data {
        let start = range.start - range.start % HOLE_BLOCK_BYTES;
        let end = range
            .end
            .checked_next_multiple_of(HOLE_BLOCK_BYTES)
            .unwrap_or(len)
            .min(len);
        match runs.last_mut() {
            _ if range.is_empty() || start >= len => {}
            Some(last) if start <= last.end => last.end = last.end.max(end),
            _ => runs.push(start..end),
        }
    }
    runs
}

/// Sorted, disjoint, not touching.
fn normalised(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<_> = ranges
        .iter()
        .filter(|range| !range.is_empty())
        .cloned()
        .collect();
    sorted.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Bytes of a source, read ahead.
struct Window<'a> {
    src: &'a dyn Source,
    bytes: Vec<u8>,
    start: u64,
}

impl Window<'_> {
    /// The bytes from `pos` on: those of one largest chunk, or up to `end` if that is nearer.
    fn at(&mut self, pos: u64, end: u64) -> Result<&[u8]> {
        let want = (end - pos).min(CHUNK_BYTES_MAX as u64);
        let held_end = self.start + self.bytes.len() as u64;
        if pos < self.start || pos + want > held_end {
            self.refill(pos, end, held_end)?;
        }
        let from = (pos - self.start) as usize;
        Ok(&self.bytes[from..from + want as usize])
    }

    fn refill(&mut self, pos: u64, end: u64, held_end: u64) -> Result<()> {
        let kept = if pos >= self.start && pos < held_end {
            self.bytes.drain(..(pos - self.start) as usize);
            self.bytes.len()
        } else {
            0
        };
        let take = (end - pos).min(CHUNK_WINDOW_BYTES as u64) as usize;
        self.start = pos;
        self.bytes.resize(take.max(kept), 0);
        let read = self.src.read_at(pos + kept as u64, &mut self.bytes[kept..]);
        if read.is_err() {
            self.bytes.truncate(kept);
        }
        read.map_err(Error::Source)
    }
}

/// The work of one [`store_content`].
struct Storer<'a> {
    store: &'a ObjectStore,
    builder: Builder<'a>,
    window: Window<'a>,
    old: Option<OldParts<'a>>,
    changed: Vec<Range<u64>>,
    /// The only part so far: a file of one chunk has no manifest.
    first: Option<Part>,
    parts: u64,
}

impl<'a> Storer<'a> {
    fn new(
        store: &'a ObjectStore,
        old: Option<&FileContent>,
        changed: &[Range<u64>],
        src: &'a dyn Source,
    ) -> Result<Storer<'a>> {
        Ok(Storer {
            store,
            builder: Builder::new(store),
            window: Window {
                src,
                bytes: Vec::new(),
                start: 0,
            },
            old: old.map(|old| OldParts::new(store, old)).transpose()?,
            changed: normalised(changed),
            first: None,
            parts: 0,
        })
    }

    fn push(&mut self, part: Part) -> Result<()> {
        self.parts += 1;
        match (self.parts, self.first.take()) {
            (1, _) => {
                self.first = Some(part);
                return Ok(());
            }
            (_, Some(first)) => self.builder.push(first)?,
            _ => {}
        }
        self.builder.push(part)
    }

    fn hole(&mut self, len: u64) -> Result<()> {
        if len == 0 {
            Ok(())
        } else {
            self.push(Part::Hole { len })
        }
    }

    /// Chunks one run of data.
    fn segment(&mut self, segment: &Range<u64>) -> Result<()> {
        let mut pos = segment.start;
        while pos < segment.end {
            let part = match self.reusable(pos, segment.end)? {
                Some(part) => part,
                None => {
                    let bytes = self.window.at(pos, segment.end)?;
                    let chunk = &bytes[..chunker::cut(bytes)];
                    Part::Data {
                        len: chunk.len() as u32,
                        id: self.store.put_chunk(chunk)?,
                    }
                }
            };
            self.push(part)?;
            pos += part.len();
        }
        Ok(())
    }

    /// The old chunk that begins at `pos`, if chunking anew would give it again.
    fn reusable(&mut self, pos: u64, segment_end: u64) -> Result<Option<Part>> {
        let Some(old) = &mut self.old else {
            return Ok(None);
        };
        let Some((part, old_segment)) = old.starting_at(pos)? else {
            return Ok(None);
        };
        let end = pos + part.len();
        let seen_end = end + LOOKAHEAD_BYTES;
        let same_view = match old_segment {
            OldSegment::EndsAt(old_end) => {
                old_end == segment_end || (seen_end <= old_end && seen_end <= segment_end)
            }
            OldSegment::GoesOn => seen_end <= segment_end,
        };
        let touched = self.is_changed(pos..seen_end.min(segment_end));
        Ok((same_view && end <= segment_end && !touched).then_some(part))
    }

    fn is_changed(&self, range: Range<u64>) -> bool {
        let next = self
            .changed
            .partition_point(|changed| changed.end <= range.start);
        self.changed
            .get(next)
            .is_some_and(|changed| changed.start < range.end)
    }

    fn finish(self, len: u64) -> Result<FileContent> {
        let mut builder = self.builder;
        match self.first {
            Some(Part::Data { id, len }) => return Ok(FileContent::Chunk { id, len }),
            Some(hole) => builder.push(hole)?,
            None => {}
        }
        let root = builder.finish()?;
        debug_assert_eq!(root.len, len);
        Ok(FileContent::Manifest { id: root.id, len })
    }
}

/// How far the run of data goes in which an old chunk stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OldSegment {
    /// It ends here, at most one byte after the chunk.
    EndsAt(u64),
    /// At least the look-ahead after the chunk.
    GoesOn,
}

/// The parts of the old content, asked for in ascending order.
struct OldParts<'a> {
    parts: Parts<'a>,
    current: Option<Placed>,
    next: Option<Placed>,
}

impl<'a> OldParts<'a> {
    fn new(store: &'a ObjectStore, content: &FileContent) -> Result<OldParts<'a>> {
        let mut parts = Parts::new(store, content, 0)?;
        let current = parts.next()?;
        let next = parts.next()?;
        Ok(OldParts {
            parts,
            current,
            next,
        })
    }

    /// The chunk that begins at `pos`.
    fn starting_at(&mut self, pos: u64) -> Result<Option<(Part, OldSegment)>> {
        while let Some((start, _)) = self.current
            && start < pos
        {
            self.current = self.next;
            self.next = self.parts.next()?;
        }
        let Some((start, part)) = self
            .current
            .filter(|(start, part)| *start == pos && part.is_data())
        else {
            return Ok(None);
        };
        let end = start + part.len();
        let segment = match self.next {
            Some((_, next)) if next.is_data() && next.len() >= LOOKAHEAD_BYTES => {
                OldSegment::GoesOn
            }
            // Only the last chunk of a run is that short.
            Some((_, next)) if next.is_data() => OldSegment::EndsAt(end + next.len()),
            _ => OldSegment::EndsAt(end),
        };
        Ok(Some((part, segment)))
    }
}
