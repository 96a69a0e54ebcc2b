//! Rules are asked for every change, before it is journaled, and told all that it does to paths.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "judging/asking.rs"]
mod asking;
#[path = "judging/changes.rs"]
mod changes;
mod common;
#[path = "judging/cut.rs"]
mod cut;
#[path = "judging/opens.rs"]
mod opens;

use changes::{at, flags, rename, root};
use common::base_dir;
use common::by_path::{find, mkdir, read, write};
use common::world::{MAIN, World};
use engine::judge::{Asker, Bench, Counting, Judge, Ruling, Sentence, Touch};
use engine::{
    Asking, Caller, Error, MergeRequest, Target, Wait, Workspace, WriteFlags, acting_for, errno,
    verbs,
};
use objstore::crash_storage::CrashStorage;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const W: Wait = Wait::Allowed;
const DEADLINE: Duration = Duration::from_secs(60);

/// What a judge heard, and what it says.
#[derive(Debug)]
struct Heard {
    version: u64,
    touches: Mutex<Vec<String>>,
    sentence: Sentence,
    /// Changes that are made before it denies.
    first: usize,
    lasts: bool,
}

#[derive(Debug)]
struct Listener(Arc<Heard>, usize);

#[derive(Debug)]
struct Listening(Arc<Heard>);

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

impl Bench for Listener {
    fn begin(&mut self, asker: &Asker<'_>, _: Duration) {
        let begun = format!("uid {} {} {}", asker.uid, asker.comm, asker.branch);
        self.0.touches.lock().unwrap().push(begun);
    }

    fn touch(&mut self, touch: Touch<'_>) {
        self.0.touches.lock().unwrap().push(match touch {
            Touch::At(op, path) => format!("{} {}", op.word(), shown(path)),
            Touch::Moved { from, to, .. } => format!("moved {} {}", shown(from), shown(to)),
            Touch::Linked { from, to } => format!("linked {} {}", shown(from), shown(to)),
        });
    }

    fn end(&mut self) -> Ruling {
        let is_over = self.1 >= self.0.first;
        Ruling {
            sentence: if is_over {
                self.0.sentence
            } else {
                Sentence::Allow
            },
            rule: Some((0, "test".into())),
            is_first: is_over,
            lasts: self.0.lasts,
            words: None,
        }
    }

    fn made(&mut self) -> Vec<Counting> {
        self.1 += 1;
        let period = Duration::from_secs(3600);
        let begins = self.1 == 1 && self.0.first > 0;
        begins
            .then_some(Counting { rule: 0, period })
            .into_iter()
            .collect()
    }
}

impl Judge for Listening {
    fn version(&self) -> u64 {
        self.0.version
    }

    fn wants_names(&self) -> bool {
        true
    }

    fn reaches_below(&self, _: &[u8]) -> bool {
        true
    }

    fn bench(&self) -> Box<dyn Bench> {
        Box::new(Listener(self.0.clone(), 0))
    }
}

fn judge(sentence: Sentence, first: usize) -> Arc<Heard> {
    Arc::new(Heard {
        version: 1,
        touches: Mutex::default(),
        sentence,
        first,
        lasts: false,
    })
}

fn set(w: &Workspace, heard: &Arc<Heard>) {
    w.judges().set(Some(Arc::new(Listening(heard.clone()))));
}

impl Heard {
    /// What it heard since the last time, but for who asked.
    fn take(&self) -> Vec<String> {
        let all = std::mem::take(&mut *self.touches.lock().unwrap());
        all.into_iter()
            .filter(|line| !line.starts_with("uid"))
            .collect()
    }
}

fn world() -> World {
    World::on_disk(CrashStorage::new(), base_dir::shared())
}

