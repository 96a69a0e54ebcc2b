"""Files of a branch.

Data goes in parts, so memory is bounded by what the caller holds: ``PART`` bytes a request.
"""

from __future__ import annotations

import errno
from typing import Any, Literal

from ..errors import FileError, file_error
from ..types import Node, Space, picked
from .effects import Step
from .scope import Path, Scope, State, side, wired
from .wire import of_b64, to_b64

#: Bytes of a file in one request: base64 of it is below the limit of a request.
PART = 512 << 10

Content = str | bytes | bytearray | memoryview


def stat(scope: Scope, path: Path, *, follow: bool = True, state: State = "live") -> Step[Node]:
    """What is known of a name; of a symbolic link with ``follow=False``, of the link itself."""
    raw = yield from scope.look("fs.stat", path=wired(path), follow=follow, state=side(state))
    return Node.of(raw)


def exists(scope: Scope, path: Path, *, state: State = "live") -> Step[bool]:
    """Whether there is something with this name (a symbolic link counts, wherever it leads)."""
    try:
        yield from stat(scope, path, follow=False, state=state)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def list_directory(scope: Scope, path: Path = "", *, state: State = "live") -> Step[list[Node]]:
    """The entries of a directory by name."""
    nodes: list[Node] = []
    after = None
    while True:
        raw = yield from scope.look("fs.list", path=wired(path), state=side(state), after=after)
        nodes.extend(Node.of(entry) for entry in raw["entries"])
        if not raw["more"]:
            return nodes
        after = raw["entries"][-1]["name"]


def _read_part(
    scope: Scope, path: Path, offset: int, length: int, state: State
) -> Step[tuple[bytes, int]]:
    """At most ``length`` bytes from ``offset`` on, holes as zeros; and the file's size."""
    raw = yield from scope.look("fs.read", path=wired(path), state=side(state), offset=offset, length=length)
    data = of_b64(raw["b64"])
    # A hole is skipped by the daemon: the data begins behind it, or the file ends with it.
    hole = min((raw["offset"] if data else raw["size"]) - offset, length)
    return (data if hole <= 0 else (b"\0" * hole + data)[:length]), int(raw["size"])


def read(
    scope: Scope,
    path: Path,
    *,
    offset: int = 0,
    length: int | None = None,
    state: State = "live",
) -> Step[bytes]:
    """Content of a file, or ``length`` bytes of it from ``offset`` on."""
    parts: list[bytes] = []
    left, size = length, None
    while (left is None or left > 0) and (size is None or offset < size):
        asked = PART if left is None else min(left, PART)
        part, size = yield from _read_part(scope, path, offset, asked, state)
        if not part:
            break
        parts.append(part)
        offset += len(part)
        left = None if left is None else left - len(part)
    return b"".join(parts)


def read_text(scope: Scope, path: Path, *, encoding: str = "utf-8", state: State = "live") -> Step[str]:
    """Content of a file as a text."""
    data = yield from read(scope, path, state=state)
    return data.decode(encoding)


def write(
    scope: Scope,
    path: Path,
    data: Content,
    *,
    perm: int = 0o644,
    parents: bool = False,
    sync: bool = True,
) -> Step[int]:
    """Replaces the content of a file, or creates it with ``perm``; returns its size.

    A text is written as UTF-8. ``parents`` creates missing directories. It is on stable storage when this returns;
    with ``sync=False`` not before the next change that is, or ``sync()``. Up to 512 KiB are one change; a longer file
    is written part by part.
    """
    view = _view(data)
    how: dict[str, Any] = {"path": wired(path), "perm": perm, "parents": parents}
    start = 0
    while len(view) - start > PART:
        yield from scope.ask("fs.write", **how, offset=start, b64=to_b64(view[start : start + PART]))
        start += PART
    last = _unsynced(sync) | {"last": True}
    raw = yield from scope.ask("fs.write", **how, offset=start, b64=to_b64(view[start:]), **last)
    return int(raw["size"])


def append(
    scope: Scope, path: Path, data: Content, *, perm: int = 0o644, parents: bool = False
) -> Step[int]:
    """Writes at the end of a file, which is created if need be; returns its size.

    It is on stable storage with the next change that is, or ``sync()``.
    """
    view = _view(data)
    how: dict[str, Any] = {"path": wired(path), "perm": perm, "parents": parents}
    size = 0
    for start in range(0, max(len(view), 1), PART):
        raw = yield from scope.ask("fs.write", **how, offset=None, b64=to_b64(view[start : start + PART]))
        size = int(raw["size"])
    return size


def _view(data: Content) -> memoryview:
    return memoryview(data.encode() if isinstance(data, str) else data).cast("B")


def _unsynced(sync: bool) -> dict[str, Any]:
    return {} if sync else {"unsynced": True}


def mkdir(scope: Scope, path: Path, *, parents: bool = False) -> Step[None]:
    """Creates a directory; with ``parents`` missing ones above it too, and an existing one is no error."""
    yield from scope.ask("fs.mkdir", path=wired(path), parents=parents)


def remove(
    scope: Scope,
    path: Path,
    *,
    recursive: bool = False,
    missing_ok: bool = False,
    expect: Literal["file", "directory"] | None = None,
) -> Step[None]:
    """Removes a file or an empty directory; with ``recursive`` a directory with all its entries.

    ``expect``: an error if it is something else (``file``: anything but a directory).
    """
    wanted = {} if expect is None else {"expect": expect}
    try:
        yield from scope.ask("fs.remove", path=wired(path), recursive=recursive, **wanted)
    except FileError as error:
        if not (missing_ok and isinstance(error, FileNotFoundError)):
            raise


def rename(scope: Scope, old: Path, new: Path) -> Step[None]:
    """Renames; what has the new name is replaced as rename(2) does."""
    yield from scope.ask("fs.rename", **{"from": wired(old), "to": wired(new)})


def copy(scope: Scope, source: Path, target: Path, *, overwrite: bool = True) -> Step[int]:
    """Copies a file without copying its data; returns its size. A new file gets the permissions of ``source``."""
    raw = yield from scope.ask("fs.copy", **{"from": wired(source), "to": wired(target)}, overwrite=overwrite)
    return int(raw["size"])


def symlink(scope: Scope, target: Path, path: Path) -> Step[None]:
    """Creates a symbolic link ``path`` that leads to ``target``."""
    yield from scope.ask("fs.symlink", path=wired(path), target=wired(target))


def readlink(scope: Scope, path: Path, *, state: State = "live") -> Step[str]:
    """Where a symbolic link leads."""
    node = yield from stat(scope, path, follow=False, state=state)
    if node.target is None:
        raise file_error(f"{node.name}: not a symbolic link", kind="wrong-type", errno=errno.EINVAL, hint=None)
    return node.target


def truncate(scope: Scope, path: Path, size: int) -> Step[None]:
    """Sets the size of a file."""
    yield from scope.ask("fs.truncate", path=wired(path), size=size)


def chmod(scope: Scope, path: Path, perm: int) -> Step[None]:
    """Sets the permission bits."""
    yield from scope.ask("fs.chmod", path=wired(path), perm=perm)


def statfs(scope: Scope) -> Step[Space]:
    """Room for the store, and what the branch holds."""
    raw = yield from scope.look("fs.statfs")
    return picked(Space, raw)
