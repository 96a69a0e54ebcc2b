//! One changed bit, one missing file: found, named, and never given out as data.

use super::*;
use crate::journal::format::{RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, SLOT_STRIDE};
use crate::journal::{JournalError, Needed};

const BOOT: u64 = 7;

/// A journal of one segment with `count` records of which the first `synced` are acknowledged.
fn journal(count: u64, synced: u64) -> (Arc<CrashStorage>, Vec<Option<PayloadRef>>) {
    let disk = disk();
    let mut cfg = small(BOOT);
    cfg.segment_bytes_max = 1 << 20;
    let journal = Journal::create(disk.clone(), DIR, cfg).unwrap();
    let payloads = (1..=count).map(|seq| {
        let payload = append(&journal, seq);
        if seq == synced {
            journal.sync(seq).unwrap();
        }
        payload
    });
    let payloads = payloads.collect();
    (disk, payloads)
}

/// Offset of a record that has a payload.
fn record_at(seq: u64, payload: PayloadRef) -> u64 {
    let crcs = payload_of(seq).len().div_ceil(4096) * 4;
    payload.offset - (RECORD_HEADER_BYTES + meta_of(seq).len() + crcs) as u64
}

fn is_damaged(result: JournalResult<Recovered>, wanted_seq: u64) {
    match result {
        Err(JournalError::Damaged { seq, .. }) => assert_eq!(seq, wanted_seq),
        other => panic!("{other:?}"),
    }
}

#[test]
fn flipped_header_or_metadata_of_an_acknowledged_record_is_damage() {
    let (disk, payloads) = journal(9, 9);
    let payload = payloads[3].unwrap();
    for byte in record_at(4, payload)..payload.offset {
        for bit in [0, 7] {
            flip(&disk, &segment(1), byte, bit);
            is_damaged(recover(&disk, 1, small(0)), 4);
            flip(&disk, &segment(1), byte, bit);
        }
    }
    assert_eq!(recover(&disk, 1, small(0)).unwrap().report.last_seq, 9);
}

#[test]
fn flipped_payload_of_an_acknowledged_record_costs_that_payload_only() {
    let (disk, payloads) = journal(9, 9);
    let payload = payloads[5].unwrap();
    flip(&disk, &segment(1), payload.offset + 4100, 3);
    let recovered = recover(&disk, 1, small(0)).unwrap();
    assert_eq!(recovered.report.last_seq, 9);
    assert_eq!(recovered.bad_payloads(), [6]);
    let mut buf = vec![0; 4096];
    recovered.journal.read(payload, 0, &mut buf).unwrap();
    let error = recovered.journal.read(payload, 4095, &mut buf).unwrap_err();
    let bad_block = payload.offset + 4096;
    assert!(
        matches!(error, JournalError::PayloadDamaged { segment: 1, offset } if offset == bad_block)
    );
}

#[test]
fn flipped_segment_header_is_damage() {
    let (disk, _) = journal(3, 2);
    for byte in 0..SEGMENT_HEADER_BYTES as u64 {
        flip(&disk, &segment(1), byte, 2);
        is_damaged(recover(&disk, 1, small(0)), 2);
        flip(&disk, &segment(1), byte, 2);
    }
}

#[test]
fn one_bad_slot_of_the_mark_is_no_matter_two_are_damage() {
    let (disk, _) = journal(9, 5);
    let mark = format!("{DIR}/mark");
    for byte in 0..64 {
        for slot in [0, SLOT_STRIDE as u64] {
            flip(&disk, &mark, slot + byte, 1);
            let recovered = recover(&disk, 1, small(BOOT)).unwrap();
            assert_eq!(recovered.report.last_seq, 9);
        }
        flip(&disk, &mark, byte, 1);
        flip(&disk, &mark, SLOT_STRIDE as u64 + byte, 1);
        let error = recover(&disk, 1, small(BOOT)).unwrap_err();
        assert!(matches!(error, JournalError::MarkDamaged { .. }), "{error}");
        flip(&disk, &mark, byte, 1);
        flip(&disk, &mark, SLOT_STRIDE as u64 + byte, 1);
    }
}

