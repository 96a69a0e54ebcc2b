//! What commands say: errors as objects, words that name the right thing, hints that can be typed.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs;
use std::path::Path;
use tests::env::{Env, Told};
use tests::wait;

/// `agentvfs …` in the environment's directory.
fn agentvfs(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

/// The error that a command tells on standard output with `--json`; its text is on standard error all the same.
#[track_caller]
fn error(env: &Env, status: i32, args: &[&str]) -> Value {
    let told = agentvfs(env, &[args, &["--json"]].concat());
    assert_eq!(told.status, status, "{told:?}");
    let object: Value = serde_json::from_str(&told.out).unwrap_or_else(|_| panic!("{told:?}"));
    assert_eq!(object.as_object().unwrap().len(), 1, "{told:?}");
    let error = object["error"].clone();
    let message = error["message"].as_str().unwrap();
    assert!(
        told.err.starts_with(&format!("agentvfs: {message}")),
        "{told:?}"
    );
    if let Some(hint) = error["hint"].as_str() {
        assert!(told.err.contains(&format!("hint: {hint}")), "{told:?}");
    }
    error
}

#[test]
fn errors_are_objects_with_json() {
    let Some(env) = Env::new() else { return };
    let kind = |status: i32, args: &[&str]| error(&env, status, args)["kind"].clone();
    assert_eq!(kind(1, &["workspace", "status", "w"]), "no-such-workspace");
    fs::write(env.project().join("f"), "x").unwrap();
    env.start();
    assert_eq!(kind(2, &["workspace", "frobnicate"]), "usage");
    assert_eq!(kind(2, &["workspace", "start", "a", "b"]), "usage");
    assert_eq!(kind(2, &["workspace", "checkpoint", "bad/label"]), "usage");
    assert_eq!(
        kind(1, &["workspace", "rollback", "nowhere"]),
        "no-such-ref"
    );
    assert_eq!(kind(1, &["fs", "cat", "nothing"]), "no-such-path");
    assert_eq!(kind(1, &["kv", "delete", "nothing"]), "no-such-key");
    assert_eq!(kind(1, &["branch", "delete", "nothing"]), "no-such-branch");
    fs::create_dir(env.path("other")).unwrap();
    env.workspace(&["start", "--from", "other"]).ok();
    let error = error(&env, 1, &["workspace", "log"]);
    assert_eq!(error["kind"], "ambiguous-workspace");
    assert!(error["hint"].as_str().unwrap().contains("--workspace NAME"));
}

#[test]
fn a_home_that_cannot_be_read_is_an_error() {
    let Some(env) = Env::new() else { return };
    let file = env.path("file");
    fs::write(&file, "").unwrap();
    let root = file.display().to_string();
    for args in [
        &["workspace", "list"][..],
        &["workspace", "status", "w"],
        &["fsck"],
    ] {
        let told = agentvfs(&env, &[args, &["--root", &root]].concat());
        told.fails(3, &format!("{root}: Not a directory"));
    }
    assert_eq!(
        error(&env, 3, &["workspace", "list", "--root", &root])["kind"],
        "home"
    );
}

#[test]
fn directories_of_the_kernel_are_refused_as_projects() {
    let Some(env) = Env::new() else { return };
    for place in ["/proc", "/sys", "/dev", "/proc/self"] {
        for verb in ["init", "start"] {
            env.workspace(&[verb, "w", "--from", place])
                .fails(1, "belongs to the kernel");
        }
    }
    assert_eq!(env.workspace(&["list"]).ok(), "");
}

#[test]
fn mount_alone_shows_the_workspace_in_place_of_its_project() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("f"), "x").unwrap();
    let start = |directory: &Path, args: &[&str]| {
        let told = env
            .workspace_in(directory, &[&["start", "--json"], args].concat())
            .ok();
        let facts: Value = serde_json::from_str(&told).unwrap();
        (
            facts["name"].clone(),
            facts["mount"].clone(),
            facts["base"].clone(),
        )
    };
    let place = Value::from(env.project().display().to_string());
    let wanted = ("project".into(), place.clone(), place.clone());
    assert_eq!(start(&env.path(""), &["--mount", "project"]), wanted);
    fs::write(env.project().join("f"), "changed").unwrap();
    // A second time it is the same workspace, wherever it is typed, and after a stop too.
    assert_eq!(start(&env.project(), &["--mount", "."]), wanted);
    env.workspace(&["stop", "project"]).ok();
    assert_eq!(fs::read(env.project().join("f")).unwrap(), b"x");
    assert_eq!(start(&env.path(""), &["--mount", "project"]), wanted);
    assert_eq!(fs::read(env.project().join("f")).unwrap(), b"changed");
    env.workspace(&["stop", "project"]).ok();
    // Elsewhere the workspace is the one that is meant as ever.
    let elsewhere = env.path("elsewhere");
    let (name, mount, base) = start(
        &env.project(),
        &["--mount", &elsewhere.display().to_string()],
    );
    assert_eq!((name, base), ("project".into(), place));
    assert_eq!(mount, elsewhere.display().to_string());
    // Another directory that is not empty is another project.
    fs::create_dir(env.path("second")).unwrap();
    fs::write(env.path("second/g"), "y").unwrap();
    assert_eq!(start(&env.path(""), &["--mount", "second"]).0, "second");
    env.workspace(&["stop", "second"]).ok();
    assert_eq!(
        start(&env.path(""), &["third", "--mount", "second"]).0,
        "third"
    );
}

