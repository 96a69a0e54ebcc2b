//! Which calls are made: from a seed, always the same.

use super::perform::INNER;
use super::{Blob, Octal, Op, SLOTS, Stamp, Step, TMPFILE, USERS};
use crate::rng::Rng;

/// Files stay about this small, so that calls meet.
const BYTES: u64 = 96 << 10;
const PAGE: u64 = 4096;

const RDONLY: u32 = 0;
const WRONLY: u32 = 1;
const RDWR: u32 = 2;
const CREAT: u32 = 0o100;
const EXCL: u32 = 0o200;
const TRUNC: u32 = 0o1000;
const APPEND: u32 = 0o2000;
const DSYNC: u32 = 0o10000;
const DIRECT: u32 = 0o40000;
const DIRECTORY: u32 = 0o200000;
const NOFOLLOW: u32 = 0o400000;

/// Modes of fallocate(2) that both must carry out: none, KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE with and
/// without KEEP_SIZE; and two that are refused everywhere.
const ALLOCATIONS: [u32; 7] = [0, 1, 3, 0x10, 0x11, 2, 0x13];

/// The calls of a seed. `as_root`: root makes some of them for other users.
pub fn steps(seed: u64, count: usize, as_root: bool) -> Vec<Step> {
    let mut choose = Choose {
        rng: Rng::new(seed),
        as_root,
    };
    (0..count).map(|_| choose.step()).collect()
}

struct Choose {
    rng: Rng,
    as_root: bool,
}

impl Choose {
    fn step(&mut self) -> Step {
        let other = self.as_root && self.rng.below(3) == 0;
        let user = match other {
            true => 1 + self.rng.below(USERS.len() as u64 - 1) as usize,
            false => 0,
        };
        let op = match self.rng.below(100) {
            0..45 => self.data(),
            45..75 => self.names(),
            _ => self.attributes(),
        };
        Step { user, op }
    }

    fn data(&mut self) -> Op {
        let slot = self.slot();
        match self.rng.below(100) {
            0..30 => self.open(slot),
            30..33 => Op::Close(slot),
            33..52 => Op::Write(slot, self.at(), self.len(), self.rng.word()),
            52..58 => Op::Append(slot, self.len(), self.rng.word()),
            58..66 => Op::Read(slot, self.at(), self.len()),
            66..71 => Op::Resize(slot, self.size()),
            71..74 => Op::Truncate(self.path(), self.size()),
            74..83 => {
                let mode = *self.pick(&ALLOCATIONS);
                Op::Allocate(slot, mode, self.at(), self.len() as u64)
            }
            83..90 => Op::Copy((slot, self.at()), (self.slot(), self.at()), self.len()),
            90..95 => Op::Map(slot, self.rng.below(32) as usize, self.rng.word()),
            95..98 => Op::Sync(slot),
            _ => Op::End(slot),
        }
    }

    fn names(&mut self) -> Op {
        let path = self.path();
        match self.rng.below(100) {
            0..22 => Op::Mkdir(path, self.mode()),
            22..29 => Op::Rmdir(path),
            29..42 => Op::Unlink(path),
            42..64 => {
                let flags = *self.pick(&[0, 0, 0, 1, 2, 2, 3, 4, 5, 6]);
                Op::Rename(path, self.path(), flags)
            }
            64..72 => Op::Link(path, self.path(), self.flip()),
            72..76 => Op::LinkOpen(self.slot(), path),
            76..86 => {
                let target = match self.rng.below(4) {
                    0 => format!("../{INNER}/{}", self.simple_path()),
                    1 => "t".repeat(*self.pick(&[0, 1, 59, 60, 4095, 4096])),
                    2 => ".".to_owned(),
                    _ => self.simple_path(),
                };
                Op::Symlink(target, path)
            }
            86..90 => Op::Fifo(path, self.mode()),
            90..96 => Op::List(path),
            _ => Op::Readlink(path),
        }
    }

