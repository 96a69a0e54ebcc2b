"""Files, as agentfs-sdk has them: paths from the root of the workspace, errors as ``ErrnoException``.

Other than there, symbolic links are followed instead of refused, and ``stat`` tells a link itself.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar, overload

from ..aio import AsyncWorkspace
from ..errors import FileError
from ..types import Node
from .constants import DEFAULT_CHUNK_SIZE, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG
from .database import Connection
from .errors import MESSAGES, ErrnoException

__all__ = ["S_IFDIR", "S_IFLNK", "S_IFMT", "S_IFREG", "Filesystem", "Stats"]

T = TypeVar("T")

_TYPES = {
    "file": S_IFREG,
    "directory": S_IFDIR,
    "symlink": S_IFLNK,
    "fifo": 0o010000,
    "socket": 0o140000,
    "character-device": 0o020000,
    "block-device": 0o060000,
}


@dataclass
class Stats:
    """What is known of a name; times in seconds since 1970."""

    ino: int
    mode: int
    nlink: int
    uid: int
    gid: int
    size: int
    atime: int
    mtime: int
    ctime: int

    def is_file(self) -> bool:
        """It is a regular file."""
        return (self.mode & S_IFMT) == S_IFREG

    def is_directory(self) -> bool:
        """It is a directory."""
        return (self.mode & S_IFMT) == S_IFDIR

    def is_symbolic_link(self) -> bool:
        """It is a symbolic link."""
        return (self.mode & S_IFMT) == S_IFLNK


def _stats(node: Node) -> Stats:
    time = node.mtime_ns // 1_000_000_000
    mode = _TYPES[node.type] | node.perm
    return Stats(node.inode, mode, node.nlink, node.uid, node.gid, node.size, time, time, time)


def _normalized(path: str) -> str:
    path = path.rstrip("/") or "/"
    return path if path.startswith("/") else "/" + path


def _refuse_root(path: str, syscall: str) -> None:
    if path == "/":
        raise ErrnoException("EPERM", syscall, path, "operation not permitted on root directory")


async def _as_errno(waiting: Awaitable[T], syscall: str, path: str, *, not_directory: str = "ENOTDIR") -> T:
    """Awaits; errors of files become those of agentfs-sdk. ``not_directory``: what ENOTDIR is there."""
    try:
        return await waiting
    except FileError as error:
        code = not_directory if error.code == "ENOTDIR" else error.code
        message = MESSAGES.get(code) or os.strerror(error.errno or 0).lower()
        raise ErrnoException(code, syscall, path, message) from error


class Filesystem:
    """Files of a workspace."""

    def __init__(self, workspace: AsyncWorkspace) -> None:
        """Use ``Filesystem.from_database``."""
        self._fs = workspace.fs

    @staticmethod
    async def from_database(db: Connection) -> Filesystem:
        """The files of what a connection is to."""
        return Filesystem(await db.workspace())

    def get_chunk_size(self) -> int:
        """What AgentFS has; files are stored otherwise here."""
        return DEFAULT_CHUNK_SIZE

    async def write_file(self, path: str, content: str | bytes, encoding: str = "utf-8") -> None:
        """Replaces the content of a file, or creates it with its directories; on stable storage afterwards."""
        path = _normalized(path)
        data = content.encode(encoding) if isinstance(content, str) else content
        await _as_errno(self._fs.write(path, data, parents=True), "open", path)

    @overload
    async def read_file(self, path: str, encoding: str = "utf-8") -> str: ...
    @overload
    async def read_file(self, path: str, encoding: None) -> bytes: ...
    async def read_file(self, path: str, encoding: str | None = "utf-8") -> bytes | str:
        """Content of a file: a text, or bytes without ``encoding``."""
        path = _normalized(path)
        data = await _as_errno(self._fs.read(path), "open", path, not_directory="ENOENT")
        return data.decode(encoding) if encoding else data

    async def readdir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        path = _normalized(path)
        return [node.name for node in await _as_errno(self._fs.list(path), "scandir", path)]

    async def unlink(self, path: str) -> None:
        """Removes a file."""
        path = _normalized(path)
        _refuse_root(path, "unlink")
        await _as_errno(self._fs.remove(path, expect="file"), "unlink", path, not_directory="ENOENT")

    async def delete_file(self, path: str) -> None:
        """The same, by its former name."""
        await self.unlink(path)

    async def stat(self, path: str) -> Stats:
        """What is known of a name."""
        path = _normalized(path)
        return _stats(await _as_errno(self._fs.stat(path, follow=False), "stat", path, not_directory="ENOENT"))

    async def mkdir(self, path: str) -> None:
        """Creates a directory in one that exists."""
        path = _normalized(path)
        await _as_errno(self._fs.mkdir(path), "mkdir", path)

    async def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        path = _normalized(path)
        _refuse_root(path, "rmdir")
        await _as_errno(self._fs.remove(path, expect="directory"), "rmdir", path)

    async def rm(self, path: str, force: bool = False, recursive: bool = False) -> None:
        """Removes a file, or with ``recursive`` a directory with all in it; with ``force`` it may be missing."""
        path = _normalized(path)
        _refuse_root(path, "rm")
        removal = self._fs.remove(path, recursive=recursive, expect=None if recursive else "file")
        try:
            await _as_errno(removal, "rm", path, not_directory="ENOENT")
        except ErrnoException as error:
            if not (force and error.code == "ENOENT"):
                raise

    async def rename(self, old_path: str, new_path: str) -> None:
        """Renames; a file, or an empty directory, with the new name is replaced."""
        old, new = _normalized(old_path), _normalized(new_path)
        if old == new:
            return
        _refuse_root(old, "rename")
        _refuse_root(new, "rename")
        await _as_errno(self._fs.rename(old, new), "rename", new)

    async def copy_file(self, src: str, dest: str) -> None:
        """Copies a file, without copying its data; what has the other name is replaced."""
        source, target = _normalized(src), _normalized(dest)
        await _as_errno(self._fs.copy(source, target), "copyfile", target)

    async def access(self, path: str) -> None:
        """An error unless the path exists."""
        path = _normalized(path)
        await _as_errno(self._fs.stat(path, follow=False), "access", path, not_directory="ENOENT")
