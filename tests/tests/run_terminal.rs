//! `agentvfs run` on a terminal and without one: keys, window size, job control; closed and missing input; no FUSE.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use tests::env::Env;
use tests::sandbox;
use tests::skip::{Want, skip};
use tests::{binary, mount, wait};

/// A program in the project that waits for no more input than it is given.
fn bash(env: &Env, script: &str) -> tests::env::Told {
    let mut bash = env.program("bash");
    let run = format!("'{}' run --quiet --session s", binary::agentvfs().display());
    bash.args(["-c", &script.replace("RUN", &run)]);
    env.told({
        bash.current_dir(env.project());
        bash
    })
}

#[test]
fn keys_job_control_and_the_size_of_a_terminal_are_the_commands() {
    if !mount::found("script") {
        return skip(
            Want::Machine,
            "script(1), which makes a terminal, is missing",
        );
    }
    let Some(env) = sandbox::env(&[]) else { return };
    let mut script = env.program("script");
    script
        .args(["-qec", "bash --norc --noprofile -i", "/dev/null"])
        .env("TERM", "dumb")
        .current_dir(env.project());
    let piped = script.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.stderr(Stdio::piped()).spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    let mut press = |text: &str| {
        keys.write_all(text.as_bytes()).unwrap();
        keys.flush().unwrap();
    };
    let inside = |name: &str| {
        let view = env.mountpoint().join(".agentvfs/branches/s");
        fs::read_to_string(view.join(name)).unwrap_or_default()
    };
    let (tty, jobs) = (env.path("tmp/tty"), env.path("tmp/jobs"));
    let command = "trap \"echo int > int\" INT; stty size > size
        until [ -e go ]; do echo >> beats; sleep 0.05; done; stty size > size-then; echo over > over";
    press(&format!(
        "stty rows 31 cols 101; tty > {}; '{}' run --quiet --session s -- sh -c '{command}'\n",
        tty.display(),
        binary::agentvfs().display()
    ));
    wait::until("the command runs", || !inside("beats").is_empty());
    assert_eq!(inside("size"), "31 101\n");
    press("\u{1a}");
    press(&format!("jobs > {}\n", jobs.display()));
    wait::until("the shell has its terminal back", || {
        fs::read_to_string(&jobs).is_ok_and(|text| text.contains("Stopped"))
    });
    let beats = inside("beats").len();
    press("fg\n");
    wait::until("the command goes on", || inside("beats").len() > beats);
    press("\u{3}");
    wait::until("the command was interrupted", || inside("int") == "int\n");
    let tty = fs::read_to_string(&tty).unwrap();
    let resized = Command::new("stty")
        .args(["-F", tty.trim(), "rows", "41", "cols", "77"])
        .status();
    assert!(resized.unwrap().success());
    fs::write(env.mountpoint().join(".agentvfs/branches/s/go"), "").unwrap();
    wait::until("the command has ended", || inside("over") == "over\n");
    assert_eq!(inside("size-then"), "41 77\n");
    press("exit\n");
    env.finish(child, "the terminal");
}

#[test]
fn without_a_terminal_or_input_and_into_a_pipe_that_closes_it_ends_as_the_command_does() {
    let Some(env) = sandbox::env(&[]) else { return };
    let told = bash(&env, "RUN -- yes | head -n1; echo ${PIPESTATUS[0]}");
    // 13 is SIGPIPE.
    assert_eq!(told.out, "y\n141\n", "{told:?}");
    let told = bash(&env, "RUN -- sh -c 'cat; echo got' <&-");
    assert_eq!(told.ok(), "got\n");
    let told = bash(
        &env,
        "setsid -w RUN -- sh -c 'echo x > /dev/tty || echo none'",
    );
    assert_eq!(told.ok(), "none\n");
    let told = bash(&env, "RUN -- sh -c 'echo out; exit 3' >&-");
    assert_eq!(told.status, 3, "{told:?}");
}

#[test]
fn without_the_fuse_device_there_is_one_clear_error_and_doctor_says_the_same() {
    if !mount::is_root() {
        return skip(Want::Root, "only root can hide /dev/fuse from a daemon");
    }
    let Some(env) = sandbox::stopped() else {
        return;
    };
    let hidden = |args: &str| {
        let mut unshare = env.program("unshare");
        let script = format!(
            "mount -t tmpfs none /dev && : > /dev/null && exec '{}' {args}",
            binary::agentvfs().display()
        );
        unshare.args(["--mount", "sh", "-c", &script]);
        env.told({
            unshare.current_dir(env.project());
            unshare
        })
    };
    hidden("run --from . -- touch ran").fails(125, "/dev/fuse: No such file or directory");
    assert!(!env.project().join("ran").exists());
    let told = hidden("doctor");
    let line = told.out.lines().find(|line| line.contains("fuse-device"));
    assert!(
        line.is_some_and(|line| line.starts_with("broken") && line.contains("/dev/fuse")),
        "{told:?}"
    );
}
