//! What a verdict costs: rules, and programs in Lua and WebAssembly.
//!
//! `cargo bench --locked -p benches --bench policy`; docs/performance.md has figures.
#![allow(missing_docs, clippy::unwrap_used)]

use agentvfs_policy::{Asker, Bench, FeedOp, Policy, Touch};
use agentvfs_programs::{Program, ProgramEvent};
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

const PATH: &[u8] = b"crates/engine/src/branch/judging.rs";

/// Rules that do not fit the path, each with two patterns.
fn rules(count: usize) -> Arc<Policy> {
    let rule =
        |n| format!("[[rule]]\npath = [\"secrets-{n}/**\", \"**/*.key{n}\"]\nverdict = \"deny\"\n");
    let text: String = (0..count).map(rule).collect();
    Arc::new(Policy::load(&text).unwrap())
}

fn by_rules(c: &mut Criterion) {
    let asker = Asker {
        uid: 1000,
        comm: "cargo",
        branch: "main",
        ..Asker::default()
    };
    for count in [1, 50, 1_000] {
        let mut bench = Bench::new(rules(count));
        c.bench_function(&format!("policy/rules-{count}"), |b| {
            b.iter(|| {
                bench.begin(&asker, Duration::ZERO);
                bench.touch(Touch::At(FeedOp::Create, black_box(PATH)));
                bench.end()
            })
        });
    }
}

fn by_programs(c: &mut Criterion) {
    let lua = "function on_event(ev)
        if ev.path:match('^secrets/') then return { verdict = 'deny' } end
        return { verdict = 'allow' }
    end";
    let module = [
        &b"\0asm\x01\0\0\0\x01\x06\x01\x60\x01\x7f\x01\x7f\x03\x02\x01\0"[..],
        b"\x07\x0c\x01\x08on_event\0\0\x0a\x07\x01\x05\0\x20\0\x45\x0b",
    ];
    let event = ProgramEvent {
        op: "create",
        path: PATH,
        backend: "fuse",
        extra: &[("branch", b"main"), ("comm", b"cargo")],
        ..ProgramEvent::default()
    };
    let programs = [
        ("lua", Program::lua(lua.as_bytes()).unwrap()),
        ("wasm", Program::wasm(&module.concat()).unwrap()),
    ];
    for (name, mut program) in programs {
        c.bench_function(&format!("policy/{name}"), |b| {
            b.iter(|| program.judge(black_box(&event)).unwrap())
        });
    }
}

criterion_group!(verdicts, by_rules, by_programs);
criterion_main!(verdicts);
