//! Storing content.
//!
//! The list of parts depends on the bytes alone: each aligned block of [`HOLE_BLOCK_BYTES`] that is all zeros
//! belongs to a hole, and no other block does. Each run of data between holes is chunked on its own. An old
//! content only saves work: where a chunk begins at a place where the old one had a boundary, and nothing
//! changed in the blocks up to [`LOOKAHEAD_BYTES`] after its end, it is taken over unread.

use std::ops::Range;

use crate::chunker::{self, LOOKAHEAD_BYTES};
use crate::content::parts::Parts;
use crate::content::{FileContent, Source};
use crate::error::{Error, Result};
use crate::limits::{CHUNK_BYTES_MAX, CHUNK_WINDOW_BYTES, HOLE_BLOCK_BYTES};
use crate::object::manifest::{Builder, Form, Part, Placed};
use crate::store::ObjectStore;

/// Stores a file's content and returns its canonical form.
///
/// `data` are sorted, disjoint ranges of `0..len` outside of which all bytes are zeros; within them there may
/// be zeros, too. `old` is an earlier content of the file and `changed` the ranges in which bytes may differ
/// from it; what lies beyond the shorter of both counts as changed anyway. They save work, nothing else.
/// Durable after [`ObjectStore::sync`].
pub fn store_content(
    store: &ObjectStore,
    old: Option<&FileContent>,
    changed: &[Range<u64>],
    data: &[Range<u64>],
    len: u64,
    src: &dyn Source,
) -> Result<FileContent> {
    if let Some(old) = old
        && old.len() == len
        && changed.iter().all(|range| range.is_empty())
    {
        return Ok(*old);
    }
    let mut storer = Storer::new(store, Form::Canonical, src);
    if let Some(old) = old {
        storer.reuse(old, changed, len)?;
    }
    storer.all(data, len)
}

/// Stores a file's content as builds before the canonical form did, with holes exactly outside of `data`: so
/// objects of theirs that are damaged can be made again.
pub fn store_content_by_ranges(
    store: &ObjectStore,
    data: &[Range<u64>],
    len: u64,
    src: &dyn Source,
) -> Result<FileContent> {
    Storer::new(store, Form::ByRanges, src).all(data, len)
}

/// The maximal runs of data, widened to whole blocks.
fn runs(data: &[Range<u64>], len: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for range in data {
        let (start, end) = (block_start(range.start), block_end(range.end).min(len));
        match runs.last_mut() {
            _ if range.is_empty() || start >= len => {}
            Some(last) if start <= last.end => last.end = last.end.max(end),
            _ => runs.push(start..end),
        }
    }
    runs
}

/// The blocks that ranges touch: sorted, disjoint, not touching.
fn blocks_of(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut sorted: Vec<_> = ranges
        .filter(|range| !range.is_empty())
        .map(|range| block_start(range.start)..block_end(range.end))
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

fn block_start(at: u64) -> u64 {
    at - at % HOLE_BLOCK_BYTES
}

fn block_end(at: u64) -> u64 {
    at.checked_next_multiple_of(HOLE_BLOCK_BYTES)
        .unwrap_or(u64::MAX)
}

/// Bytes of a source, read ahead.
struct Window<'a> {
    src: &'a dyn Source,
    bytes: Vec<u8>,
    start: u64,
}

impl Window<'_> {
    /// The bytes from `pos` on: those of one largest chunk and the rest of its last block, or up to `end` if that
    /// is nearer.
    fn at(&mut self, pos: u64, end: u64) -> Result<&[u8]> {
        let want = end.min(block_end(pos + CHUNK_BYTES_MAX as u64)) - pos;
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

/// The work of storing one content.
struct Storer<'a> {
    store: &'a ObjectStore,
    form: Form,
    builder: Builder<'a>,
    window: Window<'a>,
    old: Option<OldParts<'a>>,
    /// Blocks in which something may differ from the old content.
    changed: Vec<Range<u64>>,
    /// The hole that ends at the present place.
    hole: u64,
    /// The only part so far: a file of one chunk has no manifest.
    first: Option<Part>,
    parts: u64,
}

