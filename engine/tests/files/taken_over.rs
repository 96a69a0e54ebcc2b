//! A workspace whose mount outlived its daemon, without a mount: what the kernel holds then, and what it has of before a
//! switch.
#![allow(clippy::unwrap_used)]

use crate::holding::*;
use engine::record::Outcome;
use engine::types::{RenameFlags, SetAttr};
use engine::{Attr, Caller, Error, Look, RequestId, Wait, within_request};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

#[test]
fn a_file_without_a_name_whose_making_was_not_answered_is_made_once_and_goes_when_forgotten() {
    let id = |unique| RequestId {
        connection: 7,
        unique,
    };
    let make = |world: &World, unique| {
        let who = Caller::default();
        let make = || world.w.tmpfile(&who, ROOT, 0o600, Wait::Allowed).unwrap();
        within_request(id(unique), make).node
    };
    let world = World::new();
    let (answered, lost) = (make(&world, 2), make(&world, 4));
    world.write(answered, 0, b"text", CALL);
    let world = world.taken_over(7);
    assert_eq!(world.w.outcome(ROOT, id(6)), None);
    let outcome = world.w.outcome(ROOT, id(4));
    assert_eq!(outcome, Some(Outcome::Inode(lost.nid().0)));
    let again = world.w.made_again(ROOT, None, lost.nid().0).unwrap();
    assert_eq!((again.node, again.nlink), (lost, 0));
    world.w.requests_settled();
    let held = [ROOT, answered, lost];
    world.w.settle_held(&mut |node, _| held.contains(&node));
    let named = world.w.link(answered, ROOT, b"named", Wait::Allowed);
    assert_eq!(
        (named.unwrap().node, world.read(answered)),
        (answered, "text".into())
    );
    world.w.forget(lost, 1);
    assert!(matches!(world.w.getattr(lost), Err(Error::Stale)));
    world.w.forget(answered, 2);
    assert_eq!(world.look(ROOT, "named").nlink, 1);
}

#[test]
fn what_was_made_and_not_answered_is_held_by_its_answer_alone() {
    let within = |unique, make: &dyn Fn() -> engine::Result<Attr>| {
        let connection = 7;
        within_request(RequestId { connection, unique }, make).unwrap()
    };
    let (who, wait) = (Caller::default(), Wait::Allowed);
    let world = World::new();
    let w = &world.w;
    let file = within(2, &|| w.mknod(&who, ROOT, b"file", 0o100600, 0, wait));
    let dir = within(4, &|| w.mkdir(&who, ROOT, b"dir", 0o700, wait));
    let link = within(6, &|| w.symlink(&who, ROOT, b"link", b"to", wait));
    let moved = within(8, &|| w.mknod(&who, ROOT, b"moved", 0o100600, 0, wait));
    let linked = within(10, &|| w.link(file.node, ROOT, b"linked", wait));
    assert_eq!(linked.node, file.node);
    w.unlink(ROOT, b"linked", wait).unwrap();
    let flags = RenameFlags::default();
    w.rename(ROOT, b"moved", dir.node, b"here", flags, wait)
        .unwrap();
    let world = world.taken_over(7);
    let again = |name: &str, made: &Attr| {
        let nid = made.node.nid().0;
        let again = world
            .w
            .made_again(ROOT, Some(name.as_bytes()), nid)
            .unwrap();
        assert_eq!(again.node, made.node);
    };
    again("file", &file);
    again("dir", &dir);
    again("link", &link);
    again("moved", &moved);
    world.w.requests_settled();
    world.w.settle_held(&mut |_, _| true);
    let (w, gone) = (&world.w, |node| {
        matches!(world.w.getattr(node), Err(Error::Stale))
    });
    w.unlink(dir.node, b"here", wait).unwrap();
    w.forget(moved.node, 1);
    assert!(!gone(moved.node), "somebody may have found it elsewhere");
    w.forget(moved.node, 1);
    assert!(gone(moved.node));
    for (made, name) in [(file, "file"), (link, "link")] {
        w.unlink(ROOT, name.as_bytes(), wait).unwrap();
        assert!(!gone(made.node), "{name} is held");
        w.forget(made.node, 1);
        assert!(gone(made.node), "{name} is held by nobody");
    }
    w.rmdir(ROOT, b"dir", wait).unwrap();
    w.forget(dir.node, 1);
    assert!(gone(dir.node));
}

