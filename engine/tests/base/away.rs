//! A workspace whose directories come from elsewhere when they are looked into is the one that has them all: the same
//! random steps on both, compared after each.
#![allow(clippy::unwrap_used)]

use crate::common::away::{
    Other, Step, W, carry_out, copy, on, origin, seen, settle, step, workspace,
};
use crate::common::by_path;
use crate::common::rng::{Rng, fresh_seed};
use crate::common::world::{MAIN, World};
use engine::journal::{Journal, ReplayRecord};
use engine::record::{Event, Record, decode};
use engine::verbs::{self, MergeRequest, remotes};
use engine::{
    Caller, Cancel, CloseMode, CommitId, DiffSide, NodeId, RenameFlags, Target, Workspace,
};
use objstore::exchange::commit_key;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;
use tempfile::TempDir;

/// A lazy workspace, and one that has everything.
struct Both {
    lazy: World,
    whole: World,
    other: Arc<Other>,
    /// The commit that both begin with.
    id: CommitId,
    done: Vec<Step>,
    _origin: World,
    _base: TempDir,
    _empty: TempDir,
}

impl Both {
    fn new() -> Both {
        let base = tempfile::tempdir().unwrap();
        let empty = tempfile::tempdir().unwrap();
        let (origin, other, id) = origin(base.path());
        Both {
            lazy: workspace(empty.path(), &other, id, true),
            whole: workspace(empty.path(), &other, id, false),
            other,
            id,
            done: Vec::new(),
            _origin: origin,
            _base: base,
            _empty: empty,
        }
    }

    fn carry_out(&mut self, step: Step) {
        println!("{step:?}");
        self.done.push(step.clone());
        let results = [&mut self.lazy, &mut self.whole].map(|world| carry_out(world, &step));
        // Another engine, which knows nobody yet; it was opened without.
        let objects = self.lazy.engine.objects();
        objects.set_elsewhere(Some(self.other.clone()));
        if let Step::Kill = step {
            [&self.lazy, &self.whole].into_iter().for_each(settle);
        }
        assert_eq!(results[0], results[1], "{step:?} of {:#?}", self.done);
    }

    fn carry_out_all(&mut self, steps: impl IntoIterator<Item = Step>) {
        for step in steps {
            self.carry_out(step);
        }
    }

    fn compare(&self) {
        // A file has as many names as are known: all of them once all directories are.
        seen(self.lazy.w());
        let (a, b) = (seen(self.lazy.w()), seen(self.whole.w()));
        for (path, entry) in &b {
            let path_shown = String::from_utf8_lossy(path);
            let done = &self.done;
            assert_eq!(a.get(path), Some(entry), "{path_shown} after {done:#?}");
        }
        assert_eq!(a.len(), b.len(), "after {:#?}", self.done);
    }

    /// Compares what is shown now and after a restart.
    fn compare_twice(mut self) {
        self.compare();
        self.carry_out(Step::Reopen);
        self.compare();
        carry_out(&mut self.lazy, &Step::Collect).unwrap();
    }
}

fn run(seed: u64, steps: usize) {
    let mut both = Both::new();
    let mut rng = Rng(seed);
    let mut labels = vec![both.id.to_string()];
    for number in 0..steps {
        let step = step(&mut rng, number, &labels);
        both.carry_out(step.clone());
        if let Step::Checkpoint(label) = step {
            labels.push(label);
        }
    }
    both.compare_twice();
}

#[test]
fn a_lazy_workspace_is_the_whole_one() {
    let first = fresh_seed();
    for seed in first..first + 40 {
        println!("AGENTVFS_SEED={seed}");
        run(seed, 40);
    }
}

/// Names of one file in the commit that all begin with.
const LINKED: [&str; 3] = ["d0/s0/linked", "d3/s1/linked", "d4/linked"];

fn assert_all_linked(w: &Workspace) {
    let nodes = LINKED.map(|path| by_path::find(w, MAIN, path).unwrap());
    assert_eq!(nodes, [nodes[0]; 3]);
    assert_eq!(w.getattr(nodes[0]).unwrap().nlink, 3);
}

#[test]
fn links_are_whole_after_a_rollback_over_another_file_under_one_of_their_names() {
    let mut both = Both::new();
    let first = both.id.to_string();
    both.carry_out_all([
        Step::Read(LINKED[0].into()),
        Step::Rename("d0/s0".into(), "d0/moved".into()),
        Step::Mkdir("d0/s0".into()),
        Step::Write(LINKED[0].into(), "another\n".into()),
        Step::Rollback(first),
        Step::Checkpoint("back".into()),
        Step::Write(LINKED[1].into(), "changed\n".into()),
    ]);
    assert_all_linked(both.lazy.w());
    assert_eq!(by_path::text(both.lazy.w(), MAIN, LINKED[0]), "changed\n");
    both.carry_out(Step::Rollback("back".into()));
    assert_all_linked(both.lazy.w());
    both.compare_twice();
}

