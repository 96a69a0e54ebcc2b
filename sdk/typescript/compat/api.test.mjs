// The calls of agentfs-sdk, with what must come of each. The same tests run against agentfs-sdk 0.6.4 itself and against
// agentvfs/agentfs: $AGENTFS_IMPL is the package. What differs on purpose is said in docs/sdk-ts.md and not tested here.

import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

const { AgentFS, Filesystem, KvStore, ToolCalls } = await import(process.env.AGENTFS_IMPL);
const dir = mkdtempSync(join(tmpdir(), "api-"));
const cwd = process.cwd();
after(() => rmSync(dir, { recursive: true, force: true }));

const fails = (code, syscall, path) => (error) => {
  assert.deepEqual([error.code, error.syscall, error.path], [code, syscall, path], String(error));
  assert.ok(error instanceof Error && error.message.startsWith(`${code}: `) && error.message.includes(`, ${syscall} '${path}'`), error.message);
  return true;
};

describe("opening", () => {
  test("needs an id or a path", async () => {
    await assert.rejects(AgentFS.open({}), { message: "AgentFS.open() requires at least 'id' or 'path'." });
  });
  for (const id of ["a/b", "a b", "a.b", "../x", "é"]) {
    test(`refuses the id ${id}`, async () => {
      await assert.rejects(AgentFS.open({ id }), { message: "Agent ID must contain only alphanumeric characters, hyphens, and underscores" });
    });
  }
  test("keeps an agent by its id in .agentfs", async () => {
    process.chdir(dir);
    try {
      const agent = await AgentFS.open({ id: "an-Id_1" });
      await agent.fs.writeFile("/f", "kept");
      await agent.kv.set("k", 1);
      await agent.tools.success(await agent.tools.start("t"), 2);
      await agent.close();
      assert.ok(existsSync(".agentfs/an-Id_1.db"));
      const again = await AgentFS.open({ id: "an-Id_1" });
      assert.equal(await again.fs.readFile("/f", "utf8"), "kept");
      assert.equal(await again.kv.get("k"), 1);
      assert.equal((await again.tools.getByName("t"))[0].result, 2);
      await again.close();
    } finally {
      process.chdir(cwd);
    }
  });
  test("keeps an agent by its path, also beside an id", async () => {
    const agent = await AgentFS.open({ id: "other", path: join(dir, "by-path.db") });
    assert.ok(existsSync(join(dir, "by-path.db")));
    await agent.close();
  });
  test("two agents have nothing in common", async () => {
    const [a, b] = [await AgentFS.open({ path: join(dir, "a.db") }), await AgentFS.open({ path: join(dir, "b.db") })];
    await a.fs.writeFile("/f", "a");
    await a.kv.set("k", "a");
    await assert.rejects(b.fs.readFile("/f"), { code: "ENOENT" });
    assert.equal(await b.kv.get("k"), undefined);
    await a.close();
    await b.close();
  });
  test("the parts open on a database", async () => {
    const agent = await AgentFS.open({ path: ":memory:" });
    const db = agent.getDatabase();
    const fs = await Filesystem.fromDatabase(db);
    await (await KvStore.fromDatabase(db)).set("k", 1);
    await (await ToolCalls.fromDatabase(db)).start("t");
    await fs.writeFile("/f", "x");
    assert.equal(await agent.fs.readFile("/f", "utf8"), "x");
    assert.equal(await agent.kv.get("k"), 1);
    assert.equal(typeof fs.getChunkSize(), "number");
    const same = await AgentFS.openWith(db);
    assert.equal(await same.fs.readFile("/f", "utf8"), "x");
    await agent.close();
  });
});

