//! Merging into a branch that is in use: once after the other, beside writers, beside pages that the kernel
//! brings late, and cancelled on the way.
#![allow(clippy::unwrap_used)]

use crate::common::world::World;
use engine::merge::Outcome;
use engine::verbs;
use engine::*;
use objstore::crash_storage::CrashStorage;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const W: Wait = Wait::Allowed;

fn base() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("src")).unwrap();
    for n in 0..5 {
        std::fs::write(
            dir.path().join(format!("src/{n}.txt")),
            format!("base {n}\n"),
        )
        .unwrap();
    }
    dir
}

fn world(base: &Path) -> World {
    let world = World::on_disk(CrashStorage::without_log(), base);
    world.w().settle().unwrap();
    world
}

/// Root of a branch, as the mount finds it.
fn root(w: &Workspace, branch: &str) -> NodeId {
    if branch == MAIN {
        return NodeId::ROOT;
    }
    find(w, NodeId::ROOT, &format!(".agentvfs/branches/{branch}")).unwrap()
}

fn find(w: &Workspace, from: NodeId, path: &str) -> Result<NodeId> {
    let mut at = from;
    for part in path.split('/') {
        at = w.lookup(at, part.as_bytes(), W)?.node;
    }
    Ok(at)
}

fn read(w: &Workspace, branch: &str, path: &str) -> String {
    let node = find(w, root(w, branch), path).unwrap();
    let bytes = w.read(node, 0, 1 << 20, W).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn write(w: &Workspace, branch: &str, path: &str, text: &str) {
    let part = WriteFile {
        path: path.into(),
        offset: Some(0),
        data: text.into(),
        last: true,
        unsynced: false,
        perm: 0o644,
        parents: true,
    };
    verbs::write_file(w, branch, &Caller::default(), &part).unwrap();
}

fn checkpoint(w: &Workspace, branch: &str) -> CommitId {
    let req = CheckpointRequest {
        wait: true,
        ..Default::default()
    };
    let done = verbs::checkpoint(w, branch, req, &|_, _| ()).unwrap();
    done.commit.unwrap()
}

fn merge(w: &Workspace, from: &str) -> Result<MergeReport> {
    let req = MergeRequest {
        from: from.into(),
        into: MAIN.into(),
        ..Default::default()
    };
    verbs::merge_branch(w, &req, &|_, _| ())
}

#[test]
fn a_target_takes_merges_after_it_was_fast_forwarded() {
    let base = base();
    let mut world = world(base.path());
    checkpoint(world.w(), MAIN);
    for round in 0..3 {
        let w = world.w();
        let other = format!("b{round}");
        verbs::create_branch(w, &other, MAIN, None).unwrap();
        write(w, &other, &format!("new/{round}/file"), "of the branch");
        write(w, &other, "src/0.txt", &format!("changed {round}\n"));
        let (from, to) = (format!("src/{}.txt", round + 1), format!("moved{round}"));
        verbs::rename_path(w, &other, from.as_bytes(), to.as_bytes()).unwrap();
        checkpoint(w, &other);
        let done = merge(w, &other).unwrap();
        assert_eq!(done.outcome, Outcome::FastForward, "round {round}");
        assert_eq!(read(w, MAIN, "src/0.txt"), format!("changed {round}\n"));
        assert_eq!(read(w, MAIN, &format!("new/{round}/file")), "of the branch");
        assert_eq!(
            read(w, MAIN, &format!("moved{round}")),
            format!("base {}\n", round + 1)
        );
        if round == 1 {
            world.kill().unwrap();
        }
    }
    // And one that is no fast-forward.
    let w = world.w();
    verbs::create_branch(w, "last", MAIN, None).unwrap();
    write(w, "last", "new/last", "of the branch");
    write(w, MAIN, "new/own", "of the target");
    assert_eq!(merge(w, "last").unwrap().outcome, Outcome::Merged);
    assert_eq!(read(w, MAIN, "new/last"), "of the branch");
    assert_eq!(read(w, MAIN, "new/own"), "of the target");
}

#[test]
fn a_merge_into_a_branch_that_is_written_all_the_time_ends() {
    let base = base();
    let world = world(base.path());
    let w = world.w();
    checkpoint(w, MAIN);
    let (stop, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let n = written.load(Ordering::Relaxed);
                write(w, MAIN, &format!("src/own{n}"), "of the writer");
                if n >= 50 {
                    let old = format!("src/own{}", n - 50);
                    verbs::remove_path(w, MAIN, old.as_bytes(), false).unwrap();
                }
                write(w, MAIN, "src/0.txt", &format!("base 0\nline {n}\n"));
                written.store(n + 1, Ordering::Relaxed);
            }
        });
        let merged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..6 {
                let other = format!("b{round}");
                verbs::create_branch(w, &other, MAIN, None).unwrap();
                write(w, &other, &format!("src/merged{round}"), "of the branch");
                merge(w, &other).unwrap();
                verbs::delete_branch(w, &other, &|_, _| ()).unwrap();
                // The writer goes on, too.
                let before = written.load(Ordering::Relaxed);
                while written.load(Ordering::Relaxed) == before {
                    std::thread::yield_now();
                }
            }
        }));
        stop.store(true, Ordering::Relaxed);
        merged.unwrap();
    });
    for round in 0..6 {
        assert_eq!(
            read(w, MAIN, &format!("src/merged{round}")),
            "of the branch"
        );
    }
    let last = written.load(Ordering::Relaxed);
    assert_eq!(
        read(w, MAIN, "src/0.txt"),
        format!("base 0\nline {}\n", last - 1)
    );
    for n in last.saturating_sub(50)..last {
        assert_eq!(read(w, MAIN, &format!("src/own{n}")), "of the writer");
    }
}

