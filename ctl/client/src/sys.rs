//! The system call that neither `std` nor `rustix` offers for every answer. All `unsafe` of this crate.

use rustix::fs::{Gid, Uid};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Who is at the other end of a socket, as it was when that connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The process; none if it is outside this PID namespace. `rustix` takes no such answer.
    pub process: Option<u32>,
    /// Its user.
    pub user: Uid,
    /// Its group.
    pub group: Gid,
}

/// Asks the kernel for the other end of a unix socket.
pub fn peer(socket: impl AsFd) -> io::Result<Peer> {
    let mut found = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are to values that outlive the call, and the length is that of the first one, for which any
    // bytes are valid.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer {
        process: u32::try_from(found.pid).ok().filter(|pid| *pid != 0),
        user: Uid::from_raw(found.uid),
        group: Gid::from_raw(found.gid),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_other_end_is_this_process() {
        let (here, _there) = UnixStream::pair().unwrap();
        let found = peer(&here).unwrap();
        assert_eq!(found.process, Some(std::process::id()));
        assert_eq!(found.user, rustix::process::geteuid());
        assert!(peer(std::fs::File::open("/").unwrap()).is_err());
    }
}
