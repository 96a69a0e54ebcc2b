//! `agentvfs run`: what a command may change in the home directory, and what of that is changed outside.
#![allow(clippy::unwrap_used)]

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tests::env::Env;
use tests::sandbox::{self, Going, mark, processes, run, shell};
use tests::{mount, wait};

/// An environment whose user has these files.
fn with_files(files: &[(&str, &str)]) -> Option<Env> {
    let env = sandbox::env(&[])?;
    for (path, text) in files {
        put(&env.path("user").join(path), text);
    }
    Some(env)
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn outside(env: &Env, path: &str) -> Option<String> {
    fs::read_to_string(env.path("user").join(path)).ok()
}

fn is_there(env: &Env, path: &str) -> bool {
    env.path("user").join(path).symlink_metadata().is_ok()
}

/// Where session `s` keeps its copies.
fn kept(env: &Env) -> PathBuf {
    env.home().join("runs/kept/project/s")
}

const STATE: &str = ".claude/projects/p/1.jsonl";

#[test]
fn an_agents_state_is_written_outside_and_what_runs_by_itself_is_not() {
    let Some(env) = with_files(&[
        (".claude/settings.json", "own"),
        (".claude/history.jsonl", "1\n"),
        (".codex/config.toml", "own"),
        (".config/opencode/opencode.json", "own"),
    ]) else {
        return;
    };
    let script = "set -e; cd \"$HOME\"
        echo 2 >> .claude/history.jsonl; mkdir -p .claude/projects/p; echo t > .claude/projects/p/1.jsonl
        echo a > .codex/auth.json; echo s > .config/opencode/log
        echo evil > .claude/settings.json
        echo evil > new; mv new .claude/settings.local.json
        mkdir .claude/other; echo evil > .claude/other/x; mv .claude/other .claude/plugins
        mkdir -p .claude/x/y; echo evil > .claude/x/y/CLAUDE.md; mv .claude/x .claude/z
        echo evil > .codex/config.new; mv .codex/config.new .codex/config.toml
        for name in CLAUDE.md AGENTS.md hooks.json mcp.json skills/s commands/c agents/a hooks/h; do
            mkdir -p $(dirname .claude/$name); echo evil > .claude/$name; done
        echo evil > .claude/tool-of-mine; chmod +x .claude/tool-of-mine
        ln -s settings.json .claude/state; ln -s .. .claude/todos
        ln .claude/settings.json .claude/linked; echo evil > .config/opencode/opencode.json
        cat .claude/settings.json .claude/plugins/x";
    assert_eq!(shell(&env, script), "evil\nevil\n");
    assert_eq!(outside(&env, ".claude/history.jsonl").unwrap(), "1\n2\n");
    assert_eq!(outside(&env, STATE).unwrap(), "t\n");
    assert_eq!(outside(&env, ".codex/auth.json").unwrap(), "a\n");
    assert_eq!(outside(&env, ".config/opencode/log").unwrap(), "s\n");
    for path in [
        ".claude/settings.json",
        ".codex/config.toml",
        ".config/opencode/opencode.json",
    ] {
        assert_eq!(outside(&env, path).unwrap(), "own", "{path}");
    }
    let mut names: Vec<_> = fs::read_dir(env.path("user/.claude")).unwrap().collect();
    names.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
    let names: Vec<String> = names
        .into_iter()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(
        names,
        ["history.jsonl", "linked", "projects", "settings.json"]
    );
    // The session has all of it.
    let again = shell(
        &env,
        "cd \"$HOME/.claude\"; cat settings.json plugins/x hooks/h history.jsonl",
    );
    assert_eq!(again, "evil\nevil\nevil\n1\n2\n");
    let other = run(
        &env,
        &[
            "--session",
            "t",
            "cat",
            env.path("user/.claude/settings.json").to_str().unwrap(),
        ],
    );
    assert_eq!(other.ok(), "own");
}

#[test]
fn a_single_file_can_be_renamed_over_and_is_written_back_but_for_what_it_starts() {
    let text = r#"{"n": 1, "mcpServers": {"own": {}}}"#;
    let Some(env) = with_files(&[(".claude.json", text), (".bashrc", "own"), ("d/f", "1")]) else {
        return;
    };
    let new = r#"{"n": 2, "mcpServers": {"evil": {}}, "projects": {"/p": {"hasTrustDialogAccepted": true}}}"#;
    let script = format!(
        "cd \"$HOME\"; echo '{new}' > .claude.json.tmp && mv .claude.json.tmp .claude.json && grep -c evil .claude.json
        echo evil > .bashrc; echo evil > b; mv b .bashrc; rm -f .bashrc; mv d e; echo evil > d/f; cat .bashrc; echo evil > .profile"
    );
    assert_eq!(shell(&env, &script), "1\nown");
    let written: Value = serde_json::from_str(&outside(&env, ".claude.json").unwrap()).unwrap();
    assert_eq!(
        (&written["n"], &written["mcpServers"]["own"]),
        (&2.into(), &Value::Object(Default::default()))
    );
    assert!(!written.to_string().contains("evil") && !written.to_string().contains("Trust"));
    assert_eq!(outside(&env, ".bashrc").unwrap(), "own");
    assert_eq!(outside(&env, "d/f").unwrap(), "1");
    assert!(!is_there(&env, ".profile") && !is_there(&env, "b"));
    let allowed = env.path("user/d/f");
    let script = "cd \"$HOME/d\"; echo 2 > new; mv new f; echo x > other";
    let told = run(
        &env,
        &["--allow", allowed.to_str().unwrap(), "sh", "-c", script],
    );
    assert_eq!(told.status, 0, "{told:?}");
    assert_eq!(outside(&env, "d/f").unwrap(), "2\n");
    assert!(!is_there(&env, "d/other"));
}

#[test]
fn what_was_changed_outside_as_well_is_kept_of_both() {
    let Some(env) = with_files(&[(".claude.json", "{}"), (STATE, "1\n")]) else {
        return;
    };
    let mark = mark();
    let script = "echo '{\"inside\":1}' > \"$HOME/.claude.json\"; echo in >> \"$HOME/.claude/projects/p/1.jsonl\"";
    let going = Going::start(&env, "s", &mark, script);
    put(&env.path("user").join(STATE), "out\n");
    put(&env.path("user/.claude.json"), "{\"outside\":1}");
    kill_process(going.command, Signal::TERM).unwrap();
    let told = going.finish(&env);
    assert_eq!(outside(&env, STATE).unwrap(), "out\n");
    assert_eq!(outside(&env, ".claude.json").unwrap(), "{\"outside\":1}");
    let aside: Vec<PathBuf> = told
        .err
        .lines()
        .filter_map(|line| line.split_once("what the run made of it is in "))
        .map(|(_, path)| path.trim().into())
        .collect();
    let mut texts: Vec<String> = aside
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    texts.sort();
    assert_eq!(texts, ["1\nin\n", "{\"inside\":1}\n"], "{told:?}");
    // The next run begins with what is outside.
    let script = "cd \"$HOME\"; cat .claude.json .claude/projects/p/1.jsonl";
    assert_eq!(shell(&env, script), "{\"outside\":1}out\n");
    assert_eq!(outside(&env, STATE).unwrap(), "out\n");
}

#[test]
fn caches_are_kept_with_the_session_until_it_is_discarded() {
    let Some(env) = with_files(&[
        (".cache/f", "own"),
        (".config/gcloud/token", "secret"),
        (".cargo/registry/x", "own"),
        ("go/pkg/m", "own"),
    ]) else {
        return;
    };
    let script = "cd \"$HOME\"; echo 1 > .cache/new; rm -r .cargo/registry; mkdir .cargo/registry; echo 2 > .cargo/registry/y; echo 3 > go/pkg/m; echo ok > p";
    let args = ["--session", "s", "--report", "report", "sh", "-c"];
    let told = run(
        &env,
        &[
            &args[..],
            &[&script.replace("echo ok > p", "echo ok > \"$OLDPWD/p\"")],
        ]
        .concat(),
    );
    assert_eq!(told.status, 0, "{told:?}");
    assert!(
        told.err
            .contains("copies  ~/.config ~/.cache ~/.cargo ~/go/pkg"),
        "{told:?}"
    );
    assert!(told.err.contains("(kept with the session)"), "{told:?}");
    let report = fs::read_to_string(env.project().join("report")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let paths: Vec<&str> = report["outside"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| o["path"].as_str().unwrap())
        .collect();
    assert!(
        paths.iter().any(|path| path.ends_with(".cache/new")),
        "{report}"
    );
    assert_eq!(report["outside"][0]["done"], "kept");
    for (path, text) in [
        (".cargo/registry/x", "own"),
        ("go/pkg/m", "own"),
        (".cache/f", "own"),
    ] {
        assert_eq!(outside(&env, path).unwrap(), text);
    }
    assert!(!is_there(&env, ".cache/new") && !is_there(&env, ".cargo/registry/y"));
    let script = "cd \"$HOME\"; cat .cache/new .cargo/registry/* go/pkg/m";
    assert_eq!(shell(&env, script), "1\n2\n3\n");
    assert!(kept(&env).join("0").is_dir());
    let discard = env.command(&env.project(), &["run", "--discard", "s"]);
    env.told(discard).ok();
    assert!(!kept(&env).exists());
    assert_eq!(shell(&env, "ls \"$HOME/.cache\""), "f\n");
}

#[test]
fn runs_of_a_session_at_once_end_up_with_one_copy() {
    let Some(env) = with_files(&[(".cache/f", "own"), (".claude/x", "own")]) else {
        return;
    };
    let (one, two) = (mark(), mark());
    let write = |name: &str| {
        format!("echo {name} > \"$HOME/.cache/{name}\"; echo {name} > \"$HOME/.claude/{name}\"")
    };
    let first = Going::start(&env, "s", &one, &write("first"));
    let second = Going::start(&env, "s", &two, &write("second"));
    for going in [first, second] {
        kill_process(going.command, Signal::TERM).unwrap();
        going.finish(&env);
    }
    assert_eq!(
        shell(&env, "cd \"$HOME/.cache\"; cat f first second"),
        "ownfirst\nsecond\n"
    );
    assert!(!kept(&env).join("1").exists());
    assert_eq!(outside(&env, ".claude/first").unwrap(), "first\n");
    assert_eq!(outside(&env, ".claude/second").unwrap(), "second\n");
}

#[test]
fn what_a_killed_run_left_is_written_back_by_the_next() {
    let Some(env) = with_files(&[(STATE, "1\n"), (".cache/f", "own")]) else {
        return;
    };
    let mark = mark();
    let mounts = mount::below(&env.path(""));
    let script = "echo 2 >> \"$HOME/.claude/projects/p/1.jsonl\"; echo c > \"$HOME/.cache/c\"";
    let going = Going::start(&env, "s", &mark, script);
    kill_process(Pid::from_child(&going.child), Signal::KILL).unwrap();
    going.finish(&env);
    wait::until("all of it is gone", || {
        processes(&format!("600.{mark}")).is_empty()
    });
    assert_eq!(mount::below(&env.path("")), mounts);
    assert_eq!(outside(&env, STATE).unwrap(), "1\n");
    assert_eq!(
        shell(
            &env,
            "cat \"$HOME/.cache/c\" \"$HOME/.claude/projects/p/1.jsonl\""
        ),
        "c\n1\n2\n"
    );
    assert_eq!(outside(&env, STATE).unwrap(), "1\n2\n");
}

#[test]
fn a_killed_run_leaves_no_copy_of_its_own_beside_the_sessions() {
    let Some(env) = with_files(&[(".cache/f", "own")]) else {
        return;
    };
    let (one, two) = (mark(), mark());
    let write = |name: &str| format!("echo {name} > \"$HOME/.cache/{name}\"");
    let first = Going::start(&env, "s", &one, &write("first"));
    let second = Going::start(&env, "s", &two, &write("second"));
    assert!(kept(&env).join("1").exists());
    for (going, mark) in [(second, two), (first, one)] {
        kill_process(Pid::from_child(&going.child), Signal::KILL).unwrap();
        going.finish(&env);
        wait::until("all of it is gone", || {
            processes(&format!("600.{mark}")).is_empty()
        });
    }
    assert_eq!(
        shell(&env, "cd \"$HOME/.cache\"; cat f first second"),
        "ownfirst\nsecond\n"
    );
    assert!(!kept(&env).join("1").exists());
    let runs = || {
        let entries = fs::read_dir(env.home().join("runs")).unwrap();
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        names.collect::<Vec<_>>()
    };
    assert_eq!(runs(), ["kept"]);
    run(&env, &["--discard", "s"]).ok();
    assert!(!kept(&env).exists());
}

#[test]
fn without_default_allows_the_home_is_read_only() {
    let Some(env) = with_files(&[
        (".claude/history", "1"),
        (".claude.json", "{}"),
        (".cache/f", "1"),
    ]) else {
        return;
    };
    let script = "cd \"$HOME\"; for f in .claude/history .claude.json .cache/f new; do (echo x > $f) 2>/dev/null && echo $f; done; true";
    let told = run(
        &env,
        &["--no-default-allows", "--session", "s", "sh", "-c", script],
    );
    assert_eq!((told.status, told.out.as_str()), (0, ""), "{told:?}");
    assert!(
        !kept(&env).exists() && !told.err.contains("copies"),
        "{told:?}"
    );
}

#[test]
fn nothing_hidden_is_seen_through_a_copy() {
    let Some(env) = with_files(&[
        (".config/gcloud/token", "secret"),
        (".claude/settings.json", "own"),
    ]) else {
        return;
    };
    let unshare = match mount::is_root() {
        true => "unshare --user --keep-caps",
        false => "unshare --user --map-root-user",
    };
    let script = format!(
        "cd \"$HOME\"; cat .config/gcloud/token; mv .config/gcloud .config/g; mv .config c; mv .claude c; rm -rf .config/gcloud
        cat .config/g/token c/gcloud/token
        {unshare} --mount sh -c '
            umount .config/gcloud; umount -l .config; umount -l .claude; cat .config/gcloud/token
            mkdir -p /tmp/o /tmp/b /tmp/r /tmp/u /tmp/w; mount -t overlay -o lowerdir=.config:/mnt,userxattr none /tmp/o; cat /tmp/o/gcloud/token
            mount --bind .config /tmp/b; cat /tmp/b/gcloud/token; mount --rbind .config /tmp/r; cat /tmp/r/gcloud/token
            mount -t overlay -o lowerdir=.claude,upperdir=/tmp/u,workdir=/tmp/w,userxattr none .claude; echo evil > .claude/settings.json'
        ls -A '{}'; true",
        env.home().display()
    );
    let out = shell(&env, &script);
    assert!(!out.contains("secret"), "{out}");
    assert_eq!(outside(&env, ".claude/settings.json").unwrap(), "own");
    assert_eq!(outside(&env, ".config/gcloud/token").unwrap(), "secret");
}

#[test]
fn links_that_a_session_left_lead_nothing_outside() {
    let Some(env) = with_files(&[(".claude/projects/p/f", "own"), (".claude.json", "{}")]) else {
        return;
    };
    let victim = env.path("user/victim");
    put(&victim, "own");
    let script = format!(
        "cd \"$HOME\"; rm -r .claude/projects; ln -s '{0}' .claude/projects; ln -s '{1}' .claude/log
        rm .claude.json; ln -s '{1}' .claude.json; mkfifo .claude/pipe; ln -s /etc .newdir; true",
        env.path("user").display(),
        victim.display()
    );
    for _ in 0..2 {
        shell(&env, &script);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "own");
        assert_eq!(outside(&env, ".claude/projects/p/f").unwrap(), "own");
        assert_eq!(outside(&env, ".claude.json").unwrap(), "{}");
        for name in [".claude/log", ".claude/pipe", ".newdir"] {
            assert!(!is_there(&env, name), "{name}");
        }
    }
}

#[test]
fn a_link_of_the_session_where_something_is_hidden_later_is_no_obstacle() {
    let Some(env) = sandbox::env(&[]) else { return };
    let user = env.path("user");
    fs::create_dir_all(user.join(".config")).unwrap();
    let made = ["--session", "s", "sh", "-c", "ln -s /etc ~/.config/gcloud"];
    assert_eq!(run(&env, &made).status, 0);
    fs::create_dir(user.join(".config/gcloud")).unwrap();
    fs::write(user.join(".config/gcloud/token"), "secret").unwrap();
    let script = "cd ~/.config; cat gcloud/token; rm gcloud; cat gcloud/token; mkdir gcloud; cat gcloud/token; ls gcloud; echo ran";
    for _ in 0..2 {
        let told = run(&env, &["--session", "s", "sh", "-c", script]);
        assert_eq!((told.status, told.out.as_str()), (0, "ran\n"), "{told:?}");
    }
}

#[test]
fn a_hidden_file_that_is_replaced_outside_stays_hidden() {
    let Some(env) = with_files(&[
        (".netrc", "secret"),
        (".docker/config.json", "secret"),
        (".docker/other", "seen "),
        (".ssh/id", "secret"),
        ("plain", "seen"),
    ]) else {
        return;
    };
    let script = "echo up > up; until [ -e go ]; do sleep 0.05; done; cd \"$HOME\"
        cat .netrc .docker/config.json .ssh/id .ssh.old/id; cat .docker/other plain; ls -A .ssh
        echo x > plain; echo x > .docker/other; echo x > new; readlink link";
    std::os::unix::fs::symlink("to", env.path("user").join("link")).unwrap();
    let args = [
        "--session",
        "s",
        "--no-default-allows",
        "--",
        "sh",
        "-c",
        script,
    ];
    let mut command = sandbox::command(&env, &args);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = piped.spawn().unwrap();
    let view = env.mountpoint().join(".agentvfs/branches/s");
    wait::until("the run is up", || view.join("up").exists());
    // As programs do that store passwords.
    for name in [".netrc", ".docker/config.json"] {
        put(&env.path("user/new"), "secret");
        fs::rename(env.path("user/new"), env.path("user").join(name)).unwrap();
    }
    fs::rename(env.path("user/.ssh"), env.path("user/.ssh.old")).unwrap();
    put(&env.path("user/.ssh/id"), "secret");
    fs::write(view.join("go"), "").unwrap();
    let told = env.finish(child, "the run");
    assert_eq!(told.out, "seen seento\n", "{told:?}");
    assert_eq!(outside(&env, "plain").unwrap(), "seen");
    assert!(!is_there(&env, "new"));
}
