//! Operations on data and attributes, carried out on both sides.

use super::content::Content;
use super::model::{Body, When};
use super::op::Op;
use super::rng::bytes;
use super::runner::{Runner, W, same};
use crate::ensure;
use engine::{Caller, Fallocate, Kind, NodeId, SetAttr, SetTime, Time, WriteFlags, errno, mode};

const USER: Caller = Caller {
    uid: 1000,
    gid: 1000,
    pid: 1,
    umask: 0,
};
const NAMES: [&[u8]; 4] = [b"user.a", b"user.b", b"trusted.c", b"odd.d"];
/// Offsets are below 512 KiB and lengths below 300 KiB, so contents stay below this.
const FILE_MAX: usize = 16 << 20;

fn caller(root: bool) -> Caller {
    if root { Caller::default() } else { USER }
}

impl Runner {
    /// A file most of the time, now and then something else.
    fn some_file(&self, pick: u32) -> u64 {
        let files = self.live.those(|n| n.kind == Kind::File);
        if pick.is_multiple_of(23) || files.is_empty() {
            return self.any_node(pick);
        }
        files[pick as usize % files.len()]
    }

    /// Some inode.
    pub fn any_node(&self, pick: u32) -> u64 {
        let all: Vec<u64> = self.live.nodes.keys().copied().collect();
        all[pick as usize / 2 % all.len()]
    }

    fn must_be_file(&self, n: u64) -> Result<(), i32> {
        match self.live.nodes[&n].body {
            Body::File(_) => Ok(()),
            Body::Dir(_) => Err(errno::EISDIR),
            _ => Err(errno::EINVAL),
        }
    }

    fn changed(&mut self, n: u64) {
        let now = When::Since(self.now);
        let node = self.live.at(n);
        (node.mtime, node.ctime) = (now, now);
        self.changed_files.insert(n);
    }

    /// True for a caller who is not in the group of the inode and may not keep its set-group-id bit.
    fn is_outside(&mut self, n: u64, root: bool) -> bool {
        !root && caller(root).gid != self.live.at(n).gid
    }

    /// The permission bits lose set-id; set-group-id without group execution only for a caller `outside` of the group.
    fn drop_set_id(&mut self, n: u64, outside: bool) {
        let node = self.live.at(n);
        if node.kind != Kind::Dir {
            node.perm &= !mode::SUID;
            if outside || node.perm & 0o010 != 0 {
                node.perm &= !mode::SGID;
            }
        }
    }

    /// Length of a file; 0 for what is none.
    pub fn length(&self, n: u64) -> u64 {
        match self.live.nodes.get(&n).map(|node| &node.body) {
            Some(Body::File(content)) => content.len(),
            _ => 0,
        }
    }

    /// Writes.
    pub fn write(&mut self, op: Op) -> Result<(), String> {
        let Op::Write {
            node,
            at,
            len,
            seed,
            kill,
        } = op
        else {
            return Ok(());
        };
        let n = self.some_file(node);
        let data = match seed % 9 {
            0 => vec![0; len as usize],
            _ => bytes(u64::from(seed), len as usize),
        };
        // A page of the kernel's never reaches past the end.
        let (end, size) = (u64::from(at) + data.len() as u64, self.length(n));
        let flags = WriteFlags {
            from_cache: seed % 7 == 0 && end <= size,
            kill_suidgid: kill,
            ..WriteFlags::default()
        };
        let have = self
            .world
            .w()
            .write(NodeId(n), u64::from(at), &data, flags, W);
        let want = self.must_be_file(n);
        if let Some(wrote) = same(have, want)? {
            ensure!(wrote == len, "wrote {wrote} of {len}");
            self.live.file_mut(n).write(u64::from(at), &data);
            if kill {
                self.drop_set_id(n, false);
            }
            self.changed(n);
        }
        Ok(())
    }

    /// Sets the length.
    pub fn truncate(&mut self, node: u32, size: u32, root: bool) -> Result<(), String> {
        let n = self.some_file(node);
        let set = SetAttr {
            size: Some(u64::from(size)),
            kill_suidgid: !root,
            ..SetAttr::default()
        };
        let have = self.world.w().setattr(&caller(root), NodeId(n), &set, W);
        if same(have, self.must_be_file(n))?.is_some() {
            self.live.file_mut(n).truncate(u64::from(size));
            if !root {
                let outside = self.is_outside(n, root);
                self.drop_set_id(n, outside);
            }
            self.changed(n);
        }
        Ok(())
    }

    /// fallocate(2) in all its modes.
    pub fn allocate(&mut self, op: Op) -> Result<(), String> {
        let Op::Allocate { node, at, len, how } = op else {
            return Ok(());
        };
        let (n, at, len) = (self.some_file(node), u64::from(at), u64::from(len));
        let keep_size = how % 2 == 0;
        let mode = match how {
            0 | 1 => Fallocate::Allocate { keep_size },
            2 => Fallocate::PunchHole,
            _ => Fallocate::ZeroRange { keep_size },
        };
        let have = self.world.w().fallocate(NodeId(n), at, len, mode, W);
        if same(have, self.must_be_file(n))?.is_some() {
            let file = self.live.file_mut(n);
            if how != 2 && !keep_size && file.len() < at + len {
                file.truncate(at + len);
            }
            if how >= 2 {
                file.clear(at..at + len);
            }
            self.changed(n);
        }
        Ok(())
    }

