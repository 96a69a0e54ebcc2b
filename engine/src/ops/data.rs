//! File data.

use super::{target, without_set_id};
use crate::branch::carry::Unsettled;
use crate::branch::load;
use crate::branch::{Branch, Inner};
use crate::clock;
use crate::error::{Error, Result};
use crate::journal::JournalError;
use crate::limits::FILE_BYTES_MAX;
use crate::record::{Allocation, Event, Mutation};
use crate::tree::file::FileData;
use crate::tree::inode::Inode;
use crate::tree::lookups::Appended;
use crate::types::{Fallocate, Kind, Nid, Seek, Wait, WriteFlags};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// To which state a page belongs that the kernel writes back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// What is shown.
    New,
    /// What was replaced.
    Old,
    /// Both, for a merge left it as it was.
    Both,
    /// What was replaced, though a merge should have had it.
    Overtaken,
}

/// Reads up to `size` bytes; fewer at the end of the file.
pub(crate) fn read(
    branch: &Branch,
    nid: Nid,
    offset: u64,
    size: u32,
    wait: Wait,
) -> Result<Vec<u8>> {
    let left = branch.lock().live.inode(nid)?.size.saturating_sub(offset);
    let mut buf = vec![0; left.min(u64::from(size)) as usize];
    let len = read_into(branch, nid, offset, &mut buf, wait)?;
    buf.truncate(len);
    Ok(buf)
}

/// Reads into `buf`, and says how much; less than it holds at the end of the file. What is in `buf`
/// after an error, or behind that length, has no meaning.
pub(crate) fn read_into(
    branch: &Branch,
    nid: Nid,
    offset: u64,
    buf: &mut [u8],
    wait: Wait,
) -> Result<usize> {
    let mut gone = None;
    loop {
        let inode = to_read(branch, nid, offset, buf.len() as u64)?;
        let file = file_of(&inode)?;
        let len = inode.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        match branch.places.read(file, offset, &mut buf[..len], wait) {
            Err(Error::BaseChanged(_)) if wait == Wait::Never => return Err(Error::WouldBlock),
            Err(Error::BaseChanged(f)) => load::take_anew(branch, &f)?,
            // Folded into the store between the look and the read: look again. What still refers to
            // that segment then was lost with it.
            Err(Error::Journal(JournalError::Dropped { segment })) if gone != Some(segment) => {
                gone = Some(segment);
            }
            other => return other.map(|()| len),
        }
    }
}

/// The inode as it is now, for reading this range.
fn to_read(branch: &Branch, nid: Nid, offset: u64, size: u64) -> Result<Arc<Inode>> {
    let mut inner = branch.lock();
    let inode = inner.live.inode(nid)?.clone();
    if let Some(fence) = &mut inner.fence {
        fence.note_read(nid, offset, size);
    }
    Ok(inode)
}

/// Notes that a file was read: its access time follows, where it is due.
pub(crate) fn note_read(branch: &Branch, nid: Nid) {
    let mut inner = branch.lock();
    let Inner { live, accessed, .. } = &mut *inner;
    if let Some(inode) = live.get(nid) {
        accessed.read(nid, inode, clock::now());
    }
}

/// Writes `data` at `offset`; less of it where the file would become too long.
pub(crate) fn write(
    branch: &Branch,
    nid: Nid,
    offset: u64,
    data: &[u8],
    flags: WriteFlags,
    wait: Wait,
) -> Result<u32> {
    if data.is_empty() {
        return Ok(0);
    }
    // Up to the longest length a file may have; the caller hears how much that was.
    let room = FILE_BYTES_MAX.saturating_sub(offset).min(data.len() as u64);
    let data = &data[..room as usize];
    if data.is_empty() {
        return Err(Error::FileTooLarge);
    }
    branch.check_space(data.len() as u64)?;
    loop {
        let unsettled = branch.request(wait, |inner| {
            if flags.from_cache {
                return write_cached(branch, inner, nid, offset, data, flags);
            }
            write_called(branch, inner, nid, offset, data, flags)?;
            Ok(None)
        })?;
        match unsettled {
            Some((state, pages)) => branch.settle_pages(state, &pages, wait)?,
            None => return Ok(data.len() as u32),
        }
    }
}

/// Writes `data` at the end that the file has; gives its length afterwards.
pub(crate) fn append(
    branch: &Branch,
    nid: Nid,
    data: &[u8],
    flags: WriteFlags,
    wait: Wait,
) -> Result<u64> {
    branch.check_space(data.len() as u64)?;
    branch.request(wait, |inner| {
        let at = inner.live.inode(nid)?.size;
        let end = at.saturating_add(data.len() as u64);
        if end > FILE_BYTES_MAX {
            return Err(Error::FileTooLarge);
        }
        if !data.is_empty() {
            write_called(branch, inner, nid, at, data, flags)?;
        }
        Ok(end)
    })
}

