//! Bringing a journal back: which records are whole, what may be cut, what is damage.
//!
//! Records up to the mark were acknowledged: they must be there and whole, else it is damage. Behind
//! it a power cut may leave any part of what was written, in any order. So the first bad record ends
//! the journal, unless it is known to have been acknowledged or cannot be a power cut's doing:
//!
//! - each record names the last one that was on stable storage when it was written, so a valid
//!   record behind the bad one may prove that the bad one had been acknowledged;
//! - where the mark was written in this boot of the machine, there was no power cut: the kernel has
//!   every byte that was handed to it, in order, and a valid record behind a bad one is damage.
//!
//! A bad payload of such a record costs its own bytes only; a bad header makes the journal damaged.
//! Invariant: nothing on disk is changed before all records were read and given to the taker.

use super::error::{JournalError, JournalResult};
use super::format::{Mark, SEGMENT_HEADER_BYTES, SegmentHeader, segment_seed};
use super::mark::{self, MarkFile};
use super::scan::{self, Beyond, Found, SegmentReader, Source};
use super::segment::{self, Live};
use super::{Journal, JournalConfig, PayloadRef};
use objstore::io::Storage;
use std::sync::Arc;

/// A record as it comes back.
#[derive(Clone, Copy, Debug)]
pub struct ReplayRecord<'a> {
    /// Its sequence number.
    pub seq: u64,
    /// Its metadata.
    pub meta: &'a [u8],
    /// Its payload, where it has one. A damaged one gives its error when it is read.
    pub payload: Option<PayloadRef>,
}

/// What a recovery found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Records given to the caller.
    pub records: u64,
    /// Last record of the journal; 0 where there never was one.
    pub last_seq: u64,
    /// Bytes that were cut as torn.
    pub torn_bytes: u64,
    /// Whole records among them: a power cut kept them, but not one before them.
    pub torn_records: u64,
    /// Records whose payload was found damaged. Payloads up to the mark are not looked at.
    pub bad_payloads: u64,
    /// True where the journal was closed in order.
    pub clean: bool,
}

/// Takes records in order. [`JournalError::Replay`] says that one is refused, which may be an earlier one than the last.
pub type Each<'a> = dyn FnMut(ReplayRecord<'_>) -> JournalResult<()> + 'a;

/// A segment found in the directory; no header where that is bad.
struct Candidate {
    live: Live,
    header: Option<SegmentHeader>,
}

/// Where the journal ends early.
#[derive(Clone, Copy)]
pub(super) struct Cut {
    index: usize,
    offset: u64,
}

pub(super) struct Recovery<'a> {
    storage: &'a dyn Storage,
    dir: &'a str,
    mark: Mark,
    same_boot: bool,
    from_seq: u64,
    candidates: Vec<Candidate>,
    next_seq: u64,
    /// The first bad record ends the journal, whatever was acknowledged.
    forgiving: bool,
    /// The record before which the journal is to end.
    end: Option<u64>,
    /// Records up to this one are known to have been acknowledged.
    acknowledged: u64,
    report: RecoveryReport,
}

impl Journal {
    /// Opens the journal in `dir`: gives each record from `from_seq` on to `each`, in order, cuts
    /// what a power cut tore, and leaves a journal that can be appended to, all of it on stable
    /// storage. Fails with `Damaged` (and changes nothing) where an acknowledged record is not whole
    /// or missing, with `Missing` where there is no journal.
    pub fn recover(
        storage: Arc<dyn Storage>,
        dir: &str,
        from_seq: u64,
        cfg: JournalConfig,
        each: &mut Each<'_>,
    ) -> JournalResult<(Journal, RecoveryReport)> {
        let mut mark = open_mark(&*storage, dir)?;
        let mut recovery = Recovery::new(&*storage, dir, from_seq, &mark, &cfg, true)?;
        recovery.check_acknowledged_segments()?;
        let cut = recovery.replay(each)?;
        recovery.check_end()?;
        if let Some(cut) = cut {
            recovery.cut(cut)?;
        }
        mark = mark.whole(&*storage, dir)?;
        recovery.make_durable(&mut mark, cfg.boot)?;
        let report = recovery.report;
        let live = recovery.candidates.into_iter().map(|c| c.live).collect();
        let journal = Journal::assemble(storage, dir, cfg, live, mark, report.last_seq + 1);
        Ok((journal, report))
    }
}

