"""The asynchronous API. It has every method of ``workspace``, with the same parameters (a test compares them)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from ._calls import Call, failure, parameters
from ._core import branches as _branches
from ._core import files, history, kv, opening, runs, steps, tools
from ._core.effects import ask
from ._core.scope import Path, Scope, State
from ._facade import Awaiting, awaiting
from ._io import home
from ._io.aio import Driver
from ._streams import AsyncFile, open_awaiting
from ._version import CLIENT
from .types import WorkspaceInfo

__all__ = ["AsyncWorkspace", "workspaces"]

P = ParamSpec("P")
T = TypeVar("T")


class Files(Awaiting):
    """Files of a branch."""

    stat = awaiting(files.stat)
    exists = awaiting(files.exists)
    list = awaiting(files.list_directory)
    read = awaiting(files.read)
    read_text = awaiting(files.read_text)
    write = awaiting(files.write)
    append = awaiting(files.append)
    mkdir = awaiting(files.mkdir)
    remove = awaiting(files.remove)
    rename = awaiting(files.rename)
    copy = awaiting(files.copy)
    symlink = awaiting(files.symlink)
    readlink = awaiting(files.readlink)
    truncate = awaiting(files.truncate)
    chmod = awaiting(files.chmod)
    statfs = awaiting(files.statfs)

    async def open(
        self, path: Path, mode: str = "rb", *, perm: int = 0o644, state: State = "live"
    ) -> AsyncFile:
        """Opens a file for bytes; the modes are those of the built-in ``open`` with ``b``.

        The file stays the same one if it is renamed or removed. What was written is on stable storage after
        ``close``. If the daemon ends, its methods raise ``Broken`` or ``FileError`` with ``EBADF``: open it again.
        """
        return await open_awaiting(self._driver, self._scope, path, mode, perm, state)


class Keys(Awaiting):
    """Key-value state of a branch."""

    set = awaiting(kv.set_value)
    get = awaiting(kv.get)
    list = awaiting(kv.entries)
    delete = awaiting(kv.delete)


class Tools(Awaiting):
    """Tool calls."""

    start = awaiting(tools.start)
    success = awaiting(tools.success)
    error = awaiting(tools.error)
    record = awaiting(tools.record)
    get = awaiting(tools.get)
    list = awaiting(tools.calls)
    stats = awaiting(tools.stats)
    undo = awaiting(tools.undo)

    @contextlib.asynccontextmanager
    async def call(self, name: str, parameters: Any = None, *, key: str | None = None) -> AsyncIterator[Call]:
        """A call around the block; an exception ends it as failed, and goes on. With ``key`` others can end it, too.

        >>> async with ws.tools.call("search", {"query": "x"}) as call:
        ...     call.result = await search("x")
        """
        call = Call(await self.start(name, parameters, key=key, sync=False))
        try:
            yield call
        except BaseException as raised:
            # Also of a task that is cancelled, whose next wait would otherwise be cancelled too.
            await asyncio.shield(self.error(call.id, failure(raised)))
            raise
        await self.success(call.id, call.result)

    def tool(
        self, name: str | None = None
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
        """Decorates an asynchronous function: each time it is called it is a tool call, with arguments and result."""

        def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
            @functools.wraps(function)
            async def called(*args: P.args, **kwargs: P.kwargs) -> T:
                title = name or str(getattr(function, "__name__", "tool"))
                async with self.call(title, parameters(function, args, kwargs)) as call:
                    call.result = result = await function(*args, **kwargs)
                    return result

            return called

        return decorate


class AsyncWorkspace(Awaiting):
    """A branch of a workspace.

    Objects for several branches share a connection, on which the requests of several tasks are in flight at once.
    ``close`` (or ``async with``) ends the connection; the workspace goes on running. A cancelled task leaves the
    connection usable; whether its request was carried out is not known.
    """

    def __init__(self, driver: Driver, scope: Scope) -> None:
        """Use ``AsyncWorkspace.open``."""
        super().__init__(driver, scope)
        self.fs = Files(driver, scope)
        self.kv = Keys(driver, scope)
        self.tools = Tools(driver, scope)

    @classmethod
    async def open(
        cls,
        name: str | None = None,
        *,
        base: str | os.PathLike[str] | None = None,
        branch: str | None = None,
        program: str = "main",
        home: str | os.PathLike[str] | None = None,
        mount: bool | None = None,
    ) -> AsyncWorkspace:
        """Opens a workspace, starts it if it does not run, and creates it from the directory ``base`` if need be.

        Without ``name`` and ``base``: ``$AGENTVFS_WORKSPACE``, else the workspace that holds the current directory,
        else the only one that runs. Without ``branch``: ``$AGENTVFS_BRANCH``, else ``main``. ``program`` names the
        program for ``step``. ``home`` is the directory of the store; by default ``$AGENTVFS_HOME`` or the user's own.
        ``mount=False``: without a mount; ``True``: with one, also if it runs without; ``None``: as it is, or was before
        its daemon ended, and mounted otherwise.
        """
        driver = _driver(home)
        real = None if base is None else os.path.realpath(base)
        try:
            return cls(driver, await driver.run(opening.open_workspace(name, real, branch, program, _around(), mount)))
        except BaseException:
            await driver.close()
            raise

    @classmethod
    def bound(
        cls, name: str, *, branch: str = "main", program: str = "main", home: str | os.PathLike[str] | None = None
    ) -> AsyncWorkspace:
        """The object for a workspace by its name, which need not run or exist yet. Nothing is asked of the daemon."""
        opening.check_program(program)
        return cls(_driver(home), Scope(name, branch, program))

    @property
    def name(self) -> str:
        """Name of the workspace."""
        return self._scope.workspace

    @property
    def branch_name(self) -> str:
        """Name of the branch."""
        return self._scope.branch

    def branch(self, name: str) -> AsyncWorkspace:
        """Another branch of the workspace, which exists."""
        return AsyncWorkspace(self._driver, Scope(self._scope.workspace, name, self._scope.program))

    async def create_branch(self, name: str, *, ref: str | None = None) -> AsyncWorkspace:
        """Creates a branch from this one as it is now, or from ``ref``."""
        await self._driver.run(_branches.create(self._scope, name, ref=ref))
        return self.branch(name)

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Any request of docs/protocol.md; its parameters get this workspace and branch where they have none."""
        return await self._driver.run(ask(method, **(self._scope.params({}) if params is None else params)))

    async def close(self) -> None:
        """Ends the connection. Another call makes a new one."""
        await self._driver.close()

    async def __aenter__(self) -> AsyncWorkspace:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, branch={self.branch_name!r})"

    info = awaiting(opening.info)
    start = awaiting(opening.start)
    stop = awaiting(opening.stop)
    delete = awaiting(opening.delete)
    status = awaiting(history.status)
    sync = awaiting(history.sync)
    checkpoint = awaiting(history.checkpoint)
    rollback = awaiting(history.rollback)
    undo = awaiting(history.undo)
    redo = awaiting(history.redo)
    log = awaiting(history.log)
    diff = awaiting(history.diff)
    patch = awaiting(history.patch)
    apply = awaiting(history.apply)
    update = awaiting(history.update)
    export = awaiting(history.export)
    branches = awaiting(_branches.list_branches)
    delete_branch = awaiting(_branches.delete)
    merge = awaiting(_branches.merge)
    conflicts = awaiting(_branches.list_conflicts)
    resolve = awaiting(_branches.resolve)
    diff_branch = awaiting(_branches.diff)
    step = awaiting(steps.step)
    forget = awaiting(steps.forget)
    run = awaiting(runs.run)


async def workspaces(home: str | os.PathLike[str] | None = None) -> list[WorkspaceInfo]:
    """All workspaces of a home."""
    driver = _driver(home)
    try:
        return await driver.run(opening.workspaces())
    finally:
        await driver.close()


def _driver(directory: str | os.PathLike[str] | None) -> Driver:
    return Driver(home.reach(directory), CLIENT)


def _around() -> opening.Surroundings:
    return home.surroundings()
