//! Carrying out journal records again, after a restart.

use super::Inner;
use super::events::Recorded;
use crate::journal::{JournalError, JournalResult, PayloadRef, ReplayError, ReplayRecord};
use crate::record::{BroughtEntry, Event, Loaded, Record, TreePatch, decode};
use crate::tree::Tree;
use crate::tree::patch::BaseDirs;
use crate::types::Nid;

/// Replays records into a branch's state.
pub(super) struct Replay<'a> {
    pub inner: &'a mut Inner,
    pub dirs: BaseDirs,
    /// Records that carry a patch as payload: read once the journal is open.
    pub late: Vec<Late>,
    /// Entries of a directory whose record goes on in the next.
    pub entries: Vec<Loaded>,
    /// The same of an away directory.
    pub brought: Vec<BroughtEntry>,
    /// Directory that they belong to.
    pub entries_of: u64,
    /// Parts of the patch of the switch that follows.
    pub parts: Vec<PayloadRef>,
    /// The record that is being carried out.
    seq: u64,
    /// Records that come next.
    next: Vec<Late>,
}

/// Records that are carried out together: all cores decode the inodes that they are about.
const TOGETHER: usize = 4096;

/// Fills a buffer with a payload from its start.
pub(super) type ReadPayload<'a> = dyn Fn(PayloadRef, &mut [u8]) -> Result<(), ReplayError> + 'a;

/// A record that is carried out later.
pub(super) struct Late {
    seq: u64,
    record: Record,
    payload: Option<PayloadRef>,
}

