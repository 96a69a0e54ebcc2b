/** Starting a daemon, by the `agentvfs` program. */

import { spawn } from "node:child_process";
import { NoDaemonError } from "./errors.js";
import type { Home } from "./home.js";

/** How long a daemon may take to start. */
const START_MS = 20_000;
/** Most of the program's output that is kept. */
const OUTPUT_CHARACTERS_MAX = 65_536;

/** The program: `$AGENTVFS_BIN`, else `agentvfs` on `$PATH`. */
export function programOf(program?: string): string {
  return program || process.env.AGENTVFS_BIN || "agentvfs";
}

/** Environment of a program that is to use this home. */
export function environmentOf(home: Home): NodeJS.ProcessEnv {
  const env = { ...process.env };
  if (!home.ofRun) env.AGENTVFS_HOME = home.root;
  return env;
}

/** The error of a program that cannot be executed. */
export function notExecuted(program: string, cause: Error): NoDaemonError {
  const missing = (cause as NodeJS.ErrnoException).code === "ENOENT";
  const why = missing ? `the program ${program} was not found` : `cannot execute ${program}: ${cause.message}`;
  return new NoDaemonError(why, {
    kind: missing ? "no-program" : "no-daemon",
    hint: "install agentvfs so that it is on $PATH, or set $AGENTVFS_BIN to the path of its program",
    cause,
  });
}

/** Has the program start a daemon if none runs. Of many that do this at once, one starts it. */
export async function startDaemon(program: string, env: NodeJS.ProcessEnv): Promise<void> {
  // A command that only asks the daemon, and that starts it also in a new home.
  const child = spawn(program, ["config", "--json"], {
    cwd: "/",
    env,
    stdio: ["ignore", "pipe", "pipe"],
    timeout: START_MS,
  });
  let [out, err] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text: string) => (out = keep(out, text)));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (err = keep(err, text)));
  const status = await new Promise<number | null>((resolve, reject) => {
    child.once("error", (cause) => reject(notExecuted(program, cause)));
    child.once("close", resolve);
  });
  if (status === 0) return;
  throw told(program, out, err, status);
}

function keep(old: string, text: string): string {
  return old.length < OUTPUT_CHARACTERS_MAX ? old + text : old;
}

function told(program: string, out: string, err: string, status: number | null): NoDaemonError {
  try {
    const { error } = JSON.parse(out) as { error: { kind: string; message: string; hint: string | null } };
    return new NoDaemonError(error.message, { kind: error.kind, hint: error.hint });
  } catch {
    const end = status === null ? `did not end within ${START_MS / 1000} s` : `ended with status ${status}`;
    return new NoDaemonError(`cannot start the daemon: ${program} ${end}: ${err.trim()}`, { kind: "no-daemon" });
  }
}