#[test]
fn a_restore_of_what_did_not_change_leaves_links_alone() {
    let mut both = Both::new();
    let first = both.id.to_string();
    // The tree of the first commit is made of objects, beside one in which the file is another.
    both.carry_out_all([
        Step::Write(LINKED[1].into(), "changed\n".into()),
        Step::Checkpoint("changed".into()),
        Step::Reopen,
        Step::Rollback(first.clone()),
        Step::Restore(first.clone(), "d4".into()),
        Step::Restore(first, LINKED[0].into()),
    ]);
    for world in [&both.lazy, &both.whole] {
        assert_all_linked(world.w());
    }
    both.compare_twice();
}

#[test]
fn a_diff_shows_nothing_of_a_directory_that_one_side_alone_knows() {
    let mut both = Both::new();
    both.carry_out_all([
        Step::Checkpoint("before".into()),
        Step::Rename("d1".into(), "d0/moved".into()),
        Step::Rollback("before".into()),
        Step::Merge("side".into(), "d5/s2/f1".into()),
        Step::Diff("before".into()),
    ]);
    let from = DiffSide::Ref("before".into());
    let changes = verbs::diff(both.lazy.w(), MAIN, &from, &DiffSide::Live, &[]).unwrap();
    let paths: Vec<_> = changes.iter().map(|c| &c.path[..]).collect();
    assert_eq!(paths, [b"side"]);
    both.compare_twice();
}

#[test]
fn nothing_is_brought_before_it_is_looked_at_and_opening_needs_nobody() {
    let base = tempfile::tempdir().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let (_origin, other, id) = origin(base.path());
    let brought = || other.brought.load(Ordering::Relaxed);
    let mut lazy = workspace(empty.path(), &other, id, true);
    assert_eq!(brought(), 0);
    let root = NodeId::ROOT;
    lazy.w().lookup(root, b"d1", W).unwrap();
    assert_eq!(brought(), 1);
    // A directory that was never looked into is moved and committed as it is.
    let flags = RenameFlags::default();
    lazy.w()
        .rename(root, b"d2", root, b"moved", flags, W)
        .unwrap();
    by_path::checkpoint(lazy.w(), MAIN, "moved");
    assert_eq!(brought(), 1);
    other.is_away.store(true, Ordering::Relaxed);
    lazy.kill().unwrap();
    lazy.close(CloseMode::Checkpoint).unwrap();
    lazy.reopen().unwrap();
    lazy.engine.objects().set_elsewhere(Some(other.clone()));
    let nothing = by_path::read(lazy.w(), MAIN, "moved/s0/f0").unwrap_err();
    assert_eq!(nothing.errno(), 5, "{nothing}");
    by_path::write(lazy.w(), MAIN, "own", b"own\n");
    by_path::checkpoint(lazy.w(), MAIN, "own");
    other.is_away.store(false, Ordering::Relaxed);
    assert_eq!(
        by_path::text(lazy.w(), MAIN, "moved/s0/f0"),
        "2 0 0\n".repeat(50)
    );
    // A file that has names in directories that are not known is changed once all are.
    by_path::write(lazy.w(), MAIN, "d4/linked", b"changed\n");
    assert_eq!(by_path::text(lazy.w(), MAIN, "d3/s1/linked"), "changed\n");
}

/// While `switch` makes the tree of a commit of `origin/main`, a directory that both have comes into those that there are: afterwards
/// it has the entries and the numbers that it came with.
fn comes_meanwhile(switch: fn(&Workspace)) {
    let base = tempfile::tempdir().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let (origin, other, first) = origin(base.path());
    by_path::write(origin.w(), MAIN, "d2/s0/f0", b"second\n");
    let second = by_path::checkpoint(origin.w(), MAIN, "second");
    let lazy = workspace(empty.path(), &other, first, true);
    let from = other.engine.objects();
    copy(from, lazy.engine.objects(), &commit_key(&second), false);
    fetched(lazy.w(), second);
    // What differs is here, so nothing of the new tree is made twice; the entries of `d1` are not.
    assert_eq!(
        by_path::text(lazy.w(), MAIN, "d2/s0/f0"),
        "2 0 0\n".repeat(50)
    );
    let root = NodeId::ROOT;
    let d1 = lazy.w().lookup(root, b"d1", W).unwrap().node;

    let (came, number) = channel();
    let w = lazy.shared();
    let look = move || came.send(w.lookup(d1, b"s0", W).unwrap().node).unwrap();
    *other.when_brought.lock() = Some(Box::new(look));
    switch(lazy.w());
    let number = number.try_recv().unwrap();

    // Who finds the directory away, and that it came already, asks for it again and again.
    let (done, seen) = channel();
    let w = lazy.shared();
    std::thread::spawn(move || {
        let d1 = w.lookup(root, b"d1", W).unwrap().node;
        let s0 = w.lookup(d1, b"s0", W).unwrap().node;
        let read = |path: &str| by_path::text(&w, MAIN, path);
        done.send((s0, read("d1/s0/f0"), read("d2/s0/f0"))).unwrap();
    });
    let seen = seen.recv_timeout(Duration::from_secs(30));
    let seen = seen.unwrap_or_else(|why| panic!("the directory is away for ever: {why}"));
    let unchanged = "1 0 0\n".repeat(50);
    assert_eq!(seen, (number, unchanged, "second\n".to_owned()));
}

