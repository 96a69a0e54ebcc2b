//! Carrying out a plan in the base, all or nothing.
//!
//! New files are staged and synced; an intent record is written; then come renames only. A file that is
//! replaced changes places with its successor and is compared with what was expected, so nothing that
//! somebody else wrote meanwhile is lost: a difference reverses everything. After a crash [`recover`]
//! finds by inode numbers which renames were done and takes them back, unless the last one was done.
//!
//! It can be cancelled until the first rename: what was staged goes then.
//!
//! Tested with an error, with a crash and with a cancel at every step (`tests/apply/apply.rs`).

use super::intent::{Ident, Intent, Phase, Step};
use super::names::{NameInDir, failed, open_dir};
use super::plan::{Plan, parent_of};
use super::scan::Scan;
use super::stage::{Staging, mtime_of, set_attributes, set_time, slot_name};
use crate::base::{Base, Stamp, stamp_at};
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::types::{Progress, Time};
use objstore::ObjectStore;
use objstore::io::Storage;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, RenameFlags};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};

/// Name of the staging directory: its beginning.
pub(super) const STAGING_PREFIX: &str = ".agentvfs-apply-";

/// What a step is to do, for tests of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: go on.
    Go,
    /// Fail as a full disk would.
    Fail,
    /// End at once, as if the process had died.
    Die,
}

/// Asked before each step that changes something.
pub type Faults<'a> = &'a dyn Fn() -> Fault;

/// Where changes are applied.
pub(super) struct Site<'a> {
    pub base: &'a Base,
    pub store: &'a ObjectStore,
    pub storage: &'a dyn Storage,
    /// Path of the intent record.
    pub record: &'a str,
    pub faults: Faults<'a>,
    /// Hears of what is made and of what is moved to its place.
    pub progress: Progress<'a>,
    /// Heard until the first rename.
    pub cancel: &'a Cancel,
}

/// A failure, and whether what was done is to be taken back now.
enum Stop {
    Failed(Error),
    Died,
}

impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        Stop::Failed(e)
    }
}

impl Site<'_> {
    fn tick(&self) -> Result<(), Stop> {
        match (self.faults)() {
            Fault::Go => Ok(()),
            Fault::Fail => Err(Stop::Failed(Error::NoSpace)),
            Fault::Die => Err(Stop::Died),
        }
    }

    fn base_ident(&self) -> Result<Ident> {
        base_ident(self.base)
    }
}

fn base_ident(base: &Base) -> Result<Ident> {
    let stamp = stamp_at(base.root_fd(), b"");
    Ok(ident(&stamp.map_err(|e| failed(base, b"", e))?))
}

fn ident(stamp: &Stamp) -> Ident {
    Ident {
        dev: stamp.dev,
        ino: stamp.ino,
    }
}

/// Does what the plan says: all of it, or nothing where it fails.
pub(super) fn carry_out(site: &Site<'_>, scan: &Scan, plan: &Plan) -> Result<()> {
    let number = blake3::hash(&crate::record::encode(&crate::clock::now())).to_hex();
    let staging = format!("{STAGING_PREFIX}{}", &number[..16]).into_bytes();
    let before = mtime_of(&scan.root.meta);
    let root = plan.dirs.iter().find(|dir| dir.path.is_empty());
    let after = root.map_or(before, |dir| mtime_of(&dir.new));
    let mut intent = Intent::new(site.base_ident()?, staging, [before, after]);
    match attempt(site, scan, plan, &mut intent) {
        Ok(()) => Ok(()),
        Err(Stop::Died) => Err(Error::Closing),
        Err(Stop::Failed(why)) => {
            // All was done and only cleaning up failed: the next command does it.
            if intent.phase == Phase::Done {
                return Ok(());
            }
            match recover(site) {
                Ok(()) => Err(why),
                Err(also) => Err(Error::ApplyUnfinished {
                    why: format!("{why}, then {also}"),
                }),
            }
        }
    }
}

fn attempt(site: &Site<'_>, scan: &Scan, plan: &Plan, intent: &mut Intent) -> Result<(), Stop> {
    site.tick()?;
    intent.write(site.storage, site.record)?;
    site.tick()?;
    let made = fs::mkdirat(
        site.base.root_fd(),
        &intent.staging,
        Mode::from_raw_mode(0o700),
    );
    made.map_err(|e| failed(site.base, &intent.staging, e))?;
    let dir = open_dir(site.base, &intent.staging)?;
    let mut staging = Staging::new(site.base, site.store, dir, site.cancel);
    intent.steps = stage(site, scan, plan, &mut staging)?;
    site.tick()?;
    staging.sync()?;
    site.tick()?;
    site.cancel.decide()?;
    intent.before.clone_from(&plan.before);
    intent.phase = Phase::Moving;
    site.tick()?;
    intent.write(site.storage, site.record)?;
    let steps = intent.steps.len() as u64;
    for (done, step) in (0..).zip(&intent.steps) {
        site.tick()?;
        (site.progress)(done, steps);
        forward(site, &staging.dir, scan, step)?;
    }
    sync_parents(site, &intent.steps, &staging.dir)?;
    site.tick()?;
    let mut done = intent.clone();
    done.phase = Phase::Done;
    done.write(site.storage, site.record)?;
    intent.phase = Phase::Done;
    site.tick()?;
    clean(site, intent)?;
    site.tick()?;
    Ok(Intent::remove(site.storage, site.record)?)
}

