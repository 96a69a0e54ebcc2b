//! Files that are open by a handle, without a mount: what they show once their file was removed, renamed or taken
//! back, and when they are stale; and copies, links and lengths by path.
#![allow(clippy::unwrap_used)]

use engine::verbs::{self, CheckpointRequest};
use engine::{
    Caller, CloseMode, DiffSide, Engine, EngineConfig, Error, Expect, OpenAs, OpenFile, Target,
    Workspace, WriteFile,
};
use objstore::crash_storage::CrashStorage;
use std::path::Path;
use std::sync::Arc;

const W: &str = "w";
const MAIN: &str = "main";

fn base() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let project = dir.path().join("project");
    std::fs::create_dir_all(project.join("src")).unwrap();
    std::fs::create_dir(dir.path().join("home")).unwrap();
    std::fs::write(project.join("README"), "base\n").unwrap();
    std::os::unix::fs::symlink("README", project.join("link")).unwrap();
    std::os::unix::fs::symlink("nothing", project.join("dangling")).unwrap();
    dir
}

fn engine(disk: &CrashStorage, dir: &Path) -> Arc<Engine> {
    let config = EngineConfig {
        root: dir.join("home"),
        author: "test".into(),
    };
    let engine = Engine::on_storage(config, Arc::new(disk.clone())).unwrap();
    engine.create(W, &dir.join("project"), None).unwrap();
    engine
}

/// A workspace on a disk in memory.
struct World {
    engine: Arc<Engine>,
    w: Arc<Workspace>,
    _dir: tempfile::TempDir,
}

fn world() -> World {
    let dir = base();
    let engine = engine(&CrashStorage::new(), dir.path());
    let w = engine.open_workspace(W).unwrap();
    World {
        engine,
        w,
        _dir: dir,
    }
}

impl World {
    fn write(&self, path: &str, data: &str) {
        let part = WriteFile {
            path: path.into(),
            offset: Some(0),
            data: data.into(),
            last: true,
            perm: 0o640,
            ..WriteFile::default()
        };
        verbs::write_file(&self.w, MAIN, &Caller::default(), &part).unwrap();
    }

    fn text(&self, path: &str) -> engine::Result<String> {
        let view = verbs::read_state(&self.w, MAIN, &DiffSide::Live)?;
        let (bytes, size) = view.read_plain(path.as_bytes(), 0, 1 << 20)?;
        assert_eq!(bytes.len() as u64, size);
        Ok(String::from_utf8(bytes).unwrap())
    }

    fn open(&self, path: &str) -> OpenFile {
        self.open_as(path, |_| {}).unwrap()
    }

    fn open_as(&self, path: &str, choose: impl Fn(&mut OpenAs)) -> engine::Result<OpenFile> {
        let mut ask = OpenAs {
            path: path.into(),
            perm: 0o600,
            ..OpenAs::default()
        };
        choose(&mut ask);
        verbs::open_file(&self.w, MAIN, &Caller::default(), &ask).map(|(file, _)| file)
    }

    fn shown(&self, file: &OpenFile) -> engine::Result<String> {
        let (bytes, size) = file.read(&self.w, 0, 1 << 20)?;
        assert_eq!(bytes.len() as u64, size);
        Ok(String::from_utf8(bytes).unwrap())
    }

    fn put(&self, file: &OpenFile, offset: Option<u64>, data: &str) -> engine::Result<u64> {
        file.write(&self.w, &Caller::default(), offset, data.as_bytes())
    }

    fn copy(&self, from: &str, to: &str, overwrite: bool) -> engine::Result<u64> {
        let paths = (from.as_bytes(), to.as_bytes());
        verbs::copy_file(&self.w, MAIN, &Caller::default(), paths, overwrite)
    }

    fn checkpoint(&self, label: &str) {
        let ask = CheckpointRequest {
            label: Some(label.into()),
            wait: true,
            ..CheckpointRequest::default()
        };
        verbs::checkpoint(&self.w, MAIN, ask, &|_, _| {}).unwrap();
    }

    fn rollback(&self, label: &str) {
        let target = Target::Ref(label.into());
        verbs::rollback(&self.w, MAIN, &target).unwrap();
    }

    fn inodes(&self) -> u64 {
        verbs::space(&self.w, MAIN).unwrap().inodes
    }
}

