//! Running git, away from any configuration of the machine.

use super::tree::{Tree, What};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A scratch directory, in memory where there is one.
pub fn scratch(name: &str) -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let prefix = format!("agentvfs-{name}-");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix);
    match memory.is_dir() {
        true => builder.tempdir_in(memory).unwrap(),
        false => builder.tempdir().unwrap(),
    }
}

/// `git` in a directory, with nothing of the user's configuration.
pub fn command(dir: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    command
}

/// Runs git; fails with what it said.
pub fn run(dir: &Path, args: &[&str]) -> Vec<u8> {
    let output = command(dir).args(args).output().expect("git");
    check(args, &output);
    output.stdout
}

fn check(args: &[&str], output: &Output) {
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// What `git merge-file` made.
pub struct FileMerge {
    pub bytes: Vec<u8>,
    pub conflicts: i32,
}

/// `git merge-file --diff3` of three texts.
pub fn merge_file(dir: &Path, base: &[u8], ours: &[u8], theirs: &[u8]) -> FileMerge {
    for (name, text) in [("base", base), ("ours", ours), ("theirs", theirs)] {
        fs::write(dir.join(name), text).unwrap();
    }
    let args = ["merge-file", "-p", "--diff3", "ours", "base", "theirs"];
    let output = command(dir).args(args).output().expect("git");
    let code = output.status.code().expect("a status");
    assert!(
        (0..128).contains(&code),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    FileMerge {
        bytes: output.stdout,
        conflicts: code,
    }
}

/// A commit to import.
pub struct Commit<'a> {
    /// Name of its branch.
    pub name: String,
    /// Names of its parents' branches.
    pub parents: Vec<String>,
    /// Seconds since 1970.
    pub time: i64,
    /// Its files.
    pub tree: &'a Tree,
}

/// Makes a repository with these commits, each on a branch of its own.
pub fn import(dir: &Path, commits: &[Commit<'_>]) {
    run(dir, &["init", "-q", "--bare", "."]);
    let mut stream: Vec<u8> = Vec::new();
    for commit in commits {
        let head = format!(
            "commit refs/heads/{}\ncommitter t <t@t> {} +0000\ndata 0\n",
            commit.name, commit.time
        );
        stream.extend(head.bytes());
        for (i, parent) in commit.parents.iter().enumerate() {
            let word = if i == 0 { "from" } else { "merge" };
            stream.extend(format!("{word} refs/heads/{parent}\n").bytes());
        }
        stream.extend(b"deleteall\n");
        for (path, leaf) in &commit.tree.leaves {
            let mode = match leaf.what {
                What::Link(_) => "120000",
                _ if leaf.meta.mode & 0o100 != 0 => "100755",
                _ => "100644",
            };
            let path = String::from_utf8(path.clone()).unwrap();
            stream.extend(format!("M {mode} inline {path}\n").bytes());
            stream.extend(format!("data {}\n", leaf.bytes().len()).bytes());
            stream.extend_from_slice(leaf.bytes());
            stream.push(b'\n');
        }
    }
    feed(dir, &["fast-import", "--quiet"], &stream);
}

/// Runs git with this standard input.
fn feed(dir: &Path, args: &[&str], input: &[u8]) -> Vec<u8> {
    fs::write(dir.join("stdin"), input).unwrap();
    let stdin = fs::File::open(dir.join("stdin")).unwrap();
    let output = command(dir).args(args).stdin(stdin).output().expect("git");
    check(args, &output);
    output.stdout
}

/// What `git merge-tree` made of two branches.
#[derive(Debug)]
pub struct TreeMerge {
    pub clean: bool,
    /// Id of the merged tree.
    pub tree: String,
    /// Paths in conflict, and those that a directory rename could not settle.
    pub paths: BTreeSet<Vec<u8>>,
    /// What git says.
    pub messages: Vec<String>,
}

/// Git's ort strategy has the histogram algorithm built in: up to 2.47 it does not heed
/// `-X diff-algorithm=myers`. So the lines are merged by `git merge-file`, as a merge driver. What cannot
/// be merged by lines is a conflict, or the base where the larger markers tell of a virtual ancestor.
const DRIVER: &str =
    "git merge-file -q --diff3 --marker-size=$4 -L \"$5\" -L \"$6\" -L \"$7\" $1 $2 $3
code=$?
if [ $code -lt 128 ]; then exit $((code > 0)); fi
if [ $4 -gt 8 ]; then exec cp $2 $1; fi
exit 1
";

/// Merges pairs of branches; `None` where git dies of an assertion of its own.
pub fn merge_trees(dir: &Path, pairs: &[(String, String)]) -> Vec<Option<TreeMerge>> {
    if let Some(all) = merge_batch(dir, pairs) {
        return all.into_iter().map(Some).collect();
    }
    let one = |pair| merge_batch(dir, std::slice::from_ref(pair))?.pop();
    pairs.iter().map(one).collect()
}

fn merge_batch(dir: &Path, pairs: &[(String, String)]) -> Option<Vec<TreeMerge>> {
    let input: String = pairs.iter().map(|(a, b)| format!("{a} {b}\n")).collect();
    fs::write(dir.join("driver"), DRIVER).unwrap();
    let driver = "merge.lines.driver=sh ./driver %A %O %B %L %X %S %Y";
    let args = [
        ["-c", driver, "-c", "merge.default=lines", "merge-tree"].as_slice(),
        &["--stdin", "--name-only", "--messages"],
    ]
    .concat();
    fs::write(dir.join("pairs"), input).unwrap();
    let stdin = fs::File::open(dir.join("pairs")).unwrap();
    let output = command(dir).args(&args).stdin(stdin).output().expect("git");
    if output.status.signal().is_some() {
        return None;
    }
    check(&args, &output);
    let mut fields = output.stdout.split(|byte| *byte == 0);
    let merges: Vec<TreeMerge> = pairs.iter().map(|_| merge_of(&mut fields)).collect();
    assert_eq!(fields.next(), Some(&b""[..]), "all of the output is read");
    Some(merges)
}

fn merge_of<'a>(fields: &mut impl Iterator<Item = &'a [u8]>) -> TreeMerge {
    let mut next = || fields.next().expect("a field").to_vec();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let clean = match &next()[..] {
        b"1" => true,
        b"0" => false,
        other => panic!("status {:?}", String::from_utf8_lossy(other)),
    };
    let tree = text(next());
    let (mut paths, mut messages) = (BTreeSet::new(), Vec::new());
    loop {
        let path = next();
        if path.is_empty() {
            break;
        }
        paths.insert(path);
    }
    loop {
        let count = text(next());
        if count.is_empty() {
            break;
        }
        let named: Vec<Vec<u8>> = (0..count.parse::<usize>().unwrap())
            .map(|_| next())
            .collect();
        let kind = text(next());
        // Of these git keeps no entry in its index.
        let alone = ["unclear split", "in way of", "directory rename collision"];
        let about_dirs = kind.contains("directory rename");
        if about_dirs && alone.iter().any(|word| kind.contains(word)) {
            paths.extend(named.first().cloned());
        }
        messages.push(format!("{kind}: {}", text(next())));
    }
    TreeMerge {
        clean,
        tree,
        paths,
        messages,
    }
}

/// Mode and bytes of files by path.
pub type Files = BTreeMap<Vec<u8>, (String, Vec<u8>)>;

/// Id that git gives to no object; where it merges a file into a place below another one, it may leave this.
const NO_OBJECT: &str = "0000000000000000000000000000000000000000";

/// The files of a stored tree: mode and bytes by path; `None` where the tree names a file that git lost.
pub fn files(dir: &Path, tree: &str) -> Option<Files> {
    let listing = run(dir, &["ls-tree", "-r", "-z", tree]);
    let rows: Vec<(String, String, Vec<u8>)> = listing
        .split(|byte| *byte == 0)
        .filter(|row| !row.is_empty())
        .map(|row| {
            let tab = row.iter().position(|byte| *byte == b'\t').unwrap();
            let facts = String::from_utf8(row[..tab].to_vec()).unwrap();
            let mut words = facts.split(' ');
            let (mode, id) = (words.next().unwrap(), words.nth(1).unwrap());
            (mode.into(), id.into(), row[tab + 1..].to_vec())
        })
        .collect();
    if rows.iter().any(|(_, id, _)| id == NO_OBJECT) {
        return None;
    }
    let wanted: String = rows.iter().map(|(_, id, _)| format!("{id}\n")).collect();
    let output = feed(dir, &["cat-file", "--batch"], wanted.as_bytes());
    let mut rest = &output[..];
    let mut found = BTreeMap::new();
    for (mode, _, path) in rows {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap();
        let head = String::from_utf8(rest[..end].to_vec()).unwrap();
        let len: usize = head.rsplit(' ').next().unwrap().parse().unwrap();
        let from = end + 1;
        found.insert(path, (mode, rest[from..from + len].to_vec()));
        rest = &rest[from + len + 1..];
    }
    Some(found)
}
