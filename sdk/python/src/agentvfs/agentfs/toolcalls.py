"""Tool calls, as agentfs-sdk has them; times in seconds since 1970."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal

from .. import types
from ..aio import AsyncWorkspace
from ..errors import Refused
from .database import Connection


@dataclass
class ToolCall:
    """A tool call."""

    id: int
    name: str
    parameters: Any = None
    result: Any = None
    error: str | None = None
    status: Literal["pending", "success", "error"] = "pending"
    started_at: int = 0
    completed_at: int | None = None
    duration_ms: int | None = None


@dataclass
class ToolCallStats:
    """How the calls of a tool went that have ended."""

    name: str
    total_calls: int
    successful: int
    failed: int
    avg_duration_ms: float


def _seconds(time: datetime) -> int:
    return int(time.timestamp() // 1)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def _call(call: types.ToolCall) -> ToolCall:
    return ToolCall(
        id=call.id or 0,
        name=call.name,
        parameters=call.parameters,
        result=call.result,
        error=call.error,
        status=call.status,
        started_at=_seconds(call.started),
        completed_at=None if call.completed is None else _seconds(call.completed),
        duration_ms=call.duration_ms,
    )


def _newest_first(calls: list[types.ToolCall], limit: int | None) -> list[ToolCall]:
    ordered = sorted(calls, key=lambda call: call.started, reverse=True)
    return [_call(call) for call in ordered[:limit]]


class ToolCalls:
    """Tool calls of a workspace."""

    def __init__(self, workspace: AsyncWorkspace) -> None:
        """Use ``ToolCalls.from_database``."""
        self._tools = workspace.tools

    @staticmethod
    async def from_database(db: Connection) -> ToolCalls:
        """The tool calls of what a connection is to."""
        return ToolCalls(await db.workspace())

    async def start(self, name: str, parameters: Any = None) -> int:
        """Begins a call; returns its id."""
        return await self._tools.start(name, parameters)

    async def success(self, call_id: int, result: Any = None) -> None:
        """Ends a call with a result. ``ValueError`` if there is no such call."""
        try:
            await self._tools.success(call_id, result)
        except Refused as error:
            raise _missing(call_id, error) from error

    async def error(self, call_id: int, error: str) -> None:
        """Ends a call as failed. ``ValueError`` if there is no such call."""
        try:
            await self._tools.error(call_id, error)
        except Refused as refused:
            raise _missing(call_id, refused) from refused

    async def record(
        self,
        name: str,
        started_at: float,
        completed_at: float,
        parameters: Any = None,
        result: Any = None,
        error: str | None = None,
    ) -> int:
        """Notes a call that has ended, with a result or an error; returns its id."""
        return await self._tools.record(
            name,
            parameters=parameters,
            result=None if error else result,
            error=error or None,
            started=_time(started_at),
            completed=_time(completed_at),
        )

    async def get(self, call_id: int) -> ToolCall | None:
        """A call, or ``None``."""
        try:
            return _call(await self._tools.get(call_id))
        except Refused as error:
            if error.kind == "no-such-call":
                return None
            raise

    async def get_by_name(self, name: str, limit: int | None = None) -> list[ToolCall]:
        """Calls of a tool, the newest first."""
        return _newest_first(await self._tools.list(name=name, limit=limit), limit)

    async def get_recent(self, since: float, limit: int | None = None) -> list[ToolCall]:
        """Calls that began after a time, the newest first."""
        found = await self._tools.list(limit=limit, since=_time(since))
        return _newest_first([call for call in found if _seconds(call.started) > since], limit)

    async def get_stats(self) -> list[ToolCallStats]:
        """How the calls of each tool went, the most used first; pending ones do not count."""
        stats = [
            ToolCallStats(tool.name, tool.success + tool.error, tool.success, tool.error, tool.average_ms or 0.0)
            for tool in await self._tools.stats()
            if tool.success + tool.error
        ]
        return sorted(stats, key=lambda tool: tool.total_calls, reverse=True)


def _missing(call_id: int, error: Refused) -> Exception:
    if error.kind != "no-such-call":
        return error
    return ValueError(f"Tool call with ID {call_id} not found")