#[test]
fn an_open_file_outlives_its_name_and_goes_when_it_is_closed() {
    let world = world();
    world.write("f", "one");
    let before = world.inodes();
    let (first, second) = (world.open("f"), world.open("f"));
    verbs::rename_path(&world.w, MAIN, b"f", b"g").unwrap();
    assert_eq!(world.put(&first, None, " two").unwrap(), 7);
    assert_eq!(world.text("g").unwrap(), "one two");
    verbs::remove_path(&world.w, MAIN, b"g", false).unwrap();
    assert_eq!(world.shown(&second).unwrap(), "one two");
    assert_eq!(second.stat(&world.w).unwrap().nlink, 0);
    world.put(&second, Some(0), "ONE").unwrap();
    drop(first);
    assert_eq!(world.inodes(), before, "it is still open");
    assert_eq!(world.shown(&second).unwrap(), "ONE two");
    drop(second);
    assert_eq!(world.inodes(), before - 1, "nothing is left of it");
}

#[test]
fn an_open_file_follows_a_rollback_as_a_descriptor_does() {
    let world = world();
    world.write("kept", "at first");
    world.checkpoint("first");
    world.write("new", "later");
    let (kept, new) = (world.open("kept"), world.open("new"));
    world.put(&kept, Some(0), "CHANGED").unwrap();
    world.checkpoint("second");
    world.rollback("first");
    assert_eq!(world.shown(&kept).unwrap(), "at first");
    // As an unlinked one: it can be used, and is in no tree.
    assert_eq!(world.shown(&new).unwrap(), "later");
    assert_eq!(new.stat(&world.w).unwrap().nlink, 0);
    world.put(&new, None, " still").unwrap();
    assert_eq!(world.shown(&new).unwrap(), "later still");
    assert!(matches!(world.text("new"), Err(Error::NotFound)));
    world.put(&kept, None, " again").unwrap();
    assert_eq!(world.text("kept").unwrap(), "at first again");
    world.rollback("second");
    assert_eq!(world.shown(&new).unwrap(), "later");
    assert_eq!(world.shown(&kept).unwrap(), "CHANGEDt");
}

#[test]
fn a_handle_is_stale_once_its_workspace_was_closed_or_its_branch_deleted() {
    let world = world();
    world.write("f", "text");
    let file = world.open("f");
    verbs::create_branch(&world.w, "b", MAIN, None).unwrap();
    let ask = OpenAs {
        path: b"f".to_vec(),
        ..OpenAs::default()
    };
    let (other, _) = verbs::open_file(&world.w, "b", &Caller::default(), &ask).unwrap();
    assert_eq!(other.read(&world.w, 0, 9).unwrap().0, b"text");
    verbs::delete_branch(&world.w, "b", &|_, _| {}).unwrap();
    assert!(matches!(other.read(&world.w, 0, 9), Err(Error::Stale)));
    drop(other);
    // As at the end of a mount.
    world.w.unmounted();
    assert!(matches!(world.shown(&file), Err(Error::Stale)));
    let again = world.open("f");
    drop(file);
    verbs::remove_path(&world.w, MAIN, b"f", false).unwrap();
    assert_eq!(
        world.shown(&again).unwrap(),
        "text",
        "the other one did not count"
    );
    world
        .engine
        .close_workspace(W, CloseMode::Checkpoint, &|_, _| {})
        .unwrap();
    let reopened = world.engine.open_workspace(W).unwrap();
    assert!(matches!(again.read(&reopened, 0, 9), Err(Error::Stale)));
    drop(again);
}

#[test]
fn files_are_opened_made_and_emptied_as_open_does() {
    let world = world();
    let create = |ask: &mut OpenAs| ask.create = true;
    let exclusive = |ask: &mut OpenAs| (ask.create, ask.exclusive) = (true, true);
    assert!(matches!(world.open_as("no", |_| {}), Err(Error::NotFound)));
    assert!(matches!(world.open_as("src", create), Err(Error::IsDir)));
    assert!(matches!(
        world.open_as("no/f", create),
        Err(Error::NotFound)
    ));
    assert!(matches!(
        world.open_as("README/f", create),
        Err(Error::NotDir)
    ));
    assert!(matches!(
        world.open_as("README", exclusive),
        Err(Error::Exists)
    ));
    assert!(matches!(
        world.open_as("dangling", exclusive),
        Err(Error::Exists)
    ));
    let made = world.open_as("src/new", exclusive).unwrap();
    assert_eq!(made.stat(&world.w).unwrap().perm, 0o600);
    world.put(&made, Some(3), "x").unwrap();
    assert_eq!(world.shown(&made).unwrap(), "\0\0\0x");
    made.resize(&world.w, &Caller::default(), 2).unwrap();
    assert_eq!(world.text("src/new").unwrap(), "\0\0");
    // Links are followed, and what was there goes where that is wanted.
    let through = world.open_as("link", |ask| ask.truncate = true).unwrap();
    assert_eq!(world.text("README").unwrap(), "");
    world.put(&through, None, "new\n").unwrap();
    through.sync(&world.w).unwrap();
    assert_eq!(world.text("README").unwrap(), "new\n");
}

