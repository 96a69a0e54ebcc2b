//! What a disk holds after a power cut.
//!
//! The log is replayed: synced operations are applied as they were synced, what is pending at the end
//! is kept, dropped, torn or reordered. The order of name changes of one directory and that of the
//! writes of one file are independent of each other, as on a real disk.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use super::{Files, Ino, Names, Op};

/// Disks write whole sectors; a torn write ends at one.
const SECTOR_BYTES: usize = 512;

/// What becomes of operations that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// All are on the disk.
    Keep,
    /// None is.
    Drop,
    /// Of each file, and of the names, the first ones are; of the one after them a part, possibly
    /// followed by zeros or garbage up to its length.
    Torn,
    /// Each sector and name for itself is or is not; missing ones are old content, zeros or garbage.
    Reorder,
}

impl Policy {
    /// All policies, for loops.
    pub const ALL: [Policy; 4] = [Policy::Keep, Policy::Drop, Policy::Torn, Policy::Reorder];
}

/// Names and contents of a disk.
#[derive(Clone, Debug, Default)]
pub struct Image {
    pub(super) names: Names,
    pub(super) dirs: BTreeSet<String>,
    pub(super) files: Files,
}

impl Image {
    pub(super) fn len(&self, ino: Ino) -> u64 {
        self.files.get(&ino).map_or(0, |file| file.len() as u64)
    }

    pub(super) fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8]) {
        let file = self.files.entry(ino).or_default();
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if file.len() < end {
            file.resize(end, 0);
        }
        file[start..end].copy_from_slice(bytes);
    }

    pub(super) fn truncate(&mut self, ino: Ino, len: u64) {
        self.files.entry(ino).or_default().resize(len as usize, 0);
    }

    /// Overwrites what there is of a range with zeros.
    pub(super) fn zero(&mut self, ino: Ino, range: &Range<u64>) {
        let file = self.files.entry(ino).or_default();
        let end = file.len().min(range.end as usize);
        if let Some(bytes) = file.get_mut(range.start as usize..end) {
            bytes.fill(0);
        }
    }

    fn remove_dir(&mut self, path: &str) {
        for file in below(&self.names, path) {
            self.names.remove(&file);
        }
        let inside = format!("{path}/");
        self.dirs
            .retain(|dir| dir != path && !dir.starts_with(&inside));
    }
}

/// The directory that a path lies in; empty for the root.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// Where the last part of a path begins.
pub(super) fn name_start(path: &str) -> usize {
    path.rfind('/').map_or(0, |slash| slash + 1)
}

/// Files anywhere below a directory.
pub(super) fn below(names: &Names, dir: &str) -> Vec<String> {
    let inside = format!("{dir}/");
    names
        .keys()
        .filter(|path| path.starts_with(&inside))
        .cloned()
        .collect()
}

/// Numbers from a seed (SplitMix64): the same seed gives the same disk.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

/// The replay under way.
struct Replay {
    image: Image,
    /// Writes, truncations and holes of each file that are not synced.
    data: HashMap<Ino, Vec<Op>>,
    /// Changes of names that are not synced.
    names: Vec<Op>,
    policy: Policy,
    random: Random,
}

/// The disk after `done` operations with `under_way` begun.
pub(super) fn replay(
    start: Image,
    done: &[Op],
    under_way: Option<&Op>,
    policy: Policy,
    seed: u64,
) -> Image {
    let mut replay = Replay {
        image: start,
        data: HashMap::new(),
        names: Vec::new(),
        policy,
        random: Random(seed),
    };
    done.iter().for_each(|op| replay.step(op));
    if let Some(op) = under_way {
        replay.begin(op);
    }
    replay.cut()
}

impl Replay {
    fn step(&mut self, op: &Op) {
        match op {
            Op::Create { ino, .. } => {
                self.image.files.insert(*ino, Vec::new());
                self.names.push(op.clone());
            }
            Op::Remove { .. } | Op::RemoveDir { .. } => self.names.push(op.clone()),
            Op::Write { ino, .. } | Op::Truncate { ino, .. } | Op::Punch { ino, .. } => {
                self.data.entry(*ino).or_default().push(op.clone());
            }
            Op::Sync { ino } => {
                let synced = self.data.remove(ino).unwrap_or_default();
                synced.iter().for_each(|op| apply(&mut self.image, op));
            }
            Op::FailedSync { ino } => {
                let doubtful = self.data.remove(ino).unwrap_or_default();
                self.settle_data(doubtful);
            }
            Op::SyncDir { dir } => self.sync_names(dir),
            Op::CreateDir { path } | Op::Replace { path, .. } => {
                self.sync_names(parent(path));
                apply(&mut self.image, op);
            }
        }
    }

    /// An operation that did not return may have done anything up to its whole.
    fn begin(&mut self, op: &Op) {
        let pending = matches!(
            op,
            Op::Write { .. } | Op::Truncate { .. } | Op::Punch { .. } | Op::Create { .. }
        );
        let may_be_done = self.policy == Policy::Torn || self.policy == Policy::Reorder;
        if pending && self.policy != Policy::Keep || may_be_done && self.random.coin() {
            self.step(op);
        }
    }

    fn sync_names(&mut self, dir: &str) {
        let (synced, rest): (Vec<Op>, Vec<Op>) = std::mem::take(&mut self.names)
            .into_iter()
            .partition(|op| parent(name_of(op)) == dir);
        self.names = rest;
        synced.iter().for_each(|op| apply(&mut self.image, op));
    }

