//! Where things are: the agentvfs home and what this crate keeps in it (sockets, logs, `mnt/`).
//!
//! The engine keeps everything else in the same directory. Invariant: client and daemon find the
//! same socket from the same home and environment, without asking each other.

use std::ffi::OsString;
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Longest socket path that is used as it is; `sun_path` has 108 bytes (unix(7)).
const SOCKET_PATH_BYTES_MAX: usize = 100;

/// Names the socket of a run, for what is in its sandbox.
pub const SOCKET_VARIABLE: &str = "AGENTVFS_SOCKET";

/// Looks up environment variables; a function, so that tests need not change the process's own.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The process's environment; an empty variable counts as unset.
pub fn process_env(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Why no home or socket directory can be used.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// Neither `--root` nor any of the environment's variables says where it is.
    #[error("none of --root, $AGENTVFS_HOME, $XDG_DATA_HOME and $HOME is set")]
    Nowhere,
    /// A directory cannot be made or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The directory for sockets belongs to somebody else or is open to others.
    #[error("{} must be a directory of user {uid} with mode 0700", path.display())]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// Whose it must be.
        uid: u32,
    },
}

/// The agentvfs home of one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
    runtime_dir: Option<PathBuf>,
    /// The socket of the run in whose sandbox this process is.
    of_run: Option<PathBuf>,
}

impl Home {
    /// `root` where given, else `$AGENTVFS_HOME`, `$XDG_DATA_HOME/agentvfs` or
    /// `~/.local/share/agentvfs`. Nothing is made. If neither of the first two is given, `$AGENTVFS_SOCKET` is the socket
    /// of the run in whose sandbox this process is, which sees no home.
    pub fn find(root: Option<&Path>, env: Env<'_>) -> Result<Home, HomeError> {
        let is_named = root.is_some() || env("AGENTVFS_HOME").is_some();
        let of_run = env(SOCKET_VARIABLE).map(PathBuf::from);
        let root = match root {
            Some(root) => root.to_owned(),
            None => from_env(env).ok_or(HomeError::Nowhere)?,
        };
        let absolute =
            std::path::absolute(&root).map_err(|source| HomeError::Io { path: root, source })?;
        let runtime_dir = env("XDG_RUNTIME_DIR")
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute());
        Ok(Home {
            root: canonical(&absolute),
            runtime_dir,
            of_run: of_run.filter(|path| !is_named && path.is_absolute()),
        })
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The socket of the run in whose sandbox this process is, if it is in one.
    pub fn socket_of_run(&self) -> Option<&Path> {
        self.of_run.as_deref()
    }

    /// The daemon's log.
    pub fn log(&self) -> PathBuf {
        self.root.join("daemon.log")
    }

    /// Held by a client while it starts the daemon, so that one of many does it.
    pub fn launch_lock(&self) -> PathBuf {
        self.root.join("launch.lock")
    }

    /// Directory of the default mounts.
    pub fn mounts(&self) -> PathBuf {
        self.root.join("mnt")
    }

    /// Where workspace `name` is mounted unless something else was asked for.
    pub fn default_mount(&self, name: &str) -> PathBuf {
        self.mounts().join(name)
    }

    /// Directory of the records of running mounts.
    pub fn running(&self) -> PathBuf {
        self.root.join("running")
    }

    /// Why the keeper refuses what is asked of mounts, while it does.
    pub fn given_up(&self) -> PathBuf {
        self.root.join("keeper.given-up")
    }

    /// Held while a sandbox is built, so that of several in one session the first makes what all have.
    pub fn sandbox_lock(&self) -> PathBuf {
        self.root.join("sandbox.lock")
    }

