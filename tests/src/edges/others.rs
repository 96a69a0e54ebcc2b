//! Attributes, access lists, figures, and what is refused.

use super::{Script, short};
use crate::user::{User, act_as};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, StatxFlags, Timespec, Timestamps, Uid, XattrFlags};
use std::os::fd::AsFd;
use std::path::PathBuf;

const ALICE: User = User {
    uid: 1501,
    gid: 1501,
    groups: &[],
};

/// `UTIME_NOW`, `UTIME_OMIT` (linux/stat.h).
const NOW: i64 = (1 << 30) - 1;
const OMIT: i64 = (1 << 30) - 2;

pub(super) fn play(script: &mut Script) {
    modes(script);
    times(script);
    attributes(script);
    lists(script);
    set_id_bits(script);
    refused(script);
}

/// The path of a name, for calls that take no directory.
fn path(script: &Script, name: &str) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}/{name}", script.dir.as_raw_fd()))
}

fn modes(script: &mut Script) {
    drop(script.make("mode"));
    for bits in [0, 0o7777, 0o1644, 0o4755, 0o2745, 0o600] {
        let mode = Mode::from_raw_mode(bits);
        let done = rustix::fs::chmodat(&script.dir, "mode", mode, AtFlags::empty());
        script.say(&format!("chmod {bits:o}"), done);
        script.stat("mode");
    }
    let owners = [
        (Some(1), None),
        (None, Some(2)),
        (Some(0), Some(0)),
        (None, None),
    ];
    for (uid, gid) in owners {
        let ids = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        let done = rustix::fs::chownat(&script.dir, "mode", ids.0, ids.1, AtFlags::empty());
        script.say(&format!("chown {uid:?} {gid:?}"), done);
        script.stat("mode");
    }
}

fn times(script: &mut Script) {
    drop(script.make("time"));
    let moments = [
        (0, 0),
        (1, 999_999_999),
        (-1, 0),
        (-86_400, 0),
        (-(1 << 40), 0),
        (1 << 40, 5),
        (i64::MAX, 999_999_999),
        (0, NOW),
        (0, OMIT),
        (5, 1_000_000_000),
    ];
    for (sec, nsec) in moments {
        let time = |sec| Timespec {
            tv_sec: sec,
            tv_nsec: nsec as _,
        };
        let times = Timestamps {
            last_access: time(sec),
            last_modification: time(sec / 2),
        };
        let done = rustix::fs::utimensat(&script.dir, "time", &times, AtFlags::empty());
        script.say(&format!("utimens {sec} {nsec}"), done);
        script.stat("time");
    }
    let stat = rustix::fs::statx(&script.dir, "time", AtFlags::empty(), StatxFlags::all());
    script.say(
        "statx",
        stat.map(|s| (s.stx_mask, s.stx_attributes, s.stx_btime.tv_sec)),
    );
}

fn attributes(script: &mut Script) {
    drop(script.make("attributes"));
    let file = path(script, "attributes");
    let long = vec![b'v'; 65_536];
    let longer = vec![b'v'; 65_537];
    let values: [&[u8]; 5] = [b"", b"value", b"\0\xff", &long, &longer];
    let names = [
        "user.a",
        "user.",
        "user",
        "trusted.t",
        "security.s",
        "system.x",
        "other.y",
        "",
    ];
    let too_long = format!("user.{}", "n".repeat(251));
    for name in names.into_iter().chain([&*too_long]) {
        for (value, flags) in values.into_iter().zip([2, 1, 1, 0, 0]) {
            let flags = XattrFlags::from_bits_retain(flags);
            let set = rustix::fs::setxattr(&file, name, value, flags);
            script.say(&format!("setxattr {} {}", short(name), value.len()), set);
            for room in [0, 1, 70_000] {
                let mut buffer = vec![0; room];
                let got = rustix::fs::getxattr(&file, name, &mut buffer[..]);
                script.say("getxattr", got);
            }
        }
    }
    for room in [0, 5, 70_000] {
        let mut buffer = vec![0; room];
        let got = rustix::fs::listxattr(&file, &mut buffer[..]);
        script.say("listxattr", (got, buffer.get(..60).map(<[u8]>::to_vec)));
    }
    for name in ["user.a", "user.a", "user.missing"] {
        script.say("removexattr", rustix::fs::removexattr(&file, name));
    }
}

