//! What the refs of a store say of branches: which there are, and which were deleted lately.
//!
//! `branches/WORKSPACE/BRANCH` names the number of a branch, by which its directory is found; `main` has
//! none, it is always there. `deleted/WORKSPACE/NAME-TIME` keeps the last commit of a branch that was
//! deleted. Invariant: a branch has a ref only while its directory is whole.

use crate::error::{Error, Result};
use crate::names::MAIN;
use crate::record::{decode, encode};
use crate::types::Time;
use crate::workspace::untrusted;
use objstore::CommitId;
use objstore::refs::RefStore;
use std::collections::{BTreeMap, BTreeSet};

/// Below it are the refs of the timelines that are kept.
pub(crate) const TIMELINES_DIR: &str = "timelines";
const RECORD_VERSION: u16 = 1;
/// Version of the record of a branch that was made in a sandbox.
const MADE_IN_VERSION: u16 = 2;

/// The branch in whose sandbox another one was made. Its name may change, and another branch may get its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(crate) struct MadeIn {
    /// Its number.
    pub number: u16,
    /// When it was made itself.
    pub created: Time,
}

/// What the ref of a branch says.
pub(crate) struct BranchRecord {
    /// Number of its directory, journal and view slot.
    pub number: u16,
    pub created: Time,
    /// Name that it had before, where that ref may still be there.
    pub renamed_from: Option<String>,
    /// The branch in whose sandbox it was made, if it was.
    pub made_in: Option<MadeIn>,
}

/// Version 1 of the record; version 2 has a [`MadeIn`] behind it.
#[derive(bincode::Encode, bincode::Decode)]
struct Record {
    version: u16,
    number: u16,
    created: Time,
    renamed_from: Option<String>,
}

impl BranchRecord {
    /// The branch of this number, which was made in no sandbox.
    pub fn new(number: u16, created: Time, renamed_from: Option<String>) -> BranchRecord {
        BranchRecord {
            number,
            created,
            renamed_from,
            made_in: None,
        }
    }

    /// What the ref holds.
    pub fn bytes(&self) -> Vec<u8> {
        let record = |version| Record {
            version,
            number: self.number,
            created: self.created,
            renamed_from: self.renamed_from.clone(),
        };
        match self.made_in {
            None => encode(&record(RECORD_VERSION)),
            Some(made_in) => encode(&(record(MADE_IN_VERSION), made_in)),
        }
    }
}

/// What is kept of a branch that was deleted, for as long as its last commit is.
#[derive(bincode::Encode, bincode::Decode)]
pub(crate) struct DeletedRecord {
    version: u16,
    pub deleted: Time,
    pub last: CommitId,
}

impl DeletedRecord {
    /// What showed `last` when it was deleted.
    pub fn new(deleted: Time, last: CommitId) -> DeletedRecord {
        DeletedRecord {
            version: RECORD_VERSION,
            deleted,
            last,
        }
    }
}

/// Reads the ref of a branch that was deleted; `None` where it is of another version.
pub(crate) fn deleted_record(name: &str, bytes: &[u8]) -> Result<Option<DeletedRecord>> {
    let record: DeletedRecord = decode(bytes).map_err(|why| Error::Damaged {
        what: format!("the record {name}"),
        why,
    })?;
    Ok((record.version == RECORD_VERSION).then_some(record))
}

/// The refs of all branches but `main`, and the names that branches had before they were renamed whose
/// refs are still there.
pub(crate) fn recorded(
    refs: &RefStore,
    workspace: &str,
) -> Result<(BTreeMap<String, BranchRecord>, Vec<String>)> {
    let mut found = BTreeMap::new();
    for full in refs.list(&ref_dir(workspace))? {
        if let Some(bytes) = refs.get(&full)? {
            let name = full.rsplit('/').next().unwrap_or_default().to_owned();
            let record = branch_record(&bytes).map_err(|why| Error::Damaged {
                what: format!("the record of branch {full}"),
                why,
            })?;
            found.insert(name, record);
        }
    }
    // One by one: a branch that was renamed and back has two refs that name each other.
    let names: Vec<String> = found.keys().cloned().collect();
    let mut gone = Vec::new();
    for name in names {
        let record: Option<&BranchRecord> = found.get(&name);
        let Some((old, number)) = record.and_then(|r| Some((r.renamed_from.clone()?, r.number)))
        else {
            continue;
        };
        if old != name && found.get(&old).is_some_and(|o| o.number == number) {
            found.remove(&old);
            gone.push(old);
        }
    }
    Ok((found, gone))
}

