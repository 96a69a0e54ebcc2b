//! What takes long shows on a terminal that it goes on, and an interrupt says what becomes of it.
//!
//! The daemon is held up by strace(1), which delays calls that the work cannot do without.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tests::env::Env;
use tests::mount::found;
use tests::skip::{Want, skip};
use tests::wait;

/// Calls that are delayed: syncs, and what removes files.
const HELD: &str = "fsync,fdatasync,syncfs,unlink,unlinkat,rmdir";

/// Longer than any test runs, and as long as makes a few answers slow, in microseconds.
const FOR_EVER_US: u64 = 600_000_000;
const SLOW_US: u64 = 400_000;

/// Directories that take longer than any test waits if each is listed so slowly.
const SLOW_DIRS: u64 = 120_000_000 / SLOW_US;

/// Calls by which the daemon answers.
const ANSWERS: &str = "write,writev,sendto,sendmsg";

/// The daemon, held up until this is dropped.
struct Held(Child);

impl Held {
    fn new(env: &Env) -> Held {
        Held::at(env, HELD, FOR_EVER_US)
    }

    /// Held up at each of these calls for so many microseconds.
    fn at(env: &Env, calls: &str, us: u64) -> Held {
        let daemon = env.daemons()[0].as_raw_nonzero().to_string();
        let strace = Command::new("strace")
            .args(["-f", "-qq", "-o", "/dev/null", "-p", &daemon])
            .args(["-e", &format!("trace={calls}")])
            .args(["-e", &format!("inject={calls}:delay_enter={us}")])
            .stderr(Stdio::null())
            .spawn();
        let held = Held(strace.unwrap());
        wait::until("the daemon is traced", || {
            let tasks = fs::read_dir(format!("/proc/{daemon}/task")).unwrap();
            let mut tasks =
                tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
            tasks.all(|status| !status.contains("TracerPid:\t0\n"))
        });
        held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let id = i32::try_from(self.0.id()).unwrap();
        let id = rustix::process::Pid::from_raw(id).unwrap();
        // So asked, it lets go of what it traces.
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// A command on a terminal, with what it shows.
struct Shown {
    child: Child,
    file: PathBuf,
}

impl Shown {
    fn new(env: &Env, variables: &[(&str, &str)], line: &str) -> Shown {
        Shown::at(env, 80, variables, line)
    }

    /// On a terminal of so many columns.
    fn at(env: &Env, columns: usize, variables: &[(&str, &str)], line: &str) -> Shown {
        let file = env.path("shown");
        let program = tests::binary::agentvfs().display().to_string();
        let child = env
            .program("script")
            .args([
                "-qefc",
                &format!("stty cols {columns}; exec {program} {line}"),
                "/dev/null",
            ])
            .env("TERM", "xterm")
            .env("LC_ALL", "C.UTF-8")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(File::create(&file).unwrap())
            .spawn();
        Shown {
            child: child.unwrap(),
            file,
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.file).unwrap()).into_owned()
    }

    #[track_caller]
    fn wait_for(&mut self, word: &str) {
        wait::until(&format!("{word:?} is shown"), || self.text().contains(word));
    }

    fn interrupt(&mut self) {
        self.child
            .stdin
            .as_mut()
            .unwrap()
            .write_all(b"\x03")
            .unwrap();
    }

    /// The exit status.
    fn end(mut self) -> (i32, String) {
        wait::until("the command ends", || {
            self.child.try_wait().unwrap().is_some()
        });
        let status = self.child.wait().unwrap().code().unwrap();
        (status, self.text())
    }
}

fn env() -> Option<Env> {
    let probe = Command::new("strace")
        .args(["-f", "-o", "/dev/null", "true"])
        .stderr(Stdio::null())
        .status();
    if !probe.is_ok_and(|status| status.success()) || !found("script") {
        skip(
            Want::Machine,
            "strace or script is missing, or strace may not trace",
        );
        return None;
    }
    Env::new()
}

/// A workspace with a change that is not in the project, whose daemon is kept by a second one.
fn with_change(env: &Env) {
    fs::write(env.project().join("f"), "0\n").unwrap();
    fs::create_dir(env.path("other")).unwrap();
    env.workspace(&["start", "--from", "other"]).ok();
    let root = env.start();
    env.imported();
    fs::write(root.join("f"), "1\n").unwrap();
    env.workspace(&["checkpoint", "project", "one"]).ok();
    fs::write(root.join("g"), "2\n").unwrap();
}

#[test]
fn what_the_daemon_does_shows_that_it_goes_on_and_does_so_when_interrupted() {
    let Some(env) = env() else { return };
    with_change(&env);
    let root = env.mountpoint();
    let stored = || env.workspace(&["log", "project"]).ok().contains("\ttwo\t");
    let is_back = || fs::read(root.join("f")).is_ok_and(|text| text == b"0\n");
    let stopped = || env.status()["status"] == "stopped";
    let gone = || !env.workspace(&["list"]).ok().contains("project");
    let (status, stats, list) = (
        "agentvfs status shows the state",
        "agentvfs stats shows the disk usage",
        "agentvfs list shows whether the workspace is gone",
    );
    let steps: [(&str, &str, &str, &dyn Fn() -> bool); 5] = [
        ("checkpoint project two", "storing, ", status, &stored),
        (
            "rollback -w project HEAD~2",
            "rolling back, ",
            status,
            &is_back,
        ),
        ("gc", "collecting, ", stats, &|| true),
        ("stop project", "saving, ", status, &stopped),
        ("delete project --yes", "deleting, ", list, &gone),
    ];
    for (line, word, look, is_done) in steps {
        let held = Held::new(&env);
        let mut shown = Shown::new(&env, &[], line);
        shown.wait_for(word);
        shown.interrupt();
        shown.wait_for(&format!("the daemon continues until it is done; {look}"));
        let (status, text) = shown.end();
        assert_eq!(status, 130, "{text}");
        // In a line of its own, and nothing is drawn after it.
        let (before, after) = text.split_once("agentvfs: the daemon").unwrap();
        assert!(before.ends_with("\u{1b}[2K"), "{text:?}");
        assert!(!after.contains(word), "{text:?}");
        drop(held);
        wait::until("what was interrupted is done", is_done);
    }
}

#[test]
fn apply_and_update_show_that_they_go_on_and_say_whether_they_were_cancelled() {
    let Some(env) = env() else { return };
    with_change(&env);
    fs::write(env.project().join("h"), "3\n").unwrap();
    for (line, word) in [("update project", "merging"), ("apply project", "applying")] {
        let held = Held::new(&env);
        let mut shown = Shown::new(&env, &[], line);
        shown.wait_for(word);
        shown.interrupt();
        drop(held);
        let (status, text) = shown.end();
        let is_told = match status {
            130 => text.contains("cancelled; nothing was changed"),
            0 => text.contains("too late to cancel"),
            _ => false,
        };
        assert!(is_told, "{line}: {status}: {text}");
        // What was cancelled can be done again.
        env.told(env.command(&env.path("."), &line.split(' ').collect::<Vec<_>>()))
            .ok();
    }
    assert_eq!(fs::read(env.project().join("g")).unwrap(), b"2\n");
}

#[test]
fn progress_heeds_the_locale_and_what_the_terminal_can_do() {
    let Some(env) = env() else { return };
    with_change(&env);
    let held = Held::new(&env);
    let mut ascii = Shown::new(&env, &[("LC_ALL", "C")], "stop project");
    ascii.wait_for("saving, 2s");
    assert!(ascii.text().is_ascii(), "{}", ascii.text());
    drop(held);
    assert_eq!(ascii.end().0, 0);
    env.start();
    let held = Held::new(&env);
    let dumb = Shown::new(&env, &[("TERM", "dumb")], "stop project");
    wait::let_run(std::time::Duration::from_secs(2));
    drop(held);
    let (status, text) = dumb.end();
    assert_eq!(status, 0, "{text}");
    assert!(!text.contains("saving") && !text.contains('\x1b'), "{text}");
}

#[test]
fn what_is_drawn_fits_and_leaves_room_for_an_interrupt() {
    let Some(env) = env() else { return };
    with_change(&env);
    let columns = 24;
    let held = Held::new(&env);
    let mut shown = Shown::at(&env, columns, &[], "stop project");
    shown.wait_for("saving, 1s");
    drop(held);
    let (status, text) = shown.end();
    assert_eq!(status, 0, "{text}");
    let drawn = text
        .split(['\r', '\n'])
        .filter(|part| part.contains("saving, "));
    for line in drawn {
        let line = line.trim_start_matches("\u{1b}[2K");
        // An interrupt is echoed as two letters, in this line and not in the next one.
        assert!(line.chars().count() <= columns - 3, "{line:?}");
    }
}

#[test]
fn restore_shows_that_it_looks_for_what_it_will_write_and_writes_nothing_when_interrupted() {
    let Some(env) = env() else { return };
    for name in 0..SLOW_DIRS {
        fs::create_dir_all(env.project().join(format!("a/d{name}"))).unwrap();
    }
    env.start();
    env.imported();
    let held = Held::at(&env, ANSWERS, SLOW_US);
    let to = env.path("out");
    let line = format!("-w project restore a --to {}", to.display());
    let mut shown = Shown::new(&env, &[], &line);
    shown.wait_for("listing, ");
    shown.interrupt();
    // While each answer still takes its time: what is looked for is not looked for to the end.
    let (status, text) = shown.end();
    drop(held);
    assert_eq!(status, 130, "{text}");
    assert!(text.contains("nothing was kept of it"), "{text}");
    assert_eq!(fs::read_dir(&to).map_or(0, Iterator::count), 0, "{text}");
}
