//! Requests about single files, and patches.

use super::moments::moment;
use super::mounts::Mounts;
use super::request::{Watch, bare, looking_into, of_change, on, side};
use agentvfs_client::protocol::{
    AtPath, Bytes, Changed, CopyPath, Diff, DiffAnswer, Expected, Fault, FileKind, FileNode,
    LineCount, ListFiles, ListFilesAnswer, MakeDir, MakeLink, OnBranch, PIECE_BYTES, PatchAnswer,
    ReadAnswer, ReadFile, RemovePath, RenamePath, SetLength, SetPerm, SpaceAnswer, WriteAnswer,
    WriteFile, code,
};
use agentvfs_client::quote::{base64, from_base64};
use engine::verbs;
use engine::{Caller, Error, Expect, Kind, NodeInfo};

/// Entries in one answer.
const ENTRIES_MAX: usize = 4096;
/// Changes whose content is compared between two looks at whether that is cancelled.
const CHANGES_AT_ONCE: usize = 16;
/// All permission bits, set-id and sticky ones among them.
const PERM_MAX: u32 = 0o7777;

/// What is known of a path.
pub fn stat(mounts: &Mounts, ask: &AtPath) -> Result<FileNode, Fault> {
    let node = looking_into(mounts, &ask.workspace, |w| {
        verbs::read_state(w, &ask.branch, &side(&ask.state))?.stat(&ask.path.0, ask.follow)
    });
    node.map(of_node).map_err(|fault| at(fault, &ask.path))
}

/// The entries of a directory, some thousand at a time.
pub fn list(mounts: &Mounts, ask: &ListFiles) -> Result<ListFilesAnswer, Fault> {
    let mut all = looking_into(mounts, &ask.workspace, |w| {
        verbs::read_state(w, &ask.branch, &side(&ask.state))?.list(&ask.path.0)
    })
    .map_err(|fault| at(fault, &ask.path))?;
    let total = all.len() as u64;
    if let Some(after) = &ask.after {
        all.retain(|node| node.name > after.0);
    }
    let skipped = usize::try_from(ask.skip).unwrap_or(usize::MAX);
    all.drain(..skipped.min(all.len()));
    let limit = bounded(ask.limit, ENTRIES_MAX);
    let more = all.len() > limit;
    all.truncate(limit);
    Ok(ListFilesAnswer {
        entries: all.into_iter().map(of_node).collect(),
        more,
        total,
    })
}

/// A limit that was asked for, or the daemon's own.
fn bounded(asked: Option<u64>, most: usize) -> usize {
    let asked = asked.and_then(|asked| usize::try_from(asked).ok());
    asked.map_or(most, |asked| asked.min(most))
}

/// A part of a file.
pub fn read(mounts: &Mounts, ask: &ReadFile) -> Result<ReadAnswer, Fault> {
    let stretch = looking_into(mounts, &ask.workspace, |w| {
        verbs::read_state(w, &ask.branch, &side(&ask.state))?.read(
            &ask.path.0,
            ask.offset,
            bounded(ask.length, PIECE_BYTES),
        )
    })
    .map_err(|fault| at(fault, &ask.path))?;
    Ok(ReadAnswer {
        offset: stretch.offset,
        b64: base64(&stretch.bytes),
        size: stretch.size,
    })
}

/// Writes a part of a file.
pub fn write(mounts: &Mounts, ask: &WriteFile) -> Result<WriteAnswer, Fault> {
    let part = engine::WriteFile {
        path: ask.path.0.clone(),
        offset: ask.offset,
        data: data_of(&ask.b64)?,
        last: ask.last,
        unsynced: ask.unsynced,
        perm: checked_perm(ask.perm)?,
        parents: ask.parents,
    };
    let size = on(mounts, &ask.workspace, |w| {
        verbs::write_file(w, &ask.branch, &owner(), &part)
    })
    .map_err(|fault| at(fault, &ask.path))?;
    Ok(WriteAnswer { size })
}

/// Data that came as base64.
pub fn data_of(b64: &str) -> Result<Vec<u8>, Fault> {
    let wrong = || Fault::protocol(code::INVALID_PARAMS, "b64 is not base64");
    from_base64(b64).ok_or_else(wrong)
}

/// Permission bits, if they are no more than that.
pub fn checked_perm(perm: u32) -> Result<u32, Fault> {
    if perm <= PERM_MAX {
        return Ok(perm);
    }
    let why = format!("perm is {perm:#o}; the maximum is {PERM_MAX:#o}");
    Err(Fault::protocol(code::INVALID_PARAMS, why))
}

