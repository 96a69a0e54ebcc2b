//! Mount points: what nobody may write there, what was written there all the same, who sees the mount, and
//! what a stop says that fails.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use tests::env::{Env, Told};
use tests::sys::Mapping;
use tests::{binary, mount};

/// A shell in a mount namespace of its own, which has copies of all mounts.
struct Elsewhere(Child);

impl Elsewhere {
    fn new(env: &Env) -> Elsewhere {
        let mut command = env.program("unshare");
        command.args(["-m", "sh", "-c", "echo ready; read end"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let read = BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line);
        assert_eq!((read.unwrap(), line.as_str()), (6, "ready\n"));
        Elsewhere(child)
    }

    /// Takes the workspace's mount away there, and runs a command there.
    fn unmounted(&self, env: &Env, args: &[&str]) -> Told {
        let mut command = env.program("nsenter");
        command.args(["-m", "-t", &self.0.id().to_string(), "--"]);
        let script = "umount -l \"$0\" 2>/dev/null; exec \"$@\"";
        command.args(["sh", "-c", script]).arg(env.mountpoint());
        command.arg(binary::agentvfs()).args(args);
        env.told(command)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn nothing_is_made_beside_a_workspace_or_below_its_mount() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    for name in ["../wt", "../wt/deep"] {
        let beside = fs::create_dir_all(root.join(name));
        assert!(beside.is_err(), "{name} lies in no workspace");
    }
    assert!(fs::write(env.home().join("mnt/file"), "x").is_err());
    env.kill_daemon();
    // Somebody takes the dead mount away by hand.
    for place in mount::workspaces_below(env.home()) {
        let done = env.told({
            let mut command = env.program(if mount::is_root() {
                "umount"
            } else {
                "fusermount3"
            });
            command.args(if mount::is_root() { ["-l"] } else { ["-uz"] });
            command.arg(place);
            command
        });
        assert_eq!(done.status, 0, "{done:?}");
    }
    assert!(root.exists(), "the directory shows");
    assert!(fs::write(root.join("file"), "x").is_err());
    env.workspace(&["start", "project"]).ok();
    fs::write(root.join("file"), "x").unwrap();
    env.workspace(&["stop", "project"]).ok();
    assert!(mount::below(env.home()).is_empty());
    assert!(!root.exists());
    fs::write(env.home().join("mnt/file"), "x").unwrap();
    fs::remove_dir_all(env.home()).unwrap();
}

#[test]
fn what_lies_in_the_way_is_moved_aside_and_named() {
    let Some(env) = Env::new() else { return };
    let root = env.mountpoint();
    fs::create_dir_all(root.join("dir")).unwrap();
    fs::write(root.join("dir/file"), "written into nothing").unwrap();
    let started = env.workspace(&["start", "--from", "project"]);
    let kept = env.home().join("aside/project");
    let kept = fs::read_dir(kept).unwrap().next().unwrap().unwrap().path();
    assert_eq!(
        fs::read(kept.join("dir/file")).unwrap(),
        b"written into nothing"
    );
    for told in [started, env.workspace(&["status", "project"])] {
        assert!(told.err.contains(kept.to_str().unwrap()), "{told:?}");
        told.ok();
    }
    assert!(!root.join("dir").exists());
    env.workspace(&["stop", "project"]).ok();
    env.workspace(&["delete", "project", "--yes"]).ok();
    assert!(kept.join("dir/file").exists());
}

#[test]
fn a_directory_that_was_given_stays_as_it_is() {
    let Some(env) = Env::new() else { return };
    let place = env.path("given");
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o750)).unwrap();
    env.workspace(&["start", "--from", "project", "--mount", "given"])
        .ok();
    env.workspace(&["stop", "project"]).ok();
    assert_eq!(
        place.metadata().unwrap().permissions().mode() & 0o7777,
        0o750
    );
    env.workspace(&["start", "project", "--mount", "made/deep"])
        .ok();
    env.kill_daemon();
    env.workspace(&["stop", "project"]).ok();
    assert!(!env.path("made").exists() && place.exists());
    assert!(mount::below(&env.path("")).is_empty());
}

