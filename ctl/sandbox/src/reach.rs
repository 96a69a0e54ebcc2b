//! What the machine's side does in a sandbox that stands: places another directory in it, takes one away, and writes
//! the maps of ids of a sandbox inside it.
//!
//! Each is done by a process of its own, which has one thread, enters the sandbox's namespaces and ends. Invariant: such
//! a process runs nothing of the sandbox, and follows no path there but to directories in memory that the command
//! cannot write to.

use crate::error::{Doing, Error, Result};
use crate::wire::Told;
use crate::{ids, pieces, sys};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, mkdirat};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, UnmountFlags, open_tree, unmount};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Asks, at the socket of a run, for the maps of the namespace that this process is in.
pub const MAP: &[u8] = b"map\n";
/// The answer, if they are written.
pub const MAPPED: &[u8] = b"mapped\n";

/// How long the maps may take.
const MAP_TIMEOUT: Duration = Duration::from_secs(10);

/// The namespaces of a sandbox that are entered to reach into it.
#[derive(Debug)]
pub struct Namespaces {
    /// Its user namespace.
    pub user: OwnedFd,
    /// Its mount namespace.
    pub mount: OwnedFd,
}

impl Namespaces {
    /// Those of a process.
    pub(crate) fn of(process: Pid) -> rustix::io::Result<Namespaces> {
        let open = |name: &str| {
            let path = format!("/proc/{}/ns/{name}", process.as_raw_nonzero());
            rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        };
        Ok(Namespaces {
            user: open("user")?,
            mount: open("mnt")?,
        })
    }

    /// Those of the sandbox that another process, `agentvfs run`, has open to reach into it. None where it has none, or
    /// may not be looked at.
    pub fn held_by(process: i32) -> Option<Namespaces> {
        let dir = format!("/proc/{process}/fd");
        let (mut user, mut mount) = (None, None);
        for entry in std::fs::read_dir(dir).ok()?.flatten() {
            let path = entry.path();
            let Ok(to) = std::fs::read_link(&path) else {
                continue;
            };
            let open = || rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            match to.as_os_str().as_bytes() {
                name if name.starts_with(b"user:[") => user = user.or(open().ok()),
                name if name.starts_with(b"mnt:[") => mount = mount.or(open().ok()),
                _ => {}
            }
        }
        Some(Namespaces {
            user: user?,
            mount: mount?,
        })
    }

    /// The same, to be given to another process.
    pub fn try_clone(&self) -> std::io::Result<Namespaces> {
        Ok(Namespaces {
            user: self.user.try_clone()?,
            mount: self.mount.try_clone()?,
        })
    }

    fn enter_user(&self) -> Result<()> {
        let user = Some(LinkNameSpaceType::User);
        move_into_link_name_space(self.user.as_fd(), user)
            .doing(|| "entering the sandbox's user namespace".to_owned())
    }

    pub(crate) fn enter(&self) -> Result<()> {
        self.enter_user()?;
        let mount = Some(LinkNameSpaceType::Mount);
        move_into_link_name_space(self.mount.as_fd(), mount)
            .doing(|| "entering the sandbox's mount namespace".to_owned())
    }
}

/// Places the directory `from` of the machine in a sandbox at `at`, writable, whose parent there is an empty directory in
/// memory. This process, which has one thread, is in the sandbox afterwards. `maps` as in [`crate::Nested`].
pub fn attach(
    namespaces: &Namespaces,
    (from, at): (&Path, &Path),
    maps: Option<&Path>,
) -> Result<()> {
    let tree = taken(from, maps, &Ok)?;
    namespaces.enter()?;
    let (dir, name) = parent(at)?;
    // One of that name may have been there.
    while unmount(at, UnmountFlags::DETACH).is_ok() {}
    match mkdirat(&dir, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno).doing(|| format!("making {}", at.display())),
    }
    pieces::attach(tree.as_fd(), at)
}

/// Takes away what was placed at `at`.
pub fn detach(namespaces: &Namespaces, at: &Path) -> Result<()> {
    namespaces.enter()?;
    while unmount(at, UnmountFlags::DETACH).is_ok() {}
    let (dir, name) = parent(at)?;
    match rustix::fs::unlinkat(&dir, name, rustix::fs::AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno).doing(|| format!("removing {}", at.display())),
    }
}

/// Writes the maps of ids of a user namespace that was made in the sandbox; `process` is the first one in it.
pub fn map_ids(namespaces: &Namespaces, process: Pid) -> Result<()> {
    namespaces.enter_user()?;
    ids::write_maps(process)
}

/// Has somebody outside write the maps of this process's user namespace.
pub(crate) fn ask_for_maps(socket: &Path) -> Result<()> {
    let doing = || "asking for the maps of ids".to_owned();
    let mut stream = UnixStream::connect(socket).doing(doing)?;
    stream.set_read_timeout(Some(MAP_TIMEOUT)).doing(doing)?;
    stream.write_all(MAP).doing(doing)?;
    let mut answer = vec![0; MAPPED.len()];
    stream.read_exact(&mut answer).doing(doing)?;
    match answer == MAPPED {
        true => Ok(()),
        false => Err(Errno::PERM).doing(doing),
    }
}

/// The directory in memory that a path is in, writable for this process alone, and the name in it.
fn parent(at: &Path) -> Result<(OwnedFd, &std::ffi::OsStr)> {
    let (Some(dir), Some(name)) = (at.parent(), at.file_name()) else {
        return Err(Error::Missing(at.to_owned()));
    };
    let doing = || format!("opening {}", dir.display());
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, dir, flags).doing(doing)?;
    sys::make_writable(tree.as_fd()).doing(doing)?;
    Ok((tree, name))
}

