//! What a change costs in the engine alone, and what a follower adds: a file is created, written and removed.
#![allow(missing_docs, clippy::unwrap_used)]

use benches::project::Project;
use criterion::{Criterion, criterion_group, criterion_main};
use engine::feed::FeedBackend;
use engine::{Asking, Caller, NodeId, Wait, Workspace, WriteFlags, acting_for};
use std::time::Instant;

const CALLER: Caller = Caller {
    uid: 0,
    gid: 0,
    pid: 0,
    umask: 0,
};

/// A request of this process, as the front has it.
fn asking() -> Asking {
    Asking {
        since: Some(Instant::now()),
        backend: FeedBackend::Front,
        waits: true,
        ..std::process::id().into()
    }
}

fn change(w: &Workspace, dir: NodeId, name: &[u8]) {
    let make = || w.mknod(&CALLER, dir, name, 0o100_644, 0, Wait::Allowed);
    let file = acting_for(asking(), make).unwrap().node;
    let write = || {
        w.write(
            file,
            0,
            b"some bytes\n",
            WriteFlags::default(),
            Wait::Allowed,
        )
    };
    acting_for(asking(), write).unwrap();
    acting_for(asking(), || w.unlink(dir, name, Wait::Allowed)).unwrap();
    acting_for(asking(), || w.forget(file, 1));
}

fn changes(c: &mut Criterion) {
    let project = Project::new(200).unwrap();
    let w = &project.workspace;
    let dir = w.mkdir(&CALLER, NodeId::ROOT, b"d", 0o755, Wait::Allowed);
    let dir = dir.unwrap().node;
    let mut group = c.benchmark_group("changes");
    let mut number = 0;
    for name in ["alone", "followed"] {
        let _follower = (name == "followed").then(|| w.feed().follow(None));
        group.bench_function(name, |b| {
            b.iter(|| {
                number += 1;
                change(w, dir, format!("f{number}").as_bytes());
            });
        });
    }
}

criterion_group!(benches, changes);
criterion_main!(benches);
