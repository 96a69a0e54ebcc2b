//! Where the programs under test are.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

/// The `agentvfs` that was built beside the test that runs; built now where that did not happen.
pub fn agentvfs() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = build_directory().join("agentvfs");
        if !path.exists() {
            build(&path);
        }
        path
    })
}

/// Test programs lie in `<target>/<profile>/deps`.
fn build_directory() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let directory = test.parent().unwrap();
    let directory = match directory.file_name() {
        Some(name) if name == "deps" => directory.parent().unwrap(),
        _ => directory,
    };
    directory.to_owned()
}

fn build(path: &Path) {
    let directory = path.parent().unwrap();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo
        // As the whole workspace has it: with the second way to the kernel.
        .args(["build", "--workspace", "--bin", "agentvfs"])
        .arg("--target-dir")
        .arg(directory.parent().unwrap());
    if directory.ends_with("release") {
        cargo.arg("--release");
    }
    let done = cargo
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(
        done.success() && path.exists(),
        "agentvfs cannot be built at {}",
        path.display()
    );
}

/// Copies a program that is to be run, with its times and mode. Another process does it: a descriptor of this one that
/// is open for writing would be inherited by what another test starts just then, and the copy be busy (execve(2),
/// ETXTBSY).
#[track_caller]
pub fn copy(program: &Path, place: &Path) {
    let mut copy = Command::new("cp");
    assert!(
        copy.arg("-p")
            .args([program, place])
            .status()
            .unwrap()
            .success()
    );
}

/// The same build at `place`, for who does not see where it was built.
pub fn same_build(place: &Path) -> PathBuf {
    copy(agentvfs(), place);
    place.to_owned()
}

/// `agentvfs` as another build, at `place`: a copy with another time.
pub fn other_build(place: &Path) -> PathBuf {
    copy(agentvfs(), place);
    let time = SystemTime::now() - Duration::from_secs(1000);
    File::open(place).unwrap().set_modified(time).unwrap();
    place.to_owned()
}
