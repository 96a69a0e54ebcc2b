"""As in agentfs-sdk."""

from agentvfs.agentfs.toolcalls import *  # noqa: F403
