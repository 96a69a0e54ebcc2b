/** Commands in the sandbox of a branch, by `agentvfs run` (docs/sandbox.md). */

import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Client } from "./client.js";
import { AbortedError, AgentVfsError } from "./errors.js";
import { notExecuted } from "./launch.js";

/** How a command is run. */
export interface RunOptions {
  /** Ends the command: SIGTERM. */
  signal?: AbortSignal | undefined;
  /** Its standard input; nothing otherwise. */
  input?: string | Uint8Array;
  /** Variables of its environment. */
  env?: Record<string, string>;
  /** Its working directory; the project's otherwise. */
  cwd?: string;
  /** Its network: the machine's, or none. */
  net?: "host" | "none";
  /** End it after so many milliseconds. */
  timeoutMs?: number;
  /** Hide these paths from it. */
  hide?: string[];
  /** Let it write to these files and directories outside the project. */
  allow?: string[];
  /** What to do with the branch if it succeeds. */
  then?: "keep" | "apply" | "merge" | "discard";
  /** Further options of `agentvfs run`, as they are. */
  options?: string[];
  /** Most bytes of each output that are kept (16 MiB); the rest is lost, and the result says so. */
  outputBytesMax?: number;
}

/** What a command did. */
export interface RunResult {
  /** Its exit status; 128+N if signal N ended it. */
  exit: number;
  /** Its standard output. */
  stdout: Buffer;
  /** Its standard error, and what `agentvfs run` says. */
  stderr: Buffer;
  /** Whether more was written than was kept. */
  truncated: boolean;
  /** The report of `agentvfs run --report`: before, after, changes and others. */
  report: Record<string, unknown>;
}

/** Runs a command on a branch. */
export async function run(
  client: Client,
  place: { workspace: string; branch: string },
  command: [string, ...string[]],
  options: RunOptions,
): Promise<RunResult> {
  if (options.signal?.aborted) throw new AbortedError(options.signal.reason, "run");
  const dir = await mkdtemp(join(tmpdir(), "agentvfs-run-"));
  try {
    const file = join(dir, "report.json");
    const args = ["run", "-w", place.workspace, "--branch", place.branch, "--report", file, "--quiet", ...flags(options)];
    const ended = await execute(client, [...args, "--", ...command], options);
    const report = await readFile(file, "utf8").then((text) => JSON.parse(text) as Record<string, unknown>).catch(() => null);
    if (options.signal?.aborted) throw new AbortedError(options.signal.reason, "run");
    if (report === null) throw failed(ended);
    return { ...ended, report };
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

function flags(options: RunOptions): string[] {
  const each = (flag: string, values: string[] = []) => values.flatMap((value) => [flag, value]);
  const env = Object.entries(options.env ?? {}).map(([name, value]) => `${name}=${value}`);
  const one = (flag: string, value: string | undefined) => (value === undefined ? [] : [flag, value]);
  return [
    ...each("--env", env),
    ...one("--cwd", options.cwd),
    ...one("--net", options.net),
    ...one("--time", options.timeoutMs === undefined ? undefined : `${options.timeoutMs}ms`),
    ...each("--hide", options.hide),
    ...each("--allow", options.allow),
    ...one("--then", options.then),
    ...(options.options ?? []),
  ];
}

type Ended = Omit<RunResult, "report">;

async function execute(client: Client, args: string[], options: RunOptions): Promise<Ended> {
  const child = spawn(client.program, args, { env: client.environment, stdio: ["pipe", "pipe", "pipe"] });
  const most = options.outputBytesMax ?? 16 << 20;
  const [out, err] = [new Kept(most), new Kept(most)];
  child.stdout.on("data", (part: Buffer) => out.add(part));
  child.stderr.on("data", (part: Buffer) => err.add(part));
  // A command need not read its input.
  child.stdin.on("error", () => {});
  child.stdin.end(options.input ?? "");
  const stop = () => child.kill("SIGTERM");
  options.signal?.addEventListener("abort", stop, { once: true });
  try {
    const status = await new Promise<number | null>((resolve, reject) => {
      child.once("error", (cause) => reject(notExecuted(client.program, cause)));
      child.once("close", resolve);
    });
    return { exit: status ?? 125, stdout: out.all, stderr: err.all, truncated: out.truncated || err.truncated };
  } finally {
    options.signal?.removeEventListener("abort", stop);
  }
}

/** Output up to a bound. */
class Kept {
  truncated = false;
  #parts: Buffer[] = [];
  #length = 0;

  constructor(private readonly most: number) {}

  add(part: Buffer): void {
    const kept = part.subarray(0, this.most - this.#length);
    this.truncated ||= kept.length < part.length;
    if (kept.length > 0) this.#parts.push(kept);
    this.#length += kept.length;
  }

  get all(): Buffer {
    return Buffer.concat(this.#parts);
  }
}

function failed(ended: Ended): AgentVfsError {
  const text = ended.stderr.toString().trim();
  const line = (prefix: string) => text.split("\n").find((one) => one.startsWith(prefix))?.slice(prefix.length);
  const why = line("agentvfs: ") ?? (text || `agentvfs run ended with status ${ended.exit}`);
  return new AgentVfsError(why, { kind: "run", hint: line("hint: ") ?? null, method: "run" });
}
