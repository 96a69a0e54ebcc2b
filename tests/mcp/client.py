"""An agent's day with `agentvfs serve mcp`, through the package mcp of PyPI, in both of its modes.

Arguments: the program, and where the workspace `mcp` is mounted. What the tools do is looked at in the
mount. Fails with an AssertionError.
"""

import base64
import contextlib
import json
import os
import sqlite3
import sys
from pathlib import Path

import anyio
from mcp import Client, MCPError, StdioServerParameters, stdio_client

AGENTVFS, MOUNT = sys.argv[1], Path(sys.argv[2])
AGENTFS_TOOLS = {
    "read_file", "write_file", "readdir", "mkdir", "remove", "rename", "stat", "access", "kv_get",
    "kv_set", "kv_delete", "kv_list",
}
OWN_TOOLS = {
    "checkpoint", "rollback", "undo", "log", "diff", "branch_create", "branch_merge", "conflicts",
    "resolve", "timeline", "export", "branch_list", "tool_diff", "tool_undo", "blame", "redo", "restore",
}
# What no message can be read with, and what to do about it.
ODD = {
    "surrogate": "base64", "number": "send larger ones as texts", "nested": "127 deep", "bytes": "base64",
    "long": "with append",
}
# Half of the client's own patience: a call must end by an answer.
DEADLINE = 30


