//! Answers, as bytes for the kernel.
//!
//! An answer is a [`Head`], on the stack, and at most one run of bytes after it. So it goes out in one
//! piece without being copied together.

use super::abi;
use engine::types::{Attr, DirEntry, Kind, NodeId, StatFs};
use std::time::Duration;

/// Longest head: that of a file that was created.
const HEAD_BYTES_MAX: usize = abi::OUT_HEADER_BYTES + abi::ENTRY_BYTES + 16;

/// `st_blksize`: what programs take as a good size to read and write in.
const BLOCK_BYTES: u32 = 4096;

/// The beginning of an answer or notification: header and fixed fields.
#[derive(Clone, Copy)]
pub struct Head {
    bytes: [u8; HEAD_BYTES_MAX],
    len: usize,
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Head").field(&self.fields()).finish()
    }
}

/// A head without fields, which is all that many an answer is.
impl Default for Head {
    fn default() -> Head {
        Head {
            bytes: [0; HEAD_BYTES_MAX],
            len: abi::OUT_HEADER_BYTES,
        }
    }
}

impl Head {
    /// Its bytes, as the answer to request `unique` that has `more` bytes after it. `code` is 0, a negative
    /// errno, or a notification's.
    pub fn finish(&mut self, unique: u64, code: i32, more: usize) -> &[u8] {
        let len = (self.len + more) as u32;
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[4..8].copy_from_slice(&code.to_ne_bytes());
        self.bytes[8..16].copy_from_slice(&unique.to_ne_bytes());
        &self.bytes[..self.len]
    }

    /// What comes after the header.
    pub fn fields(&self) -> &[u8] {
        &self.bytes[abi::OUT_HEADER_BYTES..self.len]
    }

    fn push(mut self, bytes: &[u8]) -> Head {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        self
    }

    pub(super) fn u16(self, value: u16) -> Head {
        self.push(&value.to_ne_bytes())
    }

    pub(super) fn u32(self, value: u32) -> Head {
        self.push(&value.to_ne_bytes())
    }

    pub(super) fn u64(self, value: u64) -> Head {
        self.push(&value.to_ne_bytes())
    }

    /// An inode under the name that was asked for or made. The kernel may keep name and attributes for `keep`.
    pub fn entry(attr: &Attr, keep: Duration) -> Head {
        Head::default().push(&entry(attr.node, attr, keep))
    }

    /// "No such name", which the kernel may keep for `keep`: an inode of number 0.
    pub fn absent(keep: Duration) -> Head {
        Head::default().push(&entry(NodeId(0), &blank(0, Kind::File), keep))
    }

    /// A file that was created and is open from now on, its cached pages kept.
    pub fn created(attr: &Attr, keep: Duration) -> Head {
        Head::entry(attr, keep).open()
    }

    /// A file that is open from now on, its cached pages kept.
    pub fn opened() -> Head {
        Head::default().open()
    }

    /// What OPEN and CREATE say of the descriptor.
    fn open(self) -> Head {
        self.u64(0).u32(abi::FOPEN_KEEP_CACHE).u32(0)
    }

    /// Attributes, which the kernel may keep for `keep`.
    pub fn attr(attr: &Attr, keep: Duration) -> Head {
        Head::default()
            .u64(keep.as_secs())
            .u32(keep.subsec_nanos())
            .u32(0)
            .push(&attributes(attr))
    }

    /// How much was written.
    pub fn written(size: u32) -> Head {
        Head::default().u32(size).u32(0)
    }

    /// How much was copied, in 64 bits.
    pub fn copied(size: u64) -> Head {
        Head::default().u64(size)
    }

    /// Where data or a hole was found.
    pub fn found(offset: u64) -> Head {
        Head::default().u64(offset)
    }

    /// How long an extended attribute, or the list of them, is.
    pub fn length(size: u32) -> Head {
        Head::default().u32(size).u32(0)
    }