describe("files", () => {
  let agent;
  let fs;
  before(async () => {
    agent = await AgentFS.open({ path: join(dir, "fs.db") });
    fs = agent.fs;
  });
  after(() => agent.close());

  test("a file comes back as it was written", async () => {
    await fs.writeFile("/text", "héllo");
    assert.equal(await fs.readFile("/text", "utf8"), "héllo");
    assert.equal(await fs.readFile("/text", { encoding: "utf8" }), "héllo");
    const buffer = await fs.readFile("/text");
    assert.ok(Buffer.isBuffer(buffer) && buffer.equals(Buffer.from("héllo")));
  });
  test("text may be given in an encoding", async () => {
    await fs.writeFile("/hex", "6869", "hex");
    await fs.writeFile("/base64", "aGk=", { encoding: "base64" });
    assert.equal(await fs.readFile("/hex", "utf8"), "hi");
    assert.equal(await fs.readFile("/base64", "latin1"), "hi");
    assert.equal(await fs.readFile("/hex", "base64"), "aGk=");
  });
  for (const length of [0, 1, 4095, 4096, 4097, 65_536, 300_000, 1_200_000]) {
    test(`${length} bytes`, async () => {
      const content = Buffer.from(Array.from({ length }, (_, i) => (i * 7 + (i >> 8)) & 255));
      await fs.writeFile(`/bytes-${length}`, content);
      assert.ok((await fs.readFile(`/bytes-${length}`)).equals(content));
      assert.equal((await fs.stat(`/bytes-${length}`)).size, length);
    });
  }
  test("writing again replaces, shorter or longer", async () => {
    for (const content of ["long content", "short", "", "longer than before"]) {
      await fs.writeFile("/again", content);
      assert.equal(await fs.readFile("/again", "utf8"), content);
    }
  });
  test("missing directories are made", async () => {
    await fs.writeFile("/made/for/it/file", "x");
    assert.ok((await fs.stat("/made/for")).isDirectory());
  });
  test("a path needs no slash in front and may have one at the end", async () => {
    await fs.writeFile("bare/name", "x");
    assert.equal(await fs.readFile("/bare/name", "utf8"), "x");
    assert.deepEqual(await fs.readdir("bare/"), ["name"]);
  });
  test("names may have any characters", async () => {
    for (const name of ["sp ace", "quo\"te'", "ünï", "a\\b", "%_", "-", "日本", "x".repeat(255)]) {
      await fs.writeFile(`/names/${name}`, name);
      assert.equal(await fs.readFile(`/names/${name}`, "utf8"), name);
    }
    assert.equal((await fs.readdir("/names")).length, 8);
  });
  test("reading what is not there", async () => {
    await assert.rejects(fs.readFile("/nothing"), fails("ENOENT", "open", "/nothing"));
    await assert.rejects(fs.readFile("/no/such/dir"), fails("ENOENT", "open", "/no/such/dir"));
    await assert.rejects(fs.readFile("/text/below"), fails("ENOENT", "open", "/text/below"));
  });
  test("a directory is no file", async () => {
    await fs.mkdir("/adir");
    await assert.rejects(fs.readFile("/adir"), fails("EISDIR", "open", "/adir"));
    await assert.rejects(fs.writeFile("/adir", "x"), fails("EISDIR", "open", "/adir"));
    await assert.rejects(fs.writeFile("/", "x"), fails("EISDIR", "open", "/"));
    await assert.rejects(fs.open("/adir"), fails("EISDIR", "open", "/adir"));
  });
  test("a file is no directory", async () => {
    await assert.rejects(fs.writeFile("/text/below", "x"), fails("ENOTDIR", "open", "/text/below"));
    await assert.rejects(fs.mkdir("/text/below"), fails("ENOTDIR", "mkdir", "/text/below"));
    await assert.rejects(fs.readdir("/text"), fails("ENOTDIR", "scandir", "/text"));
    await assert.rejects(fs.rmdir("/text"), fails("ENOTDIR", "rmdir", "/text"));
    await assert.rejects(fs.readdirPlus("/text"), fails("ENOTDIR", "scandir", "/text"));
  });
  test("stat of a file, a directory and the root", async () => {
    await fs.writeFile("/stat/file", "12345");
    const file = await fs.stat("/stat/file");
    assert.deepEqual([file.isFile(), file.isDirectory(), file.isSymbolicLink()], [true, false, false]);
    assert.deepEqual([file.size, file.mode, file.nlink], [5, 0o100644, 1]);
    const now = Date.now() / 1000;
    for (const time of [file.atime, file.mtime, file.ctime]) assert.ok(Number.isInteger(time) && Math.abs(now - time) < 60);
    const directory = await fs.stat("/stat");
    assert.deepEqual([directory.isDirectory(), directory.mode], [true, 0o040755]);
    assert.ok((await fs.stat("/")).isDirectory());
    assert.equal((await fs.lstat("/stat/file")).ino, file.ino);
    await assert.rejects(fs.stat("/stat/none"), fails("ENOENT", "stat", "/stat/none"));
    await assert.rejects(fs.lstat("/stat/file/x"), fails("ENOENT", "stat", "/stat/file/x"));
  });
  test("a file keeps its number when it is written and renamed", async () => {
    await fs.writeFile("/ino", "1");
    const { ino } = await fs.stat("/ino");
    await fs.writeFile("/ino", "2");
    await fs.rename("/ino", "/ino2");
    assert.equal((await fs.stat("/ino2")).ino, ino);
  });
  test("readdir gives names in order, without what is below", async () => {
    for (const name of ["c", "a", "b/deep"]) await fs.writeFile(`/list/${name}`, "");
    assert.deepEqual(await fs.readdir("/list"), ["a", "b", "c"]);
    await fs.mkdir("/list/empty");
    assert.deepEqual(await fs.readdir("/list/empty"), []);
    await assert.rejects(fs.readdir("/list/none"), fails("ENOENT", "scandir", "/list/none"));
    await assert.rejects(fs.readdir("/list/a/x"), fails("ENOENT", "scandir", "/list/a/x"));
    assert.ok((await fs.readdir("/")).includes("list"));
  });
  test("readdirPlus gives what stat gives", async () => {
    await fs.writeFile("/plus/f", "123");
    await fs.mkdir("/plus/d");
    const entries = await fs.readdirPlus("/plus");
    assert.deepEqual(entries.map((e) => [e.name, e.stats.isDirectory()]), [["d", true], ["f", false]]);
    assert.equal(entries[1].stats.size, 3);
    assert.equal(entries[1].stats.ino, (await fs.stat("/plus/f")).ino);
  });
  test("mkdir", async () => {
    await fs.mkdir("/mk");
    await assert.rejects(fs.mkdir("/mk"), fails("EEXIST", "mkdir", "/mk"));
    await assert.rejects(fs.mkdir("/text"), fails("EEXIST", "mkdir", "/text"));
    await assert.rejects(fs.mkdir("/"), fails("EEXIST", "mkdir", "/"));
    await assert.rejects(fs.mkdir("/none/below"), fails("ENOENT", "mkdir", "/none/below"));
  });
  test("rmdir", async () => {
    await fs.writeFile("/rd/sub/f", "");
    await assert.rejects(fs.rmdir("/rd/sub"), fails("ENOTEMPTY", "rmdir", "/rd/sub"));
    await fs.unlink("/rd/sub/f");
    await fs.rmdir("/rd/sub");
    await assert.rejects(fs.rmdir("/rd/sub"), fails("ENOENT", "rmdir", "/rd/sub"));
    await assert.rejects(fs.rmdir("/"), fails("EPERM", "rmdir", "/"));
  });
  test("unlink and deleteFile", async () => {
    await fs.writeFile("/ul/f", "");
    await fs.writeFile("/ul/g", "");
    await fs.unlink("/ul/f");
    await fs.deleteFile("/ul/g");
    assert.deepEqual(await fs.readdir("/ul"), []);
    await assert.rejects(fs.unlink("/ul/f"), fails("ENOENT", "unlink", "/ul/f"));
    await assert.rejects(fs.unlink("/ul"), fails("EISDIR", "unlink", "/ul"));
    await assert.rejects(fs.unlink("/"), fails("EPERM", "unlink", "/"));
  });
  test("rm", async () => {
    await fs.writeFile("/rm/a/b/c", "");
    await fs.writeFile("/rm/f", "");
    await fs.rm("/rm/f");
    await assert.rejects(fs.rm("/rm/f"), fails("ENOENT", "rm", "/rm/f"));
    await fs.rm("/rm/f", { force: true });
    await assert.rejects(fs.rm("/rm/a"), fails("EISDIR", "rm", "/rm/a"));
    await assert.rejects(fs.rm("/rm/a", { force: true }), fails("EISDIR", "rm", "/rm/a"));
    await fs.rm("/rm/a", { recursive: true });
    assert.deepEqual(await fs.readdir("/rm"), []);
    await fs.rm("/none", { recursive: true, force: true });
    await assert.rejects(fs.rm("/none", { recursive: true }), fails("ENOENT", "rm", "/none"));
    await assert.rejects(fs.rm("/", { recursive: true }), fails("EPERM", "rm", "/"));
  });
  test("rename of files", async () => {
    await fs.writeFile("/rn/a", "a");
    await fs.writeFile("/rn/b", "b");
    await fs.rename("/rn/a", "/rn/c");
    await assert.rejects(fs.stat("/rn/a"), { code: "ENOENT" });
    await fs.rename("/rn/c", "/rn/b");
    assert.equal(await fs.readFile("/rn/b", "utf8"), "a");
    await fs.rename("/rn/b", "/rn/b");
    await assert.rejects(fs.rename("/rn/none", "/rn/x"), fails("ENOENT", "rename", "/rn/none"));
    await assert.rejects(fs.rename("/rn/b", "/none/x"), fails("ENOENT", "rename", "/none/x"));
    await assert.rejects(fs.rename("/rn/b", "/text/x"), fails("ENOTDIR", "rename", "/text/x"));
    await assert.rejects(fs.rename("/", "/x"), fails("EPERM", "rename", "/"));
    await assert.rejects(fs.rename("/rn/b", "/"), fails("EPERM", "rename", "/"));
  });
  test("rename of directories", async () => {
    await fs.writeFile("/rd1/x/f", "f");
    await fs.mkdir("/rd2");
    await fs.rename("/rd1", "/rd2");
    assert.equal(await fs.readFile("/rd2/x/f", "utf8"), "f");
    await fs.writeFile("/full/f", "");
    await fs.writeFile("/plain", "");
    await assert.rejects(fs.rename("/rd2", "/full"), fails("ENOTEMPTY", "rename", "/full"));
    await assert.rejects(fs.rename("/plain", "/full"), fails("EISDIR", "rename", "/full"));
    await assert.rejects(fs.rename("/full", "/plain"), fails("ENOTDIR", "rename", "/plain"));
    await assert.rejects(fs.rename("/rd2", "/rd2/below"), fails("EINVAL", "rename", "/rd2/below"));
  });
  test("copyFile", async () => {
    await fs.writeFile("/cp/a", Buffer.alloc(100_000, 7));
    await fs.writeFile("/cp/b", "old");
    await fs.copyFile("/cp/a", "/cp/b");
    await fs.copyFile("/cp/a", "/cp/c");
    await fs.writeFile("/cp/a", "changed");
    for (const name of ["/cp/b", "/cp/c"]) assert.ok((await fs.readFile(name)).equals(Buffer.alloc(100_000, 7)));
    await assert.rejects(fs.copyFile("/cp/a", "/cp/a"), fails("EINVAL", "copyfile", "/cp/a"));
    await assert.rejects(fs.copyFile("/cp/none", "/cp/x"), fails("ENOENT", "copyfile", "/cp/none"));
    await assert.rejects(fs.copyFile("/cp", "/cp/x"), fails("EISDIR", "copyfile", "/cp"));
    await assert.rejects(fs.copyFile("/cp/a", "/cp"), fails("EISDIR", "copyfile", "/cp"));
    await assert.rejects(fs.copyFile("/cp/a", "/none/x"), fails("ENOENT", "copyfile", "/none/x"));
    await assert.rejects(fs.copyFile("/cp/a", "/text/x"), fails("ENOTDIR", "copyfile", "/text/x"));
  });
  test("symlink and readlink", async () => {
    await fs.mkdir("/sl");
    await fs.symlink("../text", "/sl/link");
    assert.equal(await fs.readlink("/sl/link"), "../text");
    assert.ok((await fs.lstat("/sl/link")).isSymbolicLink());
    assert.equal((await fs.lstat("/sl/link")).size, 7);
    await assert.rejects(fs.symlink("x", "/sl/link"), fails("EEXIST", "open", "/sl/link"));
    await assert.rejects(fs.symlink("x", "/none/link"), fails("ENOENT", "open", "/none/link"));
    await assert.rejects(fs.readlink("/text"), fails("EINVAL", "open", "/text"));
    await assert.rejects(fs.readlink("/sl/none"), fails("ENOENT", "open", "/sl/none"));
    await fs.symlink("/nowhere", "/sl/dangling");
    assert.equal(await fs.readlink("/sl/dangling"), "/nowhere");
  });
  test("access", async () => {
    await fs.access("/text");
    await fs.access("/");
    await assert.rejects(fs.access("/nothing"), fails("ENOENT", "access", "/nothing"));
  });
  test("statfs counts", async () => {
    const first = await fs.statfs();
    await fs.writeFile("/count/f", Buffer.alloc(10_000));
    const second = await fs.statfs();
    assert.deepEqual([second.inodes - first.inodes, second.bytesUsed - first.bytesUsed], [2, 10_000]);
    await fs.rm("/count", { recursive: true });
    assert.deepEqual(await fs.statfs(), first);
  });
  test("an open file is read and written at offsets", async () => {
    await fs.writeFile("/open", "0123456789");
    const file = await fs.open("/open");
    assert.equal((await file.pread(3, 4)).toString(), "3456");
    assert.equal((await file.pread(8, 100)).toString(), "89");
    assert.equal((await file.pread(100, 5)).length, 0);
    await file.pwrite(8, Buffer.from("abc"));
    await file.pwrite(20, Buffer.from("z"));
    await file.pwrite(0, Buffer.alloc(0));
    assert.equal((await fs.readFile("/open")).toString("latin1"), `01234567abc${"\0".repeat(9)}z`);
    await file.truncate(4);
    await file.fsync();
    assert.equal(await fs.readFile("/open", "utf8"), "0123");
    assert.equal((await file.fstat()).size, 4);
    await file.truncate(0);
    assert.equal((await file.fstat()).size, 0);
    await assert.rejects(fs.open("/not-there"), fails("ENOENT", "open", "/not-there"));
  });
  test("an open file follows a renaming", async () => {
    await fs.writeFile("/follow", "x");
    const file = await fs.open("/follow");
    await fs.rename("/follow", "/followed");
    await file.pwrite(0, Buffer.from("y"));
    assert.equal(await fs.readFile("/followed", "utf8"), "y");
  });
  test("a large file is written at its offsets", async () => {
    await fs.writeFile("/large", "");
    const file = await fs.open("/large");
    for (let i = 0; i < 20; i++) await file.pwrite(i * 10_000, Buffer.alloc(10_000, i));
    const content = await fs.readFile("/large");
    assert.equal(content.length, 200_000);
    assert.deepEqual([content[0], content[99_999], content[199_999]], [0, 9, 19]);
  });
});

