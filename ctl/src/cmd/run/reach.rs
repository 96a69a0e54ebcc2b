//! The process by which a run reaches into its sandbox while that stands, and how it is started.
//!
//! It gets the sandbox's namespaces as standard input and output, does one thing, and ends. Invariant: who starts it is
//! outside of the sandbox, so that it has no right over anything else inside another one.

use agentvfs_client::failure::Failure;
use agentvfs_sandbox::reach::{self, Namespaces};
use agentvfs_sandbox::{PathRule, What, again};
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

    /// Places the view `from` over the one at `at` that nobody serves any more, with all of `inner` below it.
    pub fn show_view(&self, (from, at): (&Path, &Path), inner: &[PathRule]) -> io::Result<()> {
        let mut words = vec![OsStr::new("view"), from.as_os_str(), at.as_os_str()];
        for place in inner {
            let (what, of) = word_of(&place.what).ok_or_else(|| {
                let why = format!("{} is in the project", place.at.display());
                io::Error::new(io::ErrorKind::Unsupported, why)
            })?;
            words.extend([OsStr::new(what), place.at.as_os_str(), of.as_os_str()]);
        }
        self.have_done(&words)
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

/// What is at a place below a view that is placed again, as a word and a path. None of what is a mount of the sandbox
/// itself.
fn word_of(what: &What) -> Option<(&'static str, &Path)> {
    let none = Path::new("");
    match what {
        What::Hidden => Some(("hidden", none)),
        What::Private => Some(("private", none)),
        What::Empty => Some(("empty", none)),
        What::Tree(from) => Some(("tree", from)),
        What::Link(to) => Some(("link", to)),
        _ => None,
    }
}

/// The places that such words name; none if they name none.
fn places_of(words: &[&OsStr]) -> Option<Vec<PathRule>> {
    let one = |words: &[&OsStr]| {
        let [what, at, of] = words else { return None };
        let what = match what.to_str()? {
            "hidden" => What::Hidden,
            "private" => What::Private,
            "empty" => What::Empty,
            "tree" => What::Tree(PathBuf::from(of)),
            "link" => What::Link(PathBuf::from(of)),
            _ => return None,
        };
        let at = PathBuf::from(at);
        Some(PathRule { at, what })
    };
    words.chunks(3).map(one).collect()
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
        [what, from, at, inner @ ..] if *what == "view" => {
            let inner =
                places_of(inner).ok_or_else(|| failed("a place is not known".to_owned()))?;
            again::attach_view(&namespaces, (Path::new(from), Path::new(at)), &inner)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_arrive_as_they_were_named() {
        let all = [
            What::Hidden,
            What::Private,
            What::Empty,
            What::Tree("/a b".into()),
            What::Link("..".into()),
        ];
        for what in all {
            let (word, of) = word_of(&what).unwrap();
            let words = [OsStr::new(word), OsStr::new("/p/\n"), of.as_os_str()];
            let at = PathBuf::from("/p/\n");
            assert_eq!(places_of(&words).unwrap(), [PathRule { at, what }]);
        }
        assert!(word_of(&What::Writable).is_none());
        assert!(places_of(&[OsStr::new("hidden")]).is_none());
        assert!(places_of(&[OsStr::new("other"), OsStr::new("/a"), OsStr::new("")]).is_none());
    }
}
