//! `agentvfs run`: the branch at the project's own path, and what the command says in the end.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Stdio;
use tests::env::{Env, Told};
use tests::sandbox::{self, command, run, shell};
use tests::{binary, mount};

/// Names of the workspace's branches.
fn branches(env: &Env) -> Vec<String> {
    let told = env
        .told(env.command(&env.project(), &["branch", "list"]))
        .ok();
    let names = told.lines().filter_map(|line| line.split('\t').next());
    names.map(str::to_owned).collect()
}

fn view(env: &Env, branch: &str) -> std::path::PathBuf {
    env.mountpoint().join(".agentvfs/branches").join(branch)
}

/// Checks that nothing was said but one error, and the status.
#[track_caller]
fn fails(told: Told, status: i32, why: &str) {
    assert_eq!((told.status, told.out.as_str()), (status, ""), "{told:?}");
    assert!(told.err.starts_with("agentvfs: "), "{told:?}");
    assert!(told.err.contains(why), "{told:?}");
    assert!(!told.err.contains("writable "), "{told:?}");
    let hints = told.err.lines().filter(|line| line.starts_with("hint: "));
    assert_eq!(
        hints.count(),
        usize::from(status != 2 || told.err.lines().count() > 1),
        "{told:?}"
    );
}

#[test]
fn the_command_sees_the_branch_at_the_projects_own_path() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    let out = shell(
        &env,
        "pwd; cat f; echo mine > f; mkdir d; echo new > d/g; mv d/g d/h",
    );
    assert_eq!(out, format!("{}\nbase\n", env.project().display()));
    assert_eq!(
        fs::read_to_string(env.project().join("f")).unwrap(),
        "base\n"
    );
    assert!(!env.project().join("d").exists());
    assert_eq!(shell(&env, "cat f d/h"), "mine\nnew\n");
    assert_eq!(
        fs::read_to_string(view(&env, "s").join("d/h")).unwrap(),
        "new\n"
    );
    assert_eq!(
        fs::read_to_string(env.mountpoint().join("f")).unwrap(),
        "base\n"
    );
}

#[test]
fn a_branch_without_changes_goes_and_one_with_changes_stays() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    let told = run(&env, &["--", "cat", "f"]);
    assert!(
        told.err.contains("nothing changed; branch run-"),
        "{told:?}"
    );
    assert_eq!(told.ok(), "base\n");
    assert_eq!(branches(&env), ["main"]);
    let told = run(&env, &["sh", "-c", "echo x > new; rm f"]);
    assert!(
        told.err.contains("1 file added, 1 deleted in branch run-"),
        "{told:?}"
    );
    let all = branches(&env);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(view(&env, &all[1]).join("new").exists());
    run(&env, &["--session", "kept", "true"]).ok();
    assert!(branches(&env).contains(&"kept".to_owned()));
}

#[test]
fn statuses_are_those_of_the_command() {
    let Some(env) = sandbox::env(&[]) else { return };
    let status = |args: &[&str]| run(&env, args).status;
    assert_eq!(status(&["sh", "-c", "exit 3"]), 3);
    assert_eq!(status(&["sh", "-c", "kill -9 $$"]), 137);
    assert_eq!(status(&["sh", "-c", "kill -TERM $$"]), 143);
    fails(run(&env, &["no-such-command"]), 127, "no such command");
    fs::write(env.project().join("plain"), "text").unwrap();
    fails(run(&env, &["./none"]), 127, "no such command");
    fails(run(&env, &["/etc/passwd"]), 126, "cannot be executed");
    fails(run(&env, &["/etc"]), 126, "cannot be executed");
    assert_eq!(branches(&env), ["main"]);
}

#[test]
fn a_script_without_an_interpreter_is_run_by_sh() {
    let Some(env) = sandbox::env(&[("script", "echo $0 $1\n")]) else {
        return;
    };
    let out = shell(&env, "chmod +x script");
    assert_eq!(out, "");
    let told = run(&env, &["--session", "s", "./script", "one"]);
    assert_eq!(told.ok(), "./script one\n");
}

#[test]
fn wrong_usage_is_found_first() {
    let Some(env) = sandbox::env(&[]) else { return };
    let usage = |args: &[&str], why| fails(run(&env, args), 2, why);
    usage(&["--session", "a", "--branch", "b", "true"], "two branches");
    usage(&["--session", "a/b", "true"], "a/b");
    usage(&["--env", "X", "true"], "KEY=VALUE");
    usage(&["--allow", "/no/such/path", "true"], "/no/such/path");
    usage(&["--allow", "/", "true"], "cannot be shown");
    usage(
        &["--show", env.home().to_str().unwrap(), "true"],
        "cannot be shown",
    );
    usage(&["--at", "/", "true"], "--at cannot be /");
    assert_eq!(branches(&env), ["main"]);
    let told = run(&env, &["--branch", "missing", "true"]);
    fails(told, 125, "no branch missing");
}

