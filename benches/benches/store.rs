//! Chunking, hashing, storing and reading content.
#![allow(missing_docs, clippy::unwrap_used)]

use benches::noise;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use objstore::crash_storage::CrashStorage;
use objstore::{
    FileContent, ObjectStore, Source, StoreConfig, chunker, read_content, store_content,
};
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

const LEN: usize = 16 << 20;

fn hot_paths(c: &mut Criterion) {
    let data = noise(1, LEN);
    let mut group = c.benchmark_group("store");
    group
        .sample_size(10)
        .throughput(Throughput::Bytes(LEN as u64));
    group.bench_function("chunk 16 MiB", |b| {
        b.iter(|| chunker::cut_all(black_box(&data)))
    });
    group.bench_function("hash 16 MiB in 64 KiB", |b| {
        b.iter(|| {
            data.chunks(64 << 10)
                .map(blake3::hash)
                .fold(0, |sum, id| sum ^ id.as_bytes()[0])
        })
    });
    group.bench_function("store 16 MiB of new content", |b| {
        b.iter_with_large_drop(|| stored(&data, LEN as u64))
    });
    let (store, content) = stored(&data, LEN as u64);
    let mut out = vec![0; LEN];
    group.bench_function("read 16 MiB", |b| {
        b.iter(|| read_content(&store, &content, 0, &mut out).unwrap())
    });
}

fn stored(source: &dyn Source, len: u64) -> (ObjectStore, FileContent) {
    let disk = Arc::new(CrashStorage::without_log());
    let store = ObjectStore::open(disk, StoreConfig::default()).unwrap();
    let all = [Range { start: 0, end: len }];
    let content = store_content(&store, None, &all, &all, len, source).unwrap();
    (store, content)
}

criterion_group!(benches, hot_paths);
criterion_main!(benches);
