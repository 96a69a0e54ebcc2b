//! A mount's life: mounting, noticing its end, unmounting, and aborting it.
//!
//! [`mount`] returns when the mount answers. [`Mounted`] is the handle; dropping it aborts the mount,
//! so that no dead one stays behind. Invariant: no descriptor of a file inside the mount is kept
//! open (it would be busy for ever).

use crate::again::Before;
use crate::announce::Announcer;
use crate::apart::Apart;
use crate::drain::Drain;
use crate::end::End;
use crate::invalidate::MountCache;
use crate::latency::{Latency, WakeUp};
use crate::pool::Pool;
use crate::probe::Probe;
use crate::resume::{Agreed, Kept};
use crate::serve::{Front, Shared, WorkspaceRef};
use crate::stats::Stats;
use crate::transport::{Connection, Device, Transport};
use crate::{device, stale, table};
use engine::Workspace;
use engine::descent::seen;
use engine::types::NoKernelCache;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs::{File, OpenOptions};
use std::io::{Error, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long an unmounted connection may take to end.
const END_WAIT_MAX: Duration = Duration::from_secs(5);

/// Where the kernel shows FUSE connections, by the minor number of the mount's device.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// An existing directory.
    pub mountpoint: PathBuf,
    /// What `df` and `/proc/mounts` show as the source.
    pub fs_name: String,
    /// Other users (also root, where the daemon is not) may use the mount.
    pub allow_other: bool,
    /// The kernel checks mode bits and ACLs. Without it nobody does.
    pub default_permissions: bool,
    /// Set-id bits have no effect.
    pub nosuid: bool,
    /// Device nodes cannot be opened.
    pub nodev: bool,
    /// See [`Latency`].
    pub latency: Latency,
    /// Threads that read requests. One is fastest for metadata; more help where they meet a slow disk.
    pub threads: usize,
    /// Which way requests come.
    pub transport: Transport,
    /// The kernel asks for each open of a file, which is told of ([`Workspace::opened`]).
    pub opens: bool,
    /// Another process may go on with the mount when this one dies ([`Mounted::kept`]).
    pub keep: bool,
}

impl MountOptions {
    /// The defaults, for `mountpoint`.
    pub fn new(mountpoint: impl Into<PathBuf>) -> MountOptions {
        MountOptions {
            mountpoint: mountpoint.into(),
            fs_name: "agentvfs".to_owned(),
            allow_other: false,
            default_permissions: true,
            nosuid: true,
            nodev: true,
            latency: Latency::Low,
            threads: 1,
            transport: Transport::Own,
            opens: false,
            keep: false,
        }
    }
}

/// Why mounting or unmounting failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The mount point cannot be used.
    #[error("{mountpoint}: {source}", mountpoint = mountpoint.display())]
    BadMountpoint {
        /// The directory.
        mountpoint: PathBuf,
        /// What is wrong with it.
        source: std::io::Error,
    },
    /// FUSE is not there.
    #[error("/dev/fuse: {0}")]
    NoDevice(std::io::Error),
    /// The kernel or fusermount3 refused to mount.
    #[error("cannot mount at {mountpoint}: {why}", mountpoint = mountpoint.display())]
    Refused {
        /// The directory.
        mountpoint: PathBuf,
        /// What they said.
        why: String,
    },
    /// It was mounted, but does not work.
    #[error("the mount at {mountpoint} does not respond: {source}", mountpoint = mountpoint.display())]
    NoAnswer {
        /// The directory.
        mountpoint: PathBuf,
        /// What happened.
        source: std::io::Error,
    },
    /// A dead mount is there, and this user may mount only once it is detached.
    #[error("there is a dead mount at {mountpoint}", mountpoint = .0.display())]
    Dead(PathBuf),
    /// Programs use the mount. It goes on working.
    #[error("{mountpoint} is in use", mountpoint = .0.mountpoint.display())]
    Busy(Box<Mounted>),
    /// Unmounting failed otherwise. The mount goes on working.
    #[error("cannot unmount {mountpoint}: {source}", mountpoint = mounted.mountpoint.display())]
    Unmount {
        /// The mount.
        mounted: Box<Mounted>,
        /// What happened.
        source: std::io::Error,
    },
}

/// A mounted workspace. Dropping it takes the mount away, whoever uses it.
pub struct Mounted {
    mountpoint: PathBuf,
    dev: (u32, u32),
    stats: Arc<Stats>,
    end: Arc<End>,
    announcer: Arc<Announcer>,
    /// The connection's abort file, opened early: later it may not be reachable.
    abort: Option<File>,
    watch: Mutex<table::Watch>,
    /// What another process needs to go on with it.
    keepable: Option<(Weak<Device>, Agreed)>,
}

impl std::fmt::Debug for Mounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mounted")
            .field("mountpoint", &self.mountpoint)
            .field("dev", &self.dev)
            .finish()
    }
}

