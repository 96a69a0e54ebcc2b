//! Branches: made of one another, changed beside each other, brought back after crashes, deleted.
#![allow(clippy::unwrap_used)]

use crate::common::world::World;
use engine::verbs;
use engine::*;
use objstore::crash_storage::CrashStorage;
use std::path::Path;

fn base() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("src")).unwrap();
    for n in 0..20 {
        std::fs::write(dir.path().join(format!("src/{n}.txt")), format!("base {n}")).unwrap();
    }
    dir
}

fn world(base: &Path) -> World {
    World::on_disk(CrashStorage::new(), base)
}

/// Root of a branch, as the mount finds it.
fn root(w: &Workspace, branch: &str) -> NodeId {
    if branch == MAIN {
        return NodeId::ROOT;
    }
    find(w, NodeId::ROOT, &format!(".agentvfs/branches/{branch}")).unwrap()
}

fn find(w: &Workspace, from: NodeId, path: &str) -> Result<NodeId> {
    let mut at = from;
    for part in path.split('/') {
        at = w.lookup(at, part.as_bytes(), Wait::Allowed)?.node;
    }
    Ok(at)
}

fn read(w: &Workspace, branch: &str, path: &str) -> Result<String> {
    let node = find(w, root(w, branch), path)?;
    let bytes = w.read(node, 0, 1 << 20, Wait::Allowed)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn write(w: &Workspace, branch: &str, path: &str, text: &str) {
    let who = Caller::default();
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    let root = root(w, branch);
    let dir = if dir.is_empty() {
        root
    } else {
        find(w, root, dir).unwrap()
    };
    let node = match w.lookup(dir, name.as_bytes(), Wait::Allowed) {
        Ok(a) => a.node,
        Err(_) => {
            let mode = mode::REG | 0o644;
            let made = w.mknod(&who, dir, name.as_bytes(), mode, 0, Wait::Allowed);
            made.unwrap().node
        }
    };
    let empty = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    w.setattr(&who, node, &empty, Wait::Allowed).unwrap();
    let flags = WriteFlags::default();
    w.write(node, 0, text.as_bytes(), flags, Wait::Allowed)
        .unwrap();
}

fn checkpoint(w: &Workspace, branch: &str, label: &str) -> CommitId {
    let req = CheckpointRequest {
        label: Some(label.into()),
        wait: true,
        ..Default::default()
    };
    verbs::checkpoint(w, branch, req, &|_, _| ())
        .unwrap()
        .commit
        .unwrap()
}

#[test]
fn a_branch_shows_all_of_its_origin_and_neither_changes_the_other() {
    let base = base();
    let world = world(base.path());
    let w = world.w();
    write(w, MAIN, "src/1.txt", "changed");
    write(w, MAIN, "new", "not checkpointed");
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    assert_eq!(read(w, "b", "src/0.txt").unwrap(), "base 0");
    assert_eq!(read(w, "b", "src/1.txt").unwrap(), "changed");
    assert_eq!(read(w, "b", "new").unwrap(), "not checkpointed");
    write(w, "b", "new", "of b");
    write(w, MAIN, "src/2.txt", "of main");
    assert_eq!(read(w, MAIN, "new").unwrap(), "not checkpointed");
    assert_eq!(read(w, "b", "src/2.txt").unwrap(), "base 2");
    let names: Vec<_> = verbs::list_branches(w)
        .into_iter()
        .map(|b| b.name)
        .collect();
    assert_eq!(names, [MAIN, "b"]);
}

#[test]
fn inode_numbers_and_times_are_those_of_the_origin() {
    let base = base();
    let world = world(base.path());
    let w = world.w();
    write(w, MAIN, "new", "x");
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    for path in ["src/3.txt", "src", "new"] {
        let at = |b| w.getattr(find(w, root(w, b), path).unwrap());
        let (m, b) = (at(MAIN).unwrap(), at("b").unwrap());
        assert_eq!((m.mtime, m.ctime), (b.mtime, b.ctime), "{path}");
        assert_eq!(m.ino, b.ino & ((1 << 40) - 1), "{path}");
        assert_ne!(m.ino, b.ino);
    }
}

#[test]
fn what_a_branch_shows_of_its_origin_outlives_the_origins_journal() {
    let base = base();
    let mut world = world(base.path());
    let w = world.w();
    w.settle().unwrap();
    write(w, MAIN, "big", &"data ".repeat(10_000));
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    write(w, MAIN, "big", "short now");
    for _ in 0..3 {
        // Only main is sealed: what b needs stays.
        verbs::create_branch(w, "other", MAIN, None).unwrap();
        verbs::delete_branch(w, "other", &|_, _| ()).unwrap();
        checkpoint(w, MAIN, "c");
        assert_eq!(read(w, "b", "big").unwrap().len(), 50_000);
    }
    w.seal().unwrap();
    assert_eq!(read(w, "b", "big").unwrap().len(), 50_000);
    world.kill().unwrap();
    let w = world.w();
    assert_eq!(read(w, "b", "big").unwrap().len(), 50_000);
    assert_eq!(read(w, MAIN, "big").unwrap(), "short now");
}

#[test]
fn branches_come_back_after_a_crash_whatever_was_sealed() {
    let base = base();
    for sealed in [false, true] {
        let mut world = world(base.path());
        let w = world.w();
        if sealed {
            w.settle().unwrap();
        }
        write(w, MAIN, "a", "of main");
        checkpoint(w, MAIN, "one");
        write(w, MAIN, "a", "after one");
        verbs::create_branch(w, "b", MAIN, None).unwrap();
        write(w, "b", "a", "of b");
        verbs::create_branch(w, "c", "b", Some("one")).unwrap();
        write(w, "c", "c", "of c");
        if sealed {
            w.seal().unwrap();
        }
        write(w, "c", "d", "later");
        world.kill().unwrap();
        let check = |w: &Workspace| {
            assert_eq!(read(w, MAIN, "a").unwrap(), "after one");
            assert_eq!(read(w, "b", "a").unwrap(), "of b");
            assert_eq!(read(w, "c", "a").unwrap(), "of main");
            assert_eq!(read(w, "c", "c").unwrap(), "of c");
            assert_eq!(read(w, "c", "d").unwrap(), "later");
        };
        check(world.w());
        world.close(CloseMode::Checkpoint).unwrap();
        world.reopen().unwrap();
        check(world.w());
        let w = world.w();
        assert_eq!(
            verbs::rollback(w, "b", &Target::Head)
                .unwrap()
                .files_changed,
            1
        );
        assert_eq!(read(w, "b", "a").unwrap(), "after one");
        verbs::undo(w, "b").unwrap();
        assert_eq!(read(w, "b", "a").unwrap(), "of b");
    }
}

#[test]
fn the_commit_of_a_new_branch_is_the_one_its_origin_gives() {
    let base = base();
    let world = world(base.path());
    let w = world.w();
    // The import may still run: ids are not known yet, and become the same on both sides.
    write(w, MAIN, "a", "1");
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    w.settle().unwrap();
    let heads: Vec<_> = verbs::log(w, "b", true).unwrap();
    let main: Vec<_> = verbs::log(w, MAIN, true).unwrap();
    assert_eq!(heads[0].commit, main[0].commit);
    assert!(heads[0].commit.is_some() && heads[0].is_head);
    // The next commit of main has it as a further parent: the ancestor that both have.
    write(w, MAIN, "a", "2");
    checkpoint(w, MAIN, "next");
    let log = verbs::log(w, MAIN, true).unwrap();
    assert!(log[0].parents.contains(&heads[0].commit.unwrap()));
    assert_eq!(log[0].parents.len(), 2);
}

#[test]
fn labels_of_another_branch_can_be_shown() {
    let base = base();
    let world = world(base.path());
    let w = world.w();
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    write(w, "b", "a", "of b");
    let id = checkpoint(w, "b", "good");
    assert!(matches!(
        verbs::rollback(w, MAIN, &Target::Ref("good".into())),
        Err(Error::NoSuchRef(_))
    ));
    let back = verbs::rollback(w, MAIN, &Target::Ref("b:good".into())).unwrap();
    assert_eq!(back.commit, Some(id));
    assert_eq!(read(w, MAIN, "a").unwrap(), "of b");
    verbs::undo(w, MAIN).unwrap();
    assert!(read(w, MAIN, "a").is_err());
}

#[test]
fn a_deleted_branch_comes_back_by_the_id_of_its_last_commit() {
    let base = base();
    let mut world = world(base.path());
    let w = world.w();
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    write(w, "b", "a", "precious");
    let gone = verbs::delete_branch(w, "b", &|_, _| ()).unwrap();
    assert!(gone.only_here);
    assert!(matches!(
        verbs::delete_branch(w, "b", &|_, _| ()),
        Err(Error::NoSuchBranch(_))
    ));
    assert!(find(w, NodeId::ROOT, ".agentvfs/branches/b").is_err());
    world.kill().unwrap();
    let w = world.w();
    assert_eq!(verbs::list_branches(w).len(), 1);
    let id = gone.last.to_string();
    verbs::create_branch(w, "again", MAIN, Some(&id)).unwrap();
    assert_eq!(read(w, "again", "a").unwrap(), "precious");
    assert!(read(w, MAIN, "a").is_err());
}

#[test]
fn names_are_checked_and_main_stays() {
    let base = base();
    let world = world(base.path());
    let w = world.w();
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    let bad = |r: Result<Created>| r.unwrap_err();
    assert!(matches!(
        bad(verbs::create_branch(w, "b", MAIN, None)),
        Error::BranchExists(_)
    ));
    assert!(matches!(
        bad(verbs::create_branch(w, "../x", MAIN, None)),
        Error::BadName { .. }
    ));
    assert!(matches!(
        bad(verbs::create_branch(w, "c", "no", None)),
        Error::NoSuchBranch(_)
    ));
    assert!(matches!(
        bad(verbs::create_branch(w, "c", MAIN, Some("no"))),
        Error::NoSuchRef(_)
    ));
    assert!(matches!(
        verbs::delete_branch(w, MAIN, &|_, _| ()),
        Err(Error::MainBranch)
    ));
    assert!(matches!(
        verbs::rename_branch(w, MAIN, "x"),
        Err(Error::MainBranch)
    ));
    assert!(matches!(
        verbs::rename_branch(w, "b", MAIN),
        Err(Error::BranchExists(_))
    ));
    verbs::rename_branch(w, "b", "c").unwrap();
    assert!(find(w, NodeId::ROOT, ".agentvfs/branches/b").is_err());
    assert_eq!(read(w, "c", "src/0.txt").unwrap(), "base 0");
}

#[test]
fn nothing_moves_between_branches_or_into_what_is_not_a_tree() {
    let base = base();
    let world = world(base.path());
    let w = world.w();
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    let (m, b) = (root(w, MAIN), root(w, "b"));
    let moved = w.rename(m, b"src", b, b"src2", RenameFlags::default(), Wait::Allowed);
    assert!(matches!(moved, Err(Error::CrossDevice)));
    let who = Caller::default();
    let top = find(w, NodeId::ROOT, ".agentvfs").unwrap();
    let made = w.mkdir(&who, top, b"x", 0o755, Wait::Allowed);
    assert!(matches!(made, Err(Error::NotPermitted)));
    let branches = find(w, top, "branches").unwrap();
    assert!(matches!(
        w.rmdir(branches, b"b", Wait::Allowed),
        Err(Error::NotPermitted)
    ));
    assert!(w.rmdir(NodeId::ROOT, b".agentvfs", Wait::Allowed).is_err());
}

#[test]
fn a_snapshot_shows_its_commit_and_takes_no_change() {
    let base = base();
    let world = world(base.path());
    let w = world.w();
    write(w, MAIN, "a", "then");
    let id = checkpoint(w, MAIN, "then");
    write(w, MAIN, "a", "now");
    for name in ["then".to_owned(), id.to_string()[..12].to_owned()] {
        let dir = find(w, NodeId::ROOT, &format!(".agentvfs/snapshots/{name}")).unwrap();
        let a = find(w, dir, "a").unwrap();
        assert_eq!(w.read(a, 0, 100, Wait::Allowed).unwrap(), b"then");
        let wrote = w.write(a, 0, b"x", WriteFlags::default(), Wait::Allowed);
        assert!(matches!(wrote, Err(Error::ReadOnly)));
        let gone = w.unlink(dir, b"a", Wait::Allowed);
        assert!(matches!(gone, Err(Error::ReadOnly)));
    }
    assert!(find(w, NodeId::ROOT, ".agentvfs/snapshots/nothing").is_err());
}

#[test]
fn a_hundred_branches_cost_next_to_nothing_on_disk() {
    let base = base();
    let mut world = world(base.path());
    let w = world.w();
    w.settle().unwrap();
    w.seal().unwrap();
    for n in 0..100 {
        let name = format!("b{n}");
        verbs::create_branch(w, &name, MAIN, None).unwrap();
        write(w, &name, "mine", &name);
    }
    for n in 0..100 {
        let name = format!("b{n}");
        assert_eq!(read(w, &name, "mine").unwrap(), name);
    }
    world.kill().unwrap();
    let w = world.w();
    for n in (0..100).step_by(7) {
        let name = format!("b{n}");
        assert_eq!(read(w, &name, "mine").unwrap(), name);
    }
}
