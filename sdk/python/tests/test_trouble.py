"""What goes wrong: a daemon that ends, is of another version or missing; tasks that are cancelled; many at once."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Callable
from typing import Any

from agentvfs import (
    AgentVfsError,
    AsyncWorkspace,
    Broken,
    FileError,
    NotInstalled,
    Unreachable,
    Workspace,
    WrongVersion,
    workspaces,
)
from support import Case, Home, environment, in_loop

CLIENTS = 8


class Fake:
    """Something that listens where a daemon would, and answers by a function."""

    def __init__(self, home: Home, answer: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
        home.root.mkdir(parents=True, exist_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(home.root / "daemon.sock"))
        self._listener.listen()
        self._answer = answer
        self.asked: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(stream,), daemon=True).start()

    def _one(self, stream: socket.socket) -> None:
        with stream, stream.makefile("rwb") as file:
            for line in file:
                message = json.loads(line)
                self.asked.append(message["method"])
                answer = self._answer(message)
                if answer is None:
                    return
                file.write(json.dumps({"jsonrpc": "2.0", "id": message.get("id"), **answer}).encode() + b"\n")
                file.flush()

    def close(self) -> None:
        self._listener.close()


class Faked(unittest.TestCase):
    def setUp(self) -> None:
        self.home = Home()
        self.addCleanup(self.home.end)

    def fake(self, answer: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Fake:
        fake = Fake(self.home, answer)
        self.addCleanup(fake.close)
        return fake

    def test_a_daemon_of_another_version_is_named(self) -> None:
        self.fake(lambda _: {"error": {"code": -32002, "message": "protocol 2 is needed"}})
        with self.assertRaisesRegex(WrongVersion, "another version: protocol 2 is needed"):
            workspaces(self.home.root)

        async def open_it() -> None:
            await AsyncWorkspace.open("w", home=self.home.root)

        with self.assertRaises(WrongVersion):
            asyncio.run(open_it())

    def test_a_daemon_that_knows_nothing_of_requests_in_flight_is_used_one_by_one(self) -> None:
        def answer(message: dict[str, Any]) -> dict[str, Any]:
            if "in_flight" in message["params"]:
                return {"error": {"code": -32602, "message": "unknown parameter"}}
            return {"result": {"workspaces": []}}

        fake = self.fake(answer)
        self.assertEqual(workspaces(self.home.root), [])
        self.assertEqual(fake.asked, ["hello", "hello", "workspace.list"])

    def test_a_request_that_reads_is_repeated_once_and_one_that_changes_never(self) -> None:
        def answer(message: dict[str, Any]) -> dict[str, Any] | None:
            return {"result": {}} if message["method"] == "hello" else None

        fake = self.fake(answer)
        ws = Workspace.bound("w", home=self.home.root)
        self.addCleanup(ws.close)
        with self.assertRaises(Broken) as caught:
            ws.fs.read("file")
        self.assertEqual(caught.exception.kind, "daemon-ended")
        self.assertEqual(fake.asked.count("fs.read"), 2)
        with self.assertRaises(Broken):
            ws.fs.write("file", "x")
        self.assertEqual(fake.asked.count("fs.write"), 1)

        async def asynchronous() -> None:
            other = AsyncWorkspace.bound("w", home=self.home.root)
            with self.assertRaises(Broken):
                await other.fs.read("file")
            with self.assertRaises(Broken):
                await other.fs.write("file", "x")
            await other.close()

        asyncio.run(asynchronous())
        self.assertEqual((fake.asked.count("fs.read"), fake.asked.count("fs.write")), (4, 2))

    def test_what_is_no_response_ends_the_connection(self) -> None:
        def answer(message: dict[str, Any]) -> dict[str, Any]:
            return {"result": {}} if message["method"] == "hello" else {"error": 5}

        self.fake(answer)
        with Workspace.bound("w", home=self.home.root) as ws, self.assertRaises(Broken):
            ws.kv.set("k", 1)

        async def asynchronous() -> None:
            async with AsyncWorkspace.bound("w", home=self.home.root) as ws:
                with self.assertRaises(Broken):
                    await ws.kv.set("k", 1)

        asyncio.run(asynchronous())

    def test_a_handle_is_never_used_on_another_connection(self) -> None:
        closing: list[str] = []

        def answer(message: dict[str, Any]) -> dict[str, Any] | None:
            if message["method"] in closing:
                return None
            node = dict.fromkeys(("perm", "nlink", "uid", "gid", "rdev", "size", "inode"), 0)
            node |= {"name": "", "type": "file", "mtime": {"sec": 0, "nsec": 0}}
            return {"result": {"handle": 1, "node": node, "b64": "", "size": 0}}

        fake = self.fake(answer)
        ws = Workspace.bound("w", home=self.home.root)
        self.addCleanup(ws.close)
        file = ws.fs.open("file", "wb")
        closing.append("fs.stat")
        with self.assertRaises(Broken):
            ws.fs.stat("x")
        file.write(b"data")
        with self.assertRaises(FileError) as caught:
            file.flush()
        self.assertEqual(caught.exception.code, "EBADF")
        self.assertNotIn("fs.pwrite", fake.asked)
        with self.assertRaises(FileError):
            file.close()

    def test_no_program_is_one_clear_error(self) -> None:
        with environment(AGENTVFS_BIN=str(self.home.place / "missing")):
            with self.assertRaisesRegex(NotInstalled, "missing.*AGENTVFS_BIN"):
                Workspace.open("w", home=self.home.root)

            async def asynchronous() -> None:
                await AsyncWorkspace.open("w", home=self.home.root)

            with self.assertRaises(NotInstalled):
                asyncio.run(asynchronous())

    def test_a_daemon_that_cannot_start_says_why(self) -> None:
        self.home.root.write_text("a file in place of the home")
        with self.assertRaises(Unreachable) as caught:
            Workspace.open("w", home=self.home.root)
        self.assertIn("cannot start the daemon", str(caught.exception))


class Killed(Case):
    def test_a_killed_daemon_is_one_error_and_the_next_call_works(self) -> None:
        ws = self.workspace(file="0")
        ended = threading.Event()

        def kill() -> None:
            while not ended.is_set():
                time.sleep(0.05)
                self.home.kill_daemon()

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            acknowledged, broken = self._write_until_broken(ws)
        finally:
            ended.set()
            killer.join()
        self.assertIsInstance(broken, Broken)
        self.assertEqual(ws.fs.read("file"), b"0")
        for name in acknowledged:
            self.assertEqual(ws.fs.read(name), name.encode())

    def _write_until_broken(self, ws: Workspace) -> tuple[list[str], AgentVfsError]:
        acknowledged: list[str] = []
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            name = f"f{len(acknowledged)}"
            try:
                ws.fs.write(name, name)
            except Broken as error:
                return acknowledged, error
            acknowledged.append(name)
        raise AssertionError("no call was in the middle when the daemon was killed")

    @in_loop
    async def test_the_same_with_many_tasks(self) -> None:
        base = self.home.project("tasks", file="0")
        async with await AsyncWorkspace.open("tasks", base=base, home=self.home.root) as ws:
            seen: set[type] = set()

            async def write(name: str) -> None:
                while not seen:
                    try:
                        await ws.fs.write(name, name)
                    except AgentVfsError as error:
                        seen.add(type(error))
                    await asyncio.sleep(0)

            tasks = [asyncio.create_task(write(f"t{i}")) for i in range(CLIENTS)]
            while not seen:
                await asyncio.sleep(0.05)
                self.home.kill_daemon()
            await asyncio.gather(*tasks)
            self.assertEqual(seen, {Broken})
            await ws.fs.write("after", "x")
            self.assertEqual(await ws.fs.read("file"), b"0")

    def test_a_daemon_that_was_replaced_between_calls_is_not_noticed(self) -> None:
        ws = self.workspace(file="0")
        for _ in range(3):
            self.home.kill_daemon()
            ws.fs.write("new", "1")
            self.assertEqual(ws.fs.read("file"), b"0")

    def test_open_files_end_with_the_daemon(self) -> None:
        ws = self.workspace(file="0")
        file = ws.fs.open("file", "rb")
        self.home.kill_daemon()
        with self.assertRaises((Broken, FileError)):
            file.read()
        with ws.fs.open("file", "rb") as again:
            self.assertEqual(again.read(), b"0")


class Cancelled(Case):
    @in_loop
    async def test_a_cancelled_task_leaves_the_connection_usable(self) -> None:
        base = self.home.project("cancel", file="0")
        async with await AsyncWorkspace.open("cancel", base=base, home=self.home.root) as ws:
            connection = ws._driver._connection
            data = os.urandom(300_000)
            for turn in range(40):
                tasks = [asyncio.create_task(ws.fs.write(f"c{i}", data)) for i in range(20)]
                tasks.append(asyncio.create_task(ws.checkpoint()))  # type: ignore[arg-type]
                await asyncio.sleep(0.0005 * turn)
                for task in tasks[turn % 3 :: 2]:
                    task.cancel()
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
                for outcome in outcomes:
                    self.assertNotIsInstance(outcome, Exception, outcome)
                self.assertEqual(await ws.fs.read("file"), b"0")
            self.assertIs(ws._driver._connection, connection)

    @in_loop
    async def test_a_request_that_can_be_cancelled_is(self) -> None:
        home = Home()
        cancelled = threading.Event()

        def answer(message: dict[str, Any]) -> dict[str, Any]:
            if message["method"] == "cancel":
                cancelled.set()
                return {"method": "cancel", "params": {"id": message["params"]["id"], "cancelled": True}}
            if message["method"] == "workspace.apply":
                return {"method": "progress", "params": {"id": message["id"], "done": 0, "total": 1}}
            return {"result": {"workspaces": []}}

        fake = Fake(home, answer)
        try:
            ws = AsyncWorkspace.bound("w", home=home.root)
            task = asyncio.create_task(ws.apply())
            while "workspace.apply" not in fake.asked:
                await asyncio.sleep(0.01)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(cancelled.wait, 60)
            self.assertTrue(cancelled.is_set())
            await ws.close()
        finally:
            fake.close()
            home.end()

    @in_loop
    async def test_a_cancelled_tool_call_ends_as_failed(self) -> None:
        base = self.home.project("call", file="0")
        async with await AsyncWorkspace.open("call", base=base, home=self.home.root) as ws:

            async def forever() -> None:
                async with ws.tools.call("forever"):
                    started.set()
                    await asyncio.Event().wait()

            started = asyncio.Event()
            task = asyncio.create_task(forever())
            await started.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            (call,) = await ws.tools.list()
            self.assertEqual((call.status, call.error), ("error", "CancelledError"))


class Many(Case):
    PROGRAM = """
