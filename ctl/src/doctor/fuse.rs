//! Whether a workspace can be mounted.

use super::{Finding, is_root, number_in, program, text_of};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;

/// CAP_SYS_ADMIN in a capability set (capabilities(7)).
const SYS_ADMIN: u64 = 1 << 21;

/// Background requests below which `syncfs` leaves dirty mapped pages unwritten.
const BACKGROUND_WANTED: u64 = 4096;

pub fn examine() -> Vec<Finding> {
    let mut all = vec![device(), right_to_mount()];
    all.extend(allow_other());
    all.extend(background());
    all
}

fn device() -> Finding {
    const CHECK: &str = "fuse-device";
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => Finding::ok(CHECK, "/dev/fuse can be opened"),
        Err(e) if e.kind() == ErrorKind::PermissionDenied => Finding::broken(
            CHECK,
            format!("/dev/fuse: {e}"),
            "chmod 0666 /dev/fuse as root; in a container also pass --cap-add SYS_ADMIN",
        ),
        Err(e) => Finding::broken(
            CHECK,
            format!("/dev/fuse: {e}"),
            "modprobe fuse as root; in a container pass --device /dev/fuse",
        ),
    }
}

fn right_to_mount() -> Finding {
    const CHECK: &str = "mount";
    if has_sys_admin() {
        return Finding::ok(CHECK, "this user may mount by itself");
    }
    let install = "install fuse3, for example: apt install fuse3";
    match program("fusermount3") {
        None => Finding::broken(
            CHECK,
            "fusermount3 is missing; ordinary users cannot mount without it",
            install,
        ),
        Some(place) => match place.metadata() {
            Ok(meta) if meta.mode() & 0o4000 != 0 && meta.uid() == 0 => {
                Finding::ok(CHECK, format!("{} mounts for this user", place.display()))
            }
            _ => Finding::broken(
                CHECK,
                format!("{} is not set-user-id root", place.display()),
                format!(
                    "chown root {0} && chmod u+s {0}, or {install}",
                    place.display()
                ),
            ),
        },
    }
}

fn has_sys_admin() -> bool {
    let status = text_of("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .is_some_and(|set| set & SYS_ADMIN != 0)
}

/// Root's mounts need no permission to be shared.
fn allow_other() -> Option<Finding> {
    const CHECK: &str = "user-allow-other";
    if is_root() {
        return None;
    }
    let config = text_of("/etc/fuse.conf").unwrap_or_default();
    Some(
        if config.lines().any(|line| line.trim() == "user_allow_other") {
            Finding::ok(CHECK, "start --allow-other may be used")
        } else {
            Finding::warning(
                CHECK,
                "start --allow-other may not be used: other users cannot enter a mount",
                "if they should: add the line user_allow_other to /etc/fuse.conf",
            )
        },
    )
}

/// How many background requests a user's mount may have.
fn background() -> Option<Finding> {
    const CHECK: &str = "fuse-background";
    let place = "/sys/module/fuse/parameters/max_user_bgreq";
    let most = number_in(place)?;
    if is_root() || most >= BACKGROUND_WANTED {
        return Some(Finding::ok(CHECK, format!("max_user_bgreq is {most}")));
    }
    Some(Finding::warning(
        CHECK,
        format!("max_user_bgreq is {most}: with more dirty mapped pages a checkpoint takes longer"),
        format!("echo 65535 > {place} as root"),
    ))
}
