"""What operations return: plain immutable values. Names and paths are texts, in which what is not UTF-8 stands as
``os.fsdecode`` has it, so ``os.fsencode`` gives the bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import Any, Literal, TypeVar

from ._core.wire import of_b64, to_bytes, to_text

__all__ = [
    "Applied",
    "Branch",
    "CallStats",
    "Change",
    "Checkpoint",
    "Commit",
    "Conflict",
    "Entry",
    "Lines",
    "Merge",
    "Node",
    "Rolled",
    "RunResult",
    "Space",
    "Status",
    "ToolCall",
    "WorkspaceInfo",
]

T = TypeVar("T")

FileType = Literal["file", "directory", "symlink", "fifo", "socket", "character-device", "block-device"]


def moment(value: Mapping[str, int]) -> datetime:
    """A time of the protocol, to the microsecond."""
    whole = datetime.fromtimestamp(value["sec"], timezone.utc)
    return whole.replace(microsecond=value["nsec"] // 1000)


def moment_ns(value: Mapping[str, int]) -> int:
    """The same in nanoseconds since 1970."""
    return value["sec"] * 1_000_000_000 + value["nsec"]


def picked(kind: type[T], raw: Mapping[str, Any]) -> T:
    """A value of a dataclass from the members of a response that it has; there may be more."""
    return kind(**{one.name: raw[one.name] for one in fields(kind)})  # type: ignore[arg-type]


def _maybe_moment(value: Mapping[str, int] | None) -> datetime | None:
    return None if value is None else moment(value)


def from_json(value: str | Mapping[str, str] | None) -> Any:
    """The object that a JSON text of the protocol stands for; ``None`` where there is none."""
    return None if value is None else json.loads(to_bytes(value))


@dataclass(frozen=True)
class Node:
    """A file, directory or other name."""

    name: str
    type: FileType
    perm: int
    nlink: int
    uid: int
    gid: int
    rdev: int
    size: int
    #: Nanoseconds since 1970.
    mtime_ns: int
    #: The same for all names of one file.
    inode: int
    #: Of a symbolic link.
    target: str | None = None
    xattrs: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def is_file(self) -> bool:
        """It is a regular file."""
        return self.type == "file"

    @property
    def is_directory(self) -> bool:
        """It is a directory."""
        return self.type == "directory"

    @property
    def is_symlink(self) -> bool:
        """It is a symbolic link."""
        return self.type == "symlink"

    @property
    def mtime(self) -> datetime:
        """Last change of the content, to the microsecond."""
        seconds, nanoseconds = divmod(self.mtime_ns, 1_000_000_000)
        return moment({"sec": seconds, "nsec": nanoseconds})

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Node:
        """From the protocol."""
        target = raw.get("target")
        return Node(
            name=to_text(raw["name"]),
            type=raw["type"],
            perm=raw["perm"],
            nlink=raw["nlink"],
            uid=raw["uid"],
            gid=raw["gid"],
            rdev=raw["rdev"],
            size=raw["size"],
            mtime_ns=moment_ns(raw["mtime"]),
            inode=raw["inode"],
            target=None if target is None else to_text(target),
            xattrs={to_text(name): to_bytes(value) for name, value in raw.get("xattrs", ())},
        )


@dataclass(frozen=True)
class Space:
    """Room on the disk of the store, and what the branch holds of it."""

    bytes_total: int
    bytes_free: int
    bytes_available: int
    #: Files, directories and other inodes of the branch.
    inodes: int
    #: Sum of the lengths of its files.
    bytes_used: int
    #: Longest name, in bytes.
    name_max: int


@dataclass(frozen=True)
class Entry:
    """A key with its value."""

    key: str
    value: Any
    created: datetime
    updated: datetime

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Entry:
        """From the protocol."""
        return Entry(raw["key"], from_json(raw["value"]), moment(raw["created"]), moment(raw["updated"]))


@dataclass(frozen=True)
class ToolCall:
    """A tool call, or (``kind``) a rollback, undo, merge …, of the timeline."""

    entry: int
    kind: str
    id: int | None
    name: str
    status: Literal["pending", "success", "error"]
    parameters: Any
    result: Any
    error: str | None
    started: datetime
    completed: datetime | None
    duration_ms: int | None
    #: Commits of what the branch showed when it began and ended; ``None`` while that is not known.
    before: str | None
    after: str | None
    key: str | None

    @staticmethod
    def of(raw: Mapping[str, Any]) -> ToolCall:
        """From the protocol."""
        return ToolCall(
            entry=raw["entry"],
            kind=raw["kind"],
            id=raw.get("id"),
            name=raw.get("name") or "",
            status=raw.get("status") or "success",
            parameters=from_json(raw.get("parameters")),
            result=from_json(raw.get("result")),
            error=raw.get("error"),
            started=moment(raw["started"]),
            completed=_maybe_moment(raw.get("completed")),
            duration_ms=raw.get("duration_ms"),
            before=raw.get("before"),
            after=raw.get("after"),
            key=raw.get("key"),
        )


@dataclass(frozen=True)
class CallStats:
    """How the calls of one tool went. Durations are in milliseconds; ``None`` where no call has ended."""

    name: str
    calls: int
    success: int
    error: int
    pending: int
    total_ms: int
    average_ms: float | None
    max_ms: int | None


@dataclass(frozen=True)
class Commit:
    """A commit of the log."""

    id: str
    time: datetime
    labels: tuple[str, ...]
    message: str
    meta: tuple[tuple[str, str], ...]
    #: It was made by itself.
    automatic: bool
    #: It is the branch's head.
    head: bool
    parents: tuple[str, ...]
    kind: str

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Commit:
        """From the protocol."""
        return Commit(
            id=raw["commit"],
            time=moment(raw["time"]),
            labels=tuple(raw["labels"]),
            message=raw["message"],
            meta=tuple((key, value) for key, value in raw["meta"]),
            automatic=raw["automatic"],
            head=raw["head"],
            parents=tuple(raw["parents"]),
            kind=raw["kind"],
        )


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint committed. ``commit`` is ``None`` where none was made or its id is not known yet."""

    commit: str | None
    #: False: nothing had changed since the last one.
    new_commit: bool
    files_changed: int
    bytes_changed: int
    #: Paths whose content could not be read and is not in the commit.
    unreadable: tuple[str, ...]

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Checkpoint:
        """From the protocol."""
        unreadable = tuple(to_text(path) for path in raw["unreadable"])
        sizes = raw["files_changed"], raw["bytes_changed"]
        return Checkpoint(raw["commit"], raw["new_commit"], *sizes, unreadable)


