//! `diff --patch` and `--stat`: what git and patch make of a patch is what the workspace shows.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use tests::env::Env;
use tests::rng::Rng;
use tests::skip::{Want, skip};
use tests::tree;

fn numbered(lines: std::ops::Range<u32>) -> String {
    lines.map(|i| format!("line {i}\n")).collect()
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    rng.bytes(len)
}

fn text_project(at: &Path) {
    fs::create_dir_all(at.join("src/deep")).unwrap();
    fs::write(at.join("README"), numbered(0..100)).unwrap();
    fs::write(at.join("src/main.rs"), numbered(0..30)).unwrap();
    fs::write(at.join("src/deep/gone"), numbered(0..10)).unwrap();
    fs::write(at.join("no-end"), "one\ntwo").unwrap();
    fs::write(at.join("with space"), "a\n").unwrap();
    fs::write(at.join("crlf"), "a\r\nb\r\n").unwrap();
}

fn change_text(at: &Path) {
    let text = numbered(0..100)
        .replace("line 5\n", "line five\n")
        .replace("line 50\n", "")
        .replace("line 99\n", "line 99\nline 100\n");
    fs::write(at.join("README"), text).unwrap();
    fs::remove_file(at.join("src/deep/gone")).unwrap();
    fs::write(at.join("no-end"), "one\ntwo\nthree").unwrap();
    fs::write(at.join("with space"), "b\n").unwrap();
    fs::write(at.join("crlf"), "a\r\nB\r\n").unwrap();
    fs::create_dir_all(at.join("new/dir")).unwrap();
    fs::write(at.join("new/dir/file"), "new\n").unwrap();
}

fn everything(at: &Path) {
    text_project(at);
    fs::write(at.join("binary"), noise(1, 90_000)).unwrap();
    fs::write(at.join("binary-gone"), noise(2, 3_000)).unwrap();
    fs::write(at.join("moved"), numbered(0..50)).unwrap();
    fs::write(at.join("moved-binary"), noise(3, 20_000)).unwrap();
    fs::write(at.join("script"), "#!/bin/sh\n").unwrap();
    fs::write(at.join("becomes-link"), "file\n").unwrap();
    fs::write(at.join("becomes-dir"), "file\n").unwrap();
    fs::write(at.join("empty"), "").unwrap();
    fs::write(at.join("filled"), "").unwrap();
    fs::write(at.join("tab\tand \"quotes\"\n"), "odd\n").unwrap();
    fs::write(
        at.join(std::ffi::OsStr::from_bytes(b"not-utf8-\xff")),
        "odd\n",
    )
    .unwrap();
    symlink("README", at.join("link")).unwrap();
    symlink("README", at.join("link-gone")).unwrap();
}

fn change_everything(at: &Path) {
    change_text(at);
    let mut bytes = noise(1, 90_000);
    bytes[40_000] ^= 1;
    fs::write(at.join("binary"), bytes).unwrap();
    fs::remove_file(at.join("binary-gone")).unwrap();
    fs::write(at.join("binary-new"), noise(4, 100_001)).unwrap();
    fs::create_dir(at.join("to")).unwrap();
    fs::rename(at.join("moved"), at.join("to/moved here")).unwrap();
    let mut text = numbered(0..50);
    text.push_str("and changed\n");
    fs::write(at.join("to/moved here"), text).unwrap();
    fs::rename(at.join("moved-binary"), at.join("to/binary")).unwrap();
    let mode = |mode| fs::Permissions::from_mode(mode);
    fs::set_permissions(at.join("script"), mode(0o755)).unwrap();
    fs::remove_file(at.join("becomes-link")).unwrap();
    symlink("to/binary", at.join("becomes-link")).unwrap();
    fs::remove_file(at.join("becomes-dir")).unwrap();
    fs::create_dir(at.join("becomes-dir")).unwrap();
    fs::write(at.join("becomes-dir/inside"), "inside\n").unwrap();
    fs::remove_file(at.join("empty")).unwrap();
    fs::write(at.join("empty-new"), "").unwrap();
    fs::write(at.join("filled"), "full\n").unwrap();
    fs::write(at.join("tab\tand \"quotes\"\n"), "odder\n").unwrap();
    fs::write(
        at.join(std::ffi::OsStr::from_bytes(b"not-utf8-\xff")),
        "odder\n",
    )
    .unwrap();
    fs::remove_file(at.join("link")).unwrap();
    symlink("src/main.rs", at.join("link")).unwrap();
    fs::remove_file(at.join("link-gone")).unwrap();
    symlink("nowhere", at.join("link-new")).unwrap();
}