async def call(client, tool, /, **arguments):
    """The first text of a call that must work."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, (tool, arguments, result)
    return result.content[0].text


async def refused(client, why, tool, /, **arguments):
    result = await client.call_tool(tool, arguments)
    text = result.content[0].text
    assert result.is_error and why in text and "\nhint: " in text, (tool, arguments, result)


async def files(client):
    assert await call(client, "read_file", path="README") == "a project\n"
    await call(client, "write_file", path="/notes/day.md", content="zwölf\n", create_dirs=True)
    assert (MOUNT / "notes/day.md").read_text() == "zwölf\n"
    assert await call(client, "read_file", path="notes/day.md") == "zwölf\n"
    assert json.loads(await call(client, "readdir", path="/")) == ["README", "notes", "src"]
    blob = bytes(range(256))
    await call(client, "write_file", path="blob", content=base64.b64encode(blob).decode(), encoding="base64")
    assert (MOUNT / "blob").read_bytes() == blob
    assert base64.b64decode(await call(client, "read_file", path="blob")) == blob
    await call(client, "mkdir", path="made")
    await call(client, "rename", **{"from": "blob", "to": "made/blob"})
    assert (MOUNT / "made/blob").read_bytes() == blob and not (MOUNT / "blob").exists()
    facts = json.loads(await call(client, "stat", path="made/blob"))
    assert facts["is_file"] and facts["size"] == 256, facts
    assert json.loads(await call(client, "access", path="made/blob"))["exists"]
    await refused(client, "directory not empty", "remove", path="made")
    await call(client, "remove", path="made", recursive=True)
    assert not json.loads(await call(client, "access", path="made"))["exists"]
    assert not (MOUNT / "made").exists()
    await refused(client, "no such file", "read_file", path="none")
    for path in ["../x", "/etc/passwd"]:
        await refused(client, "is not inside the workspace", "read_file", path=path)


async def keys(client):
    value = {"n": 1.5, "list": [None, "ä", {}], "text": "x" * 5000}
    await call(client, "kv_set", key="plan/1", value=value)
    assert json.loads(await call(client, "kv_get", key="plan/1")) == value
    assert json.loads(await call(client, "kv_get", key="plan/2")) is None
    assert json.loads(await call(client, "kv_list", prefix="plan/")) == ["plan/1"]
    await call(client, "kv_delete", key="plan/1")
    assert json.loads(await call(client, "kv_list")) == []


async def states(client):
    await call(client, "checkpoint", label="before", message="before the refactoring")
    await call(client, "remove", path="src", recursive=True)
    await call(client, "write_file", path="README", content="oops")
    assert await call(client, "diff") == "M\tREADME\nD\tsrc/main.rs"
    await call(client, "rollback")
    assert (MOUNT / "src/main.rs").read_text() == "fn main() {}\n"
    await call(client, "undo")
    assert not (MOUNT / "src").exists()
    await call(client, "rollback", ref="before")
    assert "before the refactoring" in await call(client, "log")


async def branches(client, name):
    there = Path(json.loads(await call(client, "branch_create", name=name))["path"])
    await call(client, "write_file", path="README", content=f"{name}\n", branch=name)
    assert (there / "README").read_text() == f"{name}\n"
    await call(client, "write_file", path="README", content="main\n")
    await refused(client, "1 conflict", "branch_merge", **{"from": name})
    await call(client, "branch_merge", **{"from": name, "conflicts": "keep"})
    assert await call(client, "conflicts") == "content\tREADME"
    await call(client, "resolve", path="README", take="theirs")
    assert (MOUNT / "README").read_text() == f"{name}\n"
    await call(client, "rollback", ref="before")


async def many_at_once(client):
    """Calls that are not waited for one by one."""
    async with anyio.create_task_group() as group:
        for i in range(200):
            group.start_soon(lambda i=i: call(client, "write_file", path=f"many/{i}", content=str(i), create_dirs=True))
    assert sorted(int(path.name) for path in (MOUNT / "many").iterdir()) == list(range(200))
    await call(client, "remove", path="many", recursive=True)


def server(*command):
    command = [*command, AGENTVFS, "serve", "mcp", "-w", "mcp"]
    env = {"AGENTVFS_HOME": os.environ["AGENTVFS_HOME"]}
    return StdioServerParameters(command=command[0], args=command[1:], env=env)


async def odd(mode):
    """What cannot be read is answered, and the session goes on."""
    between = server(sys.executable, str(Path(__file__).with_name("odd.py")))
    async with Client(stdio_client(between), mode=mode) as client:
        for mark, hint in ODD.items():
            with anyio.fail_after(DEADLINE):
                result = await client.call_tool("write_file", {"path": "odd", "content": f"@{mark}@"})
            text = result.content[0].text
            assert result.is_error and text.startswith("agentvfs: ") and hint in text, (mark, result)
        assert not (MOUNT / "odd").exists()
        assert await call(client, "read_file", path="README") == "a project\n"
        print(f"mcp: {mode}: what cannot be read is answered")


async def taken_back(client):
    """What a call did is told and taken back by its id."""
    result = await client.call_tool("remove", {"path": "src", "recursive": True})
    made = result.meta["agentvfs/call"]
    assert await call(client, "tool_diff", call=made) == "D\tsrc/main.rs"
    assert "\tremove\t" in await call(client, "blame", path="src/main.rs")
    await call(client, "tool_undo", call=made)
    assert (MOUNT / "src/main.rs").read_text() == "fn main() {}\n"
    await call(client, "undo")
    await call(client, "redo")
    await call(client, "write_file", path="src/main.rs", content="")
    await call(client, "restore", paths=["src/main.rs"], ref="before")
    assert (MOUNT / "src/main.rs").read_text() == "fn main() {}\n"
    assert (await call(client, "branch_list")).startswith("main\t")


async def day(mode):
    async with Client(stdio_client(server()), mode=mode) as client:
        tools = (await client.list_tools()).tools
        names = {tool.name for tool in tools}
        assert AGENTFS_TOOLS | OWN_TOOLS <= names, names
        assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools)
        await files(client)
        await keys(client)
        await states(client)
        await taken_back(client)
        await branches(client, f"fix-{mode}")
        await many_at_once(client)
        try:
            await client.call_tool("no_such_tool", {})
        except MCPError as error:
            assert "no_such_tool" in str(error), error
        else:
            raise AssertionError("an unknown tool was called")
        await call(client, "remove", path="notes", recursive=True)
        made = json.loads(await call(client, "export", name=f"state-{mode}"))
        with contextlib.closing(sqlite3.connect(made["file"])) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            names = {name for (name,) in database.execute("SELECT name FROM fs_dentry")}
            assert {"README", "src", "main.rs"} <= names, names
        calls = json.loads(await call(client, "timeline", tool="kv_delete", details=True))
        assert calls[0]["status"] == "success" and calls[0]["parameters"] == {"key": "plan/1"}, calls
        print(f"mcp: {mode}: {len(tools)} tools")


for mode in ["legacy", "auto"]:
    anyio.run(day, mode)
    anyio.run(odd, mode)
