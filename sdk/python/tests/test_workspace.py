"""What a workspace does, by the blocking API; and that the asynchronous one does the same."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import sys
import unittest
from datetime import datetime, timezone

import agentvfs
from agentvfs import AsyncWorkspace, FileError, Refused, Workspace, workspaces
from support import Case, in_loop


class Files(Case):
    def test_what_is_written_is_read(self) -> None:
        ws = self.workspace(old="from the project")
        self.assertEqual(ws.fs.read("old"), b"from the project")
        self.assertEqual(ws.fs.write("a/b/new", "grüße", parents=True), 7)
        self.assertEqual(ws.fs.read_text("/a/b/new"), "grüße")
        self.assertEqual(ws.fs.read("a/b/new", offset=2, length=3), "grüße".encode()[2:5])
        self.assertEqual(ws.fs.append("a/b/new", b"!"), 8)
        large = os.urandom(3 << 20)
        ws.fs.write("large", large, perm=0o600)
        self.assertEqual(ws.fs.read("large"), large)
        self.assertEqual(ws.fs.stat("large").perm, 0o600)
        ws.fs.write("large", b"")
        self.assertEqual(ws.fs.read("large"), b"")
        self.assertEqual([node.name for node in ws.fs.list()], ["a", "large", "old"])
        self.assertTrue(ws.fs.stat("a").is_directory)
        mount = ws.info().mount
        with open(f"{mount}/a/b/new", "rb") as file:
            self.assertEqual(file.read(), "grüße!".encode())

    def test_a_workspace_runs_without_a_mount(self) -> None:
        base = self.home.project("unmounted", old="content")
        with Workspace.open("unmounted", base=base, home=self.home.root, mount=False) as ws:
            self.assertTrue(ws.info().unmounted)
            self.assertFalse(os.path.exists(ws.info().mount))
            ws.fs.write("new", "written")
            # Whoever opens it again without a wish leaves it so.
            with Workspace.open("unmounted", home=self.home.root) as again:
                self.assertTrue(again.info().unmounted)
            info = ws.start(mount=True)
            self.assertFalse(info.unmounted)
            with open(f"{info.mount}/new", encoding="utf-8") as file:
                self.assertEqual(file.read(), "written")

    def test_names_change(self) -> None:
        ws = self.workspace(old="content")
        ws.fs.rename("old", "new")
        ws.fs.copy("new", "copied")
        self.assertEqual(ws.fs.read("copied"), b"content")
        with self.assertRaises(FileExistsError):
            ws.fs.copy("new", "copied", overwrite=False)
        ws.fs.symlink("copied", "link")
        self.assertEqual((ws.fs.readlink("link"), ws.fs.read("link")), ("copied", b"content"))
        self.assertTrue(ws.fs.stat("link", follow=False).is_symlink)
        self.assertEqual(ws.fs.stat("link").size, 7)
        with self.assertRaises(OSError):
            ws.fs.readlink("new")
        ws.fs.truncate("new", 3)
        ws.fs.chmod("new", 0o755)
        self.assertEqual((ws.fs.read("new"), ws.fs.stat("new").perm), (b"con", 0o755))
        ws.fs.mkdir("d/e", parents=True)
        ws.fs.remove("d", recursive=True)
        ws.fs.remove("d", missing_ok=True)
        self.assertFalse(ws.fs.exists("d"))
        space = ws.fs.statfs()
        self.assertGreater(space.bytes_free, 0)
        self.assertEqual(space.bytes_used, 3 + 7)

    def test_errors_are_those_of_python(self) -> None:
        ws = self.workspace(file="x")
        ws.fs.mkdir("d")
        ws.fs.write("d/x", "")
        for code, fails in (
            ("ENOENT", lambda: ws.fs.read("missing")),
            ("ENOTDIR", lambda: ws.fs.write("file/x", "")),
            ("ENOTDIR", lambda: ws.fs.list("file")),
            ("EISDIR", lambda: ws.fs.write("d", "")),
            ("EISDIR", lambda: ws.fs.remove("d", expect="file")),
            ("ENOTDIR", lambda: ws.fs.remove("file", expect="directory")),
            ("ENOTEMPTY", lambda: ws.fs.remove("d")),
            ("EEXIST", lambda: ws.fs.mkdir("d")),
            ("EINVAL", lambda: ws.fs.rename("d", "d/y")),
        ):
            with self.assertRaises(FileError) as caught:
                fails()
            self.assertEqual(caught.exception.code, code)
            self.assertIsInstance(caught.exception, OSError)
        with self.assertRaises(FileNotFoundError):
            ws.fs.read("missing")
        self.assertFalse(ws.fs.exists("file/x"))

    def test_names_that_are_not_utf_8(self) -> None:
        ws = self.workspace()
        raw = b"\xff\xfe\x80"
        ws.fs.write(raw, b"1")
        ws.fs.mkdir(b"d\xe9")
        ws.fs.rename(raw, b"d\xe9/" + raw)
        (node,) = ws.fs.list(b"d\xe9")
        self.assertEqual(os.fsencode(node.name), raw)
        self.assertEqual(ws.fs.read(f"{os.fsdecode(b'd' + bytes([0xE9]))}/{node.name}"), b"1")
        (change,) = [one for one in ws.diff() if one.path.endswith(node.name)]
        self.assertEqual(os.fsencode(change.path), b"d\xe9/" + raw)
        with open(os.fsencode(ws.info().mount) + b"/d\xe9/" + raw, "rb") as file:
            self.assertEqual(file.read(), b"1")

    def test_open_files_are_pythons_streams(self) -> None:
        ws = self.workspace()
        with ws.fs.open("text", "w") as file:
            file.write("one\ntwo\n")
        with ws.fs.open("text") as file:
            self.assertEqual(list(file), ["one\n", "two\n"])
        with ws.fs.open("text", "a") as file:
            file.write("three\n")
        with ws.fs.open("text", "r+b") as file:
            self.assertIsInstance(file, io.BufferedRandom)
            file.seek(4)
            file.write(b"TWO")
            file.seek(-6, os.SEEK_END)
            self.assertEqual(file.read(), b"three\n")
            file.truncate(8)
        self.assertEqual(ws.fs.read("text"), b"one\nTWO\n")
        with self.assertRaises(FileExistsError):
            ws.fs.open("text", "x")
        with self.assertRaises(FileNotFoundError):
            ws.fs.open("missing")
        with ws.fs.open("text", "rb") as file:
            ws.fs.rename("text", "other")
            ws.fs.remove("other")
            self.assertEqual(file.read(), b"one\nTWO\n")

    def test_former_states_are_read(self) -> None:
        ws = self.workspace(file="1")
        ws.fs.write("file", "2")
        ws.checkpoint("two")
        ws.fs.write("file", "3")
        self.assertEqual([ws.fs.read("file", state=state) for state in ("base", "two", "live")], [b"1", b"2", b"3"])
        with ws.fs.open("file", "rb", state="two") as file:
            self.assertEqual(file.read(), b"2")
        with self.assertRaises(ValueError):
            ws.fs.open("file", "wb", state="two")


class State(Case):
    def test_keys(self) -> None:
        ws = self.workspace()
        values = {"a:1": {"x": [1, None, "ä"]}, "a:2": "text", "b": 1.5, "long": "\\" * 200_000}
        for key, value in values.items():
            ws.kv.set(key, value)
        for key, value in values.items():
            self.assertEqual(ws.kv.get(key), value)
        self.assertEqual(ws.kv.get("missing", 7), 7)
        self.assertEqual({entry.key: entry.value for entry in ws.kv.list("a:")}, {"a:1": values["a:1"], "a:2": "text"})
        self.assertTrue(ws.kv.delete("b"))
        self.assertFalse(ws.kv.delete("b"))
        ws.checkpoint("keys")
        ws.kv.set("a:2", "changed")
        self.assertEqual(ws.kv.get("a:2", state="keys"), "text")
        ws.rollback("keys")
        self.assertEqual(ws.kv.get("a:2"), "text")

    def test_tool_calls(self) -> None:
        ws = self.workspace(file="0")
        with ws.tools.call("edit", {"file": "file"}) as call:
            ws.fs.write("file", "1", sync=False)
            call.result = {"ok": True}
        with self.assertRaises(ZeroDivisionError):
            with ws.tools.call("fail"):
                raise ZeroDivisionError("no")

        @ws.tools.tool()
        def add(first: int, second: int = 2) -> int:
            return first + second

        self.assertEqual(add(1), 3)
        ws.tools.record("noted", result=1, started=datetime(2020, 1, 2, tzinfo=timezone.utc))
        running = ws.tools.start("slow", key="k")
        self.assertEqual(ws.tools.start("slow", key="k"), running)
        calls = {one.name: one for one in ws.tools.list()}
        self.assertEqual((calls["edit"].result, calls["edit"].status), ({"ok": True}, "success"))
        self.assertEqual(calls["fail"].error, "ZeroDivisionError: no")
        self.assertEqual((calls["add"].parameters, calls["add"].result), ({"first": 1, "second": 2}, 3))
        self.assertEqual(calls["slow"].status, "pending")
        self.assertEqual(calls["noted"].started.year, 2020)
        ws.tools.success("k", 1)
        ws.tools.success("k")
        edit = ws.tools.get(calls["edit"].id or 0, wait=True)
        assert edit.before and edit.after
        self.assertEqual([one.path for one in ws.diff(edit.before, edit.after)], ["file"])
        self.assertTrue(ws.tools.undo(calls["edit"].id or 0).ok)
        self.assertEqual(ws.fs.read("file"), b"0")
        stats = {tool.name: tool for tool in ws.tools.stats()}
        self.assertEqual((stats["edit"].success, stats["fail"].error, stats["slow"].calls), (1, 1, 1))
        (newest,) = ws.tools.list(limit=1, switches=True)
        self.assertEqual(newest.kind, "tool-undo")

    def test_checkpoints_and_the_ways_back(self) -> None:
        ws = self.workspace(file="0")
        first = ws.checkpoint("first", message="m", meta={"k": "v"})
        self.assertTrue(first.new_commit or first.commit)
        ws.fs.write("file", "1")
        (change,) = ws.diff(lines=True)
        self.assertEqual((change.status, change.path, change.lines and change.lines.added), ("M", "file", 1))
        self.assertIn(b"+1", ws.patch())
        rolled = ws.rollback()
        self.assertEqual((ws.fs.read("file"), rolled.files_changed), (b"0", 1))
        ws.undo()
        self.assertEqual(ws.fs.read("file"), b"1")
        ws.redo()
        self.assertEqual(ws.fs.read("file"), b"0")
        ws.fs.write("file", "2")
        ws.checkpoint("second")
        for target in ({"to": "first"}, {"meta": ("k", "v")}, {"to": first.commit}):
            ws.rollback("second")
            ws.rollback(**target)  # type: ignore[arg-type]
            self.assertEqual(ws.fs.read("file"), b"0")
        labels = {label for commit in ws.log() for label in commit.labels}
        self.assertLessEqual({"first", "second"}, labels)
        self.assertEqual(len(ws.log(limit=1)), 1)
        self.assertEqual(ws.status().head, first.commit)
        with self.assertRaises(Refused) as caught:
            ws.rollback("missing")
        self.assertEqual(caught.exception.kind, "no-such-ref")
        ws.sync()

    def test_branches_merge_and_conflict(self) -> None:
        ws = self.workspace(a="0", b="0")
        side = ws.create_branch("side")
        side.fs.write("a", "side")
        self.assertEqual(ws.fs.read("a"), b"0")
        self.assertEqual([one.path for one in ws.diff_branch("side")], ["a"])
        self.assertTrue(ws.merge("side").ok)
        self.assertEqual(ws.fs.read("a"), b"side")
        side.fs.write("b", "side")
        ws.fs.write("b", "main")
        refused = ws.merge("side")
        self.assertEqual((refused.status, [one.path for one in refused.conflicts]), ("conflicts", ["b"]))
        self.assertEqual(ws.fs.read("b"), b"main")
        ws.merge("side", keep_conflicts=True)
        self.assertEqual([one.path for one in ws.conflicts()], ["b"])
        self.assertEqual(ws.resolve("b", "theirs"), 0)
        self.assertEqual(ws.fs.read("b"), b"side")
        self.assertEqual({branch.name for branch in ws.branches()}, {"main", "side"})
        ws.delete_branch("side")
        with self.assertRaises(Refused):
            side.fs.read("b")

    def test_the_project_gets_and_gives_changes(self) -> None:
        ws = self.workspace(a="0", b="0")
        project = ws.info().base
        ws.fs.write("a", "1")
        self.assertEqual([one.path for one in ws.apply(dry_run=True).changes], ["a"])
        self.assertTrue(ws.apply().ok)
        with open(f"{project}/a") as file:
            self.assertEqual(file.read(), "1")
        with open(f"{project}/b", "w") as file:
            file.write("outside")
        self.assertTrue(ws.update().ok)
        self.assertEqual(ws.fs.read("b"), b"outside")

    def test_workspaces_are_opened_by_name_project_and_surroundings(self) -> None:
        ws = self.workspace(file="0")
        self.assertIn(ws.name, [one.name for one in workspaces(self.home.root)])
        same = Workspace.open(base=ws.info().base, home=self.home.root)
        self.assertEqual(same.name, ws.name)
        ws.stop()
        with self.assertRaises(Refused) as caught:
            ws.fs.write("file", "1")
        self.assertEqual(caught.exception.kind, "not-running")
        ws.start()
        ws.fs.write("file", "1")
        with Workspace.open(ws.name, home=self.home.root) as other:
            self.assertEqual(other.fs.read("file"), b"1")
        with self.assertRaises(Refused) as caught:
            Workspace.open("missing", home=self.home.root)
        self.assertEqual(caught.exception.kind, "no-such-workspace")
        ws.stop()
        ws.delete()
        for one in (same, ws):
            one.close()

    def test_commands_run_in_a_sandbox(self) -> None:
        ws = self.workspace(file="0")
        script = "cat file; echo new > made; echo err >&2; exit 3"
        ended = ws.run(["sh", "-c", script], capture=True, env={"X": "1"})
        self.assertEqual((ended.status, ended.stdout, ended.ok), (3, b"0", False), ended.stderr)
        assert ended.report is not None
        self.assertEqual(ended.report["exit"], 3)
        self.assertEqual(ws.fs.read("made"), b"new\n")
        self.assertFalse(os.path.exists(f"{ws.info().base}/made"))


    def test_a_command_in_a_sandbox_uses_its_branch(self) -> None:
        # In the project, as the sandbox may not show where it is.
        base = self.home.project("sandboxed", file="0")
        shutil.copytree(os.path.dirname(agentvfs.__file__), base / "agentvfs")
        ws = Workspace.open(base=base, home=self.home.root)
        self.addCleanup(ws.close)
        script = """
