//! Getting a FUSE device mounted: by mount(2) where that is allowed, else by `fusermount3`.
//!
//! Over a dead mount the new one is put so that the directory below never shows: beneath the dead one,
//! which is then taken away (Linux 6.5), else over it.

use crate::mount::{MountError, MountOptions};
use crate::stale;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, UnmountFlags,
};
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::net::{SocketFlags, SocketType, recvmsg, socketpair};
use std::ffi::CString;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

/// Type of the mount as `/proc/mounts` shows it.
const TYPE: &str = "fuse.agentvfs";

/// Mounts a new device at `mountpoint`.
pub(crate) fn mount(mountpoint: &Path, opts: &MountOptions) -> Result<OwnedFd, MountError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let is_dead = stale::is_dead_mount(mountpoint);
    let by_helper = || match is_dead {
        // It looks at the directory first, which a dead mount answers with an error.
        true => Err(MountError::Dead(mountpoint.to_owned())),
        false => by_helper(mountpoint, opts),
    };
    let device = match rustix::fs::open("/dev/fuse", flags, Mode::empty()) {
        Ok(device) => device,
        // The helper may open it where we may not.
        Err(error @ (Errno::ACCESS | Errno::PERM)) => {
            return by_helper().map_err(|failed| match failed {
                MountError::Refused { why, .. } => {
                    tracing::warn!(why, "fusermount3 cannot mount either");
                    MountError::NoDevice(error.into())
                }
                other => other,
            });
        }
        Err(error) => return Err(MountError::NoDevice(error.into())),
    };
    let mounted = match is_dead {
        true => over_dead(mountpoint, opts, &device),
        false => by_system_call(mountpoint, opts, &device),
    };
    match mounted {
        Ok(()) => Ok(device),
        Err(Errno::PERM) => by_helper(),
        Err(error) => Err(refused(mountpoint, error.to_string())),
    }
}

/// Mounts where a dead mount lies.
fn over_dead(mountpoint: &Path, opts: &MountOptions, device: &OwnedFd) -> Result<(), Errno> {
    if let Err(error) = stale::detach_all_but_one(mountpoint) {
        tracing::warn!(%error, "a dead mount stays where it is");
    }
    match beneath(mountpoint, opts, device) {
        Ok(()) => stale::unmount(mountpoint, UnmountFlags::DETACH).map_err(|error| {
            tracing::warn!(%error, "cannot remove the dead mount");
            // What nobody sees must not stay.
            Errno::BUSY
        }),
        Err(Errno::PERM) => Err(Errno::PERM),
        Err(error) => {
            tracing::info!(%error, "no mount can be put beneath another: the dead one stays below");
            by_system_call(mountpoint, opts, device)
        }
    }
}

/// Mounts beneath what is mounted there, which keeps showing.
fn beneath(mountpoint: &Path, opts: &MountOptions, device: &OwnedFd) -> Result<(), Errno> {
    use rustix::mount::{fsconfig_create, fsconfig_set_flag, fsconfig_set_string};
    let (kind, subtype) = TYPE.split_once('.').unwrap_or((TYPE, ""));
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |key: &str, value: &str| fsconfig_set_string(&context, key, value);
    set("source", &opts.fs_name)?;
    set("subtype", subtype)?;
    for (key, value) in identity(device) {
        set(key, &value)?;
    }
    for option in kernel_options(opts) {
        fsconfig_set_flag(&context, option)?;
    }
    fsconfig_create(&context)?;
    let mut attributes = MountAttrFlags::empty();
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOSUID, opts.nosuid);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NODEV, opts.nodev);
    let mount = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_BENEATH;
    rustix::mount::move_mount(&mount, "", CWD, mountpoint, flags)
}

/// The options that say whose mount it is and who answers.
fn identity(device: &OwnedFd) -> [(&'static str, String); 4] {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    [
        ("fd", device.as_raw_fd().to_string()),
        ("rootmode", "40000".to_owned()),
        ("user_id", uid.as_raw().to_string()),
        ("group_id", gid.as_raw().to_string()),
    ]
}

fn refused(mountpoint: &Path, why: String) -> MountError {
    MountError::Refused {
        mountpoint: mountpoint.to_owned(),
        why,
    }
}