    /// Directory of the records of commands in a sandbox.
    pub fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }

    /// Directory of what sessions keep of files outside their projects.
    pub fn kept(&self) -> PathBuf {
        self.runs().join("kept")
    }

    /// Which cgroups see which branches.
    pub fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }

    /// The daemon's socket: in the home where its path is short enough, else in
    /// `$XDG_RUNTIME_DIR`, else in a directory of the user's own in `/tmp`.
    pub fn socket(&self) -> PathBuf {
        self.socket_named("daemon")
    }

    /// The keeper's socket, likewise.
    pub fn keeper_socket(&self) -> PathBuf {
        self.socket_named("keeper")
    }

    fn socket_named(&self, whose: &str) -> PathBuf {
        let plain = self.root.join(format!("{whose}.sock"));
        if fits(&plain) {
            return plain;
        }
        let hash = blake3::hash(self.root.as_os_str().as_bytes()).to_hex();
        let short = match whose {
            "daemon" => hash.as_str()[..16].to_owned(),
            _ => format!("{}-{whose}", &hash.as_str()[..16]),
        };
        let runtime = self
            .runtime_dir
            .as_ref()
            .map(|dir| dir.join(format!("agentvfs-{short}.sock")));
        match runtime {
            Some(path) if fits(&path) => path,
            _ => shared_socket_dir().join(format!("{short}.sock")),
        }
    }

    /// Whether something has been kept here, so that a daemon would have anything to tell. A home that cannot
    /// be read is an error: what is in it is there all the same.
    pub fn is_used(&self) -> Result<bool, HomeError> {
        if self.of_run.is_some() {
            return Ok(true);
        }
        match self.root.read_dir() {
            Ok(mut entries) => Ok(entries.next().is_some()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(HomeError::Io {
                path: self.root.clone(),
                source,
            }),
        }
    }

    /// Makes the home and `mnt/` (0711) and what else this crate needs (0700).
    ///
    /// A directory that was there before and is not empty keeps its mode, as it may be any
    /// directory that somebody gave with `--root`.
    pub fn prepare(&self) -> Result<(), HomeError> {
        make_dir(&self.root, 0o711)?;
        make_dir(&self.mounts(), 0o711)?;
        make_dir(&self.running(), 0o700)?;
        self.prepare_socket_dir()
    }

    fn prepare_socket_dir(&self) -> Result<(), HomeError> {
        let dir = shared_socket_dir();
        if self.socket().parent() != Some(&dir) {
            return Ok(());
        }
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(HomeError::Io {
                    path: dir,
                    source: e,
                });
            }
            _ => {}
        }
        check_private(dir)
    }
}

/// Directory in `/tmp` for the sockets of this user; anybody may have made it, so it is checked.
fn shared_socket_dir() -> PathBuf {
    PathBuf::from(format!(
        "/tmp/agentvfs-{}",
        rustix::process::geteuid().as_raw()
    ))
}

fn check_private(path: PathBuf) -> Result<(), HomeError> {
    let uid = rustix::process::geteuid().as_raw();
    let meta = std::fs::symlink_metadata(&path).map_err(|source| HomeError::Io {
        path: path.clone(),
        source,
    })?;
    if meta.is_dir() && meta.uid() == uid && meta.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(HomeError::Unsafe { path, uid })
}

fn fits(path: &Path) -> bool {
    path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX
}

