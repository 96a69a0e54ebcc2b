//! What can still be read of a damaged state file, and whether a branch ever had one.

use super::{
    HEADER, StateFile, StateHead, VERSION_KV, VERSION_LATER, VERSION_TIMELINE, read_state,
    timeline_of,
};
use crate::book::later::Later;
use crate::book::timeline::Timeline;
use crate::branch::frames::{Reader, frames_are_whole};
use crate::error::{Error, Result};
use crate::journal::{Journal, JournalError};
use objstore::content::FileContent;

/// What can be read of a damaged state file, each part by itself.
#[derive(Debug, Default)]
pub struct Left {
    /// The head.
    pub head: Option<StateHead>,
    /// The key-value state.
    pub kv: Option<Option<FileContent>>,
    /// The timeline.
    pub timeline: Option<Timeline>,
    /// What was asked for after steps of undo.
    pub later: Vec<Later>,
}

/// Reading what is damaged.
impl StateFile<'_> {
    /// Numbers of all state files, ascending.
    pub fn numbers(&self) -> Result<Vec<u32>> {
        let names = self.storage.list(self.dir).map_err(Error::io(self.dir))?;
        let numbers = names.iter().filter_map(|n| n.strip_prefix("state-"));
        Ok(numbers.filter_map(|n| n.parse().ok()).collect())
    }

    /// A state file with a whole header, whatever its header is; `None` where more is damaged.
    pub fn mended(&self, number: u32) -> Option<Vec<u8>> {
        let mut bytes = self.storage.read(&self.path(number)).ok()??;
        let mut versions = (HEADER.oldest..=HEADER.version).rev();
        let fits = versions.any(|version| {
            HEADER.put_over(&mut bytes, version) && read_state(&bytes[..], &mut |_| Ok(())).is_ok()
        });
        fits.then_some(bytes)
    }

    /// True where nothing is wrong with a file itself.
    pub fn is_whole(&self, number: u32) -> bool {
        let bytes = self.storage.read(&self.path(number)).ok().flatten();
        bytes.is_some_and(|b| read_state(&b[..], &mut |_| Ok(())).is_ok())
    }

    /// True where a file is of a version that is not known yet: all that is wrong with it is the reader.
    pub fn is_newer(&self, number: u32) -> bool {
        let bytes = self.storage.read(&self.path(number));
        let bytes = bytes.ok().flatten().unwrap_or_default();
        HEADER.is_newer(&bytes) && frames_are_whole(&bytes) && self.mended(number).is_none()
    }

    /// What can be read of the parts of a file.
    pub fn left(&self, number: u32) -> Left {
        let bytes = self.storage.read(&self.path(number)).ok().flatten();
        let Some(mut bytes) = bytes else {
            return Left::default();
        };
        let version = u32::from_le_bytes([8, 9, 10, 11].map(|i| bytes.get(i).map_or(0, |b| *b)));
        let known = (HEADER.oldest..=HEADER.version).contains(&version);
        let version = if known { version } else { HEADER.version };
        HEADER.put_over(&mut bytes, version);
        let Ok(mut reader) = Reader::begin(&bytes[..], &HEADER) else {
            return Left::default();
        };
        let head = reader.value().ok();
        let kv = match version < VERSION_KV {
            true => Some(None),
            false => reader.value().ok(),
        };
        let timeline = match version < VERSION_TIMELINE {
            true => Some(Timeline::default()),
            false => timeline_of(&mut reader).ok(),
        };
        let later = match version < VERSION_LATER {
            true => Vec::new(),
            false => reader.value().unwrap_or_default(),
        };
        Left {
            head,
            kv,
            timeline,
            later,
        }
    }

    /// An error where there is no state though there was one: what the journal has would be lost by
    /// making the branch anew.
    pub fn check_never_made(&self, boot: u64) -> Result<()> {
        let is_main = self.dir.rsplit('/').next() == Some(crate::names::MAIN);
        let journal = format!("{}/journal", self.dir);
        let left = Journal::inspect_left(self.storage, &journal, boot, &mut |_| Ok(()));
        let never = match left {
            // Its first state is all that a branch has before its state file.
            Ok((report, _)) => report.last_seq <= 1,
            Err(JournalError::Missing { .. }) => true,
            Err(_) => false,
        };
        let later = self.numbers()?.into_iter().any(|n| n > 1);
        match is_main && never && !later {
            true => Ok(()),
            false => Err(Error::Damaged {
                what: self.pointer(),
                why: "it is missing".into(),
            }),
        }
    }
}
