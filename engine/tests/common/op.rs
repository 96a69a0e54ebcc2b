//! Operations with everything random in them. What a number means (which directory, which name) is
//! decided when the operation is carried out, so every part of a sequence is a sequence.

use super::rng::Rng;

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    Create {
        dir: u32,
        name: u32,
        kind: u8,
        perm: u16,
    },
    /// A file without a name.
    Nameless {
        dir: u32,
        perm: u16,
    },
    Link {
        node: u32,
        dir: u32,
        name: u32,
    },
    Unlink {
        dir: u32,
        name: u32,
    },
    Rmdir {
        dir: u32,
        name: u32,
    },
    Rename {
        from: (u32, u32),
        to: (u32, u32),
        flags: u8,
    },
    Write {
        node: u32,
        at: u32,
        len: u32,
        seed: u32,
        kill: bool,
    },
    Truncate {
        node: u32,
        size: u32,
        root: bool,
    },
    Allocate {
        node: u32,
        at: u32,
        len: u32,
        how: u8,
    },
    Copy {
        src: u32,
        from: u32,
        dst: u32,
        at: u32,
        len: u32,
    },
    SetAttr {
        node: u32,
        what: u8,
        value: u32,
        root: bool,
    },
    SetXattr {
        node: u32,
        name: u8,
        len: u32,
        flags: u8,
    },
    RemoveXattr {
        node: u32,
        name: u8,
    },
    Lookup {
        dir: u32,
        name: u32,
    },
    Forget {
        node: u32,
        all: bool,
    },
    ReaddirPlus {
        dir: u32,
        room: u8,
    },
    Read {
        node: u32,
        at: u32,
        len: u32,
    },
    Fsync,
    Check,
    Checkpoint {
        label: u8,
        message: bool,
        meta: u8,
        wait: bool,
    },
    /// `page`: the kernel brings a dirty page of this file while it is invalidated.
    Rollback {
        how: u8,
        which: u32,
        page: Option<u32>,
    },
    Undo,
    Redo,
    Seal,
    Settle,
    Close {
        commit: bool,
    },
    Kill,
    Gc,
    KvSet {
        key: u8,
        value: u32,
        import: bool,
    },
    KvDelete {
        key: u8,
    },
    /// Makes a branch of main, or deletes it.
    Branch {
        which: u32,
    },
    /// Something is changed in another branch.
    Beside {
        which: u32,
        seed: u32,
    },
    /// Merges a branch into main.
    Merge {
        which: u32,
        keep: bool,
        dry: bool,
    },
    /// One path of another state.
    Restore {
        how: u8,
        which: u32,
        path: u32,
    },
    Resolve {
        which: u32,
        how: u8,
    },
    /// A tool call begins, or the one that runs ends.
    Call,
    UndoCall {
        which: u32,
    },
    Snapshot {
        which: u32,
    },
}

fn offset(rng: &mut Rng) -> u32 {
    match rng.below(4) {
        0 => rng.below(200) as u32,
        1 => rng.below(40_000) as u32,
        2 => (rng.below(200) * 4096) as u32,
        _ => rng.below(500_000) as u32,
    }
}

fn length(rng: &mut Rng) -> u32 {
    match rng.below(8) {
        0..=2 => 1 + rng.below(100) as u32,
        3..=4 => 1 + rng.below(9000) as u32,
        5..=6 => (1 + rng.below(16) as u32) * 4096,
        _ => 1 + rng.below(300_000) as u32,
    }
}

/// A random operation.
pub fn random(rng: &mut Rng) -> Op {
    match rng.below(100) {
        0..=34 => names(rng),
        35..=57 => data(rng),
        58..=62 => branching(rng),
        63..=70 => attributes(rng),
        71..=76 => keys(rng),
        77..=82 => kernel(rng),
        _ => control(rng),
    }
}

