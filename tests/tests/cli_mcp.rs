//! `agentvfs serve mcp` with the real binary: every tool with its effect seen through the mount, and no
//! path that leads out.

#![allow(clippy::unwrap_used)]

use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use tests::env::Env;
use tests::mcp::{Mcp, project, serve};
use tests::tree;

#[test]
fn tools_are_offered_by_their_names() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let mut mcp = serve(&env);
    let offered: BTreeSet<String> = mcp.tools().into_iter().collect();
    let wanted = "read_file write_file readdir mkdir remove rename stat access checkpoint rollback undo \
                  log diff branch_create branch_merge conflicts resolve kv_get kv_set kv_delete \
                  kv_list timeline export branch_list tool_diff tool_undo blame redo restore";
    let wanted: BTreeSet<String> = wanted.split_whitespace().map(str::to_owned).collect();
    assert_eq!(offered, wanted);
    let answer = mcp.request("tools/list", json!({}));
    let tools = answer["result"]["tools"].as_array().unwrap();
    let read = tools.iter().find(|t| t["name"] == "read_file").unwrap();
    assert_eq!(read["annotations"]["readOnlyHint"], true);
    assert_eq!(read["inputSchema"]["required"], json!(["path"]));
    assert_eq!(mcp.end(), (String::new(), 0));
}

#[test]
fn files_are_written_read_and_listed() {
    let Some(env) = Env::new() else { return };
    let root = project(&env);
    let mut mcp = serve(&env);
    // The kernel knows the file, its pages, the directory, and that names are not there.
    assert_eq!(fs::read(root.join("README")).unwrap(), b"a project\n");
    assert!(!root.join("new/dir/file").exists());
    assert_eq!(
        mcp.call("read_file", json!({"path": "README"})).ok(),
        "a project\n"
    );
    let wrote = mcp.call(
        "write_file",
        json!({"path": "/README", "content": "short\n"}),
    );
    assert_eq!(wrote.ok(), "Wrote 6 bytes to /README");
    assert_eq!(fs::read(root.join("README")).unwrap(), b"short\n");
    mcp.call(
        "write_file",
        json!({"path": "README", "content": "more\n", "append": true}),
    )
    .ok();
    assert_eq!(fs::read(root.join("README")).unwrap(), b"short\nmore\n");
    let deep = json!({"path": "new/dir/file", "content": "new"});
    mcp.call("write_file", deep).fails("no such file");
    mcp.call(
        "write_file",
        json!({"path": "new/dir/file", "content": "new", "create_dirs": true}),
    )
    .ok();
    assert_eq!(fs::read(root.join("new/dir/file")).unwrap(), b"new");
    let through = json!({"path": "current/main.rs", "content": "through a link\n"});
    mcp.call("write_file", through).ok();
    assert_eq!(
        fs::read(root.join("src/main.rs")).unwrap(),
        b"through a link\n"
    );
    let names = mcp.call("readdir", json!({"path": "/"})).json();
    assert_eq!(names, json!(["README", "current", "new", "out", "src"]));
    let listed = mcp
        .call("readdir", json!({"path": "src", "details": true}))
        .json();
    assert_eq!(listed[2]["name"], "up");
    assert_eq!(
        (&listed[2]["type"], &listed[2]["target"]),
        (&"symlink".into(), &"../..".into())
    );
    // What the mount changes is seen here.
    fs::write(root.join("README"), "from the mount\n").unwrap();
    assert_eq!(
        mcp.call("read_file", json!({"path": "README"})).ok(),
        "from the mount\n"
    );
}

#[test]
fn facts_about_paths_are_those_of_the_mount() {
    let Some(env) = Env::new() else { return };
    let root = project(&env);
    fs::set_permissions(root.join("README"), fs::Permissions::from_mode(0o640)).unwrap();
    let mut mcp = serve(&env);
    let facts = mcp.call("stat", json!({"path": "README"})).json();
    let there = fs::metadata(root.join("README")).unwrap();
    assert_eq!(facts["mode"], there.mode());
    assert_eq!(
        (&facts["size"], &facts["mtime"]),
        (&there.len().into(), &there.mtime().into())
    );
    assert_eq!(
        (&facts["is_file"], &facts["is_directory"]),
        (&true.into(), &false.into())
    );
    let link = mcp.call("stat", json!({"path": "current"})).json();
    assert_eq!(
        (&link["type"], &link["target"]),
        (&"symlink".into(), &"src".into())
    );
    mcp.call("stat", json!({"path": "none"}))
        .fails("none: no such file");
    let exists = |mcp: &mut Mcp, path: &str| mcp.call("access", json!({"path": path})).json();
    assert_eq!(
        exists(&mut mcp, "README"),
        json!({"exists": true, "type": "file"})
    );
    assert_eq!(exists(&mut mcp, "current")["type"], "directory");
    assert_eq!(exists(&mut mcp, "none/at/all"), json!({"exists": false}));
}

