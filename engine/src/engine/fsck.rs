//! fsck: every checksum and every reference of a store, and what damage means for whom.
//!
//! Packs and their indexes are read in full; refs, state files and journals are decoded; from every state
//! and live tree everything is looked for that it needs. What is missing or damaged is named by the
//! files, commits and branches that need it. Checking changes nothing; [`Engine::repair`] carries out
//! the steps that a check found, and sets aside what it replaces.

mod branches;
mod exact;
mod names;
mod reopen;
mod repair;
mod strays;

use crate::cancel::Cancel;
use crate::engine::Engine;
use crate::engine::away::{OnlyRemote, Remotes};
use crate::engine::gc;
use crate::engine::policy::{POLICY_DIR, decode_policy};
use crate::error::{Error, Result};
use crate::types::Progress;
use crate::verbs::timeline::kept::kept;
use crate::verbs::timeline::kept::kept_record;
use crate::workspace::branch_refs::{LAZY_DIR, TIMELINES_DIR, check_record};
use crate::workspace::keeper::lower_priority;
use crate::workspace::lazy::{check_mark, lazy_names};
use crate::workspace::untrusted::{UNTRUSTED_DIR, check_marks};
use names::Namer;
use objstore::elsewhere::only_here;
use objstore::{CommitId, Kind};
pub use reopen::Reopen;
pub use repair::RepairStep;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::time::Duration;

/// How often is looked how far a check is.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Files that are named for one finding; more are counted.
const AFFECTED_MAX: usize = 100;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FsckReport {
    /// Damage.
    pub findings: Vec<Finding>,
    /// What would repair it, as far as that is possible.
    pub steps: Vec<RepairStep>,
    /// Records of packs that were read.
    pub records: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Branches that were looked at.
    pub branches: u64,
    /// Commits that were looked at.
    pub commits: u64,
    /// What lazy workspaces lack, as far as what is here refers to it.
    pub only_remote: OnlyRemote,
    /// Why it is not known what the remote of one has.
    pub unasked: Option<String>,
}

/// One damage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// File and offset, as far as known.
    pub place: String,
    /// What is wrong.
    pub what: String,
    /// Who needs it.
    pub affects: Vec<Affected>,
    /// How many more.
    pub affects_more: u64,
}

/// Somebody who needs what is damaged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Affected {
    /// Workspace.
    pub workspace: String,
    /// Branch; empty where all of the workspace is meant.
    pub branch: String,
    /// Commit; `None` for the live tree and for the branch as a whole.
    pub commit: Option<CommitId>,
    /// Labels of the commit.
    pub labels: Vec<String>,
    /// Path in it; empty for all of it.
    pub path: Vec<u8>,
}

/// An object that cannot be read.
pub(crate) type Key = (Kind, [u8; 32]);

/// A check under way.
struct Check<'a> {
    engine: &'a Engine,
    report: FsckReport,
    /// Where the records of objects that cannot be read stand, and what is wrong with them.
    bad: BTreeMap<Key, (String, String)>,
    /// Workspaces of which a part is only in a remote.
    lazy: HashSet<String>,
    remotes: Remotes,
}

impl Engine {
    /// Checks the whole store, at low priority; a gc that runs is waited for. `progress` hears as in
    /// [`Engine::fsck_unless`].
    pub fn fsck(&self, progress: Progress<'_>) -> Result<FsckReport> {
        self.fsck_unless(progress, &Cancel::new())
    }

    /// The same until it is cancelled. `progress` hears of bytes of packs, then that it is not known how much is left.
    pub fn fsck_unless(&self, progress: Progress<'_>, cancel: &Cancel) -> Result<FsckReport> {
        // First: nobody who waits for the check waits for the network.
        let remotes = Remotes::ask(self)?;
        let _one = gc::alone(self)?;
        let far = Far::default();
        std::thread::scope(|scope| {
            let (over, is_over) = mpsc::channel::<()>();
            let far = &far;
            let run = scope.spawn(move || {
                let _over = over;
                let _here = only_here();
                lower_priority();
                check_all(self, remotes, far, cancel)
            });
            // The end of the thread ends the channel.
            while is_over.recv_timeout(LOOK_PAUSE) == Err(mpsc::RecvTimeoutError::Timeout) {
                progress(far.done.load(Relaxed), far.total.load(Relaxed));
            }
            run.join().unwrap_or(Err(Error::Closing))
        })
    }
}

/// How far a check is.
#[derive(Default)]
struct Far {
    done: AtomicU64,
    total: AtomicU64,
}