/// Makes a directory.
pub fn mkdir(mounts: &Mounts, ask: &MakeDir) -> Result<(), Fault> {
    on(mounts, &ask.workspace, |w| {
        verbs::make_dir(w, &ask.branch, &owner(), &ask.path.0, ask.parents)
    })
    .map_err(|fault| at(fault, &ask.path))
}

/// Removes a file or a directory.
pub fn remove(mounts: &Mounts, ask: &RemovePath) -> Result<(), Fault> {
    on(mounts, &ask.workspace, |w| {
        let (path, recursive) = (&ask.path.0, ask.recursive);
        match ask.expect {
            None => verbs::remove_path(w, &ask.branch, path, recursive),
            Some(expected) => {
                let expect = match expected {
                    Expected::File => Expect::File,
                    Expected::Directory => Expect::Dir,
                };
                verbs::remove_expected(w, &ask.branch, path, recursive, expect)
            }
        }
    })
    .map_err(|fault| match fault.kind.as_str() {
        "not-empty" if !ask.recursive => {
            at(fault, &ask.path).hint("--recursive removes it with all its entries")
        }
        _ => at(fault, &ask.path),
    })
}

/// Gives a file or directory another path.
pub fn rename(mounts: &Mounts, ask: &RenamePath) -> Result<(), Fault> {
    on(mounts, &ask.workspace, |w| {
        verbs::rename_path(w, &ask.branch, &ask.from.0, &ask.to.0)
    })
    .map_err(|fault| from_to(fault, &ask.from, &ask.to))
}

/// Copies a file.
pub fn copy(mounts: &Mounts, ask: &CopyPath) -> Result<WriteAnswer, Fault> {
    let paths = (&ask.from.0[..], &ask.to.0[..]);
    let size = on(mounts, &ask.workspace, |w| {
        verbs::copy_file(w, &ask.branch, &owner(), paths, ask.overwrite)
    })
    .map_err(|fault| from_to(fault, &ask.from, &ask.to))?;
    Ok(WriteAnswer { size })
}

/// Makes a symbolic link.
pub fn symlink(mounts: &Mounts, ask: &MakeLink) -> Result<(), Fault> {
    on(mounts, &ask.workspace, |w| {
        verbs::make_link(w, &ask.branch, &owner(), &ask.path.0, &ask.target.0)
    })
    .map_err(|fault| at(fault, &ask.path))
}

/// Gives a file another length.
pub fn truncate(mounts: &Mounts, ask: &SetLength) -> Result<(), Fault> {
    on(mounts, &ask.workspace, |w| {
        verbs::set_size(w, &ask.branch, &owner(), &ask.path.0, ask.size)
    })
    .map_err(|fault| at(fault, &ask.path))
}

/// Changes permission bits.
pub fn chmod(mounts: &Mounts, ask: &SetPerm) -> Result<(), Fault> {
    let perm = checked_perm(ask.perm)?;
    on(mounts, &ask.workspace, |w| {
        verbs::set_perm(w, &ask.branch, &owner(), &ask.path.0, perm)
    })
    .map_err(|fault| at(fault, &ask.path))
}

/// What a branch takes, and what the disk has.
pub fn statfs(mounts: &Mounts, ask: &OnBranch) -> Result<SpaceAnswer, Fault> {
    let space = looking_into(mounts, &ask.workspace, |w| verbs::space(w, &ask.branch))?;
    let bytes = |blocks: u64| blocks.saturating_mul(u64::from(space.disk.bsize));
    Ok(SpaceAnswer {
        bytes_total: bytes(space.disk.blocks),
        bytes_free: bytes(space.disk.bfree),
        bytes_available: bytes(space.disk.bavail),
        inodes: space.inodes,
        bytes_used: space.file_bytes,
        name_max: space.disk.namelen,
    })
}

/// A fault about one of two paths.
fn from_to(fault: Fault, from: &Bytes, to: &Bytes) -> Fault {
    about(fault, || {
        format!("{} to {}", shown_path(from), shown_path(to))
    })
}

/// What is made belongs to whose daemon this is, as everything that it is asked to do.
pub fn owner() -> Caller {
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        pid: std::process::id(),
        umask: 0o022,
    }
}