#[test]
fn names_are_made_moved_and_removed_and_the_mount_shows_it() {
    let Some(env) = Env::new() else { return };
    let root = project(&env);
    let mut mcp = serve(&env);
    let known = |names: &str| {
        names
            .split(' ')
            .for_each(|n| drop(fs::symlink_metadata(root.join(n))))
    };
    known("made made/a README src/deep/lib.rs moved src/main.rs");
    assert_eq!(fs::read_dir(&root).unwrap().count(), 4);
    mcp.call("mkdir", json!({"path": "made"})).ok();
    assert!(root.join("made").is_dir());
    assert_eq!(fs::read_dir(&root).unwrap().count(), 5);
    mcp.call("mkdir", json!({"path": "made"}))
        .fails("made: file exists");
    mcp.call("mkdir", json!({"path": "made/a/b"}))
        .fails("no such file");
    mcp.call("mkdir", json!({"path": "made/a/b", "parents": true}))
        .ok();
    assert!(root.join("made/a/b").is_dir());
    mcp.call("rename", json!({"from": "README", "to": "made/moved"}))
        .ok();
    assert!(!root.join("README").exists());
    assert_eq!(fs::read(root.join("made/moved")).unwrap(), b"a project\n");
    // A directory that a process is in, and files that are open, stay what they are.
    let inside = fs::File::open(root.join("src/deep")).unwrap();
    let open = fs::File::open(root.join("src/deep/lib.rs")).unwrap();
    mcp.call("rename", json!({"from": "src/deep", "to": "deep"}))
        .ok();
    assert_eq!(
        fs::read(root.join("deep/lib.rs")).unwrap(),
        b"pub fn x() {}\n"
    );
    assert!(fs::symlink_metadata(root.join("src/deep")).is_err());
    assert_eq!(
        inside.metadata().unwrap().ino(),
        fs::metadata(root.join("deep")).unwrap().ino()
    );
    mcp.call("rename", json!({"from": "made/moved", "to": "deep/lib.rs"}))
        .ok();
    assert_eq!(fs::read(root.join("deep/lib.rs")).unwrap(), b"a project\n");
    assert_eq!(open.metadata().unwrap().len(), 14);
    mcp.call("remove", json!({"path": "deep"}))
        .fails("deep: directory not empty");
    mcp.call("remove", json!({"path": "deep/lib.rs"})).ok();
    assert!(!root.join("deep/lib.rs").exists());
    mcp.call("remove", json!({"path": "current"})).ok();
    assert!(root.join("src/main.rs").exists() && !root.join("current").exists());
    mcp.call("remove", json!({"path": "made", "recursive": true}))
        .ok();
    mcp.call("remove", json!({"path": "deep"})).ok();
    let mut names: Vec<_> = fs::read_dir(&root)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["out", "src"]);
    for path in ["/", "", "."] {
        mcp.call("remove", json!({"path": path, "recursive": true}))
            .fails("the root");
    }
    mcp.call("remove", json!({"path": "made"}))
        .fails("no such file");
}

#[test]
fn whole_directories_go_and_come_back_exactly() {
    let Some(env) = Env::new() else { return };
    let root = project(&env);
    for i in 0..700 {
        fs::write(root.join(format!("src/deep/{i}")), format!("{i}")).unwrap();
    }
    fs::create_dir_all(root.join("src/a/b/c/d")).unwrap();
    fs::hard_link(root.join("README"), root.join("src/a/b/second")).unwrap();
    env.workspace(&["checkpoint", "-w", "project", "full"]).id();
    let before = tree::of(&root);
    let mut mcp = serve(&env);
    mcp.call("remove", json!({"path": "src", "recursive": true}))
        .ok();
    assert!(!root.join("src/deep/5").exists() && !root.join("src").exists());
    assert_eq!(fs::metadata(root.join("README")).unwrap().nlink(), 1);
    env.workspace(&["rollback", "-w", "project"]).ok();
    tree::same("rollback", &before, &tree::of(&root));
}

