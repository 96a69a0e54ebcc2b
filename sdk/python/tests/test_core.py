"""What needs no daemon: bytes of the protocol, where the socket is, which workspace is meant, that both APIs agree."""

from __future__ import annotations

import inspect
import json
import unittest
from collections.abc import Generator
from typing import Any, ClassVar

import agentvfs
from agentvfs import AsyncWorkspace, FileError, Refused, Workspace, aio, workspace
from agentvfs._core import files, opening
from agentvfs._core.blake3 import blake3
from agentvfs._core.effects import Answer
from agentvfs._core.scope import Scope
from agentvfs._core.wire import Data, Ending, Response, Wire, of_bytes, to_bytes, to_text
from agentvfs._io import home
from support import environment

# Of BLAKE3's own test vectors: lengths of inputs, and their hashes.
VECTORS = {
    0: "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
    1: "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213",
    1024: "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7",
    1025: "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444",
    2049: "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030",
    3073: "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3",
}


def error(code: int, **data: Any) -> bytes:
    return json.dumps({"id": 1, "error": {"code": code, "message": "m", "data": data}}).encode() + b"\n"


class Bytes(unittest.TestCase):
    def test_hashes_are_those_of_the_specification(self) -> None:
        for length, expected in VECTORS.items():
            self.assertEqual(blake3(bytes(i % 251 for i in range(length))), expected)

    def test_lines_may_come_in_any_parts(self) -> None:
        text = b'{"id":1,"result":{"a":1}}\n{"method":"data","params":{"id":2,"b64":"aGk="}}\n{"method":"other"}\n'
        for size in range(1, len(text) + 1):
            wire, events = Wire(), []
            for start in range(0, len(text), size):
                events += wire.received(text[start : start + size])
            self.assertEqual(events, [Response(1, {"a": 1}, None), Data(2, b"hi")])

    def test_errors_have_their_class(self) -> None:
        def raised(line: bytes) -> Any:
            (event,) = Wire().received(line)
            assert isinstance(event, Response)
            return event.error

        self.assertIsInstance(raised(error(-32001)), Ending)
        self.assertIsInstance(raised(error(-32002)), agentvfs.WrongVersion)
        self.assertIsInstance(raised(error(-32601, kind="protocol")), agentvfs.ProtocolError)
        plain = raised(error(-32000, kind="later-changes", hint="h"))
        self.assertEqual((type(plain), plain.kind, plain.hint, plain.errno), (Refused, "later-changes", "h", None))
        missing = raised(error(-32000, kind="no-such-path", errno="ENOENT"))
        self.assertIsInstance(missing, FileNotFoundError)
        self.assertIsInstance(missing, FileError)
        self.assertEqual((missing.errno, missing.code, missing.kind), (2, "ENOENT", "no-such-path"))
        stale = raised(error(-32000, kind="stale-handle", errno="ESTALE"))
        self.assertEqual((type(stale), stale.code), (FileError, "ESTALE"))

    def test_names_that_are_not_utf_8_keep_their_bytes(self) -> None:
        for raw in (b"plain", "ä".encode(), b"\xff\xfe/x", bytes(range(1, 256))):
            self.assertEqual(to_bytes(of_bytes(raw)), raw)
            text = to_text(of_bytes(raw))
            self.assertEqual(to_bytes(of_bytes(text)), raw)

    def test_a_request_that_is_too_long_is_refused_here(self) -> None:
        with self.assertRaises(ValueError):
            Wire().request("kv.set", {"value": "x" * (1 << 20)})

    def test_a_hole_is_zeros(self) -> None:
        def read(raw: dict[str, Any], **how: int) -> bytes:
            step: Generator[Any, Any, bytes] = files.read(Scope("w", "b"), "p", **how)
            next(step)
            try:
                step.send(Answer(raw))
            except StopIteration as stop:
                result: bytes = stop.value
                return result
            raise AssertionError("it asks again")

        self.assertEqual(read({"offset": 3, "b64": "aGk=", "size": 5}), b"\0\0\0hi")
        self.assertEqual(read({"offset": 3, "b64": "aGk=", "size": 5}, length=4), b"\0\0\0h")
        self.assertEqual(read({"offset": 9, "b64": "aGk=", "size": 11}, offset=1, length=4), b"\0\0\0\0")
        self.assertEqual(read({"offset": 0, "b64": "", "size": 4}), b"\0\0\0\0")