    fn attributes(&mut self) -> Op {
        let path = self.path();
        match self.rng.below(100) {
            0..20 => Op::Chmod(path, self.mode()),
            20..27 => Op::ChmodOpen(self.slot(), self.mode()),
            27..42 => Op::Chown(path, self.id(), self.id(), self.flip()),
            42..54 => Op::Times(path, self.stamp(), self.stamp(), self.flip()),
            54..66 => self.set_xattr(path),
            66..78 => self.set_list(path),
            78..84 => Op::RemoveXattr(path, self.attribute()),
            84..88 => Op::GetXattr(path, self.attribute()),
            88..92 => Op::ListXattr(path),
            92..97 => Op::Access(path, self.rng.below(8) as u32),
            _ => Op::Umask(Octal(*self.pick(&[0, 0o022, 0o022, 0o027, 0o077, 0o777]))),
        }
    }

    fn open(&mut self, slot: usize) -> Op {
        if self.rng.below(12) == 0 {
            return self.open_nameless(slot);
        }
        let mut flags = *self.pick(&[RDONLY, WRONLY, RDWR, RDWR, RDWR]);
        let more = [
            (CREAT, 60),
            (EXCL, 12),
            (TRUNC, 12),
            (APPEND, 12),
            (DSYNC, 3),
            (DIRECT, 10),
            (DIRECTORY, 4),
            (NOFOLLOW, 8),
        ];
        for (flag, percent) in more {
            if self.rng.below(100) < percent {
                flags |= flag;
            }
        }
        // Appending through O_DIRECT must end on a block's edge on ext4, and need not here.
        if flags & (DIRECT | APPEND) == DIRECT | APPEND {
            flags &= !DIRECT;
        }
        Op::Open(slot, self.path(), Octal(flags), self.mode())
    }

    /// Mostly where it may be made.
    fn open_nameless(&mut self, slot: usize) -> Op {
        let flags = TMPFILE | *self.pick(&[WRONLY, RDWR, RDWR, RDWR, RDONLY]);
        let more = *self.pick(&[0, 0, 0, EXCL, APPEND]);
        let path = match self.flip() {
            true => ".".to_owned(),
            false => self.path(),
        };
        Op::Open(slot, path, Octal(flags | more), self.mode())
    }

    fn set_xattr(&mut self, path: String) -> Op {
        let name = self.attribute();
        let len = *self.pick(&[0, 1, 20, 200]);
        let value = match name.as_str() {
            "security.capability" => capability(),
            _ => self.rng.bytes(len),
        };
        Op::SetXattr(path, name, Blob(value), *self.pick(&[0, 0, 0, 1, 2]))
    }

