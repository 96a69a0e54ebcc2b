//! Which automatic commits are kept, for how long.
//!
//! What the branch was before and after tool calls, runs and turns of agents (commits with metadata) for a month,
//! at most [`CALL_STATES_MAX`] states. Of the others all of the last hour, then the newest of each hour for a day, the newest of each day for a month
//! (or what the settings say). Invariant: what somebody asked for, what has a label, the head, what
//! undo and redo go to, what a kept commit has as parent, what a branch was made of or a merge was made
//! of (another branch's commit has it as parent), the newest state, and what is not stored yet never
//! expires. Undo goes back as far as automatic commits are kept, and [`TURNS_MAX`] steps at most,
//! which bounds the history.

use crate::book::history::{History, Turn};
use crate::book::states::State;
use crate::record::OpKind;
use crate::settings::Settings;
use crate::types::Time;
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

/// Steps of undo (and of redo) that are kept.
const TURNS_MAX: usize = 1000;
/// States before and after tool calls that are kept as such.
const CALL_STATES_MAX: usize = 20_000;
const HOUR_SECS: i64 = 3600;
const DAY_SECS: i64 = 86_400;

/// What goes: states, and the oldest steps of undo and redo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expiry {
    /// States, ascending.
    pub states: Vec<u64>,
    /// Steps of undo, from the oldest on.
    pub undo: u64,
    /// Steps of redo, from the oldest on.
    pub redo: u64,
}

impl Expiry {
    /// True where nothing goes.
    pub fn is_empty(&self) -> bool {
        *self == Expiry::default()
    }
}

impl History {
    /// What has expired at `now`; `used` are states before and after tool calls.
    pub fn expired(&self, now: Time, s: &Settings, used: &BTreeSet<u64>) -> Expiry {
        let oldest = |turns: &[Turn]| {
            let gone = |t: &Turn| self.is_gone(t.state, now, s.keep_daily);
            let aged = turns.iter().take_while(|t| gone(t)).count();
            aged.max(turns.len().saturating_sub(TURNS_MAX))
        };
        let (undo, redo) = (oldest(&self.undo), oldest(&self.redo));
        let turns = self.undo[undo..].iter().chain(&self.redo[redo..]);
        let mut kept: HashSet<u64> = turns.flat_map(|t| [t.state, t.head]).collect();
        kept.extend(self.labels.iter().map(|(_, state)| *state));
        kept.extend(self.shown);
        kept.extend(&self.branched);
        kept.insert(self.head);
        kept.extend(self.states.keys().next_back());
        let mut states = self.thinned((&kept, used), now, s);
        self.spare_parents(&mut states);
        Expiry {
            states,
            undo: undo as u64,
            redo: redo as u64,
        }
    }

    /// An automatic commit that not even one a day would keep.
    fn is_gone(&self, state: u64, now: Time, keep: Duration) -> bool {
        let old = |s: &State| is_unasked(s) && age(now, s.info.time) >= keep;
        self.states.get(&state).is_none_or(old)
    }

    /// Automatic commits beyond those that the settings keep, ascending.
    fn thinned(
        &self,
        (kept, used): (&HashSet<u64>, &BTreeSet<u64>),
        now: Time,
        s: &Settings,
    ) -> Vec<u64> {
        let (mut hours, mut days) = (HashSet::new(), HashSet::new());
        let (mut out, mut of_calls) = (Vec::new(), 0);
        for state in self.states.values().rev().filter(|s| may_expire(s)) {
            let (age, sec) = (age(now, state.info.time), state.info.time.sec);
            let told_of = used.contains(&state.info.number) || !state.info.meta.is_empty();
            if told_of && age < s.keep_calls {
                of_calls += 1;
                if of_calls <= CALL_STATES_MAX {
                    continue;
                }
            }
            let (hour, day) = (sec.div_euclid(HOUR_SECS), sec.div_euclid(DAY_SECS));
            let stays = age < s.keep_all
                || (age < s.keep_hourly && !hours.contains(&hour))
                || (age < s.keep_daily && age >= s.keep_hourly && !days.contains(&day));
            if stays {
                hours.insert(hour);
                days.insert(day);
            } else if self.states.is_stored(state.info.number) && !kept.contains(&state.info.number)
            {
                out.push(state.info.number);
            }
        }
        out.reverse();
        out
    }