#[test]
fn projects_whose_names_have_no_letter_have_workspaces_of_their_own() {
    let Some(env) = Env::new() else { return };
    let name_of = |directory: &str| {
        fs::create_dir(env.path(directory)).unwrap();
        let told = env.workspace(&["init", "--from", directory, "--json"]).ok();
        let facts: Value = serde_json::from_str(&told).unwrap();
        facts["name"].as_str().unwrap().to_owned()
    };
    let names = [name_of("日本語"), name_of("проект"), name_of(".x")];
    for (name, directory) in names.iter().zip(["日本語", "проект"]) {
        let hash = blake3::hash(directory.as_bytes()).to_hex();
        assert_eq!(*name, format!("ws-{}", &hash[..8]));
    }
    assert_eq!(names[2], "x");
}

#[test]
fn a_label_that_is_also_a_workspace_is_said_to_be_a_label() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    fs::create_dir(env.path("p2")).unwrap();
    env.workspace(&["start", "--from", "p2"]).ok();
    let told = env.workspace_in(&root, &["checkpoint", "p2"]);
    assert!(
        told.err.contains("p2 is now a label of project"),
        "{told:?}"
    );
    assert!(told.err.contains("agentvfs checkpoint -w p2"), "{told:?}");
    told.id();
    let told = env.workspace_in(&root, &["checkpoint", "p3"]);
    assert_eq!(told.err, "");
}

#[test]
fn hints_name_what_helps() {
    let Some(env) = Env::new() else { return };
    fs::create_dir(env.project().join("d")).unwrap();
    fs::write(env.project().join("d/f"), "x").unwrap();
    env.start();
    let told = agentvfs(&env, &["fs", "rm", "d"]);
    assert!(told.err.contains("hint: --recursive"), "{told:?}");
    told.fails(1, "d: ");
    agentvfs(&env, &["fs", "rm", "d", "--recursive"]).ok();
    for args in [
        &["branch", "merge", "nothing"][..],
        &["branch", "delete", "nothing"],
    ] {
        let told = agentvfs(&env, args);
        assert!(
            !told.err.contains("--branch"),
            "nobody said --branch: {told:?}"
        );
        told.fails(1, "nothing");
    }
    let told = agentvfs(&env, &["tool", "diff", "7"]);
    assert!(
        !told.err.contains("--branch"),
        "nobody said --branch: {told:?}"
    );
}

#[test]
fn tool_exec_tells_its_call_and_commit() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let exec = |status: i32, command: &[&str]| {
        let args = [&["tool", "exec", "t", "--json", "--"], command].concat();
        let told = env.told(env.command(&root, &args));
        assert_eq!(told.status, status, "{told:?}");
        let object: Value = serde_json::from_str(&told.out).unwrap_or_else(|_| panic!("{told:?}"));
        (object, told.err)
    };
    let (first, err) = exec(0, &["sh", "-c", "echo told; echo x > made"]);
    assert_eq!(
        (&first["id"], &first["exit_status"]),
        (&1.into(), &0.into())
    );
    assert_eq!(err, "told\n", "what the command prints is not data here");
    let commit = first["commit"].as_str().unwrap();
    let made = agentvfs(&env, &["fs", "cat", "made", "--ref", commit]);
    assert_eq!(made.ok(), "x\n");
    let (second, _) = exec(3, &["sh", "-c", "exit 3"]);
    assert_eq!(
        (&second["id"], &second["exit_status"]),
        (&2.into(), &3.into())
    );
    assert_eq!(second["commit"], first["commit"], "nothing changed");
    let (third, _) = exec(127, &["no-such-program"]);
    assert_eq!(
        (&third["id"], &third["error"]["kind"]),
        (&3.into(), &"cannot-run".into())
    );
    let plain = env.command(&root, &["tool", "exec", "t", "--", "echo", "told"]);
    assert_eq!(env.told(plain).ok(), "told\n");
}

#[test]
fn figures_of_the_import_fit_each_other() {
    let Some(env) = Env::new() else { return };
    for i in 0..35 {
        fs::write(env.project().join(format!("f{i}")), format!("{i}")).unwrap();
    }
    let root = env.start();
    env.imported();
    env.workspace(&["stop", "project"]).ok();
    fs::write(env.project().join("f1"), "changed").unwrap();
    env.workspace(&["start", "project"]).ok();
    env.workspace(&["update", "project"]).ok();
    wait::until("the update is shown", || {
        fs::read(root.join("f1")).unwrap() == b"changed"
    });
    env.imported();
    let import = env.status()["import"].clone();
    assert_eq!(import["files_done"], import["files_total"], "{import}");
    assert_eq!(import["bytes_done"], import["bytes_total"], "{import}");
}