#[test]
fn a_directory_that_comes_while_a_rollback_is_prepared_is_the_same_after_it() {
    comes_meanwhile(|w| {
        verbs::rollback(w, MAIN, &Target::Ref("origin/main".into())).unwrap();
    });
}

#[test]
fn a_directory_that_comes_while_a_merge_is_prepared_is_the_same_after_it() {
    comes_meanwhile(|w| {
        let request = MergeRequest {
            from: "origin/main".into(),
            into: MAIN.into(),
            keep_conflicts: false,
            dry_run: false,
            label: None,
            message: String::new(),
        };
        remotes::merge_tracking(w, &request, &|_, _| {}, &Cancel::new()).unwrap();
    });
}

/// Notes that the branch `main` of a remote has a commit.
fn fetched(w: &Workspace, commit: CommitId) {
    let remote = remotes::RemoteConfig {
        name: "origin".into(),
        url: "file:///nowhere".into(),
        project: "project".into(),
        options: BTreeMap::new(),
    };
    remotes::add_remote(w, remote).unwrap();
    let incoming = remotes::Incoming {
        commit,
        labels: BTreeMap::new(),
        timelines: Vec::new(),
    };
    remotes::set_tracking(w, "origin", MAIN, &incoming).unwrap();
}

/// What a switch that fails must leave as it was: everything that can be seen without looking into a directory that is
/// away, the history, and the journal.
#[derive(Debug, PartialEq)]
struct Left {
    texts: Vec<(&'static str, std::result::Result<Vec<u8>, i32>)>,
    since_head: Vec<verbs::Change>,
    log: Vec<verbs::LogEntry>,
    head: Option<CommitId>,
    entries: u64,
    last: Option<(u64, String)>,
}

impl Left {
    /// Of the branch `main`; these paths are looked at.
    fn of(world: &World, paths: &[&'static str], head: &str) -> Left {
        let w = world.w();
        let read =
            |path: &&'static str| (*path, by_path::read(w, MAIN, path).map_err(|e| e.errno()));
        let head = DiffSide::Ref(head.into());
        let status = verbs::status(w, MAIN).unwrap();
        Left {
            texts: paths.iter().map(read).collect(),
            since_head: verbs::diff(w, MAIN, &head, &DiffSide::Live, &[]).unwrap(),
            log: verbs::log(w, MAIN, true).unwrap(),
            head: status.head,
            entries: status.entries,
            last: last_record(world),
        }
    }
}

/// The last record of the journal of `main`, and its number, but for entries of directories that came: those are no change.
fn last_record(world: &World) -> Option<(u64, String)> {
    let disk = world.disk.as_ref().unwrap();
    let is_mark = |path: &String| path.ends_with("branches/main/journal/mark");
    let mark = disk.paths().into_iter().find(is_mark);
    let mark = mark.unwrap_or_else(|| panic!("{:#?}", disk.paths()));
    let mut last = None;
    let mut each = |record: ReplayRecord<'_>| {
        let read: Record = decode(record.meta).unwrap();
        if !matches!(read, Record::Event(Event::Brought { .. })) {
            last = Some((record.seq, format!("{read:?}")));
        }
        Ok(())
    };
    Journal::inspect_left(disk, mark.trim_end_matches("/mark"), 0, &mut each).unwrap();
    last
}

/// What `main` shows after [`moved`].
const MOVED: [&str; 3] = ["d0/moved/linked", "d0/moved/f0", LINKED[0]];

impl Both {
    /// Both, once these steps are done and stored.
    fn stored(steps: impl IntoIterator<Item = Step>) -> Both {
        let mut both = Both::new();
        both.carry_out_all(steps);
        [&both.lazy, &both.whole].into_iter().for_each(settle);
        both
    }

