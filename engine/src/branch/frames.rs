//! Files of frames: a header, then values, each with its length and checksum.
//!
//! Neither writing nor reading needs memory for more than one frame. A frame is the length and the
//! checksum (CRC-32) of its body, little-endian, then the body, an encoded value.

use crate::record::{decode, encode};
use objstore::io::Segment;
use std::sync::Arc;

const HEADER_BYTES: usize = 12;
const FRAME_HEADER_BYTES: usize = 8;
/// Longest frame that is read, in bytes.
const FRAME_BYTES_MAX: u32 = 256 << 20;

/// What a file begins with: eight bytes that say what it is, and its version.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// What it is.
    pub magic: &'static [u8; 8],
    /// Version of its format.
    pub version: u32,
    /// Oldest version that is read.
    pub oldest: u32,
    /// Its name in errors.
    pub what: &'static str,
}

impl Header {
    /// Writes the header over that of a file; false where that is shorter.
    pub fn put_over(&self, bytes: &mut [u8], version: u32) -> bool {
        let Some(header) = bytes.get_mut(..HEADER_BYTES) else {
            return false;
        };
        header[..8].copy_from_slice(self.magic);
        header[8..].copy_from_slice(&version.to_le_bytes());
        true
    }

    /// True where a file says that its version is higher than the highest that is known.
    pub fn is_newer(&self, bytes: &[u8]) -> bool {
        let Some(header) = bytes.get(..HEADER_BYTES) else {
            return false;
        };
        let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        &header[..8] == self.magic && version > self.version
    }
}

/// True where all frames of a file have their checksums, whatever they hold.
pub fn frames_are_whole(bytes: &[u8]) -> bool {
    let at = HEADER_BYTES as u64;
    let (file, version) = (bytes, 0);
    let mut reader = Reader { file, at, version };
    while reader.at < file.len() as u64 {
        if reader.frame().is_err() {
            return false;
        }
    }
    true
}

/// Writes frames.
pub struct Writer<'a> {
    file: &'a dyn Segment,
}

impl<'a> Writer<'a> {
    /// Begins a file.
    pub fn begin(file: &'a dyn Segment, header: &Header) -> std::io::Result<Writer<'a>> {
        file.append(&[header.magic, &header.version.to_le_bytes()])?;
        Ok(Writer { file })
    }

    /// One value in a frame of its own.
    pub fn value<T: bincode::Encode>(&self, value: &T) -> std::io::Result<()> {
        self.frame(&encode(value))
    }

    /// A frame with this body.
    pub fn frame(&self, body: &[u8]) -> std::io::Result<()> {
        let len = u32::try_from(body.len())
            .ok()
            .filter(|n| *n <= FRAME_BYTES_MAX);
        let len = len.ok_or_else(|| std::io::Error::other("a frame is too long"))?;
        let crc = crc32fast::hash(body);
        self.file
            .append(&[&len.to_le_bytes(), &crc.to_le_bytes(), body])?;
        Ok(())
    }
}

/// The frames of a file behind its first `count`, of a file that was read before.
pub fn frames_from(bytes: &[u8], count: usize) -> Option<&[u8]> {
    let mut rest = bytes.get(HEADER_BYTES..)?;
    for _ in 0..count {
        let (header, after) = rest.split_at_checked(FRAME_HEADER_BYTES)?;
        let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        rest = after.get(len as usize..)?;
    }
    Some(rest)
}

/// Bytes that frames are read from.
pub trait Bytes {
    /// How many there are.
    fn len(&self) -> u64;
    /// Fills `buf` from byte `at` on.
    fn read_at(&self, at: u64, buf: &mut [u8]) -> Result<(), String>;
}

impl Bytes for Arc<dyn Segment> {
    fn len(&self) -> u64 {
        Segment::len(&**self)
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> Result<(), String> {
        Segment::read_at(&**self, at, buf).map_err(|e| e.to_string())
    }
}

impl Bytes for &[u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> Result<(), String> {
        let from = at as usize;
        let part = self.get(from..from + buf.len()).ok_or("it is too short")?;
        buf.copy_from_slice(part);
        Ok(())
    }
}

/// Reads frames.
pub struct Reader<B> {
    file: B,
    at: u64,
    version: u32,
}

impl<B: Bytes> Reader<B> {
    /// Begins a file.
    pub fn begin(file: B, wanted: &Header) -> Result<Reader<B>, String> {
        let mut reader = Reader {
            file,
            at: 0,
            version: 0,
        };
        let mut header = [0; HEADER_BYTES];
        reader.take(&mut header)?;
        let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if &header[..8] != wanted.magic {
            return Err(format!("it is not a {}", wanted.what));
        }
        if !(wanted.oldest..=wanted.version).contains(&version) {
            return Err(format!("its version is {version}, not {}", wanted.version));
        }
        reader.version = version;
        Ok(reader)
    }

