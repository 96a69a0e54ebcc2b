//! Telling the feed of the workspace what happens to a branch.
//!
//! Mutations come from [`Branch::change`](super::Branch::change) and events from
//! [`Branch::carry_out`](super::Branch::carry_out) alone, so this is asked there: for a draft before it is carried out,
//! while names that go are there, and for the rest afterwards. Invariant: one event for one change, told under the
//! branch's lock, so in the order of the journal.
//!
//! Tests: `engine/tests/branches/feed.rs`.

use super::acting;
use super::{Branch, Inner};
use crate::clock::now;
use crate::feed::{Detail, FeedOp, Sentence, Told};
use crate::judge::Ruling;
use crate::record::{Allocation, CallOutcome, Event, Mutation, OpKind, SwitchKind, What};
use crate::tree::Tree;
use crate::tree::dirmap::DirMap;
use crate::tree::inode::Inode;
use crate::types::{Kind, Nid, Time, Wait};
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

/// What is told of something before it is carried out.
#[derive(Debug)]
pub(super) struct Draft {
    pub op: FeedOp,
    pub nid: Option<Nid>,
    /// Shown number of the inode, where it was there before.
    pub ino: Option<u64>,
    pub path: Vec<u8>,
    pub path2: Vec<u8>,
    pub bytes: u64,
    pub call: Option<u64>,
    pub detail: Detail,
    pub sentence: Sentence,
}

impl Draft {
    #[inline]
    pub(super) fn new(op: FeedOp) -> Draft {
        Draft {
            op,
            nid: None,
            ino: None,
            path: Vec::new(),
            path2: Vec::new(),
            bytes: 0,
            call: None,
            detail: Detail::default(),
            sentence: Sentence::Allow,
        }
    }

    /// Something of which words say more.
    pub(super) fn with(op: FeedOp, words: impl Into<Cow<'static, str>>) -> Draft {
        Draft {
            detail: Detail {
                words: words.into(),
                ..Detail::default()
            },
            ..Draft::new(op)
        }
    }

    /// A rule watches what it tells of, if so.
    pub(super) fn watch_if(&mut self, is_watched: bool) {
        if is_watched {
            self.sentence = Sentence::Watch;
        }
    }
}

impl Branch {
    /// What is told of a mutation that will be carried out.
    pub(super) fn about_to(&self, inner: &Inner, m: &Mutation) -> Draft {
        let mut draft = inner.draft_of(m);
        draft.ino = draft.nid.and_then(|nid| self.ino_of(inner, nid));
        draft
    }

    fn ino_of(&self, inner: &Inner, nid: Nid) -> Option<u64> {
        Some(inner.live.get(nid)?.shown_ino(self.slot))
    }

    /// Tells of a mutation that was carried out.
    pub(super) fn tell_change(
        &self,
        inner: &Inner,
        mut draft: Draft,
        m: &Mutation,
        payload: usize,
    ) {
        if let Mutation::Write { .. } = m {
            draft.bytes = payload as u64;
        }
        let file = draft.nid.and_then(|nid| inner.live.get(nid));
        if let Some(file) = file.filter(|file| file.kind() == Kind::File)
            && matches!(draft.op, FeedOp::Write | FeedOp::Truncate | FeedOp::Link)
        {
            draft.detail.size = Some(file.size);
        }
        self.tell(inner, &draft);
    }

    /// Tells what a rule says of a mutation that is denied, or will be carried out.
    pub(super) fn tell_verdict(&self, inner: &Inner, m: &Mutation, ruling: &Ruling) {
        self.tell_ruling(inner, self.about_to(inner, m), ruling);
    }

    /// The same of what is drafted.
    pub(super) fn tell_ruling(&self, inner: &Inner, mut draft: Draft, ruling: &Ruling) {
        let rule = ruling.rule.as_ref().map_or("", |(_, name)| name);
        let mut words = format!("rule={rule} op={}", draft.op.word());
        if let Sentence::Deny(code) = ruling.sentence {
            words.push_str(&format!(" errno={code}"));
        }
        if let Some(more) = &ruling.words {
            words.push(' ');
            words.push_str(more);
        }
        draft.op = FeedOp::Verdict;
        draft.detail.words = words.into();
        draft.bytes = 0;
        draft.sentence = ruling.sentence;
        // What was not made has no number.
        draft.nid = draft.nid.filter(|nid| inner.live.get(*nid).is_some());
        self.tell(inner, &draft);
    }

