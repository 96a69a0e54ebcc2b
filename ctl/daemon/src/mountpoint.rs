//! Mount points: which directories may be one, making them, keeping others out of them, and removing what
//! was made.
//!
//! A directory that was made here to be mounted at may be written to by nobody, so that what is written by its
//! path while the mount is not there fails rather than ends up where no workspace has it. So may `mnt/` in the
//! home, as long as something is mounted in it: a name beside a workspace's root would be outside of every
//! checkpoint. Who may mount covers these directories (`fuse_front::cover`), since root heeds no mode bits; for
//! others modes do it. A cover ends with the mount that it was made for.
//!
//! Invariant: nothing is made inside a base, nothing is removed that was not made here or that is not empty,
//! and what lies in the way is moved aside, never lost.

use super::aside;
use agentvfs_client::home::Home;
use agentvfs_client::protocol::{Bytes, Fault};
use agentvfs_client::record::Record;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Mode of a directory that was made to be mounted at: nobody may make anything in it.
const MODE: u32 = 0o555;

/// How often what is written into a directory while it is cleared is moved aside: a program must not hold up a
/// start.
const CLEAR_ROUNDS_MAX: usize = 8;

/// Refuses a place that a workspace of `base` must not be mounted at, whatever is there.
pub fn check_place(place: &Path, base: &Path, home: &Home) -> Result<(), Fault> {
    if place == base {
        return Ok(());
    }
    let why = if place.starts_with(base) {
        "it is inside the project's directory"
    } else if base.starts_with(place) {
        "the project's directory is inside it"
    } else if home.root().starts_with(place) {
        "the agentvfs home is inside it"
    } else if place.starts_with(home.root()) && !place.starts_with(home.mounts()) {
        "it is inside the agentvfs home"
    } else {
        return Ok(());
    };
    Err(unusable(place, why))
}

/// What a mount needs to know of its mount point.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// The directories that were made for it, outermost first.
    pub made: Vec<Bytes>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// The mount points of a home.
pub struct MountPoints {
    home: Home,
    /// Those in the home's own directory that are in use, or about to be.
    used: Mutex<BTreeSet<PathBuf>>,
}

/// A directory over which something is mounted, or about to be.
pub struct Below {
    place: PathBuf,
    dir: File,
    /// It was made to be mounted at.
    is_made: bool,
}

/// A directory as it is behind covers; else as it is.
struct Behind {
    dir: PathBuf,
    shown: PathBuf,
    /// What `shown` leads through.
    _fd: Option<OwnedFd>,
}

impl Behind {
    fn new(dir: &Path, is_covered: bool) -> io::Result<Behind> {
        let fd = is_covered
            .then(|| fuse_front::behind_covers(dir))
            .transpose()?;
        let through = |fd: &OwnedFd| PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        Ok(Behind {
            dir: dir.to_owned(),
            shown: fd.as_ref().map_or_else(|| dir.to_owned(), through),
            _fd: fd,
        })
    }

    /// A directory as an open descriptor shows it, whatever was mounted over it since.
    fn of(dir: &Path, fd: BorrowedFd<'_>) -> Behind {
        Behind {
            dir: dir.to_owned(),
            shown: PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd())),
            _fd: None,
        }
    }

    /// Where to reach `path`, which lies in the directory or elsewhere.
    fn at(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.dir) {
            Ok(rest) => self.shown.join(rest),
            Err(_) => path.to_owned(),
        }
    }

    /// Which path `at` was asked for.
    fn back(&self, reached: &Path) -> PathBuf {
        match reached.strip_prefix(&self.shown) {
            Ok(rest) => self.dir.join(rest),
            Err(_) => reached.to_owned(),
        }
    }
}

impl MountPoints {
    /// Those of `home`.
    pub fn new(home: Home) -> MountPoints {
        MountPoints {
            home,
            used: Mutex::default(),
        }
    }

