"""As in agentfs-sdk."""

from agentvfs.agentfs.errors import *  # noqa: F403
