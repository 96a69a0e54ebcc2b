//! Reading file data, wherever its pieces are.

use crate::base::{Base, BaseFile, ReadOutcome};
use crate::error::{Error, Result};
use crate::journal::{Journal, PayloadRef, journal_of};
use crate::stored::journals::Journals;
use crate::tree::file::{Body, FileData, Src};
use crate::types::{Seek, Wait};
use objstore::content::FileContent;
use objstore::limits::HOLE_BLOCK_BYTES;
use objstore::{ObjectStore, Source};
use std::ops::Range;
use std::sync::Arc;

/// Where the data of one body is: a walk that only goes forwards, as far as it is asked.
struct BodyWalk<'a> {
    of: Body,
    /// Where it was asked last.
    asked: u64,
    found: Option<Range<u64>>,
    rest: Box<dyn Iterator<Item = Result<Range<u64>>> + 'a>,
}

impl BodyWalk<'_> {
    /// The first data that ends behind `from`.
    fn data_behind(&mut self, from: u64) -> Result<Option<Range<u64>>> {
        self.asked = from;
        while self.found.as_ref().is_none_or(|r| r.end <= from) {
            self.found = self.rest.next().transpose()?;
            if self.found.is_none() {
                return Ok(None);
            }
        }
        Ok(self.found.clone())
    }
}

/// The places where file data can be.
#[derive(Clone, Debug)]
pub struct Places {
    /// The store.
    pub store: Arc<ObjectStore>,
    /// The branch's journal.
    pub journal: Arc<Journal>,
    /// All journals of the workspace: what a branch had when another was made from it is in its own.
    pub journals: Arc<Journals>,
    /// The base.
    pub base: Arc<Base>,
}

impl Places {
    /// Fills `buf` with the file's bytes from `offset`; the caller keeps it within the file's size.
    ///
    /// [`Error::BaseChanged`] where a base file is not the version that it was: take it anew.
    pub fn read(&self, file: &FileData, offset: u64, buf: &mut [u8], wait: Wait) -> Result<()> {
        let end = offset + buf.len() as u64;
        for piece in file.pieces(offset..end) {
            let (a, b) = (
                (piece.range.start - offset) as usize,
                (piece.range.end - offset) as usize,
            );
            self.read_src(&piece.src, &mut buf[a..b], wait)?;
        }
        Ok(())
    }

    fn read_src(&self, src: &Src, buf: &mut [u8], wait: Wait) -> Result<()> {
        match src {
            Src::Hole | Src::Zero => {
                buf.fill(0);
                Ok(())
            }
            Src::Journal { payload, from } => self.read_journal(*payload, *from, buf, wait),
            Src::Shared { body, at } => self.read_body(body, *at, buf, wait),
        }
    }

    fn read_journal(
        &self,
        payload: PayloadRef,
        from: u32,
        buf: &mut [u8],
        wait: Wait,
    ) -> Result<()> {
        let other;
        let journal = match journal_of(payload.segment) {
            own if own == self.journal.number() => &self.journal,
            number => {
                other = self.journals.get(number, payload.segment)?;
                &other
            }
        };
        match wait {
            Wait::Allowed => Ok(journal.read(payload, from, buf)?),
            Wait::Never if journal.try_read(payload, from, buf)? => Ok(()),
            Wait::Never => Err(Error::WouldBlock),
        }
    }

    fn read_body(&self, body: &Body, at: u64, buf: &mut [u8], wait: Wait) -> Result<()> {
        match body {
            Body::None => {
                buf.fill(0);
                Ok(())
            }
            Body::Stored(c) => self.read_stored(c, at, buf, wait),
            Body::Base(f) => match f.stored() {
                Some(c) => self.read_stored(&c, at, buf, wait),
                None => self.read_base(f, at, buf, wait),
            },
            Body::Unreadable => Err(Error::Access),
        }
    }

    fn read_stored(
        &self,
        content: &FileContent,
        at: u64,
        buf: &mut [u8],
        wait: Wait,
    ) -> Result<()> {
        match wait {
            Wait::Allowed => Ok(objstore::read_content(&self.store, content, at, buf)?),
            Wait::Never if objstore::try_read_content(&self.store, content, at, buf)? => Ok(()),
            Wait::Never => Err(Error::WouldBlock),
        }
    }

    fn read_base(&self, file: &BaseFile, at: u64, buf: &mut [u8], wait: Wait) -> Result<()> {
        match self.base.read(file, at, buf, wait == Wait::Allowed)? {
            ReadOutcome::Done => Ok(()),
            ReadOutcome::WouldBlock => Err(Error::WouldBlock),
            ReadOutcome::Changed => Err(Error::BaseChanged(file.clone())),
        }
    }

