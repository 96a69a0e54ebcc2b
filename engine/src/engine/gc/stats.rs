//! What takes the space: by workspace and branch, packs, journals, kinds of files.
//!
//! Everything that is needed is walked as gc does it, once for each workspace, with marks of its own, so
//! that what several share is told from what one alone needs. A gc may run beside it: what is walked is pinned
//! before it is asked for, so that run takes none of it, and the next one waits.

use super::roots::Roots;
use super::sizes::Sizes;
use crate::branch::Inner;
use crate::branch::inspect::inspect;
use crate::clock;
use crate::engine::Engine;
use crate::engine::gc;
use crate::engine::gc::timelines;
use crate::error::{Error, Result};
use crate::types::Kind;
use crate::verbs::timeline::kept::kept;
use crate::workspace::branch_refs::trees_dir;
use crate::workspace::keeper::lower_priority;
use crate::workspace::lazy::lazy_names;
use objstore::Kind as ObjectKind;
use objstore::elsewhere::only_here;
use objstore::gc::{Collection, Met, Walk};
use std::collections::HashMap;

/// Kinds of files that are told apart; the rest is one.
const KINDS_MAX: usize = 12;
/// Longest extension that names a kind.
const EXTENSION_MAX: usize = 12;

/// Figures of a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreFigures {
    /// Bytes that the whole home takes on the disk.
    pub used_bytes: u64,
    /// Bytes that are still free there.
    pub free_bytes: u64,
    /// Bytes that the home may take.
    pub quota: Option<u64>,
    /// Packs.
    pub packs: u64,
    /// Their bytes.
    pub pack_bytes: u64,
    /// Objects in them.
    pub objects: u64,
    /// Bytes of objects that are needed.
    pub needed_bytes: u64,
    /// Bytes that nothing needs.
    pub unneeded_bytes: u64,
    /// Bytes of all journals.
    pub journal_bytes: u64,
    /// Bytes of the state files of all branches, and of the tree files that they share.
    pub state_bytes: u64,
    /// Bytes of all files of all live trees and commits, as copies would take them.
    pub logical_bytes: u64,
    /// Bytes of the different chunks among them.
    pub chunk_bytes: u64,
    /// Bytes that these chunks take in packs.
    pub chunk_stored_bytes: u64,
    /// Bytes that what describes them takes: directories, commits, manifests.
    pub meta_stored_bytes: u64,
    /// Workspaces, by name.
    pub workspaces: Vec<WorkspaceFigures>,
    /// Kinds of files by extension, those that take most first.
    pub kinds: Vec<KindFigures>,
}

/// Figures of a workspace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkspaceFigures {
    /// Name.
    pub name: String,
    /// Bytes of objects in packs that it needs.
    pub needed_bytes: u64,
    /// Of these, bytes that no other workspace needs.
    pub own_bytes: u64,
    /// Its branches.
    pub branches: Vec<BranchFigures>,
}

/// Figures of a branch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BranchFigures {
    /// Name.
    pub name: String,
    /// Files of the live tree.
    pub files: u64,
    /// Their bytes, and those of the key-value state.
    pub bytes: u64,
    /// Keys of the key-value state.
    pub keys: u64,
    /// Commits that somebody asked for.
    pub commits: u64,
    /// Automatic commits.
    pub automatic: u64,
    /// Bytes of its journal.
    pub journal_bytes: u64,
    /// Bytes of its state files.
    pub state_bytes: u64,
}

/// Figures of a kind of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindFigures {
    /// Extension; empty for files without, `other` for all that are not told apart.
    pub extension: String,
    /// Bytes of their different chunks.
    pub bytes: u64,
    /// Bytes that these take in packs.
    pub stored_bytes: u64,
}

/// What a walk adds up.
#[derive(Default)]
struct Tally {
    needed: u64,
    chunks: (u64, u64),
    meta: u64,
    kinds: HashMap<Vec<u8>, (u64, u64)>,
}

