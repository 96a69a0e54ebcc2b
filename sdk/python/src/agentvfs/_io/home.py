"""Where the home and its socket are, by the environment (docs/protocol.md, "Transport"). Nothing is created here."""

from __future__ import annotations

import os
import socket
import struct

from .._core.blake3 import blake3
from .._core.opening import Surroundings
from .._core.reaching import Reach
from ..errors import Unreachable

#: Longest path of a socket that is used as it is.
_SOCKET_BYTES_MAX = 100


def reach(home: str | os.PathLike[str] | None = None) -> Reach:
    """The daemon of ``home``, of ``$AGENTVFS_HOME``, of the run in whose sandbox this process is, or the user's."""
    program = _variable("AGENTVFS_BIN") or "agentvfs"
    named = os.fspath(home) if home is not None else _variable("AGENTVFS_HOME")
    of_run = _variable("AGENTVFS_SOCKET")
    if named is None and of_run is not None and os.path.isabs(of_run):
        return Reach(of_run, _default_home() or "/", program, of_run=True)
    root = named or _default_home()
    if root is None:
        raise Unreachable("none of $AGENTVFS_HOME, $XDG_DATA_HOME and $HOME is set")
    root = os.path.realpath(root)
    return Reach(_socket(root), root, program)


def surroundings() -> Surroundings:
    """What the environment says about workspace and branch."""
    try:
        directory: str | None = os.getcwd()
    except OSError:
        directory = None
    return Surroundings(_variable("AGENTVFS_WORKSPACE"), _variable("AGENTVFS_BRANCH"), directory)


def check_peer(connection: socket.socket) -> None:
    """Refuses a socket of another user, who could make us believe anything; root's is as good as ours."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", raw)
    if os.geteuid() not in (0, user) and user != 0:
        raise Unreachable(f"the daemon's socket belongs to user {user}", hint="use another home: $AGENTVFS_HOME")


def connected(path: str) -> socket.socket | None:
    """A socket that is connected to ``path``, and does not block; ``None`` if nobody listens.

    ``BlockingIOError`` if the daemon has too many clients waiting at the moment.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.connect(path)
        check_peer(connection)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    return connection


def _variable(name: str) -> str | None:
    return os.environ.get(name) or None


def _default_home() -> str | None:
    data, user = _variable("XDG_DATA_HOME"), _variable("HOME")
    if data is not None and os.path.isabs(data):
        return os.path.join(data, "agentvfs")
    if user is not None and os.path.isabs(user):
        return os.path.join(user, ".local/share/agentvfs")
    return None


def _socket(root: str) -> str:
    plain = os.path.join(root, "daemon.sock")
    if _fits(plain):
        return plain
    name = blake3(os.fsencode(root))[:16]
    runtime = _variable("XDG_RUNTIME_DIR")
    if runtime is not None and os.path.isabs(runtime):
        short = os.path.join(runtime, f"agentvfs-{name}.sock")
        if _fits(short):
            return short
    return f"/tmp/agentvfs-{os.geteuid()}/{name}.sock"


def _fits(path: str) -> bool:
    return len(os.fsencode(path)) <= _SOCKET_BYTES_MAX
