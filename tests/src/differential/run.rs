//! Making the same calls in two directories and comparing what comes of them.

use super::look::{Content, Looker, Seen, contents};
use super::perform::{Side, Value};
use super::{Octal, Op, Step};
use rustix::fs::Mode;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Calls between two looks at all contents.
const CALLS_PER_CONTENT: usize = 16;

/// Where to make the calls: a native directory, and one in a mount.
pub struct Pair {
    /// What is right by definition.
    pub native: PathBuf,
    /// What is under test.
    pub mount: PathBuf,
    /// Whether the native file system gives different times to changes that follow one another.
    pub fine_clock: bool,
}

/// A difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The call after which it was seen.
    pub step: usize,
    /// What differs.
    pub what: String,
}

/// Two directories of one name, removed when dropped unless they are kept.
struct Scratch {
    places: [PathBuf; 2],
    keep: bool,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        rustix::process::chdir("/").unwrap();
        rustix::process::umask(Mode::from_raw_mode(0o022));
        if !self.keep {
            self.places.iter().for_each(|place| remove(place));
        }
    }
}

fn remove(place: &Path) {
    let all = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(place, all).unwrap();
    if let Ok(entries) = std::fs::read_dir(place) {
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove(&entry.path());
            } else {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
    }
    std::fs::remove_dir(place).unwrap();
}

/// Makes the calls in both, in a new directory `name`; fails at the first difference. What is there
/// at the end stays if `keep`.
pub fn compare(pair: &Pair, name: &str, steps: &[Step], keep: bool) -> Result<(), Failure> {
    let places = [pair.native.join(name), pair.mount.join(name)];
    let mut scratch = Scratch { places, keep };
    let done = compare_in(pair, &scratch.places, steps);
    scratch.keep &= done.is_ok();
    done
}

fn compare_in(pair: &Pair, places: &[PathBuf; 2], steps: &[Step]) -> Result<(), Failure> {
    let mut sides = [Side::new(&places[0]), Side::new(&places[1])];
    let mut lookers = [Looker::default(), Looker::default()];
    let begin = Step {
        user: 0,
        op: Op::Umask(Octal(0o022)),
    };
    for (number, step) in [begin].iter().chain(steps).enumerate() {
        let results = [sides[0].perform(step), sides[1].perform(step)];
        let failed = |what: String| Failure {
            step: number.saturating_sub(1),
            what: format!("{step:?}: {what}"),
        };
        same_result(&results).map_err(failed)?;
        let seen = [lookers[0].look(&sides[0]), lookers[1].look(&sides[1])];
        same_seen(pair, &seen).map_err(failed)?;
        if settle(&mut sides, &seen) {
            (lookers.iter_mut().zip(&sides)).for_each(|(looker, side)| drop(looker.look(side)));
        }
        if number % CALLS_PER_CONTENT == 0 || number == steps.len() {
            let found = [contents(&sides[0]), contents(&sides[1])];
            same_contents(&found).map_err(failed)?;
        }
    }
    Ok(())
}

/// Gives files of the mount that differ in what [`Seen::but_for_locking`] leaves out the native mode: a later call that gives
/// the group execution would show the difference. Says whether there were any.
fn settle(sides: &mut [Side; 2], seen: &All<Seen>) -> bool {
    let both = seen[0].iter().zip(seen[1].values());
    let differ = both.filter(|((_, native), mount)| native.mode != mount.mode);
    let steps: Vec<Step> = differ
        .map(|((path, native), _)| {
            let (path, mode) = (str::from_utf8(path).unwrap(), Octal(native.mode.0 & 0o7777));
            let slot = path.strip_prefix("slot ").map(|slot| slot.parse().unwrap());
            let op = match slot {
                Some(slot) => Op::ChmodOpen(slot, mode),
                None => Op::Chmod(path.to_owned(), mode),
            };
            Step { user: 0, op }
        })
        .collect();
    for step in &steps {
        let results = sides.each_mut().map(|side| side.perform(step));
        assert_eq!(
            results,
            [Ok(Value::Nothing), Ok(Value::Nothing)],
            "{step:?}"
        );
    }
    !steps.is_empty()
}

/// Compares two directories that calls were made in before.
pub fn compare_again(pair: &Pair, name: &str) -> Result<(), String> {
    let sides = [&pair.native, &pair.mount].map(|place| Side::at(&place.join(name)));
    let seen = [0, 1].map(|side| Looker::default().look(&sides[side]));
    same_seen(pair, &seen)?;
    same_contents(&[contents(&sides[0]), contents(&sides[1])])
}

fn same_result(results: &[Result<Value, Errno>; 2]) -> Result<(), String> {
    match results[0] == results[1] {
        true => Ok(()),
        false => Err(difference(&brief(&results[0]), &brief(&results[1]))),
    }
}

fn brief(result: &Result<Value, Errno>) -> String {
    match result {
        Ok(Value::Bytes(bytes)) if bytes.len() > 40 => {
            let hash = blake3::hash(bytes).to_hex();
            format!("{} bytes, hash {}", bytes.len(), &hash[..8])
        }
        Ok(other) => format!("{other:?}"),
        Err(errno) => errno.to_string(),
    }
}

fn difference(native: &dyn Debug, mount: &dyn Debug) -> String {
    format!("native {native:?}, mount {mount:?}")
}

type All<T> = [BTreeMap<Vec<u8>, T>; 2];

fn same_seen(pair: &Pair, seen: &All<Seen>) -> Result<(), String> {
    each(seen, |native, mount| {
        let mut native = native.clone();
        native.fresh = mount.fresh;
        if mount.fresh || !pair.fine_clock {
            native.moved = mount.moved;
        }
        match native.but_for_locking() == mount.but_for_locking() {
            true => None,
            false => Some(difference(&native, mount)),
        }
    })
}

fn same_contents(found: &All<Content>) -> Result<(), String> {
    each(found, |native, mount| {
        if native.hash != mount.hash {
            return Some(format!(
                "content: {}",
                difference(&native.hash, &mount.hash)
            ));
        }
        if native.xattrs != mount.xattrs {
            return Some(difference(&native.xattrs, &mount.xattrs));
        }
        let more = |page: &&u64| native.pages.binary_search(page).is_err();
        let page = mount.pages.iter().find(more)?;
        Some(format!("page {page} is a hole in the native file alone"))
    })
}

/// What is the first path at which two looks differ, and how?
fn each<T>(all: &All<T>, differ: impl Fn(&T, &T) -> Option<String>) -> Result<(), String> {
    let paths: BTreeSet<&Vec<u8>> = all.iter().flat_map(BTreeMap::keys).collect();
    for path in paths {
        let what = match (all[0].get(path), all[1].get(path)) {
            (Some(native), Some(mount)) => differ(native, mount),
            (Some(_), None) => Some("missing in the mount".to_owned()),
            _ => Some("in the mount alone".to_owned()),
        };
        if let Some(what) = what {
            return Err(format!("{}: {what}", String::from_utf8_lossy(path)));
        }
    }
    Ok(())
}

/// Whether changes of one file that follow one another get different times at `place`.
pub fn has_fine_clock(place: &Path) -> bool {
    let path = place.join("clock");
    let change = || {
        std::fs::write(&path, "x").unwrap();
        let stat = rustix::fs::stat(&path).unwrap();
        (stat.st_mtime, stat.st_mtime_nsec)
    };
    let fine = (0..20).all(|_| change() != change());
    std::fs::remove_file(&path).unwrap();
    fine
}