    /// Makes a directory ready to be mounted at: the base itself, an empty one, or one that does not
    /// exist. `before` is the record of a mount that a dead daemon left. What was written into the
    /// directory since is moved aside, and so is what lies in one of the home's own. A dead mount of the
    /// same workspace stays: it is replaced, and covers the directory until then.
    pub fn prepare(
        &self,
        place: &Path,
        base: &Path,
        workspace: &str,
        before: Option<&Record>,
    ) -> Result<Prepared, Fault> {
        let before = before.filter(|record| record.place() == place);
        if fuse_front::is_dead_mount(place) {
            if let Some(record) = before {
                clear_base(place, base)?;
                self.note_use(place);
                let made = record.made.clone();
                return Ok(Prepared {
                    made,
                    ..Prepared::default()
                });
            }
            detach_dead(place)?;
        }
        if place == base {
            return Ok(Prepared::default());
        }
        let mut used = self.used.lock();
        let ready = self.make_ready(place, workspace, before)?;
        if ready.made.last().is_some_and(|last| last.path() == place) {
            self.keep_others_out(place);
            if self.is_own(place) {
                used.insert(place.to_owned());
            }
        }
        Ok(ready)
    }

    /// Takes a dead mount away, though it is not known yet whether the new one can be made, and moves
    /// aside what has been written below it. For users who may not mount over a dead one.
    pub fn uncover_dead(&self, workspace: &str, base: &Path, record: &Record) -> Result<(), Fault> {
        let place = record.place();
        detach_dead(place)?;
        if place == base {
            return Ok(());
        }
        let _used = self.used.lock();
        // What was moved aside is in the log already.
        let ready = self.make_ready(place, workspace, Some(record))?;
        if ready.made.last().is_some_and(|last| last.path() == place) {
            self.keep_others_out(place);
        }
        Ok(())
    }

    /// The directory that a mount is about to hide; none for a project, which stays as it is, or below a dead
    /// mount.
    pub fn below(&self, base: &Path, record: &Record) -> Option<Below> {
        let place = record.place();
        // A dead mount can be opened where the kernel still knows its root, and shows nothing of what is below it.
        let is_hidden = place != base && !fuse_front::is_dead_mount(place);
        let dir = is_hidden.then(|| File::open(place));
        let dir = dir.and_then(io::Result::ok)?;
        let is_made = record.made.last().is_some_and(|last| last.path() == place);
        Some(Below {
            place: place.to_owned(),
            dir,
            is_made,
        })
    }

    /// Moves aside what was written into a directory just before it was mounted over: `fusermount3` mounts
    /// only where its user may write.
    pub fn clear_below(&self, workspace: &str, below: &Below) {
        if let Err(error) = self.try_clear_below(workspace, below) {
            tracing::warn!(
                workspace,
                "files written to {} while it was not mounted are hidden below the mount: {error}",
                below.place.display()
            );
        }
    }

    fn try_clear_below(&self, workspace: &str, below: &Below) -> io::Result<()> {
        let behind = Behind::of(&below.place, below.dir.as_fd());
        let reached = behind.at(&below.place);
        // Who stands in it may write again while things are moved.
        let mut rounds = 0;
        while reached.read_dir()?.next().is_some() {
            if rounds == CLEAR_ROUNDS_MAX {
                return Err(io::Error::other("it is written to again and again"));
            }
            rounds += 1;
            self.move_aside(workspace, &below.place, &behind)?;
            if !below.is_made {
                return Ok(());
            }
            set_mode(&reached, MODE)?;
        }
        Ok(())
    }

    /// A mount is gone, or was not made: what was made for it is taken away as well.
    pub fn release(&self, workspace: &str, place: &Path, made: &[Bytes]) {
        let mut used = self.used.lock();
        used.remove(place);
        if let Err(error) = self.try_release(workspace, place, made, used.is_empty()) {
            tracing::warn!(workspace, "{} is not cleared: {error}", place.display());
        }
    }

