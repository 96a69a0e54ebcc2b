//! What merges promise beyond git's results: owners, attributes, times, hard links, empty directories,
//! special files; what trivial merges give; and that damaged trees are errors.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::merging::rng::Rng;
use crate::merging::tree::{self, Leaf, Tree, What, dir_meta};
use crate::merging::{history, rounds};
use engine::Error;
use engine::merge::{
    Conflict, ConflictKind, Labels, MergeOptions, MergeResult, OnConflict, Outcome, Root,
    merge_commits, merge_roots,
};
use engine::record::{decode, encode};
use objstore::{Body, Commit, CommitId, CommitKind, Edit, Meta, ObjectStore, TreeEntry, edit_tree};
use std::collections::BTreeSet;

fn options(on_conflict: OnConflict) -> MergeOptions {
    MergeOptions {
        labels: Labels {
            base: "base".into(),
            ours: "ours".into(),
            theirs: "theirs".into(),
        },
        on_conflict,
        now: (77, 7),
    }
}

/// Merges three trees, conflicts shown.
fn merge(base: &Tree, ours: &Tree, theirs: &Tree) -> (MergeResult, Tree) {
    let store = tree::store();
    let roots = [base, ours, theirs].map(|tree| tree::save(&store, tree));
    let keep = options(OnConflict::Keep);
    let result = merge_roots(&store, &roots[0], &roots[1], &roots[2], &keep).unwrap();
    let merged = tree::load(&store, result.root.as_ref().unwrap());
    (result, merged)
}

fn clean(base: &Tree, ours: &Tree, theirs: &Tree) -> Tree {
    let (result, merged) = merge(base, ours, theirs);
    assert_eq!(result.conflicts, []);
    merged
}

fn kinds(result: &MergeResult) -> Vec<(String, ConflictKind)> {
    let text = |c: &Conflict| String::from_utf8(c.path.clone()).unwrap();
    result.conflicts.iter().map(|c| (text(c), c.kind)).collect()
}

fn meta(tree: &mut Tree, path: &str, change: impl FnOnce(&mut Meta)) {
    change(&mut tree.leaves.get_mut(path.as_bytes()).unwrap().meta);
}

fn set(tree: &mut Tree, path: &str, text: &str) {
    tree.leaves.get_mut(path.as_bytes()).unwrap().what = What::File(text.into());
}

const TEXT: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

fn three() -> [Tree; 3] {
    [0; 3].map(|_| Tree::of(&[("a", TEXT), ("d/b", TEXT), ("d/c", "c\n")]))
}

#[test]
fn attributes_merge_each_for_itself() {
    let [mut base, mut ours, mut theirs] = three();
    for tree in [&mut base, &mut ours, &mut theirs] {
        meta(tree, "a", |m| {
            m.xattrs = vec![(b"user.x".to_vec(), b"0".to_vec())]
        });
    }
    meta(&mut ours, "a", |m| {
        m.mode = 0o100600;
        m.xattrs.push((b"user.y".to_vec(), b"1".to_vec()));
    });
    set(&mut ours, "a", &TEXT.replace('2', "two"));
    meta(&mut theirs, "a", |m| {
        m.uid = 7;
        m.xattrs = vec![(b"user.z".to_vec(), b"2".to_vec())];
    });
    set(&mut theirs, "a", &TEXT.replace('8', "eight"));
    let merged = clean(&base, &ours, &theirs);
    let leaf = &merged.leaves[&b"a"[..]];
    assert_eq!((leaf.meta.mode, leaf.meta.uid), (0o100600, 7));
    let names: Vec<&[u8]> = leaf.meta.xattrs.iter().map(|(n, _)| &n[..]).collect();
    assert_eq!(names, [&b"user.y"[..], b"user.z"]);
    let both = TEXT.replace('2', "two").replace('8', "eight");
    assert_eq!(merged.text("a"), both);
}

