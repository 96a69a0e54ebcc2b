//! The workspace of the crate `agentvfs-client`, as a program uses it.
#![allow(clippy::unwrap_used)]

#[path = "../../ctl/client/examples/steps.rs"]
#[allow(dead_code)]
mod example;

use agentvfs_client::context::Options;
use agentvfs_client::launch::{Launch, Program};
use agentvfs_client::protocol::{Side, Target, Version};
use agentvfs_client::workspace::{Commit, Error, HowToOpen, Workspace};
use std::cell::Cell;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use tests::binary;
use tests::env::Env;

fn options(env: &Env) -> Options {
    Options {
        root: Some(env.home().to_owned()),
        workspace: Some("project".to_owned()),
        branch: Some("main".to_owned()),
        launch: Launch {
            program: Program::At(binary::agentvfs().to_owned()),
            verbose: false,
        },
    }
}

fn open(env: &Env) -> Workspace {
    Workspace::open_with(options(env)).unwrap()
}

#[test]
fn files_are_what_the_mount_shows() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let mut ws = open(&env);
    let long: Vec<u8> = (0..700_000u32).map(|n| (n % 251) as u8).collect();
    ws.write("deep/er/file", &long).unwrap();
    assert_eq!(fs::read(root.join("deep/er/file")).unwrap(), long);
    assert_eq!(ws.read("deep/er/file").unwrap(), long);
    ws.append("deep/er/file", b"end").unwrap();
    assert_eq!(ws.stat("deep/er/file").unwrap().size, 700_003);
    assert_eq!(ws.copy("deep/er/file", "copy").unwrap(), 700_003);
    ws.truncate("copy", 3).unwrap();
    ws.chmod("copy", 0o600).unwrap();
    ws.symlink("link", "copy").unwrap();
    assert_eq!(fs::read(root.join("link")).unwrap(), long[..3]);
    ws.rename("copy", "deep/copy").unwrap();
    let names = |ws: &mut Workspace, path: &str| {
        let all = ws.list(path).unwrap().into_iter();
        let names: Vec<String> = all
            .map(|node| node.name.to_path().display().to_string())
            .collect();
        names
    };
    assert_eq!(names(&mut ws, "deep"), ["copy", "er"]);
    // A file with a hole, by its bytes.
    {
        let how = HowToOpen {
            create: true,
            exclusive: true,
            ..HowToOpen::default()
        };
        let mut file = ws.open_file("holes", how).unwrap();
        file.seek(SeekFrom::Start(1 << 20)).unwrap();
        file.write_all(b"behind").unwrap();
        fs::remove_file(root.join("holes")).unwrap();
        file.seek(SeekFrom::End(-3)).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "ind");
        file.set_len(4).unwrap();
        assert_eq!(file.read_at(0, 9).unwrap(), [0; 4]);
    }
    fs::write(root.join("sparse"), "").unwrap();
    ws.truncate("sparse", 600_000).unwrap();
    assert_eq!(ws.read("sparse").unwrap(), vec![0; 600_000]);
    ws.mkdir("a/b").unwrap();
    let error = ws.remove("a").unwrap_err();
    assert_eq!(
        (error.kind(), error.errno()),
        ("not-empty", Some("ENOTEMPTY"))
    );
    ws.remove_all("a").unwrap();
    assert!(!ws.exists("a").unwrap() && ws.exists("link").unwrap());
    assert!(!ws.exists("link/below").unwrap());
}

#[test]
fn keys_calls_commits_and_branches_are_those_of_the_command() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let mut ws = open(&env);
    ws.set("count", &7).unwrap();
    assert_eq!(ws.get::<u32>("count").unwrap(), Some(7));
    assert_eq!(ws.get::<u32>("no").unwrap(), None);
    assert!(matches!(ws.get::<String>("count"), Err(Error::Usage(_))));
    let text = Commit {
        label: Some("first".into()),
        message: "the first".into(),
        meta: vec![("task".into(), "7".into())],
    };
    ws.checkpoint_with(text).unwrap();
    let done: Result<u32, Error> = ws.call("edit", &["f"], |ws| {
        ws.write("f", b"one\n")?;
        ws.set("count", &8)?;
        Ok(3)
    });
    assert_eq!(done.unwrap(), 3);
    let failed: Result<(), Error> = ws.call("edit", &(), |ws| ws.remove("no"));
    assert_eq!(failed.unwrap_err().errno(), Some("ENOENT"));
    let calls = ws.timeline(10).unwrap();
    assert_eq!(calls.len(), 2);
    let stats = &ws.tool_stats().unwrap()[0];
    assert_eq!((stats.calls, stats.success, stats.error), (2, 1, 1));
    assert!(
        ws.undo_call(calls[1].id.unwrap())
            .unwrap()
            .conflicts
            .is_empty()
    );
    assert!(!root.join("f").exists());
    ws.undo().unwrap();
    assert!(root.join("f").exists());
    ws.redo().unwrap();
    ws.undo().unwrap();
    ws.create_branch("other").unwrap();
    let mut other = ws.on_branch("other").unwrap();
    other.write("f", b"theirs\n").unwrap();
    ws.write("f", b"ours\n").unwrap();
    let merged = ws.merge("other", false).unwrap();
    assert_eq!((&*merged.status, merged.conflicts.len()), ("conflicts", 1));
    ws.merge("other", true).unwrap();
    assert_eq!(ws.conflicts().unwrap().len(), 1);
    assert_eq!(ws.resolve("f", Version::Theirs).unwrap(), 0);
    assert_eq!(ws.read("f").unwrap(), b"theirs\n");
    assert_eq!(ws.branches().unwrap().len(), 2);
    drop(other);
    ws.delete_branch("other").unwrap();
    let changed = ws.diff(Side::Ref("first".into()), Side::Live).unwrap();
    assert_eq!(changed.len(), 1);
    ws.rollback(Target::Meta("task".into(), "7".into()), true)
        .unwrap();
    assert!(!root.join("f").exists());
    ws.undo_to("first").unwrap();
    assert_eq!(ws.get::<u32>("count").unwrap(), Some(7));
    let messages: Vec<String> = ws
        .log(9, false)
        .unwrap()
        .into_iter()
        .map(|row| row.message)
        .collect();
    assert!(messages.contains(&"the first".to_owned()), "{messages:?}");
}

