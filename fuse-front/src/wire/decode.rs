//! Bytes that the kernel sends, as requests.

use super::abi::{self, OPEN_KILL_SUIDGID, fattr, init, opcode, open};
use super::flags;
use super::reader::Reader;
use super::request::{Forgets, Header, Incoming, Layout, Offer, Request};
use engine::types::{SETXATTR_KILL_SGID, SetAttr, SetTime, Time};
use rustix::io::Errno;

/// Nanoseconds of a second.
const SECOND_NANOS: u32 = 1_000_000_000;

/// Decodes what was read from the device in one piece. `None` where it does not even have a header, so
/// that nobody can be answered. Where its length is not the one that it names, the request is an error.
pub fn decode(bytes: &[u8], layout: Layout) -> Option<Incoming<'_>> {
    let mut reader = Reader(bytes);
    let (len, header, extensions) = decode_header(&mut reader).ok()?;
    // Extensions come last. None is asked for, so none is looked at.
    let body = reader.0.len().checked_sub(extensions);
    let body = body.filter(|_| len == bytes.len());
    let request = match body {
        Some(len) => request(&header, &mut Reader(&reader.0[..len]), layout),
        None => Err(Errno::IO),
    };
    Some(Incoming { header, request })
}

/// The length that the message names, its header, and how many bytes of extensions it has.
fn decode_header(reader: &mut Reader<'_>) -> Result<(usize, Header, usize), Errno> {
    let len = reader.u32()? as usize;
    let header = Header {
        opcode: reader.u32()?,
        unique: reader.u64()?,
        node: reader.node()?,
        uid: reader.u32()?,
        gid: reader.u32()?,
        pid: reader.u32()?,
    };
    let extensions = usize::from(reader.u16()?) * 8;
    reader.skip::<2>()?;
    Ok((len, header, extensions))
}

fn request<'a>(
    header: &Header,
    body: &mut Reader<'a>,
    layout: Layout,
) -> Result<Request<'a>, Errno> {
    Ok(match header.opcode {
        opcode::INIT => Request::Init(offer(body)?),
        opcode::DESTROY => Request::Destroy,
        opcode::INTERRUPT => Request::Interrupt {
            unique: body.u64()?,
        },
        opcode::NOTIFY_REPLY => Request::NotifyReply,
        opcode::LOOKUP => Request::Lookup { name: body.name()? },
        opcode::FORGET => Request::Forget {
            lookups: body.u64()?,
        },
        opcode::BATCH_FORGET => Request::BatchForget(forgets(body)?),
        opcode::GETATTR => Request::Getattr,
        opcode::SETATTR => setattr(body)?,
        opcode::READLINK => Request::Readlink,
        opcode::SYMLINK => Request::Symlink {
            name: body.name()?,
            target: body.text()?,
        },
        opcode::MKNOD => mknod(body)?,
        opcode::MKDIR => {
            let (perm, umask) = (flags::permissions(body.u32()?), body.u32()?);
            let name = body.name()?;
            Request::Mkdir { name, perm, umask }
        }
        opcode::UNLINK => Request::Unlink { name: body.name()? },
        opcode::RMDIR => Request::Rmdir { name: body.name()? },
        opcode::RENAME | opcode::RENAME2 => rename(header, body)?,
        opcode::LINK => Request::Link {
            node: body.node()?,
            name: body.name()?,
        },
        opcode::OPEN => Request::Open {
            how: flags::opening(body.u32()?),
        },
        opcode::OPENDIR => Request::Opendir,
        opcode::READ => read(body)?,
        opcode::WRITE => write(header, body)?,
        opcode::FLUSH => Request::Flush,
        opcode::RELEASE => Request::Release,
        opcode::RELEASEDIR => Request::Releasedir,
        opcode::FSYNC => Request::Fsync,
        opcode::FSYNCDIR => Request::Fsyncdir,
        opcode::STATFS => Request::Statfs,
        opcode::SETXATTR => setxattr(body, layout)?,
        opcode::GETXATTR => {
            let size = body.u32()?;
            body.skip::<4>()?;
            let name = body.text()?;
            Request::Getxattr { name, size }
        }
        opcode::LISTXATTR => Request::Listxattr { size: body.u32()? },
        opcode::REMOVEXATTR => Request::Removexattr { name: body.text()? },
        opcode::READDIR => {
            let (cookie, size) = listing(body)?;
            Request::Readdir { cookie, size }
        }
        opcode::READDIRPLUS => {
            let (cookie, size) = listing(body)?;
            Request::Readdirplus { cookie, size }
        }
        opcode::GETLK | opcode::SETLK | opcode::SETLKW => Request::Lock,
        opcode::ACCESS => Request::Access,
        opcode::CREATE => create(body)?,
        opcode::TMPFILE => tmpfile(body)?,
        opcode::BMAP => Request::Bmap,
        opcode::IOCTL => Request::Ioctl,
        opcode::POLL => Request::Poll,
        opcode::FALLOCATE => fallocate(body)?,
        opcode::LSEEK => lseek(body)?,
        opcode::COPY_FILE_RANGE => copy_file_range(body, false)?,
        opcode::COPY_FILE_RANGE_64 => copy_file_range(body, true)?,
        _ => return Err(Errno::NOSYS),
    })
}

