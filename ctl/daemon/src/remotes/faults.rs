//! Errors of remotes as they are told.

use super::super::faults;
use agentvfs_client::protocol::{CANCELLED, Fault};
use engine::verbs::remotes::RemoteConfig;
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

/// No remote is named, and it is not clear which one is meant.
pub fn no_remote(workspace: &str, count: usize) -> Fault {
    match count {
        0 => Fault::failed(
            "no-such-remote",
            format!("workspace {workspace} has no remote"),
        )
        .hint(format!(
            "agentvfs remote add origin DIR -w {workspace} adds one; agentvfs apply and agentvfs update work with \
             the project's directory"
        )),
        _ => Fault::failed(
            "no-such-remote",
            format!("workspace {workspace} has {count} remotes, and none is named origin"),
        )
        .hint(format!(
            "name one of those that agentvfs remote list -w {workspace} lists"
        )),
    }
}

/// A workspace has all of its files.
pub fn not_lazy(workspace: &str) -> Fault {
    Fault::failed(
        "not-lazy",
        format!("workspace {workspace} needs no remote: all of it is here"),
    )
    .hint(format!(
        "agentvfs fetch -w {workspace} brings what is new in a remote"
    ))
}

/// A lease names nothing.
pub fn bad_lease(text: &str) -> Fault {
    Fault::failed(
        "no-such-ref",
        format!("{text} is neither a commit's id nor a fetched branch of a remote"),
    )
    .hint("use all 64 digits of an id, or REMOTE/BRANCH")
}

/// The remote has moved since.
pub fn rejected(remote: &str, branch: &str, lease: Option<&str>) -> Fault {
    match lease {
        None => Fault::failed("rejected", format!("rejected: {remote}/{branch} has moved"))
            .hint("agentvfs pull"),
        Some(lease) => Fault::failed(
            "rejected",
            format!("rejected: {remote}/{branch} is not {lease}"),
        )
        .hint(format!(
            "agentvfs fetch, then look at agentvfs log --branch {remote}/{branch}"
        )),
    }
}

/// The remote has no such branch.
pub fn no_branch(config: &RemoteConfig, branch: &str) -> Fault {
    let RemoteConfig { url, project, .. } = config;
    Fault::failed(
        "no-such-branch",
        format!("project {project} in {url} has no branch {branch}"),
    )
    .hint("agentvfs fetch lists the branches of a remote")
}

/// The remote has nothing of the project, or no branch that could be `main`.
pub fn no_project<'a>(config: &RemoteConfig, branches: impl Iterator<Item = &'a str>) -> Fault {
    let RemoteConfig { url, project, .. } = config;
    let branches: Vec<&str> = branches.collect();
    match branches.is_empty() {
        true => Fault::failed("no-such-project", format!("{url} has no project {project}"))
            .hint("agentvfs push, on the machine that has it, puts it there"),
        false => Fault::failed(
            "no-such-branch",
            format!("project {project} in {url} has no branch main"),
        )
        .hint(format!("name one with --branch: {}", branches.join(", "))),
    }
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
        Error::CutOff => told(
            "no-remote",
            &format!("agentvfs delete {workspace}, and clone it again"),
        ),
        Error::Newer { .. } | Error::Encrypted | Error::OtherChunker => {
            told("remote-unsupported", "use a newer agentvfs")
        }
        Error::Rejected { .. } => told("rejected", "agentvfs pull"),
        Error::Stopped => Fault::failed(CANCELLED, "cancelled; no branch was changed")
            .hint("run the command again: it goes on from there"),
        Error::NoRoom { .. } => told(
            "no-space",
            "free space on the disk of the agentvfs home, or agentvfs config quota=SIZE raises the quota",
        ),
        Error::Store(error) => faults::of_engine(&error.into(), workspace),
        _ => told("failed", "daemon.log in the agentvfs home has details"),
    }
}
