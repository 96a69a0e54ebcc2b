"""Commits of a branch: checkpoint, rollback, undo, redo, log, diff, and the way to and from the project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ..types import Applied, Change, Checkpoint, Commit, Merge, Rolled, Status, changes
from .effects import Answer, Ask, Step
from .scope import Path, Scope, State, side, wired_all
from .wire import of_moment


def checkpoint(
    scope: Scope,
    label: str | None = None,
    *,
    message: str = "",
    meta: Mapping[str, str] | None = None,
    wait: bool = True,
) -> Step[Checkpoint]:
    """Commits all files and keys as they are now. ``wait=False`` returns before the commit's id is known."""
    pairs = [[key, value] for key, value in (meta or {}).items()]
    raw = yield from scope.ask("workspace.checkpoint", label=label, message=message, meta=pairs, wait=wait)
    return Checkpoint.of(raw)


def rollback(
    scope: Scope,
    to: str | datetime | None = None,
    *,
    meta: tuple[str, str] | None = None,
    paths: Sequence[Path] = (),
    keep_kv: bool = False,
) -> Step[Rolled]:
    """Makes the branch show a former state: the head, a ref (commit or label), the newest state before a time,
    or the newest commit with this metadata. ``paths``: only these; ``keep_kv`` leaves the keys as they are.
    ``undo`` takes it back."""
    target = _target(to, meta)
    params = {"target": target, "paths": wired_all(paths), "keep_kv": keep_kv}
    raw = yield from scope.ask("workspace.rollback", **params)
    return Rolled.of(raw)


def _target(to: str | datetime | None, meta: tuple[str, str] | None) -> Any:
    if meta is not None:
        if to is not None:
            raise ValueError("rollback takes either a target or meta")
        return {"meta": list(meta)}
    if to is None:
        return "head"
    return {"before": of_moment(to)} if isinstance(to, datetime) else {"ref": to}


def undo(scope: Scope, *, over_later_changes: bool = False) -> Step[Rolled]:
    """Takes back the branch's last rollback, restore, merge, resolve or update."""
    raw = yield from scope.ask("workspace.undo", over_later_changes=over_later_changes)
    return Rolled.of(raw)


def redo(scope: Scope) -> Step[Rolled]:
    """Takes back the last undo."""
    raw = yield from scope.ask("workspace.redo")
    return Rolled.of(raw)


def log(scope: Scope, *, limit: int | None = None, automatic: bool = False) -> Step[list[Commit]]:
    """Commits, newest first; with ``automatic`` those that were made by themselves too."""
    raw = yield from scope.look("workspace.log", all=automatic, limit=limit)
    return [Commit.of(commit) for commit in raw["commits"]]


def status(scope: Scope) -> Step[Status]:
    """State of the workspace and the branch."""
    raw = yield from scope.look("workspace.status")
    return Status.of(raw)


def _from(scope: Scope, start: State | None) -> Step[Any]:
    if start is not None:
        return side(start)
    now = yield from status(scope)
    return side(now.head or "base")


def diff(
    scope: Scope,
    start: State | None = None,
    end: State = "live",
    *,
    paths: Sequence[Path] = (),
    lines: bool = False,
) -> Step[list[Change]]:
    """What differs between two states: from the head if no other is given, to what is there now.

    ``lines`` counts the lines of each change.
    """
    begin = yield from _from(scope, start)
    asked = {"from": begin, "to": side(end), "paths": wired_all(paths), "stat": lines}
    raw = yield from scope.look("workspace.diff", **asked)
    return list(changes(raw["changes"]))


def patch(
    scope: Scope, start: State | None = None, end: State = "live", *, paths: Sequence[Path] = ()
) -> Step[bytes]:
    """The same difference as a patch that git reads."""
    begin = yield from _from(scope, start)
    asked = scope.params({"from": begin, "to": side(end), "paths": wired_all(paths)})
    answer: Answer = yield Ask("workspace.patch", asked, only_reads=True)
    return answer.data


def apply(scope: Scope, *, dry_run: bool = False, trust: bool = False) -> Step[Applied]:
    """Writes what the branch changed to the project's directory, all or nothing.

    ``trust``: also files that run by themselves and that a command in a sandbox may have written.
    """
    raw = yield from scope.ask("workspace.apply", dry_run=dry_run, trust=trust)
    return Applied.of(raw)


def update(scope: Scope, *, keep_conflicts: bool = False, dry_run: bool = False) -> Step[Merge]:
    """Merges what changed in the project's directory into the branch."""
    raw = yield from scope.ask("workspace.update", keep_conflicts=keep_conflicts, dry_run=dry_run)
    return Merge.of(raw)


def export(scope: Scope, file: str, *, ref: str | None = None, force: bool = False) -> Step[str]:
    """Writes the branch (or a commit) as one SQLite file that AgentFS's tools open; returns the commit's id."""
    raw = yield from scope.ask("workspace.export", file=file, reference=ref, force=force)
    return str(raw["commit"])


def sync(scope: Scope) -> Step[None]:
    """Returns when everything that was done on the branch is on stable storage."""
    yield from scope.ask("workspace.sync")
