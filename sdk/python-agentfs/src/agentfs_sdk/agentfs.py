"""As in agentfs-sdk."""

from agentvfs.agentfs.agentfs import *  # noqa: F403
