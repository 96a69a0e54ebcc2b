//! What could not be noted: a line in `hooks.log` of the agentvfs home.
//!
//! Invariant: the file and the one before it have at most [`LOG_BYTES_MAX`] bytes and a line each, however many hooks
//! run at once. That a line cannot be written is no error: there is nobody to tell.

use agentvfs_client::home::Home;
use agentvfs_client::protocol::Moment;
use agentvfs_client::short::cut;
use agentvfs_client::when::rfc3339_seconds;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Size beyond which the file becomes `hooks.log.old`.
const LOG_BYTES_MAX: u64 = 256 << 10;

/// Longest text of a line, in bytes.
const LINE_BYTES_MAX: usize = 500;

/// Writes a line.
pub fn note(home: &Home, agent: &str, why: &str) {
    let path = home.root().join("hooks.log");
    if std::fs::metadata(&path).is_ok_and(|meta| meta.len() > LOG_BYTES_MAX) {
        // If two do it at once, the second one replaces a long file by a short one.
        let _ = std::fs::rename(&path, home.root().join("hooks.log.old"));
    }
    let mut options = OpenOptions::new();
    let file = options.append(true).create(true).mode(0o600).open(&path);
    let plain = |text: &str| -> String {
        let text = cut(text, LINE_BYTES_MAX);
        let space = |c: char| if c.is_control() { ' ' } else { c };
        text.chars().map(space).collect()
    };
    let line = format!("{} {}: {}\n", now(), plain(agent), plain(why));
    if let Ok(mut file) = file {
        // One write, so that lines of several hooks do not mix.
        let _ = file.write_all(line.as_bytes());
    }
}

fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default();
    rfc3339_seconds(Moment {
        sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nsec: since.subsec_nanos(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_the_files_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::find(Some(dir.path()), &|_| None).unwrap();
        let long = "x\n".repeat(10_000);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..300).for_each(|_| note(&home, "claude", &long)));
            }
        });
        let mut files = 0;
        for name in ["hooks.log", "hooks.log.old"] {
            let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
            assert!(text.len() < (LOG_BYTES_MAX as usize) + 16 * LINE_BYTES_MAX);
            assert!(text.ends_with('\n'));
            assert!(text.lines().all(|line| line.contains(" claude: x ")));
            files += 1;
        }
        assert_eq!(files, 2);
        assert_eq!(dir.path().read_dir().unwrap().count(), 2);
    }

    #[test]
    fn a_home_that_is_not_there_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::find(Some(&dir.path().join("none")), &|_| None).unwrap();
        note(&home, "claude", "x");
        assert!(!dir.path().join("none").exists());
    }
}
