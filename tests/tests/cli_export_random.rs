//! Random histories (merges, deleted branches, calls within calls, hard links on both sides, attributes, keys,
//! rollbacks): every export comes back as it was, with the calls of all branches, and its steps add up to what
//! `workspace diff` says. The seed is another one in each run.

#![allow(clippy::unwrap_used)]

use rusqlite::Connection;
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tests::env::{Env, Told};
use tests::rng::{Rng, seed};
use tests::{database, tree};

/// Histories in a run, and what is done in each.
const HISTORIES: usize = 3;
const DEEDS: usize = 140;

fn run(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

fn json(env: &Env, args: &[&str]) -> Value {
    serde_json::from_str(&run(env, &[args, &["--json"]].concat()).ok()).unwrap()
}

/// Writes a file anew. A fifo, which nobody reads, is not waited for.
fn write(name: &Path, bytes: &[u8]) {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    if let Ok(mut file) = options.custom_flags(libc::O_NONBLOCK).open(name) {
        drop(file.write_all(bytes));
    }
}

/// A history in the making.
struct History<'a> {
    env: &'a Env,
    rng: Rng,
    /// The branch beside `main`, where there is one.
    branch: Option<String>,
    branches: usize,
    turn: usize,
    /// Commits that can be gone back to.
    commits: Vec<String>,
}

impl History<'_> {
    fn new(env: &Env, rng: Rng) -> History<'_> {
        History {
            env,
            rng,
            branch: None,
            branches: 0,
            turn: 0,
            commits: Vec::new(),
        }
    }

    fn pick(&mut self, end: usize) -> usize {
        self.rng.below(end as u64) as usize
    }

    /// `main`, or the other branch, and where it is shown.
    fn place(&mut self) -> (String, PathBuf) {
        let main = self.env.mountpoint();
        match self.branch.clone() {
            Some(name) if self.rng.below(2) == 0 => {
                let root = main.join(".agentvfs/branches").join(&name);
                (name, root)
            }
            _ => ("main".to_owned(), main),
        }
    }

    fn name(&mut self) -> String {
        let dir = ["", "d/", "d/e/", "f/"][self.pick(4)];
        format!("{dir}n{}", self.pick(9))
    }

    fn deed(&mut self) {
        let (branch, root) = self.place();
        match self.pick(24) {
            0..12 => self.change(&root),
            12 | 13 => self.key(&branch),
            14..17 => self.checkpoint(&branch),
            17 if branch == "main" => self.go_back(),
            18 if branch == "main" => self.restore(),
            19 if branch == "main" => drop(run(
                self.env,
                &["workspace", "undo", "project", "--over-later-changes"],
            )),
            20 => self.call(&branch, &root),
            21 | 22 => self.branch_or_merge(),
            _ => {}
        }
    }

    /// A change of a file; what the tree as it is does not allow is no matter.
    fn change(&mut self, root: &Path) {
        let (name, other) = (root.join(self.name()), root.join(self.name()));
        let _ = fs::create_dir_all(name.parent().unwrap());
        let len = [0, 3, 900, 70_000][self.pick(4)];
        let bytes = self.rng.bytes(len);
        match self.pick(12) {
            0..3 => write(&name, &bytes),
            3 | 4 => drop(fs::hard_link(&other, &name)),
            5 => drop(fs::remove_file(&name)),
            6 => drop(fs::remove_dir_all(&name).or_else(|_| fs::create_dir(&name))),
            7 => drop(symlink("n1", &name)),
            8 => drop(rustix::fs::mknodat(
                CWD,
                &name,
                FileType::Fifo,
                Mode::from_raw_mode(0o600),
                0,
            )),
            9 => drop(rustix::fs::lsetxattr(
                &name,
                "user.x",
                &bytes[..len.min(40)],
                XattrFlags::empty(),
            )),
            10 => drop(fs::set_permissions(
                &name,
                fs::Permissions::from_mode(0o600 + len as u32 % 64),
            )),
            _ => drop(fs::rename(&other, &name)),
        }
    }

    fn key(&mut self, branch: &str) {
        let key = format!("k{}", self.pick(5));
        let value = self.pick(1000).to_string();
        let args = [
            "kv", "set", &key, &value, "-w", "project", "--branch", branch,
        ];
        run(self.env, &args).ok();
    }

    /// A checkpoint; of three one has no metadata.
    fn checkpoint(&mut self, branch: &str) {
        let mut args = vec![
            "workspace",
            "checkpoint",
            "-w",
            "project",
            "--branch",
            branch,
        ];
        self.turn += 1;
        let turn = format!("turn={}", self.turn);
        if self.rng.below(3) > 0 {
            args.extend(["--meta", &turn]);
        }
        let id = run(self.env, &args).id();
        if branch == "main" {
            self.commits.push(id);
        }
    }

    fn old_commit(&mut self) -> Option<String> {
        let at = self.commits.len().checked_sub(1)?;
        let at = self.pick(at + 1);
        Some(self.commits[at].clone())
    }

    fn go_back(&mut self) {
        let Some(id) = self.old_commit() else { return };
        run(self.env, &["workspace", "rollback", "project", &id]).id();
    }

    fn restore(&mut self) {
        let Some(id) = self.old_commit() else { return };
        let path = ["d", "n1", "f", "n2"][self.pick(4)];
        drop(run(
            self.env,
            &["workspace", "restore", path, "--ref", &id, "-w", "project"],
        ));
    }

    fn call(&mut self, branch: &str, root: &Path) {
        let at = ["-w", "project", "--branch", branch];
        let id = run(self.env, &[&["tool", "start", "edit"], &at[..]].concat()).ok();
        self.change(root);
        if self.rng.below(3) == 0 {
            self.call(branch, root);
        }
        run(
            self.env,
            &[&["tool", "success", id.trim()], &at[..]].concat(),
        )
        .ok();
    }

    fn branch_or_merge(&mut self) {
        let Some(name) = self.branch.take() else {
            self.branches += 1;
            let name = format!("b{}", self.branches);
            run(self.env, &["branch", "create", &name, "-w", "project"]).ok();
            self.branch = Some(name);
            return;
        };
        let args = [
            "branch",
            "merge",
            &name,
            "-w",
            "project",
            "--conflicts",
            "keep",
        ];
        // With conflicts the exit status is 1, and the merge is there.
        drop(run(self.env, &args));
        if self.rng.below(2) == 0 {
            run(self.env, &["branch", "delete", &name, "-w", "project"]);
        }
    }
}