    /// An access control list: sometimes one that says no more than mode bits, or a malformed one.
    fn set_list(&mut self, path: String) -> Op {
        let kind = *self.pick(&["access", "access", "default"]);
        let perm = |rng: &mut Rng| rng.below(8) as u16;
        let rng = &mut self.rng;
        let mut entries = vec![(1u16, perm(rng), u32::MAX)];
        let named = rng.below(4);
        if named > 0 {
            entries.push((2, perm(rng), 1501));
        }
        entries.push((4, perm(rng), u32::MAX));
        if named > 1 {
            entries.push((8, perm(rng), 1502));
        }
        if named > 0 && rng.below(12) != 0 {
            entries.push((16, perm(rng), u32::MAX));
        }
        entries.push((32, perm(rng), u32::MAX));
        let mut value = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            value.extend(tag.to_le_bytes());
            value.extend(perm.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        if self.rng.below(25) == 0 {
            value.truncate(4);
        }
        Op::SetXattr(path, format!("system.posix_acl_{kind}"), Blob(value), 0)
    }

    fn attribute(&mut self) -> String {
        let names = [
            "user.a",
            "user.a",
            "user.b",
            "trusted.t",
            "security.capability",
            "security.other",
            "system.posix_acl_access",
            "system.posix_acl_default",
            "system.other",
            "other",
            "user.",
        ];
        (*self.pick(&names)).to_owned()
    }

    /// Few names, so that calls meet; one to three deep, with the spellings that paths allow.
    fn path(&mut self) -> String {
        match self.rng.below(60) {
            0 => return String::new(),
            1 => return ".".to_owned(),
            2 => return "n".repeat(*self.pick(&[255, 256])),
            _ => {}
        }
        let path = self.simple_path();
        match self.rng.below(40) {
            0 => format!("{path}/"),
            1 => format!("{path}/."),
            2 => format!("{path}/.."),
            3 => format!("./{path}"),
            _ => path,
        }
    }

    /// A path that leads nowhere but down, unless a symbolic link is on the way.
    fn simple_path(&mut self) -> String {
        let depth = *self.pick(&[1, 1, 1, 2, 2, 3]);
        let names: Vec<&str> = (0..depth)
            .map(|_| *self.pick(&["a", "b", "c", "d"]))
            .collect();
        names.join("/")
    }

    fn mode(&mut self) -> Octal {
        let modes = [
            0o644, 0o644, 0o666, 0o755, 0o777, 0o777, 0o700, 0o600, 0o000, 0o4755, 0o2755, 0o6777,
            0o2644, 0o1777, 0o2777, 0o2770, 0o4711,
        ];
        Octal(*self.pick(&modes))
    }

    fn id(&mut self) -> Option<u32> {
        *self.pick(&[None, Some(0), Some(1501), Some(1502), Some(1501)])
    }

    /// Moments long ago, so that they are told apart from those that a clock gave.
    fn stamp(&mut self) -> Stamp {
        match self.rng.below(8) {
            0 => Stamp::Now,
            1 | 2 => Stamp::Omit,
            3 => Stamp::At(-1, 999_999_999),
            _ => Stamp::At(
                self.rng.below(1_000_000_000) as i64,
                self.rng.below(1_000_000_000) as i64,
            ),
        }
    }

    /// Offsets: anywhere, or on or beside a block's edge; rarely very far.
    fn at(&mut self) -> u64 {
        match self.rng.below(40) {
            0 => 8 << 40,
            1 => (16 << 40) - PAGE,
            2 => (16 << 40) - PAGE - self.rng.below(PAGE),
            3..16 => self.rng.below(BYTES),
            16..30 => self.rng.below(BYTES / PAGE) * PAGE,
            _ => (self.rng.below(BYTES / PAGE) * PAGE + self.rng.below(5)).saturating_sub(2),
        }
    }

    fn len(&mut self) -> usize {
        let len = match self.rng.below(10) {
            0 => 0,
            1..4 => self.rng.below(100),
            4..7 => self.rng.below(3 * PAGE),
            7 | 8 => (1 + self.rng.below(6)) * PAGE,
            _ => self.rng.below(12 * PAGE),
        };
        len as usize
    }

    fn size(&mut self) -> u64 {
        match self.rng.below(6) {
            0 => 0,
            _ => self.at(),
        }
    }

    fn slot(&mut self) -> usize {
        self.rng.below(SLOTS as u64) as usize
    }

    fn flip(&mut self) -> bool {
        self.rng.below(2) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.rng.below(from.len() as u64) as usize]
    }
}

/// Capabilities as setcap(8) writes them (linux/capability.h): revision 2, CAP_NET_BIND_SERVICE.
fn capability() -> Vec<u8> {
    let words: [u32; 5] = [0x0200_0001, 1 << 10, 0, 0, 0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_calls() {
        assert_eq!(steps(3, 50, true), steps(3, 50, true));
        assert_ne!(steps(3, 50, true), steps(4, 50, true));
        assert!(steps(3, 500, false).iter().all(|step| step.user == 0));
        let others = steps(3, 500, true).iter().filter(|s| s.user > 0).count();
        assert!((50..350).contains(&others));
    }
}
