//! `agentvfs run`: signals, sudden ends, and runs beside each other.
#![allow(clippy::unwrap_used)]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Stdio};
use tests::env::Env;
use tests::sandbox::{self, Going, mark, processes, run, shell};
use tests::{binary, mount, wait};

fn view(env: &Env, branch: &str, name: &str) -> PathBuf {
    env.mountpoint()
        .join(".agentvfs/branches")
        .join(branch)
        .join(name)
}

#[track_caller]
fn gone(mark: &str) {
    wait::until("all of it is gone", || {
        processes(&format!("600.{mark}")).is_empty()
    });
}

/// The namespaces of a process.
fn namespaces(pid: Pid) -> Vec<PathBuf> {
    let dir = PathBuf::from(format!("/proc/{}/ns", pid.as_raw_nonzero()));
    let all = ["mnt", "user", "pid", "ipc", "uts"].map(|name| fs::read_link(dir.join(name)));
    all.map(Result::unwrap).to_vec()
}

/// Whether any process is in one of these namespaces, or has it open.
fn are_held(namespaces: &[PathBuf]) -> bool {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let is_process = |path: &PathBuf| path.join("ns").exists();
    let links = |dir: PathBuf| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter_map(|entry| fs::read_link(entry.path()).ok())
    };
    let processes = entries.map(|entry| entry.path()).filter(is_process);
    let mut all = processes.flat_map(|path| links(path.join("ns")).chain(links(path.join("fd"))));
    all.any(|link| namespaces.contains(&link))
}

/// A run that wrote something and waits.
fn going(env: &Env, mark: &str) -> Going {
    Going::start(env, "s", mark, "echo kept > kept")
}

/// Kills one process of a run; what it wrote must be kept, and nothing of it may be left.
#[track_caller]
fn killed(which: impl Fn(&Going) -> Pid, status: i32) {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let going = going(&env, &mark);
    let mounts = mount::below(&env.path(""));
    let namespaces = namespaces(going.command);
    assert!(are_held(&namespaces));
    kill_process(which(&going), Signal::KILL).unwrap();
    let told = going.finish(&env);
    assert_eq!(told.status, status, "{told:?}");
    gone(&mark);
    wait::until("the namespaces are gone", || !are_held(&namespaces));
    assert_eq!(mount::below(&env.path("")), mounts);
    assert_eq!(
        fs::read_to_string(view(&env, "s", "kept")).unwrap(),
        "kept\n"
    );
    assert_eq!(shell(&env, "cat kept"), "kept\n");
}

#[test]
fn a_killed_command_ends_the_run() {
    killed(|going| going.command, 137);
}

#[test]
fn a_killed_run_ends_the_command() {
    let run = |going: &Going| Pid::from_child(&going.child);
    // No status: the test's own child was killed.
    killed(run, -1);
}

#[test]
fn a_killed_process_1_ends_both() {
    killed(Going::init, 125);
}

#[test]
fn what_the_command_leaves_running_ends_with_it() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    shell(
        &env,
        &format!("(setsid sleep 600.{mark} >/dev/null 2>&1 &); true"),
    );
    gone(&mark);
}

#[test]
fn a_request_to_end_reaches_the_command_once() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let script = "trap 'echo caught >> caught' TERM";
    let going = Going::start(&env, "s", &mark, script);
    let run = Pid::from_child(&going.child);
    kill_process(run, Signal::TERM).unwrap();
    let told = going.finish(&env);
    // The shell has become `sleep`, which has no handler.
    assert_eq!(told.status, 143, "{told:?}");
    gone(&mark);
}

#[test]
fn the_second_request_to_end_is_obeyed() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let going = Going::start(&env, "s", &mark, "trap '' TERM");
    let run = Pid::from_child(&going.child);
    kill_process(run, Signal::TERM).unwrap();
    kill_process(run, Signal::TERM).unwrap();
    // Two signals that come together are one: a third is harmless.
    let mut going = going;
    wait::until("the run ends", || {
        let _ = kill_process(run, Signal::TERM);
        going.child.try_wait().unwrap().is_some()
    });
    gone(&mark);
}

