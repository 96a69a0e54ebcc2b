//! Rules about opens: who opens is told the error that can be told, and is not kept waiting by a branch that is in use.

use super::{W, fill, world};
use crate::changes::at;
use crate::common::by_path::find;
use crate::common::world::MAIN;
use engine::judge::{Asker, Bench, Counting, Judge, Ruling, Sentence, Touch};
use engine::{Error, NodeId, Opening, Terms, Workspace, WriteFlags, errno};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

/// Denies what is opened at `d/f`, and watches `o`.
#[derive(Debug, Clone, Default)]
struct Opens {
    about_opens: bool,
    /// Where a change stops while it is judged, under the branch's lock.
    stops: Option<Arc<Barrier>>,
    touches: Arc<Mutex<Vec<String>>>,
}

#[derive(Debug)]
struct OpensInBranch(Opens, Sentence);

impl Bench for OpensInBranch {
    fn begin(&mut self, _: &Asker<'_>, _: Duration) {
        self.1 = Sentence::Allow;
        if let Some(barrier) = &self.0.stops {
            barrier.wait();
            barrier.wait();
        }
    }

    fn touch(&mut self, touch: Touch<'_>) {
        let Touch::At(op, path) = touch else { return };
        let path = String::from_utf8_lossy(path);
        match &*path {
            "d/f" => self.1 = Sentence::Deny(errno::EACCES),
            "o" => self.1 = Sentence::Watch,
            _ => {}
        }
        let touch = format!("{} {path}", op.word());
        self.0.touches.lock().unwrap().push(touch);
    }

    fn end(&mut self) -> Ruling {
        Ruling {
            sentence: self.1,
            rule: Some((0, "opens".into())),
            lasts: self.1 == Sentence::Allow,
            ..Ruling::default()
        }
    }

    fn made(&mut self) -> Vec<Counting> {
        Vec::new()
    }
}

impl Judge for Opens {
    fn version(&self) -> u64 {
        1
    }

    fn wants_names(&self) -> bool {
        false
    }

    fn wants_opens(&self) -> bool {
        self.about_opens
    }

    fn reaches_below(&self, _: &[u8]) -> bool {
        false
    }

    fn bench(&self) -> Box<dyn Bench> {
        Box::new(OpensInBranch(self.clone(), Sentence::Allow))
    }
}

const TERMS: Terms = Terms {
    at_most: Duration::from_millis(1),
    errno: errno::EPERM,
};

fn asked(w: &Workspace, node: NodeId) -> Result<(), i32> {
    w.may_open(node, TERMS).map_err(|error| error.errno())
}

#[test]
fn an_open_is_judged_at_all_names_and_told_with_the_error_that_is_possible() {
    let world = world();
    let w = world.w();
    fill(w);
    let rules = Opens::default();
    w.judges().set(Some(Arc::new(rules.clone())));
    assert_eq!(asked(w, at(w, "d/f")), Ok(()), "no rule is about opens");
    assert!(rules.touches.lock().unwrap().is_empty());
    let rules = Opens {
        about_opens: true,
        ..rules
    };
    // Another version, as that of a workspace ascends.
    w.judges().set(None);
    w.judges().set(Some(Arc::new(rules.clone())));
    let mut follower = w.feed().follow(None);
    // d/g is a further name of d/f.
    assert_eq!(asked(w, at(w, "d/g")), Err(errno::EPERM));
    let opened = w.opens(at(w, "d/f"), Opening::default()).unwrap_err();
    assert!(matches!(
        opened,
        Error::Denied {
            code: errno::EACCES,
            ..
        }
    ));
    assert_eq!(asked(w, at(w, "o")), Ok(()));
    assert_eq!(asked(w, at(w, "d/e/x")), Ok(()));
    let count = rules.touches.lock().unwrap().len();
    assert_eq!(asked(w, at(w, "d/e/x")), Ok(()));
    assert_eq!(
        rules.touches.lock().unwrap().len(),
        count,
        "it is remembered"
    );
    assert_eq!(asked(w, NodeId(u64::MAX)), Ok(()));
    let told = follower.next(100, Duration::ZERO).events;
    let told: Vec<_> = told
        .iter()
        .map(|e| format!("{} {}", e.sentence.word(), e.detail))
        .collect();
    let wanted = [
        "deny rule=opens op=open errno=1",
        "deny rule=opens op=open errno=13",
        "soft_watch rule=opens op=open",
    ];
    assert_eq!(told, wanted);
}

#[test]
fn who_opens_does_not_wait_for_a_branch_that_is_in_use() {
    let world = world();
    let w = world.w();
    fill(w);
    let (file, other) = (at(w, "d/f"), find(w, MAIN, "o").unwrap());
    let barrier = Arc::new(Barrier::new(2));
    let rules = Opens {
        about_opens: true,
        stops: Some(barrier.clone()),
        ..Opens::default()
    };
    w.judges().set(Some(Arc::new(rules)));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| w.write(other, 0, b"x", WriteFlags::default(), W));
        barrier.wait();
        let since = Instant::now();
        let asked = w.may_open(file, TERMS);
        let waited = since.elapsed();
        barrier.wait();
        writer.join().unwrap().unwrap();
        assert!(matches!(asked, Err(Error::WouldBlock)), "{asked:?}");
        assert!(
            waited >= TERMS.at_most && waited < Duration::from_secs(1),
            "{waited:?}"
        );
    });
}