/// Opens the mark, or tells apart why there is none.
pub(super) fn open_mark(storage: &dyn Storage, dir: &str) -> JournalResult<MarkFile> {
    if let Some(mark) = MarkFile::open(storage, dir)? {
        return Ok(mark);
    }
    for number in segment::list(storage, dir)? {
        // The mark is made last, so an unfinished creation leaves at most a header.
        let live = Live::open(storage, dir, number)?;
        if live.file.len() > SEGMENT_HEADER_BYTES as u64 {
            return Err(JournalError::MarkDamaged {
                path: mark::path(dir),
                what: "the mark is missing",
            });
        }
    }
    Err(JournalError::Missing {
        dir: dir.to_owned(),
    })
}

impl<'a> Recovery<'a> {
    /// With `tidy`, segments that were dropped before are removed.
    pub(super) fn new(
        storage: &'a dyn Storage,
        dir: &'a str,
        from_seq: u64,
        mark: &MarkFile,
        cfg: &JournalConfig,
        tidy: bool,
    ) -> JournalResult<Recovery<'a>> {
        let (is_alone, mut mark) = (mark.is_alone(), *mark.last());
        let candidates = find_segments(storage, dir, &mark, tidy)?;
        if is_alone {
            // The slot that was lost may have been the one that says which segments were dropped.
            begin_with(&mut mark, &candidates);
        }
        Ok(Recovery {
            storage,
            dir,
            mark,
            same_boot: cfg.boot != 0 && cfg.boot == mark.boot,
            from_seq,
            candidates,
            next_seq: 0,
            forgiving: false,
            end: None,
            acknowledged: mark.seq,
            report: RecoveryReport::default(),
        })
    }

    /// All records that there are are needed.
    pub(super) fn need_oldest(&mut self) {
        let oldest = self.candidates.first().and_then(|c| c.header);
        self.from_seq = oldest.map_or(self.from_seq, |header| header.first_seq);
    }

    /// From now on the first bad record ends the journal. Segments from the first one on that is bad or
    /// missing do not count any more, and with `tidy` are removed.
    pub(super) fn forgive(&mut self, tidy: bool) -> JournalResult<()> {
        (self.forgiving, self.same_boot, self.acknowledged) = (true, false, 0);
        begin_with(&mut self.mark, &self.candidates);
        let first = self.mark.first_segment;
        let whole = self.candidates.iter().zip(first..);
        let whole = whole.take_while(|(c, n)| c.live.number == *n && c.header.is_some());
        let count = whole.count();
        for candidate in self.candidates.drain(count..).filter(|_| tidy) {
            let path = &candidate.live.path;
            self.storage.remove(path).map_err(JournalError::io(path))?;
        }
        match self.candidates.last() {
            Some(last) => self.mark.segment = last.live.number,
            None => {
                return Err(JournalError::Missing {
                    dir: self.dir.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// The journal ends before a record, where one is given.
    pub(super) fn end_before(&mut self, record: Option<u64>) {
        self.end = record;
    }

    /// What was found.
    pub(super) fn report(&self) -> RecoveryReport {
        self.report
    }

    /// The segments, oldest first.
    pub(super) fn into_segments(self) -> Vec<Live> {
        self.candidates.into_iter().map(|c| c.live).collect()
    }

    /// The segments that the mark vouches for must be there, with their headers.
    pub(super) fn check_acknowledged_segments(&self) -> JournalResult<()> {
        let numbers = self.mark.first_segment..=self.mark.segment;
        for (index, number) in numbers.enumerate() {
            let candidate = self.candidates.get(index);
            let what = match candidate.filter(|c| c.live.number == number) {
                None => "the segment is missing",
                Some(Candidate { header: None, .. }) => "the segment's header is damaged",
                Some(_) => continue,
            };
            return Err(JournalError::Damaged {
                segment: number,
                offset: 0,
                seq: self.mark.seq,
                what,
            });
        }
        Ok(())
    }

    /// Walks all segments that may hold a record from `from_seq` on.
    pub(super) fn replay(&mut self, each: &mut Each<'_>) -> JournalResult<Option<Cut>> {
        let start = self.first_needed()?;
        for index in start..self.candidates.len() {
            if index > start && !self.continues(index) {
                return self.end_at(index, 0, "the next segment is missing or damaged");
            }
            if let Some(cut) = self.replay_segment(index, each)? {
                return Ok(Some(cut));
            }
        }
        Ok(None)
    }

    /// Index of the segment that holds `from_seq`; those before it need not be walked.
    fn first_needed(&mut self) -> JournalResult<usize> {
        let vouched = (self.mark.segment - self.mark.first_segment) as usize + 1;
        let firsts = self.candidates[..vouched].iter();
        let firsts: Vec<u64> = firsts.filter_map(|c| Some(c.header?.first_seq)).collect();
        let found = firsts.iter().rposition(|first| *first <= self.from_seq);
        self.next_seq = firsts[found.unwrap_or(0)];
        found.ok_or(JournalError::Damaged {
            segment: self.mark.first_segment,
            offset: 0,
            seq: self.from_seq,
            what: "the journal begins behind the first record that is needed",
        })
    }

    /// True where a segment goes on where the one before it ended.
    fn continues(&self, index: usize) -> bool {
        let numbers = [index - 1, index].map(|i| self.candidates[i].live.number);
        let header = self.candidates[index].header;
        numbers[0] + 1 == numbers[1] && header.is_some_and(|h| h.first_seq == self.next_seq)
    }

    fn replay_segment(&mut self, index: usize, each: &mut Each<'_>) -> JournalResult<Option<Cut>> {
        let live = self.candidates[index].live.clone();
        let source: &dyn Source = &&*live.file;
        let mut reader = SegmentReader::new(source, segment_seed(self.mark.journal, live.number));
        let mut at = SEGMENT_HEADER_BYTES as u64;
        loop {
            let found = reader.record(at).map_err(JournalError::io(&live.path))?;
            let record = match found {
                Found::End => return Ok(None),
                Found::Bad(what) => return self.end_at(index, at, what),
                Found::Record(record) if record.header.seq == self.next_seq => record,
                Found::Record(_) => return self.end_at(index, at, "the record is out of order"),
            };
            if self.end.is_some_and(|end| end <= self.next_seq) {
                return Ok(Some(Cut { index, offset: at }));
            }
            if !self.payload_stays(index, at, source, &record)? {
                return Ok(Some(Cut { index, offset: at }));
            }
            at = record.end;
            self.deliver(live.number, &record, each)?;
        }
    }

    /// Looks at a payload that may be torn. False where the journal ends before this record.
    fn payload_stays(
        &mut self,
        index: usize,
        at: u64,
        source: &dyn Source,
        record: &scan::Record<'_>,
    ) -> JournalResult<bool> {
        if self.next_seq <= self.acknowledged || self.forgiving {
            return Ok(true);
        }
        let path = &self.candidates[index].live.path;
        if scan::payload_is_good(source, record).map_err(JournalError::io(path))? {
            return Ok(true);
        }
        if !self.same_boot {
            let beyond = self.look_beyond(index, at)?;
            if beyond.synced < self.next_seq {
                self.report.torn_records = beyond.records;
                return Ok(false);
            }
            self.acknowledged = beyond.synced;
        }
        self.report.bad_payloads += 1;
        Ok(true)
    }

    fn deliver(
        &mut self,
        segment: u32,
        record: &scan::Record<'_>,
        each: &mut Each<'_>,
    ) -> JournalResult<()> {
        let seq = self.next_seq;
        self.next_seq += 1;
        if seq < self.from_seq {
            return Ok(());
        }
        let payload = (record.header.payload_len > 0).then(|| PayloadRef {
            segment,
            offset: record.payload_at(),
            len: record.header.payload_len,
        });
        let meta = record.meta();
        each(ReplayRecord { seq, meta, payload })?;
        self.report.records += 1;
        Ok(())
    }

    /// Decides about a bad record: cut here, or damage.
    fn end_at(
        &mut self,
        index: usize,
        offset: u64,
        what: &'static str,
    ) -> JournalResult<Option<Cut>> {
        let seq = self.next_seq;
        if self.forgiving {
            return Ok(Some(Cut { index, offset }));
        }
        if seq > self.acknowledged {
            let beyond = self.look_beyond(index, offset)?;
            let proven = beyond.synced >= seq || (self.same_boot && beyond.records > 0);
            if !proven {
                self.report.torn_records = beyond.records;
                return Ok(Some(Cut { index, offset }));
            }
        }
        Err(JournalError::Damaged {
            segment: self.candidates[index].live.number,
            offset,
            seq,
            what,
        })
    }

    /// Valid records behind the one that should be here.
    fn look_beyond(&self, index: usize, offset: u64) -> JournalResult<Beyond> {
        let mut sum = Beyond::default();
        let mut from = offset;
        for candidate in &self.candidates[index..] {
            let live = &candidate.live;
            let seed = segment_seed(self.mark.journal, live.number);
            let found = scan::records_beyond(&&*live.file, seed, from, self.next_seq)
                .map_err(JournalError::io(&live.path))?;
            sum.records += found.records;
            sum.synced = sum.synced.max(found.synced);
            from = 0;
        }
        Ok(sum)
    }

    /// The journal must reach its mark and what the caller already has.
    pub(super) fn check_end(&mut self) -> JournalResult<()> {
        let last_seq = self.next_seq - 1;
        self.report.last_seq = last_seq;
        self.report.clean = self.mark.clean && last_seq == self.mark.seq;
        let needed = self.acknowledged.max(self.from_seq.saturating_sub(1));
        if last_seq >= needed {
            return Ok(());
        }
        let end = &self.candidates[self.candidates.len() - 1].live;
        Err(JournalError::Damaged {
            segment: end.number,
            offset: end.file.len(),
            seq: self.next_seq,
            what: "the journal ends before the last record that was acknowledged",
        })
    }

    /// Cuts the torn tail: later segments first, so that what is left stays one piece.
    pub(super) fn cut(&mut self, cut: Cut) -> JournalResult<()> {
        let keep = cut.index + usize::from(cut.offset >= SEGMENT_HEADER_BYTES as u64);
        assert!(keep > 0, "the first segment's header was checked");
        for candidate in self.candidates.drain(keep..).rev() {
            let live = candidate.live;
            self.report.torn_bytes += live.file.len();
            self.storage
                .remove(&live.path)
                .map_err(JournalError::io(&live.path))?;
        }
        if keep == cut.index {
            return Ok(());
        }
        let live = &self.candidates[cut.index].live;
        self.report.torn_bytes += live.file.len() - cut.offset;
        live.file
            .truncate(cut.offset)
            .map_err(JournalError::io(&live.path))
    }

    /// Number of the newest segment.
    pub(super) fn newest(&self) -> u32 {
        self.candidates[self.candidates.len() - 1].live.number
    }

    /// The mark of a journal that was cut before what it vouched for; `None` where it vouches for no more
    /// than there is.
    pub(super) fn lower_mark(&self, mark: &Mark) -> Option<Mark> {
        let newest = self.newest();
        let lower = self.report.last_seq < mark.seq || newest < mark.segment;
        lower.then_some(Mark {
            clean: false,
            seq: self.report.last_seq,
            segment: newest,
            first_segment: self.mark.first_segment,
            ..*mark
        })
    }

    /// Brings what was replayed to stable storage and says so in the mark: after the death of the
    /// process that wrote it, it may be in the page cache only.
    pub(super) fn make_durable(&self, mark: &mut MarkFile, boot: u64) -> JournalResult<()> {
        let vouched = self.mark.segment;
        for candidate in &self.candidates {
            if candidate.live.number >= vouched {
                candidate.live.sync()?;
            }
        }
        self.storage
            .sync_dir(self.dir)
            .map_err(JournalError::io(self.dir))?;
        let newest = self.newest();
        mark.update(|mark| {
            mark.seq = self.report.last_seq;
            mark.segment = newest;
            mark.first_segment = self.mark.first_segment;
            mark.boot = boot;
            mark.clean = false;
        })?;
        mark.sync()
    }
}

/// Has a mark begin with the first segment that there is, where it names an older one.
fn begin_with(mark: &mut Mark, candidates: &[Candidate]) {
    if let Some(first) = candidates.first() {
        mark.first_segment = first.live.number;
        mark.segment = mark.segment.max(mark.first_segment);
    }
}

/// Opens all segments that belong to the journal, in order; removes (where `tidy`) those that were
/// dropped before.
fn find_segments(
    storage: &dyn Storage,
    dir: &str,
    mark: &Mark,
    tidy: bool,
) -> JournalResult<Vec<Candidate>> {
    let mut candidates = Vec::new();
    for number in segment::list(storage, dir)? {
        if number < mark.first_segment && !tidy {
            continue;
        }
        if number < mark.first_segment {
            let path = segment::path(dir, number);
            storage.remove(&path).map_err(JournalError::io(&path))?;
            continue;
        }
        let live = Live::open(storage, dir, number)?;
        let header = segment::read_header(&live, mark.journal)?;
        if let Some(header) = header {
            mark::refuse_newer(&live.path, header.version)?;
        }
        candidates.push(Candidate { live, header });
    }
    Ok(candidates)
}