describe("keys", () => {
  let agent;
  let kv;
  before(async () => {
    agent = await AgentFS.open({ path: join(dir, "kv.db") });
    kv = agent.kv;
  });
  after(() => agent.close());

  for (const value of ["text", "", 0, -1.5, true, false, null, [], [1, "two", null], {}, { a: { b: [1] } }, "ünï \"q\" \\ \n", "x".repeat(100_000)]) {
    test(`a value ${JSON.stringify(value).slice(0, 30)}`, async () => {
      await kv.set("value", value);
      assert.deepEqual(await kv.get("value"), value);
    });
  }
  test("a key that is not there", async () => {
    assert.equal(await kv.get("none"), undefined);
    await kv.delete("none");
  });
  test("setting again, and deleting", async () => {
    await kv.set("again", 1);
    await kv.set("again", 2);
    assert.equal(await kv.get("again"), 2);
    await kv.delete("again");
    assert.equal(await kv.get("again"), undefined);
  });
  test("keys by their beginning", async () => {
    for (const key of ["p:b", "p:a", "p_x", "q:a", "p%y"]) await kv.set(key, key);
    const sorted = async (prefix) => (await kv.list(prefix)).map((e) => e.key).sort();
    assert.deepEqual(await sorted("p:"), ["p:a", "p:b"]);
    assert.deepEqual(await sorted("p_"), ["p_x"]);
    assert.deepEqual(await sorted("p%"), ["p%y"]);
    assert.deepEqual(await kv.list("zzz"), []);
    assert.deepEqual(await kv.list("q"), [{ key: "q:a", value: "q:a" }]);
  });
  test("keys may have any characters", async () => {
    for (const key of ["a/b", "a b", "ünï", "quo'te\"", "x".repeat(500)]) {
      await kv.set(key, key);
      assert.equal(await kv.get(key), key);
    }
  });
});

