//! Failing disks: full ones, and ones that lose what they took.

use super::*;
use crate::journal::JournalError;
use objstore::crash_storage::{Fault, FaultOp};

fn fresh() -> (Arc<CrashStorage>, Journal) {
    let disk = disk();
    let journal = Journal::create(disk.clone(), DIR, small(1)).unwrap();
    append_all(&journal, 1..=4);
    (disk, journal)
}

#[test]
fn failed_sync_poisons_and_reads_go_on() {
    let (disk, journal) = fresh();
    let payload = append(&journal, 5);
    assert_eq!(payload, None);
    let payload = append(&journal, 6).unwrap();
    disk.fail_nth(FaultOp::Sync, 1, Fault::Io);
    assert!(matches!(
        journal.sync(2),
        Err(JournalError::Poisoned { .. })
    ));
    assert!(matches!(
        journal.sync(2),
        Err(JournalError::Poisoned { .. })
    ));
    assert!(matches!(
        journal.append(b"x", b""),
        Err(JournalError::Poisoned { .. })
    ));
    assert!(matches!(journal.roll(), Err(JournalError::Poisoned { .. })));
    assert!(matches!(
        journal.mark_clean(),
        Err(JournalError::Poisoned { .. })
    ));
    assert!(journal.poisoned().unwrap().contains("00000001.seg"));
    assert_eq!(journal.synced_seq(), 0);
    let mut buf = vec![0; payload.len as usize];
    journal.read(payload, 0, &mut buf).unwrap();
    assert_eq!(buf, payload_of(6));
}

#[test]
fn failed_sync_of_a_directory_poisons() {
    let (disk, journal) = fresh();
    append_all(&journal, 5..=30);
    disk.fail_nth(FaultOp::SyncDir, 1, Fault::Io);
    assert!(matches!(
        journal.sync(30),
        Err(JournalError::Poisoned { .. })
    ));
    assert_eq!(journal.synced_seq(), 0);
}

#[test]
fn full_disk_leaves_the_journal_as_it_was() {
    let (disk, journal) = fresh();
    disk.fail_nth(FaultOp::Append, 1, Fault::NoSpace);
    let error = journal.append(&meta_of(5), &payload_of(5)).unwrap_err();
    assert!(error.is_no_space());
    assert_eq!(journal.last_seq(), 4);
    append_all(&journal, 5..=6);
    journal.sync(6).unwrap();
    drop(journal);
    assert_eq!(recover(&disk, 1, small(1)).unwrap().report.last_seq, 6);
}

#[test]
fn full_disk_while_a_segment_is_begun_leaves_the_journal_as_it_was() {
    for call in [FaultOp::Create, FaultOp::Append] {
        let (disk, journal) = fresh();
        append_all(&journal, 5..=6);
        let mut seq = 7;
        let mut refused = 0;
        while refused < 3 {
            let segment = journal.current_segment();
            disk.fail_nth(call, 1, Fault::NoSpace);
            match journal.append(&meta_of(seq), &payload_of(seq)) {
                Ok(_) => seq += 1,
                Err(error) => {
                    assert!(error.is_no_space());
                    refused += 1;
                    disk.clear_faults();
                    append(&journal, seq);
                    seq += 1;
                    assert!(journal.current_segment() <= segment + 1);
                }
            }
        }
        disk.clear_faults();
        journal.sync(u64::MAX).unwrap();
        drop(journal);
        assert_eq!(
            recover(&disk, 1, small(1)).unwrap().report.last_seq,
            seq - 1
        );
    }
}

#[test]
fn failed_write_that_is_not_about_space_poisons() {
    let (disk, journal) = fresh();
    disk.fail_nth(FaultOp::Append, 1, Fault::Io);
    assert!(matches!(
        journal.append(b"x", b"y"),
        Err(JournalError::Io { .. })
    ));
    assert!(matches!(
        journal.append(b"x", b"y"),
        Err(JournalError::Poisoned { .. })
    ));
    drop(journal);
    assert_eq!(recover(&disk, 1, small(1)).unwrap().report.last_seq, 4);
}

#[test]
fn cap_refuses_and_the_reserve_goes_on() {
    let disk = disk();
    let mut cfg = small(1);
    cfg.cap_bytes = 64 << 10;
    let journal = Journal::create(disk.clone(), DIR, cfg).unwrap();
    let mut taken = 0;
    let full = loop {
        match journal.append(b"x", &[1; 4000]) {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(taken >= 14 && matches!(full, JournalError::Full { .. }));
    assert!(!full.is_no_space());
    while journal.append(b"x", b"").is_ok() {}
    journal.append_reserve(b"delete", b"").unwrap();
    assert!(journal.append_reserve(b"x", &[1; 4000]).is_err());
    let segment = journal.roll().unwrap();
    journal.drop_before(segment).unwrap();
    assert_eq!(journal.bytes(), 64);
    journal.append(b"x", &[1; 4000]).unwrap();
}
