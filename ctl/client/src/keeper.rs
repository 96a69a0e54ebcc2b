//! The keeper of a home: a small process that holds the devices of mounts, so that a mount outlives its daemon.
//!
//! The kernel ends a mount when nobody has its device open. So the daemon hands each device to the keeper
//! ([`Keeper::keep`]). When the daemon's connection ends otherwise than by [`Keeper::end`], the keeper starts a
//! daemon again, which asks for the mounts ([`Keeper::join`]) and goes on with them. Where daemons end again and again it
//! refuses what is asked of the mounts, until a daemon takes them ([`Keeper::take`]). Beside that it never uses a device,
//! and knows of a mount only its name and a note that the daemon wrote.

mod daemon;
mod held;
pub mod process;
mod refuse;
mod starts;
mod wire;

use crate::home::Home;
use crate::launch::{open_log, own_program};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
    socketpair,
};
use std::fs::Permissions;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use wire::{Said, Told};

/// In the environment of the command that starts a daemon: `off` for no keeper, or a number: how many daemons may end
/// unasked within a minute before what is asked of their mounts fails (5).
pub const VARIABLE: &str = "AGENTVFS_KEEPER";

/// Daemons that wait to be accepted, at most.
const BACKLOG: i32 = 8;

/// How long the keeper may take to do what is waited for.
const DONE_WAIT: Duration = Duration::from_secs(10);

/// A mount that the keeper holds.
#[derive(Debug)]
pub struct KeptMount {
    /// The workspace.
    pub workspace: String,
    /// What the daemon wrote about it.
    pub note: String,
    /// The device, then whatever the daemon added.
    pub descriptors: Vec<OwnedFd>,
    /// Requests were refused: the kernel may have other names, pages and sizes than the workspace.
    pub was_refused: bool,
}

/// What a daemon learns when it joins.
#[derive(Debug)]
pub struct Joined {
    /// Its connection.
    pub keeper: Keeper,
    /// The mounts with which it is to go on.
    pub mounts: Vec<KeptMount>,
    /// Workspaces whose mounts can be had ([`Keeper::take`]).
    pub refused: Vec<String>,
}

/// A daemon's connection to the keeper of its home.
#[derive(Debug)]
pub struct Keeper {
    socket: OwnedFd,
}

impl Keeper {
    /// Joins the keeper that runs, as the daemon of `program`; `None` where none runs.
    ///
    /// # Errors
    /// What the system says; the keeper speaks otherwise than expected.
    pub fn join(home: &Home, program: &Path) -> Result<Option<Joined>> {
        let socket = new_socket()?;
        match connect(&socket, &address(&home.keeper_socket())?) {
            Ok(()) => {}
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::CONNREFUSED) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let keeper = Keeper { socket };
        let program = program.to_owned();
        keeper.say(&Said::Hello { program }, &[])?;
        let (mut mounts, mut refused) = (Vec::new(), Vec::new());
        loop {
            match wire::receive::<Told>(keeper.socket.as_fd())? {
                Some((Told::All, _)) => break,
                Some((Told::Ask, _)) => {}
                Some((Told::Refused { workspace }, _)) => refused.push(workspace),
                Some((told, descriptors)) => mounts.extend(kept(told, descriptors)),
                None => return Err(ErrorKind::UnexpectedEof.into()),
            }
        }
        Ok(Some(Joined {
            keeper,
            mounts,
            refused,
        }))
    }

