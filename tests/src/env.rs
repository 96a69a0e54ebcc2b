//! A private environment for the real binary: own home, own temporary directory, nothing inherited.
//!
//! Invariant: when it is dropped its daemons are dead and its mounts are gone, also after a failure.

use crate::skip::{Want, skip};
use crate::{binary, mount, wait};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a command said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Exit status.
    pub status: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Told {
    /// Standard output, once the status is seen to be 0.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.status, 0, "{self:?}");
        self.out
    }

    /// The commit's id that is printed alone.
    #[track_caller]
    pub fn id(self) -> String {
        let out = self.ok();
        let id = out.trim_end().to_owned();
        assert!(is_id(&id), "no commit id: {out:?}");
        id
    }

    /// Checks that the commit's id is printed alone, or that it is not known yet: what undo and redo go to
    /// may still be being stored, or its import may still run.
    #[track_caller]
    pub fn id_or_pending(self) {
        let out = self.ok();
        let id = out.trim_end();
        assert!(is_id(id) || id == "pending", "no commit id: {out:?}");
    }

    /// Checks a failure: its status, nothing on standard output, one clear line and a hint.
    #[track_caller]
    pub fn fails(self, status: i32, why: &str) {
        assert_eq!((self.status, self.out.as_str()), (status, ""), "{self:?}");
        let lines: Vec<&str> = self.err.lines().collect();
        assert_eq!(lines.len(), 2, "{self:?}");
        assert!(
            lines[0].starts_with("agentvfs: ") && lines[0].contains(": "),
            "{self:?}"
        );
        assert!(lines[0].contains(why), "no {why:?} in {self:?}");
        assert!(
            lines[1].starts_with("hint: ") && lines[1].len() > 10,
            "{self:?}"
        );
    }
}

/// The directory for temporary files, or /tmp where others cannot pass the way to that: mounts of a project
/// there would be closed to them.
fn scratch() -> PathBuf {
    let dirs = [std::env::temp_dir(), PathBuf::from("/tmp")];
    let is_open = |dir: &Path| {
        let mode = |dir: &Path| dir.metadata().map_or(0, |meta| meta.permissions().mode());
        dir.ancestors().all(|dir| mode(dir) & 0o001 != 0)
    };
    let open = dirs.iter().find(|dir| is_open(dir));
    open.unwrap_or(&dirs[0]).clone()
}

/// A directory with a home of agentvfs (`home`), an ordinary home (`user`), a `tmp` and a `project`.
pub struct Env {
    root: PathBuf,
    home: PathBuf,
    variables: Vec<(&'static str, String)>,
    _dir: tempfile::TempDir,
}

impl Env {
    /// An environment; none, with the reason printed, where nothing can be mounted.
    pub fn new() -> Option<Env> {
        Env::below(&scratch())
    }

    /// The same, in memory where the machine has a place for that: for tests that measure how long
    /// something takes, to which the disk's own syncs do not count.
    pub fn in_memory() -> Option<Env> {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() {
            Env::below(memory)
        } else {
            Env::new()
        }
    }

    /// The same in a directory.
    pub fn below(directory: &Path) -> Option<Env> {
        if let Some(why) = mount::unusable() {
            skip(Want::Fuse, &why);
            return None;
        }
        let dir = tempfile::Builder::new()
            .prefix("agentvfs-")
            .tempdir_in(directory)
            .unwrap();
        let root = dir.path().canonicalize().unwrap();
        // Where others cannot reach a project, its mounts are closed to them.
        std::fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
        for name in ["user", "tmp", "project"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let home = root.join("home");
        Some(Env {
            root,
            home,
            variables: Vec::new(),
            _dir: dir,
        })
    }

    /// An environment that needs root; none, with the reason printed, for others.
    pub fn as_root() -> Option<Env> {
        if mount::is_root() {
            return Env::new();
        }
        skip(Want::Root, "only root may do what this test does");
        None
    }

    /// Uses another agentvfs home from now on.
    pub fn set_home(&mut self, home: PathBuf) {
        self.home = home;
    }

    /// Runs programs with a variable from now on; a daemon keeps what it was started with.
    pub fn set_variable(&mut self, name: &'static str, value: &str) {
        self.variables.push((name, value.to_owned()));
    }

    /// The agentvfs home.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Something in the environment's directory.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join(name)
    }

    /// The project.
    pub fn project(&self) -> PathBuf {
        self.path("project")
    }

    /// Where the workspace `project` is mounted.
    pub fn mountpoint(&self) -> PathBuf {
        self.home.join("mnt/project")
    }

