//! Bringing what a lazy workspace lacks before it is read: what lies below some paths, or all of it.

use super::super::faults;
use super::super::mounts::Mounts;
use super::super::request::{Watch, bare};
use super::faults::{not_lazy, of_remote};
use super::transfer::{check, check_room, decide, opened};
use agentvfs_client::protocol::{Fault, RemotePrefetch, RemotePrefetchAnswer};
use engine::Workspace;
use engine::verbs::remotes::{self, RemoteConfig};
use remote::Remote;
use remote::fetch::{Context, Depth, Fetched, fetch};

/// Brings what lies below paths of a branch, or all that the workspace needs: then it needs its remote no more.
pub fn prefetch(
    mounts: &Mounts,
    ask: &RemotePrefetch,
    watch: &Watch<'_>,
) -> Result<RemotePrefetchAnswer, Fault> {
    let name = &ask.workspace;
    let of_engine = |e: engine::Error| faults::of_engine(&e, name);
    let workspace = mounts.workspace(name)?;
    let needed = remotes::lazy_remote(&workspace).map_err(of_engine)?;
    let needed = needed.ok_or_else(|| not_lazy(name))?;
    let config = remotes::remote(&workspace, &needed).map_err(of_engine)?;
    let remote = opened(mounts, &config, &ask.access)?;
    // What comes is read on the way, and where a directory is missing its remote is asked: with these credentials.
    let asked = opened(mounts, &config, &ask.access)?;
    mounts.needs_remote(name, &config, &ask.access, Some(asked));
    let _pin = mounts.engine().objects().pin();
    let done = bring(mounts, ask, (&workspace, &config, &remote), watch)?;
    if ask.all {
        remotes::end_lazy(&workspace).map_err(of_engine)?;
        mounts.needs_no_remote(name);
    }
    Ok(RemotePrefetchAnswer {
        remote: config.name,
        objects: done.objects,
        bytes: done.bytes,
        requests: remote.traffic().requests,
    })
}

fn bring(
    mounts: &Mounts,
    ask: &RemotePrefetch,
    (workspace, config, remote): (&Workspace, &RemoteConfig, &Remote),
    watch: &Watch<'_>,
) -> Result<Fetched, Fault> {
    let of_engine = |e: engine::Error| faults::of_engine(&e, &ask.workspace);
    let engine = mounts.engine();
    let wanted = match ask.all {
        true => remotes::needed_of_remote(workspace, &config.name),
        false => remotes::needed_below(workspace, &ask.branch, &bare(&ask.paths)),
    };
    let wanted = wanted.map_err(of_engine)?;
    let room = |bytes| check_room(engine, bytes);
    let context = Context {
        progress: watch.progress,
        check: &|| check(watch.cancel),
        room: &room,
        complete: &|_| false,
        directory: engine.root(),
        depth: Depth::Whole,
    };
    let done = fetch(remote, engine.objects(), &wanted, &context)
        .and_then(|done| decide(watch.cancel).map(|()| done));
    done.map_err(|e| of_remote(e, &ask.workspace))
}
