//! Checking what the packs and indexes hold, and mending them without losing what can be read.

use std::ops::Range;

use crate::error::{AtPath, Result};
use crate::id::Kind;
use crate::pack::index::PackIndex;
use crate::pack::open::{read_header, record_end};
use crate::pack::record::PACK_HEADER_BYTES;
use crate::pack::scan::{Found, Scanner};
use crate::pack::{Key, Location, Pack, index_path};
use crate::store::ObjectStore;

/// One damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// File, relative to the store.
    pub path: String,
    /// First damaged byte.
    pub offset: u64,
    /// End of the damage.
    pub end: u64,
    /// What is wrong.
    pub what: &'static str,
    /// Kind and id of the object that is lost, where its header could be read.
    pub object: Option<(Kind, String)>,
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Whole records.
    pub records: u64,
    /// Records that nothing needed, whose space was given back.
    pub punched: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Damaged places.
    pub damage: Vec<Damage>,
}

impl ObjectStore {
    /// Reads every record of every pack and checks all checksums.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_while(&|_| true)
    }

    /// The same, as long as `goes_on` says so, which hears how many bytes were read. What was not read then is not in
    /// the report.
    pub fn verify_while(&self, goes_on: &dyn Fn(u64) -> bool) -> Result<VerifyReport> {
        self.flush()?;
        let mut report = VerifyReport::default();
        for pack in self.packs.packs() {
            verify_pack(&pack, &mut report, goes_on)?;
            self.verify_index(&pack, &mut report)?;
            if !goes_on(report.bytes) {
                break;
            }
        }
        Ok(report)
    }

    /// Objects whose records, as far as their pack's index knows, lie in a range of a pack's bytes.
    pub fn objects_in(&self, path: &str, range: Range<u64>) -> Vec<Key> {
        let packs = self.packs.packs();
        let Some(pack) = packs.iter().find(|p| p.path == path) else {
            return Vec::new();
        };
        let records = pack.records.read();
        let tail = records.tail.iter().map(|(key, at)| (*key, *at));
        let inside =
            |at: &Location| u64::from(at.offset) < range.end && record_end(at) > range.start;
        let all = records.index.entries().chain(tail);
        all.filter(|(_, at)| inside(at))
            .map(|(key, _)| key)
            .collect()
    }

    /// True where an object can be read, from whichever record.
    pub fn is_readable(&self, key: &Key) -> bool {
        self.get(key.0, &key.1).is_ok()
    }

    /// Writes the index at `path` anew, from what is known of its pack.
    pub fn rebuild_index(&self, path: &str) -> Result<()> {
        let packs = self.packs.packs();
        match packs.iter().find(|p| index_path(p.number) == path) {
            Some(pack) => self.packs.reindex(pack),
            // An index without a pack is nothing.
            None => self.storage.remove(path).at(path),
        }
    }

    /// Copies every record of a pack that can be read into a new one, durably, and removes the pack.
    pub fn rewrite_pack(&self, path: &str) -> Result<()> {
        let packs = self.packs.packs();
        match packs.iter().find(|p| p.path == path) {
            Some(pack) => self.packs.salvage(pack),
            None => Ok(()),
        }
    }

    fn verify_index(&self, pack: &Pack, report: &mut VerifyReport) -> Result<()> {
        let path = index_path(pack.number);
        let Some(file) = self.storage.read_frozen(&path).at(&path)? else {
            return Ok(());
        };
        let end = file.len() as u64;
        report.bytes += end;
        if PackIndex::decode(file, pack.number, pack.salt).is_none() {
            report.damage.push(Damage {
                path,
                offset: 0,
                end,
                what: "index",
                object: None,
            });
        }
        Ok(())
    }
}

fn verify_pack(
    pack: &Pack,
    report: &mut VerifyReport,
    goes_on: &dyn Fn(u64) -> bool,
) -> Result<()> {
    let damage = |offset, end, what, object: Option<Key>| Damage {
        path: pack.path.clone(),
        offset,
        end,
        what,
        object: object.map(|(kind, id)| (kind, crate::id::hex(&id))),
    };
    let start = PACK_HEADER_BYTES as u64;
    if read_header(&*pack.segment, &pack.path)?.is_none() {
        report.damage.push(damage(0, start, "pack header", None));
    }
    let mut scanner = Scanner::new(&*pack.segment, &pack.path, Some(pack.salt), start);
    while let Some(found) = scanner.next()? {
        let end = found.end();
        if !goes_on(report.bytes + end) {
            break;
        }
        match found {
            Found::Record { .. } => report.records += 1,
            Found::BadContent { key, at, what } => {
                let found = damage(at.offset.into(), end, what, Some(key));
                report.damage.push(found);
            }
            // Never listed, so it was lost otherwise: nobody takes what he needs for punched.
            Found::Punched { key, at } if pack.lists(&key, at) => {
                let found = damage(
                    at.offset.into(),
                    end,
                    "content does not match its id",
                    Some(key),
                );
                report.damage.push(found);
            }
            Found::Punched { .. } => report.punched += 1,
            Found::Garbage { offset, end } => {
                report.damage.push(damage(offset, end, "no record", None));
            }
        }
    }
    report.bytes += pack.segment.len();
    Ok(())
}
