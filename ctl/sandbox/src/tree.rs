//! What the sandbox sees of the machine: its mounts, built by process 1 in its own mount namespace.
//!
//! In this order: propagation ends; all trees that are to be placed are taken as detached mounts, while what they
//! come from is still visible; the machine is cloned as a whole, made read-only and pivoted into; then each place
//! is put over it, the outermost first, so that what is placed deeper is placed on what is seen there. Invariant:
//! from the pivot on, nothing writable is visible that was not placed.

use crate::error::{Doing, Error, Result};
use crate::own::{mount_proc, own_devices, own_proc, take_devices};
use crate::pieces::{HARMLESS, READ_ONLY, attach, c_path, memory, take, with};
use crate::plan::{PathRule, What};
use crate::private::{self, Directories, SHARED_MEMORY};
use crate::sys::set_mount;
use crate::texts::texts;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, statat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount_change,
    open_tree, unmount,
};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Directories in memory that every sandbox has.
const PRIVATE: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// Empty in every sandbox, but for what is placed in it.
const EMPTY: [&str; 2] = ["/run", "/var/run"];

/// Names of a directory that is shown by them.
const MIRROR_NAMES_MAX: usize = 2048;

/// What is put at a path.
enum Put {
    /// An empty file or directory, read-only, where something is.
    Cover,
    /// A new directory in memory; at the end read-only if so.
    Memory { mode: u32, read_only: bool },
    /// A tree that was taken.
    Tree(OwnedFd),
    /// A directory in memory with the names of what is there, each with that placed on it; at the end read-only.
    Mirror,
    /// A link in a directory in memory.
    Link(PathBuf),
    /// A directory that was taken, on whose names is placed what is there, but on these.
    Names(OwnedFd, Vec<PathBuf>),
}

/// A directory in memory in which nothing can be written once all is placed.
const EMPTY_DIRECTORY: Put = Put::Memory {
    mode: 0o755,
    read_only: true,
};

/// Builds what the sandbox sees. `sockets` are covered where they are seen; `private` are others' directories in memory, or
/// none. Gives what could not be shown as a copy,
/// and what the kernel lacks if it may, each with why.
pub fn build(
    places: &[PathRule],
    sockets: &[PathBuf],
    private: Directories,
    (root, may_lack): (bool, bool),
) -> Result<(Vec<String>, Vec<String>)> {
    alone()?;
    let devices = take_devices()?;
    let mut not_copied = Vec::new();
    let mut puts = taken(places, &mut not_copied)?;
    puts.extend(resolver(places)?);
    enter()?;
    let mut private = match private.is_empty() {
        true => private::made()?,
        false => private,
    };
    let own = texts(places)?.into_iter();
    puts.extend(own.map(|(at, tree)| (at, Put::Tree(tree))));
    let empty = Empty::make()?;
    let lacking = own_proc(root, may_lack)?;
    let memory = private.iter().position(|(at, _)| *at == SHARED_MEMORY);
    let memory = memory.map(|at| private.swap_remove(at).1);
    puts.extend(standard(places, private));
    let is_ours = |path: &Path| {
        let view = |place: &&PathRule| matches!(place.what, What::View(_));
        places.iter().filter(view).any(|p| path.starts_with(&p.at))
    };
    let seen = sockets.iter().filter(|path| !is_ours(path));
    puts.extend(seen.map(|path| (path.clone(), Put::Cover)));
    own_devices(devices, memory)?;
    puts.extend(mirrored(places).into_iter().map(|at| (at, Put::Mirror)));
    place_all((puts, PathBuf::from("/dev")), places, &empty)?;
    Ok((not_copied, lacking))
}

/// Puts `view` together at `stage`, with all of `inner` below that in place, and takes it as a detached mount.
pub fn furnished(view: OwnedFd, stage: &Path, inner: &[PathRule]) -> Result<OwnedFd> {
    alone()?;
    let puts = taken(inner, &mut Vec::new())?;
    let empty = Empty::make()?;
    attach(view.as_fd(), stage)?;
    place_all((puts, None), inner, &empty)?;
    take(stage, true)
}

/// Ends the propagation of mounts.
fn alone() -> Result<()> {
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .doing(|| "ending the propagation of mounts".to_owned())
}

