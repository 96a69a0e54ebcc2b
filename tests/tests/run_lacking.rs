//! `agentvfs run` on kernels that lack a part of the sandbox, and without a sandbox.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use std::fs;
use tests::binary;
use tests::env::{Env, Told};
use tests::sandbox::{self, run};

/// `agentvfs run …` on a kernel that seems to lack a system call.
fn run_lacking(env: &Env, call: &str, args: &[&str]) -> Told {
    let mut command = env.program(env!("CARGO_BIN_EXE_lacking"));
    command.arg(call).arg(binary::agentvfs()).arg("run");
    command.args(args).current_dir(env.project());
    env.told(command)
}

#[test]
fn what_a_kernel_lacks_is_said_before_anything_starts() {
    let Some(env) = sandbox::env(&[]) else { return };
    let touch = ["--session", "s", "--", "touch", "ran"];
    for (call, what) in [
        ("landlock", "landlock-scopes"),
        ("user-namespace", "namespaces"),
    ] {
        let told = run_lacking(&env, call, &touch);
        told.fails(125, what);
    }
    // Without a namespace of its own nothing can be shown at the project's path.
    run_lacking(
        &env,
        "user-namespace",
        &[&["--best-effort"], &touch[..]].concat(),
    )
    .fails(125, "namespaces");
    let ran = env.mountpoint().join(".agentvfs/branches/s/ran");
    assert!(!ran.exists());
    let told = run_lacking(&env, "landlock", &["--best-effort", "--strict", "true"]);
    assert_eq!(told.status, 0, "{told:?}");
    for layer in ["landlock-scopes", "landlock-files"] {
        assert!(told.err.contains(layer), "{told:?}");
    }
}

#[test]
fn best_effort_leaves_out_what_the_kernel_lacks_and_nothing_else() {
    let Some(env) = sandbox::env(&[]) else { return };
    fs::write(env.path("plain"), "own").unwrap();
    let report = env.path("tmp/report");
    let script = "echo x > ../plain; unshare --user true && echo user; echo done > done";
    let options = ["--best-effort", "--strict", "--session", "s", "--report"];
    let args = [
        &options[..],
        &[report.to_str().unwrap(), "--", "sh", "-c", script],
    ]
    .concat();
    let layers = |told: &Told| -> (Vec<Value>, Vec<Value>) {
        assert_eq!((told.status, told.out.as_str()), (0, ""), "{told:?}");
        let report: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
        let list = |key: &str| report[key].as_array().unwrap().clone();
        (list("sandbox"), list("lacking"))
    };
    let (all, none) = layers(&run(&env, &args));
    assert_eq!(none, [json!(null); 0]);
    let (mut some, lacking) = layers(&run_lacking(&env, "landlock", &args));
    assert_eq!(lacking.len(), 2, "{lacking:?}");
    some.extend([json!("landlock-scopes"), json!("landlock-files")]);
    let sorted = |list: Vec<Value>| {
        let mut names: Vec<String> = list.iter().map(Value::to_string).collect();
        names.sort();
        names
    };
    assert_eq!(sorted(some), sorted(all));
    assert_eq!(fs::read_to_string(env.path("plain")).unwrap(), "own");
    let view = env.mountpoint().join(".agentvfs/branches/s");
    assert_eq!(fs::read_to_string(view.join("done")).unwrap(), "done\n");
}

#[test]
fn without_a_sandbox_the_branch_is_shown_and_the_rest_is_as_outside() {
    let Some(env) = sandbox::env(&[("f", "base")]) else {
        return;
    };
    fs::create_dir(env.path("user/.ssh")).unwrap();
    fs::write(env.path("user/.ssh/id"), "secret").unwrap();
    let report = env.path("tmp/report");
    let script = "cat ~/.ssh/id f; echo branch > f; echo x > ../outside; agentvfs checkpoint in";
    let path = format!(
        "{}:/usr/bin:/bin",
        binary::agentvfs().parent().unwrap().display()
    );
    let path = format!("PATH={path}");
    let args = [
        "--no-sandbox",
        "--session",
        "s",
        "--report",
        report.to_str().unwrap(),
        "--env",
        &path,
        "--",
        "sh",
        "-c",
        script,
    ];
    let told = run(&env, &args);
    assert_eq!(told.status, 0, "{told:?}");
    assert!(told.out.starts_with("secretbase"), "{told:?}");
    assert!(told.err.contains("no sandbox"), "{told:?}");
    assert_eq!(fs::read_to_string(env.project().join("f")).unwrap(), "base");
    let view = env.mountpoint().join(".agentvfs/branches/s");
    assert_eq!(fs::read_to_string(view.join("f")).unwrap(), "branch\n");
    assert_eq!(fs::read_to_string(env.path("outside")).unwrap(), "x\n");
    assert!(view.join(".agentvfs/snapshots/in/f").exists());
    let report: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    let layers = report["sandbox"].to_string();
    assert!(layers.contains("mount-namespace") && !layers.contains("seccomp"));
    // What a command wrote is not trusted, whatever it could do.
    let told = run(
        &env,
        &[
            "--no-sandbox",
            "--session",
            "s",
            "sh",
            "-c",
            "echo x > .envrc",
        ],
    );
    assert_eq!(told.status, 0, "{told:?}");
    let told = env.workspace(&["apply", "-w", "project", "--branch", "s"]);
    assert!(told.err.contains(".envrc"), "{told:?}");
}

#[test]
fn options_of_a_sandbox_need_one() {
    let Some(env) = sandbox::env(&[]) else { return };
    for options in [&["--strict"][..], &["--net", "none"], &["--hide", "f"]] {
        let told = run(&env, &[&["--no-sandbox"], options, &["true"]].concat());
        assert_eq!(told.status, 2, "{told:?}");
    }
    let missing = env.path("missing");
    let args = ["--no-sandbox", "--at", missing.to_str().unwrap(), "true"];
    let told = run(&env, &args);
    assert_eq!(told.status, 125, "{told:?}");
    assert!(!missing.exists());
}
