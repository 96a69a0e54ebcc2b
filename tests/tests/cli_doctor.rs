//! `agentvfs doctor`: what it finds on this machine and in a home, and that it changes nothing.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use tests::env::{Env, Told};

fn doctor(env: &Env, args: &[&str]) -> Told {
    let args: Vec<&str> = ["doctor"].iter().chain(args).copied().collect();
    env.told(env.command(&env.path(""), &args))
}

/// The findings of a check: grade and fix.
fn findings(env: &Env, check: &str) -> Vec<(String, Value)> {
    let json: Value = serde_json::from_str(&doctor(env, &["--json"]).out).unwrap();
    let all = json["checks"].as_array().unwrap().iter();
    all.filter(|f| f["check"] == check)
        .map(|f| (f["grade"].as_str().unwrap().to_owned(), f["fix"].clone()))
        .collect()
}

#[test]
fn a_machine_that_can_mount_is_healthy_and_nothing_is_made() {
    let Some(env) = Env::new() else { return };
    let told = doctor(&env, &[]);
    let broken: Vec<&str> = told
        .out
        .lines()
        .filter(|l| l.starts_with("broken\t"))
        .collect();
    assert_eq!(told.status, i32::from(!broken.is_empty()), "{told:?}");
    for check in ["fuse-device", "mount", "kernel"] {
        assert!(told.out.contains(&format!("ok\t{check}\t")), "{}", told.out);
    }
    assert!(
        told.out.lines().all(|row| row.split('\t').count() == 4),
        "{}",
        told.out
    );
    assert!(!env.home().exists(), "a home was made");
    assert!(env.daemons().is_empty(), "a daemon was started");
    let nul = doctor(&env, &["-z"]).out;
    assert_eq!(nul.matches('\0').count(), told.out.lines().count());
}

#[test]
fn dead_mount_is_found_and_the_fix_works() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("file"), "x").unwrap();
    env.start();
    // Other mounts of this machine are nobody's business here.
    let place = env.mountpoint().display().to_string();
    assert!(!doctor(&env, &[]).out.contains(&place));
    assert_eq!(findings(&env, "daemon")[0].0, "ok");
    env.kill_daemon();
    let told = doctor(&env, &[]);
    assert_eq!(told.status, 1, "{told:?}");
    let mount = env.mountpoint();
    let row = told
        .out
        .lines()
        .find(|l| l.contains(mount.to_str().unwrap()))
        .unwrap();
    assert!(row.starts_with("broken\tmounts\t"), "{row}");
    assert!(row.contains("agentvfs start project"), "{row}");
    assert!(env.daemons().is_empty(), "a daemon was started");
    env.workspace(&["start", "project"]).ok();
    assert!(
        !doctor(&env, &[])
            .out
            .contains(&format!("{} is dead", mount.display()))
    );
    assert_eq!(fs::read(mount.join("file")).unwrap(), b"x");
}

#[test]
fn home_of_the_wrong_kind_is_named() {
    let Some(env) = Env::new() else { return };
    fs::write(env.home(), "a file").unwrap();
    assert_eq!(findings(&env, "home")[0].0, "broken");
    fs::remove_file(env.home()).unwrap();
    fs::create_dir(env.home()).unwrap();
    fs::set_permissions(env.home(), fs::Permissions::from_mode(0o777)).unwrap();
    let (grade, fix) = findings(&env, "home").remove(0);
    assert_eq!(grade, "warning");
    assert!(fix.as_str().unwrap().starts_with("chmod go-w "), "{fix}");
    assert_eq!(
        fs::read_dir(env.home()).unwrap().count(),
        0,
        "something was left"
    );
}

#[test]
fn full_disk_is_found() {
    let Some(mut env) = Env::as_root() else {
        return;
    };
    let place = env.path("small");
    tests::mount::memory(&place, 1 << 20);
    env.set_home(place.join("home"));
    fs::create_dir(env.home()).unwrap();
    assert_eq!(findings(&env, "disk-space")[0].0, "broken");
    assert_eq!(findings(&env, "file-system")[0].0, "warning");
    assert_eq!(doctor(&env, &[]).status, 1);
}