    fn cut(mut self) -> Image {
        let mut pending: Vec<(Ino, Vec<Op>)> = self.data.drain().collect();
        // Hash maps have no order of their own; the seed must decide alone.
        pending.sort_unstable_by_key(|(ino, _)| *ino);
        for (_, ops) in pending {
            self.settle_data(ops);
        }
        self.settle_names();
        let Image { names, dirs, .. } = &mut self.image;
        names.retain(|path, _| parent(path).is_empty() || dirs.contains(parent(path)));
        self.image
    }

    fn settle_names(&mut self) {
        let names = std::mem::take(&mut self.names);
        let kept_first = self.random.below(names.len() + 1);
        for (i, op) in names.iter().enumerate() {
            let kept = match self.policy {
                Policy::Keep => true,
                Policy::Drop => false,
                Policy::Torn => i < kept_first,
                Policy::Reorder => self.random.coin(),
            };
            if kept {
                apply(&mut self.image, op);
            }
        }
    }

    /// Decides about unsynced writes, truncations and holes of one file.
    fn settle_data(&mut self, ops: Vec<Op>) {
        let kept_first = self.random.below(ops.len() + 1);
        for (i, op) in ops.iter().enumerate() {
            match (self.policy, op) {
                (Policy::Keep, _) => apply(&mut self.image, op),
                (Policy::Drop, _) => {}
                (Policy::Torn, _) if i < kept_first => apply(&mut self.image, op),
                (Policy::Torn, Op::Write { ino, offset, bytes }) if i == kept_first => {
                    self.write_torn(*ino, *offset, bytes);
                }
                (Policy::Torn, Op::Punch { ino, range }) if i == kept_first => {
                    let sectors = (range.end - range.start) as usize / SECTOR_BYTES;
                    let whole = (self.random.below(sectors + 1) * SECTOR_BYTES) as u64;
                    self.image.zero(*ino, &(range.start..range.start + whole));
                }
                (Policy::Torn, _) => {}
                (Policy::Reorder, Op::Punch { ino, range }) => self.punch_sectors(*ino, range),
                (Policy::Reorder, Op::Write { ino, offset, bytes }) => {
                    self.write_sectors(*ino, *offset, bytes);
                }
                (Policy::Reorder, _) if self.random.coin() => apply(&mut self.image, op),
                (Policy::Reorder, _) => {}
            }
        }
    }

    /// The first sectors of a write, and what may stand where the rest should be.
    fn write_torn(&mut self, ino: Ino, offset: u64, bytes: &[u8]) {
        let whole = self.random.below(bytes.len() + 1);
        let to_sector = (offset as usize + whole) % SECTOR_BYTES;
        let kept = whole.saturating_sub(to_sector);
        self.image.write(ino, offset, &bytes[..kept]);
        let old_len = self.image.len(ino);
        let end = offset + bytes.len() as u64;
        if end > old_len && self.random.coin() {
            let rest = self.filler((end - old_len) as usize);
            self.image.write(ino, old_len, &rest);
        }
    }

    /// Each sector of a write for itself.
    fn write_sectors(&mut self, ino: Ino, offset: u64, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let to_next = SECTOR_BYTES - (offset as usize + at) % SECTOR_BYTES;
            let end = bytes.len().min(at + to_next);
            let place = offset + at as u64;
            if self.random.coin() {
                // Over old bytes any mixture may stand: users of `write_at` must not rely on sectors.
                let overwrites = place + ((end - at) as u64) <= self.image.len(ino);
                let kept = if overwrites {
                    self.random.below(end - at + 1)
                } else {
                    end - at
                };
                self.image.write(ino, place, &bytes[at..at + kept]);
            } else if place >= self.image.len(ino) && self.random.coin() {
                let filler = self.filler(end - at);
                self.image.write(ino, place, &filler);
            }
            at = end;
        }
    }

    /// Each sector of a hole for itself.
    fn punch_sectors(&mut self, ino: Ino, range: &Range<u64>) {
        for start in range.clone().step_by(SECTOR_BYTES) {
            if self.random.coin() {
                let end = range.end.min(start + SECTOR_BYTES as u64);
                self.image.zero(ino, &(start..end));
            }
        }
    }

    /// Zeros or garbage.
    fn filler(&mut self, len: usize) -> Vec<u8> {
        if self.random.coin() {
            return vec![0; len];
        }
        (0..len).map(|_| self.random.next() as u8).collect()
    }
}

fn name_of(op: &Op) -> &str {
    match op {
        Op::Create { path, .. }
        | Op::Remove { path }
        | Op::RemoveDir { path }
        | Op::CreateDir { path }
        | Op::Replace { path, .. } => path,
        Op::SyncDir { dir } => dir,
        Op::Write { .. }
        | Op::Truncate { .. }
        | Op::Punch { .. }
        | Op::Sync { .. }
        | Op::FailedSync { .. } => "",
    }
}

fn apply(image: &mut Image, op: &Op) {
    match op {
        Op::Create { path, ino } => {
            image.names.insert(path.clone(), *ino);
        }
        Op::Remove { path } => {
            image.names.remove(path);
        }
        Op::RemoveDir { path } => image.remove_dir(path),
        Op::CreateDir { path } => {
            image.dirs.insert(path.clone());
        }
        Op::Replace { path, ino, bytes } => {
            image.names.insert(path.clone(), *ino);
            image.files.insert(*ino, bytes.to_vec());
        }
        Op::Write { ino, offset, bytes } => image.write(*ino, *offset, bytes),
        Op::Truncate { ino, len } => image.truncate(*ino, *len),
        Op::Punch { ino, range } => image.zero(*ino, range),
        Op::Sync { .. } | Op::FailedSync { .. } | Op::SyncDir { .. } => {}
    }
}
