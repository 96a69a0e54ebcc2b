//! Reading stored content, and finding its data and holes.

use std::ops::Range;

use crate::content::FileContent;
use crate::content::parts::Parts;
use crate::error::{Error, Result};
use crate::object::manifest::{Part, Step};
use crate::store::ObjectStore;

/// Fills `buf` from `offset`; holes read as zeros. An error where the content ends before.
pub fn read_content(
    store: &ObjectStore,
    content: &FileContent,
    offset: u64,
    buf: &mut [u8],
) -> Result<()> {
    fill(store, content, offset, buf, true).map(|_| ())
}

/// As [`read_content`], but `Ok(false)` (and `buf` undefined) where the disk would be waited for.
pub fn try_read_content(
    store: &ObjectStore,
    content: &FileContent,
    offset: u64,
    buf: &mut [u8],
) -> Result<bool> {
    fill(store, content, offset, buf, false)
}

fn fill(
    store: &ObjectStore,
    content: &FileContent,
    offset: u64,
    buf: &mut [u8],
    may_wait: bool,
) -> Result<bool> {
    let len = content.len();
    let end = offset.saturating_add(buf.len() as u64);
    if end > len {
        return Err(Error::OutOfRange { offset, end, len });
    }
    if buf.is_empty() {
        return Ok(true);
    }
    let Step::Done(mut parts) = Parts::start(store, content, offset, may_wait)? else {
        return Ok(false);
    };
    let mut pos = offset;
    while pos < end {
        let Step::Done(Some((start, part))) = parts.step()? else {
            return Ok(false);
        };
        let stop = end.min(start + part.len());
        let out = &mut buf[(pos - offset) as usize..(stop - offset) as usize];
        if !fill_part(store, &part, pos - start, out, may_wait)? {
            return Ok(false);
        }
        pos = stop;
    }
    Ok(true)
}

pub(super) fn fill_part(
    store: &ObjectStore,
    part: &Part,
    from: u64,
    out: &mut [u8],
    may_wait: bool,
) -> Result<bool> {
    let Part::Data { len, id } = part else {
        out.fill(0);
        return Ok(true);
    };
    let bytes = if may_wait {
        Some(store.get_chunk(id)?)
    } else {
        store.try_get_chunk(id)?
    };
    let Some(bytes) = bytes else {
        return Ok(false);
    };
    let from = from as usize;
    match bytes.get(from..from + out.len()) {
        Some(part) if bytes.len() == *len as usize => out.copy_from_slice(part),
        _ => {
            let what = "length differs from what refers to it";
            return Err(Error::BadObject {
                kind: crate::id::Kind::Chunk,
                id: id.to_string(),
                what,
            });
        }
    }
    Ok(true)
}

/// Calls `visit` with the offset of each part of a content, in order, until it returns an error.
pub fn each_part<E: From<Error>>(
    store: &ObjectStore,
    content: &FileContent,
    visit: &mut dyn FnMut(u64, Part) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    if content.is_empty() {
        return Ok(());
    }
    let mut parts = Parts::new(store, content, 0)?;
    while let Some((start, part)) = parts.next()? {
        visit(start, part)?;
    }
    Ok(())
}

/// The maximal ranges that hold data, sorted.
pub fn data_ranges(store: &ObjectStore, content: &FileContent) -> Result<Vec<Range<u64>>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    if content.is_empty() {
        return Ok(ranges);
    }
    let mut parts = Parts::new(store, content, 0)?;
    while let Some((start, part)) = parts.next()? {
        let end = start + part.len();
        match ranges.last_mut() {
            _ if !part.is_data() => {}
            Some(last) if last.end == start => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    Ok(ranges)
}

/// Bytes that are not in holes.
pub fn data_bytes(store: &ObjectStore, content: &FileContent) -> Result<u64> {
    if !matches!(content, FileContent::Manifest { .. }) {
        return Ok(content.len());
    }
    let mut bytes = 0;
    each_part(store, content, &mut |_, part| {
        bytes += if part.is_data() { part.len() } else { 0 };
        Ok::<_, Error>(())
    })?;
    Ok(bytes)
}

/// The parts of a content that hold data, from the one at `offset` on, read as far as they are asked for.
pub fn data_from<'a>(
    store: &'a ObjectStore,
    content: &FileContent,
    offset: u64,
) -> Result<impl Iterator<Item = Result<Range<u64>>> + use<'a>> {
    let mut parts = match offset < content.len() {
        true => Some(Parts::new(store, content, offset)?),
        false => None,
    };
    Ok(std::iter::from_fn(move || {
        loop {
            match parts.as_mut()?.next() {
                Ok(Some((start, part))) if part.is_data() => {
                    return Some(Ok(start..start + part.len()));
                }
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(e) => {
                    parts = None;
                    return Some(Err(e));
                }
            }
        }
    }))
}

/// The first data at or after `offset` (`SEEK_DATA`); `None` where there is none.
pub fn next_data(store: &ObjectStore, content: &FileContent, offset: u64) -> Result<Option<u64>> {
    seek(store, content, offset, true)
}

/// The first hole at or after `offset` (`SEEK_HOLE`), the end of the file being one; `None` beyond it.
pub fn next_hole(store: &ObjectStore, content: &FileContent, offset: u64) -> Result<Option<u64>> {
    if offset >= content.len() {
        return Ok(None);
    }
    let hole = seek(store, content, offset, false)?;
    Ok(hole.or(Some(content.len())))
}

fn seek(
    store: &ObjectStore,
    content: &FileContent,
    offset: u64,
    data: bool,
) -> Result<Option<u64>> {
    if offset >= content.len() {
        return Ok(None);
    }
    let mut parts = Parts::new(store, content, offset)?;
    while let Some((start, part)) = parts.next()? {
        if part.is_data() == data {
            return Ok(Some(start.max(offset)));
        }
    }
    Ok(None)
}
