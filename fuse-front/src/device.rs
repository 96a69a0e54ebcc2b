//! Getting a FUSE device mounted: by mount(2) where that is allowed, else by `fusermount3`.

use crate::mount::{MountError, MountOptions};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
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
    let device = match rustix::fs::open("/dev/fuse", flags, Mode::empty()) {
        Ok(device) => device,
        // The helper may open it where we may not.
        Err(Errno::ACCESS | Errno::PERM) => return by_helper(mountpoint, opts),
        Err(error) => return Err(MountError::NoDevice(error.into())),
    };
    match by_system_call(mountpoint, opts, &device) {
        Ok(()) => Ok(device),
        Err(Errno::PERM) => by_helper(mountpoint, opts),
        Err(error) => Err(refused(mountpoint, error.to_string())),
    }
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
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        uid.as_raw(),
        gid.as_raw()
    );
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