    fn try_release(
        &self,
        workspace: &str,
        place: &Path,
        made: &[Bytes],
        is_last: bool,
    ) -> io::Result<()> {
        detach_dead(place).map_err(|fault| io::Error::other(fault.message))?;
        if made.is_empty() {
            return Ok(());
        }
        let mounts = self.home.mounts();
        if !self.is_own(place) {
            fuse_front::uncover(place)?;
            remove(made.iter().map(|dir| dir.to_path()));
            return Ok(());
        }
        let behind = self.behind(place)?;
        let _ = allow(&behind.at(&mounts), true);
        self.move_aside(workspace, place, &behind)?;
        remove(made.iter().map(|dir| behind.at(dir.path())));
        drop(behind);
        if is_last {
            fuse_front::uncover(&mounts)?;
        }
        if !is_last && !fuse_front::is_covered(&mounts)? {
            allow(&mounts, false)?;
        }
        Ok(())
    }

    /// What was moved aside of a workspace and is still there.
    pub fn aside(&self, workspace: &str) -> Vec<PathBuf> {
        aside::list(self.home.root(), workspace)
    }

    fn note_use(&self, place: &Path) {
        if self.is_own(place) {
            self.used.lock().insert(place.to_owned());
        }
    }

    /// Whether it lies where the home's own mounts are.
    fn is_own(&self, place: &Path) -> bool {
        place.starts_with(self.home.mounts())
    }

    /// A way to the place that covers do not bar.
    fn behind(&self, place: &Path) -> io::Result<Behind> {
        match self.is_own(place) {
            true => {
                let is_covered = fuse_front::is_covered(&self.home.mounts())?;
                Behind::new(self.home.root(), is_covered)
            }
            false => Behind::new(place, false),
        }
    }

    /// Empties or makes the directory. Gives what was made, now or before.
    fn make_ready(
        &self,
        place: &Path,
        workspace: &str,
        before: Option<&Record>,
    ) -> Result<Prepared, Fault> {
        let io = |e: io::Error| unusable(place, &e.to_string());
        let is_own = self.is_own(place);
        if !is_own && before.is_some() {
            fuse_front::uncover(place).map_err(io)?;
        }
        let behind = self.behind(place).map_err(io)?;
        if is_own {
            allow(&behind.at(&self.home.mounts()), true).map_err(io)?;
        }
        let mut ready = Prepared {
            made: before.map(|record| record.made.clone()).unwrap_or_default(),
            warnings: Vec::new(),
        };
        let reached = behind.at(place);
        match reached
            .read_dir()
            .map(|mut entries| entries.next().is_none())
        {
            Ok(true) => {}
            Ok(false) if is_own || before.is_some() => {
                let moved = self.move_aside(workspace, place, &behind);
                ready.warnings.extend(told_aside(place, moved));
            }
            Ok(false) => return Err(unusable(place, "it is not empty")),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                ready.made = make(&reached)?
                    .iter()
                    .map(|dir| Bytes::from(behind.back(dir).as_path()))
                    .collect();
            }
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                return Err(unusable(place, "it is not a directory"));
            }
            Err(e) => return Err(io(e)),
        }
        if is_own && ready.made.is_empty() {
            // Left by a daemon whose record is gone.
            ready.made.push(Bytes::from(place));
        }
        Ok(ready)
    }

    /// Moves aside what lies in a directory that is to be empty.
    fn move_aside(
        &self,
        workspace: &str,
        place: &Path,
        behind: &Behind,
    ) -> io::Result<Option<PathBuf>> {
        let reached = behind.at(place);
        if let Err(e) = allow(&reached, true) {
            return if e.kind() == io::ErrorKind::NotFound {
                Ok(None)
            } else {
                Err(e)
            };
        }
        let to = behind.at(&aside::place(self.home.root(), workspace));
        let moved = aside::take(&reached, &to)?.map(|dir| behind.back(&dir));
        if let Some(dir) = &moved {
            tracing::warn!(
                workspace,
                "files written to {} while it was not mounted are in {}",
                place.display(),
                dir.display()
            );
        }
        Ok(moved)
    }

    /// Nobody shall make anything in the directory, nor beside it where it is one of the home's own. As far
    /// as this user can do that.
    fn keep_others_out(&self, place: &Path) {
        let told = |what: &Path, error: io::Error| {
            tracing::info!(
                "{} cannot be protected against writes: {error}",
                what.display()
            );
        };
        let mounts = self.home.mounts();
        let closed = self
            .behind(place)
            .and_then(|behind| set_mode(&behind.at(place), MODE));
        closed.unwrap_or_else(|error| told(place, error));
        if !self.is_own(place) {
            return fuse_front::cover(place).unwrap_or_else(|error| told(place, error));
        }
        if let Err(error) = fuse_front::cover(&mounts) {
            told(&mounts, error);
            allow(&mounts, false).unwrap_or_else(|error| told(&mounts, error));
        }
    }
}

