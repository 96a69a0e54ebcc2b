//! Content of a file in the model: bytes, and which blocks of them may be data.
//!
//! A hole is seen in whole blocks of 4 KiB. A block that has a byte other than zero is data; one of zeros that a
//! program wrote is, until it is stored.

use std::ops::Range;

/// Granularity at which holes are kept.
pub const BLOCK: u64 = 4096;

/// Disjoint ranges, sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranges(pub Vec<Range<u64>>);

impl Ranges {
    /// Takes `r` out.
    pub fn remove(&mut self, r: &Range<u64>) {
        let mut out = Vec::with_capacity(self.0.len() + 1);
        for x in &self.0 {
            for part in [x.start..x.end.min(r.start), x.start.max(r.end)..x.end] {
                if !part.is_empty() {
                    out.push(part);
                }
            }
        }
        self.0 = out;
    }

    /// Puts `r` in.
    pub fn insert(&mut self, r: Range<u64>) {
        if r.is_empty() {
            return;
        }
        self.remove(&r);
        let at = self.0.partition_point(|x| x.start < r.start);
        self.0.insert(at, r);
    }

    /// The parts of it inside `r`.
    pub fn within(&self, r: &Range<u64>) -> Vec<Range<u64>> {
        let cut = |x: &Range<u64>| x.start.max(r.start)..x.end.min(r.end);
        self.0.iter().map(cut).filter(|x| !x.is_empty()).collect()
    }

    /// True where a byte of `r` is in it.
    pub fn touches(&self, r: &Range<u64>) -> bool {
        self.0.iter().any(|x| x.start < r.end && r.start < x.end)
    }
}

/// Content of a file.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// All bytes; holes are zeros.
    pub bytes: Vec<u8>,
    /// Blocks that may count as data.
    pub may: Ranges,
}

/// The same bytes; where two states differ in holes alone, their times differ too.
impl PartialEq for Content {
    fn eq(&self, other: &Content) -> bool {
        self.bytes == other.bytes
    }
}

impl Content {
    /// A file all of whose bytes are data.
    pub fn full(bytes: Vec<u8>) -> Content {
        let mut c = Content::default();
        c.write(0, &bytes);
        c
    }

    /// Length.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// True for no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// write(2).
    pub fn write(&mut self, at: u64, data: &[u8]) {
        let end = at + data.len() as u64;
        if self.len() < end {
            self.bytes.resize(end as usize, 0);
        }
        self.bytes[at as usize..end as usize].copy_from_slice(data);
        self.may.insert(outwards(&(at..end)));
    }

    /// True where a byte of a block is not zero.
    pub fn must_be_data(&self, block: &Range<u64>) -> bool {
        let end = block.end.min(self.len()) as usize;
        self.bytes[block.start as usize..end]
            .iter()
            .any(|byte| *byte != 0)
    }

    /// ftruncate(2).
    pub fn truncate(&mut self, size: u64) {
        if size < self.len() {
            self.may.remove(&(size.next_multiple_of(BLOCK)..u64::MAX));
        }
        self.bytes.resize(size as usize, 0);
    }

    /// Zeros that are no data: a punched hole, or a zeroed range.
    pub fn clear(&mut self, r: Range<u64>) {
        let r = r.start..r.end.min(self.len());
        if r.start >= r.end {
            return;
        }
        self.bytes[r.start as usize..r.end as usize].fill(0);
        let end = if r.end == self.len() {
            r.end.next_multiple_of(BLOCK)
        } else {
            r.end
        };
        let whole = r.start.next_multiple_of(BLOCK)..end - end % BLOCK;
        if whole.start < whole.end {
            self.may.remove(&whole);
        }
    }

    /// copy_file_range(2) from `src`, of which it takes `len` bytes.
    pub fn copy(&mut self, src: &Content, from: u64, at: u64, len: u64) {
        let (source, target) = (from..from + len, at..at + len);
        if self.len() < target.end {
            self.bytes.resize(target.end as usize, 0);
        }
        self.clear(target.clone());
        let data = &src.bytes[source.start as usize..source.end as usize];
        self.bytes[target.start as usize..target.end as usize].copy_from_slice(data);
        for r in src.may.within(&source) {
            self.may
                .insert(outwards(&(r.start - from + at..r.end - from + at)));
        }
    }
}

fn outwards(r: &Range<u64>) -> Range<u64> {
    r.start - r.start % BLOCK..r.end.next_multiple_of(BLOCK)
}