    /// Tells of something that was carried out.
    pub(super) fn tell(&self, inner: &Inner, draft: &Draft) {
        let (who, since) = acting::who();
        let took = since.map(|since| (Instant::now(), since));
        if let Some((now, _)) = took {
            acting::waited_until(now);
        }
        let ino = draft.ino.or_else(|| self.ino_of(inner, draft.nid?));
        self.feed.tell(&Told {
            seq: 0,
            time_ns: nanoseconds(now()),
            op: draft.op,
            branch: &self.name.read(),
            branch_number: self.slot,
            teller: self.teller,
            ino: ino.unwrap_or_default(),
            path: &draft.path,
            path2: &draft.path2,
            who: &who,
            bytes: draft.bytes,
            count: 0,
            latency_ns: took.map_or(0, |(now, since)| latency(now, since)),
            call: draft.call.or_else(|| inner.call_now()),
            detail: draft.detail.told(),
            sentence: draft.sentence,
            policy_version: self.judges.version(),
        });
    }
}

impl Branch {
    /// Tells of what a program does with a file and that changes nothing. What is gone is not told of.
    pub fn tell_use(
        &self,
        op: FeedOp,
        nid: Nid,
        is_watched: bool,
        detail: &dyn Fn() -> Cow<'static, str>,
    ) {
        if !self.feed.is_on() || self.read_only {
            return;
        }
        // Nothing here waits or fails.
        let _ = self.request(Wait::Never, |inner| {
            if inner.live.get(nid).is_some() {
                let mut draft = Draft {
                    nid: Some(nid),
                    path: inner.path_of(nid.0),
                    ..Draft::with(op, detail())
                };
                draft.watch_if(is_watched);
                self.tell(inner, &draft);
            }
            Ok(())
        });
    }

    /// Tells of what a program in it does with something that is not in it, and that has this path.
    pub fn tell_deed(&self, op: FeedOp, path: &[u8], detail: &dyn Fn() -> Cow<'static, str>) {
        if !self.feed.is_on() {
            return;
        }
        // Nothing here waits or fails.
        let _ = self.request(Wait::Never, |inner| {
            let draft = Draft {
                path: path.to_vec(),
                ..Draft::with(op, detail())
            };
            self.tell(inner, &draft);
            Ok(())
        });
    }

    /// Tells of something that is no change of its tree: what `detail` says was done with it.
    pub fn tell_of(&self, op: FeedOp, detail: &dyn Fn() -> String) {
        if self.feed.is_on() {
            self.tell(&self.lock(), &Draft::with(op, detail()));
        }
    }
}

thread_local! {
    /// Whether what this thread merges is the base.
    static UPDATES: Cell<bool> = const { Cell::new(false) };
}

/// Merges the base: that is told of as an update.
pub(crate) fn as_update<R>(work: impl FnOnce() -> R) -> R {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            UPDATES.set(self.0);
        }
    }
    let _back = Back(UPDATES.replace(true));
    work()
}

fn merge() -> FeedOp {
    if UPDATES.get() {
        FeedOp::Update
    } else {
        FeedOp::Merge
    }
}

impl Branch {
    /// Tells what rules say of something that is no change of its tree.
    pub fn tell_said(&self, said: Sentence, detail: &str) {
        if self.feed.is_on() {
            let draft = Draft {
                sentence: said,
                ..Draft::with(FeedOp::Verdict, detail.to_owned())
            };
            self.tell(&self.lock(), &draft);
        }
    }
}

fn latency(now: Instant, since: Instant) -> u64 {
    let latency = now.saturating_duration_since(since);
    u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX)
}

fn nanoseconds(time: Time) -> u64 {
    let seconds = u64::try_from(time.sec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000) + u64::from(time.nsec)
}

impl Inner {
    /// The call that what is done now is part of, where only one can be meant.
    fn call_now(&self) -> Option<u64> {
        let running = &self.book.timeline.running;
        match running.len() {
            0 => None,
            1 => running.keys().next().copied(),
            _ => super::whose::call_of(running, &acting::lineage()?),
        }
    }

    fn path_of(&self, nid: u64) -> Vec<u8> {
        self.live.path(Nid(nid)).unwrap_or_default()
    }

    fn path_in(&self, parent: u64, name: &[u8]) -> Vec<u8> {
        let path = self.live.path_below(Nid(parent), name);
        path.unwrap_or_else(|| name.to_vec())
    }

