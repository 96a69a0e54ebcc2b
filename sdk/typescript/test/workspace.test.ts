import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { AgentVfsError, FileError, Workspace, type Change } from "agentvfs";
import { home, root, workspace } from "./env.js";

const shown = (changes: Change[]) => changes.map((c) => `${c.status} ${c.path}`);

test("a workspace is created, listed, stopped, and started again", async () => {
  const ws = await workspace();
  assert.equal((await ws.info()).status, "started");
  assert.equal((await ws.info()).base, join(root, ws.name));
  assert.ok((await Workspace.list()).some(({ name }) => name === ws.name));
  await ws.files.write("kept", "x");
  await ws.stop();
  assert.equal(await ws.files.readText("kept"), "x");
  await assert.rejects(ws.files.write("kept", "y"), { kind: "not-running" });
  const again = await Workspace.open(ws.name, { start: false });
  assert.equal((await again.info()).status, "stopped");
  assert.equal((await Workspace.open(ws.name)).name, ws.name);
  await ws.files.write("kept", "y");
  await assert.rejects(Workspace.open("nowhere"), (error: AgentVfsError) => error.kind === "no-such-workspace" && error.hint !== null);
});

test("a workspace runs without a mount until it is started with one", async () => {
  const { name, files } = await workspace();
  await files.write("new", "written");
  const ws = await Workspace.open(name);
  await ws.stop();
  assert.equal((await ws.start({ mount: false })).unmounted, true);
  assert.equal((await Workspace.open(name)).name, name);
  assert.equal((await ws.info()).unmounted, true);
  await ws.files.append("new", "!");
  const { mount, unmounted } = await (await Workspace.open(name, { mount: true })).info();
  assert.equal(unmounted, false);
  assert.equal(readFileSync(join(mount, "new"), "utf8"), "written!");
});

test("files are written, read, listed, renamed, copied and removed", async () => {
  const { files } = await workspace();
  assert.equal(await files.readText("/a.txt"), "hello\n");
  assert.equal(await files.readText("./dir//b.txt"), "bee\n");
  await files.write("new/deep/file", "one", { parents: true });
  await files.write("new/deep/file", "1");
  await files.append("new/deep/file", Buffer.from("2"));
  assert.equal(await files.readText("new/deep/file"), "12");
  assert.equal((await files.read("new/deep/file", { offset: 1, length: 5 })).toString(), "2");
  await files.write("streamed", (async function* () {
    for (let i = 0; i < 5; i++) yield Buffer.alloc(300_000, i);
  })());
  const { size, type, mode, mtime } = await files.stat("streamed");
  assert.deepEqual([size, type, mode], [1_500_000, "file", 0o100644]);
  assert.ok(Math.abs(mtime.getTime() - Date.now()) < 60_000);
  assert.equal((await files.read("streamed")).at(-1), 4);
  await files.mkdir("new/dir");
  await files.rename("new/dir", "new/other");
  await files.copy("streamed", "new/other/copy");
  assert.equal((await files.stat("new/other/copy")).size, 1_500_000);
  await files.symlink("other/copy", "new/link");
  assert.equal(await files.readlink("new/link"), "other/copy");
  assert.equal((await files.lstat("new/link")).isSymbolicLink(), true);
  assert.equal((await files.stat("new/link")).size, 1_500_000);
  assert.deepEqual((await files.list("new")).map((e) => [e.name, e.type]), [
    ["deep", "directory"],
    ["link", "symlink"],
    ["other", "directory"],
  ]);
  await files.chmod("streamed", 0o600);
  await files.truncate("streamed", 10);
  assert.deepEqual([(await files.stat("streamed")).perm, (await files.stat("streamed")).size], [0o600, 10]);
  await files.remove("streamed");
  assert.equal(await files.exists("streamed"), false);
  await files.remove("streamed", { force: true });
  await files.remove("new", { recursive: true });
  assert.equal(await files.exists("new/deep/file"), false);
  await files.sync();
  const { bytesFree, bytesUsed, inodes } = await files.statfs();
  assert.ok(bytesFree > 0 && bytesUsed === 10 && inodes >= 3, `${bytesFree} ${bytesUsed} ${inodes}`);
});

