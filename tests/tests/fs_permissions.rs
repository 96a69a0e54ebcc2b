//! Who may do what: several users on one mount, access control lists, set-id and sticky bits.

#![allow(clippy::unwrap_used)]

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use tests::env::Env;
use tests::user::{User, act_as};

const ALICE: User = User {
    uid: 1601,
    gid: 1601,
    groups: &[],
};
const BOB: User = User {
    uid: 1602,
    gid: 1602,
    groups: &[1601],
};
/// In none of their groups.
const OTHER: User = User {
    uid: 1603,
    gid: 1603,
    groups: &[],
};

/// Capabilities of a program (linux/capability.h, revision 2): one word of flags, two pairs of sets.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A mount, its path, and a descriptor of it: others cannot reach it by its path, which leads
/// through a directory of root's.
fn mounted() -> Option<(Env, PathBuf, OwnedFd)> {
    let env = Env::as_root()?;
    let root = env.start();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(&root, flags, Mode::empty()).unwrap();
    Some((env, root, dir))
}

fn open(dir: &OwnedFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(
        dir,
        name,
        flags | OFlags::CLOEXEC,
        Mode::from_raw_mode(0o644),
    )
}

fn write(dir: &OwnedFd, name: &str) -> Result<usize, Errno> {
    rustix::io::write(open(dir, name, OFlags::WRONLY)?, b"x")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A list: owner, one further user, group, mask, others (acl(5), version 2).
fn list(user: u32, perm: u16) -> Vec<u8> {
    let entries = [
        (1u16, 6u16, u32::MAX),
        (2, perm, user),
        (4, 0, u32::MAX),
        (16, 7, u32::MAX),
        (32, 0, u32::MAX),
    ];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(perm.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

#[test]
fn users_are_held_apart_by_mode_bits_and_groups() {
    let Some((_env, root, dir)) = mounted() else {
        return;
    };
    let make = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    act_as(ALICE, || open(&dir, "hers", make).unwrap());
    let stat = fs::metadata(root.join("hers")).unwrap();
    assert_eq!((stat.uid(), stat.gid()), (1601, 1601));
    set_mode(&root.join("hers"), 0o640);
    // Bob is in her group.
    assert!(act_as(BOB, || open(&dir, "hers", OFlags::RDONLY)).is_ok());
    assert_eq!(act_as(BOB, || write(&dir, "hers")), Err(Errno::ACCESS));
    set_mode(&root.join("hers"), 0o600);
    let open_it = || open(&dir, "hers", OFlags::RDONLY).map(drop);
    assert_eq!(act_as(BOB, open_it), Err(Errno::ACCESS));
    let chmod = || rustix::fs::chmodat(&dir, "hers", Mode::from_raw_mode(0o666), AtFlags::empty());
    assert_eq!(act_as(BOB, chmod), Err(Errno::PERM));
    act_as(ALICE, chmod).unwrap();
    let give = || {
        let bob = Some(Uid::from_raw(BOB.uid));
        rustix::fs::chownat(&dir, "hers", bob, None, AtFlags::empty())
    };
    assert_eq!(act_as(ALICE, give), Err(Errno::PERM));
}

#[test]
fn access_lists_are_enforced_and_inherited() {
    let Some((_env, root, dir)) = mounted() else {
        return;
    };
    let file = root.join("file");
    fs::write(&file, "secret").unwrap();
    set_mode(&file, 0o600);
    let set = |path: &Path, name: &str, value: &[u8]| {
        rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
    };
    let may_read =
        |user: User, name: &str| act_as(user, || open(&dir, name, OFlags::RDONLY)).is_ok();
    assert!(!may_read(ALICE, "file"));
    set(&file, "system.posix_acl_access", &list(ALICE.uid, 4));
    assert!(may_read(ALICE, "file") && !may_read(BOB, "file"));
    assert_eq!(act_as(ALICE, || write(&dir, "file")), Err(Errno::ACCESS));
    assert_eq!(mode(&file), 0o670, "the mask shows as the group's bits");
    set_mode(&file, 0o600);
    assert!(!may_read(ALICE, "file"), "chmod takes the mask away");
    let inner = root.join("dir");
    fs::create_dir(&inner).unwrap();
    set_mode(&inner, 0o755);
    set(&inner, "system.posix_acl_default", &list(BOB.uid, 6));
    fs::write(inner.join("new"), "x").unwrap();
    fs::create_dir(inner.join("deeper")).unwrap();
    assert!(may_read(BOB, "dir/new") && !may_read(ALICE, "dir/new"));
    let mut value = [0; 100];
    let name = "system.posix_acl_default";
    let count = rustix::fs::getxattr(inner.join("deeper"), name, &mut value[..]).unwrap();
    assert_eq!(value[..count], list(BOB.uid, 6));
}

#[test]
fn set_id_bits_and_capabilities_go_when_another_writes_or_the_owner_changes() {
    let Some((_env, root, dir)) = mounted() else {
        return;
    };
    let file = root.join("file");
    let capable = || {
        let mut value = [0; 64];
        rustix::fs::getxattr(&file, "security.capability", &mut value[..]).is_ok()
    };
    let again = || {
        let _ = fs::remove_file(&file);
        fs::write(&file, "program").unwrap();
        set_mode(&file, 0o6777);
        let none = XattrFlags::empty();
        rustix::fs::setxattr(&file, "security.capability", &CAPABILITY, none).unwrap();
        assert!(capable());
    };
    again();
    act_as(ALICE, || write(&dir, "file")).unwrap();
    assert_eq!((mode(&file), capable()), (0o777, false), "written");
    again();
    act_as(ALICE, || open(&dir, "file", OFlags::WRONLY | OFlags::TRUNC)).unwrap();
    assert_eq!((mode(&file), capable()), (0o777, false), "truncated");
    again();
    chown(&file, Some(5), Some(6)).unwrap();
    assert_eq!((mode(&file), capable()), (0o777, false), "owner changed");
    again();
    set_mode(&file, 0o6644);
    chown(&file, Some(5), Some(6)).unwrap();
    assert_eq!(
        mode(&file),
        0o2644,
        "without group execution it means locking"
    );
    again();
    write(&dir, "file").unwrap();
    assert_eq!((mode(&file), capable()), (0o6777, false), "written by root");
}

/// Does something as root without the right to keep set-id bits (CAP_FSETID).
fn without_fsetid<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let act = || {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::FSETID);
        set_capabilities(None, sets).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(act).join().unwrap())
}

#[test]
fn set_id_bits_are_kept_by_those_who_have_the_capability_not_by_root() {
    let Some((_env, root, dir)) = mounted() else {
        return;
    };
    let file = root.join("file");
    fs::write(&file, "program").unwrap();
    let truncate = || open(&dir, "file", OFlags::WRONLY | OFlags::TRUNC).map(drop);
    set_mode(&file, 0o6777);
    truncate().unwrap();
    assert_eq!(mode(&file), 0o6777, "truncated with the capability");
    without_fsetid(truncate).unwrap();
    assert_eq!(mode(&file), 0o777, "truncated without it");
    set_mode(&file, 0o6777);
    without_fsetid(|| write(&dir, "file")).unwrap();
    assert_eq!(mode(&file), 0o777, "written to without it");
    // A list takes the bit away where the caller is not in the file's group.
    chown(&file, None, Some(1700)).unwrap();
    let name = "system.posix_acl_access";
    let share = || rustix::fs::setxattr(&file, name, &list(BOB.uid, 4), XattrFlags::empty());
    set_mode(&file, 0o2770);
    share().unwrap();
    assert_eq!(mode(&file) & 0o2000, 0o2000, "shared with the capability");
    set_mode(&file, 0o2770);
    without_fsetid(share).unwrap();
    assert_eq!(mode(&file) & 0o2000, 0, "shared without it");
}

/// Bits that are left of a file of a group after a call by somebody.
fn bits_left(dir: &OwnedFd, path: &Path, bits: u32, who: User, call: usize) -> u32 {
    let _ = fs::remove_file(path);
    fs::write(path, "four").unwrap();
    chown(path, None, Some(ALICE.gid)).unwrap();
    set_mode(path, bits);
    act_as(who, || {
        let file = open(dir, "locked", OFlags::WRONLY).unwrap();
        match call {
            0 => rustix::io::write(&file, b"x").map(drop),
            1 => rustix::fs::ftruncate(&file, 2),
            2 => rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 9),
            _ => open(dir, "locked", OFlags::WRONLY | OFlags::TRUNC).map(drop),
        }
    })
    .unwrap();
    mode(path)
}

