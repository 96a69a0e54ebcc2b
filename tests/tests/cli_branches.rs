//! Branches through the commands and the mount: agents side by side, merged; bad input; snapshots.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Child;
use tests::env::{Env, Told};
use tests::{mount, tree, wait};

fn branch(env: &Env, args: &[&str]) -> Told {
    let args: Vec<&str> = ["branch"].iter().chain(args).copied().collect();
    env.told(env.command(&env.path(""), &args))
}

fn place(env: &Env, name: &str) -> PathBuf {
    env.mountpoint().join(".agentvfs/branches").join(name)
}

/// Some of this repository's own sources, in the project.
fn sources(env: &Env) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ctl");
    fs::create_dir(env.project().join("src")).unwrap();
    for path in [
        "client/src/glob.rs",
        "client/src/when.rs",
        "client/src/quote.rs",
    ] {
        let from = from.join(path);
        let to = env.project().join("src").join(from.file_name().unwrap());
        fs::copy(from, to).unwrap();
    }
}

fn agent(env: &Env, directory: &Path, script: &str) -> Child {
    let mut shell = env.program("sh");
    shell.args(["-ec", script]).current_dir(directory);
    shell.stdout(std::process::Stdio::piped());
    shell.stderr(std::process::Stdio::piped());
    shell.spawn().unwrap()
}

