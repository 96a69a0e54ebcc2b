//! `import`: a database becomes a commit, of which a workspace or a branch is made.

use crate::build::Builder;
use crate::check::Shape;
use crate::content::Storing;
use crate::error::{Error, Result};
use crate::facts::{Facts, Origin};
use crate::inodes::Inodes;
use crate::keys;
use crate::outward::or_cancelled;
use crate::overlay::{Overlay, base_of};
use crate::plan::{Groups, Reader};
use crate::skipped::{Skipped, Skipping};
use crate::source::{Source, sweep_copies};
use crate::sums::{self, Compared};
use crate::taken::{Calls, Wanted};
use engine::{Calls as ToTakeOver, Cancel, Engine, IMPORTED, Progress, TakenOver, Time};
use objstore::{Commit, CommitId, CommitKind, TreeId};
use rusqlite::Connection;
use std::collections::HashMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// What to import.
#[derive(Clone, Debug)]
pub struct ImportRequest<'a> {
    /// The database.
    pub file: &'a Path,
    /// Directory that an overlay database differs from.
    pub base: Option<&'a Path>,
    /// Take what is missing of files as holes.
    pub sparse: bool,
    /// Leave out keys and calls that cannot be taken over.
    pub skip_invalid: bool,
    /// What the commit is for.
    pub kind: CommitKind,
}

/// What was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The commit.
    pub commit: CommitId,
    /// Its root directory; `None` where that is empty.
    pub root: Option<TreeId>,
    /// Names, of files, directories and all else.
    pub names: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Whether it is what was exported.
    pub compared: Compared,
    /// Keys that were left out.
    pub skipped_keys: Skipped,
    /// Calls that were left out.
    pub skipped_calls: Skipped,
}

