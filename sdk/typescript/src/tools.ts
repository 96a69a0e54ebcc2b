/** Tool calls of a branch: what was called, when, with what result, and what it changed. */

import { randomUUID } from "node:crypto";
import { ofChange, ofConflict, type Change, type Conflict, type WireChange, type WireConflict } from "./changes.js";
import type { Client } from "./client.js";
import type { Abortable } from "./files.js";
import { jsonText, ofMoment, wireMoment, type WireMoment } from "./wire.js";

/** How a call is. */
export type CallStatus = "pending" | "success" | "error";

/** A tool call, or with `all` something else in the timeline, such as a rollback. */
export interface TimelineItem {
  /** Its number in the timeline. */
  entry: number;
  /** What it is. */
  kind: "call" | "rollback" | "undo" | "redo" | "merge" | "restore" | "tool-undo";
  /** Of a call, its id on the branch; otherwise null. */
  id: number | null;
  /** Of a `tool-undo`, the call that was undone; otherwise null. */
  undoes: number | null;
  /** Name of the tool, or the kind. */
  name: string;
  /** How it is. */
  status: CallStatus;
  /** Its parameters. */
  parameters: unknown;
  /** Its result. */
  result: unknown;
  /** Why it failed, or null. */
  error: string | null;
  /** When it began. */
  started: Date;
  /** When it ended, or null. */
  completed: Date | null;
  /** How long it took, or null. */
  durationMs: number | null;
  /** Commit before it, or null if that is not known yet. */
  before: string | null;
  /** Commit after it, or null. */
  after: string | null;
  /** The innermost call around it, once it has ended. */
  parent: number | null;
  /** Calls at the same time that are neither part of it nor around it. */
  overlaps: number[];
  /** The key that it was started with, or null. */
  key: string | null;
  /** The branch whose timeline has it. */
  branch: string;
}

interface WireItem extends Omit<TimelineItem, "started" | "completed" | "durationMs" | "parameters" | "result" | "key"> {
  parameters: string | null;
  result: string | null;
  started: WireMoment;
  completed: WireMoment | null;
  duration_ms: number | null;
  key?: string | null;
}

/** How the calls of a tool went. */
export interface ToolStats {
  /** Name of the tool. */
  name: string;
  /** All its calls. */
  calls: number;
  /** Those that worked. */
  success: number;
  /** Those that failed. */
  error: number;
  /** Those that have not ended. */
  pending: number;
  /** How long those that ended took altogether. */
  totalMs: number;
  /** On average; null if none has ended. */
  averageMs: number | null;
  /** At most; null if none has ended. */
  maxMs: number | null;
}

/** What an undo of a call did. */
export interface ToolUndone {
  /** The commit that is shown now, or null while the project is being imported. */
  commit: string | null;
  /** The automatic commit of what was there; null if nothing was changed. */
  replaced: string | null;
  /** How many files changed. */
  filesChanged: number;
  /** What does not fit any more; then nothing was changed. */
  conflicts: Conflict[];
  /** Of a dry run: what would change. */
  changes: Change[];
}

/** A call by its id, or by the key that it was started with. */
export type CallName = number | { key: string };

/** Tool calls of a branch. */
export class Tools {
  /** @internal */
  constructor(
    private readonly client: Client,
    private readonly place: { workspace: string; branch: string },
  ) {}

  /**
   * Starts a call; gives its id on the branch. `key`: it can be ended by that, and another start with it returns the
   * same call as long as it runs. `unsynced`: return before it is on stable storage.
   */
  async start(name: string, parameters?: unknown, options: Abortable & { key?: string; unsynced?: boolean } = {}): Promise<number> {
    const { key, unsynced, signal } = options;
    const params = { ...this.place, name, parameters: textOf(parameters), key, unsynced };
    return (await this.client.call<{ id: number }>("tool.start", params, { signal })).id;
  }

  /** Ends a call that worked. Everything that it changed is on stable storage then. */
  async success(call: CallName, result?: unknown, options: Abortable = {}): Promise<void> {
    await this.#finish(call, { result: textOf(result) }, options);
  }

  /** Ends a call that failed. */
  async error(call: CallName, error: string, options: Abortable = {}): Promise<void> {
    await this.#finish(call, { error }, options);
  }

