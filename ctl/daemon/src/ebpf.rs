//! Hearing of what processes of runs do, by programs in the kernel (`ctl/telemetry`): for root alone.
//!
//! A run has a number for them, which stands for its branch. Who is of a run is said when it begins, by the process that
//! asked for it, and by its descendants where a daemon finds it running. Processes of registered control groups (of
//! version 2) are of the branch that they see. Invariant: this tells of things that have happened, and nothing waits for it.
//!
//! Tests: `tests/tests/telemetry_ebpf.rs`.

use crate::sessions::Sessions;
use agentvfs_client::home::Home;
use agentvfs_client::quote::shown;
use agentvfs_client::runs::{self, RunRecord};
use agentvfs_telemetry::{Address, Deed, Heard, Listener, Result, What};
pub use agentvfs_telemetry::{Mount, check};
use engine::descent::seen;
use engine::feed::{FeedBackend, FeedOp};
use engine::{Asking, NodeId, Scene, Workspace, acting_for};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Of the flags of an open file: it is executed (`__FMODE_EXEC` in linux/fs.h).
const EXEC: u32 = 0x20;

/// Hears of a workspace's runs until it is dropped.
pub struct Hearing {
    workspace: Arc<Workspace>,
    scenes: Arc<Mutex<Scenes>>,
    inner: agentvfs_telemetry::Hearing,
}

/// Branches in which runs are, by the number that a run has in the kernel.
#[derive(Default)]
struct Scenes {
    last: u32,
    all: HashMap<u32, Scene>,
}

impl Scenes {
    /// The number of a branch; a number is never used again.
    fn number(&mut self, scene: Scene) -> u32 {
        self.all.retain(|_, known| !known.is_gone());
        let known = self.all.iter().find(|(_, known)| known.is(&scene));
        if let Some((number, _)) = known {
            return *number;
        }
        self.last += 1;
        self.all.insert(self.last, scene);
        self.last
    }
}

impl Hearing {
    /// Hears of the runs of a workspace from now on; of none yet.
    pub fn begin(
        workspace: Arc<Workspace>,
        mount: Option<Mount>,
        sessions: Arc<Sessions>,
    ) -> Result<Hearing> {
        let scenes = Arc::<Mutex<Scenes>>::default();
        let ear = Ear {
            workspace: workspace.clone(),
            scenes: scenes.clone(),
            sessions,
        };
        let inner = agentvfs_telemetry::Hearing::begin(mount, ear)?;
        Ok(Hearing {
            workspace,
            scenes,
            inner,
        })
    }

    /// A run begins in a branch. `process` is that of `agentvfs run`; or, for a run inside of another, any process
    /// of that, which is told of in any case.
    pub fn begin_run(&self, branch: &str, process: u32, is_inside: bool) {
        let Ok(run) = self.number(branch) else {
            return;
        };
        let noted = match is_inside {
            false => self.inner.begin_run(run, process),
            true => self.inner.join(run, process),
        };
        self.log(noted);
    }

    /// Goes on with the runs that are alive.
    pub fn take_up(&self, home: &Home) {
        let alive = runs::alive(home).unwrap_or_else(|error| {
            tracing::warn!("runs cannot be looked for: {error}");
            Vec::new()
        });
        let name = self.workspace.name();
        for run in alive.iter().filter(|run| run.workspace == name) {
            if let (Ok(number), Some(root)) = (self.number(&run.branch), seen_here(run)) {
                self.log(self.inner.take_up(number, root, || below(root)));
            }
        }
    }

    /// Control groups were registered, or are no more.
    pub fn groups_changed(&self) {
        self.inner.groups_changed();
    }

    fn number(&self, branch: &str) -> engine::Result<u32> {
        let scene = self.workspace.scene(branch)?;
        Ok(self.scenes.lock().number(scene))
    }

    fn log(&self, noted: Result<()>) {
        if let Err(error) = noted {
            let workspace = self.workspace.name();
            tracing::error!(workspace, "a run is not heard of: {error}");
        }
    }
}

/// The thread that hears.
struct Ear {
    workspace: Arc<Workspace>,
    scenes: Arc<Mutex<Scenes>>,
    sessions: Arc<Sessions>,
}

impl Listener for Ear {
    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Did(deed) => self.tell(&deed),
            Heard::Lost(count) => {
                let feed = self.workspace.feed();
                feed.tell_missing(FeedBackend::Ebpf, Some(count));
            }
        }
    }

    fn groups(&mut self) -> Vec<(u64, u32)> {
        let groups = self.sessions.groups(self.workspace.name());
        let known = |(group, branch): (u64, String)| {
            let scene = self.workspace.scene(&branch).ok()?;
            Some((group, self.scenes.lock().number(scene)))
        };
        groups.into_iter().filter_map(known).collect()
    }
}

