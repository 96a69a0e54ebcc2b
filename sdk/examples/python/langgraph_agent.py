"""LangGraph: going back in the thread goes back in the files.

    python langgraph_agent.py PROJECT "what to do"

Each checkpoint of the thread carries the commit of the files at that moment. `resume` continues from any of them with
the files as they were then. Needs OPENAI_API_KEY, or OPENAI_BASE_URL for another server of the same API.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph

from agentvfs import Workspace

#: The kind of metadata under which the thread's checkpoint has the commit.
COMMIT = "agentvfs_commit"


class FilesSaver(InMemorySaver):
    """Keeps the files with each checkpoint of a thread. Any other saver can be extended in the same way."""

    def __init__(self, ws: Workspace) -> None:
        super().__init__()
        self._ws = ws

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: Any
    ) -> RunnableConfig:
        thread = str(config["configurable"]["thread_id"])
        done = self._ws.checkpoint(meta={"langgraph.thread": thread, "langgraph.checkpoint": checkpoint["id"]})
        carrying: Any = {**metadata, COMMIT: done.commit}
        return super().put(config, checkpoint, carrying, new_versions)


def tools_over(ws: Workspace) -> list[BaseTool]:
    """What the model may do with the files."""

    @tool
    def write_file(path: str, content: str) -> str:
        """Replaces the content of a file, or creates it."""
        ws.fs.write(path, content, parents=True, sync=False)
        return "written"

    @tool
    def read_file(path: str) -> str:
        """Returns the content of a file."""
        return ws.fs.read_text(path)

    return [write_file, read_file]


def build(ws: Workspace) -> CompiledStateGraph[Any, Any, Any, Any]:
    """A model that calls tools until it is done; each call is in the timeline."""
    tools = {one.name: one for one in tools_over(ws)}
    model = ChatOpenAI(model=os.environ.get("MODEL", "gpt-5")).bind_tools(list(tools.values()))

    def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    def act(state: MessagesState) -> dict[str, Any]:
        answers = []
        for asked in getattr(state["messages"][-1], "tool_calls", []):
            with ws.tools.call(asked["name"], asked["args"], key=f"langgraph:{asked['id']}") as call:
                call.result = str(tools[asked["name"]].invoke(asked["args"]))
            answers.append(ToolMessage(call.result, tool_call_id=asked["id"]))
        return {"messages": answers}

    def more(state: MessagesState) -> str:
        return "act" if getattr(state["messages"][-1], "tool_calls", None) else END

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("act", act)
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", more)
    graph.add_edge("act", "think")
    return graph.compile(checkpointer=FilesSaver(ws))


def run(graph: CompiledStateGraph[Any, Any, Any, Any], config: RunnableConfig, values: Any) -> Any:
    """Runs the graph. A checkpoint is complete before the next step begins, so that it has the files of its moment."""
    return graph.invoke(values, config, durability="sync")


def resume(
    graph: CompiledStateGraph[Any, Any, Any, Any], ws: Workspace, config: RunnableConfig, values: Any = None
) -> Any:
    """Continues from a checkpoint of `graph.get_state_history`, with the files as they were then. `undo` takes that
    back."""
    metadata: Any = graph.get_state(config).metadata
    ws.rollback(metadata[COMMIT])
    return run(graph, config, values)


def main() -> None:
    with Workspace.open(base=sys.argv[1]) as ws:
        graph = build(ws)
        thread: RunnableConfig = {"configurable": {"thread_id": "1"}}
        ended = run(graph, thread, {"messages": [("user", sys.argv[2])]})
        print(ended["messages"][-1].content)
        for state in graph.get_state_history(thread):
            metadata: Any = state.metadata
            print(f"{state.config['configurable']['checkpoint_id']}\t{metadata[COMMIT]}\t{','.join(state.next)}")


if __name__ == "__main__":
    main()