impl Far {
    fn set(&self, done: u64, total: u64) {
        self.total.store(total, Relaxed);
        self.done.store(done.min(total), Relaxed);
    }
}

fn check_all(e: &Engine, remotes: Remotes, far: &Far, cancel: &Cancel) -> Result<FsckReport> {
    let mut check = Check {
        engine: e,
        report: FsckReport::default(),
        bad: BTreeMap::new(),
        lazy: lazy_names(&e.refs)?,
        remotes,
    };
    check.report.unasked = check.remotes.why.clone();
    check.packs(far, cancel)?;
    check.refs()?;
    let mut namer = Namer::new(&e.store, cancel);
    // How much is left is not known from here on.
    far.set(0, 0);
    for name in e.names()? {
        cancel.check()?;
        check.workspace(&name, &mut namer)?;
        check.timelines(&name, &mut namer)?;
    }
    cancel.check()?;
    check.objects(namer)?;
    Ok(check.report)
}

impl Check<'_> {
    fn find(&mut self, place: impl Into<String>, what: impl Into<String>, affects: Vec<Affected>) {
        self.report.findings.push(Finding {
            place: place.into(),
            what: what.into(),
            affects,
            affects_more: 0,
        });
    }

    fn step(&mut self, step: RepairStep) {
        if !self.report.steps.contains(&step) {
            self.report.steps.push(step);
        }
    }

    /// Reads all packs. Damage whose object cannot be had elsewhere is kept for naming.
    fn packs(&mut self, far: &Far, cancel: &Cancel) -> Result<()> {
        let store = &self.engine.store;
        let total = store.stats().bytes;
        let verified = store.verify_while(&|bytes| {
            far.set(bytes, total);
            !cancel.is_cancelled()
        })?;
        cancel.check()?;
        (self.report.records, self.report.bytes) = (verified.records, verified.bytes);
        for damage in verified.damage {
            let place = format!("{}, offset {}", damage.path, damage.offset);
            if damage.path.ends_with(".idx") {
                self.find(
                    damage.path.clone(),
                    "the index does not match its checksum",
                    vec![],
                );
                self.step(RepairStep::RebuildIndex { path: damage.path });
                continue;
            }
            self.step(RepairStep::RewritePack {
                path: damage.path.clone(),
            });
            let mut lost = store.objects_in(&damage.path, damage.offset..damage.end);
            if let Some((kind, id)) = damage.object {
                lost.extend(id.parse::<CommitId>().ok().map(|id| (kind, *id.as_bytes())));
                lost.sort_unstable();
                lost.dedup();
            }
            let gone: Vec<Key> = lost
                .into_iter()
                .filter(|key| !store.is_readable(key))
                .collect();
            if gone.is_empty() {
                self.find(
                    place.clone(),
                    format!("{}; no data is lost", damage.what),
                    vec![],
                );
            }
            for key in gone {
                self.bad
                    .insert(key, (place.clone(), damage.what.to_owned()));
            }
        }
        Ok(())
    }

    fn refs(&mut self) -> Result<()> {
        for name in self.engine.refs.list("")? {
            let read = self.engine.refs.get(&name).map_err(Error::Store);
            let why = match (read, name.strip_prefix("workspaces/")) {
                (Err(e), _) => e.to_string(),
                (Ok(_), Some(workspace)) => match self.engine.get(workspace) {
                    Ok(_) => continue,
                    Err(e) => e.to_string(),
                },
                (Ok(Some(bytes)), None) if name == crate::settings::SETTINGS_REF => {
                    match crate::settings::decode_settings(&bytes) {
                        Ok(_) => continue,
                        Err(why) => why,
                    }
                }
                (Ok(Some(bytes)), None) if name.starts_with("branches/") => {
                    match check_record(&bytes) {
                        Ok(()) => continue,
                        Err(why) => why,
                    }
                }
                (Ok(Some(bytes)), None) if name.starts_with(UNTRUSTED_DIR) => {
                    match check_marks(&bytes) {
                        Ok(()) => continue,
                        Err(why) => why,
                    }
                }
                (Ok(Some(bytes)), None) if name.starts_with(LAZY_DIR) => match check_mark(&bytes) {
                    Ok(()) => continue,
                    Err(why) => why,
                },
                (Ok(Some(bytes)), None) if name.starts_with(POLICY_DIR) => {
                    match decode_policy(&bytes) {
                        Ok(_) => continue,
                        Err(why) => why,
                    }
                }
                (Ok(Some(bytes)), None) if name.starts_with(TIMELINES_DIR) => {
                    match kept_record(&name, &bytes) {
                        Ok(_) => continue,
                        Err(e) => e.to_string(),
                    }
                }
                (Ok(_), None) => continue,
            };
            self.bad_ref(&name, &why);
        }
        Ok(())
    }

    /// Looks at the timelines of branches that were deleted.
    fn timelines(&mut self, workspace: &str, namer: &mut Namer<'_>) -> Result<()> {
        for (_, record) in kept(&self.engine.refs, workspace)? {
            let who = Affected {
                workspace: workspace.to_owned(),
                branch: record.branch.clone(),
                commit: None,
                labels: vec![],
                path: vec![],
            };
            for content in [&record.log, &record.commits] {
                namer.content(content, b".agentvfs/timeline", &who);
            }
        }
        Ok(())
    }

    fn bad_ref(&mut self, name: &str, why: &str) {
        if let Some((workspace, branch)) = branch_of(name) {
            // Never dropped: without it the branch's directory counts as one that was not finished.
            let who = Affected {
                workspace: workspace.to_owned(),
                branch: branch.to_owned(),
                commit: None,
                labels: vec![],
                path: vec![],
            };
            self.find(format!("ref {name}"), why, vec![who]);
            if let Some(number) = repair::number_of(self.engine, workspace, branch) {
                self.step(RepairStep::BranchRecord {
                    workspace: workspace.to_owned(),
                    branch: branch.to_owned(),
                    number,
                });
            }
            return;
        }
        let whole = |workspace: &str| Affected {
            workspace: workspace.to_owned(),
            branch: String::new(),
            commit: None,
            labels: vec![],
            path: vec![],
        };
        let Some(workspace) = name.strip_prefix("workspaces/") else {
            // Without its origin a workspace is known by its base's path alone, so that may go.
            let affects = name.strip_prefix("origin/").map(whole);
            self.find(format!("ref {name}"), why, affects.into_iter().collect());
            return self.step(RepairStep::DropRef {
                name: name.to_owned(),
            });
        };
        let whole = whole(workspace);
        self.find(format!("ref {name}"), why, vec![whole]);
        if let Some(base) = repair::base_by_history(self.engine, workspace) {
            self.step(RepairStep::WorkspaceRecord {
                workspace: workspace.to_owned(),
                base,
            });
        }
    }

    /// Tells of each object that cannot be read who needs it.
    fn objects(&mut self, namer: Namer<'_>) -> Result<()> {
        let mut needed = namer.into_found();
        for (key, (place, what)) in std::mem::take(&mut self.bad) {
            let affects = needed.remove(&key).unwrap_or_default();
            self.object(
                place,
                format!("{} {}: {what}", key.0, hex(&key.1)),
                key,
                affects,
            );
        }
        let lacks = |affects: &[Affected]| affects.iter().any(|a| self.lazy.contains(&a.workspace));
        let lacking = needed.iter().filter(|(_, affects)| lacks(affects));
        let lacking: Vec<Key> = lacking.map(|(key, _)| *key).collect();
        let (found, lost) = self.remotes.judge(self.engine, lacking)?;
        self.report.only_remote = found;
        for (key, mut affects) in needed {
            let mut what = format!("{} {} is missing or malformed", key.0, hex(&key.1));
            // A lazy workspace has what it lacks in its remote.
            match lost.contains(&key) {
                true => what.push_str(", and its remote does not have it"),
                false => affects.retain(|a| !self.lazy.contains(&a.workspace)),
            }
            if affects.is_empty() {
                continue;
            }
            self.object("packs".to_owned(), what, key, affects);
        }
        Ok(())
    }

    fn object(&mut self, place: String, what: String, key: Key, mut affects: Vec<Affected>) {
        affects.sort();
        affects.dedup();
        if key.0 == Kind::Chunk {
            for a in affects.iter().take(AFFECTED_MAX) {
                self.step(RepairStep::FromBase {
                    workspace: a.workspace.clone(),
                    path: a.path.clone(),
                });
            }
        }
        let more = affects.len().saturating_sub(AFFECTED_MAX) as u64;
        affects.truncate(AFFECTED_MAX);
        self.report.findings.push(Finding {
            place,
            what,
            affects,
            affects_more: more,
        });
    }
}

/// Workspace and branch of the ref of a branch.
fn branch_of(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("branches/")?.split_once('/')
}

fn hex(id: &[u8; 32]) -> String {
    CommitId::from_bytes(*id).to_string()
}
