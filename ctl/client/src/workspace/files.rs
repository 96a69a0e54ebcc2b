//! Files of a branch, by path and open.

use super::{Error, Result, Workspace};
use crate::protocol::{
    AtPath, Bytes, Call, CopyPath, FileNode, HandleData, ListFiles, ListFilesAnswer, MakeDir,
    MakeLink, Nothing, OfHandle, OpenPath, Opened, PIECE_BYTES, ReadAnswer, ReadFile, ReadHandle,
    RemovePath, RenamePath, ResizeHandle, SetLength, SetPerm, Side, SpaceAnswer, WriteAnswer,
    WriteFile, WriteHandle,
};
use crate::quote::{base64, from_base64};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Permission bits of a file that is made.
const PERM: u32 = 0o644;

/// How [`Workspace::open_file`] opens a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HowToOpen {
    /// Make it where it does not exist.
    pub create: bool,
    /// With `create`: it must not exist.
    pub exclusive: bool,
    /// Its content goes.
    pub truncate: bool,
}

/// An open file: what a descriptor of the mount is, and closed when this is dropped. It reads and writes where it
/// stands, or by [`File::read_at`] and [`File::write_at`] where that is said.
pub struct File<'w> {
    workspace: &'w mut Workspace,
    handle: u64,
    at: u64,
}

impl Workspace {
    /// The whole content of a file.
    pub fn read(&mut self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        self.read_from(&Side::Live, path)
    }

    /// The same of a state: the live tree, the project as it was, or a commit.
    pub fn read_from(&mut self, state: &Side, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let mut content: Vec<u8> = Vec::new();
        loop {
            let ask = Call::FsRead(ReadFile {
                workspace: self.name.clone(),
                branch: self.branch.clone(),
                state: state.clone(),
                path: Bytes::from(path.as_ref()),
                offset: content.len() as u64,
                length: None,
            });
            let part: ReadAnswer = self.ask(&ask)?;
            let bytes = decoded(&part.b64)?;
            // Before the data there may be a hole.
            let begins = if bytes.is_empty() {
                part.size
            } else {
                part.offset
            };
            content.resize(begins.max(content.len() as u64) as usize, 0);
            content.extend_from_slice(&bytes);
            if bytes.is_empty() || content.len() as u64 >= part.size {
                return Ok(content);
            }
        }
    }

    /// Writes a whole file, and makes it and the directories above it where they do not exist. It is on stable
    /// storage afterwards; inside of [`Workspace::call`] at the end of that.
    pub fn write(&mut self, path: impl AsRef<Path>, content: &[u8]) -> Result<()> {
        self.write_parts(path.as_ref(), content, Some(0))
    }

    /// Adds to the end of a file; the same otherwise.
    pub fn append(&mut self, path: impl AsRef<Path>, content: &[u8]) -> Result<()> {
        self.write_parts(path.as_ref(), content, None)
    }

    fn write_parts(&mut self, path: &Path, content: &[u8], from: Option<u64>) -> Result<()> {
        let count = content.len().div_ceil(PIECE_BYTES).max(1);
        for n in 0..count {
            let start = n * PIECE_BYTES;
            let part = &content[start..content.len().min(start + PIECE_BYTES)];
            let ask = Call::FsWrite(WriteFile {
                workspace: self.name.clone(),
                branch: self.branch.clone(),
                path: Bytes::from(path),
                offset: from.map(|from| from + start as u64),
                b64: base64(part),
                last: n + 1 == count,
                perm: PERM,
                parents: true,
                unsynced: self.unsynced,
            });
            let _: WriteAnswer = self.ask(&ask)?;
        }
        Ok(())
    }

    /// What is known of a path; of a symbolic link itself.
    pub fn stat(&mut self, path: impl AsRef<Path>) -> Result<FileNode> {
        let ask = Call::FsStat(AtPath {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            state: Side::Live,
            path: Bytes::from(path.as_ref()),
            follow: false,
        });
        self.ask(&ask)
    }

    /// Whether a path leads to something.
    pub fn exists(&mut self, path: impl AsRef<Path>) -> Result<bool> {
        match self.stat(path) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.errno(), Some("ENOENT" | "ENOTDIR")) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The entries of a directory, by name.
    pub fn list(&mut self, path: impl AsRef<Path>) -> Result<Vec<FileNode>> {
        let mut all: Vec<FileNode> = Vec::new();
        loop {
            let ask = Call::FsList(ListFiles {
                workspace: self.name.clone(),
                branch: self.branch.clone(),
                state: Side::Live,
                path: Bytes::from(path.as_ref()),
                after: all.last().map(|node| node.name.clone()),
                skip: 0,
                limit: None,
            });
            let page: ListFilesAnswer = self.ask(&ask)?;
            all.extend(page.entries);
            if !page.more {
                return Ok(all);
            }
        }
    }

    /// Makes a directory and those above it; one that exists is no error.
    pub fn mkdir(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let ask = Call::FsMkdir(MakeDir {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            path: Bytes::from(path.as_ref()),
            parents: true,
        });
        self.done(&ask)
    }

    /// Removes a file, a link or an empty directory.
    pub fn remove(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.remove_path(path.as_ref(), false)
    }

    /// The same; a directory with all that is in it.
    pub fn remove_all(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.remove_path(path.as_ref(), true)
    }