    /// Any program with this environment, in the environment's directory.
    pub fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path("user"))
            .env("TMPDIR", self.path("tmp"))
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("AGENTVFS_HOME", &self.home)
            // What a crash without it leaves is tested by most; tests of the keeper switch it on.
            .env("AGENTVFS_KEEPER", "off")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.root)
            .stdin(Stdio::null());
        command
    }

    /// `agentvfs` with arguments as they stand, in a directory.
    pub fn command(&self, directory: &Path, args: &[&str]) -> Command {
        let mut command = self.program(binary::agentvfs());
        command.args(args).current_dir(directory);
        command
    }

    /// `agentvfs workspace …` in the environment's directory.
    pub fn workspace(&self, args: &[&str]) -> Told {
        self.workspace_in(&self.root.clone(), args)
    }

    /// `agentvfs workspace …` in a directory.
    pub fn workspace_in(&self, directory: &Path, args: &[&str]) -> Told {
        let args: Vec<&str> = ["workspace"].iter().chain(args).copied().collect();
        self.told(self.command(directory, &args))
    }

    /// Runs a command to its end; panics where it does not come to one.
    pub fn told(&self, mut command: Command) -> Told {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let what = format!("{command:?}");
        self.finish(command.spawn().unwrap(), &what)
    }

    /// Starts `agentvfs workspace …` without waiting for it; see [`Env::finish`].
    pub fn begin(&self, args: &[&str]) -> Child {
        let args: Vec<&str> = ["workspace"].iter().chain(args).copied().collect();
        self.command(&self.root, &args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// What a started command says in the end; panics with the daemon's log where it hangs.
    pub fn finish(&self, mut child: Child, what: &str) -> Told {
        let out = collect(child.stdout.take().unwrap());
        let err = collect(child.stderr.take().unwrap());
        let since = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if since.elapsed() > wait::DEADLINE {
                let _ = child.kill();
                panic!("{what} hangs; the daemon's log ends:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_micros(500));
        };
        Told {
            status: status.code().unwrap_or(-1),
            out: out.join().unwrap(),
            err: err.join().unwrap(),
        }
    }

    /// Starts the workspace `project`, and gives its mount.
    #[track_caller]
    pub fn start(&self) -> PathBuf {
        self.workspace(&["start", "--from", "project"]).ok();
        self.mountpoint()
    }

    /// What `status --json` says of the only workspace.
    #[track_caller]
    pub fn status(&self) -> Value {
        let told = self.workspace(&["status", "project", "--json"]);
        serde_json::from_str(&told.out).unwrap_or_else(|_| panic!("{told:?}"))
    }

    /// Waits until everything of the base is stored.
    #[track_caller]
    pub fn imported(&self) {
        wait::until("the import is done", || {
            self.status()["import"]["state"] == "done"
        });
    }

    /// The daemons of this environment's homes.
    pub fn daemons(&self) -> Vec<Pid> {
        self.processes("daemon")
    }

    /// The keepers of this environment's homes.
    pub fn keepers(&self) -> Vec<Pid> {
        self.processes("keeper")
    }

    fn processes(&self, what: &str) -> Vec<Pid> {
        let processes = std::fs::read_dir("/proc").unwrap();
        let ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        ids.filter(|id| self.is_ours(*id, what))
            .filter_map(Pid::from_raw)
            .collect()
    }

    fn is_ours(&self, id: i32, what: &str) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let ours = |home: &&[u8]| home.starts_with(self.root.as_os_str().as_bytes());
        words.get(1) == Some(&what.as_bytes()) && words.get(3).is_some_and(ours)
    }

    /// Has mounts outlive their daemons from now on, however often these die.
    pub fn keep_mounts(&mut self) {
        self.set_variable("AGENTVFS_KEEPER", "1000000");
    }

    /// Kills the daemon, and does not wait for anything.
    pub fn strike_daemon(&self) {
        for pid in self.daemons() {
            // It may have ended by itself just now.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }

    /// Kills the daemon as an out-of-memory killer would, and waits for its end.
    pub fn kill_daemon(&self) {
        let daemons = self.daemons();
        for pid in &daemons {
            // It may have ended by itself just now.
            let _ = rustix::process::kill_process(*pid, Signal::KILL);
        }
        wait::until("the daemon is dead", || {
            daemons.iter().all(|pid| is_dead(*pid))
        });
    }

    /// The end of the daemon's log.
    pub fn log(&self) -> String {
        let log = std::fs::read(self.home.join("daemon.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Env {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the daemon's log ends:\n{}", self.log());
        }
        // The keepers first: they would start daemons again.
        for pid in self.keepers().into_iter().chain(self.daemons()) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        for pid in self.daemons() {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        mount::clear(&self.root);
        // A daemon that was killed leaves the directory of its mount points closed; there may be none.
        let mounts = self.home.join("mnt");
        let _ = std::fs::set_permissions(mounts, Permissions::from_mode(0o711));
    }
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// True for a process that has ended with all its threads, though nobody may have asked how: until the
/// last one is gone its connections stay open.
fn is_dead(pid: Pid) -> bool {
    let process = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let Ok(stat) = std::fs::read_to_string(process.join("stat")) else {
        return true;
    };
    let state = stat.rsplit(") ").next();
    let threads = std::fs::read_dir(process.join("task")).map_or(0, Iterator::count);
    state.is_some_and(|state| state.starts_with(['Z', 'X'])) && threads <= 1
}

fn collect(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        from.read_to_end(&mut all).unwrap();
        String::from_utf8_lossy(&all).into_owned()
    })
}