fn names(rng: &mut Rng) -> Op {
    let mut n = || rng.next() as u32;
    let (dir, name, node) = (n(), n(), n());
    let to = (n(), n());
    match rng.below(17) {
        16 => Op::Nameless {
            dir,
            perm: rng.below(0o10000) as u16,
        },
        0..=4 => Op::Create {
            dir,
            name,
            kind: rng.next() as u8,
            perm: rng.below(0o10000) as u16,
        },
        5..=6 => Op::Link { node, dir, name },
        7..=8 => Op::Unlink { dir, name },
        9..=10 => Op::Rmdir { dir, name },
        _ => Op::Rename {
            from: (dir, name),
            to,
            flags: rng.below(7) as u8,
        },
    }
}

fn data(rng: &mut Rng) -> Op {
    let (node, seed) = (rng.next() as u32, rng.next() as u32);
    let (at, len) = (offset(rng), length(rng));
    match rng.below(12) {
        0..=5 => Op::Write {
            node,
            at,
            len,
            seed,
            kill: rng.one_in(4),
        },
        6..=7 => Op::Truncate {
            node,
            size: if rng.one_in(4) { 0 } else { at },
            root: rng.one_in(2),
        },
        8..=9 => Op::Allocate {
            node,
            at,
            len,
            how: rng.below(5) as u8,
        },
        _ => Op::Copy {
            src: node,
            from: offset(rng),
            dst: rng.next() as u32,
            at,
            len,
        },
    }
}

fn attributes(rng: &mut Rng) -> Op {
    let node = rng.next() as u32;
    let name = rng.below(4) as u8;
    match rng.below(8) {
        0..=4 => Op::SetAttr {
            node,
            what: rng.next() as u8,
            value: rng.next() as u32,
            root: rng.one_in(2),
        },
        5..=6 => Op::SetXattr {
            node,
            name,
            len: rng.below(300) as u32,
            flags: rng.below(3) as u8,
        },
        _ => Op::RemoveXattr { node, name },
    }
}

fn keys(rng: &mut Rng) -> Op {
    let key = rng.next() as u8;
    match rng.below(4) {
        0 => Op::KvDelete { key },
        n => Op::KvSet {
            key,
            value: rng.next() as u32,
            import: n == 1,
        },
    }
}

fn kernel(rng: &mut Rng) -> Op {
    let (node, dir, name) = (rng.next() as u32, rng.next() as u32, rng.next() as u32);
    match rng.below(8) {
        0..=2 => Op::Lookup { dir, name },
        3..=4 => Op::Forget {
            node,
            all: rng.one_in(2),
        },
        5 => Op::ReaddirPlus {
            dir,
            room: 1 + rng.below(9) as u8,
        },
        6 => Op::Read {
            node,
            at: offset(rng),
            len: length(rng),
        },
        _ => Op::Fsync,
    }
}

fn branching(rng: &mut Rng) -> Op {
    let (which, n) = (rng.next() as u32, rng.next() as u32);
    match rng.below(24) {
        0..=2 => Op::Branch { which },
        3..=7 => Op::Beside { which, seed: n },
        8..=12 => Op::Merge {
            which,
            keep: !n.is_multiple_of(3),
            dry: n.is_multiple_of(7),
        },
        13..=15 => Op::Restore {
            how: rng.next() as u8,
            which,
            path: n,
        },
        16..=17 => Op::Resolve {
            which,
            how: n as u8,
        },
        18..=20 => Op::Call,
        21 => Op::UndoCall { which },
        _ => Op::Snapshot { which },
    }
}

fn control(rng: &mut Rng) -> Op {
    match rng.below(39) {
        0..=8 => Op::Checkpoint {
            label: rng.below(6) as u8,
            message: rng.one_in(4),
            meta: rng.below(6) as u8,
            wait: rng.one_in(3),
        },
        9..=16 => Op::Rollback {
            how: rng.next() as u8,
            which: rng.next() as u32,
            page: rng.one_in(3).then(|| rng.next() as u32),
        },
        17..=20 => Op::Undo,
        21..=23 => Op::Redo,
        24..=26 => Op::Seal,
        27..=28 => Op::Settle,
        29..=30 => Op::Close {
            commit: rng.one_in(2),
        },
        31..=33 => Op::Kill,
        34..=36 => Op::Gc,
        _ => Op::Check,
    }
}
