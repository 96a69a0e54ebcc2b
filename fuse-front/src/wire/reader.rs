//! Reading fields from the front of a message.

use super::flags;
use engine::types::NodeId;
use rustix::io::Errno;

/// Bytes that are read from the front. What is missing is an error, never a panic.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Errno> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Errno::IO)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Errno> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Errno> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Errno> {
        self.array().map(u64::from_ne_bytes)
    }

    pub(super) fn node(&mut self) -> Result<NodeId, Errno> {
        self.u64().map(NodeId)
    }

    /// A position in a file.
    pub(super) fn position(&mut self) -> Result<u64, Errno> {
        flags::position(self.u64()?)
    }

    pub(super) fn skip<const N: usize>(&mut self) -> Result<(), Errno> {
        self.array::<N>().map(drop)
    }

    pub(super) fn bytes(&mut self, len: u32) -> Result<&'a [u8], Errno> {
        let (bytes, rest) = self.0.split_at_checked(len as usize).ok_or(Errno::IO)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Text that a NUL ends.
    pub(super) fn text(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Errno::IO)?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Ok(text)
    }

    /// A name in a directory.
    pub(super) fn name(&mut self) -> Result<&'a [u8], Errno> {
        let name = self.text()?;
        match name.is_empty() || name.contains(&b'/') {
            true => Err(Errno::IO),
            false => Ok(name),
        }
    }
}
