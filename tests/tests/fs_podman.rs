//! Debian's podman with its storage in a workspace: an image is built in layers, and is there after a restart.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tests::env::Env;
use tests::mount;
use tests::skip::{Want, skip};
use tests::tree;

/// A layer that adds, one that removes, moves and replaces, and one that uses what the others left.
const STEPS: &str = r#"FROM scratch
COPY files /
RUN ["/bin/sh", "-c", "rm -r /gone && mv /data /moved && mkdir /data && echo new > /data/new"]
RUN ["/bin/sh", "-c", "rm /moved/sub/b && chmod 700 /moved/a && ls /data > /listed"]
"#;

/// Programs that the steps use, of this machine.
const PROGRAMS: [&str; 6] = ["sh", "rm", "mv", "mkdir", "chmod", "ls"];

fn output(mut command: Command) -> Output {
    let done = command.stdin(Stdio::null()).output();
    done.unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Copies a program with its libraries, under their own paths.
fn bring(program: &str, root: &Path) {
    let mut found = Command::new("sh");
    found.args([
        "-c",
        r#"p=$(command -v "$1") && echo "$p" && ldd "$p""#,
        "sh",
        program,
    ]);
    let text = String::from_utf8(output(found).stdout).unwrap();
    let mut words = text.split_whitespace();
    let place = words.next().unwrap();
    tests::binary::copy(Path::new(place), &root.join("bin").join(program));
    for library in words.filter(|word| word.starts_with('/')) {
        let to = root.join(&library[1..]);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(library, to).unwrap();
    }
}

fn fill(context: &Path) {
    let root = context.join("files");
    for dir in ["bin", "data/sub", "gone"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    for file in ["data/a", "data/sub/b", "gone/g"] {
        fs::write(root.join(file), file).unwrap();
    }
    PROGRAMS.iter().for_each(|program| bring(program, &root));
    fs::write(context.join("Containerfile"), STEPS).unwrap();
}

/// podman with everything it keeps in this environment, its images in the mount.
struct Podman<'a>(&'a Env);

impl Podman<'_> {
    fn say(&self, args: &[&str]) -> String {
        let mut command = Command::new("podman");
        let storage = self.0.mountpoint().join("storage");
        command
            .env("TMPDIR", self.0.path("tmp"))
            .env("HOME", self.0.path(""))
            .arg("--root")
            .arg(storage)
            .arg("--runroot")
            .arg(self.0.path("podman-run"))
            .args(["--storage-driver", "overlay"])
            .args(args);
        let done = output(command);
        let said = [&done.stdout[..], &done.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(done.status.success(), "podman {args:?}: {said}");
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    /// What the image shows: texts of its files.
    fn check(&self) {
        let root = self.say(&["image", "mount", "built"]);
        let text = |name: &str| fs::read_to_string(Path::new(&root).join(name)).ok();
        assert_eq!(text("moved/a").as_deref(), Some("data/a"));
        assert_eq!(text("data/new").as_deref(), Some("new\n"));
        assert_eq!(text("listed").as_deref(), Some("new\n"));
        assert_eq!(
            [text("gone/g"), text("moved/sub/b"), text("data/a")],
            [None, None, None]
        );
        self.say(&["image", "unmount", "built"]);
    }
}

#[test]
fn podman_builds_an_image_with_its_storage_in_a_workspace() {
    if !mount::found("podman") || !mount::is_root() {
        return skip(Want::Machine, "no podman, or not root");
    }
    let Some(env) = Env::as_root() else { return };
    let root = env.start();
    let context = env.path("context");
    fill(&context);
    let podman = Podman(&env);
    let context = context.to_str().unwrap().to_owned();
    podman.say(&["build", "--isolation", "chroot", "-t", "built", &context]);
    podman.check();
    let is_whiteout = |path: &Path| {
        let meta = fs::symlink_metadata(path).unwrap();
        meta.file_type().is_char_device() && meta.rdev() == 0
    };
    let layers = fs::read_dir(root.join("storage/overlay")).unwrap();
    let gone = layers.map(|layer| layer.unwrap().path().join("diff/gone"));
    let left = gone.filter(|path| path.symlink_metadata().is_ok());
    assert_eq!(left.filter(|path| is_whiteout(path)).count(), 1);
    let before = tree::of(&root.join("storage/overlay"));
    env.workspace(&["stop"]).ok();
    env.start();
    tree::same("restart", &before, &tree::of(&root.join("storage/overlay")));
    podman.check();
}
