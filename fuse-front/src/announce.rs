//! Telling watchers (inotify, fanotify) what a rollback or merge has changed.
//!
//! The kernel tells watchers of what goes through it, and a rollback does not. So the daemon makes a
//! few calls on its own mount that change nothing: for a name that has come, `mknod`, `mkdir` or
//! `symlink`; for one that has gone, `unlink` or `rmdir`; for a file that has changed, `utimensat` with
//! the time that it has. The front knows these calls by the thread that makes them ([`Own`]) and answers
//! them from the tree as it is, without touching it: so whatever else goes on meanwhile, nothing is
//! changed, at most an event is missing.
//!
//! It happens after the rollback is answered, on a thread of its own that holds nothing which a
//! handler takes, and only where somebody watches the mount ([`watched`]).

use crate::limits::{ANNOUNCE_WAIT_MAX, ANNOUNCEMENTS_MAX};
use crate::sys::leave_files;
use crate::watchers::watched;
use engine::types::{Announcement, Happened, Kind};
use parking_lot::Mutex;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxFlags, Timespec, Timestamps, UTIME_OMIT,
    openat2, statx,
};
use rustix::io::{Errno, Result};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

/// A call of the announcing thread's that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Own {
    /// It looks around, or touches something.
    Plain,
    /// It makes a name that is there already: the kernel must take it as missing until then.
    Makes,
    /// It removes a name of this kind that is gone already: the kernel must take it as there.
    Removes(Kind),
}

/// The announcing thread of a mount.
#[derive(Debug, Default)]
pub(crate) struct Announcer {
    /// Its task id while it works, else 0.
    task: AtomicU32,
    own: Mutex<Option<Own>>,
    /// Held while a batch is announced.
    batch: Mutex<()>,
    paused: AtomicBool,
    /// Names that were made up so far.
    made_up: AtomicU64,
}

impl Announcer {
    /// What the announcing thread is about, if it is task `pid` that asks.
    pub(crate) fn own(&self, pid: u32) -> Option<Own> {
        match self.task.load(SeqCst) {
            0 => None,
            task if task == pid => *self.own.lock(),
            _ => None,
        }
    }

    /// A number for a name that is made up; never given twice, so that the kernel knows nothing of it.
    pub(crate) fn next_made_up(&self) -> u64 {
        self.made_up.fetch_add(1, SeqCst)
    }

    /// Announces `list` on a thread of its own, where anybody watches device `dev` at `mountpoint`.
    pub(crate) fn announce(
        self: &Arc<Self>,
        mountpoint: &Path,
        dev: (u32, u32),
        list: Vec<Announcement>,
    ) {
        if list.is_empty() || self.paused.load(SeqCst) {
            return;
        }
        let (announcer, mountpoint) = (self.clone(), mountpoint.to_owned());
        if list.len() > ANNOUNCEMENTS_MAX {
            let left = list.len() - ANNOUNCEMENTS_MAX;
            tracing::info!(
                left,
                "too many changes: watchers get no events for the rest"
            );
        }
        let work = move || {
            // Where the kernel cannot do that a kill at this moment is a risk, as it is for other threads.
            let _ = leave_files(None);
            let _batch = announcer.batch.lock();
            if watched(dev) {
                announcer.tell_all(&mountpoint, dev, &list);
            }
        };
        let spawned = std::thread::Builder::new()
            .name("announce".to_owned())
            .spawn(work);
        if let Err(error) = spawned {
            tracing::warn!(%error, "watchers get no events");
        }
    }

    /// Stops announcing until [`Announcer::resume`], and returns when the mount is not used for it
    /// any more; where that lasts, after a while.
    pub(crate) fn pause(&self) {
        self.paused.store(true, SeqCst);
        drop(self.batch.try_lock_for(ANNOUNCE_WAIT_MAX));
    }

    /// Goes on, with what comes from now on.
    pub(crate) fn resume(&self) {
        self.paused.store(false, SeqCst);
    }

    fn tell_all(&self, mountpoint: &Path, dev: (u32, u32), list: &[Announcement]) {
        self.task.store(
            rustix::thread::gettid().as_raw_nonzero().get() as u32,
            SeqCst,
        );
        *self.own.lock() = Some(Own::Plain);
        let root = Root::open(mountpoint, dev);
        let mut place: Option<OpenDir> = None;
        for told in list.iter().take(ANNOUNCEMENTS_MAX) {
            if self.paused.load(SeqCst) {
                break;
            }
            if place.as_ref().is_none_or(|place| place.path != told.dir) {
                place = root.as_ref().and_then(|root| root.place(&told.dir));
            }
            if let Some(place) = &place {
                self.tell(&place.dir, dev, told);
            }
        }
        drop((place, root));
        *self.own.lock() = None;
        self.task.store(0, SeqCst);
    }