impl Tally {
    fn add(&mut self, met: Met<'_>) {
        self.needed += met.stored;
        if met.kind != ObjectKind::Chunk {
            self.meta += met.stored;
            return;
        }
        self.chunks.0 += met.raw;
        self.chunks.1 += met.stored;
        let kind = self.kinds.entry(extension(met.name)).or_default();
        kind.0 += met.raw;
        kind.1 += met.stored;
    }
}

impl Engine {
    /// Figures of the store, at low priority. While a gc runs they are those of a moment in it.
    pub fn figures(&self) -> Result<StoreFigures> {
        let _one = self.figuring.lock();
        std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                lower_priority();
                add_up(self)
            });
            run.join().unwrap_or(Err(Error::Closing))
        })
    }
}

fn add_up(engine: &Engine) -> Result<StoreFigures> {
    let _pin = engine.store.pin();
    let _here = only_here();
    let lazy = lazy_names(&engine.refs)?;
    engine.store.flush()?;
    let all = engine.store.look(&engine.stop);
    let mut total = Tally::default();
    let mut sizes = Sizes::new(&engine.store);
    let mut figures = store_figures(engine)?;
    let mut looks = Vec::new();
    let now = clock::now();
    for name in engine.names()? {
        let own = engine.store.look(&engine.stop);
        let mut tally = Tally::default();
        let mut w = WorkspaceFigures {
            name: name.clone(),
            ..WorkspaceFigures::default()
        };
        each_branch(engine, &name, &mut |branch, inner, dir| {
            let roots = Roots::of(inner).lazy(lazy.contains(&name));
            walk(&own, &roots, &mut tally)?;
            walk(&all, &roots, &mut total)?;
            let figures_of = branch_figures(engine, branch, inner, dir)?;
            figures.logical_bytes += figures_of.bytes;
            for id in &roots.commits {
                figures.logical_bytes += sizes.of_commit(id)?;
            }
            w.branches.push(figures_of);
            Ok(())
        })?;
        w.needed_bytes = tally.needed;
        for (_, record) in kept(&engine.refs, &name)? {
            let roots = timelines::kept_roots(engine, &record, now);
            walk(&own, &roots, &mut tally)?;
            walk(&all, &roots, &mut total)?;
        }
        figures.state_bytes += bytes_below(engine, &trees_dir(&name))?;
        figures.workspaces.push(w);
        looks.push(own);
    }
    for (i, w) in figures.workspaces.iter_mut().enumerate() {
        let others: Vec<&Collection<'_>> = looks
            .iter()
            .enumerate()
            .filter(|(j, _)| *j != i)
            .map(|(_, l)| l)
            .collect();
        w.own_bytes = looks[i].bytes_of_none(&others);
    }
    Ok(finish(figures, total))
}

fn store_figures(engine: &Engine) -> Result<StoreFigures> {
    let stats = engine.store.stats();
    let io = |e| Error::io("packs")(e);
    Ok(StoreFigures {
        used_bytes: engine.storage.used_bytes().map_err(io)?,
        free_bytes: engine.storage.free_bytes().map_err(io)?,
        quota: engine.settings().quota,
        packs: stats.packs as u64,
        pack_bytes: stats.bytes,
        objects: stats.objects as u64,
        ..StoreFigures::default()
    })
}

/// Calls `each` for every branch of a workspace with its name, its state and its directory. An open
/// one is looked at as it was at one moment.
pub(crate) fn each_branch(
    engine: &Engine,
    workspace: &str,
    each: &mut dyn FnMut(&str, &Inner, &str) -> Result<()>,
) -> Result<()> {
    if let Some(w) = engine.opened(workspace) {
        for branch in w.views.branches() {
            let copy = branch.lock().snapshot();
            each(&branch.name(), &copy, &branch.dir)?;
        }
        return Ok(());
    }
    let trees = gc::look_at_trees(engine, workspace);
    for (name, dir) in gc::branch_dirs(engine, workspace)? {
        if let Some(found) = inspect(&*engine.storage, &engine.store, &trees, &dir, engine.boot)? {
            each(&name, &found.inner, &dir)?;
        }
    }
    Ok(())
}

