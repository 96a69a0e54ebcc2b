//! The process by which a run reaches into its sandbox while that stands, and how it is started.
//!
//! It gets the sandbox's namespaces as standard input and output, does one thing, and ends. Invariant: who starts it is
//! outside of the sandbox, so that it has no right over anything else inside another one.

use agentvfs_client::failure::Failure;
use agentvfs_sandbox::reach::{self, Namespaces};
use rustix::process::Pid;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A sandbox that can be reached into.
pub struct Reach {
    namespaces: Namespaces,
    /// Where branches are that can be shown in it.
    from: PathBuf,
    /// Where they are in it.
    at: PathBuf,
    /// As [`agentvfs_sandbox::Nested`] has it.
    maps: Option<PathBuf>,
}

impl Reach {
    /// Shows branches of `from` in the sandbox at `at`.
    pub fn new(
        namespaces: &Namespaces,
        (from, at): (PathBuf, PathBuf),
        maps: Option<PathBuf>,
    ) -> io::Result<Reach> {
        Ok(Reach {
            namespaces: namespaces.try_clone()?,
            from,
            at,
            maps,
        })
    }

    /// Shows a branch in the sandbox.
    pub fn show(&self, branch: &str) -> io::Result<()> {
        let (from, at) = (self.from.join(branch), self.at.join(branch));
        let mut words = vec![OsStr::new("attach"), from.as_os_str(), at.as_os_str()];
        words.extend(self.maps.as_deref().map(Path::as_os_str));
        self.have_done(&words)
    }

    /// Shows it no more.
    pub fn hide(&self, branch: &str) -> io::Result<()> {
        let at = self.at.join(branch);
        self.have_done(&[OsStr::new("detach"), at.as_os_str()])
    }

    /// Writes the maps of a user namespace that a process made inside, which only root needs to be done by somebody else.
    pub fn map_ids(&self, process: u32) -> io::Result<()> {
        if !rustix::process::geteuid().is_root() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let process = process.to_string();
        self.have_done(&[OsStr::new("map"), OsStr::new(&process)])
    }

    fn have_done(&self, words: &[&OsStr]) -> io::Result<()> {
        let Namespaces { user, mount } = self.namespaces.try_clone()?;
        let done = Command::new("/proc/self/exe")
            .arg("reach")
            .args(words)
            .stdin(user)
            .stdout(mount)
            .stderr(Stdio::piped())
            .output()?;
        match done.status.success() {
            true => Ok(()),
            false => {
                let why = String::from_utf8_lossy(&done.stderr);
                Err(io::Error::other(why.trim_end().to_owned()))
            }
        }
    }
}

/// Is that process.
pub fn run(words: &[OsString]) -> Result<u8, Failure> {
    let failed = |why: String| Failure::new("cannot reach into the sandbox", why);
    let of = |e: io::Error| failed(e.to_string());
    let namespaces = Namespaces {
        user: rustix::io::dup(rustix::stdio::stdin()).map_err(|e| of(e.into()))?,
        mount: rustix::io::dup(rustix::stdio::stdout()).map_err(|e| of(e.into()))?,
    };
    let words: Vec<&OsStr> = words.iter().map(OsString::as_os_str).collect();
    let done = match words.as_slice() {
        [what, from, at] if *what == "attach" => {
            reach::attach(&namespaces, (Path::new(from), Path::new(at)), None)
        }
        [what, from, at, maps] if *what == "attach" => {
            let paths = (Path::new(from), Path::new(at));
            reach::attach(&namespaces, paths, Some(Path::new(maps)))
        }
        [what, at] if *what == "detach" => reach::detach(&namespaces, Path::new(at)),
        [what, process] if *what == "map" => {
            let process = process.to_str().and_then(|text| text.parse().ok());
            let process = process.and_then(Pid::from_raw);
            let process = process.ok_or_else(|| failed("no process is named".to_owned()))?;
            reach::map_ids(&namespaces, process)
        }
        _ => return Err(failed("it is not said what to do".to_owned())),
    };
    done.map(|()| 0).map_err(|e| failed(e.to_string()))
}