/// d/f with a further name d/g, d/e/x, o, and a directory n.
fn fill(w: &Workspace) {
    let d = mkdir(w, MAIN, "d");
    mkdir(w, MAIN, "d/e");
    mkdir(w, MAIN, "n");
    for path in ["d/f", "d/e/x", "o"] {
        write(w, MAIN, path, b"content");
    }
    w.link(find(w, MAIN, "d/f").unwrap(), d, b"g", W).unwrap();
    w.setxattr(
        &Caller::default(),
        find(w, MAIN, "o").unwrap(),
        b"user.a",
        b"1",
        0,
        W,
    )
    .unwrap();
}

#[test]
fn what_is_denied_is_told_in_full_and_changes_nothing() {
    for (name, change, touches) in changes::REQUESTS.into_iter().chain(changes::BY_PATH) {
        let world = world();
        let w = world.w();
        fill(w);
        // So that nothing is journaled in the background.
        w.settle().unwrap();
        let heard = judge(Sentence::Deny(errno::EROFS), 0);
        let before = (verbs::status(w, MAIN).unwrap().journal_bytes, tree_of(w));
        set(w, &heard);
        let denied = change(w).unwrap_err();
        assert_eq!(denied.errno(), errno::EROFS, "{name}: {denied}");
        assert!(matches!(denied, Error::Denied { .. }), "{name}");
        let mut told = heard.take();
        told.truncate(touches.len());
        told.sort_unstable();
        let mut touches = touches.to_vec();
        touches.sort_unstable();
        // Removing a directory begins with any of its names.
        if name != "fs.remove" {
            assert_eq!(told, touches, "{name}");
        }
        let after = (verbs::status(w, MAIN).unwrap().journal_bytes, tree_of(w));
        assert_eq!(before, after, "{name}");
        w.judges().set(None);
        change(w).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(heard.take().is_empty(), "{name}");
        assert_ne!(
            before.0,
            verbs::status(w, MAIN).unwrap().journal_bytes,
            "{name}"
        );
    }
}

/// What names there are, and what is in them; nothing that differs from one run to the next.
fn tree_of_names(w: &Workspace) -> Vec<String> {
    let paths = [
        "d", "d/e", "d/e/x", "d/f", "d/g", "n", "o", "a", "p", "d/a", "d/p",
    ];
    let shown = paths.map(|path| {
        let found = find(w, MAIN, path).map(|node| {
            let attr = w.getattr(node).unwrap();
            let data = read(w, MAIN, path).ok();
            (attr.perm, attr.uid, attr.size, attr.nlink, data)
        });
        format!("{path} {:?}", found.ok())
    });
    shown.into()
}

/// The tree as a commit that costs no journal record.
fn tree_of(w: &Workspace) -> Vec<String> {
    let mut all = Vec::new();
    for path in [
        "d", "d/e", "d/e/x", "d/f", "d/g", "n", "o", "a", "p", "d/a", "d/p",
    ] {
        let found = find(w, MAIN, path).map(|node| {
            let attr = w.getattr(node).unwrap();
            let data = read(w, MAIN, path).ok();
            (attr.perm, attr.uid, attr.size, attr.nlink, attr.ctime, data)
        });
        all.push(format!("{path} {:?}", found.ok()));
    }
    all
}

#[test]
fn switches_are_the_users_own() {
    let world = world();
    let w = world.w();
    fill(w);
    common::by_path::checkpoint(w, MAIN, "here");
    write(w, MAIN, "o", b"other");
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    write(w, "b", "p", b"p");
    set(w, &judge(Sentence::Deny(errno::EACCES), 0));
    verbs::rollback(w, MAIN, &Target::Ref("here".into())).unwrap();
    verbs::undo(w, MAIN).unwrap();
    let request = MergeRequest {
        from: "b".into(),
        into: MAIN.into(),
        ..MergeRequest::default()
    };
    verbs::merge_branch(w, &request, &|_, _| {}).unwrap();
    assert!(find(w, MAIN, "p").is_ok());
}

