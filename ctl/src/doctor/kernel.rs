//! The kernel: its version and features, namespaces, limits, how idle processors wake up.

use super::{Finding, is_root, number_in, program, text_of};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::process::{Resource, getrlimit};
use std::fs::OpenOptions;
use std::process::{Command, Stdio};

/// Watches that editors and test runners need in a large project.
const WATCHES_WANTED: u64 = 65_536;
/// Open files that the daemon may need.
const FILES_WANTED: u64 = 4096;
/// Nanoseconds that a virtual processor should wait for work before it goes to sleep.
const POLL_WANTED: u64 = 200_000;

/// Features by the version that brought them, with what is lost without.
const FEATURES: [((u32, u32), &str, &str); 3] = [
    (
        (5, 12),
        "FUSE_HANDLE_KILLPRIV_V2",
        "each write requests security attributes",
    ),
    (
        (6, 16),
        "FUSE_NOTIFY_INC_EPOCH",
        "rollbacks of more than 10,000 names take longer",
    ),
    (
        (6, 16),
        "FUSE_NOTIFY_RESEND and FUSE_NOTIFY_INC_EPOCH",
        "mounts end when the daemon crashes, until the next command",
    ),
];

pub fn examine() -> Vec<Finding> {
    let mut all = vec![openat2()];
    all.extend(features());
    all.push(user_namespaces());
    all.extend(apparmor());
    all.push(watches());
    all.push(files());
    all.extend(idle_processors());
    all
}

fn release() -> String {
    text_of("/proc/sys/kernel/osrelease").unwrap_or_default()
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn openat2() -> Finding {
    const CHECK: &str = "kernel";
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(CWD, c"/", flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
    match opened {
        Ok(_) => Finding::ok(CHECK, format!("Linux {}", release())),
        Err(e) => Finding::broken(
            CHECK,
            format!("Linux {}: openat2: {}", release(), std::io::Error::from(e)),
            "use Linux 5.6 or newer; in a container, a seccomp profile that allows openat2",
        ),
    }
}

fn features() -> Vec<Finding> {
    const CHECK: &str = "kernel-features";
    let Some(version) = version(&release()) else {
        return Vec::new();
    };
    let missing = FEATURES.iter().filter(|(since, ..)| version < *since);
    let mut all: Vec<Finding> = missing
        .map(|((major, minor), name, lost)| {
            Finding::warning(
                CHECK,
                format!("without {name}: {lost}"),
                format!("Linux {major}.{minor} or newer has it"),
            )
        })
        .collect();
    if all.is_empty() {
        all.push(Finding::ok(CHECK, "all that are used are available"));
    }
    all
}

fn user_namespaces() -> Finding {
    const CHECK: &str = "user-namespaces";
    let fix = if text_of("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref()
        == Some("1")
    {
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for agentvfs that has userns"
    } else if number_in("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        "sysctl kernel.unprivileged_userns_clone=1"
    } else if number_in("/proc/sys/user/max_user_namespaces") == Some(0) {
        "sysctl user.max_user_namespaces=10000"
    } else {
        "allow unprivileged user namespaces; in a container, a seccomp profile that allows unshare"
    };
    let limited = number_in("/proc/sys/user/max_user_namespaces") == Some(0);
    let works = match program("unshare") {
        // Only trying shows what a security module or seccomp refuses.
        Some(unshare) => Command::new(unshare)
            .args(["--user", "--map-root-user", "true"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success()),
        None => !limited,
    };
    if works {
        Finding::ok(CHECK, "can be made")
    } else {
        Finding::warning(
            CHECK,
            "cannot be created: a command cannot run in a sandbox",
            fix,
        )
    }
}

fn apparmor() -> Option<Finding> {
    const CHECK: &str = "apparmor";
    if text_of("/sys/module/apparmor/parameters/enabled").as_deref() != Some("Y") {
        return None;
    }
    let own = text_of("/proc/self/attr/apparmor/current")
        .or_else(|| text_of("/proc/self/attr/current"))
        .unwrap_or_default();
    Some(if own.is_empty() || own == "unconfined" {
        Finding::ok(CHECK, "on, and does not confine this process")
    } else {
        Finding::warning(
            CHECK,
            format!("confines this process: {own}"),
            "if mounting fails, run it unconfined; in a container pass --security-opt apparmor=unconfined",
        )
    })
}

fn watches() -> Finding {
    const CHECK: &str = "inotify";
    match number_in("/proc/sys/fs/inotify/max_user_watches") {
        Some(most) if most < WATCHES_WANTED => Finding::warning(
            CHECK,
            format!("max_user_watches is {most}: editors and test runners may not see all changes"),
            "sysctl fs.inotify.max_user_watches=524288",
        ),
        Some(most) => Finding::ok(CHECK, format!("max_user_watches is {most}")),
        None => Finding::ok(CHECK, "this kernel has none"),
    }
}

fn files() -> Finding {
    const CHECK: &str = "open-files";
    match getrlimit(Resource::Nofile).maximum {
        Some(most) if most < FILES_WANTED => Finding::warning(
            CHECK,
            format!("at most {most} files may be open"),
            format!(
                "raise the hard limit to {FILES_WANTED} (ulimit -Hn, limits.conf, LimitNOFILE=)"
            ),
        ),
        Some(most) => Finding::ok(CHECK, format!("at most {most} may be open")),
        None => Finding::ok(CHECK, "without a limit"),
    }
}

/// Waking a sleeping processor costs more than a request itself, most of all in a virtual machine.
fn idle_processors() -> Option<Finding> {
    const CHECK: &str = "idle-processors";
    let may_hold = is_root()
        || OpenOptions::new()
            .write(true)
            .open("/dev/cpu_dma_latency")
            .is_ok();
    if may_hold {
        return Some(Finding::ok(
            CHECK,
            "the daemon may keep them awake while requests come fast",
        ));
    }
    let info = text_of("/proc/cpuinfo").unwrap_or_default();
    let is_virtual = info
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|line| line.split(' ').any(|flag| flag == "hypervisor"));
    if !is_virtual {
        return None;
    }
    let place = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
    Some(match number_in(place) {
        Some(ns) if ns >= POLL_WANTED => Finding::ok(CHECK, format!("guest_halt_poll_ns is {ns}")),
        Some(ns) => Finding::warning(
            CHECK,
            format!(
                "guest_halt_poll_ns is {ns}: each request is slow because the processors must wake up"
            ),
            format!(
                "echo {POLL_WANTED} > {place} as root, or let this user write /dev/cpu_dma_latency"
            ),
        ),
        None => Finding::warning(
            CHECK,
            "they sleep between requests; each request is slow because they must wake up",
            "modprobe cpuidle_haltpoll as root, or let this user write /dev/cpu_dma_latency",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions_are_read_from_releases() {
        assert_eq!(version("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(version("5.4"), Some((5, 4)));
        assert_eq!(version("x"), None);
    }
}
