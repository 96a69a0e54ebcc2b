/**
 * Where the workspaces of `:memory:` are: a home of this process alone, in memory, with a daemon of its own. No disk is
 * waited for there, and nobody else sees it.
 *
 * Invariant: the home goes with the process, however that ends: a shell waits for the end of its standard input, which this
 * process holds open and never writes to.
 */

import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, statfsSync } from "node:fs";
import type { Socket } from "node:net";
import { join } from "node:path";
import type { Client } from "../client.js";

/** Where Linux has memory as a file system. */
const PLACE = "/dev/shm";
/** With less memory there, `:memory:` is in the usual home. */
const FREE_BYTES_MIN = 256 * 1024 * 1024;
/** After so many workspaces the store is collected: what those left would stay in memory. */
const COLLECTED_AFTER = 64;
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

/** A home in memory. */
export interface MemoryHome {
  /** The home. */
  root: string;
  /** An empty directory, from which workspaces are made. */
  empty: string;
}

/** By program, since that is what the daemon is started by. */
const homes = new Map<string, MemoryHome | null>();
let deleted = 0;

/** This process's home in memory; null if the machine has no room for one. */
export function memoryHome({ program, environment }: Client): MemoryHome | null {
  let home = homes.get(program);
  if (home === undefined) homes.set(program, (home = make(program, environment)));
  return home;
}

function make(program: string, env: NodeJS.ProcessEnv): MemoryHome | null {
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
  const empty = join(dir, "empty");
  mkdirSync(empty);
  return { root: join(dir, "home"), empty };
}

/** Says that a workspace was deleted; from time to time what they left is removed. */
export async function collect(client: Client): Promise<void> {
  if (++deleted % COLLECTED_AFTER === 0) await client.call("store.gc", { grace_ms: 0 }).catch(() => {});
}
