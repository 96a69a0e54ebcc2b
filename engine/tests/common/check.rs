//! Comparing the engine's tree with the model's, and learning from it what the model cannot know.

use super::content::{BLOCK, Content};
use super::model::{Body, Node, ROOT, Tree, When};
use crate::ensure;
use engine::{Caller, Error, Kind, NodeId, Seek, Time, Wait, Workspace};
use std::collections::BTreeMap;

const W: Wait = Wait::Allowed;

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    pub name: Vec<u8>,
    pub node: u64,
    pub ino: u64,
    pub kind: Kind,
    pub with_attr: bool,
}

/// Lists a directory in portions of `room` entries, without `.` and `..`.
pub fn list(w: &Workspace, dir: u64, room: usize, plus: bool) -> Result<Vec<Listed>, Error> {
    let (mut out, mut cookie) = (Vec::new(), 0);
    loop {
        let mut taken = 0;
        w.readdir(NodeId(dir), cookie, plus, W, &mut |e| {
            if taken == room {
                return false;
            }
            taken += 1;
            cookie = e.cookie;
            out.push(Listed {
                name: e.name.to_vec(),
                node: e.node.0,
                ino: e.ino,
                kind: e.kind,
                with_attr: e.attr.is_some(),
            });
            true
        })?;
        if taken < room {
            out.retain(|e| e.name != b"." && e.name != b"..");
            return Ok(out);
        }
    }
}

/// Gives the inodes of `snap`, a tree with numbers of its own, the numbers that the engine shows them
/// under. Fails where names or hard links are not those of `snap`.
pub fn adopt(snap: &Tree, w: &Workspace) -> Result<Tree, String> {
    let mut to = BTreeMap::from([(ROOT, ROOT)]);
    let mut back = to.clone();
    let mut work = vec![(ROOT, Vec::new())];
    while let Some((number, path)) = work.pop() {
        let want = snap.dir(number).ok_or("a directory in the model only")?;
        let have = list(w, to[&number], 5, false).map_err(|e| format!("listing: {e}"))?;
        let shown = String::from_utf8_lossy(&path).into_owned();
        let names = |all: &[Listed]| -> Vec<String> {
            let mut n: Vec<_> = all
                .iter()
                .map(|e| String::from_utf8_lossy(&e.name).into())
                .collect();
            n.sort();
            n
        };
        ensure!(
            have.len() == want.len() && have.iter().all(|e| want.contains_key(&e.name)),
            "{shown:?} lists {:?}, not {:?}",
            names(&have),
            want.keys()
                .map(|n| String::from_utf8_lossy(n))
                .collect::<Vec<_>>()
        );
        for e in have {
            let child = want[&e.name];
            let full = [&path[..], b"/", &e.name].concat();
            let shown = String::from_utf8_lossy(&full);
            let known = *to.entry(child).or_insert(e.node);
            ensure!(
                known == e.node,
                "{shown:?} is inode {}, its other link {known}",
                e.node
            );
            let other = *back.entry(e.node).or_insert(child);
            ensure!(other == child, "{shown:?} became a link of another file");
            ensure!(
                snap.nodes[&child].kind == e.kind,
                "{shown:?} is a {:?}",
                e.kind
            );
            if e.kind == Kind::Dir {
                work.push((child, full));
            }
        }
    }
    Ok(renumbered(snap, &to))
}

fn renumbered(snap: &Tree, to: &BTreeMap<u64, u64>) -> Tree {
    let mut out = Tree {
        kv: snap.kv.clone(),
        ..Tree::default()
    };
    for (old, new) in to {
        let mut node = snap.nodes[old].clone();
        if let Body::Dir(d) = &mut node.body {
            d.values_mut().for_each(|c| *c = to[c]);
        }
        out.nodes.insert(*new, node);
    }
    out
}

/// Compares every inode of the model, orphans too, and learns times and numbers. `contents`: files are
/// read as a whole.
pub fn compare(tree: &mut Tree, w: &Workspace, contents: bool) -> Result<(), String> {
    super::keys::compare(tree, w)?;
    let links = tree.links();
    let paths: BTreeMap<u64, Vec<u8>> = tree.paths().into_iter().map(|(p, n)| (n, p)).collect();
    let numbers: Vec<u64> = tree.nodes.keys().copied().collect();
    for n in numbers {
        let none = b"(unlinked)".to_vec();
        let shown = String::from_utf8_lossy(paths.get(&n).unwrap_or(&none)).into_owned();
        let nlink = links.get(&n).copied().unwrap_or(0);
        let subdirs = tree.dir(n).map_or(0, |d| {
            d.values()
                .filter(|c| tree.nodes[c].kind == Kind::Dir)
                .count() as u32
        });
        let node = tree.at(n);
        inode(node, n, nlink, subdirs, w).map_err(|e| format!("{shown:?} (inode {n}): {e}"))?;
        if contents && let Body::File(c) = &node.body {
            content(c, n, w).map_err(|e| format!("{shown:?} (inode {n}): {e}"))?;
        }
    }
    Ok(())
}

