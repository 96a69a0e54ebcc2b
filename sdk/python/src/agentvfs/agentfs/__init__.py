"""The API of agentfs-sdk 0.6.4 on workspaces: what is written with it has checkpoints, branches and undo.

>>> agent = await AgentFS.open(AgentFSOptions(id="my-agent"))
>>> await agent.fs.write_file("/notes.txt", "hello")
>>> await agent.workspace.checkpoint("first")

``.agentfs/ID.db`` is a small text file that names the workspace; a database of AgentFS there is imported once.
"""

from .agentfs import AgentFS, AgentFSOptions
from .constants import S_IFDIR, S_IFLNK, S_IFMT, S_IFREG
from .database import Connection, connect
from .errors import ErrnoException, FsErrorCode, FsSyscall
from .filesystem import Filesystem, Stats
from .kvstore import KvStore
from .toolcalls import ToolCall, ToolCalls, ToolCallStats

__all__ = [
    "S_IFDIR",
    "S_IFLNK",
    "S_IFMT",
    "S_IFREG",
    "AgentFS",
    "AgentFSOptions",
    "Connection",
    "ErrnoException",
    "Filesystem",
    "FsErrorCode",
    "FsSyscall",
    "KvStore",
    "Stats",
    "ToolCall",
    "ToolCallStats",
    "ToolCalls",
    "connect",
]
