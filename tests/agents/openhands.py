#!/usr/bin/env python3
"""OpenHands' own code for hooks, as PyPI has it, reads what `agent install openhands` writes and calls `agentvfs hook`.

Its loader of settings, its manager and its executor of hooks are those of the package; what they are handed by the agent's
loop is handed to them here, since the agent itself needs Python 3.12 and a model. The rest of the package is not imported:
it wants a hundred others. Part of `.ci/long agents`.

    openhands.py AGENTVFS DIR PACKAGE     PACKAGE is openhands-sdk, unpacked; needs pydantic
"""

import json
import os
import subprocess
import sys
import types
from pathlib import Path


def fail(text):
    sys.exit(f"openhands: {text}")


def module(name, path=None, **names):
    """A module of that name: one that is found below `path`, or one that has nothing but these names."""
    made = types.ModuleType(name)
    if path is not None:
        made.__path__ = [str(path)]
    made.__dict__.update(names)
    sys.modules[name] = made
    return made


def hooks_of(package):
    """The package's modules for hooks; what they need of others only for their types, or not at all, is left out."""
    import logging

    module("openhands", package / "openhands")
    module("openhands.sdk", package / "openhands/sdk")
    utils = module("openhands.sdk.utils", package / "openhands/sdk/utils")
    module("openhands.sdk.logger", get_logger=logging.getLogger)
    module("openhands.sdk.utils.redact", redact_text_secrets=lambda text: text)
    events = ("ActionEvent", "Event", "HookExecutionEvent", "MessageEvent", "ObservationEvent")
    module("openhands.sdk.event", **{name: object for name in events}, __getattr__=lambda name: object)
    module("openhands.sdk.llm", Message=object, TextContent=object, content_to_str=str)
    module("openhands.sdk.conversation")
    module("openhands.sdk.conversation.visualizer", ConversationVisualizerBase=object)
    module("openhands.sdk.observability")
    module("openhands.sdk.observability.laminar", observe=lambda **_: lambda function: function)
    from openhands.sdk.utils.command import sanitized_env

    utils.sanitized_env = sanitized_env
    from openhands.sdk.hooks.manager import HookManager

    return HookManager


def main():
    program, place, package = (Path(word).resolve() for word in sys.argv[1:4])
    home, project, bin = place / "hands-home", place / "hands", place / "hands-bin"
    for directory in (home, project, bin):
        directory.mkdir(parents=True)
    (bin / "agentvfs").symlink_to(program)
    # Its executor gives hooks the environment of the agent.
    os.environ.update(HOME=str(home), PATH=f"{bin}:{os.environ['PATH']}", AGENTVFS_HOME=str(place / "hands-store"))

    def run(*words, cwd=project):
        done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            fail(f"{' '.join(words)}: status {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def good(results):
        for result in results:
            if not result.success or result.blocked or result.error or result.stdout or result.stderr:
                fail(f"a hook's result: {result}")
        if len(results) != 1:
            fail(f"{len(results)} hooks, not one")

    run("agentvfs", "agent", "install", "openhands", "--hooks")
    run("agentvfs", "start", "hands", "--from", str(project))
    try:
        mount = Path(json.loads(run("agentvfs", "list", "--json"))["workspaces"][0]["mount"])
        manager = hooks_of(package)(working_dir=str(mount), session_id="conversation-1")

        def call(tool, asked, does):
            good(manager.run_pre_tool_use(tool, asked)[1])
            does()
            good(manager.run_post_tool_use(tool, asked, {"content": [{"type": "text", "text": "done"}]}))

        good(manager.run_session_start())
        for turn in ("one", "two"):
            good(manager.run_user_prompt_submit(f"make {turn}")[2])
            shell = {"command": f"echo {turn} > {turn}", "is_input": False, "kind": "TerminalAction"}
            call("terminal", shell, lambda turn=turn: (mount / turn).write_text(turn))
            call("file_editor", {"command": "create", "path": turn}, lambda turn=turn: (mount / f"{turn}.txt").touch())
            good(manager.run_stop(reason="finish_tool")[1])
        good(manager.run_session_end())

        calls = json.loads(run("agentvfs", "timeline", "--json", cwd=mount))["calls"]
        got = [(call["name"], call["status"]) for call in calls]
        if got != [("file_editor", "success"), ("terminal", "success")] * 2:
            fail(f"timeline: {got}")
        commits = json.loads(run("agentvfs", "log", "--all", "--json", cwd=mount))["commits"]
        meta = [commit["meta"] for commit in reversed(commits) if commit["meta"].get("agent") == "openhands"]
        begins = [one["prompt"] for one in meta if "prompt" in one]
        if len(begins) != 2 or begins != [one["prompt-end"] for one in meta if "prompt-end" in one]:
            fail(f"the turns' commits: {meta}")
        run("agentvfs", "rollback", "--meta", f"prompt={begins[1]}", cwd=mount)
        if sorted(path.name for path in mount.iterdir()) != ["one", "one.txt"]:
            fail(f"after the second turn was taken back: {sorted(mount.iterdir())}")
        log = Path(os.environ["AGENTVFS_HOME"]) / "hooks.log"
        if log.exists():
            fail(f"hooks.log: {log.read_text()}")
    finally:
        run("agentvfs", "stop", "hands", "--force")
    print("openhands: its own code for hooks noted two turns with four calls; the second was taken back")


main()
