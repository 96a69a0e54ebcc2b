//! The agentvfs home and the disk below it.

use super::Finding;
use crate::output::human_bytes;
use agentvfs_client::home::Home;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Free space below which new data is about to be refused (the engine keeps 16 MiB for going back).
const BROKEN_BELOW: u64 = 64 << 20;
/// Free space below which an import of an ordinary project may stand still.
const WARN_BELOW: u64 = 2 << 30;
/// Syncs that are measured.
const SYNCS: usize = 5;
/// A sync that takes longer makes each checkpoint slow.
const SLOW_SYNC: Duration = Duration::from_millis(50);

/// File systems of others' machines, or of memory (statfs(2)).
const REMOTE: [(u64, &str); 4] = [
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9P"),
];
const TMPFS: u64 = 0x0102_1994;

pub fn examine(home: &Home) -> Vec<Finding> {
    let mut all = vec![owner(home)];
    let Some(place) = existing(home.root()) else {
        return all;
    };
    all.push(space(place));
    all.extend(file_system(place));
    if home.root().is_dir() {
        all.push(sync(home.root()));
    }
    all
}

/// The nearest directory that exists.
fn existing(place: &Path) -> Option<&Path> {
    place.ancestors().find(|dir| dir.is_dir())
}

fn owner(home: &Home) -> Finding {
    const CHECK: &str = "home";
    let shown = home.root().display();
    let elsewhere = "use another home: --root DIR or $AGENTVFS_HOME";
    match home.root().symlink_metadata() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Finding::ok(CHECK, format!("the first start will create {shown}"))
        }
        Err(e) => Finding::broken(CHECK, format!("{shown}: {e}"), elsewhere),
        Ok(meta) if !meta.is_dir() => {
            Finding::broken(CHECK, format!("{shown} is not a directory"), elsewhere)
        }
        Ok(meta) if meta.uid() != rustix::process::geteuid().as_raw() => Finding::broken(
            CHECK,
            format!("{shown} belongs to user {}", meta.uid()),
            format!("run agentvfs as that user, or {elsewhere}"),
        ),
        Ok(meta) if meta.mode() & 0o022 != 0 => Finding::warning(
            CHECK,
            format!(
                "other users can write to {shown} (mode {:04o})",
                meta.mode() & 0o7777
            ),
            format!("chmod go-w {shown}"),
        ),
        Ok(_) => Finding::ok(CHECK, shown.to_string()),
    }
}

fn space(place: &Path) -> Finding {
    const CHECK: &str = "disk-space";
    let free = match rustix::fs::statvfs(place) {
        Ok(stat) => stat.f_bavail * stat.f_frsize,
        Err(e) => {
            let why = format!("{}: {}", place.display(), std::io::Error::from(e));
            return Finding::broken(CHECK, why, "mount that file system again");
        }
    };
    let text = format!("{} free at {}", human_bytes(free), place.display());
    let fix = "free space on that disk, or use a home on another disk: --root DIR";
    if free < BROKEN_BELOW {
        Finding::broken(CHECK, text, fix)
    } else if free < WARN_BELOW {
        Finding::warning(CHECK, text, fix)
    } else {
        Finding::ok(CHECK, text)
    }
}

fn file_system(place: &Path) -> Option<Finding> {
    const CHECK: &str = "file-system";
    let kind = rustix::fs::statfs(place).ok()?.f_type as u64 & 0xffff_ffff;
    let elsewhere = "keep the home on a local disk: --root DIR or $AGENTVFS_HOME";
    if kind == TMPFS {
        let why = "the home is in memory: it is lost when the machine restarts";
        return Some(Finding::warning(CHECK, why, elsewhere));
    }
    let (_, name) = REMOTE.iter().find(|(magic, _)| *magic == kind)?;
    let why = format!("the home is on {name}: slow, and only as durable as the server");
    Some(Finding::warning(CHECK, why, elsewhere))
}

/// How long it takes until written bytes are on stable storage.
fn sync(home: &Path) -> Finding {
    const CHECK: &str = "disk-sync";
    let fix = "find what keeps the disk busy, or use a home on a faster disk: --root DIR";
    match median_sync(home) {
        Err(e) => Finding::broken(CHECK, format!("cannot write and sync a file: {e}"), fix),
        Ok(took) if took > SLOW_SYNC => {
            let why = format!("a sync takes {took:.1?}, and each checkpoint waits for one");
            Finding::warning(CHECK, why, fix)
        }
        Ok(took) => Finding::ok(CHECK, format!("a sync takes {took:.1?}")),
    }
}

fn median_sync(home: &Path) -> std::io::Result<Duration> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut file: File = match rustix::fs::open(home, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file.into(),
        // Not every file system has files without a name.
        Err(_) => {
            let place = home.join(format!("doctor-{}", std::process::id()));
            let file = File::create_new(&place)?;
            std::fs::remove_file(&place)?;
            file
        }
    };
    let mut took = Vec::new();
    for _ in 0..SYNCS {
        let since = Instant::now();
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        took.push(since.elapsed());
    }
    took.sort();
    Ok(took[SYNCS / 2])
}
