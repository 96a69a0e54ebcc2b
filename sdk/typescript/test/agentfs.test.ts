import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Workspace } from "agentvfs";
import { AgentFS, Filesystem, KvStore, ToolCalls } from "agentvfs/agentfs";
import { Database } from "agentvfs/agentfs/database";
import { agentfs } from "agentvfs/agentfs/just-bash";
import { WorkspaceFs } from "agentvfs/just-bash";
import { isAlive, root, until, workspace } from "./env.js";

const at = (name: string) => join(root, name);
/** Whether `:memory:` is in memory here. */
const hasRoom = statfsSync("/dev/shm").bavail * statfsSync("/dev/shm").bsize >= 256 * 1024 * 1024;

test("an id or path is a small file that names the workspace", async () => {
  const cwd = process.cwd();
  mkdirSync(at("cwd"));
  process.chdir(at("cwd"));
  try {
    const agent = await AgentFS.open({ id: "my-agent" });
    await agent.fs.writeFile("/notes.md", "a plan");
    const { name } = await agent.workspace();
    assert.equal(readFileSync(".agentfs/my-agent.db", "utf8"), `agentvfs 1\nworkspace=${name}\n`);
    assert.match(name, /^my-agent-[0-9a-f]{10}$/);
    await agent.close();
    await agent.close();
    // Closing ends the connections alone: others may use the workspace.
    assert.equal((await Workspace.list()).find((one) => one.name === name)?.status, "started");
    await assert.rejects(agent.fs.readFile("/notes.md"), { kind: "closed" });
    const again = await AgentFS.open({ id: "my-agent" });
    assert.equal(await again.fs.readFile("/notes.md", "utf8"), "a plan");
    // Nothing else is left in the directory.
    assert.deepEqual(readdirSync(".agentfs"), ["my-agent.db"]);
    const ws = await again.workspace();
    await ws.stop();
    // A workspace that somebody stopped is started again.
    await again.fs.writeFile("/notes.md", "more");
    await again.close();
    rmSync(".agentfs/my-agent.db");
    const fresh = await AgentFS.open({ id: "my-agent" });
    assert.deepEqual(await fresh.fs.readdir("/"), []);
    await fresh.close();
  } finally {
    process.chdir(cwd);
  }
});

test("a workspace may begin with a project", async () => {
  mkdirSync(at("project"));
  writeFileSync(join(at("project"), "there"), "before");
  const agent = await AgentFS.open({ path: at("based.db"), base: at("project") });
  assert.equal(await agent.fs.readFile("/there", "utf8"), "before");
  await agent.close();
});

test("files that name nothing known are refused", async () => {
  writeFileSync(at("text.db"), "some text\n");
  await assert.rejects(AgentFS.open({ path: at("text.db") }), { kind: "bad-file" });
  writeFileSync(at("newer.db"), "agentvfs 2\nsomething=else\n");
  await assert.rejects(AgentFS.open({ path: at("newer.db") }), /newer agentvfs/);
  writeFileSync(at("gone.db"), "agentvfs 1\nworkspace=gone\n");
  await assert.rejects(AgentFS.open({ path: at("gone.db") }), (error: Error) => /gone\.db names the workspace gone/.test(error.message));
  writeFileSync(at("empty.db"), "");
  const agent = await AgentFS.open({ path: at("empty.db") });
  await agent.close();
  assert.match(readFileSync(at("empty.db"), "utf8"), /^agentvfs 1\n/);
  await assert.rejects(AgentFS.open({}), /requires at least/);
  await assert.rejects(AgentFS.open({ id: "../x" }), /alphanumeric/);
});

test("a database is imported once, and kept", async () => {
  const first = await AgentFS.open({ path: at("first.db") });
  await first.fs.writeFile("/dir/file", "content");
  await first.kv.set("k", [1]);
  const id = await first.tools.start("search", { q: 1 });
  await first.tools.success(id, "found");
  await first.close({ export: at("second.db") });
  copyFileSync(at("second.db"), at("copy.db"));
  const opened = await Promise.all(Array.from({ length: 3 }, () => AgentFS.open({ path: at("second.db") })));
  const names = await Promise.all(opened.map(async (agent) => (await agent.workspace()).name));
  assert.equal(new Set(names).size, 1);
  for (const agent of opened) {
    assert.equal(await agent.fs.readFile("/dir/file", "utf8"), "content");
    assert.deepEqual(await agent.kv.get("k"), [1]);
    const call = await agent.tools.get(id);
    assert.deepEqual([call?.name, call?.parameters, call?.result], ["search", { q: 1 }, "found"]);
  }
  await Promise.all(opened.map((agent) => agent.close()));
  assert.deepEqual(readFileSync(at("second.db.orig")), readFileSync(at("copy.db")));
  assert.equal(existsSync(at("second.db.lock")), false);
  writeFileSync(at("damaged.db"), Buffer.concat([readFileSync(at("copy.db")).subarray(0, 100), Buffer.alloc(4000)]));
  const before = readFileSync(at("damaged.db"));
  await assert.rejects(AgentFS.open({ path: at("damaged.db") }));
  assert.deepEqual(readFileSync(at("damaged.db")), before);
});