    /// Does what the lazy workspace cannot do before somebody can be asked. Until then nothing is changed.
    fn fails_until_it_is_back(
        mut self,
        act: impl Fn(&Workspace) -> engine::Result<()>,
        (paths, head): (&[&'static str], &str),
    ) {
        let other = self.other.clone();
        let brought = || other.brought.load(Ordering::Relaxed);
        let before = Left::of(&self.lazy, paths, head);
        let came = brought();
        other.is_away.store(true, Ordering::Relaxed);
        for _ in 0..2 {
            let why = act(self.lazy.w()).unwrap_err();
            assert_eq!(why.errno(), 5, "{why}");
            assert!(
                why.to_string().ends_with("is not here: it is away"),
                "{why}"
            );
            assert_eq!(Left::of(&self.lazy, paths, head), before);
        }
        // Nor does a restart find anything else.
        self.lazy.kill().unwrap();
        let mut after = Left::of(&self.lazy, paths, head);
        // Of numbers in use some are of files that only the kernel knew.
        (after.last, after.entries) = (before.last.clone(), before.entries);
        assert_eq!(after, before, "after a kill");
        assert_eq!(brought(), came);
        other.is_away.store(false, Ordering::Relaxed);
        let objects = self.lazy.engine.objects();
        objects.set_elsewhere(Some(other.clone()));
        for world in [&self.lazy, &self.whole] {
            act(world.w()).unwrap();
        }
        assert!(brought() > came, "it needed nothing");
        self.compare_twice();
    }
}

/// A directory with one of the names of a file that has three is moved, and another file is put where that name was.
fn moved() -> [Step; 3] {
    [
        Step::Rename("d0/s0".into(), "d0/moved".into()),
        Step::Mkdir("d0/s0".into()),
        Step::Write(LINKED[0].into(), "another\n".into()),
    ]
}

/// A step on `main`.
fn carried_out(step: Step) -> impl Fn(&Workspace) -> engine::Result<()> {
    move |w| on(w, &Caller::default(), &step).map(drop)
}

/// `main` after [`moved`], of which it knew one name before.
fn moved_on_main() -> Both {
    let mut steps = vec![
        Step::Checkpoint("first".into()),
        Step::Read(LINKED[0].into()),
    ];
    steps.extend(moved());
    steps.push(Step::Checkpoint("head".into()));
    Both::stored(steps)
}

#[test]
fn a_rollback_that_needs_names_which_are_away_changes_nothing_before_it_has_them() {
    let rollback = carried_out(Step::Rollback("first".into()));
    moved_on_main().fails_until_it_is_back(rollback, (&MOVED, "head"));
}

#[test]
fn a_restore_that_needs_names_which_are_away_changes_nothing_before_it_has_them() {
    let restore = carried_out(Step::Restore("first".into(), "d0/s0".into()));
    moved_on_main().fails_until_it_is_back(restore, (&MOVED, "head"));
}

/// `main` after [`moved`] and a rollback, when it knows one name: the other file is in a state that was made before.
fn rolled_back() -> Both {
    let mut steps = vec![Step::Checkpoint("first".into())];
    steps.extend(moved());
    steps.extend([
        Step::Checkpoint("moved".into()),
        Step::Rollback("first".into()),
        Step::Read(LINKED[0].into()),
    ]);
    Both::stored(steps)
}

#[test]
fn a_restore_over_a_file_whose_names_are_away_changes_nothing_before_it_has_them() {
    let restore = carried_out(Step::Restore("moved".into(), LINKED[0].into()));
    rolled_back().fails_until_it_is_back(restore, (&[LINKED[0]], "first"));
}

#[test]
fn an_undo_that_needs_names_which_are_away_changes_nothing_before_it_has_them() {
    let undo = carried_out(Step::Undo);
    rolled_back().fails_until_it_is_back(undo, (&[LINKED[0]], "first"));
}

#[test]
fn a_merge_that_needs_names_which_are_away_changes_nothing_before_it_has_them() {
    let mut both = Both::stored([Step::Read(LINKED[0].into())]);
    for world in [&both.lazy, &both.whole] {
        let w = world.w();
        verbs::create_branch(w, "side", MAIN, None).unwrap();
        let dir = by_path::find(w, "side", "d0").unwrap();
        let flags = RenameFlags::default();
        w.rename(dir, b"s0", dir, b"moved", flags, W).unwrap();
        by_path::mkdir(w, "side", "d0/s0");
        by_path::write(w, "side", LINKED[0], b"another\n");
        by_path::checkpoint(w, "side", "side");
    }
    both.carry_out_all([
        Step::Write("own".into(), "own\n".into()),
        Step::Checkpoint("head".into()),
    ]);
    let merge = |w: &Workspace| {
        let request = MergeRequest {
            from: "side".into(),
            into: MAIN.into(),
            ..MergeRequest::default()
        };
        verbs::merge_branch(w, &request, &|_, _| ()).map(drop)
    };
    both.fails_until_it_is_back(merge, (&[LINKED[0], "d0/s0/f0", "own"], "head"));
}
