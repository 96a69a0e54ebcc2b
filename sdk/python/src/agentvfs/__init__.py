"""agentvfs: a copy-on-write filesystem for AI agents, from Python.

>>> from agentvfs import Workspace
>>> with Workspace.open(base="project") as ws:
...     ws.checkpoint("before")
...     ws.fs.write("notes.txt", "hello")
...     ws.rollback()

``Workspace`` blocks, ``AsyncWorkspace`` is for asyncio; both have the same methods. ``agentvfs.agentfs`` has the API
of agentfs-sdk. This package has no dependencies and speaks to the daemon of the program ``agentvfs``.
"""

from . import errors, types
from ._version import VERSION as __version__
from .aio import AsyncWorkspace
from .errors import *  # noqa: F403
from .types import *  # noqa: F403
from .workspace import Workspace, workspaces

__all__ = [
    "AsyncWorkspace",
    "Workspace",
    "__version__",
    "workspaces",
    *errors.__all__,
    *types.__all__,
]
