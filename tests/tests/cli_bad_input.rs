//! Bad input: one clear line, a hint, the right exit status, and nothing half done.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use tests::env::Env;
use tests::{mount, tree};

/// Neither a workspace nor a mount came of it.
#[track_caller]
fn nothing_was_done(env: &Env) {
    assert_eq!(env.workspace(&["list"]).ok(), "");
    assert!(mount::below(env.home()).is_empty());
}

#[test]
fn bases_that_cannot_be_used_are_refused() {
    let Some(env) = Env::new() else { return };
    fs::write(env.path("file"), "x").unwrap();
    fs::create_dir_all(env.path("own/.agentvfs")).unwrap();
    fs::create_dir(env.path("empty")).unwrap();
    let root = env.path("").display().to_string();
    let cases: [(&[&str], &str); 6] = [
        (&["--from", "no-such-directory"], "No such file"),
        (&["--from", "file"], "director"),
        (&["--from", "own"], ".agentvfs"),
        (&["holds-home", "--from", &root], "home"),
        (&["--from", "empty", "--mount", "empty/inside"], "inside"),
        (&["--from", "home"], "home"),
    ];
    // There must be a home for a base to contain one.
    env.workspace(&["init", "other", "--from", "project"]).ok();
    for (args, why) in cases {
        for verb in ["start", "init"] {
            let told = env.workspace(&[&[verb], args].concat());
            println!("{verb} {args:?}: {}", told.err.trim_end());
            told.fails(1, why);
        }
    }
    assert_eq!(env.workspace(&["list"]).ok().lines().count(), 1);
    assert!(mount::below(env.home()).is_empty());
}

#[test]
fn base_inside_a_mount_of_ours_is_refused() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    fs::create_dir(root.join("sub")).unwrap();
    let sub = root.join("sub").display().to_string();
    for verb in ["start", "init"] {
        env.workspace(&[verb, "nested", "--from", &sub])
            .fails(1, "mount");
    }
    assert_eq!(env.workspace(&["list"]).ok().lines().count(), 1);
}

#[test]
fn mount_directories_that_cannot_be_used_are_refused() {
    let Some(env) = Env::new() else { return };
    fs::create_dir_all(env.path("full/x")).unwrap();
    fs::write(env.path("file"), "x").unwrap();
    for (place, why) in [
        ("full", "not empty"),
        ("file", "not a directory"),
        ("project/sub", "inside"),
        ("home/packs", "home"),
        (".", "inside"),
    ] {
        let args = ["start", "--from", "project", "--mount", place];
        env.workspace(&args).fails(1, why);
        assert!(mount::below(&env.path("")).is_empty(), "{place}");
    }
    assert!(!env.project().join("sub").exists());
    env.start();
    fs::create_dir(env.path("second")).unwrap();
    let place = env.mountpoint().display().to_string();
    env.workspace(&["start", "--from", "second", "--mount", &place])
        .fails(1, "mount");
}

#[test]
fn partly_unreadable_base_is_shown_as_far_as_it_goes() {
    let Some(env) = Env::as_root() else { return };
    fs::write(env.project().join("good"), "x").unwrap();
    fs::create_dir(env.project().join("dead")).unwrap();
    fs::create_dir(env.path("other")).unwrap();
    let place = env.project().join("dead").display().to_string();
    let other_home = env.path("other-home").display().to_string();
    // What the kernel knows of the mount's root it has not asked for where nobody else may enter.
    let other = [
        "start",
        "--from",
        "other",
        "--allow-other=false",
        "--mount",
        &place,
        "--root",
        &other_home,
    ];
    env.workspace(&other).ok();
    for pid in env.daemons() {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    let probe = env.project().join("dead/probe");
    tests::wait::until("the inner mount is dead", || fs::write(&probe, "").is_err());
    let root = env.start();
    assert_eq!(fs::read(root.join("good")).unwrap(), b"x");
    assert!(fs::read_dir(&root).unwrap().count() >= 1);
    env.workspace(&["checkpoint", "one"]).id();
    fs::remove_file(root.join("good")).unwrap();
    env.workspace(&["rollback"]).id();
    assert_eq!(fs::read(root.join("good")).unwrap(), b"x");
}

#[test]
fn unknown_names_and_refs_are_said_to_be_so() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    fs::write(root.join("file"), "x").unwrap();
    env.imported();
    let before = tree::of(&root);
    let log = env.workspace(&["log", "--all"]).ok();
    for args in [
        &["rollback", "no-such-label"][..],
        &["rollback", "project", "deadbeef"],
        &["rollback", "@~7"],
        &["rollback", "--meta", "turn=9"],
        &["rollback", "--before", "10000d"],
        &["diff", "no-such-label"],
        &["rollback", "main:no-such"],
        &["checkpoint", "--branch", "no-such-branch"],
        &["stop", "no-such-workspace"],
        &["log", "no-such-workspace"],
        &["delete", "no-such-workspace", "--yes"],
        &["status", "no-such-workspace"],
        &["start", "no-such-workspace"],
    ] {
        env.workspace(args).fails(1, ": ");
    }
    assert_eq!(env.workspace(&["log", "--all"]).ok(), log);
    tree::same("nothing was done", &before, &tree::of(&root));
}