describe("tool calls", () => {
  let agent;
  let tools;
  before(async () => {
    agent = await AgentFS.open({ path: join(dir, "tools.db") });
    tools = agent.tools;
  });
  after(() => agent.close());

  test("a call begins and ends", async () => {
    const id = await tools.start("one", { q: "x", n: [1] });
    const pending = await tools.get(id);
    assert.deepEqual([pending.id, pending.name, pending.status, pending.parameters], [id, "one", "pending", { q: "x", n: [1] }]);
    assert.deepEqual([pending.result, pending.error, pending.completed_at, pending.duration_ms], [undefined, undefined, undefined, undefined]);
    assert.ok(Math.abs(pending.started_at - Date.now() / 1000) < 60);
    await tools.success(id, { found: 2 });
    const ended = await tools.get(id);
    assert.deepEqual([ended.status, ended.result, ended.error], ["success", { found: 2 }, undefined]);
    assert.ok(ended.completed_at >= ended.started_at && ended.duration_ms >= 0);
  });
  test("a call fails", async () => {
    const id = await tools.start("two");
    await tools.error(id, "no such thing");
    const ended = await tools.get(id);
    assert.deepEqual([ended.status, ended.error, ended.result, ended.parameters], ["error", "no such thing", undefined, undefined]);
  });
  test("a call without a result", async () => {
    const id = await tools.start("three", null);
    await tools.success(id);
    const call = await tools.get(id);
    assert.deepEqual([call.status, call.result, call.parameters], ["success", undefined, null]);
  });
  test("a call that is not there", async () => {
    assert.equal(await tools.get(99_999), undefined);
    await assert.rejects(tools.success(99_999, 1), { message: "Tool call with ID 99999 not found" });
    await assert.rejects(tools.error(99_999, "x"), { message: "Tool call with ID 99999 not found" });
  });
  test("ids grow", async () => {
    const [a, b] = [await tools.start("ids"), await tools.start("ids")];
    assert.equal(b, a + 1);
  });
  test("a call is recorded when it is over", async () => {
    const id = await tools.record("past", 1_000_000, 1_000_003, { a: 1 }, { b: 2 });
    const call = await tools.get(id);
    assert.deepEqual([call.started_at, call.completed_at, call.duration_ms, call.status], [1_000_000, 1_000_003, 3000, "success"]);
    assert.deepEqual([call.parameters, call.result], [{ a: 1 }, { b: 2 }]);
    const failed = await tools.get(await tools.record("past", 1_000_010, 1_000_010, undefined, undefined, "bad"));
    assert.deepEqual([failed.status, failed.error, failed.parameters], ["error", "bad", undefined]);
  });
  test("calls by name, the last started first", async () => {
    for (const start of [300, 100, 200]) await tools.record("named", start, start + 1);
    assert.deepEqual((await tools.getByName("named")).map((c) => c.started_at), [300, 200, 100]);
    assert.deepEqual((await tools.getByName("named", 2)).map((c) => c.started_at), [300, 200]);
    assert.deepEqual(await tools.getByName("nobody"), []);
  });
  test("recent calls", async () => {
    const future = Math.floor(Date.now() / 1000) - 10;
    await tools.record("recent", future + 5, future + 5);
    const recent = await tools.getRecent(future);
    assert.ok(recent.length > 5 && recent.every((c) => c.started_at > future));
    assert.ok(recent.every((c, i) => i === 0 || recent[i - 1].started_at >= c.started_at));
    assert.equal((await tools.getRecent(0, 3)).length, 3);
    assert.deepEqual(await tools.getRecent(future + 1_000_000), []);
  });
  test("statistics leave out what has not ended", async () => {
    for (const [result, error] of [[1], [2], [undefined, "no"]]) await tools.record("stats", 500, 502, {}, result, error);
    await tools.start("stats");
    await tools.start("never ended");
    const stats = await tools.getStats();
    const one = stats.find((s) => s.name === "stats");
    assert.deepEqual({ ...one }, { name: "stats", total_calls: 3, successful: 2, failed: 1, avg_duration_ms: 2000 });
    assert.ok(!stats.some((s) => s.name === "never ended"));
    assert.ok(stats.every((s, i) => i === 0 || stats[i - 1].total_calls >= s.total_calls));
  });
  test("fifty calls at once", async () => {
    const ids = await Promise.all(Array.from({ length: 50 }, (_, i) => tools.start("many", i)));
    assert.equal(new Set(ids).size, 50);
    await Promise.all(ids.map((id) => tools.success(id, id)));
    assert.ok((await tools.getByName("many")).every((c) => c.status === "success" && c.result === c.id));
  });
});
