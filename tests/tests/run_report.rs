//! `agentvfs run --report`: what programs are told of a run.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tests::env::{Env, Told};
use tests::sandbox::{self, Going, run};

fn report(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// A shell in session `s` with a report at `path`.
fn reported(env: &Env, path: &Path, options: &[&str], script: &str) -> Told {
    let path = path.to_str().unwrap();
    let args = [
        &["--session", "s", "--report", path],
        options,
        &["--", "sh", "-c", script],
    ];
    run(env, &args.concat())
}

/// The directory has the report and nothing else.
#[track_caller]
fn alone(path: &Path) {
    let entries = path.parent().unwrap().read_dir().unwrap();
    let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [path.file_name().unwrap()]);
}

#[test]
fn a_report_says_what_ran_and_what_became_of_it() {
    let Some(env) = sandbox::env(&[
        ("changed", "a\n"),
        ("deleted", "gone\n"),
        ("old", "another text\n"),
    ]) else {
        return;
    };
    fs::create_dir(env.path("out")).unwrap();
    let path = env.path("out/report.json");
    let script = "echo b > changed; rm deleted; mv old new; echo x > added; exit 3";
    let told = reported(&env, &path, &["--net", "none"], script);
    assert_eq!(told.status, 3, "{told:?}");
    alone(&path);
    let told = report(&path);
    let paths = |kind: &str| -> Vec<String> {
        let all = told["changes"][kind].as_array().unwrap();
        all.iter()
            .map(|change| change["path"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(paths("added"), ["added"]);
    assert_eq!(paths("modified"), ["changed"]);
    assert_eq!(paths("deleted"), ["deleted"]);
    assert_eq!(paths("renamed"), ["new"]);
    for (key, value) in [
        ("workspace", json!("project")),
        ("branch", json!("s")),
        ("session", json!("s")),
        ("command", json!(["sh", "-c", script])),
        ("cwd", json!(env.project())),
        ("exit", json!(3)),
        ("signal", json!(null)),
        ("timed_out", json!(false)),
        ("error", json!(null)),
        ("outside", json!([])),
        ("then", json!({ "what": "keep", "done": true, "why": null })),
    ] {
        assert_eq!(told[key], value, "{key} of {told}");
    }
    let layers = told["sandbox"].as_array().unwrap();
    assert!(layers.contains(&json!("seccomp")) && layers.contains(&json!("network-namespace")));
    assert!(told["duration_ms"].is_u64() && told["started"].as_str().unwrap().ends_with('Z'));
    // The commits are those that have the run's name, from before the command and from after it.
    let log = [
        "workspace",
        "log",
        "--all",
        "--json",
        "-w",
        "project",
        "--branch",
        "s",
    ];
    let log: Value =
        serde_json::from_str(&env.told(env.command(&env.project(), &log)).ok()).unwrap();
    let of = |id: &Value| {
        let commits = log["commits"].as_array().unwrap();
        let mut found = commits.iter().filter(|commit| commit["commit"] == *id);
        found
            .next()
            .unwrap_or_else(|| panic!("{id} in {log}"))
            .clone()
    };
    assert_eq!(of(&told["after"])["meta"]["exit"], "3");
    assert_eq!(of(&told["after"])["meta"]["run-end"], told["run"]);
    assert_eq!(of(&told["before"])["meta"]["run"], told["run"]);
    assert!(told["before"] != told["after"]);
}

#[test]
fn a_report_replaces_the_one_before_and_says_what_was_done_then() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    fs::create_dir(env.path("out")).unwrap();
    let path = env.path("out/report");
    fs::write(
        &path,
        "an old and long text that is no report\n".repeat(100),
    )
    .unwrap();
    reported(&env, &path, &["--then", "apply"], "echo x > f").ok();
    let told = report(&path);
    assert_eq!(
        told["then"],
        json!({ "what": "apply", "done": true, "why": null })
    );
    let failed = reported(&env, &path, &["--then", "apply"], "echo x > .envrc");
    assert_eq!(failed.status, 125, "{failed:?}");
    let told = report(&path);
    assert_eq!(
        (&told["exit"], &told["then"]["done"]),
        (&json!(0), &json!(false))
    );
    assert!(
        told["then"]["why"].as_str().unwrap().contains(".envrc"),
        "{told}"
    );
    reported(&env, &path, &["--then", "apply"], "exit 3");
    assert_eq!(report(&path)["then"]["why"], "the command failed");
    let killed = reported(&env, &path, &[], "kill -9 $$");
    assert_eq!(killed.status, 137, "{killed:?}");
    let told = report(&path);
    assert_eq!((&told["exit"], &told["signal"]), (&json!(null), &json!(9)));
    let late = reported(&env, &path, &["--time", "1s"], "sleep 600");
    assert_eq!(late.status, 124, "{late:?}");
    let told = report(&path);
    assert_eq!(
        (&told["exit"], &told["timed_out"]),
        (&json!(124), &json!(true))
    );
    alone(&path);
    // The branch that is told of may be gone.
    let text = path.to_str().unwrap();
    run(&env, &["--report", text, "--", "true"]).ok();
    let told = report(&path);
    assert!(
        told["branch"].as_str().unwrap().starts_with("run-"),
        "{told}"
    );
    assert!(
        told["before"].is_string() && told["after"].is_string(),
        "{told}"
    );
}

#[test]
fn a_report_that_cannot_be_written_is_found_before_the_command_runs() {
    let Some(env) = sandbox::env(&[]) else { return };
    fs::create_dir(env.path("out")).unwrap();
    for path in [
        "no/such/dir/report",
        "out",
        "/dev/full",
        "/",
        "/proc/report",
    ] {
        let path = match path.starts_with('/') {
            true => path.into(),
            false => env.path(path),
        };
        let told = reported(&env, &path, &[], "echo ran > ran");
        assert!(
            told.status == 2 && told.err.contains("cannot write the report"),
            "{path:?}: {told:?}"
        );
    }
    assert!(!env.mountpoint().join(".agentvfs/branches/s").exists());
    assert_eq!(env.path("out").read_dir().unwrap().count(), 0);
}

#[test]
fn a_command_cannot_lead_its_report_elsewhere() {
    let Some(env) = sandbox::env(&[]) else { return };
    for dir in ["out", "victim"] {
        fs::create_dir(env.path(dir)).unwrap();
    }
    fs::write(env.path("victim/report"), "precious\n").unwrap();
    let (out, victim) = (env.path("out"), env.path("victim"));
    let allow = ["--allow", out.to_str().unwrap()];
    let script = format!(
        "cd {}; ln -s {}/report report; for n in 1 2 3; do ln -s {}/report .agentvfs-report-$n.tmp~; done",
        out.display(),
        victim.display(),
        victim.display()
    );
    reported(&env, &out.join("report"), &allow, &script).ok();
    assert_eq!(
        fs::read_to_string(env.path("victim/report")).unwrap(),
        "precious\n"
    );
    assert_eq!(report(&out.join("report"))["exit"], 0);
    assert!(!out.join("report").is_symlink());
}

#[test]
fn a_killed_run_leaves_the_report_before() {
    let Some(env) = sandbox::env(&[]) else { return };
    fs::create_dir(env.path("out")).unwrap();
    let path = env.path("out/report");
    reported(&env, &path, &[], "exit 3");
    let mark = sandbox::mark();
    let text = path.to_str().unwrap();
    let going = Going::start_with(
        &env,
        &["--session", "s", "--report", text],
        "s",
        &mark,
        "true",
    );
    let run = rustix::process::Pid::from_child(&going.child);
    rustix::process::kill_process(run, rustix::process::Signal::KILL).unwrap();
    going.finish(&env);
    assert_eq!(report(&path)["exit"], 3);
    alone(&path);
}
