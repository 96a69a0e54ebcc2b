//! Errors of remotes as they are told.

use super::super::faults;
use agentvfs_client::protocol::{CANCELLED, Fault};
use remote::Error;

/// A URL that cannot be a remote's.
pub fn bad_url(url: &str, why: &str) -> Fault {
    Fault::failed("bad-remote", format!("{url}: {why}"))
        .hint("name a directory: agentvfs remote add NAME /DIR")
}

/// An option that a remote does not have.
pub fn bad_option(why: &str) -> Fault {
    Fault::failed("bad-remote", why.to_owned()).hint("agentvfs remote add --help lists the options")
}

/// An error of a remote, met for a workspace.
pub fn of_remote(error: Error, workspace: &str) -> Fault {
    let text = error.to_string();
    let told = |kind, hint: &str| Fault::failed(kind, text).hint(hint.to_owned());
    match error {
        Error::Io { .. } => told(
            "remote-io",
            "check that the directory exists and may be written to",
        ),
        Error::Transient { .. } => told("remote-unreachable", "try again later"),
        Error::Denied { .. } => told("remote-denied", "check the credentials"),
        Error::Unsupported { .. } => told(
            "remote-unsupported",
            "use a store with conditional puts, or a directory",
        ),
        Error::Missing { .. } | Error::Damaged { .. } | Error::TooLarge { .. } => told(
            "remote-damaged",
            "push again from a machine that has the history; nothing of it was kept here",
        ),
        Error::NoRemote => told(
            "no-remote",
            "agentvfs remote add NAME URL makes a remote where there is none",
        ),
        Error::Newer { .. } | Error::Encrypted | Error::OtherChunker => {
            told("remote-unsupported", "use a newer agentvfs")
        }
        Error::Rejected { .. } => told("rejected", "agentvfs pull"),
        Error::Stopped => told(CANCELLED, "run the command again: it goes on from there"),
        Error::NoRoom { .. } => told(
            "no-space",
            "free space on the disk of the agentvfs home, or agentvfs config quota=SIZE raises the quota",
        ),
        Error::Store(error) => faults::of_engine(&error.into(), workspace),
        _ => told("failed", "daemon.log in the agentvfs home has details"),
    }
}
