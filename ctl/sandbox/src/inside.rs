//! Process 1 of the sandbox: builds it, starts the command, reaps, and ends with the command, by which the kernel
//! ends everything that the command left behind.
//!
//! Invariant: it never returns into the code of the caller, whose memory it has a copy of; it ends with the caller
//! (a signal of the kernel at the caller's end, and the end of the caller's pipe); once the command runs it has
//! no capability, cannot be traced, and holds nothing of the machine but its pipe.

use crate::descriptors::Descriptors;
use crate::error::{Doing, Error, Result};
use crate::plan::{Net, Plan, Protection};
use crate::private::Directories;
use crate::sys::{self, Signals};
use crate::wire::{GO, MAPPED, Told, expect};
use crate::{layers, reach, tree};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Access, AtFlags, CWD, FileType, accessat, statat};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions, WaitStatus};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What process 1 gets from the caller.
pub struct Given<'a> {
    /// What is asked.
    pub plan: &'a Plan,
    /// Sockets of the machine.
    pub sockets: &'a [PathBuf],
    /// Descriptors of the command.
    pub descriptors: &'a Descriptors,
    /// Signals as the caller had them.
    pub signals: &'a Signals,
    /// Directories in memory that others of its session have; none if it makes its own.
    pub private: Directories,
    /// To the caller.
    pub up: File,
    /// From the caller.
    pub down: File,
}

/// Signals that are passed on to the command.
const PASSED_ON: [i32; 5] = [
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGCONT,
];

/// Is process 1.
pub fn run(mut given: Given<'_>) -> ! {
    // A panic must not go on into the caller's code; what it was about is on standard error already.
    let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&mut given)));
    if let Ok(Err(error)) = worked {
        // Where the caller is gone there is nobody to tell.
        let _ = Told::of_error(&error).send(&mut given.up);
    }
    sys::exit(1)
}

fn work(given: &mut Given<'_>) -> Result<()> {
    let doing = || "preparing process 1".to_owned();
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).doing(doing)?;
    give_descriptors(given.descriptors)?;
    let mut kept = vec![given.up.as_fd(), given.down.as_fd()];
    kept.extend(given.private.iter().map(|(_, tree)| tree.as_fd()));
    sys::close_all_but(&kept).doing(doing)?;
    expect(&mut given.down, MAPPED)?;
    let nested = given.plan.nested.as_ref();
    if let Some(socket) = nested.and_then(|of| of.maps.as_deref()) {
        reach::ask_for_maps(socket)?;
    }
    let root = rustix::process::geteuid().is_root();
    if given.plan.net == Net::None {
        sys::loopback_up().doing(|| "switching the loopback device on".to_owned())?;
    }
    let (not_copied, lacking) = match given.plan.protection {
        Protection::ViewOnly => view_only(given.plan, root)?,
        protection => protected(given, root, protection == Protection::BestEffort)?,
    };
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).doing(doing)?;
    // Once more: the kernel forgets it when rights change.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).doing(doing)?;
    let program = find(given.plan)?;
    let words = Words::of(given.plan, &program)?;
    let tell = |told: Told, up: &mut File| told.send(up).doing(|| "telling the caller".to_owned());
    for why in not_copied {
        tell(Told::NotCopied(why), &mut given.up)?;
    }
    for what in lacking {
        tell(Told::Lacking(what), &mut given.up)?;
    }
    tell(Told::Stands, &mut given.up)?;
    expect(&mut given.down, GO)?;
    let mut taken = PASSED_ON.to_vec();
    taken.push(libc::SIGCHLD);
    let signals = Signals::take(&taken).doing(doing)?;
    let command = spawn(&words, given.signals)?;
    serve(command, &signals, &mut given.up)
}

/// What is not a copy, and layers that the kernel lacks.
type Missing = (Vec<String>, Vec<String>);

/// Puts all layers in force.
fn protected(given: &mut Given<'_>, root: bool, may_lack: bool) -> Result<Missing> {
    let may_keep_proc = may_lack || given.plan.nested.is_some();
    let (not_copied, mut lacking) = tree::build(
        &given.plan.places,
        given.sockets,
        std::mem::take(&mut given.private),
        (root, may_keep_proc),
    )?;
    enter(&given.plan.cwd)?;
    let strict = given
        .plan
        .strict
        .then(|| tree::writable(&given.plan.places));
    lacking.extend(layers::apply(root, strict.as_deref(), may_lack)?);
    Ok((not_copied, lacking))
}

/// Shows the views, and nothing else. Root is in no user namespace and keeps its rights; others have in theirs what
/// they have outside.
fn view_only(plan: &Plan, root: bool) -> Result<Missing> {
    tree::place_views(&plan.places)?;
    enter(&plan.cwd)?;
    if !root {
        layers::drop_all()?;
    }
    Ok(Missing::default())
}

fn give_descriptors(descriptors: &Descriptors) -> Result<()> {
    for (number, fd) in &descriptors.given {
        let given = match number {
            0 => rustix::stdio::dup2_stdin(fd),
            1 => rustix::stdio::dup2_stdout(fd),
            _ => rustix::stdio::dup2_stderr(fd),
        };
        given.doing(|| format!("replacing descriptor {number}"))?;
    }
    Ok(())
}