fn offer(body: &mut Reader<'_>) -> Result<Offer, Errno> {
    let (major, minor) = (body.u32()?, body.u32()?);
    let (max_readahead, low) = (body.u32()?, u64::from(body.u32()?));
    let high = match low & init::INIT_EXT {
        0 => 0,
        _ => u64::from(body.u32()?),
    };
    Ok(Offer {
        major,
        minor,
        max_readahead,
        flags: low | high << 32,
    })
}

fn forgets<'a>(body: &mut Reader<'a>) -> Result<Forgets<'a>, Errno> {
    let count = body.u32()? as usize;
    body.skip::<4>()?;
    let (all, _) = body.0.as_chunks::<16>();
    all.get(..count).map(Forgets).ok_or(Errno::IO)
}

/// The fields of a SETATTR, in the order in which they are sent.
fn setattr(body: &mut Reader<'_>) -> Result<Request<'static>, Errno> {
    let valid = body.u32()?;
    body.skip::<12>()?;
    let size = body.u64()?;
    body.skip::<8>()?;
    let seconds = [body.u64()?, body.u64()?, body.u64()?];
    let nanos = [body.u32()?, body.u32()?, body.u32()?];
    let mode = body.u32()?;
    body.skip::<4>()?;
    let (uid, gid) = (body.u32()?, body.u32()?);
    body.skip::<4>()?;
    let has = |bit: u32| valid & bit != 0;
    let [atime, mtime, ctime] = [0, 1, 2].map(|i| Time {
        sec: seconds[i] as i64,
        nsec: nanos[i],
    });
    let counts = [fattr::ATIME, fattr::MTIME, fattr::CTIME];
    if (counts.iter().zip(nanos)).any(|(bit, nanos)| has(*bit) && nanos >= SECOND_NANOS) {
        return Err(Errno::INVAL);
    }
    let time = |set: u32, now: u32, at: Time| match (has(set), has(now)) {
        (false, _) => None,
        (true, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(at)),
    };
    let set = SetAttr {
        perm: has(fattr::MODE).then_some(flags::permissions(mode)),
        uid: has(fattr::UID).then_some(uid),
        gid: has(fattr::GID).then_some(gid),
        size: has(fattr::SIZE).then_some(size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, atime),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, mtime),
        ctime: has(fattr::CTIME).then_some(ctime),
        kill_suidgid: has(fattr::KILL_SUIDGID),
        by_path: !has(fattr::FH),
    };
    Ok(Request::Setattr { set })
}

fn mknod<'a>(body: &mut Reader<'a>) -> Result<Request<'a>, Errno> {
    let (mode, rdev, umask) = (body.u32()?, body.u32()?, body.u32()?);
    body.skip::<4>()?;
    Ok(Request::Mknod {
        name: body.name()?,
        mode,
        rdev,
        umask,
    })
}

fn rename<'a>(header: &Header, body: &mut Reader<'a>) -> Result<Request<'a>, Errno> {
    let new_parent = body.node()?;
    let mut flags = 0;
    if header.opcode == opcode::RENAME2 {
        flags = body.u32()?;
        body.skip::<4>()?;
    }
    let (name, new_name) = (body.name()?, body.name()?);
    Ok(Request::Rename {
        name,
        new_parent,
        new_name,
        // The umask takes nothing away: a whiteout has no permissions.
        flags: flags::rename(flags, header.caller(0))?,
    })
}

