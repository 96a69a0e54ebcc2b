//! Letting go of what can be brought again: chunks that are here and [`crate::elsewhere`] are a cache.
//!
//! Which these are is said by the caller. They go as what nothing needs goes, by the sweep, so a crash leaves each of
//! them whole or absent. Chunks alone: directories and manifests are what gc walks along, and take little.
//!
//! Invariant: what a put found during the run stays, as everywhere in gc: whoever relies on an object has asked for it,
//! or holds a pin.
//!
//! Tests: `objstore/tests/gc_shed.rs`, `engine/tests/base/cache.rs`.

use super::marks::PackMarks;
use super::{Collection, Plan};
use crate::error::{AtPath, Result};
use crate::id::Kind;
use crate::pack::Key;
use crate::pack::hole::block_bytes;
use crate::pack::open::record_len;
use std::time::Duration;

/// What a cache holds, and what of it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shed {
    /// Bytes of all records that may go.
    pub bytes: u64,
    /// Bytes of those that go.
    pub shed_bytes: u64,
    /// How many go.
    pub objects: u64,
}

impl Collection<'_> {
    /// True where a walk of this run met the object.
    pub fn has_met(&self, key: &Key) -> bool {
        self.marks.has_met(key)
    }

    /// Of the chunks that were met and that `may_go` names, those go that came first, until the others take no more than
    /// `bound` bytes; none in packs that grew less than `grace` ago. After all walks, before [`Collection::plan`].
    pub fn shed(&self, bound: u64, grace: Duration, may_go: &dyn Fn(&Key) -> bool) -> Result<Shed> {
        let mut shed = Shed::default();
        // Packs are numbered, and written, in the order in which their records came.
        let mut old = Vec::new();
        for marks in self.marks.packs() {
            self.check_stop()?;
            let path = &marks.pack.path;
            let is_old = self.store.storage.age(path).at(path)? >= grace;
            let chunks = marks.only_met().filter(|(_, key, _)| key.0 == Kind::Chunk);
            let mut chunks: Vec<_> = chunks.filter(|(_, key, _)| may_go(key)).collect();
            chunks.sort_unstable_by_key(|(_, _, at)| at.offset);
            for (number, _, at) in chunks {
                let len = record_len(&at);
                shed.bytes += len;
                old.extend(is_old.then_some((marks, number, len)));
            }
        }
        for (marks, number, len) in old {
            if shed.bytes - shed.shed_bytes <= bound {
                break;
            }
            marks.shed(number);
            shed.shed_bytes += len;
            shed.objects += 1;
        }
        Ok(shed)
    }

    /// Takes [`Collection::shed`] back.
    pub fn shed_none(&self) {
        self.marks
            .packs()
            .iter()
            .for_each(|marks| marks.shed_none());
    }

    /// Bytes of what was chosen that carrying out a plan gives back: not of what is too small to be punched.
    pub fn shed_by(&self, plan: &Plan) -> u64 {
        let of = |marks: &PackMarks| {
            let number = marks.pack.number;
            let goes = plan.packs.iter().any(|p| p.number == number);
            let has_holes = plan.holes.iter().any(|h| h.number == number);
            let shed = marks.to_shed().map(|(_, at)| at);
            let shed = shed.filter(|at| goes || has_holes && block_bytes(at) > 0);
            shed.map(|at| record_len(&at)).sum::<u64>()
        };
        self.marks.packs().iter().map(of).sum()
    }

    /// Waits for all pins that there are.
    pub fn wait_for_work(&self) -> Result<()> {
        self.wait_for_pins()
    }
}
