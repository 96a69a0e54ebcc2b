"""agentfs-sdk's names on agentvfs's workspaces (``agentvfs.agentfs``)."""

from agentvfs.agentfs import (
    S_IFDIR,
    S_IFLNK,
    S_IFMT,
    S_IFREG,
    AgentFS,
    AgentFSOptions,
    ErrnoException,
    Filesystem,
    FsErrorCode,
    FsSyscall,
    KvStore,
    Stats,
    ToolCall,
    ToolCalls,
    ToolCallStats,
)

#: The version of agentfs-sdk whose API this is.
__version__ = "0.6.4"

__all__ = [
    "S_IFDIR",
    "S_IFLNK",
    "S_IFMT",
    "S_IFREG",
    "AgentFS",
    "AgentFSOptions",
    "ErrnoException",
    "Filesystem",
    "FsErrorCode",
    "FsSyscall",
    "KvStore",
    "Stats",
    "ToolCall",
    "ToolCallStats",
    "ToolCalls",
]