/// A write(2), or a part of one. One that appends goes to the file's end, also where the kernel has another
/// end in mind.
fn write_called(
    branch: &Branch,
    inner: &mut Inner,
    nid: Nid,
    offset: u64,
    data: &[u8],
    flags: WriteFlags,
) -> Result<()> {
    let len = data.len() as u64;
    let fence = inner.fence.as_mut().filter(|_| flags.append);
    if fence.is_some_and(|f| f.continues(nid, offset, flags.thread)) {
        return write_on(branch, inner, nid, offset, data, flags);
    }
    let doubted = flags.append && inner.lookups.is_doubted(nid);
    let at = match inner.live.get(nid) {
        Some(inode) if doubted => inode.size,
        _ => offset,
    };
    if at.saturating_add(len) > FILE_BYTES_MAX {
        return Err(Error::FileTooLarge);
    }
    write_live(branch, inner, nid, at, data, flags)?;
    let (end, thread) = (offset + len, flags.thread);
    let append = flags.append.then_some(Appended { end, thread });
    inner.lookups.note_write(nid, append);
    if at != offset {
        inner.lookups.misplace(nid, offset..offset + len);
        branch.mending.due.store(true, Ordering::SeqCst);
    } else if doubted {
        inner.lookups.trust_size(nid);
    }
    let Some(fence) = &mut inner.fence else {
        return Ok(());
    };
    if at == offset {
        fence.note_write(nid, offset, len);
    }
    if fence.has_vanished(nid) {
        let state = fence.state;
        let end = size_in(inner, state, nid).filter(|_| flags.append);
        write_fenced(branch, inner, state, nid, end.unwrap_or(at), data)?;
    }
    Ok(())
}

/// A further part of an append of which the replaced state has the part before: it goes there, and what
/// a merge made of that gets it too.
fn write_on(
    branch: &Branch,
    inner: &mut Inner,
    nid: Nid,
    offset: u64,
    data: &[u8],
    flags: WriteFlags,
) -> Result<()> {
    let fence = inner.fence.as_ref().ok_or(Error::Stale)?;
    let (state, merged) = (fence.state, fence.carry.is_some());
    let len = data.len() as u64;
    let old = size_in(inner, state, nid).ok_or(Error::Stale)?;
    let new = inner.live.inode(nid)?.size;
    if old.max(new).saturating_add(len) > FILE_BYTES_MAX {
        return Err(Error::FileTooLarge);
    }
    if merged {
        write_live(branch, inner, nid, new, data, flags)?;
    }
    write_fenced(branch, inner, state, nid, old, data)?;
    if !merged || new != offset {
        inner.lookups.doubt_size(nid);
        inner.lookups.misplace(nid, offset..offset + len);
        branch.mending.due.store(true, Ordering::SeqCst);
    }
    if let Some(fence) = &mut inner.fence {
        let (end, thread) = (offset + len, flags.thread);
        fence.append_goes_on(nid, Appended { end, thread });
    }
    Ok(())
}

fn write_live(
    branch: &Branch,
    inner: &mut Inner,
    nid: Nid,
    offset: u64,
    data: &[u8],
    flags: WriteFlags,
) -> Result<()> {
    let inode = target(inner, nid)?;
    if file_of(inode)?.is_unreadable(inode.size) {
        // No commit could have what is written to a part of it.
        return Err(Error::Access);
    }
    let perm = if flags.kill_suidgid {
        // Without group execution it is asked for before, where the caller is in none of its groups.
        without_set_id(inode, false)
    } else {
        None
    };
    let m = Mutation::Write {
        nid: nid.0,
        offset,
        perm,
        now: clock::now(),
    };
    branch.change(inner, m, data)
}

/// Writes pages of the kernel's cache, each into the state that it belongs to. Nothing is written where
/// that has to be found out first.
fn write_cached(
    branch: &Branch,
    inner: &mut Inner,
    nid: Nid,
    offset: u64,
    data: &[u8],
    flags: WriteFlags,
) -> Result<Option<(u64, Unsettled)>> {
    let fence = inner.fence.as_ref();
    let parts = fence.and_then(|f| Some((f.state, f.parts(nid, offset, data.len() as u64)?)));
    let whole = offset..offset + data.len() as u64;
    let (state, parts) = parts.unwrap_or((0, vec![(whole, false)]));
    let mut writes: Vec<(Range<u64>, Whose)> = Vec::new();
    for (range, fenced) in parts {
        let carry = inner.fence.as_ref().and_then(|f| f.carry.as_ref());
        match (fenced, carry) {
            (false, _) => writes.push((range, Whose::New)),
            (true, None) => writes.push((range, Whose::Old)),
            (true, Some(carry)) => match carry.parts(nid, range) {
                Err(unsettled) => return Ok(Some((state, unsettled))),
                Ok(parts) => writes.extend(parts.into_iter().map(|(r, same)| match same {
                    true => (r, Whose::Both),
                    false => (r, Whose::Overtaken),
                })),
            },
        }
    }
    for (range, whose) in writes {
        let part = |r: &Range<u64>| &data[(r.start - offset) as usize..(r.end - offset) as usize];
        if whose != Whose::New {
            let size = size_in(inner, state, nid).unwrap_or(u64::MAX);
            for r in inner.belonging(nid, size, range.clone()) {
                write_fenced(branch, inner, state, nid, r.start, part(&r))?;
            }
        }
        if matches!(whose, Whose::New | Whose::Both) {
            let size = inner.live.get(nid).map_or(u64::MAX, |i| i.size);
            for r in inner.belonging(nid, size, range) {
                write_live(branch, inner, nid, r.start, part(&r), flags)?;
            }
        }
        let carry = inner.fence.as_mut().and_then(|f| f.carry.as_mut());
        if let Some(carry) = carry.filter(|_| whose == Whose::Overtaken) {
            carry.overtakes(nid);
        }
    }
    Ok(None)
}

