"""Open files: handles of the daemon, which belong to the connection that opened them.

Invariant: a handle is never used on another connection, where its number may be that of another file: the request is
pinned to the connection (``Ask.pinned``), and fails with ``EBADF`` if that has ended.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..types import Node
from .effects import Answer, Ask, Step
from .files import PART
from .scope import Path, Scope, State, side, wired
from .wire import of_b64, to_b64

#: Bytes of one read.
READ_PART = 256 << 10


@dataclass(frozen=True)
class Handle:
    """An open file."""

    number: int
    connection: object
    node: Node


def open_file(
    scope: Scope,
    path: Path,
    *,
    create: bool = False,
    exclusive: bool = False,
    truncate: bool = False,
    perm: int = 0o644,
    state: State = "live",
) -> Step[Handle]:
    """Opens a regular file."""
    how = {"create": create, "exclusive": exclusive, "truncate": truncate, "perm": perm}
    params = scope.params({"path": wired(path), "state": side(state), **how})
    answer: Answer = yield Ask("fs.open", params, only_reads=not (create or truncate))
    return Handle(answer.result["handle"], answer.connection, Node.of(answer.result["node"]))


def pread(handle: Handle, offset: int, length: int) -> Step[bytes]:
    """At most ``length`` bytes (256 KiB at most) from ``offset`` on; none at the end."""
    params = {"handle": handle.number, "offset": offset, "length": min(length, READ_PART)}
    answer: Answer = yield Ask("fs.pread", params, only_reads=True, pinned=handle.connection)
    return of_b64(answer.result["b64"])


def pwrite(handle: Handle, offset: int | None, data: memoryview) -> Step[int]:
    """Writes the first 512 KiB of ``data`` at ``offset`` (``None``: at the end); returns how many bytes."""
    part = data[:PART]
    params = {"handle": handle.number, "offset": offset, "b64": to_b64(part)}
    yield Ask("fs.pwrite", params, pinned=handle.connection)
    return len(part)


def ftruncate(handle: Handle, size: int) -> Step[None]:
    """Sets the size."""
    yield Ask("fs.ftruncate", {"handle": handle.number, "size": size}, pinned=handle.connection)


def fstat(handle: Handle) -> Step[Node]:
    """What is known of the file."""
    answer: Answer = yield Ask("fs.fstat", {"handle": handle.number}, only_reads=True, pinned=handle.connection)
    return Node.of(answer.result)


def fsync(handle: Handle) -> Step[None]:
    """Returns when the file is on stable storage."""
    yield Ask("fs.fsync", {"handle": handle.number}, pinned=handle.connection)


def close(handle: Handle) -> Step[None]:
    """Gives the handle back."""
    yield Ask("fs.close", {"handle": handle.number}, pinned=handle.connection)