#[test]
fn what_is_no_project_must_be_named() {
    let Some(env) = sandbox::env(&[]) else { return };
    let user = env.path("user");
    for dir in [Path::new("/"), &user] {
        let mut command = env.command(dir, &["run", "true"]);
        command.env("AGENTVFS_HOME", env.path("unused"));
        fails(env.told(command), 2, "is no project");
    }
    let holds_home = env.path("outer");
    fs::create_dir(&holds_home).unwrap();
    let mut command = env.command(&holds_home, &["run", "true"]);
    command.env("AGENTVFS_HOME", holds_home.join("home"));
    fails(env.told(command), 2, "is no project");
}

#[test]
fn a_run_in_no_workspace_starts_one_on_the_current_directory() {
    let Some(env) = sandbox::env(&[]) else { return };
    let other = env.path("other");
    fs::create_dir_all(other.join("sub")).unwrap();
    fs::write(other.join("f"), "other\n").unwrap();
    let told = env.told(env.command(&other, &["run", "cat", "f"]));
    assert!(told.err.contains("workspace other is on "), "{told:?}");
    assert_eq!(told.ok(), "other\n");
    let told = env.told(env.command(&other.join("sub"), &["run", "pwd"]));
    assert_eq!(told.ok(), format!("{}\n", other.join("sub").display()));
    let told = env.told(env.command(&other, &["run", "--from", "../project", "pwd"]));
    assert_eq!(told.ok(), format!("{}\n", env.project().display()));
    env.workspace(&["stop", "other"]).ok();
    let told = env.told(env.command(&other, &["run", "cat", "f"]));
    assert_eq!(told.ok(), "other\n");
}

#[test]
fn the_working_directory_is_the_callers_where_the_branch_has_it() {
    let Some(env) = sandbox::env(&[]) else { return };
    let sub = env.project().join("sub");
    fs::create_dir(&sub).unwrap();
    // The workspace may have read the project's directory before or after that.
    fs::create_dir_all(env.mountpoint().join("sub")).unwrap();
    let pwd = |dir: &Path, args: &[&str]| {
        let args = [&["run", "-w", "project"], args, &["pwd"]].concat();
        env.told(env.command(dir, &args)).ok().trim_end().to_owned()
    };
    let shown = |path: &Path| path.to_str().unwrap().to_owned();
    assert_eq!(pwd(&sub, &[]), shown(&sub));
    assert_eq!(pwd(&env.mountpoint().join("sub"), &[]), shown(&sub));
    assert_eq!(pwd(&env.path("user"), &[]), shown(&env.project()));
    assert_eq!(pwd(&env.path("user"), &["--cwd", "sub"]), shown(&sub));
    assert_eq!(pwd(&sub, &["--cwd", "/usr"]), "/usr");
    let told = env.told(env.command(&sub, &["run", "--cwd", "/no/such", "pwd"]));
    fails(told, 125, "/no/such");
    shell(&env, "rmdir sub");
    assert_eq!(pwd(&sub, &["--session", "s"]), shown(&env.project()));
    let at = env.path("user");
    assert_eq!(
        pwd(&sub, &["--at", at.to_str().unwrap()]),
        shown(&at.join("sub"))
    );
}

#[test]
fn the_environment_says_where_the_command_is() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mut command = command(
        &env,
        &[
            "--session",
            "s",
            "--env",
            "X=a=b",
            "--env",
            "LC_ALL=de",
            "env",
        ],
    );
    command.env("KEPT", "1");
    let out = env.told(command).ok();
    let has = |line: &str| assert!(out.lines().any(|l| l == line), "no {line} in {out}");
    has("X=a=b");
    has("LC_ALL=de");
    has("KEPT=1");
    has("AGENTVFS_WORKSPACE=project");
    has("AGENTVFS_BRANCH=s");
    has("AGENTVFS_SESSION=s");
    has("AGENTFS=1");
    has("AGENTFS_SANDBOX=linux-namespace");
    has("AGENTFS_SESSION=s");
    assert!(out.contains("AGENTVFS_RUN="), "{out}");
    assert!(!out.contains("AGENTVFS_HOME="), "{out}");
    // It names a directory that is read-only inside.
    assert!(!out.contains("TMPDIR="), "{out}");
}

