//! What somebody asked for after the steps of undo: checkpoints and applies.
//!
//! Undo shows what a step replaced, so whatever came after the step goes with it. Work that nobody named
//! may go: it is kept as an automatic commit. A checkpoint or an apply says that somebody relied on what was
//! there, so undo refuses to go back over one unless it is told to. Invariant: an entry's `steps` is never
//! above the number of steps of undo, and each step that has entries keeps its newest ones, however many
//! checkpoints follow. Tests: below, and `engine/tests/branches/undo.rs`.

use crate::book::history::{History, Turn};
use crate::types::Time;

/// Entries that are kept for one step.
const LATER_MAX: usize = 8;

/// Something that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct Later {
    /// Steps of undo that there were; it came after the last of these.
    pub steps: u64,
    /// What it is.
    pub what: Asked,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub enum Asked {
    /// A checkpoint, or a label for the head where nothing had changed.
    Checkpoint {
        /// Its state.
        state: u64,
        /// The label that it got.
        label: Option<String>,
    },
    /// An apply to the base.
    Apply {
        /// When.
        time: Time,
    },
}

impl History {
    /// Notes something that was asked for.
    pub(crate) fn note_asked(&mut self, what: Asked) {
        let steps = self.undo.len() as u64;
        if steps == 0 {
            return;
        }
        let same = |l: &&Later| l.steps == steps;
        if self.later.iter().filter(same).count() >= LATER_MAX
            && let Some(at) = self.later.iter().position(|l| l.steps == steps)
        {
            self.later.remove(at);
        }
        self.later.push(Later { steps, what });
    }

    /// A checkpoint found nothing changed: the head gets its label.
    pub(crate) fn label_unchanged(&mut self, label: String, state: u64) {
        if state == self.head {
            let label = Some(label.clone());
            self.note_asked(Asked::Checkpoint { state, label });
        }
        self.label(label, state);
    }

    /// What was asked for after the next step of undo, the oldest first.
    pub(crate) fn later_than_undo(&self) -> impl Iterator<Item = &Later> {
        let steps = self.undo.len() as u64;
        self.later.iter().filter(move |l| l.steps >= steps)
    }

    /// The last step was undone, and what came after it with that.
    pub(crate) fn forget_undone(&mut self) {
        let steps = self.undo.len() as u64;
        self.later.retain(|l| l.steps <= steps && steps > 0);
    }

    /// The oldest `gone` steps are not kept any longer.
    pub(crate) fn forget_oldest(&mut self, gone: u64) {
        for later in &mut self.later {
            later.steps = later.steps.saturating_sub(gone);
        }
        self.later.retain(|l| l.steps > 0);
    }

    /// A checkpoint was taken back.
    pub(crate) fn forget_checkpoint(&mut self, of: u64) {
        let is_it = |l: &Later| matches!(l.what, Asked::Checkpoint { state, .. } if state == of);
        self.later.retain(|l| !is_it(l));
    }

    /// Keeps the steps of undo and redo that `keep` wants, and what came after those of undo. `state`
    /// gives the number of a state from now on.
    pub(crate) fn retain_turns(
        &mut self,
        keep: &mut dyn FnMut(&mut Turn) -> bool,
        state: &dyn Fn(u64) -> Option<u64>,
    ) {
        let kept: Vec<bool> = self.undo.iter_mut().map(&mut *keep).collect();
        let left = |steps: u64| kept.iter().take(steps as usize).filter(|k| **k).count();
        self.later.retain_mut(|l| {
            l.steps = left(l.steps) as u64;
            if let Asked::Checkpoint { state: of, .. } = &mut l.what {
                match state(*of) {
                    Some(new) => *of = new,
                    None => return false,
                }
            }
            l.steps > 0
        });
        let mut kept = kept.into_iter();
        self.undo.retain(|_| kept.next().unwrap_or(false));
        self.redo.retain_mut(keep);
    }

    /// Something that was asked for, in words.
    pub(crate) fn in_words(&self, later: &Later) -> String {
        match &later.what {
            Asked::Checkpoint {
                label: Some(label), ..
            } => format!("checkpoint {label}"),
            Asked::Checkpoint { state, .. } => match self.id_of(*state) {
                Some(id) => format!("checkpoint {}", &id.to_string()[..12]),
                None => "a checkpoint that has no id yet".to_owned(),
            },
            Asked::Apply { time } => match jiff::Timestamp::from_second(time.sec) {
                Ok(time) => format!("the apply of {time}"),
                Err(_) => "an apply".to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(steps: u64) -> History {
        let turn = |state| Turn { state, head: 1 };
        let mut h = History::default();
        h.undo = (1..=steps).map(turn).collect();
        h
    }

    fn apply(sec: i64) -> Asked {
        Asked::Apply {
            time: Time { sec, nsec: 0 },
        }
    }

    fn steps(h: &History) -> Vec<u64> {
        h.later.iter().map(|l| l.steps).collect()
    }

    #[test]
    fn only_what_came_after_the_last_step_is_in_the_way() {
        let mut h = history(1);
        h.note_asked(apply(1));
        assert_eq!(h.later_than_undo().count(), 1);
        h.undo.push(Turn { state: 9, head: 1 });
        assert_eq!(h.later_than_undo().count(), 0);
        h.undo.pop();
        h.forget_undone();
        assert_eq!(h.later_than_undo().count(), 1);
        h.undo.pop();
        h.forget_undone();
        assert!(h.later.is_empty());
        h.note_asked(apply(2));
        assert!(h.later.is_empty(), "nothing can be undone");
    }

    #[test]
    fn each_step_keeps_its_newest() {
        let mut h = history(1);
        h.note_asked(apply(0));
        h.undo.push(Turn { state: 9, head: 1 });
        (1..100).for_each(|n| h.note_asked(apply(n)));
        assert_eq!(h.later.len(), 1 + LATER_MAX);
        assert_eq!(h.later_than_undo().last().unwrap().what, apply(99));
        h.forget_oldest(1);
        assert_eq!(steps(&h), [1; LATER_MAX]);
    }

    #[test]
    fn steps_that_are_lost_take_nothing_else_with_them() {
        let mut h = history(1);
        h.note_asked(apply(0));
        h.undo.push(Turn { state: 9, head: 1 });
        h.note_asked(Asked::Checkpoint {
            state: 5,
            label: None,
        });
        h.retain_turns(&mut |t| t.state == 9, &|n| Some(n + 1));
        assert_eq!(steps(&h), [1]);
        assert!(matches!(
            h.later[0].what,
            Asked::Checkpoint { state: 6, .. }
        ));
    }
}