fn keys(env: &Env, workspace: &str) -> BTreeMap<String, String> {
    let list = run(env, &["kv", "list", "-w", workspace]).ok();
    let keys = list
        .lines()
        .map(|line| line.split('\t').next().unwrap().to_owned());
    keys.map(|key| {
        let value = run(env, &["kv", "get", &key, "-w", workspace]).ok();
        (key, value)
    })
    .collect()
}

/// What the branch shows goes out and comes back.
fn there_and_back(env: &Env, at: usize) {
    let (file, name) = (format!("out{at}.db"), format!("copy{at}"));
    let out = json(env, &["export", "project", &file, "--history"]);
    database::check(&env.path(&file));
    let told = json(env, &["import", &file, "--workspace", &name]);
    assert_eq!(told["tree"], out["tree"]);
    assert_eq!(told["content"], "as-exported", "{told}");
    let rows = format!("rows{at}.db");
    json(env, &["export", &name, &rows, "--history"]);
    database::check(&env.path(&rows));
    assert_eq!(
        database::calls(&env.path(&file)),
        database::calls(&env.path(&rows))
    );
    env.workspace(&["start", &name]).ok();
    let copy = env.home().join("mnt").join(&name);
    tree::same("the copy", &tree::of(&env.mountpoint()), &tree::of(&copy));
    assert_eq!(keys(env, &name), keys(env, "project"));
    // The copy can be worked on: new hard links are apart from those that there are.
    fs::write(copy.join("new"), "new").unwrap();
    fs::hard_link(copy.join("new"), copy.join("new-too")).unwrap();
    let again = json(env, &["export", &name, &format!("again{at}.db")]);
    let back = json(
        env,
        &[
            "import",
            &format!("again{at}.db"),
            "-w",
            &format!("back{at}"),
        ],
    );
    assert_eq!(
        (&back["tree"], &back["content"]),
        (&again["tree"], &"as-exported".into())
    );
    env.workspace(&["stop", &name]).ok();
}

/// The newest commit of each turn that the branch has, and whether it was shown as it is.
fn turns(env: &Env) -> BTreeMap<u64, String> {
    let log = json(env, &["workspace", "log", "project", "--all"]);
    let mut turns = BTreeMap::new();
    for commit in log["commits"].as_array().unwrap() {
        if let Some(turn) = commit["meta"]["turn"].as_str() {
            let id = commit["id"].as_str().or(commit["commit"].as_str()).unwrap();
            turns.entry(turn.parse().unwrap()).or_insert(id.to_owned());
        }
    }
    turns
}

/// What `workspace diff` says, with a rename as what it takes away and what it adds.
fn wanted(env: &Env, from: &str, to: &str) -> BTreeSet<(String, String)> {
    let found = json(env, &["workspace", "diff", "project", from, to]);
    let mut wanted = BTreeSet::new();
    for change in found["changes"].as_array().unwrap() {
        let text = |key: &str| change[key].as_str().unwrap().to_owned();
        match change["status"].as_str().unwrap() {
            "R" => wanted.extend([
                ("D".to_owned(), text("old_path")),
                ("A".to_owned(), text("path")),
            ]),
            kind => drop(wanted.insert((kind.to_owned(), text("path")))),
        }
    }
    wanted
}

/// The query of docs/export.md.
const BETWEEN: &str = "SELECT kind, path FROM agentvfs_between
    WHERE from_step = (SELECT step FROM agentvfs_step_by_meta WHERE key = 'turn' AND value = ?1)
        AND to_step = (SELECT step FROM agentvfs_step_by_meta WHERE key = 'turn' AND value = ?2)";

