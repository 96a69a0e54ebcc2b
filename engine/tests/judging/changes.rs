//! Every way to change something, and what it does to paths.

use super::common::by_path::find;
use super::common::world::MAIN;
use engine::{
    Caller, Fallocate, NodeId, RenameFlags, SetAttr, Wait, Workspace, WriteFile, WriteFlags, mode,
    verbs,
};

const W: Wait = Wait::Allowed;

/// A name, the change, and its touches.
pub type Change = (
    &'static str,
    fn(&Workspace) -> engine::Result<()>,
    &'static [&'static str],
);

pub fn at(w: &Workspace, path: &str) -> NodeId {
    find(w, MAIN, path).unwrap()
}

pub fn root(w: &Workspace) -> NodeId {
    super::common::by_path::root(w, MAIN)
}

fn who() -> Caller {
    Caller::default()
}

pub fn rename(
    w: &Workspace,
    from: (&str, &[u8]),
    to: (&str, &[u8]),
    flags: RenameFlags,
) -> engine::Result<()> {
    let dir = |path: &str| {
        if path.is_empty() {
            root(w)
        } else {
            at(w, path)
        }
    };
    w.rename(dir(from.0), from.1, dir(to.0), to.1, flags, W)
}

pub fn flags() -> RenameFlags {
    RenameFlags::default()
}

fn part(path: &str) -> WriteFile {
    WriteFile {
        path: path.into(),
        data: b"new".to_vec(),
        last: true,
        perm: 0o600,
        ..WriteFile::default()
    }
}

/// Requests of the kernel.
pub const REQUESTS: [Change; 24] = [
    (
        "mknod",
        |w| {
            w.mknod(&who(), root(w), b"a", mode::REG | 0o600, 0, W)
                .map(drop)
        },
        &["create a"],
    ),
    (
        "mkdir",
        |w| w.mkdir(&who(), at(w, "d"), b"a", 0o700, W).map(drop),
        &["create d/a"],
    ),
    (
        "symlink",
        |w| w.symlink(&who(), root(w), b"a", b"o", W).map(drop),
        &["symlink a"],
    ),
    (
        "tmpfile",
        |w| w.tmpfile(&who(), at(w, "d"), 0o600, W).map(drop),
        &["create "],
    ),
    (
        "link",
        |w| w.link(at(w, "o"), at(w, "d"), b"a", W).map(drop),
        &["linked o d/a"],
    ),
    (
        "link of two",
        |w| w.link(at(w, "d/f"), root(w), b"a", W).map(drop),
        &["linked d/f a", "linked d/g a"],
    ),
    ("unlink", |w| w.unlink(at(w, "d"), b"f", W), &["unlink d/f"]),
    ("rmdir", |w| w.rmdir(root(w), b"n", W), &["rmdir n"]),
    (
        "rename",
        |w| rename(w, ("", b"o"), ("d", b"p"), flags()),
        &["moved o d/p"],
    ),
    (
        "rename over",
        |w| rename(w, ("", b"o"), ("d", b"f"), flags()),
        &["moved o d/f", "unlink d/f"],
    ),
    (
        "rename over a directory",
        |w| rename(w, ("d", b"e"), ("", b"n"), flags()),
        &["moved d/e n", "moved d/e/x n/x", "rmdir n"],
    ),
    (
        "rename of a directory with another in it",
        |w| rename(w, ("", b"d"), ("", b"q"), flags()),
        &[
            "moved d q",
            "moved d/e q/e",
            "moved d/e/x q/e/x",
            "moved d/f q/f",
            "moved d/g q/g",
        ],
    ),
    (
        "exchange",
        |w| {
            rename(
                w,
                ("", b"o"),
                ("d", b"e"),
                RenameFlags {
                    exchange: true,
                    ..flags()
                },
            )
        },
        &["moved o d/e", "moved d/e o", "moved d/e/x o/x"],
    ),
    (
        "whiteout",
        |w| {
            rename(
                w,
                ("", b"o"),
                ("", b"p"),
                RenameFlags {
                    whiteout: Some(who()),
                    ..flags()
                },
            )
        },
        &["moved o p", "create o"],
    ),
    (
        "truncate",
        |w| {
            w.setattr(
                &who(),
                at(w, "d/f"),
                &SetAttr {
                    size: Some(0),
                    ..SetAttr::default()
                },
                W,
            )
            .map(drop)
        },
        &["truncate d/f", "truncate d/g"],
    ),
    (
        "chmod",
        |w| {
            w.setattr(
                &who(),
                at(w, "o"),
                &SetAttr {
                    perm: Some(0o600),
                    ..SetAttr::default()
                },
                W,
            )
            .map(drop)
        },
        &["setattr o"],
    ),
    (
        "chown",
        |w| {
            w.setattr(
                &who(),
                at(w, "o"),
                &SetAttr {
                    uid: Some(7),
                    ..SetAttr::default()
                },
                W,
            )
            .map(drop)
        },
        &["setattr o"],
    ),
    (
        "setxattr",
        |w| w.setxattr(&who(), at(w, "o"), b"user.b", b"2", 0, W),
        &["setxattr o"],
    ),
    (
        "removexattr",
        |w| w.removexattr(&who(), at(w, "o"), b"user.a", W),
        &["setxattr o"],
    ),
    (
        "write",
        |w| {
            w.write(at(w, "d/f"), 0, b"x", WriteFlags::default(), W)
                .map(drop)
        },
        &["write d/f", "write d/g"],
    ),
    (
        "late page",
        |w| {
            w.write(
                at(w, "o"),
                0,
                b"x",
                WriteFlags {
                    from_cache: true,
                    ..WriteFlags::default()
                },
                W,
            )
            .map(drop)
        },
        &["write o"],
    ),
    (
        "fallocate",
        |w| {
            w.fallocate(
                at(w, "o"),
                0,
                99,
                Fallocate::Allocate { keep_size: false },
                W,
            )
        },
        &["write o"],
    ),
    (
        "punch",
        |w| w.fallocate(at(w, "o"), 0, 3, Fallocate::PunchHole, W),
        &["write o"],
    ),
    (
        "copy",
        |w| {
            w.copy_range(at(w, "o"), 0, at(w, "d/e/x"), 0, 4, W)
                .map(drop)
        },
        &["write d/e/x"],
    ),
];