/// Makes all that is new, and says by which steps it gets to its place.
fn stage(
    site: &Site<'_>,
    scan: &Scan,
    plan: &Plan,
    staging: &mut Staging<'_>,
) -> Result<Vec<Step>, Stop> {
    let mut steps = takes(site, scan, plan)?;
    let mut slot = steps.len() as u32;
    let mut next = || {
        slot += 1;
        slot
    };
    for path in &plan.mkdirs {
        site.tick()?;
        site.cancel.check()?;
        let slot = next();
        steps.push(Step::Place {
            path: path.clone(),
            slot,
            new: staging.make_dir(slot, path)?,
        });
    }
    let mut groups: HashMap<u64, u32> = HashMap::new();
    let puts = plan.puts.len() as u64;
    for (done, put) in (0..).zip(&plan.puts) {
        site.tick()?;
        site.cancel.check()?;
        (site.progress)(done, puts);
        let slot = next();
        let group = put.entry.meta.link_group;
        let new = match groups.get(&group) {
            Some(first) if group != 0 => staging.link(*first, slot, &put.path)?,
            _ => stage_first(site, scan, plan, staging, put, slot)?,
        };
        groups.insert(group, slot);
        let path = put.path.clone();
        steps.push(match put.replaces {
            true => Step::Exchange {
                old: old_of(scan, &path)?,
                path,
                slot,
                new,
            },
            false => Step::Place { path, slot, new },
        });
    }
    steps.extend(plan.dirs.iter().map(|dir| Step::Attributes {
        path: dir.path.clone(),
        new: dir.new.clone(),
    }));
    Ok(steps)
}

/// What goes, in the first slots.
fn takes(site: &Site<'_>, scan: &Scan, plan: &Plan) -> Result<Vec<Step>, Stop> {
    let mut steps = Vec::new();
    let mut take = |path: &Vec<u8>, old, dir| {
        steps.push(Step::Take {
            path: path.clone(),
            slot: steps.len() as u32 + 1,
            old,
            dir,
        });
    };
    for path in &plan.removes {
        take(path, old_of(scan, path)?, false);
    }
    for path in &plan.rmdirs {
        let place = NameInDir::of(site.base, path)?;
        let found = place.stamp().map_err(|e| failed(site.base, path, e))?;
        let stamp = found.ok_or_else(|| Error::ChangedMeanwhile(path.clone()))?;
        take(path, ident(&stamp), true);
    }
    Ok(steps)
}

/// The file that the scan found at a path.
fn old_of(scan: &Scan, path: &[u8]) -> Result<Ident, Stop> {
    let stamp = scan.stamps.get(path).map(ident);
    Ok(stamp.ok_or_else(|| Error::ChangedMeanwhile(path.to_vec()))?)
}

/// The first file of its link group that is staged: made, or linked from a name in the base that stays.
fn stage_first(
    site: &Site<'_>,
    scan: &Scan,
    plan: &Plan,
    staging: &mut Staging<'_>,
    put: &super::plan::Put,
    slot: u32,
) -> Result<Ident, Stop> {
    let stays = |path: &&Vec<u8>| {
        !plan.removes.contains(path) && !plan.puts.iter().any(|put| put.path == **path)
    };
    let group = put.entry.meta.link_group;
    let Some(there) = scan.links.get(&group).filter(|p| group != 0 && stays(p)) else {
        return Ok(staging.make(slot, &put.path, &put.entry)?);
    };
    let place = NameInDir::of(site.base, there)?;
    let now = place.stamp().ok().flatten();
    if !matches!((&now, scan.stamps.get(there)), (Some(now), Some(want)) if same_file(now, want)) {
        return Err(Error::ChangedMeanwhile(there.clone()).into());
    }
    let linked = staging.link_from(place.dir.as_fd(), &place.name, slot);
    Ok(linked.map_err(|e| failed(site.base, &put.path, e))?)
}