impl Ear {
    fn tell(&self, deed: &Deed) {
        let Some(scene) = self.scenes.lock().all.get(&deed.run).cloned() else {
            return;
        };
        let asking = Asking {
            thread: deed.pid,
            uid: deed.uid,
            gid: deed.gid,
            since: None,
            backend: FeedBackend::Ebpf,
            waits: false,
            comm: deed.comm,
        };
        let (op, path, detail) = told(&deed.what);
        acting_for(asking, || {
            let did = engine::Deed {
                op,
                node: deed.node.map(NodeId),
                path,
                detail: &detail,
            };
            self.workspace.did(&scene, did);
        });
    }
}

/// Operation, path and detail of an event.
fn told(what: &What) -> (FeedOp, &[u8], String) {
    match what {
        What::Executed {
            path,
            first,
            script,
        } => {
            let mut detail = format!("argv0={}", shown(first));
            if let Some(script) = script {
                detail.push_str(&format!(" script={}", shown(script)));
            }
            (FeedOp::Exec, path, detail)
        }
        What::Connected { to, errno } => {
            let mut detail = match to {
                Address::Ip(to) => format!("address={} port={}", to.ip(), to.port()),
                Address::Path(path) => format!("address={}", shown(path)),
                Address::Abstract(name) => format!("address=@{}", shown(name)),
                Address::Family(family) => format!("family={family}"),
            };
            if *errno > 0 {
                detail.push_str(&format!(" errno={errno}"));
            }
            (FeedOp::Connect, &[], detail)
        }
        What::Opened { path, flags } => (FeedOp::Open, path, opened(*flags)),
    }
}

/// For what a file was opened, as docs/events.md has the words.
fn opened(flags: u32) -> String {
    let access = flags & OFlags::ACCMODE.bits();
    let is = |mode: OFlags| access == mode.bits() || access == OFlags::RDWR.bits();
    let all = [
        ("read", is(OFlags::RDONLY) && flags & EXEC == 0),
        ("write", is(OFlags::WRONLY)),
        ("append", flags & OFlags::APPEND.bits() != 0),
        ("exec", flags & EXEC != 0),
    ];
    let said: Vec<_> = all.iter().filter(|(_, is)| *is).map(|(w, _)| *w).collect();
    said.join(" ")
}

/// The process of a run, as this process sees it.
fn seen_here(run: &RunRecord) -> Option<u32> {
    let pid = u32::try_from(run.pid).ok()?;
    if runs::pid_namespace().ok().as_ref() == Some(&run.pid_namespace) {
        return Some(pid);
    }
    processes().into_iter().find(|seen| {
        let namespace = std::fs::read_link(format!("/proc/{seen}/ns/pid"));
        let is_there = namespace.is_ok_and(|link| link.to_string_lossy() == run.pid_namespace);
        is_there && innermost(*seen) == Some(pid)
    })
}

/// The number of a process in its own PID namespace.
fn innermost(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().last()?.parse().ok()
}

fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.filter_map(number).collect()
}

/// All processes that descend from one, but for this process and its own, each with whether it has executed a program.
/// Process 1 of a sandbox, the child of the one, never does.
fn below(root: u32) -> Vec<(u32, bool)> {
    let own = std::process::id();
    let mut children = BTreeMap::<u32, Vec<u32>>::new();
    for seen in processes().into_iter().filter_map(seen) {
        let pid = seen.process.pid;
        if pid != own {
            children.entry(seen.parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for pid in children.remove(&parent).unwrap_or_default() {
            let is_first = parent == root && innermost(pid) == Some(1);
            found.push((pid, !is_first));
            next.push(pid);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_is_for_what_its_flags_say() {
        let flags = |flags: OFlags| opened(flags.bits());
        assert_eq!(flags(OFlags::RDONLY), "read");
        assert_eq!(flags(OFlags::WRONLY | OFlags::APPEND), "write append");
        assert_eq!(flags(OFlags::RDWR), "read write");
        assert_eq!(opened(EXEC), "exec");
    }

    #[test]
    fn descendants_are_found_and_this_process_is_none() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let parent = seen(std::process::id()).unwrap().parent;
        assert!(below(std::process::id()).contains(&(child.id(), true)));
        let own = std::process::id();
        assert!(
            below(parent)
                .iter()
                .all(|(pid, _)| *pid != own && *pid != child.id())
        );
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn details_name_what_was_done() {
        let exec = What::Executed {
            path: b"/usr/bin/dash".to_vec(),
            first: b"sh".to_vec(),
            script: Some(b"./a\n".to_vec()),
        };
        let (op, path, detail) = told(&exec);
        assert_eq!((op, path), (FeedOp::Exec, &b"/usr/bin/dash"[..]));
        assert_eq!(detail, r#"argv0=sh script="./a\n""#);
        let to = |to, errno| told(&What::Connected { to, errno }).2;
        let ip = Address::Ip("[::1]:80".parse().unwrap());
        assert_eq!(to(ip, 0), "address=::1 port=80");
        let name = Address::Abstract(b"n".to_vec());
        assert_eq!(to(name, 111), "address=@n errno=111");
        assert_eq!(to(Address::Family(16), 0), "family=16");
    }
}
