//! Differences as a patch that `git apply` and `patch -p1` understand, or as counted lines.
//!
//! Names and types come from the two states that are compared, contents are read from them piece by
//! piece. Invariant: memory is bounded by [`TEXT_BYTES_MAX`], however large the files are; larger ones,
//! and those with a NUL near their beginning, are binary. What git has no words for (empty directories,
//! special files, owners, extended attributes, permissions but the executable bit) is left out and named.

mod binary;
mod text;

use crate::error::{Error, Result};
use crate::limits::TEXT_BYTES_MAX;
use crate::tree::inode::Content;
use crate::types::{Kind, Nid};
use crate::verbs::{Change, StateReader};
use agentvfs_quote::{header_name, marked_name};
use binary::Sha;

/// Takes the patch, in order.
pub type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<()>;

/// Bytes at the beginning of a file that tell whether it is text, as in git.
const SNIFF_BYTES: usize = 8000;

/// How many lines a change added and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// Lines that are new.
    pub added: u64,
    /// Lines that are gone.
    pub removed: u64,
    /// It is binary, and no lines are counted.
    pub binary: bool,
    /// Length before, in bytes.
    pub old_size: u64,
    /// Length now.
    pub new_size: u64,
}

/// One side of a change.
struct Side<'a> {
    view: &'a StateReader,
    what: What,
}

/// What git knows of a path.
enum What {
    /// Nothing is there, or nothing that git could record.
    Nothing,
    File {
        nid: Nid,
        size: u64,
        executable: bool,
    },
    Link(Vec<u8>),
}

/// A side's content, read or at least hashed.
struct Blob {
    /// `None` where it is too large to be text.
    bytes: Option<Vec<u8>>,
    sha: String,
    size: u64,
    binary: bool,
}

/// Writes `changes` from `old` to `new` as a patch; gives the paths that a patch cannot express.
pub fn write(
    old: &StateReader,
    new: &StateReader,
    changes: &[Change],
    out: Sink<'_>,
) -> Result<Vec<Vec<u8>>> {
    let mut left_out = Vec::new();
    for change in changes {
        let (a, b) = sides(old, new, change)?;
        if !write_change(change, &a, &b, out)? {
            left_out.push(change.path.clone());
        }
    }
    Ok(left_out)
}

/// Counts the lines of each change.
pub fn count(old: &StateReader, new: &StateReader, changes: &[Change]) -> Result<Vec<Lines>> {
    let mut out = Vec::with_capacity(changes.len());
    for change in changes {
        let (a, b) = sides(old, new, change)?;
        let (a, b) = (a.blob()?, b.blob()?);
        let mut lines = Lines {
            old_size: a.size,
            new_size: b.size,
            binary: a.binary || b.binary,
            ..Lines::default()
        };
        if let (false, Some(x), Some(y)) = (lines.binary, &a.bytes, &b.bytes) {
            (lines.added, lines.removed) = text::count(x, y);
        }
        out.push(lines);
    }
    Ok(out)
}

fn sides<'a>(
    old: &'a StateReader,
    new: &'a StateReader,
    change: &Change,
) -> Result<(Side<'a>, Side<'a>)> {
    let before = change.old_path.as_deref().unwrap_or(&change.path);
    Ok((Side::at(old, before)?, Side::at(new, &change.path)?))
}

impl<'a> Side<'a> {
    fn at(view: &'a StateReader, path: &[u8]) -> Result<Side<'a>> {
        let tree = view.tree()?;
        let what = match tree.resolve(path) {
            Err(Error::NotFound | Error::NotDir) => What::Nothing,
            Err(e) => return Err(e),
            Ok(nid) => {
                let inode = tree.inode(nid)?;
                match (&inode.content, inode.kind()) {
                    (Content::Symlink(target), _) => What::Link(target.to_vec()),
                    (_, Kind::File) => What::File {
                        nid,
                        size: inode.size,
                        executable: inode.mode & 0o100 != 0,
                    },
                    _ => What::Nothing,
                }
            }
        };
        Ok(Side { view, what })
    }

    fn mode(&self) -> Option<&'static str> {
        match self.what {
            What::Nothing => None,
            What::File {
                executable: true, ..
            } => Some("100755"),
            What::File { .. } => Some("100644"),
            What::Link(_) => Some("120000"),
        }
    }

