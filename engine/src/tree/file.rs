//! The content of one file: a body with extents over it.
//!
//! The *body* is what was there when the file was last stored, imported or started: stored content, a
//! file of the base, or nothing; it counts up to `body_len`. *Extents* lie over it: data in the
//! journal, explicit holes, allocated zeros, or ranges shared with another file's body. What neither
//! covers reads as zeros. No bytes of the file are held here.
//!
//! Invariant: extents are disjoint, not empty, and end at or before the file's size; `body_len` ≤ size.

use crate::base::BaseFile;
use crate::journal::PayloadRef;
use objstore::content::FileContent;
use objstore::limits::HOLE_BLOCK_BYTES;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Where a file's older bytes are.
#[derive(Clone, Debug)]
pub enum Body {
    /// Nowhere: zeros.
    None,
    /// In the store.
    Stored(FileContent),
    /// In the base, not imported yet (or imported meanwhile, see [`BaseFile::stored`]).
    Base(BaseFile),
    /// In a base file that this process may not read.
    Unreadable,
}

impl PartialEq for Body {
    fn eq(&self, other: &Body) -> bool {
        match (self, other) {
            (Body::None, Body::None) | (Body::Unreadable, Body::Unreadable) => true,
            (Body::Stored(a), Body::Stored(b)) => a == b,
            (Body::Base(a), Body::Base(b)) => a.same_version(b),
            (Body::Base(f), Body::Stored(c)) | (Body::Stored(c), Body::Base(f)) => {
                f.stored().as_ref() == Some(c)
            }
            _ => false,
        }
    }
}

/// Source of the bytes of an extent.
#[derive(Clone, Debug, PartialEq)]
pub enum Src {
    /// Journal payload, from byte `from` of it on.
    Journal {
        /// The payload.
        payload: PayloadRef,
        /// Offset in it.
        from: u32,
    },
    /// A hole: zeros that are not allocated.
    Hole,
    /// Zeros that count as allocated (fallocate(2)).
    Zero,
    /// A range of a body (copy_file_range(2)), from byte `at` on.
    Shared {
        /// The body.
        body: Arc<Body>,
        /// Offset in it.
        at: u64,
    },
}

impl Src {
    /// The source `by` bytes further on.
    fn skip(&self, by: u64) -> Src {
        match self {
            Src::Journal { payload, from } => Src::Journal {
                payload: *payload,
                from: from + by as u32,
            },
            Src::Shared { body, at } => Src::Shared {
                body: body.clone(),
                at: at + by,
            },
            Src::Hole => Src::Hole,
            Src::Zero => Src::Zero,
        }
    }

