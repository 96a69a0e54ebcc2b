//! What a holder goes on doing while a command runs: it appends records, or stores through its mapping.

use super::hold::{Holder, MAPPED, What};
use super::run::World;
use super::tree::{Number, Tree};
use crate::loggers::EndOnDrop;
use crate::sys::{Mapping, PAGE};
use crate::wait;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Records that are appended before a switch begins, and after it has answered.
const RECORDS: usize = 3;
/// The same for stores.
const STORES: usize = 100;
/// Bytes of a word that is stored.
const WORD: usize = 8;

/// One record of many; all have the same length.
pub fn record(n: usize) -> Vec<u8> {
    format!("record {n:08}\n").into_bytes()
}

/// Records that were appended while a command ran, and to which file.
pub struct Appended {
    pub node: Number,
    pub holder: u64,
    pub count: usize,
}

/// How much was added to the first word of each page while a command ran, and of which file.
pub struct Stored {
    pub node: Number,
    added: Vec<u64>,
}

impl Stored {
    /// Does the same to the model.
    pub fn apply(&self, tree: &mut Tree) {
        let bytes = tree.bytes(self.node);
        for (page, added) in self.added.iter().enumerate() {
            let word = &mut bytes[page * PAGE..][..WORD];
            let mut old = [0; WORD];
            old.copy_from_slice(word);
            let new = u64::from_ne_bytes(old).wrapping_add(*added);
            word.copy_from_slice(&new.to_ne_bytes());
        }
    }
}

impl World {
    /// Runs a command; with a holder, while that one appends records.
    pub(super) fn run_beside(
        &mut self,
        args: &[&str],
        holder: Option<u64>,
    ) -> Result<Option<Appended>, String> {
        let Some(h) = self.holders.iter().find(|h| Some(h.name) == holder) else {
            return self.command(args).map(|()| None);
        };
        let (node, name) = (h.node, h.name);
        let mut file = h.file.try_clone().map_err(|e| e.to_string())?;
        let (stop, count) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let (end, done) = (stop.clone(), count.clone());
        let appender = std::thread::spawn(move || {
            while !end.load(Ordering::SeqCst) {
                file.write_all(&record(done.load(Ordering::SeqCst)))?;
                done.fetch_add(1, Ordering::SeqCst);
            }
            std::io::Result::Ok(())
        });
        let ends = EndOnDrop(&stop);
        let more = |than: usize| {
            let goes_on =
                || count.load(Ordering::SeqCst) >= than + RECORDS || appender.is_finished();
            wait::until("records are appended", goes_on);
        };
        more(0);
        let told = self.command(args);
        more(count.load(Ordering::SeqCst));
        drop(ends);
        let wrote = appender.join().map_err(|_| "the appender panicked")?;
        wrote.map_err(|e| format!("holder {name} appends: {e}"))?;
        told?;
        let count = count.load(Ordering::SeqCst);
        self.say(format!(
            "… beside which holder {name} appended {count} records"
        ));
        Ok(Some(Appended {
            node,
            holder: name,
            count,
        }))
    }

    /// Runs a command while a holder adds one to the first words of the pages that it maps, in turn.
    pub(super) fn run_beside_stores(
        &mut self,
        args: &[&str],
        holder: u64,
    ) -> Result<Stored, String> {
        let h = self.holders.iter().find(|h| h.name == holder);
        let (node, mapping) = match h {
            Some(Holder {
                node,
                what: What::File(mapping),
                ..
            }) => (*node, mapping),
            _ => return Err(format!("holder {holder} maps nothing")),
        };
        let pages = self.tree.file(node).map_or(0, |bytes| words(bytes.len()));
        let (stop, count) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (told, added) = std::thread::scope(|scope| {
            let storing = scope.spawn(|| add(mapping, pages, &stop, &count));
            let ends = EndOnDrop(&stop);
            let more = |than: usize| {
                wait::until("stores are made", || {
                    count.load(Ordering::SeqCst) >= than + STORES
                });
            };
            more(0);
            let told = self.command(args);
            more(count.load(Ordering::SeqCst));
            drop(ends);
            (told, storing.join())
        });
        told?;
        let added = added.map_err(|_| "the storer panicked")?;
        let all: u64 = added.iter().sum();
        self.say(format!("… beside which holder {holder} stored {all} times"));
        Ok(Stored { node, added })
    }

    /// The path of a file that somebody holds to append to it, and that steps did not put into the project.
    pub(super) fn appended(&self) -> Option<String> {
        let mut paths = self.tree.paths();
        paths.retain(|path, _| !path.starts_with('p'));
        let appending = |n: Number| {
            let of = |h: &&Holder| matches!(h.what, What::Appending) && h.node == n;
            self.holders.iter().find(of).is_some()
        };
        paths
            .into_iter()
            .find(|(_, n)| appending(*n))
            .map(|(path, _)| path)
    }

    /// A mapping holder of a file of at least a word, with the file's path: one that steps put into the
    /// project, or one that they did not.
    pub(super) fn storer(&self, of_project: bool) -> Option<(u64, String)> {
        let mut paths = self.tree.paths();
        paths.retain(|path, _| path.starts_with('p') == of_project);
        let path = |n: Number| paths.iter().find(|(_, named)| **named == n);
        let mut all = self.holders.iter().filter(|h| match h.what {
            What::File(_) => self.tree.file(h.node).is_some_and(|b| words(b.len()) > 0),
            _ => false,
        });
        all.find_map(|h| Some((h.name, path(h.node)?.0.clone())))
    }
}

/// Pages of a file of this length that have a whole word, of those that are mapped.
fn words(len: usize) -> usize {
    let pages = (len + PAGE).saturating_sub(WORD) / PAGE;
    pages.min(MAPPED)
}

fn add(mapping: &Mapping, pages: usize, stop: &AtomicBool, count: &AtomicUsize) -> Vec<u64> {
    let mut added = vec![0; pages];
    for page in (0..pages).cycle() {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        mapping.word(page).fetch_add(1, Ordering::SeqCst);
        added[page] += 1;
        count.fetch_add(1, Ordering::SeqCst);
        std::thread::yield_now();
    }
    added
}
