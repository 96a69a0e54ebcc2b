/** A home of its own for each test file, and what tests wait with. */

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { Client, Workspace } from "agentvfs";

/** How long anything that is waited for may take. */
const DEADLINE_MS = 60_000;

/** The home's directory, which is the temporary directory of the test file, too. */
export const root = mkdtempSync(join(tmpdir(), "avts-"));
/** The home. */
export const home = join(root, "h");
process.env.AGENTVFS_HOME = home;

after(async () => {
  const client = new Client({ home });
  for (const { name, status } of await Workspace.list({ client })) {
    const workspace = new Workspace(client, name);
    if (status === "started") await workspace.stop({ force: true, checkpoint: false });
    await workspace.delete();
  }
  const { pid } = await client.hello();
  client.close();
  await until("the daemon has ended", () => !isAlive(pid));
  rmSync(root, { recursive: true, force: true });
});

let made = 0;

/** A workspace on a new project with some files. */
export async function workspace(files: Record<string, string> = { "a.txt": "hello\n", "dir/b.txt": "bee\n" }): Promise<Workspace> {
  const name = `w${++made}`;
  const project = join(root, name);
  for (const [file, content] of Object.entries(files)) {
    mkdirSync(join(project, file, ".."), { recursive: true });
    writeFileSync(join(project, file), content);
  }
  mkdirSync(project, { recursive: true });
  return Workspace.open(name, { from: project });
}

/** Waits until something is so. */
export async function until(what: string, is: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = Date.now() + DEADLINE_MS;
  while (!(await is())) {
    if (Date.now() > deadline) throw new Error(`it was waited in vain until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Whether a process is there and no zombie. */
export function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

/** Random numbers that a seed repeats; the seed is new in each run, and printed. */
export function random(): (below: number) => number {
  let state = Number(process.env.AGENTVFS_SEED ?? Math.floor(Math.random() * 2 ** 31));
  console.log(`seed ${state} (again: AGENTVFS_SEED=${state})`);
  return (below) => {
    // mulberry32
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
}
