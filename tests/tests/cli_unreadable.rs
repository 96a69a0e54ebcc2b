//! A file of the project that the daemon may not read: commits are made without it, status and the commit
//! name it, and it is taken in once it can be read.

#![allow(clippy::unwrap_used)]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use tests::env::Env;
use tests::skip::{Want, skip};
use tests::{binary, mount};

/// `agentvfs workspace start` such that the daemon obeys permission bits: a plain one for ordinary users,
/// for root one without the capabilities to do otherwise.
fn start(env: &Env) -> Option<Command> {
    let words = ["workspace", "start", "--from", "project"];
    if !mount::is_root() {
        return Some(env.command(&env.path(""), &words));
    }
    if !mount::found("setpriv") {
        skip(Want::Machine, "there is no setpriv");
        return None;
    }
    let mut command = env.program("setpriv");
    command
        .arg("--bounding-set=-dac_override,-dac_read_search")
        .arg(binary::agentvfs())
        .args(words);
    Some(command)
}

#[test]
fn unreadable_file_is_left_out_and_named_and_costs_nothing_else() {
    let Some(env) = Env::new() else { return };
    let secret = env.project().join("secret");
    fs::write(env.project().join("good"), "good").unwrap();
    fs::write(&secret, "nobody reads this").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o000)).unwrap();
    let Some(start) = start(&env) else { return };
    env.told(start).ok();
    let root = env.mountpoint();
    let told = env.workspace(&["checkpoint", "first"]);
    assert!(told.err.contains("leaves out secret"), "{told:?}");
    told.id();
    let json = env.workspace(&["checkpoint", "second", "--json"]).ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["unreadable"][0]["path"], "secret");
    let status = env.status();
    assert_eq!(status["unreadable"][0]["path"], "secret");
    assert_eq!(status["import"]["state"], "done");
    let told = env.workspace(&["status", "project"]);
    assert!(
        told.err.contains("secret") && !told.err.contains("free space"),
        "{told:?}"
    );
    assert_eq!(told.status, 0);
    fs::write(root.join("good"), "changed").unwrap();
    env.workspace(&["rollback"]).id();
    assert_eq!(fs::read(root.join("good")).unwrap(), b"good");
    fs::set_permissions(&secret, Permissions::from_mode(0o644)).unwrap();
    env.workspace(&["update", "project"]).ok();
    assert_eq!(fs::read(root.join("secret")).unwrap(), b"nobody reads this");
    assert_eq!(env.status()["unreadable"].as_array().unwrap().len(), 0);
    env.workspace(&["stop", "project"]).ok();
}