#[test]
fn names_and_labels_out_of_range_are_wrong_usage() {
    let Some(env) = Env::new() else { return };
    let long_name = "n".repeat(65);
    for name in ["", ".hidden", "-w", "a/b", "a b", "ä", &long_name] {
        let told = env.workspace(&["start", "--from", "project", "--workspace", name]);
        assert_eq!((told.status, &*told.out), (2, ""), "{name:?}: {told:?}");
        assert!(told.err.starts_with("agentvfs: "), "{told:?}");
    }
    nothing_was_done(&env);
    env.start();
    // Until then the first commit has no id.
    env.imported();
    let log = env.workspace(&["log"]).ok();
    let long_label = "ä".repeat(65);
    for label in ["", ".x", "a/b", "a:b", "a@b", "a\nb", &long_label] {
        let told = env.workspace(&["checkpoint", label]);
        assert_eq!((told.status, &*told.out), (2, ""), "{label:?}: {told:?}");
    }
    assert_eq!(env.workspace(&["log"]).ok(), log);
    env.workspace(&["checkpoint", &"ä".repeat(64)]).id();
}

#[test]
fn store_of_a_newer_version_is_refused_and_left_alone() {
    let Some(env) = Env::new() else { return };
    env.start();
    env.workspace(&["stop"]).ok();
    env.kill_daemon();
    let format = env.home().join("format");
    let text = fs::read_to_string(&format).unwrap();
    fs::write(&format, text.replace('1', "999")).unwrap();
    let packs = tree::of(&env.home().join("packs"));
    let told = env.workspace(&["start", "project"]);
    assert!(
        told.err.contains("999") || told.err.contains("newer"),
        "{told:?}"
    );
    told.fails(3, "version");
    tree::same("packs", &packs, &tree::of(&env.home().join("packs")));
    fs::write(&format, text).unwrap();
    env.workspace(&["start", "project"]).ok();
}

#[test]
fn store_that_another_process_owns_is_refused_by_its_name() {
    let Some(env) = Env::new() else { return };
    env.start();
    env.workspace(&["stop"]).ok();
    env.kill_daemon();
    let lock = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(env.home().join("lock"));
    let lock = lock.unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    (&lock).write_all(b"4242\n").unwrap();
    env.workspace(&["start", "project"])
        .fails(3, "process 4242");
    tests::wait::until("the refused daemon has ended", || env.daemons().is_empty());
    drop(lock);
    env.workspace(&["start", "project"]).ok();
}

#[test]
fn read_only_disk_is_said_to_be_so() {
    let Some(mut env) = Env::as_root() else {
        return;
    };
    let disk = env.path("disk");
    mount::memory(&disk, 64 << 20);
    env.set_home(disk.join("home"));
    mount::remount(&disk, "ro");
    env.workspace(&["start", "--from", "project"])
        .fails(3, "Read-only file system");
    mount::remount(&disk, "rw");
    env.start();
    env.workspace(&["stop"]).ok();
    env.kill_daemon();
    mount::remount(&disk, "ro");
    env.workspace(&["start", "project"])
        .fails(3, "Read-only file system");
    mount::remount(&disk, "rw");
    env.workspace(&["start", "project"]).ok();
}

