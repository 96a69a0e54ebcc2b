"""Errors of files, as agentfs-sdk has them. Others are those of ``agentvfs.errors``."""

from __future__ import annotations

from typing import Literal

FsErrorCode = Literal["ENOENT", "EEXIST", "EISDIR", "ENOTDIR", "ENOTEMPTY", "EPERM", "EINVAL", "ENOSYS"]

FsSyscall = Literal[
    "open", "stat", "mkdir", "rmdir", "rm", "unlink", "rename", "scandir", "copyfile", "access"
]

#: The texts that agentfs-sdk has for them.
MESSAGES = {
    "ENOENT": "no such file or directory",
    "EEXIST": "file already exists",
    "EISDIR": "illegal operation on a directory",
    "ENOTDIR": "not a directory",
    "ENOTEMPTY": "directory not empty",
    "EPERM": "operation not permitted",
    "EINVAL": "invalid argument",
}


class ErrnoException(Exception):
    """An operation on a file failed: ``code`` (``ENOENT`` …), ``syscall``, ``path``."""

    def __init__(self, code: str, syscall: str, path: str | None = None, message: str | None = None) -> None:
        suffix = f" '{path}'" if path is not None else ""
        super().__init__(f"{code}: {message or code}, {syscall}{suffix}")
        self.code = code
        self.syscall = syscall
        self.path = path