#[test]
fn attributes_changed_in_different_ways_are_a_conflict() {
    let [base, mut ours, mut theirs] = three();
    meta(&mut ours, "a", |m| m.mode = 0o100600);
    meta(&mut theirs, "a", |m| m.mode = 0o100755);
    meta(&mut ours, "d/b", |m| {
        m.xattrs = vec![(b"user.x".to_vec(), b"1".to_vec())]
    });
    meta(&mut theirs, "d/b", |m| {
        m.xattrs = vec![(b"user.x".to_vec(), b"2".to_vec())]
    });
    meta(&mut ours, "d/c", |m| m.gid = 1);
    meta(&mut theirs, "d/c", |m| m.gid = 2);
    let (result, _) = merge(&base, &ours, &theirs);
    let want = [
        ("a".to_string(), ConflictKind::Mode),
        ("d/b".to_string(), ConflictKind::Xattr),
        ("d/c".to_string(), ConflictKind::Mode),
    ];
    assert_eq!(kinds(&result), want);
}

#[test]
fn a_file_of_one_side_keeps_that_sides_time() {
    let [mut base, mut ours, mut theirs] = three();
    for (tree, time) in [(&mut base, 1), (&mut ours, 2), (&mut theirs, 3)] {
        for path in ["a", "d/b", "d/c"] {
            meta(tree, path, |m| m.mtime_sec = time);
        }
    }
    set(&mut ours, "a", "ours\n");
    set(&mut theirs, "d/b", &TEXT.replace('8', "eight"));
    set(&mut ours, "d/b", &TEXT.replace('2', "two"));
    let merged = clean(&base, &ours, &theirs);
    let time = |path: &str| merged.leaves[path.as_bytes()].meta.mtime_sec;
    assert_eq!(time("a"), 2, "only ours changed it");
    assert_eq!(time("d/b"), 77, "the merge made it");
    assert_eq!(time("d/c"), 3, "both touched it: the later time");
}

#[test]
fn a_touched_file_does_not_stand_against_its_deletion() {
    let [base, mut ours, mut theirs] = three();
    meta(&mut ours, "a", |m| m.mtime_sec = 5);
    theirs.leaves.remove(&b"a"[..]);
    assert!(!clean(&base, &ours, &theirs).leaves.contains_key(&b"a"[..]));
}

#[test]
fn directories_merge_their_attributes_and_go_when_they_end_up_empty() {
    let [mut base, mut ours, mut theirs] = three();
    for tree in [&mut base, &mut ours, &mut theirs] {
        tree.dirs.insert(b"empty".to_vec(), dir_meta());
        tree.dirs.insert(b"kept".to_vec(), dir_meta());
    }
    ours.dirs.insert(
        b"d".to_vec(),
        Meta {
            mode: 0o040700,
            ..dir_meta()
        },
    );
    ours.dirs.insert(b"new/deep".to_vec(), dir_meta());
    theirs.dirs.remove(&b"empty"[..]);
    theirs.leaves.remove(&b"d/b"[..]);
    let merged = clean(&base, &ours, &theirs);
    assert_eq!(merged.dirs[&b"d"[..]].mode, 0o040700);
    let dirs: Vec<&[u8]> = merged.dirs.keys().map(|d| &d[..]).collect();
    assert_eq!(dirs, [&b""[..], b"d", b"kept", b"new", b"new/deep"]);
}

#[test]
fn an_empty_directory_below_what_became_a_file_is_a_conflict() {
    let [mut base, mut ours, mut theirs] = three();
    for tree in [&mut base, &mut ours, &mut theirs] {
        tree.dirs.insert(b"hollow".to_vec(), dir_meta());
    }
    ours.dirs.remove(&b"hollow"[..]);
    ours.put("hollow", Leaf::file("a file\n"));
    for new in ["hollow/new", "hollow/new/deep"] {
        theirs.dirs.insert(new.into(), dir_meta());
    }
    for (ours, theirs) in [(&ours, &theirs), (&theirs, &ours)] {
        let (result, merged) = merge(&base, ours, theirs);
        assert_eq!(
            kinds(&result),
            [("hollow".into(), ConflictKind::DirectoryFile)]
        );
        assert_eq!(merged.text("hollow"), "a file\n");
        let dirs: Vec<&[u8]> = merged.dirs.keys().map(|d| &d[..]).collect();
        assert_eq!(dirs, [&b""[..], b"d"]);
    }
}

