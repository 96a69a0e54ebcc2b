//! Journal appends, on files: what a change costs before it is answered.
#![allow(missing_docs, clippy::unwrap_used)]

use benches::noise;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use engine::journal::{Journal, JournalConfig};
use objstore::file_storage::FileStorage;
use std::sync::Arc;

/// Segments are dropped beyond this, so that a long run fits the disk.
const KEPT_BYTES: u64 = 512 << 20;

fn appends(c: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let storage = Arc::new(FileStorage::open(dir.path()).unwrap());
    let journal = Journal::create(storage, "journal", JournalConfig::default()).unwrap();
    let mut group = c.benchmark_group("journal");
    group.sample_size(20);
    for (name, meta, payload) in [
        ("120 B of metadata", 120, 0),
        ("4 KiB", 40, 4 << 10),
        ("1 MiB", 40, 1 << 20),
    ] {
        let (meta, payload) = (noise(1, meta), noise(2, payload));
        let bytes = (meta.len() + payload.len()) as u64;
        group.throughput(Throughput::Bytes(bytes));
        group.bench_function(BenchmarkId::new("append", name), |b| {
            b.iter(|| {
                if journal.bytes() > KEPT_BYTES {
                    let last = journal.roll().unwrap();
                    journal.drop_before(last).unwrap();
                }
                journal.append(&meta, &payload).unwrap()
            })
        });
    }
    group.throughput(Throughput::Bytes(4 << 10));
    group.bench_function("append 4 KiB and sync", |b| {
        let payload = noise(3, 4 << 10);
        b.iter(|| {
            let appended = journal.append(b"m", &payload).unwrap();
            journal.sync(appended.seq).unwrap()
        })
    });
}

criterion_group!(benches, appends);
criterion_main!(benches);
