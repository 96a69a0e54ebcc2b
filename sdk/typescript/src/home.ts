/**
 * Where the home and the daemon's socket are: the same rules as in the `agentvfs` command, so that both find the same
 * daemon (docs/protocol.md, "Transport").
 */

import { lstatSync, realpathSync, statSync } from "node:fs";
import { userInfo } from "node:os";
import * as path from "node:path";
import { blake3Hex } from "./blake3.js";
import { NoDaemonError } from "./errors.js";

/** Longest path of a socket that is used as it is. */
const SOCKET_PATH_BYTES_MAX = 100;

/** A home, and the socket of its daemon. */
export interface Home {
  /** The directory. */
  root: string;
  /** The daemon's socket. */
  socket: string;
  /** The socket is that of a run, in whose sandbox this process is: no daemon can be started from there. */
  ofRun: boolean;
}

/**
 * The home: `root`, else `$AGENTVFS_HOME`, `$XDG_DATA_HOME/agentvfs` or `~/.local/share/agentvfs`. If neither of the
 * first two is given, `$AGENTVFS_SOCKET` is the socket of the run in whose sandbox this process is.
 */
export function findHome(root?: string, env: NodeJS.ProcessEnv = process.env): Home {
  const named = root || env.AGENTVFS_HOME || undefined;
  const found = canonical(path.resolve(named ?? unnamed(env)));
  const run = env.AGENTVFS_SOCKET;
  if (named === undefined && run && path.isAbsolute(run)) return { root: found, socket: run, ofRun: true };
  return { root: found, socket: socketOf(found, env), ofRun: false };
}

function unnamed(env: NodeJS.ProcessEnv): string {
  const data = env.XDG_DATA_HOME;
  if (data && path.isAbsolute(data)) return path.join(data, "agentvfs");
  if (env.HOME && path.isAbsolute(env.HOME)) return path.join(env.HOME, ".local/share/agentvfs");
  throw new NoDaemonError("none of $AGENTVFS_HOME, $XDG_DATA_HOME and $HOME is set", { kind: "home" });
}

/** `place` with symbolic links resolved as far as it exists. */
export function canonical(place: string): string {
  try {
    return realpathSync(place);
  } catch {
    const parent = path.dirname(place);
    return parent === place ? place : path.join(canonical(parent), path.basename(place));
  }
}

function fits(place: string): boolean {
  return Buffer.byteLength(place) <= SOCKET_PATH_BYTES_MAX;
}

function socketOf(root: string, env: NodeJS.ProcessEnv): string {
  const plain = path.join(root, "daemon.sock");
  if (fits(plain)) return plain;
  const name = blake3Hex(Buffer.from(root)).slice(0, 16);
  const runtime = env.XDG_RUNTIME_DIR;
  if (runtime && path.isAbsolute(runtime)) {
    const inRuntime = path.join(runtime, `agentvfs-${name}.sock`);
    if (fits(inRuntime)) return inRuntime;
  }
  return path.join(`/tmp/agentvfs-${uid()}`, `${name}.sock`);
}

function uid(): number {
  return process.geteuid?.() ?? userInfo().uid;
}

/** Throws if the socket may be somebody else's, who could make us believe anything. Root's is as good as ours. */
export function checkOwner(socket: string): void {
  const mine = uid();
  const owner = statSync(socket).uid;
  const told = (why: string) =>
    new NoDaemonError(why, { kind: "no-daemon", hint: "use another home: the option home, or $AGENTVFS_HOME" });
  if (owner !== mine && owner !== 0 && mine !== 0) throw told(`the daemon's socket belongs to user ${owner}`);
  const dir = path.dirname(socket);
  if (dir !== `/tmp/agentvfs-${mine}`) return;
  const found = lstatSync(dir);
  if (!found.isDirectory() || found.uid !== mine || (found.mode & 0o077) !== 0) {
    throw told(`${dir} must be a directory of user ${mine} with mode 0700`);
  }
}