impl<'a> Replay<'a> {
    /// Nothing was replayed yet.
    pub fn new(inner: &'a mut Inner, dirs: BaseDirs) -> Replay<'a> {
        Replay {
            inner,
            dirs,
            late: Vec::new(),
            entries: Vec::new(),
            brought: Vec::new(),
            entries_of: 0,
            parts: Vec::new(),
            seq: 0,
            next: Vec::new(),
        }
    }

    /// Takes one record; it and some that follow may be carried out only later. After the first switch, all wait for
    /// [`Replay::finish`], in order. An error names the record.
    pub fn take(&mut self, r: ReplayRecord<'_>) -> JournalResult<()> {
        let seq = r.seq;
        let record = decode(r.meta).map_err(|why| JournalError::Replay {
            seq,
            source: why.into(),
        })?;
        let waits = is_of_patch(&record) || !self.late.is_empty();
        let queue = if waits {
            &mut self.late
        } else {
            &mut self.next
        };
        queue.push(Late {
            seq,
            record,
            payload: r.payload,
        });
        match self.next.len() {
            TOGETHER => self.carry_out_next(),
            _ => Ok(()),
        }
    }

    /// Carries out what had to wait. An error names the record.
    pub fn finish(&mut self, read: &ReadPayload<'_>) -> JournalResult<()> {
        self.carry_out_next()?;
        for late in std::mem::take(&mut self.late) {
            self.carry_out_one(late, Some(read))?;
        }
        Ok(())
    }

    fn carry_out_next(&mut self) -> JournalResult<()> {
        let next = std::mem::take(&mut self.next);
        let about = next.iter().filter_map(|late| match &late.record {
            Record::Mutation(m) | Record::Requested { mutation: m, .. } => Some(m.inodes()),
            Record::Event(_) => None,
        });
        self.inner
            .live
            .open_those(about.flatten().flatten().map(Nid));
        next.into_iter()
            .try_for_each(|late| self.carry_out_one(late, None))
    }

    fn carry_out_one(&mut self, late: Late, read: Option<&ReadPayload<'_>>) -> JournalResult<()> {
        let seq = late.seq;
        self.seq = seq;
        self.carry_out(late.record, late.payload, read)
            .map_err(|source| JournalError::Replay { seq, source })
    }

    fn carry_out(
        &mut self,
        record: Record,
        payload: Option<PayloadRef>,
        read: Option<&ReadPayload<'_>>,
    ) -> Result<(), ReplayError> {
        self.drop_unfinished(&record);
        let bytes = payload.map_or(0, |p| u64::from(p.len));
        self.inner.outcomes.recall(&record, bytes);
        match record {
            Record::Mutation(m) | Record::Requested { mutation: m, .. } => {
                m.check(payload)?;
                self.inner.book.counters.pass_given(&m);
                self.inner.live.apply(&m, payload)?;
                Ok(())
            }
            Record::Event(e) => self.event(e, payload, read),
        }
    }

    /// Parts that were recorded one after the other are nothing where the last one is missing: appending
    /// it had failed.
    fn drop_unfinished(&mut self, record: &Record) {
        if !is_of_patch(record) {
            self.parts.clear();
        }
        if let Record::Event(Event::Brought { dir, entries, .. }) = record {
            let name = |e: Option<&BroughtEntry>| e.map(|e| e.name.clone());
            let again = name(entries.first()) == name(self.brought.first());
            if again || self.entries_of != *dir {
                self.brought.clear();
            }
            self.entries_of = *dir;
            return self.entries.clear();
        }
        self.brought.clear();
        let Record::Event(Event::LoadDir { dir, entries, .. }) = record else {
            self.entries.clear();
            return;
        };
        let name = |e: Option<&Loaded>| e.map(|e| e.entry.name.clone());
        let again = name(entries.first()) == name(self.entries.first());
        if again || self.entries_of != *dir {
            self.entries.clear();
        }
        self.entries_of = *dir;
    }

    fn event(
        &mut self,
        event: Event,
        payload: Option<PayloadRef>,
        read: Option<&ReadPayload<'_>>,
    ) -> Result<(), ReplayError> {
        let event = match event {
            Event::SwitchPart => {
                self.parts.extend(payload);
                return Ok(());
            }
            Event::LoadDir {
                dir,
                entries,
                unreadable,
                more,
            } => {
                self.entries.extend(entries);
                if more {
                    return Ok(());
                }
                let entries = std::mem::take(&mut self.entries);
                Event::LoadDir {
                    dir,
                    entries,
                    unreadable,
                    more,
                }
            }
            Event::Brought {
                dir,
                id,
                entries,
                more,
            } => {
                self.brought.extend(entries);
                if more {
                    return Ok(());
                }
                let entries = std::mem::take(&mut self.brought);
                Event::Brought {
                    dir,
                    id,
                    entries,
                    more,
                }
            }
            other => other,
        };
        self.note_switch(&event);
        let patched = match event.has_patch() {
            true => Some(self.patched(payload, read, event.patches_live())?),
            false => None,
        };
        let (live, kept) = match event.patches_live() {
            true => (patched, None),
            false => (None, patched),
        };
        let recorded = Recorded {
            seq: self.seq,
            payload,
            live,
            kept,
        };
        self.inner.carry_out(event, recorded)
    }

    /// Whether a switch began of which the kernel may not know, or is known to have ended: what it replaced is stored, or
    /// given up for a state that it equals, only after the kernel has dropped what it had of it.
    fn note_switch(&mut self, event: &Event) {
        let cut_off = &mut self.inner.cut_off;
        match event {
            Event::Switch { replaced, .. }
            | Event::Merged { replaced, .. }
            | Event::CallUndone { replaced, .. } => drop(cut_off.insert(*replaced)),
            Event::Named { state, .. } | Event::Same { state, .. } => drop(cut_off.remove(state)),
            _ => {}
        }
    }

    /// The live tree with the patch that ends with this payload.
    fn patched(
        &mut self,
        payload: Option<PayloadRef>,
        read: Option<&ReadPayload<'_>>,
        takes_live: bool,
    ) -> Result<Tree, ReplayError> {
        self.parts.extend(payload);
        let patch = read_patch(&std::mem::take(&mut self.parts), read)?;
        // Not a copy: where the patch does not fit, nothing of the branch is used.
        let mut live = match takes_live {
            true => std::mem::take(&mut self.inner.live),
            false => self.inner.live.clone(),
        };
        patch.apply(&mut live, &mut self.dirs)?;
        Ok(live)
    }
}

/// The record's payload is a patch, or a part of one.
fn is_of_patch(record: &Record) -> bool {
    matches!(record, Record::Event(e) if e.has_patch() || matches!(e, Event::SwitchPart))
}

fn read_patch(
    parts: &[PayloadRef],
    read: Option<&ReadPayload<'_>>,
) -> Result<TreePatch, ReplayError> {
    let read = read.ok_or("a switch before the journal was open")?;
    let mut bytes = vec![0; parts.iter().map(|p| p.len as usize).sum()];
    let mut rest = &mut bytes[..];
    for p in parts {
        let (part, after) = rest.split_at_mut(p.len as usize);
        read(*p, part)?;
        rest = after;
    }
    Ok(TreePatch::from_bytes(&bytes)?)
}