test("a lock whose process is gone is taken over", async () => {
  writeFileSync(at("locked.db.lock"), "4194305\n");
  const agent = await AgentFS.open({ path: at("locked.db") });
  await agent.close();
  assert.equal(existsSync(at("locked.db.lock")), false);
});

test(":memory: is a workspace that nobody else sees, and is deleted at close", async () => {
  const agents = await Promise.all([1, 2, 3].map(() => AgentFS.open({ path: ":memory:" })));
  for (const [i, agent] of agents.entries()) await agent.fs.writeFile("/x", `${i}`);
  for (const [i, agent] of agents.entries()) assert.equal(await agent.fs.readFile("/x", "utf8"), `${i}`);
  const workspaces = await Promise.all(agents.map((agent) => agent.workspace()));
  const { client } = workspaces[0]!;
  assert.ok(!hasRoom || client.home.root.startsWith("/dev/shm/agentvfs-memory-"), client.home.root);
  const names = async () => (await Workspace.list({ home: client.home.root })).map((one) => one.name);
  const own = (all: string[]) => all.filter((name) => workspaces.some((one) => one.name === name)).sort();
  assert.deepEqual(own(await names()), workspaces.map((one) => one.name).sort());
  const usual = (await Workspace.list()).map((one) => one.name);
  assert.deepEqual(own(usual), hasRoom ? [] : own(await names()));
  await workspaces[0]!.checkpoint({ label: "one" });
  await agents[0]!.fs.writeFile("/x", "later");
  await workspaces[0]!.rollback("one");
  assert.equal(await agents[0]!.fs.readFile("/x", "utf8"), "0");
  for (const agent of agents) await agent.close();
  await until("the workspaces are deleted", async () => own(await names()).length === 0);
});

test(":memory: opened again and again is empty each time, and what was closed does not stay", async () => {
  const names = new Set<string>();
  let home = "";
  for (let round = 0; round < 20; round++) {
    const agent = await AgentFS.open({ path: ":memory:" });
    assert.deepEqual(await agent.fs.readdir("/"), []);
    assert.deepEqual([await agent.kv.list(""), await agent.tools.getRecent(0)], [[], []]);
    await agent.fs.writeFile("/x", `${round}`);
    await agent.kv.set("k", round);
    await agent.tools.start("t");
    const { name, client } = await agent.workspace();
    home = client.home.root;
    names.add(name);
    await agent.close();
    await assert.rejects(agent.fs.readFile("/x"), { kind: "closed" });
  }
  assert.equal(names.size, 20, "no workspace is given twice");
  const left = async () => (await Workspace.list({ home })).filter((one) => names.has(one.name)).length;
  await until("the workspaces are deleted", async () => (await left()) === 0);
});

test(":memory: begins with a project where one is named", async () => {
  mkdirSync(at("seed"));
  writeFileSync(join(at("seed"), "there"), "before");
  const agent = await AgentFS.open({ path: ":memory:", base: at("seed") });
  await agent.fs.writeFile("/there", "after");
  assert.equal(await agent.fs.readFile("/there", "utf8"), "after");
  await agent.close();
  assert.equal(readFileSync(join(at("seed"), "there"), "utf8"), "before");
});

for (const end of ["SIGKILL", "its end"]) {
  test(`:memory: goes with its process: ${end}`, { skip: hasRoom ? false : "/dev/shm has less than 256 MiB" }, async () => {
    const program = `
      import { AgentFS } from "agentvfs/agentfs";
      const agent = await AgentFS.open({ path: ":memory:" });
      await agent.fs.writeFile("/x", "x");
      const { client } = await agent.workspace();
      console.log(JSON.stringify([client.home.root, (await client.hello()).pid]));
      if (process.argv[1] === "SIGKILL") process.kill(process.pid, "SIGKILL");`;
    const { stdout } = spawnSync(process.execPath, ["--input-type=module", "-e", program, end], { encoding: "utf8", timeout: 60_000 });
    const [home, daemon] = JSON.parse(stdout) as [string, number];
    await until("the home in memory is gone", () => !existsSync(join(home, "..")));
    await until("its daemon is gone", () => !isAlive(daemon));
    assert.ok(!readFileSync("/proc/self/mountinfo", "utf8").includes(home));
  });
}

