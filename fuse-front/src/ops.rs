//! Requests to engine calls: the one place where they meet. What a request means is said by `wire`, how
//! it is carried out and answered by `serve.rs`, errors by `errno.rs`.
//!
//! No decisions. OPEN, OPENDIR, FLUSH and ACCESS get ENOSYS, which the kernel remembers: it then opens and
//! closes by itself, keeping its caches, and checks permissions itself. A mount that tells of opens answers OPEN.

use crate::limits::{ANSWER_BYTES_MAX, COPY_RANGE_MAX, FOREVER};
use crate::probe;
use crate::serve::{Front, Outcome};
use crate::transport::{List, Space};
use crate::wire::{Answer, Header, Plus, Request};
use engine::types::{Attr, NodeId, SetAttr, Wait, mode};
use engine::{Error, Workspace};
use rustix::io::Errno;
use std::time::Duration;

impl Front {
    /// Carries out one request. With [`Wait::Never`] it may give [`Error::WouldBlock`]; nothing has happened
    /// then, and it is to be carried out once more where waiting is allowed.
    pub(crate) fn answer(
        &self,
        from: &Header,
        request: &Request<'_>,
        room: &mut impl Space,
        wait: Wait,
    ) -> Outcome<Answer> {
        let (ws, node) = (&*self.0.ws.0, from.node);
        Ok(match *request {
            Request::Lookup { name } => self.lookup(from, name, wait)?,
            Request::Getattr if probe::is_probe(node) => known(probe::probe_attr()),
            Request::Getattr => known(ws.getattr(node)?),
            Request::Setattr { set } => self.setattr(from, set, wait)?,
            Request::Readlink => Answer::Data(ws.readlink(&from.caller(0), node)?),
            Request::Mknod { .. } | Request::Mkdir { .. } | Request::Symlink { .. } => {
                found(self.make(from, request, wait)?)
            }
            Request::Create { .. } => Answer::Created(create(ws, from, request, wait)?, FOREVER),
            Request::Tmpfile { perm, umask } => {
                Answer::Created(ws.tmpfile(&from.caller(umask), node, perm, wait)?, FOREVER)
            }
            Request::Unlink { name } => match self.own(from) {
                Some(own) => self.remove_own(own, node, name)?.into(),
                None => ws.unlink(node, name, wait)?.into(),
            },
            Request::Rmdir { name } => match self.own(from) {
                Some(own) => self.remove_own(own, node, name)?.into(),
                None => ws.rmdir(node, name, wait)?.into(),
            },
            Request::Rename {
                name,
                new_parent,
                new_name,
                flags,
            } => ws
                .rename(node, name, new_parent, new_name, flags, wait)?
                .into(),
            Request::Link {
                node: linked, name, ..
            } => found(ws.link(linked, node, name, wait)?),
            Request::Read {
                offset,
                size,
                noatime,
            } => {
                let room = room.first(size.min(ANSWER_BYTES_MAX) as usize);
                let len = ws.read_into(node, offset, room, wait)?;
                if !noatime {
                    ws.note_read(node);
                }
                Answer::Room(len)
            }
            Request::Write {
                offset,
                data,
                flags,
            } => Answer::Written(ws.write(node, offset, data, flags, wait)?),
            Request::Readdir { cookie, size } => {
                list(ws, node, (cookie, size), Plus::No, room, wait)?
            }
            Request::Readdirplus { cookie, size } => {
                list(ws, node, (cookie, size), Plus::Keep(FOREVER), room, wait)?
            }
            // It waits for the disk in any case.
            Request::Fsync | Request::Fsyncdir if wait == Wait::Never => {
                return Err(Error::WouldBlock.into());
            }
            Request::Fsync | Request::Fsyncdir => ws.fsync(node)?.into(),
            Request::Statfs => Answer::Figures(ws.statfs()?),
            Request::Setxattr { name, value, flags } => ws
                .setxattr(&from.caller(0), node, name, value, flags, wait)?
                .into(),
            Request::Getxattr { name, size } => sized(ws.getxattr(node, name)?, size)?,
            Request::Listxattr { size } => sized(ws.listxattr_as(&from.caller(0), node)?, size)?,
            Request::Removexattr { name } => {
                ws.removexattr(&from.caller(0), node, name, wait)?.into()
            }
            Request::Fallocate { offset, len, mode } => {
                ws.fallocate(node, offset, len, mode, wait)?.into()
            }
            Request::Lseek { offset, whence } => {
                Answer::Found(ws.lseek(node, offset, whence, wait)?)
            }
            Request::CopyFileRange {
                offset,
                to,
                to_offset,
                len,
                wide,
            } => {
                let len = if wide { len } else { len.min(COPY_RANGE_MAX) };
                let copied = ws.copy_range(node, offset, to, to_offset, len, wait)?;
                match wide {
                    true => Answer::Copied(copied),
                    false => Answer::Written(copied as u32),
                }
            }
            // Nothing was opened.
            Request::Release | Request::Releasedir => ().into(),
            Request::Open { how } if self.0.opens => {
                ws.opens(node, how)?;
                Answer::Opened
            }
            Request::Open { .. } | Request::Opendir | Request::Flush | Request::Access => {
                return Err(Errno::NOSYS.into());
            }
            // The kernel does them itself, or nobody does.
            Request::Lock | Request::Bmap | Request::Ioctl | Request::Poll => {
                return Err(Errno::NOSYS.into());
            }
            // They do not come here.
            Request::Init(_)
            | Request::Destroy
            | Request::Interrupt { .. }
            | Request::NotifyReply
            | Request::Forget { .. }
            | Request::BatchForget(_) => return Err(Errno::NOSYS.into()),
        })
    }

