//! The journals of a workspace, by number, and what of them branches need.
//!
//! A branch that is made from another shows at first what is in the other's journal. It *pins* those
//! segments until all of it is sealed; a journal drops no segment that another branch pins.

use crate::journal::{Journal, JournalError, JournalResult};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Lowest segment that is needed of each journal, by the journal's number.
pub type Needed = BTreeMap<u32, u32>;

/// The open journals of a workspace.
#[derive(Debug, Default)]
pub struct Journals {
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    journals: HashMap<u32, Arc<Journal>>,
    /// What each branch needs of other branches' journals, by the number of its own.
    pins: HashMap<u32, Needed>,
}

impl Journals {
    /// Adds an open journal.
    pub fn add(&self, journal: Arc<Journal>) {
        self.table
            .write()
            .journals
            .insert(journal.number(), journal);
    }

    /// Forgets a journal and what its branch pinned.
    pub fn remove(&self, number: u32) {
        let mut table = self.table.write();
        table.journals.remove(&number);
        table.pins.remove(&number);
    }

    /// A journal; `Dropped` where it is not open (any more).
    pub fn get(&self, number: u32, segment: u32) -> JournalResult<Arc<Journal>> {
        let table = self.table.read();
        let found = table.journals.get(&number).cloned();
        found.ok_or(JournalError::Dropped { segment })
    }

    /// Sets what a branch needs; what is of its own journal is left out.
    pub fn pin(&self, branch: u32, mut needed: Needed) {
        needed.remove(&branch);
        self.table.write().pins.insert(branch, needed);
    }

    /// Lowest segment of a journal that another branch needs.
    pub fn pinned(&self, number: u32) -> Option<u32> {
        let table = self.table.read();
        let pins = table.pins.values().filter_map(|needed| needed.get(&number));
        pins.min().copied()
    }

    /// Branches (by the numbers of their journals) that need something of a journal.
    pub fn users(&self, number: u32) -> Vec<u32> {
        let table = self.table.read();
        let users = table.pins.iter().filter(|(_, n)| n.contains_key(&number));
        users.map(|(branch, _)| *branch).collect()
    }
}