/// Names, types, contents and executable bits: what a patch is about.
fn known_to_git(at: &Path) -> tree::Tree {
    let mut all = tree::of(at);
    all.retain(|path, entry| !path.is_empty() && entry.mode & 0o170000 != 0o040000);
    for entry in all.values_mut() {
        entry.mode = (entry.mode & 0o170000) | (entry.mode & 0o100);
        entry.mtime = (0, 0);
        entry.group.clear();
        entry.data.clear();
    }
    all
}

/// Copies a tree, so that it can be patched.
fn copy(env: &Env, from: &Path, name: &str) -> std::path::PathBuf {
    let to = env.path(name);
    let mut cp = env.program("cp");
    cp.arg("-a").arg(from).arg(&to);
    assert!(cp.status().unwrap().success());
    to
}

fn apply(env: &Env, program: &str, args: &[&str], at: &Path, patch: &Path) {
    let mut command = env.program(program);
    command
        .args(args)
        .current_dir(at)
        .stdin(fs::File::open(patch).unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let done = command.output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr) + String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success(),
        "{program}: {told}\n{}",
        String::from_utf8_lossy(&fs::read(patch).unwrap())
    );
}

fn write_patch(env: &Env, args: &[&str]) -> std::path::PathBuf {
    let place = env.path("patch");
    let args: Vec<&str> = ["workspace", "diff", "--patch"]
        .iter()
        .chain(args)
        .copied()
        .collect();
    let mut command = env.command(&env.path(""), &args);
    command.stdout(fs::File::create(&place).unwrap());
    let told = command.stderr(Stdio::piped()).output().unwrap();
    assert!(told.status.success(), "{told:?}");
    assert!(told.stderr.is_empty(), "{told:?}");
    place
}

#[test]
fn git_apply_of_the_patch_gives_the_other_state_and_reversed_the_first() {
    let Some(env) = Env::new() else { return };
    everything(&env.project());
    let root = env.start();
    env.workspace(&["checkpoint", "one"]).id();
    let before = copy(&env, &root, "before");
    let mut first = known_to_git(&before);
    change_everything(&root);
    let wanted = known_to_git(&root);
    let patch = write_patch(&env, &[]);
    apply(
        &env,
        "git",
        &["apply", "--whitespace=nowarn"],
        &before,
        &patch,
    );
    tree::same("git apply", &wanted, &known_to_git(&before));
    apply(
        &env,
        "git",
        &["apply", "-R", "--whitespace=nowarn"],
        &before,
        &patch,
    );
    let mut back = known_to_git(&before);
    // git 2.47 makes a file of a deleted symbolic link when it reverses its own patches, too.
    let of_git = |all: &mut tree::Tree| all.remove(b"link-gone".as_slice());
    assert!(of_git(&mut back).is_some() && of_git(&mut first).is_some());
    tree::same("git apply -R", &first, &back);
    // Between commits, from the base, and back from the live tree: all the same.
    env.workspace(&["checkpoint", "two"]).id();
    let text = fs::read(&patch).unwrap();
    for args in [["one", "two"].as_slice(), &["one"], &["--base"]] {
        assert_eq!(fs::read(write_patch(&env, args)).unwrap(), text, "{args:?}");
    }
}

#[test]
fn patch_program_understands_patches_of_text() {
    let Some(env) = Env::new() else { return };
    text_project(&env.project());
    let root = env.start();
    let before = copy(&env, &root, "before");
    change_text(&root);
    let patch = write_patch(&env, &[]);
    apply(&env, "patch", &["-p1", "--binary"], &before, &patch);
    tree::same("patch -p1", &known_to_git(&root), &known_to_git(&before));
}

#[test]
fn patch_of_paths_has_these_alone() {
    let Some(env) = Env::new() else { return };
    everything(&env.project());
    let root = env.start();
    change_everything(&root);
    let text = env
        .workspace(&["diff", "-p", "--path", "src", "--path", "script"])
        .ok();
    let heads: Vec<&str> = text
        .lines()
        .filter(|l| l.starts_with("diff --git "))
        .collect();
    assert_eq!(
        heads,
        [
            "diff --git a/script b/script",
            "diff --git a/src/deep/gone b/src/deep/gone"
        ]
    );
    assert_eq!(
        env.workspace(&["diff", "--patch", "--path", "nothing"])
            .ok(),
        ""
    );
}

#[test]
fn stat_counts_lines() {
    let Some(env) = Env::new() else { return };
    everything(&env.project());
    let root = env.start();
    change_everything(&root);
    let stat = env.workspace(&["diff", "--stat"]).ok();
    for row in [
        "2\t2\tREADME\n",
        "-\t-\tbinary\n",
        "1\t0\tmoved\tto/moved here\n",
        "0\t10\tsrc/deep/gone\n",
        "1\t0\tfilled\n",
    ] {
        assert!(stat.contains(row), "{row:?} in {stat}");
    }
    let json = env.workspace(&["diff", "--stat", "--json"]).ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let changes = json["changes"].as_array().unwrap();
    let of = |path: &str| changes.iter().find(|c| c["path"] == path).unwrap();
    assert_eq!(
        (&of("README")["added"], &of("README")["removed"]),
        (&2.into(), &2.into())
    );
    assert_eq!(
        (&of("binary")["binary"], &of("binary")["added"]),
        (&true.into(), &().into())
    );
}

