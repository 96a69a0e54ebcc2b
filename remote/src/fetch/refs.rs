//! Bringing what refs of a remote name: commits, labels, timelines, and the commits that these mention.

use super::{Context, Fetched, fetch};
use crate::error::{Error, Result};
use crate::layout::catalog::BranchName;
use crate::layout::reference::{RemoteRef, Timeline, mentioned};
use crate::limits::MENTIONED_BYTES_MAX;
use crate::remote::Remote;
use objstore::content::read_content;
use objstore::exchange::{commit_key, content_key};
use objstore::{CommitId, ObjectStore};

impl Remote {
    /// The branches of a project that have a ref, ascending.
    pub fn branches(&self, project: &str) -> Result<Vec<String>> {
        let refs = self.generation()?.catalog.refs;
        let of_project = refs.into_iter().filter(|of| of.project == project);
        Ok(of_project.map(|of| of.branch).collect())
    }

    /// The refs of branches, of those that have one.
    pub fn references(
        &self,
        project: &str,
        branches: &[String],
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Vec<(String, RemoteRef)>> {
        let mut found = Vec::new();
        for branch in branches {
            check()?;
            let of = BranchName {
                project: project.to_owned(),
                branch: branch.clone(),
            };
            if let Some((reference, _)) = self.reference(&of)? {
                found.push((branch.clone(), reference));
            }
        }
        Ok(found)
    }
}

/// Brings all that some refs name. Durable after `Ok`. The caller holds a pin of the store until something refers to it.
pub fn fetch_refs(
    remote: &Remote,
    store: &ObjectStore,
    refs: &[&RemoteRef],
    context: &Context<'_>,
) -> Result<Fetched> {
    let mut roots = Vec::new();
    for reference in refs {
        roots.push((commit_key(&reference.commit), false));
        let labels = reference.labels.iter().map(|(_, id)| id);
        roots.extend(labels.map(|id| (commit_key(id), true)));
        let contents = reference
            .timelines
            .iter()
            .flat_map(|t| [&t.log, &t.commits]);
        roots.extend(contents.filter_map(content_key).map(|key| (key, false)));
    }
    let first = fetch(remote, store, &roots, context)?;
    let mut named = Vec::new();
    for timeline in refs.iter().flat_map(|reference| &reference.timelines) {
        let ids = mentioned_by(store, timeline)?;
        named.extend(ids.iter().map(|id| (commit_key(id), true)));
    }
    let second = fetch(remote, store, &named, context)?;
    Ok(Fetched {
        objects: first.objects + second.objects,
        bytes: first.bytes + second.bytes,
    })
}

/// The commits that a timeline mentions, whose list is here.
pub fn mentioned_by(store: &ObjectStore, timeline: &Timeline) -> Result<Vec<CommitId>> {
    let len = timeline.commits.len();
    if len > MENTIONED_BYTES_MAX {
        return Err(Error::TooLarge {
            name: "the list of a timeline".into(),
            bytes: len,
            max: MENTIONED_BYTES_MAX,
        });
    }
    // Bounded just now; what the list says of its own length is compared with what is there.
    let mut list = vec![0; len as usize];
    read_content(store, &timeline.commits, 0, &mut list)?;
    mentioned(&list)
}