@dataclass(frozen=True)
class Rolled:
    """A rollback, undo or redo: what the branch shows now, and the commit of what it showed before."""

    commit: str | None
    #: ``undo`` returns to it.
    replaced: str | None
    files_changed: int

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Rolled:
        """From the protocol."""
        return Rolled(raw["commit"], raw["replaced"], raw["files_changed"])


@dataclass(frozen=True)
class Lines:
    """How many lines a change added and removed."""

    added: int
    removed: int
    binary: bool
    old_size: int
    new_size: int


@dataclass(frozen=True)
class Change:
    """A name that differs: ``status`` is A(dded), M(odified), D(eleted), R(enamed) or T(ype changed)."""

    status: str
    path: str
    old_path: str | None
    lines: Lines | None

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Change:
        """From the protocol."""
        old, lines = raw.get("old_path"), raw.get("lines")
        return Change(
            status=raw["status"],
            path=to_text(raw["path"]),
            old_path=None if old is None else to_text(old),
            lines=None if lines is None else picked(Lines, lines),
        )


def changes(raw: Any) -> tuple[Change, ...]:
    """All changes of a response."""
    return tuple(Change.of(change) for change in raw)


@dataclass(frozen=True)
class Conflict:
    """A path that two sides changed differently."""

    path: str
    kind: str


