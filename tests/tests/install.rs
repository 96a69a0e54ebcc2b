//! What is installed: the script's words about toolchains, man pages, the unit for systemd.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tests::env::Env;
use tests::mount::found;
use tests::skip::{Want, skip};

/// Programs that the script may use; no cargo and no rustup among them.
const TOOLS: [&str; 24] = [
    "bash", "awk", "cat", "chmod", "cp", "cut", "df", "dirname", "du", "env", "find", "grep",
    "head", "id", "ln", "mkdir", "mktemp", "mv", "readlink", "rm", "sed", "sort", "strip", "uname",
];

/// The version that `Cargo.toml` wants.
fn wanted() -> String {
    let manifest = fs::read_to_string(source().join("Cargo.toml")).unwrap();
    let rest = manifest.split("rust-version = \"").nth(1).unwrap();
    rest.split('"').next().unwrap().to_owned()
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A machine with some programs, on which the script is run.
struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let machine = Machine {
            dir: tempfile::tempdir().unwrap(),
        };
        for name in ["usr", "user/.cargo/bin"] {
            fs::create_dir_all(machine.path(name)).unwrap();
        }
        let path = std::env::var_os("PATH").unwrap();
        for tool in TOOLS {
            let dirs = std::env::split_paths(&path);
            let at = dirs.map(|dir| dir.join(tool)).find(|at| at.exists());
            if let Some(at) = at {
                symlink(at, machine.path("usr").join(tool)).unwrap();
            }
        }
        // Nothing is missing on this machine, so that nothing would be installed.
        for tool in ["cc", "make", "fusermount3"] {
            machine.program(&format!("usr/{tool}"), "exit 0");
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.path(name);
        let _ = fs::remove_file(&path);
        let draft = self.path("draft");
        fs::write(&draft, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).unwrap();
        tests::binary::copy(&draft, &path);
        fs::remove_file(&draft).unwrap();
    }

    /// A cargo of a version, which builds a program that says so.
    fn cargo(&self, name: &str, version: &str) {
        let text = format!(
            "case $1 in\n--version) echo 'cargo {version} (abc 2026-01-01)' ;;\n\
             program) echo {version} >\"$HOME/built-by\"; mkdir -p \"$CARGO_TARGET_DIR/release\"; cp /bin/true \"$CARGO_TARGET_DIR/release/agentvfs\" ;;\n\
             *) exit 1 ;;\nesac"
        );
        self.program(name, &text);
    }

    /// Exit status, standard output, standard error of the script.
    fn install(&self, args: &[&str], path: &[&str]) -> (i32, String, String) {
        let path: Vec<PathBuf> = path.iter().map(|name| self.path(name)).collect();
        let done = Command::new("/bin/bash")
            .arg(source().join("install.sh"))
            .args(args)
            .env_clear()
            .env("PATH", std::env::join_paths(path).unwrap())
            .env("HOME", self.path("user"))
            .env("CARGO_TARGET_DIR", self.path("target"))
            .env("BIN_DIR", self.path("user/bin"))
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            done.status.code().unwrap(),
            text(done.stdout),
            text(done.stderr),
        )
    }

    /// Checks that the script names what helps, before anything is built.
    #[track_caller]
    fn refused(&self, path: &[&str], why: &str, hint: &str) {
        let (status, _, err) = self.install(&["--no-try"], path);
        assert_eq!(status, 1, "{err}");
        assert!(err.contains(why), "no {why:?} in {err}");
        assert!(
            err.contains(&format!("hint: {hint}")),
            "no {hint:?} in {err}"
        );
        assert!(!self.path("target/release").exists());
    }
}

#[test]
fn the_hint_fits_where_the_toolchain_comes_from() {
    let machine = Machine::new();
    let usr = &["usr"][..];
    machine.refused(
        usr,
        "cargo is not installed",
        "install a Rust toolchain: https://rustup.rs",
    );
    // Debian's cargo, which cannot be updated.
    machine.cargo("usr/cargo", "1.85.0");
    let beside = "install another toolchain beside it: https://rustup.rs";
    machine.refused(usr, "Rust 1.85.0 (", beside);
    machine.program("usr/cargo", "exit 1");
    machine.refused(usr, "usr/cargo does not run", beside);
    fs::remove_file(machine.path("usr/cargo")).unwrap();
    // That of rustup, which is in PATH only in a new shell.
    let rustup = |chosen: &str| {
        let text = format!("[ \"$1 $2\" = 'show active-toolchain' ] && {chosen}");
        machine.program("user/.cargo/bin/rustup", &text);
    };
    let own = "user/.cargo/bin/cargo";
    machine.cargo(own, "1.90.0");
    rustup("echo 'stable-x86_64-unknown-linux-gnu (default)'");
    machine.refused(usr, "Rust 1.90.0 (", "rustup update stable\n");
    rustup("echo '1.90.0-x86_64-unknown-linux-gnu (default)'");
    machine.refused(
        usr,
        "1.90.0-x86_64-unknown-linux-gnu is chosen here",
        "rustup update stable && rustup override set stable --path ",
    );
    machine.program(own, "exit 1");
    rustup("exit 1");
    machine.refused(usr, "cargo does not run", "rustup default stable\n");
}