test("the parts open on a database of their own, and SQL only reads", async () => {
  const db = new Database(at("parts.db"));
  await db.connect();
  const [fs, kv, tools] = [await Filesystem.fromDatabase(db), await KvStore.fromDatabase(db), await ToolCalls.fromDatabase(db)];
  await fs.writeFile("/a", "x");
  await kv.set("k", 1);
  assert.equal(typeof (await tools.start("t")), "number");
  await db.exec("PRAGMA synchronous = FULL");
  await assert.rejects(db.exec("DELETE FROM fs_data"), { kind: "read-only" });
  assert.throws(() => db.prepare("INSERT INTO kv_store VALUES (1, 2)"), { kind: "read-only" });
  const asked = db.prepare("SELECT key, value FROM kv_store WHERE key = ?").all("k");
  const hasSqlite = await import("node:sqlite" as string).then(() => true, () => false);
  if (hasSqlite) assert.deepEqual(await asked, [{ key: "k", value: "1" }]);
  // Node 20 has none: one error that says what to do.
  else await assert.rejects(asked, { kind: "no-sqlite", hint: "npm install better-sqlite3, or use Node 22.13 or later" });
  await db.close();
});

test("open files survive renaming and removal, and the daemon's end", async () => {
  const agent = await AgentFS.open({ path: at("handles.db") });
  await agent.fs.writeFile("/f", "0123456789");
  const file = await agent.fs.open("/f");
  await file.pwrite(8, Buffer.from("abcd"));
  assert.equal((await file.pread(6, 100)).toString(), "67abcd");
  process.kill((await (await agent.workspace()).client.hello()).pid, "SIGKILL");
  assert.equal((await file.fstat()).size, 12);
  await agent.fs.unlink("/f");
  await file.truncate(4);
  await file.fsync();
  assert.equal((await file.pread(0, 100)).toString(), "0123");
  await file.close();
  await assert.rejects(agent.fs.open("/f"), { code: "ENOENT", syscall: "open", path: "/f" });
  await agent.close();
});

test("the real file system for just-bash: links, permissions, times", async () => {
  const ws = await workspace();
  const fs = new WorkspaceFs(ws);
  await fs.writeFile("/new/deep/file", "aGk=", "base64");
  assert.equal(await fs.readFile("/new/deep/../deep/file"), "hi");
  await fs.appendFile("/new/deep/file", "!");
  await fs.symlink("deep/file", "/new/link");
  await fs.symlink("/new/deep", "/new/absolute");
  assert.equal(await fs.readFile("/new/link"), "hi!");
  assert.equal(await fs.readFile("/new/absolute/file"), "hi!");
  assert.deepEqual([(await fs.lstat("/new/link")).isSymbolicLink, (await fs.stat("/new/link")).size], [true, 3]);
  assert.equal(await fs.realpath("/new/absolute/../absolute/file"), "/new/deep/file");
  await assert.rejects(fs.realpath("/new/nowhere"), /^Error: ENOENT: no such file or directory, realpath/);
  await fs.chmod("/new/deep/file", 0o755);
  assert.equal((await fs.stat("/new/deep/file")).mode, 0o755);
  await fs.link("/new/deep/file", "/new/hard");
  await fs.appendFile("/new/hard", "?");
  assert.equal(await fs.readFile("/new/deep/file"), "hi!?");
  await fs.utimes("/new/hard", new Date(0), new Date(86_400_000));
  assert.equal((await fs.stat("/new/hard")).mtime.getTime(), 86_400_000);
  await fs.cp("/new", "/copied", { recursive: true });
  assert.equal(await fs.readlink("/copied/link"), "deep/file");
  await assert.rejects(fs.cp("/new", "/new/below", { recursive: true }), /EINVAL/);
  await assert.rejects(fs.cp("/new", "/other"), /EISDIR/);
  await fs.mv("/copied", "/moved");
  assert.deepEqual((await fs.readdir("/moved")).sort(), ["absolute", "deep", "hard", "link"]);
  await assert.rejects(fs.rm("/moved"), /ENOTEMPTY/);
  await fs.rm("/moved", { recursive: true });
  assert.equal(await fs.exists("/moved"), false);
  await assert.rejects(fs.mkdir("/new"), /EEXIST/);
  const below = new WorkspaceFs(ws, "new");
  assert.equal(await below.readFile("/deep/file"), "hi!?");
});

test("agentfs-sdk's file system for just-bash takes what it is given", async () => {
  const agent = await AgentFS.open({ path: at("bash.db") });
  for (const given of [agent, agent.fs]) {
    const fs = await agentfs(given, "/mnt");
    await fs.writeFile("/mnt/x", "x");
    assert.equal(await agent.fs.readFile("/x", "utf8"), "x");
  }
  await agent.close();
});
