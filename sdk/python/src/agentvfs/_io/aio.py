"""Drives operations with asyncio.

Invariants: a connection belongs to one event loop; another loop makes one of its own. Requests of several tasks are in
flight at once, as many as the daemon allows. A task that is cancelled leaves the connection as it is: the request is
cancelled if it can be, and its response is dropped when it comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import socket
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .._core.effects import Answer, Ask, AskOn, Connect, Effect, Ended, Execute, Invoke, Pause, Step
from .._core.reaching import Reach, reach
from .._core.wire import Data, Ending, Response, Wire, cancel
from ..errors import AgentVfsError, Broken, NotInstalled, file_error
from .home import connected
from .sync import HELLO_SECONDS, program, silent

T = TypeVar("T")


@dataclass
class _Waiting:
    outcome: asyncio.Future[Answer]
    slots: asyncio.Semaphore
    data: list[bytes] = field(default_factory=list)


class Connection(asyncio.Protocol):
    """A connection on which several requests are made at once."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._wire = Wire()
        self._waiting: dict[int, _Waiting] = {}
        self._transport: asyncio.Transport | None = None
        self._slots = asyncio.Semaphore(1)
        self.process = os.getpid()

    def allow(self, in_flight: int) -> None:
        """How many requests may be in flight from now on."""
        self._slots = asyncio.Semaphore(in_flight)

    def is_open(self) -> bool:
        """Whether the daemon still holds it, as far as is known."""
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        """Ends the connection."""
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """Closes the socket of a connection whose event loop has ended."""
        self._stream.close()

    async def request(self, ask: Ask) -> Answer:
        """Asks and waits for the response. ``Broken`` if the connection ends before it."""
        slots = self._slots
        await slots.acquire()
        try:
            if not self.is_open() or self._transport is None:
                raise _Unsent("the connection was closed before the request")
            id, line = self._wire.request(ask.method, ask.params)
        except BaseException:
            slots.release()
            raise
        outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[id] = _Waiting(outcome, slots)
        self._transport.write(line)
        try:
            return await outcome
        except asyncio.CancelledError:
            if id in self._waiting and self.is_open():
                self._transport.write(cancel(id))
            raise

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """asyncio's."""
        try:
            for event in self._wire.received(data):
                self._heard(event)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            self._fail(Broken(f"the daemon sent what is no response: {error}"))
            self.close()

    def _heard(self, event: Data | Response) -> None:
        if isinstance(event, Data):
            if event.id in self._waiting:
                self._waiting[event.id].data.append(event.data)
            return
        if event.id is None:  # The connection is refused.
            self._fail(event.error or Broken("the daemon sent a response to nothing"))
            return
        waiting = self._waiting.pop(event.id, None)
        if waiting is None:
            return
        waiting.slots.release()
        if waiting.outcome.done():  # Whoever waited was cancelled.
            return
        if event.error is not None:
            waiting.outcome.set_exception(event.error)
        else:
            waiting.outcome.set_result(Answer(event.result, b"".join(waiting.data), self))

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio's."""
        self._fail(Broken(f"the daemon ended during the request: {error or 'the connection was closed'}"))

    def _fail(self, error: AgentVfsError) -> None:
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            one.slots.release()
            if not one.outcome.done():
                one.outcome.set_exception(error)


class _Unsent(Ending):
    """The request was not sent."""


class Driver:
    """Carries out operations on one daemon."""

    def __init__(self, where: Reach, client: str) -> None:
        self.where = where
        self._client = client
        self._connection: Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connecting = asyncio.Lock()

    async def run(self, step: Step[T]) -> T:
        """Carries an operation out."""
        try:
            effect = next(step)
            while True:
                try:
                    outcome = await self._perform(effect)
                except BaseException as error:
                    effect = step.throw(error)
                else:
                    effect = step.send(outcome)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def close(self) -> None:
        """Ends the connection; the next operation makes another."""
        connection, self._connection = self._connection, None
        if connection is not None and self._loop is asyncio.get_running_loop():
            connection.close()
            await asyncio.sleep(0)  # asyncio closes the socket in the next round.

    async def _perform(self, effect: Effect) -> Any:
        match effect:
            case Ask():
                return await self._ask(effect)
            case AskOn():
                return await _greeted(effect)
            case Invoke():
                result = effect.function()
                return (await result) if inspect.isawaitable(result) else result
            case Execute():
                return await _executed(effect, self.where)
            case Connect():
                return await connect(effect.socket)
            case Pause():
                return await asyncio.sleep(effect.seconds)

    async def _ask(self, ask: Ask) -> Answer:
        broken = False
        for last in (False, False, True):
            connection = await self._usable()
            if ask.pinned not in (None, connection):
                message = "the file is not open any more: its connection to the daemon has ended"
                raise file_error(message, kind="no-such-handle", errno=9, hint="open it again")
            try:
                return await connection.request(ask)
            except (Broken, Ending) as error:
                if self._connection is connection:
                    self._connection = None
                    connection.close()
                if last or (isinstance(error, Broken) and (broken or not ask.only_reads)):
                    raise
                broken = broken or isinstance(error, Broken)
        raise AssertionError("the last attempt returns or raises")

    async def _usable(self) -> Connection:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._connection is not None:
                self._connection.abandon()
            self._loop, self._connection, self._connecting = loop, None, asyncio.Lock()
        connection = self._connection
        if connection is not None and connection.is_open() and connection.process == os.getpid():
            return connection
        async with self._connecting:
            if self._connection is None or not self._connection.is_open() or self._connection.process != os.getpid():
                made, in_flight = await self.run(reach(self.where, self._client))
                assert isinstance(made, Connection)
                made.allow(in_flight)
                self._connection = made
            return self._connection


async def connect(path: str, kind: type[Connection] = Connection) -> Connection | None:
    """A connection that has not said hello; ``None`` if nobody listens."""
    try:
        stream = connected(path)
    except BlockingIOError as error:
        raise Ending("the daemon has too many clients waiting") from error
    if stream is None:
        return None
    made = kind(stream)
    await asyncio.get_running_loop().create_unix_connection(lambda: made, sock=stream)
    return made


async def _greeted(effect: AskOn) -> Answer:
    connection = effect.connection
    assert isinstance(connection, Connection)
    try:
        return await asyncio.wait_for(connection.request(effect.ask), HELLO_SECONDS)
    except asyncio.TimeoutError as error:
        connection.close()
        raise silent() from error
    except Broken as error:
        connection.close()
        raise Ending(str(error)) from error  # Nothing has been done before the response.
    except BaseException as error:
        if not (isinstance(error, AgentVfsError) and error.kind == "protocol"):
            connection.close()
        raise


async def _executed(effect: Execute, where: Reach) -> Ended:
    with program(effect, where) as (arguments, report):
        pipe = asyncio.subprocess.PIPE if effect.capture else None
        stdin = asyncio.subprocess.PIPE if effect.stdin is not None else None
        try:
            process = await asyncio.create_subprocess_exec(*arguments, stdin=stdin, stdout=pipe, stderr=pipe)
        except FileNotFoundError as error:
            raise NotInstalled(f"there is no program {arguments[0]}") from error
        try:
            stdout, stderr = await process.communicate(effect.stdin)
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            raise
        return Ended(process.returncode or 0, stdout or b"", stderr or b"", report())
