//! All timelines that the commits of a branch lead into.
//!
//! A commit holds number and hash of the newest entry of its moment. Those that a branch has from others (by a
//! merge, say) so lead into other logs: of branches that are there, or of deleted ones that are
//! [kept](super::kept). Logs that began as one have their first entries in common; each entry is told once, in
//! the first timeline of the list that has it.
//!
//! All logs are gone through side by side, always at the one whose next entry has the highest number: where two
//! stand at the same entry, one of them ends. So it costs what the logs have of their own.
//!
//! Tests: `engine/tests/timeline/of_deleted.rs`.

use crate::book::timeline::log::Log;
use crate::book::timeline::log::LogPlace;
use crate::book::timeline::log::Newest;
use crate::branch::Branch;
use crate::branch::seal;
use crate::error::Result;
use crate::record::call::What;
use crate::types::Time;
use crate::verbs::timeline::imported::ImportedTimeline;
use crate::verbs::timeline::imported::taken_over;
use crate::verbs::timeline::kept::from_elsewhere;
use crate::verbs::timeline::kept::heads_of;
use crate::verbs::timeline::kept::kept;
use crate::verbs::timeline::read;
use crate::verbs::timeline::read::Reading;
use crate::verbs::timeline::read::TimelineItem;
use crate::workspace::Workspace;
use objstore::{Commit, CommitId, ObjectStore, TimelineHead};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Entries after the one that a merge's commit holds, within which the merge itself is looked for.
const SWITCH_WITHIN: u64 = 16;

/// A timeline, or as much of it as a branch's commits know.
#[derive(Clone, Debug)]
pub struct TimelineSource {
    /// The branch that it is of.
    pub branch: String,
    /// When that was deleted; `None` where it is there.
    pub deleted: Option<Time>,
    /// First entry that no timeline before it in the list has.
    pub first: u64,
    /// Last entry that a commit of the branch that was asked knows; of its own timeline, the newest.
    pub last: u64,
    /// What is known of it where it was taken over from elsewhere.
    pub imported: Option<ImportedTimeline>,
    /// Place in the list of the timeline that has the entries before the first; `None` where there are none.
    pub(crate) goes_on: Option<usize>,
    pub(crate) reading: Reading,
}

/// The timelines of a branch, and which of them has what its commits hold.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// The branch's own first.
    pub list: Vec<TimelineSource>,
    /// By entry that a commit holds: the timeline that has it.
    pub places: HashMap<TimelineHead, usize>,
}

impl Sources {
    /// The timeline that has what a commit says, and the last entry of it that the commit knows.
    pub fn of_commit(
        &self,
        store: &ObjectStore,
        id: CommitId,
        commit: &Commit,
    ) -> Result<Option<(usize, u64)>> {
        let Some(head) = commit.timeline else {
            return Ok(None);
        };
        let mut source = self.places.get(&head).copied();
        if source.is_none() {
            // The branch may have forgotten the commit, and its own timeline still tell of it.
            for (at, of) in self.list.iter().enumerate() {
                if has_entry(store, &of.reading.log, head)? {
                    source = Some(at);
                    break;
                }
            }
        }
        let Some(source) = source else {
            return Ok(None);
        };
        let log = &self.list[source].reading.log;
        let last = known_by(store, log, head.entries, &|known| *known == id)?;
        Ok(Some((source, last)))
    }

    /// Whether who goes through a timeline from an entry on, and through those that it goes on in, meets the entry
    /// that a commit holds. True where the commit holds none, or one that no timeline has.
    pub fn tell_of(&self, from: Option<(usize, u64)>, commit: &Commit) -> bool {
        let Some(head) = commit.timeline else {
            return true;
        };
        let Some(place) = self.places.get(&head) else {
            return true;
        };
        let (mut at, mut left) = (from, self.list.len());
        while let Some((source, last)) = at.filter(|_| left > 0) {
            if source == *place && head.entries <= last {
                return true;
            }
            let of = &self.list[source];
            at = of.goes_on.map(|next| (next, of.first - 1));
            left -= 1;
        }
        false
    }
}

/// The timelines that a branch's commits lead into: its own first, then those of branches that were merged
/// into it, or that it was set to, deleted or not; the one merged last first. Last those that were taken over
/// from elsewhere together with its own.
pub fn timelines(ws: &Workspace, branch: &str) -> Result<Vec<TimelineSource>> {
    let branch = ws.branch(branch)?;
    let store = &branch.places.store;
    let _pin = store.pin();
    let mut list = sources(ws, &branch)?.list;
    if let Some(own) = list.first() {
        let taken_over = taken_over(&own.reading, store)?;
        list.extend(taken_over);
    }
    Ok(list)
}