/// What READ, READDIR and READDIRPLUS have in common: where, how much, and flags of the descriptor.
fn range(body: &mut Reader<'_>) -> Result<(u64, u32, u32), Errno> {
    body.skip::<8>()?;
    let (offset, size) = (body.u64()?, body.u32()?);
    body.skip::<12>()?;
    let flags = body.u32()?;
    body.skip::<4>()?;
    Ok((offset, size, flags))
}

fn listing(body: &mut Reader<'_>) -> Result<(u64, u32), Errno> {
    range(body).map(|(cookie, size, _)| (cookie, size))
}

fn read(body: &mut Reader<'_>) -> Result<Request<'static>, Errno> {
    let (offset, size, flags) = range(body)?;
    let noatime = flags & open::NOATIME != 0;
    Ok(Request::Read {
        offset: flags::position(offset)?,
        size,
        noatime,
    })
}

fn write<'a>(header: &Header, body: &mut Reader<'a>) -> Result<Request<'a>, Errno> {
    body.skip::<8>()?;
    let (offset, size, flags) = (body.position()?, body.u32()?, body.u32()?);
    body.skip::<8>()?;
    let descriptor = body.u32()?;
    body.skip::<4>()?;
    let data = body.bytes(size)?;
    Ok(Request::Write {
        offset,
        data,
        flags: flags::write(flags, descriptor, header.pid),
    })
}

fn setxattr<'a>(body: &mut Reader<'a>, layout: Layout) -> Result<Request<'a>, Errno> {
    let (size, mut flags) = (body.u32()?, flags::setxattr(body.u32()?)?);
    if layout.long_setxattr {
        if body.u32()? & abi::SETXATTR_ACL_KILL_SGID != 0 {
            flags |= SETXATTR_KILL_SGID;
        }
        body.skip::<4>()?;
    }
    Ok(Request::Setxattr {
        name: body.text()?,
        value: body.bytes(size)?,
        flags,
    })
}

fn create<'a>(body: &mut Reader<'a>) -> Result<Request<'a>, Errno> {
    let (flags, mode, umask, how) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
    Ok(Request::Create {
        name: body.name()?,
        perm: flags::permissions(mode),
        umask,
        exclusive: flags & open::EXCL != 0,
        truncate: flags & open::TRUNC != 0,
        kill_suidgid: how & OPEN_KILL_SUIDGID != 0,
    })
}

