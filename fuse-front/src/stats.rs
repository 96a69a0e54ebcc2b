//! Counts and times of requests, by kind.
//!
//! Never locks: a counter pair per kind, added to with relaxed order, so figures read while requests
//! run may be a request apart from each other.

use crate::wire::abi::opcode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

macro_rules! ops {
    ($($variant:ident $name:literal,)*) => {
        /// Kind of a request.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Op { $($variant,)* }

        /// Names in the order of [`Op`].
        const NAMES: &[&str] = &[$($name,)*];
    };
}

ops! {
    Lookup "lookup",
    Forget "forget",
    Getattr "getattr",
    Setattr "setattr",
    Readlink "readlink",
    Mknod "mknod",
    Mkdir "mkdir",
    Unlink "unlink",
    Rmdir "rmdir",
    Symlink "symlink",
    Rename "rename",
    Link "link",
    Open "open",
    Read "read",
    Write "write",
    Flush "flush",
    Release "release",
    Fsync "fsync",
    Opendir "opendir",
    Readdir "readdir",
    Readdirplus "readdirplus",
    Releasedir "releasedir",
    Fsyncdir "fsyncdir",
    Statfs "statfs",
    Setxattr "setxattr",
    Getxattr "getxattr",
    Listxattr "listxattr",
    Removexattr "removexattr",
    Access "access",
    Create "create",
    Lock "lock",
    Bmap "bmap",
    Ioctl "ioctl",
    Poll "poll",
    Fallocate "fallocate",
    Lseek "lseek",
    CopyFileRange "copy_file_range",
    Tmpfile "tmpfile",
}

impl Op {
    /// The kind of a request by its number; `None` for those that are not counted.
    pub(crate) fn of(code: u32) -> Option<Op> {
        Some(match code {
            opcode::LOOKUP => Op::Lookup,
            opcode::FORGET | opcode::BATCH_FORGET => Op::Forget,
            opcode::GETATTR => Op::Getattr,
            opcode::SETATTR => Op::Setattr,
            opcode::READLINK => Op::Readlink,
            opcode::SYMLINK => Op::Symlink,
            opcode::MKNOD => Op::Mknod,
            opcode::MKDIR => Op::Mkdir,
            opcode::UNLINK => Op::Unlink,
            opcode::RMDIR => Op::Rmdir,
            opcode::RENAME | opcode::RENAME2 => Op::Rename,
            opcode::LINK => Op::Link,
            opcode::OPEN => Op::Open,
            opcode::READ => Op::Read,
            opcode::WRITE => Op::Write,
            opcode::STATFS => Op::Statfs,
            opcode::RELEASE => Op::Release,
            opcode::FSYNC => Op::Fsync,
            opcode::SETXATTR => Op::Setxattr,
            opcode::GETXATTR => Op::Getxattr,
            opcode::LISTXATTR => Op::Listxattr,
            opcode::REMOVEXATTR => Op::Removexattr,
            opcode::FLUSH => Op::Flush,
            opcode::OPENDIR => Op::Opendir,
            opcode::READDIR => Op::Readdir,
            opcode::RELEASEDIR => Op::Releasedir,
            opcode::FSYNCDIR => Op::Fsyncdir,
            opcode::GETLK | opcode::SETLK | opcode::SETLKW => Op::Lock,
            opcode::ACCESS => Op::Access,
            opcode::CREATE => Op::Create,
            opcode::BMAP => Op::Bmap,
            opcode::IOCTL => Op::Ioctl,
            opcode::POLL => Op::Poll,
            opcode::FALLOCATE => Op::Fallocate,
            opcode::READDIRPLUS => Op::Readdirplus,
            opcode::LSEEK => Op::Lseek,
            opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => Op::CopyFileRange,
            opcode::TMPFILE => Op::Tmpfile,
            _ => return None,
        })
    }

    /// Name as it is shown.
    pub(crate) fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

/// Counter pair of one kind.
#[derive(Debug, Default)]
struct Counter {
    count: AtomicU64,
    nanos: AtomicU64,
}

/// Requests that a mount has answered, by kind.
#[derive(Debug)]
pub struct Stats {
    counters: Vec<Counter>,
}

impl Default for Stats {
    fn default() -> Stats {
        Stats {
            counters: NAMES.iter().map(|_| Counter::default()).collect(),
        }
    }
}

impl Stats {
    /// Kinds of request that came at all: name, how many were answered, total nanoseconds from
    /// decoding to answer (waiting for the disk included).
    pub fn snapshot(&self) -> Vec<(&'static str, u64, u64)> {
        let named = NAMES.iter().zip(&self.counters);
        let read = named.map(|(name, c)| (*name, c.count.load(Relaxed), c.nanos.load(Relaxed)));
        read.filter(|(_, count, _)| *count > 0).collect()
    }

    /// Adds one answered request.
    pub(crate) fn add(&self, op: Op, took: Duration) {
        let counter = &self.counters[op as usize];
        counter.count.fetch_add(1, Relaxed);
        counter.nanos.fetch_add(took.as_nanos() as u64, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_shows_what_came() {
        let stats = Stats::default();
        assert!(stats.snapshot().is_empty());
        stats.add(Op::Write, Duration::from_nanos(5));
        stats.add(Op::Write, Duration::from_nanos(6));
        stats.add(Op::CopyFileRange, Duration::ZERO);
        assert_eq!(
            stats.snapshot(),
            vec![("write", 2, 11), ("copy_file_range", 1, 0)]
        );
    }
}
