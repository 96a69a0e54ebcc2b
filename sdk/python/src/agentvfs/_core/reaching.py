"""Reaching the daemon: connecting, the first message, starting one where none runs.

The daemon is started by the program ``agentvfs``, which also prepares the home; of many clients at once one starts it.
Invariant: nothing but ``hello`` is sent before it was answered.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ProtocolError, Unreachable
from .effects import Answer, Ask, AskOn, Connect, Ended, Execute, Pause, Step
from .wire import Ending, hello

#: Attempts until a daemon that ends again and again is given up, and the pause between them: 15 s.
_ATTEMPTS, _PAUSE = 1500, 0.01

#: Requests that are wanted in flight on one connection.
IN_FLIGHT = 16


@dataclass(frozen=True)
class Reach:
    """Where the daemon is and how it is started."""

    socket: str
    #: The home, with which the program is called.
    root: str
    #: ``agentvfs``, or a path.
    program: str
    #: It is the socket of a run: inside a sandbox no daemon is started.
    of_run: bool = False


def reach(where: Reach, client: str) -> Step[tuple[object, int]]:
    """A connection to the daemon, and how many requests it may have in flight."""
    for _ in range(_ATTEMPTS):
        try:
            connection: object = yield Connect(where.socket)
            if connection is not None:
                return connection, (yield from _greet(connection, client))
        except Ending:
            yield Pause(_PAUSE)
            continue
        if where.of_run:
            raise Unreachable("no daemon can be reached from this sandbox", hint="unset AGENTVFS_SOCKET outside of one")
        yield from _start(where)
    raise Unreachable("the daemon ends again and again", hint=f"its log is {where.root}/daemon.log")


def _greet(connection: object, client: str) -> Step[int]:
    greeting = hello(client)
    try:
        answer: Answer = yield AskOn(connection, Ask("hello", {**greeting, "in_flight": IN_FLIGHT}))
    except ProtocolError:  # A daemon that does one request after the other.
        answer = yield AskOn(connection, Ask("hello", greeting))
    return int(answer.result.get("in_flight", 1))


def _start(where: Reach) -> Step[None]:
    ended: Ended = yield Execute(["config"], capture=True)
    if ended.status != 0:
        said = ended.stderr.decode(errors="replace").strip()
        raise Unreachable(f"cannot start the daemon: {said or f'{where.program} ended with {ended.status}'}")
