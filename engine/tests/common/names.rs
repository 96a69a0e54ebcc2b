//! Operations on names, carried out on both sides.

use super::model::{Body, Node, ROOT, When};
use super::op::Op;
use super::runner::{Runner, W, same};
use crate::ensure;
use engine::{Attr, Caller, Error, Kind, NodeId, RenameFlags, errno, mode};
use std::collections::BTreeMap;
use std::sync::Arc;

const POOL: [&[u8]; 8] = [b"a", b"b", b"c", b"d", b"e", b"f\xff", b"g h", b"src"];

impl Runner {
    /// The directory and name that two numbers stand for.
    fn place(&self, dir: u32, name: u32) -> (u64, Vec<u8>) {
        let dirs = match dir % 40 {
            // Now and then something that is no directory, or one that was removed.
            0 => self.live.nodes.keys().copied().collect(),
            _ => self.live.dirs(),
        };
        let dir = dirs[dir as usize % dirs.len()];
        let entries = self.live.dir(dir).filter(|d| !d.is_empty());
        let pick = name as usize / 2;
        let name = match (name % 2, entries, name % 97) {
            (_, _, 0) => vec![b'n'; 255 + pick % 2],
            (_, _, 1) if dir == ROOT => b".agentvfs".to_vec(),
            (_, _, 2) => [&b""[..], b".", b"..", b"a/b", b"a\0"][pick % 5].to_vec(),
            (0, Some(d), _) => d.keys().nth(pick % d.len()).unwrap().clone(),
            _ => POOL[pick % POOL.len()].to_vec(),
        };
        (dir, name)
    }

    fn is_linked(&self, n: u64) -> bool {
        n == ROOT || self.live.links().contains_key(&n)
    }

    /// Entries of a directory as requests see it.
    fn entries(&self, dir: u64) -> Result<&BTreeMap<Vec<u8>, u64>, i32> {
        let d = self.live.dir(dir).ok_or(errno::ENOTDIR)?;
        if self.is_linked(dir) {
            Ok(d)
        } else {
            Err(errno::ENOENT)
        }
    }

    fn check_name(dir: u64, name: &[u8]) -> Result<(), i32> {
        if name.len() > 255 {
            return Err(errno::ENAMETOOLONG);
        }
        if [&b""[..], b".", b".."].contains(&name) || name.contains(&b'/') || name.contains(&0) {
            return Err(errno::EINVAL);
        }
        if dir == ROOT && name == b".agentvfs" {
            Err(errno::EPERM)
        } else {
            Ok(())
        }
    }

    /// What `name` in `dir` is, where it may be taken away.
    fn removable(&self, dir: u64, name: &[u8]) -> Result<u64, i32> {
        if dir == ROOT && name == b".agentvfs" {
            return Err(errno::EPERM);
        }
        self.entries(dir)?.get(name).copied().ok_or(errno::ENOENT)
    }

    fn free_name(&self, dir: u64, name: &[u8]) -> Result<(), i32> {
        if self.entries(dir)?.contains_key(name) {
            return Err(errno::EEXIST);
        }
        Self::check_name(dir, name)
    }

    fn touch_dir(&mut self, dir: u64) {
        let now = When::Since(self.now);
        let d = self.live.at(dir);
        (d.mtime, d.ctime) = (now, now);
    }

    fn touch(&mut self, n: u64) {
        let now = When::Since(self.now);
        self.live.at(n).ctime = now;
    }

    /// An inode lost a name: without any, and unknown to the kernel, it is gone.
    pub fn reap(&mut self, n: u64) {
        if !self.is_linked(n) && self.held(n) == 0 {
            self.live.nodes.remove(&n);
        }
    }

