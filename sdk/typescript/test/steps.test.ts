// Steps are the same in all SDKs: what one did, each other one finds.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Client } from "agentvfs";
import { home, workspace } from "./env.js";

const SDK = join(dirname(fileURLToPath(import.meta.url)), "../..");
/** Built by `cargo build --workspace --locked --examples`, beside the program. */
const RUST = join(dirname(realpathSync(new Client().program)), "examples/step");

const PYTHON = `
import json, sys
from agentvfs import Workspace
name, by, *rest = sys.argv[1:]
with Workspace.open(program="shared") as ws:
    def work():
        ws.fs.write(name, by)
        return {"by": by, "list": [1, None, "é"]}
    print(json.dumps(ws.step(name, work, files=rest == ["files"])))
`;
const TYPESCRIPT = `
import { Workspace } from "agentvfs";
const [name, by, files] = process.argv.slice(1);
const ws = await Workspace.open(undefined, { stepsOf: "shared" });
const result = await ws.step(name, async () => {
  await ws.files.write(name, by);
  return { by, list: [1, null, "é"] };
}, { files: files === "files" });
console.log(JSON.stringify(result));
`;

const LANGUAGES: Record<string, string[]> = {
  python: ["python3", "-c", PYTHON],
  typescript: [process.execPath, "--input-type=module", "-e", TYPESCRIPT],
  rust: [RUST],
};

test("a step that one language did, the others find: its result, its files, its commit", async (t) => {
  if (!existsSync(RUST)) {
    t.diagnostic(`without Rust: there is no ${RUST}; cargo build --workspace --locked --examples`);
    delete LANGUAGES.rust;
  }
  const ws = await workspace();
  const env = { ...process.env, AGENTVFS_HOME: home, AGENTVFS_WORKSPACE: ws.name, PYTHONPATH: join(SDK, "python/src"), PYTHONDONTWRITEBYTECODE: "1" };
  const run = (language: string, ...words: string[]): unknown => {
    const [program, ...first] = LANGUAGES[language]!;
    return JSON.parse(execFileSync(program!, [...first, ...words], { env, timeout: 60_000, encoding: "utf8" }));
  };
  for (const doer of Object.keys(LANGUAGES)) {
    const name = `by ${doer}: é`;
    const result = { by: doer, list: [1, null, "é"] };
    assert.deepEqual(run(doer, name, doer), result);
    const commits = (await ws.log()).filter(({ meta }) => meta.some(([key, value]) => key === "step" && value === `shared:${name}`));
    assert.equal(commits.length, 1, `${doer} made no commit of the step, or several`);
    assert.equal(commits[0]!.message, `step ${name}`);
    for (const finder of Object.keys(LANGUAGES)) {
      await ws.files.write(name, "changed since");
      assert.deepEqual(run(finder, name, finder), result, `${finder} does not find what ${doer} did`);
      assert.equal(await ws.files.readText(name), "changed since");
      assert.deepEqual(run(finder, name, finder, "files"), result);
      assert.equal(await ws.files.readText(name), doer, `${finder} does not restore the files of ${doer}`);
    }
  }
  // A step whose program ended before the commit gets one from whoever finds it.
  for (const finder of Object.keys(LANGUAGES)) {
    const cut = `cut off, found by ${finder}`;
    await ws.kv.set(`agentvfs:step:shared:${cut}`, { version: 1, result: "kept" });
    await ws.files.write(cut, "kept");
    assert.equal(run(finder, cut, "again"), "kept");
    await ws.files.write(cut, "changed since");
    assert.equal(run(finder, cut, "again", "files"), "kept");
    assert.equal(await ws.files.readText(cut), "kept", `${finder} made no commit`);
  }
});
