"""Open files as objects: Python's own streams over a raw file, and an asynchronous file.

Memory is bounded by the buffer, whatever the size of the file.
"""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

from ._core import handles
from ._core.effects import Step
from ._core.files import PART
from ._core.handles import READ_PART, Handle
from ._core.scope import Path, Scope, State
from ._io import aio, sync
from .types import Node

_MODES = {
    "r": {},
    "r+": {},
    "w": {"create": True, "truncate": True},
    "w+": {"create": True, "truncate": True},
    "x": {"create": True, "exclusive": True},
    "x+": {"create": True, "exclusive": True},
    "a": {"create": True},
    "a+": {"create": True},
}


class _Mode:
    """What the letters of ``open`` mean."""

    def __init__(self, mode: str, state: State) -> None:
        letters = mode.replace("b", "").replace("t", "")
        if letters not in _MODES or ("b" in mode and "t" in mode):
            raise ValueError(f"invalid mode: {mode!r}")
        self.how = _MODES[letters]
        self.text = "b" not in mode
        self.reads = letters[0] == "r" or "+" in letters
        self.writes = letters != "r"
        self.appends = letters[0] == "a"
        if self.writes and state != "live":
            raise ValueError("only the live state can be written")

    def opened(self, scope: Scope, path: Path, perm: int, state: State) -> Step[Handle]:
        return handles.open_file(scope, path, perm=perm, state=state, **self.how)


class _RawFile(io.RawIOBase):
    """An open file without a buffer."""

    def __init__(self, driver: sync.Driver, handle: Handle, mode: _Mode, name: Path) -> None:
        self._driver, self._handle, self._mode = driver, handle, mode
        self._at = 0
        self.name = name

    def readable(self) -> bool:
        return self._mode.reads

    def writable(self) -> bool:
        return self._mode.writes

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._driver.run(handles.pread(self._handle, self._at, len(view)))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        done = self._driver.run(handles.pwrite(self._handle, None if self._mode.appends else self._at, view))
        self._at += done
        return done

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}.get(whence)
        if origin is None:
            origin = self._driver.run(handles.fstat(self._handle)).size
        if origin + offset < 0:
            raise ValueError("a position before the file's begin")
        self._at = origin + offset
        return self._at

    def truncate(self, size: int | None = None) -> int:
        wanted = self._at if size is None else size
        self._driver.run(handles.ftruncate(self._handle, wanted))
        return wanted

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self._mode.writes:
                self._driver.run(handles.fsync(self._handle))
            self._driver.run(handles.close(self._handle))
        finally:
            super().close()


def open_blocking(
    driver: sync.Driver, scope: Scope, path: Path, mode: str, perm: int, state: State, encoding: str
) -> io.IOBase:
    """A stream of Python's own kind."""
    parsed = _Mode(mode, state)
    handle = driver.run(parsed.opened(scope, path, perm, state))
    raw = _RawFile(driver, handle, parsed, path)
    if parsed.appends:
        raw.seek(0, os.SEEK_END)
    stream: Any
    if parsed.reads and parsed.writes:
        stream = io.BufferedRandom(raw, READ_PART)
    elif parsed.writes:
        stream = io.BufferedWriter(raw, PART)
    else:
        stream = io.BufferedReader(raw, READ_PART)
    return io.TextIOWrapper(stream, encoding) if parsed.text else stream


class AsyncFile:
    """An open file of an ``AsyncWorkspace``: bytes, without a buffer of its own."""

    def __init__(self, driver: aio.Driver, handle: Handle, mode: _Mode) -> None:
        self._driver, self._handle, self._mode = driver, handle, mode
        self._at = 0
        self.closed = False

    async def read(self, size: int = -1) -> bytes:
        """``size`` bytes, or all that is left; fewer only at the end."""
        parts: list[bytes] = []
        left = size
        while left != 0:
            part = await self._driver.run(handles.pread(self._handle, self._at, left if left > 0 else READ_PART))
            if not part:
                break
            parts.append(part)
            self._at += len(part)
            left -= len(part) if left > 0 else 0
        return b"".join(parts)

    async def write(self, data: bytes | bytearray | memoryview) -> int:
        """Writes all of it; returns how many bytes."""
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            at = None if self._mode.appends else self._at
            part = await self._driver.run(handles.pwrite(self._handle, at, view[done:]))
            done += part
            self._at += part
        return done

    async def stat(self) -> Node:
        """What is known of the file."""
        return await self._driver.run(handles.fstat(self._handle))

    def tell(self) -> int:
        """The position."""
        return self._at

    async def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Sets the position."""
        origin = (await self.stat()).size if whence == os.SEEK_END else self._at if whence == os.SEEK_CUR else 0
        if origin + offset < 0:
            raise ValueError("a position before the file's begin")
        self._at = origin + offset
        return self._at

    async def truncate(self, size: int | None = None) -> int:
        """Sets the size, to the position if none is given."""
        wanted = self._at if size is None else size
        await self._driver.run(handles.ftruncate(self._handle, wanted))
        return wanted

    async def sync(self) -> None:
        """Returns when it is on stable storage."""
        await self._driver.run(handles.fsync(self._handle))

    async def close(self) -> None:
        """Closes it; what was written is on stable storage then."""
        if self.closed:
            return
        self.closed = True
        if self._mode.writes:
            await self.sync()
        await self._driver.run(handles.close(self._handle))

    async def __aenter__(self) -> AsyncFile:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while part := await self.read(READ_PART):
            yield part


async def open_awaiting(
    driver: aio.Driver, scope: Scope, path: Path, mode: str, perm: int, state: State
) -> AsyncFile:
    """An asynchronous file."""
    parsed = _Mode(mode, state)
    if parsed.text:
        raise ValueError("an asynchronous file is binary: add 'b' to its mode")
    handle = await driver.run(parsed.opened(scope, path, perm, state))
    return AsyncFile(driver, handle, parsed)
