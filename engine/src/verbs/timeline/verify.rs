//! Whether the timeline is what was recorded.
//!
//! Each entry's hash covers the entry and all before it; each commit holds the hash of the newest entry of
//! its moment. Whoever alters or removes an entry would have to make all hashes after it anew, and then
//! they are not those that commits hold.

use crate::book::timeline::Timeline;
use crate::book::timeline::log::Log;
use crate::book::timeline::log::LogBytes;
use crate::book::timeline::log::oldest_first;
use crate::branch::Branch;
use crate::error::{Error, Result};
use crate::record::OpKind;
use crate::record::call::chained;
use crate::workspace::Workspace;
use objstore::{Commit, CommitId};
use std::collections::BTreeMap;

/// Faults that are told; more are counted only.
const FAULTS_MAX: usize = 100;

/// Something that is not as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineFault {
    /// The first entry concerned.
    pub entry: u64,
    /// What is wrong.
    pub what: String,
}

/// What [`timeline_verify`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Entries that were looked at.
    pub entries: u64,
    /// Commits whose hash was compared.
    pub commits: u64,
    /// What is wrong, in order (the first 100).
    pub faults: Vec<TimelineFault>,
    /// How many faults there are.
    pub found: u64,
}

impl Verified {
    fn fault(&mut self, entry: u64, what: impl Into<String>) {
        self.found += 1;
        if self.faults.len() < FAULTS_MAX {
            let what = what.into();
            self.faults.push(TimelineFault { entry, what });
        }
    }
}

/// What a commit says: by number of the entry, the commit and the hash.
type Witnesses = BTreeMap<u64, Vec<(CommitId, [u8; 32])>>;

/// Compares all entries with their hashes, and these with what the branch's commits hold.
pub fn timeline_verify(ws: &Workspace, branch: &str) -> Result<Verified> {
    verify_in(ws.branch(branch)?.as_ref())
}

fn verify_in(branch: &Branch) -> Result<Verified> {
    let store = &branch.places.store;
    let pin = store.pin();
    let (timeline, commits) = {
        let inner = branch.lock();
        // Those of other branches hold other timelines' heads.
        let own = inner.book.history.states.stored();
        let own = own.filter(|s| s.info.kind != OpKind::Foreign);
        let ids: Vec<CommitId> = own.filter_map(|s| s.info.id).collect();
        (inner.book.timeline.clone(), ids)
    };
    let mut witnesses = Witnesses::new();
    for id in commits {
        let commit: Commit = store.get_object(&id)?;
        if let Some(head) = commit.timeline {
            let at = witnesses.entry(head.entries).or_default();
            at.push((id, head.hash));
        }
    }
    verified(&timeline, &Log::of(&timeline, store, pin), witnesses)
}

/// Compares a log with what is said of it.
fn verified(timeline: &Timeline, log: &impl LogBytes, witnesses: Witnesses) -> Result<Verified> {
    let mut found = Verified::default();
    let mut at = Position::default();
    let read = oldest_first(log, &mut |frame| {
        found.entries += 1;
        at.take(&mut found, &witnesses, &frame);
        Ok(true)
    });
    match read {
        Ok(()) => {}
        Err(Error::Damaged { why, .. }) => {
            found.fault(at.number + 1, format!("cannot be read: {why}"));
        }
        Err(e) => return Err(e),
    }
    at.end(&mut found, timeline, &witnesses);
    Ok(found)
}

/// How far the log was read.
#[derive(Default)]
struct Position {
    number: u64,
    hash: [u8; 32],
    /// Newest entry up to which commits agree.
    witnessed: u64,
    /// A commit disagrees; those after it would, too.
    disagreed: bool,
}

impl Position {
    fn take(
        &mut self,
        found: &mut Verified,
        witnesses: &Witnesses,
        frame: &crate::book::timeline::log::Frame,
    ) {
        let expected = self.number + 1;
        let (number, known) = match frame.entry() {
            Ok(entry) => (entry.number, true),
            Err(_) => (expected, false),
        };
        if !known {
            found.fault(expected, "was altered: it is not an entry");
        } else if number > expected {
            let last = number - 1;
            match last == expected {
                true => found.fault(expected, "was removed"),
                false => found.fault(
                    expected,
                    format!("was removed, with all entries up to {last}"),
                ),
            }
        } else if number < expected {
            found.fault(number, "is duplicated or out of order");
        }
        if chained(&self.hash, &frame.body) != frame.hash && number == expected && known {
            found.fault(number, "was altered, or an entry was inserted before it");
        }
        (self.number, self.hash) = (number, frame.hash);
        self.compare(found, witnesses);
    }

    fn compare(&mut self, found: &mut Verified, witnesses: &Witnesses) {
        for (commit, hash) in witnesses.get(&self.number).into_iter().flatten() {
            found.commits += 1;
            if *hash == self.hash {
                (self.witnessed, self.disagreed) = (self.number, false);
            } else if !std::mem::replace(&mut self.disagreed, true) {
                let (from, to) = (self.witnessed + 1, self.number);
                let which = match from == to {
                    true => "was altered".to_owned(),
                    false => format!("or a later one up to {to} was altered or removed"),
                };
                found.fault(from, format!("{which}: commit {commit} has another hash"));
            }
        }
    }