fn branch_record(bytes: &[u8]) -> std::result::Result<BranchRecord, String> {
    let is_made_in = bytes.starts_with(&MADE_IN_VERSION.to_le_bytes());
    let (record, made_in) = match is_made_in {
        true => decode::<(Record, MadeIn)>(bytes).map(|(record, of)| (record, Some(of)))?,
        false => (decode::<Record>(bytes)?, None),
    };
    match (record.version, made_in) {
        (RECORD_VERSION, None) | (MADE_IN_VERSION, Some(_)) => Ok(BranchRecord {
            number: record.number,
            created: record.created,
            renamed_from: record.renamed_from,
            made_in,
        }),
        (version, _) => Err(format!("its version is {version}")),
    }
}

/// Looks whether the ref of a branch holds what it must.
pub(crate) fn check_record(bytes: &[u8]) -> std::result::Result<(), String> {
    branch_record(bytes).map(|_| ())
}

/// Names and directories of a workspace's branches, by its refs; `main` first.
pub(crate) fn on_disk(refs: &RefStore, workspace: &str) -> Result<Vec<(String, String)>> {
    let others = recorded(refs, workspace)?.0;
    let others = others.into_iter().map(|(name, r)| (name, r.number));
    let all = std::iter::once((MAIN.to_owned(), 0)).chain(others);
    Ok(all
        .map(|(name, number)| (name, branch_dir(workspace, number)))
        .collect())
}

/// Numbers of all branches but `main` and one whose ref need not be readable.
pub(crate) fn numbers_but(refs: &RefStore, workspace: &str, branch: &str) -> Result<BTreeSet<u16>> {
    let one = ref_name(workspace, branch);
    let mut numbers = BTreeSet::new();
    for name in refs.list(&ref_dir(workspace))? {
        if name != one
            && let Some(bytes) = refs.get(&name)?
        {
            let record = branch_record(&bytes);
            let record = record.map_err(|why| Error::Damaged { what: name, why })?;
            numbers.insert(record.number);
        }
    }
    Ok(numbers)
}

/// Number of the branch whose directory this is; that of `main` where it is of none.
pub(crate) fn number_of(dir: &str) -> u32 {
    let place = dir.rsplit('/').next().unwrap_or_default();
    place.parse().unwrap_or(0)
}

/// The workspace of a branch whose directory this is.
pub(crate) fn workspace_of(dir: &str) -> &str {
    dir.split('/').nth(1).unwrap_or_default()
}

/// Directory of the branch of a number.
pub(crate) fn branch_dir(workspace: &str, number: u16) -> String {
    let place = match number {
        0 => MAIN.to_owned(),
        _ => number.to_string(),
    };
    format!("workspaces/{workspace}/branches/{place}")
}

/// Directory of the tree files of a workspace.
pub(crate) fn trees_dir(workspace: &str) -> String {
    format!("workspaces/{workspace}/trees")
}

fn ref_dir(workspace: &str) -> String {
    format!("branches/{workspace}")
}

/// Refs to the last commits of branches that were deleted: roots of the store for as long as they are
/// there.
pub(crate) fn deleted_dir(workspace: &str) -> String {
    format!("deleted/{workspace}")
}

/// Refs to the timelines of branches that were deleted ([`crate::verbs::timeline::kept`]).
pub(crate) fn timelines_dir(workspace: &str) -> String {
    format!("{TIMELINES_DIR}/{workspace}")
}

/// Below it are the refs of what is known of remotes' branches ([`super::remotes`]).
pub(crate) const TRACKING_DIR: &str = "tracking";

/// Refs of what a workspace knows of remotes' branches.
pub(crate) fn tracking_dir(workspace: &str) -> String {
    format!("{TRACKING_DIR}/{workspace}")
}

/// The ref that lists the remotes of a workspace.
pub(crate) fn remotes_ref(workspace: &str) -> String {
    format!("remotes/{workspace}")
}

/// Below it are the refs of lazy workspaces ([`super::lazy`]).
pub(crate) const LAZY_DIR: &str = "lazy/";

/// The ref that names the remote which a lazy workspace needs.
pub(crate) fn lazy_ref(workspace: &str) -> String {
    format!("{LAZY_DIR}{workspace}")
}

/// The ref of a branch.
pub(crate) fn ref_name(workspace: &str, branch: &str) -> String {
    format!("branches/{workspace}/{branch}")
}

/// Refs that tell which branches of a workspace there were; removed with the workspace.
pub(crate) fn forget_refs(refs: &RefStore, workspace: &str) -> Result<()> {
    for dir in [
        ref_dir(workspace),
        deleted_dir(workspace),
        timelines_dir(workspace),
        tracking_dir(workspace),
    ] {
        for name in refs.list(&dir)? {
            refs.delete(&name)?;
        }
    }
    refs.delete(&remotes_ref(workspace))?;
    refs.delete(&lazy_ref(workspace))?;
    refs.delete(&untrusted::ref_name(workspace))?;
    Ok(())
}