#[test]
fn large_files_come_in_pages_and_binary_ones_in_base64() {
    let Some(env) = Env::new() else { return };
    let root = project(&env);
    let mut mcp = serve(&env);
    let text: String = (0..20_000).map(|i| format!("zeile {i} äöü\n")).collect();
    fs::write(root.join("long"), &text).unwrap();
    let (mut read, mut offset) = (String::new(), 0);
    loop {
        let page = mcp.call("read_file", json!({"path": "long", "offset": offset}));
        assert!(page.ok().len() <= 32 << 10);
        read.push_str(page.ok());
        let Some(next) = page.meta["agentvfs/next_offset"].as_u64() else {
            break;
        };
        assert!(
            page.note().contains(&format!("offset {next}")),
            "{}",
            page.note()
        );
        offset = next;
    }
    assert!(read == text);
    fs::write(root.join("binary"), [0xff, 0, 0xfe]).unwrap();
    let binary = mcp.call("read_file", json!({"path": "binary"}));
    assert_eq!(
        (binary.ok(), &binary.meta["agentvfs/encoding"]),
        ("/wD+", &"base64".into())
    );
    assert!(binary.note().contains("base64"));
    mcp.call("read_file", json!({"path": "binary", "encoding": "utf8"}))
        .fails("not UTF-8");
    let back = json!({"path": "copy", "content": "/wD+", "encoding": "base64"});
    mcp.call("write_file", back).ok();
    assert_eq!(fs::read(root.join("copy")).unwrap(), [0xff, 0, 0xfe]);
    tree::sparse(&root.join("sparse"), 200_000, &[(100_000, b"data")]);
    let all = json!({"path": "sparse", "limit": 1 << 20});
    let sparse = mcp.call("read_file", all);
    assert!(sparse.ok().as_bytes() == fs::read(root.join("sparse")).unwrap());
    let large = "x".repeat(1_000_000);
    mcp.call("write_file", json!({"path": "large", "content": large}))
        .ok();
    assert!(fs::read(root.join("large")).unwrap() == large.as_bytes());
    for i in 0..250 {
        fs::write(root.join(format!("src/deep/f{i:03}")), "").unwrap();
    }
    let page = json!({"path": "src/deep", "offset": 200, "limit": 50});
    let names = mcp.call("readdir", page);
    assert_eq!(names.json()[0], "f200");
    assert_eq!(names.meta["agentvfs/next_offset"], 250);
    assert_eq!(names.meta["agentvfs/total"], 251);
}

#[test]
fn states_are_kept_compared_and_brought_back() {
    let Some(env) = Env::new() else { return };
    let root = project(&env);
    let mut mcp = serve(&env);
    let made = mcp
        .call(
            "checkpoint",
            json!({"label": "one", "message": "first", "meta": {"turn": "1"}}),
        )
        .json();
    let id = made["commit"].as_str().unwrap().to_owned();
    mcp.call(
        "write_file",
        json!({"path": "README", "content": "changed\n"}),
    )
    .ok();
    mcp.call("remove", json!({"path": "src/main.rs"})).ok();
    assert_eq!(
        mcp.call("diff", json!({})).ok(),
        "M\tREADME\nD\tsrc/main.rs"
    );
    assert_eq!(
        mcp.call("diff", json!({"paths": ["src"]})).ok(),
        "D\tsrc/main.rs"
    );
    let patch = mcp.call("diff", json!({"patch": true, "paths": ["README"]}));
    assert!(patch.ok().contains("-a project\n+changed\n"), "{patch:?}");
    let begin = mcp.call("diff", json!({"patch": true, "limit": 20}));
    assert_eq!(begin.ok(), &patch.ok()[..20]);
    let old = mcp.call("read_file", json!({"path": "src/main.rs", "ref": "one"}));
    assert_eq!(old.ok(), "fn main() {}\n");
    let plan = mcp.call("rollback", json!({"dry_run": true}));
    assert_eq!(plan.ok(), "M\tREADME\nA\tsrc/main.rs");
    let only = mcp.call("rollback", json!({"ref": "one", "paths": ["src"]}));
    assert_eq!(only.json()["commit"], id.as_str());
    assert!(root.join("src/main.rs").exists());
    assert_eq!(fs::read(root.join("README")).unwrap(), b"changed\n");
    mcp.call("rollback", json!({"ref": "one"})).ok();
    assert_eq!(fs::read(root.join("README")).unwrap(), b"a project\n");
    mcp.call("undo", json!({})).ok();
    assert_eq!(fs::read(root.join("README")).unwrap(), b"changed\n");
    let log = mcp.call("log", json!({})).ok().to_owned();
    let rows: Vec<Vec<&str>> = log.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(
        (rows[0][0], rows[0][2], rows[0][3]),
        (id.as_str(), "one", "first")
    );
    let all = mcp.call("log", json!({"all": true, "limit": 1}));
    assert!(all.note().contains("offset 1"), "{all:?}");
    mcp.call("rollback", json!({"ref": "none"}))
        .fails("no label, commit or state matches");
    mcp.call("rollback", json!({"before": "yesterday"}))
        .fails("neither a duration nor a time");
    mcp.call("rollback", json!({"paths": ["/"]}))
        .fails("the whole workspace");
}