/// Calls `each` for the calls and switches of one of them that no other one before it has, the newest
/// first, until it says false. Where the branch was deleted meanwhile and gc ran, parts may be missing.
pub fn timeline_of(
    ws: &Workspace,
    source: &TimelineSource,
    each: &mut dyn FnMut(TimelineItem) -> Result<bool>,
) -> Result<()> {
    let store = &ws.views.shared().store;
    let _pin = store.pin();
    source.reading.clone().each(store, &mut |item| {
        if item.entry > source.last {
            return Ok(true);
        }
        Ok(item.entry >= source.first && each(item)?)
    })
}

/// Stores what calls of the branches left whose timelines this one's commits lead into. Of one where that fails
/// blame counts calls as unknown.
pub(crate) fn store_others(ws: &Workspace, branch: &Branch) -> Result<()> {
    let sources = sources(ws, branch)?.list;
    let others = sources.into_iter().skip(1);
    for other in others.filter(|s| s.deleted.is_none()) {
        // Where it was deleted meanwhile all was stored before.
        if let Ok(other) = ws.branch(&other.branch)
            && let Err(e) = seal::store_pending(&other)
        {
            tracing::warn!("what calls of {} left is not stored: {e}", other.name());
        }
    }
    Ok(())
}

/// The timelines of a branch. The caller holds a pin of the store as long as it reads them.
pub(crate) fn sources(ws: &Workspace, branch: &Branch) -> Result<Sources> {
    let store = &branch.places.store;
    let _pin = store.pin();
    let ids: HashSet<CommitId> = from_elsewhere(&branch.lock()).into_iter().collect();
    let heads = heads_of(store, ids.iter())?;
    let own = read::reading(branch);
    let mut search = Search {
        store,
        found: Sources::default(),
        walkers: Vec::new(),
        others: Others::of(ws, branch),
        ids,
    };
    search.add(own, (branch.name(), None), None);
    for (entries, hash) in heads.into_iter().rev() {
        search.find(TimelineHead { entries, hash })?;
    }
    search.finish()?;
    Ok(search.found)
}

/// A log on the way from its newest entry to its oldest.
struct Cursor<'a> {
    log: Newest<Log<'a>>,
    source: usize,
}

/// The last entry that commits know of which one holds the entry `from`: the switch that showed one of them comes
/// right after it.
fn known_by(
    store: &ObjectStore,
    log: &LogPlace,
    from: u64,
    is_known: &dyn Fn(&CommitId) -> bool,
) -> Result<u64> {
    let mut log = Newest::of(Log::at(log, store, store.pin()));
    log.skip_to(from.saturating_add(SWITCH_WITHIN))?;
    let mut last = from;
    while let Some(frame) = log.take()? {
        let entry = frame.entry()?;
        if entry.number <= from {
            break;
        }
        match entry.what {
            What::Switched { after, .. }
                if after.and_then(|s| s.commit).is_some_and(|id| is_known(&id)) =>
            {
                last = last.max(entry.number);
            }
            What::Named { .. } | What::Same { .. } | What::Others { .. } => {}
            _ => last = from,
        }
    }
    Ok(last)
}

/// Whether a log has an entry.
fn has_entry(store: &ObjectStore, log: &LogPlace, head: TimelineHead) -> Result<bool> {
    if log.entries() < head.entries {
        return Ok(false);
    }
    let mut log = Newest::of(Log::at(log, store, store.pin()));
    Ok(log.skip_to(head.entries)? == Some(head))
}

struct Search<'a> {
    store: &'a ObjectStore,
    found: Sources,
    walkers: Vec<Cursor<'a>>,
    others: Others<'a>,
    /// Commits that the branch has from elsewhere.
    ids: HashSet<CommitId>,
}

impl<'a> Search<'a> {
    /// Adds a timeline that is known from this entry on (its newest).
    fn add(&mut self, reading: Reading, (branch, deleted): Whose, from: Option<u64>) {
        let mut log = Newest::of(Log::at(&reading.log, self.store, self.store.pin()));
        let last = from.unwrap_or(reading.log.entries());
        let source = self.found.list.len();
        // What cannot be read is told by whoever reads it.
        if log.skip_to(last).is_ok() {
            self.walkers.push(Cursor { log, source });
        }
        self.found.list.push(TimelineSource {
            branch,
            deleted,
            first: 1,
            last,
            imported: None,
            goes_on: None,
            reading,
        });
    }

    /// Notes which timeline has this entry. They are asked for from the highest number on.
    fn find(&mut self, head: TimelineHead) -> Result<()> {
        self.go_down_to(head.entries)?;
        for walker in &mut self.walkers {
            if walker.log.peek()? == Some(head) {
                self.found.places.insert(head, walker.source);
                return Ok(());
            }
        }
        if let Some((reading, of)) = self.others.with(head, self.store)? {
            self.found.places.insert(head, self.found.list.len());
            let last = known_by(self.store, &reading.log, head.entries, &|id| {
                self.ids.contains(id)
            })?;
            self.add(reading, of, Some(last));
        }
        Ok(())
    }