def conflicts(raw: Any) -> tuple[Conflict, ...]:
    """All conflicts of a response."""
    return tuple(Conflict(to_text(row["path"]), row["kind"]) for row in raw)


@dataclass(frozen=True)
class Merge:
    """How a merge or an update went. With ``conflicts`` nothing changed, unless they were to be kept."""

    status: Literal["merged", "fast-forward", "up-to-date", "conflicts"]
    commit: str | None
    conflicts: tuple[Conflict, ...]
    files_changed: int
    #: Of a dry run.
    changes: tuple[Change, ...]

    @property
    def ok(self) -> bool:
        """There were no conflicts."""
        return not self.conflicts

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Merge:
        """From the protocol."""
        found = conflicts(raw["conflicts"])
        return Merge(raw["status"], raw["commit"], found, raw["files_changed"], changes(raw["changes"]))


@dataclass(frozen=True)
class Applied:
    """What an apply wrote to the project. With ``conflicts`` nothing was written."""

    status: Literal["merged", "up-to-date", "conflicts"]
    changes: tuple[Change, ...]
    conflicts: tuple[Conflict, ...]
    #: Paths that cannot be read and were skipped.
    left_out: tuple[str, ...]
    #: Paths that run by themselves and need ``trust``.
    untrusted: tuple[str, ...]
    #: Commit of the project before.
    before: str | None

    @property
    def ok(self) -> bool:
        """There were no conflicts."""
        return not self.conflicts

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Applied:
        """From the protocol."""
        return Applied(
            status=raw["status"],
            changes=changes(raw["changes"]),
            conflicts=conflicts(raw["conflicts"]),
            left_out=tuple(to_text(path) for path in raw["left_out"]),
            untrusted=tuple(to_text(path) for path in raw.get("untrusted", ())),
            before=raw.get("before"),
        )


@dataclass(frozen=True)
class Branch:
    """A branch: its head, and the directory that shows it."""

    name: str
    commit: str | None
    path: str
    created: datetime

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Branch:
        """From the protocol."""
        return Branch(raw["name"], raw["commit"], to_text(raw["path"]), moment(raw["created"]))


@dataclass(frozen=True)
class WorkspaceInfo:
    """A workspace: where it is mounted, or would be, and the project's directory."""

    name: str
    mount: str
    base: str
    status: Literal["initialized", "started", "stopped", "stale"]
    unmounted: bool = False
    """It runs without a mount."""

    @property
    def runs(self) -> bool:
        """It runs, or did when its daemon ended."""
        return self.status in ("started", "stale")

    @staticmethod
    def of(raw: Mapping[str, Any]) -> WorkspaceInfo:
        """From the protocol."""
        mount, base = to_text(raw["mount"]), to_text(raw["base"])
        return WorkspaceInfo(raw["name"], mount, base, raw["status"], raw.get("unmounted", False))


@dataclass(frozen=True)
class Status:
    """State of a workspace and a branch. ``facts`` is as docs/protocol.md has it, ``None`` unless it runs."""

    workspace: WorkspaceInfo
    branch: str
    healthy: bool
    troubles: tuple[str, ...]
    facts: Mapping[str, Any] | None

    @property
    def head(self) -> str | None:
        """The branch's head."""
        return None if self.facts is None else self.facts["head"]

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Status:
        """From the protocol."""
        info = WorkspaceInfo.of(raw["workspace"])
        return Status(info, raw["branch"], raw["healthy"], tuple(raw["troubles"]), raw["facts"])


@dataclass(frozen=True)
class RunResult:
    """How a command in a sandbox ended: its exit status, and what it wrote, if that was captured."""

    status: int
    stdout: bytes
    stderr: bytes
    #: What ``agentvfs run --report`` says; ``None`` if the command never began.
    report: Mapping[str, Any] | None

    @property
    def ok(self) -> bool:
        """It ended with 0."""
        return self.status == 0


def bytes_of(raw: Mapping[str, Any]) -> bytes:
    """Data in a response."""
    return of_b64(raw["b64"])
