//! The head and the catalogs: which objects are present, and what gc must know.

use super::{Form, Hash};
use crate::bucket::check_name;
use crate::error::{Error, Result};
use bincode::{Decode, Encode};
use objstore::CommitId;
use std::collections::BTreeMap;

const HEAD_FORM: Form = Form {
    magic: *b"avfsrhed",
    what: "head",
};
const CATALOG_FORM: Form = Form {
    magic: *b"avfsrcat",
    what: "catalog",
};
/// Longest head that is read.
pub const HEAD_BYTES_MAX: u64 = 4096;
/// Longest catalog that is read: some hundred thousand condemned objects.
pub const CATALOG_BYTES_MAX: u64 = 32 << 20;
/// Most indexes of a catalog.
pub const INDEXES_MAX: usize = 4096;
/// Most branches of a remote.
pub const REFS_MAX: usize = 100_000;
/// Longest name of a project or branch.
const NAME_BYTES_MAX: usize = 64;

/// Which catalog is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Head {
    /// Its generation.
    pub generation: u64,
    /// Its hash.
    pub catalog: Hash,
    /// A number that no other head has.
    pub random: u64,
}

/// An index that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct IndexEntry {
    /// Its hash.
    pub hash: Hash,
    /// Its length.
    pub bytes: u64,
    /// How many objects it has.
    pub objects: u64,
    /// Generation in which its packs became present, but for those of which it says another.
    pub generation: u64,
}

/// Names a branch in a remote.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct BranchName {
    /// Project.
    pub project: String,
    /// Branch of it.
    pub branch: String,
}

/// A ref that is about to be put.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Pending {
    /// Whose.
    pub of: BranchName,
    /// What it will need, its own commit first.
    pub commits: Vec<CommitId>,
    /// Content that it will need beside.
    pub contents: Vec<objstore::FileContent>,
    /// Generation since which it is announced.
    pub generation: u64,
}

/// A generation of a remote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Catalog {
    /// Its number: one more than that of the one before.
    pub generation: u64,
    /// How many generations, up to this one, have less than the one before.
    pub collections: u64,
    /// A number that no other catalog has.
    pub random: u64,
    /// Where the objects are.
    pub indexes: Vec<IndexEntry>,
    /// Branches that may have a ref, ascending.
    pub refs: Vec<BranchName>,
    /// Refs that are about to be put.
    pub pending: Vec<Pending>,
    /// When gc saw which generation, by the remote's clock; ascending.
    pub observed: Vec<(u64, i64)>,
    /// Objects that no generation names, since when.
    pub condemned: BTreeMap<String, i64>,
    /// Objects that are being removed and must never be named again, since when.
    pub removing: BTreeMap<String, i64>,
}

impl Head {
    /// The object.
    pub fn encode(&self) -> Vec<u8> {
        HEAD_FORM.encode(self)
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<Head> {
        HEAD_FORM.decode(super::HEAD, bytes)
    }
}

impl Catalog {
    /// The object.
    pub fn encode(&self) -> Vec<u8> {
        CATALOG_FORM.encode(self)
    }

    /// Reads the object of this name.
    pub fn decode(name: &str, bytes: &[u8]) -> Result<Catalog> {
        let found: Catalog = CATALOG_FORM.decode(name, bytes)?;
        let names = found.refs.iter().chain(found.pending.iter().map(|p| &p.of));
        let fit = |n: &BranchName| is_plain(&n.project) && is_plain(&n.branch);
        let gone = found.condemned.keys().chain(found.removing.keys());
        let what = match () {
            () if !gone.into_iter().all(|name| may_be_removed(name)) => "what is to be removed",
            () if found.indexes.len() > INDEXES_MAX => "too many indexes",
            () if found.refs.len() > REFS_MAX => "too many branches",
            () if !found.refs.is_sorted_by(|a, b| a < b) => "branches are not sorted",
            () if !names.into_iter().all(fit) => "the name of a branch",
            () if !found.observed.is_sorted_by(|a, b| a < b) => "observations are not sorted",
            () => return Ok(found),
        };
        Err(Error::Damaged {
            name: name.to_owned(),
            what,
        })
    }

    /// Whether something that became present in a generation may be younger than `grace` at this moment of the
    /// remote's clock.
    pub fn is_young(&self, generation: u64, now: i64, grace: i64) -> bool {
        let seen = self.observed.iter();
        !seen
            .filter(|(g, _)| *g >= generation)
            .any(|(_, at)| now.saturating_sub(*at) >= grace)
    }
}

/// Objects that catalogs name, and no others, are removed because a catalog says so.
fn may_be_removed(name: &str) -> bool {
    let dirs = ["packs/", "indexes/", "catalogs/"];
    check_name(name).is_ok() && dirs.iter().any(|dir| name.starts_with(dir))
}

/// The rules for names of workspaces and branches.
pub(crate) fn is_plain(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let with = |project: &str| {
            let catalog = Catalog {
                refs: vec![BranchName {
                    project: project.into(),
                    branch: "main".into(),
                }],
                ..Catalog::default()
            };
            Catalog::decode("c", &catalog.encode())
        };
        assert!(with("p").is_ok());
        for bad in ["", "..", "a/b", "-x", "a\0", "ä", &"x".repeat(65)] {
            assert!(with(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_catalog_has_nothing_else_removed_than_what_catalogs_name() {
        let with = |name: &str| {
            let catalog = Catalog {
                removing: [(name.to_owned(), 1)].into(),
                ..Catalog::default()
            };
            Catalog::decode("c", &catalog.encode())
        };
        assert!(with("packs/x.pack").is_ok());
        for bad in [
            "head",
            "refs/p/main",
            "agentvfs.json",
            "packs/../head",
            "packs/",
            "",
        ] {
            assert!(with(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn youth_is_measured_by_what_was_seen() {
        let catalog = Catalog {
            observed: vec![(3, 100), (7, 200)],
            ..Catalog::default()
        };
        let young = |generation, now| catalog.is_young(generation, now, 50);
        assert!(young(3, 149) && !young(3, 150) && !young(1, 150));
        assert!(young(4, 200) && young(4, 249) && !young(4, 250));
        assert!(young(8, 1_000_000), "it was never seen");
    }
}
