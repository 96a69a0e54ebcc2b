/** A workspace, seen from one of its branches. */

import * as path from "node:path";
import { Branches, ofMerge, type MergeOptions, type MergeResult, type WireMerge } from "./branches.js";
import { ofChange, ofConflict, type Change, type Conflict, type WireChange, type WireConflict } from "./changes.js";
import { Client, type ClientOptions } from "./client.js";
import type { Progress } from "./connection.js";
import { AgentVfsError } from "./errors.js";
import { watch, type Event, type WatchOptions } from "./events.js";
import { Files, type Abortable } from "./files.js";
import { canonical } from "./home.js";
import { Kv } from "./kv.js";
import { run, type RunOptions, type RunResult } from "./run.js";
import { forgetStep, step, type StepOptions } from "./step.js";
import { Tools } from "./tools.js";
import { ofMoment, ofText, wireMoment, wirePath, type Path, type State, type WireBytes, type WireMoment } from "./wire.js";

/** What is known of a workspace. */
export interface WorkspaceInfo {
  /** Its name. */
  name: string;
  /** Where it is mounted, or would be. */
  mount: string;
  /** Its project. */
  base: string;
  /** Whether it runs. */
  status: "initialized" | "started" | "stopped" | "stale";
  /** It runs without a mount. */
  unmounted: boolean;
}

/** How a workspace is opened. */
export interface OpenWorkspaceOptions extends ClientOptions {
  /** The project that it is created from if it does not exist. */
  from?: string;
  /**
   * Where it is mounted; false: without a mount, so that only requests such as those of this package reach it; true: mounted,
   * also if it runs without. Otherwise as it is, or was before its daemon ended, and a new one mounted.
   */
  mount?: string | boolean;
  /** The branch: otherwise `$AGENTVFS_BRANCH`, or `main`. */
  branch?: string;
  /** Start it if it does not run (true). What does not run can only be read. */
  start?: boolean;
  /** A client to share connections with. */
  client?: Client;
  /** Name of this program, for its steps (`main`). */
  stepsOf?: string;
}

/** A commit of a branch. */
export interface Commit {
  /** Its id; null while the project is being imported. */
  commit: string | null;
  /** When it was made. */
  time: Date;
  /** Its labels, the newest first. */
  labels: string[];
  /** Its message. */
  message: string;
  /** Its metadata. */
  meta: [string, string][];
  /** Whether nobody asked for it. */
  automatic: boolean;
  /** Whether it is the branch's head. */
  head: boolean;
  /** Its parents. */
  parents: string[];
  /** What made it: `start`, `checkpoint`, `before-rollback`, `stop` and others. */
  kind: string;
}

/** What a checkpoint made. */
export interface CheckpointResult {
  /** The commit; null while the project is being imported, or if none was made. */
  commit: string | null;
  /** How many files changed since the head. */
  filesChanged: number;
  /** How many bytes changed. */
  bytesChanged: number;
  /** What the label named before, or null. */
  movedFrom: string | null;
  /** Whether a commit was made; otherwise the head got the label. */
  newCommit: boolean;
  /** How many conflicts of the last merge are not resolved. */
  unresolved: number;
}

/** How a checkpoint is made. */
export interface CheckpointOptions extends Abortable {
  /** The commit's message. */
  message?: string;
  /** Its metadata. */
  meta?: [string, string][] | Record<string, string>;
  /** Hears how far it is. */
  onProgress?: (progress: Progress) => void;
}

/** What to go back to: the last checkpoint, a ref, the newest commit before a moment, or that with some metadata. */
export type Target = "head" | { ref: string } | { before: Date } | { meta: [string, string] };

/** What a rollback, undo or redo did. */
export interface RollbackResult {
  /** The commit that is shown now. */
  commit: string | null;
  /** The automatic commit of what was there. */
  replaced: string | null;
  /** How many files changed. */
  filesChanged: number;
}

/** How a branch is rolled back. */
export interface RollbackOptions extends Abortable {
  /** Only these paths; the head stays. */
  paths?: Path[];
  /** Do not change keys. */
  keepKv?: boolean;
}

/** What a rollback would do. */
export interface RollbackPlan {
  /** What would change. */
  changes: Change[];
  /** Processes that have files open in the mount. */
  holders: { pid: number; command: string; path: string }[];
  /** How many keys would change. */
  keysChanged: number;
}

/** Which two states are compared. */
export interface DiffOptions extends Abortable {
  /** The old one; the head otherwise. */
  from?: State | string;
  /** The new one; the live tree otherwise. */
  to?: State | string;
  /** Only these paths. */
  paths?: Path[];
  /** Count lines. */
  stat?: boolean;
  /** Hears how far it is. */
  onProgress?: (progress: Progress) => void;
}

