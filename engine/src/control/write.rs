//! Writing a file of the live tree from outside the mount, and having the mount show it.

use super::view::find;
use crate::branch::Branch;
use crate::error::{Error, Result};
use crate::types::{Caller, Kind, Nid, SetAttr, Wait, WriteFlags, mode};

/// A part of a file to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteFile {
    /// The file; it is made where it does not exist.
    pub path: Vec<u8>,
    /// Where the data goes; `None`: at the end.
    pub offset: Option<u64>,
    /// The data.
    pub data: Vec<u8>,
    /// The file ends with the data, and is on stable storage when this is answered.
    pub last: bool,
    /// Permission bits of a file that is made.
    pub perm: u32,
    /// Make missing directories.
    pub parents: bool,
}

/// What the kernel must forget of a name that came into being.
struct Made {
    parent: Nid,
    name: Vec<u8>,
}

impl Branch {
    /// Writes a part of a file; gives the length of the file afterwards.
    pub fn write_file(&self, who: &Caller, w: &WriteFile) -> Result<u64> {
        self.cache().flush_dirty();
        let mut made = Vec::new();
        let written = self.open_file(who, w, &mut made).and_then(|nid| {
            let size = self.write_part(who, nid, w)?;
            Ok((nid, size))
        });
        let cache = self.cache();
        for m in &made {
            cache.inval_entry(self.node(m.parent), &m.name);
            cache.inval_inode(self.node(m.parent));
        }
        let (nid, size) = written?;
        if self.lock().lookups.get(nid) > 0 {
            cache.inval_inode(self.node(nid));
        }
        if w.last {
            self.sync()?;
        }
        Ok(size)
    }

    fn write_part(&self, who: &Caller, nid: Nid, w: &WriteFile) -> Result<u64> {
        let flags = WriteFlags {
            from_cache: false,
            kill_suidgid: who.uid != 0,
            outside_group: false,
        };
        let size = self.getattr(nid, Wait::Allowed)?.size;
        let offset = w.offset.unwrap_or(size);
        let written = self.write(nid, offset, &w.data, flags, Wait::Allowed)?;
        if written as usize != w.data.len() {
            return Err(Error::FileTooLarge);
        }
        let end = offset + w.data.len() as u64;
        if w.last && w.offset.is_some() {
            let set = SetAttr {
                size: Some(end),
                ..SetAttr::default()
            };
            self.setattr(who, nid, &set, Wait::Allowed)?;
        }
        Ok(self.getattr(nid, Wait::Allowed)?.size)
    }

    /// The file of that path; made where it is missing.
    fn open_file(&self, who: &Caller, w: &WriteFile, made: &mut Vec<Made>) -> Result<Nid> {
        match self.look(&w.path) {
            Err(Error::NotFound) => {}
            Ok((nid, Kind::File)) => return Ok(nid),
            Ok((_, Kind::Dir)) => return Err(Error::IsDir),
            Ok(_) => return Err(Error::Invalid),
            Err(e) => return Err(e),
        }
        let (dir, name) = match w.path.iter().rposition(|b| *b == b'/') {
            Some(at) => (&w.path[..at], &w.path[at + 1..]),
            None => (&b""[..], &w.path[..]),
        };
        let parent = self.open_dir(who, dir, w.parents, made)?;
        let attr = self.mknod(who, parent, name, mode::REG | w.perm, 0, Wait::Allowed)?;
        made.push(Made {
            parent,
            name: name.to_vec(),
        });
        // That counted a lookup, which nobody but this thread knows of.
        let nid = attr.node.nid();
        self.forget(nid, 1);
        Ok(nid)
    }

    fn open_dir(&self, who: &Caller, path: &[u8], make: bool, made: &mut Vec<Made>) -> Result<Nid> {
        let mut walked: Vec<u8> = Vec::new();
        let mut dir = Nid::ROOT;
        for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
            if !walked.is_empty() {
                walked.push(b'/');
            }
            walked.extend_from_slice(name);
            dir = match self.look(&walked) {
                Ok((nid, Kind::Dir)) => nid,
                Ok(_) => return Err(Error::NotDir),
                Err(Error::NotFound) if make => {
                    let attr = self.mkdir(who, dir, name, 0o777 & !who.umask, Wait::Allowed)?;
                    made.push(Made {
                        parent: dir,
                        name: name.to_vec(),
                    });
                    self.forget(attr.node.nid(), 1);
                    attr.node.nid()
                }
                Err(e) => return Err(e),
            };
        }
        Ok(dir)
    }

    /// What a path of the live tree leads to, links followed.
    fn look(&self, path: &[u8]) -> Result<(Nid, Kind)> {
        self.request(Wait::Allowed, |inner| {
            let nid = find(&inner.live, path, true)?;
            Ok((nid, inner.live.inode(nid)?.kind()))
        })
    }
}
