//! File content: canonical whatever the history and whatever is said of its zeros, read back exactly, cheap to change.
#![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]

mod common;

use std::cell::Cell;
use std::ops::Range;

use common::{mem_store, noise};
use objstore::{
    FileContent, ObjectStore, Source, data_bytes, data_ranges, next_data, next_hole, read_content,
    same_bytes, store_content, store_content_by_ranges, try_read_content,
};

/// Rounds of the random test; `OBJSTORE_CONTENT_CASES` raises it.
fn cases() -> u64 {
    let given = std::env::var("OBJSTORE_CONTENT_CASES").ok();
    given.and_then(|cases| cases.parse().ok()).unwrap_or(150)
}

const BLOCK: u64 = 4096;

/// The first seed of this run: `AGENTVFS_SEED`, else a new one.
fn first_seed() -> u64 {
    let given = std::env::var("AGENTVFS_SEED").ok();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = given.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(now.unwrap().as_nanos() as u64 % 1_000_000_007);
    println!("AGENTVFS_SEED={seed}");
    seed
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

/// A file as a test sees it: bytes, and which ranges are data.
#[derive(Clone)]
struct Model {
    bytes: Vec<u8>,
    data: Vec<Range<u64>>,
}

impl Model {
    fn whole(bytes: Vec<u8>) -> Model {
        let len = bytes.len() as u64;
        Model {
            bytes,
            data: std::iter::once(0..len).collect(),
        }
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn store(
        &self,
        store: &ObjectStore,
        old: Option<&FileContent>,
        changed: &[Range<u64>],
    ) -> FileContent {
        let len = self.len();
        store_content(store, old, changed, &self.data, len, &self.bytes).unwrap()
    }

    /// As an earlier build did.
    fn store_by_ranges(&self, store: &ObjectStore) -> FileContent {
        store_content_by_ranges(store, &self.data, self.len(), &self.bytes).unwrap()
    }

    /// The same bytes, nothing of which is said to be a hole.
    fn without_holes(&self) -> Model {
        Model::whole(self.bytes.clone())
    }

    /// Where there are bytes, by the blocks that are not all zeros.
    fn blocks(&self) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        for (n, block) in self.bytes.chunks(BLOCK as usize).enumerate() {
            let start = n as u64 * BLOCK;
            let end = start + block.len() as u64;
            match found.last_mut() {
                _ if block.iter().all(|byte| *byte == 0) => {}
                Some(last) if last.end == start => last.end = end,
                _ => found.push(start..end),
            }
        }
        found
    }

    /// Takes a range out of the data.
    fn punch(&mut self, hole: Range<u64>) {
        self.bytes[hole.start as usize..hole.end as usize].fill(0);
        let cut = |r: &Range<u64>| [r.start..r.end.min(hole.start), r.start.max(hole.end)..r.end];
        self.data = self
            .data
            .iter()
            .flat_map(cut)
            .filter(|r| r.start < r.end)
            .collect();
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        let end = at + bytes.len() as u64;
        let old_len = self.len();
        self.bytes.resize(old_len.max(end) as usize, 0);
        self.bytes[at as usize..end as usize].copy_from_slice(bytes);
        self.data.push(at..end);
        self.tidy();
    }

    fn set_len(&mut self, len: u64) {
        self.bytes.resize(len as usize, 0);
        self.data.retain_mut(|r| {
            r.end = r.end.min(len);
            r.start < r.end
        });
    }

    fn tidy(&mut self) {
        self.data.sort_by_key(|r| r.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for r in self.data.drain(..) {
            match merged.last_mut() {
                Some(last) if r.start <= last.end => last.end = last.end.max(r.end),
                _ => merged.push(r),
            }
        }
        self.data = merged;
    }
}

fn boundaries(store: &ObjectStore, content: &FileContent, model: &Model) -> Vec<u64> {
    // Where chunks end is not public; chunking the data runs anew gives the same places.
    let runs = data_ranges(store, content).unwrap();
    let ends = runs.into_iter().flat_map(|run| {
        let bytes = &model.bytes[run.start as usize..run.end as usize];
        let mut at = run.start;
        let lengths = objstore::chunker::cut_all(bytes);
        lengths.into_iter().map(move |len| {
            at += len as u64;
            at
        })
    });
    ends.collect()
}

/// A random change near a chunk boundary as often as not; returns what it touched.
fn edit(model: &mut Model, ends: &[u64], random: &mut Random, pool: &[u8]) -> Vec<Range<u64>> {
    let len = model.len();
    let mut at = random.below(len + 1);
    if !ends.is_empty() && random.below(3) > 0 {
        let end = ends[random.below(ends.len() as u64) as usize];
        at = (end + random.below(9)).saturating_sub(4).min(len);
    }
    let size = if random.below(2) == 0 {
        1 + random.below(6)
    } else {
        1 + random.below(150_000)
    };
    match random.below(8) {
        // Zeros that were written, by the byte or by the block.
        6 | 7 if at < len => {
            let (mut at, mut size) = (at, size.min(len - at));
            if random.below(2) == 0 {
                at -= at % BLOCK;
                size = size.next_multiple_of(BLOCK);
            }
            model.write(at, &vec![0; size as usize]);
            vec![at..at + size]
        }
        0 => {
            model.set_len(at);
            vec![at..len]
        }
        1 => {
            let grown = len + size;
            model.set_len(grown);
            vec![len..grown]
        }
        2 if at < len => {
            let hole = at..(at + size * 4).min(len);
            model.punch(hole.clone());
            vec![hole]
        }
        3 => {
            let from = random.below(pool.len() as u64 - size);
            model.write(len, &pool[from as usize..(from + size) as usize]);
            vec![len..len + size]
        }
        _ => {
            let from = random.below(pool.len() as u64 - size);
            model.write(at, &pool[from as usize..(from + size) as usize]);
            vec![at..at + size]
        }
    }
}

#[test]
fn content_depends_on_the_bytes_and_not_on_their_history() {
    let pool = noise(0, 4_000_000);
    let first = first_seed();
    for seed in first..first + cases() {
        let mut random = Random((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let store = mem_store();
        let len = random.below(700_000);
        let from = random.below(pool.len() as u64 - len);
        let mut model = Model::whole(pool[from as usize..(from + len) as usize].to_vec());
        let mut content = model.store(&store, None, &[]);
        for step in 0..8 {
            let ends = boundaries(&store, &content, &model);
            let mut changed = Vec::new();
            for _ in 0..=random.below(2) {
                changed.extend(edit(&mut model, &ends, &mut random, &pool));
            }
            let by_ranges = model.store_by_ranges(&store);
            if random.below(4) == 0 {
                // It begins with what an earlier build stored.
                content = by_ranges;
                continue;
            }
            let from_old = model.store(&store, Some(&content), &changed);
            if from_old == content {
                // Nothing changed: it stays in the form that it has.
                assert!(same_bytes(&store, &content, &by_ranges).unwrap());
                continue;
            }
            let why = format!("seed {seed} step {step} changed {changed:?}");
            assert_eq!(from_old, model.store(&store, None, &[]), "{why}");
            let anew = model.without_holes().store(&store, None, &[]);
            assert_eq!(from_old, anew, "{why}");
            let blocks = model.blocks();
            assert_eq!(data_ranges(&store, &anew).unwrap(), blocks, "{why}");
            let bytes: u64 = blocks.iter().map(|run| run.end - run.start).sum();
            assert_eq!(data_bytes(&store, &anew).unwrap(), bytes, "{why}");
            assert!(same_bytes(&store, &anew, &by_ranges).unwrap(), "{why}");
            content = from_old;
        }
        let mut bytes = vec![1; model.bytes.len()];
        read_content(&store, &content, 0, &mut bytes).unwrap();
        assert!(bytes == model.bytes, "seed {seed}");
    }
}

#[test]
fn small_files_are_one_chunk_and_empty_ones_nothing() {
    let store = mem_store();
    assert_eq!(
        Model::whole(vec![]).store(&store, None, &[]),
        FileContent::Empty
    );
    for len in [1usize, 4095, 4096, 16384] {
        let content = Model::whole(noise(1, len)).store(&store, None, &[]);
        assert!(matches!(content, FileContent::Chunk { len: l, .. } if l as usize == len));
    }
    let content = Model::whole(noise(1, 600_000)).store(&store, None, &[]);
    assert!(matches!(
        content,
        FileContent::Manifest { len: 600_000, .. }
    ));
}

#[test]
fn holes_are_kept_in_whole_blocks() {
    let store = mem_store();
    let mut model = Model::whole(noise(2, 100_000));
    model.punch(10_000..50_000);
    let content = model.store(&store, None, &[]);
    assert_eq!(
        data_ranges(&store, &content).unwrap(),
        [0..12_288, 49_152..100_000]
    );
    assert_eq!(next_data(&store, &content, 5).unwrap(), Some(5));
    assert_eq!(next_data(&store, &content, 12_288).unwrap(), Some(49_152));
    assert_eq!(next_hole(&store, &content, 5).unwrap(), Some(12_288));
    assert_eq!(next_hole(&store, &content, 20_000).unwrap(), Some(20_000));
    assert_eq!(next_hole(&store, &content, 60_000).unwrap(), Some(100_000));
    assert_eq!(next_hole(&store, &content, 100_000).unwrap(), None);
    assert_eq!(next_data(&store, &content, 100_000).unwrap(), None);
    // The same bytes, told in other words: the same content.
    let data = [0..1, 3..10_000, 50_000..70_000, 70_000..100_000];
    let again = store_content(&store, None, &[], &data, 100_000, &model.bytes).unwrap();
    assert_eq!(again, content);
    assert_eq!(model.without_holes().store(&store, None, &[]), content);
}

#[test]
fn what_earlier_builds_stored_has_the_same_bytes_and_is_not_built_upon() {
    let store = mem_store();
    let mut model = Model::whole(noise(7, 900_000));
    model.write(400_000, &[0; 50_000]);
    let old = model.store_by_ranges(&store);
    let new = model.store(&store, None, &[]);
    assert_ne!(old, new);
    assert_eq!(data_ranges(&store, &old).unwrap(), [0..900_000]);
    assert!(same_bytes(&store, &old, &new).unwrap());
    assert!(same_bytes(&store, &new, &old).unwrap());
    // What did not change stays as it is stored; once it changes all of it is looked at.
    assert_eq!(model.store(&store, Some(&old), &[]), old);
    model.write(10, b"changed");
    let changed = model.store(&store, Some(&old), &[10..17]);
    assert_eq!(changed, model.store(&store, None, &[]));
    for other in [&old, &new] {
        assert!(!same_bytes(&store, &changed, other).unwrap());
    }
    model.write(899_999, b"x");
    assert!(!same_bytes(&store, &model.store_by_ranges(&store), &old).unwrap());
    // A small one, too, which had no manifest.
    let mut small = Model::whole(noise(8, 20_000));
    small.write(4096, &[0; 8192]);
    let (old, new) = (
        small.store_by_ranges(&store),
        small.store(&store, None, &[]),
    );
    assert!(matches!(old, FileContent::Chunk { .. }));
    assert!(matches!(new, FileContent::Manifest { .. }));
    assert!(same_bytes(&store, &old, &new).unwrap());
    small.write(19_999, b"x");
    assert!(!same_bytes(&store, &old, &small.store(&store, None, &[])).unwrap());
}

#[test]
fn sparse_files_of_any_size_cost_nothing() {
    let store = mem_store();
    let len = 1 << 50;
    let all_hole = store_content(&store, None, &[], &[], len, &vec![]).unwrap();
    assert_eq!(all_hole.len(), len);
    assert_eq!(data_ranges(&store, &all_hole).unwrap(), []);
    assert_eq!(next_data(&store, &all_hole, 7).unwrap(), None);
    let mut bytes = [1; 100];
    read_content(&store, &all_hole, len - 100, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 100]);
    assert!(store.stats().bytes < 1000);
}

#[test]
fn reading_is_exact_at_any_place() {
    let store = mem_store();
    let mut model = Model::whole(noise(3, 900_000));
    model.punch(300_000..500_000);
    let content = model.store(&store, None, &[]);
    let mut random = Random(77);
    for _ in 0..300 {
        let start = random.below(900_000);
        let len = random.below((900_000 - start).min(200_000) + 1);
        let mut bytes = vec![9; len as usize];
        if random.below(2) == 0 {
            read_content(&store, &content, start, &mut bytes).unwrap();
        } else {
            assert!(try_read_content(&store, &content, start, &mut bytes).unwrap());
        }
        assert!(
            bytes == model.bytes[start as usize..(start + len) as usize],
            "{start} {len}"
        );
    }
    for (offset, len) in [(900_000, 1), (899_999, 2), (u64::MAX, 1)] {
        assert!(read_content(&store, &content, offset, &mut vec![0; len]).is_err());
    }
    read_content(&store, &content, 900_000, &mut []).unwrap();
}

/// Counts the bytes that are read.
struct Counting<'a> {
    bytes: &'a [u8],
    read: Cell<u64>,
}

impl Source for Counting<'_> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.read.set(self.read.get() + buf.len() as u64);
        self.bytes.read_at(offset, buf)
    }
}