/// A page of a state that a rollback replaced: it belongs there.
fn write_fenced(
    branch: &Branch,
    inner: &mut Inner,
    state: u64,
    nid: Nid,
    offset: u64,
    data: &[u8],
) -> Result<()> {
    // Checked before it is recorded: what cannot be carried out must not be in the journal.
    size_in(inner, state, nid).ok_or(Error::Stale)?;
    let now = clock::now();
    let event = Event::Fenced {
        state,
        nid: nid.0,
        offset,
        now,
    };
    branch.carry_out(inner, event, data)
}

/// Allocates, punches or zeroes a range.
pub(crate) fn fallocate(
    branch: &Branch,
    nid: Nid,
    offset: u64,
    len: u64,
    mode: Fallocate,
    wait: Wait,
) -> Result<()> {
    let end = offset
        .checked_add(len)
        .filter(|e| *e <= FILE_BYTES_MAX)
        .ok_or(Error::FileTooLarge)?;
    branch.check_space(0)?;
    branch.request(wait, |inner| {
        let inode = target(inner, nid)?;
        file_of(inode)?;
        let (how, keep) = match mode {
            Fallocate::Allocate { keep_size } => (Allocation::Fill, keep_size),
            Fallocate::PunchHole => (Allocation::Punch, true),
            Fallocate::ZeroRange { keep_size } => (Allocation::Zero, keep_size),
        };
        let size = if keep {
            inode.size
        } else {
            inode.size.max(end)
        };
        let perm = None;
        branch.change(
            inner,
            Mutation::Allocate {
                nid: nid.0,
                offset,
                len,
                how,
                size,
                perm,
                now: clock::now(),
            },
            &[],
        )
    })
}

/// Finds data or holes.
pub(crate) fn lseek(
    branch: &Branch,
    nid: Nid,
    offset: u64,
    whence: Seek,
    wait: Wait,
) -> Result<u64> {
    let inode = branch.lock().live.inode(nid)?.clone();
    let file = file_of(&inode)?;
    if wait == Wait::Never && !branch.places.seeks_at_once(file) {
        return Err(Error::WouldBlock);
    }
    branch.places.seek(file, inode.size, offset, whence)
}

/// Shares a range of `src` with `dst`; returns the bytes that `src` had there.
pub(crate) fn copy_range(
    branch: &Branch,
    src: (Nid, u64),
    dst: (Nid, u64),
    len: u64,
    wait: Wait,
) -> Result<u64> {
    branch.check_space(0)?;
    branch.request(wait, |inner| {
        let from = inner.live.inode(src.0)?;
        file_of(from)?;
        let len = len.min(from.size.saturating_sub(src.1));
        let to = target(inner, dst.0)?;
        file_of(to)?;
        let room = FILE_BYTES_MAX.saturating_sub(dst.1);
        if room == 0 {
            return Err(Error::FileTooLarge);
        }
        let len = len.min(room);
        if len == 0 {
            return Ok(0);
        }
        let end = dst.1 + len;
        if src.0 == dst.0 && src.1 < end && dst.1 < src.1 + len {
            return Err(Error::Invalid);
        }
        let m = Mutation::Copy {
            src: src.0.0,
            src_offset: src.1,
            dst: dst.0.0,
            dst_offset: dst.1,
            len,
            perm: None,
            now: clock::now(),
        };
        branch.change(inner, m, &[])?;
        Ok(len)
    })
}

/// Length of a file in a state of the branch.
fn size_in(inner: &Inner, state: u64, nid: Nid) -> Option<u64> {
    Some(inner.book.history.tree(state)?.get(nid)?.size)
}

fn file_of(inode: &Arc<Inode>) -> Result<&FileData> {
    match inode.kind() {
        Kind::File => inode.file().ok_or(Error::Invalid),
        Kind::Dir => Err(Error::IsDir),
        _ => Err(Error::Invalid),
    }
}