/// Shows `ws` at a directory. Returns when the mount answers. A dead mount there is replaced without
/// the directory below it showing in between.
///
/// # Errors
/// [`MountError`]; nothing is mounted then.
pub fn mount(ws: Arc<Workspace>, opts: MountOptions) -> Result<Mounted, MountError> {
    let mountpoint = usable(&opts.mountpoint)?;
    let device = device::mount(&mountpoint, &opts)?;
    let connection = (opts.keep && opts.transport == Transport::Own).then(new_number);
    let shared = shared(ws, &opts, connection, Before::default());
    let started = start(&shared, &mountpoint, device, &opts);
    started.map_err(|source| {
        give_up(&shared);
        if let Err(error) = stale::unmount(&mountpoint, UnmountFlags::DETACH) {
            tracing::warn!(%error, "cannot remove a mount that does not respond");
        }
        MountError::NoAnswer { mountpoint, source }
    })
}

/// What the handlers of a new mount share.
pub(crate) fn shared(
    ws: Arc<Workspace>,
    opts: &MountOptions,
    connection: Option<u64>,
    before: Before,
) -> Arc<Shared> {
    Arc::new(Shared {
        ws: WorkspaceRef(ws),
        stats: Arc::default(),
        drain: Arc::new(Drain::default()),
        probe: Arc::new(Probe::default()),
        wake_up: WakeUp::start(opts.latency),
        pool: Pool::new(),
        announcer: Arc::default(),
        permissions: opts.default_permissions,
        opens: opts.opens,
        connection,
        before,
    })
}

/// Ends what [`shared`] began.
pub(crate) fn give_up(shared: &Shared) {
    shared.wake_up.end();
    shared.ws.0.set_kernel_cache(Arc::new(NoKernelCache));
}

/// A number that no connection had before: a daemon begins no two in one nanosecond, and a home has one daemon.
fn new_number() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |since| since.as_nanos() as u64).max(1)
}

/// The directory as an absolute path without symbolic links. A dead mount cannot be looked at.
fn usable(mountpoint: &Path) -> Result<PathBuf, MountError> {
    if stale::is_dead_mount(mountpoint) {
        return Ok(table::resolve(mountpoint));
    }
    let checked = std::fs::canonicalize(mountpoint).and_then(|path| {
        match std::fs::metadata(&path)?.is_dir() {
            true => Ok(path),
            false => Err(Errno::NOTDIR.into()),
        }
    });
    let mountpoint = mountpoint.to_owned();
    checked.map_err(|source| MountError::BadMountpoint { mountpoint, source })
}

/// Starts answering requests, and asks the first ones itself.
fn start(
    shared: &Arc<Shared>,
    mountpoint: &Path,
    device: std::os::fd::OwnedFd,
    opts: &MountOptions,
) -> std::io::Result<Mounted> {
    let how = (shared.permissions, opts.threads);
    let connection = Connection::open(opts.transport, device, Front(shared.clone()), how)?;
    let entry = table::top_at(mountpoint)?;
    let entry = entry.ok_or_else(|| Error::other("the mount disappeared"))?;
    let mounted = begin(shared, (mountpoint, entry.dev), connection)?;
    shared.probe.prime(&Apart::default(), &mounted.mountpoint)?;
    Ok(mounted)
}

/// Begins to answer the requests of a mount and its device.
pub(crate) fn begin(
    shared: &Arc<Shared>,
    (mountpoint, dev): (&Path, (u32, u32)),
    connection: Connection<Front>,
) -> std::io::Result<Mounted> {
    let mountpoint = mountpoint.to_owned();
    let cache = MountCache {
        mountpoint: mountpoint.clone(),
        dev,
        kernel: connection.kernel(),
        drain: shared.drain.clone(),
        announcer: shared.announcer.clone(),
        apart: Apart::default(),
    };
    let agreed = |(device, layout)| {
        let number = shared.connection?;
        Some((device, Agreed { number, layout }))
    };
    let keepable = connection.keepable().and_then(agreed);
    let end = Arc::new(End::default());
    run(connection, shared.clone(), end.clone())?;
    let mounted = Mounted {
        watch: Mutex::new(table::Watch::new(mountpoint.clone(), dev)),
        mountpoint,
        dev,
        stats: shared.stats.clone(),
        end,
        announcer: shared.announcer.clone(),
        abort: abort_file(dev.1),
        keepable,
    };
    shared.ws.0.set_kernel_cache(Arc::new(cache));
    Ok(mounted)
}

/// Answers requests on threads of its own until the mount is gone, then tells so.
fn run(connection: Connection<Front>, shared: Arc<Shared>, end: Arc<End>) -> std::io::Result<()> {
    let answer = move || {
        if let Err(error) = connection.run() {
            tracing::error!(%error, "the mount's connection ended with an error");
        }
        shared.wake_up.end();
        // It holds the device open.
        shared.ws.0.set_kernel_cache(Arc::new(NoKernelCache));
        drop(shared);
        end.reach();
    };
    std::thread::Builder::new()
        .name("fuse-connection".to_owned())
        .spawn(answer)
        .map(drop)
}