/// Sends what differs as a patch.
pub fn patch(mounts: &Mounts, ask: &Diff, watch: &Watch<'_>) -> Result<PatchAnswer, Fault> {
    let data = watch.data;
    let mut waiting = Vec::new();
    let (changes, left_out) = looking_into(mounts, &ask.workspace, |w| {
        let old = verbs::read_state(w, &ask.branch, &side(&ask.from))?;
        let new = verbs::read_state(w, &ask.branch, &side(&ask.to))?;
        let changes = old.changes(&new, &bare(&ask.paths))?;
        let mut send = |bytes: &[u8]| {
            waiting.extend_from_slice(bytes);
            while waiting.len() >= PIECE_BYTES {
                let rest = waiting.split_off(PIECE_BYTES);
                let piece = std::mem::replace(&mut waiting, rest);
                if !data(&piece) {
                    return Err(Error::Closing);
                }
            }
            Ok(())
        };
        let mut left_out = Vec::new();
        in_parts(&changes, watch, |part| {
            left_out.extend(engine::patch::write(&old, &new, part, &mut send)?);
            Ok(())
        })?;
        Ok((changes, left_out))
    })?;
    if !waiting.is_empty() && !data(&waiting) {
        return Err(Fault::failed("failed", "the client does not read"));
    }
    Ok(PatchAnswer {
        changes: changes.into_iter().map(of_change).collect(),
        left_out: left_out.into_iter().map(Bytes).collect(),
    })
}

/// Does work on changes, a few at a time; says how far it is, and ends where it is cancelled.
fn in_parts(
    changes: &[engine::Change],
    watch: &Watch<'_>,
    mut work: impl FnMut(&[engine::Change]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut done = 0;
    for part in changes.chunks(CHANGES_AT_ONCE) {
        watch.cancel.check()?;
        (watch.progress)(done, changes.len() as u64);
        work(part)?;
        done += part.len() as u64;
    }
    Ok(())
}

/// What differs, with its lines counted.
pub fn counted(mounts: &Mounts, ask: &Diff, watch: &Watch<'_>) -> Result<DiffAnswer, Fault> {
    looking_into(mounts, &ask.workspace, |w| {
        let old = verbs::read_state(w, &ask.branch, &side(&ask.from))?;
        let new = verbs::read_state(w, &ask.branch, &side(&ask.to))?;
        let changes = old.changes(&new, &bare(&ask.paths))?;
        let mut lines = Vec::new();
        in_parts(&changes, watch, |part| {
            lines.extend(engine::patch::count(&old, &new, part)?);
            Ok(())
        })?;
        let changes = changes
            .into_iter()
            .zip(lines)
            .map(|(change, lines)| Changed {
                lines: Some(LineCount {
                    added: lines.added,
                    removed: lines.removed,
                    binary: lines.binary,
                    old_size: lines.old_size,
                    new_size: lines.new_size,
                }),
                ..of_change(change)
            });
        Ok(DiffAnswer {
            changes: changes.collect(),
        })
    })
}

/// A fault about a path says which one.
pub fn at(fault: Fault, path: &Bytes) -> Fault {
    about(fault, || shown_path(path))
}

/// The same, for one that may be about something else.
fn about(fault: Fault, what: impl FnOnce() -> String) -> Fault {
    const ABOUT_PATH: [&str; 5] = [
        "no-such-path",
        "wrong-type",
        "failed",
        "exists",
        "not-empty",
    ];
    if !ABOUT_PATH.contains(&fault.kind.as_str()) {
        return fault;
    }
    Fault {
        message: format!("{}: {}", what(), fault.message),
        ..fault
    }
}

fn shown_path(path: &Bytes) -> String {
    match path.0.as_slice() {
        b"" => "the root".to_owned(),
        path => agentvfs_client::quote::shown(path),
    }
}

/// A node as it is told.
pub fn of_node(node: NodeInfo) -> FileNode {
    FileNode {
        name: Bytes(node.name),
        kind: match node.kind {
            Kind::File => FileKind::File,
            Kind::Dir => FileKind::Directory,
            Kind::Symlink => FileKind::Symlink,
            Kind::Fifo => FileKind::Fifo,
            Kind::Socket => FileKind::Socket,
            Kind::Char => FileKind::CharacterDevice,
            Kind::Block => FileKind::BlockDevice,
        },
        perm: node.perm,
        nlink: node.nlink,
        uid: node.uid,
        gid: node.gid,
        rdev: node.rdev,
        size: node.size,
        mtime: moment(node.mtime),
        inode: node.inode,
        target: node.target.map(Bytes),
        xattrs: node
            .xattrs
            .into_iter()
            .map(|(name, value)| (Bytes(name), Bytes(value)))
            .collect(),
    }
}