    /// Version of the file.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The next frame's value.
    pub fn value<T: bincode::Decode<()>>(&mut self) -> Result<T, String> {
        decode(&self.frame()?)
    }

    /// `count` entries, each given to `each`, up to the end of the file.
    pub fn entries<T: bincode::Decode<()>>(
        &mut self,
        count: u64,
        each: &mut dyn FnMut(T) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut left = count;
        while left > 0 {
            let batch: Vec<T> = self.value()?;
            let n = batch.len() as u64;
            left = left
                .checked_sub(n)
                .filter(|_| n > 0)
                .ok_or("it has other entries than it says")?;
            batch.into_iter().try_for_each(&mut *each)?;
        }
        if self.at == self.file.len() {
            Ok(())
        } else {
            Err("it has trailing bytes".into())
        }
    }

    fn take(&mut self, buf: &mut [u8]) -> Result<(), String> {
        if self.file.len().saturating_sub(self.at) < buf.len() as u64 {
            return Err("it is too short".into());
        }
        self.file.read_at(self.at, buf)?;
        self.at += buf.len() as u64;
        Ok(())
    }

    fn frame(&mut self) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        self.pass_frame()?.read(&self.file, &mut body)?;
        Ok(body)
    }

    /// The next frame, which is not read.
    fn pass_frame(&mut self) -> Result<Frame, String> {
        let mut h = [0; FRAME_HEADER_BYTES];
        self.take(&mut h)?;
        let frame = Frame {
            at: self.at,
            len: u32::from_le_bytes([h[0], h[1], h[2], h[3]]),
            crc: u32::from_le_bytes([h[4], h[5], h[6], h[7]]),
        };
        if frame.len > FRAME_BYTES_MAX || u64::from(frame.len) > self.file.len() - self.at {
            return Err("a frame is longer than the file".into());
        }
        self.at += u64::from(frame.len);
        Ok(frame)
    }

    /// All frames up to the end of the file, to be read in any order.
    pub fn rest(mut self) -> Result<Frames<B>, String> {
        let mut frames = Vec::new();
        while self.at < self.file.len() {
            frames.push(self.pass_frame()?);
        }
        Ok(Frames {
            file: self.file,
            frames,
        })
    }
}

/// A frame that was not read yet.
#[derive(Clone, Copy)]
struct Frame {
    /// Where its body begins.
    at: u64,
    len: u32,
    crc: u32,
}

impl Frame {
    /// Has `body` be its body.
    fn read<B: Bytes>(&self, file: &B, body: &mut Vec<u8>) -> Result<(), String> {
        body.resize(self.len as usize, 0);
        file.read_at(self.at, body)?;
        if crc32fast::hash(body) == self.crc {
            Ok(())
        } else {
            Err("a frame's checksum does not match".into())
        }
    }
}

/// Frames of a file that were not read yet.
pub struct Frames<B> {
    file: B,
    frames: Vec<Frame>,
}

impl<B: Bytes> Frames<B> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// The body of one.
    pub fn body(&self, frame: usize) -> Result<Vec<u8>, String> {
        let frame = self.frames.get(frame).ok_or("there is no such frame")?;
        let mut body = Vec::new();
        frame.read(&self.file, &mut body)?;
        Ok(body)
    }
}
