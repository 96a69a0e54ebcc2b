//! Removing from a remote what nobody needs.

use super::super::mounts::Mounts;
use super::super::request::Watch;
use super::faults::of_remote;
use super::transfer::{check, chosen, opened};
use agentvfs_client::protocol::{Fault, RemoteGc, RemoteGcAnswer};
use remote::gc::{Context, GcRequest, collect};

/// Runs gc of a remote. What is here need not be read from there; cancelled, it leaves a remote that is whole.
pub fn gc(mounts: &Mounts, ask: &RemoteGc, watch: &Watch<'_>) -> Result<RemoteGcAnswer, Fault> {
    let workspace = mounts.to_read(&ask.workspace)?;
    let config = chosen(&workspace, ask.remote.as_deref())?;
    let remote = opened(mounts, &config, &ask.access)?;
    let request = GcRequest {
        dry_run: ask.dry_run,
        ..GcRequest::default()
    };
    let store = mounts.engine().objects();
    let _pin = store.pin();
    let context = Context {
        progress: watch.progress,
        check: &|| check(watch.cancel),
        local: Some(store),
    };
    let done = collect(&remote, &request, &context).map_err(|e| of_remote(e, &ask.workspace))?;
    Ok(RemoteGcAnswer {
        remote: config.name,
        kept: done.kept,
        dropped: done.dropped,
        missing: done.missing,
        copied_bytes: done.copied_bytes,
        condemned: done.condemned,
        deleted: done.deleted,
        deleted_bytes: done.deleted_bytes,
    })
}