test("errors about files have the errno that the mount gives", async () => {
  const { files } = await workspace();
  const code = (code: string) => (error: unknown) => error instanceof FileError && error.code === code && error.errno === code;
  await assert.rejects(files.read("nothing"), code("ENOENT"));
  await assert.rejects(files.read("dir"), code("EISDIR"));
  await assert.rejects(files.list("a.txt"), code("ENOTDIR"));
  await assert.rejects(files.write("a.txt/x", "x"), code("ENOTDIR"));
  await assert.rejects(files.write("nowhere/x", "x"), code("ENOENT"));
  await assert.rejects(files.mkdir("dir"), code("EEXIST"));
  await assert.rejects(files.remove("dir"), code("ENOTEMPTY"));
  await assert.rejects(files.remove("dir", { expect: "file" }), code("EISDIR"));
  await assert.rejects(files.remove("a.txt", { expect: "directory" }), code("ENOTDIR"));
  await assert.rejects(files.rename("dir", "dir/below"), code("EINVAL"));
  await assert.rejects(files.copy("a.txt", "dir/b.txt", { overwrite: false }), code("EEXIST"));
  await assert.rejects(files.readlink("a.txt"), code("EINVAL"));
  await files.symlink("loop", "loop");
  await assert.rejects(files.read("loop"), code("ELOOP"));
  await files.symlink("/etc/passwd", "out");
  await assert.rejects(files.read("out"), code("EXDEV"));
});

test("open files outlive their names", async () => {
  const { files } = await workspace();
  const file = await files.open("x", { create: true, exclusive: true });
  await assert.rejects(files.open("x", { create: true, exclusive: true }), { code: "EEXIST" });
  assert.equal(await file.write(0, "hello world"), 11);
  assert.equal(await file.write(null, "!"), 12);
  await files.rename("x", "y");
  await file.truncate(5);
  assert.equal((await file.read(1, 100)).toString(), "ello");
  await files.remove("y");
  assert.deepEqual([(await file.stat()).size, (await file.stat()).nlink], [5, 0]);
  await file.sync();
  await file.close();
  await file.close();
  await assert.rejects(file.read(0, 1), { kind: "no-such-handle" });
});

test("names that are not UTF-8 are kept as they are", async () => {
  const { files, ...ws } = await workspace();
  const name = Buffer.from([0x66, 0xff, 0xfe]);
  await files.write(name, "bytes");
  assert.equal(await files.readText(name), "bytes");
  const found = (await files.list()).find((entry) => entry.nameBytes.equals(name));
  assert.equal(found?.name, "f\ufffd\ufffd");
  await files.mkdir(Buffer.concat([Buffer.from("/d/"), name]), { parents: true });
  await files.rename(name, Buffer.concat([Buffer.from("d/"), name, Buffer.from("/"), name]));
  await files.symlink(name, "link");
  assert.deepEqual(await files.readlinkBytes("link"), name);
  const changes = await new Workspace(ws.client, ws.name).diff();
  assert.ok(changes.some((change) => change.pathBytes.equals(Buffer.concat([Buffer.from("d/"), name, Buffer.from("/"), name]))));
  await files.remove("d", { recursive: true });
});

test("a large directory is listed in pages", async () => {
  const { files } = await workspace({});
  const names = Array.from({ length: 4200 }, (_, i) => `f${String(i).padStart(5, "0")}`);
  await files.mkdir("d");
  await Promise.all(names.map((name) => files.write(`d/${name}`, "", { unsynced: true })));
  assert.deepEqual((await files.list("d")).map((entry) => entry.name), names);
});

test("a hole is read as zeros", async () => {
  const { files } = await workspace();
  await files.write("sparse", "");
  await files.truncate("sparse", 3_000_000);
  await files.append("sparse", "end");
  const content = await files.read("sparse");
  assert.equal(content.length, 3_000_003);
  assert.ok(content.subarray(0, 3_000_000).every((byte) => byte === 0));
  assert.equal(content.subarray(3_000_000).toString(), "end");
  assert.equal((await files.read("sparse", { offset: 2_999_999, length: 3 })).toString(), "\0en");
  await files.truncate("sparse", 5_000_000);
  assert.equal((await files.read("sparse", { offset: 4_000_000 })).length, 1_000_000);
});

