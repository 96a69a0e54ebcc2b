"""Everything that this package raises.

    AgentVfsError            kind, message, hint, errno
    ├── Unreachable          no daemon can be reached or started; nothing was done
    │   ├── NotInstalled     there is no program ``agentvfs``
    │   └── WrongVersion     the daemon speaks another version of the protocol
    ├── Broken               the daemon ended during a request: it may have been carried out or not
    ├── ProtocolError        the daemon does not know the method or its parameters: it is of another build
    └── Refused              the daemon refused the request, or it failed; ``kind`` says how
        └── FileError        the same about a file; also an ``OSError`` with ``errno``

Invariant: the next call after any of them works, if its cause is gone: no object has to be opened again.
"""

from __future__ import annotations

import errno as _errno
import os

__all__ = [
    "AgentVfsError",
    "Broken",
    "FileError",
    "NotInstalled",
    "ProtocolError",
    "Refused",
    "Unreachable",
    "WrongVersion",
]


class AgentVfsError(Exception):
    """What went wrong.

    ``kind`` is a word for programs (docs/protocol.md lists them), ``hint`` says what to do or is ``None``,
    ``errno`` is the number of the error of a file or ``None``.
    """

    kind: str
    hint: str | None
    errno: int | None

    def __init__(self, message: str, *, kind: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.hint = hint
        self.errno = None

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} (hint: {self.hint})"


class Unreachable(AgentVfsError):
    """No daemon can be reached or started. Nothing was done."""

    def __init__(self, message: str, *, kind: str = "no-daemon", hint: str | None = None) -> None:
        super().__init__(message, kind=kind, hint=hint)


class NotInstalled(Unreachable):
    """There is no program ``agentvfs``, which starts the daemon. Nothing was done."""

    def __init__(self, message: str) -> None:
        hint = "install agentvfs, or name the program with $AGENTVFS_BIN"
        super().__init__(message, kind="not-installed", hint=hint)


class WrongVersion(Unreachable):
    """The daemon speaks another version of the protocol than this package. Nothing was done."""

    def __init__(self, message: str) -> None:
        hint = "use the package of the same version as `agentvfs --version`, and restart the daemon if that is older"
        super().__init__(message, kind="version", hint=hint)


class Broken(AgentVfsError):
    """The daemon ended during the request, which may have been carried out or not.

    The next call connects again and starts the daemon if need be. Requests that only read are repeated once
    before this is raised.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="daemon-ended", hint="look at the workspace before repeating the call")


class ProtocolError(AgentVfsError):
    """The daemon does not know the method or its parameters. Nothing was done."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="protocol", hint="daemon and package must be of the same release")


class Refused(AgentVfsError):
    """The daemon refused the request, or it failed; ``kind`` says how."""


class FileError(Refused, OSError):
    """An operation on a file failed; ``errno`` is as in ``OSError``, ``strerror`` its text.

    ``isinstance(e, OSError)`` holds. Where Python has a class for the number (``FileNotFoundError`` …), the error
    is of that class, too.
    """

    def __init__(self, message: str, *, kind: str, errno: int, hint: str | None = None) -> None:
        Refused.__init__(self, message, kind=kind, hint=hint)
        self.errno = errno
        self.strerror = os.strerror(errno)

    __str__ = AgentVfsError.__str__

    @property
    def code(self) -> str:
        """Name of the number, such as ``ENOENT``."""
        return _errno.errorcode[self.errno or 0]


class _Missing(FileError, FileNotFoundError):
    pass


class _Exists(FileError, FileExistsError):
    pass


class _IsDirectory(FileError, IsADirectoryError):
    pass


class _NotDirectory(FileError, NotADirectoryError):
    pass


class _NotPermitted(FileError, PermissionError):
    pass


_CLASSES: dict[int, type[FileError]] = {
    _errno.ENOENT: _Missing,
    _errno.EEXIST: _Exists,
    _errno.EISDIR: _IsDirectory,
    _errno.ENOTDIR: _NotDirectory,
    _errno.EPERM: _NotPermitted,
    _errno.EACCES: _NotPermitted,
}


def file_error(message: str, *, kind: str, errno: int, hint: str | None) -> FileError:
    """The error of the class that fits the number."""
    return _CLASSES.get(errno, FileError)(message, kind=kind, errno=errno, hint=hint)
