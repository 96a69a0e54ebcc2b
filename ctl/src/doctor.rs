//! `agentvfs doctor`: what of this machine agentvfs needs, whether it is there, and how to get it.
//!
//! Invariant: nothing is changed, no daemon is started or needed, and nothing that hangs (a dead mount,
//! a stopped daemon) makes this hang. Each check is a function of its own that gives findings.

mod fuse;
mod kernel;
mod running;
mod storage;

use agentvfs_client::home::Home;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// How long one question to a mount or a daemon may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// How good something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// As it should be.
    Ok,
    /// It works, but not as well as it could.
    Warning,
    /// Something does not work.
    Broken,
}

impl Grade {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Grade::Ok => "ok",
            Grade::Warning => "warning",
            Grade::Broken => "broken",
        }
    }
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Name of the check; several findings may share it.
    pub check: &'static str,
    /// How good it is.
    pub grade: Grade,
    /// What is the case.
    pub text: String,
    /// What to do about it.
    pub fix: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, text: impl Into<String>) -> Finding {
        Finding {
            check,
            grade: Grade::Ok,
            text: text.into(),
            fix: None,
        }
    }

    fn warning(check: &'static str, text: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding {
            grade: Grade::Warning,
            fix: Some(fix.into()),
            ..Finding::ok(check, text)
        }
    }

    fn broken(check: &'static str, text: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding {
            grade: Grade::Broken,
            ..Finding::warning(check, text, fix)
        }
    }
}

/// All checks, in the order in which they matter.
pub fn examine(home: &Home) -> Vec<Finding> {
    let mut all = Vec::new();
    all.extend(fuse::examine());
    all.extend(kernel::examine());
    all.extend(storage::examine(home));
    all.extend(running::examine(home));
    all
}

/// The text of a small file of the kernel's, without white space around it.
fn text_of(path: impl AsRef<Path>) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// The number in a small file of the kernel's.
fn number_in(path: impl AsRef<Path>) -> Option<u64> {
    text_of(path)?.parse().ok()
}

/// The answer of something that may hang; `None` where it took too long. What hangs ends with this
/// process.
fn patiently<R: Send + 'static>(ask: impl FnOnce() -> R + Send + 'static) -> Option<R> {
    asked(ask)?.recv_timeout(PATIENCE).ok()
}

/// Asks in a thread of its own.
fn asked<R: Send + 'static>(ask: impl FnOnce() -> R + Send + 'static) -> Option<mpsc::Receiver<R>> {
    let (done, wait) = mpsc::channel();
    std::thread::Builder::new()
        .name("doctor".into())
        // Nobody waits any more if it took too long.
        .spawn(move || drop(done.send(ask())))
        .ok()?;
    Some(wait)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Where a program is.
fn program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|place| place.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_is_given_up() {
        let (_keep, never) = mpsc::channel::<()>();
        assert_eq!(patiently(move || never.recv().is_ok()), None);
        assert_eq!(patiently(|| 7), Some(7));
    }

    #[test]
    fn every_finding_that_is_not_ok_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::find(Some(dir.path()), &|_| None).unwrap();
        let all = examine(&home);
        assert!(all.len() > 8, "{all:?}");
        for finding in all {
            assert_eq!(
                finding.grade == Grade::Ok,
                finding.fix.is_none(),
                "{finding:?}"
            );
            assert!(!finding.text.is_empty() && !finding.text.ends_with('.'));
        }
    }
}
