"""Branches of a workspace: creating, merging, resolving."""

from __future__ import annotations

from typing import Literal

from ..types import Branch, Change, Conflict, Merge, changes, conflicts
from .effects import Step, ask, look
from .scope import Path, Scope, wired


def create(scope: Scope, name: str, *, ref: str | None = None) -> Step[Branch]:
    """Creates a branch from this one, or from ``ref``."""
    raw = yield from scope.ask("branch.create", name=name, **{"from": ref})
    return Branch.of(raw)


def list_branches(scope: Scope) -> Step[list[Branch]]:
    """All branches, ``main`` first."""
    raw = yield from look("branch.list", workspace=scope.workspace)
    return [Branch.of(branch) for branch in raw["branches"]]


def delete(scope: Scope, name: str) -> Step[str | None]:
    """Deletes a branch; returns its last commit."""
    raw = yield from ask("branch.delete", workspace=scope.workspace, branch=name)
    commit: str | None = raw["commit"]
    return commit


def merge(
    scope: Scope,
    source: str,
    *,
    keep_conflicts: bool = False,
    dry_run: bool = False,
    label: str | None = None,
    message: str = "",
) -> Step[Merge]:
    """Merges the branch ``source`` into this one.

    On conflicts nothing is changed, unless ``keep_conflicts``: then they are in the files and in ``conflicts()``,
    until each is resolved.
    """
    ends = {"from": source, "into": scope.branch, "workspace": scope.workspace}
    how = {"keep_conflicts": keep_conflicts, "dry_run": dry_run, "label": label, "message": message}
    raw = yield from ask("branch.merge", **ends, **how)
    return Merge.of(raw)


def list_conflicts(scope: Scope) -> Step[list[Conflict]]:
    """Conflicts of this branch that are not resolved."""
    raw = yield from scope.look("branch.conflicts")
    return list(conflicts(raw["conflicts"]))


def resolve(scope: Scope, path: Path, by: Literal["ours", "theirs", "base", "working"]) -> Step[int]:
    """Resolves a conflict by one side, or by the file as it is (``working``); returns how many are left."""
    raw = yield from scope.ask("branch.resolve", path=wired(path), by=by)
    return int(raw["left"])


def diff(scope: Scope, other: str) -> Step[list[Change]]:
    """What differs from this branch to another."""
    ends = {"from": scope.branch, "to": other, "workspace": scope.workspace}
    raw = yield from look("branch.diff", **ends)
    return list(changes(raw["changes"]))