    /// LOOKUP. That a name is missing is an answer too, which the kernel may keep.
    fn lookup(&self, from: &Header, name: &[u8], wait: Wait) -> Outcome<Answer> {
        let parent = from.node;
        if self.0.probe.wanted(parent, name) {
            return Ok(Answer::Entry(probe::probe_attr(), Duration::ZERO));
        }
        if let Some(own) = self.own(from)
            && let Some(answer) = self.lookup_own(own, parent, name)?
        {
            return Ok(answer);
        }
        match self.0.ws.0.lookup(parent, name, wait) {
            // Names that may mean something else the next time: the kernel keeps neither them nor their absence.
            Ok(attr) if !engine::names_last(parent) => Ok(Answer::Entry(attr, Duration::ZERO)),
            Ok(attr) => Ok(found(attr)),
            Err(error)
                if engine::names_last(parent) && error.errno() == Errno::NOENT.raw_os_error() =>
            {
                Ok(Answer::Absent(FOREVER))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn setattr(&self, from: &Header, set: SetAttr, wait: Wait) -> Outcome<Answer> {
        let (ws, node) = (&*self.0.ws.0, from.node);
        if self.own(from).is_some() {
            return Ok(known(ws.getattr(node)?));
        }
        // With no field at all it is the kernel's wish, before a write by a caller without
        // CAP_FSETID, that set-id bits be cleared; it takes the new mode from the answer.
        Ok(known(ws.setattr(&from.caller(0), node, &set, wait)?))
    }

    /// MKNOD, MKDIR and SYMLINK.
    fn make(&self, from: &Header, request: &Request<'_>, wait: Wait) -> Outcome<Attr> {
        let (ws, parent) = (&*self.0.ws.0, from.node);
        let own = |name: &[u8], bits| self.make_own(parent, name, bits, wait);
        let is_own = self.own(from).is_some();
        match *request {
            Request::Mknod { name, mode, .. } if is_own => own(name, mode),
            Request::Mkdir { name, .. } if is_own => own(name, mode::DIR),
            Request::Symlink { name, .. } if is_own => own(name, mode::LNK),
            Request::Mknod {
                name,
                mode,
                rdev,
                umask,
            } => Ok(ws.mknod(&from.caller(umask), parent, name, mode, rdev, wait)?),
            Request::Mkdir { name, perm, umask } => {
                Ok(ws.mkdir(&from.caller(umask), parent, name, perm, wait)?)
            }
            Request::Symlink { name, target } => {
                Ok(ws.symlink(&from.caller(0), parent, name, target, wait)?)
            }
            _ => Err(Errno::NOSYS.into()),
        }
    }
}

/// An inode under a name that lasts.
fn found(attr: Attr) -> Answer {
    Answer::Entry(attr, FOREVER)
}

/// Attributes that last.
fn known(attr: Attr) -> Answer {
    Answer::Attributes(attr, FOREVER)
}

/// CREATE: makes the file; one that came into being since the kernel looked is opened, as open(2) does.
fn create(ws: &Workspace, from: &Header, request: &Request<'_>, wait: Wait) -> Outcome<Attr> {
    let Request::Create {
        name,
        perm,
        umask,
        exclusive,
        truncate,
        kill_suidgid,
    } = *request
    else {
        return Err(Errno::NOSYS.into());
    };
    let (who, parent) = (from.caller(umask), from.node);
    match ws.mknod(&who, parent, name, mode::REG | perm, 0, wait) {
        Err(Error::Exists) if !exclusive => {}
        made => return Ok(made?),
    }
    let attr = ws.lookup(parent, name, wait)?;
    if !truncate {
        return Ok(attr);
    }
    let set = SetAttr {
        size: Some(0),
        kill_suidgid,
        by_path: true,
        ..SetAttr::default()
    };
    let emptied = ws.setattr(&who, attr.node, &set, wait);
    Ok(emptied.inspect_err(|_| ws.forget(attr.node, 1))?)
}

/// READDIR and READDIRPLUS. A listing is cut where the kernel's room ends; it comes again with the last
/// entry's cookie. What was added counts as looked up, so it is sent whatever came after: the kernel then
/// asks for the rest and gets the error, if it lasts.
fn list(
    ws: &Workspace,
    dir: NodeId,
    (cookie, size): (u64, u32),
    plus: Plus,
    room: &mut impl Space,
    wait: Wait,
) -> Outcome<Answer> {
    let mut listing = room.list(size.min(ANSWER_BYTES_MAX) as usize, plus);
    let filled = ws.readdir(dir, cookie, plus != Plus::No, wait, &mut |entry| {
        listing.add(entry)
    });
    match filled {
        Err(error) if listing.len() == 0 => Err(error.into()),
        _ => Ok(Answer::Room(listing.len())),
    }
}

/// An extended attribute, or the list of them; a size of 0 asks for the length.
fn sized(value: Vec<u8>, size: u32) -> Outcome<Answer> {
    match (size as usize, value.len()) {
        (0, len) => Ok(Answer::Length(len as u32)),
        (size, len) if len > size => Err(Errno::RANGE.into()),
        _ => Ok(Answer::Data(value)),
    }
}
