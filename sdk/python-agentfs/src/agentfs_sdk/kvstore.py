"""As in agentfs-sdk."""

from agentvfs.agentfs.kvstore import *  # noqa: F403
