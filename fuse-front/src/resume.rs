//! Going on with a mount whose process is gone, while a keeper has held its device open.
//!
//! The mount needs no handshake: what was agreed on comes with the device. First the kernel is told to send again what
//! was not answered, then requests are read, and beside them it is found out what the kernel holds. Invariant: nothing
//! here touches a path in the mount before requests are read, nor on a thread that holds the device.

use crate::again::Before;
use crate::apart::Apart;
use crate::mount::{self, MountError, MountOptions, Mounted};
use crate::serve::{Front, Shared};
use crate::table;
use crate::transport::{Connection, Device};
use crate::wire::Layout;
use engine::descent::seen;
use engine::{Look, Process, Workspace};
use std::io::{Error, Result};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often it is looked whether the process before is gone: nothing tells.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What was agreed on with the kernel when a mount began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The connection's number, which the engine's records have.
    pub number: u64,
    /// How requests are laid out.
    pub layout: Layout,
}

/// A mount that outlives its process.
#[derive(Debug)]
pub struct Kept {
    /// Its device, which holds it.
    pub device: OwnedFd,
    /// Major and minor number of the mount's device, by which it is known again.
    pub dev: (u32, u32),
    /// What was agreed on.
    pub agreed: Agreed,
    /// The process that serves it; `None` where it is gone.
    pub process: Option<Process>,
    /// Requests failed because nobody served it, some of which may have been carried out: names, pages and sizes that the
    /// kernel has may be others than those of the workspace.
    pub was_refused: bool,
}

/// Goes on with a mount. `ws` was opened by [`engine::Engine::open_kept`] with the connection's number.
///
/// # Errors
/// [`MountError::NoAnswer`]: it is not mounted at the directory any more, or no thread can be started. Then the mount
/// ends when the last descriptor of its device is closed.
pub fn resume(
    ws: Arc<Workspace>,
    opts: &MountOptions,
    kept: Kept,
) -> std::result::Result<Mounted, MountError> {
    let mountpoint = table::resolve(&opts.mountpoint);
    let other = kept
        .process
        .filter(|process| process.pid != std::process::id());
    let before = other.map(Before::new).unwrap_or_default();
    let shared = mount::shared(ws, opts, Some(kept.agreed.number), before);
    go_on(&shared, &mountpoint, opts, kept).map_err(|source| {
        mount::give_up(&shared);
        MountError::NoAnswer { mountpoint, source }
    })
}

fn go_on(
    shared: &Arc<Shared>,
    mountpoint: &Path,
    opts: &MountOptions,
    kept: Kept,
) -> Result<Mounted> {
    if !table::is_mounted(mountpoint, kept.dev) {
        return Err(Error::other("it is not mounted there any more"));
    }
    let front = Front(shared.clone());
    let (layout, was_refused) = (kept.agreed.layout, kept.was_refused);
    let connection = Connection::resume(kept.device, layout, front, opts.threads);
    let device = connection.keepable().map(|(device, _)| device);
    let device = device.ok_or_else(|| Error::other("the connection cannot be resumed"))?;
    let may_show_before = shared.ws.0.may_show_before();
    if was_refused {
        shared.ws.0.doubt_kernel();
    }
    if let Some(device) = device.upgrade() {
        // Before anything is read here: what this process has read would be sent again, too.
        device.resend()?;
        if (may_show_before || was_refused)
            && let Err(error) = device.drop_names()
        {
            tracing::warn!(%error, "the kernel may show names that are out of date");
        }
    }
    let mounted = mount::begin(shared, (mountpoint, kept.dev), connection)?;
    let settle = Settle {
        shared: Arc::downgrade(shared),
        device,
        mountpoint: mountpoint.to_owned(),
        was_refused,
    };
    std::thread::Builder::new()
        .name("fuse-settle".to_owned())
        .spawn(move || settle.run())?;
    Ok(mounted)
}

/// Whether the mount at `mountpoint` answers within `limit`. For the process that serves it.
pub fn answers(mountpoint: &Path, limit: Duration) -> bool {
    let mountpoint = mountpoint.to_owned();
    let asked = Apart::default().run_for(limit, move || rustix::fs::statvfs(&mountpoint).is_ok());
    // An error is an answer, too.
    asked.is_ok()
}

/// What is left to be found out while requests are answered. Ends with the mount.
struct Settle {
    shared: Weak<Shared>,
    device: Weak<Device>,
    mountpoint: PathBuf,
    /// Pages of every inode are to be dropped, whatever the engine says ([`Kept::was_refused`]).
    was_refused: bool,
}

impl Settle {
    fn run(self) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let ws = shared.ws.0.clone();
        if self.all_sent_again(&shared) {
            ws.requests_settled();
        }
        drop(shared);
        self.wait_for_before();
        ws.settle_held(&mut |node, look| {
            // Once the mount has ended nothing is held.
            let device = self.device.upgrade();
            let look = if self.was_refused { Look::Drop } else { look };
            device.is_some_and(|device| device.holds(node, look))
        });
        tracing::info!("what the kernel holds is known");
    }

    /// Waits until the process before is gone, or has no thread left that could ask something.
    fn wait_for_before(&self) {
        while let Some(shared) = self.shared.upgrade() {
            let Some(process) = shared.before.process() else {
                return;
            };
            let threads = std::fs::read_dir(format!("/proc/{}/task", process.pid));
            let is_other = seen(process.pid).is_none_or(|seen| seen.process != process);
            if is_other || threads.map_or(0, Iterator::count) <= 1 {
                return shared.before.is_gone();
            }
            drop(shared);
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until every request that was sent again is answered; false where that cannot be told. The kernel sends
    /// these before any new one, so they were all read when a new one is answered.
    fn all_sent_again(&self, shared: &Shared) -> bool {
        let mountpoint = self.mountpoint.clone();
        let asked = Apart::default().run(move || rustix::fs::statvfs(&mountpoint));
        matches!(asked, Ok(Ok(_))) && shared.drain.wait()
    }
}