    fn is_hole(&self) -> bool {
        matches!(self, Src::Hole)
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Extent {
    len: u64,
    src: Src,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Extents {
    map: BTreeMap<u64, Extent>,
    /// Bytes of data extents, and of hole extents below `body_len` at the time they were made.
    data_bytes: u64,
    hole_bytes: u64,
    /// Bytes of data extents beyond `body_len`.
    beyond_bytes: u64,
}

/// A part of a file with one source.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Bytes of the file.
    pub range: Range<u64>,
    /// Where they are.
    pub src: Src,
}

/// Content of a regular file.
#[derive(Clone, Debug)]
pub struct FileData {
    body: Body,
    body_len: u64,
    /// Allocated bytes of the body.
    body_alloc: u64,
    extents: Option<Arc<Extents>>,
}

/// Equal where the bytes have the same sources; how much of them is allocated is an estimate that
/// depends on which source was asked.
impl PartialEq for FileData {
    fn eq(&self, other: &FileData) -> bool {
        self.body == other.body && self.body_len == other.body_len && self.extents == other.extents
    }
}

impl Default for FileData {
    fn default() -> Self {
        FileData {
            body: Body::None,
            body_len: 0,
            body_alloc: 0,
            extents: None,
        }
    }
}

impl FileData {
    /// A file whose content is `body`, `len` bytes long, of which `alloc` are allocated.
    pub fn new(body: Body, len: u64, alloc: u64) -> FileData {
        FileData {
            body,
            body_len: len,
            body_alloc: alloc,
            extents: None,
        }
    }

    /// The body, and how much of it counts.
    pub fn body(&self) -> (&Body, u64) {
        (&self.body, self.body_len)
    }

    /// Allocated bytes of the body alone.
    pub fn body_alloc(&self) -> u64 {
        self.body_alloc
    }

    /// True where nothing lies over the body.
    pub fn is_plain(&self) -> bool {
        self.extents.is_none()
    }

    /// The extents, in order.
    pub fn extents(&self) -> impl Iterator<Item = Piece> + '_ {
        self.extents
            .iter()
            .flat_map(|e| e.map.iter())
            .map(|(s, e)| Piece {
                range: *s..*s + e.len,
                src: e.src.clone(),
            })
    }

    /// Journal segments that extents point into.
    pub fn segments(&self) -> impl Iterator<Item = u32> {
        self.extents().filter_map(|p| match p.src {
            Src::Journal { payload, .. } => Some(payload.segment),
            _ => None,
        })
    }

    /// Allocated bytes (an estimate where holes of the body lie under extents).
    pub fn allocated(&self, size: u64) -> u64 {
        let Some(e) = &self.extents else {
            return self.body_alloc.min(self.body_len);
        };
        let sparse = self.body_alloc < self.body_len;
        let body = if sparse {
            self.body_alloc
        } else {
            self.body_len.saturating_sub(e.hole_bytes)
        };
        let over = if sparse { e.data_bytes } else { e.beyond_bytes };
        (body + over).min(size.next_multiple_of(4096))
    }

    /// Lays `src` over `range`.
    pub fn set(&mut self, range: Range<u64>, src: Src) {
        if range.is_empty() {
            return;
        }
        let body_len = self.body_len;
        let e = Arc::make_mut(self.extents.get_or_insert_with(Default::default));
        e.cut(range.clone(), body_len);
        e.put(
            range.start,
            Extent {
                len: range.end - range.start,
                src,
            },
            body_len,
        );
    }

    /// Makes a hole of `range`.
    pub fn punch(&mut self, range: Range<u64>) {
        if let Some(e) = &mut self.extents {
            Arc::make_mut(e).cut(range.clone(), self.body_len);
        }
        if range.start < self.body_len {
            self.set(range.start..range.end.min(self.body_len), Src::Hole);
        }
        self.tidy();
    }

    /// Drops everything from `size` on.
    pub fn truncate(&mut self, size: u64) {
        if let Some(e) = &mut self.extents
            && e.map
                .last_key_value()
                .is_some_and(|(s, x)| s + x.len > size)
        {
            Arc::make_mut(e).cut(size..u64::MAX, self.body_len);
        }
        if size < self.body_len {
            self.body_len = size;
            self.body_alloc = self.body_alloc.min(size.next_multiple_of(4096));
        }
        if self.body_len == 0 {
            self.body = Body::None;
            self.body_alloc = 0;
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        if self.extents.as_ref().is_some_and(|e| e.map.is_empty()) {
            self.extents = None;
        }
    }

    /// The pieces that make up `range`, in order and without gaps; the body appears as
    /// [`Src::Shared`].
    pub fn pieces(&self, range: Range<u64>) -> Vec<Piece> {
        let mut out = Vec::new();
        self.each_piece(range, &mut |piece| {
            out.push(piece);
            true
        });
        out
    }

    /// Calls `visit` for each of [`FileData::pieces`] until it returns false.
    pub fn each_piece(&self, range: Range<u64>, visit: &mut dyn FnMut(Piece) -> bool) {
        let mut at = range.start;
        if let Some(e) = &self.extents {
            let first = e
                .map
                .range(..=range.start)
                .next_back()
                .map_or(range.start, |(s, _)| *s);
            for (start, x) in e.map.range(first..range.end) {
                let (from, to) = ((*start).max(range.start), (start + x.len).min(range.end));
                if from >= to {
                    continue;
                }
                let piece = Piece {
                    range: from..to,
                    src: x.src.skip(from - start),
                };
                if !self.below(at..from, visit) || !visit(piece) {
                    return;
                }
                at = to;
            }
        }
        self.below(at..range.end, visit);
    }

    /// Pieces of the body, and of the nothing after it; false where `visit` wants no more.
    fn below(&self, range: Range<u64>, visit: &mut dyn FnMut(Piece) -> bool) -> bool {
        let split = self.body_len.clamp(range.start, range.end.max(range.start));
        if range.start < split {
            let src = match self.body {
                Body::None => Src::Hole,
                _ => Src::Shared {
                    body: Arc::new(self.body.clone()),
                    at: range.start,
                },
            };
            let piece = Piece {
                range: range.start..split,
                src,
            };
            if !visit(piece) {
                return false;
            }
        }
        split >= range.end
            || visit(Piece {
                range: split..range.end,
                src: Src::Hole,
            })
    }

    /// What `self` becomes when the state `frozen` (from which it came, `frozen_size` long) has been
    /// stored as `stored`: only what changed since stays an extent. `size` is the present size.
    pub fn rebased(
        &self,
        size: u64,
        frozen: &FileData,
        frozen_size: u64,
        stored: FileContent,
        alloc: u64,
    ) -> FileData {
        let mut out = FileData::new(Body::Stored(stored), frozen_size.min(size), alloc);
        if out.body_len == 0 {
            out.body = Body::None;
        }
        let old = frozen.pieces(0..size.max(frozen_size));
        let mut old = old.iter().peekable();
        for piece in self.pieces(0..size) {
            let mut at = piece.range.start;
            while at < piece.range.end {
                while old.peek().is_some_and(|o| o.range.end <= at) {
                    old.next();
                }
                let Some(o) = old.peek() else { break };
                let end = piece.range.end.min(o.range.end);
                let now = piece.src.skip(at - piece.range.start);
                let then = o.src.skip(at - o.range.start);
                if now != then {
                    if !matches!(now, Src::Journal { .. }) {
                        out.keep_holes_around(&(at..end), self, size);
                    }
                    out.keep(at..end, now);
                }
                at = end;
            }
        }
        out
    }

    /// Keeps the holes of `live` in the blocks of `range`, and what of them is its body's, which may have
    /// holes there: the store widens data to whole blocks, so what was a hole beside other data there is
    /// none in the stored content.
    fn keep_holes_around(&mut self, range: &Range<u64>, live: &FileData, size: u64) {
        let start = range.start - range.start % HOLE_BLOCK_BYTES;
        let end = range.end.next_multiple_of(HOLE_BLOCK_BYTES).min(size);
        for piece in live.pieces(start..end) {
            match piece.src {
                src @ Src::Shared { .. } => self.set(piece.range, src),
                src if src.is_hole() => self.punch(piece.range),
                _ => {}
            }
        }
    }

    fn keep(&mut self, range: Range<u64>, src: Src) {
        if src.is_hole() {
            self.punch(range);
        } else {
            self.set(range, src);
        }
    }
}

impl Extents {
    fn put(&mut self, start: u64, x: Extent, body_len: u64) {
        self.account(start, &x, body_len, true);
        // Neighbouring holes and zeros become one.
        self.map.insert(start, x);
    }

    fn account(&mut self, start: u64, x: &Extent, body_len: u64, add: bool) {
        let end = start + x.len;
        let count = |counter: &mut u64, n: u64| {
            *counter = if add {
                *counter + n
            } else {
                counter.saturating_sub(n)
            };
        };
        if x.src.is_hole() {
            let below = end.min(body_len).saturating_sub(start);
            count(&mut self.hole_bytes, below);
        } else {
            count(&mut self.data_bytes, x.len);
            let beyond = end.saturating_sub(start.max(body_len));
            count(&mut self.beyond_bytes, beyond);
        }
    }

    /// Removes what lies in `range`, splitting extents at its ends.
    fn cut(&mut self, range: Range<u64>, body_len: u64) {
        if let Some((&start, x)) = self.map.range(..range.start).next_back()
            && start + x.len > range.start
        {
            let x = x.clone();
            self.account(start, &x, body_len, false);
            let end = start + x.len;
            self.put(
                start,
                Extent {
                    len: range.start - start,
                    src: x.src.clone(),
                },
                body_len,
            );
            if end > range.end {
                self.put(
                    range.end,
                    Extent {
                        len: end - range.end,
                        src: x.src.skip(range.end - start),
                    },
                    body_len,
                );
            }
        }
        while let Some((&start, x)) = self.map.range(range.start..range.end).next() {
            let x = x.clone();
            self.map.remove(&start);
            self.account(start, &x, body_len, false);
            let end = start + x.len;
            if end > range.end {
                self.put(
                    range.end,
                    Extent {
                        len: end - range.end,
                        src: x.src.skip(range.end - start),
                    },
                    body_len,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(n: u64, len: u64) -> Src {
        Src::Journal {
            payload: PayloadRef {
                segment: 1,
                offset: n * 1000,
                len: len as u32,
            },
            from: 0,
        }
    }

    /// What each byte shows: 0 for zeros, else a number for (source, offset).
    fn image(d: &FileData, size: u64) -> Vec<u64> {
        let mut out = vec![0; size as usize];
        for p in d.pieces(0..size) {
            for i in p.range.clone() {
                let by = i - p.range.start;
                out[i as usize] = match &p.src {
                    Src::Journal { payload, from } => payload.offset + u64::from(*from) + by + 1,
                    Src::Shared { at, .. } => 1_000_000_000 + at + by,
                    Src::Hole | Src::Zero => 0,
                };
            }
        }
        out
    }

    fn random(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut x = seed;
        move |n| {
            x = x
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (x >> 33) % n
        }
    }

    fn change(
        d: &mut FileData,
        size: &mut u64,
        model: &mut Vec<u64>,
        n: u64,
        rnd: &mut impl FnMut(u64) -> u64,
    ) {
        let (off, len) = (rnd(100), 1 + rnd(40));
        match rnd(5) {
            0 => {
                *size = rnd(140);
                d.truncate(*size);
                model.resize(*size as usize, 0);
            }
            1 => {
                let end = (off + len).min(*size);
                if off < end {
                    d.punch(off..end);
                    model[off as usize..end as usize].fill(0);
                }
            }
            _ => {
                *size = (*size).max(off + len);
                model.resize(*size as usize, 0);
                d.set(off..off + len, journal(n, len));
                for i in 0..len {
                    model[(off + i) as usize] = n * 1000 + i + 1;
                }
            }
        }
    }

    #[test]
    fn shows_what_was_written_last() {
        for seed in 0..200 {
            let mut rnd = random(seed);
            let mut d = FileData::new(Body::Stored(FileContent::Empty), 50, 50);
            let (mut size, mut model) =
                (50, (0..50).map(|i| 1_000_000_000 + i).collect::<Vec<u64>>());
            for n in 1..60 {
                change(&mut d, &mut size, &mut model, n, &mut rnd);
                assert_eq!(image(&d, size), model, "seed {seed} step {n}");
                let data = d.extents().filter(|p| !p.src.is_hole());
                let beyond =
                    data.map(|p| p.range.end.saturating_sub(p.range.start.max(d.body_len)));
                let counted = d.extents.as_ref().map_or(0, |e| e.beyond_bytes);
                assert_eq!(counted, beyond.sum::<u64>(), "seed {seed} step {n}");
            }
        }
    }

    #[test]
    fn allocated_bytes_are_known_without_looking_at_each_extent() {
        let appended = |count: u64| {
            let mut d = FileData::new(Body::Stored(FileContent::Empty), 50, 50);
            for n in 0..count {
                d.set(50 + n * 10..60 + n * 10, journal(n, 10));
            }
            (d, 50 + count * 10)
        };
        let time = |(d, size): &(FileData, u64)| {
            let once = || {
                let since = std::time::Instant::now();
                for _ in 0..1000 {
                    assert_eq!(std::hint::black_box(d).allocated(*size), *size);
                }
                since.elapsed()
            };
            (0..5).map(|_| once()).min().unwrap()
        };
        // 2048 times as many extents.
        let (few, many) = (time(&appended(32)), time(&appended(65_536)));
        assert!(many < few * 200, "{few:?}, {many:?}");
    }

    #[test]
    fn rebasing_keeps_every_byte() {
        for seed in 0..300 {
            let mut rnd = random(seed + 1000);
            let mut d = FileData::default();
            let (mut size, mut model) = (0, Vec::new());
            for n in 1..10 {
                change(&mut d, &mut size, &mut model, n, &mut rnd);
            }
            let (frozen, frozen_size, frozen_image) = (d.clone(), size, model.clone());
            for n in 10..10 + rnd(8) {
                change(&mut d, &mut size, &mut model, n, &mut rnd);
            }
            let r = d.rebased(size, &frozen, frozen_size, FileContent::Empty, frozen_size);
            // Bytes of the stored content stand for the frozen image.
            let got: Vec<u64> = image(&r, size)
                .into_iter()
                .map(|v| {
                    if v >= 1_000_000_000 {
                        frozen_image[(v - 1_000_000_000) as usize]
                    } else {
                        v
                    }
                })
                .collect();
            assert_eq!(got, model, "seed {seed}");
            if d == frozen {
                assert!(r.is_plain());
            }
        }
    }
}