#[test]
fn verbs_that_print_a_path_fail_where_the_mount_is_not_seen() {
    let Some(env) = Env::as_root() else { return };
    env.start();
    let elsewhere = Elsewhere::new(&env);
    let verbs: [&[&str]; 4] = [
        &["workspace", "status", "project"],
        &["workspace", "start", "project"],
        &["branch", "create", "b", "-w", "project"],
        &["branch", "list", "-w", "project"],
    ];
    for verb in verbs {
        elsewhere
            .unmounted(&env, verb)
            .fails(1, "is not the mount that process");
    }
    let told = elsewhere.unmounted(&env, &["--json", "workspace", "list"]);
    let json: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    let message = json["error"]["message"].as_str().unwrap();
    assert!(told.status == 1 && message.contains("not visible here"));
    let listed = elsewhere.unmounted(&env, &["workspace", "list"]);
    assert_eq!(listed.status, 1, "{listed:?}");
    assert!(listed.out.contains("project\tstarted\t"), "{listed:?}");
    assert!(listed.err.contains("nsenter"), "{listed:?}");
    // What prints no path goes on, and nothing was made by what failed.
    elsewhere
        .unmounted(&env, &["workspace", "log", "project"])
        .ok();
    let branches = env.told(env.command(&env.path(""), &["branch", "list", "-w", "project"]));
    assert_eq!(branches.ok().lines().count(), 1);
    env.workspace(&["status", "project"]).ok();
}

#[test]
fn a_copy_of_the_mount_in_another_namespace_keeps_nothing_from_a_stop() {
    let Some(env) = Env::as_root() else { return };
    let root = env.start();
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(root.join("mapped"))
        .unwrap();
    file.set_len(4096).unwrap();
    let elsewhere = Elsewhere::new(&env);
    let mapping = Mapping::new(&file, 1).unwrap();
    mapping
        .word(0)
        .store(7, std::sync::atomic::Ordering::Release);
    drop((mapping, file));
    env.workspace(&["stop", "project"]).ok();
    drop(elsewhere);
    env.workspace(&["start", "project"]).ok();
    assert_eq!(
        fs::read(root.join("mapped")).unwrap()[..8],
        7u64.to_ne_bytes()
    );
}

#[test]
fn others_are_let_in_only_where_they_reach_the_project() {
    let Some(env) = Env::as_root() else { return };
    let allows = || {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let place = format!(" {} ", env.mountpoint().display());
        let line = table.lines().find(|line| line.contains(&place));
        line.unwrap().contains("allow_other")
    };
    let mode = |mode| {
        fs::set_permissions(env.project(), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o755);
    let told = env.workspace(&["start", "--from", "project"]);
    assert!(allows() && told.err.is_empty(), "{told:?}");
    env.workspace(&["stop"]).ok();
    mode(0o750);
    let told = env.workspace(&["start", "project"]);
    assert!(!allows() && told.err.contains("--allow-other"), "{told:?}");
    assert!(told.err.contains(env.project().to_str().unwrap()));
    env.workspace(&["stop"]).ok();
    let told = env.workspace(&["start", "project", "--allow-other"]);
    assert!(allows() && told.err.is_empty(), "{told:?}");
}

#[test]
fn a_stop_that_fails_says_that_nothing_is_mounted_and_loses_nothing() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    fs::write(root.join("file"), "kept").unwrap();
    // Where it would be noted that it is stopped.
    let [notes, away] = ["running", "away"].map(|name| env.home().join(name));
    fs::rename(&notes, &away).unwrap();
    let told = env.workspace(&["stop", "project"]);
    assert!(mount::workspaces_below(env.home()).is_empty());
    fs::rename(&away, &notes).unwrap();
    assert_eq!(told.status, 1, "{told:?}");
    assert!(told.err.contains("no longer mounted"), "{told:?}");
    assert!(told.err.contains("agentvfs start project"), "{told:?}");
    env.workspace(&["start", "project"]).ok();
    assert_eq!(fs::read(root.join("file")).unwrap(), b"kept");
}

#[test]
fn doctor_speaks_of_its_own_homes_mounts() {
    let Some(mut env) = Env::new() else { return };
    env.start();
    let ours = env.mountpoint();
    env.kill_daemon();
    let doctor = |env: &Env| env.told(env.command(Path::new("/"), &["doctor"])).out;
    assert!(doctor(&env).contains(&format!("{} is dead", ours.display())));
    env.set_home(env.path("other"));
    fs::create_dir(env.home()).unwrap();
    let told = doctor(&env);
    assert!(
        !told.contains(&format!("{} is dead", ours.display())),
        "{told}"
    );
    assert!(told.contains("ok\tother-mounts\t"), "{told}");
    assert!(!told.contains("kill -9"), "{told}");
}