fn branch_figures(engine: &Engine, name: &str, inner: &Inner, dir: &str) -> Result<BranchFigures> {
    let mut out = BranchFigures {
        name: name.to_owned(),
        journal_bytes: bytes_below(engine, &format!("{dir}/journal"))?,
        state_bytes: bytes_below(engine, dir)?,
        ..BranchFigures::default()
    };
    inner.live.for_each(&mut |_, inode| {
        if inode.kind() == Kind::File && inode.nlink > 0 {
            out.files += 1;
            out.bytes += inode.size;
        }
    });
    out.keys = inner.live.kv().len() as u64;
    inner.live.kv().scan("", &mut |key, entry| {
        out.bytes += (key.len() + entry.value.len()) as u64;
        true
    });
    for state in inner.book.history.states.values() {
        let automatic = state.info.kind.is_automatic() && !state.info.asked;
        *(if automatic {
            &mut out.automatic
        } else {
            &mut out.commits
        }) += 1;
    }
    Ok(out)
}

/// Bytes of the files in a directory.
fn bytes_below(engine: &Engine, dir: &str) -> Result<u64> {
    let names = engine.storage.list(dir).map_err(Error::io(dir))?;
    // A directory is no segment, and a file may go while it is looked at.
    let len = |name: &String| {
        engine
            .storage
            .open(&format!("{dir}/{name}"))
            .map(|f| f.len())
    };
    Ok(names.iter().filter_map(|name| len(name).ok()).sum())
}

fn walk(look: &Collection<'_>, roots: &Roots, tally: &mut Tally) -> Result<()> {
    let mut met = |m: Met<'_>| tally.add(m);
    let mut walk = Walk::new(look, &mut met);
    roots.walk(&mut walk)?;
    Roots::walk_rest(&roots.maybe, &mut walk)?;
    Ok(walk.finish()?)
}

fn finish(mut f: StoreFigures, total: Tally) -> StoreFigures {
    f.needed_bytes = total.needed;
    f.unneeded_bytes = f.pack_bytes.saturating_sub(total.needed);
    (f.chunk_bytes, f.chunk_stored_bytes) = total.chunks;
    f.meta_stored_bytes = total.meta;
    let branches = f.workspaces.iter().flat_map(|w| &w.branches);
    f.journal_bytes = branches.clone().map(|b| b.journal_bytes).sum();
    f.state_bytes += branches.map(|b| b.state_bytes).sum::<u64>();
    let mut kinds: Vec<KindFigures> = total
        .kinds
        .into_iter()
        .map(|(extension, (bytes, stored_bytes))| KindFigures {
            extension: String::from_utf8_lossy(&extension).into_owned(),
            bytes,
            stored_bytes,
        })
        .collect();
    kinds.sort_by(|a, b| (b.stored_bytes, &a.extension).cmp(&(a.stored_bytes, &b.extension)));
    let rest = kinds.split_off(kinds.len().min(KINDS_MAX));
    if !rest.is_empty() {
        kinds.push(KindFigures {
            extension: "other".to_owned(),
            bytes: rest.iter().map(|k| k.bytes).sum(),
            stored_bytes: rest.iter().map(|k| k.stored_bytes).sum(),
        });
    }
    f.kinds = kinds;
    f
}

/// What comes after the last dot of a name, in small letters; nothing for a name without one.
fn extension(name: Option<&[u8]>) -> Vec<u8> {
    let name = name.unwrap_or_default();
    let dot = name.iter().rposition(|b| *b == b'.').filter(|at| *at > 0);
    let after = dot.map_or(&[][..], |at| &name[at + 1..]);
    let plain = after.len() <= EXTENSION_MAX && after.iter().all(u8::is_ascii_alphanumeric);
    if plain {
        after.to_ascii_lowercase()
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_plain_words() {
        for (name, wanted) in [
            ("a.RS", "rs"),
            ("a.tar.gz", "gz"),
            (".bashrc", ""),
            ("Makefile", ""),
            ("a.b c", ""),
            ("a.averyveryverylongone", ""),
            ("a.", ""),
        ] {
            assert_eq!(
                extension(Some(name.as_bytes())),
                wanted.as_bytes(),
                "{name}"
            );
        }
        assert_eq!(extension(None), b"");
    }
}
