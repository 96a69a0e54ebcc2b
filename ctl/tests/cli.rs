//! The command line as far as it needs no mount: usage, help, completions, homes without a daemon.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Set to rewrite `docs/cli.md` instead of comparing it.
const BLESS: &str = "AGENTVFS_BLESS";

fn agentvfs(dir: &Path, home: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_agentvfs"))
        .env_clear()
        .env("AGENTVFS_HOME", home)
        .current_dir(dir)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs in a directory without a home and says exit status, standard output, standard error.
fn run(args: &[&str]) -> (i32, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let output = agentvfs(dir.path(), &home, args);
    assert!(!home.exists(), "{args:?} made a home");
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn wrong_usage_exits_2_before_anything_is_done() {
    for args in [
        &["workspace", "frobnicate"][..],
        &["branch", "create"],
        &["run", "--", "true"],
        &["workspace", "start", "a", "b"],
        &["workspace", "checkpoint", "a", "b", "c"],
        &["-w", "w", "workspace", "checkpoint", "a", "b"],
        &["-w", "w", "workspace", "log", "other"],
        &["workspace", "checkpoint", "bad/label"],
        &["workspace", "checkpoint", "--meta", "novalue"],
        &["workspace", "checkpoint", "--meta", "a=1", "--meta", "a=2"],
        &["workspace", "rollback", "--before", "yesterday"],
        &["workspace", "rollback", "--before", "5m", "w", "ref"],
        &["workspace", "rollback", "--before", "5m", "--meta", "a=b"],
        &["workspace", "diff", "--stat", "--patch"],
        &["workspace", "init", ".hidden", "--from", "."],
        &["workspace", "delete", "w"],
    ] {
        let (status, out, err) = run(args);
        assert_eq!(status, 2, "{args:?}: {err}");
        assert_eq!(out, "", "{args:?}");
        assert!(
            err.starts_with("agentvfs: wrong usage: "),
            "{args:?}: {err}"
        );
    }
}

#[test]
fn no_command_says_how_to_begin() {
    let (status, out, err) = run(&[]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.contains("agentvfs start --from DIR"), "{out}");
    let (_, out, _) = run(&["--json"]);
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["workspace"], serde_json::Value::Null);
    let (status, out, err) = run(&["workspace"]);
    assert_eq!((status, out.as_str()), (2, ""));
    assert!(err.contains("Usage: agentvfs workspace"), "{err}");
}

#[test]
fn help_and_version_succeed() {
    for args in [
        &["--help"][..],
        &["--version"],
        &["workspace", "rollback", "--help"],
    ] {
        let (status, out, err) = run(args);
        assert_eq!((status, err.as_str()), (0, ""), "{args:?}");
        assert!(out.contains("agentvfs"), "{args:?}");
    }
    let (_, out, _) = run(&["--help"]);
    assert!(!out.contains("daemon"), "the daemon is not for people");
}

#[test]
fn completions_are_installed_where_the_shell_looks_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let install = |shell: &str, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agentvfs"));
        let command = command.env_clear().env("HOME", dir.path());
        let command = command.env("SHELL", shell).args(["completions", "install"]);
        command.args(args).output().unwrap()
    };
    for (shell, file) in [
        ("bash", ".local/share/bash-completion/completions/agentvfs"),
        ("zsh", ".local/share/zsh/site-functions/_agentvfs"),
        ("fish", ".config/fish/completions/agentvfs.fish"),
    ] {
        let file = dir.path().join(file);
        let output = install(&format!("/usr/bin/{shell}"), &[]);
        let wanted = format!("shell={shell}\nfile={}\n", file.display());
        assert_eq!(text(&output.stdout), wanted);
        let printed = run(&["completions", shell]).1;
        assert_eq!(std::fs::read_to_string(&file).unwrap(), printed);
        std::fs::remove_file(&file).unwrap();
        install("/bin/unknown", &[shell]);
        assert!(file.exists());
    }
    for args in [&[][..], &["elvish"]] {
        let output = install("/bin/unknown", args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains("hint: agentvfs completions"));
    }
}

