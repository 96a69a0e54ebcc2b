//! Making a damaged journal one that can be opened again. The caller has set aside what it was.
//!
//! It is ended before its first bad record. Where even the first record that is needed is lost, it begins anew
//! behind everything that there is: segments that are whole stay, since payloads in them may be shown. Invariant:
//! no segment's number is given again, so what named a payload that is lost never reads another one.

use super::error::{JournalError, JournalResult};
use super::format::{Mark, SEGMENT_HEADER_BYTES, SegmentHeader, VERSION, segment_seed};
use super::mark::MarkFile;
use super::recovery::Recovery;
use super::scan::{Found, SegmentReader, Source};
use super::segment::{self, Live};
use super::{Journal, JournalConfig, SEGMENT_BITS, first_mark, new_id};
use objstore::io::Storage;

/// What of a damaged journal is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needed {
    /// The first record; none where it need have none.
    pub from: Option<u64>,
    /// A record that cannot be used, though it is whole.
    pub before: Option<u64>,
}

impl Journal {
    /// Cuts the journal in `dir` where its first record with a bad header or metadata stands, or the first
    /// that cannot be used, also where that was acknowledged, so that it can be recovered again. Other bad
    /// payloads stay: they cost their own bytes only. Where not even the records before the first needed one
    /// are there, the journal numbered `number` begins anew with that; where none is needed it fails.
    pub fn repair(
        storage: &dyn Storage,
        dir: &str,
        needed: Needed,
        number: u32,
        boot: u64,
    ) -> JournalResult<()> {
        let known = match MarkFile::open(storage, dir) {
            Ok(Some(mark)) => Some(mark),
            Ok(None) | Err(JournalError::MarkDamaged { .. }) => make_mark(storage, dir)?,
            Err(e) => return Err(e),
        };
        let last_mark = known.as_ref().map(|mark| *mark.last());
        if let Some(mark) = known {
            mend_headers(storage, dir, mark.last())?;
            if forgiven(storage, dir, needed, &mark, false).is_ok() {
                return end_early(storage, dir, needed, mark, boot);
            }
        }
        let Some(seq) = needed.from else {
            return Err(JournalError::Missing {
                dir: dir.to_owned(),
            });
        };
        storage.create_dir_all(dir).map_err(JournalError::io(dir))?;
        let mark = last_mark.unwrap_or_else(|| unknown(dir, number));
        let found = segment::list(storage, dir)?;
        let last = found.into_iter().fold(mark.segment, u32::max);
        begin_anew(storage, dir, mark, last, seq, boot)
    }

    /// Writes the mark of a journal anew that was cut off, with what is left of it.
    pub fn mend_mark(storage: &dyn Storage, dir: &str) -> JournalResult<()> {
        match MarkFile::open(storage, dir)? {
            Some(mark) => mark.whole(storage, dir).map(|_| ()),
            None => Err(JournalError::Missing {
                dir: dir.to_owned(),
            }),
        }
    }
}

/// The journal up to its first bad record. With `tidy`, what is behind that is removed.
fn forgiven<'a>(
    storage: &'a dyn Storage,
    dir: &'a str,
    needed: Needed,
    mark: &MarkFile,
    tidy: bool,
) -> JournalResult<Recovery<'a>> {
    let cfg = JournalConfig::default();
    let first = needed.from.unwrap_or(1);
    let mut recovery = Recovery::new(storage, dir, first, mark, &cfg, false)?;
    recovery.forgive(tidy)?;
    recovery.end_before(needed.before);
    if needed.from.is_none() {
        recovery.need_oldest();
    }
    let cut = recovery.replay(&mut |_| Ok(()))?;
    recovery.check_end()?;
    if let Some(cut) = cut.filter(|_| tidy) {
        recovery.cut(cut)?;
    }
    Ok(recovery)
}

