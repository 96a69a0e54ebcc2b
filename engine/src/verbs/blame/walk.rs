//! Going through timelines, from the newest entry on, with a trail of what is followed.
//!
//! The branch's own timeline comes first, with its checkpoints where they belong by their time. Where a merge or
//! a rollback took what is followed from a commit of another timeline, that one is gone through from the entry
//! which that commit holds; each entry of all timelines is looked at once.

use crate::book::timeline::log::Log;
use crate::book::timeline::log::Newest;
use crate::error::Result;
use crate::record::call::{EndedBy, StateRef, SwitchWord, What};
use crate::types::Time;
use crate::verbs::blame::Blame;
use crate::verbs::blame::BlameItem;
use crate::verbs::blame::beside::Beside;
use crate::verbs::blame::trees::Moment;
use crate::verbs::blame::trees::Trail;
use crate::verbs::blame::trees::Trees;
use crate::verbs::blame::trees::is_dir;
use crate::verbs::timeline::own::Others;
use crate::verbs::timeline::read::Reader;
use crate::verbs::timeline::read::TimelineItem;
use crate::verbs::timeline::sources::Sources;
use objstore::{CommitId, CommitKind};
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

/// A checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub time: Time,
    /// Its label, or its message.
    pub name: String,
    pub before: CommitId,
    pub after: CommitId,
    /// Another branch made it.
    pub foreign: bool,
    /// The newest entry of the timeline when it was made, once its commit was read.
    pub entry: Option<u64>,
}

/// A commit that another branch made.
pub(crate) struct Elsewhere {
    pub time: Time,
    pub name: String,
    pub parents: Vec<CommitId>,
}

/// A part of the history that is to be gone through.
pub(crate) struct Stretch {
    /// The timeline, and its newest entry that counts; `None`: only checkpoints are known of it.
    pub log: Option<(usize, u64)>,
    /// Where the trail begins.
    pub at: Rc<Moment>,
    /// Checkpoints, the newest first.
    pub points: VecDeque<Point>,
}

/// Going through a stretch.
struct Descent {
    source: Option<usize>,
    /// The newest entry that counts.
    from: u64,
    trail: Trail,
    points: VecDeque<Point>,
    /// What there was at the end of calls whose beginning is still to come.
    ends: HashMap<u64, Option<Rc<Moment>>>,
    /// What lies between here and the next moment is the doing of what was met last.
    claimed: bool,
    rows: usize,
    beside: Beside,
}

/// Whose a change is that a call may have made.
enum By {
    Itself,
    Others,
    Unknown,
}

/// Something that may have changed what is followed.
struct Cause {
    kind: &'static str,
    call: Option<u64>,
    name: String,
    time: Time,
    /// Another branch made it, of which it is not known which one that was.
    foreign: bool,
    parent: Option<u64>,
    overlaps: Vec<u64>,
    switches: Vec<u64>,
}

impl Cause {
    fn of(item: TimelineItem) -> Cause {
        Cause {
            kind: item.switch.map_or("call", |by| by.word()),
            call: item.call,
            name: match item.switch {
                Some(_) => String::new(),
                None => item.name,
            },
            time: item.started,
            foreign: false,
            parent: item.parent,
            overlaps: item.overlaps,
            switches: item.switches,
        }
    }
}

/// Collects who changed what is followed.
pub(crate) struct Blamer<'a> {
    pub trees: Trees<'a>,
    pub sources: Sources,
    /// Commits of other branches that were not come by yet.
    elsewhere: HashMap<CommitId, Elsewhere>,
    /// Rows of one stretch, at most.
    pub limit: usize,
    pub found: Blame,
    work: Vec<Stretch>,
    /// By timeline: the newest entry from which on it was gone through.
    covered: HashMap<usize, u64>,
    /// Commits that switches showed.
    shown: HashSet<CommitId>,
    /// Commits that merges made.
    pub merges: HashSet<CommitId>,
    /// Commits with changes that nothing in a timeline accounts for.
    pub outside: Vec<CommitId>,
    /// The limit ended a stretch.
    pub cut: bool,
}