/// An access list: what one user beside the owner may do.
fn list(user: u32, perm: u16) -> Vec<u8> {
    let none = u32::MAX;
    let entries = [
        (1u16, 7, none),
        (2, perm, user),
        (4, 4, none),
        (16, 7, none),
        (32, 0, none),
    ];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(perm.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

fn lists(script: &mut Script) {
    rustix::fs::mkdirat(&script.dir, "shared", Mode::from_raw_mode(0o755)).unwrap();
    let dir = path(script, "shared");
    for (name, value) in [
        ("system.posix_acl_access", list(1501, 7)),
        ("system.posix_acl_default", list(1501, 6)),
        ("system.posix_acl_access", vec![2, 0, 0, 0, 1]),
    ] {
        let set = rustix::fs::setxattr(&dir, name, &value, XattrFlags::empty());
        script.say(name, set);
        script.stat("shared");
    }
    drop(script.make("shared/made"));
    script.stat("shared/made");
    for name in ["shared", "shared/made"] {
        for list in ["access", "default"] {
            let mut value = [0; 200];
            let list = format!("system.posix_acl_{list}");
            let got = rustix::fs::getxattr(path(script, name), &*list, &mut value[..]);
            script.say(
                &format!("{list} of {name}"),
                got.map(|len| value[..len].to_vec()),
            );
        }
    }
    if !crate::mount::is_root() {
        return;
    }
    let opened = act_as(ALICE, || {
        let flags = OFlags::CREATE | OFlags::WRONLY;
        ["made", "new"].map(|name| script.open(&format!("shared/{name}"), flags).map(drop))
    });
    script.say("who the list lets in", opened);
}

/// What a write, a truncation and a new owner leave of them.
fn set_id_bits(script: &mut Script) {
    if !crate::mount::is_root() {
        return;
    }
    let by = |script: &Script, what: usize| {
        let file = script.open("bits", OFlags::WRONLY)?;
        match what {
            0 => rustix::io::write(&file, b"x").map(drop),
            1 => rustix::fs::ftruncate(&file, 3),
            2 => rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 10),
            _ => script
                .open("bits", OFlags::WRONLY | OFlags::TRUNC)
                .map(drop),
        }
    };
    for bits in [0o6777, 0o2767, 0o4666] {
        for what in 0..4 {
            drop(script.open("bits", OFlags::CREATE | OFlags::RDWR).unwrap());
            let reset = |script: &Script| {
                let mode = Mode::from_raw_mode(bits);
                rustix::fs::chmodat(&script.dir, "bits", mode, AtFlags::empty()).unwrap();
            };
            reset(script);
            let done = by(script, what);
            script.say(&format!("{what} by root"), done);
            script.stat("bits");
            reset(script);
            let done = act_as(ALICE, || by(script, what));
            script.say(&format!("{what} by another"), done);
            script.stat("bits");
        }
        let ids = (Some(Uid::from_raw(7)), None);
        rustix::fs::chownat(&script.dir, "bits", ids.0, ids.1, AtFlags::empty()).unwrap();
        script.stat("bits");
        rustix::fs::unlinkat(&script.dir, "bits", AtFlags::empty()).unwrap();
    }
}

/// Figures of the file system, and calls that it does not have.
fn refused(script: &mut Script) {
    let figures = rustix::fs::fstatvfs(&script.dir);
    script.say(
        "statvfs",
        figures.map(|s| (s.f_bsize, s.f_frsize, s.f_namemax)),
    );
    let kind = rustix::fs::fstatfs(&script.dir);
    script.say("statfs", kind.map(|s| (s.f_type, s.f_namelen, s.f_bsize)));
    let file = script.make("plain");
    let dir = script.dir.as_fd();
    let gave = [
        ("syncfs", rustix::fs::syncfs(&file)),
        ("fsync of a directory", rustix::fs::fsync(dir)),
        (
            "flags of an inode",
            rustix::fs::ioctl_getflags(&file).map(drop),
        ),
        ("clone", rustix::fs::ioctl_ficlone(&file, &file)),
        ("seals", rustix::fs::fcntl_get_seals(&file).map(drop)),
        (
            "advice",
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed),
        ),
    ];
    for (what, result) in gave {
        script.say(what, result);
    }
}
