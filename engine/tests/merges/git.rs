//! Histories with many merges, made of real files, merged here and by git: the same trees where git
//! merges without conflict, the same conflicted paths where it does not.
//!
//! `MERGE_WORLDS` sets the number of histories, `MERGE_SEED` the first seed. A failure names its seed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::merging::rng::Rng;
use crate::merging::tree::{self, Leaf, Tree, What};
use crate::merging::{git, history, rounds, seed};
use engine::merge::{
    ConflictKind, Labels, MergeOptions, MergeResult, OnConflict, Outcome, Root, merge_commits,
};
use objstore::{Commit, CommitId, CommitKind, ObjectStore};
use std::collections::BTreeSet;

struct Made {
    name: String,
    id: CommitId,
    parents: Vec<usize>,
    time: i64,
    tree: Tree,
}

/// A merge that was asked for: the two commits and what came out.
struct Asked {
    ours: usize,
    theirs: usize,
    result: MergeResult,
}

struct World {
    seed: u64,
    store: ObjectStore,
    commits: Vec<Made>,
    merges: Vec<Asked>,
}

impl World {
    fn commit(&mut self, tree: Tree, parents: Vec<usize>) -> usize {
        let root = tree::save(&self.store, &tree);
        self.commit_root(root, tree, parents)
    }

    fn commit_root(&mut self, root: Root, tree: Tree, parents: Vec<usize>) -> usize {
        let number = self.commits.len();
        let time = 1_000_000 + number as i64;
        let commit = Commit {
            root_meta: root.meta,
            root: root.tree,
            parents: parents.iter().map(|i| self.commits[*i].id).collect(),
            time_sec: time,
            time_nsec: 0,
            author: "t".into(),
            message: format!("{number}"),
            meta: Vec::new(),
            kind: CommitKind::Asked,
            kv: None,
            timeline: None,
        };
        self.commits.push(Made {
            name: format!("c{number}"),
            id: self.store.put_object(&commit).unwrap(),
            parents,
            time,
            tree,
        });
        number
    }

    fn merge(&mut self, ours: usize, theirs: usize) -> MergeResult {
        let options = MergeOptions {
            labels: Labels {
                base: String::new(),
                ours: self.commits[ours].name.clone(),
                theirs: self.commits[theirs].name.clone(),
            },
            on_conflict: OnConflict::Keep,
            now: (0, 0),
        };
        let (a, b) = (self.commits[ours].id, self.commits[theirs].id);
        let result = merge_commits(&self.store, &self.store, &a, &b, &options);
        let result = result.unwrap_or_else(|e| {
            let names = (&options.labels.ours, &options.labels.theirs);
            panic!("seed {}, {names:?}: {e}", self.seed)
        });
        self.merges.push(Asked {
            ours,
            theirs,
            result: result.clone(),
        });
        result
    }
}

/// Three branches that work and merge each other.
fn world(seed: u64, texts: &[Vec<u8>]) -> World {
    let mut rng = Rng(seed);
    let mut world = World {
        seed,
        store: tree::store(),
        commits: Vec::new(),
        merges: Vec::new(),
    };
    let start = history::project(&mut rng, texts);
    let first = world.commit(start, Vec::new());
    let mut heads = [first; 3];
    for _ in 0..20 {
        let branch = rng.below(3) as usize;
        let head = heads[branch];
        if rng.below(3) > 0 || world.commits.len() < 4 {
            let mut tree = world.commits[head].tree.clone();
            history::work(&mut rng, &mut tree, texts);
            heads[branch] = world.commit(tree, vec![head]);
            continue;
        }
        let other = heads[(branch + 1 + rng.below(2) as usize) % 3];
        // Sometimes what the other one had before: so histories cross.
        let before = world.commits[other].parents.first().copied();
        let other = before.filter(|_| rng.one_in(3)).unwrap_or(other);
        let result = world.merge(head, other);
        match result.outcome {
            Outcome::FastForward => heads[branch] = other,
            Outcome::UpToDate => {}
            Outcome::Merged => {
                let root = result.root.unwrap();
                let mut tree = tree::load(&world.store, &root);
                // What is edited next are the files; directories follow.
                tree.dirs.clear();
                heads[branch] = world.commit_root(root, tree, vec![head, other]);
            }
            Outcome::Conflicts => {
                // Somebody settled it one way or the other.
                let settled = if rng.one_in(2) { head } else { other };
                let tree = world.commits[settled].tree.clone();
                heads[branch] = world.commit(tree, vec![head, other]);
            }
        }
    }
    world
}

