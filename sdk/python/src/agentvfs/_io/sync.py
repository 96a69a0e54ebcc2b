"""Drives operations with blocking calls.

Invariants: one request at a time on the connection, so a driver may be used by several threads. A request that was
interrupted in the middle (a signal, an error) takes the connection with it: what is left of its response is never
taken for another's. A forked child makes a connection of its own.
"""

from __future__ import annotations

import inspect
import os
import select
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from .._core.effects import REPORT, Answer, Ask, AskOn, Connect, Effect, Ended, Execute, Invoke, Pause, Step
from .._core.reaching import Reach, reach
from .._core.wire import Data, Ending, Wire
from ..errors import AgentVfsError, Broken, NotInstalled, Unreachable, file_error
from .home import connected

T = TypeVar("T")

#: How long a daemon may take for the first response.
HELLO_SECONDS = 5.0
_RECEIVE_BYTES = 1 << 20


class Connection:
    """A connection on which one request is made at a time."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._wire = Wire()

    def close(self) -> None:
        """Ends the connection."""
        self._stream.close()

    def is_open(self) -> bool:
        """Whether the daemon still holds it: while nothing is asked it sends nothing, so what can be read is an end."""
        poll = select.poll()
        poll.register(self._stream, select.POLLIN)
        return not poll.poll(0)

    def request(self, ask: Ask, timeout: float | None = None) -> Answer:
        """Asks and waits for the response. ``Broken`` if the connection ends before it."""
        id, line = self._wire.request(ask.method, ask.params)
        self._stream.settimeout(timeout)
        refused: OSError | None = None
        try:
            self._stream.sendall(line)
        except OSError as error:
            refused = error  # A daemon that refuses the connection says why before it closes it.
        return self._response(id, refused)

    def _response(self, id: int, refused: OSError | None) -> Answer:
        data: list[bytes] = []
        while True:
            for event in self._wire.received(self._received(refused)):
                if isinstance(event, Data):
                    if event.id == id:
                        data.append(event.data)
                elif event.id in (id, None):
                    if event.error is not None:
                        raise event.error
                    return Answer(event.result, b"".join(data), self)

    def _received(self, refused: OSError | None) -> bytes:
        try:
            got = self._stream.recv(_RECEIVE_BYTES)
        except TimeoutError as error:
            raise silent() from error
        except OSError as error:
            raise Broken(f"the daemon ended during the request: {refused or error}") from error
        if not got:
            raise Broken(f"the daemon ended during the request: {refused or 'the connection was closed'}")
        return got


def silent() -> Unreachable:
    """The daemon does not respond to the first message."""
    return Unreachable("the daemon does not respond", hint="look for a stopped or hanging `agentvfs daemon` process")


class Driver:
    """Carries out operations on one daemon."""

    def __init__(self, where: Reach, client: str) -> None:
        self.where = where
        self._client = client
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._process = os.getpid()

    def run(self, step: Step[T]) -> T:
        """Carries an operation out."""
        try:
            effect = next(step)
            while True:
                try:
                    outcome = self._perform(effect)
                except BaseException as error:
                    effect = step.throw(error)
                else:
                    effect = step.send(outcome)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def close(self) -> None:
        """Ends the connection; the next operation makes another."""
        with self._lock:
            self._drop()

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case Ask():
                return self._ask(effect)
            case AskOn():
                return self._greet(effect)
            case Invoke():
                return _invoked(effect)
            case Execute():
                return _executed(effect, self.where)
            case Connect():
                return _connected(effect.socket)
            case Pause():
                return time.sleep(effect.seconds)

    def _ask(self, ask: Ask) -> Answer:
        if self._process != os.getpid():
            self._process, self._lock, self._connection = os.getpid(), threading.RLock(), None
        with self._lock:
            for again in (True, False):
                connection = self._usable()
                if ask.pinned not in (None, connection):
                    message = "the file is not open any more: its connection to the daemon has ended"
                    raise file_error(message, kind="no-such-handle", errno=9, hint="open it again")
                try:
                    return self._requested(connection, ask)
                except (Broken, Ending) as error:
                    if not again or not (ask.only_reads or isinstance(error, Ending)):
                        raise
        raise AssertionError("the second attempt returns or raises")

    def _usable(self) -> Connection:
        if self._connection is not None and not self._connection.is_open():
            self._drop()
        if self._connection is None:
            made, _ = self.run(reach(self.where, self._client))
            assert isinstance(made, Connection)
            self._connection = made
        return self._connection

    def _requested(self, connection: Connection, ask: Ask) -> Answer:
        try:
            return connection.request(ask)
        except BaseException as error:
            if not isinstance(error, AgentVfsError) or isinstance(error, (Broken, Ending)):
                self._drop()
            if isinstance(error, _MALFORMED):
                raise Broken(f"the daemon sent what is no response: {error}") from error
            raise

    def _greet(self, effect: AskOn) -> Answer:
        connection = effect.connection
        assert isinstance(connection, Connection)
        try:
            return connection.request(effect.ask, HELLO_SECONDS)
        except Broken as error:
            connection.close()
            raise Ending(str(error)) from error  # Nothing has been done before the response.
        except AgentVfsError as error:
            if error.kind != "protocol":
                connection.close()
            raise

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


#: What decoding a response that is none raises.
_MALFORMED = (LookupError, TypeError, AttributeError, UnicodeDecodeError)


def _connected(path: str) -> Connection | None:
    try:
        stream = connected(path)
    except BlockingIOError as error:
        raise Ending("the daemon has too many clients waiting") from error
    return None if stream is None else Connection(stream)


def _invoked(effect: Invoke) -> Any:
    result = effect.function()
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError("the function is asynchronous: use AsyncWorkspace")
    return result


def _executed(effect: Execute, where: Reach) -> Ended:
    with program(effect, where) as (arguments, report):
        pipe = subprocess.PIPE if effect.capture else None
        try:
            ended = subprocess.run(arguments, input=effect.stdin, stdout=pipe, stderr=pipe, check=False)
        except FileNotFoundError as error:
            raise NotInstalled(f"there is no program {arguments[0]}") from error
        return Ended(ended.returncode, ended.stdout or b"", ended.stderr or b"", report())


class program:
    """The program with its arguments, with a file in place of ``REPORT``, and what reads that; it is removed after."""

    def __init__(self, effect: Execute, where: Reach) -> None:
        self._words = [where.program, "--root", where.root, *effect.arguments]
        self._path: str | None = None

    def __enter__(self) -> tuple[list[str], Callable[[], bytes]]:
        if REPORT in self._words:
            descriptor, self._path = tempfile.mkstemp(prefix="agentvfs-report-")
            os.close(descriptor)
        return [self._path or "" if word == REPORT else word for word in self._words], self._read

    def _read(self) -> bytes:
        if self._path is None:
            return b""
        with open(self._path, "rb") as file:
            return file.read()

    def __exit__(self, *_: object) -> None:
        if self._path is not None:
            os.unlink(self._path)
