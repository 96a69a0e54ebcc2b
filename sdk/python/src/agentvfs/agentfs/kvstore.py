"""Key-value state, as agentfs-sdk has it."""

from __future__ import annotations

from builtins import list as List
from typing import Any

from ..aio import AsyncWorkspace
from .database import Connection


class KvStore:
    """Keys of a workspace, with JSON values."""

    def __init__(self, workspace: AsyncWorkspace) -> None:
        """Use ``KvStore.from_database``."""
        self._kv = workspace.kv

    @staticmethod
    async def from_database(db: Connection) -> KvStore:
        """The keys of what a connection is to."""
        return KvStore(await db.workspace())

    async def set(self, key: str, value: Any) -> None:
        """Sets a key; on stable storage afterwards."""
        await self._kv.set(key, value)

    async def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or ``default``."""
        return await self._kv.get(key, default)

    async def list(self, prefix: str) -> List[dict[str, Any]]:
        """Keys that begin with ``prefix``: dictionaries with ``key`` and ``value``, by key."""
        return [{"key": entry.key, "value": entry.value} for entry in await self._kv.list(prefix)]

    async def delete(self, key: str) -> None:
        """Deletes a key, which may be missing."""
        await self._kv.delete(key)
