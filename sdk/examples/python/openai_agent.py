"""OpenAI Agents SDK: tools over the files of a workspace, each call in the timeline; a failed run leaves no trace.

    python openai_agent.py PROJECT "what to do"

Needs OPENAI_API_KEY, or OPENAI_BASE_URL for another server of the same API.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    RunContextWrapper,
    RunHooks,
    Runner,
    function_tool,
    set_default_openai_api,
    set_tracing_disabled,
)
from agents.tool_context import ToolContext

from agentvfs import AsyncWorkspace, FileError


def tools_over(ws: AsyncWorkspace) -> list[FunctionTool]:
    """What the model may do with the files."""

    @function_tool
    async def read_file(path: str) -> str:
        """Returns the content of a file."""
        return await ws.fs.read_text(path)

    @function_tool
    async def write_file(path: str, content: str) -> str:
        """Replaces the content of a file, or creates it."""
        await ws.fs.write(path, content, parents=True, sync=False)
        return "written"

    @function_tool
    async def list_directory(path: str) -> list[str]:
        """Returns the names in a directory; an empty path is the root."""
        return [node.name for node in await ws.fs.list(path)]

    @function_tool
    async def delete_file(path: str) -> str:
        """Deletes a file."""
        try:
            await ws.fs.remove(path, expect="file")
        except FileError as error:
            return f"not deleted: {error.code}"
        return "deleted"

    return [read_file, write_file, list_directory, delete_file]


class Timeline(RunHooks[Any]):
    """Notes every tool call, by the model's own id for it. All that a call does waits for the disk once, at its end."""

    def __init__(self, ws: AsyncWorkspace) -> None:
        self._ws = ws

    async def on_tool_start(self, context: RunContextWrapper[Any], agent: Any, tool: Any) -> None:
        assert isinstance(context, ToolContext)
        parameters = {"arguments": context.tool_arguments}
        await self._ws.tools.start(tool.name, parameters, key=f"openai:{context.tool_call_id}", sync=False)

    async def on_tool_end(self, context: RunContextWrapper[Any], agent: Any, tool: Any, result: Any) -> None:
        assert isinstance(context, ToolContext)
        await self._ws.tools.success(f"openai:{context.tool_call_id}", str(result))


async def work(project: str, prompt: str) -> AsyncWorkspace:
    """Lets the agent work in a branch; it is merged if the run succeeds, and deleted if not."""
    main = await AsyncWorkspace.open(base=project)
    ws = await main.create_branch(f"openai-{os.getpid()}")
    agent = Agent(name="editor", instructions="Change the files as asked.", tools=list(tools_over(ws)))
    try:
        result = await Runner.run(agent, prompt, hooks=Timeline(ws))
    except BaseException:
        await main.delete_branch(ws.branch_name)
        raise
    print(result.final_output)
    merged = await main.merge(ws.branch_name, message=prompt[:80])
    for conflict in merged.conflicts:
        print(f"conflict\t{conflict.path}\t{conflict.kind}")
    return ws


async def main() -> None:
    set_tracing_disabled(True)
    set_default_openai_api("chat_completions")
    ws = await work(sys.argv[1], sys.argv[2])
    for call in reversed(await ws.tools.list()):
        print(f"{call.id}\t{call.name}\t{call.status}\t{call.parameters}")
    await ws.close()


if __name__ == "__main__":
    asyncio.run(main())
