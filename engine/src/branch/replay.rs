//! Carrying out journal records again, after a restart.

use super::Inner;
use crate::base::Stamp;
use crate::journal::{JournalError, JournalResult, PayloadRef, ReplayError, ReplayRecord};
use crate::later::Asked;
use crate::limits::FIRST_NEW_INO;
use crate::record::{Counters, Event, Loaded, Mutation, Record, SwitchKind, TreePatch, decode};
use crate::retention::Expiry;
use crate::tree::file::Body;
use crate::tree::patch::BaseDirs;
use crate::tree::{NewVersion, load};
use crate::types::{Kind, Nid};

/// Replays records into a branch's state.
pub(super) struct Replay<'a> {
    pub inner: &'a mut Inner,
    pub dirs: BaseDirs,
    /// Records that carry a patch as payload: read once the journal is open.
    pub late: Vec<Late>,
    /// Entries of a directory whose record goes on in the next.
    pub entries: Vec<Loaded>,
    /// Directory that they belong to.
    pub entries_of: u64,
    /// Parts of the patch of the switch that follows.
    pub parts: Vec<PayloadRef>,
    /// The record that is being carried out.
    seq: u64,
}

/// Fills a buffer with a payload from its start.
pub(super) type ReadPayload<'a> = dyn Fn(PayloadRef, &mut [u8]) -> Result<(), ReplayError> + 'a;