fn first_line(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn work_of_two_agents_comes_together_in_main() {
    let Some(env) = Env::new() else { return };
    sources(&env);
    let main = env.start();
    branch(&env, &["create", "a"]).ok();
    branch(&env, &["create", "b"]).ok();
    let one = agent(
        &env,
        &place(&env, "a"),
        "sed -i '1s/.*/\\/\\/! Of a./' src/glob.rs src/when.rs; mkdir notes; echo a > notes/a",
    );
    let other = agent(
        &env,
        &place(&env, "b"),
        "mv src/glob.rs src/shell_glob.rs; sed -i '1s/.*/\\/\\/! Of b./' src/when.rs; \
         echo '// The end.' >> src/quote.rs",
    );
    env.finish(one, "agent a").ok();
    env.finish(other, "agent b").ok();
    assert!(!main.join("notes").exists() && main.join("src/glob.rs").exists());
    branch(&env, &["merge", "a", "--into", "main"]).id();
    let before = tree::of(&main);
    let refused = branch(&env, &["merge", "b", "--into", "main"]);
    assert_eq!(
        (refused.status, refused.out.as_str()),
        (1, "content\tsrc/when.rs\n")
    );
    assert!(refused.err.contains("\nhint: "), "{refused:?}");
    tree::same("a refused merge", &before, &tree::of(&main));
    let kept = branch(
        &env,
        &["merge", "b", "--into", "main", "--conflicts", "keep"],
    );
    assert_eq!((kept.status, kept.out.len()), (1, 65), "{kept:?}");
    assert!(first_line(&main.join("src/when.rs")).starts_with("<<<<<<<"));
    assert_eq!(branch(&env, &["conflicts"]).ok(), "content\tsrc/when.rs\n");
    branch(&env, &["resolve", "src/when.rs", "--theirs"]).ok();
    assert_eq!(branch(&env, &["conflicts"]).ok(), "");
    assert_eq!(first_line(&main.join("src/when.rs")), "//! Of b.");
    assert_eq!(first_line(&main.join("src/shell_glob.rs")), "//! Of a.");
    assert!(!main.join("src/glob.rs").exists() && main.join("notes/a").exists());
    let quote = fs::read_to_string(main.join("src/quote.rs")).unwrap();
    assert!(quote.ends_with("// The end.\n"));
    env.workspace(&["apply"]).ok();
    let project = env.project();
    for path in [
        "src/when.rs",
        "src/shell_glob.rs",
        "src/quote.rs",
        "notes/a",
    ] {
        let (there, here) = (fs::read(main.join(path)), fs::read(project.join(path)));
        assert_eq!(there.unwrap(), here.unwrap(), "{path} was applied");
    }
    assert!(!project.join("src/glob.rs").exists());
    env.workspace(&["undo"]).fails(1, "the apply of ");
    env.workspace(&["undo", "--over-later-changes"])
        .id_or_pending();
    env.workspace(&["undo"]).id_or_pending();
    tree::same("the merge taken back", &before, &tree::of(&main));
}

#[test]
fn commands_inside_a_branch_mean_it() {
    let Some(env) = Env::new() else { return };
    sources(&env);
    let main = env.start();
    branch(&env, &["create", "b"]).ok();
    let inside = place(&env, "b").join("src");
    let there = |args: &[&str]| env.workspace_in(&inside, args);
    let line = fs::read(inside.join("when.rs")).unwrap();
    fs::write(inside.join("when.rs"), "changed\n").unwrap();
    assert!(there(&["status"]).ok().contains("\nbranch=b\n"));
    assert_eq!(there(&["diff"]).ok(), "M\tsrc/when.rs\n");
    assert_eq!(
        there(&["diff", "--path", "when.rs"]).ok(),
        "M\tsrc/when.rs\n"
    );
    assert_eq!(there(&["diff", "--path", "../src/glob.rs"]).ok(), "");
    let id = there(&["checkpoint", "of-b"]).id();
    assert!(there(&["log"]).ok().contains("\tof-b\t"));
    assert!(!env.workspace(&["log"]).ok().contains("of-b"));
    there(&["restore", "--ref", "@~1", "when.rs"]).ok();
    assert_eq!(fs::read(inside.join("when.rs")).unwrap(), line);
    there(&["rollback"]).id();
    assert_eq!(fs::read(inside.join("when.rs")).unwrap(), b"changed\n");
    assert_eq!(fs::read(main.join("src/when.rs")).unwrap(), line);
    let mut command = env.command(&env.path(""), &["workspace", "diff", "@~1", "@"]);
    command.env("AGENTVFS_BRANCH", "b");
    assert_eq!(env.told(command).ok(), "M\tsrc/when.rs\n");
    let snapshot = place(&env, "b").join(".agentvfs/snapshots").join(&id[..12]);
    assert_eq!(
        fs::read(snapshot.join("src/when.rs")).unwrap(),
        b"changed\n"
    );
}

#[test]
fn git_and_make_find_nothing_to_do_in_a_new_branch() {
    let Some(env) = Env::new() else { return };
    if !mount::found_git_and_make() {
        return;
    }
    sources(&env);
    let make = "all: out/a out/b\nout/%: src/glob.rs src/when.rs\n\tmkdir -p out; cat $^ > $@\n";
    fs::write(env.project().join("Makefile"), make).unwrap();
    fs::write(env.project().join(".gitignore"), "out\n").unwrap();
    let begin = "git init -q . && git add . && git -c user.name=a -c user.email=a@b commit -qm one";
    env.finish(agent(&env, &env.project(), begin), "git").ok();
    let main = env.start();
    let build = "make -s && sleep 1.1 && git status --porcelain";
    assert_eq!(env.finish(agent(&env, &main, build), "make").ok(), "");
    for (name, of) in [("b", "main"), ("c", "b")] {
        branch(&env, &["create", name, "--branch", of]).ok();
        let index = fs::read(place(&env, name).join(".git/index")).unwrap();
        // diff-files compares what stat says alone; status would read what differs there.
        let look = "git diff-files --name-only; git status --porcelain; make";
        let told = env
            .finish(agent(&env, &place(&env, name), look), "git and make")
            .ok();
        assert_eq!(told, "make: Nothing to be done for 'all'.\n");
        let after = fs::read(place(&env, name).join(".git/index")).unwrap();
        assert!(index == after, "git had to look at files of {name}");
    }
}

#[test]
fn bad_input_is_refused_with_one_clear_line() {
    let Some(env) = Env::new() else { return };
    sources(&env);
    env.start();
    branch(&env, &["create", "b"]).ok();
    branch(&env, &["merge", "b", "--into", "b"]).fails(1, "itself");
    branch(&env, &["merge", "none"]).fails(1, "none");
    branch(&env, &["merge", "b", "--into", "none"]).fails(1, "none");
    branch(&env, &["create", "b"]).fails(1, "b");
    branch(&env, &["create", "main"]).fails(1, "main");
    for name in ["../x", "", ".hidden", "a/b", "a b", &"x".repeat(65)] {
        branch(&env, &["create", name]).fails(2, "branch name");
        branch(&env, &["rename", "b", name]).fails(2, "branch name");
    }
    branch(&env, &["create", "c", "--from", "no-such-label"]).fails(1, "no-such-label");
    branch(&env, &["rename", "b", "main"]).fails(1, "main");
    branch(&env, &["rename", "none", "c"]).fails(1, "none");
    branch(&env, &["rename", "main", "c"]).fails(1, "main");
    branch(&env, &["delete", "main"]).fails(1, "main");
    branch(&env, &["delete", "none"]).fails(1, "none");
    branch(&env, &["resolve", "src/when.rs", "--ours"]).fails(1, "src/when.rs");
    branch(&env, &["diff", "b", "none"]).fails(1, "none");
    let list = branch(&env, &["list"]).ok();
    let names: Vec<&str> = list
        .lines()
        .map(|row| row.split('\t').next().unwrap())
        .collect();
    assert_eq!(names, ["main", "b"]);
}

#[test]
fn branch_that_somebody_stands_in_is_not_deleted() {
    let Some(env) = Env::new() else { return };
    sources(&env);
    env.start();
    branch(&env, &["create", "b"]).ok();
    let inside = place(&env, "b").join("src");
    let mut standing = env.program("sleep");
    let mut standing = standing.arg("600").current_dir(&inside).spawn().unwrap();
    branch(&env, &["delete", "b"]).fails(1, &standing.id().to_string());
    standing.kill().unwrap();
    standing.wait().unwrap();
    let open = fs::File::open(inside.join("when.rs")).unwrap();
    branch(&env, &["delete", "b"]).fails(1, &std::process::id().to_string());
    drop(open);
    branch(&env, &["delete", "b"]).ok();
    assert_eq!(
        fs::read_dir(&inside).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    branch(&env, &["create", "b"]).ok();
    assert!(inside.join("when.rs").exists());
}

#[test]
fn snapshots_show_commits_and_cannot_be_changed() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    fs::write(root.join("file"), "one").unwrap();
    let one = env.workspace(&["checkpoint", "here"]).id();
    fs::write(root.join("file"), "two").unwrap();
    let snapshots = root.join(".agentvfs/snapshots");
    let read = |name: &str| fs::read_to_string(snapshots.join(name).join("file"));
    assert_eq!(read("here").unwrap(), "one");
    assert_eq!(read(&one).unwrap(), "one");
    assert_eq!(read(&one[..8]).unwrap(), "one");
    assert_eq!(read("none").unwrap_err().kind(), ErrorKind::NotFound);
    let held = fs::File::open(snapshots.join("here/file")).unwrap();
    for done in [
        fs::write(snapshots.join("here/file"), "x"),
        fs::write(snapshots.join("here/new"), "x"),
        fs::remove_file(snapshots.join("here/file")),
        fs::rename(snapshots.join("here/file"), snapshots.join("here/other")),
    ] {
        assert_eq!(done.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    }
    let two = env.workspace(&["checkpoint", "here"]).id();
    assert_eq!(read("here").unwrap(), "two");
    assert_eq!(
        (read(&one).unwrap(), read(&two).unwrap()),
        ("one".into(), "two".into())
    );
    assert_eq!(std::io::read_to_string(&held).unwrap(), "one");
    let names = fs::read_dir(&snapshots).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.contains(&"here".into()), "{names:?}");
}

#[test]
fn names_do_not_pass_between_branches_and_the_structure_stays() {
    use rustix::io::Errno;
    let Some(env) = Env::new() else { return };
    sources(&env);
    let root = env.start();
    branch(&env, &["create", "b"]).ok();
    let b = place(&env, "b");
    let errno = |done: std::io::Result<()>| Errno::from_io_error(&done.unwrap_err()).unwrap();
    let file = root.join("src/when.rs");
    assert_eq!(errno(fs::rename(&file, b.join("x"))), Errno::XDEV);
    assert_eq!(errno(fs::hard_link(&file, b.join("x"))), Errno::XDEV);
    assert_eq!(
        errno(fs::rename(b.join("src"), root.join("x"))),
        Errno::XDEV
    );
    let structure = root.join(".agentvfs");
    let snapshots = structure.join("snapshots");
    for done in [
        fs::rename(&structure, root.join("x")),
        fs::rename(&b, structure.join("branches/c")),
        fs::rename(&snapshots, structure.join("x")),
        fs::rename(&file, structure.join("x")),
        fs::hard_link(&file, structure.join("branches/x")),
        fs::remove_dir(&structure),
        fs::remove_dir(&b),
        fs::remove_file(structure.join("view")),
        fs::create_dir(structure.join("branches/x")),
        fs::write(structure.join("x"), "x"),
    ] {
        // Whom the directories do not belong to the kernel refuses by itself, with the other word.
        let errno = errno(done);
        let refused = errno == Errno::PERM || (errno == Errno::ACCESS && !mount::is_root());
        assert!(refused, "{errno:?}");
    }
    assert!(file.exists() && b.join("src/when.rs").exists());
    wait::until("the branch is listed", || {
        branch(&env, &["list"]).ok().contains("\nb\t")
    });
}