/// Puts all at their places, the outermost first, and makes read-only what has to be, `own` besides.
fn place_all(
    (mut puts, own): (Vec<(PathBuf, Put)>, impl Into<Option<PathBuf>>),
    places: &[PathRule],
    empty: &Empty,
) -> Result<()> {
    // The sort is stable: of two at a path the tree lies above.
    let rank = |put: &Put| matches!(put, Put::Tree(_) | Put::Names(..));
    puts.sort_by_key(|(at, put)| (at.components().count(), at.clone(), rank(put)));
    let all: BTreeSet<PathBuf> = puts.iter().map(|(at, _)| at.clone()).collect();
    // Of what is below them nothing is needed to place them.
    let opaque = |(_, put): &&(PathBuf, Put)| !matches!(put, Put::Mirror | Put::Names(..));
    let opaque: BTreeSet<PathBuf> = puts
        .iter()
        .filter(opaque)
        .map(|(at, _)| at.clone())
        .collect();
    let is_copy = |place: &&PathRule| matches!(place.what, What::Copy { .. });
    let copies: Vec<&Path> = places
        .iter()
        .filter(is_copy)
        .map(|p| p.at.as_path())
        .collect();
    let mut later: Vec<PathBuf> = own.into().into_iter().collect();
    for (at, put) in puts {
        let is_read_only = match put {
            Put::Memory { read_only, .. } => read_only,
            Put::Mirror => put_mirror(&at, &opaque)?,
            _ => false,
        };
        if is_read_only {
            later.push(at.clone());
        }
        // A link that the session made in a copy: what lies below it in the machine cannot be reached, also if the link
        // is removed.
        let is_in_copy = copies.iter().any(|copy| at.starts_with(copy));
        if is_in_copy && matches!(put, Put::Cover) && at.is_symlink() {
            continue;
        }
        put_at(&at, put, empty, &all)?;
    }
    for path in later {
        let doing = || format!("making {} read-only", path.display());
        set_mount(None, &c_path(&path)?, READ_ONLY & !HARMLESS, false).doing(doing)?;
    }
    Ok(())
}

/// Places the views, and files of the user's, over the machine as it is, and the PID namespace's own `/proc`, if that can be.
pub fn place_views(places: &[PathRule]) -> Result<()> {
    alone()?;
    for place in places {
        let What::View(from) = &place.what else {
            continue;
        };
        if !place.at.is_dir() {
            return Err(Error::Missing(place.at.clone()));
        }
        let tree = with(take(from, false)?, HARMLESS, from)?;
        attach(tree.as_fd(), &place.at)?;
    }
    for (at, tree) in texts(places)? {
        attach(tree.as_fd(), &at)?;
    }
    // A container may hide parts of /proc, and then lets nobody mount another one: the machine's has these processes,
    // too.
    let _ = mount_proc();
    Ok(())
}

/// Directories and files that are not read-only.
pub fn writable(places: &[PathRule]) -> Vec<PathBuf> {
    let is_writable = |place: &&PathRule| {
        let what = &place.what;
        let is_read_only = matches!(what, What::Hidden | What::Shown | What::Socket(_));
        !is_read_only
            && !matches!(
                what,
                What::Tree(_) | What::Empty | What::Link(_) | What::Text(_)
            )
    };
    let own = PRIVATE.iter().chain(&["/dev", "/proc"]).map(PathBuf::from);
    let places = places.iter().filter(is_writable);
    own.chain(places.map(|place| place.at.clone())).collect()
}

/// Takes the trees that are to be placed; the rest of the places goes with them.
fn taken(places: &[PathRule], not_copied: &mut Vec<String>) -> Result<Vec<(PathBuf, Put)>> {
    let mut puts = Vec::new();
    for place in places {
        let put = match &place.what {
            // Those are made when the machine is not seen any more.
            What::Text(_) => continue,
            What::Hidden if is_around(&place.at, places) => EMPTY_DIRECTORY,
            What::Empty => EMPTY_DIRECTORY,
            What::Link(to) => Put::Link(to.clone()),
            What::Tree(from) => Put::Tree(with(take(from, false)?, READ_ONLY, from)?),
            What::Hidden => Put::Cover,
            What::Private => Put::Memory {
                mode: 0o700,
                read_only: false,
            },
            What::View(from) => Put::Tree(with(take(from, false)?, HARMLESS, from)?),
            What::Writable => Put::Tree(with(take(&place.at, true)?, HARMLESS, &place.at)?),
            What::Socket(from) => Put::Tree(with(take(from, false)?, READ_ONLY, from)?),
            What::Shown => Put::Tree(with(take(&place.at, true)?, READ_ONLY, &place.at)?),
            What::Copy { upper, work } => match overlay(&place.at, upper, work) {
                Ok(tree) => Put::Tree(tree),
                Err(errno) => {
                    not_copied.push(format!("{}: {errno}", place.at.display()));
                    continue;
                }
            },
            What::Names { dir, files } => {
                Put::Names(with(take(dir, false)?, HARMLESS, dir)?, files.clone())
            }
        };
        puts.push((place.at.clone(), put));
    }
    Ok(puts)
}

