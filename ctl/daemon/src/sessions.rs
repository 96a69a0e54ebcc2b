//! Sessions: control groups whose processes see a branch at `<mount>/.agentvfs/view`.
//!
//! All of a home are in one checksummed file, `<home>/sessions`, which is on stable storage before a
//! change is answered or has effect. A group is known by its inode number and the machine's boot; one
//! that is gone is forgotten. A branch being renamed has both names in the file until that is done, so
//! whoever reads it afterwards takes the one that exists.
//!
//! Invariant: saying what a process sees takes no lock that is held while anything waits, and touches
//! no mount. Lock order: `changing` → whatever a branch's renaming takes.

mod place;
pub mod requests;

use agentvfs_client::protocol::{Bytes, Fault, SessionRow};
use agentvfs_client::record::checksum;
use parking_lot::{Mutex, RwLock};
use place::{Group, Located, groups, lines, locate, shown, upwards};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Version of the file.
const VERSION: u32 = 1;
/// Registered groups of one home.
const SESSIONS_MAX: usize = 4096;

/// What the file says of a registered group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Kept {
    workspace: String,
    branch: String,
    /// Name of the branch before a renaming that may not be done.
    renamed_from: Option<String>,
    dir: Bytes,
    group: Group,
    inode: u64,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    /// Inode numbers of groups begin anew with each boot.
    boot: String,
    sessions: Vec<Kept>,
}

#[derive(Debug, Clone)]
struct Session {
    kept: Kept,
    located: Located,
}

/// Sessions by workspace, hierarchy and path.
type Table = HashMap<String, HashMap<String, HashMap<Vec<u8>, Session>>>;

#[derive(Default)]
struct Registry {
    all: Vec<Session>,
    /// Workspace and branch, of branches that are being deleted.
    closing: HashSet<(String, String)>,
    /// Why the file cannot be read.
    damaged: Option<String>,
}

/// The sessions of a home.
pub struct Sessions {
    file: PathBuf,
    boot: String,
    changing: Mutex<Registry>,
    table: RwLock<Arc<Table>>,
}

/// While it lives nobody registers for a branch that is being deleted.
pub struct Closing<'a>(&'a Sessions, (String, String));

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.changing.lock().closing.remove(&self.1);
    }
}

impl Sessions {
    /// Those that `file` tells of and whose groups are still there.
    pub fn open(file: PathBuf) -> Sessions {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let sessions = Sessions {
            file,
            boot: boot.trim().to_owned(),
            changing: Mutex::default(),
            table: RwLock::default(),
        };
        let mut state = sessions.changing.lock();
        match read(&sessions.file) {
            Ok(stored) => {
                let of_this_boot = stored.filter(|s| s.boot == sessions.boot);
                let kept = of_this_boot.map(|s| s.sessions).unwrap_or_default();
                state.all = kept.into_iter().filter_map(found_again).collect();
            }
            Err(why) => {
                tracing::error!("{}: {why}; all processes see main", sessions.file.display());
                state.damaged = Some(why);
            }
        }
        sessions.publish(&state.all);
        drop(state);
        sessions
    }

    /// Branch that process `pid` sees in a workspace; `None` for `main`.
    pub fn seen(&self, workspace: &str, pid: u32, exists: &dyn Fn(&str) -> bool) -> Option<String> {
        let table = self.table.read().clone();
        let here = table.get(workspace)?;
        let kept = &nearest(here, &groups(pid)?)?.kept;
        // In this order: the new name is there from when the old one is not.
        let old = kept.renamed_from.as_ref().filter(|old| exists(old));
        Some(old.unwrap_or(&kept.branch).clone())
    }

    /// Has the processes of a group see a branch from now on. Gives the branch that they saw before,
    /// where the group was registered for this workspace.
    pub fn register(
        &self,
        workspace: &str,
        branch: &str,
        located: Located,
    ) -> Result<Option<String>, Fault> {
        let mut state = self.state()?;
        let target = (workspace.to_owned(), branch.to_owned());
        if state.closing.contains(&target) {
            let why = format!("branch {branch} is being deleted");
            return Err(Fault::failed("no-such-branch", why).hint(format!(
                "agentvfs branch list --workspace {workspace} shows all"
            )));
        }
        let mut all = alive(&state.all);
        let same = |s: &Session| s.kept.workspace == workspace && s.located.group == located.group;
        let before = all
            .iter()
            .position(same)
            .map(|at| all.remove(at).kept.branch);
        if all.len() >= SESSIONS_MAX {
            let why = format!("{SESSIONS_MAX} cgroups are registered, which is the maximum");
            return Err(Fault::failed("too-many-sessions", why)
                .hint("agentvfs session unregister --cgroup PATH removes one"));
        }
        let kept = Kept {
            workspace: workspace.to_owned(),
            branch: branch.to_owned(),
            renamed_from: None,
            dir: Bytes::from(located.dir.as_path()),
            group: located.group.clone(),
            inode: located.inode,
        };
        all.push(Session { kept, located });
        self.keep(&mut state, all)?;
        Ok(before)
    }

