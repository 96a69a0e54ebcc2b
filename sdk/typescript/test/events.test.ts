import assert from "node:assert/strict";
import { lstatSync, mkdirSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { AbortedError, AgentVfsError, Client, type Event, type WatchOptions, Workspace } from "agentvfs";
import { isAlive, root, until, workspace } from "./env.js";

/** The events that there are. */
async function told(ws: Workspace, options: WatchOptions = {}): Promise<Event[]> {
  const all: Event[] = [];
  for await (const event of ws.watch({ ...options, follow: false })) all.push(event);
  return all;
}

/** Paths that were created since the first event that is kept. */
async function created(ws: Workspace, options: WatchOptions = {}): Promise<string[]> {
  return (await told(ws, { since: 0, ops: ["create"], ...options })).filter((event) => event.op === "create").map((event) => event.path);
}

/** The next event of an operation. */
async function nextOf(coming: AsyncGenerator<Event>, op: string): Promise<Event> {
  for (;;) {
    const { value, done } = await coming.next();
    if (done) throw new Error("no more events");
    if (value.op === op) return value;
  }
}

test("events come as they happen, and who comes back goes on", async () => {
  const ws = await workspace();
  assert.deepEqual(await told(ws), []);
  await ws.files.write("a", "x");
  const all = await told(ws, { since: 0 });
  assert.equal(all[0]!.op, "lost");
  const [made] = all.filter((event) => event.op === "create");
  assert.equal(made!.path, "a");
  assert.equal(made!.backend, "control");
  assert.ok(made!.ts > 1_600_000_000_000_000_000n && made!.extra.workspace === ws.name);
  const coming = ws.watch({ since: all.at(-1)!.extra.seq, ops: ["create"] });
  await ws.files.write("b", "x");
  assert.equal((await coming.next()).value!.path, "b");
  await ws.stop();
  assert.equal((await coming.next()).done, true);
  ws.close();
});

test("numbers of inodes are exact on every branch", async () => {
  const ws = await workspace();
  assert.deepEqual(await told(ws), []);
  const side = await ws.branches.create("side").then(() => ws.on("side"));
  await side.files.write("new", "x");
  const [event] = (await told(side, { since: 0, ops: ["create"] })).filter((one) => one.op === "create");
  const { mount } = await ws.info();
  const found = lstatSync(join(mount, ".agentvfs/branches/side/new"), { bigint: true });
  assert.ok(found.ino > 0n);
  assert.equal(event!.ino, found.ino);
  assert.equal(BigInt(event!.dev), found.dev);
  ws.close();
});

test("only what is wanted comes", async () => {
  const ws = await workspace();
  assert.deepEqual(await told(ws), []);
  await ws.branches.create("side");
  await ws.files.mkdir("d");
  await ws.files.write("d/x", "x");
  await ws.on("side").files.mkdir("e");
  assert.deepEqual(await created(ws), ["d", "d/x"]);
  assert.deepEqual(await created(ws, { paths: ["*x"] }), ["d/x"]);
  assert.deepEqual(await created(ws, { branches: [] }), ["d", "d/x", "e"]);
  ws.close();
});

test("events go on after the daemon was killed, and what was missed is told as lost", async () => {
  const ws = await workspace();
  assert.deepEqual(await told(ws), []);
  await ws.files.write("a", "x");
  const coming = ws.watch({ since: 0 });
  assert.equal((await nextOf(coming, "create")).path, "a");
  const { pid } = await ws.client.hello();
  process.kill(pid, "SIGKILL");
  await until("the daemon is dead", () => !isAlive(pid));
  assert.equal((await nextOf(coming, "lost")).extra.count, undefined);
  await ws.files.write("b", "x");
  assert.equal((await nextOf(coming, "create")).path, "b");
  await coming.return();
  ws.close();
});

test("a consumer that is slow gets all that is kept, in order", async () => {
  const ws = await workspace();
  assert.deepEqual(await told(ws), []);
  const begun = Number((await told(ws, { since: 0 })).at(-1)!.extra.seq);
  const coming = ws.watch({ since: begun });
  await ws.files.mkdir("first");
  assert.equal((await coming.next()).value!.path, "first");
  // More than the connection takes, and less than the daemon keeps.
  const long = "d".repeat(200);
  for (let n = 0; n < 1500; n += 100) {
    await Promise.all(Array.from({ length: 100 }, (_, m) => ws.kv.set(`${long}${n + m}`, n + m, { unsynced: true })));
  }
  let number = begun + 1;
  let keys = 0;
  for await (const event of coming) {
    assert.equal(Number(event.extra.seq), ++number);
    if (event.op === "kv" && ++keys === 1500) break;
  }
  ws.close();
});

test("leaving the loop and a signal end it", async () => {
  const ws = await workspace();
  assert.deepEqual(await told(ws), []);
  await ws.files.mkdir("d");
  for await (const event of ws.watch({ since: 0, ops: ["create"] })) {
    if (event.op === "create") break;
  }
  const stop = new AbortController();
  const coming = ws.watch({ signal: stop.signal });
  const next = coming.next();
  stop.abort();
  await assert.rejects(next, AbortedError);
  assert.equal((await coming.next()).done, true);
  await ws.stop();
  await assert.rejects(told(ws), (error: AgentVfsError) => error.kind === "not-running");
  ws.close();
});

test("after a broken connection the events go on after the last one that was taken", async () => {
  const asked: unknown[] = [];
  const data = (id: number, text: string) => ({ jsonrpc: "2.0", method: "data", params: { id, b64: Buffer.from(text).toString("base64") } });
  // More than a number of JavaScript is exact.
  const big = 2n ** 63n + 1n;
  const line = (seq: number) => `{"ts":${big},"ino":${big},"path":"\\"ino\\":5","extra":{"seq":"${seq}"}}\n`;
  const answer = (socket: Socket, { id, method, params }: { id: number; method: string; params: { since?: number } }) => {
    const send = (message: object) => socket.write(JSON.stringify(message) + "\n");
    if (method === "hello") return send({ jsonrpc: "2.0", id, result: { protocol: 1, version: "0", build: "0", pid: 1 } });
    asked.push(params.since);
    if (asked.length > 3) return send({ jsonrpc: "2.0", id, result: { seq: 0, stopped: true } });
    // The first one ends before it tells anything, each later one in the middle of a line.
    if (asked.length === 1) return socket.destroy();
    const text = line(10 * asked.length) + line(10 * asked.length + 1).slice(0, 9);
    send(data(id, text.slice(0, 20)));
    send(data(id, text.slice(20)));
    socket.end();
  };
  const dir = join(root, "broken");
  mkdirSync(dir);
  const server = createServer((socket) => {
    let rest = "";
    socket.on("error", () => {});
    socket.on("data", (part: Buffer) => {
      const lines = (rest + part.toString()).split("\n");
      rest = lines.pop()!;
      for (const each of lines) answer(socket, JSON.parse(each) as Parameters<typeof answer>[1]);
    });
  });
  await new Promise<void>((resolve) => server.listen(join(dir, "daemon.sock"), resolve));
  const ws = new Workspace(new Client({ home: dir, program: "/bin/false" }), "w");
  const numbers = [];
  for await (const event of ws.watch()) {
    numbers.push(event.extra.seq);
    assert.deepEqual([event.ts, event.ino], [big, big]);
  }
  assert.deepEqual(numbers, ["20", "30"]);
  assert.deepEqual(asked, [undefined, 0, 20, 30]);
  ws.close();
  server.close();
});