#[derive(Default)]
struct Counts {
    merged: u64,
    conflicts: u64,
    trivial: u64,
    git_loses: u64,
    git_dies: u64,
    paired: u64,
}

enum Agreement {
    Same,
    GitLoses,
    /// Both have conflicts, at other paths: files were taken for renames of others than git takes.
    Paired,
}

#[test]
fn merges_of_histories_are_those_of_git() {
    let count = rounds("MERGE_WORLDS", 100);
    let first = seed("MERGE_SEED");
    let texts = crate::merging::real_texts();
    let (mut counts, mut failures) = (Counts::default(), Vec::new());
    for seed in first..first + count {
        let world = world(seed, &texts);
        failures.extend(compare(seed, &world, &mut counts));
    }
    println!(
        "{} merged, {} with conflicts, {} where git loses a file, {} where it dies, {} trivial, \
         {} with other pairs of a rename, {} other than git's",
        counts.merged,
        counts.conflicts,
        counts.git_loses,
        counts.git_dies,
        counts.trivial,
        counts.paired,
        failures.len()
    );
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
    assert!(counts.merged * 2 > count && counts.conflicts > count);
    assert!((counts.git_loses + counts.git_dies) * 10 < counts.conflicts);
    // Measured: 6 of about 4,800.
    assert!(
        counts.paired * 50 <= counts.conflicts,
        "{} pairs",
        counts.paired
    );
}

fn compare(seed: u64, world: &World, counts: &mut Counts) -> Vec<String> {
    let dir = git::scratch("history");
    let name = |i: usize| world.commits[i].name.clone();
    let commits: Vec<git::Commit> = world
        .commits
        .iter()
        .map(|made| git::Commit {
            name: made.name.clone(),
            parents: made.parents.iter().map(|i| name(*i)).collect(),
            time: made.time,
            tree: &made.tree,
        })
        .collect();
    git::import(dir.path(), &commits);
    let pairs: Vec<(String, String)> = world
        .merges
        .iter()
        .map(|m| (name(m.ours), name(m.theirs)))
        .collect();
    let merges = git::merge_trees(dir.path(), &pairs);
    let mut failures = Vec::new();
    for (asked, want) in world.merges.iter().zip(merges) {
        match asked.result.outcome {
            Outcome::Merged => counts.merged += 1,
            Outcome::Conflicts => counts.conflicts += 1,
            _ => counts.trivial += 1,
        }
        let Some(want) = want else {
            counts.git_dies += 1;
            continue;
        };
        let (a, b) = (name(asked.ours), name(asked.theirs));
        match check(dir.path(), world, asked, &want) {
            Ok(Agreement::Same) => {}
            Ok(Agreement::GitLoses) => counts.git_loses += 1,
            Ok(Agreement::Paired) => {
                counts.paired += 1;
                println!("seed {seed}, {a} and {b}: other pairs of a rename");
            }
            Err(why) => {
                failures.push(format!(
                    "seed {seed}, {a} and {b}: {why}\n{:#?}",
                    want.messages
                ));
            }
        }
    }
    if !failures.is_empty() && std::env::var_os("MERGE_SHOW").is_some() {
        println!("seed {seed}: {}", dir.keep().display());
    }
    failures
}