import sys
sys.path.insert(0, "")
from agentvfs import Refused, Workspace
with Workspace.open() as ws:
    ws.fs.write("inside", "1")
    ws.checkpoint("inside")
    with ws.tools.call("tool"), ws.create_branch("child").fs.open("child", "w") as file:
        file.write("2")
    assert ws.merge("child").ok
    try:
        ws.stop()
    except Refused as error:
        print(error.kind, ws.name, ws.branch_name)
"""
        side = ws.create_branch("side")
        ended = side.run([sys.executable, "-c", script], capture=True, cwd=str(base))
        self.assertEqual(ended.stdout.decode(), f"in-sandbox {ws.name} side\n", ended.stderr.decode())
        self.assertEqual((side.fs.read("inside"), side.fs.read("child")), (b"1", b"2"))
        self.assertFalse(ws.fs.exists("inside"))


class Steps(Case):
    def test_a_step_runs_once_and_its_files_come_back(self) -> None:
        ws = self.workspace()
        ran: list[int] = []

        def work() -> tuple[int, str]:
            ran.append(1)
            ws.fs.write("file", f"after {len(ran)}")
            return len(ran), "x"

        self.assertEqual(ws.step("one", work), [1, "x"])
        ws.fs.write("file", "later")
        self.assertEqual(ws.step("one", work), [1, "x"])
        self.assertEqual(ws.fs.read("file"), b"later")
        ws.step("two", lambda: None)
        self.assertEqual(ws.step("one", work, files=True), [1, "x"])
        self.assertEqual((ws.fs.read("file"), ran), (b"after 1", [1]))
        self.assertIsNotNone(ws.kv.get("agentvfs:step:main:two"))
        self.assertEqual(ws.kv.get("agentvfs:step:main:one"), {"version": 1, "result": [1, "x"]})
        self.assertEqual(ws.step("one", work, program="other"), [2, "x"])
        self.assertTrue(ws.forget("one"))
        self.assertEqual(ws.step("one", work), [3, "x"])

    def test_going_back_takes_steps_back_too(self) -> None:
        ws = self.workspace()
        ran: list[str] = []

        def work(name: str) -> None:
            ws.step(name, lambda: ran.append(name))

        work("one")
        work("two")
        ws.rollback(meta=("step", "main:one"))
        work("one")
        self.assertEqual(ran, ["one", "two"])
        work("two")
        self.assertEqual(ran, ["one", "two", "two"])

    def test_a_step_that_fails_is_not_kept(self) -> None:
        ws = self.workspace()
        with self.assertRaises(ZeroDivisionError):
            ws.step("one", lambda: 1 // 0)
        self.assertEqual(ws.step("one", lambda: 5), 5)

    def test_a_program_that_ended_before_the_commit_makes_it_later(self) -> None:
        ws = self.workspace()
        ws.kv.set("agentvfs:step:main:one", {"version": 1, "result": 4})
        self.assertEqual(ws.step("one", lambda: 1 // 0), 4)
        ws.fs.write("file", "later")
        ws.rollback(meta=("step", "main:one"))
        self.assertFalse(ws.fs.exists("file"))

    def test_what_cannot_be_kept_is_said(self) -> None:
        ws = self.workspace()
        for name, program in (("", "main"), ("x", "a:b"), ("x", ""), ("a\nb", "main"), ("x" * 501, "main")):
            with self.assertRaises(ValueError):
                ws.step(name, lambda: self.fail("it ran"), program=program)
        ws.kv.set("agentvfs:step:main:new", {"version": 2, "result": 4})
        with self.assertRaises(Refused):
            ws.step("new", lambda: self.fail("it ran"))


class Asynchronous(Case):
    @in_loop
    async def test_the_same_by_asyncio(self) -> None:
        base = self.home.project("same", file="0")
        async with await AsyncWorkspace.open("same", base=base, home=self.home.root) as ws:
            names = [f"f{i}" for i in range(40)]
            await asyncio.gather(*(ws.fs.write(name, name) for name in names))
            self.assertEqual(await asyncio.gather(*map(ws.fs.read, names)), [name.encode() for name in names])
            async with await ws.fs.open("streamed", "w+b") as file:
                await file.write(b"x" * 1_000_000)
                await file.seek(999_999)
                self.assertEqual(await file.read(), b"x")
                await file.seek(0)
                self.assertEqual(sum([len(part) async for part in file]), 1_000_000)
                await file.truncate(3)
            self.assertEqual(await ws.fs.read("streamed"), b"xxx")

            @ws.tools.tool("named")
            async def tool(value: int) -> int:
                await ws.fs.write("made", str(value))
                return value

            self.assertEqual(await tool(4), 4)
            (call,) = await ws.tools.list(limit=1)
            self.assertEqual((call.name, call.parameters, call.result), ("named", {"value": 4}, 4))

            async def work() -> str:
                await asyncio.sleep(0)
                return "done"

            self.assertEqual([await ws.step("one", work), await ws.step("one", work)], ["done", "done"])
            ended = await ws.run(["cat", "made"], capture=True)
            self.assertEqual(ended.stdout, b"4")

    def test_a_workspace_may_be_used_by_one_loop_after_the_other(self) -> None:
        base = self.home.project("loops", file="0")
        ws = AsyncWorkspace.bound("loops", home=self.home.root)
        with Workspace.open("loops", base=base, home=self.home.root):
            pass

        async def read() -> bytes:
            content = await ws.fs.read("file")
            await asyncio.gather(*(ws.fs.stat("file") for _ in range(20)))
            return content

        for _ in range(3):
            self.assertEqual(asyncio.run(read()), b"0")

    def test_an_asynchronous_step_is_refused_by_the_blocking_api(self) -> None:
        ws = self.workspace()

        async def work() -> int:
            return 1

        with self.assertRaises(TypeError):
            ws.step("one", work)


if __name__ == "__main__":
    unittest.main()