    /// Makes something.
    pub fn create(&mut self, op: Op) -> Result<(), String> {
        let Op::Create {
            dir,
            name,
            kind,
            perm,
        } = op
        else {
            return Ok(());
        };
        let (dir, name) = self.place(dir, name);
        let who = Caller {
            uid: u32::from(perm) % 3,
            gid: 7,
            pid: 1,
            umask: u32::from(kind) & 0o77,
        };
        let bits = [
            mode::REG,
            mode::REG,
            mode::REG,
            mode::DIR,
            mode::DIR,
            mode::LNK,
            mode::FIFO,
            mode::CHR,
            mode::SOCK,
        ];
        let bits = bits[kind as usize % bits.len()];
        let target: &[u8] = if perm % 50 == 0 { b"" } else { b"some/where" };
        let (w, node, rdev) = (self.world.w(), NodeId(dir), u32::from(perm) + 256);
        let have = match bits {
            mode::DIR => w.mkdir(&who, node, &name, u32::from(perm), W),
            mode::LNK => w.symlink(&who, node, &name, target, W),
            _ => w.mknod(&who, node, &name, bits | u32::from(perm), rdev, W),
        };
        let want = if bits == mode::LNK && target.is_empty() {
            Err(errno::ENOENT)
        } else {
            self.free_name(dir, &name)
        };
        if let Some(attr) = same(have, want)? {
            let rdev = if [mode::DIR, mode::LNK].contains(&bits) {
                0
            } else {
                rdev
            };
            self.created(dir, name, &who, u32::from(perm), rdev, target, &attr)?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn created(
        &mut self,
        dir: u64,
        name: Vec<u8>,
        who: &Caller,
        perm: u32,
        rdev: u32,
        target: &[u8],
        attr: &Attr,
    ) -> Result<(), String> {
        let n = self.made(dir, who, (perm, rdev), target, attr)?;
        self.nameless.remove(&n);
        self.live.dir_mut(dir).insert(name, n);
        self.touch_dir(dir);
        Ok(())
    }

    /// An inode that came into being in a directory, and that the kernel knows from then on.
    fn made(
        &mut self,
        dir: u64,
        who: &Caller,
        (perm, rdev): (u32, u32),
        target: &[u8],
        attr: &Attr,
    ) -> Result<u64, String> {
        let n = attr.node.0;
        ensure!(
            !self.live.nodes.contains_key(&n),
            "inode {n} was given twice"
        );
        ensure!(
            self.seen_inos.insert(attr.ino),
            "st_ino {} was given twice",
            attr.ino
        );
        let parent = &self.live.nodes[&dir];
        let inherits = parent.perm & mode::SGID != 0;
        let gid = if inherits { parent.gid } else { who.gid };
        let body = match attr.kind {
            Kind::File => Body::File(Arc::default()),
            Kind::Dir => Body::Dir(BTreeMap::new()),
            Kind::Symlink => Body::Link(target.to_vec()),
            _ => Body::Special,
        };
        let perm = match attr.kind {
            Kind::Symlink => 0o777,
            Kind::Dir if inherits => (perm | mode::SGID) & !who.umask,
            _ => perm & !who.umask,
        };
        let now = When::Since(self.now);
        let node = Node {
            kind: attr.kind,
            perm,
            uid: who.uid,
            gid,
            rdev,
            mtime: now,
            ctime: now,
            ino: Some(attr.ino),
            xattrs: BTreeMap::new(),
            body,
        };
        self.live.nodes.insert(n, node);
        self.hold(n);
        Ok(n)
    }

    /// Makes a file without a name.
    pub fn nameless(&mut self, dir: u32, perm: u16) -> Result<(), String> {
        let (dir, _) = self.place(dir, 0);
        let who = Caller {
            uid: u32::from(perm) % 3,
            gid: 7,
            pid: 1,
            umask: 0o22,
        };
        let have = self
            .world
            .w()
            .tmpfile(&who, NodeId(dir), u32::from(perm), W);
        let want = self.entries(dir).map(|_| ());
        if let Some(attr) = same(have, want)? {
            ensure!(
                (attr.kind, attr.nlink) == (Kind::File, 0),
                "{attr:?} has no name"
            );
            let n = self.made(dir, &who, (u32::from(perm), 0), b"", &attr)?;
            self.nameless.insert(n);
        }
        Ok(())
    }

    /// An inode to be linked: now and then one that never had a name.
    fn linkable(&self, pick: u32) -> u64 {
        let there = |n: &&u64| self.live.nodes.contains_key(n);
        let nameless: Vec<u64> = self.nameless.iter().filter(there).copied().collect();
        match nameless.len() {
            0 => self.any_node(pick),
            _ if !pick.is_multiple_of(3) => self.any_node(pick),
            len => nameless[pick as usize / 3 % len],
        }
    }

    /// Makes a hard link.
    pub fn link(&mut self, node: u32, dir: u32, name: u32) -> Result<(), String> {
        let n = self.linkable(node);
        let (dir, name) = self.place(dir, name);
        let have = self.world.w().link(NodeId(n), NodeId(dir), &name, W);
        let want = if self.live.dir(n).is_some() {
            Err(errno::EPERM)
        } else if !self.is_linked(n) && !self.nameless.contains(&n) {
            Err(errno::ENOENT)
        } else {
            self.free_name(dir, &name)
        };
        if let Some(attr) = same(have, want)? {
            self.nameless.remove(&n);
            ensure!(attr.node.0 == n, "a link of {n} is {}", attr.node);
            self.live.dir_mut(dir).insert(name, n);
            self.touch_dir(dir);
            self.touch(n);
            self.hold(n);
        }
        Ok(())
    }

    /// Removes a name that is no directory's.
    pub fn unlink(&mut self, dir: u32, name: u32) -> Result<(), String> {
        let (dir, name) = self.place(dir, name);
        let have = self.world.w().unlink(NodeId(dir), &name, W);
        let want = self
            .removable(dir, &name)
            .and_then(|n| match self.live.dir(n) {
                Some(_) => Err(errno::EISDIR),
                None => Ok(n),
            });
        self.removed(have, want, dir, &name)
    }

    /// Removes a directory.
    pub fn rmdir(&mut self, dir: u32, name: u32) -> Result<(), String> {
        let (dir, name) = self.place(dir, name);
        let have = self.world.w().rmdir(NodeId(dir), &name, W);
        let want = self
            .removable(dir, &name)
            .and_then(|n| match self.live.dir(n) {
                None => Err(errno::ENOTDIR),
                Some(d) if !d.is_empty() => Err(errno::ENOTEMPTY),
                Some(_) => Ok(n),
            });
        self.removed(have, want, dir, &name)
    }

    fn removed(
        &mut self,
        have: Result<(), Error>,
        want: Result<u64, i32>,
        dir: u64,
        name: &[u8],
    ) -> Result<(), String> {
        if same(have, want)?.is_some() {
            let n = self.live.dir_mut(dir).remove(name).unwrap();
            self.touch_dir(dir);
            self.touch(n);
            self.removed_by_kernel(n);
            self.reap(n);
        }
        Ok(())
    }

    /// Moves a name, or lets two change places.
    pub fn rename(&mut self, from: (u32, u32), to: (u32, u32), flags: u8) -> Result<(), String> {
        let (a, b) = (self.place(from.0, from.1), self.place(to.0, to.1));
        let who = Caller {
            uid: from.1 % 3,
            gid: 7,
            pid: 1,
            umask: 0,
        };
        let flags = RenameFlags {
            noreplace: [1, 4].contains(&flags),
            exchange: flags == 2,
            whiteout: [3, 4].contains(&flags).then_some(who),
        };
        let (na, nb) = (NodeId(a.0), NodeId(b.0));
        let have = self.world.w().rename(na, &a.1, nb, &b.1, flags, W);
        let want = self.renamable(&a, &b, flags);
        if same(have, want)?.is_some() {
            let to_itself =
                self.live.dir(a.0).unwrap().get(&a.1) == self.live.dir(b.0).unwrap().get(&b.1);
            let whiteout = flags.whiteout.filter(|_| !to_itself);
            self.renamed(a.clone(), b, flags.exchange);
            if let Some(who) = whiteout {
                return self.left_whiteout(a, &who);
            }
        }
        Ok(())
    }

    fn left_whiteout(&mut self, at: (u64, Vec<u8>), who: &Caller) -> Result<(), String> {
        let (dir, name) = at;
        let attr = self.world.w().lookup(NodeId(dir), &name, W);
        let attr = attr.map_err(|error| format!("no whiteout: {error}"))?;
        ensure!(attr.kind == Kind::Char, "{attr:?} is no whiteout");
        self.created(dir, name, who, 0, 0, b"", &attr)
    }

    fn renamable(&self, a: &(u64, Vec<u8>), b: &(u64, Vec<u8>), f: RenameFlags) -> Result<(), i32> {
        let moved = self.removable(a.0, &a.1)?;
        let old = self.entries(b.0)?.get(&b.1).copied();
        Self::check_name(b.0, &b.1)?;
        if f.noreplace && old.is_some() {
            return Err(errno::EEXIST);
        }
        if f.exchange {
            let other = old.ok_or(errno::ENOENT)?;
            if other != moved && self.live.is_within(a.0, other) {
                return Err(errno::EINVAL);
            }
        } else if let Some(old) = old.filter(|o| *o != moved) {
            match (self.live.dir(moved), self.live.dir(old)) {
                (Some(_), Some(d)) if !d.is_empty() => return Err(errno::ENOTEMPTY),
                (Some(_), None) => return Err(errno::ENOTDIR),
                (None, Some(_)) => return Err(errno::EISDIR),
                _ => {}
            }
        }
        if old != Some(moved) && self.live.is_within(b.0, moved) {
            return Err(errno::EINVAL);
        }
        Ok(())
    }

    fn renamed(&mut self, a: (u64, Vec<u8>), b: (u64, Vec<u8>), exchange: bool) {
        let moved = self.live.dir(a.0).unwrap()[&a.1];
        let old = self.live.dir(b.0).unwrap().get(&b.1).copied();
        if old == Some(moved) {
            return;
        }
        self.live.dir_mut(a.0).remove(&a.1);
        self.live.dir_mut(b.0).insert(b.1, moved);
        if let Some(old) = old {
            if exchange {
                self.live.dir_mut(a.0).insert(a.1, old);
            }
            self.touch(old);
        }
        self.touch_dir(a.0);
        self.touch_dir(b.0);
        self.touch(moved);
        if let Some(old) = old {
            if !exchange {
                self.removed_by_kernel(old);
            }
            self.reap(old);
        }
    }

    /// Looks a name up.
    pub fn lookup(&mut self, dir: u32, name: u32) -> Result<(), String> {
        let (dir, name) = self.place(dir, name);
        let have = self.world.w().lookup(NodeId(dir), &name, W);
        if dir == ROOT && name == b".agentvfs" {
            // Not of the tree: it is there always, and counts no lookups.
            let attr = have.map_err(|e| format!("the reserved name: {e}"))?;
            ensure!(
                attr.kind == Kind::Dir,
                "the reserved name is {:?}",
                attr.kind
            );
            return Ok(());
        }
        let want = if name.len() > 255 {
            Err(errno::ENAMETOOLONG)
        } else {
            self.entries(dir)
                .and_then(|d| d.get(&name).copied().ok_or(errno::ENOENT))
        };
        if let Some(attr) = same(have, want)? {
            let n = self.live.dir(dir).unwrap()[&name];
            ensure!(attr.node.0 == n, "a name is inode {}, not {n}", attr.node);
            self.hold(n);
        }
        Ok(())
    }

    /// The kernel forgets an inode.
    pub fn forget(&mut self, node: u32, all: bool) {
        let known: Vec<u64> = self.lookups.keys().copied().collect();
        let Some(n) = known.get(node as usize % known.len().max(1)).copied() else {
            return;
        };
        let count = if all { self.lookups[&n] } else { 1 };
        self.world.w().forget(NodeId(n), count);
        let left = self.lookups[&n] - count;
        self.lookups.insert(n, left);
        if left == 0 {
            self.lookups.remove(&n);
            self.dead.remove(&n);
            if self.live.nodes.contains_key(&n) {
                self.reap(n);
            }
        }
    }

    /// Lists a directory with attributes, a few entries at a time.
    pub fn readdir_plus(&mut self, dir: u32, room: u8) -> Result<(), String> {
        let dirs = self.live.dirs();
        let dir = dirs[dir as usize % dirs.len()];
        let have = super::check::list(self.world.w(), dir, room as usize, true);
        let want = self.entries(dir).cloned();
        let (listed, want) = match (have, want) {
            (Ok(l), Ok(want)) => (l, want),
            (have, want) => return same(have.map(|_| ()), want).map(|_| ()),
        };
        let mut names = BTreeMap::new();
        for e in listed {
            ensure!(e.with_attr, "an entry without attributes");
            self.hold(e.node);
            ensure!(
                names.insert(e.name, e.node).is_none(),
                "an entry came twice"
            );
        }
        ensure!(names == want, "{dir} lists {names:?}, not {want:?}");
        Ok(())
    }
}
