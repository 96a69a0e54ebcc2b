"""What the tests share: a private home with a daemon, and ways to wait without fixed pauses.

The program is ``$AGENTVFS_BIN``, else ``agentvfs``. Everything is in one directory below the system's temporary one,
which is removed at the end with the daemon and its mounts.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from agentvfs import Workspace

PATIENCE_SECONDS = 60.0
HANGS_SECONDS = 600.0


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits until something holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"it did not happen: {what}")
        time.sleep(0.01)


class Home:
    """A home and a directory for projects."""

    def __init__(self) -> None:
        self.place = Path(os.path.realpath(tempfile.mkdtemp(prefix="agentvfs-sdk-")))
        self.root = self.place / "home"

    def project(self, name: str = "project", **files: str) -> Path:
        """A new directory with these files."""
        directory = self.place / name
        directory.mkdir(exist_ok=True)
        for file, content in files.items():
            (directory / file).write_text(content)
        return directory

    def command(self, *words: str) -> str:
        """What the program prints."""
        program = os.environ.get("AGENTVFS_BIN") or "agentvfs"
        words = (program, "--root", str(self.root), *words)
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    def processes(self, role: str = "daemon") -> list[int]:
        """Ids of the home's processes."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if words[1:4] == [role.encode(), b"--root", os.fsencode(self.root)]:
                    found.append(int(entry.name))
        return found

    def kill_daemon(self) -> None:
        """Ends the daemon as a crash would; its sockets are closed then."""
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(process)
                os.kill(process, signal.SIGKILL)
                select.select([descriptor], [], [], PATIENCE_SECONDS)
                os.close(descriptor)

    def end(self) -> None:
        """Ends everything and removes it."""
        for role in ("keeper", "daemon"):
            for process in self.processes(role):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        until(lambda: not self.processes(), "the daemon ends")
        for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
            mount = line.split()[4]
            if mount.startswith(f"{self.place}/"):
                subprocess.run(["umount", "-l", mount], check=False, capture_output=True)
        shutil.rmtree(self.place, ignore_errors=True)


class Case(unittest.TestCase):
    """Tests with a home of their class."""

    home: Home

    @classmethod
    def setUpClass(cls) -> None:
        cls.home = Home()
        cls.addClassCleanup(cls.home.end)

    def setUp(self) -> None:
        # A test that hangs ends the program, and says where.
        faulthandler.dump_traceback_later(HANGS_SECONDS, exit=True)
        self.addCleanup(faulthandler.cancel_dump_traceback_later)

    def workspace(self, **files: str) -> Workspace:
        """A new workspace, for this test alone."""
        name = self.id().rsplit(".", 1)[1][-48:]
        workspace = Workspace.open(name, base=self.home.project(name, **files), home=self.home.root)
        self.addCleanup(workspace.close)
        return workspace


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is asynchronous."""

    def run(self: Any) -> None:
        asyncio.run(asyncio.wait_for(test(self), PATIENCE_SECONDS * 3))

    return run


@contextlib.contextmanager
def environment(**variables: str | None) -> Iterator[None]:
    """Sets variables for a while; ``None`` removes one."""
    before = {name: os.environ.get(name) for name in variables}

    def assign(values: dict[str, str | None]) -> None:
        for name, value in values.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

    assign(variables)
    try:
        yield
    finally:
        assign(before)
