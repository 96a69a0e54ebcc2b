//! Attempts of a process to reach out of its sandbox, by system calls: what is behind the program `escape`.

mod sys;

pub use sys::{handle_of, open_handle};

use std::fs::{self, OpenOptions};
use std::io::{self, Error, ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What was tried, and how it went.
pub type Tried = (&'static str, io::Result<()>);

/// Makes the attempts of one kind; `on` is what they are made on.
pub fn attempts(kind: &str, on: &str) -> Option<Vec<Tried>> {
    Some(match kind {
        "typing" => typing(),
        "kernel" => sys::DENIED
            .map(|(name, call)| (name, sys::numbers(call, [0; 5])))
            .into(),
        "process" => process(on.parse().ok()?),
        "path-socket" => vec![
            ("stream", UnixStream::connect(on).map(|_| ())),
            ("datagram", datagram(on)),
        ],
        "abstract-socket" => vec![("abstract", abstract_socket(on))],
        "handle" => vec![("open_by_handle_at", handle(on))],
        _ => return None,
    })
}

/// Typing into the terminal, which here is any descriptor: what a filter refuses it refuses before the kernel looks
/// whether that is a terminal.
fn typing() -> Vec<Tried> {
    let typed = |request| match sys::numbers(libc::SYS_ioctl, [0, request, 0, 0, 0]) {
        // It got as far as the terminal.
        Err(error) if error.raw_os_error() != Some(libc::EPERM) => Ok(()),
        tried => tried,
    };
    let other_number = match sys::numbers(sys::X32_IOCTL, [0, libc::TIOCSTI as i64, 0, 0, 0]) {
        Err(error) if error.raw_os_error() != Some(libc::ENOSYS) => Ok(()),
        tried => tried,
    };
    let high_bits = libc::TIOCSTI as i64 | 1 << 32;
    vec![
        ("TIOCSTI", typed(libc::TIOCSTI as i64)),
        ("TIOCSTI with high bits", typed(high_bits)),
        ("TIOCLINUX", typed(libc::TIOCLINUX as i64)),
        ("TIOCSTI by x32", other_number),
    ]
}

fn process(pid: i64) -> Vec<Tried> {
    let file = |name: &str| {
        OpenOptions::new()
            .write(true)
            .open(format!("/proc/{pid}/{name}"))
    };
    let dir = |name: &str| fs::read_dir(format!("/proc/{pid}/{name}/")).map(|_| ());
    let mut tried = vec![
        (
            "ptrace",
            sys::numbers(libc::SYS_ptrace, [libc::PTRACE_ATTACH as i64, pid, 0, 0, 0]),
        ),
        ("process_vm_writev", sys::write_memory(pid)),
        ("mem", file("mem").map(|_| ())),
        ("root", dir("root")),
        ("cwd", dir("cwd")),
        ("fd", descriptors(pid)),
        ("exe", fs::read(format!("/proc/{pid}/exe")).map(|_| ())),
    ];
    if pid != 1 {
        tried.push(("kill", sys::numbers(libc::SYS_kill, [pid, 0, 0, 0, 0])));
    }
    tried
}

/// Root may list the numbers; none may lead anywhere.
fn descriptors(pid: i64) -> io::Result<()> {
    let mut refused = Err(Error::from_raw_os_error(libc::EACCES));
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        refused = fs::read_link(entry?.path()).map(|_| ());
        if refused.is_ok() {
            break;
        }
    }
    refused
}

/// A file by its number, which no name hides, at every mount that there is; `on` is the number in hexadecimal digits.
fn handle(on: &str) -> io::Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let places = table.lines().filter_map(|line| line.split(' ').nth(4));
    let mut refused = Err(Error::from_raw_os_error(libc::EPERM));
    for place in places.chain(["/etc", "/usr", "."]) {
        let Ok(dir) = fs::File::open(place) else {
            continue;
        };
        refused = sys::open_handle(&dir, on);
        if refused.is_ok() {
            eprintln!("by {place}");
            break;
        }
    }
    refused
}

/// Makes a user namespace and a mount namespace, has the run's socket map every id in it, and becomes `program` there. Gives
/// why that could not be done.
pub fn become_mapped(program: &[String]) -> Error {
    let asked = sys::numbers(
        libc::SYS_unshare,
        [
            i64::from(libc::CLONE_NEWUSER | libc::CLONE_NEWNS),
            0,
            0,
            0,
            0,
        ],
    )
    .and_then(|()| UnixStream::connect(std::env::var("AGENTVFS_SOCKET").unwrap_or_default()))
    .and_then(|mut stream| {
        stream.write_all(b"map\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    });
    match (asked, program) {
        (Ok(answer), [name, args @ ..]) if answer == "mapped\n" => {
            Command::new(name).args(args).exec()
        }
        (Ok(answer), _) => Error::other(format!("{program:?}, asked for maps: {answer:?}")),
        (Err(error), _) => error,
    }
}

fn datagram(path: &str) -> io::Result<()> {
    UnixDatagram::unbound()?.send_to(b"x", path).map(|_| ())
}

fn abstract_socket(name: &str) -> io::Result<()> {
    let address = SocketAddr::from_abstract_name(name)?;
    match UnixStream::connect_addr(&address) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(error),
        // It is not there, so nothing is known.
        Err(error) => {
            eprintln!("{error}");
            Ok(())
        }
    }
}

/// Errors by which the kernel says that it will not, rather than that it was asked badly.
pub fn is_refusal(error: &Error) -> bool {
    let known = [
        libc::EPERM,
        libc::EACCES,
        libc::ESRCH,
        libc::ENOENT,
        libc::ENOSYS,
        libc::ECONNREFUSED,
        libc::EPROTOTYPE,
        libc::ESTALE,
        libc::EOPNOTSUPP,
    ];
    error
        .raw_os_error()
        .is_some_and(|number| known.contains(&number))
}
