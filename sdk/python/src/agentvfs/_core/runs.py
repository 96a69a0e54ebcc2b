"""Commands in a sandbox that shows a branch at the project's own path (``agentvfs run``)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal

from ..types import RunResult
from .effects import REPORT, Ended, Execute, Step
from .scope import Scope


def run(
    scope: Scope,
    command: Sequence[str],
    *,
    capture: bool = False,
    stdin: bytes | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    net: Literal["host", "none"] | None = None,
    time: str | None = None,
    then: Literal["keep", "apply", "merge", "discard"] | None = None,
    options: Sequence[str] = (),
) -> Step[RunResult]:
    """Runs a command in a sandbox in which the project's path shows this branch; nothing else can be changed.

    ``capture`` keeps what it writes; otherwise it writes where this process does. ``time`` ends it (``10m``).
    ``options`` are further ones of ``agentvfs run``. Its status is 125 if the sandbox could not be made.
    """
    words = ["run", "--quiet", "-w", scope.workspace, "--branch", scope.branch, "--report", REPORT]
    for option, value in (("--cwd", cwd), ("--net", net), ("--time", time), ("--then", then)):
        words += [] if value is None else [option, value]
    for name, value in (env or {}).items():
        words += ["--env", f"{name}={value}"]
    ended: Ended = yield Execute([*words, *options, "--", *command], capture, stdin)
    report = json.loads(ended.report) if ended.report else None
    return RunResult(ended.status, ended.stdout, ended.stderr, report)