/// An overlay of a directory as a detached mount. Its paths are descriptors: they may be longer than an option, and
/// have any bytes. It is `volatile`: the end of a run waits for no disk.
fn overlay(lower: &Path, upper: &Path, work: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fs = fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let mut held = Vec::new();
    for (key, path) in [
        (c"lowerdir", lower),
        (c"upperdir", upper),
        (c"workdir", work),
    ] {
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        fsconfig_set_string(&fs, key, format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        held.push(fd);
    }
    fsconfig_set_flag(&fs, c"userxattr")?;
    fsconfig_set_flag(&fs, c"volatile")?;
    fsconfig_create(&fs)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Directories around what is hidden. A cover on a name of the machine goes when that name gets another file, so the
/// cover is put on a name of another directory, which the machine does not have. That cannot be done where the directory
/// has to be writable, and need not be where it is a copy.
fn mirrored(places: &[PathRule]) -> BTreeSet<PathBuf> {
    let hidden = places.iter().filter(|place| place.what == What::Hidden);
    let around = hidden.filter_map(|place| place.at.parent());
    let own = PRIVATE
        .iter()
        .chain(&EMPTY)
        .chain(&["/dev", "/proc", "/sys"]);
    let own: Vec<&Path> = own.map(Path::new).collect();
    let is_other = |dir: &&Path| {
        let is_placed = places.iter().any(|place| dir.starts_with(&place.at));
        !is_placed && *dir != Path::new("/") && !own.iter().any(|own| dir.starts_with(own))
    };
    around.filter(is_other).map(Path::to_owned).collect()
}

/// Something is to be placed below `at`.
fn is_around(at: &Path, places: &[PathRule]) -> bool {
    let inner = |place: &&PathRule| place.what != What::Hidden;
    let mut inner = places.iter().filter(inner);
    inner.any(|place| place.at != at && place.at.starts_with(at))
}

/// The file that `/etc/resolv.conf` leads to, where that is in a directory that becomes empty.
fn resolver(places: &[PathRule]) -> Result<Option<(PathBuf, Put)>> {
    let Ok(file) = Path::new("/etc/resolv.conf").canonicalize() else {
        return Ok(None);
    };
    let mut emptied = PRIVATE.iter().chain(&EMPTY).map(Path::new);
    let is_placed = places.iter().any(|place| place.at == file);
    if is_placed || !emptied.any(|dir| file.starts_with(dir)) {
        return Ok(None);
    }
    let tree = with(take(&file, false)?, READ_ONLY, &file)?;
    Ok(Some((file, Put::Tree(tree))))
}

/// Makes a clone of the machine, in which nothing can be written, the root.
fn enter() -> Result<()> {
    let root = take(Path::new("/"), true)?;
    let root = with(root, READ_ONLY, Path::new("/"))?;
    // Any directory will do as a place for the new root: the old one goes with all that is mounted there.
    attach(root.as_fd(), Path::new("/proc"))?;
    let doing = || "changing the root".to_owned();
    rustix::process::fchdir(&root).doing(doing)?;
    rustix::process::pivot_root(c".", c".").doing(doing)?;
    unmount(c".", UnmountFlags::DETACH).doing(|| "leaving the old root".to_owned())?;
    rustix::process::chdir(c"/").doing(doing)
}

/// An empty file and an empty directory, which stand for what is hidden. They lie in a mount of their own below
/// the private `/tmp`.
struct Empty {
    file: OwnedFd,
    dir: OwnedFd,
}

impl Empty {
    fn make() -> Result<Empty> {
        let at = Path::new("/tmp");
        let doing = || "making what stands for hidden files".to_owned();
        memory(at, 0o755)?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        std::fs::create_dir(at.join("dir")).doing(doing)?;
        std::fs::write(at.join("file"), b"").doing(doing)?;
        set_mount(
            None,
            &c_path(at)?,
            READ_ONLY | libc::MOUNT_ATTR_NOEXEC,
            false,
        )
        .doing(doing)?;
        let open = |name| rustix::fs::open(at.join(name), flags, Mode::empty()).doing(doing);
        Ok(Empty {
            file: open("file")?,
            dir: open("dir")?,
        })
    }

    /// Covers what is at a path, if anything is.
    fn cover(&self, at: &Path) -> Result<()> {
        let doing = || format!("hiding {}", at.display());
        let kind = match statat(CWD, at, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            // What the user may not look at needs not be hidden from the user; a mount that died cannot be seen.
            Err(Errno::ACCESS | Errno::NOTCONN) => return Ok(()),
            Err(errno) => return Err(errno).doing(doing),
        };
        let from = match kind {
            FileType::Directory => &self.dir,
            // What it leads to would stay.
            FileType::Symlink => return Err(Errno::LOOP).doing(doing),
            _ => &self.file,
        };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = open_tree(from, c"", flags).doing(doing)?;
        attach(tree.as_fd(), at)
    }
}

/// What every sandbox has, as far as the machine has it.
fn standard(places: &[PathRule], private: Directories) -> Vec<(PathBuf, Put)> {
    let mut puts: Vec<(PathBuf, Put)> = Vec::new();
    let private = private.into_iter().map(|(at, tree)| (at, Put::Tree(tree)));
    let empty = EMPTY.into_iter().map(|at| (at, EMPTY_DIRECTORY));
    for (path, put) in private.chain(empty) {
        // Links lead to one that is there already, such as /var/run to /run.
        let Ok(at) = Path::new(path).canonicalize() else {
            continue;
        };
        let is_there = puts.iter().any(|(other, _)| at.starts_with(other));
        let is_placed = places.iter().any(|place| place.at == at);
        if !is_there && !is_placed {
            puts.push((at, put));
        }
    }
    puts
}

/// `all` is where anything is put.
fn put_at(at: &Path, put: Put, empty: &Empty, all: &BTreeSet<PathBuf>) -> Result<()> {
    match put {
        Put::Cover => empty.cover(at),
        Put::Memory { mode, .. } => {
            make_point(at, true)?;
            memory(at, mode)
        }
        Put::Tree(tree) => {
            let doing = || format!("looking at what is placed at {}", at.display());
            let stat = statat(&tree, c"", AtFlags::EMPTY_PATH).doing(doing)?;
            let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            make_point(at, is_dir)?;
            attach(tree.as_fd(), at)
        }
        // It was put before.
        Put::Mirror => Ok(()),
        Put::Link(to) => {
            std::os::unix::fs::symlink(to, at).doing(|| format!("making the link {}", at.display()))
        }
        Put::Names(tree, files) => {
            let is_own = |path: &Path| {
                let name = path.strip_prefix(at).unwrap_or(path);
                all.contains(path) || files.iter().any(|file| file == name)
            };
            put_names(at, &tree, &is_own)
        }
    }
}

/// Places a directory, and on each of its names that is not its own what the machine has there, if both are
/// directories or both files.
fn put_names(at: &Path, tree: &OwnedFd, is_own: &dyn Fn(&Path) -> bool) -> Result<()> {
    let doing = || format!("placing what is in {}", at.display());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let old = rustix::fs::open(at, flags, Mode::empty()).doing(doing)?;
    attach(tree.as_fd(), at)?;
    for entry in Dir::read_from(&old).doing(doing)? {
        let entry = entry.doing(doing)?;
        let name = entry.file_name();
        let path = at.join(OsStr::from_bytes(name.to_bytes()));
        if matches!(name.to_bytes(), b"." | b"..") || is_own(&path) {
            continue;
        }
        let kind = |dir: BorrowedFd<'_>| {
            let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            Some(FileType::from_raw_mode(stat.st_mode))
        };
        let (from, to) = (kind(old.as_fd()), kind(tree.as_fd()));
        let is_fit = from == to && matches!(to, Some(FileType::Directory | FileType::RegularFile));
        if is_fit {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_RECURSIVE
                | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
            let one = open_tree(&old, name, flags).doing(doing)?;
            attach(one.as_fd(), &path)?;
        }
    }
    Ok(())
}

/// Places a directory with the names that are there, and on each of them what is there, but for those of `opaque`. False
/// where that cannot be done: nothing is there, it cannot be listed, or it has too many names.
fn put_mirror(at: &Path, opaque: &BTreeSet<PathBuf>) -> Result<bool> {
    let doing = || format!("placing what is in {}", at.display());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(old) = rustix::fs::open(at, flags, Mode::empty()) else {
        return Ok(false);
    };
    let entries: rustix::io::Result<Vec<_>> = Dir::read_from(&old).doing(doing)?.collect();
    let entries = entries.doing(doing)?;
    if entries.len() > MIRROR_NAMES_MAX {
        return Ok(false);
    }
    let found = statat(&old, c"", AtFlags::EMPTY_PATH).doing(doing)?;
    memory(at, found.st_mode & 0o777)?;
    for entry in entries {
        let name = entry.file_name();
        let path = at.join(OsStr::from_bytes(name.to_bytes()));
        // What has gone meanwhile has gone.
        let stat = statat(&old, name, AtFlags::SYMLINK_NOFOLLOW);
        let kind = stat.map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            _ if matches!(name.to_bytes(), b"." | b"..") => continue,
            Ok(FileType::Directory) => std::fs::create_dir(&path).doing(doing)?,
            Ok(FileType::RegularFile) => std::fs::write(&path, b"").doing(doing)?,
            Ok(FileType::Symlink) => {
                let to = rustix::fs::readlinkat(&old, name, Vec::new()).doing(doing)?;
                rustix::fs::symlink(to, &path).doing(doing)?;
                continue;
            }
            _ => continue,
        }
        if opaque.contains(&path) {
            continue;
        }
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE
            | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
        let one = open_tree(&old, name, flags).doing(doing)?;
        attach(one.as_fd(), &path)?;
    }
    Ok(true)
}

