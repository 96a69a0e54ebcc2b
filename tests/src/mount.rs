//! Mounts of the machine as tests see them: whether FUSE can be used, what is mounted where, taking
//! it away, and small file systems to fill up.

use crate::skip::{Want, skip};
use std::fs::OpenOptions;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Why no workspace can be mounted here, if so.
pub fn unusable() -> Option<String> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = device {
        return Some(format!("/dev/fuse cannot be opened: {error}"));
    }
    let may_mount = is_root() || found("fusermount3");
    (!may_mount).then(|| "neither root nor fusermount3".to_owned())
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a program can be found.
pub fn found(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}

/// Whether git and make can be found, where a test wants both; says which is missing.
pub fn found_git_and_make() -> bool {
    for (program, want) in [("git", Want::Git), ("make", Want::Make)] {
        if !found(program) {
            skip(want, &format!("{program} is not installed"));
            return false;
        }
    }
    true
}

/// Mount points at or below `root`, innermost and latest first, of whatever is mounted there.
pub fn below(root: &Path) -> Vec<PathBuf> {
    listed(root, |_| true)
}

/// The same of workspaces alone.
pub fn workspaces_below(root: &Path) -> Vec<PathBuf> {
    listed(root, |line| {
        line.split(|byte| *byte == b' ')
            .any(|field| field == b"fuse.agentvfs")
    })
}

fn listed(root: &Path, wanted: impl Fn(&[u8]) -> bool) -> Vec<PathBuf> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap();
    let mut places: Vec<PathBuf> = table
        .split(|byte| *byte == b'\n')
        .filter(|line| wanted(line))
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(unescape)
        .filter(|place| place.starts_with(root))
        .collect();
    places.reverse();
    places.sort_by_key(|place| std::cmp::Reverse(place.as_os_str().len()));
    places
}

/// The table writes space, tab, newline and backslash in octal (proc(5)).
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::new();
    let mut rest = field;
    while let Some((byte, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|_| *byte == b'\\');
        let octal = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(octal.unwrap_or(*byte));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

/// Takes everything that is mounted at or below `root` away, whoever uses it.
pub fn clear(root: &Path) {
    for place in below(root) {
        run("umount", &[b"-l", place.as_os_str().as_bytes()]);
    }
}

/// Mounts an empty file system in memory of `bytes` at `place`, which is made. Root only.
pub fn memory(place: &Path, bytes: u64) {
    std::fs::create_dir(place).unwrap();
    let size = format!("size={bytes},mode=0755");
    assert!(
        run(
            "mount",
            &[
                b"-t",
                b"tmpfs",
                b"-o",
                size.as_bytes(),
                b"none",
                place.as_os_str().as_bytes()
            ]
        ),
        "no tmpfs at {}",
        place.display()
    );
}

/// Mounts an empty ext4 of `bytes` at `place`, which is made; false where the machine cannot.
pub fn ext4(place: &Path, bytes: u64) -> bool {
    std::fs::create_dir(place).unwrap();
    let image = place.with_extension("image");
    std::fs::File::create(&image)
        .unwrap()
        .set_len(bytes)
        .unwrap();
    let image = image.as_os_str().as_bytes();
    run("mkfs.ext4", &[b"-q", b"-F", b"-m", b"0", image])
        && run(
            "mount",
            &[b"-o", b"loop", image, place.as_os_str().as_bytes()],
        )
}

/// Changes the options of what is mounted at `place`.
pub fn remount(place: &Path, options: &str) {
    let options = format!("remount,{options}");
    assert!(run(
        "mount",
        &[b"-o", options.as_bytes(), place.as_os_str().as_bytes()]
    ));
}

fn run(program: &str, args: &[&[u8]]) -> bool {
    let args = args.iter().map(|arg| std::ffi::OsStr::from_bytes(arg));
    let done = Command::new(program)
        .args(args)
        .stderr(Stdio::null())
        .status();
    done.is_ok_and(|status| status.success())
}