#[test]
fn branches_are_made_worked_on_and_merged() {
    let Some(env) = Env::new() else { return };
    let root = project(&env);
    let mut mcp = serve(&env);
    mcp.call("checkpoint", json!({})).ok();
    let made = mcp.call("branch_create", json!({"name": "fix"})).json();
    let there = PathBuf::from(made["path"].as_str().unwrap());
    mcp.call(
        "write_file",
        json!({"path": "README", "content": "theirs\n", "branch": "fix"}),
    )
    .ok();
    assert_eq!(fs::read(there.join("README")).unwrap(), b"theirs\n");
    assert_eq!(fs::read(root.join("README")).unwrap(), b"a project\n");
    mcp.call("write_file", json!({"path": "README", "content": "ours\n"}))
        .ok();
    let refused = mcp.call("branch_merge", json!({"from": "fix"}));
    refused.fails("1 conflict; nothing was changed");
    assert!(refused.note().contains("README"), "{refused:?}");
    assert_eq!(fs::read(root.join("README")).unwrap(), b"ours\n");
    let kept = mcp
        .call("branch_merge", json!({"from": "fix", "conflicts": "keep"}))
        .json();
    assert_eq!(kept["conflicts"][0]["path"], "README");
    assert_eq!(mcp.call("conflicts", json!({})).ok(), "content\tREADME");
    let left = mcp
        .call("resolve", json!({"path": "README", "take": "theirs"}))
        .json();
    assert_eq!(left["left"], 0);
    assert_eq!(fs::read(root.join("README")).unwrap(), b"theirs\n");
    assert_eq!(mcp.call("conflicts", json!({})).note(), "[none]");
    // Keys conflict, too.
    mcp.call("kv_set", json!({"key": "k", "value": "ours"}))
        .ok();
    let theirs = json!({"key": "k", "value": "theirs", "branch": "fix"});
    mcp.call("kv_set", theirs).ok();
    mcp.call("branch_merge", json!({"from": "fix", "conflicts": "keep"}))
        .ok();
    assert_eq!(
        mcp.call("conflicts", json!({})).ok(),
        "content\t.agentvfs/kv/k"
    );
    mcp.call(
        "resolve",
        json!({"path": ".agentvfs/kv/k", "take": "theirs"}),
    )
    .ok();
    assert_eq!(mcp.call("kv_get", json!({"key": "k"})).ok(), "\"theirs\"");
    mcp.call(
        "write_file",
        json!({"path": "x", "content": "", "branch": "none"}),
    )
    .fails("no branch named none");
    // A server of its own for the branch.
    let mut other = Mcp::start(&env, &env.path(""), &["-w", "project", "--branch", "fix"]);
    other
        .call("write_file", json!({"path": "only-here", "content": "x"}))
        .ok();
    assert!(there.join("only-here").exists() && !root.join("only-here").exists());
}

