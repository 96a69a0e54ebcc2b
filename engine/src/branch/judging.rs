//! Asking the workspace's rules before a change is made ([`crate::judge`]).
//!
//! [`Branch::change`](super::Branch::change) asks for every mutation before it is journaled, so nothing gets round the
//! rules: requests of the kernel, of the control protocol and of SDKs come there. Switches (rollback, undo, merge) are
//! events, and the user's own verbs. Late pages of a replaced state are not changes of what is shown.
//!
//! A mutation is told as what it does to paths: all names of a file, both ends of a rename, and everything in a
//! directory that is moved. Where a rule counts, the tree as it was when it began to is pinned, in O(1); the first
//! change that is one too many makes that an automatic commit ([`kept`]), before anybody is told of it.
//!
//! Where rules leave a verdict to a program, judging ends with a question ([`Error::NeedsAnswer`]) and nothing is changed.
//! [`Branch::request`](super::Branch::request) asks it without the lock and carries the request out from its beginning.
//! The answer counts for the same question alone: if the names became others meanwhile, that is asked, too.
//!
//! Invariants: a change that is denied leaves journal and tree as they were; a change is counted once, after its record
//! is in the journal. Decisions that are remembered hold for one version of the rules, and are forgotten when any name
//! moves or a file gets a further one.
//!
//! Tests: `engine/tests/judging.rs`.

mod kept;

pub(crate) use kept::keep_due;
pub(super) use kept::keep_first;

use super::acting;
use super::{Branch, Inner};
use crate::error::{Error, Result, errno};
use crate::feed::{FeedOp, FeedWho};
use crate::judge::{Asker, Bench, Counting, Heard, Judge, Ruling, Sentence, Touch};
use crate::limits::{DECISIONS_MAX, MOVED_NAMES_MAX};
use crate::record::Mutation;
use crate::tree::Tree;
use crate::tree::inode::Inode;
use crate::types::{Kind, Nid};
use kept::{Before, Due};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Key of metadata by which a commit names the run that it was made before.
const RUN_KEY: &str = "run";

/// What a branch knows of the rules, and what they said.
#[derive(Debug, Default)]
pub(crate) struct Judging {
    /// Version of the rules that this is about; 0: none.
    version: u64,
    rules: Option<(Arc<dyn Judge>, Box<dyn Bench>)>,
    /// Operations on files that are allowed.
    allowed: HashMap<Nid, Decision>,
    /// By rule that counts: what was shown when it began to.
    before: BTreeMap<usize, Before>,
    /// What is to become commits.
    due: Vec<Due>,
    /// The run that began last.
    run: Option<Arc<str>>,
    /// What was found out for the request that is carried out now.
    pub heard: Option<Heard>,
}

/// What a program may do with a file, one bit for each operation.
#[derive(Debug)]
struct Decision {
    ops: u32,
    uid: u32,
    comm: Arc<str>,
}

/// What was said of a change that may be made.
#[derive(Debug)]
pub(super) struct Judged {
    pub ruling: Ruling,
    /// The file and operation that need not be asked for again.
    decision: Option<(Nid, FeedOp, FeedWho)>,
    /// The rules were asked, so they are told that it was made.
    is_asked: bool,
}

impl Judged {
    /// Whether the change is told of as watched.
    pub fn is_watched(&self) -> bool {
        self.ruling.sentence == Sentence::Watch
    }
}

/// What is said of a change whose names become others faster than a program can be asked about them.
pub(super) fn restless() -> Error {
    Error::Denied {
        code: errno::EACCES,
        rule: "too-often-changed-to-judge".into(),
    }
}

/// The file that a mutation is about, if it is there.
fn subject<'a>(tree: &'a Tree, m: &Mutation) -> Option<&'a Inode> {
    let nid = match m {
        Mutation::Create { .. } | Mutation::Nameless { .. } | Mutation::Kv { .. } => return None,
        Mutation::Unlink { parent, name, .. }
        | Mutation::Rename { parent, name, .. }
        | Mutation::Whiteout { parent, name, .. } => tree.lookup(Nid(*parent), name).ok()?.nid,
        Mutation::Link { nid, .. }
        | Mutation::SetAttr { nid, .. }
        | Mutation::Write { nid, .. }
        | Mutation::Allocate { nid, .. }
        | Mutation::Copy { dst: nid, .. } => Nid(*nid),
    };
    tree.get(nid).map(|inode| &**inode)
}

/// The time since a moment that is the same for all changes.
pub(super) fn since_start() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let now = Instant::now();
    acting::waited_until(now);
    now.saturating_duration_since(*START.get_or_init(|| now))
}