/** How changes are written to the project. */
export interface ApplyOptions extends Abortable {
  /** Change nothing. */
  dryRun?: boolean;
  /** Also owners, set-id bits and devices. */
  privileged?: boolean;
  /** Also files that run by themselves and that a command in a sandbox may have written. */
  trust?: boolean;
  /** Hears how far it is. */
  onProgress?: (progress: Progress) => void;
}

/** What was written to the project. With `conflicts` nothing was. */
export interface ApplyResult {
  /** What was done. */
  status: "merged" | "up-to-date" | "conflicts";
  /** What changed in the project. */
  changes: Change[];
  /** What the branch and the project changed differently. */
  conflicts: Conflict[];
  /** Paths that cannot be read and were skipped. */
  leftOut: string[];
  /** Paths that need `trust`. */
  untrusted: string[];
  /** Commit of the project before. */
  before: string;
}

/** How an update is made. */
export type UpdateOptions = Pick<MergeOptions, "keepConflicts" | "dryRun" | "signal" | "onProgress">;

/** A workspace, seen from one of its branches. */
export class Workspace {
  /** Its name. */
  readonly name: string;
  /** The branch. */
  readonly branch: string;
  /** Its daemon. */
  readonly client: Client;
  /** Files of the branch. */
  readonly files: Files;
  /** Key-value state of the branch. */
  readonly kv: Kv;
  /** Tool calls of the branch. */
  readonly tools: Tools;
  /** Branches of the workspace. */
  readonly branches: Branches;
  readonly #place: { workspace: string; branch: string };
  readonly #stepsOf: string | undefined;