fn enter((wanted, otherwise): &(PathBuf, PathBuf)) -> Result<()> {
    let entered = rustix::process::chdir(wanted).or_else(|_| rustix::process::chdir(otherwise));
    entered.doing(|| format!("entering {}", otherwise.display()))
}

/// The program that the command names, as execvp(3) finds it.
fn find(plan: &Plan) -> Result<PathBuf> {
    let name = plan.command.first().ok_or(Error::NotFound)?;
    if name.as_bytes().contains(&b'/') {
        return check(Path::new(name)).map(|()| PathBuf::from(name));
    }
    let path = plan.env.iter().find(|(key, _)| key == "PATH");
    let path = path.map_or(OsStr::new("/usr/local/bin:/bin:/usr/bin"), |(_, path)| path);
    let mut found = Err(Error::NotFound);
    for dir in std::env::split_paths(path) {
        let program = Path::new(".").join(dir).join(name);
        if statat(CWD, &program, AtFlags::empty()).is_err() {
            // A directory that cannot be searched has nothing for this user.
            continue;
        }
        match check(&program) {
            Ok(()) => return Ok(program),
            Err(Error::NotExecutable(errno)) => found = Err(Error::NotExecutable(errno)),
            Err(_) => {}
        }
    }
    found
}

fn check(program: &Path) -> Result<()> {
    let stat = match statat(CWD, program, AtFlags::empty()) {
        Ok(stat) => stat,
        Err(Errno::NOENT | Errno::NOTDIR) => return Err(Error::NotFound),
        Err(errno) => return Err(Error::NotExecutable(errno)),
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::NotExecutable(Errno::ACCESS));
    }
    accessat(CWD, program, Access::EXEC_OK, AtFlags::EACCESS).map_err(Error::NotExecutable)
}

/// A command as the kernel takes it.
struct Words {
    program: CString,
    args: Vec<CString>,
    env: Vec<CString>,
    /// The same for a script without `#!`, as shells and execvp(3) run it.
    script: Vec<CString>,
}

impl Words {
    fn of(plan: &Plan, program: &Path) -> Result<Words> {
        let text =
            |bytes: &[u8]| CString::new(bytes).map_err(|_| Error::NotExecutable(Errno::INVAL));
        let args: Result<Vec<CString>> = plan
            .command
            .iter()
            .map(|word| text(word.as_bytes()))
            .collect();
        let args = args?;
        let env = plan.env.iter().map(|(key, value)| {
            let mut pair = key.as_bytes().to_vec();
            pair.push(b'=');
            pair.extend_from_slice(value.as_bytes());
            text(&pair)
        });
        let program = text(program.as_os_str().as_bytes())?;
        let mut script = vec![c"sh".to_owned(), program.clone()];
        script.extend(args.iter().skip(1).cloned());
        Ok(Words {
            program,
            args,
            env: env.collect::<Result<_>>()?,
            script,
        })
    }

    /// Becomes the command; returns only where that failed.
    fn exec(&self) -> Errno {
        match sys::exec(&self.program, &self.args, &self.env) {
            Errno::NOEXEC => sys::exec(c"/bin/sh", &self.script, &self.env),
            errno => errno,
        }
    }
}

/// Starts the command, with signals as the caller had them.
fn spawn(words: &Words, signals: &Signals) -> Result<Pid> {
    let doing = || "starting the command".to_owned();
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).doing(doing)?;
    let Some(command) = sys::fork().doing(doing)? else {
        signals.give_back();
        let errno = words.exec().raw_os_error();
        // The pipe takes four bytes at once.
        let _ = rustix::io::write(&write, &errno.to_le_bytes());
        sys::exit(127);
    };
    drop::<OwnedFd>(write);
    let mut failed = [0; 4];
    match rustix::io::read(&read, &mut failed[..]).doing(doing)? {
        0 => Ok(command),
        _ => Err(Error::NotExecutable(Errno::from_raw_os_error(
            i32::from_le_bytes(failed),
        ))),
    }
}

/// Passes signals on, reaps, and tells the caller how the command does, until it ends.
fn serve(command: Pid, signals: &Signals, up: &mut File) -> Result<()> {
    let doing = || "watching the command".to_owned();
    loop {
        let signal = signals.next().doing(doing)?;
        if signal.number != libc::SIGCHLD {
            // Others in the sandbox signal whom they mean; a terminal signals all by itself.
            if signal.sent && signal.sender == 0 {
                // It may have ended: then its end comes next.
                let _ = sys::send(command, signal.number);
            }
            continue;
        }
        while let Some((pid, status)) = reaped() {
            if pid != command {
                continue;
            }
            if let Some(number) = status.stopping_signal() {
                Told::Stopped(number).send(up).doing(doing)?;
                continue;
            }
            Told::Ended(status.as_raw()).send(up).doing(doing)?;
            sys::exit(0);
        }
    }
}

/// A child that ended or was stopped.
fn reaped() -> Option<(Pid, WaitStatus)> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Err(Errno::INTR) => {}
            found => return found.ok().flatten(),
        }
    }
}
