//! Refs: durable names for small values, the roots of everything that is kept.
//!
//! Names have parts separated by `/`. Each ref is one file, replaced as a whole, with a version and a
//! checksum. Directories of the same name as a ref can exist, since files have a suffix of their own.

use std::fmt::Write;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{AtPath, Error, Result};
use crate::io::Storage;
use crate::pack::record::u32_at;

/// Directory of the refs.
const REF_DIR: &str = "refs";

const SUFFIX: &str = ".ref";
const MAGIC: [u8; 4] = *b"avrf";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 4;

/// Longest part of a name as stored, so that it fits a file name with room for a temporary one.
const PART_BYTES_MAX: usize = 240;

/// The refs of a store. All methods may be called from several threads.
#[derive(Debug)]
pub struct RefStore {
    storage: Arc<dyn Storage>,
    /// Held over compare and set.
    change: Mutex<()>,
}

impl RefStore {
    /// Opens the refs in `storage`, or makes an empty set.
    pub fn open(storage: Arc<dyn Storage>) -> Result<RefStore> {
        storage.create_dir_all(REF_DIR).at(REF_DIR)?;
        Ok(RefStore {
            storage,
            change: Mutex::new(()),
        })
    }

    /// The value of a ref.
    pub fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = ref_path(name)?;
        let file = self.storage.read(&path).at(&path)?;
        file.map(|file| decode(&file, &path)).transpose()
    }

    /// Sets a ref, whatever it was. Atomic, and durable after `Ok`.
    pub fn set(&self, name: &str, value: &[u8]) -> Result<()> {
        let _alone = self.change.lock();
        self.write(name, value)
    }

    /// Deletes a ref; nothing happens where there is none. Durable after `Ok`.
    pub fn delete(&self, name: &str) -> Result<()> {
        let _alone = self.change.lock();
        self.remove(name)
    }

    /// Names of all refs below `prefix` (whole parts; empty for all), sorted.
    pub fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let dir = if prefix.is_empty() {
            REF_DIR.to_owned()
        } else {
            encoded_path(prefix)?
        };
        let mut names = Vec::new();
        self.list_dir(&dir, prefix, &mut names)?;
        names.sort_unstable();
        Ok(names)
    }

    fn list_dir(&self, dir: &str, prefix: &str, names: &mut Vec<String>) -> Result<()> {
        for file in self.storage.list(dir).at(dir)? {
            let (part, is_ref) = match file.strip_suffix(SUFFIX) {
                Some(part) => (part, true),
                None => (&file[..], false),
            };
            // Files that no ref has as a name were put there by somebody else.
            let Some(part) = decode_part(part) else {
                continue;
            };
            let name = if prefix.is_empty() {
                part
            } else {
                format!("{prefix}/{part}")
            };
            if is_ref {
                names.push(name);
            } else {
                self.list_dir(&format!("{dir}/{file}"), &name, names)?;
            }
        }
        Ok(())
    }

    fn write(&self, name: &str, value: &[u8]) -> Result<()> {
        let path = ref_path(name)?;
        let (dir, _) = path.rsplit_once('/').unwrap_or((REF_DIR, ""));
        self.storage.create_dir_all(dir).at(dir)?;
        self.storage.replace(&path, &encode(value)).at(&path)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = ref_path(name)?;
        if self.storage.read(&path).at(&path)?.is_none() {
            return Ok(());
        }
        let (dir, _) = path.rsplit_once('/').unwrap_or((REF_DIR, ""));
        self.storage.remove(&path).at(&path)?;
        self.storage.sync_dir(dir).at(dir)
    }
}

fn encode(value: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(HEADER_BYTES + value.len() + CHECKSUM_BYTES);
    file.extend_from_slice(&MAGIC);
    file.extend_from_slice(&VERSION.to_le_bytes());
    file.extend_from_slice(value);
    let crc = crc32fast::hash(&file);
    file.extend_from_slice(&crc.to_le_bytes());
    file
}

fn decode(file: &[u8], path: &str) -> Result<Vec<u8>> {
    let corrupt = |what| Error::Corrupt {
        what,
        path: path.to_owned(),
        offset: 0,
    };
    let body = file
        .len()
        .checked_sub(CHECKSUM_BYTES)
        .filter(|body| *body >= HEADER_BYTES);
    let body = body.ok_or_else(|| corrupt("too short for a ref"))?;
    if u32_at(file, body) != crc32fast::hash(&file[..body]) || file[..4] != MAGIC {
        return Err(corrupt("checksum of a ref"));
    }
    match u32_at(file, 4) {
        VERSION => Ok(file[HEADER_BYTES..body].to_vec()),
        found if found > VERSION => Err(Error::NewerVersion {
            found,
            supported: VERSION,
        }),
        _ => Err(corrupt("version of a ref")),
    }
}