  /** Asks nothing; see {@link Workspace.open}. */
  constructor(client: Client, name: string, branch = "main", stepsOf?: string) {
    this.client = client;
    this.name = name;
    this.branch = branch;
    this.#stepsOf = stepsOf;
    this.#place = { workspace: name, branch };
    this.files = new Files(client, this.#place);
    this.kv = new Kv(client, this.#place);
    this.tools = new Tools(client, this.#place);
    this.branches = new Branches(client, name, branch);
  }

  /**
   * Opens a workspace, and starts it if it does not run. With `from` it is created if it does not exist.
   *
   * @param name otherwise `$AGENTVFS_WORKSPACE`
   */
  static async open(name = process.env.AGENTVFS_WORKSPACE ?? "", options: OpenWorkspaceOptions = {}): Promise<Workspace> {
    if (name === "") throw new TypeError("name the workspace, or set $AGENTVFS_WORKSPACE");
    const client = options.client ?? new Client(options);
    const branch = options.branch ?? (process.env.AGENTVFS_BRANCH || "main");
    const workspace = new Workspace(client, name, branch, options.stepsOf);
    const status = options.from === undefined ? (await workspace.info()).status : null;
    // What is in a sandbox may not start workspaces, and sees only running ones.
    if (options.start !== false && (status !== "started" || options.mount !== undefined)) await workspace.start(options);
    return workspace;
  }

  /** All workspaces of a home. */
  static async list(options: ClientOptions & { client?: Client } = {}): Promise<WorkspaceInfo[]> {
    const client = options.client ?? new Client(options);
    const { workspaces } = await client.call<{ workspaces: WireInfo[] }>("workspace.list");
    if (options.client === undefined) client.close();
    return workspaces.map(ofInfo);
  }

  /** The same workspace, seen from another branch. */
  on(branch: string): Workspace {
    return new Workspace(this.client, this.name, branch, this.#stepsOf);
  }

  /** What is known of it. */
  async info(options: Abortable = {}): Promise<WorkspaceInfo> {
    const answer = await this.client.call<{ workspace: WireInfo }>("workspace.status", this.#place, { signal: options.signal });
    return ofInfo(answer.workspace);
  }

  /** Starts it; with `from` it is created if it does not exist. `mount`: as for {@link Workspace.open}. */
  async start(options: Abortable & { from?: string; mount?: string | boolean } = {}): Promise<WorkspaceInfo> {
    const absolute = (place: string | undefined) => place && canonical(path.resolve(place));
    const mount = typeof options.mount === "string" ? absolute(options.mount) : undefined;
    const how = options.mount === undefined ? undefined : { unmounted: options.mount === false };
    const params = { workspace: this.name, base: absolute(options.from), named: true, mount, options: how };
    const answer = await this.client.call<{ workspace: WireInfo }>("workspace.start", params, { signal: options.signal });
    return ofInfo(answer.workspace);
  }

  /** Unmounts it. `force`: also if processes use the mount. Without `checkpoint` there is no automatic commit. */
  async stop(options: { force?: boolean; checkpoint?: boolean } = {}): Promise<void> {
    await this.client.call("workspace.stop", { workspace: this.name, ...options });
  }

  /** Deletes it with all its commits, when it does not run. The project does not change. */
  async delete(): Promise<void> {
    await this.client.call("workspace.delete", { workspace: this.name });
  }

  /** Closes the connections to the daemon, also those of others that share the client. The workspace goes on. */
  close(): void {
    this.client.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  /** Commits all files and keys as they are now. */
  async checkpoint(options: CheckpointOptions & { label?: string } = {}): Promise<CheckpointResult> {
    const meta = Array.isArray(options.meta) ? options.meta : Object.entries(options.meta ?? {});
    const params = { ...this.#place, label: options.label, message: options.message, meta };
    const { signal, onProgress } = options;
    const answer = await this.client.call<WireCheckpoint>("workspace.checkpoint", params, { signal, onProgress });
    return {
      commit: answer.commit,
      filesChanged: answer.files_changed,
      bytesChanged: answer.bytes_changed,
      movedFrom: answer.moved_from,
      newCommit: answer.new_commit,
      unresolved: answer.unresolved,
    };
  }

  /** Sets the branch to the last checkpoint, or to another commit. `undo` takes that back. */
  async rollback(target: Target | string = "head", options: RollbackOptions = {}): Promise<RollbackResult> {
    const params = { ...this.#place, target: wireTarget(target), paths: options.paths?.map(wirePath), keep_kv: options.keepKv };
    return ofRollback(await this.client.call<WireRollback>("workspace.rollback", params, { signal: options.signal }));
  }

  /** What a rollback would do. */
  async rollbackPlan(target: Target | string = "head", options: RollbackOptions = {}): Promise<RollbackPlan> {
    type Answer = { changes: WireChange[]; holders: { pid: number; command: WireBytes; path: WireBytes }[]; keys_changed: number };
    const params = { ...this.#place, target: wireTarget(target), paths: options.paths?.map(wirePath), keep_kv: options.keepKv };
    const answer = await this.client.call<Answer>("workspace.rollback_plan", params, { signal: options.signal });
    return {
      changes: answer.changes.map(ofChange),
      holders: answer.holders.map((h) => ({ pid: h.pid, command: ofText(h.command), path: ofText(h.path) })),
      keysChanged: answer.keys_changed,
    };
  }

  /**
   * What happens in the workspace on this branch, as it happens, until it is stopped (docs/events.md). If the daemon ends, the events go
   * on with the next one; one with `op` `lost` says that some are missing.
   *
   * ```ts
   * for await (const event of ws.watch({ ops: ["unlink", "rename"] })) console.log(event.op, event.path, event.extra.comm);
   * ```
   */
  watch(options: WatchOptions = {}): AsyncGenerator<Event, void, undefined> {
    return watch(this.client, this.#place, options);
  }

  /** Undoes the branch's last rollback, restore, merge, resolve or update. */
  async undo(options: Abortable & { overLaterChanges?: boolean } = {}): Promise<RollbackResult> {
    const params = { ...this.#place, over_later_changes: options.overLaterChanges };
    return ofRollback(await this.client.call<WireRollback>("workspace.undo", params, { signal: options.signal }));
  }

  /** Reverses the last undo. */
  async redo(options: Abortable = {}): Promise<RollbackResult> {
    return ofRollback(await this.client.call<WireRollback>("workspace.redo", this.#place, { signal: options.signal }));
  }

  /** Commits, the newest first: those that were asked for, or with `all` the automatic ones too. */
  async log(options: Abortable & { all?: boolean; limit?: number } = {}): Promise<Commit[]> {
    const params = { ...this.#place, all: options.all, limit: options.limit };
    const { commits } = await this.client.call<{ commits: WireCommit[] }>("workspace.log", params, { signal: options.signal });
    return commits.map(({ commit, time, labels, message, meta, automatic, head, parents, kind }) => {
      return { commit, time: ofMoment(time), labels, message, meta, automatic, head, parents, kind };
    });
  }

  /** What differs between two states: from the head to the live tree, if nothing else is said. */
  async diff(options: DiffOptions = {}): Promise<Change[]> {
    const params = { ...this.#sides(options), stat: options.stat };
    const { signal, onProgress } = options;
    const { changes } = await this.client.call<{ changes: WireChange[] }>("workspace.diff", params, { signal, onProgress });
    return changes.map(ofChange);
  }

  /** The same as a patch for `git apply` and `patch -p1`; `leftOut` are paths that a patch cannot express. */
  async patch(options: DiffOptions = {}): Promise<{ patch: Buffer; changes: Change[]; leftOut: string[] }> {
    const parts: Buffer[] = [];
    const { signal, onProgress } = options;
    const call = { signal, onProgress, onData: (part: Buffer) => void parts.push(part) };
    type Answer = { changes: WireChange[]; left_out: WireBytes[] };
    const answer = await this.client.call<Answer>("workspace.patch", this.#sides(options), call);
    return { patch: Buffer.concat(parts), changes: answer.changes.map(ofChange), leftOut: answer.left_out.map(ofText) };
  }

  #sides(options: DiffOptions): object {
    const from = wireState(options.from ?? { ref: "@" });
    return { ...this.#place, from, to: wireState(options.to ?? "live"), paths: options.paths?.map(wirePath) };
  }

  /** Merges another branch into this one. With conflicts nothing is changed, unless `keepConflicts` says so. */
  merge(from: string, options: MergeOptions = {}): Promise<MergeResult> {
    return this.branches.merge(from, { ...options, into: this.branch });
  }

  /** Merges what changed in the project since into this branch. */
  async update(options: UpdateOptions = {}): Promise<MergeResult> {
    const { keepConflicts, dryRun, signal, onProgress } = options;
    const params = { ...this.#place, keep_conflicts: keepConflicts, dry_run: dryRun };
    return ofMerge(await this.client.call<WireMerge>("workspace.update", params, { signal, onProgress }));
  }

  /** Writes the branch's changes to the project, all or none of them. */
  async apply(options: ApplyOptions = {}): Promise<ApplyResult> {
    const { dryRun, privileged, trust, signal, onProgress } = options;
    const params = { ...this.#place, dry_run: dryRun, privileged, trust };
    const answer = await this.client.call<WireApply>("workspace.apply", params, { signal, onProgress });
    return {
      status: answer.status,
      changes: answer.changes.map(ofChange),
      conflicts: answer.conflicts.map(ofConflict),
      leftOut: answer.left_out.map(ofText),
      untrusted: (answer.untrusted ?? []).map(ofText),
      before: answer.before,
    };
  }

  /** Writes a commit, or the branch as it is now, as one SQLite file (docs/export.md). */
  async export(file: string, options: Abortable & { ref?: string; force?: boolean; history?: boolean } = {}): Promise<void> {
    const { ref, force, history, signal } = options;
    const params = { ...this.#place, reference: ref, file: path.resolve(file), force, history };
    await this.client.call("workspace.export", params, { signal });
  }

  /** Runs a command in the sandbox of the branch. */
  run(command: [string, ...string[]], options: RunOptions = {}): Promise<RunResult> {
    return run(this.client, this.#place, command, options);
  }

  /**
   * Runs `f` once: its result, which JSON must be able to express, and the files after it are kept. On later runs of the
   * program the result is given and `f` is not run; with `files`, the files are set to what they were after the step.
   */
  step<T>(name: string, f: () => T | Promise<T>, options: StepOptions = {}): Promise<T> {
    return step(this, name, f, { program: this.#stepsOf, ...options });
  }

  /** Has a step run again; says whether it had been done. */
  forget(name: string, options: { program?: string } = {}): Promise<boolean> {
    return forgetStep(this, name, options.program ?? this.#stepsOf);
  }
}

interface WireInfo {
  name: string;
  mount: WireBytes;
  base: WireBytes;
  status: WorkspaceInfo["status"];
  unmounted?: boolean;
}

interface WireCheckpoint {
  commit: string | null;
  files_changed: number;
  bytes_changed: number;
  moved_from: string | null;
  new_commit: boolean;
  unresolved: number;
}

interface WireRollback {
  commit: string | null;
  replaced: string | null;
  files_changed: number;
}

interface WireCommit extends Omit<Commit, "time"> {
  time: WireMoment;
}

interface WireApply {
  status: ApplyResult["status"];
  changes: WireChange[];
  conflicts: WireConflict[];
  left_out: WireBytes[];
  untrusted?: WireBytes[];
  before: string;
}

function ofInfo(info: WireInfo): WorkspaceInfo {
  return { name: info.name, mount: ofText(info.mount), base: ofText(info.base), status: info.status, unmounted: info.unmounted ?? false };
}

function ofRollback(answer: WireRollback): RollbackResult {
  return { commit: answer.commit, replaced: answer.replaced, filesChanged: answer.files_changed };
}

function wireState(state: State | string): State {
  if (typeof state !== "string" || state === "live" || state === "base") return state as State;
  return { ref: state };
}

function wireTarget(target: Target | string): object | string {
  if (typeof target === "string") return target === "head" ? target : { ref: target };
  return "before" in target ? { before: wireMoment(target.before) } : target;
}

/** @internal Whether an error says that the workspace does not run: then nothing was done. */
export function isNotRunning(error: unknown): boolean {
  return error instanceof AgentVfsError && error.kind === "not-running";
}