#[test]
fn keys_have_values_that_go_with_the_files() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let mut mcp = serve(&env);
    let value = json!({"n": 1, "list": [null, "ä", {"deep": true}]});
    let set = mcp.call("kv_set", json!({"key": "plan", "value": value}));
    assert_eq!(set.ok(), "Set key: plan");
    assert_eq!(mcp.call("kv_get", json!({"key": "plan"})).json(), value);
    let printed = env.told(env.command(&env.path(""), &["kv", "get", "plan", "-w", "project"]));
    let printed: serde_json::Value = serde_json::from_str(&printed.ok()).unwrap();
    assert_eq!(printed, value);
    let none = mcp.call("kv_get", json!({"key": "none"}));
    assert_eq!((none.ok(), none.note()), ("null", "[there is no such key]"));
    mcp.call("checkpoint", json!({"label": "one"})).ok();
    for i in 0..250 {
        let pair = json!({"key": format!("many/{i:03}"), "value": i});
        mcp.call("kv_set", pair).ok();
    }
    let page = mcp.call("kv_list", json!({"prefix": "many/"}));
    assert_eq!(page.json().as_array().unwrap().len(), 100);
    assert_eq!(page.meta["agentvfs/next_after"], "many/099");
    let rest = json!({"prefix": "many/", "after": "many/099", "limit": 1000, "values": true});
    let rest = mcp.call("kv_list", rest);
    assert_eq!(rest.json()[149], json!({"key": "many/249", "value": 249}));
    assert_eq!(rest.note(), "");
    assert_eq!(
        mcp.call("kv_delete", json!({"key": "plan"})).meta["agentvfs/deleted"],
        true
    );
    assert_eq!(
        mcp.call("kv_delete", json!({"key": "plan"})).meta["agentvfs/deleted"],
        false
    );
    assert_eq!(mcp.call("kv_get", json!({"key": "plan"})).ok(), "null");
    let old = mcp.call("kv_get", json!({"key": "plan", "ref": "one"}));
    assert_eq!(old.json(), value);
    mcp.call("rollback", json!({"keep_kv": true})).ok();
    assert_eq!(mcp.call("kv_get", json!({"key": "many/007"})).ok(), "7");
    mcp.call("rollback", json!({"ref": "one"})).ok();
    assert_eq!(mcp.call("kv_list", json!({})).json(), json!(["plan"]));
    mcp.call("kv_set", json!({"key": "", "value": 1}))
        .fails("key");
    let long = "x".repeat(600 << 10);
    mcp.call("kv_set", json!({"key": "long", "value": long}))
        .fails("cannot set long");
    mcp.call("kv_set", json!({"key": "x"}))
        .fails("missing field `value`");
}

#[test]
fn every_call_that_changes_something_stands_in_the_timeline() {
    let Some(env) = Env::new() else { return };
    let root = project(&env);
    let mut mcp = serve(&env);
    assert_eq!(mcp.call("timeline", json!({})).note(), "[none]");
    let content = "x".repeat(5000);
    let wrote = mcp.call("write_file", json!({"path": "a", "content": content}));
    let id = wrote.meta["agentvfs/call"].as_u64().unwrap();
    mcp.call("read_file", json!({"path": "a"})).ok();
    mcp.call("remove", json!({"path": "none"}))
        .fails("no such file");
    mcp.call("kv_set", json!({"key": "k", "value": [1]})).ok();
    mcp.call("branch_create", json!({"name": "fix"})).ok();
    mcp.call("mkdir", json!({"path": "d", "branch": "fix"}))
        .ok();
    let rows = mcp.call("timeline", json!({})).ok().to_owned();
    let rows: Vec<Vec<&str>> = rows.lines().map(|row| row.split('\t').collect()).collect();
    let seen: Vec<(&str, &str)> = rows.iter().map(|row| (row[1], row[2])).collect();
    let wanted = [
        ("branch_create", "success"),
        ("kv_set", "success"),
        ("remove", "error"),
        ("write_file", "success"),
    ];
    assert_eq!(seen, wanted);
    assert_eq!(rows[3][0], id.to_string());
    let told = mcp
        .call("timeline", json!({"tool": "write_file", "details": true}))
        .json();
    let told = &told[0];
    assert_eq!(told["parameters"]["path"], "a");
    let recorded = told["parameters"]["content"].as_str().unwrap();
    assert!(
        recorded.len() < 1100 && recorded.ends_with("(5000 bytes)"),
        "{recorded}"
    );
    assert_eq!(told["result"], "Wrote 5000 bytes to a");
    let failed = json!({"status": "error", "details": true});
    let failed = mcp.call("timeline", failed).json();
    let words = failed[0]["error"].as_str().unwrap();
    assert!(
        words.starts_with("agentvfs: cannot remove from project: none: "),
        "{words}"
    );
    let first = mcp.call("timeline", json!({"limit": 1}));
    let before = first.meta["agentvfs/next_before"].as_u64().unwrap();
    let second = mcp.call("timeline", json!({"limit": 1, "before": before}));
    assert!(second.ok().contains("kv_set"), "{second:?}");
    assert!(
        mcp.call("timeline", json!({"branch": "fix", "limit": 1}))
            .ok()
            .contains("mkdir")
    );
    // What a call changed is known, and can be taken back alone.
    let id = id.to_string();
    let tool =
        |verb: &str| env.told(env.command(&env.path(""), &["tool", verb, &id, "-w", "project"]));
    assert_eq!(tool("diff").ok(), "A\ta\n");
    tool("undo").ok();
    assert!(!root.join("a").exists());
    let verified = env.told(env.command(&env.path(""), &["timeline", "--verify", "-w", "project"]));
    verified.ok();
}

