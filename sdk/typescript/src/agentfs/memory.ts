/**
 * Where the workspaces of `:memory:` are: a home of this process alone, in memory, with a daemon of its own. No disk is
 * waited for there, and nobody else sees it.
 *
 * A workspace is deleted after `close` has returned, and from the second one on the next is started before it is asked for,
 * so whoever opens and closes many waits for neither.
 *
 * Invariants: the home goes with the process, however that ends: a shell waits for the end of its standard input, which this
 * process holds open and never writes to. No workspace is given twice. No more than {@link DELETING_MAX} wait to be deleted.
 */

import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, statfsSync } from "node:fs";
import type { Socket } from "node:net";
import { join } from "node:path";
import { Client } from "../client.js";
import { isNotRunning, Workspace } from "../workspace.js";

/** Where Linux has memory as a file system. */
const PLACE = "/dev/shm";
/** With less memory there, `:memory:` is in the usual home. */
const FREE_BYTES_MIN = 256 * 1024 * 1024;
/** After so many workspaces the store is collected: what those left would stay in memory. */
const COLLECTED_AFTER = 64;
/** Workspaces that are being deleted, at most: whoever closes a further one waits. */
const DELETING_MAX = 4;
/** Clients without a workspace whose connections stay open for the next one. */
const CLIENTS_MAX = 4;
/** What removes a home: `$0` is the program, `$1` the directory. */
const REMOVAL = `
cat
if [ -S "$1/home/daemon.sock" ]; then
    "$0" --root "$1/home" list </dev/null | cut -f1 | while read -r name; do
        "$0" --root "$1/home" stop "$name" --force --no-checkpoint </dev/null
    done
fi
rm -rf --one-file-system "$1" || rm -rf "$1"
`;

/** By program, since that is what the daemon is started by. */
const homes = new Map<string, MemoryHome | null>();

/** A process's home in memory. */
export class MemoryHome {
  readonly #program: string;
  readonly #root: string;
  /** An empty directory, from which workspaces are made. */
  readonly #empty: string;
  readonly #clients: Client[] = [];
  readonly #deleting = new Set<Promise<void>>();
  #spare: Promise<Workspace> | null = null;
  #given = 0;
  #deleted = 0;

  private constructor(program: string, dir: string) {
    this.#program = program;
    this.#root = join(dir, "home");
    this.#empty = join(dir, "empty");
    mkdirSync(this.#empty);
  }

  /** This process's; null if the machine has no room for one. */
  static of({ program, environment }: Client): MemoryHome | null {
    let home = homes.get(program);
    if (home === undefined) homes.set(program, (home = MemoryHome.#made(program, environment)));
    return home;
  }

  static #made(program: string, env: NodeJS.ProcessEnv): MemoryHome | null {
    let dir: string;
    try {
      const { bavail, bsize } = statfsSync(PLACE);
      if (bavail * bsize < FREE_BYTES_MIN) return null;
      dir = mkdtempSync(join(PLACE, "agentvfs-memory-"));
    } catch {
      return null;
    }
    // In a session of its own: what a terminal ends is this process alone.
    const child = spawn("/bin/sh", ["-c", REMOVAL, program, dir], { cwd: "/", env, stdio: ["pipe", "ignore", "ignore"], detached: true });
    child.on("error", () => {});
    child.unref();
    (child.stdin as unknown as Socket).unref();
    return new MemoryHome(program, dir);
  }

  /** A running workspace that nobody has used: empty, or made from `base`. */
  async take(base?: string): Promise<Workspace> {
    if (base !== undefined) return this.#started(base);
    const spare = this.#spare;
    this.#spare = null;
    const workspace = (await spare?.catch(() => null)) ?? (await this.#started(this.#empty));
    // One who opens a second one is likely to open a third.
    if (++this.#given > 1 && this.#spare === null) {
      this.#spare = this.#started(this.#empty);
      this.#spare.catch(() => {});
    }
    return workspace;
  }

  async #started(base: string): Promise<Workspace> {
    const client = this.#clients.pop() ?? new Client({ program: this.#program, home: this.#root });
    const workspace = new Workspace(client, `memory-${randomBytes(8).toString("hex")}`);
    try {
      await workspace.start({ from: base, mount: false });
    } catch (error) {
      client.close();
      throw error;
    }
    return workspace;
  }

  /** Deletes a workspace that was taken, not before this returns. */
  async give(workspace: Workspace): Promise<void> {
    while (this.#deleting.size >= DELETING_MAX) await Promise.race(this.#deleting);
    // What cannot be deleted goes with the process.
    const deleting: Promise<void> = this.#delete(workspace)
      .catch(() => {})
      .finally(() => this.#deleting.delete(deleting));
    this.#deleting.add(deleting);
  }

  async #delete(workspace: Workspace): Promise<void> {
    const { client } = workspace;
    try {
      await remove(workspace);
      if (++this.#deleted % COLLECTED_AFTER === 0) await client.call("store.gc", { grace_ms: 0 });
    } finally {
      if (this.#clients.length < CLIENTS_MAX) this.#clients.push(client);
      else client.close();
    }
  }
}

/** Stops and deletes a workspace. */
export async function remove(workspace: Workspace): Promise<void> {
  await workspace.stop({ force: true, checkpoint: false }).catch((error: unknown) => {
    if (!isNotRunning(error)) throw error;
  });
  await workspace.delete();
}
