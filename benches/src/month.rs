//! `month [DAYS [CHECKPOINTS [MB]]]`: a month of an agent's life at once, by default 30 days with 1,667
//! checkpoints each on a project of 2,000 MB.
//!
//! Each checkpoint follows edits of a few sources; each day the project's build output (an eighth of it) is
//! removed and written anew, work is rolled back and undone, and gc runs; automatic commits expire as if an
//! hour had passed after each seventy checkpoints. Once a day it says what the disk, memory, an opening and
//! the log take. No mount: what is measured is what grows.

use benches::noise;
use engine::verbs;
use engine::{
    Caller, CheckpointRequest, CloseMode, Engine, EngineConfig, GcRequest, NodeId, Result,
    Settings, Target, Wait, Workspace, WriteFlags, mode,
};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const W: Wait = Wait::Allowed;
const NAME: &str = "month";
const BRANCH: &str = "main";
/// Sources, of 4 KB each; the rest of the project is build output.
const SOURCES: u64 = 20_000;
const SOURCE_BYTES: usize = 4096;
/// Sources edited before each checkpoint.
const EDITS: u64 = 5;
const OUTPUT_BYTES: usize = 1 << 20;
const CHECKPOINTS_AN_HOUR: u64 = 70;

/// How much of everything.
struct Plan {
    days: u64,
    checkpoints: u64,
    outputs: u64,
}

fn main() -> ExitCode {
    let given: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse().ok())
        .collect();
    let at = |i: usize, usual| given.get(i).copied().unwrap_or(usual);
    let plan = Plan {
        days: at(0, 30),
        checkpoints: at(1, 1667),
        outputs: at(2, 2000) * 7 / 8,
    };
    match live(&plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("month: {error}");
            ExitCode::FAILURE
        }
    }
}

fn failed(what: &str) -> impl FnOnce(std::io::Error) -> engine::Error + '_ {
    engine::Error::io(what)
}

fn live(plan: &Plan) -> Result<()> {
    let dir = tempfile::tempdir().map_err(failed("a temporary directory"))?;
    let (base, home) = (dir.path().join("base"), dir.path().join("home"));
    make_base(&base, plan).map_err(failed("the project"))?;
    std::fs::create_dir(&home).map_err(failed("the home"))?;
    let mut engine = open(&home)?;
    engine.create(NAME, &base, None)?;
    println!(
        "day\tcheckpoints\tdisk MB\tmemory MB\topening ms\tlog ms\tcheckpoint ms\tgc s\tcommits"
    );
    for day in 1..=plan.days {
        let start = Instant::now();
        let work = engine.open_workspace(NAME)?;
        let opening = start.elapsed();
        work.settle()?;
        let checkpoint = a_day(&work, plan, day)?;
        let start = Instant::now();
        engine.gc(
            GcRequest {
                grace: Some(Duration::ZERO),
                ..GcRequest::default()
            },
            &|_, _| (),
        )?;
        let gc = start.elapsed();
        let start = Instant::now();
        let commits = verbs::log(&work, BRANCH, true)?.len();
        let log = start.elapsed();
        let memory = resident_mb();
        drop(work);
        engine.close_workspace(NAME, CloseMode::Checkpoint, &|_, _| ())?;
        engine.shut_down()?;
        println!(
            "{day}\t{}\t{}\t{memory}\t{:.1}\t{:.1}\t{:.2}\t{:.1}\t{commits}",
            day * plan.checkpoints,
            bytes_in(&home) >> 20,
            ms(opening),
            ms(log),
            ms(checkpoint),
            gc.as_secs_f64(),
        );
        drop(engine);
        engine = open(&home)?;
    }
    engine.shut_down()
}

fn open(home: &Path) -> Result<Arc<Engine>> {
    let engine = Engine::open(EngineConfig {
        root: home.to_owned(),
        author: "month".into(),
    })?;
    engine.set_settings(Settings {
        keep_all: Duration::ZERO,
        keep_hourly: Duration::ZERO,
        keep_daily: Duration::ZERO,
        ..Settings::quiet()
    })?;
    Ok(engine)
}

fn make_base(base: &Path, plan: &Plan) -> std::io::Result<()> {
    for n in 0..SOURCES {
        let dir = base.join(format!("src{}", n / 100));
        if n % 100 == 0 {
            std::fs::create_dir_all(&dir)?;
        }
        std::fs::write(dir.join(source_name(n)), text(n, 0))?;
    }
    std::fs::create_dir(base.join("out"))?;
    for n in 0..plan.outputs {
        let path = base.join("out").join(format!("o{n}"));
        std::fs::write(path, noise(n + 1, OUTPUT_BYTES))?;
    }
    Ok(())
}

fn source_name(n: u64) -> String {
    format!("s{n}.rs")
}

fn text(n: u64, version: u64) -> Vec<u8> {
    let lines = (0..).map(|line| {
        format!(
            "line {line} of source {n}, version {}\n",
            version * u64::from(line % 17 == n % 17)
        )
    });
    let mut text: Vec<u8> = Vec::new();
    for line in lines {
        text.extend(line.bytes());
        if text.len() >= SOURCE_BYTES {
            return text;
        }
    }
    text
}

/// A day's work; the mean time of a checkpoint.
fn a_day(work: &Workspace, plan: &Plan, day: u64) -> Result<Duration> {
    let who = Caller::default();
    build(work, &who, plan, day)?;
    let mut spent = Duration::ZERO;
    for n in 0..plan.checkpoints {
        let number = day * plan.checkpoints + n;
        for edit in 0..EDITS {
            let source = (number * EDITS + edit) * 7919 % SOURCES;
            let dir = work.lookup(NodeId::ROOT, format!("src{}", source / 100).as_bytes(), W)?;
            let file = work.lookup(dir.node, source_name(source).as_bytes(), W)?;
            work.write(
                file.node,
                0,
                &text(source, number),
                WriteFlags::default(),
                W,
            )?;
        }
        let request = CheckpointRequest {
            label: Some(format!("turn-{number}")),
            wait: true,
            ..CheckpointRequest::default()
        };
        let start = Instant::now();
        verbs::checkpoint(work, BRANCH, request, &|_, _| ())?;
        spent += start.elapsed();
        if n % CHECKPOINTS_AN_HOUR == CHECKPOINTS_AN_HOUR - 1 {
            verbs::rollback(work, BRANCH, &Target::Ref(format!("turn-{}", number - 3)))?;
            verbs::undo(work, BRANCH)?;
            work.expire_now(BRANCH)?;
        }
    }
    Ok(spent / plan.checkpoints.max(1) as u32)
}

/// Part of the build output goes and comes anew.
fn build(work: &Workspace, who: &Caller, plan: &Plan, day: u64) -> Result<()> {
    let out = work.lookup(NodeId::ROOT, b"out", W)?.node;
    let part = (plan.outputs / 8).max(1);
    for n in (0..part).map(|i| (day * part + i) % plan.outputs.max(1)) {
        let name = format!("o{n}");
        work.unlink(out, name.as_bytes(), W)?;
        let node = work
            .mknod(who, out, name.as_bytes(), mode::REG | 0o644, 0, W)?
            .node;
        let bytes = noise(day * 100_000 + n, OUTPUT_BYTES);
        work.write(node, 0, &bytes, WriteFlags::default(), W)?;
    }
    Ok(())
}

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kb = line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kb.unwrap_or(0) >> 10
}

fn bytes_in(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => bytes_in(&entry.path()),
        Ok(meta) => meta.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