/// Those of the control protocol.
pub const BY_PATH: [Change; 10] = [
    (
        "fs.write",
        |w| verbs::write_file(w, MAIN, &who(), &part("o")).map(drop),
        &["write o"],
    ),
    (
        "fs.write of a new file",
        |w| verbs::write_file(w, MAIN, &who(), &part("a")).map(drop),
        &["create a"],
    ),
    (
        "fs.mkdir",
        |w| verbs::make_dir(w, MAIN, &who(), b"a/b", true),
        &["create a"],
    ),
    (
        "fs.remove",
        |w| verbs::remove_path(w, MAIN, b"d", true),
        &["unlink d/f"],
    ),
    (
        "fs.rename",
        |w| verbs::rename_path(w, MAIN, b"o", b"n/o"),
        &["moved o n/o"],
    ),
    (
        "fs.copy",
        |w| verbs::copy_file(w, MAIN, &who(), (b"o", b"a"), false).map(drop),
        &["create a"],
    ),
    (
        "fs.symlink",
        |w| verbs::make_link(w, MAIN, &who(), b"a", b"o"),
        &["symlink a"],
    ),
    (
        "fs.truncate",
        |w| verbs::set_size(w, MAIN, &who(), b"o", 2),
        &["truncate o"],
    ),
    (
        "fs.chmod",
        |w| verbs::set_perm(w, MAIN, &who(), b"o", 0o600),
        &["setattr o"],
    ),
    (
        "kv.set",
        |w| verbs::kv_set(w, MAIN, "k", "1").map(drop),
        &["kv "],
    ),
];