#[test]
fn appends_by_handles_never_overlap() {
    let world = world();
    world.write("log", "");
    std::thread::scope(|scope| {
        for n in 0..4 {
            let world = &world;
            scope.spawn(move || {
                let file = world.open("log");
                for _ in 0..200 {
                    world.put(&file, None, &format!("record {n}\n")).unwrap();
                }
            });
        }
    });
    let text = world.text("log").unwrap();
    assert_eq!(text.lines().count(), 800);
    assert!(text.lines().all(|line| line.starts_with("record ")));
}

#[test]
fn a_copy_shares_what_is_stored_and_keeps_what_it_replaces() {
    let world = world();
    let long = "0123456789abcdef".repeat(1 << 14);
    world.write("long", &long);
    world.checkpoint("before");
    assert_eq!(
        world.copy("long", "src/copy", false).unwrap(),
        long.len() as u64
    );
    assert_eq!(world.text("src/copy").unwrap(), long);
    let view = verbs::read_state(&world.w, MAIN, &DiffSide::Live).unwrap();
    assert_eq!(view.stat(b"src/copy", false).unwrap().perm, 0o640);
    world.write("short", "short");
    let inode = |path: &str| {
        let view = verbs::read_state(&world.w, MAIN, &DiffSide::Live).unwrap();
        view.stat(path.as_bytes(), false).unwrap().inode
    };
    let was = inode("src/copy");
    assert!(matches!(
        world.copy("short", "src/copy", false),
        Err(Error::Exists)
    ));
    assert_eq!(world.copy("short", "src/copy", true).unwrap(), 5);
    assert_eq!(world.text("src/copy").unwrap(), "short");
    assert_eq!(inode("src/copy"), was);
    assert!(matches!(
        world.copy("short", "short", true),
        Err(Error::Invalid)
    ));
    assert!(matches!(world.copy("src", "x", true), Err(Error::IsDir)));
    assert!(matches!(
        world.copy("short", "src", true),
        Err(Error::IsDir)
    ));
    assert!(matches!(world.copy("no", "x", true), Err(Error::NotFound)));
}

#[test]
fn links_bits_and_lengths_are_set_by_path() {
    let world = world();
    let (w, who) = (&world.w, Caller::default());
    verbs::make_link(w, MAIN, &who, b"src/up", b"../README").unwrap();
    let view = verbs::read_state(w, MAIN, &DiffSide::Live).unwrap();
    let target = view.stat(b"src/up", false).unwrap().target;
    assert_eq!(target.as_deref(), Some(&b"../README"[..]));
    assert_eq!(world.text("src/up").unwrap(), "base\n");
    let again = verbs::make_link(w, MAIN, &who, b"src/up", b"x");
    assert!(matches!(again, Err(Error::Exists)));
    verbs::set_perm(w, MAIN, &who, b"src/up", 0o755).unwrap();
    verbs::set_size(w, MAIN, &who, b"src/up", 3).unwrap();
    assert_eq!(world.text("README").unwrap(), "bas");
    let view = verbs::read_state(w, MAIN, &DiffSide::Live).unwrap();
    assert_eq!(view.stat(b"README", false).unwrap().perm, 0o755);
    let of_dir = verbs::set_size(w, MAIN, &who, b"src", 3);
    assert!(matches!(of_dir, Err(Error::IsDir)));
}

#[test]
fn what_is_not_as_expected_is_not_removed() {
    let world = world();
    let remove =
        |path: &str, expect| verbs::remove_expected(&world.w, MAIN, path.as_bytes(), true, expect);
    assert!(matches!(remove("src", Expect::File), Err(Error::IsDir)));
    assert!(matches!(remove("README", Expect::Dir), Err(Error::NotDir)));
    assert!(matches!(remove("link", Expect::Dir), Err(Error::NotDir)));
    remove("link", Expect::File).unwrap();
    remove("src", Expect::Dir).unwrap();
    assert_eq!(world.text("README").unwrap(), "base\n");
}