/// Laid out as CREATE; what stands for the name is none.
fn tmpfile(body: &mut Reader<'_>) -> Result<Request<'static>, Errno> {
    body.skip::<4>()?;
    let (mode, umask) = (body.u32()?, body.u32()?);
    body.skip::<4>()?;
    let perm = flags::permissions(mode);
    Ok(Request::Tmpfile { perm, umask })
}

fn fallocate(body: &mut Reader<'_>) -> Result<Request<'static>, Errno> {
    body.skip::<8>()?;
    let (offset, len, mode) = (body.position()?, body.position()?, body.u32()?);
    Ok(Request::Fallocate {
        offset,
        len,
        mode: flags::fallocate(mode)?,
    })
}

fn lseek(body: &mut Reader<'_>) -> Result<Request<'static>, Errno> {
    body.skip::<8>()?;
    let offset = body.position()?;
    let whence = flags::whence(body.u32()?)?;
    Ok(Request::Lseek { offset, whence })
}

fn copy_file_range(body: &mut Reader<'_>, wide: bool) -> Result<Request<'static>, Errno> {
    body.skip::<8>()?;
    let (offset, to) = (body.position()?, body.node()?);
    body.skip::<8>()?;
    let (to_offset, len) = (body.position()?, body.u64()?);
    body.skip::<8>()?;
    Ok(Request::CopyFileRange {
        offset,
        to,
        to_offset,
        len,
        wide,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::types::{Caller, Fallocate, NodeId, RenameFlags, Seek, WriteFlags};
    use proptest::prelude::*;

    /// A message of the given opcode for inode 7, with extensions of `extensions` bytes at its end.
    fn message(opcode: u32, body: &[u8], extensions: u16) -> Vec<u8> {
        let len = (abi::IN_HEADER_BYTES + body.len()) as u32;
        let mut bytes = Vec::new();
        for word in [len, opcode] {
            bytes.extend(word.to_ne_bytes());
        }
        for long in [11u64, 7] {
            bytes.extend(long.to_ne_bytes());
        }
        for word in [1000u32, 100, 4321] {
            bytes.extend(word.to_ne_bytes());
        }
        for half in [extensions / 8, 0] {
            bytes.extend(half.to_ne_bytes());
        }
        bytes.extend(body);
        bytes
    }

    fn longs(values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|n| n.to_ne_bytes()).collect()
    }

    fn words(values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|n| n.to_ne_bytes()).collect()
    }

    /// What a body of such parts is decoded to.
    #[track_caller]
    fn expect(opcode: u32, parts: &[Vec<u8>], wanted: Result<Request<'_>, Errno>) {
        let bytes = message(opcode, &parts.concat(), 0);
        let found = decode(&bytes, Layout::default()).unwrap();
        assert_eq!(found.request, wanted);
    }

    #[test]
    fn the_header_says_who_asks() {
        let bytes = message(opcode::GETATTR, &longs(&[0, 0]), 0);
        let found = decode(&bytes, Layout::default()).unwrap();
        let header = Header {
            opcode: 3,
            unique: 11,
            node: NodeId(7),
            uid: 1000,
            gid: 100,
            pid: 4321,
        };
        assert_eq!(
            (found.header, found.request),
            (header, Ok(Request::Getattr))
        );
        let caller = Caller {
            uid: 1000,
            gid: 100,
            pid: 4321,
            umask: 0o22,
        };
        assert_eq!(header.caller(0o22), caller);
    }

    #[test]
    fn names_end_with_nul_and_are_names() {
        let name = |text: &[u8]| vec![text.to_vec()];
        let lookup = |name| Ok(Request::Lookup { name });
        expect(opcode::LOOKUP, &name(b"a b\0"), lookup(b"a b"));
        for bad in [&b"abc"[..], b"", b"\0", b"a/b\0"] {
            expect(opcode::LOOKUP, &name(bad), Err(Errno::IO));
        }
        let both = name(b"link\0../to/it\0");
        let (name, target) = (&b"link"[..], &b"../to/it"[..]);
        expect(
            opcode::SYMLINK,
            &both,
            Ok(Request::Symlink { name, target }),
        );
    }

    #[test]
    fn renames_have_two_layouts() {
        let rename = |flags| {
            Ok(Request::Rename {
                name: b"old",
                new_parent: NodeId(9),
                new_name: b"new",
                flags,
            })
        };
        let names = b"old\0new\0".to_vec();
        let plain = [longs(&[9]), names.clone()];
        expect(opcode::RENAME, &plain, rename(RenameFlags::default()));
        let with = |flags| [longs(&[9]), words(&[flags, 0]), names.clone()];
        let exchange = RenameFlags {
            exchange: true,
            ..RenameFlags::default()
        };
        expect(opcode::RENAME2, &with(2), rename(exchange));
        let whiteout = RenameFlags {
            noreplace: true,
            whiteout: Some(Caller {
                uid: 1000,
                gid: 100,
                pid: 4321,
                umask: 0,
            }),
            ..RenameFlags::default()
        };
        expect(opcode::RENAME2, &with(5), rename(whiteout));
        expect(opcode::RENAME2, &with(8), Err(Errno::INVAL));
    }

    #[test]
    fn a_write_has_its_data() {
        let fields = |len, size| {
            let flags = words(&[size, 5, 0, 0, open::APPEND, 0]);
            [longs(&[0, 4096]), flags, vec![b'x'; len]]
        };
        let flags = WriteFlags {
            from_cache: true,
            kill_suidgid: true,
            append: true,
            thread: 4321,
        };
        let (offset, data) = (4096, &b"xxx"[..]);
        let write = Request::Write {
            offset,
            data,
            flags,
        };
        expect(opcode::WRITE, &fields(3, 3), Ok(write));
        expect(opcode::WRITE, &fields(3, 4), Err(Errno::IO));
        let far = [longs(&[0, 1 << 63]), words(&[0; 6])];
        expect(opcode::WRITE, &far, Err(Errno::INVAL));
    }

    #[test]
    fn reads_and_listings_share_a_layout() {
        let fields = [longs(&[0, 77]), words(&[4096, 0, 0, 0, open::NOATIME, 0])];
        let read = Request::Read {
            offset: 77,
            size: 4096,
            noatime: true,
        };
        expect(opcode::READ, &fields, Ok(read));
        let (cookie, size) = (77, 4096);
        expect(
            opcode::READDIR,
            &fields,
            Ok(Request::Readdir { cookie, size }),
        );
        let plus = Request::Readdirplus { cookie, size };
        expect(opcode::READDIRPLUS, &fields, Ok(plus));
    }

    #[test]
    fn setattr_has_the_fields_that_are_marked() {
        let fields = |valid: u32, nsec: u32| {
            [
                words(&[valid, 0]),
                longs(&[0, 55, 0, u64::MAX, 2, i64::MIN as u64]),
                words(&[nsec, 3, 4, 0o104755, 0, 1001, 101, 0]),
            ]
        };
        let at = |sec, nsec| Time { sec, nsec };
        let all = SetAttr {
            perm: Some(0o4755),
            uid: Some(1001),
            gid: Some(101),
            size: Some(55),
            atime: Some(SetTime::At(at(-1, 5))),
            mtime: Some(SetTime::Now),
            ctime: Some(at(i64::MIN, 4)),
            kill_suidgid: true,
            by_path: false,
        };
        let setattr = |set| Ok(Request::Setattr { set });
        let every = 0b1101_0111_1111;
        expect(opcode::SETATTR, &fields(every, 5), setattr(all));
        let none = SetAttr {
            by_path: true,
            ..SetAttr::default()
        };
        expect(opcode::SETATTR, &fields(0, u32::MAX), setattr(none));
        expect(opcode::SETATTR, &fields(16, u32::MAX), Err(Errno::INVAL));
    }

    #[test]
    fn setxattr_is_longer_where_that_was_agreed_on() {
        let bytes = |more: &[u32]| {
            let parts = [words(&[3, 1]), words(more), b"user.a\0xyz".to_vec()];
            message(opcode::SETXATTR, &parts.concat(), 0)
        };
        let wanted = |kill: u32| Request::Setxattr {
            name: b"user.a",
            value: b"xyz",
            flags: 1 | kill,
        };
        let kill = SETXATTR_KILL_SGID;
        for (long_setxattr, more, kill) in [(false, &[][..], 0), (true, &[1, 0], kill)] {
            let bytes = bytes(more);
            let found = decode(&bytes, Layout { long_setxattr }).unwrap();
            assert_eq!(found.request, Ok(wanted(kill)));
        }
    }

    #[test]
    fn the_rest_is_as_the_kernel_lays_it_out() {
        let create = Request::Create {
            name: b"new",
            perm: 0o2644,
            umask: 0o22,
            exclusive: true,
            truncate: false,
            kill_suidgid: false,
        };
        let fields = [words(&[0o301, 0o102644, 0o22, 0]), b"new\0".to_vec()];
        expect(opcode::CREATE, &fields, Ok(create));
        let truncate = Request::Create {
            name: b"new",
            perm: 0o644,
            umask: 0,
            exclusive: false,
            truncate: true,
            kill_suidgid: true,
        };
        let fields = [words(&[0o1101, 0o100644, 0, 1]), b"new\0".to_vec()];
        expect(opcode::CREATE, &fields, Ok(truncate));
        let (perm, umask) = (0o600, 0o22);
        let fields = [words(&[0o20200002, 0o100600, 0o22, 0]), b"/\0".to_vec()];
        let nameless = Request::Tmpfile { perm, umask };
        expect(opcode::TMPFILE, &fields, Ok(nameless));
        let node = Request::Mknod {
            name: b"p",
            mode: 0o10600,
            rdev: 5,
            umask: 2,
        };
        let fields = [words(&[0o10600, 5, 2, 0]), b"p\0".to_vec()];
        expect(opcode::MKNOD, &fields, Ok(node));
        let allocate = |mode| [longs(&[0, 4, 8]), words(&[mode, 0])];
        let zero = Request::Fallocate {
            offset: 4,
            len: 8,
            mode: Fallocate::ZeroRange { keep_size: true },
        };
        expect(opcode::FALLOCATE, &allocate(0x11), Ok(zero));
        expect(opcode::FALLOCATE, &allocate(8), Err(Errno::OPNOTSUPP));
        let seek = |whence| [longs(&[0, 4]), words(&[whence, 0])];
        let (offset, whence) = (4, Seek::Hole);
        expect(
            opcode::LSEEK,
            &seek(4),
            Ok(Request::Lseek { offset, whence }),
        );
        expect(opcode::LSEEK, &seek(0), Err(Errno::INVAL));
        let copy = |wide| Request::CopyFileRange {
            offset: 1,
            to: NodeId(2),
            to_offset: 3,
            len: u64::MAX,
            wide,
        };
        let fields = [longs(&[0, 1, 2, 0, 3, u64::MAX, 0])];
        expect(opcode::COPY_FILE_RANGE, &fields, Ok(copy(false)));
        expect(opcode::COPY_FILE_RANGE_64, &fields, Ok(copy(true)));
        expect(777, &[vec![]], Err(Errno::NOSYS));
    }

    #[test]
    fn what_is_forgotten_is_listed() {
        let bytes = message(
            opcode::BATCH_FORGET,
            &[words(&[2, 0]), longs(&[5, 1, 6, 3])].concat(),
            0,
        );
        let found = decode(&bytes, Layout::default()).unwrap();
        assert!(!found.header.is_answered());
        let Ok(Request::BatchForget(forgets)) = found.request else {
            panic!("{found:?}");
        };
        let all: Vec<_> = forgets.iter().collect();
        assert_eq!(all, [(NodeId(5), 1), (NodeId(6), 3)]);
        // More than there are.
        let body = [words(&[3, 0]), longs(&[5, 1, 6, 3])];
        expect(opcode::BATCH_FORGET, &body, Err(Errno::IO));
    }

    #[test]
    fn an_offer_has_a_second_word_where_it_says_so() {
        let offer = |flags| {
            Ok(Request::Init(Offer {
                major: 7,
                minor: 45,
                max_readahead: 131_072,
                flags,
            }))
        };
        let old = [words(&[7, 45, 131_072, 1])];
        expect(opcode::INIT, &old, offer(1));
        let new = [words(&[7, 45, 131_072, 1 | 1 << 30, 4]), vec![0; 44]];
        expect(opcode::INIT, &new, offer(4 << 32 | 1 << 30 | 1));
    }

    #[test]
    fn extensions_are_left_out() {
        let lookup = message(opcode::LOOKUP, b"name\0\0\0\0extended", 8);
        let found = decode(&lookup, Layout::default()).unwrap();
        assert_eq!(found.request, Ok(Request::Lookup { name: b"name" }));
        let longer_than_all = message(opcode::LOOKUP, b"name\0", 16);
        let found = decode(&longer_than_all, Layout::default()).unwrap();
        assert_eq!(found.request, Err(Errno::IO));
    }

    #[test]
    fn without_a_header_nobody_is_answered() {
        let bytes = message(opcode::GETATTR, b"", 0);
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut], Layout::default()), None);
        }
        let longer = [bytes, vec![0]].concat();
        let found = decode(&longer, Layout::default()).unwrap();
        assert_eq!((found.header.unique, found.request), (11, Err(Errno::IO)));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_request_or_an_errno(
            opcode in 0u32..60,
            body in proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..200),
            extensions in prop_oneof![Just(0u16), any::<u16>()],
            long_setxattr: bool,
        ) {
            let bytes = message(opcode, &body, extensions);
            let found = decode(&bytes, Layout { long_setxattr }).unwrap();
            prop_assert_eq!(found.header.opcode, opcode);
            match found.request {
                Ok(Request::Lookup { name } | Request::Create { name, .. }) => {
                    prop_assert!(!name.is_empty() && !name.contains(&0) && !name.contains(&b'/'));
                }
                Ok(Request::Write { data, .. }) => prop_assert!(data.len() < body.len()),
                _ => {}
            }
        }

        #[test]
        fn any_bytes_at_all_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let found = decode(&bytes, Layout::default());
            prop_assert_eq!(found.is_some(), bytes.len() >= abi::IN_HEADER_BYTES);
            let whole = bytes.get(..4) == Some(&(bytes.len() as u32).to_ne_bytes());
            let is_request = found.is_some_and(|found| found.request.is_ok());
            prop_assert!(whole || !is_request);
        }
    }
}