#[test]
fn every_command_that_is_documented_has_a_man_page() {
    let dir = tempfile::tempdir().unwrap();
    let install = |program: &Path, args: &[&str]| {
        let mut command = Command::new(program);
        command.env_clear().args(["man", "install"]).args(args);
        command.output().unwrap()
    };
    let own = Path::new(env!("CARGO_BIN_EXE_agentvfs"));
    let to = dir.path().join("manual");
    let output = install(own, &[to.to_str().unwrap()]);
    let titles = ctl::cli::reference();
    let titles = titles.lines().filter_map(|line| line.strip_prefix("## "));
    let mut count = 0;
    for title in titles.filter(|title| title.starts_with("agentvfs")) {
        let page = to.join(format!("man1/{}.1", title.replace(' ', "-")));
        let page = std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{page:?}: {e}"));
        assert!(page.contains(".SH NAME"), "{title}");
        count += 1;
    }
    assert!(count > 50, "{count}");
    let facts = text(&output.stdout);
    let wanted = format!("directory={}/man1\n", to.display());
    assert!(facts.starts_with(&wanted), "{facts}");
    // The same verbs after `workspace` lead to those without it; what is hidden has none.
    let alias = std::fs::read_to_string(to.join("man1/agentvfs-workspace-log.1")).unwrap();
    assert_eq!(alias, ".so man1/agentvfs-log.1\n");
    assert!(!to.join("man1/agentvfs-daemon.1").exists());
    // Where no directory is named: beside that of the program.
    let program = dir.path().join("bin/agentvfs");
    std::fs::create_dir(dir.path().join("bin")).unwrap();
    // By another process: a descriptor of this one may be open in what another test starts just then.
    let copied = Command::new("cp").args([own, &program]).status();
    assert!(copied.unwrap().success());
    assert!(install(&program, &[]).status.success());
    assert!(dir.path().join("share/man/man1/agentvfs.1").exists());
    let output = install(own, &["/proc/none"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("hint: use another directory"));
}

#[test]
fn completions_name_the_verbs() {
    for shell in ["bash", "zsh", "fish"] {
        let (status, out, _) = run(&["completions", shell]);
        assert_eq!(status, 0);
        assert!(
            out.contains("checkpoint") && out.contains("agentvfs"),
            "{shell}"
        );
    }
}

#[test]
fn list_without_a_home_is_empty_and_starts_nothing() {
    assert_eq!(
        run(&["workspace", "list"]),
        (0, String::new(), String::new())
    );
    let (status, out, _) = run(&["workspace", "list", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (status, value),
        (0, serde_json::json!({ "workspaces": [] }))
    );
}

#[test]
fn without_any_workspace_the_error_says_how_to_begin() {
    for verb in ["status", "log", "undo", "rollback", "checkpoint", "stop"] {
        let (status, out, err) = run(&["workspace", verb]);
        assert_eq!((status, out.as_str()), (1, ""), "{verb}");
        assert!(
            err.contains("hint: agentvfs start --from DIR"),
            "{verb}: {err}"
        );
    }
}

#[test]
fn without_a_home_the_error_says_how_to_name_one() {
    let output = Command::new(env!("CARGO_BIN_EXE_agentvfs"))
        .env_clear()
        .args(["workspace", "list"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("hint: set it with --root DIR or $AGENTVFS_HOME"));
}

#[test]
fn home_that_cannot_be_made_exits_3() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = agentvfs(dir.path(), &file.join("home"), &["workspace", "start", "w"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).starts_with("agentvfs: cannot start the daemon: "));
}

#[test]
fn closed_standard_output_is_success() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = Command::new(env!("CARGO_BIN_EXE_agentvfs"))
        .args(["completions", "bash"])
        .stdout(Stdio::from(writer))
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn cli_doc_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    let wanted = ctl::cli::reference();
    if std::env::var_os(BLESS).is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/cli.md is not what the program says; run the tests with {BLESS}=1"
    );
}
