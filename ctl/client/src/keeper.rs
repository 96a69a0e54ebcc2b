//! The keeper of a home: a small process that holds the devices of mounts, so that a mount outlives its daemon.
//!
//! The kernel ends a mount when nobody has its device open. So the daemon hands each device to the keeper
//! ([`Keeper::keep`]). When the daemon's connection ends otherwise than by [`Keeper::end`], the keeper starts a
//! daemon again, which asks for the mounts ([`Keeper::join`]) and goes on with them. The keeper never uses a
//! device, and knows of a mount only its name and a note that the daemon wrote.

pub mod process;
mod starts;
mod wire;

use crate::home::Home;
use crate::launch::{open_log, own_program};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use std::fs::Permissions;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use wire::{Said, Told};

/// In the environment of the command that starts a daemon: `off` for no keeper, or a number: how many daemons may end
/// unasked within a minute before their mounts are given up (5).
pub const VARIABLE: &str = "AGENTVFS_KEEPER";

/// Daemons that wait to be accepted, at most.
const BACKLOG: i32 = 8;

/// A mount that the keeper holds.
#[derive(Debug)]
pub struct KeptMount {
    /// The workspace.
    pub workspace: String,
    /// What the daemon wrote about it.
    pub note: String,
    /// The device, then whatever the daemon added.
    pub descriptors: Vec<OwnedFd>,
}

/// A daemon's connection to the keeper of its home.
#[derive(Debug)]
pub struct Keeper {
    socket: OwnedFd,
}

impl Keeper {
    /// Joins the keeper that runs, as the daemon of `program`, and gives the mounts that it holds; `None` where none
    /// runs.
    ///
    /// # Errors
    /// What the system says; the keeper speaks otherwise than expected.
    pub fn join(home: &Home, program: &Path) -> Result<Option<(Keeper, Vec<KeptMount>)>> {
        let socket = new_socket()?;
        match connect(&socket, &address(&home.keeper_socket())?) {
            Ok(()) => {}
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::CONNREFUSED) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let keeper = Keeper { socket };
        let program = program.to_owned();
        keeper.say(&Said::Hello { program }, &[])?;
        let mut mounts = Vec::new();
        loop {
            match wire::receive::<Told>(keeper.socket.as_fd())? {
                Some((Told::Kept { workspace, note }, descriptors)) => mounts.push(KeptMount {
                    workspace,
                    note,
                    descriptors,
                }),
                Some((Told::All, _)) => return Ok(Some((keeper, mounts))),
                Some((Told::Ask, _)) => {}
                None => return Err(ErrorKind::UnexpectedEof.into()),
            }
        }
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
            .map(|(keeper, _)| (keeper, process))
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

    /// The daemon ends as it was asked to: nothing is held, nothing started again.
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

/// A socket that keeps messages apart.
fn new_socket() -> Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

fn address(path: &PathBuf) -> Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(path)?)
}