#[test]
fn json_has_the_patch_and_what_no_patch_can_say_is_named() {
    let Some(env) = Env::new() else { return };
    text_project(&env.project());
    let root = env.start();
    fs::create_dir(root.join("hollow")).unwrap();
    fs::write(root.join("README"), "short\n").unwrap();
    let told = env.workspace(&["diff", "--patch"]);
    assert!(told.err.contains("not in the patch: hollow"), "{told:?}");
    let text = told.ok();
    let json = env.workspace(&["diff", "--patch", "--json"]).ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["patch"], text.as_str());
    assert_eq!(json["left_out"][0]["path"], "hollow");
    env.workspace(&["diff", "--patch", "--stat"]).status_is(2);
}

#[test]
fn large_files_are_binary_and_apply() {
    let Some(env) = Env::new() else { return };
    let line = "x".repeat(99) + "\n";
    fs::write(env.project().join("large"), line.repeat(90_000)).unwrap();
    let root = env.start();
    let before = copy(&env, &root, "before");
    fs::write(root.join("large"), line.repeat(90_000) + "end\n").unwrap();
    let patch = write_patch(&env, &[]);
    let text = fs::read_to_string(&patch).unwrap();
    assert!(text.contains("GIT binary patch\nliteral 9000004\n"));
    apply(&env, "git", &["apply"], &before, &patch);
    tree::same("large", &known_to_git(&root), &known_to_git(&before));
}

#[test]
fn on_a_terminal_a_patch_goes_through_the_pager() {
    if !tests::mount::found("script") {
        skip(
            Want::Machine,
            "script(1), which makes a terminal, is missing",
        );
        return;
    }
    let Some(env) = Env::new() else { return };
    text_project(&env.project());
    let root = env.start();
    change_text(&root);
    let program = tests::binary::agentvfs().display().to_string();
    let shown = |pager: &str, colour: &str| {
        let mut script = env.program("script");
        script
            .args(["-qec", &format!("{program} workspace diff -p"), "/dev/null"])
            .env("AGENTVFS_PAGER", pager)
            .env("TERM", "xterm")
            .env("NO_COLOR", colour);
        env.told(script).ok()
    };
    let paged = shown("sed s/^/paged:/", "1");
    assert!(
        paged.contains("paged:diff --git a/README b/README"),
        "{paged}"
    );
    assert!(!paged.contains('\x1b'), "NO_COLOR is heard: {paged}");
    let plain = shown("", "");
    assert!(plain.contains("\x1b[31m-line 5\x1b[0m"), "{plain}");
    // A reader that has had enough is no error.
    assert!(shown("head -1", "1").starts_with("diff --git"));
}

trait StatusIs {
    fn status_is(self, status: i32);
}

impl StatusIs for tests::env::Told {
    #[track_caller]
    fn status_is(self, status: i32) {
        assert_eq!(self.status, status, "{self:?}");
    }
}

#[test]
fn a_rename_is_found_by_the_same_inode_or_the_same_stored_content_and_by_nothing_else() {
    let Some(env) = Env::new() else { return };
    for name in ["moved", "rewritten", "copied-over"] {
        let lines = numbered(0..200);
        fs::write(env.project().join(name), format!("{name}\n{lines}")).unwrap();
    }
    let root = env.start();
    env.workspace(&["checkpoint", "before"]).id();
    let at = |name: &str| root.join(name);
    fs::rename(at("moved"), at("moved-to")).unwrap();
    fs::write(at("moved-to"), "the same inode\n").unwrap();
    let same = fs::read(at("copied-over")).unwrap();
    fs::remove_file(at("copied-over")).unwrap();
    fs::write(at("copied-to"), &same).unwrap();
    let mut similar = fs::read(at("rewritten")).unwrap();
    fs::remove_file(at("rewritten")).unwrap();
    similar.extend(b"one line more\n");
    fs::write(at("rewritten-to"), similar).unwrap();
    env.workspace(&["checkpoint", "after"]).id();
    let diff = ["diff", "--name-status", "before", "after"];
    let told = env.workspace(&diff).ok();
    let mut rows: Vec<&str> = told.lines().collect();
    rows.sort();
    assert_eq!(
        rows,
        [
            "A\trewritten-to",
            "D\trewritten",
            "R\tcopied-over\tcopied-to",
            "R\tmoved\tmoved-to"
        ]
    );
}
