//! Checkpoint and rollback in a workspace of 10,000 files, without a mount. Making the files dirty is
//! not part of the time; the disk's own sync is.
#![allow(missing_docs, clippy::unwrap_used)]

use benches::project::Project;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::time::{Duration, Instant};

const FILES: usize = 10_000;

/// Time of `rounds` calls of `work`, each after `dirty` files were written.
fn timed(
    project: &mut Project,
    rounds: u64,
    dirty: usize,
    work: fn(&Project) -> engine::Result<()>,
) -> Duration {
    let mut sum = Duration::ZERO;
    for _ in 0..rounds {
        project.dirty(dirty).unwrap();
        let start = Instant::now();
        work(project).unwrap();
        sum += start.elapsed();
    }
    sum
}

fn control(c: &mut Criterion) {
    let mut project = Project::new(FILES).unwrap();
    let mut group = c.benchmark_group("workspace");
    group.sample_size(10);
    for dirty in [0, 10, 1000] {
        group.bench_function(BenchmarkId::new("checkpoint", dirty), |b| {
            b.iter_custom(|rounds| timed(&mut project, rounds, dirty, Project::checkpoint))
        });
    }
    for dirty in [10, 1000] {
        group.bench_function(BenchmarkId::new("rollback", dirty), |b| {
            b.iter_custom(|rounds| timed(&mut project, rounds, dirty, Project::rollback))
        });
    }
}

criterion_group!(benches, control);
criterion_main!(benches);