#[test]
fn decisions_are_remembered_until_names_or_rules_change() {
    let world = world();
    let w = world.w();
    fill(w);
    let heard = Arc::new(Heard {
        lasts: true,
        ..Arc::into_inner(judge(Sentence::Allow, 0)).unwrap()
    });
    set(w, &heard);
    let write = || {
        w.write(at(w, "o"), 0, b"x", WriteFlags::default(), W)
            .unwrap()
    };
    let asked = |uid| {
        let asking = Asking {
            thread: std::process::id(),
            uid,
            ..Asking::default()
        };
        acting_for(asking, write);
        !heard.take().is_empty()
    };
    assert!(asked(1));
    assert!(!asked(1));
    assert!(asked(2), "another user");
    rename(w, ("d", b"e"), ("d", b"z"), flags()).unwrap();
    heard.take();
    assert!(asked(2), "a name moved");
    assert!(!asked(2));
    w.link(at(w, "o"), root(w), b"another", W).unwrap();
    heard.take();
    assert!(asked(2), "it has a further name");
    let newer = Arc::new(Heard {
        version: 2,
        ..Arc::into_inner(judge(Sentence::Deny(errno::EPERM), 0)).unwrap()
    });
    set(w, &newer);
    let denied = w.write(at(w, "o"), 0, b"x", WriteFlags::default(), W);
    assert_eq!(denied.unwrap_err().errno(), errno::EPERM);
}

#[test]
fn the_first_denial_of_a_rule_keeps_what_was_there_before_it_counted() {
    let disk = CrashStorage::new();
    let base = tempfile::tempdir().unwrap();
    std::fs::write(base.path().join("based"), b"of the base").unwrap();
    let mut world = World::on_disk(disk, base.path());
    let d = mkdir(world.w(), MAIN, "d");
    for n in 0..20 {
        write(
            world.w(),
            MAIN,
            &format!("d/{n}"),
            format!("content {n}").as_bytes(),
        );
    }
    set(world.w(), &judge(Sentence::Deny(errno::EACCES), 6));
    world
        .w()
        .unlink(common::by_path::root(world.w(), MAIN), b"based", W)
        .unwrap();
    let results: Vec<bool> = (0..20)
        .map(|n| world.w().unlink(d, n.to_string().as_bytes(), W).is_ok())
        .collect();
    assert_eq!(results.iter().filter(|done| **done).count(), 5);
    let until = Instant::now() + DEADLINE;
    while kept(world.w()).is_none() {
        assert!(Instant::now() < until, "no commit was made");
        std::thread::yield_now();
    }
    check_kept(world.w());
    world.kill().unwrap();
    check_kept(world.w());
    world.close(engine::CloseMode::Checkpoint).unwrap();
    world.reopen().unwrap();
    check_kept(world.w());
}

fn kept(w: &Workspace) -> Option<String> {
    let log = verbs::log(w, MAIN, true).unwrap();
    let of_rule = |e: &engine::LogEntry| e.meta.contains(&("policy-rule".into(), "test".into()));
    let mut found = log.iter().filter(|e| of_rule(e) && e.commit.is_some());
    let first = found.next()?;
    assert!(found.next().is_none(), "made twice");
    first.commit.map(|id| id.to_string())
}

/// The commit has everything, and what is shown has what was not removed.
fn check_kept(w: &Workspace) {
    assert!(find(w, MAIN, "d/4").is_err() && find(w, MAIN, "based").is_err());
    assert_eq!(common::by_path::text(w, MAIN, "d/5"), "content 5");
    verbs::create_branch(w, "look", MAIN, kept(w).as_deref()).unwrap();
    for n in 0..20 {
        let path = format!("d/{n}");
        assert_eq!(
            common::by_path::text(w, "look", &path),
            format!("content {n}")
        );
    }
    assert_eq!(common::by_path::text(w, "look", "based"), "of the base");
    verbs::delete_branch(w, "look", &|_, _| {}).unwrap();
}