#[test]
fn a_new_toolchain_behind_an_old_one_is_used() {
    let machine = Machine::new();
    machine.cargo("usr/cargo", "1.85.0");
    machine.cargo("user/.cargo/bin/cargo", &wanted());
    let (status, out, err) = machine.install(&["--no-try"], &["usr"]);
    assert_eq!(status, 0, "{out}{err}");
    assert!(
        out.contains("usr/cargo is Rust 1.85.0, too old; using "),
        "{out}"
    );
    for step in ["ms  packages\n", "ms  build\n", "installed "] {
        assert!(out.contains(step), "no {step:?} in {out}");
    }
    let built_by = fs::read_to_string(machine.path("user/built-by")).unwrap();
    assert_eq!(built_by.trim(), wanted());
    let name = |name: &str| machine.path("user/bin").join(name);
    assert_eq!(
        fs::read_link(name("agentvfs-ctl")).unwrap(),
        Path::new("agentvfs")
    );
    // Another program of that name stays.
    fs::remove_file(name("agentfs")).unwrap();
    fs::write(name("agentfs"), "theirs").unwrap();
    let (status, out, err) = machine.install(&["--no-try"], &["usr"]);
    assert_eq!(status, 0, "{out}{err}");
    assert!(out.contains("bin/agentfs is another program"), "{out}");
    let pages = machine.path("user/share/man/man1");
    fs::create_dir_all(&pages).unwrap();
    for page in ["agentvfs.1", "agentvfs-log.1", "other.1"] {
        fs::write(pages.join(page), "").unwrap();
    }
    let (status, out, err) = machine.install(&["--uninstall"], &["usr"]);
    assert_eq!(status, 0, "{out}{err}");
    for gone in ["agentvfs", "agentvfs-ctl", "agentvfs-quickstart"] {
        assert!(!name(gone).is_symlink() && !name(gone).exists(), "{out}");
    }
    assert_eq!(fs::read_to_string(name("agentfs")).unwrap(), "theirs");
    let left: Vec<_> = fs::read_dir(&pages).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(pages.join("other.1").exists());
}

