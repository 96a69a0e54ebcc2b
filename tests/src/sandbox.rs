//! Running commands by `agentvfs run`: an environment that its sandbox shows, and the processes of a run.

use crate::env::{Env, Told};
use crate::skip::{Want, skip};
use crate::{binary, sys, wait};
use rustix::process::Pid;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// ABI of Landlock that has scopes.
const LANDLOCK_SCOPES: i32 = 6;

/// Directories that every sandbox has for itself: a test's directory below one would not be seen.
const PRIVATE: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];

/// An environment outside the directories that a sandbox has for itself, with `files` in its project, and its
/// workspace running. None, with the reason printed, where the machine cannot make one.
pub fn env(files: &[(&str, &str)]) -> Option<Env> {
    let env = stopped()?;
    for (name, text) in files {
        std::fs::write(env.project().join(name), text).unwrap();
    }
    env.start();
    Some(env)
}

/// The same with an empty project, and no workspace.
pub fn stopped() -> Option<Env> {
    if !can_be_made() {
        return None;
    }
    let Some(dir) = visible_directory() else {
        skip(Want::Machine, "no directory for tests outside /tmp");
        return None;
    };
    Env::below(&dir)
}

/// Whether this kernel has what a sandbox needs; says what it lacks.
pub fn can_be_made() -> bool {
    let mut unshare = Command::new("unshare");
    // A container that hides parts of /proc lets nobody mount another one.
    unshare.args([
        "--user",
        "--map-root-user",
        "--mount",
        "--pid",
        "--net",
        "--fork",
    ]);
    unshare.args(["--mount-proc", "true"]);
    let made = unshare.stderr(Stdio::null()).status();
    if !made.is_ok_and(|status| status.success()) {
        skip(
            Want::Machine,
            "no namespaces for this user, or no /proc in them",
        );
        return false;
    }
    if sys::landlock_abi() < LANDLOCK_SCOPES {
        skip(Want::Machine, "the kernel has no Landlock scopes");
        return false;
    }
    true
}

fn visible_directory() -> Option<PathBuf> {
    let build = binary::agentvfs().parent()?.parent()?.join("tmp");
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let all = [Some(build), home];
    let is_usable = |dir: &PathBuf| {
        // It may be there already.
        let _ = std::fs::create_dir(dir);
        let made = tempfile::tempdir_in(dir);
        let hidden = |dir: &Path| PRIVATE.iter().any(|private| dir.starts_with(private));
        made.is_ok() && dir.canonicalize().is_ok_and(|dir| !hidden(&dir))
    };
    all.into_iter().flatten().find(is_usable)
}

/// `agentvfs run …` in the project.
pub fn command(env: &Env, args: &[&str]) -> Command {
    let args: Vec<&str> = ["run"].iter().chain(args).copied().collect();
    let mut command = env.command(&env.project(), &args);
    command.env("SHELL", "/bin/sh");
    command
}

/// The same to its end.
pub fn run(env: &Env, args: &[&str]) -> Told {
    env.told(command(env, args))
}

/// What a shell prints in a run of session `s`; panics where it fails.
#[track_caller]
pub fn shell(env: &Env, script: &str) -> String {
    run(env, &["--session", "s", "--", "sh", "-c", script]).ok()
}

/// A run that goes on until it is told to end.
pub struct Going {
    /// The process of `agentvfs run`.
    pub child: Child,
    /// The command, as the machine knows it.
    pub command: Pid,
}

impl Going {
    /// Starts a shell in session `session` that runs `script` first and then waits. `mark` is digits that no
    /// other process has on its command line.
    pub fn start(env: &Env, session: &str, mark: &str, script: &str) -> Going {
        Going::start_with(env, &["--session", session], session, mark, script)
    }

    /// The same with these options, which name the session.
    pub fn start_with(
        env: &Env,
        options: &[&str],
        session: &str,
        mark: &str,
        script: &str,
    ) -> Going {
        let script = format!("{script}\necho up > up-{mark}\nexec sleep 600.{mark}");
        // Whoever runs the tests in the background may have interrupts ignored, which programs inherit.
        let shell = ["env", "--default-signal=INT,QUIT", "sh", "-c", &script];
        let args = [options, &["--"], &shell[..]].concat();
        let mut command = command(env, &args);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let view = env.mountpoint().join(".agentvfs/branches").join(session);
        wait::until("the run is up", || view.join(format!("up-{mark}")).exists());
        let wanted = format!("600.{mark}");
        wait::until("the command sleeps", || !processes(&wanted).is_empty());
        let command = processes(&wanted)[0];
        Going { child, command }
    }

    /// Process 1 of the sandbox, as the machine knows it.
    pub fn init(&self) -> Pid {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.command.as_raw_nonzero()));
        let status = status.unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        Pid::from_raw(line.unwrap().trim().parse().unwrap()).unwrap()
    }

    /// What it says in the end.
    pub fn finish(self, env: &Env) -> Told {
        env.finish(self.child, "the run")
    }
}

/// Digits that no other test has on its command lines.
pub fn mark() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}{next:02}", std::process::id())
}

/// Processes of this machine that have a word in their command line which is exactly `word`.
pub fn processes(word: &str) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").unwrap();
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let has = |id: &i32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|part| part == word.as_bytes())
    };
    ids.filter(has).filter_map(Pid::from_raw).collect()
}
