//! Whose each change is while calls run at the same time of which none is part of the other.
//!
//! Two calls are *apart* where the later one began knowing that it is no part of the earlier one ([`Running::apart`]).
//! While two such calls run, each mutation is put down to the running call from whose process the one that asked for it
//! descends, at the paths that it touches. Where that is not certain (nobody is known to have asked, it descends from
//! the process of no call, or of several that are apart) all calls that run apart from another one then are in doubt.
//! When a call ends, its timeline is told which paths the others changed meanwhile, or what the doubt is.
//!
//! Invariant: what is put down to a call was asked for by a process that descends from the call's own. Invariant:
//! nothing is told of two calls unless everything from the beginning of the later one on was put down: this is kept in
//! memory alone, so what ran when a branch was opened is told apart from nothing that ran then.
//!
//! Tests: `engine/tests/timeline/beside.rs`, `engine/tests/timeline/beside_model.rs`, `tests/tests/cli_beside.rs`.

use super::{Inner, acting};
use crate::book::timeline::running::Running;
use crate::record::Mutation;
use crate::record::call::{OVERLAPS_MAX, Owner, Process, What};
use crate::tree::Tree;
use crate::types::Nid;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of paths that are kept, at most; what is told of a call is shorter than that.
const PATHS_BYTES_MAX: usize = 1 << 20;
/// Bytes that a path counts beside its own.
const PATH_EXTRA_BYTES: usize = 32;
/// Names of one file, at most.
const NAMES_MAX: usize = 64;

/// Calls that run.
type Calls = BTreeMap<u64, Running>;

/// Whose the changes are.
#[derive(Debug, Default)]
pub(crate) struct Whose {
    /// Calls that are apart run.
    active: bool,
    /// By call: those that ran at the same time, from whose beginning on, or its own, everything was put down.
    apart: BTreeMap<u64, BTreeSet<u64>>,
    /// By call: what had been put down when it began.
    since: BTreeMap<u64, u64>,
    /// Changes that were put down so far.
    count: u64,
    /// Calls that changed a path. With a slash at its end it stands for all below it too, with one at its beginning for
    /// a key.
    changed: BTreeMap<Vec<u8>, Vec<Change>>,
    bytes: usize,
    /// There was more than is kept.
    too_much: bool,
    /// By call: why it is not certain what it changed.
    doubts: BTreeMap<u64, String>,
}

/// That a call changed a path.
#[derive(Clone, Copy, Debug)]
struct Change {
    call: u64,
    /// Which change it was, the last time.
    last: u64,
}

/// Whether a path was changed by a call itself, and by others.
#[derive(Clone, Copy, Debug, Default)]
struct Sides {
    own: bool,
    theirs: bool,
}

impl Whose {
    /// Calls that are apart run: whose a change is has to be known.
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// A call has begun, `apart` from some that run.
    pub fn begun(&mut self, call: u64, apart: &[u64], running: &Calls) {
        for other in apart {
            for (a, b) in [(call, *other), (*other, call)] {
                self.since.entry(a).or_insert(self.count);
                let with = self.apart.entry(a).or_default();
                if with.len() < OVERLAPS_MAX {
                    with.insert(b);
                }
            }
        }
        self.look(running);
    }

    /// A call has ended, and does not run any more.
    pub fn ended(&mut self, running: &Calls) {
        self.look(running);
        if !running.keys().any(|call| self.apart.contains_key(call)) {
            *self = Whose::default();
        }
    }

    fn look(&mut self, running: &Calls) {
        self.active = running.keys().any(|call| self.runs_apart(*call, running));
    }

    fn runs_apart(&self, call: u64, running: &Calls) -> bool {
        let with = self.apart.get(&call).into_iter().flatten();
        with.into_iter().any(|other| running.contains_key(other))
    }