#[test]
fn what_was_changed_in_a_deleted_directory_keeps_it() {
    let [base, mut ours, mut theirs] = three();
    set(&mut ours, "d/b", "changed\n");
    theirs.leaves.retain(|path, _| !path.starts_with(b"d/"));
    let (result, merged) = merge(&base, &ours, &theirs);
    assert_eq!(kinds(&result), [("d/b".into(), ConflictKind::ModifyDelete)]);
    assert_eq!(merged.text("d/b"), "changed\n");
    assert!(!merged.leaves.contains_key(&b"d/c"[..]));
}

#[test]
fn an_addition_to_a_renamed_directory_is_a_conflict_at_its_new_path() {
    let [base, mut ours, mut theirs] = three();
    for name in ["b", "c"] {
        let leaf = ours.leaves.remove(format!("d/{name}").as_bytes()).unwrap();
        ours.put(format!("e/{name}"), leaf);
    }
    theirs.put("d/new", Leaf::file("new\n"));
    theirs.dirs.insert(b"d/empty".to_vec(), dir_meta());
    let (result, merged) = merge(&base, &ours, &theirs);
    assert_eq!(
        kinds(&result),
        [("e/new".into(), ConflictKind::DirectoryRename)]
    );
    assert_eq!(merged.text("e/new"), "new\n");
    let dirs: Vec<&[u8]> = merged.dirs.keys().map(|d| &d[..]).collect();
    assert_eq!(dirs, [&b""[..], b"e", b"e/empty"]);
    let theirs = result.conflicts[0].theirs.as_ref().unwrap();
    assert_eq!(theirs.path, b"d/new");
}

#[test]
fn a_directory_that_one_side_renamed_and_filled_is_no_conflict() {
    let lines = |of: u32| -> String { (0..60).map(|n| format!("{of} of line {n}\n")).collect() };
    let base = Tree::of(&[("dir-1/f12", &lines(12)), ("else/f3", &lines(3))]);
    let (mut ours, mut theirs) = (base.clone(), base.clone());
    let renamed = ours.leaves.remove(&b"dir-1/f12"[..]).unwrap();
    ours.put("dir-2/f12-23", renamed);
    ours.put("dir-2/f25", Leaf::file(lines(25)));
    ours.put("dir-2/f49", Leaf::file(lines(49)));
    set(&mut theirs, "else/f3", &lines(4));
    theirs.put("new/f5", Leaf::file(lines(5)));
    for (ours, theirs) in [(&ours, &theirs), (&theirs, &ours)] {
        let merged = clean(&base, ours, theirs);
        let all = [
            "dir-2/f12-23",
            "dir-2/f25",
            "dir-2/f49",
            "else/f3",
            "new/f5",
        ];
        assert!(merged.leaves.keys().eq(all.iter().map(|p| p.as_bytes())));
    }
}