#[test]
fn after_the_daemon_was_killed_the_next_call_works() {
    let Some(env) = Env::new() else { return };
    env.start();
    let mut ws = open(&env);
    ws.write("f", b"kept").unwrap();
    env.kill_daemon();
    let mut answer = ws.write("g", b"text");
    if matches!(answer, Err(Error::Broken(_))) {
        answer = ws.write("g", b"text");
    }
    answer.unwrap();
    assert_eq!(ws.read("f").unwrap(), b"kept");
}

#[test]
fn a_step_is_done_once_and_its_files_come_back_where_that_is_wanted() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let runs = Cell::new(0);
    let step = |ws: &mut Workspace, files| {
        let work = |ws: &mut Workspace| {
            runs.set(runs.get() + 1);
            ws.write("made", b"by the step")?;
            Ok::<_, Error>((runs.get(), "text".to_owned()))
        };
        match files {
            true => ws.step_with_files(("test", "one: more"), work),
            false => ws.step(("test", "one: more"), work),
        }
    };
    let failed = open(&env).step(("test", "one: more"), |ws| {
        ws.write("half", b"")?;
        Err::<(), Error>(Error::Usage("no".into()))
    });
    assert!(failed.is_err());
    let mut ws = open(&env);
    assert_eq!(step(&mut ws, false).unwrap(), (1, "text".into()));
    ws.set("later", &1).unwrap();
    ws.write("made", b"changed").unwrap();
    let mut ws = open(&env);
    assert_eq!(step(&mut ws, false).unwrap(), (1, "text".into()));
    assert_eq!(fs::read(root.join("made")).unwrap(), b"changed");
    assert_eq!(step(&mut ws, true).unwrap(), (1, "text".into()));
    assert_eq!(fs::read(root.join("made")).unwrap(), b"by the step");
    assert_eq!(ws.get::<u32>("later").unwrap(), Some(1), "keys stay");
    // Who goes back to before it has it undone; who goes back to it has it done.
    let target = Target::Meta("step".into(), "test:one: more".into());
    ws.rollback(target, false).unwrap();
    assert_eq!(ws.get::<u32>("later").unwrap(), None);
    assert_eq!(step(&mut ws, false).unwrap(), (1, "text".into()));
    assert!(ws.forget_step(("test", "one: more")).unwrap());
    assert_eq!(step(&mut ws, false).unwrap(), (2, "text".into()));
}

#[test]
fn a_step_without_its_commit_gets_it_on_the_next_run() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let mut ws = open(&env);
    // As if the program had ended between the two.
    fs::write(root.join("f"), "text").unwrap();
    let kept = serde_json::json!({ "version": 1, "result": [5] });
    ws.set("agentvfs:step:test:x", &kept).unwrap();
    let found: Result<Vec<u32>, Error> = ws.step(("test", "x"), |_| panic!("it was done"));
    assert_eq!(found.unwrap(), [5]);
    fs::write(root.join("f"), "changed").unwrap();
    let again = ws.step_with_files(("test", "x"), |_| Ok::<Vec<u32>, Error>(vec![]));
    assert_eq!(again.unwrap(), [5]);
    assert_eq!(fs::read_to_string(root.join("f")).unwrap(), "text");
    ws.set("agentvfs:step:test:x", &serde_json::json!({ "version": 2 }))
        .unwrap();
    let newer: Result<u32, Error> = ws.step(("test", "x"), |_| panic!("it was done"));
    assert!(newer.unwrap_err().to_string().contains("version 2"));
}

#[test]
fn the_example_does_its_steps_once() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let (topics, paths) = example::work(options(&env)).unwrap();
    assert_eq!(topics, ["storage", "network"]);
    let wanted = ["report/network.md", "report/storage.md"];
    assert_eq!(paths, wanted);
    fs::write(root.join("report/network.md"), "by hand\n").unwrap();
    example::work(options(&env)).unwrap();
    assert_eq!(
        fs::read_to_string(root.join("report/network.md")).unwrap(),
        "by hand\n"
    );
    let calls = open(&env).timeline(10).unwrap();
    assert_eq!(calls.len(), 2);
}