fn from_env(env: Env<'_>) -> Option<PathBuf> {
    if let Some(home) = env("AGENTVFS_HOME") {
        return Some(home.into());
    }
    // The XDG base directory specification: relative paths are to be ignored.
    let data = env("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute());
    if let Some(data) = data {
        return Some(data.join("agentvfs"));
    }
    let home = PathBuf::from(env("HOME")?);
    home.is_absolute()
        .then(|| home.join(".local/share/agentvfs"))
}

/// Makes `dir` with its parents. `mode` is set where it is new or empty.
fn make_dir(dir: &Path, mode: u32) -> Result<(), HomeError> {
    let wrap = |source| HomeError::Io {
        path: dir.to_owned(),
        source,
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(wrap)?;
    let is_empty = dir.read_dir().map_err(wrap)?.next().is_none();
    // Mounts may be kept from being changed even to what they are.
    if is_empty && dir.metadata().map_err(wrap)?.mode() & 0o7777 != mode {
        std::fs::set_permissions(dir, Permissions::from_mode(mode)).map_err(wrap)?;
    }
    Ok(())
}

/// `path` with symbolic links resolved as far as it exists and can be asked: the end of it may be
/// missing, or a mount that died.
pub fn canonical(path: &Path) -> PathBuf {
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => canonical(parent).join(name),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env<'a>(vars: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        move |name| {
            vars.iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| OsString::from(v))
        }
    }

    #[test]
    fn home_is_found_in_order_of_precedence() {
        let all = [
            ("AGENTVFS_HOME", "/a"),
            ("XDG_DATA_HOME", "/x"),
            ("HOME", "/h"),
        ];
        let find =
            |root: Option<&Path>, vars: &[(&str, &str)]| Home::find(root, &env(vars)).unwrap().root;
        assert_eq!(find(Some(Path::new("/r")), &all), Path::new("/r"));
        assert_eq!(find(None, &all), Path::new("/a"));
        assert_eq!(find(None, &all[1..]), Path::new("/x/agentvfs"));
        assert_eq!(find(None, &all[2..]), Path::new("/h/.local/share/agentvfs"));
        assert!(matches!(
            Home::find(None, &env(&[])),
            Err(HomeError::Nowhere)
        ));
    }

    #[test]
    fn the_socket_of_a_run_counts_unless_a_home_is_named() {
        let (socket, home) = (("AGENTVFS_SOCKET", "/s"), ("HOME", "/h"));
        let find = |root, vars: &[(&str, &str)]| Home::find(root, &env(vars)).unwrap().of_run;
        assert_eq!(find(None, &[socket, home]), Some("/s".into()));
        assert_eq!(find(None, &[socket, ("AGENTVFS_HOME", "/a")]), None);
        assert_eq!(find(Some(Path::new("/r")), &[socket, home]), None);
        assert_eq!(find(None, &[("AGENTVFS_SOCKET", "relative"), home]), None);
    }

    #[test]
    fn long_socket_path_moves_to_the_runtime_directory() {
        let long = format!("/{}", "d".repeat(120));
        let home = Home::find(
            Some(Path::new(&long)),
            &env(&[("XDG_RUNTIME_DIR", "/run/user/7")]),
        )
        .unwrap();
        assert!(home.socket().starts_with("/run/user/7"));
        let home = Home::find(Some(Path::new(&long)), &env(&[])).unwrap();
        assert_eq!(home.socket().parent().unwrap(), shared_socket_dir());
        assert!(fits(&home.socket()));
        let home = Home::find(Some(Path::new("/short")), &env(&[])).unwrap();
        assert_eq!(home.socket(), Path::new("/short/daemon.sock"));
    }

    #[test]
    fn prepared_home_has_the_promised_modes() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::find(Some(&dir.path().join("h")), &env(&[])).unwrap();
        assert!(!home.is_used().unwrap());
        home.prepare().unwrap();
        assert!(home.is_used().unwrap());
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!(mode(home.root()), 0o711);
        assert_eq!(mode(&home.mounts()), 0o711);
        assert_eq!(mode(&home.running()), 0o700);
    }

    #[test]
    fn home_that_cannot_be_read_is_not_taken_for_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let home = Home::find(Some(&file), &env(&[])).unwrap();
        assert!(matches!(home.is_used(), Err(HomeError::Io { .. })));
    }

    #[test]
    fn directory_with_content_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("other"), "").unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o750)).unwrap();
        Home::find(Some(dir.path()), &env(&[]))
            .unwrap()
            .prepare()
            .unwrap();
        assert_eq!(dir.path().metadata().unwrap().mode() & 0o777, 0o750);
    }

    #[test]
    fn canonical_keeps_the_missing_end_of_a_path() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("link")).unwrap();
        let wanted = dir.path().canonicalize().unwrap().join("a/b");
        assert_eq!(canonical(&dir.path().join("link/a/b")), wanted);
    }
}
