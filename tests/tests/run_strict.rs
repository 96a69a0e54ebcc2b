//! `agentvfs run`: a socket that is allowed, and `--strict`.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use tests::env::Env;
use tests::sandbox::{self, run};
use tests::skip::{Want, skip};

/// Longest path that a socket can have (unix(7)).
const SOCKET_PATH_BYTES_MAX: usize = 107;

fn prepared() -> Option<Env> {
    let env = sandbox::env(&[])?;
    let to = env.mountpoint().join("escape");
    tests::binary::copy(Path::new(env!("CARGO_BIN_EXE_escape")), &to);
    Some(env)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_socket_that_is_allowed_is_the_only_one_that_can_be_reached() {
    let Some(env) = prepared() else { return };
    let (open, closed) = (env.path("open.sock"), env.path("closed.sock"));
    if closed.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return skip(
            Want::Machine,
            "the test's directory is too long for a socket",
        );
    }
    let private = tempfile::tempdir_in("/tmp").unwrap();
    let hidden = private.path().join("s");
    let _listeners = [&open, &closed, &hidden].map(|path| UnixListener::bind(path).unwrap());
    let allowed = [
        "--allow-socket",
        text(&open),
        "--allow-socket",
        text(&hidden),
    ];
    for (socket, is_open) in [(&open, true), (&hidden, true), (&closed, false)] {
        for more in [&[][..], &["--net", "none"], &["--strict"]] {
            let args = [
                &allowed[..],
                more,
                &["--", "./escape", "path-socket", text(socket)],
            ]
            .concat();
            let told = run(&env, &args);
            assert_eq!(told.out.contains("NOT REFUSED"), is_open, "{told:?}");
        }
    }
    let told = run(&env, &[&allowed[..], &["rm", text(&open)]].concat());
    assert!(told.status != 0 && open.exists(), "{told:?}");
}

#[test]
fn what_is_no_socket_or_the_daemons_cannot_be_allowed() {
    let Some(env) = prepared() else { return };
    fs::write(env.path("file"), "").unwrap();
    let daemon = fs::read_dir(env.home())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let daemon = daemon
        .filter(|path| path.ends_with("daemon.sock"))
        .collect::<Vec<_>>();
    let missing = env.path("missing");
    for path in daemon.iter().chain([&env.path("file"), &missing]) {
        let told = run(&env, &["--allow-socket", text(path), "true"]);
        assert_eq!(told.status, 2, "{told:?}");
    }
}

#[test]
fn strict_leaves_the_project_writable_and_denies_namespaces() {
    let Some(env) = prepared() else { return };
    fs::create_dir_all(env.path("user/.cache")).unwrap();
    fs::write(env.path("user/.claude.json"), "{}").unwrap();
    fs::write(env.path("plain"), "own").unwrap();
    let script = "set -e; echo a > a; mv a b; ln b c; mkdir d; mv b d/b; rm c; echo x > /tmp/x; ln /tmp/x /tmp/y
        echo x > /dev/null; echo x > ~/.cache/x; echo '{}' > ~/.claude.json.new; mv ~/.claude.json.new ~/.claude.json
        sh -c 'cat d/b | cat'; set +e
        unshare --user true && echo user; unshare --user --mount true && echo mount
        nsenter --user=/proc/self/ns/user true && echo entered
        echo x > ../plain && echo outside; (: >> /proc/sys/kernel/core_pattern) && echo kernel; true";
    let told = run(
        &env,
        &[
            "--strict",
            "--session",
            "s",
            "--report",
            "report",
            "sh",
            "-c",
            script,
        ],
    );
    assert_eq!((told.status, told.out.as_str()), (0, "a\n"), "{told:?}");
    assert_eq!(fs::read_to_string(env.path("plain")).unwrap(), "own");
    let report = fs::read_to_string(env.project().join("report")).unwrap();
    assert!(report.contains("landlock-files") && report.contains("no-user-namespaces"));
    for kind in ["typing", "kernel"] {
        let told = run(&env, &["--strict", "./escape", kind, ""]);
        assert_eq!(told.status, 0, "{told:?}");
    }
    let told = run(&env, &["--session", "s", "sh", "-c", "unshare --user true"]);
    assert_eq!(told.status, 0, "without --strict: {told:?}");
}