/// What is done with a directory that was taken before it is handed over.
pub(crate) type Furnish<'a> = &'a dyn Fn(OwnedFd) -> Result<OwnedFd>;

/// A directory of the machine as a detached mount. An ordinary user may take one in a user namespace alone, from which no
/// other one can be entered: so a process of its own takes it, and hands it over.
pub(crate) fn taken(from: &Path, maps: Option<&Path>, furnish: Furnish<'_>) -> Result<OwnedFd> {
    let doing = || format!("taking {}", from.display());
    let (here, there) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .doing(doing)?;
    let namespaces = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
    let Some(child) = sys::clone_into(namespaces).map_err(Error::Namespaces)? else {
        let done = hand_over((from, maps), furnish, there.as_fd());
        if let Err(error) = &done {
            // Nobody may wait for it any more.
            let _ = rustix::io::write(&there, b"e");
            let _ = Told::of_error(error).send(&mut File::from(there));
        }
        sys::exit(i32::from(done.is_err()));
    };
    drop(there);
    let tree = match maps {
        None => ids::write_maps(child),
        Some(_) => Ok(()),
    }
    .and_then(|()| {
        rustix::io::write(&here, b"m").doing(doing)?;
        match received(here.as_fd()).doing(doing)? {
            Some(tree) => Ok(tree),
            None => Err(Told::receive(&mut File::from(here)).map_or(Error::Lost, Told::into_error)),
        }
    });
    while let Err(Errno::INTR) = waitpid(Some(child), WaitOptions::empty()) {}
    tree
}

fn hand_over(
    (from, maps): (&Path, Option<&Path>),
    furnish: Furnish<'_>,
    to: BorrowedFd<'_>,
) -> Result<()> {
    let doing = || "handing a directory over".to_owned();
    let mut byte = [0];
    if rustix::io::read(to, &mut byte[..]).doing(doing)? == 0 {
        return Err(Error::Lost);
    }
    if let Some(socket) = maps {
        ask_for_maps(socket)?;
    }
    let tree = furnish(pieces::with(
        pieces::take(from, false)?,
        pieces::HARMLESS,
        from,
    )?)?;
    send(to, tree.as_fd()).doing(doing)
}

/// Sends a descriptor.
pub(crate) fn send(to: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let with = [fd];
    if !control.push(SendAncillaryMessage::ScmRights(&with)) {
        return Err(Errno::INVAL);
    }
    sendmsg(to, &[IoSlice::new(b"t")], &mut control, SendFlags::NOSIGNAL).map(|_| ())
}

/// The descriptor that the other end sends; none if it ends.
pub(crate) fn received(from: BorrowedFd<'_>) -> rustix::io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| recvmsg(from, &mut text, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let found = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut all) => all.next(),
        _ => None,
    });
    Ok(found)
}

/// Mounts of this process that can be written to, and the directories at which branches are placed.
pub fn mounts() -> Result<Vec<Mounted>> {
    let doing = || "reading the mounts of this process".to_owned();
    let table = std::fs::read("/proc/self/mountinfo").doing(doing)?;
    Ok(listed(&table))
}

/// A mount of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Where it is.
    pub at: std::path::PathBuf,
    /// Nothing in it can be written.
    pub is_read_only: bool,
}

/// Mounts in a table such as `/proc/self/mountinfo` (proc(5)): the fifth field is the place, the sixth has the options.
fn listed(table: &[u8]) -> Vec<Mounted> {
    let one = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ').skip(4);
        let (at, options) = (fields.next()?, fields.next()?);
        Some(Mounted {
            at: std::ffi::OsStr::from_bytes(&plain(at)).into(),
            is_read_only: options
                .split(|byte| *byte == b',')
                .any(|option| option == b"ro"),
        })
    };
    table.split(|byte| *byte == b'\n').filter_map(one).collect()
}

/// A path without the kernel's way to write space, tab, newline and backslash: `\` and three octal digits.
fn plain(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = path;
    while let Some((first, more)) = rest.split_first() {
        let digits = more
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let number = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (first, number) {
            (b'\\', Some(number)) => {
                plain.push(number);
                rest = &more[3..];
            }
            _ => {
                plain.push(*first);
                rest = more;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_every_name() {
        let table = b"36 35 0:51 / /mnt/a\\040b rw,nosuid - fuse.agentvfs demo ro\n\
            37 35 0:52 /x /c\\134 ro,relatime shared:1 - ext4 /dev/x rw\nshort\n";
        let mounted = |at: &str, is_read_only| Mounted {
            at: at.into(),
            is_read_only,
        };
        assert_eq!(
            listed(table),
            [mounted("/mnt/a b", false), mounted("/c\\", true)]
        );
    }

    #[test]
    fn who_is_asked_for_maps_must_say_that_they_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        for (answer, is_ok) in [(MAPPED, true), (b"refused", false), (b"", false)] {
            std::thread::scope(|scope| {
                let asking = scope.spawn(|| ask_for_maps(&path));
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = vec![0; MAP.len()];
                stream.read_exact(&mut asked).unwrap();
                assert_eq!(asked, MAP);
                stream.write_all(answer).unwrap();
                drop(stream);
                assert_eq!(asking.join().unwrap().is_ok(), is_ok);
            });
        }
    }
}