    /// Those whose groups are still there, of one workspace or of all.
    pub fn list(&self, workspace: Option<&str>) -> Result<Vec<SessionRow>, Fault> {
        let mut state = self.state()?;
        let all = alive(&state.all);
        if all.len() < state.all.len() {
            self.keep(&mut state, all)?;
        }
        let wanted = |s: &&Session| workspace.is_none_or(|name| s.kept.workspace == name);
        let mut rows: Vec<SessionRow> = state.all.iter().filter(wanted).map(row).collect();
        rows.sort_by(|a, b| (&a.cgroup, &a.workspace).cmp(&(&b.cgroup, &b.workspace)));
        Ok(rows)
    }

    /// The groups of version 2 of a workspace that are there, by inode number, each with the branch that its processes see.
    pub fn groups(&self, workspace: &str) -> Vec<(u64, String)> {
        let table = self.table.read().clone();
        // The hierarchy of version 2 is the one without a name.
        let here = table.get(workspace).and_then(|here| here.get(""));
        let alive = here.into_iter().flat_map(|paths| paths.values());
        let alive = alive.filter(|session| session.located.is_there());
        alive
            .map(|s| (s.located.inode, s.kept.branch.clone()))
            .collect()
    }

    /// Forgets a group, for one workspace or for all. Gives what was forgotten.
    pub fn unregister(
        &self,
        dir: &Path,
        workspace: Option<&str>,
    ) -> Result<Vec<SessionRow>, Fault> {
        let mut state = self.state()?;
        let group = locate(dir).map(|located| located.group);
        let meant = |s: &Session| {
            let here = workspace.is_none_or(|name| s.kept.workspace == name);
            here && (s.kept.dir.path() == dir || group.as_ref() == Some(&s.kept.group))
        };
        let (gone, left): (Vec<_>, Vec<_>) = state.all.iter().cloned().partition(meant);
        if gone.is_empty() {
            let why = format!("cgroup {} is not registered", shown(&Bytes::from(dir)));
            return Err(Fault::failed("not-registered", why)
                .hint("agentvfs session list shows the registered cgroups"));
        }
        self.keep(&mut state, left)?;
        Ok(gone.iter().map(row).collect())
    }

    /// Forgets a workspace, which is deleted.
    pub fn forget_workspace(&self, workspace: &str) -> Result<(), Fault> {
        let mut state = self.changing.lock();
        let (gone, left): (Vec<_>, Vec<_>) = state
            .all
            .iter()
            .cloned()
            .partition(|s| s.kept.workspace == workspace);
        if gone.is_empty() {
            return Ok(());
        }
        self.keep(&mut state, left)
    }