/// Ends the journal before its first bad record.
fn end_early(
    storage: &dyn Storage,
    dir: &str,
    needed: Needed,
    mark: MarkFile,
    boot: u64,
) -> JournalResult<()> {
    let found = segment::list(storage, dir)?;
    let last = found.into_iter().fold(mark.last().segment, u32::max);
    let recovery = forgiven(storage, dir, needed, &mark, true)?;
    // A mark that is changed in place never goes back.
    let mut mark = match recovery.lower_mark(mark.last()) {
        Some(lower) => MarkFile::create(storage, dir, lower)?,
        None => mark.whole(storage, dir)?,
    };
    recovery.make_durable(&mut mark, boot)?;
    let report = recovery.report();
    match report.torn_bytes > 0 || recovery.newest() < last {
        true => begin_anew(storage, dir, *mark.last(), last, report.last_seq + 1, boot),
        false => Ok(()),
    }
}

/// Writes damaged headers of segments anew whose first record is whole: that says what they were.
fn mend_headers(storage: &dyn Storage, dir: &str, mark: &Mark) -> JournalResult<()> {
    for number in segment::list(storage, dir)? {
        let live = Live::open(storage, dir, number)?;
        if segment::read_header(&live, mark.journal)?.is_some() {
            continue;
        }
        let source: &dyn Source = &&*live.file;
        let mut reader = SegmentReader::new(source, segment_seed(mark.journal, number));
        let first = reader.record(SEGMENT_HEADER_BYTES as u64);
        let Found::Record(first) = first.map_err(JournalError::io(&live.path))? else {
            continue;
        };
        let header = header_of(mark.journal, number, first.header.seq);
        let written = live.file.write_at(0, &header.encode());
        written.map_err(JournalError::io(&live.path))?;
        live.sync()?;
    }
    Ok(())
}

/// Begins behind segment `last` with record `seq`. In the place of segments that are damaged come empty ones, as
/// the numbers of a journal's segments follow one another.
fn begin_anew(
    storage: &dyn Storage,
    dir: &str,
    mark: Mark,
    last: u32,
    seq: u64,
    boot: u64,
) -> JournalResult<()> {
    let journal = mark.journal;
    let mut whole = Vec::new();
    let found = segment::list(storage, dir)?.into_iter();
    for number in found.filter(|n| *n >= mark.first_segment) {
        let live = Live::open(storage, dir, number)?;
        if segment::read_header(&live, journal)?.is_some() {
            whole.push(number);
        }
    }
    let first = whole.first().map_or(last + 1, |first| *first);
    for number in (first..=last + 1).filter(|n| !whole.contains(n)) {
        segment::create(storage, dir, &header_of(journal, number, seq))?.sync()?;
    }
    storage.sync_dir(dir).map_err(JournalError::io(dir))?;
    let mark = Mark {
        seq: seq - 1,
        segment: last + 1,
        ..first_mark(&header_of(journal, first, seq), boot)
    };
    MarkFile::create(storage, dir, mark).map(|_| ())
}

/// The mark of a journal of which nothing is known.
fn unknown(dir: &str, number: u32) -> Mark {
    first_mark(&header_of(new_id(dir), number << SEGMENT_BITS, 1), 0)
}

fn header_of(journal: u64, segment: u32, first_seq: u64) -> SegmentHeader {
    SegmentHeader {
        version: VERSION,
        journal,
        segment,
        first_seq,
    }
}

/// A mark made from the first header of a segment that can be read; `None` where there is none.
fn make_mark(storage: &dyn Storage, dir: &str) -> JournalResult<Option<MarkFile>> {
    for number in segment::list(storage, dir)? {
        let live = Live::open(storage, dir, number)?;
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        let read = live.file.read_at(0, &mut bytes).is_ok();
        if let Some(header) = SegmentHeader::decode(&bytes).filter(|_| read) {
            return MarkFile::create(storage, dir, first_mark(&header, 0)).map(Some);
        }
    }
    Ok(None)
}
