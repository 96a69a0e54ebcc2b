"""Key-value state of a branch: JSON values, which checkpoints, rollbacks and merges include."""

from __future__ import annotations

import json
from typing import Any

from ..errors import Refused
from ..types import Entry, from_json
from .effects import Step
from .scope import Scope, State, side
from .wire import to_b64

#: A longer JSON text goes as base64, since its escapes could make the request too long.
_TEXT_MAX = 320 << 10


def set_value(scope: Scope, key: str, value: Any, *, sync: bool = True) -> Step[None]:
    """Sets a key to a JSON value; with ``sync`` it is on stable storage when this returns."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    wire: Any = text if len(text) <= _TEXT_MAX else {"b64": to_b64(text.encode())}
    yield from scope.ask("kv.set", key=key, value=wire, **({} if sync else {"unsynced": True}))


def get(scope: Scope, key: str, default: Any = None, *, state: State = "live") -> Step[Any]:
    """The value of a key, or ``default`` if there is no such key."""
    try:
        raw = yield from scope.look("kv.get", key=key, state=side(state))
    except Refused as error:
        if error.kind == "no-such-key":
            return default
        raise
    return from_json(raw["value"])


def entries(scope: Scope, prefix: str = "", *, state: State = "live") -> Step[list[Entry]]:
    """All keys that begin with ``prefix``, with their values, by key."""
    found: list[Entry] = []
    while True:
        after = found[-1].key if found else None
        raw = yield from scope.look("kv.list", prefix=prefix, state=side(state), after=after)
        found.extend(Entry.of(entry) for entry in raw["entries"])
        if not raw["more"]:
            return found


def delete(scope: Scope, key: str) -> Step[bool]:
    """Deletes a key; whether it existed. The deletion is on stable storage when this returns."""
    raw = yield from scope.ask("kv.delete", key=key)
    return bool(raw["deleted"])
