"""As in agentfs-sdk."""

from agentvfs.agentfs.constants import *  # noqa: F403
