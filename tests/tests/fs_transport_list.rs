//! What the crate `fuser` cannot carry: each entry of the list in docs/transport.md, shown on a mount by our own way and
//! on one by that crate. An entry that is no longer true fails here, and is to be removed.

#![allow(clippy::unwrap_used)]

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RawDir, StatxFlags, Timespec, Timestamps, XattrFlags,
    copy_file_range,
};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::collections::BTreeSet;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use tests::env::Env;
use tests::mount;
use tests::skip::{Want, skip};
use tests::transports::Both;
use tests::user::{User, act_as};

/// What each mount gives.
fn each<R>(both: &Both, look: impl Fn(&Path) -> R) -> [R; 2] {
    both.each(|env| look(&env.mountpoint()))
}

/// Both mounts, for a test that needs root.
fn as_root() -> Option<Both> {
    if mount::is_root() {
        return Both::start(|_| ());
    }
    skip(Want::Root, "only root may do what this test does");
    None
}

#[test]
fn inode_numbers_are_those_of_the_base_by_our_own_way_alone() {
    let project = |env: &Env| {
        fs::create_dir(env.project().join("dir")).unwrap();
        fs::write(env.project().join("dir/file"), "x").unwrap();
    };
    let Some(both) = Both::start(project) else {
        return;
    };
    let same = both.each(|env| {
        let number = |root: &Path| fs::metadata(root.join("dir/file")).unwrap().ino();
        number(&env.mountpoint()) == number(&env.project())
    });
    assert_eq!(same, [true, false]);
}

/// Names and inode numbers of a directory, as the kernel lists them.
fn listed(dir: &Path) -> Vec<(String, u64)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(dir, flags, Mode::empty()).unwrap();
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&dir, &mut buffer);
    let mut found = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.unwrap();
        found.push((
            entry.file_name().to_string_lossy().into_owned(),
            entry.ino(),
        ));
    }
    found
}

#[test]
fn directories_of_agentvfs_itself_list_numbers_by_our_own_way_alone() {
    let Some(both) = Both::start(|_| ()) else {
        return;
    };
    let [own, other] = each(&both, |root| listed(&root.join(".agentvfs")));
    let names = |list: &[(String, u64)]| list.iter().map(|(name, _)| name.clone()).collect();
    let [one, two]: [BTreeSet<String>; 2] = [names(&own), names(&other)];
    assert_eq!(one, two);
    assert!(one.len() > 2 && own.iter().all(|(_, number)| *number > 0));
    let unnumbered = other.iter().filter(|(_, number)| *number == 0);
    assert_eq!(
        unnumbered.count(),
        one.len() - 2,
        "all but . and ..: {other:?}"
    );
}

#[test]
fn parts_of_seconds_before_1970_are_exact_by_our_own_way_alone() {
    let Some(both) = Both::start(|_| ()) else {
        return;
    };
    let times = each(&both, |root| {
        let file = root.join("file");
        fs::write(&file, "x").unwrap();
        let time = Timespec {
            tv_sec: -10,
            tv_nsec: 250_000_000,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty()).unwrap();
        let meta = fs::metadata(&file).unwrap();
        (meta.mtime(), meta.mtime_nsec())
    });
    assert_eq!(times, [(-10, 250_000_000), (-11, 750_000_000)]);
}

