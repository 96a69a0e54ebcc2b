"""The protocol as bytes: requests to lines, lines to responses. No I/O (docs/protocol.md).

Invariant: a ``Wire`` belongs to one connection. Whatever the daemon sends, ``received`` returns events or raises
``ValueError``; a response to a request that nobody waits for any more is an event like any other.
"""

from __future__ import annotations

import base64
import errno
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from ..errors import AgentVfsError, ProtocolError, Refused, Unreachable, WrongVersion, file_error

PROTOCOL = 1
#: A request that is longer is refused and the connection closed.
REQUEST_BYTES_MAX = 1 << 20

_ENDING, _VERSION, _FAILED = -32001, -32002, -32000


class Ending(Unreachable):
    """The daemon is shutting down: nothing was done, and another attempt may succeed."""


@dataclass(frozen=True)
class Response:
    """The end of a request: its result, or its error."""

    id: int | None
    result: dict[str, Any]
    error: AgentVfsError | None


@dataclass(frozen=True)
class Data:
    """A part of a long result."""

    id: int
    data: bytes


Event = Response | Data


class Wire:
    """One connection's numbers and the rest of a line that is not complete."""

    def __init__(self) -> None:
        self._last_id = 0
        self._rest: list[bytes] = []

    def request(self, method: str, params: Mapping[str, Any]) -> tuple[int, bytes]:
        """The id and the line of a request. ``ValueError`` if it is too long."""
        self._last_id += 1
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        line = json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        if len(line) > REQUEST_BYTES_MAX:
            raise ValueError(f"the request {method} has {len(line)} bytes, more than {REQUEST_BYTES_MAX}")
        return self._last_id, line

    def received(self, data: bytes) -> list[Event]:
        """What the next bytes of the daemon say."""
        if b"\n" not in data:
            self._rest.append(data)
            return []
        lines = b"".join([*self._rest, data]).split(b"\n")
        self._rest = [lines.pop()]
        events = (_event(line) for line in lines)
        return [event for event in events if event is not None]


def cancel(id: int) -> bytes:
    """The line that cancels a request."""
    message = {"jsonrpc": "2.0", "method": "cancel", "params": {"id": id}}
    return json.dumps(message).encode() + b"\n"


def hello(client: str) -> dict[str, Any]:
    """Parameters of the first request."""
    return {"protocol": PROTOCOL, "client": client}


def _event(line: bytes) -> Event | None:
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("the daemon sent a message that is no object")
    if message.get("method") == "data":
        params = message["params"]
        return Data(int(params["id"]), base64.b64decode(params["b64"]))
    if "method" in message:
        return None
    id = message.get("id")
    if "error" in message:
        return Response(id, {}, _error(message["error"]))
    return Response(id, message["result"], None)


def _error(error: Mapping[str, Any]) -> AgentVfsError:
    message, code = str(error["message"]), error.get("code")
    data = error.get("data") or {}
    kind, hint = str(data.get("kind") or "failed"), data.get("hint")
    if code == _ENDING:
        return Ending(f"the daemon is shutting down: {message}")
    if code == _VERSION:
        return WrongVersion(f"the daemon has another version: {message}")
    if code != _FAILED:
        return ProtocolError(message)
    number = getattr(errno, str(data.get("errno")), None)
    if isinstance(number, int):
        return file_error(message, kind=kind, errno=number, hint=hint)
    return Refused(message, kind=kind, hint=hint)


def of_bytes(value: str | bytes) -> str | dict[str, str]:
    """A path or value as the protocol has it: a text if it is UTF-8, else base64."""
    raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(raw).decode()}


def to_bytes(value: str | Mapping[str, str]) -> bytes:
    """The bytes that the protocol's form stands for."""
    if isinstance(value, str):
        return value.encode()
    return base64.b64decode(value["b64"])


def to_text(value: str | Mapping[str, str]) -> str:
    """The same as a text, with what is not UTF-8 as ``os.fsdecode`` has it (``surrogateescape``)."""
    return value if isinstance(value, str) else to_bytes(value).decode("utf-8", "surrogateescape")


def to_b64(data: bytes | bytearray | memoryview) -> str:
    """Base64 as a text."""
    return base64.b64encode(data).decode()


def of_b64(text: str) -> bytes:
    """The bytes of base64."""
    return base64.b64decode(text)


def of_moment(time: datetime) -> dict[str, int]:
    """A time as the protocol has it; one without a zone is local."""
    aware = time.astimezone(timezone.utc)
    return {"sec": int(aware.replace(microsecond=0).timestamp()), "nsec": aware.microsecond * 1000}