    fn remove_path(&mut self, path: &Path, recursive: bool) -> Result<()> {
        let ask = Call::FsRemove(RemovePath {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            path: Bytes::from(path),
            recursive,
            expect: None,
        });
        self.done(&ask)
    }

    /// Gives a file or directory another path; what has that is replaced as by rename(2).
    pub fn rename(&mut self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let ask = Call::FsRename(RenamePath {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            from: Bytes::from(from.as_ref()),
            to: Bytes::from(to.as_ref()),
        });
        self.done(&ask)
    }

    /// Copies a file, without storing it again; gives its length.
    pub fn copy(&mut self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let ask = Call::FsCopy(CopyPath {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            from: Bytes::from(from.as_ref()),
            to: Bytes::from(to.as_ref()),
            overwrite: true,
        });
        let answer: WriteAnswer = self.ask(&ask)?;
        Ok(answer.size)
    }

    /// Makes a symbolic link at `path` that says `target`.
    pub fn symlink(&mut self, path: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<()> {
        let ask = Call::FsSymlink(MakeLink {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            path: Bytes::from(path.as_ref()),
            target: Bytes::from(target.as_ref()),
        });
        self.done(&ask)
    }

    /// Gives a file another length.
    pub fn truncate(&mut self, path: impl AsRef<Path>, size: u64) -> Result<()> {
        let ask = Call::FsTruncate(SetLength {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            path: Bytes::from(path.as_ref()),
            size,
        });
        self.done(&ask)
    }

    /// Changes permission bits.
    pub fn chmod(&mut self, path: impl AsRef<Path>, perm: u32) -> Result<()> {
        let ask = Call::FsChmod(SetPerm {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            path: Bytes::from(path.as_ref()),
            perm,
        });
        self.done(&ask)
    }

    /// What the branch takes, and what the disk below the store has.
    pub fn space(&mut self) -> Result<SpaceAnswer> {
        self.ask(&Call::FsStatfs(self.here()))
    }

    /// Opens a file, for what is too long to be read or written as a whole.
    pub fn open_file(&mut self, path: impl AsRef<Path>, how: HowToOpen) -> Result<File<'_>> {
        let ask = Call::FsOpen(OpenPath {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            state: Side::Live,
            path: Bytes::from(path.as_ref()),
            create: how.create,
            exclusive: how.exclusive,
            truncate: how.truncate,
            perm: PERM,
        });
        let Opened { handle, .. } = self.ask(&ask)?;
        Ok(File {
            workspace: self,
            handle,
            at: 0,
        })
    }

    fn done(&mut self, ask: &Call) -> Result<()> {
        let Nothing {} = self.ask(ask)?;
        Ok(())
    }
}

impl File<'_> {
    /// Bytes from `offset` on: 256 KiB at most, none at the end.
    pub fn read_at(&mut self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let ask = Call::FsPread(ReadHandle {
            handle: self.handle,
            offset,
            length: Some(length as u64),
        });
        let part: HandleData = self.workspace.ask(&ask)?;
        decoded(&part.b64)
    }

    /// Writes at `offset`, or at the end; gives the file's length.
    pub fn write_at(&mut self, offset: Option<u64>, data: &[u8]) -> Result<u64> {
        let mut size = 0;
        let count = data.len().div_ceil(PIECE_BYTES).max(1);
        for n in 0..count {
            let start = n * PIECE_BYTES;
            let ask = Call::FsPwrite(WriteHandle {
                handle: self.handle,
                offset: offset.map(|offset| offset + start as u64),
                b64: base64(&data[start..data.len().min(start + PIECE_BYTES)]),
            });
            let answer: WriteAnswer = self.workspace.ask(&ask)?;
            size = answer.size;
        }
        Ok(size)
    }

    /// Gives it another length.
    pub fn set_len(&mut self, size: u64) -> Result<()> {
        let handle = self.handle;
        let ask = Call::FsFtruncate(ResizeHandle { handle, size });
        self.workspace.done(&ask)
    }

    /// What is known of it.
    pub fn stat(&mut self) -> Result<FileNode> {
        let handle = self.handle;
        self.workspace.ask(&Call::FsFstat(OfHandle { handle }))
    }

    /// Brings it to stable storage.
    pub fn sync(&mut self) -> Result<()> {
        let handle = self.handle;
        self.workspace.done(&Call::FsFsync(OfHandle { handle }))
    }
}

impl Drop for File<'_> {
    fn drop(&mut self) {
        let handle = self.handle;
        // Where the connection is gone it is closed.
        let _ = self.workspace.done(&Call::FsClose(OfHandle { handle }));
    }
}

impl Read for File<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let bytes = self.read_at(self.at, buf.len()).map_err(io::Error::other)?;
        buf[..bytes.len()].copy_from_slice(&bytes);
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }
}

impl Write for File<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let part = &buf[..buf.len().min(PIECE_BYTES)];
        self.write_at(Some(self.at), part)
            .map_err(io::Error::other)?;
        self.at += part.len() as u64;
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let end = match to {
            SeekFrom::End(_) => self.stat().map_err(io::Error::other)?.size,
            _ => 0,
        };
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => end.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

fn decoded(b64: &str) -> Result<Vec<u8>> {
    from_base64(b64).ok_or_else(|| Error::Broken("the daemon sent no base64".to_owned()))
}