#[test]
fn a_command_whose_time_has_run_out_is_asked_to_end() {
    let Some(env) = sandbox::env(&[]) else { return };
    let script = "trap 'echo asked > asked; exit 3' TERM; while :; do sleep 0.1; done";
    let told = run(
        &env,
        &["--session", "s", "--time", "1s", "--", "sh", "-c", script],
    );
    let said = "its time had run out";
    assert!(told.status == 124 && told.err.contains(said), "{told:?}");
    assert_eq!(
        fs::read_to_string(view(&env, "s", "asked")).unwrap(),
        "asked\n"
    );
    // What ends in time is as without a limit.
    let told = run(
        &env,
        &[
            "--session",
            "s",
            "--time",
            "10m",
            "--",
            "sh",
            "-c",
            "exit 3",
        ],
    );
    assert_eq!(told.status, 3, "{told:?}");
}

#[test]
fn a_command_that_goes_on_beyond_its_time_is_killed_with_all_that_it_started() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let script = format!("trap '' TERM; sleep 600.{mark} & echo kept > kept; sleep 600.{mark}");
    let told = run(
        &env,
        &[
            "--session",
            "s",
            "--time",
            "500ms",
            "--",
            "sh",
            "-c",
            &script,
        ],
    );
    let said = "its time had run out";
    assert!(told.status == 124 && told.err.contains(said), "{told:?}");
    gone(&mark);
    assert_eq!(
        fs::read_to_string(view(&env, "s", "kept")).unwrap(),
        "kept\n"
    );
}

#[test]
fn an_interrupt_from_the_terminal_is_the_commands() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let going = Going::start(&env, "s", &mark, "");
    // A terminal sends it to all; the run goes on until the command has ended.
    kill_process(Pid::from_child(&going.child), Signal::INT).unwrap();
    kill_process(going.command, Signal::INT).unwrap();
    let told = going.finish(&env);
    assert_eq!(told.status, 130, "{told:?}");
    assert!(told.err.contains("was ended by signal 2"), "{told:?}");
}

#[test]
fn a_stopped_command_stops_the_run_and_both_continue() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let going = Going::start(&env, "s", &mark, "");
    let run = Pid::from_child(&going.child);
    let state = |pid: Pid| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    };
    kill_process(going.command, Signal::STOP).unwrap();
    wait::until("the run is stopped", || state(run) == 'T');
    kill_process(run, Signal::CONT).unwrap();
    wait::until("both go on", || {
        state(run) != 'T' && state(going.command) != 'T'
    });
    kill_process(going.command, Signal::TERM).unwrap();
    assert_eq!(going.finish(&env).status, 143);
}

#[test]
fn a_branch_and_workspace_in_use_stay() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let going = Going::start(&env, "s", &mark, "");
    let told = env.told(env.command(&env.project(), &["branch", "delete", "s"]));
    assert!(
        told.status == 1 && told.err.contains("is used by"),
        "{told:?}"
    );
    let told = env.workspace(&["stop", "project"]);
    assert!(
        told.status == 1 && told.err.contains("processes use it"),
        "{told:?}"
    );
    kill_process(going.command, Signal::KILL).unwrap();
    going.finish(&env);
    env.told(env.command(&env.project(), &["branch", "delete", "s"]))
        .ok();
    env.workspace(&["stop", "project"]).ok();
}

#[test]
fn another_workspace_can_be_stopped_meanwhile() {
    let Some(env) = sandbox::env(&[]) else { return };
    let other = env.path("other");
    fs::create_dir(&other).unwrap();
    env.workspace(&["start", "--from", "other"]).ok();
    let mark = mark();
    let going = Going::start(&env, "s", &mark, "");
    env.workspace(&["stop", "other"]).ok();
    env.workspace(&["start", "other"]).ok();
    kill_process(going.command, Signal::KILL).unwrap();
    going.finish(&env);
    env.workspace(&["stop", "other"]).ok();
}

#[test]
fn the_daemons_death_loses_nothing_that_was_written() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let going = Going::start(&env, "s", &mark, "echo kept > kept");
    env.kill_daemon();
    kill_process(going.command, Signal::KILL).unwrap();
    let told = going.finish(&env);
    assert_eq!(told.status, 137, "{told:?}");
    assert_eq!(shell(&env, "cat kept"), "kept\n");
    assert_eq!(run(&env, &["true"]).status, 0);
}

