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
    /// Its mark was cut off; what is left of that still holds.
    pub is_mark_cut: bool,
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
            is_mark_cut: mark.is_cut(),
            segments: recovery.into_segments(),
        })
    }

    /// Gives each record that is still there to `each`, the oldest first: all that recovery would keep,
    /// or, where that would fail, those before the first bad one. Also says which of both it was.
    pub fn inspect_left(
        storage: &dyn Storage,
        dir: &str,
        boot: u64,
        each: &mut Each<'_>,
    ) -> JournalResult<(RecoveryReport, bool)> {
        let mark = super::recovery::open_mark(storage, dir)?;
        let walk = |boot: u64, whole: bool, each: &mut Each<'_>| {
            let cfg = JournalConfig {
                boot,
                ..JournalConfig::default()
            };
            let mut recovery = Recovery::new(storage, dir, 1, &mark, &cfg, false)?;
            match whole {
                true => recovery.check_acknowledged_segments()?,
                false => recovery.forgive(false)?,
            }
            recovery.need_oldest();
            recovery.replay(each)?;
            recovery.check_end()?;
            Ok(recovery.report())
        };
        let whole = walk(boot, true, &mut |_| Ok(())).is_ok();
        walk(boot, whole, each).map(|report| (report, whole))
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
