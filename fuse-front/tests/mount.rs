//! The front over a real mount: what the kernel is told, and what it then no longer asks.
//!
//! Needs /dev/fuse and the right to mount; without them each test says so and passes.
#![allow(clippy::unwrap_used)]

#[path = "../../tests/src/skip.rs"]
#[allow(dead_code)]
mod skip;

use engine::verbs;
use engine::{Engine, EngineConfig, Target, Workspace};
use fuse_front::{MountError, MountOptions, Mounted, holders, is_dead_mount, mount};
use rustix::fs::inotify;
use skip::{Want, skip};
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// A workspace over a small base, mounted; taken away when dropped.
struct Fixture {
    mounted: Option<Mounted>,
    ws: Arc<Workspace>,
    /// Last: removed when nobody works in it any more.
    dir: tempfile::TempDir,
}

impl Fixture {
    /// Mounts; `None` where that is not possible here.
    fn new() -> Option<Fixture> {
        if fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .is_err()
        {
            skip(Want::Fuse, "/dev/fuse cannot be opened");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let [base, store, mnt] = ["base", "store", "mnt"].map(|name| dir.path().join(name));
        fs::create_dir_all(base.join("sub")).unwrap();
        fs::create_dir(&mnt).unwrap();
        fs::write(base.join("sub/file"), b"from the base").unwrap();
        let engine = Engine::open(EngineConfig {
            root: store,
            author: "test".into(),
        })
        .unwrap();
        engine
            .create("w", &base.canonicalize().unwrap(), None)
            .unwrap();
        let ws = engine.open_workspace("w").unwrap();
        let mounted = match mount(ws.clone(), MountOptions::new(&mnt)) {
            Ok(mounted) => mounted,
            Err(error @ (MountError::Refused { .. } | MountError::NoDevice(_))) => {
                skip(Want::Fuse, &error.to_string());
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        Some(Fixture {
            mounted: Some(mounted),
            dir,
            ws,
        })
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn mounted(&self) -> &Mounted {
        self.mounted.as_ref().unwrap()
    }

    /// Requests answered so far, by kind, but those that come at any time: FORGETs, and STATFS of whoever on this
    /// machine looks at all mounts.
    fn requests(&self) -> Vec<(&'static str, u64)> {
        let stats = self.mounted().stats().snapshot();
        stats
            .iter()
            .filter(|(op, _, _)| !["forget", "statfs"].contains(op))
            .map(|(op, count, _)| (*op, *count))
            .collect()
    }

    /// How many they are.
    fn request_count(&self) -> u64 {
        self.requests().iter().map(|(_, count)| count).sum()
    }
}

#[test]
fn what_was_read_once_needs_no_request_again() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let file = fixture.root().join("sub/file");
    let look = || {
        assert_eq!(fs::read(&file).unwrap(), b"from the base");
        assert!(fs::metadata(fixture.root().join("missing")).is_err());
        assert_eq!(fs::read_dir(fixture.root().join("sub")).unwrap().count(), 1);
        fs::metadata(&file).unwrap()
    };
    // The first read of a page makes the kernel ask for the access time once more.
    let inode = look().ino();
    look();
    look();
    // The kernel may take memory back meanwhile, and ask again: but not time after time.
    let mut seen = Vec::new();
    let is_silent = (0..5).any(|_| {
        let before = fixture.requests();
        assert_eq!(look().ino(), inode);
        let after = fixture.requests();
        let is_silent = before == after;
        seen.push((before, after));
        is_silent
    });
    assert!(is_silent, "{seen:?}");
}

#[test]
fn base_files_show_their_own_inode_number() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let shown = fs::metadata(fixture.root().join("sub/file")).unwrap();
    let base = fs::metadata(fixture.dir.path().join("base/sub/file")).unwrap();
    assert_eq!(shown.ino() & ((1 << 40) - 1), base.ino());
    let listed = fs::read_dir(fixture.root().join("sub"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(std::os::unix::fs::DirEntryExt::ino(&listed), shown.ino());
}

#[test]
fn changes_are_seen_and_the_base_is_left_alone() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let root = fixture.root();
    fs::write(root.join("sub/file"), b"new").unwrap();
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("d/a"), vec![7; 300_000]).unwrap();
    fs::hard_link(root.join("d/a"), root.join("b")).unwrap();
    symlink("d/a", root.join("l")).unwrap();
    fs::rename(root.join("d/a"), root.join("d/c")).unwrap();
    let open = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(root.join("b"))
        .unwrap();
    fs::remove_file(root.join("b")).unwrap();
    open.write_all_at(b"xy", 299_999).unwrap();
    open.sync_all().unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 1);
    assert_eq!(fs::read(root.join("d/c")).unwrap().len(), 300_001);
    assert_eq!(fs::read_link(root.join("l")).unwrap(), Path::new("d/a"));
    assert!(fs::remove_dir(root.join("d")).is_err());
    assert_eq!(
        fs::read(fixture.dir.path().join("base/sub/file")).unwrap(),
        b"from the base"
    );
}

#[test]
fn an_unlinked_open_file_stays_readable() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let path = fixture.root().join("t");
    fs::write(&path, b"kept").unwrap();
    let open = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    fs::remove_file(&path).unwrap();
    open.write_all_at(b"!", 4).unwrap();
    let mut read = [0; 5];
    open.read_exact_at(&mut read, 0).unwrap();
    assert_eq!((&read, open.metadata().unwrap().nlink()), (b"kept!", 0));
}

