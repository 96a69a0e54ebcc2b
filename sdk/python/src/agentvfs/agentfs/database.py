"""A connection as turso.aio has it, on a workspace.

``execute`` answers from an export of the workspace that is made for each statement, with AgentFS's tables; so it only
reads. Anything that would change the database raises ``Refused`` with the kind ``read-only``. Nothing is buffered, so
``commit`` and ``rollback`` do nothing.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from ..aio import AsyncWorkspace
from ..errors import Refused
from .naming import MEMORY, discard, open_named

Parameters = Sequence[Any] | Mapping[str, Any]

#: What stock tests and programs send to a database that is new; it concerns Turso's replication alone.
_IGNORED = "pragma unstable_capture_data_changes_conn"


class Connection:
    """What a path of AgentFS means; ``await`` opens it."""

    def __init__(self, path: str, base: str | None = None) -> None:
        self._path = path
        self._base = base
        self._workspace: AsyncWorkspace | None = None
        self._closed = False

    async def workspace(self) -> AsyncWorkspace:
        """The workspace."""
        if self._closed:
            raise Refused("the connection is closed", kind="closed")
        if self._workspace is None:
            self._workspace = await open_named(self._path, self._base)
        return self._workspace

    async def _opened(self) -> Connection:
        await self.workspace()
        return self

    def __await__(self) -> Generator[Any, None, Connection]:
        return self._opened().__await__()

    async def __aenter__(self) -> Connection:
        return await self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, export: bool | str | os.PathLike[str] = False) -> None:
        """Ends the connection; the workspace goes on, but for that of ``:memory:``, which is deleted.

        ``export`` writes a database of AgentFS first: to this path, or with ``True`` to ``….export.db`` beside it.
        """
        workspace, self._closed = self._workspace, True
        if workspace is None:
            return
        self._workspace = None
        try:
            if export:
                target = self._beside() if export is True else os.fspath(export)
                await workspace.export(os.path.abspath(target), force=True)
            if self._path == MEMORY:
                await discard(workspace)
        finally:
            await workspace.close()

    def _beside(self) -> str:
        if self._path == MEMORY:
            raise ValueError("name a file: export='state.db'")
        return f"{self._path.removesuffix('.db')}.export.db"

    def cursor(self) -> Cursor:
        """A cursor."""
        return Cursor(self)

    async def execute(self, sql: str, parameters: Parameters = ()) -> Cursor:
        """Executes a statement that reads."""
        return await self.cursor().execute(sql, parameters)

    async def executemany(self, sql: str, parameters: Iterable[Parameters]) -> Cursor:
        """Refused: it is for changes."""
        return await self.cursor().executemany(sql, parameters)

    async def executescript(self, sql: str) -> Cursor:
        """Executes statements that read."""
        return await self.cursor().executescript(sql)

    async def commit(self) -> None:
        """Does nothing: every change is complete by itself."""

    async def rollback(self) -> None:
        """Does nothing: nothing is waiting to be committed."""


class Cursor:
    """The rows of one statement."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self.description: Any = None
        self.lastrowid: int | None = None
        self.rowcount = -1
        self._rows: list[Any] = []

    async def execute(self, sql: str, parameters: Parameters = ()) -> Cursor:
        """Executes a statement that reads."""
        return await self._run(sql, lambda db: db.execute(sql, parameters))

    async def executemany(self, sql: str, parameters: Iterable[Parameters]) -> Cursor:
        """Refused: it is for changes."""
        return await self._run(sql, lambda db: db.executemany(sql, parameters))

    async def executescript(self, sql: str) -> Cursor:
        """Executes statements that read."""
        return await self._run(sql, lambda db: db.executescript(sql))

    async def _run(self, sql: str, statement: Any) -> Cursor:
        self._rows, self.description = [], None
        if sql.strip().lower().startswith(_IGNORED):
            return self
        workspace = await self.connection.workspace()
        with tempfile.TemporaryDirectory(prefix="agentvfs-") as directory:
            file = os.path.join(os.path.realpath(directory), "export.db")
            await workspace.export(file)
            self._rows, self.description = await asyncio.to_thread(_read, file, statement)
        return self

    async def fetchone(self) -> Any:
        """The next row, or ``None``."""
        return self._rows.pop(0) if self._rows else None

    async def fetchmany(self, size: int | None = None) -> list[Any]:
        """The next rows."""
        count = self.arraysize if size is None else size
        rows, self._rows = self._rows[:count], self._rows[count:]
        return rows

    async def fetchall(self) -> list[Any]:
        """All rows that are left."""
        rows, self._rows = self._rows, []
        return rows

    async def close(self) -> None:
        """Forgets the rows."""
        self._rows = []

    async def __aenter__(self) -> Cursor:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Any]:
        while self._rows:
            yield self._rows.pop(0)


def _read(file: str, statement: Any) -> tuple[list[Any], Any]:
    database = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:
        cursor = statement(database)
        return cursor.fetchall(), cursor.description
    except sqlite3.OperationalError as error:
        if "readonly" not in str(error):
            raise
        hint = "use fs, kv and tools, or agentvfs export and import"
        raise Refused("a workspace cannot be changed by SQL", kind="read-only", hint=hint) from error
    finally:
        database.close()


def connect(database: str | os.PathLike[str], *, base: str | None = None, **_turso: Any) -> Connection:
    """A connection to what a path means, to be awaited or used by ``async with``. Settings of Turso have no effect."""
    return Connection(os.fspath(database), base)
