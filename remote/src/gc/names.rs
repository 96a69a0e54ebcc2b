//! Objects of a remote that no generation names: condemned, and later deleted.

use super::{Collected, Context};
use crate::bucket::{Bucket, Listed};
use crate::error::Result;
use crate::layout::catalog::Catalog;
use crate::layout::{index_name, pack_name};
use crate::limits::GRACE_SEC;
use crate::remote::Remote;
use std::collections::{HashMap, HashSet};

/// Where objects are that a catalog names, and that it may name no more.
const DIRS: [&str; 3] = ["packs/", "indexes/", "catalogs/"];
/// Where objects are that are needed for a moment.
const PASSING: [&str; 2] = ["clock/", "probe/"];

/// All objects of this remote, with their lengths and times, as a listing says that may be old.
pub(super) fn listed(remote: &Remote) -> Result<HashMap<String, Listed>> {
    let mut all = HashMap::new();
    for dir in DIRS.iter().chain(&PASSING) {
        let listed = remote.bucket().list(dir)?.into_iter();
        all.extend(listed.map(|l| (l.name.clone(), l)));
    }
    Ok(all)
}

/// Condemns what a listing has and this catalog does not name, and has those removed that are condemned for long.
pub(super) fn sort_out(
    remote: &Remote,
    catalog: &mut Catalog,
    listed: &HashMap<String, Listed>,
    now: i64,
    done: &mut Collected,
) -> Result<()> {
    let named = named(remote, catalog)?;
    let is_old = |since: i64| now.saturating_sub(since) >= GRACE_SEC;
    catalog
        .removing
        .retain(|name, since| !is_old(*since) || listed.contains_key(name));
    for name in listed.keys() {
        let is_of_catalogs = DIRS.iter().any(|dir| name.starts_with(dir));
        if is_of_catalogs && !named.contains(name) && !catalog.removing.contains_key(name) {
            catalog.condemned.entry(name.clone()).or_insert(now);
        }
    }
    let condemned = std::mem::take(&mut catalog.condemned);
    for (name, since) in condemned
        .into_iter()
        .filter(|(name, _)| !named.contains(name))
    {
        match is_old(since) {
            true => catalog.removing.insert(name, now),
            false => catalog.condemned.insert(name, since),
        };
    }
    done.condemned = catalog.condemned.len() as u64;
    Ok(())
}

/// Names that the catalog needs. The catalog before it, and what only that needs, is not among them.
fn named(remote: &Remote, catalog: &Catalog) -> Result<HashSet<String>> {
    let mut names = HashSet::new();
    for entry in &catalog.indexes {
        names.insert(index_name(&entry.hash));
        let index = remote.index(entry)?;
        names.extend(index.packs().iter().map(|pack| pack_name(&pack.hash)));
    }
    Ok(names)
}

/// Deletes what is being removed, and what was needed for a moment long ago.
pub(super) fn remove(
    remote: &Remote,
    catalog: &Catalog,
    listed: &HashMap<String, Listed>,
    now: i64,
    context: &Context<'_>,
    done: &mut Collected,
) -> Result<()> {
    let is_old = |l: &Listed| now.saturating_sub(l.put_at) >= GRACE_SEC;
    let passing = listed
        .values()
        .filter(|l| PASSING.iter().any(|dir| l.name.starts_with(dir)));
    let passing = passing.filter(|l| is_old(l)).map(|l| &l.name);
    let removing = catalog
        .removing
        .keys()
        .filter(|name| listed.contains_key(*name));
    for name in removing.chain(passing) {
        (context.check)()?;
        remote.bucket().delete(name)?;
        done.deleted += 1;
        done.deleted_bytes += listed.get(name).map_or(0, |l| l.bytes);
    }
    Ok(())
}
