//! Ending a damaged journal before its first bad record. The caller has set aside what it was.

use super::error::{JournalError, JournalResult};
use super::format::{Mark, SEGMENT_HEADER_BYTES, SegmentHeader, VERSION};
use super::mark::MarkFile;
use super::recovery::Recovery;
use super::{Journal, JournalConfig, segment};
use objstore::io::Storage;

impl Journal {
    /// Cuts the journal in `dir` where its first record with a bad header or metadata stands, also where
    /// that was acknowledged, so that it can be recovered again. Bad payloads stay: they cost their own
    /// bytes only. Fails where not even the records before `from_seq` are there; without it, none need be.
    pub fn repair(
        storage: &dyn Storage,
        dir: &str,
        from_seq: Option<u64>,
        boot: u64,
    ) -> JournalResult<()> {
        let mut mark = match MarkFile::open(storage, dir) {
            Ok(Some(mark)) => mark,
            Ok(None) | Err(JournalError::MarkDamaged { .. }) => make_mark(storage, dir)?,
            Err(e) => return Err(e),
        };
        let cfg = JournalConfig::default();
        let first = from_seq.unwrap_or(1);
        let mut recovery = Recovery::new(storage, dir, first, &mark, &cfg, false)?;
        recovery.forgive(true)?;
        if from_seq.is_none() {
            recovery.need_oldest();
        }
        let cut = recovery.replay(&mut |_| Ok(()))?;
        recovery.check_end()?;
        if let Some(cut) = cut {
            recovery.cut(cut)?;
        }
        // A mark that is changed in place never goes back.
        if let Some(lower) = recovery.lower_mark(mark.last()) {
            mark = MarkFile::create(storage, dir, lower)?;
        }
        recovery.make_durable(&mut mark, boot)
    }
}

/// A mark that vouches for nothing, made from the first segment's header.
fn make_mark(storage: &dyn Storage, dir: &str) -> JournalResult<MarkFile> {
    for number in segment::list(storage, dir)? {
        let live = segment::Live::open(storage, dir, number)?;
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        let read = live.file.read_at(0, &mut bytes).is_ok();
        if let Some(header) = SegmentHeader::decode(&bytes).filter(|_| read) {
            let mark = Mark {
                version: VERSION as u16,
                clean: false,
                journal: header.journal,
                generation: 1,
                seq: header.first_seq - 1,
                segment: header.segment,
                first_segment: header.segment,
                boot: 0,
            };
            return MarkFile::create(storage, dir, mark);
        }
    }
    Err(JournalError::Missing {
        dir: dir.to_owned(),
    })
}