#[test]
fn mark_that_was_cut_off_holds_with_what_is_left_and_is_made_whole() {
    let (disk, _) = journal(9, 5);
    let mark = format!("{DIR}/mark");
    disk.open(&mark)
        .unwrap()
        .truncate(SLOT_STRIDE as u64)
        .unwrap();
    let inspected = Journal::inspect(&*disk, DIR, 1, BOOT, &mut |_| Ok(())).unwrap();
    assert!(inspected.is_mark_cut, "looking changes nothing");
    let recovered = recover(&disk, 1, small(BOOT)).unwrap();
    assert_eq!(recovered.report.last_seq, 9);
    recovered.journal.sync(9).unwrap();
    drop(recovered);
    let inspected = Journal::inspect(&*disk, DIR, 1, BOOT, &mut |_| Ok(())).unwrap();
    assert!(!inspected.is_mark_cut);
}

/// The slot that says which segments were dropped is lost; the other one still names them.
#[test]
fn one_bad_slot_is_no_matter_after_segments_were_dropped() {
    for slot in [0, SLOT_STRIDE as u64] {
        let disk = disk();
        let journal = Journal::create(disk.clone(), DIR, small(BOOT)).unwrap();
        append_all(&journal, 1..=30);
        journal.sync(30).unwrap();
        let current = journal.roll().unwrap();
        journal.drop_before(current).unwrap();
        drop(journal);
        flip(&disk, &format!("{DIR}/mark"), slot + 9, 1);
        let report = recover(&disk, 31, small(BOOT)).unwrap().report;
        assert_eq!(report.last_seq, 30, "slot at {slot}");
    }
}

/// Segments that are whole stay as they are; no number is given again.
#[test]
fn journal_without_its_needed_records_begins_anew_behind_what_it_has() {
    let (disk, payloads) = journal(9, 9);
    let journal = recover(&disk, 1, small(BOOT)).unwrap().journal;
    let next = journal.roll().unwrap();
    append_all(&journal, 10..=12);
    journal.sync(12).unwrap();
    drop(journal);
    disk.open(&segment(next)).unwrap().truncate(20).unwrap();
    is_damaged(recover(&disk, 10, small(BOOT)), 12);
    let needed = Needed {
        from: Some(10),
        before: None,
    };
    Journal::repair(&*disk, DIR, needed, 0, BOOT).unwrap();
    let recovered = recover(&disk, 10, small(BOOT)).unwrap();
    assert_eq!(recovered.report.last_seq, 9);
    assert!(recovered.journal.current_segment() > next);
    let kept = payloads[5].unwrap();
    let mut buf = vec![0; kept.len as usize];
    recovered.journal.read(kept, 0, &mut buf).unwrap();
    assert!(buf == payload_of(6), "what it had is read");
}

#[test]
fn missing_mark_or_segment_is_damage() {
    let (disk, _) = journal(3, 3);
    disk.remove(&segment(1)).unwrap();
    is_damaged(recover(&disk, 1, small(0)), 3);
    let (disk, _) = journal(3, 3);
    disk.remove(&format!("{DIR}/mark")).unwrap();
    let error = recover(&disk, 1, small(0)).unwrap_err();
    assert!(matches!(error, JournalError::MarkDamaged { .. }), "{error}");
}

#[test]
fn missing_segment_in_the_middle_is_damage() {
    let disk = disk();
    let journal = Journal::create(disk.clone(), DIR, small(BOOT)).unwrap();
    append_all(&journal, 1..=30);
    journal.sync(30).unwrap();
    assert!(journal.current_segment() >= 3);
    disk.remove(&segment(2)).unwrap();
    is_damaged(recover(&disk, 1, small(BOOT)), 30);
}

#[test]
fn journal_that_ends_before_its_mark_is_damage() {
    let (disk, payloads) = journal(9, 9);
    let cut = record_at(7, payloads[5].unwrap());
    disk.open(&segment(1)).unwrap().truncate(cut).unwrap();
    assert!(matches!(
        recover(&disk, 1, small(0)),
        Err(JournalError::Damaged { .. })
    ));
}

