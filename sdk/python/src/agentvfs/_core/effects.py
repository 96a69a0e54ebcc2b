"""What an operation asks of whoever drives it.

An operation is a generator (``Step``): it yields effects, gets the outcome of each (or its error, raised at the
``yield``), and returns its result.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

Step = Generator["Effect", Any, T]


@dataclass(frozen=True)
class Ask:
    """A request. Its outcome is an ``Answer``."""

    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    #: It changes nothing, so it may be repeated if the daemon ended during it.
    only_reads: bool = False
    #: The connection that it must be sent on.
    pinned: object = None


@dataclass(frozen=True)
class Answer:
    """The response to a request, the data that came before it, and the connection that it came on."""

    result: dict[str, Any]
    data: bytes = b""
    connection: object = None


@dataclass(frozen=True)
class Invoke:
    """Calls a function of the user. With asyncio, what it returns is awaited if it can be."""

    function: Callable[[], Any]


#: Stands among the arguments of a program for a file that it writes, and which ``Ended.report`` has.
REPORT = "\0report"


@dataclass(frozen=True)
class Execute:
    """Runs the program ``agentvfs`` on this home until it ends. Its outcome is an ``Ended``; ``NotInstalled`` if there
    is none.

    With asyncio it is ended (SIGTERM) if the caller is cancelled.
    """

    arguments: Sequence[str]
    capture: bool = False
    stdin: bytes | None = None


@dataclass(frozen=True)
class Ended:
    """How a program ended: its status (below zero: by that signal), and what it wrote, if that was captured."""

    status: int
    stdout: bytes = b""
    stderr: bytes = b""
    report: bytes = b""


@dataclass(frozen=True)
class Connect:
    """Connects to a socket. Its outcome is the connection, or ``None`` if nobody listens."""

    socket: str


@dataclass(frozen=True)
class AskOn:
    """A request on this connection, whatever becomes of it. Its outcome is an ``Answer``."""

    connection: object
    ask: Ask


@dataclass(frozen=True)
class Pause:
    """Waits."""

    seconds: float


Effect = Ask | Invoke | Execute | Connect | AskOn | Pause


def ask(method: str, **params: Any) -> Step[dict[str, Any]]:
    """Asks for a change; the outcome is the result."""
    answer: Answer = yield Ask(method, params)
    return answer.result


def look(method: str, **params: Any) -> Step[dict[str, Any]]:
    """Asks for what changes nothing, so that it may be repeated."""
    answer: Answer = yield Ask(method, params, only_reads=True)
    return answer.result