    /// Takes out what a state that stays has as parent, and their parents.
    fn spare_parents(&self, states: &mut Vec<u64>) {
        let mut going: HashSet<u64> = states.iter().copied().collect();
        let stays = |going: &HashSet<u64>| {
            let parents = self.states.iter().filter(|(n, _)| !going.contains(n));
            let parents = parents.flat_map(|(_, s)| s.info.parents.iter().copied());
            parents.filter(|p| going.contains(p)).collect::<Vec<_>>()
        };
        if going.is_empty() {
            return;
        }
        let mut spared = stays(&going);
        while let Some(state) = spared.pop() {
            if going.remove(&state)
                && let Some(s) = self.states.get(&state)
            {
                spared.extend(&s.info.parents);
            }
        }
        states.retain(|n| going.contains(n));
    }

    /// Lets go of what [`History::expired`] found.
    pub fn expire(&mut self, gone: &Expiry) {
        let cut = |turns: &mut Vec<Turn>, n: u64| {
            turns.drain(..turns.len().min(n as usize));
        };
        cut(&mut self.undo, gone.undo);
        cut(&mut self.redo, gone.redo);
        self.forget_oldest(gone.undo);
        for state in gone.states.iter().filter(|s| **s != self.head) {
            self.states.remove(*state);
        }
    }
}

fn is_unasked(s: &State) -> bool {
    s.info.kind.is_automatic() && !s.info.asked
}

/// Other branches know nothing of what goes here, and the other way round.
fn may_expire(s: &State) -> bool {
    let of_others = matches!(s.info.kind, OpKind::BeforeBranch | OpKind::BeforeMerge);
    is_unasked(s) && !of_others
}

