//! Workspaces that run without a mount: `start --no-mount`.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use tests::env::{Env, Told};
use tests::skip::{Want, skip};
use tests::user::{User, act_as};
use tests::{binary, mount};

const FILE: &str = "file";

fn made(env: &Env) {
    fs::write(env.project().join(FILE), "of the base\n").unwrap();
    start(
        env,
        &["--from", env.project().to_str().unwrap(), "--no-mount"],
    )
    .ok();
}

fn start(env: &Env, more: &[&str]) -> Told {
    env.workspace(&[&["start"], more].concat())
}

fn run(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.project(), args))
}

fn write(env: &Env, path: &str, text: &str) {
    let mut command = env.command(&env.project(), &["fs", "write", path]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    env.finish(child, "fs write").ok();
}

fn text(env: &Env, path: &str) -> String {
    run(env, &["fs", "cat", path]).ok()
}

/// Nothing of the home is mounted, and the workspace runs.
#[track_caller]
fn runs_unmounted(env: &Env) {
    assert!(mount::below(env.home()).is_empty());
    let info = &env.status();
    assert_eq!(info["status"], "started", "{info}");
}

#[test]
fn no_mount_is_named_where_there_is_none() {
    let Some(env) = Env::new() else { return };
    made(&env);
    let listed = run(&env, &["list"]).ok();
    let cells: Vec<_> = listed.split_whitespace().collect();
    assert_eq!(cells, ["project", "started", "-"]);
    let listed = run(&env, &["list", "--json"]).ok();
    assert!(
        listed.contains("project") && !listed.contains("\"mount\""),
        "{listed}"
    );
    let stopped = env.workspace(&["stop"]).ok();
    assert!(!stopped.contains("mount="), "{stopped}");
    // Where it will be, unless it is started without one again.
    let listed = run(&env, &["list"]).ok();
    let place = env.home().join("mnt/project");
    assert!(listed.contains(place.to_str().unwrap()), "{listed}");
}

#[test]
fn everything_but_paths_works_without_a_mount() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join(FILE), "of the base\n").unwrap();
    let args = ["--from", env.project().to_str().unwrap(), "--no-mount"].map(str::to_owned);
    let told = start(&env, &args.each_ref().map(String::as_str));
    let facts = told.ok();
    assert!(facts.contains("status=started\n"), "{facts}");
    assert!(
        !facts.contains("mount=") && !facts.contains("view="),
        "{facts}"
    );
    assert!(mount::below(env.home()).is_empty());
    run(&env, &["checkpoint", "one"]).id();
    write(&env, "new", "written\n");
    assert_eq!(text(&env, FILE), "of the base\n");
    assert!(run(&env, &["diff"]).ok().contains("new"));
    run(&env, &["rollback", "one"]).id_or_pending();
    run(&env, &["fs", "cat", "new"]).fails(1, "new");
    run(&env, &["switch", "main"]).fails(1, "runs without a mount");
    assert!(mount::below(env.home()).is_empty());
    env.workspace(&["stop"]).ok();
    assert!(mount::below(env.home()).is_empty());
}

#[test]
fn a_killed_daemon_loses_nothing_and_the_next_mounts_nothing() {
    let Some(env) = Env::new() else { return };
    made(&env);
    write(&env, "new", "written\n");
    env.kill_daemon();
    assert_eq!(text(&env, "new"), "written\n");
    assert!(mount::below(env.home()).is_empty());
    write(&env, "more", "again\n");
    env.kill_daemon();
    run(&env, &["checkpoint", "two"]).id();
    assert_eq!(text(&env, "more"), "again\n");
    assert!(mount::below(env.home()).is_empty());
    // What died without a mount is stopped in order, too.
    env.kill_daemon();
    env.workspace(&["stop"]).ok();
    let root = env.start();
    assert_eq!(fs::read_to_string(root.join("new")).unwrap(), "written\n");
}

#[test]
fn a_later_start_and_a_run_mount_it() {
    let Some(env) = Env::new() else { return };
    made(&env);
    write(&env, "new", "written\n");
    let out = run(&env, &["run", "--no-sandbox", "--", "cat", "new"]).ok();
    assert!(out.contains("written"), "{out}");
    assert_eq!(mount::workspaces_below(env.home()).len(), 1);
    // It runs with a mount now, which a start does not take away.
    let told = start(&env, &["--no-mount"]);
    assert!(told.err.contains("already running at"), "{told:?}");
    let facts = told.ok();
    assert!(facts.contains("mount="), "{facts}");
    env.workspace(&["stop"]).ok();
    start(&env, &["project", "--no-mount"]).ok();
    write(&env, "new", "again\n");
    env.kill_daemon();
    // Also where its daemon died.
    start(&env, &[]).ok();
    let places = mount::workspaces_below(env.home());
    assert_eq!(
        fs::read_to_string(places[0].join("new")).unwrap(),
        "again\n"
    );
}

