"""Where the workspaces of ``:memory:`` are: a home of this process alone, in memory, with a daemon of its own.

No disk is waited for there, and nobody else sees it. Invariant: the home goes with the process, however that ends: a
shell waits for the end of its standard input, which this process holds open and never writes to.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import tempfile
import threading
from dataclasses import dataclass

from .._io import home

#: Where Linux has memory as a file system.
_PLACE = "/dev/shm"
#: With less memory there, ``:memory:`` is in the usual home.
_FREE_BYTES_MIN = 256 * 1024 * 1024
#: How long the end of the process waits until the home is removed.
_REMOVED_SECONDS = 20
#: After so many workspaces the store is collected: what those left would stay in memory.
_COLLECTED_AFTER = 64
#: What removes a home: ``$0`` is the program, ``$1`` the directory.
_REMOVAL = """
cat
if [ -S "$1/home/daemon.sock" ]; then
    "$0" --root "$1/home" list </dev/null | cut -f1 | while read -r name; do
        "$0" --root "$1/home" stop "$name" --force --no-checkpoint </dev/null
    done
fi
rm -rf --one-file-system "$1" || rm -rf "$1"
"""

_lock = threading.Lock()
_made: dict[int, MemoryHome | None] = {}
_deleted = 0


@dataclass(frozen=True)
class MemoryHome:
    """A home in memory."""

    root: str
    #: An empty directory, from which workspaces are made.
    empty: str


def memory_home() -> MemoryHome | None:
    """This process's home in memory; ``None`` if the machine has no room for one, or in the sandbox of a run."""
    with _lock:
        if os.getpid() not in _made:  # A forked child makes one of its own.
            _made[os.getpid()] = _make()
        return _made[os.getpid()]


def _make() -> MemoryHome | None:
    reach = home.reach()
    if reach.of_run:
        return None
    try:
        found = os.statvfs(_PLACE)
        if found.f_bavail * found.f_frsize < _FREE_BYTES_MIN:
            return None
        directory = tempfile.mkdtemp(prefix="agentvfs-memory-", dir=_PLACE)
        empty = os.path.join(directory, "empty")
        os.mkdir(empty)
        remover = subprocess.Popen(
            ["/bin/sh", "-c", _REMOVAL, reach.program, directory],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # What a terminal ends is this process alone.
            start_new_session=True,
        )
    except OSError:
        return None
    atexit.register(_remove, remover, os.getpid())
    return MemoryHome(os.path.join(directory, "home"), empty)


def _remove(remover: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner or remover.stdin is None:
        return
    remover.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        remover.wait(_REMOVED_SECONDS)


def is_to_be_collected() -> bool:
    """Says that a workspace was deleted; whether it is time to remove what they left."""
    global _deleted
    with _lock:
        _deleted += 1
        return _deleted % _COLLECTED_AFTER == 0