/// Bits and groups of what somebody makes with set-group-id in a directory of a group that gives that group on.
fn made_in(top: &Path, dir: &OwnedFd, who: User) -> Vec<(u32, u32)> {
    let shared = top.join("shared");
    let _ = fs::remove_dir_all(&shared);
    fs::create_dir(&shared).unwrap();
    chown(&shared, None, Some(ALICE.gid)).unwrap();
    set_mode(&shared, 0o2777);
    let rights = Mode::from_raw_mode(0o2775);
    act_as(who, || {
        let make = OFlags::CREATE | OFlags::WRONLY;
        rustix::fs::openat(dir, "shared/file", make, rights).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(dir, "shared/fifo", fifo, rights, 0).unwrap();
        rustix::fs::mkdirat(dir, "shared/dir", rights).unwrap();
    });
    let of = |name| fs::metadata(shared.join(name)).unwrap();
    let made = ["file", "fifo", "dir"].map(of);
    made.iter()
        .map(|meta| (meta.mode() & 0o7777, meta.gid()))
        .collect()
}

#[test]
fn set_group_id_is_given_to_what_is_made_as_natively_by_who_is_in_the_group_or_not() {
    let Some((env, root, dir)) = mounted() else {
        return;
    };
    let (native, plain) = native(&env);
    let inside = [ALICE, BOB].map(|who| made_in(&root, &dir, who));
    let outside = made_in(&root, &dir, OTHER);
    assert_eq!(
        inside,
        [ALICE, BOB].map(|who| made_in(&native, &plain, who))
    );
    assert_eq!(outside, made_in(&native, &plain, OTHER));
    assert_ne!(
        inside[1], outside,
        "by another group than the one that a request names"
    );
}

