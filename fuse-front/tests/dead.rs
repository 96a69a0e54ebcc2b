//! Mounts whose connection has ended: they are replaced without the directory below ever showing, and copies
//! of a mount in other namespaces end with it.
//!
//! Needs /dev/fuse and root; without them each test says so and passes.
#![allow(clippy::unwrap_used)]

#[path = "../../tests/src/skip.rs"]
#[allow(dead_code)]
mod skip;

use engine::{Engine, EngineConfig, Workspace};
use fuse_front::{MountOptions, Mounted, cover, is_dead_mount, mount, uncover};
use skip::{Want, skip};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

const WAIT_MAX: Duration = Duration::from_secs(60);

struct Fixture {
    ws: Arc<Workspace>,
    /// Last: removed when nobody works in it any more.
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Option<Fixture> {
        let device = fs::OpenOptions::new().read(true).open("/dev/fuse");
        if device.is_err() || !rustix::process::geteuid().is_root() {
            skip(Want::Fuse, "/dev/fuse cannot be opened, or not by root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let [base, root, mnt] = ["base", "store", "mnt"].map(|name| dir.path().join(name));
        fs::create_dir(&base).unwrap();
        fs::create_dir(&mnt).unwrap();
        fs::write(base.join("file"), b"from the base").unwrap();
        let author = "test".to_owned();
        let engine = Engine::open(EngineConfig { root, author }).unwrap();
        let base = base.canonicalize().unwrap();
        engine.create("w", &base, None).unwrap();
        let ws = engine.open_workspace("w").unwrap();
        Some(Fixture { dir, ws })
    }

    fn place(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("mnt")
    }

    fn mount(&self) -> Mounted {
        mount(self.ws.clone(), MountOptions::new(self.place())).unwrap()
    }

    /// Ends the connection as the daemon's death does, and waits until that is so.
    fn kill(&self, mounted: &Mounted) {
        let (told, ended) = channel();
        mounted.on_unmounted(move || told.send(()).unwrap());
        let minor = mounted.device().1;
        let abort = format!("/sys/fs/fuse/connections/{minor}/abort");
        fs::write(abort, "1").unwrap();
        ended.recv_timeout(WAIT_MAX).unwrap();
        assert!(is_dead_mount(&self.place()));
    }
}

/// Mounts at `place` of this process's namespace.
fn mounts_at(place: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let place = place.to_str().unwrap();
    let at = |line: &&str| line.split(' ').nth(4) == Some(place);
    table.lines().filter(at).count()
}

#[test]
fn a_dead_mount_is_replaced_without_the_directory_below_showing() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let place = fixture.place();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut mounted = fixture.mount();
        let writer = scope.spawn(|| {
            let (mut written, mut last) = (0, true);
            while !over.load(Ordering::Acquire) {
                last = fs::write(place.join(format!("n{written}")), "x").is_ok();
                written += usize::from(last);
            }
            (written, last)
        });
        for _ in 0..20 {
            fixture.kill(&mounted);
            mounted = fixture.mount();
            assert_eq!(mounts_at(&place), 1);
            assert_eq!(fs::read(place.join("file")).unwrap(), b"from the base");
        }
        over.store(true, Ordering::Release);
        let (written, last) = writer.join().unwrap();
        // What failed at the end may have made the file all the same.
        let failed = place.join(format!("n{written}")).exists();
        assert!(!(last && failed), "n{written} was never written");
        let seen = fs::read_dir(&place).unwrap().count() - usize::from(failed);
        mounted.unmount().unwrap();
        let below = fs::read_dir(&place).unwrap().count();
        assert_eq!((seen, below), (written + 1, 0), "all went into the mount");
    });
}

#[test]
fn several_dead_mounts_over_each_other_are_replaced_on_a_cover() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let place = fixture.place();
    cover(&place).unwrap();
    let first = fixture.mount();
    fixture.kill(&first);
    let options = rustix::mount::MountFlags::empty();
    let device = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&device);
    let data = format!("fd={fd},rootmode=40000,user_id=0,group_id=0");
    let data = std::ffi::CString::new(data).unwrap();
    rustix::mount::mount("second", &place, "fuse.agentvfs", options, &*data).unwrap();
    drop(device);
    assert_eq!(mounts_at(&place), 3);
    let third = fixture.mount();
    assert_eq!(fs::read(place.join("file")).unwrap(), b"from the base");
    third.unmount().unwrap();
    // What is left is dead or the cover: nobody can write to the directory.
    assert!(fs::write(place.join("new"), "x").is_err());
    fuse_front::detach_dead(&place).unwrap();
    assert_eq!(mounts_at(&place), 1);
    assert!(fs::write(place.join("new"), "x").is_err());
    uncover(&place).unwrap();
    assert_eq!(mounts_at(&place), 0);
}

#[test]
fn a_copy_in_another_namespace_ends_with_the_mount() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let mounted = fixture.mount();
    let mut other = Command::new("unshare")
        .args(["-m", "sh", "-c", "echo ready; read end"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let said = BufReader::new(other.stdout.as_mut().unwrap()).read_line(&mut line);
    assert_eq!((said.unwrap(), line.as_str()), (6, "ready\n"));
    let (told, ended) = channel();
    mounted.on_unmounted(move || told.send(()).unwrap());
    mounted.unmount().unwrap();
    // The copy is still there: it does not keep the connection.
    ended.recv_timeout(WAIT_MAX).unwrap();
    drop(other.stdin.take());
    other.wait().unwrap();
}
