//! Requests about remotes (docs/remote.md): which there are, and what goes to them and comes from them.
//!
//! A request holds no lock of the workspace while it talks to a remote: the engine says what a branch is to send, the
//! crate `remote` moves objects between the store and the remote under a pin of the store, and the engine keeps what
//! came. Only commands outside of sandboxes come here.
//!
//! Tests: `tests/tests/remotes.rs`, `tests/tests/remotes_killed.rs`.

mod collect;
mod faults;
mod fetch;
mod network;
mod open;
mod prefetch;
mod push;
mod transfer;

pub use collect::gc;
pub use fetch::{clone, fetch};
pub use open::open_near;
pub use prefetch::prefetch;
pub use push::push;

use super::mounts::Mounts;
use super::request::{looking_into, on};
use agentvfs_client::protocol::{
    Fault, LazyStanding, RemoteAdd, RemoteList, RemoteListAnswer, RemoteRemove, RemoteRow,
    RemoteStanding,
};
use engine::verbs::remotes::{self, RemoteConfig};
use faults::bad_option;
use std::collections::BTreeMap;

/// Options of remotes.
const OPTIONS: [&str; 2] = ["endpoint", "region"];
/// Longest URL or option, in bytes.
const TEXT_BYTES_MAX: usize = 4096;

/// Adds a remote, once it is known that it can be one: it is made where there is none.
pub fn add(mounts: &Mounts, ask: &RemoteAdd) -> Result<RemoteRow, Fault> {
    check_options(&ask.url, &ask.options)?;
    let config = RemoteConfig {
        name: ask.name.clone(),
        url: ask.url.clone(),
        project: ask.project.clone().unwrap_or(ask.workspace.clone()),
        options: ask.options.clone(),
    };
    looking_into(mounts, &ask.workspace, |w| {
        remotes::check_new_remote(w, &config)
    })?;
    open::create(mounts, open::At::of(&config, &ask.access))?;
    looking_into(mounts, &ask.workspace, |w| {
        remotes::add_remote(w, config.clone())
    })?;
    Ok(row(config))
}

fn check_options(url: &str, options: &BTreeMap<String, String>) -> Result<(), Fault> {
    for (name, value) in options {
        if !OPTIONS.contains(&name.as_str()) {
            return Err(bad_option(&format!("a remote has no option {name}")));
        }
        if value.len() > TEXT_BYTES_MAX {
            return Err(bad_option(&format!("the option {name} is too long")));
        }
    }
    match url.len() > TEXT_BYTES_MAX {
        true => Err(bad_option("the URL is too long")),
        false => Ok(()),
    }
}

fn row(config: RemoteConfig) -> RemoteRow {
    RemoteRow {
        name: config.name,
        url: config.url,
        project: config.project,
        options: config.options,
    }
}

/// The remotes of a workspace.
pub fn list(mounts: &Mounts, ask: &RemoteList) -> Result<RemoteListAnswer, Fault> {
    let all = looking_into(mounts, &ask.workspace, |w| remotes::remotes(w))?;
    Ok(RemoteListAnswer {
        remotes: all.into_iter().map(row).collect(),
    })
}

/// Forgets a remote; nothing of it is changed.
pub fn remove(mounts: &Mounts, ask: &RemoteRemove) -> Result<(), Fault> {
    looking_into(mounts, &ask.workspace, |w| {
        remotes::remove_remote(w, &ask.name)
    })
}

/// The remote that a lazy workspace needs.
pub fn lazy(mounts: &Mounts, workspace: &str) -> Option<LazyStanding> {
    let standing = mounts.lazy_standing(workspace)?;
    Some(LazyStanding {
        remote: standing.remote,
        objects: standing.objects,
        bytes: standing.bytes,
        failed: standing.failed,
        why: standing.why,
        remote_only_objects: standing.lacking.map(|lacking| lacking.objects),
        remote_only_bytes: standing.lacking.map(|lacking| lacking.bytes),
    })
}

/// What did not come from it when it was read.
pub fn lazy_trouble(mounts: &Mounts, workspace: &str) -> Option<String> {
    let standing = mounts.lazy_standing(workspace)?;
    let (remote, why) = (standing.remote, standing.why?);
    Some(format!(
        "what was not read yet cannot be read: remote {remote}: {why}"
    ))
}

/// How a branch stands to those of its name in remotes.
pub fn standings(
    mounts: &Mounts,
    workspace: &str,
    branch: &str,
) -> Result<Vec<RemoteStanding>, Fault> {
    let all = on(mounts, workspace, |w| remotes::remote_standings(w, branch))?;
    let standing = |s: remotes::RemoteStanding| RemoteStanding {
        name: s.name,
        ahead: s.ahead,
        behind: s.behind,
    };
    Ok(all.into_iter().map(standing).collect())
}