/// A shell in a run that is told what to do, line by line.
struct Told {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
}

impl Told {
    fn start(env: &Env, options: &[&str]) -> Told {
        let dir = env.path("bin");
        if fs::create_dir(&dir).is_ok() {
            binary::same_build(&dir.join("agentvfs"));
        }
        let path = format!("PATH={}:/usr/local/bin:/usr/bin:/bin", dir.display());
        let args = [options, &["--env", &path, "--", "sh"]].concat();
        let mut command = sandbox::command(env, &args);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.stderr(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let err = child.stderr.take().unwrap();
        let (from, err) = (BufReader::new(from), BufReader::new(err));
        Told {
            child,
            to,
            from,
            err,
        }
    }

    /// What a line of the shell prints, without its last line end.
    #[track_caller]
    fn says(&mut self, line: &str) -> String {
        writeln!(self.to, "{line}\necho END").unwrap();
        let mut out = String::new();
        while !out.ends_with("END\n") {
            if self.from.read_line(&mut out).unwrap() == 0 {
                panic!("{out}{}", self.err());
            }
        }
        out.trim_end_matches("END\n").trim_end().to_owned()
    }

    /// What is said on standard error until the run ends.
    fn err(&mut self) -> String {
        let mut text = String::new();
        self.err.read_to_string(&mut text).unwrap();
        text
    }

    /// What the run says next of a daemon that died.
    fn says_of_the_daemon(&mut self) -> String {
        let mut line = String::new();
        while !line.contains("the daemon died") {
            line.clear();
            assert_ne!(self.err.read_line(&mut line).unwrap(), 0);
        }
        line
    }

    /// Ends it; gives what the run said on standard error.
    fn end(mut self) -> String {
        writeln!(self.to, "exit 0").unwrap();
        let text = self.err();
        assert!(self.child.wait().unwrap().success(), "{text}");
        text
    }
}

#[test]
fn where_nobody_keeps_the_mount_the_view_is_placed_again_after_the_daemons_death() {
    let Some(env) = sandbox::env(&[("base", "base\n")]) else {
        return;
    };
    let project = env.project();
    let enter = format!(
        "until cd {} && ls >/dev/null; do sleep 0.02; done 2>/dev/null",
        project.display()
    );
    let mut told = Told::start(&env, &["--session", "s"]);
    let mounts = mount::below(&env.path(""));
    assert_eq!(
        told.says("pwd; echo tmp > /tmp/t; cat base"),
        format!("{}\nbase", project.display())
    );
    for n in 1..=2 {
        told.says(&format!("mkdir -p d{n}; echo {n} > d{n}/f; agentvfs branch create b{n} >/dev/null; echo {n} > d{n}/after"));
        env.kill_daemon();
        assert_eq!(
            told.says(&format!("{enter}; cat d{n}/f d{n}/after /tmp/t base")),
            format!("{n}\n{n}\ntmp\nbase")
        );
        // All that is below it is as it was, and works.
        assert_eq!(
            told.says(
                "ls -A .agentvfs; ls .agentvfs/snapshots >/dev/null && readlink .agentvfs/view"
            ),
            "branches\nsnapshots\nview\n.."
        );
        let seen = (1..=n).map(|n| format!("b{n}\n")).collect::<String>();
        wait::until("branches are seen", || {
            told.says("ls .agentvfs/branches") == seen.trim_end()
        });
        assert_eq!(
            told.says(&format!(
                "cat .agentvfs/branches/b{n}/d{n}/f; touch .agentvfs/x 2>/dev/null; echo $?"
            )),
            format!("{n}\n1")
        );
        assert_eq!(
            told.says(&format!(
                "agentvfs checkpoint c{n} >/dev/null && ls .agentvfs/snapshots/c{n}/d{n}"
            )),
            "after\nf"
        );
        assert_eq!(told.says(&format!("agentvfs branch create late{n} >/dev/null && agentvfs fs cat d{n}/f --branch late{n} && ls .agentvfs/branches/late{n}/d{n} && agentvfs branch delete late{n} >/dev/null")), format!("{n}\nafter\nf"));
        // Nothing else of the machine has become writable, and the project is as it was.
        assert_eq!(told.says("touch ../x ~/x 2>/dev/null; echo $?"), "1");
        assert_eq!(fs::read_dir(&project).unwrap().count(), 1);
    }
    assert_eq!(mount::below(&env.path("")), mounts);
    // The run uses the branch of the new mount.
    let refused = env.told(env.command(&project, &["branch", "delete", "s"]));
    assert!(
        refused.status == 1 && refused.err.contains("is used by"),
        "{refused:?}"
    );
    let err = told.end();
    assert_eq!(
        err.matches("the daemon died and is back").count(),
        2,
        "{err}"
    );
    assert!(err.contains("4 files added"), "{err}");
    assert_eq!(shell(&env, "cat d1/f d2/after"), "1\n2\n");
    // Nothing was written below the mount.
    assert!(!env.log().contains("hidden below"), "{}", env.log());
}

#[test]
fn a_daemon_that_dies_again_and_again_is_not_brought_back_by_a_run() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mut told = Told::start(&env, &["--session", "s"]);
    told.says("echo kept > kept; cd /");
    for n in 1..=6 {
        env.kill_daemon();
        let said = told.says_of_the_daemon();
        assert_eq!(said.contains("again and again"), n == 6, "{n}: {said}");
        assert_eq!(said.contains("is back"), n < 6, "{n}: {said}");
    }
    assert!(env.daemons().is_empty());
    told.end();
    assert_eq!(shell(&env, "cat kept"), "kept\n");
}

