//! The mark file: how far the journal is known to be on stable storage.
//!
//! Owns the file `mark` of a journal, two slots of which the one with the higher generation holds.
//! Invariant: a slot is written only after what it vouches for is on stable storage, so at whatever
//! moment it becomes durable itself, it is true. Most writes are not synced (that would double the
//! cost of each commit), so a power cut may tear them: they all go to the same slot, while the other
//! one is on stable storage. Only a synced write makes the two change places.

use super::error::{JournalError, JournalResult};
use super::format::{Mark, SLOT_BYTES, SLOT_STRIDE, VERSION};
use objstore::io::{Segment, Storage};
use std::sync::Arc;

/// The open mark file.
#[derive(Debug)]
pub(crate) struct MarkFile {
    path: String,
    file: Arc<dyn Segment>,
    last: Mark,
    durable_slot: usize,
    /// It was cut off: the other slot cannot be written.
    is_cut: bool,
    /// The other slot says nothing, so there may have been a newer one.
    is_alone: bool,
}

impl MarkFile {
    /// Makes the file, durably.
    pub(crate) fn create(storage: &dyn Storage, dir: &str, mark: Mark) -> JournalResult<MarkFile> {
        let path = path(dir);
        let mut bytes = vec![0; 2 * SLOT_STRIDE];
        bytes[..SLOT_BYTES].copy_from_slice(&mark.encode());
        storage
            .replace(&path, &bytes)
            .map_err(JournalError::io(&path))?;
        let file = storage.open(&path).map_err(JournalError::io(&path))?;
        Ok(MarkFile {
            path,
            file,
            last: mark,
            durable_slot: 0,
            is_cut: false,
            is_alone: true,
        })
    }

    /// Opens the file and makes the slot that holds durable: after the death of the process that
    /// wrote it, it may be in the page cache only. `None` where there is no such file.
    pub(crate) fn open(storage: &dyn Storage, dir: &str) -> JournalResult<Option<MarkFile>> {
        let path = path(dir);
        let Some(bytes) = storage.read(&path).map_err(JournalError::io(&path))? else {
            return Ok(None);
        };
        let Some((durable_slot, last)) = newest_slot(&bytes) else {
            let what = "no slot of the mark is valid";
            return Err(JournalError::MarkDamaged { path, what });
        };
        refuse_newer(&path, u32::from(last.version))?;
        let file = storage.open(&path).map_err(JournalError::io(&path))?;
        file.sync().map_err(JournalError::io(&path))?;
        Ok(Some(MarkFile {
            path,
            file,
            last,
            durable_slot,
            is_cut: bytes.len() < 2 * SLOT_STRIDE,
            is_alone: slot(&bytes, 1 - durable_slot).is_none(),
        }))
    }

    /// True where the file is shorter than it is made, which no power cut does.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// True where only one slot is valid: the mark may have said more once.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// The mark in a file of the full length: a new one where this one was cut off.
    pub(crate) fn whole(self, storage: &dyn Storage, dir: &str) -> JournalResult<MarkFile> {
        if !self.is_cut {
            return Ok(self);
        }
        tracing::warn!("{} was cut off: it is rewritten", self.path);
        MarkFile::create(storage, dir, self.last)
    }

    /// What the mark says now.
    pub(crate) fn last(&self) -> &Mark {
        &self.last
    }

    /// Writes a changed mark. It is not durable yet.
    pub(crate) fn update(&mut self, change: impl FnOnce(&mut Mark)) -> JournalResult<()> {
        let mut mark = self.last;
        change(&mut mark);
        assert!(mark.seq >= self.last.seq && mark.segment >= self.last.segment);
        mark.generation += 1;
        let offset = (1 - self.durable_slot) * SLOT_STRIDE;
        self.file
            .write_at(offset as u64, &mark.encode())
            .map_err(JournalError::io(&self.path))?;
        self.last = mark;
        Ok(())
    }

    /// Brings the last [`MarkFile::update`] to stable storage; there must have been one.
    pub(crate) fn sync(&mut self) -> JournalResult<()> {
        self.file.sync().map_err(JournalError::io(&self.path))?;
        self.durable_slot = 1 - self.durable_slot;
        Ok(())
    }
}

/// Path of the mark file of the journal in `dir`.
pub(crate) fn path(dir: &str) -> String {
    format!("{dir}/mark")
}

/// Refuses what a later version of the program wrote.
pub(crate) fn refuse_newer(path: &str, found: u32) -> JournalResult<()> {
    if found <= VERSION {
        return Ok(());
    }
    Err(JournalError::NewerVersion {
        path: path.to_owned(),
        found,
        known: VERSION,
    })
}

/// The valid slot with the higher generation, and which of the two it is.
pub(crate) fn newest_slot(bytes: &[u8]) -> Option<(usize, Mark)> {
    (0..2)
        .filter_map(|number| Some((number, slot(bytes, number)?)))
        .max_by_key(|(_, mark)| mark.generation)
}

/// What a slot says, where it is valid.
fn slot(bytes: &[u8], number: usize) -> Option<Mark> {
    Mark::decode(bytes.get(number * SLOT_STRIDE..)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use objstore::crash_storage::CrashStorage;

    fn mark(seq: u64) -> Mark {
        Mark {
            version: VERSION as u16,
            clean: false,
            journal: 9,
            generation: 1,
            seq,
            segment: 1,
            first_segment: 1,
            boot: 0,
        }
    }

    /// The slot that a power cut cannot hurt, by the sequence number in it.
    fn untouched_slot(storage: &CrashStorage) -> u64 {
        let bytes = storage.read("j/mark").unwrap().unwrap();
        let (newest, _) = newest_slot(&bytes).unwrap();
        Mark::decode(&bytes[(1 - newest) * SLOT_STRIDE..])
            .unwrap()
            .seq
    }

    #[test]
    fn writes_that_are_not_synced_leave_the_synced_slot_alone() {
        let storage = CrashStorage::new();
        storage.create_dir_all("j").unwrap();
        let mut file = MarkFile::create(&storage, "j", mark(5)).unwrap();
        for seq in 6..9 {
            file.update(|m| m.seq = seq).unwrap();
            assert_eq!(untouched_slot(&storage), 5);
        }
        file.sync().unwrap();
        for seq in 9..12 {
            file.update(|m| m.seq = seq).unwrap();
            assert_eq!(untouched_slot(&storage), 8);
        }
    }

    /// What the killed process wrote last was not synced: opening makes it the slot to be kept.
    #[test]
    fn opening_keeps_the_slot_that_holds() {
        let storage = CrashStorage::new();
        storage.create_dir_all("j").unwrap();
        let mut file = MarkFile::create(&storage, "j", mark(5)).unwrap();
        file.update(|m| m.seq = 6).unwrap();
        drop(file);
        let before = storage.op_count();
        let mut file = MarkFile::open(&storage, "j").unwrap().unwrap();
        assert_eq!(file.last().seq, 6);
        assert_eq!(storage.op_count(), before + 1, "it was synced");
        file.update(|m| m.seq = 7).unwrap();
        assert_eq!(untouched_slot(&storage), 6);
    }
}
