//! `agentvfs run` as an ordinary user: ssh reads what root wrote into its configuration.
//!
//! ssh refuses an included file that neither root nor the caller owns, and in the user namespace of an ordinary user root's files
//! belong to nobody. As root the test writes such a file itself, in a mount namespace, and runs as another user.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Command;
use tests::env::{Env, Told};
use tests::skip::{Want, skip};
use tests::{binary, mount, sandbox};

/// A user whom every machine has: ssh asks for the name of whoever starts it. Not nobody, to whom files of users without an id
/// in a namespace seem to belong.
const USER: u32 = 1;

/// What ssh says of a host inside, and in what kind of run.
const SCRIPT: &str = r#"
cd "$1/project"
"$2" start --from . >/dev/null
trap '"$2" stop --force --no-checkpoint >/dev/null' EXIT
for option in --best-effort --strict --no-sandbox; do
    echo "== $option"
    "$2" run --quiet $option --session s -- ssh -G there
    "$2" run --quiet $option --session s -- sh -c '
        cd "$1/included"; ls -ln; chmod 644 a.conf; echo >>a.conf && echo written; rm -f a.conf && echo removed; true' - "$1"
done
echo "== nested"
"$2" run --quiet --session s -- "$2" run --quiet --session t -- ssh -G there
echo "== hidden"
"$2" run --quiet --hide "$1/included" --session u -- sh -c 'ls -A "$1/included"' - "$1"
"#;

/// Has an ordinary user run the script where root's configuration of ssh includes a file.
fn as_user(env: &Env) -> Option<Told> {
    let config = env.path("ssh_config");
    fs::create_dir(env.path("included")).unwrap();
    fs::write(env.path("included/a.conf"), "Host there\n    Port 2222\n").unwrap();
    let pattern = env.path("included/*.conf");
    fs::write(&config, format!("Include {}\n", pattern.display())).unwrap();
    for name in ["", "user", "tmp", "project"] {
        chown(env.path(name), Some(USER), Some(USER)).unwrap();
    }
    let user = USER.to_string();
    let become_user = ["--reuid", &user, "--regid", &user, "--clear-groups"];
    let reach = |program: &Path| {
        let mut test = Command::new("setpriv");
        let status = test.args(become_user).args(["test", "-x"]).arg(program);
        status.status().is_ok_and(|status| status.success())
    };
    if !reach(binary::agentvfs()) {
        skip(
            Want::Machine,
            "another user cannot reach the program, or there is no setpriv",
        );
        return None;
    }
    let mut command = env.program("unshare");
    let prepare = "mount --bind \"$1\" /etc/ssh/ssh_config
        mknod -m 666 \"$2\" c 10 229 && mount --bind \"$2\" /dev/fuse
        shift 2; exec \"$@\"";
    command
        .args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-ec",
            prepare,
            "-",
        ])
        .args([&config, &env.path("fuse"), Path::new("setpriv")])
        .args(become_user)
        .args(["sh", "-ec", SCRIPT, "-"])
        .args([&env.path(""), binary::agentvfs()]);
    Some(env.told(command))
}

#[test]
fn ssh_reads_what_root_wrote_into_its_configuration() {
    if !mount::is_root() {
        return skip(Want::Root, "root writes the configuration that ssh reads");
    }
    for program in ["ssh", "fusermount3"] {
        if !mount::found(program) {
            return skip(Want::Machine, &format!("there is no {program}"));
        }
    }
    let Some(env) = sandbox::stopped() else {
        return;
    };
    let Some(told) = as_user(&env) else { return };
    assert!(!told.err.contains("Bad owner"), "{told:?}");
    for done in ["written", "removed"] {
        assert!(!told.out.contains(done), "{told:?}");
    }
    let out = told.clone().ok();
    let parts: Vec<&str> = out.split("== ").collect();
    let (hidden, runs) = parts[1..].split_last().unwrap();
    for part in runs {
        assert!(part.contains("port 2222\n"), "{told:?}");
    }
    assert_eq!((runs.len(), *hidden), (4, "hidden\n"), "{told:?}");
    // It is the user's, and cannot be changed all the same.
    assert!(parts[1].contains(" 1 1 1 "), "{told:?}");
    let file = env.path("included/a.conf");
    assert_eq!(fs::read(&file).unwrap(), b"Host there\n    Port 2222\n");
    assert_eq!(file.metadata().unwrap().uid(), 0);
}

#[test]
fn the_callers_own_command_for_ssh_stays() {
    let Some(env) = sandbox::env(&[]) else { return };
    let print = ["--", "sh", "-c", "echo \"${GIT_SSH_COMMAND-none}\""];
    assert_eq!(sandbox::run(&env, &print).ok(), "none\n");
    let mut command = sandbox::command(&env, &print);
    command.env("GIT_SSH_COMMAND", "ssh -i own");
    assert_eq!(env.told(command).ok(), "ssh -i own\n");
}
