/** agentfs-sdk's tool calls on the timeline of a workspace. Times are seconds since 1970. */

import { AgentVfsError } from "../errors.js";
import type { TimelineItem } from "../tools.js";
import type { Database } from "./database.js";

/** A tool call. */
export interface ToolCall {
  id: number;
  name: string;
  parameters?: any;
  result?: any;
  error?: string;
  status: "pending" | "success" | "error";
  started_at: number;
  completed_at?: number;
  duration_ms?: number;
}

/** How the calls of a tool went; those that have not ended do not count. */
export interface ToolCallStats {
  name: string;
  total_calls: number;
  successful: number;
  failed: number;
  avg_duration_ms: number;
}

/** agentfs-sdk's `ToolCalls`. */
export class ToolCalls {
  private constructor(private readonly db: Database) {}

  /** Opens the calls of a database. */
  static async fromDatabase(db: Database): Promise<ToolCalls> {
    await db.connect();
    return new ToolCalls(db);
  }

  /** Starts a call; gives its id. */
  async start(name: string, parameters?: unknown): Promise<number> {
    return this.db.use((workspace) => workspace.tools.start(name, parameters, { unsynced: this.db.memory }));
  }

  /** Ends a call that worked. */
  async success(id: number, result?: unknown): Promise<void> {
    await this.#finish(id, () => this.db.use((workspace) => workspace.tools.success(id, result)));
  }

  /** Ends a call that failed. */
  async error(id: number, error: string): Promise<void> {
    await this.#finish(id, () => this.db.use((workspace) => workspace.tools.error(id, error)));
  }

  async #finish(id: number, act: () => Promise<void>): Promise<void> {
    try {
      await act();
    } catch (error) {
      if (!(error instanceof AgentVfsError) || error.kind !== "no-such-call") throw error;
      throw new Error(`Tool call with ID ${id} not found`, { cause: error });
    }
  }

  /** Records a call that is over; gives its id. */
  async record(name: string, started_at: number, completed_at: number, parameters?: unknown, result?: unknown, error?: string): Promise<number> {
    const started = new Date(started_at * 1000);
    const completed = new Date(completed_at * 1000);
    const outcome = error ? { error } : { result };
    return this.db.use((workspace) => workspace.tools.record({ name, parameters, started, completed, ...outcome }));
  }

  /** A call. */
  async get(id: number): Promise<ToolCall | undefined> {
    try {
      return ofItem(await this.db.use((workspace) => workspace.tools.get(id)));
    } catch (error) {
      if (error instanceof AgentVfsError && error.kind === "no-such-call") return undefined;
      throw error;
    }
  }

  /** Calls of a tool, the last started first. */
  async getByName(name: string, limit?: number): Promise<ToolCall[]> {
    return (await this.#all({ name })).slice(0, limit);
  }

  /** Calls that started after a moment, the last started first. */
  async getRecent(since: number, limit?: number): Promise<ToolCall[]> {
    return (await this.#all({})).filter((call) => call.started_at > since).slice(0, limit);
  }

  /** Calls are recorded with any times, so the order of the timeline is not that of their beginnings. */
  async #all(which: { name?: string }): Promise<ToolCall[]> {
    const calls = await this.db.use(async (workspace) => {
      const found: ToolCall[] = [];
      for await (const item of workspace.tools.list(which)) found.push(ofItem(item));
      return found;
    });
    return calls.sort((a, b) => b.started_at - a.started_at);
  }

  /** How the calls of each tool went, the most called first. */
  async getStats(): Promise<ToolCallStats[]> {
    const all = await this.db.use((workspace) => workspace.tools.stats());
    const stats = all.map((tool) => ({
      name: tool.name,
      total_calls: tool.success + tool.error,
      successful: tool.success,
      failed: tool.error,
      avg_duration_ms: tool.averageMs ?? 0,
    }));
    return stats.filter((tool) => tool.total_calls > 0).sort((a, b) => b.total_calls - a.total_calls);
  }
}

function seconds(date: Date): number {
  return Math.floor(date.getTime() / 1000);
}

function ofItem(item: TimelineItem): ToolCall {
  const call: ToolCall = { id: item.id ?? 0, name: item.name, status: item.status, started_at: seconds(item.started) };
  return Object.assign(call, {
    parameters: item.parameters,
    result: item.result,
    error: item.error ?? undefined,
    completed_at: item.completed === null ? undefined : seconds(item.completed),
    duration_ms: item.durationMs ?? undefined,
  });
}
