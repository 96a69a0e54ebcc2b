import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, symlinkSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { AbortedError, type AgentVfsError, BrokenError, Client, NoDaemonError, VersionError, Workspace } from "agentvfs";
import { home, isAlive, random, root, until, workspace } from "./env.js";

const pidOf = async (client: Client) => (await client.hello()).pid;

/** A daemon that answers each line by what `answer` says; `null` ends the connection. */
async function fake(name: string, answer: (request: { id: number; method: string; params: Record<string, unknown> }) => object | null | undefined): Promise<[Client, Server]> {
  const dir = join(root, name);
  mkdirSync(dir);
  const server = createServer((socket: Socket) => {
    let rest = "";
    socket.on("error", () => {});
    socket.on("data", (part: Buffer) => {
      const lines = (rest + part.toString()).split("\n");
      rest = lines.pop()!;
      for (const line of lines) {
        const request = JSON.parse(line) as { id: number; method: string; params: Record<string, unknown> };
        const said = answer(request);
        if (said === null) socket.destroy();
        else if (said !== undefined) socket.write(JSON.stringify({ jsonrpc: "2.0", id: request.id, ...said }) + "\n");
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(join(dir, "daemon.sock"), resolve));
  return [new Client({ home: dir, program: "/bin/false" }), server];
}

const HELLO = { result: { protocol: 1, version: "0", build: "0", pid: 1 } };

test("a daemon of another version is refused by a clear error", async () => {
  const [older, first] = await fake("older", () => ({ error: { code: -32002, message: "the daemon (9) speaks protocol 9, the client 1" } }));
  await assert.rejects(older.call("workspace.list"), (error: VersionError) => {
    return error instanceof VersionError && error.kind === "version" && /speaks protocol 9/.test(error.message) && error.hint !== null;
  });
  const [newer, second] = await fake("newer", () => ({ result: { protocol: 2, version: "9", build: "9", pid: 1 } }));
  await assert.rejects(newer.call("workspace.list"), VersionError);
  const [lacks, third] = await fake("lacks", ({ method }) => (method === "hello" ? HELLO : { error: { code: -32601, message: "no method" } }));
  await assert.rejects(lacks.call("fs.copy"), { kind: "no-such-method" });
  for (const each of [older, newer, lacks]) each.close();
  for (const server of [first, second, third]) server.close();
});

test("a daemon that knows no requests at once is asked one after the other", async () => {
  let open = 0;
  const [client, server] = await fake("one", ({ method, params }) => {
    if (method === "hello") return params.in_flight === undefined ? HELLO : { error: { code: -32602, message: "unknown field" } };
    open++;
    return { result: open };
  });
  const all = await Promise.all(Array.from({ length: 50 }, () => client.call<number>("workspace.list")));
  assert.equal(new Set(all).size, 50);
  client.close();
  server.close();
});

test("only what reads is sent again when the connection ends", async () => {
  const seen: string[] = [];
  const [client, server] = await fake("ends", ({ method }) => {
    if (method === "hello") return HELLO;
    seen.push(method);
    return seen.length % 2 === 1 ? null : { result: {} };
  });
  await client.call("fs.stat");
  await assert.rejects(client.call("fs.write"), BrokenError);
  await client.call("fs.write");
  assert.deepEqual(seen, ["fs.stat", "fs.stat", "fs.write", "fs.write"]);
  client.close();
  server.close();
});

test("what need not wait for the disk says so, and nothing else does", async () => {
  const seen: unknown[] = [];
  const [client, server] = await fake("unsynced", ({ method, params }) => {
    if (method === "hello") return HELLO;
    seen.push([method, params.unsynced ?? false]);
    return { result: { id: 1, version: { inode: 1, change: 1 } } };
  });
  const ws = new Workspace(client, "w");
  for (const unsynced of [true, false]) {
    await ws.files.write("a", "x", { unsynced });
    await ws.kv.set("k", 1, { unsynced });
    await ws.kv.delete("k", { unsynced });
    await ws.tools.start("t", {}, { unsynced });
  }
  const methods = ["fs.write", "kv.set", "kv.delete", "tool.start"];
  assert.deepEqual(seen, [true, false].flatMap((unsynced) => methods.map((method) => [method, unsynced])));
  client.close();
  server.close();
});

test("a request that was not begun is sent again", async () => {
  let told = 0;
  const [client, server] = await fake("ending", ({ method }) => {
    if (method === "hello") return HELLO;
    return ++told < 4 ? { error: { code: -32001, message: "the daemon is shutting down" } } : { result: { told } };
  });
  assert.deepEqual(await client.call("fs.write"), { told: 4 });
  client.close();
  server.close();
});

test("what a dead daemon cannot have read is sent again", async (t) => {
  const seen: string[] = [];
  let unreading: Socket | undefined;
  const [client, server] = await fake("unread", ({ method }) => {
    if (method === "hello") return HELLO;
    seen.push(method);
    return { result: { told: seen.length } };
  });
  t.after(() => (client.close(), server.close()));
  const opened = new Promise<void>((resolve) => server.once("connection", (socket: Socket) => {
    // From its hello on it reads nothing.
    socket.once("data", () => {
      // `pause` would go on reading into its own memory.
      (socket as unknown as { _handle: { readStop(): void } })._handle.readStop();
      unreading = socket;
      resolve();
    });
  }));
  const connection = await (client as unknown as { take(): Promise<{ inFlight: number }> }).take();
  await opened;
  const call = client.call("fs.write");
  await until("the request was sent", () => connection.inFlight > 0);
  unreading!.destroy();
  assert.deepEqual(await call, { told: 1 });
  assert.deepEqual(seen, ["fs.write"]);
});

test("all connections of a dead daemon are dropped", async (t) => {
  let connections = 0;
  const waiting: (() => void)[] = [];
  const dir = join(root, "several");
  mkdirSync(dir);
  const server = createServer((socket: Socket) => {
    const own = ++connections;
    socket.on("error", () => {});
    socket.on("data", (part: Buffer) => {
      for (const line of part.toString().split("\n").filter(Boolean)) {
        const { id, method, params } = JSON.parse(line) as { id: number; method: string; params: { path?: string } };
        const say = (result: object) => socket.write(JSON.stringify({ jsonrpc: "2.0", id, result }) + "\n");
        if (method === "hello") say({ ...HELLO.result, pid: own > 2 ? 2 : 1 });
        else if (params.path === "end") socket.destroy();
        else if (own > 2 || params.path === "next") say({ own });
        // The first two requests wait for each other, so that there are two connections.
        else if (waiting.push(() => say({ own })) >= 2) for (const go of waiting.splice(0, waiting.length)) go();
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(join(dir, "daemon.sock"), resolve));
  const client = new Client({ home: dir, program: "/bin/false" });
  t.after(() => (client.close(), server.close()));
  await Promise.all([client.call("fs.write"), client.call("fs.write")]);
  assert.equal(connections, 2);
  await assert.rejects(client.call("fs.write", { path: "end" }), BrokenError);
  assert.deepEqual(await client.call("fs.write", { path: "next" }), { own: 3 });
});

test("an abort rejects a call that was not answered, whose answer may still come", async (t) => {
  const late: (() => void)[] = [];
  const dir = join(root, "late");
  mkdirSync(dir);
  const server = createServer((socket: Socket) => {
    socket.on("error", () => {});
    socket.on("data", (part: Buffer) => {
      for (const line of part.toString().split("\n").filter(Boolean)) {
        const { id, method } = JSON.parse(line) as { id: number; method: string };
        const say = (result: object) => socket.write(JSON.stringify({ jsonrpc: "2.0", id, result }) + "\n");
        if (method === "hello") say({ ...HELLO.result, in_flight: 4 });
        else if (method === "fs.write") late.push(() => say({ late: true }));
        else say({ method });
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(join(dir, "daemon.sock"), resolve));
  const client = new Client({ home: dir, program: "/bin/false" });
  t.after(() => (client.close(), server.close()));
  const controller = new AbortController();
  const reason = new Error("enough");
  const call = client.call("fs.write", {}, { signal: controller.signal });
  call.catch(() => {});
  await until("the request has come", () => late.length === 1);
  controller.abort(reason);
  for (const answer of late) answer();
  const next = client.call("fs.stat");
  const first = await Promise.race([call, next]).catch((error: unknown) => error);
  assert.ok(first instanceof AbortedError && first.cause === reason, String(first));
  assert.deepEqual(await next, { method: "fs.stat" });
});

test("what a daemon says that is no message breaks the connection alone", async () => {
  const [client, server] = await fake("garbage", () => undefined);
  server.on("connection", (socket: Socket) => socket.write("garbage\n"));
  await assert.rejects(client.call("fs.write"), NoDaemonError);
  client.close();
  server.close();
});

test("a program that is missing, and one that fails, are one clear error", async () => {
  const missing = new Client({ home: join(root, "new"), program: "no-such-agentvfs" });
  await assert.rejects(missing.call("workspace.list"), (error: NoDaemonError) => {
    return error instanceof NoDaemonError && error.kind === "no-program" && /no-such-agentvfs was not found/.test(error.message) && /AGENTVFS_BIN/.test(error.hint!);
  });
  const fails = new Client({ home: join(root, "new"), program: "/bin/false" });
  await assert.rejects(fails.call("workspace.list"), /ended with status 1/);
  const bad = new Client({ home: "/dev/null" });
  await assert.rejects(bad.call("workspace.list"), NoDaemonError);
  // What could not be started does not keep later calls from being tried.
  const ws = await workspace();
  assert.equal(await ws.files.readText("a.txt"), "hello\n");
});

test("the socket of a home with a long path is found", async () => {
  const long = join(root, "l".repeat(100), "m".repeat(100));
  mkdirSync(long, { recursive: true });
  symlinkSync(long, join(root, "short"));
  const list = execFileSync(new Client().program, ["list", "--json"], { env: { ...process.env, AGENTVFS_HOME: long } });
  assert.match(list.toString(), /workspaces/);
  const client = new Client({ home: join(root, "short") });
  assert.ok(client.home.socket.length < 100);
  assert.deepEqual(await Workspace.list({ client }), []);
  const pid = await pidOf(client);
  client.close();
  await until("the daemon without workspaces has ended", () => !isAlive(pid));
  rmSync(join(root, "short"));
});

test("eight clients at once", async () => {
  const next = random();
  const first = await workspace();
  const clients = Array.from({ length: 8 }, () => new Workspace(new Client(), first.name));
  const sums = await Promise.all(
    clients.map(async (ws, c) => {
      const model = new Map<string, string>();
      for (let round = 0; round < 40; round++) {
        const name = `c${c}/f${next(5)}`;
        const content = `${c} ${round} ${"x".repeat(next(3000))}`;
        const what = next(4);
        if (what === 0 && model.delete(name)) await ws.files.remove(name);
        else if (what === 1) await ws.kv.set(`k${c}`, round);
        else if (what === 2) assert.equal(await ws.files.readText(name).catch(() => undefined), model.get(name));
        else {
          await ws.files.write(name, content, { parents: true });
          model.set(name, content);
        }
      }
      return model;
    }),
  );
  for (const [c, model] of sums.entries()) {
    const there = await first.files.list(`c${c}`).catch(() => []);
    assert.deepEqual(there.map((e) => `c${c}/${e.name}`), [...model.keys()].sort());
    for (const [name, content] of model) assert.equal(await clients[(c + 1) % 8]!.files.readText(name), content);
  }
  for (const ws of clients) ws.close();
});

test("the daemon is killed: one documented error, and the next call works", async () => {
  const next = random();
  const ws = await workspace();
  let broken = 0;
  for (let round = 0; round < 12; round++) {
    const pid = await pidOf(ws.client);
    const name = `f${round}`;
    const writing = Array.from({ length: 20 }, (_, i) => ws.files.append(name, `${i} `).then(() => true, (error: unknown) => {
      assert.ok(error instanceof BrokenError && error.kind === "broken", String(error));
      return false;
    }));
    const reading = ws.files.readText("a.txt");
    await new Promise((resolve) => setTimeout(resolve, next(30)));
    process.kill(pid, "SIGKILL");
    const done = await Promise.all(writing);
    broken += done.filter((one) => !one).length;
    // What only reads is asked once more, of the next daemon.
    assert.equal(await reading, "hello\n");
    await ws.files.write("next", String(round));
    assert.equal(await ws.files.readText("next"), String(round));
    assert.notEqual(await pidOf(ws.client), pid);
    const kept = await ws.files.readText(name).catch(() => "");
    for (const [i, sure] of done.entries()) if (sure) assert.ok(` ${kept}`.includes(` ${i} `), `${name}: ${i} was acknowledged and is lost`);
  }
  console.log(`${broken} calls of 240 were broken`);
});

test("a handle ends with its daemon, and says so", async () => {
  const ws = await workspace();
  const file = await ws.files.open("a.txt");
  process.kill(await pidOf(ws.client), "SIGKILL");
  await assert.rejects(async () => {
    for (;;) await file.read(0, 1);
  }, (error: AgentVfsError) => ["broken", "no-such-handle"].includes(error.kind));
  await assert.rejects(file.read(0, 1), { kind: "no-such-handle", code: "EBADF" });
  await file.close();
  assert.equal(await ws.files.readText("a.txt"), "hello\n");
});

test("an abort ends a call, and the connection goes on", async () => {
  const ws = await workspace();
  const reason = new Error("enough");
  const before = AbortSignal.abort(reason);
  await assert.rejects(ws.files.read("a.txt", { signal: before }), (error: AbortedError) => {
    return error instanceof AbortedError && error.name === "AbortError" && error.code === "ABORT_ERR" && error.cause === reason;
  });
  for (let round = 0; round < 50; round++) {
    const controller = new AbortController();
    const calls = Array.from({ length: 30 }, (_, i) => ws.files.write(`f${i}`, "x", { signal: controller.signal }));
    setTimeout(() => controller.abort(reason), round % 10);
    for (const { status, ...rest } of await Promise.allSettled(calls)) {
      if (status === "rejected") assert.equal((rest as { reason: AbortedError }).reason.cause, reason);
    }
    assert.equal(await ws.files.readText("a.txt"), "hello\n");
  }
  const controller = new AbortController();
  const stream = ws.files.createReadStream("a.txt", { signal: controller.signal });
  controller.abort(reason);
  await assert.rejects(async () => {
    for await (const _ of stream);
  }, { name: "AbortError" });
  const merge = ws.update({ signal: AbortSignal.abort() });
  await assert.rejects(merge, { name: "AbortError" });
});

test("a client that waits for nothing lets its process end", () => {
  const program = `import { Workspace } from "agentvfs"; console.log((await Workspace.open("w1", { start: false })).name)`;
  const out = execFileSync(process.execPath, ["--input-type=module", "-e", program], { timeout: 20_000, env: process.env });
  assert.equal(out.toString(), "w1\n");
  assert.ok(home.startsWith(root));
});
