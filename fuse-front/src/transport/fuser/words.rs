//! Headers, times, types and attributes, which the crate says in words of its own.

use crate::wire::Header;
use ::fuser::{FileAttr, FileType, INodeNo, Request, TimeOrNow};
use engine::types::{Attr, Kind, NodeId, SetTime, Time};
use std::time::{Duration, SystemTime};

/// `st_blksize`, as our own answers have it.
const BLOCK_BYTES: u32 = 4096;

const SECOND_NANOS: u32 = 1_000_000_000;

/// What every request begins with.
pub(super) fn header(from: &Request, code: u32, node: INodeNo) -> Header {
    Header {
        opcode: code,
        unique: from.unique().0,
        node: NodeId(node.0),
        uid: from.uid(),
        gid: from.gid(),
        pid: from.pid(),
    }
}

/// A time as the crate gives it.
pub(super) fn time(at: SystemTime) -> Time {
    match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Time {
            sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nsec: since.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            let whole = 0i64.saturating_sub_unsigned(before.as_secs());
            match before.subsec_nanos() {
                0 => Time {
                    sec: whole,
                    nsec: 0,
                },
                part => Time {
                    sec: whole.saturating_sub(1),
                    nsec: SECOND_NANOS - part,
                },
            }
        }
    }
}

/// A time that is to be set.
pub(super) fn set_time(at: TimeOrNow) -> SetTime {
    match at {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(at) => SetTime::At(self::time(at)),
    }
}

/// A time as the crate wants it. Every time of the engine's is one of the system's.
fn moment(time: Time) -> SystemTime {
    let whole = Duration::from_secs(time.sec.unsigned_abs());
    let begin = match time.sec < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(whole),
        false => SystemTime::UNIX_EPOCH.checked_add(whole),
    };
    let part = Duration::from_nanos(u64::from(time.nsec));
    begin
        .and_then(|begin| begin.checked_add(part))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The type of an inode.
pub(super) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::Char => FileType::CharDevice,
        Kind::Block => FileType::BlockDevice,
    }
}

/// Attributes. The crate has one number for an inode's address and for what `stat` shows, so that is its address.
pub(super) fn attributes(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.node.0),
        size: attr.size,
        blocks: attr.blocks,
        atime: moment(attr.atime),
        mtime: moment(attr.mtime),
        ctime: moment(attr.ctime),
        crtime: SystemTime::UNIX_EPOCH,
        kind: file_type(attr.kind),
        perm: attr.perm,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_the_same_there_and_back() {
        for (sec, nsec) in [
            (0, 0),
            (0, 1),
            (-1, 999_999_999),
            (-2, 0),
            (i64::MAX, 999_999_999),
            (i64::MIN, 0),
            (i64::MIN, 1),
        ] {
            let at = Time { sec, nsec };
            assert_eq!(time(moment(at)), at);
        }
    }
}