/// A kernel that holds dirty pages, and brings those of an inode when it is told to drop them.
#[derive(Default)]
struct Pages {
    workspace: Mutex<Option<Arc<Workspace>>>,
    dirty: Mutex<Vec<(NodeId, u64, Vec<u8>)>>,
}

impl KernelCache for Pages {
    fn flush_dirty(&self) {}

    fn inval_inode(&self, node: NodeId) {
        let all = std::mem::take(&mut *self.dirty.lock().unwrap());
        let (late, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(|(n, ..)| *n == node);
        *self.dirty.lock().unwrap() = kept;
        let workspace = self.workspace.lock().unwrap().clone().unwrap();
        for (node, at, data) in late {
            let flags = WriteFlags {
                from_cache: true,
                ..WriteFlags::default()
            };
            let done = workspace.write(node, at, &data, flags, W).unwrap();
            assert_eq!(done as usize, data.len());
        }
    }

    fn inval_entry(&self, _: NodeId, _: &[u8]) {}

    fn inval_all_entries(&self) -> bool {
        true
    }
}

/// A kernel that brings the second half of an append when it is told to forget the file.
struct SecondHalf(Mutex<Option<(Arc<Workspace>, NodeId)>>);

impl KernelCache for SecondHalf {
    fn flush_dirty(&self) {}

    fn inval_inode(&self, node: NodeId) {
        let call = self.0.lock().unwrap().take_if(|(_, file)| *file == node);
        if let Some((w, file)) = call {
            append(&w, file, 12, "half\n");
        }
    }

    fn inval_entry(&self, _: NodeId, _: &[u8]) {}

    fn inval_all_entries(&self) -> bool {
        true
    }
}

fn append(w: &Workspace, node: NodeId, at: u64, text: &str) {
    let flags = WriteFlags {
        append: true,
        thread: 7,
        ..WriteFlags::default()
    };
    let done = w.write(node, at, text.as_bytes(), flags, W).unwrap();
    assert_eq!(done as usize, text.len());
}

#[test]
fn an_append_that_comes_in_parts_is_whole_in_what_a_merge_shows_and_in_what_was_there() {
    let base = base();
    let world = world(base.path());
    let w = world.w();
    let set_perm = |node, perm| {
        let set = SetAttr {
            perm: Some(perm),
            ..SetAttr::default()
        };
        w.setattr(&Caller::default(), node, &set, W).unwrap();
    };
    write(w, MAIN, "log", "one\n");
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    set_perm(find(w, root(w, "b"), "log").unwrap(), 0o600);
    let log = find(w, NodeId::ROOT, "log").unwrap();
    append(w, log, 4, "and one ");
    w.set_kernel_cache(Arc::new(SecondHalf(Mutex::new(Some((
        world.shared(),
        log,
    ))))));
    merge(w, "b").unwrap();
    assert_eq!(w.getattr(log).unwrap().perm, 0o600);
    assert_eq!(read(w, MAIN, "log"), "one\nand one half\n");
    verbs::undo(w, MAIN).unwrap();
    assert_eq!(w.getattr(log).unwrap().perm, 0o644);
    assert_eq!(read(w, MAIN, "log"), "one\nand one half\n");
    w.unmounted();
}

/// A kernel that cancels a merge at one of the times that it is asked for something.
struct Interrupt {
    cancel: Cancel,
    /// How often it is asked for something before.
    left: AtomicUsize,
    /// Whether that was in time.
    heard: Mutex<Option<bool>>,
}

impl Interrupt {
    fn asked(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            *self.heard.lock().unwrap() = Some(self.cancel.cancel());
        }
    }
}

