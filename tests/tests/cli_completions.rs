//! `agentvfs completions install`: the shells themselves complete a line with what it writes.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::process::{ChildStdin, Stdio};
use tests::env::Env;
use tests::skip::{Want, skip};
use tests::{binary, mount, wait};

/// What is typed, and the word that it is completed to.
const LINES: [(&str, &str); 4] = [
    ("agentvfs checkp", "checkpoint"),
    ("agentvfs branch crea", "create"),
    ("agentvfs log --onel", "--oneline"),
    ("agentvfs workspace sto", "stop"),
];

/// An environment in which the completions of a shell are installed; none where there is no such shell.
fn installed(shell: &str) -> Option<Env> {
    if !mount::found(shell) {
        skip(Want::Machine, &format!("{shell} is not installed"));
        return None;
    }
    let env = Env::new()?;
    env.told(env.command(&env.path(""), &["completions", "install", shell]))
        .ok();
    Some(env)
}

#[test]
fn bash_completes_commands_and_options() {
    let Some(env) = installed("bash") else { return };
    let script = ". ~/.local/share/bash-completion/completions/agentvfs
        COMP_WORDS=($1) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _agentvfs agentvfs \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    for (line, word) in LINES {
        let mut bash = env.program("bash");
        bash.args(["--norc", "-c", script, "-", line]);
        let out = env.told(bash).ok();
        assert!(out.lines().any(|one| one == word), "{line}: {out:?}");
    }
}

#[test]
fn fish_completes_commands_and_options() {
    let Some(env) = installed("fish") else { return };
    // It loads completions of programs that it finds.
    let add = "set -a PATH $argv[2]; complete -C $argv[1]";
    let dir = binary::agentvfs().parent().unwrap();
    for (line, word) in LINES {
        let mut fish = env.program("fish");
        fish.args(["-c", add, line]).arg(dir);
        let out = env.told(fish).ok();
        let first = |one: &str| one.split('\t').next() == Some(word);
        assert!(out.lines().any(first), "{line}: {out:?}");
    }
}

/// zsh completes on a terminal alone: a key there completes the line and writes what it is then into a file.
#[test]
fn zsh_completes_commands_and_options() {
    let Some(env) = installed("zsh") else { return };
    if !mount::found("script") {
        return skip(
            Want::Machine,
            "script(1), which makes a terminal, is missing",
        );
    }
    let begin = "fpath=(~/.local/share/zsh/site-functions $fpath)
        autoload -Uz compinit; compinit -u -d ~/dump
        tell() { zle complete-word; print -r -- $BUFFER >~/next; mv ~/next ~/line; BUFFER= }
        zle -N tell; bindkey '^T' tell; touch ~/ready\n";
    fs::write(env.path("user/begin"), begin).unwrap();
    let mut script = env.program("script");
    script
        .args(["-qec", "zsh -f -i", "/dev/null"])
        .env("TERM", "dumb")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = script.spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    let press = |keys: &mut ChildStdin, text: &str| {
        keys.write_all(text.as_bytes()).unwrap();
        keys.flush().unwrap();
    };
    press(&mut keys, ". ~/begin\n");
    wait::until("zsh is ready", || env.path("user/ready").exists());
    for (typed, word) in LINES {
        let line = env.path("user/line");
        press(&mut keys, &format!("{typed}\u{14}"));
        wait::until("the line is completed", || line.exists());
        let completed = fs::read_to_string(&line).unwrap();
        let last = completed.split_whitespace().last();
        assert_eq!(last, Some(word), "{completed:?}");
        fs::remove_file(&line).unwrap();
    }
    press(&mut keys, "exit\n");
    assert_eq!(env.finish(child, "zsh").status, 0);
}