  async #finish(call: CallName, outcome: object, options: Abortable): Promise<void> {
    const named = typeof call === "number" ? { id: call } : { key: call.key };
    await this.client.call("tool.finish", { ...this.place, ...named, ...outcome }, { signal: options.signal });
  }

  /**
   * Runs `f` as a call of a tool: its result, or the error that it throws, ends the call. Start and end cost one wait for
   * the disk together; with `unsynced` given to what `f` writes, it is the only one.
   */
  async run<T>(name: string, parameters: unknown, f: (call: { id: number; key: string }) => T | Promise<T>): Promise<T> {
    const key = `agentvfs-ts:${randomUUID()}`;
    const id = await this.start(name, parameters, { key, unsynced: true });
    let result: T;
    try {
      result = await f({ id, key });
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      // What f threw counts more than an error in telling it.
      await this.error({ key }, why).catch(() => {});
      throw error;
    }
    await this.success({ key }, result);
    return result;
  }

  /** Records a call that is over; gives its id. `result` and `error` exclude each other. */
  async record(call: {
    name: string;
    parameters?: unknown;
    result?: unknown;
    error?: string | null;
    /** When it began; otherwise when it ended. */
    started?: Date;
    /** When it ended; otherwise now. */
    completed?: Date;
  }): Promise<number> {
    const params = {
      ...this.place,
      name: call.name,
      parameters: textOf(call.parameters),
      result: textOf(call.result),
      error: call.error ?? undefined,
      started: call.started && wireMoment(call.started),
      completed: call.completed && wireMoment(call.completed),
    };
    return (await this.client.call<{ id: number }>("tool.record", params)).id;
  }

  /** A call. `wait`: until the commits before and after it are known. */
  async get(id: number, options: Abortable & { wait?: boolean } = {}): Promise<TimelineItem> {
    const params = { ...this.place, id, wait: options.wait };
    return ofItem(await this.client.call<WireItem>("tool.show", params, { signal: options.signal }));
  }

  /** Calls, the newest first. `all`: also rollbacks, merges and other switches of the branch. */
  async *list(options: ListOptions = {}): AsyncGenerator<TimelineItem, void, void> {
    let before: number | null = null;
    let left = options.limit ?? Infinity;
    do {
      const { name, status, all, brief, signal } = options;
      const params = { ...this.place, limit: Math.min(left, 1000), before, name, status, all, brief };
      const page: { items: WireItem[]; next: number | null } = await this.client.call("timeline.list", params, { signal });
      for (const item of page.items) yield ofItem(item);
      left -= page.items.length;
      before = page.next;
    } while (before !== null && left > 0);
  }

  /** How the calls of each tool went, by its name. */
  async stats(options: Abortable = {}): Promise<ToolStats[]> {
    type Row = { name: string; calls: number; success: number; error: number; pending: number } & Record<string, number | null>;
    const { tools } = await this.client.call<{ tools: Row[] }>("timeline.stats", this.place, { signal: options.signal });
    return tools.map((row) => ({
      name: row.name,
      calls: row.calls,
      success: row.success,
      error: row.error,
      pending: row.pending,
      totalMs: row.total_ms ?? 0,
      averageMs: row.average_ms ?? null,
      maxMs: row.max_ms ?? null,
    }));
  }

  /** Undoes what a call changed, and nothing else; with conflicts nothing is changed. */
  async undo(id: number, options: Abortable & { dryRun?: boolean } = {}): Promise<ToolUndone> {
    type Answer = { commit: string | null; replaced: string | null; files_changed: number; conflicts: WireConflict[]; changes: WireChange[] };
    const params = { ...this.place, id, dry_run: options.dryRun };
    const answer = await this.client.call<Answer>("tool.undo", params, { signal: options.signal });
    return {
      commit: answer.commit,
      replaced: answer.replaced,
      filesChanged: answer.files_changed,
      conflicts: answer.conflicts.map(ofConflict),
      changes: answer.changes.map(ofChange),
    };
  }

  /** Ends, as failed, all running calls whose keys begin with `prefix`, on all branches; says how many. */
  async giveUp(prefix: string, error: string): Promise<number> {
    const params = { workspace: this.place.workspace, prefix, error };
    return (await this.client.call<{ calls: number }>("tool.give_up", params)).calls;
  }
}

/** Which calls are listed. */
export interface ListOptions extends Abortable {
  /** At most so many. */
  limit?: number;
  /** Only calls of this tool. */
  name?: string;
  /** Only calls that are so. */
  status?: CallStatus;
  /** Also rollbacks, merges and other switches of the branch. */
  all?: boolean;
  /** Without parameters, results and errors. */
  brief?: boolean;
}

function textOf(value: unknown): string | undefined {
  return value === undefined ? undefined : jsonText(value);
}

function valueOf(text: string | null): unknown {
  if (text === null) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function ofItem(item: WireItem): TimelineItem {
  return {
    entry: item.entry,
    kind: item.kind,
    id: item.id,
    undoes: item.undoes,
    name: item.name,
    status: item.status,
    parameters: valueOf(item.parameters),
    result: valueOf(item.result),
    error: item.error,
    started: ofMoment(item.started),
    completed: item.completed === null ? null : ofMoment(item.completed),
    durationMs: item.duration_ms,
    before: item.before,
    after: item.after,
    parent: item.parent,
    overlaps: item.overlaps,
    key: item.key ?? null,
    branch: item.branch,
  };
}