    fn draft_of(&self, m: &Mutation) -> Draft {
        match m {
            Mutation::Create { .. } => self.about_to_create(m),
            Mutation::Nameless { nid, .. } => Draft {
                nid: Some(Nid(*nid)),
                ..Draft::with(FeedOp::Create, "nameless file")
            },
            Mutation::Link {
                nid, parent, name, ..
            } => Draft {
                nid: Some(Nid(*nid)),
                path: self.path_in(*parent, name),
                path2: self.path_of(*nid),
                ..Draft::new(FeedOp::Link)
            },
            Mutation::Unlink { parent, name, .. } => {
                let entry = self.live.lookup(Nid(*parent), name).ok();
                let is_dir = entry.is_some_and(|entry| entry.kind == Kind::Dir);
                let op = if is_dir {
                    FeedOp::Rmdir
                } else {
                    FeedOp::Unlink
                };
                Draft {
                    nid: entry.map(|entry| entry.nid),
                    path: self.path_in(*parent, name),
                    ..Draft::new(op)
                }
            }
            Mutation::Rename { exchange, .. } => {
                self.about_to_rename(m, if *exchange { "exchange" } else { "" })
            }
            Mutation::Whiteout { .. } => self.about_to_rename(m, "whiteout"),
            Mutation::SetAttr { nid, .. } => Draft {
                nid: Some(Nid(*nid)),
                path: self.path_of(*nid),
                ..attributes(m)
            },
            Mutation::Write { nid, offset, .. } => self.about_to_write(*nid, "", *offset),
            Mutation::Allocate {
                nid,
                offset,
                len,
                how,
                ..
            } => Draft {
                bytes: *len,
                ..self.about_to_write(*nid, allocation(*how), *offset)
            },
            Mutation::Copy {
                src,
                dst,
                dst_offset,
                len,
                ..
            } => Draft {
                path2: self.path_of(*src),
                bytes: *len,
                ..self.about_to_write(*dst, "copy", *dst_offset)
            },
            Mutation::Kv { key, entry } => {
                let how = if entry.is_some() { "set" } else { "delete" };
                Draft::with(FeedOp::Kv, format!("{how} {key}"))
            }
        }
    }

    fn about_to_write(&self, nid: u64, words: &'static str, offset: u64) -> Draft {
        Draft {
            nid: Some(Nid(nid)),
            path: self.path_of(nid),
            detail: Detail {
                words: words.into(),
                offset: Some(offset),
                size: None,
            },
            ..Draft::new(FeedOp::Write)
        }
    }

    fn about_to_create(&self, m: &Mutation) -> Draft {
        let Mutation::Create {
            parent,
            name,
            nid,
            mode,
            target,
            ..
        } = m
        else {
            return Draft::new(FeedOp::Create);
        };
        let (op, words) = match Kind::of_mode(*mode) {
            Some(Kind::Symlink) => (FeedOp::Symlink, ""),
            Some(Kind::Dir) => (FeedOp::Create, "directory"),
            Some(Kind::File) => (FeedOp::Create, "file"),
            _ => (FeedOp::Create, "special file"),
        };
        Draft {
            nid: Some(Nid(*nid)),
            path: self.path_in(*parent, name),
            path2: target.clone(),
            ..Draft::with(op, words)
        }
    }

    fn about_to_rename(&self, m: &Mutation, words: &'static str) -> Draft {
        let (Mutation::Rename {
            parent,
            name,
            new_parent,
            new_name,
            ..
        }
        | Mutation::Whiteout {
            parent,
            name,
            new_parent,
            new_name,
            ..
        }) = m
        else {
            return Draft::new(FeedOp::Rename);
        };
        let entry = self.live.lookup(Nid(*parent), name);
        Draft {
            nid: entry.ok().map(|entry| entry.nid),
            path: self.path_in(*parent, name),
            path2: self.path_in(*new_parent, new_name),
            ..Draft::with(FeedOp::Rename, words)
        }
    }

