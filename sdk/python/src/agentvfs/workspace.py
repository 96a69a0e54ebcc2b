"""The blocking API. Every method of ``aio`` is here with the same name and parameters (a test compares them)."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from ._calls import Call, failure, parameters
from ._core import branches as _branches
from ._core import files, history, kv, opening, runs, steps, tools
from ._core.effects import ask
from ._core.scope import Path, Scope, State
from ._facade import Blocking, blocking
from ._io import home
from ._io.sync import Driver
from ._streams import open_blocking
from ._version import CLIENT
from .types import WorkspaceInfo

__all__ = ["Workspace", "workspaces"]

P = ParamSpec("P")
T = TypeVar("T")


class Files(Blocking):
    """Files of a branch."""

    stat = blocking(files.stat)
    exists = blocking(files.exists)
    list = blocking(files.list_directory)
    read = blocking(files.read)
    read_text = blocking(files.read_text)
    write = blocking(files.write)
    append = blocking(files.append)
    mkdir = blocking(files.mkdir)
    remove = blocking(files.remove)
    rename = blocking(files.rename)
    copy = blocking(files.copy)
    symlink = blocking(files.symlink)
    readlink = blocking(files.readlink)
    truncate = blocking(files.truncate)
    chmod = blocking(files.chmod)
    statfs = blocking(files.statfs)

    def open(
        self, path: Path, mode: str = "r", *, perm: int = 0o644, state: State = "live", encoding: str = "utf-8"
    ) -> Any:
        """Opens a file as the built-in ``open`` does, with its modes; memory is bounded by a buffer of 512 KiB.

        The file stays the same one if it is renamed or removed. What was written is on stable storage after
        ``close``. If the daemon ends, its methods raise ``Broken`` or ``FileError`` with ``EBADF``: open it again.
        """
        return open_blocking(self._driver, self._scope, path, mode, perm, state, encoding)


class Keys(Blocking):
    """Key-value state of a branch."""

    set = blocking(kv.set_value)
    get = blocking(kv.get)
    list = blocking(kv.entries)
    delete = blocking(kv.delete)


class Tools(Blocking):
    """Tool calls."""

    start = blocking(tools.start)
    success = blocking(tools.success)
    error = blocking(tools.error)
    record = blocking(tools.record)
    get = blocking(tools.get)
    list = blocking(tools.calls)
    stats = blocking(tools.stats)
    undo = blocking(tools.undo)

    @contextlib.contextmanager
    def call(self, name: str, parameters: Any = None, *, key: str | None = None) -> Iterator[Call]:
        """A call around the block; an exception ends it as failed, and goes on. With ``key`` others can end it, too.

        >>> with ws.tools.call("search", {"query": "x"}) as call:
        ...     call.result = search("x")
        """
        call = Call(self.start(name, parameters, key=key, sync=False))
        try:
            yield call
        except BaseException as raised:
            self.error(call.id, failure(raised))
            raise
        self.success(call.id, call.result)

    def tool(self, name: str | None = None) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Decorates a function: each time it is called it is a tool call, with its arguments and result."""

        def decorate(function: Callable[P, T]) -> Callable[P, T]:
            @functools.wraps(function)
            def called(*args: P.args, **kwargs: P.kwargs) -> T:
                with self.call(name or function.__name__, parameters(function, args, kwargs)) as call:
                    call.result = result = function(*args, **kwargs)
                    return result

            return called

        return decorate


class Workspace(Blocking):
    """A branch of a workspace.

    Objects for several branches share a connection, and may be used by several threads, which then wait for each
    other. ``close`` (or ``with``) ends the connection; the workspace goes on running.
    """

    def __init__(self, driver: Driver, scope: Scope) -> None:
        """Use ``Workspace.open``."""
        super().__init__(driver, scope)
        self.fs = Files(driver, scope)
        self.kv = Keys(driver, scope)
        self.tools = Tools(driver, scope)

    @classmethod
    def open(
        cls,
        name: str | None = None,
        *,
        base: str | os.PathLike[str] | None = None,
        branch: str | None = None,
        program: str = "main",
        home: str | os.PathLike[str] | None = None,
        mount: bool | None = None,
    ) -> Workspace:
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
            return cls(driver, driver.run(opening.open_workspace(name, real, branch, program, _around(), mount)))
        except BaseException:
            driver.close()
            raise

    @classmethod
    def bound(
        cls, name: str, *, branch: str = "main", program: str = "main", home: str | os.PathLike[str] | None = None
    ) -> Workspace:
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

    def branch(self, name: str) -> Workspace:
        """Another branch of the workspace, which exists."""
        return Workspace(self._driver, Scope(self._scope.workspace, name, self._scope.program))

    def create_branch(self, name: str, *, ref: str | None = None) -> Workspace:
        """Creates a branch from this one as it is now, or from ``ref``."""
        self._driver.run(_branches.create(self._scope, name, ref=ref))
        return self.branch(name)

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Any request of docs/protocol.md; its parameters get this workspace and branch where they have none."""
        return self._driver.run(ask(method, **(self._scope.params({}) if params is None else params)))

    def close(self) -> None:
        """Ends the connection. Another call makes a new one."""
        self._driver.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, branch={self.branch_name!r})"

    info = blocking(opening.info)
    start = blocking(opening.start)
    stop = blocking(opening.stop)
    delete = blocking(opening.delete)
    status = blocking(history.status)
    sync = blocking(history.sync)
    checkpoint = blocking(history.checkpoint)
    rollback = blocking(history.rollback)
    undo = blocking(history.undo)
    redo = blocking(history.redo)
    log = blocking(history.log)
    diff = blocking(history.diff)
    patch = blocking(history.patch)
    apply = blocking(history.apply)
    update = blocking(history.update)
    export = blocking(history.export)
    branches = blocking(_branches.list_branches)
    delete_branch = blocking(_branches.delete)
    merge = blocking(_branches.merge)
    conflicts = blocking(_branches.list_conflicts)
    resolve = blocking(_branches.resolve)
    diff_branch = blocking(_branches.diff)
    step = blocking(steps.step)
    forget = blocking(steps.forget)
    run = blocking(runs.run)


def workspaces(home: str | os.PathLike[str] | None = None) -> list[WorkspaceInfo]:
    """All workspaces of a home."""
    driver = _driver(home)
    try:
        return driver.run(opening.workspaces())
    finally:
        driver.close()


def _driver(directory: str | os.PathLike[str] | None) -> Driver:
    return Driver(home.reach(directory), CLIENT)


def _around() -> opening.Surroundings:
    return home.surroundings()
