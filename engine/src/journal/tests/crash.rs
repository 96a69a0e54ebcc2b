//! Power cuts at every operation of a workload, with everything the disk may do with what was not
//! synced.
//!
//! Promise: what was acknowledged is there, what is there is a prefix of what was appended, and no
//! byte of it is altered; and that holds again for a power cut during recovery.

use super::*;
use crate::journal::JournalError;
use objstore::crash_storage::Policy;

const BOOT: u64 = 1;
const NEXT_BOOT: u64 = 2;

/// What was promised when an operation of the disk was done.
#[derive(Clone, Copy, Debug, Default)]
struct Promise {
    ops: usize,
    created: bool,
    appended: u64,
    synced: u64,
    from: u64,
}

struct Workload {
    disk: Arc<CrashStorage>,
    journal: Journal,
    promises: Vec<Promise>,
    now: Promise,
}

impl Workload {
    fn start() -> Workload {
        let disk = disk();
        let journal = Journal::create(disk.clone(), DIR, small(BOOT)).unwrap();
        let mut workload = Workload {
            disk,
            journal,
            promises: Vec::new(),
            now: Promise {
                from: 1,
                created: true,
                ..Promise::default()
            },
        };
        workload.note();
        workload
    }

    fn note(&mut self) {
        self.now.ops = self.disk.op_count();
        self.promises.push(self.now);
    }

    fn append(&mut self, count: u64) {
        for _ in 0..count {
            append(&self.journal, self.now.appended + 1);
            self.now.appended += 1;
            self.note();
        }
    }

    fn sync(&mut self) {
        self.journal.sync(u64::MAX).unwrap();
        self.now.synced = self.now.appended;
        self.note();
    }

    /// Rolls and drops all that is before: what sealing does.
    fn seal(&mut self) {
        let segment = self.journal.roll().unwrap();
        self.now.synced = self.now.appended;
        self.now.from = self.now.appended + 1;
        self.note();
        self.journal.drop_before(segment).unwrap();
        self.note();
    }

    fn run() -> Workload {
        let mut w = Workload::start();
        w.append(5);
        w.sync();
        w.append(14);
        w.sync();
        w.append(3);
        w.seal();
        w.append(12);
        w.sync();
        w.append(1);
        w.sync();
        w.journal.roll().unwrap();
        w.append(9);
        w.sync();
        w.append(20);
        w
    }

    /// What was promised when `ops` operations were done, and how much may be there while the next
    /// one is under way.
    fn promise_at(&self, ops: usize) -> (Promise, u64) {
        let before = self.promises.iter().rev().find(|p| p.ops <= ops);
        let after = self.promises.iter().find(|p| p.ops > ops);
        let before = before.copied().unwrap_or_default();
        (before, after.map_or(self.now.appended, |p| p.appended))
    }
}

/// Checks one image; true where there was a journal in it.
fn check(image: &Arc<CrashStorage>, promise: Promise, appended_max: u64, boot: u64) -> bool {
    let recovered = match recover(image, promise.from.max(1), small(boot)) {
        Err(JournalError::Missing { .. }) if !promise.created => return false,
        other => other.unwrap_or_else(|e| panic!("{promise:?}: {e}")),
    };
    let last = recovered.report.last_seq;
    assert!(last >= promise.synced, "{promise:?}: only {last} are there");
    assert!(last <= appended_max, "{promise:?}: {last} are there");
    assert_eq!(recovered.bad_payloads(), [0; 0], "{promise:?}");
    append_all(&recovered.journal, last + 1..=last + 3);
    recovered.journal.sync(u64::MAX).unwrap();
    drop(recovered);
    let again = recover(image, promise.from.max(1), small(boot)).unwrap();
    assert_eq!(again.report.last_seq, last + 3);
    true
}

fn seeds(policy: Policy) -> std::ops::Range<u64> {
    match policy {
        Policy::Keep | Policy::Drop => 0..1,
        _ => 0..24,
    }
}

fn image(disk: &CrashStorage, ops: usize, policy: Policy, seed: u64) -> Arc<CrashStorage> {
    Arc::new(disk.image_at(ops, policy, seed))
}

#[test]
fn power_cut_keeps_acknowledged_records_and_a_prefix() {
    let w = Workload::run();
    for ops in 0..=w.disk.op_count() {
        let (promise, appended_max) = w.promise_at(ops);
        for policy in Policy::ALL {
            for seed in seeds(policy) {
                for boot in [0, NEXT_BOOT] {
                    let image = image(&w.disk, ops, policy, seed);
                    check(&image, promise, appended_max, boot);
                }
            }
        }
    }
}

#[test]
fn death_of_the_process_keeps_everything() {
    let w = Workload::run();
    for promise in w.promises.iter().skip(1) {
        let image = image(&w.disk, promise.ops, Policy::Keep, 0);
        let recovered = recover(&image, promise.from, small(BOOT)).unwrap();
        assert_eq!(recovered.report.last_seq, promise.appended);
        assert_eq!(recovered.report.torn_bytes, 0);
        assert_eq!(recovered.bad_payloads(), [0; 0]);
    }
}

#[test]
fn power_cut_during_recovery_changes_nothing_of_that() {
    let w = Workload::run();
    for ops in (0..=w.disk.op_count()).step_by(3) {
        let (promise, appended_max) = w.promise_at(ops);
        for (policy, seed) in [
            (Policy::Torn, 1),
            (Policy::Reorder, 2),
            (Policy::Reorder, 3),
        ] {
            let first = image(&w.disk, ops, policy, seed);
            let before = first.op_count();
            if recover(&first, promise.from.max(1), small(NEXT_BOOT)).is_err() {
                assert!(!promise.created);
                continue;
            }
            for inner in before..=first.op_count() {
                for policy in Policy::ALL {
                    let second = image(&first, inner, policy, seed);
                    check(&second, promise, appended_max, NEXT_BOOT + 1);
                }
            }
        }
    }
}

#[test]
fn unfinished_creation_is_no_journal_and_can_be_repeated() {
    let disk = disk();
    Journal::create(disk.clone(), DIR, small(BOOT)).unwrap();
    for ops in 0..disk.op_count() {
        for policy in Policy::ALL {
            let image = image(&disk, ops, policy, ops as u64);
            if matches!(
                recover(&image, 1, small(BOOT)),
                Err(JournalError::Missing { .. })
            ) {
                Journal::create(image.clone(), DIR, small(BOOT)).unwrap();
            }
            assert_eq!(recover(&image, 1, small(BOOT)).unwrap().report.last_seq, 0);
        }
    }
}

/// What a killed process leaves may be in the page cache only. Once recovery has shown it, it must
/// survive a power cut like anything that was synced.
#[test]
fn recovery_after_a_kill_makes_durable_what_it_shows() {
    let w = Workload::run();
    let Workload {
        disk, journal, now, ..
    } = w;
    drop(journal);
    let killed_at = disk.op_count();
    let recovered = recover(&disk, now.from, small(BOOT)).unwrap();
    assert_eq!(recovered.report.last_seq, now.appended);
    drop(recovered);
    let shown_at = disk.op_count();
    for ops in killed_at..=shown_at {
        let synced = if ops == shown_at {
            now.appended
        } else {
            now.synced
        };
        let promise = Promise { synced, ..now };
        for policy in Policy::ALL {
            for seed in seeds(policy) {
                let image = image(&disk, ops, policy, seed);
                check(&image, promise, now.appended, NEXT_BOOT);
            }
        }
    }
}
