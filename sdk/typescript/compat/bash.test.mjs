// The file system for just-bash, by just-bash itself: which takes globals away while a script runs.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Workspace } from "agentvfs";
import { AgentFS } from "agentvfs/agentfs";
import { agentfs } from "agentvfs/agentfs/just-bash";
import { WorkspaceFs } from "agentvfs/just-bash";
import { Bash } from "just-bash";

const SCRIPT = `
set -e
mkdir -p dir/sub; echo one > dir/a; echo two >> dir/a; cat dir/a | tr a-z A-Z > dir/sub/b
cp -r dir copy; mv copy/a copy/c; chmod 700 copy/c; rm -r dir/sub
find . -type f | sort; cat copy/c copy/sub/b; sed -i s/one/1/ dir/a; head -1 dir/a
`;
const SAID = "./copy/c\n./copy/sub/b\n./dir/a\none\ntwo\nONE\nTWO\n1\n";

test("a script works on a workspace, also when its daemon is killed before", async () => {
  const dir = mkdtempSync(join(tmpdir(), "bash-"));
  const ws = await Workspace.open("bash", { from: dir });
  await ws.checkpoint({ label: "empty" });
  for (let round = 0; round < 3; round++) {
    const bash = new Bash({ fs: new WorkspaceFs(ws), cwd: "/" });
    if (round > 0) process.kill((await ws.client.hello()).pid, "SIGKILL");
    const { stdout, stderr, exitCode } = await bash.exec(SCRIPT);
    assert.deepEqual([stdout, stderr, exitCode], [SAID, "", 0]);
    const linked = await bash.exec("ln -s dir/a link; readlink link; cat link; ln -s /dir/a abs; cat abs; rm link abs; ls");
    assert.deepEqual([linked.stdout, linked.stderr], ["dir/a\n1\ntwo\n1\ntwo\ncopy\ndir\n", ""]);
    await ws.rollback("empty");
    assert.deepEqual(await ws.files.list(), []);
  }
  await ws.stop({ force: true });
  ws.close();
  rmSync(dir, { recursive: true });
});

test("a script works on agentfs-sdk's file system", async () => {
  const agent = await AgentFS.open({ path: ":memory:" });
  const bash = new Bash({ fs: await agentfs(agent), cwd: "/" });
  const { stdout, stderr, exitCode } = await bash.exec(SCRIPT);
  assert.deepEqual([stdout, stderr, exitCode], [SAID, "", 0]);
  await agent.close();
});

test("standard input and output may be bytes", async () => {
  const agent = await AgentFS.open({ path: ":memory:" });
  await agent.fs.writeFile("/bytes", Buffer.from([0, 255, 254, 10, 128]));
  for (const fs of [await agentfs(agent), new WorkspaceFs(await agent.workspace())]) {
    await new Bash({ fs, cwd: "/" }).exec("cat bytes > copy");
    assert.deepEqual(await agent.fs.readFile("/copy"), Buffer.from([0, 255, 254, 10, 128]));
  }
  await agent.close();
});