/// Changes directories of a tree, and makes new ones: `numbers` are those of the files and directories that are
/// made next.
fn change_dirs(rng: &mut Rng, tree: &mut Tree, dirs: &mut Vec<String>, numbers: &mut u64) {
    *numbers += 1;
    let number = *numbers;
    let text = |of: u64| -> String { (0..60).map(|n| format!("{of} of line {n}\n")).collect() };
    if dirs.is_empty() || rng.one_in(6) {
        dirs.push(format!("dir{number}"));
    }
    let at = rng.below(dirs.len() as u64) as usize;
    let dir = dirs[at].clone();
    let below = format!("{dir}/").into_bytes();
    let files = tree.leaves.keys().filter(|path| path.starts_with(&below));
    let files: Vec<Vec<u8>> = files.cloned().collect();
    match rng.below(6) {
        _ if files.is_empty() => tree.put(format!("{dir}/f{number}"), Leaf::file(text(number))),
        0 | 1 => tree.put(format!("{dir}/f{number}"), Leaf::file(text(number))),
        2 => {
            let path = String::from_utf8(rng.pick(&files).clone()).unwrap();
            let line = format!("{} of", rng.below(60));
            let edited = tree.text(&path).replacen(&line, &number.to_string(), 1);
            set(tree, &path, &(edited + "more\n"));
        }
        3 => drop(tree.leaves.remove(rng.pick(&files))),
        4 => {
            let leaf = tree.leaves.remove(rng.pick(&files)).unwrap();
            tree.put(format!("{dir}/g{number}"), leaf);
        }
        _ => {
            dirs[at] = format!("dir{number}-moved");
            for path in files {
                let leaf = tree.leaves.remove(&path).unwrap();
                let rest = &path[dir.len()..];
                tree.put([dirs[at].as_bytes(), rest].concat(), leaf);
            }
        }
    }
}

