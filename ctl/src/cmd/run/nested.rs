//! A run in the sandbox of another one, for a branch that was made there: what it finds, and what it cannot do.
//!
//! It asks through the socket of the run around it. Invariant: nothing here gives it more than the run around it has; what
//! that one hides stays hidden, and what it may not write to is not writable inside either.

use super::super::Context;
use super::user::{existing, told};
use crate::cli::{RunArgs, ThenArg};
use agentvfs_client::failure::Failure;
use agentvfs_sandbox::reach::{self, Mounted};
use agentvfs_sandbox::{PathRule, What};
use std::path::{Path, PathBuf};

/// Where the branches of a run are, below the project.
pub const BRANCHES: &str = ".agentvfs/branches";
/// Directories that every sandbox has for itself.
const OWN: [&str; 6] = ["/dev", "/proc", "/run", "/tmp", "/var/tmp", "/sys"];

/// The sandbox that this process is in.
#[derive(Debug, Clone)]
pub struct Around {
    /// The socket of its run.
    pub socket: PathBuf,
    /// Where it shows its branch.
    pub at: PathBuf,
    mounts: Vec<Mounted>,
}

impl Around {
    /// The sandbox that this process is in, if it is in one.
    pub fn look(context: &Context) -> Result<Option<Around>, Failure> {
        let Some(socket) = context.home().socket_of_run() else {
            return Ok(None);
        };
        let failed = |why: String| Failure::new("cannot run inside a run", why);
        let own = std::fs::read_link("/proc/self").map_err(|e| failed(format!("/proc: {e}")))?;
        if own.as_os_str() != std::process::id().to_string().as_str() {
            let why = "for root, a run inside a run can have none inside itself: it has no /proc of its own, which \
                       the kernel lets nobody mount there, and no sandbox can be built without one";
            return Err(failed(why.to_owned())
                .kind("in-sandbox")
                .hint("start it from the outermost run"));
        }
        let mounts = reach::mounts().map_err(|e| failed(e.to_string()))?;
        let mut all = mounts.iter().rev();
        let at = all.find_map(|mount| {
            let is_there = mount.at.ends_with(BRANCHES);
            is_there.then(|| mount.at.ancestors().nth(2).map(Path::to_owned))?
        });
        match at {
            Some(at) => Ok(Some(Around {
                socket: socket.to_owned(),
                at,
                mounts,
            })),
            None => Err(failed("the run around this one shows no branches".into())
                .kind("in-sandbox")
                .hint(
                    "a run with --hide in the project, or without a sandbox, can have none inside",
                )),
        }
    }

    /// The directory that has the branches of the run around this one.
    pub fn branches(&self) -> PathBuf {
        self.at.join(BRANCHES)
    }

    /// What the run around this one may write to outside the project: so may this one. And what is hidden in addition.
    pub fn places(&self, at: &Path) -> Vec<PathRule> {
        let is_own = |path: &Path| OWN.iter().any(|own| path.starts_with(own));
        let is_open = |mount: &&Mounted| {
            let path = &mount.at;
            !mount.is_read_only && !path.starts_with(&self.at) && !is_own(path)
        };
        let rule = |at: &Path, what| PathRule {
            at: at.to_owned(),
            what,
        };
        let open = self.mounts.iter().filter(is_open);
        let open = open.filter(|mount| mount.at != Path::new("/"));
        let mut all: Vec<PathRule> = open.map(|m| rule(&m.at, What::Writable)).collect();
        if at != self.at {
            all.push(rule(&self.at.join(".agentvfs"), What::Hidden));
        }
        all
    }

    /// Finds what cannot be done in the sandbox of another run.
    pub fn check(&self, args: &RunArgs, context: &Context) -> Result<(), Failure> {
        let options = [
            (
                args.from.is_some(),
                "--from",
                "the workspace is that of the run around this one",
            ),
            (
                args.no_sandbox,
                "--no-sandbox",
                "nothing is without a sandbox here",
            ),
            (
                !args.show.is_empty(),
                "--show",
                "what the run around this one hides stays hidden",
            ),
            (
                !args.allow_socket.is_empty(),
                "--allow-socket",
                "sockets that the run around this one covers stay covered",
            ),
            (
                args.then == ThenArg::Apply,
                "--then apply",
                "only outside can be applied to the project; --then merge merges into the branch around",
            ),
        ];
        if let Some((_, option, why)) = options.into_iter().find(|(is_given, ..)| *is_given) {
            return Err(refused(format!(
                "{option} cannot be used inside a run: {why}"
            )));
        }
        let own = std::env::var("AGENTVFS_BRANCH").ok();
        let named = args.session.as_ref().or(context.options().branch.as_ref());
        if named.is_some() && named == own.as_ref() {
            let why = "that is the branch of the run around this one, which shows it already";
            return Err(refused(why.to_owned())
                .hint("agentvfs run --session NAME creates another one of it"));
        }
        for path in &args.allow {
            let real = existing(path)?;
            let flags = rustix::fs::statvfs(&real).map(|found| found.f_flag);
            if flags.is_ok_and(|flags| flags.contains(rustix::fs::StatVfsMountFlags::RDONLY)) {
                let why = format!("{} is read-only in the run around this one", told(path));
                return Err(refused(why));
            }
        }
        Ok(())
    }
}

fn refused(why: String) -> Failure {
    Failure::usage(why).kind("in-sandbox")
}
