"""Milliseconds for a call through `agentvfs serve mcp`, and for the same in AgentFS's Python SDK.

Arguments: the program, a database to make, how many calls of each kind. `pipe` speaks JSON-RPC over the
server's pipes by hand, `mcp` goes through the package mcp of PyPI, `cli` starts a command each time, `sdk` is the
SDK within this process: no server, no protocol. Prints the median and the 99th percentile of each.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import anyio
from agentfs_sdk import AgentFS, AgentFSOptions
from mcp import Client, StdioServerParameters

AGENTVFS, DATABASE, CALLS = sys.argv[1], sys.argv[2], int(sys.argv[3])
SMALL = "0123456789abcdef" * 64
ARGS = ["serve", "mcp", "-w", "mcp"]


def told(how, what, times):
    times = sorted(1000 * t for t in times)
    p99 = times[min(len(times) - 1, len(times) * 99 // 100)]
    print(f"{what}\t{how}\tmedian {statistics.median(times):.3f} ms\tp99 {p99:.3f} ms")


class Pipe:
    def __init__(self):
        self.server = subprocess.Popen([AGENTVFS, *ARGS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "b", "version": "0"}}
        self.ask("initialize", hello)

    def ask(self, method, params):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self.server.stdin.write(json.dumps(message).encode() + b"\n")
        self.server.stdin.flush()
        answer = json.loads(self.server.stdout.readline())
        assert "result" in answer and not answer["result"].get("isError"), answer

    def call(self, tool, arguments):
        self.ask("tools/call", {"name": tool, "arguments": arguments})


KINDS = {
    "read_file, 1 KiB": ("read_file", lambda i: {"path": "small"}),
    "stat": ("stat", lambda i: {"path": "small"}),
    "write_file, 1 KiB": ("write_file", lambda i: {"path": f"new-{i}", "content": SMALL}),
    "kv_set": ("kv_set", lambda i: {"key": f"key-{i % 100}", "value": {"n": i}}),
    "kv_get": ("kv_get", lambda i: {"key": f"key-{i % 100}"}),
}


def by_pipe():
    pipe = Pipe()
    pipe.call("write_file", {"path": "small", "content": SMALL})
    for what, (tool, arguments) in KINDS.items():
        times = []
        for i in range(CALLS):
            start = time.perf_counter()
            pipe.call(tool, arguments(i))
            times.append(time.perf_counter() - start)
        told("pipe", what, times)
    pipe.server.stdin.close()
    assert pipe.server.wait() == 0


async def by_mcp():
    env = {"AGENTVFS_HOME": os.environ["AGENTVFS_HOME"]}
    async with Client(StdioServerParameters(command=AGENTVFS, args=ARGS, env=env)) as client:
        for what, (tool, arguments) in KINDS.items():
            times = []
            for i in range(CALLS):
                start = time.perf_counter()
                result = await client.call_tool(tool, arguments(i))
                times.append(time.perf_counter() - start)
                assert not result.is_error, result
            told("mcp", what, times)


def by_cli():
    work = {
        "kv_set": lambda i: ["kv", "set", f"key-{i % 100}", json.dumps({"n": i})],
        "kv_get": lambda i: ["kv", "get", f"key-{i % 100}"],
        "tool record": lambda i: ["tool", "record", "search", "--params", json.dumps({"n": i})],
    }
    for what, arguments in work.items():
        times = []
        for i in range(CALLS):
            start = time.perf_counter()
            subprocess.run([AGENTVFS, *arguments(i), "-w", "mcp"], check=True, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - start)
        told("cli", what, times)


async def by_sdk():
    async with await AgentFS.open(AgentFSOptions(path=DATABASE)) as agent:
        await agent.fs.write_file("/small", SMALL)
        work = {
            "read_file, 1 KiB": lambda i: agent.fs.read_file("/small"),
            "stat": lambda i: agent.fs.stat("/small"),
            "write_file, 1 KiB": lambda i: agent.fs.write_file(f"/new-{i}", SMALL),
            "kv_set": lambda i: agent.kv.set(f"key-{i % 100}", {"n": i}),
            "kv_get": lambda i: agent.kv.get(f"key-{i % 100}"),
            "tool record": lambda i: agent.tools.record("search", 1700000000, 1700000001, {"n": i}, {"found": i}),
        }
        for what, run in work.items():
            times = []
            for i in range(CALLS):
                start = time.perf_counter()
                await run(i)
                times.append(time.perf_counter() - start)
            told("sdk", what, times)


by_pipe()
anyio.run(by_mcp)
by_cli()
anyio.run(by_sdk)
