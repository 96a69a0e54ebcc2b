//! Looking at a journal without opening it: nothing on disk is changed.
//!
//! For gc and fsck, which want to know what the journal of a closed branch refers to.

use super::error::JournalResult;
use super::recovery::{Each, Recovery, RecoveryReport};
use super::segment::Live;
use super::{Journal, JournalConfig, PayloadRef, reader};
use objstore::io::Storage;

/// A journal that was looked at.
#[derive(Debug)]
pub struct Inspected {
    /// What recovery would find.
    pub report: RecoveryReport,
    segments: Vec<Live>,
}

impl Journal {
    /// Gives each record from `from_seq` on that recovery would keep to `each`, in order. Fails where
    /// recovery would.
    pub fn inspect(
        storage: &dyn Storage,
        dir: &str,
        from_seq: u64,
        boot: u64,
        each: &mut Each<'_>,
    ) -> JournalResult<Inspected> {
        let mark = super::recovery::open_mark(storage, dir)?;
        let cfg = JournalConfig {
            boot,
            ..JournalConfig::default()
        };
        let mut recovery = Recovery::new(storage, dir, from_seq, &mark, &cfg, false)?;
        recovery.check_acknowledged_segments()?;
        recovery.replay(each)?;
        recovery.check_end()?;
        let report = recovery.report();
        Ok(Inspected {
            report,
            segments: recovery.into_segments(),
        })
    }
}

impl Inspected {
    /// True where the payload is in one of this journal's segments.
    pub fn has(&self, p: PayloadRef) -> bool {
        self.segments.iter().any(|s| s.number == p.segment)
    }

    /// As [`Journal::read`].
    pub fn read(&self, p: PayloadRef, from: u32, buf: &mut [u8]) -> JournalResult<()> {
        let live = self.segments.iter().find(|s| s.number == p.segment);
        let live = live.ok_or_else(|| reader::bad_ref(p))?;
        reader::read(live, p, from, buf, reader::Wait::Yes).map(|_| ())
    }
}
