"""``AgentFS``: files, keys and tool calls of what an id or a path means."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from types import TracebackType

from ..aio import AsyncWorkspace
from .database import Connection, connect
from .filesystem import Filesystem
from .kvstore import KvStore
from .toolcalls import ToolCalls


@dataclass
class AgentFSOptions:
    """What to open: ``.agentfs/ID.db``, or ``path``. ``base``: a new one begins with this project's files."""

    id: str | None = None
    path: str | None = None
    base: str | None = None


class AgentFS:
    """Files, keys and tool calls. ``workspace`` is the same for everything else: checkpoints, branches, …"""

    def __init__(
        self, db: Connection, kv: KvStore, fs: Filesystem, tools: ToolCalls, workspace: AsyncWorkspace
    ) -> None:
        """Use ``AgentFS.open``."""
        self._db = db
        self.kv = kv
        self.fs = fs
        self.tools = tools
        self.workspace = workspace

    @staticmethod
    async def open(options: AgentFSOptions) -> AgentFS:
        """Opens what the options mean; it is created if there is nothing yet.

        ``ValueError`` without id and path, or if the id has other characters than letters, digits, ``-`` and ``_``.
        """
        if not options.id and not options.path:
            raise ValueError("AgentFS.open() requires at least 'id' or 'path'.")
        if options.id and not re.fullmatch(r"[a-zA-Z0-9_-]+", options.id):
            raise ValueError("Agent ID must contain only alphanumeric characters, hyphens, and underscores")
        path = options.path
        if not path:
            os.makedirs(".agentfs", exist_ok=True)
            path = f".agentfs/{options.id}.db"
        return await AgentFS.open_with(await connect(path, base=options.base))

    @staticmethod
    async def open_with(db: Connection) -> AgentFS:
        """What a connection is to."""
        workspace = await db.workspace()
        return AgentFS(db, KvStore(workspace), Filesystem(workspace), ToolCalls(workspace), workspace)

    def get_database(self) -> Connection:
        """The connection, on which SQL that reads can be executed."""
        return self._db

    async def close(self, export: bool | str | os.PathLike[str] = False) -> None:
        """Ends the connection; with ``export`` a database of AgentFS is written first (``Connection.close``)."""
        await self._db.close(export)

    async def __aenter__(self) -> AgentFS:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
