//! What commands show on a terminal, which script(1) makes.

use crate::env::Env;
use crate::skip::{Want, skip};
use std::fs;
use std::path::PathBuf;

/// What a command shows on a terminal of so many columns; `None`, with the reason printed, where none can be made.
pub fn shown(env: &Env, columns: u16, variables: &[(&str, &str)], line: &str) -> Option<String> {
    if !crate::mount::found("script") {
        skip(
            Want::Machine,
            "script(1), which makes a terminal, is missing",
        );
        return None;
    }
    let program = crate::binary::agentvfs().display().to_string();
    let mut script = env.program("script");
    script
        .args([
            "-qec",
            &format!("stty cols {columns}; {program} {line}"),
            "/dev/null",
        ])
        .env("TERM", "xterm")
        .env("LC_ALL", "C.UTF-8")
        .envs(variables.iter().copied());
    Some(env.told(script).ok().replace('\r', ""))
}

/// A workspace whose main has a merge, a rollback and an automatic commit; gives its directory in the mount.
pub fn with_history(env: &Env) -> PathBuf {
    fs::write(env.project().join("f"), "0").unwrap();
    let root = env.start();
    env.imported();
    let run = |args: &[&str]| env.told(env.command(&env.project(), args)).ok();
    // No other automatic commits than those of the commands below.
    run(&["config", "auto-idle=off", "auto-busy=off"]);
    fs::write(root.join("f"), "1").unwrap();
    run(&["checkpoint", "one", "-m", "first\nsecond line"]);
    run(&["branch", "create", "fix"]);
    fs::write(root.join(".agentvfs/branches/fix/g"), "fix").unwrap();
    run(&["--branch", "fix", "checkpoint", "fixed"]);
    fs::write(root.join("f"), "2").unwrap();
    run(&["checkpoint", "two"]);
    run(&["merge", "fix"]);
    fs::write(root.join("f"), "3").unwrap();
    run(&["rollback", "one"]);
    fs::write(root.join("f"), "4").unwrap();
    run(&["checkpoint", "four", "-m", "\u{1b}[2J\u{202e}"]);
    root
}