fn between(db: &Connection, from: u64, to: u64) -> BTreeSet<(String, String)> {
    let mut select = db.prepare_cached(BETWEEN).unwrap();
    let pair = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let rows = select
        .query_map([from.to_string(), to.to_string()], pair)
        .unwrap();
    rows.map(Result::unwrap).collect()
}

/// The steps of an export between any two turns are what `workspace diff` says of them.
fn steps_add_up(env: &Env, file: &str, rng: &mut Rng) -> usize {
    let db = database::open(&env.path(file));
    let broken = "SELECT count(*) FROM agentvfs_step a JOIN agentvfs_step b ON b.step = a.step + 1
        WHERE a.after_commit IS NOT NULL AND b.before_commit IS NOT a.after_commit";
    assert_eq!(database::number(&db, broken), 0);
    let known = "SELECT CAST(value AS INTEGER) FROM agentvfs_step_by_meta WHERE key = 'turn'";
    let mut select = db.prepare(known).unwrap();
    let known: Vec<i64> = select
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let turns = turns(env);
    let mut compared = 0;
    for (from, a) in &turns {
        for (to, b) in &turns {
            if rng.below(4) == 0 && known.contains(&(*from as i64)) && known.contains(&(*to as i64))
            {
                assert_eq!(
                    between(&db, *from, *to),
                    wanted(env, a, b),
                    "from turn {from} to {to}"
                );
                compared += 1;
            }
        }
    }
    compared
}

#[test]
fn random_histories_come_back_and_their_steps_add_up() {
    let mut rng = Rng::new(seed());
    let (mut compared, mut switches) = (0, 0);
    for _ in 0..HISTORIES {
        let Some(env) = Env::new() else { return };
        let project = env.project();
        fs::create_dir_all(project.join("d/e")).unwrap();
        for name in ["n1", "d/n2", "d/e/n3"] {
            fs::write(project.join(name), name).unwrap();
        }
        fs::hard_link(project.join("n1"), project.join("d/n4")).unwrap();
        env.start();
        env.imported();
        let mut history = History::new(&env, Rng::new(rng.word()));
        for at in 0..DEEDS {
            history.deed();
            if at % 70 == 69 {
                there_and_back(&env, at);
            }
        }
        let last = format!("out{}.db", DEEDS - 1);
        compared += steps_add_up(&env, &last, &mut rng);
        let db = database::open(&env.path(&last));
        let sql = "SELECT count(*) FROM agentvfs_history WHERE step IS NOT NULL AND kind IN
            ('rollback', 'undo', 'merge', 'restore')";
        switches += database::number(&db, sql);
        assert_eq!(env.told(env.command(&env.path(""), &["fsck"])).status, 0);
    }
    println!("{compared} pairs of turns compared, {switches} switches");
    assert!(switches > 0);
}

/// Changes of a commit without metadata, a rollback, a merge that only went forward.
#[test]
fn what_changed_between_turns_is_what_a_diff_says() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("a"), "a").unwrap();
    let root = env.start();
    let turn = |n: usize| {
        let meta = format!("turn={n}");
        env.workspace(&["checkpoint", "project", "--meta", &meta])
            .id()
    };
    let three = turn(3);
    fs::write(root.join("kept"), "of a commit without metadata").unwrap();
    env.workspace(&["checkpoint", "project"]).id();
    fs::write(root.join("gone"), "in vain").unwrap();
    turn(4);
    env.workspace(&["rollback", "project", "@~1"]).id();
    run(&env, &["branch", "create", "b", "-w", "project"]).ok();
    let other = root.join(".agentvfs/branches/b");
    fs::write(other.join("merged"), "of another branch").unwrap();
    let args = [
        "workspace",
        "checkpoint",
        "-w",
        "project",
        "--branch",
        "b",
        "--meta",
        "turn=5",
    ];
    let five = run(&env, &args).id();
    fs::write(other.join("merged-too"), "of another branch").unwrap();
    run(
        &env,
        &["workspace", "checkpoint", "-w", "project", "--branch", "b"],
    )
    .id();
    run(&env, &["branch", "merge", "b", "-w", "project"]).id();
    fs::create_dir_all(root.join("dir/empty")).unwrap();
    fs::rename(root.join("a"), root.join("dir/a")).unwrap();
    let seven = turn(7);
    run(&env, &["export", "project", "out.db", "--history"]).ok();
    let db = database::open(&env.path("out.db"));
    let found = between(&db, 3, 7);
    assert_eq!(found, wanted(&env, &three, &seven));
    let names: Vec<&str> = found.iter().map(|(_, path)| path.as_str()).collect();
    assert_eq!(
        names,
        ["dir/a", "dir/empty", "kept", "merged", "merged-too", "a"]
    );
    assert_eq!(between(&db, 7, 3), wanted(&env, &seven, &three));
    assert_eq!(between(&db, 5, 7), wanted(&env, &five, &seven));
    let mut select = db
        .prepare("SELECT kind FROM agentvfs_history WHERE kind <> 'before-rollback'")
        .unwrap();
    let kinds: Vec<String> = select
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    println!("{kinds:?}");
    let at = |kind: &str| kinds.iter().position(|k| k == kind).unwrap();
    assert!(at("rollback") < at("merge"), "{kinds:?}");
}