/// Opens the abort file of connection `minor`, if the kernel shows it; mounts where it shows it, if
/// that is allowed.
fn abort_file(minor: u32) -> Option<File> {
    let path = Path::new(CONNECTIONS).join(minor.to_string()).join("abort");
    let open = || OpenOptions::new().write(true).open(&path);
    open()
        .or_else(|error| {
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            rustix::mount::mount("fusectl", CONNECTIONS, "fusectl", flags, None)
                .map_err(|_| error)?;
            open()
        })
        .ok()
}

impl Mounted {
    /// Where it is mounted: absolute, without symbolic links.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Its device's major and minor number, by which anybody can tell whether a directory shows this mount.
    pub fn device(&self) -> (u32, u32) {
        self.dev
    }

    /// What another process needs to go on with the mount ([`crate::resume`]); `None` where none can: the kernel is
    /// older than Linux 6.16, it was not asked for ([`MountOptions::keep`]), or the mount has ended.
    pub fn kept(&self) -> Option<Kept> {
        let (device, agreed) = self.keepable.as_ref()?;
        Some(Kept {
            device: device.upgrade()?.duplicate().ok()?,
            dev: self.dev,
            agreed: *agreed,
            process: seen(std::process::id()).map(|seen| seen.process),
            was_refused: false,
        })
    }

    /// Requests that it has answered.
    pub fn stats(&self) -> Arc<Stats> {
        self.stats.clone()
    }

    /// False once it was unmounted, by whomever.
    pub fn is_alive(&self) -> bool {
        !self.end.is_reached() && self.watch.lock().is_mounted()
    }

    /// Has `callback` called, on a thread of the mount's, when the mount has ended; at once, if it
    /// has already.
    pub fn on_unmounted(&self, callback: impl FnOnce() + Send + 'static) {
        self.end.when_reached(Box::new(callback));
    }

    /// Unmounts, if no program uses it, and waits until the last request is answered.
    ///
    /// Another mount namespace may have a copy of the mount, which then ends with it.
    ///
    /// # Errors
    /// [`MountError::Busy`] or [`MountError::Unmount`], with the mount, which goes on working.
    pub fn unmount(mut self) -> Result<(), MountError> {
        if !table::is_mounted(&self.mountpoint, self.dev) {
            self.end_copies();
            self.end.wait(END_WAIT_MAX);
            return Ok(());
        }
        self.announcer.pause();
        match self.unmount_own() {
            Ok(()) => {
                self.end_copies();
                self.end.wait(END_WAIT_MAX);
                Ok(())
            }
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                self.announcer.resume();
                Err(MountError::Busy(Box::new(self)))
            }
            Err(source) => {
                self.announcer.resume();
                Err(MountError::Unmount {
                    mounted: Box::new(self),
                    source,
                })
            }
        }
    }

    /// Ends the connection of an unmounted mount. Where that was the last mount of it, the kernel has
    /// written everything back and ended it already; else copies of it are left in other namespaces.
    fn end_copies(&mut self) {
        if self.end.is_reached() {
            return;
        }
        if let Some(Err(error)) = self.abort.as_mut().map(|file| file.write_all(b"1")) {
            tracing::debug!(%error, "the connection has ended already");
        }
    }

    /// Unmounts what is at the mount point, provided that it is this mount.
    fn unmount_own(&self) -> std::io::Result<()> {
        let covered = table::top_at(&self.mountpoint)?.is_none_or(|top| top.dev != self.dev);
        if covered {
            return Err(Error::other("another mount covers it"));
        }
        // What no longer answers is useless, and "busy" would be no reason to keep it.
        let flags = match self.end.is_reached() {
            true => UnmountFlags::DETACH,
            false => UnmountFlags::empty(),
        };
        stale::unmount(&self.mountpoint, flags)
    }

    /// Takes the mount away, whoever uses it: programs get errors from files they have open. Works
    /// also where requests hang.
    pub fn abort(self) {
        drop(self);
    }

    /// Ends the connection, then detaches the mount.
    fn take_away(&mut self) {
        let aborted = self.abort.as_mut().map(|file| file.write_all(b"1"));
        if !matches!(aborted, Some(Ok(()))) {
            // Without the abort file: a forced unmount ends the connection, though it is busy.
            let _ = stale::unmount(&self.mountpoint, UnmountFlags::FORCE);
        }
        while table::top_at(&self.mountpoint)
            .is_ok_and(|top| top.is_some_and(|t| t.dev == self.dev))
        {
            if let Err(error) = stale::unmount(&self.mountpoint, UnmountFlags::DETACH) {
                tracing::warn!(%error, "cannot detach {}", self.mountpoint.display());
                return;
            }
        }
        self.end.wait(END_WAIT_MAX);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if table::is_mounted(&self.mountpoint, self.dev) {
            self.take_away();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_no_mount_point() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(
            usable(file.path()),
            Err(MountError::BadMountpoint { .. })
        ));
    }
}