class Places(unittest.TestCase):
    def test_the_socket_is_where_the_program_has_it(self) -> None:
        with environment(AGENTVFS_HOME=None, AGENTVFS_SOCKET=None, XDG_DATA_HOME="/x", HOME="/h", XDG_RUNTIME_DIR=None):
            self.assertEqual(home.reach("/r").socket, "/r/daemon.sock")
            self.assertEqual(home.reach().root, "/x/agentvfs")
            with environment(AGENTVFS_HOME="/a"):
                self.assertEqual(home.reach().root, "/a")
            with environment(XDG_DATA_HOME="relative"):
                self.assertEqual(home.reach().root, "/h/.local/share/agentvfs")
            with environment(AGENTVFS_SOCKET="/s"):
                self.assertTrue(home.reach().of_run)
                self.assertFalse(home.reach("/r").of_run)
            long = "/" + "d" * 120
            self.assertRegex(home.reach(long).socket, r"^/tmp/agentvfs-\d+/[0-9a-f]{16}\.sock$")
            with environment(XDG_RUNTIME_DIR="/run/user/7"):
                self.assertRegex(home.reach(long).socket, r"^/run/user/7/agentvfs-[0-9a-f]{16}\.sock$")

    def test_the_workspace_meant_is_the_nearest(self) -> None:
        def info(name: str, mount: str, base: str, status: str) -> dict[str, str]:
            return {"name": name, "mount": mount, "base": base, "status": status}

        every = [
            info("a", "/m/a", "/p", "started"),
            info("b", "/m/b", "/p/inner", "stopped"),
            info("c", "/m/c", "/q", "started"),
        ]

        def meant(directory: str, some: list[dict[str, str]] = every) -> str:
            step = opening.open_workspace(None, None, None, "main", opening.Surroundings(None, None, directory))
            next(step)
            asked: Any = step.send(Answer({"workspaces": some}))
            return str(asked.params["workspace"])

        self.assertEqual(meant("/p/x"), "a")
        self.assertEqual(meant("/p/inner/x"), "b")
        self.assertEqual(meant("/m/c/x"), "c")
        self.assertEqual(meant("/elsewhere", every[:2]), "a")
        with self.assertRaises(Refused) as caught:
            meant("/elsewhere")
        self.assertEqual(caught.exception.kind, "ambiguous-workspace")

    def test_names_come_from_directories(self) -> None:
        for base, name in (("/", "root"), ("/a/my project", "my-project"), ("/.x", "x"), ("/" + "n" * 80, "n" * 64)):
            self.assertEqual(opening.default_name(base), name)
        self.assertRegex(opening.default_name("/öö"), r"^ws-[0-9a-f]{8}$")


class Parity(unittest.TestCase):
    #: What has another shape where it is asynchronous.
    DIFFERENT: ClassVar = {"open": {"encoding"}}

    def test_both_apis_have_the_same_methods_and_parameters(self) -> None:
        pairs = [(Workspace, AsyncWorkspace), (workspace.Files, aio.Files), (workspace.Keys, aio.Keys)]
        for blocking, awaiting in [*pairs, (workspace.Tools, aio.Tools)]:
            names = {name for name in vars(blocking) if not name.startswith("_")}
            self.assertEqual(names, {name for name in vars(awaiting) if not name.startswith("_")})
            for name in names:
                if isinstance(vars(blocking)[name], property):
                    continue
                first = dict(inspect.signature(getattr(blocking, name)).parameters)
                second = dict(inspect.signature(getattr(awaiting, name)).parameters)
                missing = self.DIFFERENT.get(name, set()) if blocking is workspace.Files else set()
                self.assertEqual(list(second), [key for key in first if key not in missing], f"{blocking} {name}")
                self.assertTrue(inspect.getdoc(getattr(blocking, name)), name)


if __name__ == "__main__":
    unittest.main()