    /// Ranges of the file that are data (not holes), sorted and disjoint, below `size`.
    ///
    /// They begin and end at whole blocks, as those of a stored file do: a file must not show other
    /// holes once it has been sealed.
    pub fn data_ranges(&self, file: &FileData, size: u64) -> Result<Vec<Range<u64>>> {
        let mut out: Vec<Range<u64>> = Vec::new();
        let mut push = |r: Range<u64>| {
            let start = r.start - r.start % HOLE_BLOCK_BYTES;
            let end = r.end.next_multiple_of(HOLE_BLOCK_BYTES).min(size);
            match out.last_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(end),
                _ => out.push(start..end),
            }
        };
        self.each_data(file, 0..size, &mut |r| {
            push(r);
            true
        })?;
        Ok(out)
    }

    /// Calls `visit` for what of `range` is data, in order, until it returns false. What lies behind that
    /// is not looked at.
    fn each_data(
        &self,
        file: &FileData,
        range: Range<u64>,
        visit: &mut dyn FnMut(Range<u64>) -> bool,
    ) -> Result<()> {
        let mut walk: Option<BodyWalk<'_>> = None;
        let mut outcome = Ok(());
        file.each_piece(range, &mut |piece| {
            let more = match &piece.src {
                Src::Hole | Src::Zero => Ok(true),
                Src::Journal { .. } => Ok(visit(piece.range)),
                Src::Shared { body, at } => {
                    self.each_data_of(&mut walk, (body, *at), piece.range, visit)
                }
            };
            more.unwrap_or_else(|e| {
                outcome = Err(e);
                false
            })
        });
        outcome
    }

    /// [`Places::each_data`] of a range that is a body's, from a byte of it on.
    fn each_data_of<'a>(
        &'a self,
        walk: &mut Option<BodyWalk<'a>>,
        (body, at): (&Body, u64),
        range: Range<u64>,
        visit: &mut dyn FnMut(Range<u64>) -> bool,
    ) -> Result<bool> {
        let fits = |w: &BodyWalk<'_>| w.asked <= at && w.of == *body;
        let walk = match walk.take().filter(fits) {
            Some(going) => walk.insert(going),
            None => walk.insert(self.walk_body(body, at)?),
        };
        let (mut from, end) = (at, at + (range.end - range.start));
        while from < end
            && let Some(data) = walk.data_behind(from)?.filter(|d| d.start < end)
        {
            let (a, b) = (data.start.max(from), data.end.min(end));
            if !visit(range.start + (a - at)..range.start + (b - at)) {
                return Ok(false);
            }
            from = b;
        }
        Ok(true)
    }

    fn walk_body<'a>(&'a self, body: &Body, from: u64) -> Result<BodyWalk<'a>> {
        let stored = match body {
            Body::Stored(c) => Some(*c),
            Body::Base(f) => f.stored(),
            Body::None | Body::Unreadable => None,
        };
        let rest: Box<dyn Iterator<Item = Result<Range<u64>>> + 'a> = match (stored, body) {
            (Some(c), _) => {
                let data = objstore::data_from(&self.store, &c, from)?;
                Box::new(data.map(|r| Ok(r?)))
            }
            (None, Body::Base(f)) => Box::new(self.base.data_from(f, from)?.map(Ok)),
            (None, Body::Unreadable) => return Err(Error::Access),
            (None, Body::None | Body::Stored(_)) => Box::new(std::iter::empty()),
        };
        Ok(BodyWalk {
            of: body.clone(),
            asked: from,
            found: None,
            rest,
        })
    }

    /// Answers lseek(2) with SEEK_DATA or SEEK_HOLE; looks no further than the answer.
    pub fn seek(&self, file: &FileData, size: u64, offset: u64, whence: Seek) -> Result<u64> {
        if offset >= size {
            return Err(Error::NoAddress);
        }
        // A block is data where a byte of it is.
        let first = offset - offset % HOLE_BLOCK_BYTES;
        let (mut data, mut hole) = (None, first);
        self.each_data(file, first..size, &mut |r| {
            let start = r.start - r.start % HOLE_BLOCK_BYTES;
            data.get_or_insert(start);
            if whence == Seek::Data || start > hole {
                return false;
            }
            hole = hole.max(r.end.next_multiple_of(HOLE_BLOCK_BYTES).min(size));
            true
        })?;
        match whence {
            Seek::Data => data.map(|at| at.max(offset)).ok_or(Error::NoAddress),
            Seek::Hole => Ok(hole.max(offset)),
        }
    }

    /// The first range of data that ends behind `offset`.
    pub fn data_at(&self, file: &FileData, size: u64, offset: u64) -> Result<Option<Range<u64>>> {
        let start = match self.seek(file, size, offset, Seek::Data) {
            Err(Error::NoAddress) => return Ok(None),
            start => start?,
        };
        let end = self.seek(file, size, start, Seek::Hole)?;
        Ok(Some(start..end))
    }

    /// True where [`Places::seek`] asks neither the disk nor much of memory.
    pub fn seeks_at_once(&self, file: &FileData) -> bool {
        let small = matches!(
            file.body().0,
            Body::None | Body::Stored(FileContent::Empty | FileContent::Chunk { .. })
        );
        small && file.is_plain()
    }
}

/// A file's present bytes as a source for the store.
#[derive(Debug)]
pub struct FileSource<'a> {
    /// Where its pieces are.
    pub places: &'a Places,
    /// The file.
    pub file: &'a FileData,
    /// Why reading failed last, in full; [`Source`] can only say an I/O error.
    pub failed: parking_lot::Mutex<Option<Error>>,
}

impl Source for FileSource<'_> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.places
            .read(self.file, offset, buf, Wait::Allowed)
            .map_err(|e| {
                let shown = std::io::Error::other(e.to_string());
                *self.failed.lock() = Some(e);
                shown
            })
    }
}