    /// Figures of the file system.
    pub fn figures(s: &StatFs) -> Head {
        [s.blocks, s.bfree, s.bavail, s.files, s.ffree]
            .into_iter()
            .fold(Head::default(), Head::u64)
            .u32(s.bsize)
            .u32(s.namelen)
            .u32(s.bsize)
            .push(&[0; 28])
    }

    /// What is settled for the mount.
    pub fn settled(settled: &Settled) -> Head {
        let s = settled;
        Head::version()
            .u32(s.max_readahead)
            .u32(s.flags as u32)
            .u16(s.max_background)
            .u16(s.congestion_threshold)
            .u32(s.max_write)
            // Times are exact to the nanosecond.
            .u32(1)
            .u16(s.max_pages)
            .u16(0)
            .u32((s.flags >> 32) as u32)
            .push(&[0; 28])
    }

    /// The version that is spoken, to a kernel that begins with a newer one.
    pub fn version() -> Head {
        Head::default().u32(abi::MAJOR).u32(abi::MINOR)
    }
}

/// The answer to what the kernel offers when a mount begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settled {
    /// What is used of what the kernel offers ([`abi::init`]).
    pub flags: u64,
    /// Most bytes that it reads ahead.
    pub max_readahead: u32,
    /// Most requests that it sends without a program waiting for them.
    pub max_background: u16,
    /// From how many such requests on it holds back new ones.
    pub congestion_threshold: u16,
    /// Most bytes of a WRITE.
    pub max_write: u32,
    /// Most pages of a request.
    pub max_pages: u16,
}

/// Attributes of an inode about which nothing more is to be said.
pub fn blank(ino: u64, kind: Kind) -> Attr {
    let never = engine::types::Time::default();
    Attr {
        node: NodeId(0),
        ino,
        kind,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: never,
        mtime: never,
        ctime: never,
    }
}

