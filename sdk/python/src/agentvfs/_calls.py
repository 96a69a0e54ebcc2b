"""What both APIs do around a tool call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Call:
    """A tool call that runs. What is assigned to ``result`` is its result."""

    def __init__(self, id: int) -> None:
        self.id = id
        self.result: Any = None


def parameters(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, without ``self``."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return {name: value for name, value in bound.arguments.items() if name not in ("self", "cls")}


def failure(error: BaseException) -> str:
    """What is recorded of an exception that ended a call."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