impl KernelCache for Interrupt {
    fn flush_dirty(&self) {
        self.asked();
    }

    fn inval_inode(&self, _: NodeId) {
        self.asked();
    }

    fn inval_entry(&self, _: NodeId, _: &[u8]) {
        self.asked();
    }

    fn inval_all_entries(&self) -> bool {
        true
    }
}

/// A merge into `main` that can be cancelled.
type Cancellable = dyn Fn(&Workspace, &Cancel) -> Result<MergeReport>;

/// Merges, interrupted when the kernel is asked for something for the `step`th time, and looks at what that
/// left. Gives whether it was in time; `None` where the merge has fewer steps.
fn interrupted(step: usize, is_merge: bool, run: &Cancellable) -> Option<bool> {
    let base = base();
    let world = world(base.path());
    let w = world.w();
    write(w, MAIN, "src/own", "of the target");
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    match is_merge {
        true => write(w, "b", "src/0.txt", "changed\n"),
        false => std::fs::write(base.path().join("src/0.txt"), "changed\n").unwrap(),
    }
    write(w, MAIN, "src/own", "of the target!");
    find(w, NodeId::ROOT, "src/0.txt").unwrap();
    let kernel = Arc::new(Interrupt {
        cancel: Cancel::new(),
        left: AtomicUsize::new(step),
        heard: Mutex::new(None),
    });
    w.set_kernel_cache(kernel.clone());
    let result = run(w, &kernel.cancel);
    w.unmounted();
    let heard = *kernel.heard.lock().unwrap();
    match heard {
        Some(true) => {
            assert!(
                matches!(result, Err(Error::Cancelled)),
                "{step}: {result:?}"
            );
            assert_eq!(read(w, MAIN, "src/0.txt"), "base 0\n", "{step}");
            assert!(
                matches!(verbs::undo(w, MAIN), Err(Error::NothingTo("undo"))),
                "{step}"
            );
            let again = run(w, &Cancel::new()).unwrap();
            assert_eq!(again.outcome, Outcome::Merged, "{step}");
        }
        _ => assert_eq!(result.unwrap().outcome, Outcome::Merged, "{step}"),
    }
    assert_eq!(read(w, MAIN, "src/0.txt"), "changed\n", "{step}");
    assert_eq!(read(w, MAIN, "src/own"), "of the target!", "{step}");
    let again = run(w, &Cancel::new()).unwrap();
    assert_eq!(again.outcome, Outcome::UpToDate, "{step}");
    let cancelled = Cancel::new();
    cancelled.cancel();
    let result = run(w, &cancelled);
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    heard
}

#[test]
fn a_merge_is_cancelled_until_it_is_shown_and_done_afterwards() {
    let merged = |w: &Workspace, cancel: &Cancel| {
        let req = MergeRequest {
            from: "b".into(),
            into: MAIN.into(),
            ..Default::default()
        };
        verbs::merge_branch_unless(w, &req, &|_, _| (), cancel)
    };
    let updated = |w: &Workspace, cancel: &Cancel| {
        let req = UpdateRequest {
            branch: MAIN.into(),
            ..Default::default()
        };
        verbs::update_unless(w, &req, &|_, _| (), cancel)
    };
    let kinds: [(bool, &Cancellable); 2] = [(true, &merged), (false, &updated)];
    for (is_merge, run) in kinds {
        let steps = (0..).map(|step| interrupted(step, is_merge, run));
        let heard: Vec<bool> = steps.map_while(|heard| heard).collect();
        assert!(heard.contains(&true) && heard.contains(&false), "{heard:?}");
        assert!(heard.is_sorted_by(|a, b| a >= b), "{heard:?}");
    }
}

