//! Events of a branch: recorded and carried out, or carried out again after a crash.
//!
//! A live event is appended to the journal and carried out under one lock, as mutations are
//! ([`Branch::change`]); one that cannot be appended changes nothing. [`Inner::carry_out`] changes the trees
//! and then the [`Book`](crate::book::Book).

use super::{Branch, Inner};
use crate::base::Stamp;
use crate::book::Beside;
use crate::error::{Error, Result};
use crate::journal::{PayloadRef, ReplayError};
use crate::record::{Event, Loaded, Record, StateInfo, TreePatch};
use crate::tree::file::Body;
use crate::tree::{NewVersion, Tree, load};
use crate::types::{Kind, Nid, Time};
use objstore::content::FileContent;

/// Bytes of a patch in one journal record.
const PATCH_PART_BYTES: usize = 32 << 20;

/// What there is of an event's record beside the event.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// Sequence number.
    pub seq: u64,
    /// Where its payload lies.
    pub payload: Option<PayloadRef>,
    /// The live tree with the record's patch, where that is shown from now on.
    pub live: Option<Tree>,
    /// The same, where it is only kept ([`Event::Kept`]).
    pub kept: Option<Tree>,
}

/// Nothing can be switched while the journal takes no records.
pub(crate) fn check_journal(branch: &Branch) -> Result<()> {
    match branch.places.journal.poisoned() {
        None => Ok(()),
        Some(why) => Err(Error::Damaged {
            what: "the journal".into(),
            why,
        }),
    }
}

impl Branch {
    /// Journals an event and carries it out.
    pub fn carry_out(&self, inner: &mut Inner, event: Event, payload: &[u8]) -> Result<()> {
        self.append_and_carry_out(inner, event, payload, (None, None))
    }

    /// Journals an event with a patch, in parts where that is long, and carries it out: the live tree is `live`
    /// then.
    pub fn switch_live(
        &self,
        inner: &mut Inner,
        event: Event,
        patch: &[u8],
        live: Tree,
    ) -> Result<()> {
        let last = self.record_parts(patch)?;
        self.append_and_carry_out(inner, event, last, (Some(live), None))
    }

    /// Journals that a tree from before is a state, and makes it one. Everything that it refers to in the store is on
    /// stable storage.
    pub fn keep_tree(&self, inner: &mut Inner, info: StateInfo, tree: Tree) -> Result<()> {
        let patch = TreePatch::between(&inner.live, &tree).to_bytes();
        let last = self.record_parts(&patch)?;
        self.append_and_carry_out(inner, Event::Kept { info }, last, (None, Some(tree)))
    }

    /// Journals an event with a patch that is carried out already.
    pub fn record_patch(&self, event: Event, patch: &[u8]) -> Result<()> {
        let last = self.record_parts(patch)?;
        self.record(event, last).map(|_| ())
    }

    /// Journals all of a patch but its last part, which it gives.
    fn record_parts<'p>(&self, patch: &'p [u8]) -> Result<&'p [u8]> {
        let mut rest = patch;
        while rest.len() > PATCH_PART_BYTES {
            let (part, after) = rest.split_at(PATCH_PART_BYTES);
            self.record(Event::SwitchPart, part)?;
            rest = after;
        }
        Ok(rest)
    }

    fn append_and_carry_out(
        &self,
        inner: &mut Inner,
        event: Event,
        payload: &[u8],
        (live, kept): (Option<Tree>, Option<Tree>),
    ) -> Result<()> {
        let record = Record::Event(event);
        let appended = self.append(&record, payload, true)?;
        let Record::Event(event) = record else {
            return Ok(());
        };
        let recorded = Recorded {
            seq: appended.seq,
            payload: appended.payload,
            live,
            kept,
        };
        let told = match self.feed.is_on() {
            true => inner.about_to_happen(&event, recorded.live.as_ref()),
            false => Vec::new(),
        };
        inner.carry_out(event, recorded).map_err(|why| {
            tracing::error!("{}: an event did not fit the branch: {why}", self.name());
            Error::Damaged {
                what: "the branch".into(),
                why: why.to_string(),
            }
        })?;
        told.iter().for_each(|draft| self.tell(inner, draft));
        Ok(())
    }
}

