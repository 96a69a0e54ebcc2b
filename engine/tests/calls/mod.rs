//! A workspace on a simulated disk, tool calls in it, and what is to hold of its timeline.
#![allow(dead_code)]

use engine::verbs;
use engine::{
    CallOutcome, CallRecord, CallStart, Caller, CloseMode, DiffSide, Engine, EngineConfig,
    GcRequest, MergeRequest, TimelineItem, Workspace, WriteFile,
};
use objstore::crash_storage::CrashStorage;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub const W: &str = "w";
pub const MAIN: &str = "main";

pub fn base() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let project = dir.path().join("project");
    std::fs::create_dir_all(project.join("src")).unwrap();
    std::fs::create_dir(dir.path().join("home")).unwrap();
    let lines: String = (0..40).map(|n| format!("line {n}\n")).collect();
    std::fs::write(project.join("src/main"), lines).unwrap();
    std::fs::write(project.join("README"), "base\n").unwrap();
    dir
}

pub fn open(disk: &CrashStorage, dir: &Path) -> (Arc<Engine>, Arc<Workspace>) {
    let config = EngineConfig {
        root: dir.join("home"),
        author: "test".into(),
    };
    let engine = Engine::on_storage(config, Arc::new(disk.clone())).unwrap();
    if engine.get(W).is_err() {
        engine.create(W, &dir.join("project"), None).unwrap();
    }
    let w = engine.open_workspace(W).unwrap();
    (engine, w)
}

/// A workspace on a new disk whose base is stored.
pub fn start(dir: &Path) -> (CrashStorage, Arc<Engine>, Arc<Workspace>) {
    let disk = CrashStorage::new();
    let (engine, w) = open(&disk, dir);
    w.settle().unwrap();
    (disk, engine, w)
}

pub fn end(engine: &Engine) {
    engine
        .close_workspace(W, CloseMode::NoCheckpoint, &|_, _| {})
        .unwrap();
}

pub fn write_on(w: &Workspace, branch: &str, path: &str, data: &str) {
    let part = WriteFile {
        path: path.into(),
        offset: Some(0),
        data: data.into(),
        last: true,
        unsynced: false,
        perm: 0o644,
        parents: true,
    };
    verbs::write_file(w, branch, &Caller::default(), &part).unwrap();
}

pub fn write(w: &Workspace, path: &str, data: &str) {
    write_on(w, MAIN, path, data);
}

pub fn read(w: &Workspace, path: &str) -> String {
    let view = verbs::read_state(w, MAIN, &DiffSide::Live).unwrap();
    let bytes = view.read(path.as_bytes(), 0, 1 << 20).unwrap().bytes;
    String::from_utf8(bytes).unwrap()
}

pub fn begin(w: &Workspace, name: &str) -> u64 {
    begin_so(w, name, false)
}

pub fn begin_so(w: &Workspace, name: &str, unsynced: bool) -> u64 {
    let call = CallStart {
        name: name.into(),
        parameters: Some(format!("{{\"of\": \"{name}\"}}")),
        unsynced,
        ..CallStart::default()
    };
    verbs::call_start(w, MAIN, call).unwrap()
}

pub fn finish(w: &Workspace, id: u64) {
    finish_on(w, MAIN, id);
}

pub fn begin_on(w: &Workspace, branch: &str, name: &str) -> u64 {
    let call = CallStart {
        name: name.into(),
        unsynced: true,
        ..CallStart::default()
    };
    verbs::call_start(w, branch, call).unwrap()
}

pub fn finish_on(w: &Workspace, branch: &str, id: u64) {
    let outcome = CallOutcome::Success(Some("true".into()));
    verbs::call_finish(w, branch, id, outcome).unwrap();
}

/// Something that is done in a call.
pub fn in_call(w: &Workspace, branch: &str, name: &str, work: impl FnOnce()) {
    let id = begin_on(w, branch, name);
    work();
    finish_on(w, branch, id);
}

pub fn rename_on(w: &Workspace, branch: &str, from: &str, to: &str) {
    verbs::rename_path(w, branch, from.as_bytes(), to.as_bytes()).unwrap();
}

pub fn merge(w: &Workspace, from: &str, into: &str) -> engine::merge::Outcome {
    let request = MergeRequest {
        from: from.into(),
        into: into.into(),
        ..MergeRequest::default()
    };
    let report = verbs::merge_branch(w, &request, &|_, _| ()).unwrap();
    assert_eq!(report.conflicts, [], "{from} into {into}");
    report.outcome
}

pub fn delete(w: &Workspace, branch: &str) {
    verbs::delete_branch(w, branch, &|_, _| ()).unwrap();
}

/// Takes away what nothing needs, without a grace period.
pub fn gc(engine: &Engine) {
    let request = GcRequest {
        grace: Some(Duration::ZERO),
        dead_percent: Some(0),
        dry_run: false,
    };
    engine.gc(request, &|_, _| ()).unwrap();
}

/// A call that writes a file.
pub fn edit(w: &Workspace, path: &str, data: &str) -> u64 {
    let id = begin(w, "edit");
    write(w, path, data);
    finish(w, id);
    id
}

pub fn record(w: &Workspace, name: &str) -> u64 {
    let call = CallRecord {
        name: name.into(),
        parameters: None,
        outcome: CallOutcome::Success(None),
        started: None,
        completed: None,
    };
    verbs::call_record(w, MAIN, call).unwrap()
}

pub fn all(w: &Workspace) -> Vec<TimelineItem> {
    let mut items = Vec::new();
    verbs::timeline_each(w, MAIN, &mut |item| {
        items.push(item);
        Ok(true)
    })
    .unwrap();
    items
}

/// Names and paths that a call changed.
pub fn changed(w: &Workspace, id: u64) -> Vec<String> {
    let item = verbs::call(w, MAIN, id).unwrap();
    let side = |s: Option<engine::StateRef>| DiffSide::Ref(s.unwrap().commit.unwrap().to_string());
    let changes = verbs::diff(w, MAIN, &side(item.before), &side(item.after), &[]).unwrap();
    let path = |c: &engine::Change| String::from_utf8_lossy(&c.path).into_owned();
    changes
        .iter()
        .map(|c| format!("{} {}", c.status, path(c)))
        .collect()
}

/// Nothing is wrong with the timeline; gives its length.
pub fn verified(w: &Workspace) -> u64 {
    let found = verbs::timeline_verify(w, MAIN).unwrap();
    assert_eq!(found.faults, []);
    found.entries
}

pub fn blamed(w: &Workspace, path: &str) -> Vec<String> {
    let blame = verbs::blame(w, MAIN, path.as_bytes(), 100).unwrap();
    assert_eq!(blame.unknown, 0);
    let one = |i: engine::BlameItem| match i.call {
        Some(id) => format!("{} {id}", i.kind),
        None => format!("{} {}", i.kind, i.name).trim_end().to_owned(),
    };
    blame.items.into_iter().map(one).collect()
}

/// Names in the root directory.
pub fn names(w: &Workspace) -> Vec<String> {
    let view = verbs::read_state(w, MAIN, &DiffSide::Live).unwrap();
    let listed = view.list(b"").unwrap();
    let mut names: Vec<String> = listed
        .iter()
        .map(|e| String::from_utf8_lossy(&e.name).into_owned())
        .collect();
    names.sort();
    names
}
