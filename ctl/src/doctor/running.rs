//! What runs: the home's daemon, others that were left behind, mounts that nobody serves.

use super::{Finding, PATIENCE, asked, patiently, text_of};
use agentvfs_client::connection::{Client, ClientError};
use agentvfs_client::home::Home;
use agentvfs_client::identity::build;
use agentvfs_client::protocol::{Call, Info, ListAnswer, Nothing};
use agentvfs_client::record::Records;
use agentvfs_daemon::unescape;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Instant;

pub fn examine(home: &Home) -> Vec<Finding> {
    let mut all = vec![daemon(home)];
    all.extend(keeper(home));
    all.extend(left_behind());
    all.extend(mounts(home));
    all.extend(projects(home));
    all
}

/// Workspaces whose project is gone, as far as a daemon that runs knows them.
fn projects(home: &Home) -> Vec<Finding> {
    let socket = home.socket();
    let gone = patiently(move || -> Option<Vec<Info>> {
        let mut client = Client::connect(&socket).ok()?;
        let answer: ListAnswer = client.call(&Call::List(Nothing {})).ok()?;
        let is_gone = |info: &Info| match std::fs::metadata(info.base.path()) {
            Ok(found) => !found.is_dir(),
            Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        };
        Some(answer.workspaces.into_iter().filter(is_gone).collect())
    });
    let told = |info: Info| {
        Finding::warning(
            "projects",
            format!("{}: {} is gone", info.name, info.base.path().display()),
            format!(
                "move it back; or agentvfs run -w {0} --at DIR shows its branches elsewhere, agentvfs delete {0} deletes them",
                info.name
            ),
        )
    };
    let gone = gone.flatten().unwrap_or_default();
    gone.into_iter().map(told).collect()
}

/// The daemon of this home. None is started.
fn daemon(home: &Home) -> Finding {
    const CHECK: &str = "daemon";
    let socket = home.socket();
    match patiently(move || Client::connect(&socket)) {
        Some(Ok(client)) if client.daemon().build == build() => {
            let pid = client.daemon().pid;
            Finding::ok(CHECK, format!("runs as process {pid}"))
        }
        Some(Ok(client)) => {
            let daemon = client.daemon();
            Finding::warning(
                CHECK,
                format!(
                    "process {} is of another build ({}) than this command",
                    daemon.pid, daemon.version
                ),
                "agentvfs start NAME replaces it when no process uses its mounts",
            )
        }
        Some(Err(ClientError::NotRunning)) => Finding::ok(CHECK, "does not run"),
        Some(Err(error @ ClientError::Version(_))) => Finding::broken(
            CHECK,
            error.to_string(),
            "agentvfs start NAME replaces it when no process uses its mounts",
        ),
        Some(Err(error)) => Finding::broken(
            CHECK,
            error.to_string(),
            format!(
                "read {}; if the daemon hangs, kill it",
                home.log().display()
            ),
        ),
        None => Finding::broken(
            CHECK,
            "it does not respond",
            format!(
                "read {}; if the daemon hangs, kill it",
                home.log().display()
            ),
        ),
    }
}

/// The keeper of this home, while a daemon runs; and why mounts are refused.
fn keeper(home: &Home) -> Vec<Finding> {
    const CHECK: &str = "keeper";
    let mut all = Vec::new();
    if let Ok(why) = std::fs::read_to_string(home.given_up()) {
        all.push(Finding::warning(
            CHECK,
            format!("mounts answer EIO: {}", why.trim_end()),
            format!(
                "read {}; then agentvfs start NAME serves the workspace again",
                home.log().display()
            ),
        ));
    }
    let of_home = |words| {
        let mut found = processes(words).into_iter();
        found.find(|(_, of)| of == home.root()).map(|(pid, _)| pid)
    };
    match (of_home("daemon"), of_home("keeper")) {
        (None, _) => {}
        (Some(_), Some(pid)) => {
            let text = format!("runs as process {pid}: mounts outlive a crash of the daemon");
            all.push(Finding::ok(CHECK, text));
        }
        (Some(_), None) => {
            let text = "does not run: mounts end when the daemon crashes, until the next command";
            all.push(Finding::ok(CHECK, text));
        }
    }
    all
}

/// Daemons of this user whose home is gone, or whose program was replaced.
fn left_behind() -> Vec<Finding> {
    const CHECK: &str = "other-daemons";
    let mut all = Vec::new();
    for (pid, home) in processes("daemon") {
        if !home.is_dir() {
            all.push(Finding::broken(
                CHECK,
                format!("process {pid} serves {}, which is gone", home.display()),
                format!("kill {pid}"),
            ));
            continue;
        }
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        if program.as_os_str().as_bytes().ends_with(b" (deleted)") {
            all.push(Finding::warning(
                CHECK,
                format!(
                    "process {pid} serves {} with a program file that has been replaced",
                    home.display()
                ),
                format!("agentvfs --root {} start NAME replaces it", home.display()),
            ));
        }
    }
    all
}

/// Process and home of each daemon or keeper of this user.
fn processes(what: &str) -> Vec<(u32, PathBuf)> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let me = rustix::process::geteuid().as_raw();
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let mine = entry.metadata().is_ok_and(|meta| meta.uid() == me);
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Some(pid) = pid.filter(|_| mine) else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if let Some(home) = home_of(&line, what) {
            found.push((pid, home));
        }
    }
    found
}

