//! `.agentvfs/view` leads each process to the branch that its control group is registered for.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tests::env::{Env, Told};
use tests::skip::{Want, skip};
use tests::{mount, wait};

/// A control group that is removed in the end, with one in it.
struct Group(PathBuf);

impl Group {
    fn new(above: &Path, name: &str) -> Option<Group> {
        let place = above.join(format!("agentvfs-test-{}-{name}", std::process::id()));
        fs::create_dir(&place).ok()?;
        place.join("cgroup.procs").exists().then_some(Group(place))
    }

    fn inner(&self, name: &str) -> Group {
        let place = self.0.join(name);
        fs::create_dir(&place).unwrap();
        Group(place)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Removes it; processes that were in it may take a moment to be gone.
    fn remove(&self) {
        wait::until("the cgroup is empty", || fs::remove_dir(&self.0).is_ok());
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.0.exists() && !std::thread::panicking() {
            self.remove();
        }
    }
}

/// Groups of our own in the hierarchies of this machine: one of version 2, one of version 1.
fn groups(name: &str) -> Vec<Group> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let of = |kind: &str| {
        let mut mounts = table.lines().filter(|line| line.contains(kind));
        mounts.find_map(|line| Group::new(Path::new(line.split(' ').nth(4)?), name))
    };
    let found: Vec<Group> = [" - cgroup2 ", " - cgroup "]
        .into_iter()
        .filter_map(of)
        .collect();
    if found.is_empty() {
        skip(Want::Machine, "no cgroup can be made on this machine");
    }
    found
}

fn session(env: &Env, args: &[&str]) -> Told {
    let args: Vec<&str> = ["session"].iter().chain(args).copied().collect();
    env.told(env.command(&env.path(""), &args))
}

fn branch(env: &Env, args: &[&str]) -> Told {
    let args: Vec<&str> = ["branch"].iter().chain(args).copied().collect();
    env.told(env.command(&env.path(""), &args))
}

/// What a process of a group reads through the view.
fn seen(env: &Env, group: &Path) -> String {
    let mut shell = env.program("sh");
    let script = "echo $$ > \"$0/cgroup.procs\" && cat \"$1/.agentvfs/view/who\"";
    shell.args(["-ec", script]).arg(group).arg(env.mountpoint());
    env.told(shell).ok()
}

fn start(env: &Env) {
    let root = env.start();
    fs::write(root.join("who"), "main").unwrap();
    for name in ["a", "b"] {
        branch(env, &["create", name]).ok();
        fs::write(root.join(".agentvfs/branches").join(name).join("who"), name).unwrap();
    }
}

#[test]
fn one_path_shows_each_group_its_branch() {
    let Some(env) = Env::new() else { return };
    start(&env);
    let view = env.mountpoint().join(".agentvfs/view");
    for group in groups("one") {
        let inner = group.inner("inner");
        let deepest = inner.inner("deepest");
        assert_eq!(seen(&env, &group.0), "main");
        let told = session(
            &env,
            &["register", "--cgroup", group.path(), "--branch", "a"],
        )
        .ok();
        assert!(
            told.starts_with(&format!("view={}\n", view.display())),
            "{told}"
        );
        assert_eq!(seen(&env, &deepest.0), "a");
        session(
            &env,
            &["register", "--cgroup", inner.path(), "--branch", "b"],
        )
        .ok();
        assert_eq!(seen(&env, &group.0), "a");
        assert_eq!(seen(&env, &deepest.0), "b");
        assert_eq!(fs::read_to_string(view.join("who")).unwrap(), "main");
        assert_eq!(fs::read_link(&view).unwrap().as_os_str().as_bytes(), b"..");
        session(&env, &["unregister", "--cgroup", inner.path()]).ok();
        assert_eq!(seen(&env, &deepest.0), "a");
        session(
            &env,
            &["register", "--cgroup", group.path(), "--branch", "b"],
        )
        .ok();
        assert_eq!(seen(&env, &deepest.0), "b");
        session(&env, &["unregister", "--cgroup", group.path()]).ok();
        assert_eq!(seen(&env, &deepest.0), "main");
        session(&env, &["unregister", "--cgroup", group.path()]).fails(1, "not registered");
        deepest.remove();
        inner.remove();
    }
}