/// Takes a dead mount off a base that could not be opened otherwise: for users who may not mount.
pub fn clear_base(place: &Path, base: &Path) -> Result<(), Fault> {
    let is_in_the_way = place == base && fuse_front::is_dead_mount(place);
    match is_in_the_way.then(|| fuse_front::open_beneath_dead(place)) {
        Some(Err(error)) => {
            tracing::warn!(%error, "the project is not covered until it is mounted again");
            detach_dead(place)
        }
        _ => Ok(()),
    }
}

/// What the user is told of what was moved aside, or could not be.
fn told_aside(place: &Path, moved: io::Result<Option<PathBuf>>) -> Option<String> {
    let place = place.display();
    match moved {
        Ok(None) => None,
        Ok(Some(dir)) => Some(format!(
            "files written to {place} while it was not mounted are in {}",
            dir.display()
        )),
        Err(error) => Some(format!(
            "files written to {place} while it was not mounted are hidden below the mount: {error}"
        )),
    }
}

/// Lets the owner of a directory make things in it, or takes that from everybody.
fn allow(dir: &Path, is_allowed: bool) -> io::Result<()> {
    let mode = dir.metadata()?.mode() & 0o7777;
    let wanted = if is_allowed {
        mode | 0o200
    } else {
        mode & !0o222
    };
    if mode == wanted {
        Ok(())
    } else {
        set_mode(dir, wanted)
    }
}

fn set_mode(dir: &Path, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(dir, Permissions::from_mode(mode))
}

/// Detaches a mount whose daemon died.
pub fn detach_dead(place: &Path) -> Result<(), Fault> {
    if !fuse_front::is_dead_mount(place) {
        return Ok(());
    }
    tracing::info!(place = %place.display(), "detaching a dead mount");
    fuse_front::detach_dead(place).map_err(|e| {
        let message = format!(
            "the dead mount at {} cannot be detached: {e}",
            place.display()
        );
        Fault::failed("dead-mount", message).hint(format!("umount -l {}", place.display()))
    })
}

/// Makes a directory and those above it. Gives what was made, outermost first.
fn make(place: &Path) -> Result<Vec<PathBuf>, Fault> {
    let missing: Vec<&Path> = place.ancestors().take_while(|dir| !dir.exists()).collect();
    let mut made = Vec::new();
    for dir in missing.into_iter().rev() {
        match DirBuilder::new().mode(0o700).create(dir) {
            Ok(()) => made.push(dir.to_owned()),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => {
                remove(made.into_iter());
                return Err(unusable(dir, &format!("it cannot be created: {e}")));
            }
        }
    }
    Ok(made)
}

/// Removes directories that were made, given outermost first, as far as they are empty.
fn remove(made: impl DoubleEndedIterator<Item = PathBuf>) {
    for dir in made.rev() {
        // Somebody may have put something in; then it is theirs.
        let _ = std::fs::remove_dir(dir);
    }
}