impl Branch {
    /// Asks the rules for a mutation; an error if it is denied.
    pub(super) fn judge(&self, inner: &mut Inner, m: &Mutation, bytes: u64) -> Result<Judged> {
        self.take_rules(inner);
        let (who, since) = acting::who();
        let about = lasting(m);
        if let Some((nid, op)) = about
            && inner.judging.remembers(nid, op, &who)
        {
            return Ok(Judged {
                ruling: Ruling::default(),
                decision: None,
                is_asked: false,
            });
        }
        let ruling = self.rule(inner, m, bytes, (&who, since))?;
        if let Sentence::Deny(code) = ruling.sentence {
            if inner.keeps_before(&ruling) {
                return Err(Error::NeedsCommit);
            }
            return Err(self.denied(inner, m, &ruling, code));
        }
        let decision = about.filter(|_| ruling.lasts);
        Ok(Judged {
            decision: decision.map(|(nid, op)| (nid, op, who)),
            ruling,
            is_asked: true,
        })
    }

    /// Has the rules that hold now at hand.
    pub(super) fn take_rules(&self, inner: &mut Inner) {
        let version = self.judges.version();
        if inner.judging.version == version {
            return;
        }
        let rules = self.judges.judge().map(|judge| {
            let bench = judge.bench();
            (judge, bench)
        });
        let run = inner.run().map(Arc::from);
        let before = std::mem::take(&mut inner.judging.before);
        before
            .into_values()
            .for_each(|before| drop(inner.pins.release(before.pin)));
        inner.judging = Judging {
            version,
            rules,
            due: std::mem::take(&mut inner.judging.due),
            run,
            ..Judging::default()
        };
    }

    fn rule(
        &self,
        inner: &mut Inner,
        m: &Mutation,
        bytes: u64,
        (who, since): (&FeedWho, Option<Instant>),
    ) -> Result<Ruling> {
        let Inner { judging, live, .. } = inner;
        let Some((judge, bench)) = &mut judging.rules else {
            return Ok(Ruling::default());
        };
        let branch = self.shared_name();
        let place = (&*branch, judging.run.as_deref());
        let asker = Asker {
            bytes,
            ..self.asker((who, since), place, subject(live, m))
        };
        bench.begin(&asker, since_start());
        if let Some(heard) = judging.heard.take() {
            bench.hear(heard);
        }
        let told = each_touch(live, m, &**judge, &mut |touch| bench.touch(touch))?;
        if !told {
            return Ok(Ruling {
                sentence: Sentence::Deny(errno::EACCES),
                rule: Some((usize::MAX, "too-many-names-to-judge".into())),
                ..Ruling::default()
            });
        }
        match bench.question() {
            Some(question) => Err(Error::NeedsAnswer(question)),
            None => Ok(bench.end()),
        }
    }

    /// Who asks the rules about an inode, in this branch, after this run.
    pub(super) fn asker<'a>(
        &self,
        (who, since): (&'a FeedWho, Option<Instant>),
        (branch, run): (&'a str, Option<&'a str>),
        inode: Option<&Inode>,
    ) -> Asker<'a> {
        Asker {
            pid: who.pid,
            uid: who.uid,
            gid: who.gid,
            backend: who.backend,
            since,
            branch_number: self.slot,
            comm: &who.comm,
            branch,
            run,
            ino: inode.map_or(0, |inode| inode.shown_ino(self.slot)),
            bytes: 0,
        }
    }

    /// Tells of a change that is denied.
    fn denied(&self, inner: &Inner, m: &Mutation, ruling: &Ruling, code: i32) -> Error {
        let rule = ruling
            .rule
            .clone()
            .map(|(_, name)| name)
            .unwrap_or_default();
        if self.feed.is_on() {
            self.tell_verdict(inner, m, ruling);
        }
        if inner.judging.has_due() {
            self.wake.wake();
        }
        Error::Denied { code, rule }
    }

    /// A change that was asked for is in the journal and is carried out now: it counts.
    pub(super) fn judged(&self, inner: &mut Inner, m: &Mutation, judged: Judged) {
        if !judged.is_asked {
            return;
        }
        if judged.ruling.sentence == Sentence::Watch && self.feed.is_on() {
            self.tell_verdict(inner, m, &judged.ruling);
        }
        let judging = &mut inner.judging;
        if let Mutation::Rename { .. } | Mutation::Whiteout { .. } | Mutation::Link { .. } = m {
            judging.allowed.clear();
        }
        if let Some((nid, op, who)) = judged.decision {
            judging.remember(nid, op, who);
        }
        let bench = judging.rules.as_mut().map(|(_, bench)| bench);
        let begun = bench.map(|bench| bench.made()).unwrap_or_default();
        for Counting { rule, period } in begun {
            let before = Before {
                pin: inner.pins.hold(inner.live.clone()),
                until: Instant::now() + period,
            };
            if let Some(old) = inner.judging.before.insert(rule, before) {
                inner.pins.release(old.pin);
            }
        }
    }
}