#[test]
fn home_may_have_a_path_longer_than_a_sockets() {
    let Some(mut env) = Env::new() else { return };
    let deep = format!("{}/{}", "d".repeat(80), "e".repeat(80));
    env.set_home(env.path(deep).join("home"));
    let root = env.start();
    fs::write(root.join("file"), "x").unwrap();
    env.workspace(&["checkpoint", "one"]).id();
    fs::remove_file(root.join("file")).unwrap();
    env.workspace(&["rollback"]).id();
    assert_eq!(fs::read(root.join("file")).unwrap(), b"x");
    let socket = env.status()["socket"].as_str().unwrap().to_owned();
    let socket = Path::new(&socket);
    assert!(!socket.starts_with(env.home()), "{}", socket.display());
    env.workspace(&["stop"]).ok();
    tests::wait::until("the daemon has taken its socket along", || !socket.exists());
    // The directory of a user's sockets is of no environment; it may hold those of others.
    let _ = fs::remove_dir(socket.parent().unwrap());
}

#[test]
fn unset_home_variable_does_not_matter_where_a_home_is_given() {
    let Some(env) = Env::new() else { return };
    let mut command = env.command(&env.path(""), &["workspace", "start", "--from", "project"]);
    command.env_remove("HOME");
    env.told(command).ok();
    let mut command = env.command(&env.path(""), &["workspace", "start", "--from", "project"]);
    command.env_remove("HOME").env_remove("AGENTVFS_HOME");
    env.told(command).fails(3, "$HOME");
}

fn line(stream: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line
}

#[test]
fn nonsense_on_the_socket_does_not_disturb_a_running_workspace() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let socket = env.home().join("daemon.sock");
    let connect = || BufReader::new(UnixStream::connect(&socket).unwrap());
    for nonsense in [
        &b"GET / HTTP/1.1\n"[..],
        b"{}\n",
        b"[]\n",
        b"\xff\xfe\n",
        b"null\n",
    ] {
        let mut stream = connect();
        stream.get_mut().write_all(nonsense).unwrap();
        let answer = line(&mut stream);
        assert!(answer.contains("\"error\""), "{answer}");
    }
    let mut stream = connect();
    // The daemon may hang up before all of it is written.
    let _ = stream.get_mut().write_all(&vec![b'x'; 3 << 20]);
    drop(stream);
    fs::write(root.join("file"), "x").unwrap();
    env.workspace(&["checkpoint", "one"]).id();
    assert!(Path::new(&socket).exists());
}

#[test]
fn relative_files_and_permissions_out_of_range_are_refused() {
    let Some(env) = Env::new() else { return };
    env.start();
    let socket = env.home().join("daemon.sock");
    let mut stream = BufReader::new(UnixStream::connect(&socket).unwrap());
    let mut ask = |id: u64, method: &str, params: serde_json::Value| -> serde_json::Value {
        let request = serde_json::json!({
            "jsonrpc": "2.0", "id": id, "method": method, "params": params,
        });
        writeln!(stream.get_mut(), "{request}").unwrap();
        serde_json::from_str(&line(&mut stream)).unwrap()
    };
    let hello = serde_json::json!({ "protocol": 1, "client": "test" });
    assert!(ask(1, "hello", hello)["result"].is_object());
    let export = |file: &str| {
        serde_json::json!({
            "workspace": "project", "branch": "main", "file": file,
        })
    };
    let refused = ask(2, "workspace.export", export("state.db"));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let place = env.path("state.db");
    let done = ask(3, "workspace.export", export(place.to_str().unwrap()));
    assert!(done["result"].is_object() && place.exists(), "{done}");
    let write = |perm: u32| {
        serde_json::json!({
            "workspace": "project", "branch": "main", "path": "made", "b64": "",
            "last": true, "perm": perm,
        })
    };
    for perm in [0o10000, 0o100644, u32::MAX] {
        let refused = ask(4, "fs.write", write(perm));
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    assert!(!env.mountpoint().join("made").exists());
    assert!(ask(5, "fs.write", write(0o7644))["result"].is_object());
}