    /// The side as if nothing were there.
    fn nothing(&self) -> Side<'a> {
        Side {
            view: self.view,
            what: What::Nothing,
        }
    }

    fn blob(&self) -> Result<Blob> {
        let whole = |bytes: Vec<u8>, sha: String| Blob {
            size: bytes.len() as u64,
            binary: bytes[..bytes.len().min(SNIFF_BYTES)].contains(&0),
            bytes: Some(bytes),
            sha,
        };
        Ok(match &self.what {
            What::Nothing => whole(Vec::new(), Sha::NOTHING.to_owned()),
            What::Link(target) => Blob {
                binary: false,
                ..whole(target.clone(), Sha::of(target))
            },
            What::File { nid, size, .. } if *size <= TEXT_BYTES_MAX => {
                let mut bytes = vec![0; *size as usize];
                self.view.read_at(*nid, 0, &mut bytes)?;
                let sha = Sha::of(&bytes);
                whole(bytes, sha)
            }
            What::File { size, .. } => Blob {
                bytes: None,
                sha: self.hash(*size)?,
                size: *size,
                binary: true,
            },
        })
    }

    fn hash(&self, size: u64) -> Result<String> {
        let mut sha = Sha::new(size);
        self.each_piece(&mut |bytes| {
            sha.update(bytes);
            Ok(())
        })?;
        Ok(sha.finish())
    }

    /// Hands the content out in pieces.
    fn each_piece(&self, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        const PIECE_BYTES: u64 = 256 << 10;
        let What::File { nid, size, .. } = self.what else {
            return Ok(());
        };
        let mut piece = vec![0; PIECE_BYTES.min(size) as usize];
        let mut at = 0;
        while at < size {
            let n = (size - at).min(PIECE_BYTES) as usize;
            self.view.read_at(nid, at, &mut piece[..n])?;
            each(&piece[..n])?;
            at += n as u64;
        }
        Ok(())
    }
}

/// Writes one change; false where git has no words for it, or not for all of it.
fn write_change(change: &Change, a: &Side<'_>, b: &Side<'_>, out: Sink<'_>) -> Result<bool> {
    let before = change.old_path.as_deref().unwrap_or(&change.path);
    let both_files = |a: &What, b: &What| {
        matches!(
            (a, b),
            (What::File { .. }, What::File { .. }) | (What::Link(_), What::Link(_))
        )
    };
    match (&a.what, &b.what) {
        (What::Nothing, What::Nothing) => Ok(false),
        (What::Nothing, _) | (_, What::Nothing) => write_pair(before, &change.path, a, b, out),
        (x, y) if both_files(x, y) => write_pair(before, &change.path, a, b, out),
        // Another type: git says that the one goes and the other comes.
        _ => {
            write_pair(before, before, a, &b.nothing(), out)?;
            write_pair(&change.path, &change.path, &a.nothing(), b, out)
        }
    }
}

/// The entry of one path, renamed or not, whose sides are of one type, or one of which is nothing. False
/// where git sees no difference.
fn write_pair(
    before: &[u8],
    after: &[u8],
    a: &Side<'_>,
    b: &Side<'_>,
    out: Sink<'_>,
) -> Result<bool> {
    let (x, y) = (a.blob()?, b.blob()?);
    let same = x.sha == y.sha && a.mode().is_some() == b.mode().is_some();
    if same && a.mode() == b.mode() && before == after {
        return Ok(false);
    }
    let (old, new) = (header_name(b"a/", before), header_name(b"b/", after));
    let mut head = [b"diff --git ", &old[..], b" ", &new, b"\n"].concat();
    let mut line = |parts: &[&[u8]]| {
        parts.iter().for_each(|part| head.extend_from_slice(part));
        head.push(b'\n');
    };
    match (a.mode(), b.mode()) {
        (None, Some(mode)) => line(&[b"new file mode ", mode.as_bytes()]),
        (Some(mode), None) => line(&[b"deleted file mode ", mode.as_bytes()]),
        (Some(from), Some(to)) if from != to => {
            line(&[b"old mode ", from.as_bytes()]);
            line(&[b"new mode ", to.as_bytes()]);
        }
        _ => {}
    }
    if before != after {
        let percent = text::similarity(&x, &y).to_string();
        line(&[b"similarity index ", percent.as_bytes(), b"%"]);
        line(&[b"rename from ", &header_name(b"", before)]);
        line(&[b"rename to ", &header_name(b"", after)]);
    }
    if same {
        out(&head)?;
        return Ok(true);
    }
    let mode = match (a.mode(), b.mode()) {
        (Some(from), Some(to)) if from == to => format!(" {to}"),
        _ => String::new(),
    };
    line(&[
        b"index ",
        x.sha.as_bytes(),
        b"..",
        y.sha.as_bytes(),
        mode.as_bytes(),
    ]);
    out(&head)?;
    write_content((before, after), (a, &x), (b, &y), out)?;
    Ok(true)
}

fn write_content(
    (before, after): (&[u8], &[u8]),
    (a, x): (&Side<'_>, &Blob),
    (b, y): (&Side<'_>, &Blob),
    out: Sink<'_>,
) -> Result<()> {
    let (false, Some(old), Some(new)) = (x.binary || y.binary, &x.bytes, &y.bytes) else {
        out(b"GIT binary patch\n")?;
        binary::write(b, y, out)?;
        return binary::write(a, x, out);
    };
    if old.is_empty() && new.is_empty() {
        return Ok(());
    }
    let name = |side: &Side<'_>, prefix: &[u8], path: &[u8]| match side.mode() {
        None => b"/dev/null".to_vec(),
        Some(_) => marked_name(prefix, path),
    };
    let (from, to) = (name(a, b"a/", before), name(b, b"b/", after));
    out(&[b"--- ", &from[..], b"\n+++ ", &to, b"\n"].concat())?;
    text::write(old, new, out)
}