impl<'a> Blamer<'a> {
    pub fn new(
        trees: Trees<'a>,
        sources: Sources,
        elsewhere: HashMap<CommitId, Elsewhere>,
        limit: usize,
    ) -> Blamer<'a> {
        Blamer {
            trees,
            sources,
            elsewhere,
            limit,
            found: Blame::default(),
            work: Vec::new(),
            covered: HashMap::new(),
            shown: HashSet::new(),
            merges: HashSet::new(),
            outside: Vec::new(),
            cut: false,
        }
    }

    /// Goes through a stretch and all that it leads to; gives where the trail of the first one ends. `start` is
    /// the commit that the branch began with; where that was made of a commit of another branch, that is the one of
    /// `origins` to which it was not set by a switch.
    pub fn run(
        &mut self,
        first: Stretch,
        start: Option<CommitId>,
        origins: &[CommitId],
    ) -> Result<Rc<Moment>> {
        let newest = first.at.clone();
        let mut end = self.walk(first)?;
        for origin in origins {
            if !self.cut && !self.shown.contains(origin) {
                self.descend(*origin, &newest)?;
            }
        }
        if let Some(start) = start.filter(|_| !self.cut) {
            self.descend(start, &end)?;
            if let Some(moment) = self.trees.look(&end, start)? {
                if self.trees.difference(&moment, &end)?.is_some() {
                    self.outside.push(end.commit);
                }
                end = Rc::new(moment);
            }
        }
        while let Some(stretch) = self.work.pop() {
            self.walk(stretch)?;
        }
        Ok(end)
    }

    fn walk(&mut self, stretch: Stretch) -> Result<Rc<Moment>> {
        let mut walk = Descent {
            source: stretch.log.map(|(source, _)| source),
            from: stretch.log.map_or(0, |(_, from)| from),
            trail: Trail { at: stretch.at },
            points: stretch.points,
            ends: HashMap::new(),
            claimed: false,
            rows: 0,
            beside: Beside::default(),
        };
        if let Some((source, from)) = stretch.log {
            self.walk_log(&mut walk, source, from)?;
        }
        self.points_from(&mut walk, None)?;
        Ok(walk.trail.at)
    }

    /// Goes through a timeline from this entry on, down to what it has in common with others, or to where it
    /// was gone through before.
    fn walk_log(&mut self, walk: &mut Descent, source: usize, from: u64) -> Result<()> {
        let done = self.covered.get(&source).copied().unwrap_or(0);
        if done >= from {
            return Ok(());
        }
        self.covered.insert(source, from);
        let of = &self.sources.list[source];
        let (first, goes_on) = (of.first.max(done + 1), of.goes_on.filter(|_| done == 0));
        let (reading, store) = (of.reading.clone(), self.trees.store);
        let mut log = Newest::of(Log::at(&reading.log, store, store.pin()));
        let mut reader = Reader::of(reading);
        while let Some(frame) = log.take()? {
            let entry = frame.entry()?;
            if entry.number < first {
                break;
            }
            if entry.number > from {
                // How what began before went on, and names.
                reader.take(entry.number, entry.time, entry.what);
                continue;
            }
            self.points_from(walk, Some(entry.number))?;
            if walk.rows >= self.limit {
                self.cut = true;
                return Ok(());
            }
            self.entry(walk, &mut reader, (entry.number, entry.time), entry.what)?;
        }
        if let Some(goes_on) = goes_on {
            self.work.push(Stretch {
                log: Some((goes_on, first - 1)),
                at: walk.trail.at.clone(),
                points: VecDeque::new(),
            });
        }
        Ok(())
    }

    fn entry(
        &mut self,
        walk: &mut Descent,
        reader: &mut Reader,
        (number, time): (u64, Time),
        what: What,
    ) -> Result<()> {
        let name = |r: &Reader, state: StateRef| r.named(state).commit;
        match what {
            What::Ended { call, after, .. } | What::Over { call, after, .. } => {
                walk.beside.over(&what);
                let moment = self.step(walk, name(reader, after))?;
                walk.beside.mark(number, call, -1, &moment);
                walk.ends.insert(call, moment);
                reader.take(number, time, what);
            }
            What::Started { before, call, .. } | What::Begun { before, call, .. } => {
                let before = self.step(walk, name(reader, before))?;
                walk.beside.mark(number, call, 1, &before);
                if let Some(item) = reader.take(number, time, what) {
                    let after = match walk.ends.remove(&call) {
                        Some(moment) => moment,
                        None => self.look(walk, item.after.and_then(|s| s.commit))?,
                    };
                    self.take(walk, item, before, after)?;
                }
                walk.beside.begun(call);
            }
            What::Recorded { before, after, .. } => {
                let after = self.step(walk, after.and_then(|s| name(reader, s)))?;
                let before = self.look(walk, before.and_then(|s| name(reader, s)))?;
                walk.claimed = before.is_some();
                if let Some(item) = reader.take(number, time, what) {
                    self.take(walk, item, before, after)?;
                }
            }
            What::Switched {
                before, after, by, ..
            } => {
                let showed = after.and_then(|s| name(reader, s));
                self.shown.extend(showed);
                let after = self.step(walk, showed)?;
                walk.claimed = after.is_some();
                let before = self.step(walk, name(reader, before))?;
                let two = before.clone().zip(after.clone());
                let Some(item) = reader.take(number, time, what) else {
                    return Ok(());
                };
                if self.take(walk, item, before, after)?
                    && let Some((before, after)) = two
                {
                    self.switched(by, &before, &after)?;
                }
            }
            What::Imported { .. } => {
                if let Some(item) = reader.take(number, time, what) {
                    self.take(walk, item, None, None)?;
                }
            }
            What::Others { call, .. } => {
                walk.beside.told(call);
                drop(reader.take(number, time, what));
            }
            What::Named { .. } | What::Same { .. } | What::Elsewhere { .. } => {
                drop(reader.take(number, time, what));
            }
        }
        Ok(())
    }

    /// Goes on to a commit, and notes where nothing accounts for what differs on the way.
    fn step(&mut self, walk: &mut Descent, commit: Option<CommitId>) -> Result<Option<Rc<Moment>>> {
        let Some(commit) = commit else {
            return Ok(None);
        };
        let newer = walk.trail.at.clone();
        let moment = walk.trail.step(&mut self.trees, commit)?;
        let claimed = std::mem::take(&mut walk.claimed) || !walk.ends.is_empty();
        if let Some(older) = &moment
            && !claimed
            && self.found.calls == 0
            && self.trees.difference(older, &newer)?.is_some()
        {
            self.outside.push(newer.commit);
        }
        Ok(moment)
    }

    /// Looks at a commit beside the way.
    fn look(&mut self, walk: &Descent, commit: Option<CommitId>) -> Result<Option<Rc<Moment>>> {
        let Some(commit) = commit else {
            return Ok(None);
        };
        Ok(self.trees.look(&walk.trail.at, commit)?.map(Rc::new))
    }

    /// Notes a call or switch where it changed what is followed; true where it did.
    fn take(
        &mut self,
        walk: &mut Descent,
        mut item: TimelineItem,
        before: Option<Rc<Moment>>,
        after: Option<Rc<Moment>>,
    ) -> Result<bool> {
        let (Some(before), Some(after)) = (before, after) else {
            // What still runs has changed nothing yet that could be told.
            let over = item.switch.is_some() || item.completed.is_some();
            self.found.unknown += u64::from(over);
            return Ok(false);
        };
        match self.whose(walk, &item, (&before, &after))? {
            By::Itself => item.overlaps.clear(),
            By::Others => return Ok(false),
            By::Unknown => {}
        }
        self.row(walk, Cause::of(item), &before, &after)
    }

    /// Whose the change of a call's time is, where it is known what others changed then.
    fn whose(
        &mut self,
        walk: &Descent,
        item: &TimelineItem,
        (before, after): (&Rc<Moment>, &Rc<Moment>),
    ) -> Result<By> {
        let all = |o: &&Arc<Others>| item.overlaps.iter().all(|other| o.of.contains(other));
        let told = item.others.as_ref().filter(all);
        let told = told.filter(|o| o.doubt.is_none() && item.switches.is_empty());
        let Some(others) = told.filter(|_| item.ended_by != Some(EndedBy::Nobody)) else {
            return Ok(By::Unknown);
        };
        let names = [&before.name, &after.name];
        let touched = |name: &&Vec<u8>| others.changed(name) || others.changed_below(name);
        if !names.iter().any(touched) {
            return Ok(By::Itself);
        }
        let is_dir = |m: &Moment| m.entry.as_ref().is_some_and(is_dir);
        if before.name != after.name || is_dir(before) || is_dir(after) {
            return Ok(By::Unknown);
        }
        let Some(alone) = walk.beside.alone(item, others, (before, after)) else {
            return Ok(By::Unknown);
        };
        for (a, b) in alone {
            if self.trees.difference(&a, &b)?.is_some() {
                return Ok(By::Unknown);
            }
        }
        Ok(By::Others)
    }

    fn row(
        &mut self,
        walk: &mut Descent,
        cause: Cause,
        before: &Moment,
        after: &Moment,
    ) -> Result<bool> {
        let Some(difference) = self.trees.difference(before, after)? else {
            return Ok(false);
        };
        walk.rows += 1;
        self.found.calls += u64::from(cause.kind == "call");
        let branch = walk.source.filter(|_| !cause.foreign);
        let branch = branch.map(|s| self.sources.list[s].branch.clone());
        self.found.items.push(BlameItem {
            kind: cause.kind,
            call: cause.call,
            name: cause.name,
            time: cause.time,
            before: before.commit,
            after: after.commit,
            parent: cause.parent,
            overlaps: cause.overlaps,
            switches: cause.switches,
            change: difference.change,
            path: difference.path,
            old_path: difference.old_path,
            branch,
        });
        Ok(true)
    }

    /// Goes into the history of what a switch showed, where that is another branch's.
    ///
    /// A merge shows a commit that it made, or theirs (a fast-forward). Neither the timeline that the commit holds nor
    /// its parents tell which: what a branch was frozen as has all that was merged or branched off since as parents,
    /// and branches that had no call since one was made of the other hold the same entry. So both are gone into, what
    /// is shown and what was merged; nothing is told twice.
    fn switched(&mut self, by: SwitchWord, before: &Moment, after: &Moment) -> Result<()> {
        if !matches!(by, SwitchWord::Merge | SwitchWord::Rollback) {
            return Ok(());
        }
        let Some(commit) = self.trees.commit(after.commit)? else {
            return Ok(());
        };
        if by == SwitchWord::Merge {
            if commit.parents.first() == Some(&before.commit) {
                self.merges.insert(after.commit);
            }
            for parent in commit.parents.iter().skip(1) {
                self.descend(*parent, after)?;
            }
        }
        if before.commit != after.commit {
            self.descend(after.commit, after)?;
        }
        Ok(())
    }

    /// Has the history of a commit gone through, as far as it is another branch's.
    fn descend(&mut self, id: CommitId, from: &Moment) -> Result<()> {
        let mut work = vec![id];
        while let Some(id) = work.pop() {
            let (Some(commit), Some(at)) = (self.trees.commit(id)?, self.trees.look(from, id)?)
            else {
                continue;
            };
            let log = self.sources.of_commit(self.trees.store, id, &commit)?;
            let (points, further) = self.points_before(id, log)?;
            // The timeline that tells of these merges may be one that no commit leads into.
            work.extend(further);
            if log.is_some() || !points.is_empty() {
                self.work.push(Stretch {
                    log,
                    at: Rc::new(at),
                    points,
                });
            }
        }
        Ok(())
    }

    /// Checkpoints and merges of other branches that a commit comes from, and it itself; each is given once. Beside
    /// them what these merges took from further branches, and commits of which the timeline of the commit (`log`)
    /// does not tell: a branch was made of them that has another timeline.
    fn points_before(
        &mut self,
        id: CommitId,
        log: Option<(usize, u64)>,
    ) -> Result<(VecDeque<Point>, Vec<CommitId>)> {
        let (mut points, mut further) = (Vec::new(), Vec::new());
        let mut work = vec![(id, log)];
        while let Some((id, mut log)) = work.pop() {
            let Some(state) = self.elsewhere.remove(&id) else {
                continue;
            };
            let commit = self.trees.commit(id)?;
            if let Some(commit) = &commit
                && !self.sources.tell_of(log, commit)
            {
                log = self.sources.of_commit(self.trees.store, id, commit)?;
                further.push(id);
            }
            work.extend(state.parents.iter().map(|parent| (*parent, log)));
            let Some(commit) = commit else {
                continue;
            };
            further.extend(commit.parents.iter().skip(1));
            if let Some(before) = commit.parents.first()
                && commit.kind == CommitKind::Asked
            {
                points.push(Point {
                    time: state.time,
                    name: state.name,
                    before: *before,
                    after: id,
                    foreign: true,
                    entry: None,
                });
            }
        }
        points.sort_by_key(|p| std::cmp::Reverse(p.time));
        Ok((points.into(), further))
    }

    /// Looks at the checkpoints that were made after this entry, or at all that are left.
    fn points_from(&mut self, walk: &mut Descent, entry: Option<u64>) -> Result<()> {
        while walk.rows < self.limit
            && self.is_due(walk, entry)?
            && let Some(point) = walk.points.pop_front()
        {
            // One that this timeline does not tell of is looked at beside the way.
            let on_the_way = walk.source.is_none()
                || !point.foreign && point.entry.is_none_or(|at| at <= walk.from);
            let after = match on_the_way {
                true => self.step(walk, Some(point.after))?,
                false => self.look(walk, Some(point.after))?,
            };
            let before = self.look(walk, Some(point.before))?;
            let (Some(before), Some(after)) = (before, after) else {
                self.found.unknown += u64::from(!point.foreign);
                continue;
            };
            let cause = Cause {
                kind: "checkpoint",
                call: None,
                name: point.name,
                time: point.time,
                foreign: point.foreign,
                parent: None,
                overlaps: Vec::new(),
                switches: Vec::new(),
            };
            self.row(walk, cause, &before, &after)?;
        }
        self.cut |= walk.rows >= self.limit && self.is_due(walk, entry)?;
        Ok(())
    }

    /// Whether the next checkpoint was made after this entry. Its commit holds the newest entry of its moment; times
    /// do not tell, as entries that name states have those of the states.
    fn is_due(&mut self, walk: &mut Descent, entry: Option<u64>) -> Result<bool> {
        let Some(point) = walk.points.front_mut() else {
            return Ok(false);
        };
        let Some(entry) = entry else {
            return Ok(true);
        };
        if point.entry.is_none() {
            // One that is not kept is done with at once.
            let commit = self.trees.commit(point.after)?;
            let head = |c: Rc<objstore::Commit>| c.timeline.map_or(0, |head| head.entries);
            point.entry = Some(commit.map_or(u64::MAX, head));
        }
        Ok(point.entry.is_some_and(|at| at >= entry))
    }
}
