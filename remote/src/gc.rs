//! Removing from a remote what nobody needs (docs/remote.md, 5), beside pushes, fetches and other runs.
//!
//! Invariants: a generation stays closed; what a ref, an announced ref or a young pack needs stays present; an object
//! is deleted only once a generation says that its name must never be used again, and that one waited for the
//! grace period.

mod marks;
mod names;
mod repack;

use crate::bucket::{Bucket, Condition};
use crate::error::{Error, Result};
use crate::layout::catalog::Catalog;
use crate::limits::{GRACE_SEC, OBSERVATIONS_MAX, READS_MAX};
use crate::push::too_busy;
use crate::remote::{Generation, Remote};
use objstore::ObjectStore;

/// What gc is asked to do.
#[derive(Clone, Copy, Debug)]
pub struct GcRequest {
    /// Share of a pack that nobody needs from which on it is put again without that, in percent.
    pub dead_percent: u64,
    /// Only say what would be done.
    pub dry_run: bool,
}

impl Default for GcRequest {
    fn default() -> GcRequest {
        GcRequest {
            dead_percent: 20,
            dry_run: false,
        }
    }
}

/// What gc did, or would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Objects that are needed, or too young.
    pub kept: u64,
    /// Objects that are not present any more.
    pub dropped: u64,
    /// Objects that are needed and were not present: the remote is damaged.
    pub missing: u64,
    /// Bytes of packs that were put again without what nobody needs.
    pub copied_bytes: u64,
    /// Names that wait for the grace period to end.
    pub condemned: u64,
    /// Files of the remote that were deleted.
    pub deleted: u64,
    /// Their bytes.
    pub deleted_bytes: u64,
}

/// What surrounds a run.
pub struct Context<'a> {
    /// Hears of objects that were looked at, of how many.
    pub progress: &'a dyn Fn(u64, u64),
    /// May end the run, before each request.
    pub check: &'a dyn Fn() -> Result<()>,
    /// Where objects may be that need not be read from the remote.
    pub local: Option<&'a ObjectStore>,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Context")
    }
}

/// Runs gc.
pub fn collect(remote: &Remote, request: &GcRequest, context: &Context<'_>) -> Result<Collected> {
    let mut tries = 0;
    loop {
        (context.check)()?;
        let generation = remote.generation()?;
        // Only now: it is noted as a time at which this generation was there.
        let now = time_of(remote)?;
        match collect_from(remote, &generation, now, request, context) {
            Ok(Some(done)) => return Ok(done),
            Ok(None) => {}
            // Another run may have put what was read here in another place, and removed it.
            Err(Error::Missing { .. }) if remote.generation()?.etag != generation.etag => {}
            Err(e) => return Err(e),
        }
        tries += 1;
        too_busy(tries)?;
    }
}

/// Collects what one generation has too much; `None` where another one is valid by now.
fn collect_from(
    remote: &Remote,
    generation: &Generation,
    now: i64,
    request: &GcRequest,
    context: &Context<'_>,
) -> Result<Option<Collected>> {
    let began = remote.clock.now();
    let mut done = Collected::default();
    let marks = marks::mark(remote, generation, now, context, &mut done)?;
    let mut catalog = generation.catalog.clone();
    if request.dry_run {
        let listed = names::listed(remote)?;
        names::sort_out(remote, &mut catalog, &listed, now, &mut done)?;
        return Ok(Some(done));
    }
    let work = (request, context);
    repack::rebuild(remote, generation, &mut catalog, &marks, work, &mut done)?;
    observe(&mut catalog, generation, now);
    let current = &generation.catalog;
    let young = |since: u64| current.is_young(since, now, GRACE_SEC);
    catalog.pending.retain(|p| young(p.generation));
    let listed = names::listed(remote)?;
    names::sort_out(remote, &mut catalog, &listed, now, &mut done)?;
    if remote.clock.now().saturating_sub(began) >= GRACE_SEC / 2 {
        return Err(Error::Transient {
            name: crate::layout::HEAD.into(),
            why: "a run took longer than half the grace period".into(),
        });
    }
    let Some(next) = remote.advance(generation, catalog)? else {
        return Ok(None);
    };
    names::remove(remote, &next.catalog, &listed, now, context, &mut done)?;
    Ok(Some(done))
}

/// The remote's clock: when it says that an object was put just now. Machines' clocks may differ by any amount.
fn time_of(remote: &Remote) -> Result<i64> {
    let name = format!("clock/{:016x}", remote.random());
    remote.bucket().put(&name, b"", Condition::Always)?;
    let mut found = None;
    // A listing may be old.
    for _ in 0..READS_MAX {
        let listed = remote.bucket().list("clock/")?;
        found = listed.iter().find(|l| l.name == name).map(|l| l.put_at);
        if found.is_some() {
            break;
        }
    }
    remote.bucket().delete(&name)?;
    found.ok_or_else(|| Error::Transient {
        name,
        why: "it was put and is not listed".into(),
    })
}

/// Notes which generation was there at this moment, and forgets what no decision needs any more.
fn observe(catalog: &mut Catalog, generation: &Generation, now: i64) {
    let observed = &mut catalog.observed;
    let old = |at: i64| now.saturating_sub(at) >= GRACE_SEC;
    // Of those that are old enough the newest says most.
    let newest_old = observed.iter().rposition(|(_, at)| old(*at)).unwrap_or(0);
    observed.drain(..newest_old);
    let last = observed.last().copied();
    let pause = GRACE_SEC / OBSERVATIONS_MAX as i64;
    let is_new = last.is_none_or(|(seen, at)| {
        generation.catalog.generation > seen && now.saturating_sub(at) >= pause
    });
    if is_new {
        observed.push((generation.catalog.generation, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::Etag;

    #[test]
    fn observations_are_few_and_say_what_is_old() {
        let mut catalog = Catalog::default();
        let mut generation = Generation {
            etag: Etag(String::new()),
            catalog: Catalog::default(),
            indexes: Vec::new(),
        };
        let mut times = Vec::new();
        for round in 0..1000 {
            let now = round * 600;
            generation.catalog.generation = round as u64;
            times.push(now);
            observe(&mut catalog, &generation, now);
            assert!(catalog.observed.len() <= OBSERVATIONS_MAX + 2);
            assert!(catalog.observed.is_sorted_by(|a, b| a < b));
            // Nothing counts as old before its time, and not long after it everything does.
            for (since, at) in times.iter().enumerate() {
                let young = catalog.is_young(since as u64, now, GRACE_SEC);
                assert!(young || now - at >= GRACE_SEC, "{since} at {now}");
                assert!(!young || now - at <= 2 * GRACE_SEC, "{since} at {now}");
            }
        }
    }
}