fn unusable(place: &Path, why: &str) -> Fault {
    Fault::failed(
        "bad-mount",
        format!("{} cannot be a mount point: {why}", place.display()),
    )
    .hint("use an empty or new directory, or the project's directory itself: --mount DIR")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_would_overlap_are_refused() {
        let home = Home::find(Some(Path::new("/h")), &|_| None).unwrap();
        let ok = |place: &str| check_place(Path::new(place), Path::new("/src/p"), &home).is_ok();
        for place in ["/src/p", "/src/q", "/src/p2", "/h/mnt/p", "/x"] {
            assert!(ok(place), "{place}");
        }
        for place in ["/src/p/m", "/src", "/", "/h/packs"] {
            assert!(!ok(place), "{place}");
        }
    }

    fn points() -> (tempfile::TempDir, MountPoints, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let home = Home::find(Some(&root.join("home")), &|_| None).unwrap();
        home.prepare().unwrap();
        (dir, MountPoints::new(home), root)
    }

    fn prepare(points: &MountPoints, place: &Path) -> Result<Prepared, Fault> {
        points.prepare(place, Path::new("/b"), "w", None)
    }

    #[test]
    fn what_was_made_is_removed_and_nothing_else() {
        let (_dir, points, root) = points();
        let place = root.join("a/b");
        let made = prepare(&points, &place).unwrap().made;
        assert_eq!(made.len(), 2);
        assert_eq!(place.metadata().unwrap().mode() & 0o7777, MODE);
        points.release("w", &place, &made);
        assert!(!root.join("a").exists());
        assert!(root.exists());
        let made = prepare(&points, &place).unwrap().made;
        std::fs::write(root.join("a/theirs"), "").unwrap();
        points.release("w", &place, &made);
        assert!(root.join("a/theirs").exists() && !place.exists());
    }

    #[test]
    fn only_empty_directories_are_covered_and_given_ones_stay_as_they_are() {
        let (_dir, points, root) = points();
        let given = root.join("given");
        std::fs::create_dir(&given).unwrap();
        assert_eq!(prepare(&points, &given).unwrap(), Prepared::default());
        std::fs::write(given.join("f"), "").unwrap();
        assert!(prepare(&points, &given).is_err());
        assert!(prepare(&points, &given.join("f")).is_err());
        let itself = points.prepare(&given, &given, "w", None).unwrap();
        assert_eq!(itself, Prepared::default());
    }

    #[test]
    fn the_homes_own_are_closed_while_they_are_used_and_open_again_afterwards() {
        let (_dir, points, _root) = points();
        let mounts = points.home.mounts();
        let [one, two] = ["one", "two"].map(|name| mounts.join(name));
        let first = prepare(&points, &one).unwrap();
        let second = prepare(&points, &two).unwrap();
        assert_eq!(second.made, [Bytes::from(two.as_path())]);
        for dir in [&one, &two, &mounts] {
            let is_root = rustix::process::geteuid().is_root();
            let covered = fuse_front::is_covered(&mounts).unwrap();
            if covered || !is_root {
                assert!(
                    std::fs::create_dir(dir.join("new")).is_err(),
                    "{}",
                    dir.display()
                );
            }
        }
        points.release("one", &one, &first.made);
        assert!(!one.exists() && two.exists());
        points.release("two", &two, &second.made);
        assert!(!two.exists());
        std::fs::write(mounts.join("free"), "").unwrap();
    }

    #[test]
    fn what_landed_in_one_of_the_homes_own_is_moved_aside_and_named() {
        let (_dir, points, _root) = points();
        let place = points.home.default_mount("w");
        std::fs::create_dir_all(place.join("dir")).unwrap();
        std::fs::write(place.join("dir/file"), "theirs").unwrap();
        let ready = prepare(&points, &place).unwrap();
        let [moved] = points.aside("w").try_into().unwrap();
        assert_eq!(std::fs::read(moved.join("dir/file")).unwrap(), b"theirs");
        assert!(ready.warnings[0].contains(moved.to_str().unwrap()));
        assert_eq!(place.read_dir().unwrap().count(), 0);
        points.release("w", &place, &ready.made);
        assert!(!place.exists() && moved.exists());
    }
}
