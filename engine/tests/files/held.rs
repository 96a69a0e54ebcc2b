//! What the kernel holds while the live tree is switched, without a mount: directories that it has removed,
//! sizes that it takes files for, pages and writes that come late.
#![allow(clippy::unwrap_used)]

use crate::holding::*;
use engine::types::{RenameFlags, SetAttr};
use engine::verbs;
use engine::{Caller, Error, KernelCache, NodeId, Target, Wait, WriteFlags};
use parking_lot::Mutex;
use std::sync::Arc;

#[test]
fn a_directory_that_the_kernel_removed_comes_back_as_another_node_with_the_same_number() {
    let world = World::new();
    let dir = world.mkdir(ROOT, "d");
    let inner = world.mkdir(dir.node, "inner");
    let over = world.mkdir(ROOT, "over");
    let file = world.file(inner.node, "f", b"x");
    world.checkpoint("whole");
    let remove = || {
        let (d, over) = (world.look(ROOT, "d").node, world.look(ROOT, "over").node);
        let inner = world.look(d, "inner").node;
        world.w.unlink(inner, b"f", Wait::Allowed).unwrap();
        world.rmdir(d, "inner");
        world.rmdir(ROOT, "d");
        let empty = world.mkdir(ROOT, "empty").node;
        let flags = RenameFlags::default();
        let renamed = world
            .w
            .rename(ROOT, b"empty", ROOT, b"over", flags, Wait::Allowed);
        renamed.unwrap();
        world.rmdir(ROOT, "over");
        for (node, n) in [(empty, 1), (over, 1), (inner, 1), (d, 1)] {
            world.w.forget(node, n);
        }
    };
    for way in 0..3 {
        let held = [world.look(ROOT, "d"), world.look(ROOT, "over")];
        let held_inner = world.look(held[0].node, "inner");
        remove();
        match way {
            0 => world.rollback("whole"),
            1 => drop(verbs::restore(
                &world.w,
                MAIN,
                &Target::Ref("whole".into()),
                &[b"d".to_vec(), b"over".to_vec()],
            )),
            _ => drop(verbs::rollback(&world.w, MAIN, &Target::Head)),
        }
        let now = [world.look(ROOT, "d"), world.look(ROOT, "over")];
        let now_inner = world.look(now[0].node, "inner");
        for (was, is) in [
            (held[0], now[0]),
            (held[1], now[1]),
            (held_inner, now_inner),
        ] {
            assert_ne!(was.node, is.node, "way {way}");
            assert_eq!(was.ino, is.ino, "way {way}");
        }
        let back = world.look(now_inner.node, "f").node;
        assert_eq!((back, world.read(back).as_str()), (file, "x"));
    }
    assert_eq!([dir.ino, inner.ino, over.ino], {
        let d = world.look(ROOT, "d");
        [
            d.ino,
            world.look(d.node, "inner").ino,
            world.look(ROOT, "over").ino,
        ]
    });
    // A restart finds the numbers that it left.
    let before = world.look(ROOT, "d");
    let world = world.reopen();
    let after = world.look(ROOT, "d");
    assert_eq!((before.node, before.ino), (after.node, after.ino));
    world.end();
}

#[test]
fn a_directory_that_the_kernel_did_not_remove_or_has_forgotten_comes_back_as_the_same_node() {
    let world = World::new();
    let dir = world.mkdir(ROOT, "d").node;
    world.checkpoint("with");
    verbs::remove_path(&world.w, MAIN, b"d", true).unwrap();
    world.rollback("with");
    assert_eq!(world.look(ROOT, "d").node, dir, "removed by path");
    world.rmdir(ROOT, "d");
    world.w.forget(dir, 2);
    world.rollback("with");
    assert_eq!(world.look(ROOT, "d").node, dir, "forgotten");
    world.rmdir(ROOT, "d");
    world.checkpoint("without");
    world.rollback("with");
    let fresh = world.look(ROOT, "d").node;
    assert_ne!(fresh, dir, "held");
    for _ in 0..2 {
        world.rollback("without");
        assert!(world.w.lookup(ROOT, b"d", Wait::Allowed).is_err());
        verbs::undo(&world.w, MAIN).unwrap();
        assert_eq!(world.look(ROOT, "d").node, fresh, "removed by a rollback");
    }
    world.end();
}