import sys
from agentvfs import Workspace
home, base, me = sys.argv[1:]
with Workspace.open("many", base=base, home=home) as ws:
    for i in range(20):
        ws.fs.write(f"{me}/{i}", f"{me} {i}", parents=True)
        ws.kv.set(f"{me}:{i}", i)
        with ws.tools.call(f"tool-{me}"):
            ws.fs.append(f"{me}/log", "x")
    assert [entry.value for entry in ws.kv.list(f"{me}:")] == sorted(range(20), key=str)
"""

    def test_eight_processes_at_once_and_the_first_starts_the_daemon(self) -> None:
        base = self.home.project("many", file="0")
        words = [sys.executable, "-c", self.PROGRAM, str(self.home.root), str(base)]
        running = [subprocess.Popen([*words, str(i)], stderr=subprocess.PIPE) for i in range(CLIENTS)]
        for one in running:
            _, said = one.communicate()
            self.assertEqual(one.returncode, 0, said.decode())
        self.assertEqual(len(self.home.processes()), 1)
        with Workspace.open("many", home=self.home.root) as ws:
            for i in range(CLIENTS):
                self.assertEqual(len(ws.fs.list(str(i))), 21)
                self.assertEqual(ws.fs.stat(f"{i}/log").size, 20)
            self.assertEqual(len(ws.tools.list()), CLIENTS * 20)

    def test_eight_threads_share_one_workspace(self) -> None:
        ws = self.workspace(file="0")
        wrong: list[BaseException] = []

        def work(me: int) -> None:
            try:
                for i in range(20):
                    ws.fs.write(f"{me}-{i}", f"{me} {i}")
                    assert ws.fs.read(f"{me}-{i}") == f"{me} {i}".encode()
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_a_forked_child_has_a_connection_of_its_own(self) -> None:
        ws = self.workspace(file="0")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                ws.fs.write("child", "x")
                status = 0
            finally:
                os._exit(status)
        for i in range(20):
            ws.fs.write("parent", str(i))
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(ws.fs.read("child"), b"x")


class Large(Case):
    PROGRAM = """
import hashlib, sys
from agentvfs import Workspace
size, part = 1 << 30, 1 << 20
first = hashlib.blake2b()
with Workspace.open("large", base=sys.argv[2], home=sys.argv[1]) as ws:
    with ws.fs.open("large", "wb") as file:
        for i in range(size // part):
            data = i.to_bytes(8, "little") * (part // 8)
            first.update(data)
            file.write(data)
    assert ws.fs.stat("large").size == size
    second = hashlib.blake2b()
    with ws.fs.open("large", "rb") as file:
        while data := file.read(part):
            second.update(data)
    assert first.digest() == second.digest()
# Not ru_maxrss, which has what this process was before it became this program.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""

    def test_a_file_of_1_gib_in_64_mib_of_memory(self) -> None:
        base = self.home.project("large")
        words = [sys.executable, "-c", self.PROGRAM, str(self.home.root), str(base)]
        ended = subprocess.run(words, capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertLess(int(ended.stdout), 64 << 10, "KiB resident")
        print(f"1 GiB: {int(ended.stdout) >> 10} MiB resident", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