impl Judging {
    /// The rules at work, and the run that began last.
    pub(super) fn at_work(&mut self) -> (Option<&mut Box<dyn Bench>>, Option<&str>) {
        let bench = self.rules.as_mut().map(|(_, bench)| bench);
        (bench, self.run.as_deref())
    }

    /// Whether a program may do that, as far as it is remembered.
    pub(super) fn remembers(&self, nid: Nid, op: FeedOp, who: &FeedWho) -> bool {
        let known = self.allowed.get(&nid);
        known.is_some_and(|d| d.ops & bit(op) != 0 && d.uid == who.uid && d.comm == who.comm)
    }

    pub(super) fn remember(&mut self, nid: Nid, op: FeedOp, who: FeedWho) {
        if self.allowed.len() >= DECISIONS_MAX {
            self.allowed.clear();
        }
        let known = self.allowed.get_mut(&nid);
        match known.filter(|d| d.uid == who.uid && d.comm == who.comm) {
            Some(decision) => decision.ops |= bit(op),
            None => {
                let decision = Decision {
                    ops: bit(op),
                    uid: who.uid,
                    comm: who.comm,
                };
                self.allowed.insert(nid, decision);
            }
        }
    }

    /// A run begins.
    pub fn begin_run(&mut self, run: &str) {
        self.run = Some(run.into());
        self.forget_decisions();
    }

    /// What is shown is another tree, or the branch has another name: names may be others.
    pub fn forget_decisions(&mut self) {
        self.allowed.clear();
    }

    /// Whether something is to become a commit.
    fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Whether nothing is to be done in the background.
    pub fn is_at_rest(&self) -> bool {
        self.before.is_empty() && self.due.is_empty()
    }
}

impl Inner {
    /// The run that began last, also where a daemon before began it.
    pub fn run(&self) -> Option<&str> {
        let noted = self.judging.run.as_deref();
        noted.or_else(|| self.book.history.newest_meta(RUN_KEY))
    }
}

fn bit(op: FeedOp) -> u32 {
    1 << op as u32
}

/// The file and operation of a mutation that may be remembered: its names stay.
fn lasting(m: &Mutation) -> Option<(Nid, FeedOp)> {
    match m {
        Mutation::Write { nid, .. }
        | Mutation::Allocate { nid, .. }
        | Mutation::Copy { dst: nid, .. } => Some((Nid(*nid), FeedOp::Write)),
        Mutation::SetAttr { nid, .. } => Some((Nid(*nid), of_attributes(m).0)),
        _ => None,
    }
}

/// What changed attributes are, and whether the owner changes besides.
fn of_attributes(m: &Mutation) -> (FeedOp, bool) {
    match m {
        Mutation::SetAttr {
            size: Some(_),
            uid,
            gid,
            ..
        } => (FeedOp::Truncate, uid.is_some() || gid.is_some()),
        Mutation::SetAttr {
            perm: None, xattrs, ..
        } if !xattrs.is_empty() => (FeedOp::SetXattr, false),
        _ => (FeedOp::SetAttr, false),
    }
}