#[test]
fn a_file_that_a_request_emptied_is_not_taken_for_one_that_it_made() {
    let id = RequestId {
        connection: 7,
        unique: 2,
    };
    let (who, wait) = (Caller::default(), Wait::Allowed);
    let world = World::new();
    let made = world.w.mknod(&who, ROOT, b"file", 0o100600, 0, wait);
    let file = made.unwrap().node;
    world.write(file, 0, b"text", CALL);
    let empty = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    within_request(id, || world.w.setattr(&who, file, &empty, wait)).unwrap();
    let world = world.taken_over(7);
    assert_eq!(world.w.outcome(ROOT, id), Some(Outcome::Done));
    assert_eq!(world.look(ROOT, "file").size, 0);
}

#[test]
fn what_is_held_again_before_an_older_forget_comes_stays_and_is_told_of_changes() {
    let world = World::new();
    let file = world.file(ROOT, "file", b"one");
    world.checkpoint("one");
    world.write(file, 0, b"two", CALL);
    world.w.settle().unwrap();
    let world = world.taken_over(7);
    // The kernel has forgotten it, and looked it up again; what came first is read last.
    assert_eq!(world.look(ROOT, "file").node, file);
    world.w.forget(file, 3);
    let told = Arc::new(AtomicBool::new(false));
    let tells = told.clone();
    during(&world, file, move |_| tells.store(true, Relaxed));
    world.rollback("one");
    assert!(told.load(Relaxed), "the kernel may have its pages");
    world.w.unlink(ROOT, b"file", Wait::Allowed).unwrap();
    assert_eq!(world.read(file), "one", "somebody may have it open");
}

#[test]
fn the_kernel_is_told_of_a_change_also_where_it_said_that_it_did_not_know_the_file() {
    let world = World::new();
    let file = world.file(ROOT, "file", b"one");
    world.checkpoint("one");
    world.write(file, 0, b"two", CALL);
    let world = world.taken_over(7);
    // An answer of the daemon before is on its way to its reader.
    world.w.settle_held(&mut |node, _| node == ROOT);
    let told = Arc::new(AtomicBool::new(false));
    let tells = told.clone();
    during(&world, file, move |_| tells.store(true, Relaxed));
    world.rollback("one");
    assert!(told.load(Relaxed));
}

#[test]
fn a_switch_counts_as_cut_off_until_the_kernel_has_dropped_what_it_had_of_before() {
    let world = World::new();
    let file = world.file(ROOT, "file", b"one");
    world.checkpoint("one");
    world.write(file, 0, b"two", CALL);
    world.rollback("one");
    world.w.settle().unwrap();
    let world = world.taken_over(7);
    assert!(!world.w.may_show_before(), "it had ended");
    world.write(file, 0, b"six", CALL);
    during(&world, file, |_| panic!("killed on purpose"));
    let killed = AssertUnwindSafe(|| world.rollback("one"));
    assert!(catch_unwind(killed).is_err());
    let world = world.taken_over(7);
    assert!(world.w.may_show_before());
    // What it replaced is not stored meanwhile: that would say that it had ended.
    world.w.settle().unwrap();
    let world = world.taken_over(7);
    assert!(world.w.may_show_before(), "nothing was dropped");
    let mut dropped = Vec::new();
    world.w.settle_held(&mut |node, look| {
        dropped.extend((look == Look::Drop).then_some(node));
        node.slot() == ROOT.slot()
    });
    assert!(dropped.contains(&file) && !world.w.may_show_before());
    world.w.settle().unwrap();
    let world = world.taken_over(7);
    assert!(!world.w.may_show_before());
    assert_eq!(world.read(file), "one");
    assert_eq!(world.undone("file"), "six");
}

#[test]
fn a_switch_that_stands_begins_no_segments() {
    let world = World::new();
    let file = world.file(ROOT, "file", b"one");
    world.checkpoint("one");
    world.write(file, 0, b"two", CALL);
    during(&world, file, |_| panic!("killed on purpose"));
    let killed = AssertUnwindSafe(|| world.rollback("one"));
    assert!(catch_unwind(killed).is_err());
    let world = world.taken_over(7);
    assert!(world.w.may_show_before());
    let before = world.segments();
    std::thread::scope(|scope| {
        let sealing = scope.spawn(|| world.w.seal());
        // Nothing tells when it has looked several times; too early is no failure.
        std::thread::sleep(Duration::from_millis(500));
        assert!(!sealing.is_finished());
        assert_eq!(world.segments(), before);
        world.w.settle_held(&mut |_, _| true);
        sealing.join().unwrap().unwrap();
    });
    assert_eq!(world.segments(), 1);
}