#[test]
fn where_mounting_fails_it_runs_as_before() {
    let Some(env) = Env::new() else { return };
    made(&env);
    write(&env, "new", "written\n");
    let full = env.path("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("mine"), "").unwrap();
    start(&env, &["project", "--mount", full.to_str().unwrap()]).fails(1, "full");
    assert_eq!(text(&env, "new"), "written\n");
    runs_unmounted(&env);
    env.kill_daemon();
    assert_eq!(text(&env, "new"), "written\n");
    runs_unmounted(&env);
}

#[test]
fn what_needs_a_mount_is_refused() {
    let Some(env) = Env::as_root() else { return };
    let project = env.project();
    let from = ["--from", project.to_str().unwrap(), "--no-mount"];
    for (more, status) in [
        (&["--audit", "opens"][..], 1),
        (&["--telemetry", "fanotify"], 1),
        (&["--suid"], 2),
        (&["--mount", "/nowhere"], 2),
    ] {
        let told = start(&env, &[&from[..], more].concat());
        assert_eq!((told.status, told.out.as_str()), (status, ""), "{told:?}");
    }
    assert!(run(&env, &["list"]).ok().is_empty());
}

#[test]
fn a_daemon_of_another_build_goes_on_without_a_mount() {
    let Some(mut env) = Env::new() else { return };
    env.keep_mounts();
    made(&env);
    write(&env, "new", "written\n");
    let other = env.path("other");
    fs::create_dir(&other).unwrap();
    let root = env.path("at");
    let args = [
        "start",
        "--from",
        other.to_str().unwrap(),
        "--mount",
        root.to_str().unwrap(),
    ];
    run(&env, &args).ok();
    let held = fs::File::create(root.join("held")).unwrap();
    let new = binary::other_build(&env.path("agentvfs-new"));
    let mut command = env.program(&new);
    command.current_dir(&other).args(["start", "other"]);
    env.told(command).ok();
    // The other one's mount was not given up for it.
    (&held).write_all(b"on").unwrap();
    assert_eq!(text(&env, "new"), "written\n");
    assert_eq!(fs::read_to_string(root.join("held")).unwrap(), "on");
}

/// A mount namespace in which nobody can mount by FUSE.
const NO_FUSE: &str =
    "mount --bind /dev/fuse /dev/fuse && mount -o remount,bind,nodev /dev/fuse && exec \"$@\"";

/// A mount namespace in which `NOBODY`, who runs the command, may not open the device.
const FORBIDDEN: &str =
    "rm -f \"$TMPDIR/fuse\" && mknod -m 600 \"$TMPDIR/fuse\" c 10 229 && mount --bind \"$TMPDIR/fuse\" /dev/fuse &&
    exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"";

/// Runs `agentvfs` in a mount namespace that `script` prepares.
fn within(script: &str, env: &Env, args: &[&str]) -> Told {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(binary::agentvfs())
        .args(args);
    let like = env.command(&env.project(), &[]);
    command.current_dir(env.project()).env_clear();
    for (key, value) in like.get_envs() {
        if let Some(value) = value {
            command.env(key, value);
        }
    }
    command.process_group(0);
    env.told(command)
}

#[test]
fn without_fuse_the_error_says_that_it_can_run_without() {
    let Some(env) = Env::as_root() else { return };
    let project = env.project();
    let from = ["start", "--from", project.to_str().unwrap()];
    let told = within(NO_FUSE, &env, &from);
    assert_eq!(told.status, 1, "{told:?}");
    assert!(told.err.contains("start --no-mount"), "{told:?}");
    within(NO_FUSE, &env, &[&from[..], &["--no-mount"]].concat()).ok();
    write(&env, "new", "written\n");
    assert_eq!(text(&env, "new"), "written\n");
}

#[test]
fn whoever_may_not_open_the_device_is_told_so() {
    let Some(env) = Env::as_root() else { return };
    let nobody = User {
        uid: 65534,
        gid: 65534,
        groups: &[],
    };
    if !act_as(nobody, || binary::agentvfs().exists()) || !mount::found("setpriv") {
        return skip(Want::Machine, "others cannot reach the program");
    }
    for name in ["", "project", "user", "tmp"] {
        std::os::unix::fs::chown(env.path(name), Some(65534), Some(65534)).unwrap();
    }
    let project = env.project();
    let from = ["start", "--from", project.to_str().unwrap()];
    let told = within(FORBIDDEN, &env, &from);
    assert!(told.err.contains("chmod 0666 /dev/fuse"), "{told:?}");
    told.fails(1, "/dev/fuse: Permission denied");
    within(FORBIDDEN, &env, &[&from[..], &["--no-mount"]].concat()).ok();
}
