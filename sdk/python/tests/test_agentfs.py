"""agentfs-sdk's API: what a path means, databases that are imported and exported, SQL. Its own tests are run by
``sdk/test.sh long``."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

from agentvfs import NotInstalled, Refused
from agentvfs.agentfs import AgentFS, AgentFSOptions, ErrnoException, Filesystem, connect
from agentvfs.aio import workspaces
from support import Case, environment, in_loop, until

#: Whether ``:memory:`` is in memory here.
HAS_ROOM = shutil.disk_usage("/dev/shm").free >= 256 * 1024 * 1024


class Names(Case):
    def setUp(self) -> None:
        super().setUp()
        manager = environment(AGENTVFS_HOME=str(self.home.root))
        manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        self.place = self.home.place / self.id().rsplit(".", 1)[1][-40:]
        self.place.mkdir()
        before = os.getcwd()
        os.chdir(self.place)
        self.addCleanup(os.chdir, before)

    def path(self, name: str) -> str:
        return str(self.place / name)

    def name_in(self, path: str | Path) -> str:
        first, second = Path(path).read_text().splitlines()
        self.assertEqual(first, "agentvfs 1")
        return second.removeprefix("workspace=")

    @in_loop
    async def test_an_id_names_one_workspace(self) -> None:
        async with await AgentFS.open(AgentFSOptions(id="my-agent")) as agent:
            await agent.fs.write_file("/a/b.txt", "hello")
            await agent.workspace.checkpoint("first")
            name = agent.workspace.name
        self.assertEqual(self.name_in(".agentfs/my-agent.db"), name)
        async with await AgentFS.open(AgentFSOptions(id="my-agent")) as agent:
            self.assertEqual(await agent.fs.read_file("/a/b.txt"), "hello")
            await agent.fs.rm("/a", recursive=True)
            await agent.workspace.rollback()
            self.assertEqual(await agent.fs.readdir("/a"), ["b.txt"])
            self.assertEqual(os.listdir(".agentfs"), ["my-agent.db"])
        os.unlink(".agentfs/my-agent.db")
        async with await AgentFS.open(AgentFSOptions(id="my-agent")) as agent:
            self.assertEqual(await agent.fs.readdir("/"), [])

    def test_many_at_once_get_the_same_one(self) -> None:
        program = """
import asyncio, sys
from agentvfs.agentfs import AgentFS, AgentFSOptions
async def main():
    async with await AgentFS.open(AgentFSOptions(path=sys.argv[1])) as agent:
        await agent.kv.set(sys.argv[2], 1)
        print(agent.workspace.name)
asyncio.run(main())
"""
        words = [sys.executable, "-c", program, self.path("one.db")]
        own = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        running = [subprocess.Popen([*words, str(i)], stdout=subprocess.PIPE, text=True, env=own) for i in range(8)]
        names = {process.communicate()[0] for process in running}
        self.assertEqual(len(names), 1)
        self.assertEqual(names, {self.name_in(self.path("one.db")) + "\n"})

    @in_loop
    async def test_a_project_can_be_the_base(self) -> None:
        base = self.home.project("base", file="from the project")
        options = AgentFSOptions(id="x", base=str(base))
        for _ in range(2):
            async with await AgentFS.open(options) as agent:
                self.assertEqual(await agent.fs.read_file("/file"), "from the project")
        with self.assertRaises(Refused):
            await AgentFS.open(AgentFSOptions(id="x", base=str(self.place)))

    @in_loop
    async def test_a_database_is_imported_once_and_an_export_is_one(self) -> None:
        async with await AgentFS.open(AgentFSOptions(id="first")) as agent:
            await agent.fs.write_file("/a.txt", "x" * 100_000)
            await agent.kv.set("key", {"n": 1})
            await agent.tools.success(await agent.tools.start("tool", {"p": 1}), "done")
            await agent.close(export=True)
        exported = ".agentfs/first.export.db"
        with sqlite3.connect(exported) as database:
            self.assertEqual(database.execute("SELECT name FROM fs_dentry").fetchall(), [("a.txt",)])
        database.close()
        os.rename(exported, "second.db")
        content = Path("second.db").read_bytes()
        for _ in range(2):
            async with await AgentFS.open(AgentFSOptions(path="second.db")) as agent:
                self.assertEqual(await agent.fs.read_file("/a.txt"), "x" * 100_000)
                self.assertEqual(await agent.kv.get("key"), {"n": 1})
                self.assertEqual([call.result for call in await agent.tools.get_by_name("tool")], ["done"])
                await agent.fs.write_file("/b.txt", "later")
        self.assertEqual(Path("second.db.orig").read_bytes(), content)
        self.name_in("second.db")

    @in_loop
    async def test_what_cannot_be_kept_is_warned_of(self) -> None:
        async with await AgentFS.open(AgentFSOptions(path="x.db")) as agent:
            await agent.kv.set("good", 1)
            await agent.close(export="odd.db")
        with sqlite3.connect("odd.db") as database:
            database.execute("INSERT INTO kv_store (key, value) VALUES ('bad', 'NaN')")
        database.close()
        with self.assertWarnsRegex(UserWarning, r"1 keys.*odd\.db\.orig"):
            agent = await AgentFS.open(AgentFSOptions(path="odd.db"))
        self.assertEqual((await agent.kv.get("good"), await agent.kv.get("bad")), (1, None))
        await agent.close()

    @in_loop
    async def test_what_is_something_else_is_left_alone(self) -> None:
        Path("other.db").write_text("something else")
        Path("gone.db").write_text("agentvfs 1\nworkspace=gone\n")
        Path("empty.db").touch()
        for name, said in (("other.db", "neither"), ("gone.db", "does not have")):
            with self.assertRaisesRegex(Refused, said):
                await AgentFS.open(AgentFSOptions(path=name))
        self.assertEqual(Path("other.db").read_text(), "something else")
        async with await AgentFS.open(AgentFSOptions(path="empty.db")):
            self.name_in("empty.db")

    @in_loop
    async def test_an_open_that_fails_leaves_nothing(self) -> None:
        with environment(AGENTVFS_BIN=self.path("missing"), AGENTVFS_HOME=str(self.home.place / "other")):
            with self.assertRaises(NotInstalled):
                await AgentFS.open(AgentFSOptions(path="x.db"))
        self.assertEqual(list(self.place.iterdir()), [])

    @in_loop
    async def test_memory_is_a_workspace_that_nobody_else_sees(self) -> None:
        base = self.home.project("seed", there="before")
        options = [AgentFSOptions(path=":memory:"), AgentFSOptions(path=":memory:", base=str(base))]
        agents = [await AgentFS.open(one) for one in options]
        names = {agent.workspace.name for agent in agents}
        root = (await agents[0].workspace.info()).mount
        if HAS_ROOM:
            self.assertTrue(root.startswith("/dev/shm/agentvfs-memory-"), root)
        for agent in agents:
            self.assertEqual(agent.workspace.name in self.home.command("list"), not HAS_ROOM)
            await agent.fs.write_file("/there", "after")
        await agents[0].workspace.checkpoint("one")
        await agents[0].fs.write_file("/there", "later")
        await agents[0].workspace.rollback("one")
        self.assertEqual([await agent.fs.read_file("/there") for agent in agents], ["after", "after"])
        self.assertEqual((base / "there").read_text(), "before")
        rest = await AgentFS.open(options[0])
        for agent in agents:
            await agent.close()
        left = {one.name for one in (await workspaces(root.partition("/home/")[0] + "/home"))}
        self.assertEqual(left & names, set())
        await rest.close()
        self.assertEqual(list(self.place.iterdir()), [])

    @unittest.skipUnless(HAS_ROOM, "/dev/shm has less than 256 MiB")
    def test_memory_goes_with_its_process(self) -> None:
        program = """