#[test]
fn the_earliest_second_can_be_set_by_our_own_way_alone() {
    let Some(both) = Both::start(|_| ()) else {
        return;
    };
    let time = Timespec {
        tv_sec: i64::MIN,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    let [own, other] = each(&both, |root| {
        let file = root.join("file");
        fs::write(&file, "x").unwrap();
        rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty())?;
        fs::metadata(&file).map(|meta| (meta.mtime(), meta.mtime_nsec()))
    });
    assert_eq!(own.unwrap(), (i64::MIN, 0));
    // Without checks the arithmetic comes out right.
    assert_eq!(other.is_err(), cfg!(debug_assertions), "{other:?}");
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

fn set_mode(file: &Path, bits: u32) {
    fs::set_permissions(file, fs::Permissions::from_mode(bits)).unwrap();
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o7777
}

#[test]
fn set_id_bits_go_with_a_truncation_by_capability_by_our_own_way_alone() {
    let Some(both) = as_root() else { return };
    let bits = each(&both, |root| {
        let file = root.join("file");
        fs::write(&file, "program").unwrap();
        let truncate = || {
            fs::OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(&file)
                .map(drop)
        };
        set_mode(&file, 0o6777);
        without_fsetid(truncate).unwrap();
        let truncated = mode(&file);
        set_mode(&file, 0o6777);
        without_fsetid(|| {
            fs::OpenOptions::new()
                .append(true)
                .open(&file)
                .map(|file| rustix::io::write(file, b"x").unwrap())
        })
        .unwrap();
        (truncated, mode(&file))
    });
    assert_eq!(bits, [(0o777, 0o777), (0o6777, 0o777)]);
}

/// An access list that lets one user in.
fn list(user: u32) -> Vec<u8> {
    let none = u32::MAX;
    let entries = [
        (1u16, 7u16, none),
        (2, 4, user),
        (4, 7, none),
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

#[test]
fn an_access_list_takes_the_set_group_id_bit_by_our_own_way_alone() {
    let Some(both) = as_root() else { return };
    let owner = User {
        uid: 1501,
        gid: 1501,
        groups: &[],
    };
    let bits = each(&both, |root| {
        let file = root.join("file");
        fs::write(&file, "x").unwrap();
        std::os::unix::fs::chown(&file, Some(owner.uid), Some(1700)).unwrap();
        set_mode(&file, 0o2770);
        let name = "system.posix_acl_access";
        let share = || rustix::fs::setxattr(&file, name, &list(1502), XattrFlags::empty());
        act_as(owner, share).unwrap();
        mode(&file) & 0o2000
    });
    assert_eq!(bits, [0, 0o2000]);
}

#[test]
fn more_than_4_gib_are_copied_in_one_call_by_our_own_way_alone() {
    const LENGTH: u64 = 5 << 30;
    let Some(both) = Both::start(|_| ()) else {
        return;
    };
    let copied = each(&both, |root| {
        let open = |name: &str| {
            let mut options = fs::OpenOptions::new();
            options.read(true).write(true).create_new(true);
            options.open(root.join(name)).unwrap()
        };
        let (from, to) = (open("from"), open("to"));
        from.set_len(LENGTH).unwrap();
        copy_file_range(&from, None, &to, None, LENGTH as usize).unwrap()
    });
    if copied[0] == copied[1] {
        return skip(Want::Machine, "the kernel copies no more at once either");
    }
    assert_eq!(copied, [LENGTH as usize, (4 << 30) - 4096]);
}

#[test]
fn files_without_a_name_can_be_made_by_our_own_way_alone() {
    let Some(both) = Both::start(|_| ()) else {
        return;
    };
    let made = each(&both, |root| {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::open(root, flags, mode).map(drop)
    });
    assert_eq!(made, [Ok(()), Err(rustix::io::Errno::OPNOTSUPP)]);
}

#[test]
fn a_sync_of_the_whole_file_system_is_no_request_by_either_way() {
    let Some(both) = Both::start(|_| ()) else {
        return;
    };
    let files = each(&both, |root| fs::File::create(root.join("file")).unwrap());
    let requests = both.requests(|| {
        for file in &files {
            rustix::fs::syncfs(file).unwrap();
        }
    });
    assert!(
        requests.iter().all(|count| count.is_empty()),
        "{requests:?}"
    );
}

#[test]
fn birth_times_are_told_by_neither_way() {
    let Some(both) = Both::start(|_| ()) else {
        return;
    };
    let told = each(&both, |root| {
        let file = root.join("file");
        fs::write(&file, "x").unwrap();
        let stat = rustix::fs::statx(CWD, &file, AtFlags::empty(), StatxFlags::ALL).unwrap();
        StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME)
    });
    assert_eq!(told, [false, false]);
}
