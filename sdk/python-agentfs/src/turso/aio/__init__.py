"""``connect`` to a workspace, which answers SQL that reads (``agentvfs.agentfs.database``)."""

from agentvfs.agentfs.database import Connection, Cursor, connect

__all__ = ["Connection", "Cursor", "connect"]