    fn end(&self, found: &mut Verified, timeline: &Timeline, witnesses: &Witnesses) {
        let next = self.number.saturating_add(1);
        if let Some((entries, commits)) = witnesses.range(next..).next_back() {
            let commit = commits.first().map(|(id, _)| id.to_string());
            let commit = commit.unwrap_or_default();
            let what = format!(
                "was removed, with all entries up to {entries}: commit {commit} was made after"
            );
            found.fault(next, what);
        } else if self.number < timeline.entries {
            let last = timeline.entries;
            found.fault(next, format!("was removed, with all entries up to {last}"));
        } else if (self.number, self.hash) != (timeline.entries, timeline.hash) {
            found.fault(self.number, "is not the last recorded entry");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::call::{CallOutcome, StateRef, TimelineEntry, What, framed};
    use crate::types::Time;

    fn entry(number: u64, name: &str) -> TimelineEntry {
        let state = StateRef {
            state: number,
            commit: None,
        };
        TimelineEntry {
            number,
            time: Time::default(),
            what: What::Recorded {
                call: number,
                name: name.to_owned(),
                parameters: None,
                outcome: Some(CallOutcome::Success(None)),
                started: Time::default(),
                completed: None,
                before: Some(state),
                after: Some(state),
                overlaps: vec![],
            },
        }
    }

    /// Ten entries with their hashes, and commits made after the third and the seventh.
    fn recorded() -> (Timeline, Vec<Vec<u8>>, Witnesses) {
        let (mut t, mut frames, mut witnesses) = Default::default();
        let timeline: &mut Timeline = &mut t;
        for number in 1..=10 {
            let entry = entry(number, "tool");
            let (frame, hash) = framed(&entry, &timeline.hash);
            timeline.push(entry.time, entry.what);
            assert_eq!(hash, timeline.hash);
            let frames: &mut Vec<Vec<u8>> = &mut frames;
            frames.push(frame);
            if number == 3 || number == 7 {
                let id = CommitId::from_bytes([number as u8; 32]);
                let witnesses: &mut Witnesses = &mut witnesses;
                witnesses.insert(number, vec![(id, hash)]);
            }
        }
        (t, frames, witnesses)
    }

    fn faults(t: &Timeline, frames: &[Vec<u8>], w: &Witnesses) -> Vec<u64> {
        let log = frames.concat();
        let found = verified(t, &LogVec(log), w.clone()).unwrap();
        assert_eq!(found.found, found.faults.len() as u64);
        found.faults.iter().map(|f| f.entry).collect()
    }

    struct LogVec(Vec<u8>);

    impl LogBytes for LogVec {
        fn len(&self) -> u64 {
            self.0.len() as u64
        }

        fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
            LogBytes::read(self.0.as_slice(), at, buf)
        }
    }

    #[test]
    fn what_was_recorded_has_no_faults() {
        let (t, frames, w) = recorded();
        assert_eq!(faults(&t, &frames, &w), [0; 0]);
        let found = verified(&t, &LogVec(frames.concat()), w).unwrap();
        assert_eq!((found.entries, found.commits), (10, 2));
    }

    #[test]
    fn each_altered_entry_is_named() {
        let (t, frames, w) = recorded();
        for n in 0..frames.len() {
            let mut altered = frames.clone();
            let at = altered[n].windows(4).position(|b| b == b"tool").unwrap();
            altered[n][at] = b'f';
            assert_eq!(faults(&t, &altered, &w), [n as u64 + 1]);
        }
    }

    #[test]
    fn each_removed_entry_is_named() {
        let (t, frames, w) = recorded();
        for n in 0..frames.len() {
            let mut removed = frames.clone();
            removed.remove(n);
            assert_eq!(faults(&t, &removed, &w), [n as u64 + 1]);
        }
        assert_eq!(faults(&t, &frames[..5], &w), [6]);
    }

    #[test]
    fn hashes_that_were_made_anew_are_not_those_of_the_commits() {
        let (_, _, w) = recorded();
        let mut forged = Timeline::default();
        for number in 1..=10 {
            let name = if number == 5 { "fool" } else { "tool" };
            let entry = entry(number, name);
            forged.push(entry.time, entry.what);
        }
        let frames = [forged.tail.to_vec()];
        // Between the commits after 3 and 7.
        assert_eq!(faults(&forged, &frames, &w), [4]);
        let mut shorter = Timeline::default();
        for number in 1..=6 {
            let entry = entry(number, "tool");
            shorter.push(entry.time, entry.what);
        }
        assert_eq!(faults(&shorter, &[shorter.tail.to_vec()], &w), [7]);
    }

    #[test]
    fn a_log_that_cannot_be_read_is_a_fault() {
        let (t, frames, w) = recorded();
        let mut torn = frames.clone();
        torn[4][0] ^= 0x40;
        let found = faults(&t, &torn, &w);
        assert_eq!(found.first(), Some(&5));
    }
}