/// The home in a daemon's or keeper's command line: `agentvfs daemon --root HOME`.
fn home_of(line: &[u8], what: &str) -> Option<PathBuf> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    match words.as_slice() {
        [b"agentvfs", word, b"--root", home, ..] if *word == what.as_bytes() => {
            Some(PathBuf::from(OsStr::from_bytes(home)))
        }
        _ => None,
    }
}

/// Mounts of this home that nobody serves any more. Those of other homes are theirs to look after.
fn mounts(home: &Home) -> Vec<Finding> {
    const CHECK: &str = "mounts";
    let table = text_of("/proc/self/mountinfo").unwrap_or_default();
    let recorded = Records::new(home.running()).all_running();
    let is_ours = |place: &PathBuf| {
        let is_recorded = recorded.iter().any(|(_, record)| record.place() == place);
        is_recorded || place.starts_with(home.mounts())
    };
    let (ours, others): (Vec<_>, Vec<_>) = agentvfs_mounts(table.as_bytes())
        .into_iter()
        .partition(|(_, place)| is_ours(place));
    let mut all = unserved(CHECK, home, &ours);
    if all.is_empty() {
        all.push(Finding::ok(
            CHECK,
            format!("{} served, none dead", ours.len()),
        ));
    }
    if !others.is_empty() {
        let note = format!("{} mounts belong to other homes", others.len());
        all.push(Finding::ok("other-mounts", note));
    }
    all
}

/// Those that are dead, answer EIO, or do not answer.
fn unserved(check: &'static str, home: &Home, mounts: &[(String, PathBuf)]) -> Vec<Finding> {
    // All are asked at once: several that hang take no longer than one.
    let deadline = Instant::now() + PATIENCE;
    let answers: Vec<_> = mounts
        .iter()
        .map(|(_, place)| {
            let place = place.clone();
            asked(move || {
                let is_dead = agentvfs_daemon::is_dead_mount(&place);
                (
                    is_dead,
                    !is_dead && agentvfs_daemon::is_refused_mount(&place),
                )
            })
        })
        .collect();
    let mut all = Vec::new();
    for ((name, place), answer) in mounts.iter().zip(answers) {
        let left = deadline.saturating_duration_since(Instant::now());
        let shown = place.display().to_string();
        match answer.and_then(|answer| answer.recv_timeout(left).ok()) {
            Some((false, false)) => {}
            Some((_, true)) => all.push(Finding::broken(
                check,
                format!("{shown} answers EIO: its daemons ended again and again"),
                format!(
                    "agentvfs start {name} serves it again, agentvfs stop {name} --force ends it"
                ),
            )),
            Some((true, _)) => all.push(Finding::broken(
                check,
                format!("{shown} is dead: its daemon has ended"),
                format!(
                    "agentvfs start {name} mounts it again; fusermount3 -u -z {shown} removes it"
                ),
            )),
            None => all.push(Finding::broken(
                check,
                format!("{shown} does not respond"),
                no_answer(home, name),
            )),
        }
    }
    all
}

/// What to do about a mount that hangs, the gentlest first.
fn no_answer(home: &Home, name: &str) -> String {
    let served = processes("daemon")
        .into_iter()
        .find(|(_, root)| root == home.root());
    let end = match served {
        Some((pid, _)) => format!("kill {pid}"),
        None => "kill its process".to_owned(),
    };
    format!(
        "agentvfs stop {name} --force; if that hangs too, end the daemon: {end}; \
         no acknowledged write is lost"
    )
}

/// Workspace and place of each mount of agentvfs in a table as proc(5) describes it.
fn agentvfs_mounts(table: &[u8]) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for line in table.split(|byte| *byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let place = fields.get(4);
        let source = fields
            .iter()
            .position(|field| *field == b"-")
            .and_then(|at| fields.get(at + 2));
        let name = source.and_then(|source| source.strip_prefix(b"agentvfs:"));
        if let (Some(place), Some(name)) = (place, name) {
            let name = String::from_utf8_lossy(name).into_owned();
            let place = PathBuf::from(OsString::from_vec(unescape(place)));
            found.push((name, place));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_agentvfs_are_found_in_the_table() {
        let table = b"29 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            40 29 0:50 / /home/a\\040b/mnt/w rw,nosuid shared:9 - fuse agentvfs:w rw,user_id=0\n";
        assert_eq!(
            agentvfs_mounts(table),
            [("w".to_owned(), PathBuf::from("/home/a b/mnt/w"))]
        );
    }

    #[test]
    fn a_hang_is_not_answered_with_a_kill_first() {
        let home = Home::find(Some(std::path::Path::new("/h")), &|_| None).unwrap();
        let fix = no_answer(&home, "w");
        assert!(fix.starts_with("agentvfs stop w --force"), "{fix}");
        assert!(!fix.contains("-9"), "{fix}");
    }

    #[test]
    fn daemons_are_known_by_their_command_line() {
        let line = b"agentvfs\0daemon\0--root\0/h\0";
        assert_eq!(home_of(line, "daemon"), Some(PathBuf::from("/h")));
        assert_eq!(home_of(line, "keeper"), None);
        assert_eq!(home_of(b"agentvfs\0workspace\0list\0", "daemon"), None);
    }
}
