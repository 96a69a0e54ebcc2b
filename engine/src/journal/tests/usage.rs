//! The journal in ordinary use.

use super::*;
use crate::journal::{JournalError, check_record_bytes};
use objstore::file_storage::FileStorage;
use proptest::prelude::*;

#[test]
fn any_range_of_a_payload_reads_back() {
    let disk = disk();
    let mut cfg = small(1);
    cfg.cap_bytes = 1 << 30;
    let journal = Journal::create(disk, DIR, cfg).unwrap();
    let data: Vec<u8> = (0..3_000_001usize).map(|i| (i % 251) as u8).collect();
    let p = journal.append(b"m", &data).unwrap().payload.unwrap();
    let ranges = [
        (0, 1),
        (0, 4096),
        (1, 4095),
        (4095, 2),
        (100, 2_000_000),
        (0, 3_000_001),
    ];
    for (from, len) in ranges
        .into_iter()
        .chain([(2_999_999, 2), (3_000_001, 0), (8192, 1 << 20)])
    {
        let mut buf = vec![0; len];
        journal.read(p, from as u32, &mut buf).unwrap();
        assert_eq!(buf, data[from..from + len]);
        buf.fill(0);
        assert!(journal.try_read(p, from as u32, &mut buf).unwrap());
        assert_eq!(buf, data[from..from + len]);
    }
}

#[test]
fn references_that_were_never_given_are_refused() {
    let disk = disk();
    let journal = Journal::create(disk, DIR, small(1)).unwrap();
    let p = journal.append(b"m", &[1; 100]).unwrap().payload.unwrap();
    let mut buf = [0; 100];
    let refused = [
        (PayloadRef { segment: 9, ..p }, 0),
        (PayloadRef { offset: 3, ..p }, 0),
        (
            PayloadRef {
                offset: 1 << 40,
                ..p
            },
            0,
        ),
        (PayloadRef { len: u32::MAX, ..p }, 0),
        (p, 1),
    ];
    for (p, from) in refused {
        let error = journal.read(p, from, &mut buf).unwrap_err();
        assert!(matches!(error, JournalError::BadRef { .. }), "{error}");
    }
    let too_long = journal.append(&vec![0; 5 << 20], b"");
    assert!(matches!(too_long, Err(JournalError::TooLarge { .. })));
}

#[test]
fn closed_in_order_is_told_from_killed() {
    let disk = disk();
    let journal = Journal::create(disk.clone(), DIR, small(1)).unwrap();
    append_all(&journal, 1..=3);
    journal.mark_clean().unwrap();
    drop(journal);
    let recovered = recover(&disk, 1, small(1)).unwrap();
    assert!(recovered.report.clean);
    append(&recovered.journal, 4);
    drop(recovered);
    assert!(!recover(&disk, 1, small(1)).unwrap().report.clean);
    assert!(matches!(
        Journal::create(disk, DIR, small(1)),
        Err(JournalError::Exists { .. })
    ));
}

#[test]
fn recovery_begins_where_it_is_told_and_passes_on_refusals() {
    let dir = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(FileStorage::open(dir.path()).unwrap());
    let journal = Journal::create(storage.clone(), DIR, small(0)).unwrap();
    append_all(&journal, 1..=40);
    journal.sync(40).unwrap();
    assert!(journal.current_segment() > 3);
    drop(journal);
    let mut first = None;
    let (_, report) = Journal::recover(storage.clone(), DIR, 31, small(0), &mut |record| {
        first.get_or_insert(record.seq);
        Ok(())
    })
    .unwrap();
    assert_eq!((first, report.records, report.last_seq), (Some(31), 10, 40));
    let refused = Journal::recover(storage, DIR, 1, small(0), &mut |record| match record.seq {
        5 => Err(JournalError::Replay {
            seq: 5,
            source: "no".into(),
        }),
        _ => Ok(()),
    });
    assert!(matches!(refused, Err(JournalError::Replay { seq: 5, .. })));
}

#[test]
fn roll_of_an_empty_segment_is_that_segment() {
    let journal = Journal::create(disk(), DIR, small(1)).unwrap();
    assert_eq!(journal.roll().unwrap(), 1);
    append_all(&journal, 1..=2);
    assert!(journal.unsynced_since().is_some());
    assert_eq!(journal.roll().unwrap(), 2);
    assert_eq!(journal.synced_seq(), 2);
    assert!(journal.unsynced_since().is_none());
    assert_eq!(journal.roll().unwrap(), 2);
    journal.drop_before(99).unwrap();
    assert_eq!((journal.first_segment(), journal.current_segment()), (2, 2));
}

#[test]
fn lengths_in_hostile_bytes_are_not_believed() {
    let disk = disk();
    let journal = Journal::create(disk.clone(), DIR, small(1)).unwrap();
    append_all(&journal, 1..=9);
    let bytes = disk.read(&segment(1)).unwrap().unwrap();
    check_record_bytes(&bytes);
    for cut in (0..bytes.len()).step_by(97) {
        check_record_bytes(&bytes[..cut]);
        let mut flipped = bytes.clone();
        flipped[cut] ^= 0x80;
        check_record_bytes(&flipped);
    }
}

proptest! {
    #[test]
    fn any_bytes_decode_to_something_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        check_record_bytes(&bytes);
    }
}
