"""What AgentFS's Python SDK does with a database: compare, change or make one.

    agentfs.py compare DB DIR   every name, type, size and byte is that of the directory
    agentfs.py change DB        changes a file, adds one, removes one, sets a key, records a call
    agentfs.py make DB DIR      makes a database, and the same tree in the directory
"""

import asyncio
import os
import stat
import sys

from agentfs_sdk import AgentFS, AgentFSOptions


async def opened(path):
    return await AgentFS.open(AgentFSOptions(id="conformance", path=path))


async def names(fs, path):
    """Every path below one, from the root."""
    for name in await fs.readdir(path):
        full = path.rstrip("/") + "/" + name
        yield full
        if (await fs.stat(full)).is_directory():
            async for below in names(fs, full):
                yield below


async def compare(path, directory):
    agent = await opened(path)
    found = {p async for p in names(agent.fs, "/")}
    wanted = set()
    for place, dirs, files in os.walk(directory):
        wanted |= {os.path.join(place, n)[len(directory):] for n in dirs + files}
    assert found == wanted, sorted(found ^ wanted)[:10]
    for p in sorted(wanted):
        there, here = await agent.fs.stat(p), os.lstat(directory + p)
        assert there.mode == here.st_mode, (p, oct(there.mode), oct(here.st_mode))
        assert there.mtime == here.st_mtime_ns // 10**9, p
        if stat.S_ISREG(here.st_mode):
            assert (there.size, there.nlink) == (here.st_size, here.st_nlink), p
            with open(directory + p, "rb") as file:
                data = await agent.fs.read_file(p, encoding=None)
                assert data == file.read(), p
    await agent.close()
    print(len(wanted), "names are the same")


async def change(path):
    agent = await opened(path)
    await agent.fs.write_file("/p1/q1/f1", "changed by the SDK")
    await agent.fs.write_file("/new/deep/file", "made by the SDK")
    await agent.fs.unlink("/p0/q0/f0")
    await agent.kv.set("by", {"sdk": True})
    call = await agent.tools.start("edit", {"path": "/p1/q1/f1"})
    await agent.tools.success(call, {"ok": True})
    await agent.close()


async def make(path, directory):
    agent = await opened(path)
    for i in range(200):
        p = f"/d{i % 10}/e{i % 3}/f{i}"
        data = os.urandom(i * 97)
        os.makedirs(os.path.dirname(directory + p), exist_ok=True)
        with open(directory + p, "wb") as file:
            file.write(data)
        await agent.fs.write_file(p, data)
    await agent.fs.write_file("/d0/e0/f0", "over")
    with open(directory + "/d0/e0/f0", "w", encoding="utf-8") as file:
        file.write("over")
    await agent.kv.set("greeting", {"hello": "world"})
    await agent.tools.record("search", 1700000000, 1700000002, {"q": 1}, {"found": 2})
    await agent.tools.record("search", 1700000003, 1700000004, {"q": 2}, None, "timeout")
    await agent.close()


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    asyncio.run({"compare": compare, "change": change, "make": make}[what](*rest))