#[test]
fn registrations_outlive_the_daemon_and_the_mount_but_not_their_group() {
    let Some(env) = Env::new() else { return };
    start(&env);
    for group in groups("kept") {
        session(
            &env,
            &["register", "--cgroup", group.path(), "--branch", "a"],
        )
        .ok();
        let row = format!("{}\ta\tproject\n", group.path());
        env.kill_daemon();
        env.workspace(&["start", "project"]).ok();
        assert_eq!(seen(&env, &group.0), "a");
        env.workspace(&["stop", "project"]).ok();
        assert_eq!(session(&env, &["list"]).ok(), row);
        env.workspace(&["start", "project"]).ok();
        assert_eq!(seen(&env, &group.0), "a");
        group.remove();
        fs::create_dir(&group.0).unwrap();
        assert_eq!(
            seen(&env, &group.0),
            "main",
            "another group of the same name"
        );
        assert_eq!(session(&env, &["list"]).ok(), "");
        branch(&env, &["rename", "a", "c"]).ok();
        branch(&env, &["rename", "c", "a"]).ok();
    }
}

#[test]
fn branch_of_a_group_is_renamed_with_it_and_not_deleted() {
    let Some(env) = Env::new() else { return };
    start(&env);
    for group in groups("used") {
        session(
            &env,
            &["register", "--cgroup", group.path(), "--branch", "a"],
        )
        .ok();
        branch(&env, &["delete", "a"]).fails(1, group.path());
        branch(&env, &["rename", "a", "c"]).ok();
        assert_eq!(seen(&env, &group.0), "a");
        let listed = session(&env, &["list", "--json"]).ok();
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(listed["sessions"][0]["branch"], "c");
        branch(&env, &["delete", "c"]).fails(1, group.path());
        group.remove();
        branch(&env, &["delete", "c"]).ok();
        branch(&env, &["create", "a", "--branch", "b"]).ok();
        let root = env.mountpoint().join(".agentvfs/branches/a/who");
        fs::write(root, "a").unwrap();
    }
}

#[test]
fn what_cannot_be_registered_is_refused() {
    let Some(env) = Env::new() else { return };
    start(&env);
    let register =
        |path: &str, name: &str| session(&env, &["register", "--cgroup", path, "--branch", name]);
    register("/sys/fs/cgroup/none/at/all", "a").fails(1, "does not exist");
    register(env.project().to_str().unwrap(), "a").fails(1, "not the directory of a cgroup");
    register("/proc/self/cgroup", "a").fails(1, "not the directory of a cgroup");
    for group in groups("bad") {
        register(group.path(), "none").fails(1, "none");
        let procs = group.0.join("cgroup.procs");
        register(procs.to_str().unwrap(), "a").fails(1, "not the directory of a cgroup");
        if mount::is_root() {
            std::os::unix::fs::chown(&group.0, Some(12345), None).unwrap();
            register(group.path(), "a").fails(1, "another user");
        }
    }
    assert_eq!(session(&env, &["list"]).ok(), "");
    let told = session(&env, &["register", "--branch", "a"]);
    assert_eq!((told.status, told.out.as_str()), (2, ""));
}

#[test]
fn deleted_workspace_takes_its_registrations_with_it() {
    let Some(env) = Env::new() else { return };
    start(&env);
    for group in groups("gone") {
        session(
            &env,
            &["register", "--cgroup", group.path(), "--branch", "a"],
        )
        .ok();
        env.workspace(&["stop", "project"]).ok();
        env.workspace(&["delete", "project", "--yes"]).ok();
        assert_eq!(session(&env, &["list"]).ok(), "");
        start(&env);
        assert_eq!(seen(&env, &group.0), "main");
    }
}
