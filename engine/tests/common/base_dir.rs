//! The project directory that the tests start from, and the model of what is in it.

use super::content::Content;
use super::model::{Body, Node, ROOT, Tree, When};
use super::rng::bytes;
use engine::{Kind, Time};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A directory with some of everything. It is shared by all tests and old enough for its files' times to identify
/// their content. Nothing removes what belongs to a whole program when that ends, so it is kept among what is
/// built, and made once for each version of this file and each user.
pub fn shared() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
        fs::create_dir_all(place).unwrap();
        let user = fs::metadata("/proc/self").unwrap().uid();
        let version = blake3::hash(include_bytes!("base_dir.rs")).to_hex();
        let shared = place.join(format!("base-{user}-{}", &version[..16]));
        if !shared.exists() {
            make(place, &shared);
        }
        shared
    })
}

/// Makes it under another name first, as several programs may do so at once.
fn make(place: &Path, shared: &Path) {
    let dir = tempfile::tempdir_in(place).unwrap();
    let new = dir.path().join("base");
    fs::create_dir(&new).unwrap();
    fill(&new);
    std::thread::sleep(Duration::from_millis(3100));
    if let Err(e) = fs::rename(&new, shared) {
        assert!(shared.exists(), "{}: {e}", shared.display());
    }
}

fn fill(top: &Path) {
    for d in ["src/deep/x/y", "other", "empty", "hollow/inner", "many"] {
        fs::create_dir_all(top.join(d)).unwrap();
    }
    fs::write(top.join("README"), b"hello\n").unwrap();
    fs::write(top.join("src/a.rs"), b"fn a() {}\n").unwrap();
    fs::write(top.join("src/deep/x/y/z.txt"), bytes(1, 5000)).unwrap();
    fs::write(top.join("none"), b"").unwrap();
    fs::write(top.join("big"), bytes(2, 400_000)).unwrap();
    fs::write(top.join(OsStr::from_bytes(b"na\xffme")), b"odd").unwrap();
    fs::write(top.join("run.sh"), b"#!/bin/sh\n").unwrap();
    fs::set_permissions(top.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    for i in 0..70 {
        fs::write(top.join(format!("many/f{i}")), format!("{i}")).unwrap();
    }
    fs::write(top.join("src/h1"), b"linked").unwrap();
    fs::hard_link(top.join("src/h1"), top.join("other/h2")).unwrap();
    fs::hard_link(top.join("src/h1"), top.join("src/deep/h3")).unwrap();
    fs::write(top.join("a1"), b"two names").unwrap();
    fs::hard_link(top.join("a1"), top.join("a2")).unwrap();
    symlink("src/a.rs", top.join("to-a")).unwrap();
    symlink("/nowhere", top.join("other/dangling")).unwrap();
    let sparse = fs::File::create(top.join("sparse")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    sparse.write_all_at(&bytes(3, 8192), 0).unwrap();
    sparse.write_all_at(&bytes(4, 4096), 512 << 10).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(top.join("pipe"))
        .status();
    assert!(made.unwrap().success());
    let set = rustix::fs::XattrFlags::empty();
    // Where the file system of temporary files has no attributes there are none to compare.
    let _ = rustix::fs::setxattr(top.join("README"), "user.tag", b"v", set);
}

/// The model of a directory.
pub fn tree_of(top: &Path) -> Tree {
    let mut tree = Tree::default();
    let mut seen = HashMap::new();
    add(&mut tree, &mut seen, top, ROOT);
    tree
}

fn add(tree: &mut Tree, seen: &mut HashMap<u64, u64>, path: &Path, number: u64) {
    let m = fs::symlink_metadata(path).unwrap();
    seen.insert(m.ino(), number);
    tree.nodes.insert(number, node_of(path, &m, number));
    if !m.is_dir() {
        return;
    }
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        let ino = entry.metadata().unwrap().ino();
        let known = seen.get(&ino).copied();
        let child = known.unwrap_or(tree.nodes.len() as u64 + 1);
        if known.is_none() {
            add(tree, seen, &entry.path(), child);
        }
        let name = entry.file_name().as_bytes().to_vec();
        tree.dir_mut(number).insert(name, child);
    }
}

fn node_of(path: &Path, m: &fs::Metadata, number: u64) -> Node {
    let time = |sec, nsec: i64| {
        When::At(Time {
            sec,
            nsec: nsec as u32,
        })
    };
    let t = m.file_type();
    let (kind, body) = if t.is_dir() {
        (Kind::Dir, Body::Dir(BTreeMap::new()))
    } else if t.is_symlink() {
        let target = fs::read_link(path).unwrap();
        (
            Kind::Symlink,
            Body::Link(target.as_os_str().as_bytes().to_vec()),
        )
    } else if t.is_fifo() {
        (Kind::Fifo, Body::Special)
    } else {
        (Kind::File, Body::File(Arc::new(content_of(path))))
    };
    Node {
        kind,
        perm: m.mode() & 0o7777,
        uid: m.uid(),
        gid: m.gid(),
        rdev: 0,
        mtime: time(m.mtime(), m.mtime_nsec()),
        ctime: time(m.ctime(), m.ctime_nsec()),
        ino: Some(if number == ROOT { 1 } else { m.ino() }),
        xattrs: xattrs_of(path, kind),
        body,
    }
}

/// Content with holes where whole blocks of a large file are zeros.
fn content_of(path: &Path) -> Content {
    let all = fs::read(path).unwrap();
    if all.len() < 1 << 20 {
        return Content::full(all);
    }
    let mut c = Content::default();
    for (i, block) in all.chunks(4096).enumerate() {
        if block.iter().any(|b| *b != 0) {
            c.write(i as u64 * 4096, block);
        }
    }
    c.truncate(all.len() as u64);
    c
}

fn xattrs_of(path: &Path, kind: Kind) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut out = BTreeMap::new();
    let mut value = [0; 64];
    if kind == Kind::File
        && let Ok(n) = rustix::fs::lgetxattr(path, "user.tag", &mut value)
    {
        out.insert(b"user.tag".to_vec(), value[..n].to_vec());
    }
    out
}
