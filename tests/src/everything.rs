//! A tree with one of everything that a commit promises to keep: names that are no text, holes, modes,
//! links, attributes, devices, times before 1970.

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// An access ACL: owner rwx, user 12 r-x, group r-x, mask r-x, others none (acl(5), version 2).
const ACL: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 5, 0, 12, 0, 0, 0, 4, 0, 5, 0, 255, 255, 255,
    255, 16, 0, 5, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];

/// Sets access and modification time of a name.
pub fn set_times(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds as _,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Makes one of everything below `root`.
pub fn one_of_everything(root: &Path) {
    let mode = |path: &str, mode| {
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    names(root);
    fs::write(root.join("script"), "#!/bin/sh\n").unwrap();
    mode("script", 0o755);
    fs::write(root.join("secret"), "x").unwrap();
    mode("secret", 0o400);
    fs::create_dir(root.join("sticky")).unwrap();
    mode("sticky", 0o1777);
    fs::create_dir_all(root.join("empty/of/all")).unwrap();
    links(root);
    attributes(root);
    crate::tree::sparse(
        &root.join("sparse"),
        1 << 20,
        &[
            (0, b"head"),
            (512 << 10, &[9; 4096]),
            ((1 << 20) - 3, b"end"),
        ],
    );
    crate::tree::sparse(&root.join("only-hole"), 300_000, &[]);
    fs::write(root.join("large"), crate::rng::Rng::new(5).bytes(1 << 20)).unwrap();
    nodes(root);
    set_times(&root.join("script"), -86_400, 123_456_789);
    set_times(&root.join("secret"), 4_200_000_000, 1);
    set_times(&root.join("empty/of"), 1_000_000_000, 999_999_999);
}

fn names(root: &Path) {
    let long = "n".repeat(255);
    for name in [
        &b"not-\xff\xfe-utf8"[..],
        long.as_bytes(),
        b"with\nnewline\tand \"quotes\"\\",
        b" ",
        b"-rf",
    ] {
        fs::write(root.join(OsStr::from_bytes(name)), name).unwrap();
    }
}

fn links(root: &Path) {
    fs::write(root.join("hard-1"), "shared").unwrap();
    fs::hard_link(root.join("hard-1"), root.join("empty/hard-2")).unwrap();
    fs::hard_link(root.join("hard-1"), root.join("hard-3")).unwrap();
    symlink("script", root.join("soft")).unwrap();
    symlink("no/such/thing", root.join("dangling")).unwrap();
    symlink("t".repeat(4000), root.join("long-target")).unwrap();
}

fn attributes(root: &Path) {
    let set = |path: &str, name: &str, value: &[u8]| {
        rustix::fs::lsetxattr(root.join(path), name, value, XattrFlags::empty()).unwrap();
    };
    set("script", "user.empty", b"");
    set("script", "user.binary", &[0, 1, 255]);
    set("sticky", "user.on-directory", b"yes");
    set("hard-1", "user.shared", b"by three names");
    set("script", "system.posix_acl_access", &ACL);
    set("sticky", "system.posix_acl_default", &ACL);
}

fn nodes(root: &Path) {
    let node = |name: &str, kind, device| {
        let mode = Mode::from_raw_mode(0o640);
        rustix::fs::mknodat(CWD, root.join(name), kind, mode, device).unwrap();
    };
    node("fifo", FileType::Fifo, 0);
    node("socket", FileType::Socket, 0);
    if crate::mount::is_root() {
        node("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
        node("whiteout", FileType::CharacterDevice, 0);
        node(
            "disk",
            FileType::BlockDevice,
            rustix::fs::makedev(259, 70_000),
        );
        rustix::fs::chown(root.join("fifo"), Some(rustix::fs::Uid::from_raw(12)), None).unwrap();
    }
}