/// A directory of the file system below, and a descriptor of it.
fn native(env: &Env) -> (PathBuf, OwnedFd) {
    let native = env.path("native");
    fs::create_dir(&native).unwrap();
    set_mode(&native, 0o777);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(&native, flags, Mode::empty()).unwrap();
    (native, dir)
}

#[test]
fn set_group_id_without_execution_goes_as_natively_where_a_request_tells_the_groups() {
    let Some((env, root, dir)) = mounted() else {
        return;
    };
    let (native, plain) = native(&env);
    let mut differ = Vec::new();
    for bits in [0o2666, 0o2676, 0o6666, 0o4666, 0o6676] {
        for (who, name) in [(ALICE, "of the group"), (BOB, "by another"), (OTHER, "not")] {
            for call in 0..4 {
                let theirs = bits_left(&plain, &native.join("locked"), bits, who, call);
                let ours = bits_left(&dir, &root.join("locked"), bits, who, call);
                if theirs != ours {
                    assert_eq!(
                        (theirs & !ours, name),
                        (0o2000, "by another"),
                        "{bits:o} {call}"
                    );
                    differ.push((bits, call));
                }
            }
        }
    }
    // A request names one of the caller's groups.
    assert_eq!(
        differ,
        [
            (0o2666, 1),
            (0o2666, 3),
            (0o6666, 0),
            (0o6666, 1),
            (0o6666, 2),
            (0o6666, 3)
        ]
    );
}

#[test]
fn files_in_a_sticky_directory_belong_to_their_owners() {
    let Some((_env, root, dir)) = mounted() else {
        return;
    };
    fs::create_dir(root.join("tmp")).unwrap();
    set_mode(&root.join("tmp"), 0o1777);
    let make = OFlags::CREATE | OFlags::WRONLY;
    act_as(ALICE, || open(&dir, "tmp/hers", make).unwrap());
    let remove = || rustix::fs::unlinkat(&dir, "tmp/hers", AtFlags::empty());
    let rename = || rustix::fs::renameat(&dir, "tmp/hers", &dir, "tmp/his");
    assert_eq!(act_as(BOB, remove), Err(Errno::PERM));
    assert_eq!(act_as(BOB, rename), Err(Errno::PERM));
    act_as(ALICE, rename).unwrap();
}

#[test]
fn a_set_group_id_directory_gives_its_group_and_its_bit_on() {
    let Some((_env, root, dir)) = mounted() else {
        return;
    };
    let team = root.join("team");
    fs::create_dir(&team).unwrap();
    chown(&team, None, Some(1700)).unwrap();
    set_mode(&team, 0o2777);
    act_as(ALICE, || {
        open(&dir, "team/file", OFlags::CREATE | OFlags::WRONLY).unwrap();
        rustix::fs::mkdirat(&dir, "team/sub", Mode::from_raw_mode(0o755)).unwrap();
    });
    let group = |name: &str| fs::metadata(team.join(name)).unwrap().gid();
    assert_eq!((group("file"), group("sub")), (1700, 1700));
    assert_eq!(mode(&team.join("sub")), 0o2755);
    // She is not in that group, so she may not make programs of it.
    let rights = Mode::from_raw_mode(0o2755);
    act_as(ALICE, || {
        rustix::fs::chmodat(&dir, "team/file", rights, AtFlags::empty())
    })
    .unwrap();
    assert_eq!(mode(&team.join("file")), 0o755);
    let bob = Some(Gid::from_raw(BOB.gid));
    let give = || rustix::fs::chownat(&dir, "team/file", None, bob, AtFlags::empty());
    assert_eq!(act_as(ALICE, give), Err(Errno::PERM));
}
