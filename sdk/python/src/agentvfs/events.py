"""What happens in a workspace, as it happens: ``watch`` is an asynchronous iterator of events (docs/events.md).

It has a connection of its own, so a consumer that is slow delays nothing else: the daemon then keeps the newest events,
and tells by one with ``op`` ``lost`` how many are missing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

from ._core.effects import Answer, Ask, Connect, Effect
from ._core.reaching import reach
from ._core.wire import Data, Ending, Response
from ._io.aio import Connection, Driver, connect
from ._version import CLIENT
from .aio import AsyncWorkspace
from .errors import AgentVfsError, Broken

__all__ = ["Event", "watch"]

#: A line of docs/events.md: ContextFS's sixteen fields, and ``extra`` with texts.
Event = dict[str, Any]

#: Parts of the stream that wait for the consumer until no more are read.
_PARTS_MAX = 16


async def watch(
    workspace: AsyncWorkspace,
    *,
    since: int | None = None,
    paths: Iterable[str] = (),
    ops: Iterable[str] = (),
    branches: Iterable[str] | None = None,
    follow: bool = True,
) -> AsyncIterator[Event]:
    """Events of a workspace, until it is stopped; without ``follow``, until there are no more of them.

    ``since`` is the number of an event (``int(event["extra"]["seq"])``): those after it come first. Otherwise those
    that happen from now on. ``paths`` are patterns for paths and directories that they are in, ``ops`` operations;
    empty means all. ``branches`` names branches: by default the one of ``workspace``, and ``()`` means all.

    If the daemon ends, the events go on with the next one; one with ``op`` ``lost`` says that some are missing.

    >>> async for event in watch(ws, ops=["unlink", "rename"]):
    ...     print(event["op"], event["path"], event["extra"].get("comm"))
    """
    chosen = [workspace.branch_name] if branches is None else list(branches)
    choice = {"branches": chosen, "ops": list(ops), "paths": list(paths)}
    params: dict[str, Any] = {"workspace": workspace.name, "filter": choice, "follow": follow}
    while True:
        driver = _Apart(workspace._driver.where, CLIENT)
        made, _ = await driver.run(reach(driver.where, CLIENT))
        assert isinstance(made, _Stream)
        try:
            async for event in made.events(params if since is None else {**params, "since": since}):
                since = int(event["extra"]["seq"])
                yield event
            return
        except (Broken, Ending):
            await asyncio.sleep(0.1)
        finally:
            made.close()
            await asyncio.sleep(0)  # asyncio closes the socket in the next round.


class _Stream(Connection):
    """A connection with one request, whose data is taken as it comes."""

    _parts: asyncio.Queue[bytes | AgentVfsError | None] | None = None

    async def events(self, params: dict[str, Any]) -> AsyncIterator[Event]:
        """Asks, and gives what comes until the response."""
        parts: asyncio.Queue[bytes | AgentVfsError | None] = asyncio.Queue()
        self._parts = parts
        asked = asyncio.ensure_future(self.request(Ask("events.subscribe", params)))
        asked.add_done_callback(lambda done: parts.put_nowait(_end_of(done)))
        rest = b""
        try:
            while (part := await parts.get()) is not None:
                if isinstance(part, AgentVfsError):
                    raise part
                if self._transport is not None and parts.qsize() < _PARTS_MAX:
                    self._transport.resume_reading()
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    yield json.loads(line)
        finally:
            asked.cancel()

    def _heard(self, event: Data | Response) -> None:
        if not isinstance(event, Data) or self._parts is None:
            super()._heard(event)
            return
        self._parts.put_nowait(event.data)
        if self._parts.qsize() >= _PARTS_MAX and self._transport is not None:
            self._transport.pause_reading()


def _end_of(asked: asyncio.Future[Answer]) -> AgentVfsError | None:
    error = None if asked.cancelled() else asked.exception()
    if error is not None and not isinstance(error, AgentVfsError):
        return Broken(str(error))
    return error


class _Apart(Driver):
    """Makes a connection of its own kind."""

    async def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Connect):
            return await connect(effect.socket, _Stream)
        return await super()._perform(effect)