/// A record that cannot be carried out before payloads can be read.
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
            entries_of: 0,
            parts: Vec::new(),
            seq: 0,
        }
    }

    /// Takes one record. After the first switch, all wait for [`Replay::finish`], in order.
    pub fn take(&mut self, r: ReplayRecord<'_>) -> Result<(), ReplayError> {
        let record: Record = decode(r.meta)?;
        let needs_payload = matches!(
            record,
            Record::Event(
                Event::Switch { .. }
                    | Event::SwitchPart
                    | Event::Patched { .. }
                    | Event::Merged { .. }
                    | Event::CallUndone { .. }
            )
        );
        if needs_payload || !self.late.is_empty() {
            self.late.push(Late {
                seq: r.seq,
                record,
                payload: r.payload,
            });
            return Ok(());
        }
        self.seq = r.seq;
        self.carry_out(record, r.payload, None)
    }

    /// Carries out what had to wait. An error names the record.
    pub fn finish(&mut self, read: &ReadPayload<'_>) -> JournalResult<()> {
        for late in std::mem::take(&mut self.late) {
            let seq = late.seq;
            self.seq = seq;
            self.carry_out(late.record, late.payload, Some(read))
                .map_err(|source| JournalError::Replay { seq, source })?;
        }
        Ok(())
    }

    fn carry_out(
        &mut self,
        record: Record,
        payload: Option<PayloadRef>,
        read: Option<&ReadPayload<'_>>,
    ) -> Result<(), ReplayError> {
        self.drop_unfinished(&record);
        match record {
            Record::Mutation(m) => {
                m.check(payload)?;
                self.note_numbers(&m);
                self.inner.live.apply(&m, payload)?;
                Ok(())
            }
            Record::Event(e) => self.event(e, payload, read),
        }
    }

    /// Parts that were recorded one after the other are nothing where the last one is missing: appending
    /// it had failed.
    fn drop_unfinished(&mut self, record: &Record) {
        let of_switch = matches!(
            record,
            Record::Event(
                Event::SwitchPart
                    | Event::Switch { .. }
                    | Event::Patched { .. }
                    | Event::Merged { .. }
                    | Event::CallUndone { .. }
            )
        );
        if !of_switch {
            self.parts.clear();
        }
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

    fn note_numbers(&mut self, m: &Mutation) {
        let c = &mut self.inner.book.counters;
        match m {
            Mutation::Create { nid, ino, .. } => {
                c.nid = c.nid.max(nid + 1);
                c.ino = c.ino.max(ino + 1);
            }
            Mutation::Link { group, .. } => c.ino = c.ino.max(group + 1),
            _ => {}
        }
    }

    /// Changes the live tree by the patch that ends with this payload.
    fn patch_live(
        &mut self,
        payload: Option<PayloadRef>,
        read: Option<&ReadPayload<'_>>,
        counters: Counters,
    ) -> Result<(), ReplayError> {
        self.parts.extend(payload);
        let patch = read_patch(&std::mem::take(&mut self.parts), read)?;
        let inner = &mut *self.inner;
        inner.book.anchors.patched(self.seq, &patch);
        patch.apply(&mut inner.live, &mut self.dirs)?;
        inner.book.counters = counters;
        Ok(())
    }

    fn event(
        &mut self,
        e: Event,
        payload: Option<PayloadRef>,
        read: Option<&ReadPayload<'_>>,
    ) -> Result<(), ReplayError> {
        let inner = &mut *self.inner;
        match e {
            Event::Freeze { info, head, label } => {
                inner.book.counters.state = inner.book.counters.state.max(info.number + 1);
                let tree = inner.live.clone();
                let number = info.number;
                inner.book.history.freeze(info, tree, head, label);
                inner.note_head(number);
            }
            Event::Withdraw { state } => {
                inner.book.history.withdraw(state);
            }
            Event::Same { state, kept } => {
                inner.book.history.merge(state, kept);
                inner.note_same(state, kept);
            }
            Event::Expired { states, undo, redo } => {
                inner.book.timeline.expired(&states);
                inner.book.history.expire(&Expiry { states, undo, redo });
            }
            Event::Label { label, state } => inner.book.history.label_unchanged(label, state),
            Event::Inherited { label, state } => {
                inner.book.history.inherit_label(label, state);
            }
            Event::Applied { time } => inner.book.history.note_asked(Asked::Apply { time }),
            Event::Switch {
                kind,
                replaced,
                target,
                head,
                counters,
            } => {
                self.patch_live(payload, read, counters)?;
                self.inner.book.history.switch(kind, replaced, target, head);
                self.inner.note_switch(kind, replaced, target);
            }
            Event::Patched { counters } => self.patch_live(payload, read, counters)?,
            Event::Known { info } => {
                inner.book.counters.state = inner.book.counters.state.max(info.number + 1);
                inner.book.history.know(info);
            }
            Event::Merged {
                replaced,
                info,
                label,
                conflicts,
                counters,
            } => {
                self.patch_live(payload, read, counters)?;
                let (inner, number) = (&mut *self.inner, info.number);
                inner
                    .book
                    .history
                    .merged(replaced, info, None, label, conflicts);
                inner.note_switch(SwitchKind::Merge, replaced, number);
            }
            Event::Resolved { path } => inner.book.history.conflicts.retain(|c| c.path != path),
            Event::Fenced {
                state,
                nid,
                offset,
                now,
            } => {
                let payload = payload.ok_or("a page without data")?;
                let state = inner.book.history.states.get_mut(&state);
                let tree = state.and_then(|s| s.tree.as_mut());
                let tree = tree.ok_or("a page of an unknown state")?;
                tree.write(Nid(nid), offset, payload, None, now)?;
            }
            Event::SwitchPart => self.parts.extend(payload),
            Event::LoadDir {
                entries,
                more: true,
                ..
            } => self.entries.extend(entries),
            Event::LoadDir {
                dir,
                entries: last,
                unreadable,
                more: false,
            } => {
                let mut entries = std::mem::take(&mut self.entries);
                entries.extend(last);
                note_loaded(inner, &entries);
                load::load_dir(&mut inner.trees_mut(), Nid(dir), &entries, unreadable);
            }
            Event::TakeAnew {
                nid,
                old,
                content,
                size,
                alloc,
                mtime,
                ctime,
            } => {
                inner.book.anchors.refers(self.seq, content);
                let body = content.map_or(Body::Unreadable, Body::Stored);
                let new = NewVersion {
                    size,
                    alloc,
                    mtime,
                    ctime,
                };
                note_anew(inner, Nid(nid), &old, (content.is_none(), new));
                for tree in inner.trees_mut() {
                    tree.take_anew(Nid(nid), &old, body.clone(), new);
                }
            }
            Event::Named { state, id } => inner.named(state, id),
            Event::Timeline { time, what } => inner.book.timeline.push(time, what),
            Event::TimelineStored { stored, bytes } => {
                inner.book.timeline.flushed(stored, bytes as usize)?;
                inner.book.anchors.refers(self.seq, Some(stored));
            }
            Event::Headed {
                state,
                entries,
                hash,
            } => inner.set_head(state, entries, hash),
            Event::CallUndone {
                call,
                replaced,
                after,
                counters,
            } => {
                self.patch_live(payload, read, counters)?;
                self.inner.note_call_undone(call, replaced, after);
            }
        }
        Ok(())
    }
}

/// Notes the path of a base file that was taken anew, or that cannot be read and is as it was.
fn note_anew(inner: &mut Inner, nid: Nid, old: &Stamp, (without, new): (bool, NewVersion)) {
    let file = inner.live.get(nid).and_then(|i| i.file());
    let Some((Body::Base(base), _)) = file.map(|f| f.body()) else {
        return;
    };
    let path = base.path();
    if base.stamp() != old {
        return;
    }
    let same = (old.size, old.mtime, old.ctime) == (new.size, new.mtime, new.ctime);
    if without && same {
        inner.book.unreadable.insert(path);
    } else {
        inner.book.base_changed.insert(path);
    }
}

/// Numbers that a directory of the base gave out.
fn note_loaded(inner: &mut Inner, entries: &[Loaded]) {
    for l in entries {
        inner.book.counters.nid = inner.book.counters.nid.max(l.nid + 1);
        if l.ino >= FIRST_NEW_INO {
            inner.book.counters.ino = inner.book.counters.ino.max(l.ino + 1);
        }
        let stamp = &l.entry.stamp;
        if l.entry.nlink > 1 && Kind::of_mode(l.entry.mode) != Some(Kind::Dir) {
            let place = (stamp.dev, stamp.ino);
            inner.base_inodes.insert(place, Nid(l.nid));
        }
    }
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