#[test]
fn standard_input_is_what_the_caller_has() {
    let Some(env) = sandbox::env(&[]) else { return };
    let text = "x".repeat(300_000);
    fs::write(env.path("input"), &text).unwrap();
    let input = fs::File::open(env.path("input")).unwrap();
    let mut from_file = command(&env, &["--", "sh", "-c", "cat; test -p /proc/self/fd/0"]);
    from_file.stdin(Stdio::from(input));
    assert_eq!(env.told(from_file).ok(), text);
    let input = fs::File::open(env.path("input")).unwrap();
    let mut unread = command(&env, &["--", "true"]);
    unread.stdin(Stdio::from(input));
    env.told(unread).ok();
    let mut directory = command(&env, &["--", "cat"]);
    directory.stdin(Stdio::from(fs::File::open("/").unwrap()));
    let told = env.told(directory);
    assert!(
        told.err.contains("standard input is a directory"),
        "{told:?}"
    );
    assert_eq!(told.ok(), "");
}

#[test]
fn a_run_says_what_it_does_and_quietly_nothing() {
    let Some(env) = sandbox::env(&[]) else { return };
    let told = run(
        &env,
        &[
            "--session",
            "s",
            "--net",
            "none",
            "sh",
            "-c",
            "echo x > new",
        ],
    );
    let at = env.project();
    let lines: Vec<&str> = told.err.lines().collect();
    assert!(
        lines[0].ends_with(&format!("in branch s of project, at {}", at.display())),
        "{told:?}"
    );
    assert!(
        lines[1].starts_with(&format!("writable  {} (branch)", at.display())),
        "{told:?}"
    );
    assert!(lines[1].ends_with("network  none"), "{told:?}");
    assert_eq!(
        lines[2],
        "join      agentvfs run -w project --session s -- bash"
    );
    assert!(
        lines[3].starts_with("agentvfs: sh ended with 0 after ")
            && lines[3].ends_with(": 1 file added in branch s"),
        "{told:?}"
    );
    assert_eq!(
        lines[4],
        "review    agentvfs workspace diff -w project --branch s --base"
    );
    assert_eq!(
        lines[5],
        "take      agentvfs workspace apply -w project --branch s"
    );
    assert_eq!(lines[6], "discard   agentvfs run --discard s -w project");
    let again = run(&env, &["--session", "s", "true"]);
    assert!(
        again.err.contains("nothing changed in branch s"),
        "{again:?}"
    );
    let quiet = run(&env, &["--session", "s", "--quiet", "true"]);
    assert_eq!(
        (quiet.status, quiet.out.as_str(), quiet.err.as_str()),
        (0, "", "")
    );
    env.told(env.command(
        &at,
        &["workspace", "apply", "-w", "project", "--branch", "s"],
    ))
    .ok();
    assert_eq!(fs::read_to_string(at.join("new")).unwrap(), "x\n");
}

#[test]
fn runs_leave_commits_that_name_them() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    run(
        &env,
        &[
            "--session",
            "s",
            "sh",
            "-c",
            "echo $AGENTVFS_RUN > f; exit 4",
        ],
    );
    let id = fs::read_to_string(view(&env, "s").join("f")).unwrap();
    let args = [
        "workspace",
        "log",
        "--all",
        "--json",
        "-w",
        "project",
        "--branch",
        "s",
    ];
    let log = env.told(env.command(&env.project(), &args)).ok();
    let log: serde_json::Value = serde_json::from_str(&log).unwrap();
    let commits = log["commits"].as_array().unwrap();
    let of_run: Vec<_> = commits
        .iter()
        .filter(|c| {
            ["run", "run-end"]
                .iter()
                .any(|key| c["meta"][key] == id.trim())
        })
        .collect();
    assert_eq!(of_run.len(), 2, "{log}");
    assert!(of_run.iter().all(|c| c["automatic"] == true), "{log}");
    assert_eq!(of_run[0]["meta"]["exit"], "4");
    assert!(of_run[0]["meta"]["duration"].is_string(), "{log}");
    assert_eq!(of_run[0]["meta"]["run-end"], id.trim());
    assert_eq!(of_run[1]["meta"]["run"], id.trim());
    assert_eq!(
        of_run[1]["meta"]["command"],
        "sh -c echo $AGENTVFS_RUN > f; exit 4"
    );
    fs::write(view(&env, "s").join("f"), "later\n").unwrap();
    for (key, shown) in [("run-end", id.as_str()), ("run", "base\n")] {
        let meta = format!("{key}={}", id.trim());
        let args = [
            "rollback", "-w", "project", "--branch", "s", "--meta", &meta,
        ];
        env.told(env.command(&env.project(), &args)).id_or_pending();
        assert_eq!(
            fs::read_to_string(view(&env, "s").join("f")).unwrap(),
            shown
        );
    }
}

#[test]
fn a_missing_project_is_an_error_before_anything_else() {
    let Some(env) = sandbox::env(&[]) else { return };
    let (project, moved) = (env.project(), env.path("moved"));
    fs::rename(&project, &moved).unwrap();
    let told = env.told(env.command(&env.path(""), &["run", "-w", "project", "true"]));
    fails(told, 125, "is gone");
    let doctor = || env.told(env.command(&env.path(""), &["doctor"])).out;
    let named = format!(
        "warning\tprojects\tproject: {} is gone\t",
        project.display()
    );
    assert!(doctor().contains(&named), "{}", doctor());
    fs::rename(&moved, &project).unwrap();
    assert!(!doctor().contains("is gone"), "{}", doctor());
}