fn inode(node: &mut Node, n: u64, nlink: u32, subdirs: u32, w: &Workspace) -> Result<(), String> {
    let a = w.getattr(NodeId(n)).map_err(|e| format!("getattr: {e}"))?;
    let size = match &node.body {
        Body::File(c) => c.len(),
        Body::Link(t) => t.len() as u64,
        Body::Special => 0,
        Body::Dir(_) => a.size,
    };
    let nlink = match node.kind {
        Kind::Dir if nlink > 0 => 2 + subdirs,
        _ => nlink,
    };
    let have = (
        a.kind,
        u32::from(a.perm),
        a.uid,
        a.gid,
        a.rdev,
        a.size,
        a.nlink,
    );
    let want = (
        node.kind, node.perm, node.uid, node.gid, node.rdev, size, nlink,
    );
    ensure!(have == want, "attributes are {have:?}, not {want:?}");
    time(&mut node.mtime, a.mtime).map_err(|e| format!("mtime: {e}"))?;
    time(&mut node.ctime, a.ctime).map_err(|e| format!("ctime: {e}"))?;
    let ino = *node.ino.get_or_insert(a.ino);
    ensure!(ino == a.ino, "st_ino is {}, was {ino}", a.ino);
    if let Body::Link(t) = &node.body {
        let have = w
            .readlink(&Caller::default(), NodeId(n))
            .map_err(|e| format!("readlink: {e}"))?;
        ensure!(have == *t, "target is {have:?}, not {t:?}");
    }
    xattrs(node, n, w)
}

fn time(want: &mut When, have: Time) -> Result<(), String> {
    match *want {
        When::At(t) => ensure!(t == have, "is {have:?}, not {t:?}"),
        When::Since(t) => ensure!(t <= have, "is {have:?}, before {t:?}"),
        When::Any => {}
    }
    *want = When::At(have);
    Ok(())
}

fn xattrs(node: &Node, n: u64, w: &Workspace) -> Result<(), String> {
    let names = w
        .listxattr(NodeId(n))
        .map_err(|e| format!("listxattr: {e}"))?;
    let have: Vec<&[u8]> = names.split(|b| *b == 0).filter(|n| !n.is_empty()).collect();
    let want: Vec<&[u8]> = node.xattrs.keys().map(|k| &k[..]).collect();
    ensure!(have == want, "attributes {have:?}, not {want:?}");
    for (name, value) in &node.xattrs {
        let have = w
            .getxattr(NodeId(n), name)
            .map_err(|e| format!("getxattr: {e}"))?;
        ensure!(
            have == *value,
            "another value of {}",
            String::from_utf8_lossy(name)
        );
    }
    Ok(())
}

/// Compares a file's bytes and holes.
pub fn content(want: &Content, n: u64, w: &Workspace) -> Result<(), String> {
    let have = w
        .read(NodeId(n), 0, 16 << 20, W)
        .map_err(|e| format!("read: {e}"))?;
    if have != want.bytes {
        let pairs = have.iter().zip(&want.bytes);
        let at = pairs.take_while(|(a, b)| a == b).count();
        return Err(format!(
            "content differs at {at}: {:?}, not {:?}; {} bytes, not {}",
            have.get(at),
            want.bytes.get(at),
            have.len(),
            want.bytes.len()
        ));
    }
    holes(want, n, w)
}

fn holes(want: &Content, n: u64, w: &Workspace) -> Result<(), String> {
    let data = data_of(want.len(), n, w)?;
    for start in (0..want.len()).step_by(BLOCK as usize) {
        let block = start..start + BLOCK;
        let is = data
            .iter()
            .any(|r| r.start < block.end && block.start < r.end);
        ensure!(
            is || !want.must_be_data(&block),
            "data at {start} shows as a hole: {data:?}"
        );
        ensure!(
            !is || want.may.touches(&block),
            "a hole at {start} shows as data: {data:?}"
        );
    }
    Ok(())
}

/// Ranges of data by lseek(2).
pub fn data_of(size: u64, n: u64, w: &Workspace) -> Result<Vec<std::ops::Range<u64>>, String> {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < size {
        let start = match w.lseek(NodeId(n), at, Seek::Data, W) {
            Ok(s) => s,
            Err(Error::NoAddress) => break,
            Err(e) => return Err(format!("lseek: {e}")),
        };
        let end = w
            .lseek(NodeId(n), start, Seek::Hole, W)
            .map_err(|e| format!("lseek: {e}"))?;
        ensure!(
            at <= start && start < end && end <= size,
            "data {start}..{end} from {at}"
        );
        out.push(start..end);
        at = end;
    }
    Ok(out)
}
