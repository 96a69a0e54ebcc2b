//! Which directories are no projects, whatever is in them.

use agentvfs_client::protocol::Fault;
use rustix::fs::{PROC_SUPER_MAGIC, statfs};
use std::path::Path;

/// What statfs(2) says of sysfs (linux/magic.h).
const SYSFS_MAGIC: u64 = 0x6265_6572;

/// Refuses a directory in which the kernel shows its own: what is in it has no end and no content to keep.
pub fn check(base: &Path) -> Result<(), Fault> {
    match kernels_own(base) {
        None => Ok(()),
        Some(place) => {
            let why = format!(
                "{} belongs to the kernel and is not a project",
                place.display()
            );
            Err(Fault::failed("bad-base", why).hint("use a project's directory: --from DIR"))
        }
    }
}

/// Where the kernel shows its own, if `base` lies there: `/proc`, `/sys`, `/dev` but for memory that files are
/// kept in, and proc and sysfs wherever else they are mounted.
fn kernels_own(base: &Path) -> Option<&Path> {
    let mut places = ["/proc", "/sys", "/dev"].into_iter().map(Path::new);
    if let Some(place) = places.find(|place| base.starts_with(place)) {
        return (!base.starts_with("/dev/shm")).then_some(place);
    }
    // What cannot be asked is refused by whoever opens it, with the cause.
    let kind = statfs(base).ok()?.f_type as u64;
    [PROC_SUPER_MAGIC as u64, SYSFS_MAGIC]
        .contains(&kind)
        .then_some(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_the_kernel_are_no_projects() {
        for place in [
            "/proc",
            "/proc/self/cwd",
            "/sys",
            "/sys/fs",
            "/dev",
            "/dev/pts",
        ] {
            assert!(kernels_own(Path::new(place)).is_some(), "{place}");
        }
        let dir = tempfile::tempdir().unwrap();
        for place in [
            dir.path(),
            Path::new("/dev/shm/x"),
            Path::new("/process"),
            Path::new("/"),
        ] {
            assert_eq!(kernels_own(place), None);
        }
    }
}