/// Everything but the change time, which a rename sets.
fn same_file(a: &Stamp, b: &Stamp) -> bool {
    let without_ctime = |s: &Stamp| Stamp {
        ctime: Time::default(),
        ..*s
    };
    without_ctime(a) == without_ctime(b)
}

fn forward(site: &Site<'_>, staging: &OwnedFd, scan: &Scan, step: &Step) -> Result<(), Stop> {
    let at = |path: &[u8]| {
        let path = path.to_vec();
        move |e: Errno| match e {
            Errno::EXIST | Errno::NOENT | Errno::NOTEMPTY => Error::ChangedMeanwhile(path),
            e => failed(site.base, &path, e),
        }
    };
    let changed = |path: &[u8]| Err(Error::ChangedMeanwhile(path.to_vec()).into());
    match step {
        Step::Exchange { path, slot, .. } => {
            let place = NameInDir::of(site.base, path)?;
            let want = scan.stamps.get(path);
            // A hard link that was staged has set the change time of all names.
            let now = place.stamp().map_err(at(path))?;
            if !matches!((&now, want), (Some(now), Some(want)) if same_file(now, want)) {
                return changed(path);
            }
            let name = slot_name(*slot);
            let flags = RenameFlags::EXCHANGE;
            let moved = fs::renameat_with(staging, &name, &place.dir, &place.name, flags);
            moved.map_err(at(path))?;
            let out = stamp_at(staging.as_fd(), &name).map_err(at(path))?;
            match want {
                Some(want) if same_file(&out, want) && place.is_still(site.base, path) => Ok(()),
                _ => changed(path),
            }
        }
        Step::Place { path, slot, .. } => {
            let place = NameInDir::of(site.base, path)?;
            let (name, flags) = (slot_name(*slot), RenameFlags::NOREPLACE);
            let moved = fs::renameat_with(staging, name, &place.dir, &place.name, flags);
            moved.map_err(at(path))?;
            match place.is_still(site.base, path) {
                true => Ok(()),
                false => changed(path),
            }
        }
        Step::Take {
            path,
            slot,
            old,
            dir,
        } => {
            let place = NameInDir::of(site.base, path)?;
            let (name, flags) = (slot_name(*slot), RenameFlags::NOREPLACE);
            let moved = fs::renameat_with(&place.dir, &place.name, staging, &name, flags);
            moved.map_err(at(path))?;
            let out = stamp_at(staging.as_fd(), &name).map_err(at(path))?;
            let expected = match (dir, scan.stamps.get(path)) {
                (true, _) => ident(&out) == *old && is_empty(staging, &name),
                (false, Some(want)) => same_file(&out, want),
                (false, None) => false,
            };
            match expected {
                true => Ok(()),
                false => changed(path),
            }
        }
        Step::Attributes { path, new, .. } => {
            let dir = open_dir(site.base, path)?;
            set_attributes(dir.as_fd(), b"", new).map_err(at(path))?;
            Ok(())
        }
    }
}

fn is_empty(staging: &OwnedFd, name: &[u8]) -> bool {
    let flags = fs::OFlags::RDONLY | fs::OFlags::DIRECTORY | fs::OFlags::NOFOLLOW;
    let Ok(dir) = fs::openat(staging, name, flags | fs::OFlags::CLOEXEC, Mode::empty()) else {
        return false;
    };
    let names = fs::Dir::read_from(&dir).into_iter().flatten();
    let own = |e: &fs::DirEntry| [&b"."[..], b".."].contains(&e.file_name().to_bytes());
    names
        .into_iter()
        .all(|entry| entry.is_ok_and(|entry| own(&entry)))
}

fn sync_dir(site: &Site<'_>, dir: &OwnedFd, path: &[u8]) -> Result<(), Stop> {
    site.tick()?;
    Ok(fs::fsync(dir).map_err(|e| failed(site.base, path, e))?)
}

fn sync_parents(site: &Site<'_>, steps: &[Step], staging: &OwnedFd) -> Result<(), Stop> {
    let mut parents: BTreeSet<Vec<u8>> = BTreeSet::new();
    for step in steps {
        match step {
            Step::Exchange { path, .. } | Step::Place { path, .. } => {
                parents.insert(parent_of(path).to_vec());
            }
            Step::Take { path, .. } => drop(parents.insert(parent_of(path).to_vec())),
            Step::Attributes { path, .. } => drop(parents.insert(path.clone())),
        }
    }
    for path in parents {
        // A directory that was taken away itself has nothing to be synced.
        if let Ok(dir) = open_dir(site.base, &path) {
            sync_dir(site, &dir, &path)?;
        }
    }
    sync_dir(site, staging, b"")
}