#[test]
fn journal_that_begins_or_ends_away_from_what_is_needed_is_damage() {
    let (disk, _) = journal(9, 9);
    is_damaged(recover(&disk, 12, small(0)), 10);
    let (journal, _) = {
        let recovered = recover(&disk, 1, small(0)).unwrap();
        (recovered.journal, recovered.report)
    };
    let next = journal.roll().unwrap();
    journal.drop_before(next).unwrap();
    drop(journal);
    is_damaged(recover(&disk, 5, small(0)), 5);
    assert_eq!(recover(&disk, 10, small(0)).unwrap().report.last_seq, 9);
}

#[test]
fn bad_record_before_valid_ones_is_damage_where_no_power_was_cut() {
    let (disk, payloads) = journal(9, 2);
    flip(
        &disk,
        &segment(1),
        record_at(4, payloads[3].unwrap()) + 33,
        0,
    );
    is_damaged(recover(&disk, 1, small(BOOT)), 4);
    let recovered = recover(&disk, 1, small(BOOT + 1)).unwrap();
    assert_eq!(recovered.report.last_seq, 3);
    assert_eq!(recovered.report.torn_records, 5);
}

#[test]
fn bad_payload_behind_the_mark_is_kept_as_bad_where_no_power_was_cut() {
    let (disk, payloads) = journal(9, 2);
    flip(&disk, &segment(1), payloads[3].unwrap().offset, 0);
    let recovered = recover(&disk, 1, small(BOOT)).unwrap();
    assert_eq!(recovered.report.last_seq, 9);
    assert_eq!(recovered.report.bad_payloads, 1);
    assert_eq!(recovered.bad_payloads(), [4]);
}

#[test]
fn bad_last_record_is_cut() {
    let (disk, payloads) = journal(6, 2);
    flip(
        &disk,
        &segment(1),
        record_at(6, payloads[5].unwrap()) + 40,
        0,
    );
    let recovered = recover(&disk, 1, small(BOOT)).unwrap();
    assert_eq!(recovered.report.last_seq, 5);
    assert!(recovered.report.torn_bytes > 12_289);
}

/// The mark may be older than the last acknowledgement, since it is not synced each time. Later
/// records know better.
#[test]
fn later_records_prove_that_a_bad_one_was_acknowledged() {
    let disk = disk();
    let journal = Journal::create(disk.clone(), DIR, small(BOOT)).unwrap();
    let mark_path = format!("{DIR}/mark");
    let old_mark = disk.read(&mark_path).unwrap().unwrap();
    append_all(&journal, 1..=3);
    let bad = append(&journal, 4).unwrap();
    journal.sync(3).unwrap();
    append_all(&journal, 5..=5);
    drop(journal);
    disk.replace(&mark_path, &old_mark).unwrap();

    flip(&disk, &segment(1), bad.offset + 1, 0);
    let recovered = recover(&disk, 1, small(BOOT + 1)).unwrap();
    assert_eq!(recovered.report.last_seq, 5);
    assert_eq!(recovered.bad_payloads(), [4]);
    drop(recovered);

    disk.replace(&mark_path, &old_mark).unwrap();
    flip(&disk, &segment(1), record_at(4, bad) + 40, 0);
    is_damaged(recover(&disk, 1, small(BOOT + 1)), 4);
}

/// A file that somebody writes may be a copy of a journal, this very one included.
#[test]
fn records_inside_payloads_are_not_records() {
    let (disk, _) = journal(5, 5);
    let copy = disk.read(&segment(1)).unwrap().unwrap();
    let journal = recover(&disk, 1, small(BOOT)).unwrap().journal;
    journal
        .append(b"not a record of the pattern", &copy)
        .unwrap();
    let len = disk.open(&segment(1)).unwrap().len();
    drop(journal);
    disk.open(&segment(1)).unwrap().truncate(len - 1).unwrap();
    let recovered = recover(&disk, 1, small(BOOT)).unwrap();
    assert_eq!(recovered.report.last_seq, 5);
    assert_eq!(recovered.report.torn_records, 0);
}

#[test]
fn journal_of_a_later_version_is_refused() {
    use crate::journal::mark;
    assert!(mark::refuse_newer("x", 1).is_ok());
    let error = mark::refuse_newer("x", 2).unwrap_err();
    assert!(matches!(error, JournalError::NewerVersion { found: 2, .. }));
}
