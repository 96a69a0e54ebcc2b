//! Whether this process sees at a workspace's mount point what the daemon serves there.
//!
//! A path means the same to both only in the same mount namespace: in another one the directory may be empty,
//! and what is written there is in no workspace. So who prints such a path compares devices first. Nothing
//! here hangs where a mount does: what asks it does so in a thread of its own, and has a deadline.

use crate::failure::Failure;
use crate::protocol::{Device, Info, WorkspaceStatus};
use crate::quote::quoted;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// How long a mount may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is wrong with what is seen.
#[derive(Debug, PartialEq, Eq)]
enum Wrong {
    /// It is something else.
    Other,
    /// It cannot be looked at.
    Hidden(Errno),
    /// It is the mount, which does not work.
    Broken(Errno),
    /// It is the mount, which does not answer.
    Silent,
}

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Whether it is the daemon's mount.
    At,
    /// Whether it answers, too.
    Into,
}

/// A failure where a workspace is mounted, but not for this process; `daemon` is the daemon's process.
/// What is not mounted is no failure.
pub fn check(info: &Info, look: Look, daemon: u32) -> Result<(), Failure> {
    let Some(device) = info
        .device
        .filter(|_| info.status == WorkspaceStatus::Started)
    else {
        return Ok(());
    };
    let place = info.mount.to_path();
    let seen = patiently(move || compare(&place, device, look));
    seen.map_err(|wrong| failure(info, &wrong, daemon))
}

fn patiently(look: impl FnOnce() -> Result<(), Wrong> + Send + 'static) -> Result<(), Wrong> {
    let (done, wait) = mpsc::channel();
    let asked = std::thread::Builder::new()
        .name("look".into())
        // Nobody waits any more if it took too long; what hangs ends with this process.
        .spawn(move || drop(done.send(look())));
    match asked {
        Ok(_) => wait.recv_timeout(PATIENCE).unwrap_or(Err(Wrong::Silent)),
        Err(error) => {
            tracing::warn!(%error, "no thread to look at the mount");
            Ok(())
        }
    }
}

fn compare(place: &Path, device: Device, look: Look) -> Result<(), Wrong> {
    // Asked for nothing, the kernel tells the device without the mount, and to those whom it lets in or not.
    let found = statx(CWD, place, AtFlags::STATX_DONT_SYNC, StatxFlags::empty());
    let found = found.map_err(Wrong::Hidden)?;
    let (major, minor) = (found.stx_dev_major, found.stx_dev_minor);
    if (Device { major, minor }) != device {
        return Err(Wrong::Other);
    }
    if look == Look::At {
        return Ok(());
    }
    match rustix::fs::statfs(place) {
        // Root may not enter every user's mount.
        Ok(_) | Err(Errno::ACCESS | Errno::PERM) => Ok(()),
        Err(error) => Err(Wrong::Broken(error)),
    }
}

fn failure(info: &Info, wrong: &Wrong, daemon: u32) -> Failure {
    let place = String::from_utf8_lossy(&quoted(&info.mount.0)).into_owned();
    let what = format!(
        "{} is running, but its mount is not visible here",
        info.name
    );
    let elsewhere = format!(
        "run this in the daemon's mount namespace: nsenter -t {daemon} -m; or agentvfs stop {0}, and start {0} \
         here after that process has ended",
        info.name
    );
    match wrong {
        Wrong::Other => Failure::new(what, format!("{place} is not the mount that process {daemon} serves"))
            .hint(elsewhere),
        Wrong::Hidden(error) => {
            Failure::new(what, format!("{place}: {}", text(*error))).hint(elsewhere)
        }
        Wrong::Broken(error) => {
            Failure::new(
                format!("the mount of {} does not work", info.name),
                format!("{place}: {}", text(*error)),
            )
            .hint(format!("agentvfs start {} mounts it again", info.name))
        }
        Wrong::Silent => Failure::new(
            format!("the mount of {} does not respond", info.name),
            place,
        )
        .hint(format!(
            "agentvfs status --log shows what the daemon does; agentvfs stop {} --force unmounts it",
            info.name
        )),
    }
}

fn text(error: Errno) -> String {
    std::io::Error::from(error).to_string()
}

/// The device of what a path shows.
#[cfg(test)]
fn device_at(place: &Path) -> Device {
    let found = statx(CWD, place, AtFlags::empty(), StatxFlags::empty()).unwrap();
    let (major, minor) = (found.stx_dev_major, found.stx_dev_minor);
    Device { major, minor }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Bytes;

    fn info(place: &Path, device: Option<Device>) -> Info {
        Info {
            name: "w".into(),
            mount: Bytes::from(place),
            base: Bytes::default(),
            status: WorkspaceStatus::Started,
            device,
            unmounted: false,
        }
    }

    #[test]
    fn another_device_and_a_missing_directory_are_failures_with_a_hint() {
        let dir = tempfile::tempdir().unwrap();
        let here = device_at(dir.path());
        check(&info(dir.path(), Some(here)), Look::Into, 7).unwrap();
        check(&info(dir.path(), None), Look::Into, 7).unwrap();
        let other = Device {
            minor: here.minor + 1,
            ..here
        };
        for info in [
            info(dir.path(), Some(other)),
            info(&dir.path().join("missing"), Some(here)),
        ] {
            let failure = check(&info, Look::At, 7).unwrap_err();
            assert_eq!(failure.exit, crate::failure::FAILED);
            assert!(failure.hint.unwrap().contains("nsenter -t 7 -m"));
            let stopped = Info {
                status: WorkspaceStatus::Stopped,
                ..info
            };
            check(&stopped, Look::Into, 7).unwrap();
        }
    }
}
