"""The examples, run against a model that follows a script. Needs what requirements.txt names; `sdk/test.sh long`."""

from __future__ import annotations

import asyncio
import os
import sys
import unittest
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2] / "python/tests")]

from mock_model import MockModel  # noqa: E402
from support import Home, environment  # noqa: E402

LINES_MAX = 150


class Examples(unittest.TestCase):
    def setUp(self) -> None:
        self.home = Home()
        self.addCleanup(self.home.end)
        self.project = self.home.project(old="content\n", changed="old\n")

    def variables(self, model: MockModel, **more: str) -> Any:
        """The environment of an example."""
        self.addCleanup(model.server_close)
        self.addCleanup(model.shutdown)
        (self.home.place / "user").mkdir()
        own = {"AGENTVFS_HOME": str(self.home.root), "HOME": str(self.home.place / "user")}
        return environment(**own, OPENAI_API_KEY="none", OPENAI_BASE_URL=f"{model.url}/v1", **more)

    def test_examples_are_short(self) -> None:
        for path in Path(__file__).parent.glob("*_agent.py"):
            self.assertLessEqual(len(path.read_text().splitlines()), LINES_MAX, path.name)

    def test_claude_agent_sdk(self) -> None:
        import claude_agent

        place = f"{self.home.root}/mnt/project/.agentvfs/branches/claude"
        steps: list[Any] = [
            ("Write", {"file_path": "{cwd}/made", "content": "by claude\n"}),
            ("Bash", {"command": "sed -i s/old/new/ changed", "description": "change a file"}),
            ("Bash", {"command": "exit 3", "description": "fail"}),
        ]
        model = MockModel(steps, place)
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}

        async def run() -> None:
            ws = await claude_agent.work(str(self.project), "change the files")
            await claude_agent.show(ws)
            calls = {call.parameters.get("command", call.name): call for call in await ws.tools.list()}
            self.assertEqual(len(calls), 3)
            self.assertEqual(calls["exit 3"].status, "error")
            self.assertTrue(all(call.key and "toolu_" in call.key for call in calls.values()))
            self.assertEqual(await ws.fs.read("made"), b"by claude\n")
            self.assertEqual(await ws.fs.read("changed"), b"new\n")
            await ws.tools.undo(calls["Write"].id or 0)
            self.assertFalse(await ws.fs.exists("made"))
            self.assertEqual(await ws.fs.read("changed"), b"new\n")
            await ws.close()

        with self.variables(model, ANTHROPIC_BASE_URL=model.url, ANTHROPIC_API_KEY="none", **quiet):
            asyncio.run(run())
        self.assertEqual((self.project / "changed").read_text(), "old\n")

    def test_openai_agents_sdk(self) -> None:
        import openai_agent
        from agents import set_default_openai_api, set_tracing_disabled

        steps: list[Any] = [
            ("list_directory", {"path": ""}),
            ("write_file", {"path": "made", "content": "by the model"}),
            ("delete_file", {"path": "missing"}),
        ]
        set_tracing_disabled(True)
        set_default_openai_api("chat_completions")

        async def run() -> None:
            ws = await openai_agent.work(str(self.project), "change the files")
            calls = {call.name: call for call in await ws.tools.list()}
            self.assertEqual({call.status for call in calls.values()}, {"success"})
            self.assertEqual((len(calls), calls["write_file"].key), (3, "openai:call_1"))
            self.assertEqual(await ws.branch("main").fs.read("made"), b"by the model")
            await ws.close()

        with self.variables(MockModel(steps)):
            asyncio.run(run())
        self.assertFalse((self.project / "made").exists())

    def test_langgraph(self) -> None:
        import langgraph_agent

        from agentvfs import Workspace

        steps: list[Any] = [("write_file", {"path": "made", "content": str(i)}) for i in range(3)]
        thread: Any = {"configurable": {"thread_id": "1"}}
        with self.variables(MockModel(steps)), Workspace.open(base=str(self.project)) as ws:
            graph = langgraph_agent.build(ws)
            langgraph_agent.run(graph, thread, {"messages": [("user", "write")]})
            self.assertEqual(ws.fs.read("made"), b"2")
            past = [state for state in graph.get_state_history(thread) if state.next == ("think",)]
            # After the first call, when the model is asked again.
            (first,) = [state for state in past if len(state.values["messages"]) == 3]
            seen: list[bytes] = []
            call = langgraph_agent.Workspace.rollback

            def rollback(self: Any, *args: Any, **kwargs: Any) -> Any:
                done = call(self, *args, **kwargs)
                seen.append(ws.fs.read("made"))
                return done

            langgraph_agent.Workspace.rollback = rollback  # type: ignore[method-assign]
            try:
                langgraph_agent.resume(graph, ws, first.config)
            finally:
                langgraph_agent.Workspace.rollback = call  # type: ignore[method-assign]
            self.assertEqual((seen, ws.fs.read("made")), ([b"0"], b"2"))
            self.assertEqual(len(ws.tools.list()), 5)


if __name__ == "__main__":
    os.chdir(Path(__file__).parent)
    unittest.main()
