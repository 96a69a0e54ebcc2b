//! A judge that asks about every change before it rules: without the branch's lock, and the change is made once.

use super::changes::{BY_PATH, REQUESTS};
use super::{DEADLINE, W, fill, judge, set, world};
use crate::common::by_path::{root, write};
use crate::common::world::MAIN;
use engine::judge::{Asker, Bench, Counting, Heard, Judge, Question, Ruling, Sentence, Touch};
use engine::{Caller, Error, Wait, Workspace, errno, verbs};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::Duration;

#[derive(Debug, Clone)]
struct Asks {
    shared: Weak<Workspace>,
    asked: Arc<AtomicUsize>,
    /// How often it asks about a change.
    times: usize,
    sentence: Sentence,
}

#[derive(Debug)]
struct AsksInBranch(Asks, usize);

impl Question for Asks {
    fn ask(self: Box<Self>) -> Heard {
        self.asked.fetch_add(1, SeqCst);
        // Another thread gets the branch's lock meanwhile.
        let (sender, receiver) = mpsc::channel();
        let w = self.shared.upgrade().unwrap();
        thread::spawn(move || {
            let found = w.getattr(root(&w, MAIN)).is_ok();
            let _ = sender.send((found, w));
        });
        let (found, _) = receiver.recv_timeout(DEADLINE).expect("a lock is held");
        assert!(found);
        Heard(Box::new(()))
    }
}

impl Bench for AsksInBranch {
    fn begin(&mut self, _: &Asker<'_>, _: Duration) {}
    fn touch(&mut self, _: Touch<'_>) {}

    fn hear(&mut self, _: Heard) {
        self.1 += 1;
    }

    fn question(&mut self) -> Option<Box<dyn engine::judge::Question>> {
        if self.1 < self.0.times {
            return Some(Box::new(self.0.clone()));
        }
        self.1 = 0;
        None
    }

    fn end(&mut self) -> Ruling {
        Ruling {
            sentence: self.0.sentence,
            rule: Some((0, "asked".into())),
            ..Ruling::default()
        }
    }

    fn made(&mut self) -> Vec<Counting> {
        Vec::new()
    }
}

impl Judge for Asks {
    fn version(&self) -> u64 {
        7
    }

    fn wants_names(&self) -> bool {
        true
    }

    fn reaches_below(&self, _: &[u8]) -> bool {
        false
    }

    fn bench(&self) -> Box<dyn Bench> {
        Box::new(AsksInBranch(self.clone(), 0))
    }
}

fn asks(shared: &Arc<Workspace>, times: usize, sentence: Sentence) -> Asks {
    let asks = Asks {
        shared: Arc::downgrade(shared),
        asked: Arc::default(),
        times,
        sentence,
    };
    shared.judges().set(Some(Arc::new(asks.clone())));
    asks
}

#[test]
fn every_change_is_asked_about_without_the_lock_and_made_once() {
    for (name, change, touches) in REQUESTS.into_iter().chain(BY_PATH) {
        let changed = |with_question: bool| {
            let world = world();
            let w = world.w();
            fill(w);
            let heard = judge(Sentence::Allow, 0);
            let asked = with_question.then(|| asks(&world.shared(), 1, Sentence::Allow).asked);
            if !with_question {
                set(w, &heard);
            }
            change(w).unwrap_or_else(|e| panic!("{name}: {e}"));
            let asked = asked.map(|asked| asked.load(SeqCst));
            w.judges().set(None);
            (asked, super::tree_of_names(w))
        };
        let ((asked, after), (_, without)) = (changed(true), changed(false));
        assert!(asked.unwrap() >= 1, "{name} {touches:?}");
        assert_eq!(after, without, "{name}");
    }
}

#[test]
fn what_a_question_has_denied_changes_nothing() {
    let world = world();
    let w = world.w();
    fill(w);
    w.settle().unwrap();
    let before = verbs::status(w, MAIN).unwrap().journal_bytes;
    asks(&world.shared(), 1, Sentence::Deny(errno::EROFS));
    let denied = w.unlink(root(w, MAIN), b"o", W).unwrap_err();
    assert!(matches!(denied, Error::Denied { .. }), "{denied}");
    assert_eq!(denied.errno(), errno::EROFS);
    assert_eq!(verbs::status(w, MAIN).unwrap().journal_bytes, before);
}

#[test]
fn who_may_not_wait_does_not_ask() {
    let world = world();
    let w = world.w();
    fill(w);
    let asked = asks(&world.shared(), 1, Sentence::Allow).asked;
    let caller = Caller::default();
    let made = w.mkdir(&caller, root(w, MAIN), b"new", 0o755, Wait::Never);
    assert!(matches!(made, Err(Error::WouldBlock)));
    assert_eq!(asked.load(SeqCst), 0);
}

#[test]
fn asking_has_an_end() {
    let world = world();
    let w = world.w();
    write(w, MAIN, "o", b"content");
    let asked = asks(&world.shared(), usize::MAX, Sentence::Allow).asked;
    let denied = w.unlink(root(w, MAIN), b"o", W).unwrap_err();
    assert!(
        denied.to_string().contains("too-often-changed-to-judge"),
        "{denied}"
    );
    assert_eq!(asked.load(SeqCst), 16);
}
