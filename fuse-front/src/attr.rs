//! Attributes between the engine's form and FUSE's.

use engine::types::{Attr, Kind, NodeId, SetTime, Time};
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `st_blksize`: what programs take as a good size to read and write in.
const BLOCK_BYTES: u32 = 4096;

/// The node that a request names.
pub(crate) fn node(ino: INodeNo) -> NodeId {
    NodeId(ino.0)
}

/// The node's number as the kernel addresses it.
pub(crate) fn nodeid(node: NodeId) -> INodeNo {
    INodeNo(node.0)
}

/// Attributes as FUSE wants them; the inode number is what `stat` shows, not the node's address.
pub(crate) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: UNIX_EPOCH,
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

/// Attributes of an inode about which nothing more is to be said.
pub(crate) fn blank_attr(ino: INodeNo, kind: FileType) -> FileAttr {
    FileAttr {
        ino,
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// Type as FUSE names it.
pub(crate) fn file_type(kind: Kind) -> FileType {
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

/// A moment for FUSE; one that the system cannot represent becomes the epoch.
fn system_time(time: Time) -> SystemTime {
    let whole = Duration::from_secs(time.sec.unsigned_abs());
    let second = if time.sec < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    second
        .and_then(|t| t.checked_add(Duration::from_nanos(time.nsec.into())))
        .unwrap_or(UNIX_EPOCH)
}

/// A moment for the engine; nanoseconds count forwards also before 1970.
pub(crate) fn engine_time(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Time {
            sec: seconds(after),
            nsec: after.subsec_nanos(),
        },
        Err(error) => before_epoch(error.duration()),
    }
}

fn before_epoch(before: Duration) -> Time {
    match before.subsec_nanos() {
        0 => Time {
            sec: 0i64.saturating_sub_unsigned(before.as_secs()),
            nsec: 0,
        },
        nanos => Time {
            sec: (-1i64).saturating_sub_unsigned(before.as_secs()),
            nsec: 1_000_000_000 - nanos,
        },
    }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

/// A time to set.
pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(at) => SetTime::At(engine_time(at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_there_and_back() {
        for (sec, nsec) in [
            (0, 0),
            (1_700_000_000, 999_999_999),
            (-1, 0),
            (-2, 800_000_000),
            (i64::MIN, 1),
        ] {
            let time = Time { sec, nsec };
            assert_eq!(engine_time(system_time(time)), time);
        }
    }

    #[test]
    fn attributes_show_the_inode_number_not_the_address() {
        let time = Time { sec: 1, nsec: 2 };
        let attr = Attr {
            node: NodeId(7),
            ino: 99,
            kind: Kind::Dir,
            perm: 0o1755,
            nlink: 3,
            uid: 1,
            gid: 2,
            rdev: 0,
            size: 5,
            blocks: 6,
            atime: time,
            mtime: time,
            ctime: time,
        };
        let shown = file_attr(&attr);
        assert_eq!(
            (shown.ino.0, shown.kind, shown.perm),
            (99, FileType::Directory, 0o1755)
        );
        assert_eq!((shown.blksize, shown.nlink, shown.blocks), (4096, 3, 6));
        assert_eq!(nodeid(attr.node), INodeNo(7));
    }
}
