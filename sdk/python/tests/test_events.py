"""``watch``: events as they happen, from where one was, and the end."""

from __future__ import annotations

import asyncio
import unittest

from agentvfs import aio
from agentvfs.errors import Refused
from agentvfs.events import Event, watch
from support import Home


class Watching(unittest.IsolatedAsyncioTestCase):
    """Each test has a home of its own."""

    async def asyncSetUp(self) -> None:
        """A workspace."""
        self.home = Home()
        self.addCleanup(self.home.end)
        project = self.home.project(file="of the base")
        self.ws = await aio.AsyncWorkspace.open("w", base=project, home=self.home.root)
        self.addAsyncCleanup(self.ws.close)

    async def told(self, **choice: object) -> list[Event]:
        """The events that there are."""
        return [event async for event in watch(self.ws, follow=False, **choice)]  # type: ignore[arg-type]

    async def made(self, **choice: object) -> list[str]:
        """Paths that were created since the first event that is kept."""
        return [event["path"] for event in await self.told(since=0, **choice) if event["op"] == "create"]

    async def test_events_come_as_they_happen_and_who_comes_back_goes_on(self) -> None:
        """The next ones are those after the number that was seen last."""
        self.assertEqual(await self.told(), [])
        await self.ws.fs.write("a", "x")
        everything = await self.told(since=0)
        self.assertEqual(everything[0]["op"], "lost")
        created = [event for event in everything if event["op"] == "create"]
        self.assertEqual([event["path"] for event in created], ["a"])
        self.assertEqual(created[0]["backend"], "control")
        seen = int(everything[-1]["extra"]["seq"])
        coming = watch(self.ws, since=seen, ops=["create"])
        await self.ws.fs.write("b", "x")
        event = await asyncio.wait_for(anext(coming), 60)
        self.assertEqual((event["op"], event["path"]), ("create", "b"))
        await self.ws.stop()
        with self.assertRaises(StopAsyncIteration):
            await asyncio.wait_for(anext(coming), 60)

    async def test_only_what_is_wanted_comes(self) -> None:
        """By branch, operation and path."""
        self.assertEqual(await self.told(), [])
        side = await self.ws.create_branch("side")
        await self.ws.fs.mkdir("d")
        await self.ws.fs.write("d/x", "x")
        await side.fs.mkdir("e")
        self.assertEqual(await self.made(ops=["create"]), ["d", "d/x"])
        self.assertEqual(await self.made(ops=["create"], paths=["*x"]), ["d/x"])
        self.assertEqual(await self.made(ops=["create"], branches=()), ["d", "d/x", "e"])

    async def test_events_go_on_after_the_daemon_was_killed(self) -> None:
        """What was missed is told as lost."""
        self.assertEqual(await self.told(), [])
        await self.ws.fs.write("a", "x")
        coming = watch(self.ws, since=0)

        async def next_of(op: str) -> Event:
            async for event in coming:
                if event["op"] == op:
                    return event
            raise AssertionError("no more events")

        event = await asyncio.wait_for(next_of("create"), 60)
        self.assertEqual(event["path"], "a")
        self.home.kill_daemon()
        event = await asyncio.wait_for(next_of("lost"), 60)
        self.assertNotIn("count", event["extra"])
        await self.ws.fs.write("b", "x")
        event = await asyncio.wait_for(next_of("create"), 60)
        self.assertEqual(event["path"], "b")

    async def test_what_cannot_be_is_an_error(self) -> None:
        """A workspace that does not run."""
        await self.ws.stop()
        with self.assertRaises(Refused) as raised:
            await self.told()
        self.assertEqual(raised.exception.kind, "not-running")


if __name__ == "__main__":
    unittest.main()