/// The mount's options that the kernel knows.
fn kernel_options(opts: &MountOptions) -> Vec<&'static str> {
    let known = [
        (opts.allow_other, "allow_other"),
        (opts.default_permissions, "default_permissions"),
    ];
    known
        .into_iter()
        .filter_map(|(wanted, name)| wanted.then_some(name))
        .collect()
}

fn by_system_call(mountpoint: &Path, opts: &MountOptions, device: &OwnedFd) -> Result<(), Errno> {
    let identity = identity(device).map(|(key, value)| format!("{key}={value}"));
    let mut data = identity.join(",");
    for option in kernel_options(opts) {
        data.push(',');
        data.push_str(option);
    }
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::NOSUID, opts.nosuid);
    flags.set(MountFlags::NODEV, opts.nodev);
    rustix::mount::mount(opts.fs_name.as_str(), mountpoint, TYPE, flags, &*data)
}

/// Has the set-uid program mount it; the device comes back over a socket, which is its standard
/// input (so that nothing else inherits it).
fn by_helper(mountpoint: &Path, opts: &MountOptions) -> Result<OwnedFd, MountError> {
    let failed = |error: std::io::Error| refused(mountpoint, format!("fusermount3: {error}"));
    let _writable = Writable::make(mountpoint).map_err(failed)?;
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| failed(error.into()))?;
    let mut command = Command::new("fusermount3");
    command
        .arg("-o")
        .arg(helper_options(opts))
        .arg("--")
        .arg(mountpoint);
    command
        .env("_FUSE_COMMFD", "0")
        .stdin(theirs)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let child = command.spawn().map_err(failed)?;
    // The command holds the socket's other end; without it, reading ends when the helper does.
    drop(command);
    let device = receive(&ours);
    let output = child.wait_with_output().map_err(failed)?;
    device.ok_or_else(|| {
        refused(
            mountpoint,
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )
    })
}

/// A directory that its owner may write to for a while, which the helper asks of a mount point.
struct Writable {
    directory: OwnedFd,
    mode: Mode,
}

impl Writable {
    /// Nothing is changed where it may be written to already, or is somebody else's.
    fn make(directory: &Path) -> std::io::Result<Option<Writable>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(directory) = rustix::fs::open(directory, flags, Mode::empty()) else {
            return Ok(None);
        };
        let stat = rustix::fs::fstat(&directory)?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        let is_ours = stat.st_uid == rustix::process::geteuid().as_raw();
        if !is_ours || mode.contains(Mode::WUSR) {
            return Ok(None);
        }
        rustix::fs::fchmod(&directory, mode | Mode::WUSR)?;
        Ok(Some(Writable { directory, mode }))
    }
}

impl Drop for Writable {
    fn drop(&mut self) {
        if let Err(error) = rustix::fs::fchmod(&self.directory, self.mode) {
            tracing::warn!(%error, "the mount point stays writable");
        }
    }
}

/// Options for the helper; commas and backslashes in the name are escaped.
fn helper_options(opts: &MountOptions) -> String {
    let name = opts.fs_name.replace('\\', "\\\\").replace(',', "\\,");
    let mut options = format!("fsname={name},subtype=agentvfs");
    let flags = [(opts.nosuid, "nosuid"), (opts.nodev, "nodev")];
    let flags = flags
        .into_iter()
        .filter_map(|(wanted, name)| wanted.then_some(name));
    for option in kernel_options(opts).into_iter().chain(flags) {
        options.push(',');
        options.push_str(option);
    }
    options
}

/// The descriptor that comes with a byte over the socket.
fn receive(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut iov = [IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut iov, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> MountOptions {
        MountOptions {
            fs_name: "a,b".to_owned(),
            ..MountOptions::new("/mnt")
        }
    }

    #[test]
    fn helper_gets_the_options_escaped() {
        let text = helper_options(&MountOptions {
            allow_other: true,
            ..options()
        });
        assert_eq!(
            text,
            "fsname=a\\,b,subtype=agentvfs,allow_other,default_permissions,nosuid,nodev"
        );
    }

    #[test]
    fn kernel_gets_no_permission_check_where_it_is_off() {
        let opts = MountOptions {
            default_permissions: false,
            ..options()
        };
        assert!(kernel_options(&opts).is_empty());
    }
}
