//! Which branches show what a command in a sandbox wrote, and nobody has applied since.
//!
//! The mark is set before a command begins, and it follows what was written: into branches that are made of a marked
//! one, or into which one is merged, and back into what a branch shows when an older state of it is shown again. An
//! apply takes it from what is shown, but not from the history. Where it cannot be told, a branch is marked.
//!
//! The ref `untrusted/WORKSPACE` has all marks. Invariants: a mark is on stable storage before what it is about can be
//! in the branch; a workspace in which no command ever ran has no ref, and nothing is ever written for it. What a command
//! takes back that wrote nothing is stored with the next change, or when the workspace is closed: so such a command costs
//! no write, and after a crash a branch may be marked for nothing, never the other way round.
//!
//! The lock is the innermost one; it is held while the ref is written. Tests: below, `engine/tests/apply/untrusted.rs`.

use crate::error::Result;
use crate::record::{decode, encode};
use objstore::refs::RefStore;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Below it are the refs of all workspaces.
pub(crate) const UNTRUSTED_DIR: &str = "untrusted";
const VERSION: u16 = 1;

/// How far what commands in a sandbox wrote is in a branch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, bincode::Encode, bincode::Decode,
)]
pub(crate) enum Reach {
    /// Nowhere.
    #[default]
    None,
    /// In states of its history, but for what was applied.
    History,
    /// In what it shows.
    Shown,
}

/// The last step that marked a branch, while it may still turn out to have changed nothing. In memory alone: after a crash
/// nobody can tell what others marked meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
struct Cause {
    id: String,
    before: Reach,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, bincode::Encode, bincode::Decode)]
struct Mark {
    reach: Reach,
    cause: Option<Cause>,
    /// Branch that it was made of, where a run made it.
    made_of: Option<String>,
}

/// What the ref holds.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
struct Marks {
    version: u16,
    /// By name of the branch.
    of: BTreeMap<String, Mark>,
}

/// Stands for what a branch shows at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown(u64);

/// What is behind the lock.
#[derive(Debug)]
struct MarksAndTimes {
    /// None before the first mark: commits of branches that are gone have none of it either.
    marks: Option<Marks>,
    /// What the ref holds; none where it has none, or that is not known.
    stored: Option<Marks>,
    /// Times that each branch was marked since the workspace was opened.
    times: BTreeMap<String, u64>,
}

/// The marks of one workspace.
#[derive(Debug)]
pub(crate) struct Untrusted {
    refs: Arc<RefStore>,
    name: String,
    inner: Mutex<MarksAndTimes>,
    merges: AtomicU64,
}

/// The ref of a workspace.
pub(crate) fn ref_name(workspace: &str) -> String {
    format!("{UNTRUSTED_DIR}/{workspace}")
}

/// Looks whether a ref holds what it must.
pub(crate) fn check_marks(bytes: &[u8]) -> std::result::Result<(), String> {
    marks_of(bytes).map(|_| ())
}

fn marks_of(bytes: &[u8]) -> std::result::Result<Marks, String> {
    let marks: Marks = decode(bytes)?;
    match marks.version {
        VERSION => Ok(marks),
        found => Err(format!("its version is {found}")),
    }
}

impl Untrusted {
    /// Those of a workspace with these branches. If they cannot be read, all branches are marked.
    pub fn load(refs: Arc<RefStore>, workspace: &str, branches: &[String]) -> Result<Untrusted> {
        let name = ref_name(workspace);
        let read = match refs.get(&name) {
            Ok(bytes) => bytes.map(|bytes| marks_of(&bytes)).transpose(),
            Err(error @ objstore::Error::Corrupt { .. }) => Err(error.to_string()),
            Err(error) => return Err(error.into()),
        };
        let mut stored = read.clone().ok().flatten();
        let marks = read.unwrap_or_else(|why| {
            tracing::warn!(
                "{name}: {why}; every branch counts as written by a command in a sandbox"
            );
            let shown = Mark {
                reach: Reach::Shown,
                ..Mark::default()
            };
            let all = branches.iter().map(|name| (name.clone(), shown.clone()));
            Some(Marks {
                version: VERSION,
                of: all.collect(),
            })
        });
        let marks = marks.map(|marks| marks.lasting());
        if stored != marks {
            stored = None;
        }
        Ok(Untrusted {
            refs,
            name,
            inner: Mutex::new(MarksAndTimes {
                marks,
                stored,
                times: BTreeMap::new(),
            }),
            merges: AtomicU64::new(0),
        })
    }