test("checkpoints, rollback, undo, redo, log and diff", async () => {
  const ws = await workspace();
  await ws.files.write("a.txt", "two\n");
  const first = await ws.checkpoint({ label: "two", message: "second", meta: { turn: "2" } });
  assert.deepEqual([first.filesChanged, first.newCommit], [1, true]);
  await ws.files.write("a.txt", "three\n");
  await ws.files.write("c.txt", "c\n");
  assert.deepEqual(shown(await ws.diff()), ["M a.txt", "A c.txt"]);
  const [counted] = await ws.diff({ paths: ["a.txt"], stat: true });
  assert.deepEqual(counted?.lines, { added: 1, removed: 1, binary: false, oldSize: 4, newSize: 6 });
  const { patch } = await ws.patch();
  assert.match(patch.toString(), /^-two\n\+three$/m);
  assert.equal(await ws.files.at("two").readText("a.txt"), "two\n");
  assert.deepEqual((await ws.rollbackPlan("two")).changes.map((c) => c.path), ["a.txt", "c.txt"]);
  assert.equal((await ws.rollback("two")).filesChanged, 2);
  assert.equal(await ws.files.readText("a.txt"), "two\n");
  await ws.undo();
  assert.equal(await ws.files.readText("a.txt"), "three\n");
  await ws.redo();
  assert.equal(await ws.files.exists("c.txt"), false);
  await ws.rollback({ meta: ["turn", "2"] });
  const log = await ws.log();
  assert.deepEqual(log[0]?.labels, ["two"]);
  assert.deepEqual(log[0]?.meta, [["turn", "2"]]);
  assert.equal((await ws.log({ limit: 1 })).length, 1);
  assert.ok((await ws.log({ all: true })).length > log.length);
  await assert.rejects(ws.rollback("nowhere"), { kind: "no-such-ref" });
  await ws.rollback({ before: log[0]!.time });
  assert.equal(await ws.files.readText("a.txt"), "hello\n");
});

test("branches, merges and conflicts", async () => {
  const ws = await workspace();
  await ws.checkpoint();
  await ws.branches.create("other");
  const other = ws.on("other");
  await other.files.write("a.txt", "theirs\n");
  await other.files.write("new", "n\n");
  await ws.files.write("a.txt", "ours\n");
  assert.deepEqual(shown(await ws.branches.diff("main", "other")), ["M a.txt", "A new"]);
  const refused = await ws.merge("other");
  assert.deepEqual([refused.status, refused.conflicts.map((c) => c.path)], ["conflicts", ["a.txt"]]);
  assert.equal(await ws.files.exists("new"), false);
  assert.equal((await ws.merge("other", { keepConflicts: true })).status, "conflicts");
  assert.deepEqual((await ws.branches.conflicts()).map((c) => c.path), ["a.txt"]);
  assert.equal(await ws.branches.resolve("a.txt", "theirs"), 0);
  assert.equal(await ws.files.readText("a.txt"), "theirs\n");
  const branches = await ws.branches.list({ standing: true });
  assert.deepEqual(branches.map((b) => [b.name, b.standing?.madeOf]), [["main", null], ["other", "main"]]);
  await ws.branches.rename("other", "third");
  assert.equal(typeof (await ws.branches.delete("third")).commit, "string");
  await assert.rejects(ws.on("third").files.list(), { kind: "no-such-branch" });
});

test("changes go to the project and come from it", async () => {
  const ws = await workspace();
  const { base } = await ws.info();
  await ws.files.write("a.txt", "applied\n");
  assert.deepEqual(shown((await ws.apply({ dryRun: true })).changes), ["M a.txt"]);
  assert.equal((await ws.apply()).status, "merged");
  assert.equal(readFileSync(join(base, "a.txt"), "utf8"), "applied\n");
  writeFileSync(join(base, "dir/b.txt"), "from outside\n");
  assert.notEqual((await ws.update()).status, "conflicts");
  assert.equal(await ws.files.readText("dir/b.txt"), "from outside\n");
});

test("keys are set, listed, deleted, and rolled back with the files", async () => {
  const { kv, ...rest } = await workspace();
  const ws = new Workspace(rest.client, rest.name);
  assert.equal(await kv.get("k"), undefined);
  await kv.set("k", { text: "\"é\n", list: [1, null] });
  await kv.set("l:1", "x".repeat(300_000));
  await kv.setText("l:2", "12345678901234567890");
  assert.deepEqual(await kv.get("k"), { text: "\"é\n", list: [1, null] });
  assert.deepEqual((await kv.list("l:")).map((e) => e.key), ["l:1", "l:2"]);
  assert.equal((await kv.entry("l:2"))?.text, "12345678901234567890");
  await ws.checkpoint({ label: "keys" });
  assert.equal(await kv.delete("k"), true);
  assert.equal(await kv.delete("k"), false);
  assert.notEqual(await kv.at("keys").get("k"), undefined);
  await ws.rollback("keys");
  assert.notEqual(await kv.get("k"), undefined);
  await assert.rejects(kv.setText("bad", "{"), { kind: "not-json" });
});