#[test]
fn without_user_namespaces_there_is_one_clear_error() {
    let Some(env) = sandbox::env(&[]) else { return };
    let without = |words: &[&str]| {
        let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
        let mut shell = env.program("unshare");
        shell.args(["--user", "--map-root-user", "sh", "-c", script]);
        shell.arg(binary::agentvfs()).args(words);
        env.told(shell)
    };
    let told = without(&["run", "-w", "project", "true"]);
    fails(told, 125, "namespaces cannot be created");
    let told = without(&["doctor"]);
    let mut lines = told.out.lines();
    let is_named = |line: &str| line.starts_with("warning\tuser-namespaces\tcannot be created");
    assert!(lines.any(is_named), "{told:?}");
}

#[test]
fn a_run_of_main_changes_main_and_sees_no_other_branch() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    shell(&env, "echo s > f");
    let script = "cat f; echo main > f; ls -A .agentvfs/branches; cat .agentvfs/view/f; cat .agentvfs/branches/s/f";
    let told = run(&env, &["--branch", "main", "sh", "-c", script]);
    assert_eq!(told.out, "base\nmain\n", "{told:?}");
    assert_eq!(
        fs::read_to_string(env.mountpoint().join("f")).unwrap(),
        "main\n"
    );
    assert_eq!(
        fs::read_to_string(view(&env, "s").join("f")).unwrap(),
        "s\n"
    );
    assert_eq!(
        fs::read_to_string(env.project().join("f")).unwrap(),
        "base\n"
    );
}

#[test]
fn a_workspace_that_is_mounted_over_its_project_can_be_run_in() {
    let Some(env) = sandbox::env(&[]) else { return };
    let other = env.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("f"), "base\n").unwrap();
    let place = other.to_str().unwrap();
    env.workspace(&["start", "--from", place, "--mount", place])
        .ok();
    let script = "cat f; echo s > f; cat f";
    let told = env.told(env.command(&other, &["run", "--session", "s", "sh", "-c", script]));
    assert_eq!(told.ok(), "base\ns\n");
    assert_eq!(fs::read_to_string(other.join("f")).unwrap(), "base\n");
    assert!(!mount::workspaces_below(&other).is_empty());
}

#[test]
fn a_project_in_a_directory_that_is_private_inside_is_seen() {
    if !sandbox::can_be_made() {
        return;
    }
    let Some(env) = Env::below(Path::new("/tmp")) else {
        return;
    };
    fs::write(env.project().join("f"), "base\n").unwrap();
    let told = env.told(env.command(&env.project(), &["run", "sh", "-c", "pwd; cat f; ls .."]));
    let wanted = format!("{}\nbase\nproject\n", env.project().display());
    assert_eq!(told.ok(), wanted);
}

#[test]
fn no_snapshot_of_another_branch_can_be_read() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    shell(&env, "true");
    let verb = |args: &[&str]| env.told(env.command(&env.project(), args));
    verb(&["branch", "create", "t"]).ok();
    let mut refs = vec!["later".to_owned(), "theirs".to_owned()];
    for (branch, label, root) in [
        ("main", "later", env.mountpoint()),
        ("t", "theirs", env.mountpoint().join(".agentvfs/branches/t")),
    ] {
        fs::write(root.join("secret"), "precious\n").unwrap();
        let args = [
            "workspace",
            "checkpoint",
            "-w",
            "project",
            "--branch",
            branch,
            label,
        ];
        refs.push(verb(&args).id());
        refs.push(format!("{branch}:{label}"));
        // It is there outside.
        let kept = root.join(".agentvfs/snapshots").join(label).join("secret");
        assert_eq!(fs::read_to_string(kept).unwrap(), "precious\n");
    }
    let roots = [
        ".agentvfs",
        ".agentvfs/view/.agentvfs",
        ".agentvfs/../.agentvfs",
    ];
    let snapshots = roots.iter().flat_map(|root| {
        let path = |name: &String| format!("{root}/snapshots/{name}/secret");
        refs.iter().map(path).collect::<Vec<_>>()
    });
    let live = roots.map(|root| format!("{root}/branches/t/secret"));
    let mut all: Vec<String> = snapshots.chain(live).collect();
    all.push(".agentvfs/view/secret".to_owned());
    let script = format!(
        "cat {} 2>/dev/null; grep -rs precious .agentvfs .agentvfs/view/; true",
        all.join(" ")
    );
    assert_eq!(shell(&env, &script), "");
}