import asyncio, os, signal, sys
from agentvfs.agentfs import AgentFS, AgentFSOptions
async def main():
    agent = await AgentFS.open(AgentFSOptions(path=":memory:"))
    await agent.fs.write_file("/x", "1")
    print((await agent.workspace.info()).mount, flush=True)
    await agent.workspace.close()
    if sys.argv[1:] == ["kill"]:
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
        own = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        for word in ("kill", "end"):
            words = [sys.executable, "-W", "error", "-c", program, word]
            ended = subprocess.run(words, capture_output=True, text=True, env=own, check=False)
            self.assertEqual(ended.stderr, "")
            place = Path(ended.stdout.partition("/home/")[0])
            self.assertTrue(place.name.startswith("agentvfs-memory-"), ended.stdout)
            until(lambda place=place: not place.exists(), "the home in memory is removed")
            self.assertNotIn(str(place), Path("/proc/self/mountinfo").read_text())

    @in_loop
    async def test_sql_reads_and_changes_nothing(self) -> None:
        async with connect("x.db") as db:
            fs = await Filesystem.from_database(db)
            await fs.write_file("/a", b"\xff" * 70_000)
            cursor = await db.execute("SELECT size FROM fs_inode WHERE size > ?", (0,))
            self.assertEqual(await cursor.fetchone(), (70_000,))
            self.assertIsNone(await cursor.fetchone())
            rows: list[Any] = [row async for row in await db.execute("SELECT name FROM fs_dentry")]
            self.assertEqual(rows, [("a",)])
            await db.execute("PRAGMA unstable_capture_data_changes_conn('full')")
            with self.assertRaises(Refused) as caught:
                await db.execute("DELETE FROM fs_dentry")
            self.assertEqual(caught.exception.kind, "read-only")
        with self.assertRaises(Refused):
            await db.execute("SELECT 1")

    @in_loop
    async def test_errors_are_as_there(self) -> None:
        async with await AgentFS.open(AgentFSOptions(path="x.db")) as agent:
            await agent.fs.write_file("/file", "x")
            for code, syscall, waiting in (
                ("ENOENT", "open", agent.fs.read_file("/missing")),
                ("ENOENT", "open", agent.fs.read_file("/file/x")),
                ("ENOENT", "stat", agent.fs.stat("file/x/")),
                ("ENOTDIR", "open", agent.fs.write_file("/file/x", "")),
                ("ENOTDIR", "scandir", agent.fs.readdir("/file")),
                ("EPERM", "rm", agent.fs.rm("/")),
            ):
                with self.assertRaises(ErrnoException) as caught:
                    await waiting
                self.assertEqual((caught.exception.code, caught.exception.syscall), (code, syscall))
            await agent.fs.rm("/file/x", force=True)
            with self.assertRaisesRegex(ErrnoException, "^ENOENT: no such file or directory, open '/missing'$"):
                await agent.fs.read_file("missing")
            with self.assertRaisesRegex(ValueError, "Tool call with ID 99 not found"):
                await agent.tools.success(99)

    @in_loop
    async def test_a_cancelled_open_can_be_repeated(self) -> None:
        for pause in (0, 0.001, 0.01, 0.03, 0.1):
            opening = asyncio.create_task(AgentFS.open(AgentFSOptions(path="x.db")))
            await asyncio.sleep(pause)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        async with await AgentFS.open(AgentFSOptions(path="x.db")) as agent:
            await agent.fs.write_file("/x", "1")
            name = agent.workspace.name
        self.assertEqual(self.name_in("x.db"), name)


if __name__ == "__main__":
    unittest.main()