#[test]
fn every_run_has_its_view_again_after_the_daemons_death() {
    let Some(env) = sandbox::env(&[("base", "base\n")]) else {
        return;
    };
    let sessions = ["s", "t", "s", "u", "s", "t"];
    let mut all: Vec<Told> = sessions
        .iter()
        .map(|session| Told::start(&env, &["--session", session]))
        .collect();
    for (n, told) in all.iter_mut().enumerate() {
        told.says(&format!("echo {n} > f{n}"));
    }
    // One of them comes when the workspace is back.
    let late = Pid::from_child(&all[5].child);
    kill_process(late, Signal::STOP).unwrap();
    env.kill_daemon();
    env.workspace(&["start", "project"]).ok();
    kill_process(late, Signal::CONT).unwrap();
    let enter = format!(
        "until cd {} && ls >/dev/null; do sleep 0.02; done 2>/dev/null",
        env.project().display()
    );
    for (n, told) in all.iter_mut().enumerate() {
        assert_eq!(
            told.says(&format!("{enter}; cat f{n} base; echo again >> f{n}")),
            format!("{n}\nbase")
        );
    }
    for (n, mut told) in all.into_iter().enumerate() {
        let others = (0..6).filter(|other| sessions[*other] == sessions[n]);
        let seen: String = others.map(|other| format!("f{other}\n")).collect();
        assert_eq!(told.says("ls f*"), seen.trim_end());
        let err = told.end();
        assert_eq!(err.matches("is back").count(), 1, "{err}");
    }
    assert_eq!(
        shell(&env, "cat f0 f2 f4"),
        "0\nagain\n2\nagain\n4\nagain\n"
    );
}

#[test]
fn what_is_hidden_in_the_project_is_hidden_in_the_view_that_is_placed_again() {
    let Some(env) = sandbox::env(&[(".env", "KEY=1\n"), ("f", "seen\n")]) else {
        return;
    };
    let project = env.project();
    fs::create_dir(env.mountpoint().join("keys")).unwrap();
    fs::write(env.mountpoint().join("keys/k"), "KEY=2").unwrap();
    let hidden = [".env", "keys"].map(|name| project.join(name).to_str().unwrap().to_owned());
    let options = ["--session", "s", "--hide", &hidden[0], "--hide", &hidden[1]];
    let mut told = Told::start(&env, &options);
    let look = "cat f .env; ls -A keys .agentvfs; cat keys/k; echo x > .env; echo end";
    let before = told.says(&format!("({look}) 2>/dev/null"));
    assert_eq!(before, "seen\n.agentvfs:\n\nkeys:\nend");
    // At no moment is it seen: what looks without a pause finds nothing but what is hidden.
    let watch = format!(
        "cd /; (while :; do cat {0}/.env {0}/keys/k; done > /tmp/seen 2>/dev/null) &",
        project.display()
    );
    told.says(&watch);
    env.kill_daemon();
    let enter = format!(
        "until cd {} && ls >/dev/null; do sleep 0.02; done 2>/dev/null",
        project.display()
    );
    assert_eq!(told.says(&format!("{enter}; ({look}) 2>/dev/null")), before);
    assert_eq!(told.says("kill $!; cat /tmp/seen"), "");
    told.end();
    assert_eq!(fs::read_to_string(project.join(".env")).unwrap(), "KEY=1\n");
}