/// Finishes or reverses an apply that was interrupted; nothing where there is none.
pub(super) fn recover(site: &Site<'_>) -> Result<()> {
    let Some(intent) = Intent::read(site.storage, site.record)? else {
        return Ok(());
    };
    if site.base_ident()? != intent.base {
        return Err(Error::ApplyUnfinished {
            why: format!("{} is now another directory", site.base.path().display()),
        });
    }
    if intent.phase == Phase::Moving {
        reverse(site, &intent)?;
    }
    clean(site, &intent)?;
    Intent::remove(site.storage, site.record)
}

/// Removes the record of an apply that was interrupted in another directory.
pub(super) fn forget_elsewhere(base: &Base, storage: &dyn Storage, record: &str) -> Result<()> {
    match Intent::read(storage, record)? {
        Some(intent) if intent.base != base_ident(base)? => Intent::remove(storage, record),
        _ => Ok(()),
    }
}

/// Takes back what was done, the last step first; attributes of directories at the end, since renames
/// change their times.
fn reverse(site: &Site<'_>, intent: &Intent) -> Result<()> {
    let staging = open_dir(site.base, &intent.staging)?;
    for step in intent.steps.iter().rev() {
        backward(site, &staging, step)?;
    }
    for (path, old) in &intent.before {
        let dir = open_dir(site.base, path)?;
        let set = set_attributes(dir.as_fd(), b"", old);
        set.map_err(|e| failed(site.base, path, e))?;
    }
    match sync_parents(site, &intent.steps, &staging) {
        Ok(()) | Err(Stop::Died) => Ok(()),
        Err(Stop::Failed(e)) => Err(e),
    }
}

fn backward(site: &Site<'_>, staging: &OwnedFd, step: &Step) -> Result<()> {
    let here = |dir: &OwnedFd, name: &[u8]| stamp_at(dir.as_fd(), name).ok().map(|s| ident(&s));
    match step {
        Step::Exchange {
            path, slot, new, ..
        } => {
            let (place, name) = (NameInDir::of(site.base, path)?, slot_name(*slot));
            if here(&place.dir, &place.name) == Some(*new) && here(staging, &name) != Some(*new) {
                let flags = RenameFlags::EXCHANGE;
                let moved = fs::renameat_with(staging, name, &place.dir, &place.name, flags);
                moved.map_err(|e| failed(site.base, path, e))?;
            }
        }
        Step::Place { path, slot, new } => {
            // Where even its directory is not there, it was not put there.
            let Ok(place) = NameInDir::of(site.base, path) else {
                return Ok(());
            };
            if here(&place.dir, &place.name) == Some(*new) {
                let (name, flags) = (slot_name(*slot), RenameFlags::NOREPLACE);
                let moved = fs::renameat_with(&place.dir, &place.name, staging, name, flags);
                moved.map_err(|e| failed(site.base, path, e))?;
            }
        }
        Step::Take { path, slot, .. } => {
            let name = slot_name(*slot);
            if here(staging, &name).is_some() {
                let place = NameInDir::of(site.base, path)?;
                let flags = RenameFlags::NOREPLACE;
                let moved = fs::renameat_with(staging, name, &place.dir, &place.name, flags);
                moved.map_err(|e| failed(site.base, path, e))?;
            }
        }
        Step::Attributes { .. } => {}
    }
    Ok(())
}

/// Removes the staging directory, and sets the time of the base directory.
fn clean(site: &Site<'_>, intent: &Intent) -> Result<()> {
    remove_staging(site, &intent.staging)?;
    let time = match intent.phase {
        Phase::Done => intent.times[1],
        Phase::Staging | Phase::Moving => intent.times[0],
    };
    let root = site.base.root_fd();
    set_time(root, b".", time).map_err(|e| failed(site.base, b"", e))?;
    fs::fsync(root).map_err(|e| failed(site.base, b"", e))
}

/// Removes a staging directory: files and empty directories, one level.
fn remove_staging(site: &Site<'_>, staging: &[u8]) -> Result<()> {
    let at = |e: Errno| failed(site.base, staging, e);
    let dir = match open_dir(site.base, staging) {
        Ok(dir) => dir,
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(());
        }
        Err(e) => return Err(e),
    };
    for entry in fs::Dir::read_from(&dir).map_err(at)? {
        let entry = entry.map_err(at)?;
        let name = entry.file_name();
        if [&b"."[..], b".."].contains(&name.to_bytes()) {
            continue;
        }
        match fs::unlinkat(&dir, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {
                fs::unlinkat(&dir, name, AtFlags::REMOVEDIR).map_err(at)?;
            }
            other => other.map_err(at)?,
        }
    }
    fs::unlinkat(site.base.root_fd(), staging, AtFlags::REMOVEDIR).map_err(at)
}
