"""As in agentfs-sdk."""

from agentvfs.agentfs.filesystem import *  # noqa: F403
