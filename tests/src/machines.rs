//! Two homes as two machines that share a remote in a directory.

use crate::env::{Env, Told};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// Bytes of more than two packs of a push.
pub const MANY_BYTES: usize = 150 << 20;

/// Runs `agentvfs` to its end.
pub fn run(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

/// The same with `--json`.
pub fn json(env: &Env, args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    serde_json::from_str(&run(env, &args).ok()).unwrap()
}

/// Starts `agentvfs` without waiting for it.
pub fn begin(env: &Env, args: &[&str]) -> Child {
    let mut command = env.command(&env.path(""), args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// The head of `main`.
pub fn head(env: &Env) -> String {
    env.status()["head"].as_str().unwrap().to_owned()
}

/// The Merkle root of what the workspace shows.
pub fn root(env: &Env) -> String {
    let file = env.path("exported.db");
    let told = json(
        env,
        &["export", "project", file.to_str().unwrap(), "--force"],
    );
    told["tree"].as_str().unwrap().to_owned()
}

/// Writes a file of the workspace.
pub fn write(env: &Env, path: &str, text: &str) {
    fs::write(env.mountpoint().join(path), text).unwrap();
}

/// What becomes of branches: status and name, without their commits.
pub fn rows(told: Told) -> Vec<String> {
    let out = told.ok();
    let row = |line: &str| line.rsplit_once('\t').unwrap().0.replace('\t', " ");
    out.lines().map(row).collect()
}

/// A machine with the workspace `project` of a project with some files, whose remote `origin` is made.
pub fn first() -> Option<(Env, PathBuf)> {
    let env = Env::new()?;
    fs::create_dir_all(env.project().join("src/deep")).unwrap();
    fs::write(env.project().join("src/deep/main.rs"), "fn main() {}\n").unwrap();
    fs::write(env.project().join("both"), "1\n2\n3\n4\n5\n").unwrap();
    std::os::unix::fs::symlink("src/deep", env.project().join("link")).unwrap();
    env.start();
    env.imported();
    let remote = env.path("remote");
    run(&env, &["remote", "add", "origin", remote.to_str().unwrap()]).ok();
    Some((env, remote))
}

/// Another machine with a clone.
pub fn other(remote: &Path) -> Env {
    let env = Env::new().unwrap();
    run(&env, &["clone", remote.to_str().unwrap(), "project"]).ok();
    env
}

/// Another machine with a clone that has everything.
pub fn full(remote: &Path) -> Env {
    let env = Env::new().unwrap();
    let remote = remote.to_str().unwrap();
    run(&env, &["clone", remote, "project", "--full"]).ok();
    env
}

/// Checks the timeline.
pub fn verified(env: &Env) {
    run(env, &["timeline", "--verify"]).ok();
}

/// Bytes that nothing makes smaller, in a file of the workspace.
pub fn many(env: &Env, name: &str) {
    let mut source = File::open("/dev/urandom").unwrap();
    let mut file = File::create(env.mountpoint().join(name)).unwrap();
    let copied = std::io::copy(
        &mut std::io::Read::take(&mut source, MANY_BYTES as u64),
        &mut file,
    );
    assert_eq!(copied.unwrap(), MANY_BYTES as u64);
}

/// How many files a directory has.
pub fn files_in(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

/// Bytes that nothing makes smaller, the same for the same name.
pub fn noise(name: &str, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut hasher = blake3::Hasher::new();
    hasher.update(name.as_bytes());
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

/// The remote, out of reach while this lives.
pub struct Away(PathBuf, PathBuf);

impl Away {
    /// Takes it out of reach.
    pub fn take(remote: &Path) -> Away {
        let away = remote.with_extension("away");
        fs::rename(remote, &away).unwrap();
        Away(remote.to_owned(), away)
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        fs::rename(&self.1, &self.0).unwrap();
    }
}