/// A file of three pages and a bit, in lines of 16 bytes.
fn lines() -> Vec<u8> {
    (0..800)
        .flat_map(|n| format!("line {n:010}\n").into_bytes())
        .collect()
}

fn with_line(mut text: Vec<u8>, line: usize, new: &[u8; 15]) -> Vec<u8> {
    text[line * 16..line * 16 + 15].copy_from_slice(new);
    text
}

const OURS: &[u8; 15] = b"through mapping";
const THEIRS: &[u8; 15] = b"of the branch !";

/// A branch `b` that changed `line` of `file` and moved it, and a page `page` of that file in `main` that
/// the kernel holds changed at `stored`. Gives what the merge of `b` did.
fn merge_beside_a_mapping(world: &World, line: usize, stored: usize) -> Result<MergeReport> {
    let w = world.w();
    let text = String::from_utf8(lines()).unwrap();
    write(w, MAIN, "file", &text);
    checkpoint(w, MAIN);
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    let theirs = with_line(lines(), line, THEIRS);
    write(w, "b", "file", &String::from_utf8(theirs).unwrap());
    verbs::rename_path(w, "b", b"file", b"moved").unwrap();
    checkpoint(w, "b");
    let node = find(w, NodeId::ROOT, "file").unwrap();
    let ours = with_line(lines(), stored, OURS);
    let page = stored * 16 / 4096 * 4096;
    let end = (page + 4096).min(ours.len());
    let kernel = Arc::new(Pages::default());
    *kernel.workspace.lock().unwrap() = Some(world.shared());
    let dirty = (node, page as u64, ours[page..end].to_vec());
    kernel.dirty.lock().unwrap().push(dirty);
    w.set_kernel_cache(kernel.clone());
    let done = merge(w, "b");
    assert!(
        kernel.dirty.lock().unwrap().is_empty(),
        "the page was never asked for"
    );
    *kernel.workspace.lock().unwrap() = None;
    w.unmounted();
    done
}

#[test]
fn a_page_that_the_kernel_brings_during_a_merge_is_merged_too() {
    let base = base();
    // In a page that the merge left alone, in the last, short one, and in one that it changed.
    for (line, stored) in [(1, 600), (600, 1), (1, 799), (1, 200)] {
        let world = world(base.path());
        let w = world.w();
        let done = merge_beside_a_mapping(&world, line, stored).unwrap();
        assert!(done.conflicts.is_empty(), "{line} {stored}");
        let wanted = with_line(with_line(lines(), line, THEIRS), stored, OURS);
        assert_eq!(
            read(w, MAIN, "moved").into_bytes(),
            wanted,
            "{line} {stored}"
        );
        assert!(find(w, NodeId::ROOT, "file").is_err());
        // It was there before the merge, too.
        while read_or_none(w, "moved").is_some() {
            verbs::undo(w, MAIN).unwrap();
        }
        let wanted = with_line(lines(), stored, OURS);
        assert_eq!(
            read(w, MAIN, "file").into_bytes(),
            wanted,
            "{line} {stored}"
        );
    }
}

fn read_or_none(w: &Workspace, path: &str) -> Option<NodeId> {
    find(w, NodeId::ROOT, path).ok()
}

#[test]
fn a_page_that_does_not_fit_what_is_merged_makes_a_conflict_and_nothing_is_merged() {
    let base = base();
    let world = world(base.path());
    let w = world.w();
    let done = merge_beside_a_mapping(&world, 20, 20).unwrap();
    assert_eq!(done.outcome, Outcome::Conflicts);
    assert_eq!(done.commit, None);
    assert!(find(w, NodeId::ROOT, "moved").is_err());
    assert_eq!(
        read(w, MAIN, "file").into_bytes(),
        with_line(lines(), 20, OURS)
    );
}
