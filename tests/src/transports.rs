//! Two mounts of equal projects, one by each way to the kernel.

use crate::differential::{self, Pair};
use crate::env::Env;
use crate::requests::{Count, answered, since};
use std::path::PathBuf;

/// Requests of which the kernel or others on the machine send some when they like.
const FOREIGN: [&str; 1] = ["statfs"];

/// Both mounts: first by our own way, then by the crate `fuser`.
pub struct Both {
    envs: [Env; 2],
}

impl Both {
    /// Both, with projects that `fill` makes; none, with the reason printed, where nothing can be mounted.
    pub fn start(fill: impl Fn(&Env)) -> Option<Both> {
        let mut both = Both {
            envs: [Env::new()?, Env::new()?],
        };
        both.envs[1].set_variable("AGENTVFS_TRANSPORT", "fuser");
        for (env, by_crate) in both.envs.iter().zip([false, true]) {
            fill(env);
            env.start();
            env.imported();
            let readers = threads(env);
            let is_by_crate = readers.iter().any(|name| name == "fuser-0");
            assert_eq!(is_by_crate, by_crate, "{readers:?}");
        }
        Some(both)
    }

    /// Each environment.
    pub fn envs(&self) -> &[Env; 2] {
        &self.envs
    }

    /// Each mount.
    pub fn roots(&self) -> [PathBuf; 2] {
        [0, 1].map(|side| self.envs[side].mountpoint())
    }

    /// Both mounts, to be compared.
    pub fn pair(&self) -> Pair {
        let [native, mount] = self.roots();
        Pair {
            fine_clock: self
                .roots()
                .iter()
                .all(|root| differential::has_fine_clock(root)),
            native,
            mount,
        }
    }

    /// What `work` gives on each.
    pub fn each<R>(&self, work: impl Fn(&Env) -> R) -> [R; 2] {
        [0, 1].map(|side| work(&self.envs[side]))
    }

    /// Requests that `work` costs on each, of those that it must cost.
    pub fn requests(&self, work: impl FnOnce()) -> [Count; 2] {
        let before = self.each(answered);
        work();
        let after = self.each(answered);
        [0, 1].map(|side| {
            let mut count = since(&before[side], &after[side]);
            count.retain(|kind, _| !FOREIGN.contains(&kind.as_str()));
            count
        })
    }
}

/// Names of the daemon's threads.
fn threads(env: &Env) -> Vec<String> {
    let tasks = env.daemons().into_iter().flat_map(|pid| {
        let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
        std::fs::read_dir(tasks).unwrap().flatten()
    });
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    tasks
        .filter_map(|task| name(task).ok())
        .map(|name| name.trim_end().to_owned())
        .collect()
}

/// Makes the same requests up to three times and fails where they differ each time: the kernel may drop what it
/// keeps at any moment, and asks for that again.
pub fn same_requests(what: &str, mut work: impl FnMut(usize) -> [Count; 2]) {
    let mut last = None;
    for attempt in 0..3 {
        let [own, other] = work(attempt);
        if own == other {
            return;
        }
        last = Some((own, other));
    }
    let (own, other) = last.unwrap();
    panic!("{what}: requests by our own way {own:?}, by the other {other:?}");
}