/// File of a ref, below the store.
pub fn ref_path(name: &str) -> Result<String> {
    Ok(encoded_path(name)? + SUFFIX)
}

fn encoded_path(name: &str) -> Result<String> {
    let bad = || Error::BadRefName {
        name: name.to_owned(),
    };
    let mut path = REF_DIR.to_owned();
    for part in name.split('/') {
        let start = path.len() + 1;
        path.push('/');
        encode_part(part, &mut path);
        if part.is_empty() || path.len() - start > PART_BYTES_MAX {
            return Err(bad());
        }
    }
    Ok(path)
}

/// Letters, digits, `-`, `_` and everything that is not ASCII stand for themselves; other characters,
/// the dot among them, as `%` and two hex digits.
fn encode_part(part: &str, out: &mut String) {
    for c in part.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') || !c.is_ascii() {
            out.push(c);
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "%{:02x}", c as u32);
        }
    }
}

fn decode_part(part: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = part;
    while let Some((plain, escaped)) = rest.split_once('%') {
        out.push_str(plain);
        let byte = u8::from_str_radix(escaped.get(..2)?, 16).ok()?;
        out.push(char::from(byte));
        rest = &escaped[2..];
    }
    out.push_str(rest);
    let mut again = String::new();
    encode_part(&out, &mut again);
    (again == part).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash_storage::{CrashStorage, Policy};

    fn refs() -> (CrashStorage, RefStore) {
        let disk = CrashStorage::new();
        let refs = RefStore::open(Arc::new(disk.clone())).unwrap();
        (disk, refs)
    }

    #[test]
    fn values_are_set_replaced_and_deleted() {
        let (_, refs) = refs();
        assert_eq!(refs.get("w/main/v1.0").unwrap(), None);
        refs.set("w/main/v1.0", b"one").unwrap();
        refs.set("w/main/v1.0", b"two").unwrap();
        assert_eq!(refs.get("w/main/v1.0").unwrap().unwrap(), b"two");
        refs.delete("w/main/v1.0").unwrap();
        assert_eq!(refs.get("w/main/v1.0").unwrap(), None);
    }

    #[test]
    fn any_label_is_a_name() {
        let (_, refs) = refs();
        let names = [
            "a",
            "a/b",
            "a/b/c",
            "a/before: 100% \"done\"",
            "a/grün",
            "b/.x",
            "b/x.ref",
        ];
        for name in names {
            refs.set(name, name.as_bytes()).unwrap();
        }
        let mut sorted = names.map(String::from);
        sorted.sort();
        assert_eq!(refs.list("").unwrap(), sorted);
        assert_eq!(refs.list("b").unwrap(), ["b/.x", "b/x.ref"]);
        assert_eq!(refs.list("nothing").unwrap(), Vec::<String>::new());
        for name in names {
            assert_eq!(refs.get(name).unwrap().as_deref(), Some(name.as_bytes()));
        }
        for name in ["", "/a", "a//b", "a/", &"x".repeat(300)] {
            assert!(
                matches!(refs.set(name, b""), Err(Error::BadRefName { .. })),
                "{name}"
            );
        }
    }

    #[test]
    fn acknowledged_values_survive_power_cuts_and_others_are_old_or_new() {
        let (disk, refs) = refs();
        refs.set("a", b"1").unwrap();
        let set = disk.op_count();
        refs.set("a", b"2").unwrap();
        let second = disk.op_count();
        refs.delete("a").unwrap();
        let deleted = disk.op_count();
        for (cut, policy, seed) in (set..=deleted)
            .flat_map(|cut| Policy::ALL.map(|policy| (cut, policy)))
            .flat_map(|(cut, policy)| (0..8).map(move |seed| (cut, policy, seed)))
        {
            let image = Arc::new(disk.image_at(cut, policy, seed));
            let value = RefStore::open(image).unwrap().get("a").unwrap();
            let allowed: &[Option<&[u8]>] = match cut {
                c if c < second => &[Some(b"1"), Some(b"2")],
                c if c < deleted => &[Some(b"2"), None],
                _ => &[None],
            };
            assert!(
                allowed.contains(&value.as_deref()),
                "{cut} {policy:?} {seed}: {value:?}"
            );
        }
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let (disk, refs) = refs();
        refs.set("a", b"value").unwrap();
        let len = disk.read("refs/a.ref").unwrap().unwrap().len() as u64;
        for (offset, bit) in (0..len).flat_map(|o| (0..8).map(move |b| (o, b))) {
            disk.flip_bit("refs/a.ref", offset, bit);
            assert!(matches!(refs.get("a"), Err(Error::Corrupt { .. })));
            disk.flip_bit("refs/a.ref", offset, bit);
        }
        assert_eq!(refs.get("a").unwrap().unwrap(), b"value");
    }
}
