//! Journals: the walk over a segment, and recovery.

use crate::{disk, seal};
use engine::journal::{Journal, JournalConfig, check_record_bytes};
use objstore::io::Storage;
use std::sync::Arc;

const DIR: &str = "journal";

/// Recovery gives records or an error, and the same records when it is done again.
///
/// The first byte says how many records the mark claims to be synced; the rest is a segment.
pub fn check(bytes: &[u8]) {
    check_record_bytes(bytes);
    let Some((&synced, segment)) = bytes.split_first() else {
        return;
    };
    let segment = seal::segment(segment);
    check_record_bytes(&segment);
    let disk = disk::with_files(&[
        ("journal/mark", &seal::mark(u64::from(synced))),
        ("journal/00000001.seg", &segment),
    ]);
    let Ok(disk) = disk else { return };
    if let Some(first) = recover(&disk) {
        assert_eq!(recover(&disk), Some(first), "recovered otherwise");
    }
}

fn recover(disk: &Arc<dyn Storage>) -> Option<Vec<(u64, Vec<u8>)>> {
    let mut found = Vec::new();
    let config = JournalConfig::default();
    let (journal, _) = Journal::recover(disk.clone(), DIR, 1, config, &mut |r| {
        found.push((r.seq, r.meta.to_vec()));
        Ok(())
    })
    .ok()?;
    assert_eq!(journal.last_seq(), found.len() as u64);
    Some(found)
}