test("tool calls are recorded, counted and undone", async () => {
  const { tools, files } = await workspace();
  assert.equal(await tools.run("edit", { path: "x" }, () => files.write("x", "x").then(() => 7)), 7);
  await assert.rejects(tools.run("edit", {}, () => Promise.reject(new Error("it broke"))), /it broke/);
  const key = await tools.start("keyed", undefined, { key: "k" });
  assert.equal(await tools.start("keyed", undefined, { key: "k" }), key);
  await tools.success({ key: "k" }, null);
  const id = await tools.start("long", [1]);
  await assert.rejects(tools.success(99), { kind: "no-such-call" });
  const all = [];
  for await (const call of tools.list()) all.push(call);
  assert.deepEqual(all.map((c) => [c.name, c.status, c.error]), [
    ["long", "pending", null],
    ["keyed", "success", null],
    ["edit", "error", "it broke"],
    ["edit", "success", null],
  ]);
  assert.deepEqual([all[3]?.parameters, all[3]?.result], [{ path: "x" }, 7]);
  await tools.error(id, "given up");
  const stats = await tools.stats();
  assert.deepEqual(stats.map((s) => [s.name, s.calls, s.success, s.error, s.pending]), [
    ["edit", 2, 1, 1, 0],
    ["keyed", 1, 1, 0, 0],
    ["long", 1, 0, 1, 0],
  ]);
  const call = await tools.get(all[3]!.id!, { wait: true });
  assert.ok(call.before !== null && call.after !== null);
  assert.deepEqual((await tools.undo(call.id!, { dryRun: true })).changes.map((c) => c.path), ["x"]);
  assert.equal((await tools.undo(call.id!)).filesChanged, 1);
  assert.equal(await files.exists("x"), false);
});

test("a step is done once; its result and files are kept", async () => {
  const ws = await workspace();
  let runs = 0;
  const first = () => ws.step("fetch", async () => {
    runs++;
    await ws.files.write("data", "fetched");
    return { n: 1, left: undefined };
  });
  assert.deepEqual(await first(), { n: 1 });
  await ws.files.write("data", "changed later");
  assert.deepEqual(await first(), { n: 1 });
  assert.equal(await ws.files.readText("data"), "changed later");
  assert.deepEqual(await ws.step("fetch", () => assert.fail(), { files: true }), { n: 1 });
  assert.equal(await ws.files.readText("data"), "fetched");
  assert.equal(runs, 1);
  assert.deepEqual(await ws.kv.get("agentvfs:step:main:fetch"), { version: 1, result: { n: 1 } });
  assert.deepEqual((await ws.log())[0]?.meta, [["step", "main:fetch"]]);
  await assert.rejects(ws.step("fails", () => Promise.reject(new Error("no"))), /no/);
  assert.equal(await ws.step("fails", () => undefined), null);
  assert.equal(await ws.forget("fetch"), true);
  await first();
  assert.equal(runs, 2);
  await assert.rejects(ws.step("", () => 1), RangeError);
  await assert.rejects(ws.step("x", () => 1, { program: "a:b" }), RangeError);
  // The program ended between the key and the commit.
  await ws.kv.setText("agentvfs:step:main:cut", '{"version":1,"result":5}');
  assert.equal(await ws.step("cut", () => assert.fail()), 5);
  assert.deepEqual((await ws.log())[0]?.meta, [["step", "main:cut"]]);
  await ws.kv.setText("agentvfs:step:main:new", '{"version":2,"result":5}');
  await assert.rejects(ws.step("new", () => assert.fail()), { kind: "bad-step" });
});

test("a command runs in the sandbox of the branch", async () => {
  const ws = await workspace();
  const ended = await ws.run(["sh", "-c", "cat; cat a.txt; echo made > made; echo oops >&2; exit 3"], { input: "in\n" });
  assert.deepEqual([ended.exit, ended.stdout.toString()], [3, "in\nhello\n"]);
  assert.match(ended.stderr.toString(), /oops/);
  assert.equal(await ws.files.readText("made"), "made\n");
  assert.equal(ended.report.workspace, ws.name);
  const stopped = AbortSignal.timeout(300);
  await assert.rejects(ws.run(["sleep", "600"], { signal: stopped }), { name: "AbortError" });
  const missing = new Workspace(ws.client, "nowhere");
  await assert.rejects(missing.run(["true"]), AgentVfsError);
});

test("an export is written", async () => {
  const ws = await workspace();
  const file = join(home, "..", "export.db");
  await ws.export(file);
  assert.equal(readFileSync(file).subarray(0, 15).toString(), "SQLite format 3");
  await assert.rejects(ws.export(file), { kind: "file-exists" });
});
