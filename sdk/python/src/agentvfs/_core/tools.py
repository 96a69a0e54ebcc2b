"""Tool calls: what an agent did, with what it changed.

A call that is started with a key can be ended by it from anywhere, also by another process; starting it again while
it runs returns the call, so a start may be repeated after ``Broken``.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Literal

from ..types import CallStats, Merge, ToolCall, changes, conflicts, picked
from .effects import Step
from .scope import Scope
from .wire import of_moment

#: Most calls in one request.
_PAGE = 1000


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def start(
    scope: Scope, name: str, parameters: Any = None, *, key: str | None = None, sync: bool = True
) -> Step[int]:
    """Begins a call; returns its id. The state before it is kept.

    With ``sync=False`` it is on stable storage with the next change that is: so a call whose changes are made with
    ``sync=False`` too, and which is ended then, waits for the disk once.
    """
    raw = yield from scope.ask("tool.start", name=name, parameters=_text(parameters), key=key, unsynced=not sync)
    return int(raw["id"])


def success(scope: Scope, call: int | str, result: Any = None) -> Step[None]:
    """Ends a call, named by its id or key, with a result. Ending one by a key that none has is no error."""
    yield from _finish(scope, call, result=_text(result))


def error(scope: Scope, call: int | str, message: str) -> Step[None]:
    """Ends a call, named by its id or key, as failed."""
    yield from _finish(scope, call, error=message)


def _finish(scope: Scope, call: int | str, **how: Any) -> Step[None]:
    named: dict[str, Any] = {"id": call} if isinstance(call, int) else {"key": call}
    yield from scope.ask("tool.finish", **named, **how)


def record(
    scope: Scope,
    name: str,
    *,
    parameters: Any = None,
    result: Any = None,
    error: str | None = None,
    started: datetime | None = None,
    completed: datetime | None = None,
) -> Step[int]:
    """Notes a call that has ended already; returns its id."""
    raw = yield from scope.ask(
        "tool.record",
        name=name,
        parameters=_text(parameters),
        result=_text(result),
        error=error,
        started=None if started is None else of_moment(started),
        completed=None if completed is None else of_moment(completed),
    )
    return int(raw["id"])


def get(scope: Scope, id: int, *, wait: bool = False) -> Step[ToolCall]:
    """A call; with ``wait`` its commits are known when this returns."""
    raw = yield from scope.look("tool.show", id=id, wait=wait)
    return ToolCall.of(raw)


def calls(
    scope: Scope,
    *,
    name: str | None = None,
    status: Literal["pending", "success", "error"] | None = None,
    limit: int | None = None,
    switches: bool = False,
    since: datetime | None = None,
) -> Step[list[ToolCall]]:
    """Calls, the newest first; with ``switches`` rollbacks, undos, merges and the like too.

    ``since``: only those that began then or later. Calls that were recorded afterwards are looked for among the
    thousand around.
    """
    found: list[ToolCall] = []
    before = None
    while limit is None or len(found) < limit:
        page = _PAGE if limit is None or since is not None else min(_PAGE, limit - len(found))
        asked = {"limit": page, "before": before, "name": name, "status": status, "all": switches}
        raw = yield from scope.look("timeline.list", **asked)
        items = [ToolCall.of(item) for item in raw["items"]]
        recent = [call for call in items if since is None or call.started >= since]
        found.extend(recent)
        before = raw["next"]
        if before is None or (not recent and len(items) == _PAGE):
            break
    return found[:limit]


def stats(scope: Scope) -> Step[list[CallStats]]:
    """How the calls of each tool went, by name."""
    raw = yield from scope.look("timeline.stats")
    return [picked(CallStats, tool) for tool in raw["tools"]]


def undo(scope: Scope, id: int, *, dry_run: bool = False) -> Step[Merge]:
    """Takes back what a call changed and keeps what came after it; with conflicts nothing is changed."""
    raw = yield from scope.ask("tool.undo", id=id, dry_run=dry_run)
    found = conflicts(raw["conflicts"])
    status: Literal["merged", "conflicts"] = "conflicts" if found else "merged"
    return Merge(status, raw["commit"], found, raw["files_changed"], changes(raw["changes"]))