#[test]
fn a_mount_in_use_is_not_unmounted() {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    let file = fs::File::open(fixture.root().join("sub/file")).unwrap();
    let child = std::process::Command::new("sleep")
        .arg("60")
        .current_dir(fixture.root())
        .spawn()
        .unwrap();
    assert!(
        holders(&fixture.root())
            .iter()
            .any(|holder| holder.pid == child.id())
    );
    let mounted = match fixture.mounted.take().unwrap().unmount() {
        Err(MountError::Busy(mounted)) => *mounted,
        other => panic!("{other:?}"),
    };
    assert!(mounted.is_alive());
    assert_eq!(
        fs::read(fixture.root().join("sub/file")).unwrap(),
        b"from the base"
    );
    end(child);
    drop(file);
    mounted.unmount().unwrap();
    assert_eq!(fs::read_dir(fixture.root()).unwrap().count(), 0);
}

#[test]
fn an_aborted_mount_is_gone_though_in_use() {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    let file = fs::File::open(fixture.root().join("sub/file")).unwrap();
    let (ended, told) = channel();
    fixture
        .mounted()
        .on_unmounted(move || ended.send(()).unwrap());
    fixture.mounted.take().unwrap().abort();
    told.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(!is_dead_mount(&fixture.root()));
    assert_eq!(fs::read_dir(fixture.root()).unwrap().count(), 0);
    assert!(file.sync_all().is_err());
}

fn end(mut child: std::process::Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn rollback_of_a_branch_is_heard_in_its_view() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    verbs::create_branch(&fixture.ws, "other", "main", None).unwrap();
    let view = fixture.root().join(".agentvfs/branches/other/sub");
    fs::remove_file(view.join("file")).unwrap();
    fs::write(view.join("made"), b"x").unwrap();
    let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
    let watch = inotify::init(flags).unwrap();
    let events = inotify::WatchFlags::CREATE | inotify::WatchFlags::DELETE;
    inotify::add_watch(&watch, &view, events).unwrap();
    verbs::rollback(&fixture.ws, "other", &Target::Head).unwrap();
    let mut heard = std::collections::BTreeSet::new();
    let since = std::time::Instant::now();
    while heard.len() < 2 {
        assert!(since.elapsed().as_secs() < 60, "only {heard:?} was heard");
        std::thread::sleep(std::time::Duration::from_millis(1));
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&watch, &mut buffer);
        while let Ok(event) = reader.next() {
            let name = event.file_name().unwrap().to_str().unwrap().to_owned();
            heard.insert((name, event.events().bits()));
        }
    }
    let wanted = [
        ("file".to_owned(), inotify::ReadFlags::CREATE.bits()),
        ("made".to_owned(), inotify::ReadFlags::DELETE.bits()),
    ];
    assert!(heard.iter().eq(&wanted), "{heard:?}");
    assert_eq!(fs::read(view.join("file")).unwrap(), b"from the base");
}

#[test]
fn a_rollback_asks_for_the_sizes_that_changed_of_files_that_the_kernel_holds() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    const FILES: u64 = 10;
    let ws = &fixture.ws;
    let path = |i: u64| format!("file{i}");
    let make_all = |data: &[u8]| {
        for i in 0..FILES {
            let part = engine::WriteFile {
                path: path(i).into_bytes(),
                offset: Some(0),
                data: data.to_vec(),
                last: true,
                unsynced: false,
                perm: 0o644,
                parents: false,
            };
            // The files of another user would have their access control lists asked for, too.
            let who = engine::Caller {
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
                ..engine::Caller::default()
            };
            verbs::write_file(ws, "main", &who, &part).unwrap();
        }
    };
    let look_at_all = || {
        let sizes = (0..FILES).map(|i| fs::metadata(fixture.root().join(path(i))).unwrap().len());
        assert!(sizes.sum::<u64>() > 0);
    };
    make_all(b"as it was");
    let request = engine::CheckpointRequest::default();
    verbs::checkpoint(ws, "main", request, &|_, _| {}).unwrap();
    let cost = |held: bool, data: &[u8]| {
        make_all(data);
        if held {
            look_at_all();
        }
        let before = fixture.request_count();
        let back = verbs::rollback(ws, "main", &Target::Head).unwrap();
        assert_eq!(back.files_changed, FILES);
        fixture.request_count() - before
    };
    let nothing_held = cost(false, b"longer than it was");
    assert!(
        nothing_held <= 2,
        "{nothing_held}: the flush, and nothing else"
    );
    // Of the same length, though everything is held.
    let same_length = cost(true, b"SAME SIZE");
    assert!(same_length <= 2, "{same_length}");
    let held = cost(true, b"shorter");
    assert!(
        held <= 2 + FILES + 1,
        "{held}: one for each file, one for the root"
    );
}

#[test]
fn a_hole_is_read_as_zeros_after_other_data() {
    use std::os::unix::fs::OpenOptionsExt;
    let Some(fixture) = Fixture::new() else {
        return;
    };
    const LEN: usize = 1 << 16;
    let [data, hole] = ["data", "hole"].map(|name| fixture.root().join(name));
    fs::write(&data, vec![b'x'; LEN]).unwrap();
    fs::File::create(&hole)
        .unwrap()
        .set_len(LEN as u64 / 2)
        .unwrap();
    // Past the page cache: each is a request, and answers share the memory that they are put together in.
    let direct = |path: &Path| {
        let flag = rustix::fs::OFlags::DIRECT.bits() as i32;
        let file = fs::File::options().read(true).custom_flags(flag).open(path);
        let mut read = vec![0xff; LEN];
        let len = file.unwrap().read_at(&mut read, 0).unwrap();
        read.truncate(len);
        read
    };
    assert_eq!(direct(&data), vec![b'x'; LEN]);
    assert_eq!(direct(&hole), vec![0; LEN / 2]);
}