    /// Keeps a branch from being registered for while it is deleted; refuses where it is.
    pub fn close_branch(&self, workspace: &str, branch: &str) -> Result<Closing<'_>, Fault> {
        let mut state = self.changing.lock();
        let uses = |s: &&Session| {
            let here = s.kept.workspace == workspace && s.kept.branch == branch;
            here && s.located.is_there()
        };
        let users: Vec<String> = state
            .all
            .iter()
            .filter(uses)
            .map(|s| shown(&s.kept.dir))
            .collect();
        if !users.is_empty() {
            let why = format!(
                "cgroup {} is registered for branch {branch}",
                users.join(", ")
            );
            return Err(Fault::failed("branch-in-use", why).hint(format!(
                "agentvfs session unregister --cgroup {} first",
                users[0]
            )));
        }
        let target = (workspace.to_owned(), branch.to_owned());
        state.closing.insert(target.clone());
        Ok(Closing(self, target))
    }

    /// Renames a branch by `work`, and carries along what is registered for it.
    pub fn rename_branch<R>(
        &self,
        workspace: &str,
        (old, new): (&str, &str),
        work: impl FnOnce() -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let mut state = self.changing.lock();
        let of_old = |s: &Session| s.kept.workspace == workspace && s.kept.branch == old;
        if !state.all.iter().any(of_old) {
            return work();
        }
        let before = state.all.clone();
        let renamed = |from: Option<&str>| {
            let mut all = before.clone();
            for session in all.iter_mut().filter(|s| of_old(s)) {
                session.kept.branch = new.to_owned();
                session.kept.renamed_from = from.map(str::to_owned);
            }
            all
        };
        self.keep(&mut state, renamed(Some(old)))?;
        let done = work();
        let after = if done.is_ok() {
            renamed(None)
        } else {
            before.clone()
        };
        if let Err(fault) = self.keep(&mut state, after) {
            // What is kept says both names, which is right as well.
            tracing::warn!(
                "a session keeps the old name of the renamed branch: {}",
                fault.message
            );
        }
        done
    }

    /// Settles renamings that a dead daemon may not have come to an end with.
    pub fn settle(&self, workspace: &str, exists: impl Fn(&str) -> bool) {
        let mut state = self.changing.lock();
        let mut all = state.all.clone();
        let unsure =
            |s: &&mut Session| s.kept.workspace == workspace && s.kept.renamed_from.is_some();
        let mut changed = false;
        for session in all.iter_mut().filter(unsure) {
            let old = session.kept.renamed_from.take();
            if let Some(old) = old.filter(|old| exists(old)) {
                session.kept.branch = old;
            }
            changed = true;
        }
        if !changed {
            return;
        }
        if let Err(fault) = self.keep(&mut state, all) {
            tracing::warn!("{}", fault.message);
        }
    }

    fn state(&self) -> Result<parking_lot::MutexGuard<'_, Registry>, Fault> {
        let state = self.changing.lock();
        match &state.damaged {
            None => Ok(state),
            Some(why) => {
                let file = self.file.display();
                let fault = Fault::failed("damaged", format!("{file}: {why}"));
                Err(fault.hint(format!(
                    "agentvfs stop, then rm {file}; then register the cgroups again"
                )))
            }
        }
    }

    /// Makes `all` the sessions: on stable storage, then in effect.
    fn keep(&self, state: &mut Registry, all: Vec<Session>) -> Result<(), Fault> {
        let stored = Stored {
            version: VERSION,
            boot: self.boot.clone(),
            sessions: all.iter().map(|s| s.kept.clone()).collect(),
        };
        write(&self.file, &stored).map_err(|e| {
            let why = format!("cannot write the sessions to {}: {e}", self.file.display());
            Fault::failed("io", why).hint("free space on the disk of the agentvfs home")
        })?;
        self.publish(&all);
        state.all = all;
        Ok(())
    }

    fn publish(&self, all: &[Session]) {
        let mut table = Table::new();
        for session in all {
            let here = table.entry(session.kept.workspace.clone()).or_default();
            let group = &session.kept.group;
            let paths = here.entry(group.hierarchy.clone()).or_default();
            paths.insert(group.path.0.clone(), session.clone());
        }
        *self.table.write() = Arc::new(table);
    }
}

/// The session of the nearest group, over all hierarchies, that lies at or above one of those in `text`.
fn nearest<'a>(
    here: &'a HashMap<String, HashMap<Vec<u8>, Session>>,
    text: &[u8],
) -> Option<&'a Session> {
    let mut best: Option<(usize, &Session)> = None;
    for (hierarchy, path) in lines(text) {
        let paths = std::str::from_utf8(hierarchy)
            .ok()
            .and_then(|name| here.get(name));
        let Some(paths) = paths else { continue };
        let found = upwards(path).enumerate().find_map(|(steps, path)| {
            let session = paths.get(path).filter(|s| s.located.is_there())?;
            Some((steps, session))
        });
        // Of two as near that of the later line: version 2 comes last.
        best = match (best, found) {
            (Some(b), Some(f)) if b.0 < f.0 => Some(b),
            (b, f) => f.or(b),
        };
    }
    best.map(|(_, session)| session)
}

fn row(session: &Session) -> SessionRow {
    SessionRow {
        cgroup: session.kept.dir.clone(),
        branch: session.kept.branch.clone(),
        workspace: session.kept.workspace.clone(),
    }
}

fn alive(all: &[Session]) -> Vec<Session> {
    all.iter()
        .filter(|s| s.located.is_there())
        .cloned()
        .collect()
}

fn found_again(kept: Kept) -> Option<Session> {
    let located = locate(kept.dir.path())?;
    let same = located.group == kept.group && located.inode == kept.inode;
    same.then_some(Session { kept, located })
}

/// What the file says; `None` where there is none.
fn read(file: &Path) -> Result<Option<Stored>, String> {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e.to_string()),
    };
    let damaged = || "it is damaged".to_owned();
    let text = text.strip_suffix(b"\n").ok_or_else(damaged)?;
    let end = text.iter().position(|b| *b == b'\n').ok_or_else(damaged)?;
    let (sum, body) = (&text[..end], &text[end + 1..]);
    if sum != checksum(body).as_bytes() {
        return Err(damaged());
    }
    let stored: Stored = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    if stored.version != VERSION {
        return Err(format!("its version is {}", stored.version));
    }
    Ok(Some(stored))
}

/// Replaces the file; the new one is on stable storage after `Ok`.
fn write(file: &Path, stored: &Stored) -> io::Result<()> {
    let body = serde_json::to_string(stored)?;
    let temporary = file.with_extension("new");
    let mut new = File::create(&temporary)?;
    new.write_all(format!("{}\n{body}\n", checksum(body.as_bytes())).as_bytes())?;
    new.sync_all()?;
    fs::rename(&temporary, file)?;
    match file.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