fn age(now: Time, then: Time) -> Duration {
    Duration::from_secs((now.sec - then.sec).max(0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::history::HistoryRecord;
    use crate::record::StateInfo;

    const NOW: i64 = 1_700_000_000;

    fn state(number: u64, kind: OpKind, secs_ago: i64, parents: &[u64]) -> StateInfo {
        StateInfo {
            number,
            kind,
            asked: false,
            time: at(secs_ago),
            author: String::new(),
            message: String::new(),
            meta: vec![],
            parents: parents.to_vec(),
            id: None,
        }
    }

    fn at(secs_ago: i64) -> Time {
        Time {
            sec: NOW - secs_ago,
            nsec: 0,
        }
    }

    fn history(states: Vec<StateInfo>) -> History {
        History::from_record(HistoryRecord {
            states,
            labels: vec![],
            head: 1,
            undo: vec![],
            redo: vec![],
            ..HistoryRecord::default()
        })
    }

    fn numbers(h: &History) -> Vec<u64> {
        h.states.keys().copied().collect()
    }

    /// An automatic commit a minute for forty days, looked at each hour.
    #[test]
    fn an_hour_a_day_and_a_month_are_kept_and_no_more() {
        let mut h = history(vec![state(1, OpKind::Start, 40 * DAY_SECS, &[])]);
        let (settings, mut number, mut most) = (Settings::default(), 1, 0);
        for minute in (0..40 * 24 * 60).rev() {
            number += 1;
            let info = state(number, OpKind::Auto, minute * 60, &[1]);
            h.freeze(info, Default::default(), false, None);
            h.states.set_all_stored();
            if minute % 60 == 0 {
                let gone = h.expired(at(minute * 60), &settings, &BTreeSet::new());
                h.expire(&gone);
                most = most.max(h.states.len());
            }
        }
        assert!(most < 60 + 60 + 24 + 31, "{most}");
        let ages = |from: i64, to: i64| {
            let age = |s: &State| NOW - s.info.time.sec;
            let all = h.states.values().filter(move |s| s.info.number > 1);
            all.filter(|s| (from..to).contains(&age(s))).count()
        };
        assert_eq!(ages(0, HOUR_SECS), 60);
        assert!((22..=24).contains(&ages(HOUR_SECS, DAY_SECS)));
        assert!((28..=30).contains(&ages(DAY_SECS, 30 * DAY_SECS)));
        assert_eq!(ages(31 * DAY_SECS, 50 * DAY_SECS), 0);
        assert!(numbers(&h).contains(&1), "what was asked for stays");
    }

    #[test]
    fn what_is_needed_never_expires() {
        let year = 365 * DAY_SECS;
        let auto = |n| state(n, OpKind::Auto, year, &[1]);
        let mut states: Vec<StateInfo> = (2..=9).map(auto).collect();
        states.insert(0, state(1, OpKind::Start, year, &[]));
        states[2].asked = true; // 3
        states.push(state(10, OpKind::Checkpoint, year, &[5]));
        states.push(state(11, OpKind::BeforeRollback, 60, &[1]));
        states.push(auto(12));
        let mut h = history(states);
        h.label("four".into(), 4);
        h.states.freeze(auto(6), Default::default());
        h.undo.push(Turn { state: 11, head: 7 });
        let gone = h.expired(at(0), &Settings::default(), &BTreeSet::new());
        assert_eq!(gone.states, [2, 8, 9]);
        h.expire(&gone);
        assert_eq!(numbers(&h), [1, 3, 4, 5, 6, 7, 10, 11, 12]);
    }

    #[test]
    fn undo_goes_back_as_far_as_automatic_commits_are_kept() {
        let mut states = vec![state(1, OpKind::Start, 99 * DAY_SECS, &[])];
        for n in 2..=4 {
            let days = [0, 0, 40, 20, 0][n as usize];
            states.push(state(n, OpKind::BeforeRollback, days * DAY_SECS, &[1]));
        }
        let mut h = history(states);
        h.undo = (2..=4).map(|state| Turn { state, head: 1 }).collect();
        let gone = h.expired(at(0), &Settings::default(), &BTreeSet::new());
        assert_eq!((gone.undo, gone.states.as_slice()), (1, &[2][..]));
        h.expire(&gone);
        assert_eq!(h.undo.len(), 2);
        assert_eq!(numbers(&h), [1, 3, 4]);
    }

    #[test]
    fn states_of_tool_calls_are_kept_by_their_own_setting() {
        let states = (1..=40).map(|n| state(n, OpKind::ToolCall, (41 - n as i64) * DAY_SECS, &[]));
        let mut h = history(states.collect());
        h.head = 40;
        let used: BTreeSet<u64> = (1..=40).collect();
        let settings = Settings {
            keep_daily: Duration::from_secs(3 * DAY_SECS as u64),
            ..Settings::default()
        };
        let gone = h.expired(at(0), &settings, &used);
        assert_eq!(gone.states, (1..=11).collect::<Vec<_>>());
        let gone = h.expired(at(0), &settings, &BTreeSet::new());
        assert_eq!(gone.states, (1..=38).collect::<Vec<_>>());
    }

    #[test]
    fn commits_with_metadata_are_kept_as_long_as_those_of_calls() {
        let states = (1..=40).map(|n| {
            let meta = vec![("prompt".to_owned(), n.to_string())];
            let info = state(n, OpKind::Auto, (41 - n as i64) * DAY_SECS, &[]);
            StateInfo { meta, ..info }
        });
        let mut h = history(states.collect());
        h.head = 40;
        let settings = Settings {
            keep_daily: Duration::from_secs(3 * DAY_SECS as u64),
            ..Settings::default()
        };
        let gone = h.expired(at(0), &settings, &BTreeSet::new());
        assert_eq!(gone.states, (1..=11).collect::<Vec<_>>());
    }

    #[test]
    fn steps_of_undo_are_bounded() {
        let mut h = history(vec![state(1, OpKind::Start, 60, &[])]);
        for n in 2..TURNS_MAX as u64 + 5 {
            let info = state(n, OpKind::BeforeRollback, 30, &[1]);
            h.freeze(info, Default::default(), false, None);
            h.undo.push(Turn { state: n, head: 1 });
        }
        let gone = h.expired(at(0), &Settings::default(), &BTreeSet::new());
        h.expire(&gone);
        assert_eq!(h.undo.len(), TURNS_MAX);
    }
}
