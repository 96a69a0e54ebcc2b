/**
 * agentfs-sdk's API (0.6.4) on workspaces: replace `from "agentfs-sdk"` by `from "agentvfs/agentfs"`.
 *
 * ```ts
 * import { AgentFS } from "agentvfs/agentfs";
 *
 * const agent = await AgentFS.open({ id: "my-agent" });
 * await agent.fs.writeFile("/notes.md", "a plan");
 * const workspace = await agent.workspace(); // checkpoints, rollback, branches
 * ```
 *
 * @packageDocumentation
 */

import type { Workspace } from "../workspace.js";
import { Database, type DatabaseOptions } from "./database.js";
import { Filesystem } from "./filesystem.js";
import { KvStore } from "./kvstore.js";
import { ToolCalls } from "./toolcalls.js";

export { Filesystem } from "./filesystem.js";
export { KvStore } from "./kvstore.js";
export { ToolCalls, type ToolCall, type ToolCallStats } from "./toolcalls.js";
export { createFsError, type ErrnoException, type FsErrorCode, type FsSyscall } from "./errors.js";
export type { DirEntry, FileHandle, FileSystem, FilesystemStats, Stats } from "./interface.js";

/** Which agent is opened. */
export interface AgentFSOptions extends DatabaseOptions {
  /** Its name: the workspace is named by `.agentfs/ID.db`. */
  id?: string;
  /** That file, or `:memory:`. */
  path?: string;
}

/** agentfs-sdk's `AgentFS`. */
export class AgentFS {
  private constructor(
    private readonly db: Database,
    /** Key-value store. */
    readonly kv: KvStore,
    /** File system. */
    readonly fs: Filesystem,
    /** Tool calls. */
    readonly tools: ToolCalls,
  ) {}

  /** Opens an agent; its workspace is created, or imported from a database, if need be. */
  static async open(options: AgentFSOptions): Promise<AgentFS> {
    const { id, path } = options;
    if (!id && !path) throw new Error("AgentFS.open() requires at least 'id' or 'path'.");
    if (id && !/^[a-zA-Z0-9_-]+$/.test(id)) {
      throw new Error("Agent ID must contain only alphanumeric characters, hyphens, and underscores");
    }
    return AgentFS.openWith(new Database(path || `.agentfs/${id}.db`, options));
  }

  /** Opens the agent of a database. */
  static async openWith(db: Database): Promise<AgentFS> {
    await db.connect();
    const [kv, fs, tools] = await Promise.all([KvStore.fromDatabase(db), Filesystem.fromDatabase(db), ToolCalls.fromDatabase(db)]);
    return new AgentFS(db, kv, fs, tools);
  }

  /** What stands in place of the database. */
  getDatabase(): Database {
    return this.db;
  }

  /** The workspace. */
  workspace(): Promise<Workspace> {
    return this.db.workspace();
  }

  /** Closes the connections. `export` writes the workspace as a database of agentfs-sdk's format first. */
  async close(options: { export?: string } = {}): Promise<void> {
    await this.db.close(options);
  }
}