/// Reads a database, stores it as a commit, and has `make` make something that keeps it. The commit's
/// parent is the one that was exported, where `is_known` says so. On error nothing is left but objects
/// that gc takes. It can be cancelled until all calls were taken over.
pub fn import<T>(
    engine: &Engine,
    request: &ImportRequest<'_>,
    is_known: &dyn Fn(CommitId) -> bool,
    (progress, cancel): (Progress<'_>, &Cancel),
    make: impl FnOnce(CommitId, ToTakeOver<'_>) -> Result<T>,
) -> Result<(Imported, T)> {
    let done = take_in(engine, request, is_known, (progress, cancel), make);
    done.map_err(|error| or_cancelled(error, cancel))
}

fn take_in<T>(
    engine: &Engine,
    request: &ImportRequest<'_>,
    is_known: &dyn Fn(CommitId) -> bool,
    (progress, cancel): (Progress<'_>, &Cancel),
    make: impl FnOnce(CommitId, ToTakeOver<'_>) -> Result<T>,
) -> Result<(Imported, T)> {
    sweep_copies(engine.root());
    let source = Source::open(request.file, engine.root(), cancel)?;
    // Until something is made of it gc must leave what is stored alone.
    let store = engine.objects().clone();
    let _pin = store.pin();
    let db = source.connect()?;
    let shape = Shape::of(&source, &db)?;
    let from = (&source, &db, &shape);
    let (mut imported, commit, last_call) =
        read(engine, from, request, is_known, (progress, cancel))?;
    source.check_unchanged()?;
    imported.commit = store.put_object(&commit)?;
    let wanted = match request.kind {
        // A workspace of its own has all of them as they were.
        CommitKind::Start => Wanted {
            after: i64::MIN,
            ids: true,
        },
        // The branch has those of its workspace already.
        _ if !commit.parents.is_empty() => Wanted {
            after: last_call,
            ids: false,
        },
        _ => Wanted {
            after: i64::MIN,
            ids: false,
        },
    };
    let skipping = Skipping::new(&source, request.skip_invalid);
    let mut calls = Calls::of((&source, &db, &shape), wanted, skipping);
    let mut failed = None;
    let made = make(imported.commit, &mut || {
        next_calls(&mut calls, cancel).map_err(|error| {
            failed = Some(error);
            engine::Error::Closing
        })
    });
    match failed {
        Some(error) => Err(error),
        None => {
            imported.skipped_calls = calls.into_skipped();
            Ok((imported, made?))
        }
    }
}

/// Timelines and calls to take over, some at a time. Once there are none what is made of the database will be whole: that
/// is the point of no return.
fn next_calls(calls: &mut Calls<'_>, cancel: &Cancel) -> Result<TakenOver> {
    cancel.check()?;
    let some = calls.next()?;
    if some.is_empty() {
        cancel.decide()?;
    }
    Ok(some)
}

/// Stores a database's tree; gives the commit that is to be made of it, and the last tool call that an
/// export had.
fn read(
    engine: &Engine,
    (source, db, shape): (&Source, &Connection, &Shape),
    request: &ImportRequest<'_>,
    is_known: &dyn Fn(CommitId) -> bool,
    (progress, cancel): (Progress<'_>, &Cancel),
) -> Result<(Imported, Commit, i64)> {
    let overlay = open_overlay(source, db, shape, request.base)?;
    let facts = Facts::of(source, db, shape)?;
    let inodes = Inodes::read(source, db, shape, request.sparse)?;
    let reader = Reader {
        source,
        db,
        shape,
        inodes: &inodes,
        facts: &facts,
        overlay: overlay.as_ref(),
        sparse: request.sparse,
    };
    let plan = reader.plan()?;
    engine.check_room(plan.bytes)?;
    let store = engine.objects();
    let storing = Storing::new((source, store, shape), &inodes, &plan, cancel);
    let contents = storing.store(progress)?;
    let builder = Builder {
        reader: &reader,
        store,
        cancel,
        plan: &plan,
        contents: &contents,
        groups: Groups::beside(facts.all_groups()?),
        base_groups: HashMap::new(),
    };
    let (root_meta, root) = builder.build()?;
    let now = now();
    let mut skipping = Skipping::new(source, request.skip_invalid);
    let kv = keys::read((source, db, shape), store, now, &mut skipping)?;
    let origin = facts.origin.clone();
    let commit = Commit {
        root_meta,
        root,
        parents: origin
            .commit
            .into_iter()
            .filter(|id| is_known(*id))
            .collect(),
        time_sec: now.sec,
        time_nsec: now.nsec,
        author: engine.author().to_owned(),
        message: format!("{IMPORTED}{}", request.file.display()),
        meta: describe(origin),
        kind: request.kind,
        kv,
        timeline: None,
    };
    let imported = Imported {
        commit: CommitId::from_bytes([0; 32]),
        root,
        names: plan.names,
        bytes: plan.bytes,
        compared: sums::compare(source, db, (shape, &facts), root)?,
        skipped_keys: skipping.skipped,
        skipped_calls: Skipped::default(),
    };
    Ok((imported, commit, facts.origin.last_call))
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default();
    Time {
        sec: since.as_secs() as i64,
        nsec: since.subsec_nanos(),
    }
}

fn open_overlay(
    source: &Source,
    db: &Connection,
    shape: &Shape,
    base: Option<&Path>,
) -> Result<Option<Overlay>> {
    let path = source.path().to_owned();
    match (base_of(source, db, shape)?, base) {
        (None, None) => Ok(None),
        (Some(base), None) => Err(Error::NeedsBase { path, base }),
        (None, Some(_)) => Err(Error::NoOverlay(path)),
        (Some(_), Some(base)) => Overlay::open(source, db, shape, base).map(Some),
    }
}

/// Facts about where a tree comes from, by key.
fn describe(origin: Origin) -> Vec<(String, String)> {
    let facts = [
        ("imported.commit", origin.commit.map(|id| id.to_string())),
        ("imported.workspace", origin.workspace),
    ];
    let known = facts.into_iter();
    known
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
}
