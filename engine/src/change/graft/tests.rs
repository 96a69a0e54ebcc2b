//! Grafts between random trees, against what they promise by path.

use super::*;
use crate::record::{Counters, Mutation};
use crate::types::mode;
use std::collections::BTreeMap;

/// Inode numbers and sizes stand for what a file is: path → (type, size, first name of its group).
type Shape = BTreeMap<String, (u32, u64, String)>;

struct Maker {
    tree: Tree,
    next: u64,
    clock: i64,
}

impl Maker {
    fn new() -> Maker {
        let dir = Dir::new(DirMap::default(), 0);
        let root = Inode {
            mode: mode::DIR | 0o755,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            ino: 1,
            size: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            parent: Nid::ROOT,
            hash: 0,
            links: None,
            xattrs: None,
            content: Content::Dir(Box::new(dir)),
        };
        Maker {
            tree: Tree::with_root(root),
            next: 2,
            clock: 0,
        }
    }

    fn apply(&mut self, m: Mutation) {
        self.tree.apply(&m, None).unwrap();
    }

    fn now(&mut self) -> Time {
        self.clock += 1;
        Time {
            sec: self.clock,
            nsec: 0,
        }
    }

    fn create(&mut self, parent: Nid, name: &str, bits: u32) {
        let nid = self.next;
        self.next += 1;
        let now = self.now();
        self.apply(Mutation::Create {
            parent: parent.0,
            name: name.as_bytes().to_vec(),
            nid,
            ino: nid + 1000,
            mode: bits | 0o644,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: vec![],
            xattrs: vec![],
            now,
        });
    }

    fn resize(&mut self, nid: Nid, size: u64) {
        let now = self.now();
        self.apply(Mutation::SetAttr {
            nid: nid.0,
            perm: None,
            uid: None,
            gid: None,
            size: Some(size),
            atime: None,
            mtime: Some(now),
            ctime: now,
            xattrs: vec![],
        });
    }

    fn unlink(&mut self, parent: Nid, name: &str) {
        let nid = self.tree.lookup(parent, name.as_bytes()).unwrap().nid;
        let now = self.now();
        self.apply(Mutation::Unlink {
            parent: parent.0,
            name: name.as_bytes().to_vec(),
            now,
        });
        if self.tree.get(nid).unwrap().nlink == 0 {
            self.tree.remove(nid);
        }
    }

    fn step(&mut self, rnd: &mut impl FnMut(u64) -> u64) {
        let (mut dirs, mut files) = (vec![Nid::ROOT], Vec::new());
        self.tree.for_each(&mut |nid, i| match i.dir() {
            Some(_) => dirs.push(nid),
            None => files.push(nid),
        });
        let dir = dirs[rnd(dirs.len() as u64) as usize];
        let name = ["a", "b", "c"][rnd(3) as usize];
        match (self.tree.lookup(dir, name.as_bytes()), rnd(5)) {
            (Err(_), 0..=1) if dirs.len() < 8 => self.create(dir, name, mode::DIR),
            (Err(_), 2) if !files.is_empty() => {
                let nid = files[rnd(files.len() as u64) as usize];
                let now = self.now();
                self.apply(Mutation::Link {
                    nid: nid.0,
                    parent: dir.0,
                    name: name.as_bytes().to_vec(),
                    group: nid.0,
                    now,
                });
            }
            (Err(_), _) => self.create(dir, name, mode::REG),
            (Ok(e), 0) if e.kind != Kind::Dir || self.is_empty(e.nid) => self.unlink(dir, name),
            (Ok(e), 1) if e.kind != Kind::Dir => {
                let size = rnd(100) + 1;
                self.resize(e.nid, size);
            }
            (Ok(e), _) => {
                let to = dirs[rnd(dirs.len() as u64) as usize];
                let new = ["a", "b", "c"][rnd(3) as usize];
                if self.tree.lookup(to, new.as_bytes()).is_err() && !self.tree.is_within(to, e.nid)
                {
                    let now = self.now();
                    self.apply(Mutation::Rename {
                        parent: dir.0,
                        name: name.as_bytes().to_vec(),
                        new_parent: to.0,
                        new_name: new.as_bytes().to_vec(),
                        exchange: false,
                        now,
                    });
                }
            }
        }
    }

