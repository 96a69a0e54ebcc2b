import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { workspace } from "./env.js";

/** Bytes of the file. */
const LENGTH = 1 << 30;
/** Memory that a stream of any length may take beside what Node takes without it. */
const MEMORY_MAX = 64 << 20;

test("a file of 1 GiB is written and read in 64 MiB of memory", async () => {
  const ws = await workspace({});
  const program = fileURLToPath(new URL("large-child.js", import.meta.url));
  const child = spawn(process.execPath, [program, ws.name, String(LENGTH)], { stdio: ["ignore", "pipe", "inherit"] });
  let out = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (out += text));
  assert.equal(await new Promise((resolve) => child.once("close", resolve)), 0);
  const { same, size, used } = JSON.parse(out) as { same: boolean; size: number; used: number };
  console.log(`1 GiB took ${(used / 2 ** 20).toFixed(1)} MiB of memory`);
  assert.deepEqual([same, size], [true, LENGTH]);
  assert.ok(used <= MEMORY_MAX, `${used} bytes of memory`);
  await ws.files.remove("large");
});
