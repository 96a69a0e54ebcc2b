"""What an operation works on: a branch of a workspace, for a program; and the forms that paths and states take."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .effects import Step, ask, look
from .wire import of_bytes

#: A path in the workspace, from its root; with or without a slash before it.
Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]

#: Which state to read: what the branch shows now, what it began with, or a ref (a commit's id or label).
State = Literal["live", "base"] | str


@dataclass(frozen=True)
class Scope:
    """A branch of a workspace."""

    workspace: str
    branch: str
    #: Name under which ``step`` keeps its results.
    program: str = "main"

    def params(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """``more`` with workspace and branch."""
        return {"workspace": self.workspace, "branch": self.branch, **more}

    def ask(self, method: str, **params: Any) -> Step[dict[str, Any]]:
        """A request that changes something."""
        return ask(method, **self.params(params))

    def look(self, method: str, **params: Any) -> Step[dict[str, Any]]:
        """A request that only reads."""
        return look(method, **self.params(params))


def wired(path: Path) -> str | dict[str, str]:
    """A path as the protocol has it."""
    return of_bytes(os.fsencode(path))


def wired_all(paths: Sequence[Path]) -> list[str | dict[str, str]]:
    """Several of them."""
    return [wired(path) for path in paths]


def side(state: State) -> str | dict[str, str]:
    """A state as the protocol has it."""
    return state if state in ("live", "base") else {"ref": state}