/// Calls `each` for all that a mutation does to paths; false where that is more than is looked at.
fn each_touch(
    tree: &Tree,
    m: &Mutation,
    judge: &dyn Judge,
    each: &mut dyn FnMut(Touch<'_>),
) -> Result<bool> {
    match m {
        Mutation::Create {
            parent, name, mode, ..
        } => {
            let op = match Kind::of_mode(*mode) {
                Some(Kind::Symlink) => FeedOp::Symlink,
                _ => FeedOp::Create,
            };
            each(Touch::At(op, &below(tree, *parent, name)));
        }
        Mutation::Nameless { .. } => each(Touch::At(FeedOp::Create, b"")),
        Mutation::Link {
            nid, parent, name, ..
        } => {
            let to = below(tree, *parent, name);
            each_name(tree, Nid(*nid), &mut |from| {
                each(Touch::Linked { from, to: &to })
            });
        }
        Mutation::Unlink { parent, name, .. } => {
            let entry = tree.lookup(Nid(*parent), name)?;
            each(Touch::At(removal(entry.kind), &below(tree, *parent, name)));
        }
        Mutation::Rename { .. } | Mutation::Whiteout { .. } => {
            return each_moved(tree, m, judge, each);
        }
        Mutation::SetAttr { nid, .. } => {
            let (op, with_owner) = of_attributes(m);
            each_name(tree, Nid(*nid), &mut |path| {
                each(Touch::At(op, path));
                if with_owner {
                    each(Touch::At(FeedOp::SetAttr, path));
                }
            });
        }
        Mutation::Write { nid, .. }
        | Mutation::Allocate { nid, .. }
        | Mutation::Copy { dst: nid, .. } => {
            each_name(tree, Nid(*nid), &mut |path| {
                each(Touch::At(FeedOp::Write, path))
            });
        }
        Mutation::Kv { .. } => each(Touch::At(FeedOp::Kv, b"")),
    }
    Ok(true)
}

fn removal(kind: Kind) -> FeedOp {
    match kind {
        Kind::Dir => FeedOp::Rmdir,
        _ => FeedOp::Unlink,
    }
}

/// A rename: what it replaces goes, and what it moves, with everything in it, is somewhere else.
fn each_moved(
    tree: &Tree,
    m: &Mutation,
    judge: &dyn Judge,
    each: &mut dyn FnMut(Touch<'_>),
) -> Result<bool> {
    let (Mutation::Rename {
        parent,
        name,
        new_parent,
        new_name,
        ..
    }
    | Mutation::Whiteout {
        parent,
        name,
        new_parent,
        new_name,
        ..
    }) = m
    else {
        return Ok(true);
    };
    let (from, to) = (
        below(tree, *parent, name),
        below(tree, *new_parent, new_name),
    );
    let moved = tree.lookup(Nid(*parent), name)?;
    let replaced = tree.lookup(Nid(*new_parent), new_name).ok();
    let mut left = MOVED_NAMES_MAX;
    let mut all = each_within(
        tree,
        (moved.nid, moved.kind),
        (&from, &to),
        judge,
        &mut left,
        each,
    )?;
    if let Mutation::Whiteout { .. } = m {
        each(Touch::At(FeedOp::Create, &from));
    }
    match (m, replaced) {
        (Mutation::Rename { exchange: true, .. }, Some(other)) => {
            let back = (&to[..], &from[..]);
            all &= each_within(tree, (other.nid, other.kind), back, judge, &mut left, each)?;
        }
        (_, Some(gone)) => each(Touch::At(removal(gone.kind), &to)),
        (_, None) => {}
    }
    Ok(all)
}

/// Something that is moved, and everything in it where rules may say something of that; false where it is too much.
fn each_within(
    tree: &Tree,
    (nid, kind): (Nid, Kind),
    (from, to): (&[u8], &[u8]),
    judge: &dyn Judge,
    left: &mut usize,
    each: &mut dyn FnMut(Touch<'_>),
) -> Result<bool> {
    let is_dir = kind == Kind::Dir;
    each(Touch::Moved { is_dir, from, to });
    if !is_dir || !(judge.reaches_below(from) || judge.reaches_below(to)) {
        return Ok(true);
    }
    let mut dirs = vec![(nid, Vec::new())];
    while let Some((nid, below)) = dirs.pop() {
        let dir = tree.dir(nid)?;
        if dir.is_lazy() {
            return Err(Error::NeedsDir(nid));
        }
        if dir.map.len() > *left {
            return Ok(false);
        }
        *left -= dir.map.len();
        for entry in dir.map.entries() {
            let path = [&below[..], b"/", entry.name].concat();
            let [from, to] = [from, to].map(|end| [end, &path].concat());
            let (nid, kind) = (entry.entry.nid, entry.entry.kind);
            let is_dir = kind == Kind::Dir;
            each(Touch::Moved {
                is_dir,
                from: &from,
                to: &to,
            });
            if is_dir {
                dirs.push((nid, path));
            }
        }
    }
    Ok(true)
}

/// The path of a name in a directory; without one where the directory was removed.
fn below(tree: &Tree, parent: u64, name: &[u8]) -> Vec<u8> {
    tree.path_below(Nid(parent), name).unwrap_or_default()
}

/// Calls `each` for all paths of a file; for an empty one where it has none.
pub(super) fn each_name(tree: &Tree, nid: Nid, each: &mut dyn FnMut(&[u8])) {
    let inode = tree.get(nid);
    let only = inode.is_none_or(|inode| inode.links.is_none());
    if nid == Nid::ROOT || only {
        return each(&tree.path(nid).unwrap_or_default());
    }
    let names = inode.map(|inode| inode.names()).unwrap_or_default();
    if names.is_empty() {
        each(b"");
    }
    for name in names {
        each(&tree.path_of_name(nid, name).unwrap_or_default());
    }
}
