//! Sending branches to a remote.

use super::super::faults;
use super::super::mounts::Mounts;
use super::super::request::Watch;
use super::faults::{bad_lease, of_remote, rejected};
use super::transfer::{check, chosen, decide, opened};
use agentvfs_client::protocol::{Fault, PushedRow, RemotePush, RemotePushAnswer, code};
use engine::verbs::remotes::{self, Outgoing, RemoteConfig};
use engine::{CommitId, Workspace, verbs};
use remote::Error;
use remote::Remote;
use remote::layout::catalog::BranchName;
use remote::layout::reference::Timeline;
use remote::push::{Allow, Context, PushRequest};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// What the pushes of one request share.
struct Push<'a> {
    mounts: &'a Mounts,
    workspace: Arc<Workspace>,
    config: RemoteConfig,
    remote: Remote,
    ask: &'a RemotePush,
    allow: Allow,
    watch: &'a Watch<'a>,
}

/// Pushes branches, one after the other.
pub fn push(
    mounts: &Mounts,
    ask: &RemotePush,
    watch: &Watch<'_>,
) -> Result<RemotePushAnswer, Fault> {
    let workspace = mounts.workspace(&ask.workspace)?;
    let config = chosen(&workspace, ask.remote.as_deref())?;
    let branches = match ask.branches.is_empty() {
        true => names_of(&workspace),
        false => ask.branches.clone(),
    };
    let allow = match &ask.lease {
        None => Allow::FastForward,
        Some(_) if branches.len() != 1 => {
            let why = "lease is for a single branch";
            return Err(Fault::protocol(code::INVALID_PARAMS, why));
        }
        Some(text) => Allow::From(Some(leased(&workspace, text)?)),
    };
    let push = Push {
        mounts,
        remote: opened(mounts, &config, &ask.access)?,
        workspace,
        config,
        ask,
        allow,
        watch,
    };
    let mut rows = Vec::new();
    for (n, branch) in branches.iter().enumerate() {
        let is_last = n + 1 == branches.len();
        rows.push(push.one(branch, is_last, branches.len() > 1)?);
    }
    Ok(RemotePushAnswer {
        remote: push.config.name.clone(),
        branches: rows,
        requests: push.remote.traffic().requests,
    })
}

fn names_of(workspace: &Workspace) -> Vec<String> {
    let all = verbs::list_branches(workspace);
    all.into_iter().map(|branch| branch.name).collect()
}

/// The commit that the remote is to have: an id, or what was fetched of a branch.
fn leased(workspace: &Workspace, text: &str) -> Result<CommitId, Fault> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let found = match text.contains('/') {
        true => remotes::tracking(workspace, text),
        false => Ok(None),
    };
    let found = found.map_err(|e| faults::of_engine(&e, workspace.name()))?;
    found
        .map(|tracking| tracking.commit)
        .ok_or_else(|| bad_lease(text))
}

impl Push<'_> {
    /// Pushes one branch. With `lenient` a rejection is a row as others are.
    fn one(&self, branch: &str, is_last: bool, lenient: bool) -> Result<PushedRow, Fault> {
        let of_engine = |e: engine::Error| faults::of_engine(&e, self.workspace.name());
        check(self.watch.cancel).map_err(|e| of_remote(e, &self.ask.workspace))?;
        let store = self.mounts.engine().objects();
        // Until all is sent, gc takes nothing of it.
        let _pin = store.pin();
        let out = remotes::outgoing(&self.workspace, branch, self.watch.progress);
        let out = out.map_err(of_engine)?;
        let request = self.request(branch, &out);
        let has_entry = |head: &_| {
            let known = remotes::has_entry(&self.workspace, branch, *head);
            Ok(known.unwrap_or_else(|error| {
                // The remote keeps a timeline then that ours goes on from.
                tracing::warn!(%error, branch, "the timeline cannot be compared with a remote's");
                false
            }))
        };
        let context = Context {
            progress: self.watch.progress,
            check: &|| check(self.watch.cancel),
            decide: &|| match is_last {
                true => decide(self.watch.cancel),
                false => check(self.watch.cancel),
            },
            has_entry: &has_entry,
        };
        let mut row = PushedRow {
            branch: branch.to_owned(),
            status: "rejected".to_owned(),
            commit: out.commit.to_string(),
            before: None,
            checkpoint: out.checkpoint,
            objects: 0,
            bytes: 0,
            labels_differ: Vec::new(),
        };
        let done = match remote::push::push(&self.remote, store, &request, &context) {
            Ok(done) => done,
            Err(Error::Rejected { .. }) if lenient => return Ok(row),
            Err(Error::Rejected { .. }) => {
                return Err(rejected(
                    &self.config.name,
                    branch,
                    self.ask.lease.as_deref(),
                ));
            }
            Err(error) => return Err(of_remote(error, &self.ask.workspace)),
        };
        let mut labels = request.labels;
        labels.retain(|label, _| !done.labels_differ.contains(label));
        let of = (self.config.name.as_str(), branch);
        remotes::pushed(&self.workspace, of, out.commit, labels).map_err(of_engine)?;
        row.status = match (done.moved, done.before) {
            (false, _) => "up-to-date",
            (true, None) => "new",
            (true, Some(_)) => "pushed",
        }
        .to_owned();
        row.before = done.before.map(|id| id.to_string());
        (row.objects, row.bytes) = (done.objects, done.bytes);
        row.labels_differ = done.labels_differ;
        Ok(row)
    }

    fn request(&self, branch: &str, out: &Outgoing) -> PushRequest {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.unwrap_or_default();
        PushRequest {
            to: BranchName {
                project: self.config.project.clone(),
                branch: branch.to_owned(),
            },
            commit: out.commit,
            labels: match self.ask.labels {
                true => out.labels.clone(),
                false => Default::default(),
            },
            timeline: out.timeline.as_ref().map(|timeline| Timeline {
                branch: timeline.branch.clone(),
                head: timeline.head,
                log: timeline.log,
                commits: timeline.commits,
                first: timeline.first,
            }),
            mentioned: out
                .timeline
                .iter()
                .flat_map(|t| t.mentioned.iter().copied())
                .collect(),
            by: by(self.mounts.engine().author()),
            time: (since.as_secs() as i64, since.subsec_nanos()),
            allow: self.allow,
        }
    }
}

/// Who pushes: the user, at the machine.
fn by(author: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    match host.as_deref().map(str::trim_end) {
        Ok(host) if !host.is_empty() => format!("{author}@{host}"),
        _ => author.to_owned(),
    }
}
