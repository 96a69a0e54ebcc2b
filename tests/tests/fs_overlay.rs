//! An overlay of the kernel's with its upper directory in a workspace, as containers have: what it shows, and what it
//! leaves there, is what it does on the native file system.

#![allow(clippy::unwrap_used)]

use rustix::fs::{AtFlags, CWD, Mode, OFlags, XattrFlags};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tests::env::Env;
use tests::skip::{Want, skip};
use tests::tree::{self, Entry};

/// A mounted overlay.
struct Overlay(PathBuf);

impl Overlay {
    /// Mounts one over `lower` whose changes go to `layer`; an error is what mount(8) says.
    fn mount(lower: &Path, layer: &Path, merged: &Path, options: &str) -> Result<Overlay, String> {
        for dir in [&layer.join("upper"), &layer.join("work"), merged] {
            fs::create_dir_all(dir).unwrap();
        }
        let (lower, layer) = (lower.display(), layer.display());
        let layers = format!("lowerdir={lower},upperdir={layer}/upper,workdir={layer}/work");
        let done = Command::new("mount")
            .args([
                "-t",
                "overlay",
                "-o",
                &format!("{layers},{options}"),
                "overlay",
            ])
            .arg(merged)
            .output()
            .unwrap();
        match done.status.success() {
            true => Ok(Overlay(merged.to_owned())),
            false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
        }
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(&self.0).status();
        if !done.is_ok_and(|status| status.success()) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
}

/// The lower directory: something for each change.
fn fill(lower: &Path) {
    for dir in ["dir/sub", "moved/below", "replaced", "emptied"] {
        fs::create_dir_all(lower.join(dir)).unwrap();
    }
    let files = [
        "kept",
        "changed",
        "gone",
        "renamed",
        "over",
        "dir/a",
        "dir/sub/b",
        "moved/c",
        "moved/below/d",
        "replaced/e",
        "emptied/f",
        "linked",
        "mode",
        "attribute",
    ];
    for file in files {
        fs::write(
            lower.join(file),
            format!("{file} of the lower layer\n").repeat(300),
        )
        .unwrap();
    }
    symlink("kept", lower.join("link")).unwrap();
}

/// Makes the changes; what each gave.
fn change(root: &Path) -> Vec<(&'static str, Result<(), String>)> {
    let at = |name: &str| root.join(name);
    let append = || {
        let mut file = OpenOptions::new().append(true).open(at("changed"))?;
        file.write_all(b"appended")
    };
    let replace = || {
        fs::remove_dir_all(at("replaced"))?;
        fs::create_dir(at("replaced"))?;
        fs::write(at("replaced/new"), "new")
    };
    let over = || {
        fs::write(at("other"), "other")?;
        fs::rename(at("other"), at("over"))
    };
    let nameless = || {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let made = rustix::fs::open(root, flags, Mode::from_raw_mode(0o640))?;
        rustix::io::write(&made, b"nameless")?;
        let linked = rustix::fs::linkat(&made, "", CWD, at("named"), AtFlags::EMPTY_PATH);
        linked.map_err(io::Error::from)
    };
    let mode = || {
        fs::set_permissions(
            at("mode"),
            std::os::unix::fs::PermissionsExt::from_mode(0o4711),
        )
    };
    let attribute = || {
        let set = rustix::fs::setxattr(at("attribute"), "user.a", b"1", XattrFlags::CREATE);
        set.map_err(io::Error::from)
    };
    let empty = || fs::remove_file(at("emptied/f")).and_then(|()| fs::remove_dir(at("emptied")));
    let calls: [(&str, &dyn Fn() -> io::Result<()>); 15] = [
        ("create", &|| fs::write(at("new"), "new")),
        ("append", &append),
        ("remove a file", &|| fs::remove_file(at("gone"))),
        ("remove a directory", &|| fs::remove_dir_all(at("dir"))),
        ("empty a directory", &empty),
        ("move a directory", &|| {
            fs::rename(at("moved"), at("moved-2"))
        }),
        ("change in what was moved", &|| {
            fs::write(at("moved-2/below/g"), "g")
        }),
        ("replace a directory", &replace),
        ("move a file", &|| {
            fs::rename(at("renamed"), at("renamed-2"))
        }),
        ("move over a file", &over),
        ("link", &|| fs::hard_link(at("linked"), at("linked-2"))),
        ("change a mode", &mode),
        ("set an attribute", &attribute),
        ("name what has none", &nameless),
        ("remove a link", &|| fs::remove_file(at("link"))),
    ];
    let made = calls.iter();
    made.map(|(what, call)| (*what, call().map_err(|error| error.to_string())))
        .collect()
}

/// Attributes by which an overlay says what a layer hides; the others name inodes of the lower layer.
const MARKS: [&str; 3] = ["opaque", "redirect", "impure"];

/// What is to be the same on both: no times, no holes; of the overlay's own attributes those that hide something.
type Picture = BTreeMap<
    Vec<u8>,
    (
        u32,
        (u32, u32),
        u64,
        u64,
        Option<String>,
        Vec<(Vec<u8>, Vec<u8>)>,
    ),
>;

fn picture(root: &Path) -> Picture {
    let is_told = |name: &[u8]| {
        let name = String::from_utf8_lossy(name);
        match name.split_once(".overlay.") {
            Some((_, mark)) => MARKS.contains(&mark),
            None => true,
        }
    };
    let one = |e: Entry| {
        let xattrs = e.xattrs.into_iter().filter(|(name, _)| is_told(name));
        (
            e.mode,
            e.owner,
            e.size,
            e.device,
            e.content,
            xattrs.collect(),
        )
    };
    let all = tree::of(root).into_iter();
    all.map(|(path, entry)| (path, one(entry))).collect()
}

/// Makes the same changes in an overlay on the native file system and in one on a workspace.
fn compare(options: &str) {
    let Some(env) = Env::as_root() else { return };
    let lower = env.path("lower");
    fs::create_dir(&lower).unwrap();
    fill(&lower);
    let native = env.path("native");
    let root = env.start();
    let merged = [env.path("merged-native"), env.path("merged")];
    let first = match Overlay::mount(&lower, &native, &merged[0], options) {
        Ok(overlay) => overlay,
        Err(why) => return skip(Want::Machine, &format!("no overlay can be mounted: {why}")),
    };
    let second = Overlay::mount(&lower, &root, &merged[1], options).unwrap();
    let results = [change(&merged[0]), change(&merged[1])];
    assert_eq!(results[0], results[1]);
    println!("{:?}", results[0]);
    let shown = [picture(&merged[0]), picture(&merged[1])];
    assert_eq!(shown[0], shown[1], "what is shown");
    drop((first, second));
    let left = [picture(&native.join("upper")), picture(&root.join("upper"))];
    assert_eq!(left[0], left[1], "what is left in the upper directory");
    let whiteout = fs::symlink_metadata(root.join("upper/gone")).unwrap();
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
    stays(&env, &lower, &merged[1], (options, &shown[1], &left[1]));
}

/// What was made is in commits, over a restart and in a branch, and the overlay shows the same of it.
fn stays(
    env: &Env,
    lower: &Path,
    merged: &Path,
    (options, shown, left): (&str, &Picture, &Picture),
) {
    let root = env.mountpoint();
    let id = env.workspace(&["checkpoint"]).id();
    let snapshot = root.join(".agentvfs/snapshots").join(&id);
    assert_eq!(picture(&snapshot.join("upper")), *left, "a commit");
    env.workspace(&["stop"]).ok();
    env.start();
    assert_eq!(picture(&root.join("upper")), *left, "after a restart");
    let again = Overlay::mount(lower, &root, merged, options).unwrap();
    assert_eq!(picture(merged), *shown, "after a restart");
    fs::write(merged.join("gone"), "back").unwrap();
    fs::remove_file(merged.join("new")).unwrap();
    drop(again);
    env.workspace(&["rollback", &id]).ok();
    assert_eq!(picture(&root.join("upper")), *left, "after a rollback");
    let _again = Overlay::mount(lower, &root, merged, options).unwrap();
    assert_eq!(picture(merged), *shown, "after a rollback");
}

#[test]
fn an_overlay_on_a_workspace_works_as_on_the_native_file_system() {
    compare("redirect_dir=on");
}

#[test]
fn an_overlay_with_attributes_of_users_works_too() {
    compare("userxattr");
}

/// Mounts an overlay whose changes go to `layer`, and removes and replaces something, as a user in a namespace of his
/// own; false where that cannot be.
fn change_as_user(lower: &Path, layer: &Path, merged: &Path) -> bool {
    let script = r#"mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work,userxattr" overlay "$3"
cd "$3"
rm gone
rm -r replaced
mkdir replaced
echo new > replaced/new
echo more >> dir/a
mv kept kept-2"#;
    for dir in [&layer.join("upper"), &layer.join("work"), merged] {
        fs::create_dir_all(dir).unwrap();
    }
    for place in [lower, layer, merged] {
        let done = Command::new("chown")
            .arg("-R")
            .arg("1501:1501")
            .arg(place)
            .status();
        assert!(done.unwrap().success());
    }
    let done = Command::new("setpriv")
        .args(["--reuid=1501", "--regid=1501", "--clear-groups"])
        .args(["unshare", "-Urm", "sh", "-ec", script, "sh"])
        .args([lower, layer, merged])
        .status();
    done.is_ok_and(|status| status.success())
}

#[test]
fn a_user_may_mount_an_overlay_in_a_namespace_of_his_own() {
    let Some(env) = Env::as_root() else { return };
    let lower = env.path("lower");
    fs::create_dir(&lower).unwrap();
    fill(&lower);
    let (native, merged) = (env.path("native"), env.path("merged"));
    if !change_as_user(&lower, &native, &merged) {
        return skip(Want::Machine, "users may not mount an overlay here");
    }
    let layer = env.start().join("layer");
    assert!(change_as_user(&lower, &layer, &merged));
    assert_eq!(
        picture(&native.join("upper")),
        picture(&layer.join("upper"))
    );
    let whiteout = fs::symlink_metadata(layer.join("upper/gone")).unwrap();
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
}