#[test]
fn what_is_appended_with_an_old_end_goes_to_the_true_one() {
    let world = World::new();
    let log = world.file(ROOT, "log", b"one\n");
    world.checkpoint("one");
    // The kernel takes the file for longer, then for shorter, than it is.
    for stale in [8, 0] {
        world.resize(log, stale);
        world.rollback("one");
        world.write(log, stale, b"two\n", APPEND);
        world.write(log, stale + 4, b"three\n", APPEND);
        assert_eq!(world.read(log), "one\ntwo\nthree\n");
        // Once it has the right end in mind it is believed: another write(2) is where it says.
        world.write(log, 14, b"four\n", APPEND);
        world.write(log, 0, b"ONE\n", APPEND);
        assert_eq!(world.read(log), "ONE\ntwo\nthree\nfour\n");
        world.rollback("one");
    }
    world.end();
}

#[test]
fn an_append_that_comes_in_parts_is_whole_in_what_was_replaced() {
    let world = World::new();
    let log = world.file(ROOT, "log", b"one\n");
    for (back, label) in [
        ("one\n", "short"),
        ("one\nand some more of it\n", "long"),
        ("1\n2\n34\n", "same"),
    ] {
        world.resize(log, 0);
        world.write(log, 0, back.as_bytes(), CALL);
        world.checkpoint(label);
        world.resize(log, 0);
        world.write(log, 0, b"zwei\n", APPEND);
        world.write(log, 5, b"dr", APPEND);
        let other = WriteFlags {
            thread: 8,
            ..APPEND
        };
        during(&world, log, move |w| {
            for (at, text, flags) in [
                (7, "e", APPEND),
                (8, "i\n", APPEND),
                (10, "vier\n", other),
                (15, "fünf\n", APPEND),
            ] {
                let written = w.write(log, at, text.as_bytes(), flags, Wait::Allowed);
                assert_eq!(written.unwrap() as usize, text.len());
            }
        });
        world.rollback(label);
        assert_eq!(world.read(log), format!("{back}vier\nfünf\n"));
        assert_eq!(world.undone("log"), "zwei\ndrei\n");
    }
    let world = world.reopen();
    assert_eq!(world.undone("log"), "zwei\ndrei\n");
    world.end();
}

#[test]
fn pages_with_a_wrong_end_or_with_misplaced_data_bring_neither_into_the_file() {
    let world = World::new();
    let file = world.file(ROOT, "file", b"12345678");
    world.checkpoint("short");
    world.resize(file, 20);
    world.rollback("short");
    // A mapping's page, as long as the kernel takes the file to be, with an append in the wrong place.
    world.write(file, 0, b"abcdefghijklmnopqrst", PAGE);
    assert_eq!(world.read(file), "abcdefgh");
    world.resize(file, 2);
    world.rollback("short");
    world.write(file, 2, b"+++", APPEND);
    assert_eq!(world.read(file), "12345678+++");
    world.end();
}

#[test]
fn a_write_to_a_file_that_is_being_removed_is_in_what_was_replaced() {
    let world = World::new();
    world.checkpoint("without");
    let file = world.file(ROOT, "late", b"one\n");
    during(&world, file, move |w| {
        let written = w.write(file, 4, b"two\n", APPEND, Wait::Allowed);
        assert_eq!(written.unwrap(), 4);
        let written = w.write(file, 8, b"three\n", APPEND, Wait::Allowed);
        assert_eq!(written.unwrap(), 6);
        let emptied = |by_path| {
            let set = SetAttr {
                size: Some(2),
                by_path,
                ..SetAttr::default()
            };
            w.setattr(&Caller::default(), file, &set, Wait::Allowed)
        };
        // Who came by a path looks it up again; a descriptor is that of a file without a name.
        assert!(matches!(emptied(true), Err(Error::Stale)));
        assert_eq!(emptied(false).unwrap().size, 2);
    });
    world.rollback("without");
    assert!(world.w.lookup(ROOT, b"late", Wait::Allowed).is_err());
    assert_eq!(world.read(file), "on");
    assert_eq!(world.undone("late"), "one\ntwo\nthree\n");
    let world = world.reopen();
    assert_eq!(world.undone("late"), "one\ntwo\nthree\n");
    world.end();
}