/// Writes fields one after another.
struct Fields<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Fields<N> {
    fn new() -> Fields<N> {
        Fields {
            bytes: [0; N],
            len: 0,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn u32(&mut self, value: u32) {
        self.push(&value.to_ne_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.push(&value.to_ne_bytes());
    }
}

/// Attributes (`fuse_attr`). The inode number is what `stat` shows, not the address of the inode.
fn attributes(attr: &Attr) -> [u8; abi::ATTR_BYTES] {
    let mut fields = Fields::new();
    let times = [attr.atime, attr.mtime, attr.ctime];
    for value in [attr.ino, attr.size, attr.blocks] {
        fields.u64(value);
    }
    for time in times {
        fields.u64(time.sec as u64);
    }
    for time in times {
        fields.u32(time.nsec);
    }
    fields.u32(attr.kind.mode_bits() | u32::from(attr.perm));
    for value in [attr.nlink, attr.uid, attr.gid, attr.rdev, BLOCK_BYTES, 0] {
        fields.u32(value);
    }
    fields.bytes
}

/// An inode with its attributes (`fuse_entry_out`). No address is given to another inode before the
/// kernel forgot it, so there is but one generation, 0.
fn entry(node: NodeId, attr: &Attr, keep: Duration) -> [u8; abi::ENTRY_BYTES] {
    let mut fields = Fields::new();
    for value in [node.0, 0, keep.as_secs(), keep.as_secs()] {
        fields.u64(value);
    }
    fields.u32(keep.subsec_nanos());
    fields.u32(keep.subsec_nanos());
    fields.push(&attributes(attr));
    fields.bytes
}

/// What entries of a listing have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plus {
    /// Number, type and name.
    No,
    /// Attributes, too, which the kernel may keep so long; each such entry counts as looked up.
    Keep(Duration),
}

/// A listing that is written into a buffer as long as the kernel has room for.
#[derive(Debug)]
pub struct Listing<'a> {
    buffer: &'a mut [u8],
    len: usize,
    plus: Plus,
}

impl<'a> Listing<'a> {
    /// An empty one.
    pub fn new(buffer: &'a mut [u8], plus: Plus) -> Listing<'a> {
        let len = 0;
        Listing { buffer, len, plus }
    }

    /// Adds an entry; false where it does not fit, and nothing is added.
    pub fn add(&mut self, item: &DirEntry<'_>) -> bool {
        let before = match self.plus {
            Plus::No => 0,
            Plus::Keep(_) => abi::ENTRY_BYTES,
        };
        let bytes = before + abi::DIRENT_BYTES + item.name.len();
        let padded = bytes.next_multiple_of(8);
        let Some(room) = self.buffer[self.len..].get_mut(..padded) else {
            return false;
        };
        let (head, name) = room.split_at_mut(before + abi::DIRENT_BYTES);
        if let Plus::Keep(keep) = self.plus {
            head[..before].copy_from_slice(&with_attributes(item, keep));
        }
        head[before..].copy_from_slice(&dirent(item));
        let (text, padding) = name.split_at_mut(item.name.len());
        text.copy_from_slice(item.name);
        padding.fill(0);
        self.len += padded;
        true
    }

    /// Bytes that were written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True while nothing was added.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// An entry's attributes. One that has none gets node id 0: of such the kernel reads number and type alone.
fn with_attributes(item: &DirEntry<'_>, keep: Duration) -> [u8; abi::ENTRY_BYTES] {
    match &item.attr {
        Some(attr) => entry(attr.node, attr, keep),
        None => entry(NodeId(0), &blank(item.ino, item.kind), keep),
    }
}

/// The fixed part of an entry (`fuse_dirent`).
fn dirent(item: &DirEntry<'_>) -> [u8; abi::DIRENT_BYTES] {
    let mut fields = Fields::new();
    fields.u64(item.ino);
    fields.u64(item.cookie);
    fields.u32(item.name.len() as u32);
    // The kernel's DT_ types are those of a mode, twelve bits further down.
    fields.u32(item.kind.mode_bits() >> 12);
    fields.bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::types::Time;

    fn attr() -> Attr {
        let time = |sec, nsec| Time { sec, nsec };
        Attr {
            node: NodeId(0x1122),
            ino: 0x99,
            kind: Kind::Dir,
            perm: 0o1755,
            nlink: 3,
            uid: 4,
            gid: 5,
            rdev: 6,
            size: 7,
            blocks: 8,
            atime: time(i64::MIN, 1),
            mtime: time(-2, 800_000_000),
            ctime: time(i64::MAX, 999_999_999),
        }
    }

    /// Numbers of 64 bits and then of 32 bits, as they stand in a message.
    fn fields(long: &[u64], short: &[u32]) -> Vec<u8> {
        let long = long.iter().flat_map(|n| n.to_ne_bytes());
        let short = short.iter().flat_map(|n| n.to_ne_bytes());
        long.chain(short).collect()
    }

    /// [`attr`] by hand.
    fn attr_bytes() -> Vec<u8> {
        let long = [0x99, 7, 8, 1 << 63, u64::MAX - 1, (1 << 63) - 1];
        let nanos = [1, 800_000_000, 999_999_999];
        let rest = [0o41755, 3, 4, 5, 6, 4096, 0];
        [fields(&long, &nanos), fields(&[], &rest)].concat()
    }

    const KEEP: Duration = Duration::new(60, 7);

    #[test]
    fn an_inode_has_its_address_and_its_number() {
        let shown = fields(&[0x1122, 0, 60, 60], &[7, 7]);
        let expected = [shown, attr_bytes()].concat();
        assert_eq!(expected.len(), abi::ENTRY_BYTES);
        assert_eq!(Head::entry(&attr(), KEEP).fields(), expected);
        let created = Head::created(&attr(), KEEP);
        assert_eq!(created.fields(), [expected, fields(&[0], &[2, 0])].concat());
        let alone = Head::attr(&attr(), KEEP);
        assert_eq!(
            alone.fields(),
            [fields(&[60], &[7, 0]), attr_bytes()].concat()
        );
    }

    #[test]
    fn the_header_says_length_number_and_errno() {
        let mut head = Head::written(5);
        let expected = [fields(&[], &[26, 0]), fields(&[9], &[5, 0])].concat();
        assert_eq!(head.finish(9, 0, 2), expected);
        let mut refused = Head::default();
        let expected = [fields(&[], &[16, -2i32 as u32]), fields(&[9], &[])].concat();
        assert_eq!(refused.finish(9, -2, 0), expected);
    }

    #[test]
    fn fixed_answers_have_the_kernels_lengths() {
        let figures = StatFs {
            bsize: 4096,
            blocks: 1,
            bfree: 2,
            bavail: 3,
            files: 4,
            ffree: 5,
            namelen: 255,
        };
        let shown = fields(&[1, 2, 3, 4, 5], &[4096, 255, 4096, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Head::figures(&figures).fields(), shown);
        let settled = Settled {
            flags: 0x8000_0001_0000_0002,
            max_readahead: 3,
            max_background: 4,
            congestion_threshold: 5,
            max_write: 6,
            max_pages: 7,
        };
        let pair = |a: u16, b: u16| [a.to_ne_bytes(), b.to_ne_bytes()].concat();
        let expected = [
            fields(&[], &[7, 45, 3, 2]),
            pair(4, 5),
            fields(&[], &[6, 1]),
            pair(7, 0),
            fields(&[], &[0x8000_0001, 0, 0, 0, 0, 0, 0, 0]),
        ];
        let expected = expected.concat();
        assert_eq!(expected.len(), 64);
        assert_eq!(Head::settled(&settled).fields(), expected);
        assert_eq!(Head::found(8).fields(), fields(&[8], &[]));
        assert_eq!(Head::copied(1 << 40).fields(), fields(&[1 << 40], &[]));
        assert_eq!(Head::length(3).fields(), fields(&[], &[3, 0]));
        assert_eq!(Head::absent(KEEP).fields()[..8], [0; 8]);
    }

    fn item<'a>(name: &'a [u8], attr: Option<Attr>) -> DirEntry<'a> {
        DirEntry {
            name,
            cookie: 12,
            node: NodeId(0x1122),
            ino: 0x99,
            kind: Kind::Dir,
            attr,
        }
    }

    #[test]
    fn a_listing_ends_where_the_buffer_does() {
        let mut buffer = [0xff; 70];
        let mut listing = Listing::new(&mut buffer, Plus::No);
        assert!(listing.add(&item(b"abc", None)));
        assert!(listing.add(&item(b"12345678", None)));
        assert!(!listing.add(&item(b"x", None)));
        assert_eq!(listing.len(), 64);
        let shown = fields(&[0x99, 12], &[3, 4]);
        let first = [shown, b"abc\0\0\0\0\0".to_vec()].concat();
        assert_eq!(buffer[..32], first);
        assert_eq!(buffer[56..64], *b"12345678");
        assert_eq!(buffer[64..], [0xff; 6], "nothing after the last entry");
    }

    #[test]
    fn entries_bring_their_attributes() {
        let mut buffer = [0xff; 320];
        let mut listing = Listing::new(&mut buffer, Plus::Keep(KEEP));
        assert!(listing.add(&item(b"a", Some(attr()))));
        assert!(listing.add(&item(b".", None)));
        assert!(!listing.add(&item(b"b", None)));
        assert_eq!(buffer[..128], *Head::entry(&attr(), KEEP).fields());
        assert_eq!(buffer[160..168], [0; 8], "no inode is counted");
        assert_eq!(buffer[200..208], 0x99u64.to_ne_bytes(), "its number");
    }
}