#[test]
fn everything_goes_into_one_file_where_the_user_wants_it() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let mut mcp = serve(&env);
    mcp.call("kv_set", json!({"key": "k", "value": 1})).ok();
    let made = mcp.call("export", json!({})).json();
    let file = PathBuf::from(made["file"].as_str().unwrap());
    assert_eq!(file, env.home().join("exports/project-main.db"));
    let bytes = fs::read(&file).unwrap();
    assert!(bytes.starts_with(b"SQLite format 3\0"));
    assert_eq!(made["file_bytes"], bytes.len());
    mcp.call("export", json!({})).fails("exists");
    mcp.call("export", json!({"replace": true})).ok();
    for name in ["../x", "/tmp/x", "a/b", "..", ""] {
        mcp.call("export", json!({"name": name}))
            .fails("is not a file name");
    }
    let there = env.path("exported");
    let args = ["-w", "project", "--exports", there.to_str().unwrap()];
    let mut other = Mcp::start(&env, &env.path(""), &args);
    other
        .call(
            "export",
            json!({"name": "state", "history": true, "ref": "@"}),
        )
        .ok();
    assert!(there.join("state.db").exists());
}

#[test]
fn no_path_leads_out_of_the_workspace() {
    let Some(env) = Env::new() else { return };
    let root = project(&env);
    let mut mcp = serve(&env);
    let secret = env.path("secret");
    fs::write(&secret, "secret").unwrap();
    let before = tree::of(&root);
    let outside = [
        "../secret",
        "..",
        "src/../../secret",
        "/../secret",
        "/etc/passwd",
        "/tmp/x",
        secret.to_str().unwrap(),
    ];
    for path in outside {
        for (tool, arguments) in [
            ("read_file", json!({"path": path})),
            ("readdir", json!({"path": path})),
            ("stat", json!({"path": path})),
            ("access", json!({"path": path})),
            (
                "write_file",
                json!({"path": path, "content": "x", "create_dirs": true}),
            ),
            ("mkdir", json!({"path": path, "parents": true})),
            ("remove", json!({"path": path, "recursive": true})),
            ("rename", json!({"from": "README", "to": path})),
            ("rename", json!({"from": path, "to": "here"})),
            ("diff", json!({"paths": [path]})),
            ("rollback", json!({"paths": [path]})),
            ("resolve", json!({"path": path, "take": "ours"})),
        ] {
            mcp.call(tool, arguments)
                .fails("is not inside the workspace");
        }
    }
    for path in ["out", "src/up/secret", "src/up", "current/up/x"] {
        mcp.call("read_file", json!({"path": path}))
            .fails("leads out");
        mcp.call("write_file", json!({"path": path, "content": "x"}))
            .fails("leads out");
        mcp.call("access", json!({"path": path})).fails("leads out");
    }
    mcp.call("mkdir", json!({"path": "src/up/x"}))
        .fails("leads out");
    mcp.call("remove", json!({"path": "src/up/secret"}))
        .fails("leads out");
    mcp.call("rename", json!({"from": "README", "to": "src/up/x"}))
        .fails("leads out");
    for path in [".agentvfs/branches/main/README", ".agentvfs"] {
        mcp.call("write_file", json!({"path": path, "content": "x"}))
            .fails("reserved for agentvfs");
    }
    mcp.call("mkdir", json!({"path": "a\u{0}b"}))
        .fails("not a path");
    tree::same("nothing has changed", &before, &tree::of(&root));
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
    // Paths of the machine that lie in the mount or the base are meant as they are in the workspace.
    for path in [root.join("README"), env.project().join("README")] {
        let answer = mcp.call("read_file", json!({"path": path.to_str().unwrap()}));
        assert_eq!(answer.ok(), "a project\n");
    }
}
