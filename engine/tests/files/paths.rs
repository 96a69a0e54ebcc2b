//! Names that are made, moved and removed by path, without a mount: what they leave, over an end without a
//! goodbye, what is refused, and what the kernel is told to forget.
#![allow(clippy::unwrap_used)]

use engine::verbs;
use engine::{
    Caller, CloseMode, DiffSide, Engine, EngineConfig, Error, KernelCache, NodeId, Workspace,
    WriteFile,
};
use objstore::crash_storage::CrashStorage;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;

const W: &str = "w";
const MAIN: &str = "main";

fn base() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let project = dir.path().join("project");
    std::fs::create_dir_all(project.join("src/deep")).unwrap();
    std::fs::create_dir(dir.path().join("home")).unwrap();
    std::fs::write(project.join("README"), "base\n").unwrap();
    std::fs::write(project.join("src/main"), "main\n").unwrap();
    std::fs::hard_link(project.join("src/main"), project.join("src/deep/second")).unwrap();
    std::os::unix::fs::symlink("src", project.join("link")).unwrap();
    std::os::unix::fs::symlink("../..", project.join("src/up")).unwrap();
    dir
}

fn open(disk: &CrashStorage, dir: &Path) -> (Arc<Engine>, Arc<Workspace>) {
    let config = EngineConfig {
        root: dir.join("home"),
        author: "test".into(),
    };
    let engine = Engine::on_storage(config, Arc::new(disk.clone())).unwrap();
    if engine.get(W).is_err() {
        engine.create(W, &dir.join("project"), None).unwrap();
    }
    let w = engine.open_workspace(W).unwrap();
    (engine, w)
}

fn end(engine: &Engine) {
    engine
        .close_workspace(W, CloseMode::NoCheckpoint, &|_, _| {})
        .unwrap();
}

fn mkdir(w: &Workspace, path: &str, parents: bool) -> engine::Result<()> {
    verbs::make_dir(w, MAIN, &Caller::default(), path.as_bytes(), parents)
}

fn rename(w: &Workspace, from: &str, to: &str) -> engine::Result<()> {
    verbs::rename_path(w, MAIN, from.as_bytes(), to.as_bytes())
}

fn remove(w: &Workspace, path: &str, recursive: bool) -> engine::Result<()> {
    verbs::remove_path(w, MAIN, path.as_bytes(), recursive)
}

/// All paths of the live tree.
fn paths(w: &Workspace) -> Vec<String> {
    let view = verbs::read_state(w, MAIN, &DiffSide::Live).unwrap();
    let mut out = Vec::new();
    let mut work = vec![String::new()];
    while let Some(dir) = work.pop() {
        for node in view.list(dir.as_bytes()).unwrap() {
            let name = String::from_utf8(node.name.clone()).unwrap();
            let path = format!("{dir}{}{name}", if dir.is_empty() { "" } else { "/" });
            if node.kind == engine::Kind::Dir {
                work.push(path.clone());
            }
            out.push(path);
        }
    }
    out.sort();
    out
}

#[test]
fn names_stay_as_they_were_left_over_an_end_without_a_goodbye() {
    let dir = base();
    let disk = CrashStorage::new();
    let (engine, w) = open(&disk, dir.path());
    mkdir(&w, "new", false).unwrap();
    mkdir(&w, "link/a//b/", true).unwrap();
    rename(&w, "README", "new/moved").unwrap();
    rename(&w, "src/deep", "deep").unwrap();
    for i in 0..1_000 {
        let part = WriteFile {
            path: format!("many/{}/{i}", i % 3).into(),
            offset: Some(0),
            perm: 0o644,
            parents: true,
            ..WriteFile::default()
        };
        verbs::write_file(&w, MAIN, &Caller::default(), &part).unwrap();
    }
    remove(&w, "many", true).unwrap();
    remove(&w, "src/main", false).unwrap();
    let wanted = [
        "deep",
        "deep/second",
        "link",
        "new",
        "new/moved",
        "src",
        "src/a",
        "src/a/b",
        "src/up",
    ];
    assert_eq!(paths(&w), wanted);
    let view = verbs::read_state(&w, MAIN, &DiffSide::Live).unwrap();
    assert_eq!(view.stat(b"deep/second", false).unwrap().nlink, 1);
    w.fsync(NodeId::ROOT).unwrap();
    drop(view);
    let image = disk.image_at(disk.op_count(), objstore::crash_storage::Policy::ALL[0], 1);
    end(&engine);
    drop((w, engine));
    let (engine, w) = open(&image, dir.path());
    assert_eq!(paths(&w), wanted);
    end(&engine);
}

