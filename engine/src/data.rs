//! Reading file data, wherever its pieces are.

use crate::base::{Base, BaseFile, ReadOutcome};
use crate::error::{Error, Result};
use crate::journal::{Journal, PayloadRef, journal_of};
use crate::journals::Journals;
use crate::tree::file::{Body, FileData, Src};
use crate::types::{Seek, Wait};
use objstore::content::FileContent;
use objstore::limits::HOLE_BLOCK_BYTES;
use objstore::{ObjectStore, Source};
use std::ops::Range;
use std::sync::Arc;

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
        for piece in file.pieces(0..size) {
            match &piece.src {
                Src::Hole | Src::Zero => {}
                Src::Journal { .. } => push(piece.range),
                Src::Shared { body, at } => {
                    let (from, to) = (*at, at + (piece.range.end - piece.range.start));
                    for r in self.body_data(body)? {
                        let (a, b) = (r.start.max(from), r.end.min(to));
                        if a < b {
                            push(piece.range.start + (a - from)..piece.range.start + (b - from));
                        }
                    }
                }
            }
        }
        Ok(out)
    }

    fn body_data(&self, body: &Body) -> Result<Vec<Range<u64>>> {
        match body {
            Body::None => Ok(Vec::new()),
            Body::Stored(FileContent::Chunk { len, .. }) => {
                Ok(std::iter::once(0..u64::from(*len)).collect())
            }
            Body::Stored(c) => Ok(objstore::data_ranges(&self.store, c)?),
            Body::Base(f) => match f.stored() {
                Some(c) => self.body_data(&Body::Stored(c)),
                None => self.base.data_ranges(f),
            },
            Body::Unreadable => Err(Error::Access),
        }
    }

    /// Answers lseek(2) with SEEK_DATA or SEEK_HOLE.
    pub fn seek(&self, file: &FileData, size: u64, offset: u64, whence: Seek) -> Result<u64> {
        if offset >= size {
            return Err(Error::NoAddress);
        }
        let data = self.data_ranges(file, size)?;
        let at = data.iter().find(|r| r.end > offset);
        match (whence, at) {
            (Seek::Data, None) => Err(Error::NoAddress),
            (Seek::Data, Some(r)) => Ok(r.start.max(offset)),
            (Seek::Hole, Some(r)) if r.start <= offset => Ok(r.end),
            (Seek::Hole, _) => Ok(offset),
        }
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