    /// How far it is in a branch.
    pub fn reach(&self, branch: &str) -> Reach {
        self.inner.lock().reach(branch)
    }

    /// The branch as it is now, for [`Untrusted::applied`].
    pub fn shown(&self, branch: &str) -> Shown {
        Shown(self.inner.lock().times.get(branch).copied().unwrap_or(0))
    }

    /// A command begins that may write; `made_of` is the branch of which the branch was made for it. Gives the one of
    /// which it was made, if that is known.
    pub fn begins(&self, branch: &str, run: &str, made_of: Option<&str>) -> Result<Option<String>> {
        self.change(|state| {
            state.mark(branch, Reach::Shown, run);
            let mark = state.all().entry(branch.to_owned()).or_default();
            if let Some(of) = made_of {
                mark.made_of = Some(of.to_owned());
            }
            mark.made_of.clone()
        })
    }

    /// A command has ended that changed nothing. If none began beside it, what is shown is what it was; it may have
    /// written what was rolled back. Not durable.
    pub fn wrote_nothing(&self, branch: &str, run: &str) {
        self.inner.lock().unmark(branch, run, Reach::History);
    }

    /// Stores what was taken back.
    pub fn close(&self) -> Result<()> {
        self.store(&mut self.inner.lock())
    }

    /// A branch was applied as it was then.
    pub fn applied(&self, branch: &str, then: Shown) -> Result<()> {
        self.change(|state| {
            let times = state.times.get(branch).copied().unwrap_or(0);
            if state.reach(branch) == Reach::Shown && Shown(times) == then {
                let mark = state.all().entry(branch.to_owned()).or_default();
                (mark.reach, mark.cause) = (Reach::History, None);
            }
        })?;
        self.close()
    }

    /// A branch is to show an older state, or a part of one: of its own, or (`foreign`) one that another branch made.
    pub fn shows_again(&self, branch: &str, foreign: bool) -> Result<()> {
        self.change(|state| {
            if state.may_have(branch, foreign) {
                state.mark(branch, Reach::Shown, "");
            }
        })
    }

    /// A branch is to be made of what another one shows or, with `at`, of one of its states (true: of one that a third
    /// branch made).
    pub fn makes(&self, name: &str, of: &str, at: Option<bool>) -> Result<()> {
        self.change(|state| {
            let reach = match at {
                None => state.reach(of),
                Some(foreign) if state.may_have(of, foreign) => Reach::Shown,
                Some(_) => Reach::None,
            };
            state.forget(name);
            if reach > Reach::None {
                state.mark(name, reach, "");
            }
        })
    }

    /// A number that no other merge has had since the workspace was opened.
    pub fn next_merge(&self) -> u64 {
        self.merges.fetch_add(1, Ordering::Relaxed)
    }

    /// A branch is to be merged into another one; `id` is of this merge.
    pub fn merges(&self, from: &str, into: &str, id: &str) -> Result<()> {
        self.change(|state| {
            let reach = state.reach(from);
            if reach > Reach::None {
                state.mark(into, reach, id);
            }
        })
    }

    /// What a remote has is to be merged into a branch: nobody knows what wrote it.
    pub fn merges_from_afar(&self, into: &str, id: &str) -> Result<()> {
        self.change(|state| state.mark(into, Reach::Shown, id))
    }

    /// A branch gets states that a remote has: nobody knows what wrote them.
    pub fn comes_from_afar(&self, branch: &str) -> Result<()> {
        self.change(|state| {
            if state.reach(branch) == Reach::None {
                state.mark(branch, Reach::History, "");
            }
        })
    }

    /// That merge changed nothing.
    pub fn merged_nothing(&self, into: &str, id: &str) -> Result<()> {
        self.change(|state| state.unmark(into, id, Reach::None))?;
        self.close()
    }

    /// A branch gets another name; its mark has both until [`Untrusted::forget`].
    pub fn renames(&self, old: &str, new: &str) -> Result<()> {
        self.change(|state| {
            state.forget(new);
            let mark = state
                .marks
                .as_ref()
                .and_then(|marks| marks.of.get(old))
                .cloned();
            if let Some(mark) = mark {
                state.all().insert(new.to_owned(), mark);
            }
        })
    }

    /// There is no branch of that name any more.
    pub fn forget(&self, branch: &str) -> Result<()> {
        self.change(|state| state.forget(branch))
    }