    /// One announcement. What cannot be said in full is said as a change of attributes.
    fn tell(&self, dir: &OwnedFd, dev: (u32, u32), told: &Announcement) {
        let name = OsStr::from_bytes(&told.name);
        let said = match told.what {
            Happened::Removed(kind) => {
                let flags = match kind {
                    Kind::Dir => AtFlags::REMOVEDIR,
                    _ => AtFlags::empty(),
                };
                // Nothing is left that attributes could be changed of.
                let _ = self.with(Own::Removes(kind), || {
                    rustix::fs::unlinkat(dir, name, flags)
                });
                return;
            }
            Happened::Made(kind) => self.with(Own::Makes, || make(dir, name, kind)),
            Happened::Changed => Err(Errno::EXIST),
        };
        // A file that has come has a content, too.
        let is_new = said.is_ok() && told.what != Happened::Made(Kind::File);
        if !is_new && let Err(errno) = touch(dir, dev, name) {
            tracing::debug!(%errno, "a change could not be announced");
        }
    }

    fn with<R>(&self, own: Own, call: impl FnOnce() -> R) -> R {
        *self.own.lock() = Some(own);
        let done = call();
        *self.own.lock() = Some(Own::Plain);
        done
    }
}

/// The mount's root.
struct Root(OwnedFd);

/// A directory of the mount.
struct OpenDir {
    path: Vec<u8>,
    dir: OwnedFd,
}

impl Root {
    /// Opens what is mounted, unless another mount lies over it.
    fn open(mountpoint: &Path, dev: (u32, u32)) -> Option<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(mountpoint, flags, Mode::empty()).ok()?;
        let stat = statx(&root, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE).ok()?;
        ((stat.stx_dev_major, stat.stx_dev_minor) == dev).then_some(Root(root))
    }

    /// Opens a directory below. No link, and no other mount, may be on the way: the calls made there
    /// must reach no other file system.
    fn place(&self, path: &[u8]) -> Option<OpenDir> {
        let below = if path.is_empty() { b"." } else { path };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let dir = openat2(&self.0, below, flags, Mode::empty(), how).ok()?;
        let path = path.to_owned();
        Some(OpenDir { path, dir })
    }
}

fn make(dir: impl AsFd, name: &OsStr, kind: Kind) -> Result<()> {
    let mode = Mode::from_raw_mode(0o600);
    let node = |kind| rustix::fs::mknodat(&dir, name, kind, mode, 0);
    match kind {
        Kind::File => node(FileType::RegularFile),
        Kind::Dir => rustix::fs::mkdirat(&dir, name, mode),
        Kind::Symlink => rustix::fs::symlinkat("-", &dir, name),
        Kind::Fifo => node(FileType::Fifo),
        Kind::Socket => node(FileType::Socket),
        Kind::Char => node(FileType::CharacterDevice),
        Kind::Block => node(FileType::BlockDevice),
    }
}

/// Sets the modification time to what it is, which watchers hear as a change of content; of anything
/// but a file both times, which they hear as a change of attributes.
fn touch(dir: impl AsFd, dev: (u32, u32), name: &OsStr) -> Result<()> {
    let stat = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if (
        rustix::fs::major(stat.st_dev),
        rustix::fs::minor(stat.st_dev),
    ) != dev
    {
        return Err(Errno::XDEV);
    }
    let modification = Timespec {
        tv_sec: stat.st_mtime,
        tv_nsec: stat.st_mtime_nsec as _,
    };
    let access = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        _ => Timespec {
            tv_sec: stat.st_atime,
            tv_nsec: stat.st_atime_nsec as _,
        },
    };
    let times = Timestamps {
        last_access: access,
        last_modification: modification,
    };
    rustix::fs::utimensat(&dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_announcing_task_is_answered_so() {
        let announcer = Announcer::default();
        assert_eq!(announcer.own(0), None);
        announcer.task.store(7, SeqCst);
        *announcer.own.lock() = Some(Own::Makes);
        assert_eq!(announcer.own(7), Some(Own::Makes));
        assert_eq!(announcer.own(8), None);
    }

    #[test]
    fn nothing_is_announced_while_it_pauses() {
        let announcer = Arc::new(Announcer::default());
        announcer.pause();
        let list = vec![Announcement {
            dir: Vec::new(),
            name: b"x".to_vec(),
            what: Happened::Changed,
        }];
        announcer.announce(Path::new("/nonexistent"), (0, 0), list);
        assert_eq!(announcer.task.load(SeqCst), 0);
    }
}