    /// copy_file_range(2), also within one file.
    pub fn copy(&mut self, op: Op) -> Result<(), String> {
        let Op::Copy {
            src,
            from,
            dst,
            at,
            len,
        } = op
        else {
            return Ok(());
        };
        let (s, d) = (self.some_file(src), self.some_file(dst));
        let (from, at) = (u64::from(from), u64::from(at));
        let have = self
            .world
            .w()
            .copy_range(NodeId(s), from, NodeId(d), at, u64::from(len), W);
        let want = self.copyable(s, from, d, at, u64::from(len));
        if let Some(n) = same(have, want)? {
            ensure!(Ok(n) == want, "copied {n}, not {want:?}");
            if n > 0 {
                let source: Content = (**self.live.nodes[&s].file().unwrap()).clone();
                self.live.file_mut(d).copy(&source, from, at, n);
                self.changed(d);
            }
        }
        Ok(())
    }

    fn copyable(&self, s: u64, from: u64, d: u64, at: u64, len: u64) -> Result<u64, i32> {
        self.must_be_file(s)?;
        let size = self.live.nodes[&s].file().unwrap().len();
        let len = len.min(size.saturating_sub(from));
        self.must_be_file(d)?;
        if len > 0 && s == d && from < at + len && at < from + len {
            return Err(errno::EINVAL);
        }
        Ok(len)
    }

    /// Reads a part.
    pub fn read(&mut self, node: u32, at: u32, len: u32) -> Result<(), String> {
        let n = self.some_file(node);
        let have = self.world.w().read(NodeId(n), u64::from(at), len, W);
        let want = self.must_be_file(n);
        if let Some(have) = same(have, want)? {
            let all = &self.live.nodes[&n].file().unwrap().bytes;
            let start = (at as usize).min(all.len());
            let end = (at as usize + len as usize).min(all.len()).max(start);
            ensure!(have == all[start..end], "a part of inode {n} differs");
            assert!(all.len() < FILE_MAX);
        }
        Ok(())
    }

    /// Mode, owner, times.
    pub fn setattr(&mut self, op: Op) -> Result<(), String> {
        let Op::SetAttr {
            node,
            what,
            value,
            root,
        } = op
        else {
            return Ok(());
        };
        let n = self.any_node(node);
        let time = SetTime::At(Time {
            sec: i64::from(value) - 1_000_000,
            nsec: value % 1_000_000_000,
        });
        let mut set = SetAttr::default();
        match what % 8 {
            0..=1 => set.perm = Some(value & 0o7777),
            2 => set.uid = Some(value % 5),
            3 => set.gid = Some(value % 5),
            4..=5 => (set.mtime, set.atime) = (Some(time), Some(time)),
            6 => set.mtime = Some(SetTime::Now),
            _ => {}
        }
        let have = self.world.w().setattr(&caller(root), NodeId(n), &set, W);
        if same(have, Ok(()))?.is_none() {
            return Ok(());
        }
        let nothing = set == SetAttr::default() && !root;
        if set.perm.is_none() && (set.uid.is_some() || set.gid.is_some() || nothing) {
            // Where nothing else can be meant, the kernel asks for the bit that stands for locking.
            let only_locking = nothing && self.live.at(n).perm & mode::SUID == 0;
            let outside = self.is_outside(n, root) || only_locking;
            self.drop_set_id(n, outside);
        }
        let now = When::Since(self.now);
        let node = self.live.at(n);
        node.perm = set.perm.unwrap_or(node.perm);
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        node.ctime = now;
        match set.mtime {
            Some(SetTime::At(t)) => node.mtime = When::At(t),
            Some(SetTime::Now) => node.mtime = now,
            None => {}
        }
        Ok(())
    }

    /// Sets an extended attribute.
    pub fn setxattr(&mut self, op: Op) -> Result<(), String> {
        let Op::SetXattr {
            node,
            name,
            len,
            flags,
        } = op
        else {
            return Ok(());
        };
        let n = self.any_node(node);
        let (name, value) = (
            NAMES[name as usize % 4],
            bytes(u64::from(len), len as usize),
        );
        let have = self
            .world
            .w()
            .setxattr(&USER, NodeId(n), name, &value, u32::from(flags), W);
        let there = self.live.nodes[&n].xattrs.contains_key(name);
        let want = match (name, flags, there) {
            (b"odd.d", ..) => Err(errno::EOPNOTSUPP),
            (_, 1, true) => Err(errno::EEXIST),
            (_, 2, false) => Err(errno::ENODATA),
            _ => Ok(()),
        };
        if same(have, want)?.is_some() {
            let now = When::Since(self.now);
            let node = self.live.at(n);
            // What is so already is no change.
            if node.xattrs.insert(name.to_vec(), value.clone()) != Some(value) {
                node.ctime = now;
            }
        }
        Ok(())
    }

    /// Removes an extended attribute.
    pub fn removexattr(&mut self, node: u32, name: u8) -> Result<(), String> {
        let n = self.any_node(node);
        let name = NAMES[name as usize % 4];
        let have = self.world.w().removexattr(&USER, NodeId(n), name, W);
        let there = self.live.nodes[&n].xattrs.contains_key(name);
        let want = match (name, there) {
            (b"odd.d", _) => Err(errno::EOPNOTSUPP),
            (_, true) => Ok(()),
            (_, false) => Err(errno::ENODATA),
        };
        if same(have, want)?.is_some() {
            let now = When::Since(self.now);
            let node = self.live.at(n);
            node.xattrs.remove(name);
            node.ctime = now;
        }
        Ok(())
    }
}