#[test]
fn a_workspace_that_is_stopped_is_not_started_again_by_its_runs() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mut told = Told::start(&env, &["--session", "s"]);
    told.says("echo kept > kept");
    env.workspace(&["stop", "project", "--force"]).ok();
    env.kill_daemon();
    let dead = format!(
        "while ls {} >/dev/null 2>&1; do sleep 0.02; done; cd /",
        env.project().display()
    );
    told.says(&dead);
    let list = || env.workspace(&["list"]).ok();
    assert!(list().contains("stopped"), "{}", list());
    drop(told.to);
    let _ = told.child.wait();
    assert!(list().contains("stopped"), "{}", list());
}

#[test]
fn runs_of_a_session_share_temporary_files_until_the_last_ends() {
    let Some(env) = sandbox::env(&[]) else { return };
    let marks = [mark(), mark(), mark()];
    let end = |going: Going| {
        kill_process(going.command, Signal::KILL).unwrap();
        going.finish(&env);
    };
    let of = |session: &str, mark: &str, script: &str| Going::start(&env, session, mark, script);
    let write = |n: usize| {
        format!(
            "for d in /tmp /var/tmp /dev/shm; do echo {n} > $d/{n}; done; stat -c %d /tmp /var/tmp /dev/shm | uniq | wc -l > disks"
        )
    };
    let first = of("s", &marks[0], &write(1));
    let other = of(
        "other",
        &marks[1],
        "ls -A /tmp /var/tmp /dev/shm | grep -v : > seen",
    );
    let second = of("s", &marks[2], &write(2));
    assert_eq!(shell(&env, "cat /tmp/1 /var/tmp/2 /dev/shm/1"), "1\n2\n1\n");
    assert_eq!(fs::read_to_string(view(&env, "s", "disks")).unwrap(), "1\n");
    let seen = fs::read_to_string(view(&env, "other", "seen")).unwrap();
    assert_eq!(seen.trim(), "");
    // It may be anybody who made them.
    end(first);
    assert_eq!(
        shell(&env, "cat /tmp/*; rm /tmp/1; echo 3 > /dev/shm/3"),
        "1\n2\n"
    );
    assert_eq!(shell(&env, "ls -A /tmp; cat /dev/shm/3"), "2\n3\n");
    end(second);
    end(other);
    assert_eq!(
        shell(&env, "ls -A /tmp /var/tmp /dev/shm | grep -v :").trim(),
        ""
    );
    let (total, size) = (
        r"awk '/MemTotal/ { print $2 }' /proc/meminfo",
        "df -k --output=size /tmp | tail -1",
    );
    let script =
        format!("t=$({total}); s=$({size}); [ $s -gt 0 ] && [ $((s * 2)) -le $t ] && echo half");
    assert_eq!(shell(&env, &script), "half\n");
}

#[test]
fn directories_of_the_machine_that_one_run_has_are_not_shared() {
    let Some(env) = sandbox::env(&[]) else { return };
    let outside = tempfile::tempdir_in("/tmp").unwrap();
    fs::write(outside.path().join("f"), "outside").unwrap();
    let mark = mark();
    let options = ["--session", "s", "--allow", "/tmp"];
    let going = Going::start_with(&env, &options, "s", &mark, "");
    let found = shell(
        &env,
        &format!("cat {}/f 2>&1; ls -A /tmp", outside.path().display()),
    );
    assert!(
        found.contains("No such file") && !found.contains("outside\n"),
        "{found}"
    );
    kill_process(going.command, Signal::KILL).unwrap();
    going.finish(&env);
}