/// A kernel that still has something to bring before a switch, and a write(2) that ends only when it is waited
/// for.
#[derive(Default)]
struct Busy {
    /// What it brings when it is told to flush.
    dirty: Mutex<Option<Call>>,
    /// The end of the write(2).
    rest: Mutex<Option<Call>>,
    /// Of which files the writers were waited for.
    awaited: Mutex<Vec<Vec<u8>>>,
}

type Call = Box<dyn FnOnce() + Send>;

impl KernelCache for Busy {
    fn flush_dirty(&self) {
        let dirty = self.dirty.lock().take();
        dirty.into_iter().for_each(|call| call());
    }

    fn inval_inode(&self, _node: NodeId) {}

    fn wait_for_writers(&self, paths: Vec<Vec<u8>>) -> Vec<bool> {
        let rest = self.rest.lock().take();
        rest.into_iter().for_each(|call| call());
        let over = vec![true; paths.len()];
        self.awaited.lock().extend(paths);
        over
    }

    fn inval_entry(&self, _parent: NodeId, _name: &[u8]) {}

    fn inval_all_entries(&self) -> bool {
        false
    }
}

/// A write to be made later.
fn later(world: &World, node: NodeId, at: u64, data: &'static [u8], flags: WriteFlags) -> Call {
    let w = Arc::downgrade(&world.w);
    Box::new(move || {
        let w = w.upgrade().unwrap();
        let written = w.write(node, at, data, flags, Wait::Allowed).unwrap();
        assert_eq!(written as usize, data.len());
    })
}

#[test]
fn what_the_kernel_held_before_a_switch_is_in_what_was_replaced() {
    let world = World::new();
    let file = world.file(ROOT, "file", b"of the checkpoint");
    let kernel = Arc::new(Busy::default());
    world.w.set_kernel_cache(kernel.clone());
    world.checkpoint("c");
    // The live tree is what the checkpoint is, but for a page that the kernel has not sent yet.
    let dirty = || *kernel.dirty.lock() = Some(later(&world, file, 0, b"stored ", PAGE));
    let restore = || {
        let (of, path) = (Target::Ref("c".into()), b"file".to_vec());
        verbs::restore(&world.w, MAIN, &of, &[path]).unwrap();
    };
    let switches: [&dyn Fn(); 2] = [&|| world.rollback("c"), &restore];
    for switch in switches {
        dirty();
        switch();
        assert!(kernel.dirty.lock().is_none(), "it was not asked for pages");
        assert_eq!(world.read(file), "of the checkpoint");
        assert_eq!(world.undone("file"), "stored checkpoint");
    }
    dirty();
    world.checkpoint("d");
    world.rollback("c");
    world.rollback("d");
    assert_eq!(world.read(file), "stored checkpoint");
    world.end();
}

#[test]
fn a_switch_waits_until_the_append_that_it_met_has_ended() {
    let world = World::new();
    let log = world.file(ROOT, "log", b"one\n");
    world.checkpoint("short");
    world.resize(log, 0);
    world.write(log, 0, b"zwei\n", APPEND);
    world.write(log, 5, b"dr", APPEND);
    let kernel = Arc::new(Busy::default());
    world.w.set_kernel_cache(kernel.clone());
    *kernel.rest.lock() = Some(later(&world, log, 7, b"ei\n", APPEND));
    world.rollback("short");
    assert_eq!(*kernel.awaited.lock(), [b"log".to_vec()]);
    // What comes now began after the switch, wherever it goes on.
    world.write(log, 10, b"vier\n", APPEND);
    assert_eq!(world.read(log), "one\nvier\n");
    assert_eq!(world.undone("log"), "zwei\ndrei\n");
    let world = world.reopen();
    assert_eq!(world.undone("log"), "zwei\ndrei\n");
    world.end();
}
