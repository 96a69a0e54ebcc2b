//! Appenders, waiters and readers at once.

use super::*;
use crate::journal::JournalError;
use objstore::file_storage::FileStorage;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[test]
fn eight_threads_append_and_sync() {
    let dir = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(FileStorage::open(dir.path()).unwrap());
    let mut cfg = small(1);
    cfg.cap_bytes = 1 << 30;
    let journal = Journal::create(storage.clone(), DIR, cfg).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let journal = &journal;
            scope.spawn(move || {
                for n in 0..40u8 {
                    let appended = journal.append(&[thread, n], &[thread; 500]).unwrap();
                    journal.sync(appended.seq).unwrap();
                    assert!(journal.synced_seq() >= appended.seq);
                }
            });
        }
    });
    assert_eq!(journal.synced_seq(), 320);
    drop(journal);
    let mut next = [0u8; 8];
    let (journal, report) = Journal::recover(storage, DIR, 1, cfg, &mut |record| {
        let thread = usize::from(record.meta[0]);
        assert_eq!(
            record.meta[1], next[thread],
            "a thread's records are in its order"
        );
        next[thread] += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!((report.last_seq, next), (320, [40; 8]));
    assert!(journal.current_segment() > 1);
}

/// A waiter returns only after a sync that began after its record was written.
#[test]
fn acknowledged_means_synced_under_concurrency() {
    let disk = disk();
    let mut cfg = small(1);
    cfg.cap_bytes = 1 << 30;
    let journal = Journal::create(disk.clone(), DIR, cfg).unwrap();
    let images = parking_lot::Mutex::new(Vec::new());
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let appended = journal.append(b"m", &[7; 600]).unwrap();
                    written.fetch_add(1, Ordering::Relaxed);
                    journal.sync(appended.seq).unwrap();
                    images.lock().push((appended.seq, disk.op_count()));
                }
            });
        }
    });
    assert_eq!(written.into_inner(), 80);
    for (seq, ops) in images.into_inner() {
        let image = Arc::new(disk.image_at(ops, objstore::crash_storage::Policy::Drop, 0));
        let (_, report) = Journal::recover(image, DIR, 1, small(2), &mut |_| Ok(())).unwrap();
        assert!(report.last_seq >= seq);
    }
}

#[test]
fn readers_go_on_while_segments_are_dropped() {
    let disk = disk();
    let mut cfg = small(1);
    cfg.cap_bytes = 1 << 30;
    let journal = Journal::create(disk, DIR, cfg).unwrap();
    let newest = parking_lot::Mutex::new((4, append_with_payload(&journal)));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let (seq, payload) = *newest.lock();
                    let mut buf = vec![0; payload.len as usize];
                    match journal.read(payload, 0, &mut buf) {
                        Ok(()) => assert_eq!(buf, payload_of(seq)),
                        Err(JournalError::Dropped { segment }) => {
                            assert_eq!(segment, payload.segment);
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        for seq in 5..1000 {
            if let Some(payload) = append(&journal, seq) {
                *newest.lock() = (seq, payload);
            }
            if seq % 50 == 0 {
                let segment = journal.roll().unwrap();
                journal.drop_before(segment).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let first = journal.first_segment();
    assert!(first > 10);
}

fn append_with_payload(journal: &Journal) -> PayloadRef {
    append_all(journal, 1..=3);
    append(journal, 4).unwrap()
}