    /// Changes the marks; durably, unless they are no more than what is stored. If that fails they are as before.
    fn change<R>(&self, how: impl FnOnce(&mut MarksAndTimes) -> R) -> Result<R> {
        let mut state = self.inner.lock();
        let before = state.marks.clone();
        let answer = how(&mut state);
        if !state.is_covered()
            && let Err(error) = self.store(&mut state)
        {
            state.marks = before;
            return Err(error);
        }
        Ok(answer)
    }

    /// Stores the marks where they differ from what is stored.
    fn store(&self, state: &mut MarksAndTimes) -> Result<()> {
        let lasting = state.marks.as_ref().map(Marks::lasting);
        if let Some(marks) = &lasting
            && state.stored != lasting
        {
            // If it fails, either may be there.
            state.stored = None;
            self.refs.set(&self.name, &encode(marks))?;
            state.stored = lasting;
        }
        Ok(())
    }
}

impl Marks {
    /// As they are stored.
    fn lasting(&self) -> Marks {
        let mut marks = self.clone();
        marks.of.values_mut().for_each(|mark| mark.cause = None);
        marks
    }
}

impl MarksAndTimes {
    fn reach(&self, branch: &str) -> Reach {
        let mark = self.marks.as_ref().and_then(|marks| marks.of.get(branch));
        mark.map_or(Reach::None, |mark| mark.reach)
    }

    /// Whether a state of a branch, or one that it has from another, may hold what a command wrote.
    fn may_have(&self, branch: &str, foreign: bool) -> bool {
        self.reach(branch) > Reach::None || (foreign && self.marks.is_some())
    }

    /// Whether what is stored marks each branch no less, and says the same of it otherwise.
    fn is_covered(&self) -> bool {
        let (marks, stored) = match (&self.marks, &self.stored) {
            (None, _) => return true,
            (Some(_), None) => return false,
            (Some(marks), Some(stored)) => (&marks.of, &stored.of),
        };
        let is_covered = |(name, mark): (&String, &Mark)| {
            stored
                .get(name)
                .is_some_and(|found| found.reach >= mark.reach && found.made_of == mark.made_of)
        };
        marks.len() == stored.len() && marks.iter().all(is_covered)
    }

    fn all(&mut self) -> &mut BTreeMap<String, Mark> {
        let none = || Marks {
            version: VERSION,
            of: BTreeMap::new(),
        };
        &mut self.marks.get_or_insert_with(none).of
    }

    /// Marks a branch no less than it is. Who marked it before cannot take that back any more.
    fn mark(&mut self, branch: &str, reach: Reach, id: &str) {
        *self.times.entry(branch.to_owned()).or_default() += 1;
        let mark = self.all().entry(branch.to_owned()).or_default();
        let cause = Cause {
            id: id.to_owned(),
            before: mark.reach,
        };
        mark.cause = Some(cause).filter(|cause| cause.before < reach && !id.is_empty());
        mark.reach = mark.reach.max(reach);
    }

    /// Takes a mark back that this one set, if none was set since; `least` stays.
    fn unmark(&mut self, branch: &str, id: &str, least: Reach) {
        let marks = self
            .marks
            .as_mut()
            .and_then(|marks| marks.of.get_mut(branch));
        if let Some(mark) = marks
            && let Some(cause) = mark.cause.take_if(|cause| cause.id == id)
        {
            mark.reach = cause.before.max(least);
        }
    }