#[test]
fn sides_that_changed_different_directories_have_no_conflict() {
    let first = crate::merging::seed("MERGE_DIRS_SEED");
    for seed in first..first + rounds("MERGE_DIRS_ROUNDS", 300) {
        let (mut rng, mut numbers) = (Rng(seed), 0);
        let (mut base, mut dirs) = (Tree::default(), [Vec::new(), Vec::new()]);
        for n in 0..rng.below(20) as usize {
            change_dirs(&mut rng, &mut base, &mut dirs[n % 2], &mut numbers);
        }
        let mut sides = [base.clone(), base.clone()];
        for n in 0..rng.below(30) as usize {
            change_dirs(&mut rng, &mut sides[n % 2], &mut dirs[n % 2], &mut numbers);
        }
        let (result, merged) = merge(&base, &sides[0], &sides[1]);
        assert!(
            kinds(&result).is_empty(),
            "seed {seed}: {:?}",
            kinds(&result)
        );
        let mut expected = Vec::new();
        for (side, dirs) in sides.iter().zip(&dirs) {
            let own = |path: &&Vec<u8>| {
                let path = std::str::from_utf8(path).unwrap();
                dirs.iter().any(|dir| path.starts_with(&format!("{dir}/")))
            };
            let all = side.leaves.keys().filter(own);
            expected.extend(all.map(|path| (path.clone(), side.leaves[path].bytes().to_vec())));
        }
        expected.sort();
        let found = merged.leaves.iter();
        let found: Vec<_> = found
            .map(|(p, leaf)| (p.clone(), leaf.bytes().to_vec()))
            .collect();
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn hard_links_stay_together_and_fall_apart_where_they_differ() {
    let [mut base, mut ours, mut theirs] = three();
    for tree in [&mut base, &mut ours, &mut theirs] {
        for name in ["l1", "l2", "l3"] {
            tree.put(name, Leaf::file(TEXT));
            meta(tree, name, |m| m.link_group = 9);
        }
    }
    for name in ["l1", "l2", "l3"] {
        set(&mut ours, name, "edited\n");
    }
    // Theirs replaces one name and makes a group of its own under a number that ours uses, too.
    set(&mut theirs, "l3", "other\n");
    meta(&mut theirs, "l3", |m| m.link_group = 0);
    for (tree, names) in [(&mut ours, ["o1", "o2"]), (&mut theirs, ["t1", "t2"])] {
        for name in names {
            tree.put(name, Leaf::file("new\n"));
            meta(tree, name, |m| m.link_group = 100);
        }
    }
    let (result, merged) = merge(&base, &ours, &theirs);
    assert_eq!(kinds(&result), [("l3".into(), ConflictKind::Content)]);
    let group = |name: &str| merged.leaves[name.as_bytes()].meta.link_group;
    assert_eq!((group("l1"), group("l2"), group("l3")), (9, 9, 0));
    assert_eq!((group("o1"), group("o2")), (100, 100));
    assert_eq!(group("t1"), group("t2"));
    assert!(group("t1") != 100 && group("t1") != 0);
}

#[test]
fn special_files_merge_like_others() {
    let [base, mut ours, mut theirs] = three();
    ours.put("pipe", Leaf::fifo());
    theirs.put("pipe", Leaf::fifo());
    ours.put("x", Leaf::fifo());
    theirs.put("x", Leaf::link("a"));
    let (result, merged) = merge(&base, &ours, &theirs);
    assert_eq!(merged.leaves[&b"pipe"[..]].what, What::Special);
    let want = [
        ("x~ours".to_string(), ConflictKind::Symlink),
        ("x~theirs".to_string(), ConflictKind::Symlink),
    ];
    assert_eq!(kinds(&result), want);
}

#[test]
fn binaries_and_long_files_are_not_merged_by_line() {
    let [mut base, mut ours, mut theirs] = three();
    let long = "x".repeat(33 << 20);
    for (tree, end) in [(&mut base, ""), (&mut ours, "o"), (&mut theirs, "t")] {
        tree.put("bin", Leaf::file(format!("\0{end}")));
        tree.put("long", Leaf::file(format!("{long}{end}")));
    }
    let (result, merged) = merge(&base, &ours, &theirs);
    let want = [
        ("bin".to_string(), ConflictKind::Binary),
        ("long".to_string(), ConflictKind::Binary),
    ];
    assert_eq!(kinds(&result), want);
    assert_eq!(merged.text("bin"), "\0o", "ours is shown");
}

/// The same zeros, as data or as a hole: earlier builds stored them in either way.
#[test]
fn other_holes_are_no_change_of_a_file() {
    let store = tree::store();
    let file = |end: u8, sparse: bool| {
        let bytes = [&[end][..], &[0; 3 * 4096 - 1]].concat();
        let (len, data) = (3 * 4096, [0..4096, 4096..3 * 4096]);
        let content = match sparse {
            true => objstore::store_content(&store, None, &[], &data, len, &bytes).unwrap(),
            false => objstore::store_content_by_ranges(&store, &data, len, &bytes).unwrap(),
        };
        let mut meta = tree::file_meta(false);
        meta.mtime_sec = i64::from(end);
        let (name, body) = (b"image".to_vec(), Body::File(content));
        let entry = TreeEntry { name, meta, body };
        Root {
            meta: dir_meta(),
            tree: edit_tree(&store, None, vec![Edit::Put(entry)]).unwrap(),
        }
    };
    let merged = |base: Root, ours: Root, theirs: Root| {
        assert!(base.tree != ours.tree && base.tree != theirs.tree);
        let keep = options(OnConflict::Keep);
        let result = merge_roots(&store, &base, &ours, &theirs, &keep).unwrap();
        assert_eq!(result.conflicts, []);
        let tree = tree::load(&store, result.root.as_ref().unwrap());
        let image = &tree.leaves[&b"image"[..]];
        assert_eq!(image.meta.mtime_sec, i64::from(image.bytes()[0]));
        image.bytes()[0]
    };
    assert_eq!(merged(file(1, false), file(1, true), file(2, false)), 2);
    assert_eq!(merged(file(1, false), file(2, false), file(1, true)), 2);
    assert_eq!(merged(file(1, false), file(2, false), file(2, true)), 2);
}

#[test]
fn conflicts_have_all_three_sides_and_survive_encoding() {
    let [mut base, mut ours, mut theirs] = three();
    for (tree, text) in [(&mut base, "b\n"), (&mut ours, "o\n"), (&mut theirs, "t\n")] {
        set(tree, "d/c", text);
    }
    let (result, merged) = merge(&base, &ours, &theirs);
    let conflict = &result.conflicts[0];
    for side in [&conflict.base, &conflict.ours, &conflict.theirs] {
        assert_eq!(side.as_ref().unwrap().path, b"d/c");
    }
    let text = "<<<<<<< ours\no\n||||||| base\nb\n=======\nt\n>>>>>>> theirs\n";
    assert_eq!(merged.text("d/c"), text);
    assert_eq!(decode::<Conflict>(&encode(conflict)).as_ref(), Ok(conflict));
}

#[test]
fn nothing_comes_of_a_conflict_that_is_not_to_be_kept() {
    let store = tree::store();
    let [base, mut ours, mut theirs] = three();
    set(&mut ours, "a", "o\n");
    set(&mut theirs, "a", "t\n");
    let roots = [base, ours, theirs].map(|tree| tree::save(&store, &tree));
    let before = store.stats();
    let abort = options(OnConflict::Abort);
    let result = merge_roots(&store, &roots[0], &roots[1], &roots[2], &abort).unwrap();
    assert_eq!((result.outcome, result.root), (Outcome::Conflicts, None));
    assert_eq!(store.stats(), before, "nothing was stored");
}

fn commit(store: &ObjectStore, root: &Root, parents: &[CommitId], time: i64) -> CommitId {
    let commit = Commit {
        root_meta: root.meta.clone(),
        root: root.tree,
        parents: parents.to_vec(),
        time_sec: time,
        time_nsec: 0,
        author: "t".into(),
        message: String::new(),
        meta: Vec::new(),
        kind: CommitKind::Asked,
        kv: None,
        timeline: None,
    };
    store.put_object(&commit).unwrap()
}

#[test]
fn merges_with_oneself_and_with_what_came_before_or_after_are_trivial() {
    let store = tree::store();
    let [base, mut ours, _] = three();
    set(&mut ours, "a", "o\n");
    let (base, ours) = (tree::save(&store, &base), tree::save(&store, &ours));
    let first = commit(&store, &base, &[], 1);
    let second = commit(&store, &ours, &[first], 2);
    let abort = options(OnConflict::Abort);
    let run = |a: &CommitId, b: &CommitId| merge_commits(&store, &store, a, b, &abort).unwrap();
    let result = run(&second, &second);
    assert_eq!(
        (result.outcome, result.root),
        (Outcome::UpToDate, Some(ours.clone()))
    );
    let result = run(&second, &first);
    assert_eq!(
        (result.outcome, result.root),
        (Outcome::UpToDate, Some(ours.clone()))
    );
    let result = run(&first, &second);
    assert_eq!(
        (result.outcome, result.root),
        (Outcome::FastForward, Some(ours.clone()))
    );
    let alone = commit(&store, &ours, &[], 3);
    let result = merge_commits(&store, &store, &alone, &second, &abort);
    assert!(
        matches!(result, Err(Error::NoCommonHistory { .. })),
        "{result:?}"
    );
}

#[test]
fn clocks_that_went_back_do_not_change_the_merge_base() {
    let store = tree::store();
    let [base, mut ours, mut theirs] = three();
    let root = tree::save(&store, &base);
    let first = commit(&store, &root, &[], 900);
    let fork = commit(&store, &root, &[first], 10);
    set(&mut ours, "a", "o\n");
    set(&mut theirs, "d/c", "t\n");
    let ours = commit(&store, &tree::save(&store, &ours), &[fork], 5);
    let theirs = commit(&store, &tree::save(&store, &theirs), &[fork], 1000);
    let bases = engine::merge::merge_bases(&store, &ours, &theirs).unwrap();
    assert_eq!(bases, [fork]);
}

#[test]
fn an_unchanged_side_gives_the_other_one_whatever_that_is() {
    let texts = crate::merging::real_texts();
    let keep = options(OnConflict::Keep);
    let first = crate::merging::seed("MERGE_PROPERTIES_SEED");
    for seed in first..first + rounds("MERGE_PROPERTIES", 40) {
        let (store, mut rng) = (tree::store(), Rng(seed));
        let base = history::project(&mut rng, &texts);
        let mut other = base.clone();
        let mut third = base.clone();
        for _ in 0..3 {
            history::work(&mut rng, &mut other, &texts);
            history::work(&mut rng, &mut third, &texts);
        }
        let [b, x, y] = [&base, &other, &third].map(|tree| tree::save(&store, tree));
        let run = |b: &Root, a: &Root, c: &Root| merge_roots(&store, b, a, c, &keep).unwrap();
        assert_eq!(run(&b, &x, &b).root.as_ref(), Some(&x), "seed {seed}");
        assert_eq!(run(&b, &b, &x).root.as_ref(), Some(&x), "seed {seed}");
        assert_eq!(run(&b, &x, &x).root.as_ref(), Some(&x), "seed {seed}");
        let (there, back) = (run(&b, &x, &y), run(&b, &y, &x));
        let paths = |result: &MergeResult| -> BTreeSet<Vec<u8>> {
            // Files that made way are called by the side that they are from.
            let named = |c: &Conflict| {
                let way = c.path.iter().rposition(|b| *b == b'~');
                way.map_or(c.path.clone(), |at| c.path[..at].to_vec())
            };
            result.conflicts.iter().map(named).collect()
        };
        assert_eq!(paths(&there), paths(&back), "seed {seed}");
        if there.outcome == Outcome::Merged {
            assert_eq!(there.root, back.root, "seed {seed}");
        }
    }
}

#[test]
fn damaged_and_senseless_trees_are_errors() {
    let store = tree::store();
    let keep = options(OnConflict::Keep);
    let good = tree::save(&store, &Tree::of(&[("a", TEXT)]));
    let ours = tree::save(&store, &Tree::of(&[("a", "o\n")]));
    let entry = |mode: u32, body: Body| TreeEntry {
        name: b"a".to_vec(),
        meta: Meta {
            mode,
            ..Meta::default()
        },
        body,
    };
    let missing = objstore::TreeId::from_bytes([7; 32]);
    let content = objstore::FileContent::Manifest {
        id: objstore::ManifestId::from_bytes([8; 32]),
        len: u64::MAX,
    };
    let chunk = objstore::FileContent::Chunk {
        id: objstore::ChunkId::from_bytes([9; 32]),
        len: 5,
    };
    let bad = [
        entry(0o040755, Body::Dir(Some(missing))),
        entry(0o040755, Body::File(objstore::FileContent::Empty)),
        entry(0o100644, Body::Dir(None)),
        entry(0o100644, Body::Symlink(b"x".to_vec())),
        entry(0o120777, Body::None),
        entry(0, Body::File(objstore::FileContent::Empty)),
        entry(0o100644, Body::File(chunk)),
    ];
    for entry in bad {
        let tree = edit_tree(&store, None, vec![Edit::Put(entry.clone())]).unwrap();
        let theirs = Root {
            meta: dir_meta(),
            tree,
        };
        let result = merge_roots(&store, &good, &ours, &theirs, &keep);
        assert!(result.is_err(), "{entry:?}: {result:?}");
    }
    // So long that it is not even looked at.
    let tree = edit_tree(
        &store,
        None,
        vec![Edit::Put(entry(0o100644, Body::File(content)))],
    );
    let theirs = Root {
        meta: dir_meta(),
        tree: tree.unwrap(),
    };
    let result = merge_roots(&store, &good, &ours, &theirs, &keep).unwrap();
    assert_eq!(result.conflicts[0].kind, ConflictKind::Binary);
}
