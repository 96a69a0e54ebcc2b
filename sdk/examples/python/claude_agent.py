"""Claude Agent SDK: each tool call of Claude is in the timeline, with what it changed, and can be undone by itself.

    python claude_agent.py PROJECT "what to do"

Claude works in a branch of its own: PROJECT stays as it is until `agentvfs apply`. Needs ANTHROPIC_API_KEY.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, ResultMessage, query

from agentvfs import AsyncWorkspace

BRANCH = "claude"


def hooks(ws: AsyncWorkspace) -> dict[str, list[HookMatcher]]:
    """Callbacks that note every tool call, by Claude's own id for it."""

    def key(asked: Any) -> str:
        return f"claude:{asked['session_id']}:{asked['tool_use_id']}"

    async def before(asked: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        await ws.tools.start(asked["tool_name"], asked["tool_input"], key=key(asked))
        return {}

    async def after(asked: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        await ws.tools.success(key(asked), asked["tool_response"])
        return {}

    async def failed(asked: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        await ws.tools.error(key(asked), asked["error"])
        return {}

    return {
        "PreToolUse": [HookMatcher(hooks=[before])],
        "PostToolUse": [HookMatcher(hooks=[after])],
        "PostToolUseFailure": [HookMatcher(hooks=[failed])],
    }


async def work(project: str, prompt: str) -> AsyncWorkspace:
    """Lets Claude work; returns the branch that it worked in."""
    ws = await AsyncWorkspace.open(base=project)
    places = {branch.name: branch.path for branch in await ws.branches()}
    ws = ws.branch(BRANCH) if BRANCH in places else await ws.create_branch(BRANCH)
    places = {branch.name: branch.path for branch in await ws.branches()}
    await ws.checkpoint(message=f"before: {prompt[:80]}")
    options = ClaudeAgentOptions(
        cwd=places[BRANCH],
        hooks=hooks(ws),  # type: ignore[arg-type]
        allowed_tools=["Read", "Write", "Edit", "Bash"],
        permission_mode="acceptEdits",
    )
    async for message in query(prompt=prompt, options=options):
        if isinstance(message, ResultMessage):
            print(message.result)
    await ws.checkpoint(message=f"after: {prompt[:80]}")
    return ws


async def show(ws: AsyncWorkspace) -> None:
    """Prints each call with the files that it changed."""
    for call in reversed(await ws.tools.list()):
        call = await ws.tools.get(call.id or 0, wait=True)
        changed = await ws.diff(call.before, call.after) if call.before and call.after else []
        print(f"{call.id}\t{call.name}\t{call.status}\t{' '.join(change.path for change in changed)}")
    print(f"undo one with: agentvfs tool undo ID -w {ws.name} --branch {ws.branch_name}")


async def main() -> None:
    ws = await work(sys.argv[1], sys.argv[2])
    await show(ws)
    await ws.close()


if __name__ == "__main__":
    asyncio.run(main())