impl Inner {
    /// Carries out an event that was recorded.
    ///
    /// # Errors
    ///
    /// It speaks of something that there is not, so the record is damaged.
    pub fn carry_out(&mut self, event: Event, recorded: Recorded) -> Result<(), ReplayError> {
        if let Some(live) = recorded.live {
            self.live = live;
            self.judging.forget_decisions();
        }
        match &event {
            Event::Fenced {
                state,
                nid,
                offset,
                now,
            } => {
                let payload = recorded.payload.ok_or("a page without data")?;
                self.write_replaced(*state, Nid(*nid), *offset, payload, *now)?;
            }
            Event::LoadDir {
                dir,
                entries,
                unreadable,
                more: false,
            } => {
                self.load_dir(Nid(*dir), entries, *unreadable);
            }
            Event::Brought {
                dir,
                id,
                entries,
                more: false,
            } => drop(self.bring_recorded((*dir, *id), entries)?),
            Event::TakeAnew {
                nid,
                old,
                content,
                size,
                alloc,
                mtime,
                ctime,
            } => {
                let new = NewVersion {
                    size: *size,
                    alloc: *alloc,
                    mtime: *mtime,
                    ctime: *ctime,
                };
                self.take_anew(Nid(*nid), old, *content, new);
            }
            // What these change besides the book comes with them, as `live`, or is nothing.
            Event::LoadDir { more: true, .. }
            | Event::Brought { more: true, .. }
            | Event::Freeze { .. }
            | Event::Kept { .. }
            | Event::Withdraw { .. }
            | Event::Same { .. }
            | Event::Expired { .. }
            | Event::Known { .. }
            | Event::Named { .. }
            | Event::Label { .. }
            | Event::Inherited { .. }
            | Event::Applied { .. }
            | Event::Resolved { .. }
            | Event::Switch { .. }
            | Event::SwitchPart
            | Event::Merged { .. }
            | Event::CallUndone { .. }
            | Event::Patched { .. }
            | Event::Timeline { .. }
            | Event::TimelineStored { .. }
            | Event::Headed { .. } => {}
        }
        let beside = Beside {
            seq: recorded.seq,
            live: recorded.kept.as_ref().unwrap_or(&self.live),
        };
        Ok(self.book.carry_out(event, beside)?)
    }

    /// Puts a page that the kernel still held into the state that keeps what was replaced.
    fn write_replaced(
        &mut self,
        state: u64,
        nid: Nid,
        offset: u64,
        payload: PayloadRef,
        now: Time,
    ) -> Result<(), ReplayError> {
        let tree = self.book.history.states.tree_mut(state);
        let tree = tree.ok_or("a page of an unknown state")?;
        Ok(tree.write(nid, offset, payload, None, now)?)
    }

    /// Fills a directory of the base in all trees; gives inodes that have a further name now.
    pub fn load_dir(&mut self, dir: Nid, entries: &[Loaded], unreadable: bool) -> Vec<Nid> {
        for l in entries {
            let is_dir = Kind::of_mode(l.entry.mode) == Some(Kind::Dir);
            if l.entry.nlink > 1 && !is_dir {
                let place = (l.entry.stamp.dev, l.entry.stamp.ino);
                self.base_inodes.insert(place, Nid(l.nid));
            }
        }
        load::load_dir(&mut self.trees_mut(), dir, entries, unreadable)
    }

    /// Shows a file of the base in another version in all trees that have it as it was; `None` for content
    /// that cannot be read.
    fn take_anew(&mut self, nid: Nid, old: &Stamp, content: Option<FileContent>, new: NewVersion) {
        self.note_anew(nid, old, content.is_none(), new);
        let body = content.map_or(Body::Unreadable, Body::Stored);
        for tree in self.trees_mut() {
            tree.take_anew(nid, old, body.clone(), new);
        }
    }

    /// Notes the path of a base file that is taken anew, or that cannot be read and is as it was.
    fn note_anew(&mut self, nid: Nid, old: &Stamp, is_unreadable: bool, new: NewVersion) {
        let file = self.live.get(nid).and_then(|i| i.file());
        let Some((Body::Base(base), _)) = file.map(|f| f.body()) else {
            return;
        };
        if base.stamp() != old {
            return;
        }
        let path = base.path();
        let is_same = (old.size, old.mtime, old.ctime) == (new.size, new.mtime, new.ctime);
        if is_unreadable && is_same {
            self.book.unreadable.insert(path);
        } else {
            self.book.base_changed.insert(path);
        }
    }
}
