"""Steps of a program that may end in the middle: each runs once, and its result is kept with the files after it.

The layout of keys and metadata is documented in docs/sdk.md; the SDKs of other languages have the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..errors import Refused
from . import kv
from .effects import Invoke, Step
from .opening import check_program
from .scope import Scope

_VERSION = 1


def step(
    scope: Scope, name: str, function: Callable[[], Any], *, program: str | None = None, files: bool = False
) -> Step[Any]:
    """Runs ``function`` once, keeps its JSON result and the commit after it; later gives the kept result.

    The result is what the JSON stands for (a tuple becomes a list), the first time too. If ``function`` raises,
    nothing is kept, and the next run calls it again. ``files``: if the step was done before, the files become as they
    were after it; keys stay. ``program`` separates the steps of several programs on one branch.
    """
    key, mark = _names(scope, name, program)
    kept = yield from kv.get(scope, key)
    if kept is None:
        text = json.dumps((yield Invoke(function)), allow_nan=False)
        result = json.loads(text)
        yield from kv.set_value(scope, key, {"version": _VERSION, "result": result})
        yield from _checkpoint(scope, name, mark)
        return result
    if not isinstance(kept, dict) or kept.get("version") != _VERSION:
        raise Refused(f"the step {name} was kept by another version", kind="other-version", hint=f"forget({name!r})")
    if not (yield from _has_commit(scope, mark)):  # The program ended in between.
        yield from _checkpoint(scope, name, mark)
    elif files:
        yield from scope.ask("workspace.rollback", target={"meta": ["step", mark]}, keep_kv=True)
    return kept["result"]


def forget(scope: Scope, name: str, *, program: str | None = None) -> Step[bool]:
    """Forgets that a step was done, so that it runs again; whether it was."""
    key, _ = _names(scope, name, program)
    return (yield from kv.delete(scope, key))


def _names(scope: Scope, name: str, program: str | None) -> tuple[str, str]:
    program = scope.program if program is None else program
    check_program(program)
    if not 1 <= len(name.encode()) <= 500 or any(ord(c) < 32 or ord(c) == 127 for c in name):
        raise ValueError(f"a step's name has 1 to 500 bytes without control characters: {name!r}")
    return f"agentvfs:step:{program}:{name}", f"{program}:{name}"


def _checkpoint(scope: Scope, name: str, mark: str) -> Step[None]:
    meta = [["step", mark]]
    yield from scope.ask("workspace.checkpoint", message=f"step {name}", meta=meta, wait=True)


def _has_commit(scope: Scope, mark: str) -> Step[bool]:
    try:
        yield from scope.look("workspace.rollback_plan", target={"meta": ["step", mark]}, keep_kv=True)
    except Refused as error:
        if error.kind == "no-such-commit":
            return False
        raise
    return True