impl<'a> Storer<'a> {
    fn new(store: &'a ObjectStore, form: Form, src: &'a dyn Source) -> Storer<'a> {
        Storer {
            store,
            form,
            builder: Builder::new(store, form),
            window: Window {
                src,
                bytes: Vec::new(),
                start: 0,
            },
            old: None,
            changed: Vec::new(),
            hole: 0,
            first: None,
            parts: 0,
        }
    }

    /// Takes over what it can of an earlier content. Of one that an earlier build stored nobody knows which of its
    /// chunks have blocks of zeros.
    fn reuse(&mut self, old: &FileContent, changed: &[Range<u64>], len: u64) -> Result<()> {
        if self.store.form_of(old)? != Some(Form::Canonical) {
            return Ok(());
        }
        let beyond = old.len().min(len)..old.len().max(len);
        let changed = changed.iter().cloned();
        self.changed = blocks_of(changed.chain([beyond]));
        self.old = Some(OldParts::new(self.store, old)?);
        Ok(())
    }

    fn all(mut self, data: &[Range<u64>], len: u64) -> Result<FileContent> {
        if len == 0 {
            return Ok(FileContent::Empty);
        }
        let mut end = 0;
        for run in runs(data, len) {
            self.hole += run.start - end;
            self.run(&run)?;
            end = run.end;
        }
        self.hole += len - end;
        self.finish(len)
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

    fn push_hole(&mut self) -> Result<()> {
        match std::mem::take(&mut self.hole) {
            0 => Ok(()),
            len => self.push(Part::Hole { len }),
        }
    }

    /// Stores a run of blocks that may be data.
    fn run(&mut self, run: &Range<u64>) -> Result<()> {
        let mut pos = run.start;
        while pos < run.end {
            let part = match self.reusable(pos, run.end)? {
                Some(part) => part,
                None => self.read(pos, run.end)?,
            };
            pos += part.len();
            match part {
                Part::Hole { len } => self.hole += len,
                data => {
                    self.push_hole()?;
                    self.push(data)?;
                }
            }
        }
        Ok(())
    }

    /// The part that begins at `pos`, or the beginning of a hole there.
    fn read(&mut self, pos: u64, end: u64) -> Result<Part> {
        let bytes = self.window.at(pos, end)?;
        let data = match self.form {
            Form::Canonical => match blocks_of_zeros(bytes, pos) {
                0 => up_to_zeros(bytes, pos),
                len => return Ok(Part::Hole { len }),
            },
            Form::ByRanges => bytes,
        };
        let data = &data[..data.len().min(CHUNK_BYTES_MAX)];
        let chunk = &data[..chunker::cut(data)];
        Ok(Part::Data {
            len: chunk.len() as u32,
            id: self.store.put_chunk(chunk)?,
        })
    }

    /// The old chunk that begins at `pos`, if storing anew would give it again.
    fn reusable(&mut self, pos: u64, run_end: u64) -> Result<Option<Part>> {
        let Some(old) = &mut self.old else {
            return Ok(None);
        };
        let Some((part, seen_end)) = old.starting_at(pos)? else {
            return Ok(None);
        };
        let same = pos + part.len() <= run_end && !self.is_changed(pos..seen_end);
        Ok(same.then_some(part))
    }

    fn is_changed(&self, range: Range<u64>) -> bool {
        let next = self
            .changed
            .partition_point(|changed| changed.end <= range.start);
        self.changed
            .get(next)
            .is_some_and(|changed| changed.start < range.end)
    }

    fn finish(mut self, len: u64) -> Result<FileContent> {
        self.push_hole()?;
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

/// Bytes of the whole blocks of zeros at the beginning of `bytes`, which are at `pos` and end with a block or the file.
fn blocks_of_zeros(bytes: &[u8], pos: u64) -> u64 {
    if !pos.is_multiple_of(HOLE_BLOCK_BYTES) {
        return 0;
    }
    let blocks = bytes.chunks(HOLE_BLOCK_BYTES as usize);
    let zeros = blocks.take_while(|block| is_zero(block));
    zeros.map(|block| block.len() as u64).sum()
}

/// The bytes before the first whole block of zeros.
fn up_to_zeros(bytes: &[u8], pos: u64) -> &[u8] {
    let begun = ((block_end(pos) - pos) as usize).min(bytes.len());
    let blocks = bytes[begun..].chunks(HOLE_BLOCK_BYTES as usize);
    let data = blocks.take_while(|block| !is_zero(block));
    &bytes[..begun + data.map(<[u8]>::len).sum::<usize>()]
}

fn is_zero(bytes: &[u8]) -> bool {
    // Almost every block says it with its first bytes; the rest is compared many bytes at a time.
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
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

    /// The chunk that begins at `pos`, and where that ends which says that it is one: what it was cut by, or the
    /// beginning of the hole behind it.
    fn starting_at(&mut self, pos: u64) -> Result<Option<(Part, u64)>> {
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
        let seen = match self.next {
            // Only the last chunk of a run is shorter than what is looked at behind a chunk.
            Some((_, next)) if next.is_data() && next.len() < LOOKAHEAD_BYTES => next.len() + 1,
            Some((_, next)) if next.is_data() => LOOKAHEAD_BYTES,
            _ => 1,
        };
        Ok(Some((part, end + seen)))
    }
}