fn shown(paths: &BTreeSet<Vec<u8>>) -> String {
    let texts = paths
        .iter()
        .map(|p| String::from_utf8_lossy(p).into_owned());
    texts.collect::<Vec<_>>().join(" ")
}

/// Whether a directory rename did not happen here because a file stands where it wants a directory. Git
/// puts a file below a file, and loses one of them.
fn keeps_below_file(world: &World, asked: &Asked) -> bool {
    let is_file = |path: &[u8]| {
        let trees = [asked.ours, asked.theirs].map(|i| &world.commits[i].tree);
        trees.iter().any(|tree| tree.leaves.contains_key(path))
    };
    asked.result.conflicts.iter().any(|c| {
        let mut slashes = c.path.iter().enumerate().filter(|(_, b)| **b == b'/');
        c.kind == ConflictKind::DirectoryRename && slashes.any(|(end, _)| is_file(&c.path[..end]))
    })
}

fn check(
    dir: &std::path::Path,
    world: &World,
    asked: &Asked,
    want: &git::TreeMerge,
) -> Result<Agreement, String> {
    let got = &asked.result;
    let paths: BTreeSet<Vec<u8>> = got.conflicts.iter().map(|c| c.path.clone()).collect();
    let git_loses = !want.clean && keeps_below_file(world, asked);
    // Git says so, but counts the merge as clean, and one side's edits are gone.
    let collides = |text: &String| text.contains("rename involved in collision");
    let hidden = want.clean && !paths.is_empty() && want.messages.iter().any(collides);
    if hidden || (git_loses && paths != want.paths) {
        return Ok(Agreement::GitLoses);
    }
    if paths != want.paths {
        if !want.clean && got.outcome == Outcome::Conflicts {
            return Ok(Agreement::Paired);
        }
        let kinds: Vec<_> = got.conflicts.iter().map(|c| c.kind.word()).collect();
        let (here, there) = (shown(&paths), shown(&want.paths));
        return Err(format!("conflicts here: {here} {kinds:?}\nin git: {there}"));
    }
    if want.clean != (got.outcome != Outcome::Conflicts) {
        let clean = want.clean;
        return Err(format!("{:?} here, clean in git: {clean}", got.outcome));
    }
    let tree = tree::load(&world.store, got.root.as_ref().unwrap());
    let Some(files) = git::files(dir, &want.tree) else {
        return match want.clean {
            true => Err("clean in git, which names a file that it lost".into()),
            false => Ok(Agreement::GitLoses),
        };
    };
    let here: BTreeSet<_> = tree.leaves.keys().cloned().collect();
    let there: BTreeSet<_> = files.keys().cloned().collect();
    // What git has more lies below a file that is here.
    let below_file = |path: &Vec<u8>| {
        let mut slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/');
        slashes.any(|(end, _)| here.contains(&path[..end]))
    };
    if here != there && git_loses && (&there - &here).iter().all(below_file) {
        return Ok(Agreement::GitLoses);
    }
    if here != there {
        let (more, less) = (&here - &there, &there - &here);
        let (more, less) = (shown(&more), shown(&less));
        return Err(format!("only here: {more}\nonly in git: {less}"));
    }
    let differs = |(path, (mode, bytes)): (&Vec<u8>, &(String, Vec<u8>))| {
        let leaf = &tree.leaves[path];
        (mode != mode_of(leaf) || bytes != leaf.bytes()).then(|| path.clone())
    };
    match files.iter().find_map(differs) {
        Some(path) if want.clean => Err(format!("{} differs", String::from_utf8_lossy(&path))),
        _ => Ok(Agreement::Same),
    }
}

fn mode_of(leaf: &Leaf) -> &'static str {
    match leaf.what {
        What::Link(_) => "120000",
        _ if leaf.meta.mode & 0o100 != 0 => "100755",
        _ => "100644",
    }
}