    /// Starts a keeper of the home, from this program, and joins it. Gives its process, which is to be waited for.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(home: &Home) -> Result<(Keeper, Child)> {
        let path = home.keeper_socket();
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = new_socket()?;
        bind(&listener, &address(&path)?)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        listen(&listener, BACKLOG)?;
        let program = own_program();
        let process = Command::new(&program)
            .arg0("agentvfs")
            .arg("keeper")
            .arg("--root")
            .arg(home.root())
            .current_dir("/")
            .stdin(Stdio::from(listener))
            .stdout(Stdio::null())
            .stderr(open_log(&home.log())?)
            .spawn()?;
        let joined = Keeper::join(home, &program)?;
        joined
            .map(|joined| (joined.keeper, process))
            .ok_or_else(|| Error::other("it ended at once"))
    }

    /// Has a mount held: the device, and what else its next daemon needs.
    ///
    /// # Errors
    /// The keeper is gone.
    pub fn keep(&self, workspace: &str, note: &str, with: &[BorrowedFd<'_>]) -> Result<()> {
        let (workspace, note) = (workspace.to_owned(), note.to_owned());
        self.say(&Said::Keep { workspace, note }, with)
    }

    /// Has a mount held no longer.
    ///
    /// # Errors
    /// The keeper is gone.
    pub fn release(&self, workspace: &str) -> Result<()> {
        let workspace = workspace.to_owned();
        self.say(&Said::Release { workspace }, &[])
    }

    /// Has a mount handed over whose requests are refused; they wait from now on. `None` where there is no such mount.
    ///
    /// # Errors
    /// The keeper is gone.
    pub fn take(&self, workspace: &str) -> Result<Option<KeptMount>> {
        let workspace = workspace.to_owned();
        let here = self.say_and_wait(&Said::Take { workspace })?;
        let told = wire::receive::<Told>(here.as_fd())?;
        Ok(told.and_then(|(told, descriptors)| kept(told, descriptors)))
    }

    /// Has a mount held no longer, and waits until it is not.
    ///
    /// # Errors
    /// The keeper is gone.
    pub fn let_go(&self, workspace: &str) -> Result<()> {
        let workspace = workspace.to_owned();
        let here = self.say_and_wait(&Said::Release { workspace })?;
        wire::receive::<Told>(here.as_fd()).map(drop)
    }

    /// Says something with one end of a socket, which the keeper answers at or closes once it has done that. Gives the
    /// other end.
    fn say_and_wait(&self, what: &Said) -> Result<OwnedFd> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (here, there) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&here, Timeout::Recv, Some(DONE_WAIT))?;
        self.say(what, &[there.as_fd()])?;
        Ok(here)
    }

    /// The daemon ends as it was asked to: nothing is held that is not refused, nothing started again.
    ///
    /// # Errors
    /// The keeper is gone.
    pub fn end(&self) -> Result<()> {
        self.say(&Said::End, &[])
    }

    /// The daemon ends now so that another one goes on, which somebody else starts.
    ///
    /// # Errors
    /// The keeper is gone.
    pub fn hand_over(&self) -> Result<()> {
        self.say(&Said::HandOver, &[])
    }

    /// Listens until the keeper is gone. `is_alive` is called when it asks whether every mount answers.
    pub fn listen(&self, is_alive: impl Fn() -> bool) {
        while let Ok(Some((told, _))) = wire::receive::<Told>(self.socket.as_fd()) {
            // If it cannot be told, it is gone, which is noticed here.
            if told == Told::Ask && is_alive() {
                let _ = self.say(&Said::Alive, &[]);
            }
        }
    }

    /// Another descriptor of the same connection, to wait on.
    ///
    /// # Errors
    /// There are too many descriptors.
    pub fn duplicate(&self) -> Result<Keeper> {
        let socket = self.socket.try_clone()?;
        Ok(Keeper { socket })
    }

    fn say(&self, what: &Said, with: &[BorrowedFd<'_>]) -> Result<()> {
        wire::send(self.socket.as_fd(), what, with)
    }
}

/// A mount that is handed over.
fn kept(told: Told, descriptors: Vec<OwnedFd>) -> Option<KeptMount> {
    let Told::Kept {
        workspace,
        note,
        was_refused,
    } = told
    else {
        return None;
    };
    Some(KeptMount {
        workspace,
        note,
        descriptors,
        was_refused,
    })
}

/// A socket that keeps messages apart.
fn new_socket() -> Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

fn address(path: &PathBuf) -> Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(path)?)
}
