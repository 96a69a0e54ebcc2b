//! Messages between daemon and keeper: JSON, one in each packet, with the descriptors that belong to it.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Length of a message, at most.
const MESSAGE_BYTES_MAX: usize = 16 << 10;

/// Descriptors with one message, at most.
const DESCRIPTORS_MAX: usize = 2;

/// What the daemon says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Said {
    /// First of all: a daemon of this program serves the home now.
    Hello { program: PathBuf },
    /// Hold a mount.
    Keep { workspace: String, note: String },
    /// Let it go.
    Release { workspace: String },
    /// The daemon ends as it was asked to.
    End,
    /// The daemon ends so that another one goes on, which somebody else starts.
    HandOver,
    /// Every mount answers; said when asked.
    Alive,
    /// Hand a mount over that is refused ([`Told::Refused`]). With it comes a socket, at which the mount is told
    /// ([`Told::Kept`]) once the keeper refuses nothing of it any more; it is closed where there is no such mount.
    Take { workspace: String },
}

/// What the keeper says after `Hello`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Told {
    /// A mount that it holds.
    Kept {
        workspace: String,
        note: String,
        /// Requests were refused, so the kernel may have other names, pages and sizes than the workspace.
        #[serde(default)]
        was_refused: bool,
    },
    /// A mount that it holds and whose requests it refuses, until a daemon takes it.
    Refused { workspace: String },
    /// These were all.
    All,
    /// Later: whether every mount answers.
    Ask,
}

/// Sends one message.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    message: &impl Serialize,
    with: &[BorrowedFd<'_>],
) -> Result<()> {
    let text = serde_json::to_vec(message)?;
    if text.len() > MESSAGE_BYTES_MAX || with.len() > DESCRIPTORS_MAX {
        return Err(ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !with.is_empty() && !control.push(SendAncillaryMessage::ScmRights(with)) {
        return Err(ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&text)], &mut control, flags))?;
    Ok(())
}

/// The next message and its descriptors; `None` once the other side is gone.
pub(super) fn receive<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
) -> Result<Option<(T, Vec<OwnedFd>)>> {
    let mut text = vec![0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut text)],
            &mut control,
            flags,
        )
    })?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
    if received.flags.intersects(cut) {
        return Err(ErrorKind::InvalidData.into());
    }
    let descriptors = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(all) => all.collect(),
        _ => Vec::new(),
    });
    let descriptors = descriptors.collect();
    let message = serde_json::from_slice(&text[..received.bytes]).map_err(Error::from)?;
    Ok(Some((message, descriptors)))
}