#[test]
fn every_man_page_is_formatted_without_a_complaint() {
    if !found("man") {
        return skip(Want::Machine, "man is missing");
    }
    let dir = tempfile::tempdir().unwrap();
    let done = Command::new(tests::binary::agentvfs())
        .args(["man", "install"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    let pages: Vec<PathBuf> = fs::read_dir(dir.path().join("man1"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(pages.len() > 60, "{pages:?}");
    let mut command = Command::new("man");
    command
        .args(["--warnings", "-l"])
        .args(&pages)
        .current_dir(dir.path())
        .env("MANPAGER", "cat")
        .env("LC_ALL", "C.UTF-8")
        .env("MANWIDTH", "80")
        .env("MANROFFOPT", "-rHY=0 -rCHECKSTYLE=0");
    let done = command.output().unwrap();
    let (out, err) = (
        String::from_utf8(done.stdout).unwrap(),
        String::from_utf8(done.stderr).unwrap(),
    );
    assert!(done.status.success(), "{err}");
    assert_eq!(err, "");
    for wanted in [
        "rollback [OPTIONS]",
        "agentvfs merge fix --into main",
        "--conflicts",
    ] {
        assert!(out.contains(wanted), "no {wanted:?}");
    }
}

/// What the package's list says that goes into it, as paths of files that are there.
fn listed(target: &Path) -> Vec<PathBuf> {
    let ctl = source().join("ctl");
    let manifest = fs::read_to_string(ctl.join("Cargo.toml")).unwrap();
    let list = manifest.split("\nassets = [\n").nth(1).unwrap();
    let rows = list.split("\n]").next().unwrap().lines();
    let from = |row: &str| {
        let from = row.split('"').nth(1).unwrap();
        match from.strip_prefix("target/") {
            Some(made) => target.join(made),
            None => ctl.join(from),
        }
    };
    rows.map(from).collect()
}

#[test]
fn the_package_is_made_of_files_that_are_there() {
    let machine = Machine::new();
    let (version, agentvfs) = (wanted(), tests::binary::agentvfs());
    let cargo = format!(
        "case $1 in\n--version) echo 'cargo {version} (abc 2026-01-01)' ;;\n\
         program) mkdir -p \"$CARGO_TARGET_DIR/release\"; cp {} \"$CARGO_TARGET_DIR/release/agentvfs\" ;;\n\
         deb) case $* in *' --dbgsym'*) echo \"$CARGO_TARGET_DIR/debian/agentvfs-dbgsym.ddeb\" ;; esac\n\
         echo \"$CARGO_TARGET_DIR/debian/agentvfs.deb\" ;;\n\
         *) exit 1 ;;\nesac",
        agentvfs.display()
    );
    machine.program("usr/cargo", &cargo);
    machine.program("usr/dpkg-deb", "exit 0");
    let (status, _, err) = machine.install(&["--deb"], &["usr"]);
    assert_eq!(status, 1, "{err}");
    assert!(err.contains("cargo-deb is not installed"), "{err}");
    machine.program("usr/cargo-deb", "exit 0");
    let (status, out, err) = machine.install(&["--deb"], &["usr"]);
    assert_eq!(status, 0, "{out}{err}");
    // Without a package for it, the program would be packed with its debug information.
    assert!(
        out.contains("/target/debian/agentvfs-dbgsym.ddeb\n"),
        "{out}"
    );
    let wanted = format!(
        "apt-get install {}\n",
        machine.path("target/debian/agentvfs.deb").display()
    );
    assert!(out.ends_with(&wanted), "{out}");
    let files = listed(&machine.path("target"));
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        let is_there = match file.ends_with("*") {
            true => fs::read_dir(file.parent().unwrap()).is_ok_and(|mut all| all.next().is_some()),
            // The program's other names are links, which lead to it where it is installed.
            false => match fs::read_link(&file) {
                Ok(link) => link == Path::new("agentvfs"),
                Err(_) => fs::metadata(&file).is_ok_and(|meta| meta.len() > 0),
            },
        };
        assert!(is_there, "{}", file.display());
    }
}

/// The unit as it is in the package, for this program, in a directory of its own.
fn unit(dir: &Path) -> PathBuf {
    let text = fs::read_to_string(source().join("ctl/package/agentvfs@.service")).unwrap();
    assert_eq!(text.matches("=/usr/bin/agentvfs ").count(), 2);
    let program = tests::binary::agentvfs().display().to_string();
    let file = dir.join("agentvfs@.service");
    fs::write(&file, text.replace("/usr/bin/agentvfs", &program)).unwrap();
    file
}

#[test]
fn systemd_takes_the_unit() {
    if !found("systemd-analyze") {
        return skip(Want::Machine, "systemd-analyze is missing");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = unit(dir.path());
    let verify = |name: &str| {
        Command::new("systemd-analyze")
            .args(["--user", "--man=no", "--recursive-errors=one", "verify"])
            .arg(dir.path().join(name))
            .env("XDG_RUNTIME_DIR", dir.path())
            .output()
            .unwrap()
    };
    let done = verify("agentvfs@project.service");
    assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
    // What it would not take.
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("Type=oneshot", "Type=always")).unwrap();
    let done = verify("agentvfs@project.service");
    assert!(!done.stderr.is_empty(), "{done:?}");
}

/// The commands of the unit as systemd runs them: for a workspace that is stopped, and for one that runs already.
#[test]
fn the_units_commands_mount_and_unmount_a_workspace() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("f"), "text\n").unwrap();
    env.start();
    env.imported();
    let text = fs::read_to_string(unit(&env.path("tmp"))).unwrap();
    let run = |key: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .unwrap();
        let line = line.replace("%i", "project");
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = env.program(words[0]);
        command.args(&words[1..]).current_dir("/");
        env.told(command).ok()
    };
    run("ExecStart=");
    run("ExecStop=");
    assert!(!env.mountpoint().join("f").exists());
    run("ExecStart=");
    assert!(env.mountpoint().join("f").exists());
    run("ExecStop=");
}
