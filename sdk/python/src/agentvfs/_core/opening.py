"""Which workspace and branch are meant, and starting the workspace (the rules of the command line).

Order: the name that is given, the project's directory that is given, ``$AGENTVFS_WORKSPACE``, the workspace whose
mount or project holds the current directory, the only one that runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import Refused
from ..types import WorkspaceInfo
from .blake3 import blake3
from .effects import Step, ask, look
from .scope import Scope, wired

_NAME_BYTES_MAX = 64


@dataclass(frozen=True)
class Surroundings:
    """What the environment says: variables, and the current directory (``None``: it is gone)."""

    workspace: str | None
    branch: str | None
    directory: str | None


def open_workspace(
    name: str | None,
    base: str | None,
    branch: str | None,
    program: str,
    around: Surroundings,
    mount: bool | None = None,
) -> Step[Scope]:
    """The branch of a workspace that runs; it is started, or created from ``base``, if need be.

    ``base`` is absolute and without symbolic links. ``mount``: as for :func:`start`.
    """
    check_program(program)
    if base is not None:
        found = name or (yield from _of_project(base))
        named = name is not None
        yield from _started(found, base=wired(base), named=named, **_how(mount))
    else:
        found = name or around.workspace or (yield from _guessed(around))
        yield from _started(found, **_how(mount))
    return Scope(found, branch or around.branch or _branch_of(around.directory) or "main", program)


def _started(name: str, **how: Any) -> Step[None]:
    try:
        yield from ask("workspace.start", workspace=name, **how)
    except Refused as error:
        if error.kind != "in-sandbox":
            raise
        # A command in a sandbox starts nothing; its own workspace runs.
        if name not in [one.name for one in (yield from workspaces())]:
            raise


def check_program(program: str) -> None:
    """``ValueError`` unless ``step`` can use this name."""
    long = not 1 <= len(program.encode("utf-8", "surrogatepass")) <= 100
    if long or ":" in program or any(ord(c) < 32 or ord(c) == 127 for c in program):
        raise ValueError(f"a program's name has 1 to 100 bytes without ':' and control characters: {program!r}")


def workspaces() -> Step[list[WorkspaceInfo]]:
    """All workspaces of the home."""
    raw = yield from look("workspace.list")
    return [WorkspaceInfo.of(info) for info in raw["workspaces"]]


def info(scope: Scope) -> Step[WorkspaceInfo]:
    """Where the workspace is mounted, and of which project it is."""
    every = yield from workspaces()
    for one in every:
        if one.name == scope.workspace:
            return one
    raise Refused(f"there is no workspace {scope.workspace}", kind="no-such-workspace")


def start(scope: Scope, *, mount: bool | None = None) -> Step[WorkspaceInfo]:
    """Starts the workspace if it does not run.

    ``mount=False``: without a mount, so that only requests such as those of this package reach it; ``True``: with one,
    also if it runs without; ``None``: as it is, or was before its daemon ended, and mounted otherwise.
    """
    raw = yield from ask("workspace.start", workspace=scope.workspace, **_how(mount))
    return WorkspaceInfo.of(raw["workspace"])


def _how(mount: bool | None) -> dict[str, Any]:
    return {} if mount is None else {"options": {"unmounted": not mount}}


def stop(scope: Scope, *, force: bool = False, checkpoint: bool = True) -> Step[None]:
    """Stops the workspace; ``force`` also if processes use its mount. Programs that use it find it stopped."""
    yield from ask("workspace.stop", workspace=scope.workspace, force=force, checkpoint=checkpoint)


def delete(scope: Scope) -> Step[None]:
    """Deletes the stopped workspace with all its commits."""
    yield from ask("workspace.delete", workspace=scope.workspace)


def _of_project(base: str) -> Step[str]:
    every = yield from workspaces()
    covered = [one.name for one in every if one.runs and one.mount == base]
    if covered:
        return covered[0]
    found = [one for one in every if one.base == base]
    return _only(found, "several workspaces have this project") if found else default_name(base)


def _guessed(around: Surroundings) -> Step[str]:
    every = yield from workspaces()
    here = _holding(around.directory, every) if around.directory is not None else []
    if here:
        return _only(here, "several workspaces hold the current directory")
    running = [one for one in every if one.runs]
    if not running:
        hint = "name a workspace, or give base=DIR to create one"
        raise Refused("no workspace is running", kind="no-such-workspace", hint=hint)
    return _only(running, "several workspaces are running")


def _only(found: Sequence[WorkspaceInfo], why: str) -> str:
    running = [one for one in found if one.runs]
    for few in (found, running):
        if len(few) == 1:
            return few[0].name
    names = ", ".join(one.name for one in found)
    raise Refused(f"{why}: {names}", kind="ambiguous-workspace", hint="name the workspace")


def _holding(directory: str, every: Sequence[WorkspaceInfo]) -> list[WorkspaceInfo]:
    running = [one for one in every if one.runs]
    mounted = _nearest(directory, running, lambda one: one.mount)
    return mounted or _nearest(directory, every, lambda one: one.base)


def _nearest(
    directory: str, every: Sequence[WorkspaceInfo], place: Callable[[WorkspaceInfo], str]
) -> list[WorkspaceInfo]:
    above = [one for one in every if os.path.commonpath((directory, place(one))) == place(one)]
    deepest = max((len(place(one)) for one in above), default=0)
    return [one for one in above if len(place(one)) == deepest]


def _branch_of(directory: str | None) -> str | None:
    parts = (directory or "").split("/")
    for at in range(len(parts) - 2):
        if parts[at : at + 2] == [".agentvfs", "branches"]:
            return parts[at + 2]
    return None


def default_name(base: str) -> str:
    """The name of a workspace that is created from a directory without being given one."""
    raw = os.fsencode(os.path.basename(base))
    if not raw:
        return "root"
    clean = re.sub(r"[^A-Za-z0-9._-]", "-", raw.decode(errors="replace")).lstrip(".-")
    if not re.search(r"[A-Za-z0-9]", clean):
        return f"ws-{blake3(raw)[:8]}"
    return clean[:_NAME_BYTES_MAX]
