"""Which workspace a path of AgentFS means.

At the path is a small text file that names it::

    agentvfs 1
    workspace=NAME

A SQLite database there is imported once and kept as ``….db.orig``. Invariant: the file is written after its workspace
is complete, and opens in one directory take turns, so a path means one workspace whoever opens it first.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import uuid
import warnings
from collections.abc import AsyncIterator
from typing import Any

from .._core.wire import of_bytes
from .._io import home
from ..aio import AsyncWorkspace
from ..errors import AgentVfsError, Refused
from .memory import is_to_be_collected, memory_home

MEMORY = ":memory:"
_FIRST_LINE = b"agentvfs 1\n"
_SQLITE = b"SQLite format 3\0"
_HEAD_BYTES = 4096


async def open_named(path: str, base: str | None) -> AsyncWorkspace:
    """The workspace of ``path``, which is created if there is nothing yet, from ``base`` if that is given."""
    if path == MEMORY:
        return await _in_memory(base)
    path = os.path.abspath(path)
    name = _named(path)
    if name is None:
        # To its end even if whoever asks is cancelled, so that there is no workspace without a name file.
        return await asyncio.shield(asyncio.ensure_future(_alone(path, base)))
    return await _existing(path, name, base)


async def _alone(path: str, base: str | None) -> AsyncWorkspace:
    async with _turn(os.path.dirname(path)):
        name = _named(path)
        if name is None:
            return await _first(path, base)
    return await _existing(path, name, base)


async def _in_memory(base: str | None) -> AsyncWorkspace:
    name, place = _new_name("memory"), memory_home()
    if place is None:
        return await _create(name, base)
    return await AsyncWorkspace.open(name, base=base or place.empty, branch="main", home=place.root, mount=False)


async def discard(workspace: AsyncWorkspace) -> None:
    """Deletes the workspace of ``:memory:``."""
    await workspace.stop(force=True, checkpoint=False)
    await workspace.delete()
    if is_to_be_collected():
        with contextlib.suppress(AgentVfsError):
            await workspace.request("store.gc", {"grace_ms": 0})


async def _existing(path: str, name: str, base: str | None) -> AsyncWorkspace:
    try:
        workspace = await AsyncWorkspace.open(name, branch="main")
    except Refused as error:
        if error.kind != "no-such-workspace":
            raise
        message = f"{path} names the workspace {name}, which {home.reach().root} does not have"
        raise Refused(message, kind=error.kind, hint="use its $AGENTVFS_HOME, or remove the file") from error
    if base is not None and (await workspace.info()).base != os.path.realpath(base):
        await workspace.close()
        raise Refused(f"the workspace {name} of {path} has another base than {base}", kind="bad-base")
    return workspace


def _named(path: str) -> str | None:
    """The name in the file; ``None`` if there is no such file yet."""
    head = _head(path)
    if not head.startswith(_FIRST_LINE):
        return None
    for line in head.decode(errors="replace").splitlines():
        key, _, value = line.partition("=")
        if key == "workspace" and value:
            return value
    raise Refused(f"{path} names no workspace", kind="bad-name", hint="remove it")


def _head(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_HEAD_BYTES)
    except FileNotFoundError:
        return b""


async def _first(path: str, base: str | None) -> AsyncWorkspace:
    head = _head(path)
    if head and not head.startswith(_SQLITE):
        raise Refused(f"{path} is neither a database nor the name of a workspace", kind="bad-name")
    stem = re.sub(r"[^A-Za-z0-9_-]", "-", os.path.basename(path).removesuffix(".db"))[:40] or "db"
    name = _new_name(stem)
    made = _imported(path, name, base) if head else _create(name, base)
    writing = asyncio.ensure_future(asyncio.to_thread(_write, path, name))
    try:
        workspace = await made
    except BaseException:
        os.unlink(await writing)
        raise
    partial = await writing
    if head:
        for suffix in ("-wal", "-shm", ""):
            with contextlib.suppress(FileNotFoundError):
                os.rename(path + suffix, f"{path}.orig{suffix}")
    os.replace(partial, path)
    return workspace


async def _create(name: str, base: str | None) -> AsyncWorkspace:
    where = base
    if where is None:
        # What stands for a base in workspaces without one (docs/export.md).
        where = os.path.join(home.reach().root, "empty")
        if not os.path.isdir(where):
            await _start_daemon()
            os.makedirs(where, exist_ok=True)
    return await AsyncWorkspace.open(name, base=where, branch="main")


async def _start_daemon() -> None:
    from ..aio import workspaces

    await workspaces()


async def _imported(path: str, name: str, base: str | None) -> AsyncWorkspace:
    asked: dict[str, Any] = {"workspace": name, "branch": None, "file": of_bytes(os.fsencode(os.path.realpath(path)))}
    asked |= {"sparse": True, "skip_invalid": True}
    if base is not None:
        asked["base"] = of_bytes(os.fsencode(os.path.realpath(base)))
    driver = AsyncWorkspace.bound(name)
    raw = await driver.request("workspace.import", asked)
    skipped = raw["skipped"]
    if skipped["keys_count"] or skipped["calls_count"]:
        what = f"{skipped['keys_count']} keys and {skipped['calls_count']} tool calls"
        warnings.warn(f"{what} of {path} cannot be kept and are only in {path}.orig", stacklevel=2)
    await driver.start()
    return driver


def _new_name(stem: str) -> str:
    return f"agentfs-{stem}-{uuid.uuid4().hex[:8]}"


def _write(path: str, name: str) -> str:
    """Writes the file under another name, complete and on stable storage; returns that."""
    partial = f"{path}.partial"
    with open(partial, "wb") as file:
        file.write(_FIRST_LINE + f"workspace={name}\n".encode())
        file.flush()
        os.fsync(file.fileno())
    return partial


@contextlib.asynccontextmanager
async def _turn(directory: str) -> AsyncIterator[None]:
    """Nobody else is here in this directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        await _locked(descriptor)
        yield
    finally:
        os.close(descriptor)


async def _locked(descriptor: int) -> None:
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await asyncio.sleep(0.005)
