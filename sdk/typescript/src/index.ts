/**
 * Client of agentvfs: workspaces with branches, checkpoints and rollback for AI agents.
 *
 * ```ts
 * import { Workspace } from "agentvfs";
 *
 * const ws = await Workspace.open("my-task", { from: "/home/me/project" });
 * await ws.files.write("notes.md", "a plan");
 * const { commit } = await ws.checkpoint({ label: "plan" });
 * await ws.files.write("notes.md", "something else");
 * await ws.rollback("plan");
 * ```
 *
 * @packageDocumentation
 */

export { AbortedError, AgentVfsError, BrokenError, FileError, NoDaemonError, VersionError, type ErrorFacts } from "./errors.js";
export { Client, type ClientOptions } from "./client.js";
export type { CallOptions, Hello, Progress } from "./connection.js";
export { PROTOCOL_VERSION } from "./connection.js";
export type { Path, State } from "./wire.js";
export {
  FileHandle,
  FileInfo,
  Files,
  FilesView,
  PIECE_BYTES,
  type Abortable,
  type FilesStats,
  type FileType,
  type OpenOptions,
  type RemoveOptions,
  type WriteOptions,
} from "./files.js";
export { Kv, KvView, type KvEntry } from "./kv.js";
export { Tools, type CallName, type CallStatus, type ListOptions, type TimelineItem, type ToolStats, type ToolUndone } from "./tools.js";
export { Branches, type BranchInfo, type MergeOptions, type MergeResult } from "./branches.js";
export type { Change, Conflict, Lines } from "./changes.js";
export type { Event, WatchOptions } from "./events.js";
export type { RunOptions, RunResult } from "./run.js";
export type { StepOptions } from "./step.js";
export {
  Workspace,
  type ApplyOptions,
  type ApplyResult,
  type CheckpointOptions,
  type CheckpointResult,
  type Commit,
  type DiffOptions,
  type OpenWorkspaceOptions,
  type RollbackOptions,
  type RollbackPlan,
  type RollbackResult,
  type Target,
  type UpdateOptions,
  type WorkspaceInfo,
} from "./workspace.js";
