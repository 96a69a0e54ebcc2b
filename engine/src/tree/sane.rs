//! Bounds of decoded mutations and inodes, checked before they are used.
//!
//! A live mutation was made from a validated request. One from a journal, and an inode from a state
//! file or a patch, may be anything that has a right checksum; the tree relies on these bounds.

use super::Broken;
use crate::journal::PayloadRef;
use crate::kv::{KvEntry, check_key};
use crate::limits::{KV_VALUE_BYTES_MAX, NAME_BYTES_MAX};
use crate::record::{ContentRecord, InodeRecord, Mutation, SrcRecord};
use crate::types::{Kind, SLOT_SHIFT};

type Checked = Result<(), Broken>;

fn name(name: &[u8]) -> Checked {
    let fits = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
    fits.then_some(()).ok_or(Broken("length of a name"))
}

fn nid(nid: u64) -> Checked {
    let fits = nid > 0 && nid < 1 << SLOT_SHIFT;
    fits.then_some(()).ok_or(Broken("number of an inode"))
}

fn ino(ino: u64) -> Checked {
    let fits = ino < 1 << SLOT_SHIFT;
    fits.then_some(()).ok_or(Broken("shown number of an inode"))
}

fn range(offset: u64, len: u64) -> Checked {
    let end = offset.checked_add(len);
    // What the kernel's signed offsets allow: a file of the base may be larger than one of ours.
    let fits = end.is_some_and(|end| i64::try_from(end).is_ok());
    fits.then_some(()).ok_or(Broken("a range beyond all files"))
}

fn moved(from: (u64, &[u8]), to: (u64, &[u8])) -> Checked {
    nid(from.0)?;
    nid(to.0)?;
    name(from.1)?;
    name(to.1)
}

impl Mutation {
    /// Checks the bounds of all numbers and names. `payload` is the record's.
    pub fn check(&self, payload: Option<PayloadRef>) -> Checked {
        match self {
            Mutation::Create {
                parent,
                name: new,
                nid: made,
                ino: shown,
                ..
            } => {
                nid(*parent)?;
                nid(*made)?;
                ino(*shown)?;
                name(new)
            }
            Mutation::Link {
                nid: linked,
                parent,
                name: new,
                group,
                ..
            } => {
                nid(*linked)?;
                nid(*parent)?;
                ino(*group)?;
                name(new)
            }
            Mutation::Unlink {
                parent, name: old, ..
            } => nid(*parent).and_then(|()| name(old)),
            Mutation::Rename {
                parent,
                name: old,
                new_parent,
                new_name,
                ..
            } => moved((*parent, old), (*new_parent, new_name)),
            Mutation::Nameless {
                parent,
                nid: made,
                ino: shown,
                ..
            } => {
                nid(*parent)?;
                nid(*made)?;
                ino(*shown)
            }
            Mutation::Whiteout {
                parent,
                name: old,
                new_parent,
                new_name,
                nid: made,
                ino: shown,
                ..
            } => {
                moved((*parent, old), (*new_parent, new_name))?;
                nid(*made)?;
                ino(*shown)
            }
            Mutation::SetAttr { nid: of, size, .. } => {
                nid(*of)?;
                range(0, size.unwrap_or(0))
            }
            Mutation::Write {
                nid: of, offset, ..
            } => {
                nid(*of)?;
                range(*offset, payload.map_or(0, |p| u64::from(p.len)))
            }
            Mutation::Allocate {
                nid: of,
                offset,
                len,
                size,
                ..
            } => {
                nid(*of)?;
                range(0, *size)?;
                range(*offset, *len)
            }
            Mutation::Copy {
                src,
                src_offset,
                dst,
                dst_offset,
                len,
                ..
            } => {
                nid(*src)?;
                nid(*dst)?;
                range(*src_offset, *len)?;
                range(*dst_offset, *len)
            }
            Mutation::Kv { key, entry } => check_entry(key, entry.as_deref()),
        }
    }
}

/// Checks the bounds of a key and what it has.
pub(super) fn check_entry(key: &str, entry: Option<&KvEntry>) -> Checked {
    let fits = entry.is_none_or(|e| e.value.len() <= KV_VALUE_BYTES_MAX);
    if check_key(key).is_err() || !fits {
        return Err(Broken("a key or value"));
    }
    Ok(())
}

impl InodeRecord {
    /// Checks the bounds of all numbers, and that the content is of the mode's type.
    pub fn check(&self) -> Checked {
        nid(self.parent)?;
        ino(self.ino)?;
        range(0, self.size)?;
        let links = self.links.as_ref().map(|(_, names)| names);
        links
            .into_iter()
            .flatten()
            .try_for_each(|&(parent, _, _)| nid(parent))?;
        let kind = Kind::of_mode(self.mode);
        let fits = match &self.content {
            ContentRecord::File(_, len, alloc, extents) => {
                range(0, *len)?;
                range(0, *alloc)?;
                extents.iter().try_for_each(extent)?;
                kind == Some(Kind::File)
            }
            ContentRecord::Dir(..) | ContentRecord::LazyDir(_) | ContentRecord::Away(_) => {
                kind == Some(Kind::Dir)
            }
            ContentRecord::Symlink(_) => kind == Some(Kind::Symlink),
            ContentRecord::Special => matches!(
                kind,
                Some(Kind::Fifo | Kind::Socket | Kind::Char | Kind::Block)
            ),
        };
        fits.then_some(()).ok_or(Broken("content of another type"))
    }
}

fn extent((start, len, src): &(u64, u64, SrcRecord)) -> Checked {
    range(*start, *len)?;
    match src {
        SrcRecord::Hole | SrcRecord::Zero => Ok(()),
        SrcRecord::Shared(_, at) => range(*at, *len),
        SrcRecord::Journal(_, offset, payload, from) => {
            range(*offset, u64::from(*payload))?;
            let fits = u64::from(*payload).checked_sub(u64::from(*from)) >= Some(*len);
            fits.then_some(())
                .ok_or(Broken("an extent beyond its payload"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Time;

    fn write(nid: u64, offset: u64) -> Mutation {
        Mutation::Write {
            nid,
            offset,
            perm: None,
            now: Time::default(),
        }
    }

    #[test]
    fn bounds_hold_for_what_is_decoded() {
        let payload = Some(PayloadRef {
            segment: 1,
            offset: 96,
            len: 2,
        });
        assert!(write(2, 7).check(payload).is_ok());
        assert!(write(0, 7).check(payload).is_err());
        assert!(write(1 << 40, 7).check(payload).is_err());
        assert!(write(2, i64::MAX as u64 - 1).check(payload).is_err());
        let long = Mutation::Unlink {
            parent: 1,
            name: vec![b'a'; 256],
            now: Time::default(),
        };
        assert!(long.check(None).is_err());
    }

    #[test]
    fn extents_stay_within_their_payload() {
        let journal = |len, from| extent(&(0, len, SrcRecord::Journal(1, 96, 5, from)));
        assert!(journal(5, 0).is_ok() && journal(2, 3).is_ok());
        assert!(journal(6, 0).is_err() && journal(3, 3).is_err() && journal(0, 6).is_err());
    }
}