/// Makes something to mount on, where nothing is and something can be made.
fn make_point(at: &Path, is_dir: bool) -> Result<()> {
    if statat(CWD, at, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Ok(());
    }
    let doing = || format!("making a place for {}", at.display());
    match (is_dir, at.parent()) {
        (false, Some(parent)) => {
            std::fs::create_dir_all(parent).doing(doing)?;
            std::fs::write(at, b"").doing(doing)
        }
        _ => std::fs::create_dir_all(at).doing(doing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(at: &str, what: What) -> PathRule {
        PathRule {
            at: at.into(),
            what,
        }
    }

    #[test]
    fn what_hides_something_shown_gets_a_directory_of_its_own() {
        let places = [
            place("/h/.config", What::Hidden),
            place("/h/.config/x", What::Shown),
            place("/h/.ssh", What::Hidden),
            place("/h/.ssh/inner", What::Hidden),
        ];
        assert!(is_around(Path::new("/h/.config"), &places));
        assert!(!is_around(Path::new("/h/.ssh"), &places));
        assert!(!is_around(Path::new("/h/.conf"), &places));
    }

    #[test]
    fn what_is_around_hidden_files_is_mirrored_unless_it_is_placed() {
        let places = [
            place("/h/.netrc", What::Hidden),
            place("/h/.docker/config.json", What::Hidden),
            place("/h/open", What::Writable),
            place("/h/open/.ssh", What::Hidden),
            place("/top", What::Hidden),
            place("/tmp/x", What::Hidden),
        ];
        let wanted = ["/h", "/h/.docker"].map(PathBuf::from);
        assert_eq!(mirrored(&places), BTreeSet::from(wanted));
    }

    #[test]
    fn every_sandbox_has_private_and_empty_directories() {
        let tree = || std::fs::File::open("/").unwrap().into();
        let private = vec![("/tmp", tree()), ("/var/tmp", tree())];
        let all = standard(&[place("/var/tmp", What::Writable)], private);
        let at: Vec<&Path> = all.iter().map(|(at, _)| at.as_path()).collect();
        assert!(at.contains(&Path::new("/tmp")), "{at:?}");
        assert!(!at.contains(&Path::new("/var/tmp")), "{at:?}");
    }
}