    /// What is told of an event that will be carried out; `live` is the tree that is shown then, if it changes.
    pub(super) fn about_to_happen(&self, event: &Event, live: Option<&Tree>) -> Vec<Draft> {
        let names = || names_between(&self.live, live);
        let named = |op, detail: String| vec![Draft::with(op, detail)];
        match event {
            Event::Freeze { info, head, label } => match (head, info.kind) {
                (true, _) => named(FeedOp::Checkpoint, label_words(label.as_deref())),
                (false, OpKind::Auto | OpKind::Stop) => {
                    named(FeedOp::Checkpoint, "automatic".into())
                }
                _ => Vec::new(),
            },
            Event::Kept { .. } => named(FeedOp::Checkpoint, "automatic".into()),
            Event::Label { label, .. } => named(FeedOp::Checkpoint, label_words(Some(label))),
            Event::Switch { kind, .. } => named(switch(*kind), names()),
            Event::CallUndone { call, .. } => {
                vec![Draft {
                    call: Some(*call),
                    ..Draft::with(FeedOp::Undo, names())
                }]
            }
            Event::Merged { conflicts, .. } => {
                let mut all = named(merge(), names());
                all.extend(conflicts.iter().map(|c| conflict(&c.path, "")));
                all
            }
            Event::Resolved { path } => vec![conflict(path, "resolved")],
            Event::Timeline { what, .. } => tool(what).into_iter().collect(),
            Event::Applied { .. } => vec![Draft::new(FeedOp::Apply)],
            // Another program changed the file in the project's directory.
            Event::TakeAnew { nid, size, .. } => vec![Draft {
                nid: Some(Nid(*nid)),
                path: self.path_of(*nid),
                ..Draft::with(FeedOp::Truncate, format!("base size={size}"))
            }],
            _ => Vec::new(),
        }
    }
}

fn conflict(path: &[u8], words: &'static str) -> Draft {
    Draft {
        path: path.to_vec(),
        ..Draft::with(FeedOp::Conflict, words)
    }
}

fn label_words(label: Option<&str>) -> String {
    label.map_or_else(String::new, |label| format!("label={label}"))
}

fn switch(kind: SwitchKind) -> FeedOp {
    match kind {
        SwitchKind::Rollback => FeedOp::Rollback,
        SwitchKind::Undo => FeedOp::Undo,
        SwitchKind::Redo => FeedOp::Redo,
        SwitchKind::Merge => merge(),
        SwitchKind::Restore => FeedOp::Restore,
    }
}

fn allocation(how: Allocation) -> &'static str {
    match how {
        Allocation::Fill => "allocate",
        Allocation::Punch => "punch",
        Allocation::Zero => "zero",
    }
}

/// What is told of changed attributes.
fn attributes(m: &Mutation) -> Draft {
    let Mutation::SetAttr {
        perm,
        uid,
        gid,
        size,
        atime,
        mtime,
        xattrs,
        ..
    } = m
    else {
        return Draft::new(FeedOp::SetAttr);
    };
    if size.is_some() {
        return Draft::new(FeedOp::Truncate);
    }
    if let Some((name, _)) = xattrs.first().filter(|_| perm.is_none()) {
        let name = String::from_utf8_lossy(name);
        return Draft::with(FeedOp::SetXattr, format!("name={name}"));
    }
    let mut words = Vec::new();
    words.extend(perm.map(|perm| format!("mode={perm:o}")));
    words.extend(uid.map(|uid| format!("uid={uid}")));
    words.extend(gid.map(|gid| format!("gid={gid}")));
    if atime.is_some() || mtime.is_some() {
        words.push("times".to_owned());
    }
    Draft::with(FeedOp::SetAttr, words.join(" "))
}

/// What is told of an entry of the timeline: calls alone.
fn tool(what: &What) -> Option<Draft> {
    let (call, words) = match what {
        What::Started { call, name, .. } | What::Begun { call, name, .. } => {
            (*call, format!("begin name={name}"))
        }
        What::Recorded { call, name, .. } => (*call, format!("record name={name}")),
        What::Ended { call, outcome, .. } | What::Over { call, outcome, .. } => {
            let status = match outcome {
                CallOutcome::Success(_) => "success",
                CallOutcome::Error(_) => "error",
            };
            (*call, format!("end status={status}"))
        }
        _ => return None,
    };
    Some(Draft {
        call: Some(call),
        ..Draft::with(FeedOp::Tool, words)
    })
}

/// How many names differ between two trees, as words: those that only one has, those that are of another inode, and
/// inodes that stay and are not the same, but directories.
fn names_between(live: &Tree, next: Option<&Tree>) -> String {
    let mut count = 0u64;
    let none = DirMap::default();
    let map = |inode: Option<&Arc<Inode>>| match inode.and_then(|inode| inode.dir()) {
        Some(dir) => dir.map.clone(),
        None => none.clone(),
    };
    if let Some(next) = next {
        Tree::diff(live, next, &mut |_, was, is| {
            // An open one that has lost its names stays, too; the names count already.
            let counts = |inode: &Arc<Inode>| inode.dir().is_none() && inode.nlink > 0;
            let stays = was.zip(is).filter(|(was, is)| counts(was) && counts(is));
            count += u64::from(stays.is_some());
            DirMap::diff(&map(was), &map(is), &mut |_, _, _| count += 1);
        });
    }
    format!("names={count}")
}