    fn is_empty(&self, nid: Nid) -> bool {
        self.tree.get(nid).unwrap().dir().unwrap().map.is_empty()
    }
}

fn shape(tree: &Tree, wanted: impl Fn(&[u8]) -> bool) -> Shape {
    let mut names: Vec<(String, Nid)> = Vec::new();
    tree.for_each(&mut |nid, i| {
        for name in i.names().into_iter().filter(|_| nid != Nid::ROOT) {
            let path = tree.path_of_name(nid, name).unwrap();
            if wanted(&path) {
                names.push((String::from_utf8(path).unwrap(), nid));
            }
        }
    });
    names.sort();
    let first = |nid: Nid| names.iter().find(|(_, n)| *n == nid).unwrap().0.clone();
    let entry = |nid: Nid| {
        let i = tree.get(nid).unwrap();
        (i.mode, i.size, first(nid))
    };
    names
        .iter()
        .map(|(p, nid)| (p.clone(), entry(*nid)))
        .collect()
}

fn check(live: &Tree, source: &Tree, paths: &[&str], next: u64) {
    let paths: Vec<Vec<u8>> = paths.iter().map(|p| p.as_bytes().to_vec()).collect();
    let mut numbers = Counters {
        nid: next,
        ino: next + 5000,
        state: 0,
    };
    let now = Time {
        sec: 1 << 30,
        nsec: 0,
    };
    let tree = match graft(live, source, &paths, &mut numbers, now, true) {
        Ok(tree) => tree,
        Err(Blocked::Failed(Error::NoSuchPath(_) | Error::InTheWay(_))) => return,
        Err(e) => panic!("{e:?}"),
    };
    tree.check().unwrap();
    let inside = |path: &[u8]| paths.iter().any(|top| is_at_or_below(path, top));
    let parent =
        |path: &[u8]| paths.iter().any(|p| is_at_or_below(p, path)) && live.resolve(path).is_err();
    assert_eq!(shape(&tree, inside), shape(source, inside));
    let outside = |path: &[u8]| !inside(path) && !parent(path);
    assert_eq!(shape(&tree, outside), shape(live, outside));
    // What lies outside is still the same inode.
    live.for_each(&mut |nid, i| {
        for name in i.names() {
            let path = live.path_of_name(nid, name).unwrap();
            if !inside(&path) {
                assert_eq!(tree.resolve(&path).unwrap(), nid);
            }
        }
    });
    let mut shown = HashSet::new();
    let mut groups = HashSet::new();
    tree.for_each(&mut |nid, i| {
        assert!(shown.insert(i.ino), "two inodes show {}", i.ino);
        assert!(
            i.group() == 0 || groups.insert(i.group()),
            "{nid} shares its group"
        );
    });
}

#[test]
fn random_trees_take_random_paths_from_one_another() {
    let mut x = 11u64;
    let mut rnd = move |n: u64| {
        x = x
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (x >> 33) % n
    };
    for _ in 0..150 {
        let mut maker = Maker::new();
        let mut states = Vec::new();
        for step in 0..90 {
            maker.step(&mut rnd);
            if step % 18 == 17 {
                states.push(maker.tree.clone());
            }
        }
        for live in &states {
            for source in &states {
                for paths in [
                    &["a"][..],
                    &["b", "c"],
                    &["a/b", "c/a"],
                    &["a/b/c", "b/a", "c"],
                ] {
                    check(live, source, paths, maker.next);
                }
            }
        }
    }
}

#[test]
fn directory_moved_out_comes_back_as_a_copy() {
    let mut maker = Maker::new();
    maker.create(Nid::ROOT, "d", mode::DIR);
    maker.create(Nid(2), "f", mode::REG);
    let source = maker.tree.clone();
    let now = maker.now();
    maker.apply(Mutation::Rename {
        parent: 1,
        name: b"d".to_vec(),
        new_parent: 1,
        new_name: b"away".to_vec(),
        exchange: false,
        now,
    });
    check(&maker.tree, &source, &["d"], maker.next);
}