    /// What is told of a call that ends now and has run at the same time as these; nothing where it is not known.
    pub fn told(&self, call: u64, overlaps: &[u64]) -> Option<What> {
        let with = self.apart.get(&call)?;
        let all = !overlaps.is_empty() && overlaps.len() < OVERLAPS_MAX;
        if !all || !overlaps.iter().all(|other| with.contains(other)) {
            return None;
        }
        let too_much = "more was changed meanwhile than is told apart";
        let found = match self.doubts.get(&call) {
            _ if self.too_much => Err(too_much.to_owned()),
            Some(why) => Err(why.clone()),
            None => self.of_others(with, self.since.get(&call).copied().unwrap_or(0)),
        };
        let (paths, doubt) = match found {
            Ok(paths) => (paths, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        Some(What::Others { call, paths, doubt })
    }

    /// Paths that only calls among `with` changed since then; an error names one that others changed too.
    fn of_others(&self, with: &BTreeSet<u64>, since: u64) -> Result<Vec<Vec<u8>>, String> {
        let sides = |path: &[u8]| {
            let changes = self.changed.get(path).into_iter().flatten();
            let mut sides = Sides::default();
            for change in changes.filter(|change| change.last > since) {
                match with.contains(&change.call) {
                    true => sides.theirs = true,
                    false => sides.own = true,
                }
            }
            sides
        };
        let mut paths = Vec::new();
        for path in self.changed.keys() {
            let at = sides(path);
            let mut any = at;
            let mut add = |above: &[u8]| {
                let above = sides(above);
                (any.own, any.theirs) = (any.own || above.own, any.theirs || above.theirs);
            };
            if !path.starts_with(b"/") {
                let ends = path.iter().enumerate().filter(|(_, b)| **b == b'/');
                ends.for_each(|(end, _)| add(&path[..=end]));
                add(&[path, &b"/"[..]].concat());
            }
            if (at.own || at.theirs) && any.own && any.theirs {
                return Err(format!("{} was changed by it and by another", shown(path)));
            }
            if at.theirs {
                paths.push(path.clone());
            }
        }
        Ok(paths)
    }

    /// Something was changed at a path, and it is not known by whom.
    pub fn doubt(&mut self, path: &[u8], running: &Calls) {
        let new = running
            .keys()
            .filter(|call| !self.doubts.contains_key(call));
        let new: Vec<u64> = new
            .filter(|call| self.runs_apart(**call, running))
            .copied()
            .collect();
        for call in new {
            let why = format!("it is not known which call changed {}", shown(path));
            self.doubts.insert(call, why);
        }
    }

    /// A call changed a path.
    fn put_down(&mut self, path: Vec<u8>, call: u64) {
        self.count += 1;
        let last = self.count;
        let changes = self.changed.get_mut(&path);
        let more = match changes {
            Some(changes) => match changes.iter_mut().find(|c| c.call == call) {
                Some(change) => {
                    change.last = last;
                    return;
                }
                None => size_of::<Change>(),
            },
            None => path.len() + PATH_EXTRA_BYTES,
        };
        if self.bytes + more > PATHS_BYTES_MAX {
            self.too_much = true;
            return;
        }
        self.bytes += more;
        self.changed
            .entry(path)
            .or_default()
            .push(Change { call, last });
    }
}

/// The innermost running call from whose process `lineage` descends. None where there is none, or where several are
/// apart.
pub(super) fn call_of(running: &Calls, lineage: &[Process]) -> Option<u64> {
    let mut found: Vec<u64> = Vec::new();
    for (call, of) in running {
        let Owner::Process(process) = &of.owner else {
            continue;
        };
        if lineage.contains(process) {
            if found.iter().any(|outer| of.apart.contains(outer)) {
                return None;
            }
            found.push(*call);
        }
    }
    found.last().copied()
}

impl Inner {
    /// Puts a mutation down to whose it is; before it is carried out, while [`Whose::is_active`].
    pub(super) fn put_down(&mut self, m: &Mutation) {
        let running = &self.book.timeline.running;
        let lineage = acting::lineage();
        let call = lineage.and_then(|lineage| call_of(running, &lineage));
        let whose = &mut self.whose;
        places(&self.live, m, &mut |path| match (path, call) {
            (Some(path), Some(call)) => whose.put_down(path, call),
            (path, _) => whose.doubt(&path.unwrap_or_default(), running),
        });
    }

    /// Something of which nobody here asked for changed a file.
    pub(super) fn doubt_whose(&mut self, nid: Nid) {
        if self.whose.is_active() {
            let path = self.live.path(nid).unwrap_or_default();
            self.whose.doubt(&path, &self.book.timeline.running);
        }
    }
}

/// Calls `each` for all paths that a mutation touches; without one where they are not known.
fn places(tree: &Tree, m: &Mutation, each: &mut dyn FnMut(Option<Vec<u8>>)) {
    match m {
        Mutation::Create { parent, name, .. } => each(below(tree, Nid(*parent), name)),
        Mutation::Link {
            nid, parent, name, ..
        } => {
            each(below(tree, Nid(*parent), name));
            names_of(tree, Nid(*nid), each);
        }
        Mutation::Unlink { parent, name, .. } => named(tree, Nid(*parent), name, each),
        Mutation::Rename {
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
        } => {
            let (from, to) = ((Nid(*parent), &name[..]), (Nid(*new_parent), &new_name[..]));
            let is_dir = |(dir, name): (Nid, &[u8])| {
                let entry = tree.lookup(dir, name).ok();
                entry.is_some_and(|e| tree.get(e.nid).is_some_and(|i| i.dir().is_some()))
            };
            let whole = is_dir(from) || is_dir(to);
            for (dir, name) in [from, to] {
                named(tree, dir, name, each);
                if whole {
                    let path = below(tree, dir, name);
                    each(path.map(|path| [&path[..], b"/"].concat()));
                }
            }
        }
        Mutation::SetAttr { nid, .. }
        | Mutation::Write { nid, .. }
        | Mutation::Allocate { nid, .. }
        | Mutation::Copy { dst: nid, .. } => names_of(tree, Nid(*nid), each),
        Mutation::Kv { key, .. } => each(Some(key_path(key))),
        // No commit has it.
        Mutation::Nameless { .. } => {}
    }
}

/// A key as a path.
pub(crate) fn key_path(key: &str) -> Vec<u8> {
    [b"/", key.as_bytes()].concat()
}

/// A path or a key as messages name it.
fn shown(path: &[u8]) -> String {
    match path {
        b"" => "the root directory".to_owned(),
        [b'/', key @ ..] => format!("key {}", agentvfs_quote::shown(key)),
        path => agentvfs_quote::shown(path.strip_suffix(b"/").unwrap_or(path)),
    }
}

/// The path of a name in a directory.
fn below(tree: &Tree, dir: Nid, name: &[u8]) -> Option<Vec<u8>> {
    let mut path = tree.path(dir)?;
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    Some(path)
}

/// A name, and all other names of what it stands for.
fn named(tree: &Tree, dir: Nid, name: &[u8], each: &mut dyn FnMut(Option<Vec<u8>>)) {
    each(below(tree, dir, name));
    let entry = tree.lookup(dir, name).ok();
    if let Some(inode) = entry.and_then(|e| Some((e.nid, tree.get(e.nid)?)))
        && inode.1.links.is_some()
    {
        names_of(tree, inode.0, each);
    }
}

/// All names of an inode.
fn names_of(tree: &Tree, nid: Nid, each: &mut dyn FnMut(Option<Vec<u8>>)) {
    let Some(inode) = tree.get(nid) else {
        return each(None);
    };
    if inode.nlink == 0 {
        // Open and removed: no commit has it.
        return;
    }
    if nid == Nid::ROOT {
        return each(Some(Vec::new()));
    }
    if inode.nlink as usize > NAMES_MAX {
        return each(None);
    }
    for name in inode.names() {
        each(tree.path_of_name(nid, name));
    }
}
