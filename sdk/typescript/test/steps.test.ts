// Steps are the same in all SDKs: what one did, each other one finds.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Client, type Workspace } from "agentvfs";
import { home, workspace } from "./env.js";

const SDK = join(dirname(fileURLToPath(import.meta.url)), "../..");
/** `ctl/client/examples/steps.rs`, built by `cargo build --workspace --locked --examples`, beside the program. */
const RUST = join(dirname(realpathSync(new Client().program)), "examples/steps");

const PYTHON = `
import json, os, sys
from agentvfs import Workspace
name, by, *rest = sys.argv[1:]
with Workspace.open(program=os.environ["STEPS_OF"]) as ws:
    def work():
        ws.fs.write(name, by)
        return {"by": by, "list": [1, None, "é"]}
    print(json.dumps(ws.step(name, work, files=rest == ["files"])))
`;
const TYPESCRIPT = `
import { Workspace } from "agentvfs";
const [name, by, files] = process.argv.slice(1);
const ws = await Workspace.open(undefined, { stepsOf: process.env.STEPS_OF });
const result = await ws.step(name, async () => {
  await ws.files.write(name, by);
  return { by, list: [1, null, "é"] };
}, { files: files === "files" });
console.log(JSON.stringify(result));
`;

const LANGUAGES: Record<string, string[]> = {
  python: ["python3", "-c", PYTHON],
  typescript: [process.execPath, "--input-type=module", "-e", TYPESCRIPT],
};

/** What a program prints in a workspace; its steps are those of the program `of`. */
function says(ws: Workspace, of: string, [program, ...words]: string[]): string {
  const own = { AGENTVFS_HOME: home, AGENTVFS_WORKSPACE: ws.name, STEPS_OF: of };
  const python = { PYTHONPATH: join(SDK, "python/src"), PYTHONDONTWRITEBYTECODE: "1" };
  return execFileSync(program!, words, { env: { ...process.env, ...own, ...python }, timeout: 60_000, encoding: "utf8" });
}

test("a step that one language did, the other finds: its result, its files, its commit", async () => {
  const ws = await workspace();
  const run = (language: string, ...words: string[]): unknown => {
    return JSON.parse(says(ws, "shared", [...LANGUAGES[language]!, ...words]));
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

test("steps that Rust did, the others find, and the other way round", async (t) => {
  if (!existsSync(RUST)) return t.skip(`there is no ${RUST}: cargo build --workspace --locked --examples`);
  // Rust's example plans topics, and then writes a report on each.
  const first = await workspace();
  assert.equal(says(first, "", [RUST]), "storage, network: report/network.md report/storage.md\n");
  for (const [name, command] of Object.entries(LANGUAGES)) {
    const changed = "changed since";
    await first.files.write("report/storage.md", changed);
    assert.deepEqual(JSON.parse(says(first, "steps", [...command, "plan", name])), ["storage", "network"]);
    assert.equal(await first.files.readText("report/storage.md"), changed);
    assert.equal(says(first, "steps", [...command, "write storage", name, "files"]), "7\n");
    assert.equal(await first.files.readText("report/storage.md"), "# storage\n", `${name} does not restore the files of Rust`);
  }
  for (const [name, command] of Object.entries(LANGUAGES)) {
    const ws = await workspace({});
    // The result is one that Rust's own step cannot have.
    const plan = command.map((word) => word.replace(/return \{.*\}|return \{.*\};/g, `return ["${name}"]`));
    says(ws, "steps", [...plan, "plan", name]);
    const told = says(ws, "", [RUST]);
    assert.match(told, new RegExp(`^${name}: .*report/${name}\\.md`), `Rust does not find what ${name} did`);
    assert.equal(await ws.files.readText(`report/${name}.md`), `# ${name}\n`);
  }
});
