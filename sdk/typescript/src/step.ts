/**
 * Steps of long programs: what was done once is not done again when the program runs a second time. The contract is the
 * same in all SDKs (docs/protocol.md, "Steps"): the result is a key of the branch, the files after it are a commit with
 * the metadata `step=PROGRAM:NAME`.
 *
 * Invariant: the key is set only after the function has returned, and the commit is made only after the key.
 */

import { AgentVfsError } from "./errors.js";
import { jsonText } from "./wire.js";
import type { Workspace } from "./workspace.js";

const VERSION = 1;
const PROGRAM_BYTES_MAX = 100;
const NAME_BYTES_MAX = 500;

/** How a step is done. */
export interface StepOptions {
  /** Name of the program, so that two programs may have steps of one name (the workspace's `program`, or `main`). */
  program?: string;
  /** If the step was done before: set the files to what they were after it. Keys stay. */
  files?: boolean;
}

/** Runs `f` once, and gives its kept result from then on. */
export async function step<T>(workspace: Workspace, name: string, f: () => T | Promise<T>, options: StepOptions): Promise<T> {
  const program = options.program ?? "main";
  const key = keyOf(program, name);
  const meta: [string, string] = ["step", `${program}:${name}`];
  const kept = await workspace.kv.get<{ version: number; result: T }>(key);
  if (kept === undefined) {
    const result = jsonText(await f());
    await workspace.kv.setText(key, `{"version":${VERSION},"result":${result}}`);
    await commit(workspace, name, meta);
    return JSON.parse(result) as T;
  }
  if (kept.version !== VERSION) {
    const why = `the step ${name} was kept in version ${kept.version}; this package knows version ${VERSION}`;
    throw new AgentVfsError(why, { kind: "bad-step", hint: `agentvfs kv delete ${key} has it run again` });
  }
  // The program may have ended between the key and the commit.
  if (!(await hasCommit(workspace, meta))) await commit(workspace, name, meta);
  else if (options.files) await workspace.rollback({ meta }, { keepKv: true });
  return kept.result;
}

/** Has a step run again; says whether it had been done. */
export async function forgetStep(workspace: Workspace, name: string, program = "main"): Promise<boolean> {
  return workspace.kv.delete(keyOf(program, name));
}

async function commit(workspace: Workspace, name: string, meta: [string, string]): Promise<void> {
  await workspace.checkpoint({ message: `step ${name}`, meta: [meta] });
}

async function hasCommit(workspace: Workspace, meta: [string, string]): Promise<boolean> {
  try {
    await workspace.rollbackPlan({ meta });
    return true;
  } catch (error) {
    if (error instanceof AgentVfsError && error.kind === "no-such-commit") return false;
    throw error;
  }
}

function keyOf(program: string, name: string): string {
  check("program", program, PROGRAM_BYTES_MAX, /[:\p{Cc}]/u);
  check("name of a step", name, NAME_BYTES_MAX, /\p{Cc}/u);
  return `agentvfs:step:${program}:${name}`;
}

function check(what: string, text: string, most: number, bad: RegExp): void {
  const bytes = Buffer.byteLength(text);
  if (bytes >= 1 && bytes <= most && !bad.test(text)) return;
  throw new RangeError(`${what}: ${JSON.stringify(text)} must have 1 to ${most} bytes, no control characters${most === PROGRAM_BYTES_MAX ? " and no colon" : ""}`);
}