#[test]
fn a_small_change_of_a_large_file_reads_and_stores_little() {
    let store = mem_store();
    let mut model = Model::whole(noise(4, 64 << 20));
    let content = model.store(&store, None, &[]);
    let before = store.stats().bytes;
    model.write(31 << 20, &noise(5, 4096));
    let source = Counting {
        bytes: &model.bytes,
        read: Cell::new(0),
    };
    let changed = [31 << 20..(31 << 20) + 4096];
    let len = model.len();
    let edited =
        store_content(&store, Some(&content), &changed, &model.data, len, &source).unwrap();
    assert_ne!(edited, content);
    assert!(
        store.stats().bytes - before < 600_000,
        "{}",
        store.stats().bytes - before
    );
    assert!(source.read.get() < 2 << 20, "{}", source.read.get());
    assert_eq!(edited, model.store(&store, None, &[]));
}

#[test]
fn long_manifests_have_levels() {
    let store = mem_store();
    // 40,000 blocks of data with holes between them: parts without much data.
    let data: Vec<Range<u64>> = (0..40_000u64).map(|i| i * 8192..i * 8192 + 4096).collect();
    let len = 40_000 * 8192;
    struct Blocks;
    impl Source for Blocks {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
            buf.fill(1);
            buf[..8].copy_from_slice(&offset.to_le_bytes());
            Ok(())
        }
    }
    let content = store_content(&store, None, &[], &data, len, &Blocks).unwrap();
    assert_eq!(data_ranges(&store, &content).unwrap(), data);
    for i in [0u64, 1, 511, 512, 20_000, 39_999] {
        let mut bytes = [0; 16];
        read_content(&store, &content, i * 8192, &mut bytes).unwrap();
        assert_eq!(bytes[..8], (i * 8192).to_le_bytes());
        assert_eq!(
            next_hole(&store, &content, i * 8192).unwrap(),
            Some(i * 8192 + 4096)
        );
    }
    let changed = [4096 * 100..4096 * 101];
    let before = store.stats().bytes;
    let mut fewer = data.clone();
    fewer.remove(50);
    let edited = store_content(&store, Some(&content), &changed, &fewer, len, &Blocks).unwrap();
    assert!(store.stats().bytes - before < 100_000);
    assert_eq!(
        edited,
        store_content(&store, None, &[], &fewer, len, &Blocks).unwrap()
    );
}

#[test]
fn sources_that_fail_are_told() {
    let store = mem_store();
    let short = noise(1, 100);
    let one = [0..200];
    let error = store_content(&store, None, &[], &one, 200, &short).unwrap_err();
    assert!(matches!(error, objstore::Error::Source(_)), "{error}");
}