    fn forget(&mut self, branch: &str) {
        if let Some(marks) = &mut self.marks {
            marks.of.remove(branch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use objstore::crash_storage::CrashStorage;
    use objstore::io::Storage;

    fn refs() -> (Arc<CrashStorage>, Arc<RefStore>) {
        let disk = Arc::new(CrashStorage::without_log());
        let storage: Arc<dyn Storage> = disk.clone();
        (disk, Arc::new(RefStore::open(storage).unwrap()))
    }

    fn load(refs: &Arc<RefStore>) -> Untrusted {
        Untrusted::load(refs.clone(), "w", &["main".into(), "b".into()]).unwrap()
    }

    #[test]
    fn a_workspace_without_runs_has_no_ref() {
        let (_, refs) = refs();
        let marks = load(&refs);
        marks.makes("b", "main", None).unwrap();
        marks.merges("b", "main", "1").unwrap();
        marks.shows_again("main", true).unwrap();
        marks.renames("b", "c").unwrap();
        marks.forget("c").unwrap();
        marks.applied("main", marks.shown("main")).unwrap();
        assert_eq!(refs.get(&ref_name("w")).unwrap(), None);
        assert_eq!(marks.reach("main"), Reach::None);
    }

    #[test]
    fn marks_are_kept_and_follow() {
        let (_, refs) = refs();
        let marks = load(&refs);
        assert_eq!(
            marks.begins("b", "r", Some("main")).unwrap().as_deref(),
            Some("main")
        );
        let marks = load(&refs);
        assert_eq!(
            marks.begins("b", "r2", None).unwrap().as_deref(),
            Some("main")
        );
        marks.makes("of-live", "b", None).unwrap();
        marks.makes("of-main", "main", Some(false)).unwrap();
        marks.makes("of-commit", "main", Some(true)).unwrap();
        marks.renames("b", "c").unwrap();
        marks.forget("b").unwrap();
        let marks = load(&refs);
        let reach = ["main", "b", "c", "of-live", "of-main", "of-commit"].map(|b| marks.reach(b));
        let (none, shown) = (Reach::None, Reach::Shown);
        assert_eq!(reach, [none, none, shown, shown, none, shown]);
    }

    #[test]
    fn a_run_that_changed_nothing_leaves_no_more_than_its_history() {
        let (_, refs) = refs();
        let marks = load(&refs);
        marks.begins("b", "r", None).unwrap();
        marks.wrote_nothing("b", "r");
        assert_eq!(marks.reach("b"), Reach::History);
        // Nothing is taken back while another one wrote.
        marks.begins("b", "r", None).unwrap();
        marks.begins("b", "q", None).unwrap();
        marks.wrote_nothing("b", "r");
        marks.wrote_nothing("b", "q");
        assert_eq!(marks.reach("b"), Reach::Shown);
    }

    #[test]
    fn commands_that_write_nothing_cost_one_write_and_a_crash_forgets_no_mark() {
        let (_, refs) = refs();
        let marks = load(&refs);
        marks.begins("b", "r", None).unwrap();
        let stored = refs.get(&ref_name("w")).unwrap();
        for run in ["r", "q"] {
            marks.wrote_nothing("b", run);
            assert_eq!(marks.reach("b"), Reach::History);
            assert_eq!(load(&refs).reach("b"), Reach::Shown);
            marks.begins("b", "q", None).unwrap();
            assert_eq!(refs.get(&ref_name("w")).unwrap(), stored);
        }
        // What was taken back is stored in the end; what comes then is stored before it begins.
        marks.wrote_nothing("b", "q");
        marks.close().unwrap();
        let marks = load(&refs);
        assert_eq!(marks.reach("b"), Reach::History);
        marks.begins("b", "s", None).unwrap();
        assert_eq!(load(&refs).reach("b"), Reach::Shown);
    }

    #[test]
    fn after_a_crash_nobody_takes_back_what_another_one_may_have_written() {
        let (_, refs) = refs();
        let marks = load(&refs);
        marks.begins("b", "r", None).unwrap();
        marks.wrote_nothing("b", "r");
        marks.begins("b", "q", None).unwrap();
        let marks = load(&refs);
        for run in ["r", "q"] {
            marks.wrote_nothing("b", run);
        }
        assert_eq!(marks.reach("b"), Reach::Shown);
    }

    #[test]
    fn an_apply_counts_for_what_it_saw_and_not_for_the_history() {
        let (_, refs) = refs();
        let marks = load(&refs);
        marks.begins("b", "r", None).unwrap();
        let then = marks.shown("b");
        marks.begins("b", "q", None).unwrap();
        marks.applied("b", then).unwrap();
        assert_eq!(marks.reach("b"), Reach::Shown);
        marks.applied("b", marks.shown("b")).unwrap();
        assert_eq!(marks.reach("b"), Reach::History);
        marks.merges("b", "main", "m").unwrap();
        assert_eq!(marks.reach("main"), Reach::History);
        marks.merged_nothing("main", "m").unwrap();
        assert_eq!(marks.reach("main"), Reach::None);
        marks.shows_again("b", false).unwrap();
        assert_eq!(marks.reach("b"), Reach::Shown);
    }

    #[test]
    fn marks_that_cannot_be_read_are_on_every_branch() {
        let (disk, refs) = refs();
        load(&refs).begins("b", "r", None).unwrap();
        disk.flip_bit("refs/untrusted/w.ref", 9, 1);
        let marks = load(&refs);
        assert_eq!(marks.reach("main"), Reach::Shown);
        assert!(check_marks(b"what").is_err());
        // The next change writes all of them.
        marks.shows_again("main", false).unwrap();
        marks.forget("b").unwrap();
        assert_eq!(load(&refs).reach("main"), Reach::Shown);
    }
}
