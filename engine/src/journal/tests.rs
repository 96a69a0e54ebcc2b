//! Tests of the journal, and what they share: records that can be told from their number.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod crash;
mod damage;
mod faults;
mod threads;
mod usage;

use super::{Journal, JournalConfig, JournalResult, PayloadRef, RecoveryReport};
use objstore::crash_storage::CrashStorage;
use objstore::io::Storage;
use std::sync::Arc;

const DIR: &str = "branch/journal";

fn small(boot: u64) -> JournalConfig {
    JournalConfig {
        number: 0,
        segment_bytes_max: 24 << 10,
        cap_bytes: 1 << 20,
        reserve_bytes: 1 << 10,
        boot,
    }
}

fn disk() -> Arc<CrashStorage> {
    Arc::new(CrashStorage::new())
}

/// Metadata of a record: its number, and some bytes so that lengths differ.
fn meta_of(seq: u64) -> Vec<u8> {
    let mut meta = seq.to_le_bytes().to_vec();
    meta.resize(8 + (seq as usize * 7) % 150, seq as u8);
    meta
}

/// Payload of a record: none, a piece of a block, a whole one, or several.
fn payload_of(seq: u64) -> Vec<u8> {
    let len = [0, 100, 0, 4096, 5000, 0, 12_289][seq as usize % 7];
    (0..len)
        .map(|i| (seq as usize * 31 + i / 3) as u8)
        .collect()
}

fn append(journal: &Journal, seq: u64) -> Option<PayloadRef> {
    let appended = journal.append(&meta_of(seq), &payload_of(seq)).unwrap();
    assert_eq!(appended.seq, seq);
    appended.payload
}

fn append_all(journal: &Journal, seqs: std::ops::RangeInclusive<u64>) {
    for seq in seqs {
        append(journal, seq);
    }
}

/// What a recovery delivered.
#[derive(Debug)]
struct Recovered {
    journal: Journal,
    report: RecoveryReport,
    payloads: Vec<(u64, Option<PayloadRef>)>,
}

/// Recovers and checks that the delivered records are `from..=last`, in order and unaltered.
fn recover(storage: &Arc<CrashStorage>, from: u64, cfg: JournalConfig) -> JournalResult<Recovered> {
    let storage: Arc<dyn Storage> = storage.clone();
    let mut payloads = Vec::new();
    let (journal, report) = Journal::recover(storage, DIR, from, cfg, &mut |record| {
        assert_eq!(record.seq, from + payloads.len() as u64);
        assert_eq!(record.meta, meta_of(record.seq));
        let len = record.payload.map_or(0, |p| p.len as usize);
        assert_eq!(len, payload_of(record.seq).len());
        payloads.push((record.seq, record.payload));
        Ok(())
    })?;
    assert_eq!(report.records, payloads.len() as u64);
    assert_eq!(report.last_seq + 1, from + report.records);
    Ok(Recovered {
        journal,
        report,
        payloads,
    })
}

impl Recovered {
    /// Reads all payloads; those that are not what was written, by number.
    fn bad_payloads(&self) -> Vec<u64> {
        let with_payload = self
            .payloads
            .iter()
            .filter_map(|(seq, p)| Some((*seq, (*p)?)));
        let bad = with_payload.filter(|(seq, p)| {
            let mut buf = vec![0; p.len as usize];
            match self.journal.read(*p, 0, &mut buf) {
                Ok(()) => {
                    assert_eq!(buf, payload_of(*seq), "record {seq}: wrong bytes given out");
                    false
                }
                Err(_) => true,
            }
        });
        bad.map(|(seq, _)| seq).collect()
    }
}

/// Flips one bit of a file.
fn flip(storage: &CrashStorage, path: &str, byte: u64, bit: u8) {
    let file = storage.open(path).unwrap();
    let mut value = [0];
    file.read_at(byte, &mut value).unwrap();
    file.write_at(byte, &[value[0] ^ (1 << bit)]).unwrap();
}

fn segment(number: u32) -> String {
    super::segment::path(DIR, number)
}
