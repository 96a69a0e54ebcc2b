//! What may be asked before a change is made: somebody's rules (docs/policy.md).
//!
//! A workspace has at most one [`Judge`]. Each branch asks it for a [`Bench`], which remembers what that branch changed,
//! and asks the bench under its own lock, before it journals a change. While there is no judge, a change tests one
//! number and does nothing else.
//!
//! What takes longer, such as running a program, is a [`Question`]: the branch drops its lock, asks it, and judges the
//! change from the beginning, with what was [`Heard`].
//!
//! Who asks, what is touched and what is said have one definition, which those who make rules use, too (`ctl/policy`).
//!
//! Invariants: a bench answers at once, from memory: it is asked under a branch's lock. A question is never asked under one.

use crate::feed::FeedBackend;
pub use crate::feed::{FeedOp, Sentence};
pub use crate::question::{Heard, Question};
use parking_lot::RwLock;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Who changes something, and where.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asker<'a> {
    /// Process; 0 where it is not known.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// By which way.
    pub backend: FeedBackend,
    /// When the request came.
    pub since: Option<Instant>,
    /// Number of the branch.
    pub branch_number: u16,
    /// Name of the program; empty where it is not known.
    pub comm: &'a str,
    /// Branch.
    pub branch: &'a str,
    /// Run that began there last.
    pub run: Option<&'a str>,
    /// Number of the inode that is changed; 0 if there is none yet.
    pub ino: u64,
    /// Bytes that are written.
    pub bytes: u64,
}

/// What a change does to a path. Paths are from the root, and empty for the root and for what has none.
#[derive(Clone, Copy, Debug)]
pub enum Touch<'a> {
    /// An operation at a path: one of those that have an event.
    At(FeedOp, &'a [u8]),
    /// Something gets another path.
    Moved {
        /// It is a directory.
        is_dir: bool,
        /// Path before.
        from: &'a [u8],
        /// Path afterwards.
        to: &'a [u8],
    },
    /// A file gets a further path.
    Linked {
        /// One that it has.
        from: &'a [u8],
        /// The further one.
        to: &'a [u8],
    },
}

/// What is said of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruling {
    /// What is done with it.
    pub sentence: Sentence,
    /// Number and name of the rule that says so.
    pub rule: Option<(usize, Arc<str>)>,
    /// It is the first change that this rule denies since its time began: what was before that is kept.
    pub is_first: bool,
    /// The same operation on the same names by the same program need not be asked for again.
    pub lasts: bool,
    /// Further words for the event.
    pub words: Option<Arc<str>>,
}

/// A rule that counts what is made within a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counting {
    /// Number of the rule.
    pub rule: usize,
    /// How long it counts.
    pub period: Duration,
}

/// Rules at work in one branch: [`begin`](Bench::begin), [`hear`](Bench::hear) if a question was asked about the change,
/// [`touch`](Bench::touch) for all that it does, [`question`](Bench::question), [`end`](Bench::end) if there is none, and [`made`](Bench::made) if it was made.
pub trait Bench: Debug + Send {
    /// Begins with a change; `now` is the time since a moment that is the same for all changes.
    fn begin(&mut self, asker: &Asker<'_>, now: Duration);
    /// What its question about this change found out.
    fn hear(&mut self, _: Heard) {}
    /// What must be found out first.
    fn question(&mut self) -> Option<Box<dyn Question>> {
        None
    }
    /// Looks at one thing that it does.
    fn touch(&mut self, touch: Touch<'_>);
    /// What is said of it.
    fn end(&mut self) -> Ruling;
    /// It was made. Gives the rules whose time begins with it.
    fn made(&mut self) -> Vec<Counting>;
}

/// Rules.
pub trait Judge: Debug + Send + Sync {
    /// Their version, which ascends; never 0.
    fn version(&self) -> u64;
    /// Whether they depend on the program's name.
    fn wants_names(&self) -> bool;
    /// Whether they say something of opens.
    fn wants_opens(&self) -> bool {
        false
    }
    /// Whether they may say something of what is moved with a directory, which has this path before or afterwards.
    fn reaches_below(&self, dir: &[u8]) -> bool;
    /// Rules at work in one branch, which has changed nothing yet.
    fn bench(&self) -> Box<dyn Bench>;
}

/// The judge of a workspace.
#[derive(Debug, Default)]
pub struct Judges {
    /// Version of the rules; 0 while there are none.
    version: AtomicU64,
    wants_names: AtomicBool,
    wants_opens: AtomicBool,
    judge: RwLock<Option<Arc<dyn Judge>>>,
}

impl Judges {
    /// Sets the rules, or takes them away. Changes that begin later are judged by them.
    pub fn set(&self, judge: Option<Arc<dyn Judge>>) {
        let mut place = self.judge.write();
        let wants_names = judge.as_ref().is_some_and(|judge| judge.wants_names());
        let wants_opens = judge.as_ref().is_some_and(|judge| judge.wants_opens());
        let version = judge.as_ref().map_or(0, |judge| judge.version());
        *place = judge;
        self.wants_names.store(wants_names, Ordering::Relaxed);
        self.wants_opens.store(wants_opens, Ordering::Relaxed);
        self.version.store(version, Ordering::Release);
    }

    /// Version of the rules; 0 while there are none.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether they depend on the program's name.
    pub(crate) fn want_names(&self) -> bool {
        self.wants_names.load(Ordering::Relaxed)
    }

    /// Whether they say something of opens.
    pub fn want_opens(&self) -> bool {
        self.wants_opens.load(Ordering::Relaxed)
    }

    /// The rules.
    pub(crate) fn judge(&self) -> Option<Arc<dyn Judge>> {
        self.judge.read().clone()
    }
}
