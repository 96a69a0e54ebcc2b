/**
 * Files that stand for workspaces: where agentfs-sdk has a database, there is a small text file that names the workspace.
 *
 *     agentvfs 1
 *     workspace=agent-3f9a12c07b
 *
 * A real database is imported once and kept beside as `.orig`. Invariant: the file exists only once the workspace does, and
 * is put there in one step; a lock file keeps others from doing the same at the same time.
 */

import { randomBytes } from "node:crypto";
import { link, mkdir, open, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import * as path from "node:path";
import { setTimeout } from "node:timers";
import type { Client } from "../client.js";
import { AgentVfsError } from "../errors.js";
import { canonical } from "../home.js";
import { Workspace } from "../workspace.js";

const FIRST_LINE = "agentvfs 1";
const SQLITE = Buffer.from("SQLite format 3\0");
/** A longer file is none of ours. */
const BYTES_MAX = 4096;
/** How long another process may take to import a database. */
const LOCK_MS = 600_000;
const PAUSE_MS = 20;

/** The workspace that a file stands for; it is created, or imported, if need be. `base`: the project it is created from. */
export async function workspaceAt(client: Client, file: string, base?: string): Promise<Workspace> {
  const name = (await named(file)) ?? (await locked(file, () => make(client, file, base)));
  const workspace = new Workspace(client, name);
  try {
    await workspace.start();
  } catch (error) {
    if (!(error instanceof AgentVfsError) || error.kind !== "no-such-workspace") throw error;
    const why = `${file} names the workspace ${name}, which does not exist in ${client.home.root}`;
    const hint = `use the home that has it ($AGENTVFS_HOME), or remove ${file} to begin anew`;
    throw new AgentVfsError(why, { kind: "no-such-workspace", hint, path: file, cause: error });
  }
  return workspace;
}

/** The workspace that a file names; null if it must be made first. */
async function named(file: string): Promise<string | null> {
  const content = await beginning(file);
  if (content === null || content.length === 0 || content.subarray(0, SQLITE.length).equals(SQLITE)) return null;
  const [first, ...lines] = content.toString().split("\n");
  const name = lines.find((line) => line.startsWith("workspace="))?.slice("workspace=".length);
  if (first === FIRST_LINE && name) return name;
  const newer = first?.startsWith("agentvfs ");
  const why = newer ? `${file} was written by a newer agentvfs` : `${file} is neither a database nor the name of a workspace`;
  throw new AgentVfsError(why, { kind: "bad-file", hint: newer ? "update the package" : "use another path", path: file });
}

async function beginning(file: string): Promise<Buffer | null> {
  const handle = await open(file).catch((error: NodeJS.ErrnoException) => (error.code === "ENOENT" ? null : Promise.reject(error)));
  if (handle === null) return null;
  try {
    const buffer = Buffer.alloc(BYTES_MAX);
    return buffer.subarray(0, (await handle.read(buffer, 0, BYTES_MAX, 0)).bytesRead);
  } finally {
    await handle.close();
  }
}

async function make(client: Client, file: string, base?: string): Promise<string> {
  const made = await named(file);
  if (made !== null) return made;
  const name = `${stem(file)}-${randomBytes(5).toString("hex")}`;
  const content = await beginning(file);
  if (content !== null && content.length > 0) return importAt(client, file, name);
  await create(client, name, base);
  // In place of an empty file, which SQLite takes for a new database.
  await replace(file, name);
  return name;
}

/** Begins a workspace on a project, or on nothing. */
export async function create(client: Client, name: string, base?: string): Promise<void> {
  const empty = path.join(client.home.root, "empty");
  if (base === undefined) await mkdir(empty, { recursive: true });
  const from = canonical(path.resolve(base ?? empty));
  await client.call("workspace.init", { workspace: name, base: from });
}

async function importAt(client: Client, file: string, name: string): Promise<string> {
  await client.call("workspace.import", { workspace: name, file: canonical(path.resolve(file)) });
  const kept = await unused(`${file}.orig`);
  await link(file, kept);
  await replace(file, name);
  for (const part of ["-wal", "-shm"]) {
    await rename(file + part, kept + part).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "ENOENT") throw error;
    });
  }
  return name;
}

async function unused(name: string): Promise<string> {
  for (let i = 0; ; i++) {
    const tried = i === 0 ? name : `${name}.${i}`;
    if ((await stat(tried).catch(() => null)) === null) return tried;
  }
}

async function replace(file: string, name: string): Promise<void> {
  const temporary = `${file}.${process.pid}.new`;
  await writeFile(temporary, `${FIRST_LINE}\nworkspace=${name}\n`, { flush: true });
  await rename(temporary, file);
}

/** The beginning of a workspace's name: the file's, as far as its characters are allowed in one. */
function stem(file: string): string {
  const name = path.basename(file).replace(/\.db$/, "");
  return name.replace(/[^A-Za-z0-9._-]/g, "-").replace(/^[.-]+/, "").slice(0, 40) || "agentfs";
}

async function locked<T>(file: string, act: () => Promise<T>): Promise<T> {
  await mkdir(path.dirname(file), { recursive: true });
  const lock = `${file}.lock`;
  const deadline = Date.now() + LOCK_MS;
  while (!(await take(lock))) {
    if (Date.now() > deadline) {
      const hint = `remove ${lock} if no program uses it`;
      throw new AgentVfsError(`${lock} is held by another program`, { kind: "busy", hint, path: lock });
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  try {
    return await act();
  } finally {
    await rm(lock, { force: true });
  }
}

/** Takes the lock; one whose process is gone is removed first. */
async function take(lock: string): Promise<boolean> {
  try {
    await writeFile(lock, `${process.pid}\n`, { flag: "wx" });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
  const holder = Number(await readFile(lock, "utf8").catch(() => ""));
  if (holder > 0 && !isAlive(holder)) await rm(lock, { force: true });
  return false;
}

/** Whether there is a process of that number. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