#[test]
fn links_in_a_loop_are_told_from_links_that_lead_out() {
    let dir = base();
    let link = |to: &str, name: &str| {
        let at = dir.path().join("project").join(name);
        std::os::unix::fs::symlink(to, at).unwrap();
    };
    link("loop", "loop");
    link("back", "there");
    link("there/x", "back");
    // As many as the kernel follows, and one more.
    link("README", "link1");
    (2..=41).for_each(|n| link(&format!("link{}", n - 1), &format!("link{n}")));
    let (engine, w) = open(&CrashStorage::without_log(), dir.path());
    let view = verbs::read_state(&w, MAIN, &DiffSide::Live).unwrap();
    let kind = |path: &str, follow| Ok(view.stat(path.as_bytes(), follow)?.kind);
    assert_eq!(kind("link40", true).unwrap(), engine::Kind::File);
    for path in ["loop", "loop/x", "there", "back/y", "link41"] {
        let error: Error = kind(path, true).unwrap_err();
        assert!(matches!(&error, Error::LinkLoop(p) if p == path.as_bytes()));
        assert!(error.to_string().contains("in a loop"), "{error}");
        assert_eq!(error.errno(), engine::errno::ELOOP);
    }
    let error: Error = kind("src/up/x", true).unwrap_err();
    assert!(matches!(error, Error::LeadsOut(_)), "{error}");
    assert_eq!(kind("loop", false).unwrap(), engine::Kind::Symlink);
    let error = mkdir(&w, "loop/x", true).unwrap_err();
    assert!(matches!(error, Error::LinkLoop(_)), "{error}");
    drop(view);
    end(&engine);
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let dir = base();
    let (engine, w) = open(&CrashStorage::without_log(), dir.path());
    let before = paths(&w);
    let long = "x".repeat(256);
    for (done, wanted) in [
        (mkdir(&w, "", false), Error::Exists),
        (mkdir(&w, "src", false), Error::Exists),
        (mkdir(&w, "README", true), Error::NotDir),
        (mkdir(&w, "README/x", true), Error::NotDir),
        (mkdir(&w, "none/x", false), Error::NotFound),
        (mkdir(&w, "src/..", false), Error::Invalid),
        (mkdir(&w, ".agentvfs", false), Error::NotPermitted),
        (mkdir(&w, "a\0b", false), Error::Invalid),
        (mkdir(&w, &long, true), Error::NameTooLong),
        (
            mkdir(&w, "src/up/x", true),
            Error::LeadsOut(b"src/up".to_vec()),
        ),
        (remove(&w, "/", true), Error::NotPermitted),
        (remove(&w, "src", false), Error::NotEmpty),
        (remove(&w, "none", true), Error::NotFound),
        (remove(&w, "README/x", true), Error::NotDir),
        (
            remove(&w, "src/up/x", true),
            Error::LeadsOut(b"src/up".to_vec()),
        ),
        (rename(&w, "none", "x"), Error::NotFound),
        (rename(&w, "README", "none/x"), Error::NotFound),
        (rename(&w, "src", "src/deep/x"), Error::Invalid),
        (rename(&w, "src", "README"), Error::NotDir),
        (rename(&w, "README", "src"), Error::IsDir),
        (rename(&w, "src", ""), Error::NotPermitted),
        (rename(&w, "README", ".agentvfs"), Error::NotPermitted),
        (
            rename(&w, "README", "src/up/x"),
            Error::LeadsOut(b"src/up".to_vec()),
        ),
    ] {
        let error = done.unwrap_err();
        assert_eq!(error.to_string(), wanted.to_string());
    }
    assert_eq!(paths(&w), before);
    // Of a symbolic link the link itself is meant.
    remove(&w, "link", true).unwrap();
    assert!(paths(&w).contains(&"src/main".to_owned()));
    end(&engine);
}

#[derive(Default)]
struct Kernel {
    forgot: Mutex<Vec<String>>,
}

impl KernelCache for Kernel {
    fn flush_dirty(&self) {}

    fn inval_inode(&self, node: NodeId) {
        self.forgot.lock().push(format!("inode {}", node.nid()));
    }

    fn inval_entry(&self, parent: NodeId, name: &[u8]) {
        let name = String::from_utf8_lossy(name);
        self.forgot.lock().push(format!("{} {name}", parent.nid()));
    }

    fn inval_all_entries(&self) -> bool {
        false
    }
}

#[test]
fn the_kernel_forgets_what_it_knows_of_each_name() {
    let dir = base();
    let (engine, w) = open(&CrashStorage::without_log(), dir.path());
    let kernel = Arc::new(Kernel::default());
    w.set_kernel_cache(kernel.clone());
    let told = |kernel: &Kernel| std::mem::take(&mut *kernel.forgot.lock());
    mkdir(&w, "new", false).unwrap();
    let root = NodeId::ROOT.nid();
    let listing = format!("inode {root}");
    assert_eq!(told(&kernel), [format!("{root} new"), listing.clone()]);
    // A directory that the kernel has never asked for holds no name that it could know.
    mkdir(&w, "new/deep", false).unwrap();
    assert!(told(&kernel).is_empty());
    let known = w
        .lookup(NodeId::ROOT, b"src", engine::Wait::Allowed)
        .unwrap()
        .node;
    rename(&w, "src/main", "main").unwrap();
    let forgot = told(&kernel);
    for what in [
        format!("{} main", known.nid()),
        format!("inode {}", known.nid()),
        format!("{root} main"),
        listing,
    ] {
        assert!(forgot.contains(&what), "{what} is not in {forgot:?}");
    }
    w.forget(known, 1);
    end(&engine);
}
