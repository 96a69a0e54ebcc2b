"""How an operation becomes a method: blocking, or to be awaited. Signatures and docstrings are the operation's own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from ._core.effects import Step
from ._core.scope import Scope
from ._io import aio, sync

P = ParamSpec("P")
T = TypeVar("T")

class Blocking:
    """Something of a workspace, with blocking methods."""

    def __init__(self, driver: sync.Driver, scope: Scope) -> None:
        self._driver = driver
        self._scope = scope


class Awaiting:
    """Something of a workspace, with methods to be awaited."""

    def __init__(self, driver: aio.Driver, scope: Scope) -> None:
        self._driver = driver
        self._scope = scope


def blocking(operation: Callable[Concatenate[Scope, P], Step[T]]) -> Callable[Concatenate[Blocking, P], T]:
    """The blocking method of an operation."""

    @functools.wraps(operation)
    def method(self: Blocking, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._driver.run(operation(self._scope, *args, **kwargs))

    return method


def awaiting(
    operation: Callable[Concatenate[Scope, P], Step[T]],
) -> Callable[Concatenate[Awaiting, P], Coroutine[Any, Any, T]]:
    """The asynchronous method of an operation."""

    @functools.wraps(operation)
    async def method(self: Awaiting, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._driver.run(operation(self._scope, *args, **kwargs))

    return method
