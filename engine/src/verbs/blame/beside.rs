//! Calls side by side on the way through a timeline: in which times one ran without the others.
//!
//! Only of calls of which it is told what others changed, and of those others, anything is kept; nothing else costs
//! memory.

use crate::record::call::What;
use crate::verbs::blame::trees::Moment;
use crate::verbs::timeline::own::Others;
use crate::verbs::timeline::read::TimelineItem;
use std::collections::HashMap;
use std::rc::Rc;

/// What was met on the way, from the newest entry on.
#[derive(Default)]
pub(crate) struct Beside {
    /// Calls whose beginning is still to come and of which it is told what others changed, with those others.
    told: HashMap<u64, Vec<u64>>,
    /// Beginnings and ends of those others since.
    marks: Vec<Mark>,
    /// The end that was met last: the call, and those that ran at the same time.
    ended: Option<(u64, Vec<u64>)>,
}

/// The beginning or end of a call.
struct Mark {
    entry: u64,
    call: u64,
    /// Calls that run more from here on.
    step: i32,
    /// What there was then, where that is kept.
    moment: Option<Rc<Moment>>,
}

impl Beside {
    /// A call's end was met.
    pub fn over(&mut self, what: &What) {
        if let What::Over { call, overlaps, .. } = what {
            self.ended = Some((*call, overlaps.clone()));
        }
    }

    /// It is told what others changed while a call ran whose end was met last.
    pub fn told(&mut self, call: u64) {
        if let Some((_, overlaps)) = self.ended.take_if(|ended| ended.0 == call) {
            self.told.insert(call, overlaps);
        }
    }

    /// A beginning (1 more that runs from there on) or an end was met, with what there was then.
    pub fn mark(&mut self, entry: u64, call: u64, step: i32, moment: &Option<Rc<Moment>>) {
        if self.told.is_empty() {
            self.marks.clear();
        }
        if self.told.values().any(|of| of.contains(&call)) {
            self.marks.push(Mark {
                entry,
                call,
                step,
                moment: moment.clone(),
            });
        }
    }

    /// A call's beginning was dealt with.
    pub fn begun(&mut self, call: u64) {
        self.told.remove(&call);
    }

    /// The times in which a call ran without others, each with what there was at its ends, as in
    /// [`crate::verbs::timeline::own`]; `None` where that is not kept.
    pub fn alone(
        &self,
        item: &TimelineItem,
        others: &Others,
        (before, after): (&Rc<Moment>, &Rc<Moment>),
    ) -> Option<Vec<(Rc<Moment>, Rc<Moment>)>> {
        let end = item.ended?;
        let meant =
            |m: &&Mark| others.of.contains(&m.call) && item.entry < m.entry && m.entry < end;
        let marks: Vec<&Mark> = self.marks.iter().rev().filter(meant).collect();
        let begun = marks.iter().filter(|m| m.step > 0).count();
        let mut running = i64::try_from(others.of.len().checked_sub(begun)?).ok()?;
        let mut found = Vec::new();
        let mut since = (running == 0).then(|| before.clone());
        for mark in marks {
            running += i64::from(mark.step);
            let moment = mark.moment.clone()?;
            match since.take() {
                Some(since) => found.push((since, moment)),
                None => since = (running == 0).then_some(moment),
            }
        }
        found.extend(since.map(|since| (since, after.clone())));
        Some(found)
    }
}