    /// Goes on as long as several logs are on the way.
    fn finish(&mut self) -> Result<()> {
        self.go_down_to(0)
    }

    /// Goes on until no log stands at an entry after this one, or there is one left and nobody asks for it.
    fn go_down_to(&mut self, number: u64) -> Result<()> {
        loop {
            let mut highest = 0;
            for walker in &mut self.walkers {
                highest = highest.max(walker.log.peek()?.map_or(0, |h| h.entries));
            }
            self.join_at(highest)?;
            let alone = number == 0 && self.walkers.len() == 1;
            if highest <= number || alone {
                return Ok(());
            }
            let next = match &mut self.walkers[..] {
                [one] => {
                    one.log.skip_to(number)?;
                    continue;
                }
                _ => highest - 1,
            };
            for walker in &mut self.walkers {
                walker.log.skip_to(next)?;
            }
        }
    }

    /// Ends the logs that stand at the same entry as one before them in the list.
    fn join_at(&mut self, number: u64) -> Result<()> {
        let mut met: HashMap<TimelineHead, usize> = HashMap::new();
        let mut left = Vec::new();
        for mut walker in self.walkers.drain(..) {
            let Some(head) = walker.log.peek()? else {
                continue;
            };
            if head.entries < number {
                left.push(walker);
                continue;
            }
            if let Some(goes_on) = met.get(&head) {
                let ended = &mut self.found.list[walker.source];
                (ended.first, ended.goes_on) = (number + 1, Some(*goes_on));
                continue;
            }
            met.insert(head, walker.source);
            left.push(walker);
        }
        self.walkers = left;
        Ok(())
    }
}

/// The branch that a timeline is of, and when it was deleted.
type Whose = (String, Option<Time>);

/// Timelines of other branches, looked at from the highest number on.
struct Others<'a> {
    workspace: &'a Workspace,
    live: Vec<Other<'a, Arc<Branch>>>,
    /// Of deleted branches; read when they are asked for first.
    kept: Option<Vec<Other<'a, super::kept::KeptRecord>>>,
}

/// One of them.
struct Other<'a, T> {
    of: T,
    place: LogPlace,
    /// Where it was looked at last.
    log: Option<Newest<Log<'a>>>,
}

impl<'a, T> Other<'a, T> {
    fn new(of: T, place: LogPlace) -> Other<'a, T> {
        Other {
            of,
            place,
            log: None,
        }
    }

    /// Whether it has an entry. What cannot be read has none.
    fn has(&mut self, head: TimelineHead, store: &'a ObjectStore) -> bool {
        if self.place.entries() <= head.entries {
            return self.place.head == Some(head);
        }
        let place = &self.place;
        let log = self
            .log
            .get_or_insert_with(|| Newest::of(Log::at(place, store, store.pin())));
        log.skip_to(head.entries).is_ok_and(|at| at == Some(head))
    }
}

/// The first that has an entry: one that ends with it, else any.
fn that_has<'x, 'a, T>(
    others: &'x mut [Other<'a, T>],
    head: TimelineHead,
    store: &'a ObjectStore,
) -> Option<&'x T> {
    let exact = others.iter().position(|o| o.place.head == Some(head));
    let found = exact.or_else(|| others.iter_mut().position(|o| o.has(head, store)));
    found.map(|i| &others[i].of)
}

impl<'a> Others<'a> {
    fn of(workspace: &'a Workspace, branch: &Branch) -> Others<'a> {
        let live = workspace.views.branches_but(branch).into_iter();
        let live = live.map(|b| {
            let place = LogPlace::of(&b.lock().book.timeline);
            Other::new(b, place)
        });
        Others {
            workspace,
            live: live.collect(),
            kept: None,
        }
    }

    /// The timeline that has an entry, its branch, and when that was deleted.
    fn with(
        &mut self,
        head: TimelineHead,
        store: &'a ObjectStore,
    ) -> Result<Option<(Reading, Whose)>> {
        if let Some(branch) = that_has(&mut self.live, head, store) {
            return Ok(Some((read::reading(branch), (branch.name(), None))));
        }
        let kept = match &mut self.kept {
            Some(kept) => kept,
            none => {
                let refs = &self.workspace.views.shared().refs;
                let all = kept(refs, self.workspace.name())?.into_iter();
                none.insert(all.map(|(_, r)| Other::new(r.clone(), r.place())).collect())
            }
        };
        let Some(record) = that_has(kept, head, store) else {
            return Ok(None);
        };
        let of = (record.branch.clone(), Some(record.deleted));
        Ok(Some((record.reading(store)?, of)))
    }
}
